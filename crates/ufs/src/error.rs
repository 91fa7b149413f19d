use core::fmt;
use flysch_wire::scsi::{AdditionalSense, SenseKey};
use flysch_wire::ufs::query::{FfuStatus, QueryResult};
use flysch_wire::ufs::registers::PowerModeStatus;
use flysch_wire::ufs::rpmb::{RpmbMessage, RpmbStatus};
use flysch_wire::ufs::uic::{UicAttribute, UicOpcode, UicResult};
use flysch_wire::ufs::upiu::{ServiceResponse, TaskFunction};
use flysch_wire::ufs::utmrd::TaskOcs;
use flysch_wire::ufs::utrd::Ocs;

/// Why the driver could not do something. Commands of a [`Port`](crate::Port) never end with
/// this; they have [`Ended`](flysch_api::command::Ended).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UfsError {
    /// The options contradict themselves.
    Options(&'static str),
    /// The driver's memory is shorter than [`Host::memory_len`](crate::Host::memory_len) says.
    MemoryTooSmall {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// The controller takes 32-bit addresses only and the memory lies above 4 GiB.
    MemoryTooHigh,
    /// The registers read as all ones: no controller answers.
    NoController,
    /// The controller does not have the requested queue design, or not as many queues.
    Queues {
        /// What was requested.
        wanted: u32,
        /// What is present.
        present: u32,
    },
    /// A step of bring-up failed for good.
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
    /// The controller is out of order for good; only a new `bring_up` can help.
    Gone,
    /// Another operation is in progress.
    Busy,
    /// A recovery ended the operation.
    Recovered,
    /// The identifier is newer than the device's wSpecVersion; asking could hang the device.
    TooNew {
        /// What was requested, by its name in JESD220.
        name: &'static str,
        /// The version that introduced it, as in wSpecVersion (0x310 is 3.1).
        since: u16,
        /// The device's wSpecVersion.
        device: u16,
    },
    /// No specification known here defines that identification number.
    Unknown(u8),
    /// The write cannot be undone: see [`Query::irreversible`](crate::Query::irreversible).
    Irreversible(&'static str),
    /// The parameter does not have that index or selector.
    Index(&'static str),
    /// The definition of the parameter in JESD220 does not allow that access.
    Access(&'static str),
    /// The value does not fit the parameter.
    Value(&'static str),
    /// Device or controller does not have the feature.
    Unsupported(&'static str),
    /// The descriptor that the device sent makes no sense: its name, and what is wrong with its
    /// bytes, unless they are another descriptor's.
    Descriptor(&'static str, Option<flysch_wire::WireError>),
    /// A configuration plan was refused.
    Configuration(&'static str),
    /// Replay protected memory: the device refused, or its answer cannot be trusted.
    Rpmb(RpmbError),
    /// A firmware update: the device did not accept it.
    Firmware(FfuStatus),
    /// What the device cannot do in its present state: the message names the remedy.
    State(&'static str),
}

/// What went wrong underneath.
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
    /// A UIC command was answered with an error.
    Uic(UicOpcode, UicResult),
    /// An attribute command was answered with an error.
    Dme(UicAttribute, UicResult),
    /// A UIC command was not answered.
    UicTimeout(UicOpcode),
    /// A power mode change or hibernation ended badly.
    PowerMode(PowerModeStatus),
    /// The device is not there (HCS.DP is clear).
    NoDevice,
    /// A device management command was not answered.
    Timeout,
    /// A device management command ended with this overall command status.
    Overall(Ocs),
    /// The answer does not belong to the request.
    Response(u8),
    /// The device refused a query.
    Query(QueryResult),
    /// A SCSI command of the driver itself ended with this status.
    Scsi(u8),
    /// A SCSI command of the driver itself ended with CHECK CONDITION and this sense.
    Sense(SenseKey, AdditionalSense),
    /// A task management request was not answered.
    TaskTimeout(TaskFunction),
    /// A task management request ended with this overall command status.
    TaskOverall(TaskOcs),
    /// The device answered a task management request with an error.
    Task(ServiceResponse),
    /// No slot became free.
    NoSlot,
    /// fDeviceInit stayed set.
    DeviceInit,
    /// The device did not accept the reference clock; bRefClkFreq as it reads.
    ReferenceClock(u8),
    /// The platform could not do its part; its own number.
    Platform(u16),
    /// A queue did not accept its configuration.
    Queue(u8),
    /// Commands are in flight, or their outcomes have not been fetched.
    InFlight,
}

impl From<Cause> for UfsError {
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
            Self::Uic(opcode, result) => write!(f, "{opcode} was answered {result}"),
            Self::Dme(attribute, result) => write!(f, "attribute {attribute}: {result}"),
            Self::UicTimeout(opcode) => write!(f, "{opcode} was not answered in time"),
            Self::PowerMode(status) => write!(f, "the link's power mode change ended {status}"),
            Self::NoDevice => f.write_str("no device answers on the link"),
            Self::Timeout => f.write_str("the device did not answer in time"),
            Self::Overall(ocs) => write!(f, "overall command status {ocs}"),
            Self::Response(code) => write!(f, "unexpected answer, transaction code {code:#x}"),
            Self::Query(result) => write!(f, "the device refused the query: {result}"),
            Self::Scsi(status) => write!(f, "SCSI status {status:#04x}"),
            Self::Sense(key, additional) => write!(f, "the device says {key}: {additional}"),
            Self::TaskTimeout(function) => write!(f, "{function} was not answered in time"),
            Self::TaskOverall(ocs) => write!(f, "task management: overall command status {ocs}"),
            Self::Task(response) => write!(f, "task management: {response}"),
            Self::NoSlot => f.write_str("no queue slot became free in time"),
            Self::DeviceInit => f.write_str("the device's own initialisation did not end"),
            Self::ReferenceClock(is) => {
                write!(f, "the device did not take the reference clock: bRefClkFreq is {is}")
            }
            Self::Platform(number) => write!(f, "the platform refused: its error {number}"),
            Self::InFlight => f.write_str("commands are still in flight: poll the ports first"),
            Self::Queue(queue) => write!(f, "queue {queue} did not take its configuration"),
        }
    }
}

impl fmt::Display for UfsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(what) => write!(f, "options: {what}"),
            Self::MemoryTooSmall { needed, given } => {
                write!(f, "the driver needs {needed} bytes of DMA memory and was given {given}")
            }
            Self::MemoryTooHigh => {
                f.write_str("the controller takes 32-bit addresses: give it DMA memory below 4 GiB")
            }
            Self::NoController => {
                f.write_str("no controller answers (all registers read as ones): check the window")
            }
            Self::Queues { wanted, present } => {
                write!(f, "{wanted} queues were asked for and the controller has {present}")
            }
            Self::Step { step, cause } => write!(f, "bring-up step '{step}': {cause}"),
            Self::Failed(cause) => cause.fmt(f),
            Self::NotUp => f.write_str("the host is not up: bring it up first"),
            Self::Gone => f.write_str("the controller is out of order: bring it up again"),
            Self::Busy => f.write_str("another operation is under way: wait for it"),
            Self::Recovered => f.write_str("a host reset ended the operation: try again"),
            Self::TooNew { name, since, device } => write!(
                f,
                "{name} came with UFS {}.{} and the device has {}.{}: not sent",
                since >> 8,
                since >> 4 & 0xF,
                device >> 8,
                device >> 4 & 0xF
            ),
            Self::Unknown(id) => {
                write!(
                    f,
                    "identification number {id:#04x} is unknown: not sent, it could hang the device"
                )
            }
            Self::Irreversible(name) => {
                write!(f, "writing {name} cannot be undone: confirm it explicitly")
            }
            Self::Index(name) => write!(f, "{name} does not have that index or selector"),
            Self::Access(name) => write!(f, "{name} does not allow that access"),
            Self::Value(name) => write!(f, "that value is out of range for {name}"),
            Self::Unsupported(what) => write!(f, "{what} is not supported here"),
            Self::Descriptor(what, None) => {
                write!(f, "the device's {what} descriptor makes no sense")
            }
            Self::Descriptor(what, Some(cause)) => {
                write!(f, "the device's {what} descriptor makes no sense: {cause}")
            }
            Self::Configuration(why) => write!(f, "configuration refused: {why}"),
            Self::Rpmb(error) => write!(f, "RPMB: {error}"),
            Self::Firmware(status) => {
                write!(f, "the device did not take the firmware: {status} (bDeviceFFUStatus)")
            }
            Self::State(why) => f.write_str(why),
        }
    }
}

impl core::error::Error for UfsError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Step { cause, .. } => Some(cause),
            // The message is that of the cause.
            Self::Failed(cause) => cause.source(),
            Self::Descriptor(_, Some(cause)) => Some(cause),
            Self::Rpmb(error) => Some(error),
            _ => None,
        }
    }
}

