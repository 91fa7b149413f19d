//! What has gone wrong so far: counters and a short history.

use core::fmt;

use flysch_api::machine::Instant;

/// What an [`ErrorRecord`] describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A command failed on the bus; the value is the [`BusError`](crate::BusError).
    Bus,
    /// The card answered with errors; the value is the device status.
    Status,
    /// A command missed its deadline; the value is its task or its index.
    Overdue,
    /// A task was discarded (CMD48); the value is its number.
    TaskDiscarded,
    /// All tasks were discarded and the engine was started anew.
    QueueReset,
    /// The high priority interrupt ended what the card was busy with.
    Hpi,
    /// A transfer was stopped (CMD12).
    Stop,
    /// The command and data lines of the controller were reset.
    LineReset,
    /// The sampling point was searched for again; the value is 1 if it was found.
    Retune,
    /// The bus continues with a slower timing; the value is its number in
    /// [`Timing`](crate::Timing).
    StepDown,
    /// The card was reset; the value is the attempt.
    CardReset,
    /// The card reported an exception; the value is EXCEPTION_EVENTS_STATUS.
    Exception,
    /// The controller left the bus.
    Removed,
    /// Recovery failed permanently.
    Gone,
}

impl ErrorKind {
    /// Every kind, in the order of [`ErrorLog::counts`].
    pub const ALL: [Self; 14] = [
        Self::Bus,
        Self::Status,
        Self::Overdue,
        Self::TaskDiscarded,
        Self::QueueReset,
        Self::Hpi,
        Self::Stop,
        Self::LineReset,
        Self::Retune,
        Self::StepDown,
        Self::CardReset,
        Self::Exception,
        Self::Removed,
        Self::Gone,
    ];

    /// A short name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bus => "bus error",
            Self::Status => "status error",
            Self::Overdue => "overdue",
            Self::TaskDiscarded => "task discarded",
            Self::QueueReset => "queue reset",
            Self::Hpi => "high priority interrupt",
            Self::Stop => "stop",
            Self::LineReset => "line reset",
            Self::Retune => "retune",
            Self::StepDown => "step down",
            Self::CardReset => "card reset",
            Self::Exception => "exception",
            Self::Removed => "removed",
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
    /// What it describes.
    pub kind: ErrorKind,
    /// Details, see [`ErrorKind`].
    pub value: u32,
}

/// Length of the history.
const HISTORY: usize = 32;

/// Counters for each kind and the last 32 records.
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

    /// How often each kind has occurred.
    pub fn counts(&self) -> impl Iterator<Item = (ErrorKind, u64)> + '_ {
        ErrorKind::ALL.into_iter().map(|kind| (kind, self.count(kind)))
    }

    /// How often this kind has occurred.
    pub fn count(&self, kind: ErrorKind) -> u64 {
        self.counts[kind as usize]
    }

    /// The last records, oldest first.
    pub fn history(&self) -> impl Iterator<Item = &ErrorRecord> + '_ {
        let (new, old) = self.history.split_at(self.next);
        old.iter().chain(new).flatten()
    }
}
