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

/// The rows of the table of [`SegmentLimits`], where the driver chooses five segments.
const PRDT: SegmentLimits =
    SegmentLimits { count: 5, length: 256 << 10, alignment: 4, boundary: 0, inner: 1 };
const PRP: SegmentLimits =
    SegmentLimits { count: 5, length: 4096, alignment: 4, boundary: 4096, inner: 4096 };
const ADMA2: SegmentLimits =
    SegmentLimits { count: 5, length: 64 << 10, alignment: 4, boundary: 0, inner: 1 };
const PRD: SegmentLimits =
    SegmentLimits { count: 5, length: 4 << 20, alignment: 2, boundary: 0, inner: 1 };

/// Memory for the longest lists below; bytes that are never written take no memory.
const LARGE: usize = 160 << 20;
/// Where ranges of lists in large memory begin.
const FIRST: u64 = 1 << 16;

fn large(limits: SegmentLimits) -> (DmaRegion, Walk) {
    let memory = DmaRegion::zeroed(LARGE, BASE);
    let own = memory.carve(LARGE - 4096, 4096);
    let walk = Walk::new(limits, 1 << 30, &memory, &own);
    (memory, walk)
}

/// Offsets from [`FIRST`], and lengths.
type Ranges<'a> = &'a [(u64, u32)];

/// Walks lists of ranges; each row gives the segments that result, or why the list is refused.
fn walks(limits: SegmentLimits, cases: &[(Ranges<'_>, Result<Ranges<'_>, BadData>)]) {
    let (memory, walk) = large(limits);
    let named = |ranges: Ranges<'_>| -> Vec<DmaSlice> {
        ranges.iter().map(|(at, len)| range(FIRST + at, *len)).collect()
    };
    for (ranges, expected) in cases {
        let data = Data::list(&memory, 0, &named(ranges)).unwrap();
        assert_eq!(placed(&walk, &data), expected.map(named), "{ranges:x?}");
        if let [(at, len)] = **ranges {
            let one = Data::One(range(FIRST + at, len));
            assert_eq!(placed(&walk, &one), expected.map(named), "{ranges:x?} as one range");
        }
    }
}

/// SD Host Controller Specification, ADMA2: a descriptor moves up to 65536 bytes (a length of 0
/// stands for them), and with 32-bit addressing its address is a multiple of 4.
#[test]
fn adma2_descriptors_are_64_kib_and_begin_at_words() {
    const FULL: u32 = 64 << 10;
    const END: u64 = LARGE as u64 - 4096 - FIRST;
    walks(
        ADMA2,
        &[
            (&[(0, FULL)], Ok(&[(0, FULL)])),
            (&[(0, FULL + 4)], Ok(&[(0, FULL), (FULL.into(), 4)])),
            // No multiple of anything is a boundary.
            (&[(0xFFFC, FULL)], Ok(&[(0xFFFC, FULL)])),
            (
                &[(0x8004, 8), (0x4, 12), (0x7_0000, 512)],
                Ok(&[(0x8004, 8), (0x4, 12), (0x7_0000, 512)]),
            ),
            (
                &[(4, 3 * FULL - 4), (0x10_0000, FULL + 8)],
                Ok(&[
                    (4, FULL),
                    (0x1_0004, FULL),
                    (0x2_0004, FULL - 4),
                    (0x10_0000, FULL),
                    (0x11_0000, 8),
                ]),
            ),
            (&[(0, 5 * FULL)], Ok(&[0, 1, 2, 3, 4].map(|n| (n << 16, FULL)))),
            (&[(0, 5 * FULL + 4)], Err(BadData::TooMany)),
            (&[(4, 3 * FULL), (0x10_0000, FULL + 4), (0x20_0000, 4)], Err(BadData::TooMany)),
            (&[(0x10_0000, 4), (2, FULL)], Err(BadData::Misaligned)),
            (&[(0, FULL - 2)], Err(BadData::Misaligned)),
            (&[(0, 6), (0x1000, 4)], Err(BadData::Misaligned)),
            (&[(0, FULL), (0x2_0000, 4), (0xFFFC, 4)], Err(BadData::Overlap)),
            (&[(0x1000, 4), (END, 4)], Err(BadData::Outside)),
            (&[(END - 4, 8)], Err(BadData::Outside)),
            (&[(END - 4, 4)], Ok(&[(END - 4, 4)])),
        ],
    );
}

/// Serial ATA AHCI 1.3.1, 4.2.3.3: an entry moves up to 4 MiB, an even number of bytes, from an
/// even address.
#[test]
fn ahci_entries_are_4_mib_and_of_even_bytes() {
    const FULL: u32 = 4 << 20;
    walks(
        PRD,
        &[
            (&[(0, FULL)], Ok(&[(0, FULL)])),
            (&[(0, FULL + 2)], Ok(&[(0, FULL), (FULL.into(), 2)])),
            (&[(0x3F_FFFE, FULL)], Ok(&[(0x3F_FFFE, FULL)])),
            (&[(2, 2), (6, 510), (0x8002, 0xFFFE)], Ok(&[(2, 2), (6, 510), (0x8002, 0xFFFE)])),
            (
                &[(2, 2 * FULL + 6), (0x100_0000, FULL + 512)],
                Ok(&[
                    (2, FULL),
                    (0x40_0002, FULL),
                    (0x80_0002, 6),
                    (0x100_0000, FULL),
                    (0x140_0000, 512),
                ]),
            ),
            (&[(0, 5 * FULL)], Ok(&[0, 1, 2, 3, 4].map(|n| (n << 22, FULL)))),
            (&[(0, 5 * FULL + 2)], Err(BadData::TooMany)),
            (&[(1, 512)], Err(BadData::Misaligned)),
            (&[(0, 511)], Err(BadData::Misaligned)),
            (&[(0x1000, 512), (0, 1), (0x2001, 511)], Err(BadData::Misaligned)),
            (&[(0x40_0000, 2), (0, FULL + 2)], Err(BadData::Overlap)),
            (&[(LARGE as u64 - FIRST, 2)], Err(BadData::Outside)),
        ],
    );
}

