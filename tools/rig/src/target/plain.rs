//! Targets without a controller.

use flysch_target::{Kind, key};
use std::path::PathBuf;

use super::pairs::Pairs;
use super::{PairError, ParseError};

/// A file.
pub(super) const FILE: Kind = Kind {
    name: "file:PATH",
    help: "a file as a disk, read and written as it is",
    keys: &[
        key("size", "BYTES", "create the file with this size if it does not exist"),
        key("block", "512|4096", "bytes per logical block (4096)"),
    ],
};

/// The null device.
pub(super) const NULL: Kind = Kind {
    name: "null",
    help: "a disk that completes everything at once and moves no data",
    keys: &[key("size", "BYTES", "its size (1T)")],
};

/// A file as a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileTarget {
    /// Its path.
    pub path: PathBuf,
    /// Size for creating it.
    pub size: Option<u64>,
    /// Bytes per logical block.
    pub block_size: u32,
}

/// A disk without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NullTarget {
    /// Its size in bytes.
    pub size: u64,
}

impl FileTarget {
    pub(super) fn parse(rest: &str) -> Result<Self, ParseError> {
        let rest = rest.strip_prefix(':').unwrap_or_default();
        let (path, rest) = rest.split_at(end_of_path(rest));
        if path.is_empty() {
            return Err(PairError::NotAPair { given: "file:".into() }.into());
        }
        let pairs = Pairs::parse(&FILE, rest)?;
        Ok(Self { path: path.into(), size: pairs.size()?, block_size: pairs.block_size(4096)? })
    }
}

impl NullTarget {
    pub(super) fn parse(rest: &str) -> Result<Self, ParseError> {
        let pairs = Pairs::parse(&NULL, rest)?;
        Ok(Self { size: pairs.size()?.unwrap_or(1 << 40) })
    }
}

/// Where the path of a `file:` or `linux:` target ends: at a comma in front of a known key, so that
/// paths may contain commas.
pub(super) fn end_of_path(text: &str) -> usize {
    let begins_key = |at: &usize| {
        let after = &text[at + 1..];
        let name = after.split('=').next().unwrap_or(after);
        after.contains('=') && !name.contains(['/', ',']) && !name.is_empty()
    };
    text.match_indices(',').map(|(at, _)| at).find(begins_key).unwrap_or(text.len())
}
