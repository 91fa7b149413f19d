//! Several paths to one disk.

use alloc::vec::Vec;

use flysch_api::block::{BlockError, Operation};
use flysch_wire::geom::multipath::Mode;

use crate::object::ConsumerId;
use crate::route::Path;

/// Requests go over one path, and over the others if they fail.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    mode: Mode,
    consumers: Vec<ConsumerId>,
    /// Bits, like all sets of paths: which can be written, and which failed.
    written: u64,
    failed: u64,
    /// The paths whose failure was reported.
    told: u64,
    active: Option<u32>,
    /// When each was last chosen.
    chosen: Vec<u64>,
    turn: u64,
}

impl Paths {
    pub(super) fn new(mode: Mode, active: Option<ConsumerId>, paths: &[Path]) -> Self {
        let all = |is: fn(&Path) -> bool| {
            let those = paths.iter().enumerate().filter(|(_, path)| is(path));
            those.fold(0, |all, (number, _)| all | 1 << number)
        };
        let is_it = |path: &Path| Some(path.consumer) == active;
        Self {
            mode,
            consumers: paths.iter().map(|path| path.consumer).collect(),
            written: all(|path| path.is_written),
            failed: all(|path| path.has_failed),
            told: 0,
            active: paths.iter().position(is_it).map(|number| number as u32),
            chosen: paths.iter().map(|_| 0).collect(),
            turn: 0,
        }
    }

    fn all(&self) -> u64 {
        u64::MAX >> (super::fan::MEMBERS_MAX - self.consumers.len())
    }

    /// The path for a request, among those on which it was not tried. `load` returns how much a
    /// path has to do.
    #[inline]
    pub(super) fn choose(
        &mut self,
        operation: Operation,
        load: impl Fn(u32) -> u64,
        tried: u64,
    ) -> Option<u32> {
        let is_read = operation == Operation::Read;
        let can = if is_read { self.all() } else { self.written } & !tried;
        let good = can & !self.failed;
        let is_alone = match self.mode {
            Mode::ActiveActive => false,
            Mode::ActiveRead => !is_read,
            Mode::ActivePassive | Mode::Unknown(_) => true,
        };
        if is_alone {
            if let Some(active) = self.active.filter(|active| good >> active & 1 != 0) {
                return Some(active);
            }
            // The newest; one that has failed before is better than none.
            return highest(good).or_else(|| highest(can));
        }
        let (mut best, mut rest) = (None, if good == 0 { can } else { good });
        while let Some(number) = super::fan::lowest(rest) {
            rest &= rest - 1;
            // The one with the least to do; among equals the one chosen longest ago.
            let rank = (load(number), self.chosen[number as usize]);
            if best.is_none_or(|(least, _)| rank < least) {
                best = Some((rank, number));
            }
        }
        let (_, number) = best?;
        self.turn += 1;
        self.chosen[number as usize] = self.turn;
        Some(number)
    }

    /// A path fails requests; `tried` are those on which this request has failed so far. Returns
    /// its consumer, once.
    pub(super) fn fault(&mut self, number: u32, tried: u64) -> Option<ConsumerId> {
        let bit = 1 << number;
        if self.failed & bit != 0 {
            return None;
        }
        self.failed |= bit;
        self.restore_but(tried);
        let is_told = self.told & bit != 0;
        self.told |= bit;
        if is_told { None } else { self.consumers.get(number as usize).copied() }
    }

    /// Why there is no path at all for a request.
    pub(super) fn none(&self) -> BlockError {
        if self.consumers.is_empty() { BlockError::Gone } else { BlockError::WriteProtected }
    }

    /// As [`choose`](Self::choose), for a request that other paths failed, of which `gone` have
    /// vanished.
    pub(super) fn choose_again(
        &mut self,
        operation: Operation,
        load: impl Fn(u32) -> u64,
        (tried, gone): (u64, u64),
    ) -> Option<u32> {
        let found = self.choose(operation, load, tried);
        if found.is_none() && tried != 0 {
            // The next request may retry those that had time to recover.
            self.restore_but(gone);
        }
        found
    }

    /// If no path is good, those not in `but` are tried again, or the only path there is.
    pub(super) fn restore_but(&mut self, but: u64) {
        let all = self.all();
        if self.failed & all == all {
            self.failed = if self.consumers.len() == 1 { 0 } else { but };
        }
        let is_good = |active: &u32| self.failed >> active & 1 == 0;
        if !self.active.as_ref().is_some_and(is_good) {
            self.active = highest(all & !self.failed);
        }
    }
}

/// The number of the highest set bit.
fn highest(bits: u64) -> Option<u32> {
    (bits != 0).then(|| 63 - bits.leading_zeros())
}
