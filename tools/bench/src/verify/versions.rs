//! Which write each unit of the device should contain: the last one issued for it.

use super::Version;

/// The state of one unit: 0, or number of the write and its worker.
type Entry = u64;

const IN_FLIGHT: u64 = 1 << 63;
const WORKER_SHIFT: u32 = 48;
/// It has been read back.
const CHECKED: u64 = 1 << 47;
const SEQUENCE_MASK: u64 = CHECKED - 1;

/// The version of every unit of some ranges, shared by all workers of a run.
#[derive(Debug)]
pub(crate) struct Versions {
    unit: u32,
    run_seed: u64,
    sequence: u64,
    /// In ascending order, not touching each other.
    parts: Vec<Part>,
}

/// A range of adjacent units.
#[derive(Debug)]
struct Part {
    start: u64,
    end: u64,
    entries: Vec<Entry>,
}

impl Part {
    /// Indices of the units of a range, as far as they are in this part.
    fn units(&self, unit: u32, offset: u64, length: u64) -> core::ops::Range<usize> {
        let (unit, len) = (u64::from(unit), self.entries.len() as u64);
        let first = (offset.saturating_sub(self.start) / unit).min(len);
        let last = (offset + length).saturating_sub(self.start).div_ceil(unit).min(len);
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
    /// Nothing written yet in `ranges`, which are [`joined`], in units of `unit` bytes.
    pub(crate) fn new(ranges: &[(u64, u64)], unit: u32, run_seed: u64) -> Self {
        let part = |&(start, bytes): &(u64, u64)| {
            let entries = vec![0; bytes.div_ceil(u64::from(unit)) as usize];
            Part { start, end: start + bytes, entries }
        };
        Self { unit, run_seed, sequence: 0, parts: ranges.iter().map(part).collect() }
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
        parts.flat_map(move |part| &part.entries[part.units(self.unit, offset, length)])
    }

    fn entries_mut(&mut self, offset: u64, length: u64) -> impl Iterator<Item = &mut Entry> {
        let (touched, unit) = (self.touched(offset, length), self.unit);
        self.parts[touched].iter_mut().flat_map(move |part| {
            let units = part.units(unit, offset, length);
            &mut part.entries[units]
        })
    }

    /// Whether a write to any unit of the range is in flight.
    pub(crate) fn is_busy(&self, offset: u64, length: u64) -> bool {
        self.entries(offset, length).any(|entry| entry & IN_FLIGHT != 0)
    }

    /// A new version, for a write by `worker` that is about to be issued.
    pub(crate) fn begin(&mut self, worker: u16, offset: u64, length: u64) -> Version {
        self.sequence += 1;
        let entry = IN_FLIGHT | u64::from(worker) << WORKER_SHIFT | self.sequence;
        self.entries_mut(offset, length).for_each(|known| *known = entry);
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

    /// The version that the unit at `offset` must contain, if it is known.
    pub(crate) fn expected(&self, offset: u64) -> Option<Version> {
        let entry = *self.entries(offset, 1).next()?;
        let known = entry != 0 && entry & IN_FLIGHT == 0;
        known.then_some(Version {
            run_seed: self.run_seed,
            sequence: entry & SEQUENCE_MASK,
            worker: (entry >> WORKER_SHIFT) as u16,
        })
    }

    /// This range has been read back. Later writes to it have not.
    pub(crate) fn checked(&mut self, offset: u64, length: u64) {
        let known = |entry: &Entry| *entry != 0 && *entry & IN_FLIGHT == 0;
        let known = self.entries_mut(offset, length).filter(|entry| known(entry));
        known.for_each(|entry| *entry |= CHECKED);
    }

    /// Whether `worker` wrote any unit of the range last and has not read it back.
    pub(crate) fn owes(&self, worker: u16, offset: u64, length: u64) -> bool {
        self.entries(offset, length).any(|entry| is_owed(*entry, worker))
    }

    /// The next range at or after `from` that `worker` wrote last and has not read back, at most
    /// `bytes_max` long.
    pub(crate) fn written_by(&self, worker: u16, from: u64, bytes_max: u32) -> Option<(u64, u32)> {
        let is_mine = |entry: &Entry| is_owed(*entry, worker);
        let first = self.parts.partition_point(|part| part.end <= from);
        self.parts[first..].iter().find_map(|part| {
            let skip = (from.saturating_sub(part.start) / u64::from(self.unit)) as usize;
            let tail = part.entries.get(skip..)?;
            let first = tail.iter().position(is_mine)?;
            let units_max = (bytes_max / self.unit).max(1) as usize;
            let count = tail[first..].iter().take(units_max).take_while(|e| is_mine(e)).count();
            let offset = part.start + (skip + first) as u64 * u64::from(self.unit);
            Some((offset, count as u32 * self.unit))
        })
    }
}

/// Whether `worker` wrote a unit last and has not read it back.
fn is_owed(entry: Entry, worker: u16) -> bool {
    entry != 0 && entry & CHECKED == 0 && (entry & !IN_FLIGHT) >> WORKER_SHIFT == u64::from(worker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_write_counts() {
        let mut versions = Versions::new(&[(8192, 65_536)], 4096, 9);
        assert_eq!(versions.expected(8192), None);
        versions.begin(0, 8192, 8192);
        assert!(versions.is_busy(12_288, 4096) && !versions.is_busy(16_384, 4096));
        assert_eq!(versions.expected(8192), None);
        versions.finish(8192, 8192);
        let second = versions.begin(1, 12_288, 4096);
        versions.finish(12_288, 4096);
        assert_eq!(versions.expected(8192).map(|v| v.sequence), Some(1));
        assert_eq!(versions.expected(12_288), Some(second));
        versions.forget(8192, 4096);
        assert_eq!(versions.expected(8192), None);
    }

    #[test]
    fn what_was_read_back_is_owed_again_when_it_is_written() {
        let mut versions = Versions::new(&[(0, 65_536)], 4096, 9);
        for offset in [0, 4096, 8192] {
            versions.begin(3, offset, 4096);
            versions.finish(offset, 4096);
        }
        versions.checked(0, 8192);
        assert_eq!(versions.written_by(3, 0, 65_536), Some((8192, 4096)));
        assert!(!versions.owes(3, 4096, 4096) && versions.owes(3, 4096, 8192));
        assert_eq!(versions.expected(4096).map(|v| (v.worker, v.sequence)), Some((3, 2)));
        let version = versions.begin(3, 4096, 4096);
        versions.checked(4096, 4096);
        versions.finish(4096, 4096);
        assert_eq!((version.sequence, versions.expected(4096)), (4, Some(version)));
        assert_eq!(versions.written_by(3, 0, 65_536), Some((4096, 8192)));
    }

    #[test]
    fn written_ranges_are_found_by_worker() {
        let mut versions = Versions::new(&[(0, 65_536)], 4096, 9);
        for (worker, offset, length) in [(0, 4096, 12_288), (1, 8192, 4096), (0, 40_960, 4096)] {
            versions.begin(worker, offset, length);
            versions.finish(offset, length);
        }
        assert_eq!(versions.written_by(0, 0, 65_536), Some((4096, 4096)));
        assert_eq!(versions.written_by(0, 8192, 65_536), Some((12_288, 4096)));
        assert_eq!(versions.written_by(0, 16_384, 65_536), Some((40_960, 4096)));
        assert_eq!(versions.written_by(0, 45_056, 65_536), None);
        assert_eq!(versions.written_by(1, 0, 65_536), Some((8192, 4096)));
    }

    #[test]
    fn ranges_far_apart_need_room_for_themselves_alone() {
        let far = 1 << 50;
        let ranges = [(far, 8192), (8192, 8192), (12_288, 8192), (far + 8192, 4096), (0, 4096)];
        let ranges = joined(ranges.into_iter());
        assert_eq!(ranges, [(0, 4096), (8192, 12_288), (far, 12_288)]);
        let mut versions = Versions::new(&ranges, 4096, 9);
        assert_eq!(versions.parts.iter().map(|part| part.entries.len()).sum::<usize>(), 7);
        // Over a gap, and into one.
        versions.begin(2, 0, 12_288);
        versions.begin(2, far + 8192, 8192);
        assert!(versions.is_busy(4096, 8192) && !versions.is_busy(4096, 4096));
        versions.finish(0, far + 65_536);
        assert_eq!(versions.expected(4096), None);
        assert_eq!(versions.expected(8192).map(|v| v.sequence), Some(1));
        assert_eq!(versions.written_by(2, 0, 65_536), Some((0, 4096)));
        assert_eq!(versions.written_by(2, 4096, 65_536), Some((8192, 4096)));
        assert_eq!(versions.written_by(2, 12_288, 65_536), Some((far + 8192, 4096)));
        assert_eq!(versions.written_by(2, far + 12_288, 65_536), None);
    }
}
