//! Errors of a device that is open for writing.

use core::fmt;

use flysch_api::flash;

use crate::AttachError;

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
    /// The device accepts no changes any more: for a reason of its own
    /// ([`flash::FlashError::ReadOnly`]), or because the flash failed in a way that another block
    /// does not help.
    ReadOnly(flash::FlashError),
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
            Self::ReadOnly(why) => write!(f, "the UBI device is read-only: {why}"),
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
            UbiError::Flash(error) | UbiError::ReadOnly(error) => error,
            // It was removed while it was open.
            UbiError::NoVolume(_) => Self::OutOfRange,
            // No cause: only attaching and changes of volumes have these errors.
            UbiError::Attach(_)
            | UbiError::Refused(_)
            | UbiError::Shape(_)
            | UbiError::NoSpace { .. }
            | UbiError::IdTaken(_)
            | UbiError::NameTaken(_)
            | UbiError::TooManyVolumes
            | UbiError::Invalid(_)
            | UbiError::UpdateUnfinished(_) => Self::WriteProtected,
        }
    }
}
