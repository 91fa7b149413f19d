//! Findings of a check: the types that UBI and the file systems share.

#[cfg(feature = "alloc")]
use core::fmt;

#[cfg(feature = "alloc")]
use alloc::{string::String, vec::Vec};

#[cfg(feature = "alloc")]
use crate::vfs::Inode;

pub use crate::place::Place;

/// How bad a [`Finding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; nothing is wrong (an unclean stop that the journal covers).
    Note,
    /// A structure is wrong, but no file is lost because of it.
    Inconsistent,
    /// Part of a file, a name or an attribute is lost or unreadable.
    Lost,
}

/// One finding of a check.
#[cfg(feature = "alloc")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
    /// The structure that is wrong, in the terms of the format ("LPT", "index node").
    pub structure: &'static str,
    /// What is wrong with it: found and expected values.
    pub problem: String,
    /// Where it lies.
    pub place: Place,
    /// The inode it belongs to.
    pub inode: Option<Inode>,
    /// A path to that inode, without a leading '/'.
    pub path: Option<Vec<u8>>,
}

#[cfg(feature = "alloc")]
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.structure, self.problem, self.place)?;
        if let Some(inode) = self.inode {
            write!(f, ", inode {inode}")?;
        }
        if let Some(path) = &self.path {
            write!(f, ", /{}", path.escape_ascii())?;
        }
        Ok(())
    }
}
