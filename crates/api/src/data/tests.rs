use std::vec::Vec;

use super::*;

const BASE: u64 = 0x1_0000;
const UFS: SegmentLimits =
    SegmentLimits { count: 4, length: 8192, alignment: 4, boundary: 0, inner: 1 };

fn memory() -> DmaRegion {
    DmaRegion::zeroed(1 << 16, BASE)
}

fn range(offset: u64, len: u32) -> DmaSlice {
    DmaSlice { address: BASE + offset, len }
}

/// The list is at the beginning of memory, the driver's own memory at its end.
fn walk(limits: SegmentLimits, memory: &DmaRegion) -> Walk {
    Walk::new(limits, 1 << 15, memory, &memory.carve(0xF000, 0x1000))
}

fn segments(limits: SegmentLimits, ranges: &[DmaSlice]) -> Result<Vec<DmaSlice>, BadData> {
    let memory = memory();
    let data = Data::list(&memory, 0, ranges).unwrap();
    placed(&walk(limits, &memory), &data)
}

fn placed(walk: &Walk, data: &Data) -> Result<Vec<DmaSlice>, BadData> {
    let mut out = Vec::new();
    let count = walk.run(data, |n, segment| {
        // Data that is not plainly good is begun anew.
        out.truncate(n as usize);
        assert_eq!(n as usize, out.len());
        out.push(segment);
    })?;
    assert_eq!(count as usize, out.len());
    Ok(out)
}

#[test]
fn a_list_becomes_its_ranges_in_any_order() {
    for ranges in [
        [range(0x1000, 512), range(0x1200, 4), range(0x8000, 4096)],
        [range(0x8000, 4096), range(0x1000, 512), range(0x1200, 4)],
    ] {
        assert_eq!(segments(UFS, &ranges), Ok(ranges.to_vec()));
    }
}

#[test]
fn long_ranges_are_cut_and_count() {
    let cut = segments(UFS, &[range(0x1000, 0x3000), range(0x6000, 4)]).unwrap();
    assert_eq!(cut, [range(0x1000, 0x2000), range(0x3000, 0x1000), range(0x6000, 4)]);
    let bounded = SegmentLimits { boundary: 4096, ..UFS };
    let cut = segments(bounded, &[range(0x1800, 0x1000)]).unwrap();
    assert_eq!(cut, [range(0x1800, 0x800), range(0x2000, 0x800)]);
    let one = Data::One(range(0x1004, 0x6000));
    let memory = memory();
    assert_eq!(placed(&walk(UFS, &memory), &one).map(|cut| cut.len()), Ok(3));
    let too_long = Data::One(range(0x1000, 0x8000));
    let pages = SegmentLimits { length: 4096, ..UFS };
    assert_eq!(placed(&walk(pages, &memory), &too_long), Err(BadData::TooMany));
}

#[test]
fn bad_lists_are_refused() {
    let four = [0x1000, 0x2000, 0x3000, 0x4000].map(|at| range(at, 4));
    assert!(segments(UFS, &four).is_ok());
    let five = [&four[..], &[range(0x5000, 4)]].concat();
    let far = DmaSlice { address: u64::MAX - 3, len: 4 };
    for (ranges, cause) in [
        (&five[..], BadData::TooMany),
        (&[range(0x1002, 4)], BadData::Misaligned),
        (&[range(0x1000, 6)], BadData::Misaligned),
        (&[range(0x1000, 8), range(0x1004, 8)], BadData::Overlap),
        (&[range(0x3000, 8), range(0x1000, 8), range(0x3004, 8)], BadData::Overlap),
        (&[range(0x1000, 8), range(0x2000, 0)], BadData::Empty),
        (&[range(0x1_0000, 4)], BadData::Outside),
        (&[range(0xEFFC, 8)], BadData::Outside),
        (&[range(0x1000, 4), far, range(0x2000, 4)], BadData::Outside),
        (&[range(0xF800, 4)], BadData::Outside),
    ] {
        // A last range without bytes is not reached by the length: it is asked for with one more.
        let memory = memory();
        let mut data = Data::list(&memory, 0, ranges).unwrap();
        if let (Data::List { len, .. }, BadData::Empty) = (&mut data, cause) {
            *len += 4;
        }
        assert_eq!(placed(&walk(UFS, &memory), &data), Err(cause), "{ranges:x?}");
    }
    // Around the driver's memory is not in it.
    let memory = memory();
    let middle = Walk::new(UFS, 4096, &memory, &memory.carve(0x8000, 0x1000));
    let around = Data::list(&memory, 0, &[range(0x7000, 64), range(0x9000, 64)]).unwrap();
    assert!(placed(&middle, &around).is_ok());
    let over = Data::One(range(0x7FFC, 64));
    assert_eq!(placed(&middle, &over), Err(BadData::Outside));
    let long = Data::One(range(0x1000, 8192));
    assert_eq!(placed(&middle, &long), Err(BadData::Length));
}

