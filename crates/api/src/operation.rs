//! The operations of a block device, shared by requests and their traces.

use core::fmt;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Device to memory.
    Read,
    /// Memory to device.
    Write,
    /// Everything written and completed before it is on the medium when this completes. No range.
    Flush,
    /// The range's content is no longer needed (trim, unmap). No data.
    Delete,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Delete => "delete",
        })
    }
}
