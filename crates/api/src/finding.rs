//! What a check found: the words that UBI and the file systems share.

use core::fmt;

#[cfg(feature = "alloc")]
use alloc::{string::String, vec::Vec};

#[cfg(feature = "alloc")]
use crate::vfs::Inode;

/// Where on the medium something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// Physical erase block.
    pub peb: Option<u32>,
    /// Logical erase block, on formats that have them.
    pub leb: Option<u32>,
    /// Bytes from the start of the logical erase block if there is one, else of the physical one.
    pub offset: Option<u32>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, value) in [("PEB", self.peb), ("LEB", self.leb), ("offset", self.offset)] {
            if let Some(value) = value {
                write!(f, "{separator}{name} {value}")?;
                separator = ", ";
            }
        }
        if separator.is_empty() { f.write_str("unknown place") } else { Ok(()) }
    }
}

/// How bad a [`Finding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; nothing is wrong (an unclean stop that the journal covers).
    Note,
    /// A structure is wrong; no file is lost by it.
    Inconsistent,
    /// Something of a file, name or attribute is lost or unreadable.
    Lost,
}

/// One thing a check found.
#[cfg(feature = "alloc")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// The structure that is wrong, in the format's own words ("LPT", "index node").
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
