//! Why nothing could be attached.

use core::fmt;

/// Why nothing could be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachError {
    /// Not one erase block has a readable erase counter header.
    NoHeaders,
    /// The headers say that data begins behind the end of the block.
    Offsets {
        /// Where they say data begins.
        data: u32,
        /// Bytes of an erase block.
        peb_size: u32,
    },
    /// An internal volume asks not to be attached by who does not know it.
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
