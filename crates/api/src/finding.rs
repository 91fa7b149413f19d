//! Findings of a check: the types that UBI and the file systems share.

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

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `pad`: so that reports can have columns.
        f.pad(match self {
            Self::Note => "note",
            Self::Inconsistent => "inconsistent",
            Self::Lost => "lost",
        })
    }
}

/// One finding of a check.
///
/// As text it says what was found and where, without the severity, which reports show in a column
/// or a field of its own; `{:#}` puts it in front: "lost: data node: ...".
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
        if f.alternate() {
            write!(f, "{}: ", self.severity)?;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn the_severity_is_in_front_if_asked_for() {
        let finding = Finding {
            severity: Severity::Lost,
            structure: "data node",
            problem: "a checksum is wrong".into(),
            place: Place { leb: Some(12), offset: Some(2048), peb: None },
            inode: Some(Inode(70)),
            path: Some(b"etc/motd".to_vec()),
        };
        let text = "data node: a checksum is wrong (LEB 12, offset 2048), inode 70, /etc/motd";
        assert_eq!(format!("{finding}"), text);
        assert_eq!(format!("{finding:#}"), format!("lost: {text}"));
        assert_eq!(format!("{:<13}|", Severity::Inconsistent), "inconsistent |");
        assert_eq!(format!("{}", Severity::Note), "note");
    }
}
