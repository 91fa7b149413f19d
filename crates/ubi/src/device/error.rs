//! Errors of a device that is open for writing.

use core::fmt;

use flysch_api::count::counted;
use flysch_api::flash;

use crate::AttachError;

/// Why a device does not accept changes any more. This is final until the device is attached again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadOnly {
    /// A block went bad and no block was left to replace it.
    PoolEmpty {
        /// The block. It is not marked bad, because it could not be replaced, unless it was marked
        /// before.
        block: u32,
        /// Blocks that are marked bad.
        bad: u32,
    },
    /// Writing failed in several blocks in a row, or no erased block is left.
    NoGoodBlock,
    /// The content of too many blocks cannot be read, even with error correction.
    Unreadable {
        /// Number of such blocks.
        blocks: u32,
    },
    /// A block has reached the maximum erase counter.
    WornOut {
        /// The block.
        block: u32,
    },
    /// The sequence numbers, by which the newest copy of a LEB is known, are used up.
    SequenceEnd {
        /// The last one.
        sequence: u64,
    },
    /// The flash failed in a way that using another block does not help.
    Flash(flash::FlashError),
    /// A block contradicts the fastmap, which was trusted.
    Fastmap {
        /// The block.
        block: u32,
    },
    /// An unknown internal volume requires it.
    Alien {
        /// A block of that volume.
        block: u32,
    },
}

impl fmt::Display for ReadOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the UBI device is read-only: ")?;
        match self {
            Self::PoolEmpty { block, bad } => write!(
                f,
                "erase block {block} went bad, {bad} are bad already and no reserved block is \
                 left to replace it; copy the data to another chip"
            ),
            Self::NoGoodBlock => {
                f.write_str("no block could be written; copy the data to another chip")
            }
            Self::Unreadable { blocks } => write!(
                f,
                "{} cannot be read any more; copy what is readable to another chip",
                counted(*blocks, "block", "blocks")
            ),
            Self::WornOut { block } => {
                write!(f, "erase block {block} reached the largest erase counter")
            }
            Self::SequenceEnd { sequence } => {
                write!(
                    f,
                    "sequence number {sequence:#x} is the last one; copy the data to another chip"
                )
            }
            Self::Flash(error) => write!(f, "{error}"),
            Self::Fastmap { block } => write!(
                f,
                "erase block {block} does not hold what the fastmap says; attach without the \
                 fastmap"
            ),
            Self::Alien { block } => write!(
                f,
                "erase block {block} belongs to an internal volume of a newer UBI, which asks \
                 that nothing be changed"
            ),
        }
    }
}

impl core::error::Error for ReadOnly {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            // `Display` shows the error itself, so its source comes next.
            Self::Flash(error) => error.source(),
            _ => None,
        }
    }
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UbiError {
    /// Attaching failed.
    Attach(AttachError),
    /// The flash contains UBI but must not be written; the text says what is wrong and what to do.
    Refused(alloc::string::String),
    /// The flash's geometry or an option is not suitable for UBI.
    Shape(&'static str),
    /// The flash failed; the device keeps working.
    Flash(flash::FlashError),
    /// The device does not accept changes.
    ReadOnly(ReadOnly),
    /// Not enough blocks.
    NoSpace {
        /// Blocks required.
        wanted: u32,
        /// Blocks that neither a volume nor a reserve has.
        available: u32,
    },
    /// There is no volume of this id.
    NoVolume(u32),
    /// A volume with this id exists.
    IdTaken(u32),
    /// A volume with this name exists.
    NameTaken(alloc::string::String),
    /// All ids are taken.
    TooManyVolumes,
    /// An invalid value: which one, and what it must be.
    Invalid(&'static str),
    /// An update of the volume was started and not finished: the volume must be updated again.
    UpdateUnfinished(u32),
}

impl fmt::Display for UbiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attach(error) => write!(f, "{error}"),
            Self::Refused(why) => f.write_str(why),
            Self::Shape(why) | Self::Invalid(why) => f.write_str(why),
            Self::Flash(error) => write!(f, "{error}"),
            Self::ReadOnly(why) => write!(f, "{why}"),
            Self::NoSpace { wanted, available } => {
                write!(f, "{wanted} erase blocks are needed, but {available} are available")
            }
            Self::NoVolume(id) => write!(f, "there is no volume {id}"),
            Self::IdTaken(id) => write!(f, "volume {id} already exists"),
            Self::NameTaken(name) => write!(f, "volume \"{name}\" already exists"),
            Self::TooManyVolumes => f.write_str("the volume table is full"),
            Self::UpdateUnfinished(id) => write!(
                f,
                "an update of volume {id} was not finished: its content is void until it is \
                 updated again"
            ),
        }
    }
}

impl core::error::Error for UbiError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            // `Display` shows these errors themselves, so their sources come next.
            Self::Attach(error) => error.source(),
            Self::Flash(error) => error.source(),
            Self::ReadOnly(why) => why.source(),
            _ => None,
        }
    }
}

impl From<AttachError> for UbiError {
    fn from(error: AttachError) -> Self {
        Self::Attach(error)
    }
}

impl From<flash::FlashError> for UbiError {
    fn from(error: flash::FlashError) -> Self {
        Self::Flash(error)
    }
}

/// The error that the user of a volume gets.
impl From<UbiError> for flash::FlashError {
    fn from(error: UbiError) -> Self {
        match error {
            UbiError::Flash(error) | UbiError::ReadOnly(ReadOnly::Flash(error)) => error,
            _ => Self::WriteProtected,
        }
    }
}
