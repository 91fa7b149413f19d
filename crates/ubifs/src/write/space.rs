//! What each LEB of the main area holds, and what is left.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;

use flysch_wire::ubifs::lpt::LebProperties;
use flysch_wire::ubifs::{Master, Superblock, align8};

use crate::location::Location;
use crate::lpt::unusable;

/// One LEB of the main area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Leb {
    /// Erased bytes at its end.
    pub(super) free: u32,
    /// Bytes of nodes in use. What is neither free nor used is dirt.
    pub(super) used: u32,
    /// It holds index nodes.
    pub(super) index: bool,
    /// Part of the log since the last commit: must not be collected.
    pub(super) taken: bool,
    /// Reserved for garbage collection.
    pub(super) reserved: bool,
}

/// Sums over the main area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) free: u64,
    pub(super) dirty: u64,
    /// For data LEBs only.
    pub(super) used: u64,
    pub(super) dead: u64,
    pub(super) dark: u64,
    /// Erased LEBs, whatever they are reserved for.
    pub(super) empty_lebs: u64,
    /// LEBs with nothing in use that can be taken.
    pub(super) available_lebs: u64,
    pub(super) idx_lebs: u64,
}

/// The main area.
#[derive(Clone, Debug)]
pub(super) struct Space {
    leb_size: u32,
    min_io: u32,
    first: u32,
    lebs: Vec<Leb>,
    sums: Sums,
    /// LEBs that the current commit gave up; unmapped once it is complete.
    leaving: BTreeSet<u32>,
    /// What the flash says is contradictory; see [`Space::is_astray`].
    astray: bool,
}

impl Leb {
    pub(super) fn dirty(&self, leb_size: u32) -> u32 {
        leb_size - self.free - self.used
    }

    /// Whether nothing in it is in use and anyone may take it.
    pub(super) fn is_available(&self) -> bool {
        self.used == 0 && !self.taken && !self.reserved && !self.index
    }
}

impl Space {
    pub(super) fn new(superblock: &Superblock, main: &Range<u32>, lebs: &[LebProperties]) -> Self {
        let leb_size = superblock.leb_size;
        let leb = |it: &LebProperties| Leb {
            free: it.free,
            used: leb_size - it.free - it.dirty,
            index: it.index,
            ..Leb::default()
        };
        let lebs: Vec<Leb> = lebs.iter().map(leb).collect();
        let min_io = superblock.min_io_size;
        let (first, sums) = (main.start, Sums::default());
        let (leaving, astray) = (BTreeSet::new(), false);
        let mut space = Self { leb_size, min_io, first, lebs, sums, leaving, astray };
        space.sums = space.lebs.iter().fold(Sums::default(), |sums, leb| space.add(sums, leb));
        space
    }

    fn add(&self, mut sums: Sums, leb: &Leb) -> Sums {
        sums.free += u64::from(leb.free);
        sums.dirty += u64::from(leb.dirty(self.leb_size));
        sums.empty_lebs += u64::from(leb.free == self.leb_size);
        sums.available_lebs += u64::from(leb.is_available());
        if leb.index {
            sums.idx_lebs += 1;
            return sums;
        }
        sums.used += u64::from(leb.used);
        let (dead, dark) = unusable(self.leb_size - leb.used, self.min_io);
        sums.dead += u64::from(dead);
        sums.dark += u64::from(dark);
        sums
    }

    /// Whether a change could not be recorded: for a LEB outside the main area, or beyond the size
    /// of one. Damaged LEB properties, or a trusted index that is wrong, lead to this; the
    /// accounting is then worthless, and nothing may be written based on it.
    pub(super) fn is_astray(&self) -> bool {
        self.astray
    }

