//! Errors before a disk accepts requests.

use core::fmt;

use flysch_api::command::{Ended, Failure, NotStarted, Scsi, SenseBytes};
use flysch_wire::scsi::luns::LogicalUnitNumber;

use crate::sense;

/// Why a unit could not be scanned or used as a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CamError {
    /// The port did not accept a command.
    NotStarted(
        /// The command.
        &'static str,
        /// The reason.
        NotStarted,
    ),
    /// A command failed.
    Command {
        /// The command.
        name: &'static str,
        /// The unit it went to.
        lun: LogicalUnitNumber,
        /// How it ended.
        ended: Ended,
        /// SCSI status, 0 if there was none.
        status: u8,
        /// The host controller's own code.
        code: u32,
        /// Key, code and qualifier of the sense data, as far as it was understood.
        sense: Option<(u8, u8, u8)>,
    },
    /// The device's answer is impossible.
    BadAnswer {
        /// The command that was answered.
        name: &'static str,
        /// The unit it came from.
        lun: LogicalUnitNumber,
        /// What is wrong with it.
        fault: &'static str,
        /// The offset of the byte to blame, if it is a single one.
        cause: Option<flysch_wire::WireError>,
    },
    /// The unit is not a direct-access device with a capacity.
    NotADisk {
        /// The unit.
        unit: u64,
    },
    /// Unusable size of logical blocks: not a power of two, or longer than a transfer.
    BlockSize {
        /// The unit.
        unit: u64,
        /// Bytes per block.
        block_size: u32,
    },
    /// A block of the unit contains more than data (metadata or protection information), which is
    /// not supported.
    Metadata {
        /// The unit.
        unit: u64,
    },
    /// The memory given for command data is too small.
    Scratch {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        got: usize,
    },
    /// The port has no slots.
    NoSlots,
    /// The drive has no medium.
    NoMedium,
}

impl fmt::Display for CamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted(name, why) => {
                write!(f, "{name}: the host controller did not take the command: ")?;
                match why {
                    NotStarted::Full => f.write_str("no slot became free in time"),
                    NotStarted::BadData(bad) => bad.fmt(f),
                    NotStarted::Unsupported => f.write_str("it cannot send it to that unit"),
                    NotStarted::Gone => f.write_str("it is out of order"),
                }
            }
            Self::Command { name, lun, ended, status, code, sense } => {
                write!(f, "{name} to logical unit {lun}: ")?;
                write_ended(f, *ended, (*status, *code), *sense)
            }
            Self::BadAnswer { name, lun, fault, cause } => {
                write!(f, "answer to {name} from logical unit {lun}: {fault}")?;
                cause.map_or(Ok(()), |cause| write!(f, " ({cause})"))
            }
            Self::NotADisk { unit } => {
                let unit = LogicalUnitNumber::from_bits(*unit);
                write!(f, "logical unit {unit} is not a disk with a capacity")
            }
            Self::BlockSize { unit, block_size } => write!(
                f,
                "logical unit {} has {block_size}-byte blocks; a power of two from 1 up to \
                 the longest transfer is needed",
                LogicalUnitNumber::from_bits(*unit)
            ),
            Self::Metadata { unit } => write!(
                f,
                "unit {unit} is formatted with metadata or protection information, which is not \
                 supported: format it without"
            ),
            Self::Scratch { needed, got } => {
                write!(f, "{got} bytes of scratch memory given, {needed} needed")
            }
            Self::NoMedium => f.write_str("there is no medium in the drive"),
            Self::NoSlots => f.write_str("the host controller has no command slots"),
        }
    }
}

impl core::error::Error for CamError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::BadAnswer { cause: Some(cause), .. } => Some(cause),
            Self::NotStarted(_, NotStarted::BadData(bad)) => Some(bad),
            _ => None,
        }
    }
}

impl CamError {
    /// A command that failed.
    pub(crate) fn command(
        name: &'static str,
        lun: LogicalUnitNumber,
        ended: Ended,
        failure: &Failure<Scsi>,
    ) -> Self {
        let Failure { status, code, .. } = failure;
        let sense = codes(&status.sense);
        Self::Command { name, lun, ended, status: status.status, code: *code, sense }
    }
}

/// Key, code and qualifier.
fn codes(sense: &SenseBytes) -> Option<(u8, u8, u8)> {
    let sense = sense::parse(sense)?;
    Some((sense.key.into_bits(), sense.additional.asc(), sense.additional.ascq()))
}

fn write_ended(
    f: &mut fmt::Formatter<'_>,
    ended: Ended,
    (status, code): (u8, u32),
    sense: Option<(u8, u8, u8)>,
) -> fmt::Result {
    match ended {
        Ended::Good => f.write_str("it ended well"),
        Ended::Answered => {
            write!(f, "SCSI status {status:#04x}")?;
            match sense {
                Some((key, asc, ascq)) => write!(f, ", sense {key:x}/{asc:02x}/{ascq:02x}"),
                None => Ok(()),
            }
        }
        Ended::NoUnit => f.write_str("there is no such logical unit"),
        Ended::TimedOut => f.write_str("no answer in time"),
        Ended::Aborted => f.write_str("aborted"),
        Ended::Reset => f.write_str("lost in a reset"),
        Ended::Host => write!(f, "host controller error (status {code:#x})"),
        Ended::Gone => f.write_str("the controller is out of order"),
    }
}
