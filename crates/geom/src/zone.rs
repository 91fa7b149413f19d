//! Zone commands through the graph, as FreeBSD's `BIO_ZONE`: for disks that are written zone by
//! zone, each from start to end.

use alloc::vec::Vec;
use core::fmt;

use flysch_api::block::BlockError;

/// Maximum number of zones in one answer; to get more, ask again after the last one.
pub const ZONES_MAX: u32 = 4096;

/// A command for the zones of a disk. Sectors are those of the provider that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// List zones.
    Report {
        /// From the zone that contains this sector.
        start: u64,
        /// Only zones matched by this filter.
        filter: ZoneFilter,
        /// At most this many, and at most [`ZONES_MAX`].
        most: u32,
    },
    /// Properties of all the disk's zones together.
    Parameters,
    /// Change the state of zones.
    Manage(ZoneAction, ZoneTarget),
}

/// A change of a zone's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneAction {
    /// The disk reserves the resources for writing to it.
    Open,
    /// The resources are released for now.
    Close,
    /// The zone becomes full: nothing more is written to it.
    Finish,
    /// Its write pointer returns to its start: the contents are lost.
    Reset,
}

/// The zones that are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneTarget {
    /// The zone that begins at this sector.
    At(u64),
    /// All zones in a state that the action applies to.
    All,
}

/// Which zones are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZoneFilter {
    /// Any.
    #[default]
    All,
    /// Those in this condition.
    In(ZoneCondition),
    /// Those whose write pointer should be reset, according to the disk.
    ResetNeeded,
    /// Those that were not written in order.
    NonSequential,
}

/// The condition of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneCondition {
    /// It has no write pointer.
    NotWritePointer,
    /// Nothing has been written.
    Empty,
    /// A write opened it.
    ImplicitOpen,
    /// [`ZoneAction::Open`] opened it.
    ExplicitOpen,
    /// Partly written, and not open.
    Closed,
    /// It can only be read.
    ReadOnly,
    /// Written to its end, or finished.
    Full,
    /// It can be neither read nor written.
    Offline,
    /// An unknown one, by the disk's number.
    Other(u8),
}

/// How a zone may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneType {
    /// Anywhere.
    Conventional,
    /// From start to end, and no other way.
    SequentialRequired,
    /// Preferably from start to end.
    SequentialPreferred,
    /// An unknown one, by the disk's number.
    Other(u8),
}

/// A zone of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneEntry {
    /// Its first sector.
    pub start: u64,
    /// Number of sectors up to the start of the next zone.
    pub length: u64,
    /// How many of them can be written.
    pub capacity: u64,
    /// The sector to be written next; `None` if nothing can be written.
    pub write_pointer: Option<u64>,
    /// How it may be written.
    pub kind: ZoneType,
    /// Its condition.
    pub condition: ZoneCondition,
    /// The disk recommends resetting its write pointer.
    pub reset_needed: bool,
    /// It was not written in order.
    pub non_sequential: bool,
}

/// Whether all zones of a disk are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneSame {
    /// Lengths and types may differ.
    Different,
    /// Lengths and types are the same.
    All,
    /// All are the same, except the length of the last one.
    ButLast,
    /// The lengths are the same, types differ.
    Lengths,
}

/// Zones of a disk, in the order of their sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneReport {
    /// The number of zones from the start on that match the filter, reported or not.
    pub available: u64,
    /// The last sector of the disk.
    pub last_sector: u64,
    /// Whether they are alike.
    pub same: ZoneSame,
    /// At most as many as requested.
    pub zones: Vec<ZoneEntry>,
}

/// Who ensures that zones are written in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneMode {
    /// There are no zones.
    None,
    /// The disk, but it works better if the writer does.
    HostAware,
    /// The disk alone.
    DriveManaged,
    /// The writer.
    HostManaged,
}

/// A number that disks may omit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneLimit {
    /// The disk has no such limit.
    NotSet,
    /// The disk has one, but does not report it.
    NotReported,
    /// There is no limit.
    Unlimited,
    /// This many.
    Count(u64),
}

/// Properties of all the disk's zones together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneParameters {
    /// Who ensures the order of writes.
    pub mode: ZoneMode,
    /// Whether zones can be reported.
    pub reports: bool,
    /// The supported actions.
    pub actions: Vec<ZoneAction>,
    /// Reads may cross boundaries of zones that must be written in order.
    pub reads_anywhere: bool,
    /// Optimal number of open zones, for zones that are preferably written in order.
    pub optimal_open: ZoneLimit,
    /// Optimal number of zones written out of order, for zones that are preferably written in
    /// order.
    pub optimal_non_sequential: ZoneLimit,
    /// Maximum number of open zones, for zones that must be written in order.
    pub most_open: ZoneLimit,
}

/// The answer to a zone command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneAnswer {
    /// To [`Zone::Report`].
    Report(ZoneReport),
    /// To [`Zone::Parameters`].
    Parameters(ZoneParameters),
    /// To [`Zone::Manage`].
    Done,
}

/// The zones of a disk: a target's, or those of a test. See
/// [`set_zones`](crate::class::disk::set_zones).
pub trait Zones: fmt::Debug {
    /// Performs a command, in sectors of the disk. At most as many zones are reported as the
    /// command allows.
    ///
    /// # Errors
    /// The disk's.
    fn zone(&mut self, command: Zone) -> Result<ZoneAnswer, BlockError>;
}

impl Zone {
    /// Whether it changes zones.
    #[must_use]
    pub const fn changes(&self) -> bool {
        matches!(self, Self::Manage(..))
    }

    /// The sector that it names, if it names one.
    #[must_use]
    pub const fn sector(&self) -> Option<u64> {
        match self {
            Self::Report { start: sector, .. } | Self::Manage(_, ZoneTarget::At(sector)) => {
                Some(*sector)
            }
            Self::Parameters | Self::Manage(_, ZoneTarget::All) => None,
        }
    }

    /// The same command, limited to what one answer can hold.
    pub(crate) fn bounded(self) -> Self {
        match self {
            Self::Report { start, filter, most } => {
                Self::Report { start, filter, most: most.min(ZONES_MAX) }
            }
            other => other,
        }
    }

    /// Whether `answer` is valid for this command: continuing after the last zone must come to an
    /// end.
    pub(crate) fn is_answered_by(&self, answer: &ZoneAnswer) -> bool {
        match (self, answer) {
            (&Self::Report { start, most, .. }, ZoneAnswer::Report(report)) => {
                let mut at = start;
                let is_behind = |zone: &ZoneEntry| {
                    let end = zone.start.checked_add(zone.length);
                    // Only the first zone may begin before the start of the report.
                    let follows = zone.start >= at || at == start;
                    end.filter(|&end| end > at && follows).is_some_and(|end| {
                        at = end;
                        true
                    })
                };
                report.zones.len() <= most as usize
                    && report.zones.len() as u64 <= report.available
                    && report.zones.iter().all(is_behind)
            }
            (Self::Parameters, ZoneAnswer::Parameters(_)) => true,
            (Self::Manage(..), ZoneAnswer::Done) => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
