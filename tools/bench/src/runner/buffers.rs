//! The memory of a worker's requests: one range each, or, with `segments`, a list of pieces.

use flysch_api::data::{Data, ENTRY};
use flysch_api::machine::{DmaRegion, DmaSlice};

use super::{RunError, checking};
use crate::random::mix;
use crate::workload::Workload;

/// Buffers, and segment lists, start at page boundaries.
const PAGE: u64 = 4096;
/// Maximum gap between two segments, bytes.
const GAP_MAX: u64 = 64;
/// Alignment of segment lengths and addresses, bytes: finer than any controller requires.
const ODD: u32 = 4;

/// Bytes of a request's data; trims have none.
fn length(job: &Workload) -> u32 {
    job.data_max().max(ODD)
}

/// Memory of one request of `job`, including its segment list, bytes.
pub(crate) fn stride(job: &Workload) -> u64 {
    let (length, segments) = (u64::from(length(job)), u64::from(job.segments));
    if segments <= 1 {
        return length.next_multiple_of(PAGE);
    }
    (length + segments * GAP_MAX).next_multiple_of(PAGE)
        + (segments * ENTRY as u64).next_multiple_of(PAGE)
}

/// The data of each of a worker's slots, allocated from `memory` behind the first `used` bytes.
pub(super) fn deal(
    job: &Workload,
    memory: &DmaRegion,
    used: &mut u64,
) -> Result<Vec<Data>, RunError> {
    let stride = stride(job);
    let start = *used;
    *used += stride * u64::from(job.depth);
    if *used > memory.len() as u64 {
        let (needed, memory) = (*used, memory.len() as u64);
        return Err(RunError::Memory { job: job.name.clone(), needed, memory });
    }
    let length = length(job);
    let mut content = vec![0; length as usize];
    let place = |index: u64| {
        let at = (start + index * stride) as usize;
        let data = match job.segments {
            0 | 1 => Ok(Data::One(memory.slice(at, length))),
            segments => list(memory, (at, stride as usize), (length, segments), index),
        };
        // No cause: room is all that a list can lack.
        let data = data.map_err(|_| RunError::Invalid {
            job: job.name.clone(),
            what: "there is no room for its lists of segments",
        })?;
        if job.writes() {
            fill(job, index, &mut content);
            write(memory, &data, &content);
        }
        Ok(data)
    };
    (0..u64::from(job.depth)).map(place).collect()
}

/// `length` bytes in `segments` pieces of odd lengths with gaps between them; the pieces of every
/// other request are not in address order.
fn list(
    memory: &DmaRegion,
    (start, stride): (usize, usize),
    (length, segments): (u32, u32),
    index: u64,
) -> Result<Data, flysch_api::machine::OutOfRange> {
    let count = segments.min(length / ODD).max(1);
    let even = length / count / ODD * ODD;
    let mut pieces = Vec::with_capacity(count as usize);
    let (mut at, mut left) = (start, length);
    for n in 0..count {
        // Longer and shorter by turns, the last whatever is left.
        let odd = ODD * (1 + n / 2 % 3);
        let len = match n % 2 {
            _ if n + 1 == count => left,
            0 if even > odd => even - odd,
            1 if even > odd => even + odd,
            _ => even,
        };
        at += (ODD * (1 + n % 13)) as usize;
        pieces.push(memory.slice(at, len));
        at += len as usize;
        left -= len;
    }
    if index % 2 == 1 {
        pieces.reverse();
    }
    let entries = (segments as usize * ENTRY).next_multiple_of(PAGE as usize);
    Data::list(memory, start + stride - entries, &pieces)
}

/// The ranges of `data` with their offsets in it.
fn each(data: &Data, memory: &DmaRegion, mut copy: impl FnMut(usize, core::ops::Range<usize>)) {
    let mut done = 0;
    for range in data.ranges(memory) {
        let DmaSlice { address, len } = range.expect("a list of our own");
        let at = memory.offset_of(address, len as usize).expect("a buffer of our own");
        copy(at, done..done + len as usize);
        done += len as usize;
    }
}

/// Makes `content` what slot number `index` writes at first.
pub(super) fn fill(job: &Workload, index: u64, content: &mut [u8]) {
    checking::fill_buffer(&job.fill, content, mix(job.seed).wrapping_add(index));
}

/// Fills the first bytes of a slot's data.
pub(super) fn write(memory: &DmaRegion, data: &Data, bytes: &[u8]) {
    each(&data.shortened(bytes.len() as u32), memory, |at, place| memory.write(at, &bytes[place]));
}

/// Copies the first bytes of a slot's data out.
pub(super) fn read(memory: &DmaRegion, data: &Data, bytes: &mut [u8]) {
    let first = data.shortened(bytes.len() as u32);
    each(&first, memory, |at, place| memory.read(at, &mut bytes[place]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_odd_lengths_and_places_and_together_the_length() {
        let memory = DmaRegion::zeroed(1 << 20, 0x10_0000);
        for (length, segments) in [(4096, 2), (4096, 8), (4096, 4096), (65536, 3), (512, 128)] {
            let job = Workload { segments, depth: 3, ..Workload::default() };
            let stride = (u64::from(length) + u64::from(segments) * GAP_MAX).next_multiple_of(PAGE)
                + (u64::from(segments) * ENTRY as u64).next_multiple_of(PAGE);
            assert!(stride >= u64::from(job.segments));
            for index in 0..2 {
                let data = list(&memory, (0, stride as usize), (length, segments), index).unwrap();
                assert_eq!(data.len(), length);
                let ranges: Vec<_> = data.ranges(&memory).map(Result::unwrap).collect();
                assert_eq!(ranges.len() as u32, segments.min(length / ODD));
                let ascends = ranges.is_sorted_by_key(|range| range.address);
                assert_eq!(ascends, index == 0);
                let bytes: Vec<u8> = (0..length).map(|n| (n * 7) as u8).collect();
                write(&memory, &data, &bytes);
                let mut back = vec![0; bytes.len()];
                read(&memory, &data, &mut back);
                assert!(back == bytes, "no two pieces overlap");
            }
        }
    }
}