    /// Changes what a LEB is recorded to hold.
    pub(super) fn change(&mut self, lnum: u32, change: impl FnOnce(&mut Leb)) {
        let at = lnum.wrapping_sub(self.first) as usize;
        let Some(mut leb) = self.lebs.get(at).copied() else {
            self.astray = true;
            return;
        };
        let old = self.add(Sums::default(), &leb);
        change(&mut leb);
        if leb.free.saturating_add(leb.used) > self.leb_size {
            self.astray = true;
            return;
        }
        let new = self.add(Sums::default(), &leb);
        self.lebs[at] = leb;
        let sums = &mut self.sums;
        let shift = |sum: &mut u64, old: u64, new: u64| *sum = *sum + new - old;
        shift(&mut sums.free, old.free, new.free);
        shift(&mut sums.dirty, old.dirty, new.dirty);
        shift(&mut sums.used, old.used, new.used);
        shift(&mut sums.dead, old.dead, new.dead);
        shift(&mut sums.dark, old.dark, new.dark);
        shift(&mut sums.empty_lebs, old.empty_lebs, new.empty_lebs);
        shift(&mut sums.available_lebs, old.available_lebs, new.available_lebs);
        shift(&mut sums.idx_lebs, old.idx_lebs, new.idx_lebs);
    }

    /// Adds this many empty LEBs.
    pub(super) fn grow(&mut self, lebs: u32) {
        let leb = Leb { free: self.leb_size, ..Leb::default() };
        for _ in 0..lebs {
            self.lebs.push(leb);
            self.sums = self.add(self.sums, &leb);
        }
    }

    /// Counts a node as in use.
    pub(super) fn acquire(&mut self, at: Location) {
        self.change(at.lnum, |leb| leb.used += align8(at.length));
    }

    /// Counts a node as no longer in use.
    pub(super) fn release(&mut self, at: Location) {
        self.change(at.lnum, |leb| leb.used = leb.used.saturating_sub(align8(at.length)));
    }

    /// What a LEB holds; one outside the main area cannot be taken.
    pub(super) fn leb(&self, lnum: u32) -> Leb {
        let outside = Leb { taken: true, ..Leb::default() };
        self.lebs.get(lnum.wrapping_sub(self.first) as usize).copied().unwrap_or(outside)
    }

    /// Every LEB with its number.
    pub(super) fn lebs(&self) -> impl Iterator<Item = (u32, &Leb)> {
        (self.first..).zip(&self.lebs)
    }

    pub(super) fn sums(&self) -> &Sums {
        &self.sums
    }

    pub(super) fn len(&self) -> u64 {
        self.lebs.len() as u64
    }

    /// The data LEBs for which `is` holds.
    fn data_lebs(&self, is: impl Fn(&Leb) -> bool) -> impl Iterator<Item = (u32, &Leb)> {
        self.lebs().filter(move |(_, leb)| !leb.index && is(leb))
    }

    /// Takes a LEB with nothing in use; its content is given up.
    pub(super) fn empty_leb(&mut self) -> Option<u32> {
        let leb_size = self.leb_size;
        let (lnum, _) = self
            .lebs()
            .filter(|(lnum, leb)| leb.is_available() && !self.leaving.contains(lnum))
            .max_by_key(|(_, leb)| leb.free == leb_size)?;
        self.change(lnum, |leb| leb.free = leb_size);
        Some(lnum)
    }

    /// Of the LEBs in use with room for `length` more bytes, the one with the least; and where that
    /// room begins.
    pub(super) fn partial(&self, length: u32) -> Option<(u32, u32)> {
        let fits = |leb: &Leb| leb.free >= length && leb.used > 0 && !leb.taken && !leb.reserved;
        let (lnum, leb) = self.data_lebs(fits).min_by_key(|(_, leb)| leb.free)?;
        Some((lnum, self.leb_size - leb.free))
    }

    /// LEBs that can be collected and have at least `least` unused bytes.
    fn loose(&self, least: u32) -> impl Iterator<Item = (u32, &Leb)> {
        let leb_size = self.leb_size;
        self.data_lebs(move |leb| {
            !leb.taken && !leb.reserved && leb.used > 0 && leb_size - leb.used >= least
        })
    }

    /// Bytes that collection can free: the unused ones of LEBs with at least `least` of them.
    pub(super) fn loose_bytes(&self, least: u32) -> u64 {
        self.loose(least).map(|(_, leb)| u64::from(self.leb_size - leb.used)).sum()
    }

    /// The LEB to collect: the one with the fewest bytes in use, if at least `least` bytes of it
    /// are unused.
    pub(super) fn victim(&self, least: u32) -> Option<u32> {
        self.loose(least).min_by_key(|(_, leb)| leb.used).map(|(lnum, _)| lnum)
    }

