use super::*;

fn region(address: u64, len: usize) -> DmaRegion {
    DmaRegion::zeroed(len, address)
}

#[test]
fn an_access_goes_over_adjacent_ranges_and_stops_at_a_hole() {
    let mut memory = GuestMemory::default();
    let (low, high) = (region(0x1000, 0x1000), region(0x2000, 0x1000));
    memory.map(high.clone(), true).unwrap();
    memory.map(low.clone(), true).unwrap();
    memory.write(0x1FFE, &[1, 2, 3, 4]).unwrap();
    let mut back = [0; 4];
    memory.read(0x1FFE, &mut back).unwrap();
    assert_eq!(back, [1, 2, 3, 4]);
    assert_eq!((low.load32(0xFFC).to_le() >> 16, high.load32(0).to_le()), (0x0201, 0x0403));
    assert!(memory.read(0xFFF, &mut back).is_err());
    assert!(memory.read(0x2FFD, &mut back).is_err());
    assert!(memory.read(u64::MAX, &mut back).is_err());
    assert!(memory.store32(0x1FFC, 9).is_ok() && memory.store32(0x1FFE, 9).is_err());
}

#[test]
fn what_overlaps_is_not_mapped_and_what_is_gone_is_no_memory() {
    let mut memory = GuestMemory::from(region(0x4000, 0x1000));
    assert_eq!(memory.map(region(0x4FFF, 1), true), Err(MapError::Overlap));
    assert_eq!(memory.map(region(0x3000, 0x1001), true), Err(MapError::Overlap));
    assert_eq!(memory.map(region(u64::MAX, 2), true), Err(MapError::Invalid));
    memory.map(region(u64::MAX - 0xFFF, 0x1000), true).unwrap();
    memory.map(region(0x5000, 0x1000), false).unwrap();
    assert!(memory.write(0x5000, &[1]).is_err(), "it may only be read");
    assert!(memory.contains(0x4800, 0x1800) && memory.contains(u64::MAX, 1));
    assert_eq!(memory.unmap(0x4800, 0x800), 0, "a part of a range stays");
    assert_eq!(memory.unmap(0x5000, 0x1000), 1);
    assert!(!memory.contains(0x5000, 1));
    assert_eq!(memory.unmap(0xFEF0_0000, 0xFFFF_FFFF_0110_0000), 1, "up to the last address");
    assert_eq!(memory.unmap(0, 0), 1, "everything");
    assert_eq!(memory.ranges(), 0);
    assert!(!memory.contains(0x4000, 1));
}

#[test]
fn thousands_of_ranges_come_and_go() {
    let mut memory = GuestMemory::default();
    for n in 0..4096_u64 {
        memory.map(region((n * 37 % 4096) << 13, 0x1000), true).unwrap();
    }
    for n in 0..4096_u64 {
        memory.write(n << 13, &n.to_ne_bytes()).unwrap();
        assert!(!memory.contains((n << 13) + 0x1000, 1));
    }
    assert_eq!(memory.unmap(0, 1 << 24), 2048);
    for n in 0..4096_u64 {
        let mut back = [0; 8];
        let read = memory.read(n << 13, &mut back);
        assert_eq!(read.is_ok(), n >= 2048);
        assert!(n < 2048 || u64::from_ne_bytes(back) == n);
    }
}
