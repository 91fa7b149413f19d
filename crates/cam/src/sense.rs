//! What a command's end means: a table from status and sense data to what to do next.
//!
//! Theory. An end that is not plain success falls into one of few kinds of trouble, and each kind
//! has one cure. [`SENSE`] lists the kinds a device describes by sense data (SPC-5 4.4), most
//! particular row first; the first row that matches decides. Ends without sense data are few and
//! are decided in [`verdict`]. Whether a try *counts* is what keeps this finite: troubles the
//! command itself may have caused count against its retry budget; troubles it merely met (a unit
//! attention, somebody else's reset) do not, but every command has a hard limit of attempts, and
//! waiting has its own. The classes follow FreeBSD's CAM error recovery tables.

use flysch_api::block::{Cause, Error};
use flysch_api::command::{Ended, SenseBytes};
use flysch_wire::scsi::{Sense, Status};

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
    /// Issue it again every [`POLL_READY_MS`], up to [`POLL_READY_TRIES`] times.
    PollReady,
    /// The device's queue is full: fewer commands at once, again when another one ended.
    Throttle,
    /// It failed; trying again cannot help.
    Fail,
}

/// Pause between attempts while a unit becomes ready, milliseconds (CAM polls at this pace).
pub const POLL_READY_MS: u32 = 500;
/// Attempts while a unit becomes ready: a minute in all.
pub const POLL_READY_TRIES: u8 = 120;

/// What a failure is called when the tries are used up, before the cause is filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
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

impl Failure {
    const fn error(self, cause: Cause) -> Error {
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

/// One kind of trouble.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Sense key.
    pub key: u8,
    /// Additional sense code; `None` matches any.
    pub asc: Option<u8>,
    /// Additional sense code qualifier; `None` matches any.
    pub ascq: Option<u8>,
    /// The cure.
    pub action: Action,
    /// What it is called if the cure does not help.
    pub failure: Failure,
    /// Why this cure.
    pub reason: &'static str,
}

const fn row(
    key: u8,
    asc: Option<u8>,
    ascq: Option<u8>,
    (action, failure): (Action, Failure),
    reason: &'static str,
) -> Row {
    Row { key, asc, ascq, action, failure, reason }
}

use Action::{BackOff, Fail, PollReady, Requeue, Retry, Succeed};
use Failure::{Device, Gone, Medium, OutOfRange, Unsupported, WriteProtected};

/// The sense table. Keys are SPC-5 table 48, codes SPC-5 annex D.2.
#[rustfmt::skip]
pub static SENSE: &[Row] = &[
    row(0x0, None, None, (Succeed, Device), "NO SENSE: nothing is wrong"),
    row(0x1, None, None, (Succeed, Medium), "RECOVERED ERROR: the data is good"),
    row(0x2, Some(0x04), Some(0x01), (PollReady, Device), "becoming ready: waiting helps"),
    row(0x2, Some(0x04), Some(0x04), (PollReady, Device), "format in progress: waiting helps"),
    row(0x2, Some(0x04), Some(0x07), (PollReady, Device), "operation in progress: waiting helps"),
    row(0x2, Some(0x04), Some(0x09), (PollReady, Device), "self-test in progress: waiting helps"),
    row(0x2, Some(0x04), Some(0x1B), (PollReady, Device), "sanitize in progress: waiting helps"),
    row(0x2, Some(0x04), Some(0x03), (Fail, Device), "manual intervention required"),
    row(0x2, Some(0x3A), None, (Fail, Gone), "medium not present: nobody will insert one now"),
    row(0x2, None, None, (BackOff, Device), "not ready for another cause: may pass"),
    row(0x3, Some(0x0C), None, (Retry(2), Medium), "write error: a second try may be relocated"),
    row(0x3, Some(0x11), None, (Retry(1), Medium),
        "unrecovered read error: the device has tried for long, once more is enough"),
    row(0x3, Some(0x31), None, (Fail, Medium), "medium format corrupted"),
    row(0x3, None, None, (Retry(1), Medium), "medium error: as an unrecovered read"),
    row(0x4, Some(0x3E), None, (Fail, Gone), "logical unit has failed its configuration"),
    row(0x4, None, None, (Retry(2), Device), "hardware error: may be a passing one"),
    row(0x5, Some(0x20), None, (Fail, Unsupported), "operation code not implemented"),
    row(0x5, Some(0x21), None, (Fail, OutOfRange), "LBA out of range"),
    row(0x5, Some(0x25), None, (Fail, Gone), "logical unit not supported: it went away"),
    row(0x5, Some(0x27), None, (Fail, WriteProtected), "write protected, told as illegal"),
    row(0x5, None, None, (Fail, Device), "ILLEGAL REQUEST: the same bytes stay illegal"),
    row(0x6, None, None, (Requeue, Device),
        "UNIT ATTENTION: tells of an event; the command was not begun"),
    row(0x7, Some(0x27), Some(0x07), (Fail, Device),
        "space allocation failed: not protected, but what backs a thin unit is full"),
    row(0x7, None, None, (Fail, WriteProtected), "DATA PROTECT"),
    row(0x8, None, None, (Fail, Device), "BLANK CHECK: no blank media here"),
    row(0x9, None, None, (Fail, Device), "vendor specific: meaning unknown"),
    row(0xA, None, None, (Fail, Device), "COPY ABORTED: no copy was asked for"),
    row(0xB, None, None, (Retry(u8::MAX), Device), "ABORTED COMMAND: the device asks to try again"),
    row(0xD, None, None, (Fail, Device), "VOLUME OVERFLOW"),
    row(0xE, None, None, (Fail, Device), "MISCOMPARE: nothing was to be compared"),
    row(0xF, None, None, (Succeed, Device), "COMPLETED"),
];

/// What to do about an end, and what to call it if that does not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The cure.
    pub action: Action,
    /// The failure in the words of the block layer.
    pub error: Error,
    /// The sense data told of an earlier command whose end was already reported.
    pub deferred: bool,
}