#[test]
fn a_list_outside_memory_or_too_short_is_refused() {
    let memory = memory();
    let walk = walk(UFS, &memory);
    for (entries, cause) in
        [(BASE - 8, BadData::List), (BASE + 0xFFF8, BadData::List), (u64::MAX - 7, BadData::List)]
    {
        let data = Data::List { entries, count: 1, skip: 0, len: 4 };
        assert_eq!(placed(&walk, &data), Err(cause));
    }
    let mut longer = Data::list(&memory, 0, &[range(0x1000, 8)]).unwrap();
    if let Data::List { len, .. } = &mut longer {
        *len = 12;
    }
    assert_eq!(placed(&walk, &longer), Err(BadData::Short));
    assert!(Data::list(&memory, 0xFFF8, &[range(0, 4)]).is_err());
    assert!(Data::list(&memory, 4, &[range(0, 4)]).is_err());
    assert!(Data::list(&memory, 0, &[range(0, u32::MAX), range(0, 1)]).is_err());
}

#[test]
fn pages_of_a_prp_list_have_no_gaps() {
    let prp = SegmentLimits { count: 8, length: 4096, alignment: 4, boundary: 4096, inner: 4096 };
    let good = [range(0x1F00, 0x100), range(0x4000, 0x2000), range(0x3000, 0x80)];
    assert_eq!(segments(prp, &good).map(|s| s.len()), Ok(4));
    for bad in [
        [range(0x1F00, 0x80), range(0x4000, 0x1000), range(0x3000, 0x80)],
        [range(0x1F00, 0x100), range(0x4080, 0xF80), range(0x3000, 0x80)],
        [range(0x1F00, 0x100), range(0x4000, 0x80), range(0x3000, 0x80)],
    ] {
        assert_eq!(segments(prp, &bad), Err(BadData::Misaligned));
    }
}

#[test]
fn parts_of_a_list_are_the_bytes_they_name() {
    let memory = memory();
    let ranges = [range(0x1000, 12), range(0x2000, 4), range(0x3000, 16)];
    let bytes: Vec<u64> =
        ranges.iter().flat_map(|r| (0..r.len).map(|n| r.address + u64::from(n))).collect();
    let one = Data::One(range(0x4000, 32));
    let list = Data::list(&memory, 0, &ranges).unwrap();
    for skip in (0..=32_u32).step_by(4) {
        for len in (0..=32 - skip).step_by(4) {
            let part = list.part(&memory, skip, len).unwrap();
            let named: Vec<u64> = part
                .ranges(&memory)
                .flat_map(|r| r.map(|r| (0..r.len).map(move |n| r.address + u64::from(n))).unwrap())
                .collect();
            assert_eq!(named, bytes[skip as usize..][..len as usize]);
            // And a part of a part.
            let half = part.part(&memory, len / 8 * 4, len - len / 8 * 4).unwrap();
            let walked = placed(&walk(UFS, &memory), &half).unwrap();
            assert_eq!(walked.iter().map(|s| s.len).sum::<u32>(), half.len());
            let plain = one.part(&memory, skip, len).unwrap();
            assert_eq!(plain, Data::One(range(0x4000 + u64::from(skip), len)));
        }
    }
    assert_eq!(list.part(&memory, 4, 32), Err(BadData::Short));
    assert_eq!(one.part(&memory, 33, 0), Err(BadData::Short));
}

#[test]
fn a_command_takes_as_many_bytes_as_its_segments_hold() {
    let memory = memory();
    let ranges: Vec<_> = (1..9).map(|n| range(n * 0x1000, 768)).collect();
    let list = Data::list(&memory, 0, &ranges).unwrap();
    assert_eq!(UFS.fit(&list, &memory, list.len(), 512), Ok(3072));
    assert_eq!(UFS.fit(&list, &memory, 512, 512), Ok(512));
    assert_eq!(UFS.fit(&list, &memory, list.len(), 4096), Err(BadData::TooMany));
    assert_eq!(UFS.fit(&Data::One(range(0, 0x8000)), &memory, 0x8000, 512), Ok(0x8000));
}
