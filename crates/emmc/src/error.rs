use core::fmt;

use flysch_wire::mmc::CardStatus;
use flysch_wire::mmc::command::CommandIndex;
use flysch_wire::mmc::sdhci::Interrupts;

/// Why the driver could not do something. Commands of a [`Port`](crate::Port) never end with
/// this; they have [`Ended`](flysch_api::command::Ended).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EmmcError {
    /// The options contradict themselves.
    Options(&'static str),
    /// The driver's memory is shorter than [`Host::memory_len`](crate::Host::memory_len) says.
    MemoryTooSmall {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// The registers read as all ones: no controller answers.
    NoController,
    /// The controller cannot address the machine's memory.
    Address,
    /// A step of bring-up failed permanently.
    Step {
        /// The step's name in [`STEPS`](crate::STEPS).
        step: &'static str,
        /// Why.
        cause: Cause,
    },
    /// An operation failed.
    Failed(Cause),
    /// A message to the replay protected memory failed.
    Rpmb(RpmbError),
    /// The host is not up: call `bring_up` first.
    NotUp,
    /// The card is out of order permanently; only a new `bring_up` can help.
    Gone,
    /// Another operation is in progress.
    Busy,
    /// A recovery ended the operation.
    Recovered,
    /// The card or the controller does not have the feature.
    Unsupported(&'static str),
    /// The request makes no sense for this card.
    Invalid(&'static str),
    /// The card sleeps: wake it first.
    Asleep,
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
    /// All registers read as ones: the controller left the bus.
    Removed,
    /// No card answers.
    NoCard,
    /// A command failed on the bus.
    Bus(CommandIndex, BusError),
    /// The card answered a command with errors: the device status.
    Status(CommandIndex, CardStatus),
    /// The card did not change a byte of EXT_CSD (SWITCH_ERROR).
    Switch(u8),
    /// The card did not end its busy state in time, after this command.
    Busy(CommandIndex),
    /// The card's answer makes no sense.
    Answer(&'static str),
    /// Card and controller have no voltage in common.
    Voltage,
    /// An SD card did not switch to 1.8 V signalling.
    Signal,
    /// Tuning found no sampling point.
    Tuning,
    /// No bus timing works.
    Timing,
    /// The number of lanes, or the option, requires command queueing, which is not available.
    NoQueueing,
    /// The requested partition does not exist.
    NoPartition(u8),
    /// Commands are in flight, or their outcomes have not been fetched.
    InFlight,
    /// A new firmware was refused: FFU_STATUS.
    Firmware(u8),
}

/// What went wrong with a command on the bus: bits of the error interrupt status (SDHCI 2.2.18) in
/// 31:16, and below them bits of the driver itself. The code of
/// [`Ended::Host`](flysch_api::command::Ended::Host).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusError(pub u32);

impl BusError {
    /// The controller did not report anything in time.
    pub const SILENT: Self = Self(1);
    /// The card did not end its busy state in time.
    pub const BUSY: Self = Self(2);
    /// The queueing engine reported a failed task without a reason.
    pub const TASK: Self = Self(4);
    /// The card's response contains an error, which is in the device status.
    pub const STATUS: Self = Self(8);
    /// No response.
    pub const NO_RESPONSE: Self = Self(1 << 16);

    /// Whether a bad sampling point may have caused it: a CRC, end bit or tuning error.
    pub const fn may_be_sampling(self) -> bool {
        self.0 & (Interrupts::SAMPLING | 1 << 17 | 1 << 18 | 1 << 26) != 0
    }

    /// Whether there was no response.
    pub const fn is_no_response(self) -> bool {
        self.0 & Self::NO_RESPONSE.0 != 0
    }
}

impl fmt::Display for BusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(u32, &str); 15] = [
            (1, "no end in time"),
            (2, "busy for too long"),
            (4, "queueing error"),
            (8, "error in the response"),
            (1 << 16, "no response"),
            (1 << 17, "response CRC"),
            (1 << 18, "response end bit"),
            (1 << 19, "response index"),
            (1 << 20, "data time-out"),
            (1 << 21, "data CRC"),
            (1 << 22, "data end bit"),
            (1 << 23, "current limit"),
            (1 << 24, "automatic command"),
            (1 << 25, "ADMA"),
            (1 << 26, "tuning"),
        ];
        let mut any = false;
        for (bit, name) in NAMES {
            if self.0 & bit != 0 {
                if any {
                    f.write_str(", ")?;
                }
                f.write_str(name)?;
                any = true;
            }
        }
        if any { Ok(()) } else { write!(f, "error {:#x}", self.0) }
    }
}

/// Why a message to the replay protected memory failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RpmbError {
    /// The device answered with this result.
    Result(flysch_wire::mmc::rpmb::RpmbStatus),
    /// The answer belongs to another message.
    Message,
    /// The answer carries another nonce: it is an old one.
    Nonce,
    /// The MAC of the answer is not that of the key.
    Mac,
    /// The write counter in the answer is not the expected one.
    Counter,
    /// The data is not a whole number of blocks of 256 bytes, or more than the device accepts at
    /// once.
    Length,
}

