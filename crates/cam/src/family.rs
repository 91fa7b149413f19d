//! What a disk needs to know about a command set, one implementation per file:
//! [`da`](mod@crate::da), [`nda`](mod@crate::nda), [`ada`](mod@crate::ada),
//! [`sdda`](mod@crate::sdda).
//!
//! A family belongs to a protocol: the disk over a port belongs to the family of the port's
//! protocol, so requests become commands by direct calls.

use flysch_api::block::{BlockError, Cause};
use flysch_api::command::{Ended, Failure, Protocol};

/// Longest parameter list of a delete in any command set, bytes.
pub const DELETE_LIST_MAX: usize = 512;

/// A command set from which disks are made.
pub trait Family: Protocol {
    /// CAM's name for such a disk.
    const NAME: &'static str;
    /// Longest parameter list of a delete, bytes, at most [`DELETE_LIST_MAX`]: a disk's scratch
    /// memory has this much for each command.
    const DELETE_LIST: usize = 32;

    /// Bytes of the unit in which commands count ranges, for blocks of `block_size` bytes: the
    /// block, unless the protocol always counts something smaller.
    fn counted(block_size: u32) -> u32 {
        block_size
    }

    /// Reads (or writes) `blocks` blocks from `lba`; `force_unit_access` only if the unit supports
    /// it. Both are counted as in [`counted`](Self::counted), here and in [`delete`](Self::delete).
    fn transfer(write: bool, lba: u64, blocks: u32, force_unit_access: bool) -> Self::Payload;

    /// Flushes the unit's volatile write cache.
    fn flush() -> Self::Payload;

    /// Discards the content of a range; writes the parameter list and returns its length.
    fn delete(lba: u64, blocks: u32, list: &mut [u8; DELETE_LIST_MAX]) -> (Self::Payload, usize);

    /// Makes the zone that begins at `lba` empty, where the command set has zones.
    fn reset_zone(lba: u64) -> Option<Self::Payload> {
        let _ = lba;
        None
    }

    /// Starts a unit that is not ready, if its protocol has a command for that.
    fn start_unit() -> Option<Self::Payload> {
        None
    }

    /// The meaning of an end other than [`Ended::Good`]. If `moves_data`, a residual means missing
    /// data.
    fn verdict(ended: Ended, failure: &Failure<Self>, moves_data: bool) -> Verdict;
}

/// Events reported by a unit that require another scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attention {
    /// 29/xx: power on, reset or bus reset.
    pub reset: bool,
    /// 2A/09: the capacity has changed.
    pub capacity: bool,
    /// 2A/01: mode parameters have changed (the write cache may have been switched).
    pub parameters: bool,
    /// 3F/0E: the set of logical units has changed.
    pub luns: bool,
    /// 3F/03, 28/00: the unit or its medium may be a different one.
    pub identity: bool,
}

/// What to do with a command that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It succeeded.
    Succeed,
    /// Issue it again, at most this many times; counts as a retry.
    Retry(u8),
    /// Issue it again; does not count as a retry.
    Requeue,
    /// Issue it again after a pause that doubles each time; has a limit of its own.
    BackOff,
    /// Issue it again after this many milliseconds, as requested by the device; counts as a retry.
    After(u32),
    /// Issue it again every [`POLL_READY_MS`], up to [`POLL_READY_TRIES`] times.
    PollReady,
    /// The unit must be started; issue it again after that, at most [`START_TRIES`] times.
    Start,
    /// The device's queue is full: reduce the commands in flight, and issue it again when another
    /// one has ended.
    Throttle,
    /// It failed; retrying cannot help.
    Fail,
}

/// Pause between attempts while a unit becomes ready, milliseconds (CAM polls at this pace).
pub const POLL_READY_MS: u32 = 500;
/// Attempts while a unit becomes ready: one minute in all.
pub const POLL_READY_TRIES: u8 = 120;

/// How often a command may have its unit started.
pub const START_TRIES: u8 = 2;
/// Time limit for starting a unit, milliseconds (as in CAM).
pub const START_TIMEOUT_MS: u32 = 50_000;

/// The error for a failure whose retries are used up, before the cause is filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// [`BlockError::Medium`].
    Medium,
    /// [`BlockError::Device`].
    Device,
    /// [`BlockError::WriteProtected`].
    WriteProtected,
    /// [`BlockError::OutOfRange`].
    OutOfRange,
    /// [`BlockError::Unsupported`].
    Unsupported,
    /// [`BlockError::Gone`].
    Gone,
}

impl Meaning {
    pub(crate) const fn error(self, cause: Cause) -> BlockError {
        match self {
            Self::Medium => BlockError::Medium(cause),
            Self::Device => BlockError::Device(cause),
            Self::WriteProtected => BlockError::WriteProtected,
            Self::OutOfRange => BlockError::OutOfRange,
            Self::Unsupported => BlockError::Unsupported,
            Self::Gone => BlockError::Gone,
        }
    }
}

/// What kind of trouble an end was, for the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// None, not counted.
    None,
    /// Success with the device's own error correction or retries.
    Recovered,
    /// A write failed after it was reported done; this command was not executed.
    Deferred,
    /// The medium.
    Medium,
    /// The device.
    Hardware,
    /// The device aborted the command and asks for a retry.
    Aborted,
    /// The device reports an event.
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
    /// Success, but short.
    Short,
}

/// What to do about an end, and which error to report if that does not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The action to take.
    pub action: Action,
    /// The failure in terms of the block layer.
    pub error: BlockError,
    /// What kind of trouble it was.
    pub trouble: Trouble,
}

impl Verdict {
    /// Makes a verdict.
    pub const fn new(action: Action, error: BlockError, trouble: Trouble) -> Self {
        Self { action, error, trouble }
    }

    /// The verdict on an end without an answer from the device, the same for every protocol.
    pub fn without_answer(ended: Ended, code: u32) -> Self {
        match ended {
            Ended::Good | Ended::Answered => {
                Self::new(Action::Succeed, BlockError::Gone, Trouble::None)
            }
            Ended::NoUnit | Ended::Gone => Self::new(Action::Fail, BlockError::Gone, Trouble::None),
            Ended::TimedOut => {
                Self::new(Action::Retry(u8::MAX), BlockError::TimedOut, Trouble::TimedOut)
            }
            // A victim of somebody else's recovery: it did nothing wrong itself.
            Ended::Aborted | Ended::Reset => {
                Self::new(Action::Requeue, BlockError::Reset, Trouble::Reset)
            }
            Ended::Host => Self::new(Action::Retry(u8::MAX), BlockError::Host(code), Trouble::Host),
        }
    }
}
