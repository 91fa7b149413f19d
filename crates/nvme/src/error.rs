use core::fmt;

use flysch_wire::nvme::{AdminOpcode, Status};

/// Why the driver could not do something. Commands of a [`Port`](crate::Port) never end with this
/// type; they have [`Ended`](flysch_api::command::Ended).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NvmeError {
    /// The options contradict each other.
    Options(&'static str),
    /// The driver's memory is shorter than [`Host::memory_len`](crate::Host::memory_len).
    MemoryTooSmall {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// Reads of registers return all ones: no controller answers.
    NoController,
    /// The controller does not have that many queues.
    Queues {
        /// Number requested.
        wanted: u32,
        /// Number available.
        present: u32,
    },
    /// A step of bring-up failed permanently.
    Step {
        /// The step's name in [`STEPS`](crate::STEPS).
        step: &'static str,
        /// Why.
        cause: Cause,
    },
    /// An operation failed.
    Failed(Cause),
    /// The host is not up: call `bring_up` first.
    NotUp,
    /// The controller has failed permanently; only a new `bring_up` can help.
    Gone,
    /// Another operation is under way.
    Busy,
    /// A recovery ended the operation.
    Recovered,
    /// The controller does not have the feature.
    Unsupported(&'static str),
}

/// The underlying cause.
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
    /// The controller reports a fatal status (CSTS.CFS).
    Fatal,
    /// All registers read as ones: the controller has left the bus.
    Removed,
    /// An admin command was not answered.
    Timeout(AdminOpcode),
    /// An admin command was answered with an error.
    Status(AdminOpcode, Status),
    /// The controller's answer makes no sense.
    Answer(&'static str),
    /// Fewer queues were granted than there are lanes.
    Queues(u32),
    /// Aborted commands were not completed.
    NotAborted,
    /// Commands are in flight, or their outcomes were not taken.
    InFlight,
}

impl From<Cause> for NvmeError {
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
            Self::Fatal => f.write_str("the controller reports a fatal error (CSTS.CFS)"),
            Self::Removed => f.write_str("the controller left the bus"),
            Self::Timeout(opcode) => write!(f, "{opcode} was not answered in time"),
            Self::Status(opcode, status) => {
                write!(f, "{opcode}: {status} ({:#05x})", status.into_bits())
            }
            Self::Answer(what) => write!(f, "the controller's {what} is invalid"),
            Self::Queues(granted) => write!(f, "the controller grants only {granted} queue pairs"),
            Self::NotAborted => f.write_str("aborted commands did not come back"),
            Self::InFlight => f.write_str("commands are still in flight: poll the ports first"),
        }
    }
}

impl fmt::Display for NvmeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(what) => write!(f, "options: {what}"),
            Self::MemoryTooSmall { needed, given } => {
                write!(f, "the driver needs {needed} bytes of DMA memory and was given {given}")
            }
            Self::NoController => {
                f.write_str("no controller answers (all registers read as ones): check the window")
            }
            Self::Queues { wanted, present } => {
                write!(f, "{wanted} queues were asked for, but the controller has {present}")
            }
            Self::Step { step, cause } => write!(f, "bring-up step '{step}': {cause}"),
            Self::Failed(cause) => cause.fmt(f),
            Self::NotUp => f.write_str("the host is not up: bring it up first"),
            Self::Gone => f.write_str("the controller is out of order: bring it up again"),
            Self::Busy => f.write_str("another operation is under way: wait for it"),
            Self::Recovered => f.write_str("a controller reset ended the operation: try again"),
            Self::Unsupported(what) => write!(f, "{what}: not supported here"),
        }
    }
}

impl core::error::Error for NvmeError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Step { cause, .. } => Some(cause),
            // The cause is what is said.
            Self::Failed(cause) => cause.source(),
            _ => None,
        }
    }
}

impl core::error::Error for Cause {}
