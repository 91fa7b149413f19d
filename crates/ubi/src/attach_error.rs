//! Why attaching failed.

use core::fmt;

use flysch_api::flash::FlashError;

/// Why attaching failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachError {
    /// Not one erase block has a readable erase counter header.
    NoHeaders,
    /// As [`NoHeaders`](Self::NoHeaders), but the flash did not give all of them: its first answer.
    Flash(FlashError),
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
            Self::Flash(error) => write!(f, "no UBI header can be read: {error}"),
            Self::Offsets { data, peb_size } => {
                write!(f, "data offset {data} does not fit erase blocks of {peb_size} bytes")
            }
            Self::Rejected { volume } => write!(f, "internal volume {volume:#x} is not known"),
        }
    }
}

impl core::error::Error for AttachError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            // `Display` shows it itself, so its source comes next.
            Self::Flash(error) => error.source(),
            _ => None,
        }
    }
}
