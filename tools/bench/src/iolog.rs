//! Request logs in fio's form: written by `write_iolog` and replayed by `read_iolog`.
//!
//! A log is text, one action per line. Its first line gives the version. Version 2 is `DISK ACTION
//! OFFSET LENGTH`, with `wait MICROSECONDS` in between; version 3 has the time of each action,
//! microseconds from the start, in front. `DISK add`, `open` and `close` have no offset. blktrace's
//! binary files are accepted as well: queued requests are replayed.

mod blktrace;
mod read;
mod write;

use std::path::Path;

use flysch_api::block::Operation;
pub use read::{ReadError, read};
pub(crate) use write::Line;

/// The first line of a log of version 3.
pub(crate) const VERSION_3: &str = "fio version 3 iolog";
/// The first line of a log of version 2.
pub(crate) const VERSION_2: &str = "fio version 2 iolog";
/// Maximum number of requests in a log; more would need over 512 MiB.
pub const ENTRIES_MAX: usize = 1 << 24;
/// Longest request of a log, bytes.
pub const LENGTH_MAX: u32 = 1 << 30;

/// One request of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it is due, nanoseconds from the start.
    pub at_nanos: u64,
    /// The operation.
    pub operation: Operation,
    /// Offset, bytes; 0 for a flush.
    pub offset: u64,
    /// Length, bytes; 0 for a flush.
    pub length: u32,
}

/// A parsed log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Its requests, in their order.
    pub entries: Vec<Entry>,
    lengths: [Option<(u32, u32)>; 3],
    /// Disks and files in the log: all are replayed on one.
    pub disks: usize,
    /// Requests omitted (`replay_skip`).
    pub skipped: u64,
    /// Lines or records that are not valid requests.
    pub odd: u64,
    /// The number of the first of them, from 1.
    pub first_odd: Option<u64>,
}

/// Operations that move or free data: the order of `Replay`'s lengths.
const OPERATIONS: [Operation; 3] = [Operation::Read, Operation::Write, Operation::Delete];

impl Replay {
    /// A log of these requests, of one disk.
    pub fn new(entries: Vec<Entry>) -> Self {
        let lengths = OPERATIONS.map(|operation| {
            let same = entries.iter().filter(|entry| entry.operation == operation);
            same.map(|entry| (entry.length, entry.length))
                .reduce(|(min, max), (length, _)| (min.min(length), max.max(length)))
        });
        Self { entries, lengths, disks: 1, skipped: 0, odd: 0, first_odd: None }
    }

    /// Whether it modifies the disk.
    pub fn writes(&self) -> bool {
        [Operation::Write, Operation::Delete].iter().any(|&it| self.lengths(it).is_some())
    }

    /// The shortest and the longest request of this operation, bytes; `None` if there is none, and
    /// for flushes.
    pub fn lengths(&self, operation: Operation) -> Option<(u32, u32)> {
        let at = OPERATIONS.iter().position(|known| *known == operation)?;
        self.lengths[at]
    }
}

/// How a log is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Ignore the times: replay as fast as the queue accepts requests.
    pub no_stall: bool,
    /// Rate of the replay, percent of the log's.
    pub time_scale_percent: u64,
    /// Offsets are rounded down to multiples of this power of two, and lengths of blktrace's
    /// records up; 0: no rounding.
    pub align: u32,
    /// Offsets are divided by this; 0 and 1: no scaling.
    pub scale: u64,
    /// Omit: reads, writes, trims, flushes.
    pub skip: [bool; 4],
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { no_stall: false, time_scale_percent: 100, align: 0, scale: 0, skip: [false; 4] }
    }
}

impl ReadOptions {
    fn skips(&self, operation: Operation) -> bool {
        self.skip[match operation {
            Operation::Read => 0,
            Operation::Write => 1,
            Operation::Delete => 2,
            Operation::Flush => 3,
        }]
    }

    /// The replay's offset for an offset in the log.
    fn place(&self, offset: u64) -> u64 {
        let offset = offset / self.scale.max(1);
        if self.align == 0 { offset } else { offset & !u64::from(self.align - 1) }
    }

    /// The replay's time for `nanos` in the log.
    fn stretched(&self, nanos: u64) -> u64 {
        if self.no_stall {
            return 0;
        }
        let nanos = u128::from(nanos) * 100 / u128::from(self.time_scale_percent.max(1));
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

/// Entries while a log is being read.
#[derive(Debug, Default)]
struct Builder {
    entries: Vec<Entry>,
    /// Number of the line or record being read, from 1.
    number: u64,
    skipped: u64,
    odd: u64,
    first_odd: Option<u64>,
    names: Vec<String>,
}

impl Builder {
    /// Adds a request, unless it is omitted.
    fn push(
        &mut self,
        options: &ReadOptions,
        (at_nanos, operation): (u64, Operation),
        (offset, length): (u64, u32),
        path: &Path,
    ) -> Result<(), ReadError> {
        if options.skips(operation) {
            self.skipped += 1;
            return Ok(());
        }
        let flushes = operation == Operation::Flush;
        if !flushes && (length == 0 || length > LENGTH_MAX) {
            self.odd();
            return Ok(());
        }
        if self.entries.len() == ENTRIES_MAX {
            return Err(ReadError::TooLong(path.to_path_buf()));
        }
        let (offset, length) = if flushes { (0, 0) } else { (options.place(offset), length) };
        let at_nanos = options.stretched(at_nanos);
        self.entries.push(Entry { at_nanos, operation, offset, length });
        Ok(())
    }

    /// Counts the line or record being read as invalid.
    fn odd(&mut self) {
        self.odd += 1;
        self.first_odd.get_or_insert(self.number);
    }

    /// A disk or file of the log; up to a limit they are distinguished.
    fn name(&mut self, name: &str) {
        /// Names that are distinguished.
        const NAMES_MAX: usize = 64;
        if self.names.len() < NAMES_MAX && !self.names.iter().any(|known| known == name) {
            self.names.push(name.to_string());
        }
    }

    fn finish(self, path: &Path) -> Result<Replay, ReadError> {
        let Self { entries, skipped, odd, first_odd, names, .. } = self;
        if entries.is_empty() {
            return Err(ReadError::Empty(path.to_path_buf()));
        }
        Ok(Replay { disks: names.len(), skipped, odd, first_odd, ..Replay::new(entries) })
    }
}

#[cfg(test)]
mod tests;
