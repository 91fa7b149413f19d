//! Which write each block of the device should contain: the last one issued for it.

use super::Version;

/// The state of one block: 0, or number of the write and its worker.
type Entry = u64;

const IN_FLIGHT: u64 = 1 << 63;
const WORKER_SHIFT: u32 = 48;
/// It has been read back.
const CHECKED: u64 = 1 << 47;
/// It is the first of what can be checked by itself: of a unit, or of a whole write.
const FIRST: u64 = 1 << 46;
const SEQUENCE_MASK: u64 = FIRST - 1;

/// The units of a worker's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Units {
    /// Bytes of each, a multiple of a block.
    pub(crate) bytes: u32,
    /// What is in one depends on its place in the write, so that only what has the write's begin
    /// can be checked.
    pub(crate) run_on: bool,
}

impl Units {
    /// Of a write of `length` bytes, what can be checked by itself, bytes.
    fn piece(self, length: u64) -> u64 {
        if self.run_on { length } else { self.bytes.into() }
    }

    /// The offset of the request that the unit at `offset` belongs to, if a request is at `first`.
    pub(crate) fn first(self, first: u64, offset: u64) -> u64 {
        if self.run_on { first } else { offset }
    }
}

/// The version of every block of some ranges, shared by all workers of a run.
#[derive(Debug)]
pub(crate) struct Versions {
    /// Bytes of a block: every unit has whole ones, and begins with one.
    block: u32,
    run_seed: u64,
    sequence: u64,
    /// In ascending order, not touching each other.
    parts: Vec<Part>,
}

/// A range of adjacent blocks.
#[derive(Debug)]
struct Part {
    start: u64,
    end: u64,
    entries: Vec<Entry>,
}

impl Part {
    /// Indices of the blocks of a range, as far as they are in this part.
    fn blocks(&self, block: u32, offset: u64, length: u64) -> core::ops::Range<usize> {
        let (block, len) = (u64::from(block), self.entries.len() as u64);
        let first = (offset.saturating_sub(self.start) / block).min(len);
        let last = (offset + length).saturating_sub(self.start).div_ceil(block).min(len);
        first as usize..last.max(first) as usize
    }
}

/// The ranges, as first byte and length, without overlaps.
pub(crate) fn joined(ranges: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = ranges.collect();
    ranges.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, bytes) in ranges {
        match joined.last_mut() {
            Some((first, length)) if start <= *first + *length => {
                *length = (*length).max(start + bytes - *first);
            }
            _ => joined.push((start, bytes)),
        }
    }
    joined
}

impl Versions {
    /// Nothing written yet in `ranges`, which are [`joined`], in blocks of `block` bytes.
    pub(crate) fn new(ranges: &[(u64, u64)], block: u32, run_seed: u64) -> Self {
        let part = |&(start, bytes): &(u64, u64)| {
            let entries = vec![0; bytes.div_ceil(u64::from(block)) as usize];
            Part { start, end: start + bytes, entries }
        };
        Self { block, run_seed, sequence: 0, parts: ranges.iter().map(part).collect() }
    }

    /// The parts that a range touches. A worker that does not verify may write elsewhere, which is
    /// irrelevant.
    fn touched(&self, offset: u64, length: u64) -> core::ops::Range<usize> {
        let first = self.parts.partition_point(|part| part.end <= offset);
        let behind = self.parts[first..].partition_point(|part| part.start < offset + length);
        first..first + behind
    }

    fn entries(&self, offset: u64, length: u64) -> impl Iterator<Item = &Entry> {
        let parts = self.parts[self.touched(offset, length)].iter();
        parts.flat_map(move |part| &part.entries[part.blocks(self.block, offset, length)])
    }

    fn entries_mut(&mut self, offset: u64, length: u64) -> impl Iterator<Item = &mut Entry> {
        let (touched, block) = (self.touched(offset, length), self.block);
        self.parts[touched].iter_mut().flat_map(move |part| {
            let blocks = part.blocks(block, offset, length);
            &mut part.entries[blocks]
        })
    }

    /// Whether a write to any block of the range is in flight.
    pub(crate) fn is_busy(&self, offset: u64, length: u64) -> bool {
        self.entries(offset, length).any(|entry| entry & IN_FLIGHT != 0)
    }

