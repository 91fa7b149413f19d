//! Lists of segments that a request's owner may leave in memory. A walk passes to a device what the
//! list describes, cut and within the limits, and rejects nothing valid.
#![no_main]

use flysch_api::data::{Data, SegmentLimits, Walk};
use flysch_api::machine::{DmaRegion, DmaSlice};
use libfuzzer_sys::fuzz_target;

const BASE: u64 = 0x1_0000;
const MEMORY: u64 = 0x1_0000;
/// The driver's own memory, in which data must not lie.
const RESERVED: u64 = BASE + 0x8000;
const RESERVED_LEN: u64 = 0x1000;
const LONGEST: u32 = 1 << 15;
const ENTRY: usize = 16;

/// The ranges of the list as 64-bit numbers, cut to the requested part, computed without the code
/// under test.
fn ranges(list: &[u8], skip: u64, len: u64) -> Option<Vec<(u64, u64)>> {
    let (mut skip, mut left, mut ranges) = (skip, len, Vec::new());
    for entry in list.chunks_exact(ENTRY) {
        if left == 0 {
            break;
        }
        let word = |at: usize| u64::from_ne_bytes(entry[at..at + 8].try_into().unwrap());
        let (address, whole) = (word(0), word(8));
        let rest = whole.checked_sub(skip).filter(|&rest| rest > 0)?;
        let take = rest.min(left);
        ranges.push((address.wrapping_add(skip), take));
        (skip, left) = (0, left - take);
    }
    (left == 0).then_some(ranges)
}

/// Whether a device with these limits may get the ranges.
fn is_good(ranges: &[(u64, u64)], limits: &SegmentLimits) -> bool {
    let (alignment, inner) = (u64::from(limits.alignment), u64::from(limits.inner));
    let placed = ranges.iter().all(|&(at, len)| {
        let Some(end) = at.checked_add(len) else { return false };
        let inside = at >= BASE && end <= BASE + MEMORY;
        let free = end <= RESERVED || at >= RESERVED + RESERVED_LEN;
        inside && free && at % alignment == 0 && len % alignment == 0
    });
    let apart = |a: &(u64, u64), b: &(u64, u64)| a.0 + a.1 <= b.0 || b.0 + b.1 <= a.0;
    let mut pieces = 0;
    for &(mut at, len) in ranges.iter().filter(|_| placed) {
        let end = at + len;
        while at < end {
            let boundary = u64::from(limits.boundary);
            let stop = if boundary == 0 { end } else { (at / boundary + 1) * boundary };
            at = end.min(stop).min(at + u64::from(limits.length));
            pieces += 1;
        }
    }
    placed
        && pieces <= u64::from(limits.count)
        && ranges.windows(2).all(|p| (p[0].0 + p[0].1) % inner == 0 && p[1].0 % inner == 0)
        && ranges.iter().enumerate().all(|(n, a)| ranges[n + 1..].iter().all(|b| apart(a, b)))
}

fuzz_target!(|bytes: &[u8]| {
    let Some((head, list)) = bytes.split_first_chunk::<8>() else { return };
    let list = &list[..list.len().min(64 * ENTRY) / ENTRY * ENTRY];
    let limits = SegmentLimits {
        count: u16::from(head[0] % 64) + 1,
        length: 4096 << (head[1] % 3),
        alignment: 1 << (head[2] % 4),
        boundary: if head[3] & 1 == 0 { 0 } else { 4096 << (head[3] >> 1 & 1) },
        inner: if head[3] & 4 == 0 { 1 } else { 512 },
    };
    let skip = u32::from(head[4]) << 4;
    let len = u32::from(head[5]) << 8 | u32::from(head[6]) | u32::from(head[7] & 1) << 15;
    let memory = DmaRegion::zeroed(MEMORY as usize, BASE);
    let own = memory.carve((RESERVED - BASE) as usize, RESERVED_LEN as usize);
    memory.write(0, list);
    let count = (list.len() / ENTRY) as u32;
    let data = Data::List { entries: BASE, count, skip, len };
    let walk = Walk::new(limits, LONGEST, &memory, &own);
    let mut segments: Vec<DmaSlice> = Vec::new();
    let walked = walk.run(&data, |n, segment| {
        segments.truncate(n as usize);
        segments.push(segment);
    });
    let named = ranges(list, skip.into(), len.into());
    let good = len <= LONGEST && named.as_ref().is_some_and(|ranges| is_good(ranges, &limits));
    assert_eq!(walked.is_ok(), good, "{walked:?} of {named:x?} within {limits:?}");
    let (Ok(count), Some(named)) = (walked, named) else { return };
    assert_eq!(count as usize, segments.len());
    for segment in &segments {
        assert!(segment.len <= limits.length);
        let last = segment.address + u64::from(segment.len) - 1;
        let boundary = u64::from(limits.boundary.max(1));
        assert!(limits.boundary == 0 || segment.address / boundary == last / boundary);
    }
    // Joined again, they are the ranges.
    let mut segments = segments.into_iter();
    for (mut at, mut left) in named {
        while left > 0 {
            let segment = segments.next().expect("a segment for every byte");
            assert_eq!(segment.address, at);
            at += u64::from(segment.len);
            left -= u64::from(segment.len);
        }
    }
    assert!(segments.next().is_none());
});
