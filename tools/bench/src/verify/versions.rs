//! Which write each unit of the device should hold: the last one that was issued for it.

use super::Version;

/// What is known of one unit: 0, or number of the write and its worker.
type Entry = u64;

const IN_FLIGHT: u64 = 1 << 63;
const WORKER_SHIFT: u32 = 48;
const SEQUENCE_MASK: u64 = (1 << WORKER_SHIFT) - 1;

/// The version of every unit of a range, shared by all workers of a run.
#[derive(Debug)]
pub(crate) struct Versions {
    start: u64,
    unit: u32,
    run_seed: u64,
    sequence: u64,
    entries: Vec<Entry>,
}

impl Versions {
    /// Nothing written yet in the `bytes` bytes from `start`, in units of `unit` bytes.
    pub(crate) fn new(start: u64, bytes: u64, unit: u32, run_seed: u64) -> Self {
        let entries = vec![0; bytes.div_ceil(u64::from(unit)) as usize];
        Self { start, unit, run_seed, sequence: 0, entries }
    }

    /// Whether a write to any unit of the range is in flight.
    pub(crate) fn is_busy(&self, offset: u64, length: u64) -> bool {
        self.entries[self.units(offset, length)].iter().any(|entry| entry & IN_FLIGHT != 0)
    }

    /// A new version, for a write by `worker` that is about to be issued.
    pub(crate) fn begin(&mut self, worker: u16, offset: u64, length: u64) -> Version {
        self.sequence += 1;
        let entry = IN_FLIGHT | u64::from(worker) << WORKER_SHIFT | self.sequence;
        let units = self.units(offset, length);
        self.entries[units].fill(entry);
        Version { run_seed: self.run_seed, sequence: self.sequence, worker }
    }

    /// The write to this range was done.
    pub(crate) fn finish(&mut self, offset: u64, length: u64) {
        let units = self.units(offset, length);
        self.entries[units].iter_mut().for_each(|entry| *entry &= !IN_FLIGHT);
    }

    /// Nobody knows what this range holds now: it was trimmed, or a write to it failed.
    pub(crate) fn forget(&mut self, offset: u64, length: u64) {
        let units = self.units(offset, length);
        self.entries[units].fill(0);
    }

    /// The version that the unit at `offset` must hold, if one is known.
    pub(crate) fn expected(&self, offset: u64) -> Option<Version> {
        let entry = *self.entries[self.units(offset, 1)].first()?;
        let known = entry != 0 && entry & IN_FLIGHT == 0;
        known.then_some(Version {
            run_seed: self.run_seed,
            sequence: entry & SEQUENCE_MASK,
            worker: (entry >> WORKER_SHIFT) as u16,
        })
    }

    /// The next range at or after `from` that `worker` wrote last, at most `bytes_max` long.
    pub(crate) fn written_by(&self, worker: u16, from: u64, bytes_max: u32) -> Option<(u64, u32)> {
        let is_mine = |entry: &Entry| {
            *entry != 0 && (entry & !IN_FLIGHT) >> WORKER_SHIFT == u64::from(worker)
        };
        let skip = (from.saturating_sub(self.start) / u64::from(self.unit)) as usize;
        let tail = self.entries.get(skip..)?;
        let first = tail.iter().position(is_mine)?;
        let units_max = (bytes_max / self.unit).max(1) as usize;
        let count = tail[first..].iter().take(units_max).take_while(|e| is_mine(e)).count();
        let offset = self.start + (skip + first) as u64 * u64::from(self.unit);
        Some((offset, count as u32 * self.unit))
    }

    fn units(&self, offset: u64, length: u64) -> core::ops::Range<usize> {
        // A worker that does not verify may write outside: that part is nobody's business.
        let unit = u64::from(self.unit);
        let len = self.entries.len() as u64;
        let first = (offset.saturating_sub(self.start) / unit).min(len);
        let last = (offset + length).saturating_sub(self.start).div_ceil(unit).min(len);
        first as usize..last.max(first) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_write_counts() {
        let mut versions = Versions::new(8192, 65_536, 4096, 9);
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
    fn written_ranges_are_found_by_worker() {
        let mut versions = Versions::new(0, 65_536, 4096, 9);
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
}