impl core::error::Error for Cause {}

/// Why a message of the RPMB failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RpmbError {
    /// The device refused. A refusal is not authenticated.
    Refused(RpmbStatus),
    /// The MAC of the answer is not that of the key: the key is a different one, or the answer was
    /// changed.
    Mac,
    /// The nonce of the answer is not the one sent: it is an old answer.
    Nonce,
    /// The answer belongs to another message.
    Message(RpmbMessage),
    /// The answer concerns other blocks.
    Blocks,
    /// The counter in the answer is not one more than that of the write.
    Counter {
        /// The expected counter.
        expected: u32,
        /// The counter in the answer.
        got: u32,
    },
    /// The answer does not have the length of an answer, or makes no sense.
    Malformed,
    /// The content of the answer makes no sense.
    Content(flysch_wire::WireError),
    /// The region does not exist.
    NoRegion(u8),
    /// The number of blocks is not between 1 and what the device accepts at once, or they are not
    /// whole.
    Length,
    /// More than four areas.
    Areas,
}

impl fmt::Display for RpmbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status) => write!(f, "the device refused: {status}"),
            Self::Mac => f.write_str(
                "the MAC of the answer is wrong: it is another key, or the answer was changed",
            ),
            Self::Nonce => {
                f.write_str("the nonce of the answer is not the one sent: it is an old answer")
            }
            Self::Message(message) => write!(f, "the answer is to another message: {message}"),
            Self::Blocks => f.write_str("the answer is about other blocks than were asked for"),
            Self::Counter { expected, got } => {
                write!(f, "the write counter of the answer is {got} and was to be {expected}")
            }
            Self::Malformed => f.write_str("the answer makes no sense"),
            Self::Content(cause) => write!(f, "the answer makes no sense: {cause}"),
            Self::NoRegion(region) => write!(f, "region {region} is not enabled"),
            Self::Length => f.write_str("one message takes 1 block to as many as the device says"),
            Self::Areas => f.write_str("a logical unit has at most four protected areas"),
        }
    }
}

impl From<RpmbError> for UfsError {
    fn from(error: RpmbError) -> Self {
        Self::Rpmb(error)
    }
}

impl core::error::Error for RpmbError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Content(cause) => Some(cause),
            _ => None,
        }
    }
}
