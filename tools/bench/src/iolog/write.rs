//! Writing logs, version 3.

use core::fmt;

use flysch_api::block::Operation;

/// A line of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    /// Time, microseconds from the start.
    pub(crate) micros: u64,
    /// The disk.
    pub(crate) disk: &'a str,
    /// Operation, offset and length; `None`: only the disk, with `note`.
    pub(crate) request: Option<(Operation, u64, u64)>,
    /// An event of the disk: `add`, `open`, `close`.
    pub(crate) note: &'static str,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { micros, disk, .. } = self;
        let Some((operation, offset, length)) = self.request else {
            return writeln!(f, "{micros} {disk} {}", self.note);
        };
        let action = match operation {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Delete => "trim",
            Operation::Flush => "sync",
        };
        writeln!(f, "{micros} {disk} {action} {offset} {length}")
    }
}
