//! What can go wrong with a device that is written.

use core::fmt;

use flysch_api::flash;

use crate::AttachError;

/// Why a device takes no more changes. It is final until the device is attached again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadOnly {
    /// A block went bad and none was left to replace it.
    PoolEmpty {
        /// The block; it is not marked, because it could not be replaced.
        block: u32,
        /// Blocks that are marked bad.
        bad: u32,
    },
    /// Nothing could be written in several blocks in a row, or no erased block is left.
    NoGoodBlock,
    /// Too many blocks hold content that error correction can not read.
    Unreadable {
        /// How many.
        blocks: u32,
    },
    /// A block reached the largest erase counter there is.
    WornOut {
        /// The block.
        block: u32,
    },
    /// The flash failed in a way that no other block mends.
    Flash(flash::Error),
    /// A block holds something else than the fastmap says, which was believed.
    Fastmap {
        /// The block.
        block: u32,
    },
    /// An internal volume that is not known asks for it.
    Alien {
        /// A block of it.
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
                "{blocks} blocks can not be read any more; copy what is readable to another chip"
            ),
            Self::WornOut { block } => {
                write!(f, "erase block {block} reached the largest erase counter")
            }
            Self::Flash(error) => write!(f, "{error}"),
            Self::Fastmap { block } => write!(
                f,
                "erase block {block} holds something else than the fastmap says; attach without it"
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
            Self::Flash(error) => Some(error),
            _ => None,
        }
    }
}

/// Why something could not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Nothing could be attached.
    Attach(AttachError),
    /// The flash is UBI, yet not one that may be written; the text says what is wrong and what
    /// to do.
    Refused(alloc::string::String),
    /// The flash's shape or an option does not allow UBI.
    Shape(&'static str),
    /// The flash failed; the device works on.
    Flash(flash::Error),
    /// The device takes no changes.
    ReadOnly(ReadOnly),
    /// Not enough blocks.
    NoSpace {
        /// Blocks wanted.
        wanted: u32,
        /// Blocks that no volume and no reserve has.
        available: u32,
    },
    /// There is no volume of this id.
    NoVolume(u32),
    /// A volume of this id is there.
    IdTaken(u32),
    /// A volume has this name.
    NameTaken(alloc::string::String),
    /// All ids are taken.
    TooManyVolumes,
    /// A value that can not be: which, and what it must be.
    Invalid(&'static str),
    /// An update of the volume was started and not finished: it has to be updated again.
    UpdateUnfinished(u32),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attach(error) => write!(f, "{error}"),
            Self::Refused(why) => f.write_str(why),
            Self::Shape(why) | Self::Invalid(why) => f.write_str(why),
            Self::Flash(error) => write!(f, "{error}"),
            Self::ReadOnly(why) => write!(f, "{why}"),
            Self::NoSpace { wanted, available } => {
                write!(f, "{wanted} erase blocks are wanted and {available} are available")
            }
            Self::NoVolume(id) => write!(f, "there is no volume {id}"),
            Self::IdTaken(id) => write!(f, "there is a volume {id} already"),
            Self::NameTaken(name) => write!(f, "there is a volume \"{name}\" already"),
            Self::TooManyVolumes => f.write_str("the volume table is full"),
            Self::UpdateUnfinished(id) => write!(
                f,
                "an update of volume {id} was not finished: its content is void until it is \
                 updated again"
            ),
        }
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Attach(error) => Some(error),
            Self::Flash(error) => Some(error),
            Self::ReadOnly(why) => Some(why),
            _ => None,
        }
    }
}

impl From<AttachError> for Error {
    fn from(error: AttachError) -> Self {
        Self::Attach(error)
    }
}

impl From<flash::Error> for Error {
    fn from(error: flash::Error) -> Self {
        Self::Flash(error)
    }
}

/// What the user of a volume is told.
impl From<Error> for flash::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Flash(error) | Error::ReadOnly(ReadOnly::Flash(error)) => error,
            _ => Self::WriteProtected,
        }
    }
}