/// How many segments a list must become according to the table; `None` if it must be refused.
fn judged(limits: &SegmentLimits, ranges: &[DmaSlice]) -> Option<u64> {
    let of = |n: u32| u64::from(n);
    let is_aligned = |range: &DmaSlice| {
        range.address.is_multiple_of(of(limits.alignment))
            && range.len.is_multiple_of(limits.alignment)
    };
    let overlap = |a: &DmaSlice, b: &DmaSlice| {
        a.address < b.address + of(b.len) && b.address < a.address + of(a.len)
    };
    let (first, last) = (0, ranges.len() - 1);
    let has_gap = |(n, range): (usize, &DmaSlice)| {
        n != first && !range.address.is_multiple_of(of(limits.inner))
            || n != last && !(range.address + of(range.len)).is_multiple_of(of(limits.inner))
    };
    let pairs = || (0..ranges.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
    let is_bad = !ranges.iter().all(is_aligned)
        || ranges.iter().enumerate().any(has_gap)
        || pairs().any(|(a, b)| overlap(&ranges[a], &ranges[b]));
    let cut = |range: &DmaSlice| match limits.boundary {
        0 => of(range.len).div_ceil(of(limits.length)),
        // Segments are as long as the boundaries are apart: one for each piece that is touched.
        size => {
            assert_eq!(size, limits.length);
            (range.address + of(range.len) - 1) / of(size) - range.address / of(size) + 1
        }
    };
    let count = ranges.iter().map(cut).sum();
    (!is_bad && count <= of(limits.count.into())).then_some(count)
}

/// Lists of all kinds, under every row of the table: accepted if the table allows it, as segments
/// that the table allows, with the same bytes in the same order.
#[test]
fn every_row_of_the_table_is_what_a_walk_keeps() {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut below = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    };
    for limits in [PRDT, PRP, ADMA2, PRD] {
        let (memory, walk) = large(limits);
        let [length, alignment] = [limits.length, limits.alignment].map(u64::from);
        // Places far enough apart for the longest range, so that most lists have no overlaps.
        let place = 4 * length;
        let (mut taken, mut refused) = (0, 0);
        for _ in 0..20_000 {
            let ranges: Vec<DmaSlice> = (0..1 + below(6))
                .map(|_| {
                    // Pieces that fit together, or any; now and then off by half.
                    let step = if below(4) > 0 { u64::from(limits.inner) } else { alignment };
                    let step = step.max(alignment);
                    let half = |is_off: bool| if is_off { alignment / 2 } else { 0 };
                    let at = below(8) * place + below(length) / step * step + half(below(40) == 0);
                    let len = match below(4) {
                        0 => length,
                        1 => 1 + below(2 * length),
                        _ => 1 + below(length),
                    };
                    let len = len.next_multiple_of(step) + half(below(40) == 0);
                    range(FIRST + at, len as u32)
                })
                .collect();
            let data = Data::list(&memory, 0, &ranges).unwrap();
            match (placed(&walk, &data), judged(&limits, &ranges)) {
                (Ok(segments), Some(count)) => {
                    taken += 1;
                    assert_eq!(segments.len() as u64, count, "{ranges:x?}");
                    keeps(&limits, &ranges, &segments);
                }
                (Err(_), None) => refused += 1,
                (walked, judged) => panic!("{limits:?}, {ranges:x?}: {walked:x?}, {judged:?}"),
            }
        }
        assert!(taken > 1000 && refused > 1000, "{limits:?}: {taken} taken, {refused} refused");
    }
}

/// Whether each of `segments` is allowed, and together they are the bytes of `ranges`.
fn keeps(limits: &SegmentLimits, ranges: &[DmaSlice], segments: &[DmaSlice]) {
    let alignment = u64::from(limits.alignment);
    let mut rest = ranges.iter().copied();
    let mut range = DmaSlice::EMPTY;
    for segment in segments {
        if range.len == 0 {
            range = rest.next().expect("no more segments than ranges have bytes for");
        }
        assert!((1..=limits.length).contains(&segment.len), "{segment:x?}");
        assert!(
            (segment.address | u64::from(segment.len)).is_multiple_of(alignment),
            "{segment:x?}"
        );
        let end = segment.address + u64::from(segment.len) - 1;
        let boundary = u64::from(limits.boundary);
        assert!(boundary == 0 || segment.address / boundary == end / boundary, "{segment:x?}");
        assert!(segment.address == range.address && segment.len <= range.len, "{segment:x?}");
        range.address += u64::from(segment.len);
        range.len -= segment.len;
    }
    assert!(range.len == 0 && rest.next().is_none(), "{ranges:x?} became {segments:x?}");
}
