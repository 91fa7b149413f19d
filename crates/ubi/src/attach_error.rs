//! Why attaching failed.

use core::fmt;

/// Why attaching failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachError {
    /// Not one erase block has a readable erase counter header.
    NoHeaders,
    /// According to the headers, data begins after the end of the block.
    Offsets {
        /// The offset of the data according to the headers.
        data: u32,
        /// Size of an erase block, bytes.
        peb_size: u32,
    },
    /// An unknown internal volume must not be attached by an implementation that does not know it.
    Rejected {
        /// Its id.
        volume: u32,
    },
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHeaders => f.write_str("no erase block has a readable UBI header"),
            Self::Offsets { data, peb_size } => {
                write!(f, "data offset {data} does not fit erase blocks of {peb_size} bytes")
            }
            Self::Rejected { volume } => write!(f, "internal volume {volume:#x} is not known"),
        }
    }
}

impl core::error::Error for AttachError {}
