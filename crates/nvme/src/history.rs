//! A record of errors: counters and a short history.

use core::fmt;

use flysch_api::machine::Instant;

/// What an [`ErrorRecord`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The controller reported a fatal status; the value is CSTS.
    Fatal,
    /// The controller left the bus.
    Removed,
    /// A command missed its deadline; the value is queue << 16 | command id.
    Overdue,
    /// A command was aborted; the value is queue << 16 | command id.
    Abort,
    /// The controller was reset; the value is the attempt.
    ControllerReset,
    /// The NVM subsystem was reset.
    SubsystemReset,
    /// The controller reported an error event; the value is DW0 of the event.
    ErrorEvent,
    /// The controller reported a health event; the value is DW0 of the event.
    HealthEvent,
    /// The controller reported another event; the value is DW0 of the event.
    Notice,
    /// An admin command was not answered in time; the value is its opcode.
    AdminTimeout,
    /// Recovery failed permanently.
    Gone,
}

impl ErrorKind {
    /// Every kind, in the order of [`ErrorLog::counts`].
    pub const ALL: [Self; 11] = [
        Self::Fatal,
        Self::Removed,
        Self::Overdue,
        Self::Abort,
        Self::ControllerReset,
        Self::SubsystemReset,
        Self::ErrorEvent,
        Self::HealthEvent,
        Self::Notice,
        Self::AdminTimeout,
        Self::Gone,
    ];

    /// A short name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fatal => "fatal",
            Self::Removed => "removed",
            Self::Overdue => "overdue",
            Self::Abort => "abort",
            Self::ControllerReset => "controller reset",
            Self::SubsystemReset => "subsystem reset",
            Self::ErrorEvent => "error event",
            Self::HealthEvent => "health event",
            Self::Notice => "notice",
            Self::AdminTimeout => "admin timeout",
            Self::Gone => "gone",
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
    /// When the driver saw it.
    pub at: Instant,
    /// What it is about.
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

    /// How often each kind happened.
    pub fn counts(&self) -> impl Iterator<Item = (ErrorKind, u64)> + '_ {
        ErrorKind::ALL.into_iter().map(|kind| (kind, self.count(kind)))
    }

    /// How often this kind happened.
    pub fn count(&self, kind: ErrorKind) -> u64 {
        self.counts[kind as usize]
    }

    /// The last records, oldest first.
    pub fn history(&self) -> impl Iterator<Item = &ErrorRecord> + '_ {
        let (new, old) = self.history.split_at(self.next);
        old.iter().chain(new).flatten()
    }
}
