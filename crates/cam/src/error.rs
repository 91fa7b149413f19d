//! What can go wrong before a disk takes requests.

use core::fmt;

use flysch_api::command::{Ended, NotStarted, SenseBytes};

use crate::sense;

/// Why a unit could not be scanned or used as a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The port did not take a command.
    NotStarted(
        /// Which command.
        &'static str,
        /// Why.
        NotStarted,
    ),
    /// A command ended badly.
    Command {
        /// Which command.
        name: &'static str,
        /// The unit it went to.
        lun: u8,
        /// How it ended.
        ended: Ended,
        /// The sense data, if there was any.
        sense: SenseBytes,
    },
    /// What the device answered cannot be.
    BadAnswer {
        /// The answer to which command.
        name: &'static str,
        /// The unit it came from.
        lun: u8,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// The unit is not a direct-access device with a capacity.
    NotADisk {
        /// The unit.
        lun: u8,
    },
    /// Logical blocks of this size cannot be used: not a power of two, or longer than a transfer.
    BlockSize {
        /// The unit.
        lun: u8,
        /// Bytes per block.
        block_size: u32,
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
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted(name, why) => {
                write!(f, "{name}: the host controller did not take the command: ")?;
                f.write_str(match why {
                    NotStarted::Full => "no slot became free in time",
                    NotStarted::BadData => "its data is not in DMA memory",
                    NotStarted::Gone => "it is out of order",
                })
            }
            Self::Command { name, lun, ended, sense } => {
                write!(f, "{name} to logical unit {lun:#04x}: ")?;
                write_ended(f, *ended, sense)
            }
            Self::BadAnswer { name, lun, fault } => {
                write!(f, "answer to {name} from logical unit {lun:#04x}: {fault}")
            }
            Self::NotADisk { lun } => {
                write!(f, "logical unit {lun:#04x} is not a disk with a capacity")
            }
            Self::BlockSize { lun, block_size } => write!(
                f,
                "logical unit {lun:#04x} has {block_size}-byte blocks; a power of two from 1 up to \
                 the longest transfer is needed"
            ),
            Self::Scratch { needed, got } => {
                write!(f, "{got} bytes of scratch memory given, {needed} needed")
            }
            Self::NoSlots => f.write_str("the host controller has no command slots"),
        }
    }
}

impl core::error::Error for Error {}

fn write_ended(f: &mut fmt::Formatter<'_>, ended: Ended, sense: &SenseBytes) -> fmt::Result {
    match ended {
        Ended::Status(status) => {
            write!(f, "SCSI status {status:#04x}")?;
            match sense::parse(sense) {
                Some((c, _)) => write!(f, ", sense {:x}/{:02x}/{:02x}", c.key, c.asc, c.ascq),
                None => Ok(()),
            }
        }
        Ended::NoLogicalUnit => f.write_str("there is no such logical unit"),
        Ended::TimedOut => f.write_str("no answer in time"),
        Ended::Aborted => f.write_str("aborted"),
        Ended::Reset => f.write_str("lost in a reset"),
        Ended::Host(status) => write!(f, "host controller error (overall status {status:#x})"),
        Ended::Gone => f.write_str("the controller is out of order"),
    }
}
