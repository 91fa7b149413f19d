//! What went wrong so far: counters and a short history.

use core::fmt;

use flysch_api::machine::Instant;

/// The subject of an [`ErrorRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The device reported an error (TFES); the value is PxTFD.
    Device,
    /// The interface failed (IFS, INFS, IPMS, UFS); the value is PxIS.
    Interface,
    /// The host bus failed (HBDS, HBFS, OFS); the value is PxIS.
    Bus,
    /// A command missed its deadline; the value is the slot.
    Overdue,
    /// A command was ended at its owner's request; the value is the slot.
    Aborted,
    /// The link went down or came up; the value is PxSSTS.
    LinkChange,
    /// A device was attached; the value is its signature.
    Attached,
    /// The device was detached.
    Detached,
    /// The queued error log could not be read, so commands were retried one by one.
    NoLog,
    /// The command list was stopped and started again.
    PortStop,
    /// The command list did not stop; the value is PxCMD.
    StopFailed,
    /// COMRESET; the value is the attempt.
    Comreset,
    /// The HBA was reset.
    HbaReset,
    /// The HBA left the bus.
    Removed,
    /// Recovery failed for good.
    Gone,
    /// A device behind a multiplier did not come up, while the others did; the value is its port.
    GivenUp,
    /// The error of one device behind a multiplier was cleared while the others continued; the
    /// value is its port.
    DeviceCleared,
    /// A multiplier reported changes at its device ports; the value has a bit for each that
    /// changed.
    Notified,
}

impl ErrorKind {
    /// Every kind, in the order of [`ErrorLog::counts`].
    pub const ALL: [Self; 18] = [
        Self::Device,
        Self::Interface,
        Self::Bus,
        Self::Overdue,
        Self::Aborted,
        Self::LinkChange,
        Self::Attached,
        Self::Detached,
        Self::NoLog,
        Self::PortStop,
        Self::StopFailed,
        Self::Comreset,
        Self::HbaReset,
        Self::Removed,
        Self::Gone,
        Self::GivenUp,
        Self::DeviceCleared,
        Self::Notified,
    ];

    /// Its short name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device error",
            Self::Interface => "interface error",
            Self::Bus => "bus error",
            Self::Overdue => "overdue",
            Self::Aborted => "aborted",
            Self::LinkChange => "link change",
            Self::Attached => "attached",
            Self::Detached => "detached",
            Self::NoLog => "no error log",
            Self::PortStop => "port stop",
            Self::StopFailed => "stop failed",
            Self::Comreset => "comreset",
            Self::HbaReset => "hba reset",
            Self::Removed => "removed",
            Self::Gone => "gone",
            Self::GivenUp => "device given up",
            Self::DeviceCleared => "device cleared",
            Self::Notified => "notified",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One entry of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRecord {
    /// When the driver noticed it.
    pub at: Instant,
    /// What happened.
    pub kind: ErrorKind,
    /// Details, see [`ErrorKind`].
    pub value: u32,
}

/// Length of the history.
const HISTORY: usize = 32;

/// Counters per kind and the last 32 records.
#[derive(Clone, Debug, Default)]
pub struct ErrorLog {
    counts: [u64; ErrorKind::ALL.len()],
    history: [Option<ErrorRecord>; HISTORY],
    next: usize,
}

impl ErrorLog {
    pub(crate) fn note(&mut self, at: Instant, kind: ErrorKind, value: u32) {
        self.counts[kind as usize] += 1;
        self.history[self.next] = Some(ErrorRecord { at, kind, value });
        self.next = (self.next + 1) % HISTORY;
    }

    /// Number of occurrences of each kind.
    pub fn counts(&self) -> impl Iterator<Item = (ErrorKind, u64)> + '_ {
        ErrorKind::ALL.into_iter().map(|kind| (kind, self.count(kind)))
    }

    /// Number of occurrences of this kind.
    pub fn count(&self, kind: ErrorKind) -> u64 {
        self.counts[kind as usize]
    }

    /// The last records, oldest first.
    pub fn history(&self) -> impl Iterator<Item = &ErrorRecord> + '_ {
        let (new, old) = self.history.split_at(self.next);
        old.iter().chain(new).flatten()
    }
}
