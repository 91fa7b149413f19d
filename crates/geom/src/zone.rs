//! Commands for zones through the graph, as FreeBSD's `BIO_ZONE`: disks that are written zone by
//! zone, each from its begin to its end.

use alloc::vec::Vec;
use core::fmt;

use flysch_api::block::Error;

/// Most zones in one answer; whoever wants more asks again behind the last one.
pub const ZONES_MAX: u32 = 4096;

/// What is wanted of the zones of a disk. Sectors are those of the provider that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// Which zones there are.
    Report {
        /// From the zone on that this sector is in.
        start: u64,
        /// Only those of this kind.
        filter: ZoneFilter,
        /// At most so many, and at most [`ZONES_MAX`].
        most: u32,
    },
    /// What the disk says of its zones as a whole.
    Parameters,
    /// Something is done to zones.
    Manage(ZoneAction, ZoneTarget),
}

/// What is done to a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneAction {
    /// The disk holds ready what it needs to write to it.
    Open,
    /// That is not needed for now.
    Close,
    /// It is full: nothing more is written to it.
    Finish,
    /// Its write pointer goes back to its begin: what was written is lost.
    Reset,
}

/// To which zones it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneTarget {
    /// To the one that begins at this sector.
    At(u64),
    /// To all that are in a state that it leads away from.
    All,
}

/// Which zones a report is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZoneFilter {
    /// Any.
    #[default]
    All,
    /// Those in this condition.
    In(ZoneCondition),
    /// Those whose write pointer should be reset, as the disk says.
    ResetNeeded,
    /// Those that were not written in order.
    NonSequential,
}

/// The condition of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneCondition {
    /// It has no write pointer.
    NotWritePointer,
    /// Nothing is written.
    Empty,
    /// A write opened it.
    ImplicitOpen,
    /// [`ZoneAction::Open`] opened it.
    ExplicitOpen,
    /// Written in part, and not open.
    Closed,
    /// It can only be read.
    ReadOnly,
    /// Written to its end, or finished.
    Full,
    /// It can be neither read nor written.
    Offline,
    /// One that is not known here, by the disk's number.
    Other(u8),
}

/// How a zone may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneType {
    /// Anywhere.
    Conventional,
    /// From its begin to its end, and no other way.
    SequentialRequired,
    /// Best from its begin to its end.
    SequentialPreferred,
    /// One that is not known here, by the disk's number.
    Other(u8),
}

/// A zone of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneEntry {
    /// Its first sector.
    pub start: u64,
    /// Sectors from there to the begin of the next.
    pub length: u64,
    /// How many of them can be written.
    pub capacity: u64,
    /// The sector that is written next; none where nothing can be.
    pub write_pointer: Option<u64>,
    /// How it may be written.
    pub kind: ZoneType,
    /// Its condition.
    pub condition: ZoneCondition,
    /// The disk says that its write pointer should be reset.
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
    /// All but the length of the last.
    ButLast,
    /// The lengths are the same, types differ.
    Lengths,
}

/// Zones of a disk, in the order of their sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneReport {
    /// How many there are from the start on that the filter lets through, reported or not.
    pub available: u64,
    /// The last sector of the disk.
    pub last_sector: u64,
    /// Whether they are alike.
    pub same: ZoneSame,
    /// At most as many as were asked for.
    pub zones: Vec<ZoneEntry>,
}

/// Who sees to it that zones are written in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneMode {
    /// There are no zones.
    None,
    /// The disk, but it is told better.
    HostAware,
    /// The disk alone.
    DriveManaged,
    /// Whoever writes.
    HostManaged,
}

/// A number that disks may leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneLimit {
    /// The disk has no such thing.
    NotSet,
    /// It has, and does not tell how many.
    NotReported,
    /// There is no limit.
    Unlimited,
    /// So many.
    Count(u64),
}

/// What a disk says of its zones as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneParameters {
    /// Who sees to the order of writes.
    pub mode: ZoneMode,
    /// Whether zones can be reported.
    pub reports: bool,
    /// What can be done to zones.
    pub actions: Vec<ZoneAction>,
    /// Reads may cross zones that must be written in order.
    pub reads_anywhere: bool,
    /// Open zones that are best, of those that are best written in order.
    pub optimal_open: ZoneLimit,
    /// Zones written out of order that are best, of those that are best written in order.
    pub optimal_non_sequential: ZoneLimit,
    /// Most open zones, of those that must be written in order.
    pub most_open: ZoneLimit,
}

/// What a command for zones ended with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneAnswer {
    /// Of [`Zone::Report`].
    Report(ZoneReport),
    /// Of [`Zone::Parameters`].
    Parameters(ZoneParameters),
    /// Of [`Zone::Manage`].
    Done,
}

/// Zones of a disk: a target's, or those of a test. See
/// [`set_zones`](crate::class::disk::set_zones).
pub trait Zones: fmt::Debug {
    /// Does a command, in sectors of the disk. At most as many zones are reported as the command
    /// says.
    ///
    /// # Errors
    /// What the disk says.
    fn zone(&mut self, command: Zone) -> Result<ZoneAnswer, Error>;
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

    /// The same within the bounds of one answer.
    pub(crate) fn bounded(self) -> Self {
        match self {
            Self::Report { start, filter, most } => {
                Self::Report { start, filter, most: most.min(ZONES_MAX) }
            }
            other => other,
        }
    }

    /// Whether `answer` is one to this: whoever asks on behind the last zone gets to an end.
    pub(crate) fn is_answered_by(&self, answer: &ZoneAnswer) -> bool {
        match (self, answer) {
            (&Self::Report { start, most, .. }, ZoneAnswer::Report(report)) => {
                let mut at = start;
                let is_behind = |zone: &ZoneEntry| {
                    let end = zone.start.checked_add(zone.length);
                    // Only the first may begin in front of where the report does.
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
