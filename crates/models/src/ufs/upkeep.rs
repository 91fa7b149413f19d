//! Purge and refresh: long work on request; and the state of unmapped data until a purge.
//!
//! A unit whose unmapped blocks may read as anything (TPRZ = 0) continues to read the old data: it
//! is stale, but present. A purge removes stale data, oldest first, at a certain rate; if power is
//! lost, the data that it has not reached is still there. In all other units unmapped data cannot
//! be read, and only affects the duration.

use alloc::collections::VecDeque;

use flysch_wire::ufs::query::{PurgeStatus, RefreshMethod, RefreshStatus, RefreshUnit};

use super::lu::LogicalUnits;

/// Duration of the shortest purge, nanoseconds, and bytes purged per microsecond.
const PURGE_NS: u64 = 100_000_000;
const PURGE_RATE: u64 = 512;
/// Maximum number of distinct stale ranges; older ones are removed at once.
const RANGES_MAX: usize = 4096;
/// Duration of a refresh of 1 % of the device, nanoseconds.
const REFRESH_NS: u64 = 20_000_000;
/// dRefreshProgress of the smallest refresh, and of a full one.
const REFRESH_STEP: u32 = 1_000;
const REFRESH_ALL: u32 = 100_000;

/// A part of a unit, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stale {
    pub(super) unit: u8,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// The interval in which something runs.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: u64,
    until: u64,
}

/// Both kinds of work.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    stale: VecDeque<Stale>,
    /// Number of unmapped bytes that cannot be read.
    hidden: u64,
    purge: Option<Span>,
    purge_status: u8,
    refresh: Option<Span>,
    refresh_status: u8,
    /// dRefreshProgress and dRefreshTotalCount.
    progress: u32,
    total: u32,
    /// The progress that the current refresh will add.
    step: u32,
}

impl Upkeep {
    /// Whether a purge may be in progress, for the fast path.
    #[inline]
    pub(super) fn is_purging(&self) -> bool {
        self.purge.is_some()
    }

    /// Whether anything is stale.
    #[inline]
    fn has_stale(&self) -> bool {
        !self.stale.is_empty()
    }

    /// Number of bytes that are stale and still present.
    pub(super) fn stale_bytes(&self) -> u64 {
        self.stale.iter().map(|range| range.len).sum::<u64>() + self.hidden
    }

    /// A range was unmapped and stays readable.
    fn unmapped(&mut self, range: Stale) {
        self.written(range);
        self.stale.push_back(range);
    }

    /// The range that must be removed because there are too many.
    fn overflow(&mut self) -> Option<Stale> {
        if self.stale.len() > RANGES_MAX { self.stale.pop_front() } else { None }
    }

    /// This many bytes were unmapped and can no longer be read.
    pub(super) fn hid(&mut self, bytes: u64) {
        self.hidden = self.hidden.saturating_add(bytes);
    }

    /// A range was written: it is no longer stale.
    pub(super) fn written(&mut self, range: Stale) {
        let end = range.offset + range.len;
        let mut at = 0;
        while let Some(&old) = self.stale.get(at) {
            let old_end = old.offset + old.len;
            if old.unit != range.unit || old_end <= range.offset || end <= old.offset {
                at += 1;
                continue;
            }
            self.stale.remove(at);
            let parts = [(old.offset, range.offset.min(old_end)), (end.max(old.offset), old_end)];
            for (from, to) in parts.into_iter().filter(|(from, to)| from < to) {
                let rest = Stale { offset: from, len: to - from, ..old };
                self.stale.insert(at, rest);
                at += 1;
            }
        }
    }

    /// fPurgeEnable is set.
    pub(super) fn begin_purge(&mut self, now: u64, busy: bool) {
        if self.purge.is_some() {
            return;
        }
        if busy || self.refresh.is_some() {
            self.purge_status = PurgeStatus::QueueNotEmpty.into_bits();
            return;
        }
        let until = now + PURGE_NS + self.stale_bytes() / PURGE_RATE * 1000;
        self.purge = Some(Span { from: now, until });
        self.purge_status = PurgeStatus::InProgress.into_bits();
    }

    /// Ends a purge once due, or now to `stop` it. Returns how many bytes it has removed,
    /// `u64::MAX` for all, to be taken one by one from [`pop`](Self::pop).
    pub(super) fn settle_purge(&mut self, now: u64, stop: Option<PurgeStatus>) -> u64 {
        let Some(span) = self.purge else { return 0 };
        let done = now >= span.until;
        if !done && stop.is_none() {
            return 0;
        }
        self.purge = None;
        self.purge_status = match stop {
            Some(status) if !done => status,
            _ => PurgeStatus::Completed,
        }
        .into_bits();
        if done {
            self.hidden = 0;
            return u64::MAX;
        }
        let (past, all) = (now - span.from, span.until - span.from);
        let bytes = (u128::from(self.stale_bytes()) * u128::from(past) / u128::from(all)) as u64;
        let hidden = bytes.min(self.hidden);
        self.hidden -= hidden;
        bytes - hidden
    }

