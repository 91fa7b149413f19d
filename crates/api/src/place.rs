//! Locations on the medium, shared by errors and findings.

use core::fmt;

/// A location on the medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// Physical erase block.
    pub peb: Option<u32>,
    /// Logical erase block, in formats that have them.
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