    /// A new version, for a write by `worker` that is about to be issued; `units` if it can be
    /// checked.
    pub(crate) fn begin(
        &mut self,
        worker: u16,
        (offset, length): (u64, u64),
        units: Option<Units>,
    ) -> Version {
        self.sequence += 1;
        let entry = IN_FLIGHT | u64::from(worker) << WORKER_SHIFT | self.sequence;
        self.entries_mut(offset, length).for_each(|known| *known = entry);
        if let Some(units) = units {
            let piece = (units.piece(length) / u64::from(self.block)).max(1) as usize;
            let firsts = self.entries_mut(offset, length).step_by(piece);
            firsts.for_each(|known| *known |= FIRST);
        }
        Version { run_seed: self.run_seed, sequence: self.sequence, worker }
    }

    /// The write to this range has completed.
    pub(crate) fn finish(&mut self, offset: u64, length: u64) {
        self.entries_mut(offset, length).for_each(|entry| *entry &= !IN_FLIGHT);
    }

    /// The contents of this range are unknown now: it was trimmed, or a write to it failed.
    pub(crate) fn forget(&mut self, offset: u64, length: u64) {
        self.entries_mut(offset, length).for_each(|entry| *entry = 0);
    }

    /// The version that the `length` bytes at `offset` must contain, if it is known and is all of
    /// what can be checked from `first` on.
    pub(crate) fn expected(&self, first: u64, (offset, length): (u64, u64)) -> Option<Version> {
        let first = *self.entries(first, 1).next()?;
        let known = first & FIRST != 0 && first & IN_FLIGHT == 0;
        let is_whole = || self.entries(offset, length).all(|entry| is_of(*entry, first));
        (known && is_whole()).then_some(Version {
            run_seed: self.run_seed,
            sequence: first & SEQUENCE_MASK,
            worker: worker_of(first),
        })
    }

    /// This range has been read back. Later writes to it have not.
    pub(crate) fn checked(&mut self, offset: u64, length: u64) {
        let known = |entry: &Entry| *entry != 0 && *entry & IN_FLIGHT == 0;
        let known = self.entries_mut(offset, length).filter(|entry| known(entry));
        known.for_each(|entry| *entry |= CHECKED);
    }

    /// Whether `worker` wrote any unit of the range, which was one write, last and has not read it
    /// back.
    pub(crate) fn owes(&self, worker: u16, units: Units, (start, length): (u64, u64)) -> bool {
        let bytes = u64::from(units.bytes);
        (0..length / bytes).map(|index| start + index * bytes).any(|offset| {
            let version = self.expected(units.first(start, offset), (offset, bytes));
            let is_checked = self.entries(offset, 1).any(|entry| entry & CHECKED != 0);
            !is_checked && version.is_some_and(|version| version.worker == worker)
        })
    }

    /// The next range of whole units at or after `from` that `worker` wrote last and has not read
    /// back, at most `bytes_max` long; of one write if its units run on.
    pub(crate) fn written_by(
        &self,
        worker: u16,
        units: Units,
        (from, bytes_max): (u64, u32),
    ) -> Option<(u64, u32)> {
        let unit = (units.bytes / self.block).max(1) as usize;
        let most = (bytes_max / units.bytes).max(1) as usize * unit;
        let owed = |entry: Entry| entry & (FIRST | CHECKED) == FIRST && worker_of(entry) == worker;
        // Whole units at the begin of what is left of one write.
        let whole = |tail: &[Entry]| match tail.first() {
            Some(&first) if owed(first) => {
                tail.iter().take_while(|entry| is_of(**entry, first)).count() / unit * unit
            }
            _ => 0,
        };
        let first = self.parts.partition_point(|part| part.end <= from);
        self.parts[first..].iter().find_map(|part| {
            let skip = (from.saturating_sub(part.start) / u64::from(self.block)) as usize;
            let tail = part.entries.get(skip..)?;
            let up_to = |at: usize| &tail[at..(at + most).min(tail.len())];
            let first = (0..tail.len()).find(|&at| whole(up_to(at)) > 0)?;
            let tail = up_to(first);
            let mut count = whole(tail);
            let behind = |count: usize| if units.run_on { 0 } else { whole(&tail[count..]) };
            while let more @ 1.. = behind(count) {
                count += more;
            }
            let offset = part.start + (skip + first) as u64 * u64::from(self.block);
            Some((offset, count as u32 * self.block))
        })
    }
}

/// The worker of the write.
fn worker_of(entry: Entry) -> u16 {
    ((entry & !IN_FLIGHT) >> WORKER_SHIFT) as u16
}

/// Whether both are of the same write, and in the same state.
fn is_of(entry: Entry, other: Entry) -> bool {
    const MARKS: u64 = CHECKED | FIRST;
    entry & !MARKS == other & !MARKS
}

#[cfg(test)]
mod tests;