impl fmt::Display for RpmbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Result(status) => write!(f, "the device answers: {status}"),
            Self::Message => f.write_str("the answer is to another message"),
            Self::Nonce => f.write_str("the answer carries another nonce: it is an old one"),
            Self::Mac => f.write_str("the answer is not proved by this key"),
            Self::Counter => f.write_str("the write counter in the answer is a wrong one"),
            Self::Length => {
                f.write_str("data must be whole blocks of 256 bytes, as many as the device takes")
            }
        }
    }
}

impl From<Cause> for EmmcError {
    fn from(cause: Cause) -> Self {
        Self::Failed(cause)
    }
}

impl From<RpmbError> for EmmcError {
    fn from(error: RpmbError) -> Self {
        Self::Rpmb(error)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register { name, value } => {
                write!(f, "register {name} did not follow in time (it reads {value:#x})")
            }
            Self::Removed => f.write_str("the controller left the bus"),
            Self::NoCard => f.write_str("no card answers"),
            Self::Bus(index, error) => write!(f, "CMD{} ({index}): {error}", index.into_bits()),
            Self::Status(index, status) => {
                let bits = status.into_bits();
                write!(f, "CMD{} ({index}): device status {bits:#010x}", index.into_bits())
            }
            Self::Switch(index) => write!(f, "the card did not change EXT_CSD byte {index}"),
            Self::Busy(index) => {
                write!(f, "the card stays busy after CMD{} ({index})", index.into_bits())
            }
            Self::Answer(what) => write!(f, "the card's {what} makes no sense"),
            Self::Voltage => f.write_str("card and controller agree on no voltage"),
            Self::Signal => f.write_str("the card did not follow to 1.8 V signalling"),
            Self::Tuning => f.write_str("tuning found no sampling point"),
            Self::Timing => f.write_str("no bus timing works"),
            Self::NoQueueing => {
                f.write_str("command queueing is asked for, and card or controller has none")
            }
            Self::NoPartition(access) => write!(f, "the card has no partition {access}"),
            Self::InFlight => f.write_str("commands are still in flight: poll the ports first"),
            Self::Firmware(status) => {
                write!(f, "the card refused the firmware (FFU_STATUS {status:#04x})")
            }
        }
    }
}

impl fmt::Display for EmmcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(what) => write!(f, "options: {what}"),
            Self::MemoryTooSmall { needed, given } => {
                write!(f, "the driver needs {needed} bytes of DMA memory and was given {given}")
            }
            Self::NoController => {
                f.write_str("no controller answers (all registers read as ones): check the window")
            }
            Self::Address => {
                f.write_str("the controller has 32-bit addresses, and memory lies above 4 GiB")
            }
            Self::Step { step, cause } => write!(f, "bring-up step '{step}': {cause}"),
            Self::Failed(cause) => cause.fmt(f),
            Self::Rpmb(error) => error.fmt(f),
            Self::NotUp => f.write_str("the host is not up: bring it up first"),
            Self::Gone => f.write_str("the card is out of order: bring it up again"),
            Self::Busy => f.write_str("another operation is under way: wait for it"),
            Self::Recovered => f.write_str("a recovery ended the operation: try again"),
            Self::Unsupported(what) => write!(f, "{what}: not supported here"),
            Self::Invalid(what) => f.write_str(what),
            Self::Asleep => f.write_str("the card sleeps: wake it first"),
        }
    }
}

impl core::error::Error for EmmcError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Step { cause, .. } => Some(cause),
            // The message is that of the cause.
            Self::Failed(cause) => cause.source(),
            _ => None,
        }
    }
}

impl core::error::Error for Cause {}
