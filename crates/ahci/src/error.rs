use core::fmt;

use flysch_wire::ata::Opcode;
use flysch_wire::ata::registers::signature;

/// Why the driver could not do something. Commands of a [`Port`](crate::Port) never end with
/// this; they have [`Ended`](flysch_api::command::Ended).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AhciError {
    /// The options contradict one another.
    Options(&'static str),
    /// The driver's memory is shorter than [`Host::memory_len`](crate::Host::memory_len) says.
    MemoryTooSmall {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// The registers read as all ones: no HBA answers.
    NoController,
    /// None of the requested ports is implemented; the value has a bit for each port of the HBA.
    NoPorts(u32),
    /// A step of bring-up failed for good.
    Step {
        /// The step's name in [`STEPS`](crate::STEPS).
        step: &'static str,
        /// Why.
        cause: Cause,
    },
    /// An operation failed.
    Failed(Cause),
    /// The host, or the port, is not up.
    NotUp,
    /// There is no device at the port.
    NoDevice,
    /// The HBA, or the port, is permanently out of order.
    Gone,
    /// Another operation is under way.
    Busy,
    /// A recovery ended the operation.
    Recovered,
    /// The HBA or the device does not have the feature.
    Unsupported(&'static str),
}

impl AhciError {
    /// The underlying cause, if there is one.
    pub(crate) const fn cause(&self) -> Option<Cause> {
        match *self {
            Self::Step { cause, .. } | Self::Failed(cause) => Some(cause),
            _ => None,
        }
    }
}

/// An underlying cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A register did not reach the expected value.
    Register {
        /// Its name.
        name: &'static str,
        /// Its last value.
        value: u32,
    },
    /// All registers read as ones: the HBA has left the bus.
    Removed,
    /// One of the driver's own commands was not answered.
    Timeout(Opcode),
    /// One of the driver's own commands was answered with an error.
    Status {
        /// The command.
        opcode: Opcode,
        /// STATUS.
        status: u8,
        /// ERROR.
        error: u8,
    },
    /// The HBA reported an error of its own during one of the driver's own commands (PxIS).
    Interface(u32),
    /// The device's answer makes no sense; the text says which part.
    Answer(&'static str),
    /// The identify data of the device makes no sense.
    Identify(flysch_wire::WireError),
    /// A kind of device unknown to the driver: its signature.
    Signature(u32),
    /// Commands are in flight, or their outcomes have not been fetched.
    InFlight,
}

impl From<Cause> for AhciError {
    fn from(cause: Cause) -> Self {
        Self::Failed(cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register { name, value } => {
                write!(f, "register {name} did not follow in time (it reads {value:#x})")
            }
            Self::Removed => f.write_str("the HBA left the bus"),
            Self::Timeout(opcode) => write!(f, "{opcode} was not answered in time"),
            Self::Status { opcode, status, error } => {
                write!(f, "{opcode}: status {status:#04x}, error {error:#04x}")
            }
            Self::Interface(bits) => write!(f, "the HBA reports an error (PxIS {bits:#010x})"),
            Self::Answer(what) => write!(f, "the device's {what} is invalid"),
            Self::Identify(cause) => {
                write!(f, "the device's identify data is invalid: {cause}")
            }
            Self::Signature(signature::MULTIPLIER) => {
                f.write_str("a port multiplier is at the port, and the HBA cannot speak to it")
            }
            Self::Signature(signature::ENCLOSURE) => {
                f.write_str("an enclosure is at the port, and those are not supported")
            }
            Self::Signature(signature) => {
                write!(f, "a device of unknown signature {signature:#010x} is at the port")
            }
            Self::InFlight => f.write_str("commands are still in flight: poll the port first"),
        }
    }
}

impl fmt::Display for AhciError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(what) => write!(f, "options: {what}"),
            Self::MemoryTooSmall { needed, given } => {
                write!(f, "the driver needs {needed} bytes of DMA memory and was given {given}")
            }
            Self::NoController => {
                f.write_str("no HBA answers (all registers read as ones): check the window")
            }
            Self::NoPorts(present) => {
                write!(f, "none of the ports asked for exists: the HBA has {present:#x}")
            }
            Self::Step { step, cause } => write!(f, "bring-up step '{step}': {cause}"),
            Self::Failed(cause) => cause.fmt(f),
            Self::NotUp => f.write_str("the host is not up: bring it up first"),
            Self::NoDevice => f.write_str("there is no device at the port"),
            Self::Gone => f.write_str("the port is out of order: bring the host up again"),
            Self::Busy => f.write_str("another operation is under way: wait for it"),
            Self::Recovered => f.write_str("a recovery ended the operation: try again"),
            Self::Unsupported(what) => write!(f, "{what}: not supported here"),
        }
    }
}

impl core::error::Error for AhciError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Step { cause, .. } => Some(cause),
            // `Display` shows the cause itself, so its source comes next.
            Self::Failed(cause) => cause.source(),
            _ => None,
        }
    }
}

impl core::error::Error for Cause {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Identify(cause) => Some(cause),
            _ => None,
        }
    }
}