    /// A range of a unit was written: LUN, first byte, length.
    #[inline]
    pub(super) fn rewritten(&mut self, units: &mut LogicalUnits, range: (u8, u64, u64)) {
        if self.has_stale() {
            let (unit, offset, len) = range;
            self.written(Stale { unit, offset, len });
            self.drop_overflow(units);
        }
    }

    /// A range was unmapped in a unit whose unmapped blocks may read as anything: LUN, first byte,
    /// length.
    pub(super) fn unmapped_readable(&mut self, units: &mut LogicalUnits, range: (u8, u64, u64)) {
        let (unit, offset, len) = range;
        self.unmapped(Stale { unit, offset, len });
        self.drop_overflow(units);
    }

    fn drop_overflow(&mut self, units: &mut LogicalUnits) {
        while let Some(range) = self.overflow() {
            units.discard(range);
        }
    }

    /// Takes the oldest stale bytes, at most `left`. Only whole blocks of `block` bytes are taken.
    pub(super) fn pop(&mut self, left: &mut u64, block: impl Fn(u8) -> u64) -> Option<Stale> {
        let range = self.stale.front_mut()?;
        let block = block(range.unit).max(1);
        let len = range.len.min(*left / block * block);
        if len == 0 {
            return None;
        }
        let taken = Stale { len, ..*range };
        (range.offset, range.len) = (range.offset + len, range.len - len);
        if range.len == 0 {
            self.stale.pop_front();
        }
        *left = left.saturating_sub(len);
        Some(taken)
    }

    /// bPurgeStatus as a query reads it: an end is reported once.
    pub(super) fn read_purge_status(&mut self) -> u8 {
        tell_once(&mut self.purge_status)
    }

    /// fRefreshEnable is set.
    pub(super) fn begin_refresh(&mut self, now: u64, busy: bool, method: u64, unit: u64) {
        if self.refresh.is_some() {
            return;
        }
        let method = RefreshMethod::from_bits(method as u8);
        let status = match method {
            _ if busy || self.purge.is_some() => RefreshStatus::QueueNotEmpty,
            RefreshMethod::Forced | RefreshMethod::Selective => RefreshStatus::InProgress,
            _ => RefreshStatus::GeneralFailure,
        };
        self.refresh_status = status.into_bits();
        if status != RefreshStatus::InProgress {
            return;
        }
        let whole = unit as u8 == RefreshUnit::Full.into_bits();
        self.step = if whole { REFRESH_ALL - self.progress } else { REFRESH_STEP };
        // A selective refresh, of a tenth of everything, takes a tenth of the time.
        let share = if method == RefreshMethod::Selective { 10 } else { 1 };
        let ns = u64::from(self.step / REFRESH_STEP) * REFRESH_NS / share;
        self.refresh = Some(Span { from: now, until: now + ns });
    }

    /// Ends a refresh once due, or now to `stop` it; its progress so far counts.
    pub(super) fn settle_refresh(&mut self, now: u64, stop: Option<RefreshStatus>) {
        let Some(span) = self.refresh else { return };
        let done = now >= span.until;
        if !done && stop.is_none() {
            return;
        }
        self.refresh = None;
        let (past, all) = (now.min(span.until) - span.from, (span.until - span.from).max(1));
        self.progress += (u64::from(self.step) * past / all) as u32;
        if self.progress >= REFRESH_ALL {
            (self.progress, self.total) = (0, self.total + 1);
        }
        self.refresh_status = match stop {
            Some(status) if !done => status,
            _ => RefreshStatus::Completed,
        }
        .into_bits();
    }

    /// bRefreshStatus as a query reads it: an end is reported once.
    pub(super) fn read_refresh_status(&mut self) -> u8 {
        tell_once(&mut self.refresh_status)
    }

    /// dRefreshProgress and dRefreshTotalCount.
    pub(super) fn refreshed(&self) -> (u32, u32) {
        (self.progress, self.total)
    }

    /// Power is lost: ends that were not yet reported are forgotten.
    pub(super) fn forget_ends(&mut self) {
        self.purge_status = PurgeStatus::Idle.into_bits();
        self.refresh_status = RefreshStatus::Idle.into_bits();
    }
}

/// Both status attributes read 1 while work is in progress, and return to 0 once an end was read.
fn tell_once(status: &mut u8) -> u8 {
    match *status {
        1 => 1,
        _ => core::mem::take(status),
    }
}