    /// When no LEB is empty: a LEB whose content fits into the free end of another, and that other
    /// one with the start of its free end.
    pub(super) fn squeeze(&self) -> Option<(u32, (u32, u32))> {
        let (lnum, roomy) = self.data_lebs(|leb| !leb.taken).max_by_key(|it| it.1.free)?;
        let others = self.data_lebs(|leb| !leb.taken).filter(|(other, _)| *other != lnum);
        let (victim, leb) = others.min_by_key(|(_, leb)| leb.used)?;
        (leb.used <= roomy.free).then_some((victim, (lnum, self.leb_size - roomy.free)))
    }

    /// The LEB reserved for garbage collection.
    pub(super) fn gc_leb(&self) -> Option<u32> {
        self.lebs().find(|(_, leb)| leb.reserved).map(|(lnum, _)| lnum)
    }

    /// Reserves a LEB for garbage collection: the one in the master node, if possible.
    pub(super) fn take_gc_leb(&mut self, known: u32) {
        let lnum = match self.leb(known).is_available() {
            true => Some(known),
            false => self.empty_leb(),
        };
        let leb_size = self.leb_size;
        if let Some(lnum) = lnum {
            self.change(lnum, |leb| {
                leb.free = leb_size;
                leb.reserved = true;
            });
        }
    }

    /// Data LEBs with nothing in use that are not erased.
    pub(super) fn idle(&self) -> Vec<u32> {
        let idle = |leb: &Leb| leb.is_available() && leb.free < self.leb_size;
        self.data_lebs(idle).map(|(lnum, _)| lnum).collect()
    }

    /// LEBs that count as erased and are not being written; `head` is the index's.
    pub(super) fn erased_lebs(&self, head: u32) -> Vec<u32> {
        let is_erased = |leb: &Leb| leb.free == self.leb_size && !leb.taken;
        let lebs = self.lebs().filter(|(lnum, leb)| is_erased(leb) && *lnum != head);
        lebs.map(|(lnum, _)| lnum).collect()
    }

    /// Records that a LEB was erased.
    pub(super) fn erased(&mut self, lnum: u32) {
        let leb_size = self.leb_size;
        self.change(lnum, |leb| leb.free = leb_size);
    }

    /// Frees index LEBs that only the old index uses; `head` is being written.
    pub(super) fn leave_index_lebs(&mut self, head: u32) {
        let idle = |(lnum, leb): &(u32, &Leb)| leb.index && leb.used == 0 && *lnum != head;
        let idle: Vec<u32> = self.lebs().filter(idle).map(|(lnum, _)| lnum).collect();
        let leb_size = self.leb_size;
        for lnum in idle {
            self.change(lnum, |leb| {
                leb.index = false;
                leb.free = leb_size;
            });
            self.leaving.insert(lnum);
        }
    }

    /// The LEBs that the finished commit gave up.
    pub(super) fn left(&mut self) -> BTreeSet<u32> {
        core::mem::take(&mut self.leaving)
    }

    /// The first LEBs with room for data, at most `most`: those looked up first in the LEB
    /// properties tree (`lsave`).
    pub(super) fn interesting(&self, most: usize) -> Vec<u32> {
        let lebs = self.data_lebs(|leb| leb.used < self.leb_size);
        lebs.map(|(lnum, _)| lnum).take(most).collect()
    }

    /// The properties for the tree of LEB properties.
    pub(super) fn properties(&self) -> Vec<LebProperties> {
        let properties = |leb: &Leb| LebProperties {
            free: leb.free,
            dirty: leb.dirty(self.leb_size),
            index: leb.index,
        };
        self.lebs.iter().map(properties).collect()
    }

    pub(super) fn fill_master(&self, master: &mut Master) {
        master.total_free = self.sums.free;
        master.total_dirty = self.sums.dirty;
        master.total_used = self.sums.used;
        master.total_dead = self.sums.dead;
        master.total_dark = self.sums.dark;
        master.empty_lebs = self.sums.empty_lebs as u32;
        master.idx_lebs = self.sums.idx_lebs as u32;
    }
}

#[cfg(test)]
mod tests;
