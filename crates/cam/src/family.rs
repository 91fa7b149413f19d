//! What a disk needs to know of a command set, one implementation per file: [`da`](mod@crate::da),
//! [`nda`](mod@crate::nda), [`ada`](mod@crate::ada), [`sdda`](mod@crate::sdda).
//!
//! A family belongs to a protocol: the disk over a port is of the family of the port's language, so
//! requests become commands by direct calls.

use flysch_api::block::{Cause, Error};
use flysch_api::command::{Ended, Failure, Protocol};

/// Longest parameter list of a delete in any command set, bytes.
pub const DELETE_LIST_MAX: usize = 512;

/// A command set that disks are made of.
pub trait Family: Protocol {
    /// What CAM calls such a disk.
    const NAME: &'static str;
    /// Longest parameter list of a delete, bytes, at most [`DELETE_LIST_MAX`]: what a disk's
    /// scratch memory has for each command.
    const DELETE_LIST: usize = 32;

    /// Reads (or writes) `blocks` blocks from `lba`; `force_unit_access` only where the unit has
    /// it.
    fn transfer(write: bool, lba: u64, blocks: u32, force_unit_access: bool) -> Self::Payload;

    /// Empties the unit's volatile write cache.
    fn flush() -> Self::Payload;

    /// Gives up the content of a range; writes the parameter list and answers its length.
    fn delete(lba: u64, blocks: u32, list: &mut [u8; DELETE_LIST_MAX]) -> (Self::Payload, usize);

    /// Makes the zone that begins at `lba` empty, where the command set has zones.
    fn reset_zone(lba: u64) -> Option<Self::Payload> {
        let _ = lba;
        None
    }

    /// Makes a unit that is not ready ready, where its protocol has a command for that.
    fn start_unit() -> Option<Self::Payload> {
        None
    }

    /// What an end other than [`Ended::Good`] means. `moves_data`: a residual is data missing.
    fn verdict(ended: Ended, failure: &Failure<Self>, moves_data: bool) -> Verdict;
}

/// Events a unit told of that call for another scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attention {
    /// 29/xx: power on, reset or bus reset.
    pub reset: bool,
    /// 2A/09: the capacity is another.
    pub capacity: bool,
    /// 2A/01: mode parameters are others (the write cache may be switched).
    pub parameters: bool,
    /// 3F/0E: there are other logical units.
    pub luns: bool,
    /// 3F/03, 28/00: the unit or its medium may be another.
    pub identity: bool,
}

/// What to do with a command that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It was carried out.
    Succeed,
    /// Issue it again, at most so many times; counts.
    Retry(u8),
    /// Issue it again; does not count.
    Requeue,
    /// Issue it again after a pause that doubles each time; counts.
    BackOff,
    /// Issue it again after so many milliseconds, which the device asked for; counts.
    After(u32),
    /// Issue it again every [`POLL_READY_MS`], up to [`POLL_READY_TRIES`] times.
    PollReady,
    /// The unit wants to be started; issue it again after that, at most [`START_TRIES`] times.
    Start,
    /// The device's queue is full: fewer commands at once, again when another one ended.
    Throttle,
    /// It failed; trying again cannot help.
    Fail,
}

/// Pause between attempts while a unit becomes ready, milliseconds (CAM polls at this pace).
pub const POLL_READY_MS: u32 = 500;
/// Attempts while a unit becomes ready: a minute in all.
pub const POLL_READY_TRIES: u8 = 120;

/// How often a command may have its unit started.
pub const START_TRIES: u8 = 2;
/// How long starting a unit may take, milliseconds (CAM's).
pub const START_TIMEOUT_MS: u32 = 50_000;

/// What a failure is called when the tries are used up, before the cause is filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// [`Error::Medium`].
    Medium,
    /// [`Error::Device`].
    Device,
    /// [`Error::WriteProtected`].
    WriteProtected,
    /// [`Error::OutOfRange`].
    OutOfRange,
    /// [`Error::Unsupported`].
    Unsupported,
    /// [`Error::Gone`].
    Gone,
}

impl Meaning {
    pub(crate) const fn error(self, cause: Cause) -> Error {
        match self {
            Self::Medium => Error::Medium(cause),
            Self::Device => Error::Device(cause),
            Self::WriteProtected => Error::WriteProtected,
            Self::OutOfRange => Error::OutOfRange,
            Self::Unsupported => Error::Unsupported,
            Self::Gone => Error::Gone,
        }
    }
}

/// What kind of trouble an end was: what is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// None that is counted.
    None,
    /// Carried out with the device's own error correction or retries.
    Recovered,
    /// A write failed after it was reported done; this command was not carried out.
    Deferred,
    /// The medium.
    Medium,
    /// The device.
    Hardware,
    /// The device gave up and asks to try again.
    Aborted,
    /// The device tells of an event.
    Attention(Attention),
    /// Busy, not ready.
    Busy,
    /// The device's queue is full.
    QueueFull,
    /// The deadline passed.
    TimedOut,
    /// Lost in a reset or an abort.
    Reset,
    /// The host controller's own error.
    Host,
    /// Ended well but short.
    Short,
}

/// What to do about an end, and what to call it if that does not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The cure.
    pub action: Action,
    /// The failure in the words of the block layer.
    pub error: Error,
    /// What kind of trouble it was.
    pub trouble: Trouble,
}

impl Verdict {
    /// A verdict.
    pub const fn new(action: Action, error: Error, trouble: Trouble) -> Self {
        Self { action, error, trouble }
    }

    /// About an end without an answer of the device: the same in every language.
    pub fn without_answer(ended: Ended, code: u32) -> Self {
        match ended {
            Ended::Good | Ended::Answered => Self::new(Action::Succeed, Error::Gone, Trouble::None),
            Ended::NoUnit | Ended::Gone => Self::new(Action::Fail, Error::Gone, Trouble::None),
            Ended::TimedOut => {
                Self::new(Action::Retry(u8::MAX), Error::TimedOut, Trouble::TimedOut)
            }
            // A victim of somebody else's recovery: it did nothing wrong itself.
            Ended::Aborted | Ended::Reset => {
                Self::new(Action::Requeue, Error::Reset, Trouble::Reset)
            }
            Ended::Host => Self::new(Action::Retry(u8::MAX), Error::Host(code), Trouble::Host),
        }
    }
}
