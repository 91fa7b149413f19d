//! The meaning of SCSI errors: a table from sense data to the action to take.
//!
//! Theory. An end other than plain success falls into one of a few kinds of trouble, and each kind
//! has one remedy. [`SENSE`] lists the kinds that a device describes by sense data (SPC-5 4.4),
//! most specific row first; the first matching row decides. The few ends without sense data are
//! decided in [`da`](mod@crate::da). Retries are finite because some of them *count*: troubles that
//! the command itself may have caused count against its retry budget. Troubles it merely met (a
//! unit attention, somebody else's reset) do not, but every command has a hard limit of attempts,
//! and waiting has its own limit. The classes follow FreeBSD's CAM error recovery tables.

use flysch_api::block::{BlockError, Cause};
use flysch_api::command::SenseBytes;
use flysch_wire::scsi::{Sense, SenseKey};

use crate::family::{Action, Attention, Meaning, Trouble, Verdict};

/// One kind of trouble.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Sense key.
    pub key: u8,
    /// Additional sense code; `None` matches any.
    pub asc: Option<u8>,
    /// Additional sense code qualifier; `None` matches any.
    pub ascq: Option<u8>,
    /// The action to take.
    pub action: Action,
    /// The failure to report if the action does not help.
    pub failure: Meaning,
    /// The reason for this action.
    pub reason: &'static str,
}

const fn row(
    key: u8,
    asc: Option<u8>,
    ascq: Option<u8>,
    (action, failure): (Action, Meaning),
    reason: &'static str,
) -> Row {
    Row { key, asc, ascq, action, failure, reason }
}

use Action::{BackOff, Fail, PollReady, Requeue, Retry, Start, Succeed};
use Meaning::{Device, Gone, Medium, OutOfRange, Unsupported, WriteProtected};

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
    row(0x2, Some(0x04), Some(0x02), (Start, Device), "initializing command required: START UNIT"),
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

/// Decides what to do about a CHECK CONDITION with this sense data.
pub fn verdict(sense: &SenseBytes) -> Verdict {
    // CHECK CONDITION without sense data: the cause is lost, the command may work.
    let Some(sense) = parse(sense) else {
        let cause = Cause::Scsi { status: 2, key: 0, asc: 0, ascq: 0, information: None };
        return Verdict::new(Action::Retry(u8::MAX), BlockError::Device(cause), Trouble::None);
    };
    let cause = cause(&sense);
    if sense.deferred {
        // The command that met an old failure was not carried out; it may work now.
        let error = match sense.key {
            SenseKey::MediumError => BlockError::Medium(cause),
            _ => BlockError::Device(cause),
        };
        return Verdict::new(Action::Retry(u8::MAX), error, Trouble::Deferred);
    }
    let trouble = trouble(&sense);
    match lookup(sense.key.into_bits(), sense.additional.asc(), sense.additional.ascq()) {
        Some(row) => Verdict::new(row.action, row.failure.error(cause), trouble),
        None => Verdict::new(Action::Fail, BlockError::Device(cause), trouble),
    }
}

fn trouble(sense: &Sense) -> Trouble {
    match sense.key {
        SenseKey::RecoveredError => Trouble::Recovered,
        SenseKey::NotReady => Trouble::Busy,
        SenseKey::MediumError => Trouble::Medium,
        SenseKey::HardwareError => Trouble::Hardware,
        SenseKey::UnitAttention => Trouble::Attention(attention(sense)),
        SenseKey::AbortedCommand => Trouble::Aborted,
        _ => Trouble::None,
    }
}

fn attention(sense: &Sense) -> Attention {
    let none = Attention::default();
    match (sense.additional.asc(), sense.additional.ascq()) {
        (0x29, _) => Attention { reset: true, ..none },
        (0x2A, 0x09) => Attention { capacity: true, ..none },
        (0x2A, 0x01) => Attention { parameters: true, ..none },
        (0x3F, 0x0E) => Attention { luns: true, ..none },
        (0x3F, 0x03) | (0x28, 0x00) => Attention { identity: true, ..none },
        _ => none,
    }
}

/// The row of [`SENSE`] for a sense key and its additional codes.
pub fn lookup(key: u8, asc: u8, ascq: u8) -> Option<&'static Row> {
    let any = |pattern: Option<u8>, value| pattern.is_none_or(|p| p == value);
    SENSE.iter().find(|row| row.key == key && any(row.asc, asc) && any(row.ascq, ascq))
}

/// Sense data as the protocol-independent cause of a failure.
pub(crate) fn cause(sense: &Sense) -> Cause {
    let Sense { key, additional, information, .. } = *sense;
    let (asc, ascq) = (additional.asc(), additional.ascq());
    Cause::Scsi { status: 2, key: key.into_bits(), asc, ascq, information }
}

/// `None` if this is not sense data.
pub(crate) fn parse(sense: &SenseBytes) -> Option<Sense> {
    Sense::parse(sense.as_slice()).ok()
}
