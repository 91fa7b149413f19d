//! What has gone wrong so far: counters and a short history, for `flysch ufs errors` and for
//! people.

use crate::error::UfsError;
use core::fmt;
use flysch_api::machine::Instant;

/// What an [`ErrorRecord`] describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// PHY adapter layer; the value is UECPA.
    PhyAdapter,
    /// Data link layer; the value is UECDL.
    DataLink,
    /// Network layer; the value is UECN.
    Network,
    /// Transport layer; the value is UECT.
    Transport,
    /// DME; the value is UECDME.
    Dme,
    /// A fatal cause in IS; the value is the causes.
    Fatal,
    /// The link was lost; the value is IS or HCS.
    LinkLost,
    /// A hibernation that nobody requested failed; the value is IS.
    Hibernate,
    /// A command missed its deadline; the value is logical unit << 8 | task tag.
    Overdue,
    /// A command was aborted; the value is logical unit << 8 | task tag.
    Abort,
    /// A logical unit was reset; the value is its number.
    UnitReset,
    /// The host was reset; the value is the attempt.
    HostReset,
    /// A slot is stuck in the controller and out of use; the value is the mask.
    StuckSlots,
    /// A step of bring-up failed and was skipped; the value is its index in
    /// [`STEPS`](crate::STEPS).
    Skipped,
    /// A speed of the link did not come up; the value is gear | lanes << 8 | series << 16.
    LinkSpeed,
    /// The line was reset and the link fell back to its lowest speed; the value is PA_PWRMODE.
    LineReset,
    /// An attribute that the platform wanted was refused; the value is the attribute.
    Setting,
    /// The multi-circular queues did not come up and the single doorbell took over; the value is
    /// the index of the failed step in [`STEPS`](crate::STEPS).
    FellBack,
    /// Recovery failed for good.
    Gone,
}

impl ErrorKind {
    /// Every kind, in the order of [`ErrorLog::counts`].
    pub const ALL: [Self; 19] = [
        Self::PhyAdapter,
        Self::DataLink,
        Self::Network,
        Self::Transport,
        Self::Dme,
        Self::Fatal,
        Self::LinkLost,
        Self::Hibernate,
        Self::Overdue,
        Self::Abort,
        Self::UnitReset,
        Self::HostReset,
        Self::StuckSlots,
        Self::Skipped,
        Self::LinkSpeed,
        Self::LineReset,
        Self::Setting,
        Self::FellBack,
        Self::Gone,
    ];

    /// A short name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PhyAdapter => "pa",
            Self::DataLink => "dl",
            Self::Network => "n",
            Self::Transport => "t",
            Self::Dme => "dme",
            Self::Fatal => "fatal",
            Self::LinkLost => "link lost",
            Self::Hibernate => "hibernate",
            Self::Overdue => "overdue",
            Self::Abort => "abort",
            Self::UnitReset => "unit reset",
            Self::HostReset => "host reset",
            Self::StuckSlots => "stuck slots",
            Self::Skipped => "skipped step",
            Self::LinkSpeed => "link speed",
            Self::LineReset => "line reset",
            Self::Setting => "setting",
            Self::FellBack => "fell back",
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
    /// The step of bring-up that it concerns, if any.
    pub step: Option<&'static str>,
    /// The reason, where it is known.
    pub error: Option<UfsError>,
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
        self.keep(ErrorRecord { at, kind, value, step: None, error: None });
    }

    /// Keeps a complete record.
    pub(crate) fn keep(&mut self, record: ErrorRecord) {
        self.counts[record.kind as usize] += 1;
        self.history[self.next] = Some(record);
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
    pub fn history(&self) -> impl Iterator<Item = ErrorRecord> + '_ {
        let (newer, older) = self.history.split_at(self.next);
        older.iter().chain(newer).filter_map(|record| *record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_keeps_the_newest_in_order() {
        let mut log = ErrorLog::default();
        for n in 0..40 {
            log.note(Instant::from_nanos(n), ErrorKind::DataLink, n as u32);
        }
        let values: std::vec::Vec<_> = log.history().map(|record| record.value).collect();
        assert_eq!(values, (8..40).collect::<std::vec::Vec<_>>());
        assert_eq!(log.count(ErrorKind::DataLink), 40);
    }

    #[test]
    fn every_kind_has_its_counter() {
        for (n, kind) in ErrorKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, n);
        }
    }
}