impl Verdict {
    const fn new(action: Action, error: Error) -> Self {
        Self { action, error, deferred: false }
    }
}

/// Decides about the end of a command.
///
/// `residual` is how many bytes of a data transfer are missing, as far as that is known.
pub fn verdict(ended: Ended, sense: &SenseBytes, residual: u32) -> Verdict {
    match ended {
        Ended::Status(status) => status_verdict(status, sense, residual),
        Ended::NoLogicalUnit => Verdict::new(Action::Fail, Error::Gone),
        Ended::TimedOut => Verdict::new(Action::Retry(u8::MAX), Error::TimedOut),
        // A victim of somebody else's recovery: it did nothing wrong itself.
        Ended::Aborted | Ended::Reset => Verdict::new(Action::Requeue, Error::Reset),
        Ended::Host(status) => Verdict::new(Action::Retry(u8::MAX), Error::Host(status)),
        Ended::Gone => Verdict::new(Action::Fail, Error::Gone),
    }
}

fn status_verdict(status: u8, sense: &SenseBytes, residual: u32) -> Verdict {
    match Status::from_bits(status) {
        // Data is missing though the device is content: not data to hand up.
        Status::Good | Status::ConditionMet if residual != 0 => {
            Verdict::new(Action::Retry(u8::MAX), Error::Device(SHORT))
        }
        Status::Good | Status::ConditionMet => {
            Verdict::new(Action::Succeed, Error::Device(Cause::default()))
        }
        Status::CheckCondition => sense_verdict(sense, residual),
        Status::Busy => Verdict::new(Action::BackOff, Error::Device(BUSY)),
        Status::TaskSetFull => Verdict::new(Action::Throttle, Error::Device(BUSY)),
        Status::TaskAborted => Verdict::new(Action::Requeue, Error::Reset),
        // RESERVATION CONFLICT, ACA ACTIVE and what has no meaning.
        _ => Verdict::new(Action::Fail, Error::Device(Cause::default())),
    }
}

/// ABORTED COMMAND, DATA PHASE ERROR: how a transfer that ended short is told upwards.
const SHORT: Cause = Cause { key: 0xB, asc: 0x4B, ascq: 0x00 };
/// NOT READY, TARGET PORT IS BUSY: how a device that stays busy is told upwards.
const BUSY: Cause = Cause { key: 0x2, asc: 0x08, ascq: 0x00 };

fn sense_verdict(sense: &SenseBytes, residual: u32) -> Verdict {
    // CHECK CONDITION without sense data: the cause is lost, the command may work.
    let Some((cause, deferred)) = parse(sense) else {
        return Verdict::new(Action::Retry(u8::MAX), Error::Device(Cause::default()));
    };
    if deferred {
        // The command that met an old failure was not carried out; it may work now.
        let error = match cause.key {
            0x3 => Error::Medium(cause),
            _ => Error::Device(cause),
        };
        return Verdict { action: Action::Retry(u8::MAX), error, deferred: true };
    }
    let row = lookup(cause);
    let Some(row) = row else { return Verdict::new(Action::Fail, Error::Device(cause)) };
    if row.action == Action::Succeed && residual != 0 {
        return Verdict::new(Action::Retry(u8::MAX), Error::Device(SHORT));
    }
    Verdict::new(row.action, row.failure.error(cause))
}

/// The row of [`SENSE`] for a cause.
pub fn lookup(cause: Cause) -> Option<&'static Row> {
    let any = |pattern: Option<u8>, value| pattern.is_none_or(|p| p == value);
    SENSE
        .iter()
        .find(|row| row.key == cause.key && any(row.asc, cause.asc) && any(row.ascq, cause.ascq))
}

/// Cause and whether it belongs to an earlier command; `None` if this is not sense data.
pub(crate) fn parse(sense: &SenseBytes) -> Option<(Cause, bool)> {
    let sense = Sense::parse(sense.as_slice()).ok()?;
    let (asc, ascq) = (sense.additional.asc(), sense.additional.ascq());
    Some((Cause { key: sense.key.into_bits(), asc, ascq }, sense.deferred))
}
