use super::*;
use std::vec::Vec;

#[test]
fn bytes_and_words_are_the_same_memory() {
    let region = DmaRegion::zeroed(4096, 0x1000);
    region.write(8, &0x1122_3344_5566_7788_u64.to_ne_bytes());
    assert_eq!(region.load64(8), 0x1122_3344_5566_7788);
    region.store32(8, 7);
    let mut bytes = [0; 4];
    region.read(8, &mut bytes);
    assert_eq!(u32::from_ne_bytes(bytes), 7);
}

#[test]
fn carved_region_keeps_memory_and_addresses() {
    let part = DmaRegion::zeroed(8192, 0x1_0000).carve(4096, 64);
    part.fill(0, 64, 0xAB);
    assert_eq!(part.slice(16, 8), DmaSlice { address: 0x1_1010, len: 8 });
    assert_eq!(part.load32(60), 0xABAB_ABAB);
}

#[test]
fn blocks_are_inside_and_aligned_or_there_are_none() {
    let region = DmaRegion::zeroed(64, 0);
    region.store64(24, 3);
    region.store64(48, 6);
    let words: Vec<_> =
        region.blocks::<24>(8, 2).expect("inside").map(|block| block.get::<16, 1>()).collect();
    assert_eq!(words, [[3], [6]]);
    assert_eq!(region.blocks::<16>(64, 0).map(Iterator::count), Some(0));
    for (offset, count) in [(24, 3), (72, 0), (4, 1), (usize::MAX - 7, 1), (0, usize::MAX)] {
        assert!(region.blocks::<16>(offset, count).is_none(), "{count} at {offset}");
    }
}

#[test]
fn device_addresses_outside_are_refused() {
    let region = DmaRegion::zeroed(4096, 0x1000);
    assert_eq!(region.offset_of(0x1000, 4096), Ok(0));
    assert_eq!(region.offset_of(0x1fff, 1), Ok(4095));
    for (address, len) in [(0xfff, 1), (0x1fff, 2), (u64::MAX, 1), (0x1001, usize::MAX)] {
        assert_eq!(region.offset_of(address, len), Err(OutOfRange { address, len }));
    }
}

#[test]
#[should_panic(expected = "outside a DMA region")]
fn access_beyond_the_end_is_our_own_mistake() {
    DmaRegion::zeroed(64, 0).fill(60, 5, 0);
}
