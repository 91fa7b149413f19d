//! Which blocks are free, used or waiting for their erase, and how often each was erased.
//!
//! Bookkeeping only; nothing here touches the flash.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::bits::Bits;
use super::pools::Pools;

/// A block just allocated is not moved before this many erases have happened
/// (`UBI_PROT_QUEUE_LEN`): it is likely to be discarded soon.
const PROTECTION_ERASES: u64 = 10;

/// State of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Erased, with its erase counter.
    Free,
    /// The same, in a pool of the fastmap on the flash.
    Pooled,
    /// Taken and not yet mapped.
    Taken,
    /// Holds a LEB.
    Used { volume: u32, lnum: u32 },
    /// Waits for its erase.
    Waiting,
    /// Belongs to the fastmap on the flash.
    Fastmap,
    /// Marked bad.
    Bad,
    /// Holds something that is not understood but must not be lost: left alone.
    Kept,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Peb {
    pub(crate) erase_counter: u32,
    pub(crate) state: State,
    /// Examined since attaching: a free one is erased from end to end.
    pub(crate) checked: bool,
    /// Its content cannot be read; it stays where it is.
    pub(crate) unreadable: bool,
    /// Not to be moved before this many erases; 0 once it may be.
    protected_until: u64,
}

/// A block that waits for its erase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) peb: u32,
    /// A write to it failed: it is tested before it is used again.
    pub(crate) torture: bool,
}

#[derive(Debug)]
pub(crate) struct Wear {
    pub(crate) pebs: Vec<Peb>,
    /// Free blocks by erase counter.
    pub(super) free: BTreeSet<(u32, u32)>,
    /// While a fastmap on the flash is valid, blocks are taken only from its pools.
    pub(super) pools: Option<Pools>,
    /// Blocks that may be moved, by erase counter.
    movable: BTreeSet<(u32, u32)>,
    /// Blocks with many bit errors, to be moved whatever their erase counter.
    scrub: BTreeSet<u32>,
    protected: VecDeque<(u64, u32)>,
    pub(super) queue: VecDeque<Waiting>,
    erases: u64,
    /// Blocks in which a read through `&self` met many bit errors.
    flagged: Bits,
    /// Blocks whose headers have not been examined since attaching by a fastmap.
    pub(super) unseen: Bits,
    /// Of these, mapped blocks that were examined and hold nothing any more.
    pub(super) gone: Bits,
    /// Of these, mapped blocks that hold something else.
    pub(super) wrong: Bits,
}

impl Wear {
    pub(crate) fn new(pebs: u32) -> Self {
        let fresh = Peb {
            erase_counter: 0,
            state: State::Taken,
            checked: false,
            unreadable: false,
            protected_until: 0,
        };
        Self {
            pebs: alloc::vec![fresh; pebs as usize],
            free: BTreeSet::new(),
            pools: None,
            movable: BTreeSet::new(),
            scrub: BTreeSet::new(),
            protected: VecDeque::new(),
            queue: VecDeque::new(),
            erases: 0,
            flagged: Bits::new(pebs),
            unseen: Bits::new(pebs),
            gone: Bits::new(pebs),
            wrong: Bits::new(pebs),
        }
    }

    fn peb(&mut self, peb: u32) -> &mut Peb {
        &mut self.pebs[peb as usize]
    }

    pub(crate) fn erase_counter(&self, peb: u32) -> u32 {
        self.pebs[peb as usize].erase_counter
    }

    pub(crate) fn state(&self, peb: u32) -> State {
        self.pebs[peb as usize].state
    }

    /// Sets a state for which there is no list.
    pub(crate) fn set_aside(&mut self, peb: u32, state: State) {
        debug_assert!(matches!(state, State::Bad | State::Kept | State::Fastmap | State::Taken));
        self.forget(peb);
        self.peb(peb).state = state;
    }

    /// Notes that a block is free.
    pub(crate) fn add_free(&mut self, peb: u32) {
        self.peb(peb).state = State::Free;
        self.free.insert((self.erase_counter(peb), peb));
    }

    /// Notes that a block that was in no list was erased; a free one would otherwise be in a list
    /// twice.
    pub(crate) fn erased(&mut self, peb: u32, erase_counter: u32) {
        debug_assert!(
            !matches!(self.state(peb), State::Free | State::Pooled),
            "block {peb} was erased while it was free",
        );
        self.peb(peb).erase_counter = erase_counter;
        self.peb(peb).checked = true;
        self.unseen.clear(peb);
        self.gone.clear(peb);
        self.add_free(peb);
        self.erases += 1;
        while let Some(&(until, peb)) = self.protected.front() {
            if until > self.erases {
                break;
            }
            self.protected.pop_front();
            // The block may have been given up and taken again meanwhile.
            let entry = self.pebs[peb as usize];
            if entry.protected_until == until && matches!(entry.state, State::Used { .. }) {
                self.make_movable(peb);
            }
        }
    }

    /// Takes the least erased free block, from the pool if there is one.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let peb = match &mut self.pools {
            Some(pools) => pools.user.pop_front()?,
            None => self.free.pop_first()?.1,
        };
        self.peb(peb).state = State::Taken;
        Some(peb)
    }

    /// Takes the least erased free block below `limit`; there must be no pool.
    pub(crate) fn take_below(&mut self, limit: u32) -> Option<u32> {
        debug_assert!(self.pools.is_none());
        let &found = self.free.iter().find(|entry| entry.1 < limit)?;
        self.free.remove(&found);
        self.peb(found.1).state = State::Taken;
        Some(found.1)
    }

    /// Takes the most erased free block within `range` erases of the least erased one: what is
    /// moved there is likely to stay, so the block rests. Without the limit, always the same block
    /// would.
    pub(crate) fn take_worn(&mut self, range: u32) -> Option<u32> {
        let peb = match &mut self.pools {
            Some(pools) => pools.take_for_move()?,
            None => {
                let found = self.most_worn(range)?;
                self.free.remove(&found);
                found.1
            }
        };
        self.peb(peb).state = State::Taken;
        Some(peb)
    }

    /// Free blocks that [`take`](Self::take), [`take_worn`](Self::take_worn) and
    /// [`take_below`](Self::take_below) would return next if there are no pools.
    pub(crate) fn next_free(&self, range: u32, limit: u32) -> [Option<u32>; 3] {
        let below = self.free.iter().find(|entry| entry.1 < limit);
        [self.free.first().copied(), self.most_worn(range), below.copied()]
            .map(|entry| entry.map(|(_, peb)| peb))
    }

    pub(super) fn most_worn(&self, range: u32) -> Option<(u32, u32)> {
        let least = self.free.first()?.0;
        self.free.range(..(least.saturating_add(range), 0)).next_back().copied()
    }

    /// The least erased block in use, if it has so little wear that the most erased free block
    /// should get its content.
    pub(crate) fn unbalanced(&self, threshold: u32) -> Option<u32> {
        let &(used, peb) = self.movable.first()?;
        let pooled = self.pools.as_ref().and_then(|pools| pools.moves.front());
        let free = match pooled {
            Some(&peb) => self.erase_counter(peb),
            None => self.most_worn(threshold.saturating_mul(2))?.0,
        };
        (free.saturating_sub(used) >= threshold).then_some(peb)
    }

    /// Notes that a block just written holds a LEB.
    pub(crate) fn occupy(&mut self, peb: u32, volume: u32, lnum: u32) {
        let until = self.erases + PROTECTION_ERASES;
        let entry = self.peb(peb);
        entry.state = State::Used { volume, lnum };
        entry.protected_until = until;
        self.protected.push_back((until, peb));
    }

    /// Notes that a block that was not just written holds a LEB.
    pub(crate) fn settle(&mut self, peb: u32, volume: u32, lnum: u32) {
        self.peb(peb).state = State::Used { volume, lnum };
        self.make_movable(peb);
    }

    fn make_movable(&mut self, peb: u32) {
        self.peb(peb).protected_until = 0;
        if !self.scrub.contains(&peb) && !self.pebs[peb as usize].unreadable {
            self.movable.insert((self.erase_counter(peb), peb));
        }
    }

    fn forget(&mut self, peb: u32) {
        let key = (self.erase_counter(peb), peb);
        self.free.remove(&key);
        self.movable.remove(&key);
        self.scrub.remove(&peb);
        let entry = self.peb(peb);
        entry.protected_until = 0;
        entry.unreadable = false;
    }

    /// Queues a block for its erase, after those discarded before: an older copy of a LEB must not
    /// outlive a newer one.
    pub(crate) fn give_up(&mut self, peb: u32, torture: bool) {
        self.forget(peb);
        self.peb(peb).state = State::Waiting;
        self.queue.push_back(Waiting { peb, torture });
    }

    pub(crate) fn next_waiting(&mut self) -> Option<Waiting> {
        let waiting = self.queue.pop_front()?;
        self.peb(waiting.peb).state = State::Taken;
        Some(waiting)
    }

    /// The content of a block cannot be read: reading is not tried again.
    pub(crate) fn set_unreadable(&mut self, peb: u32) {
        self.forget(peb);
        self.peb(peb).unreadable = true;
    }

    /// Notes that a block must be moved because of bit errors.
    pub(crate) fn add_scrub(&mut self, peb: u32) {
        let entry = self.pebs[peb as usize];
        if matches!(entry.state, State::Used { .. }) && !entry.unreadable {
            self.movable.remove(&(entry.erase_counter, peb));
            self.scrub.insert(peb);
        }
    }

    pub(crate) fn next_scrub(&self) -> Option<u32> {
        self.scrub.first().copied()
    }

    /// Remembers a block with many bit errors until [`collect_flagged`](Self::collect_flagged).
    pub(crate) fn flag(&self, peb: u32) {
        self.flagged.set(peb);
    }

    pub(crate) fn collect_flagged(&mut self) {
        for peb in self.flagged.take() {
            self.add_scrub(peb);
        }
    }

    /// Free blocks, not counting those reserved for the next fastmap.
    pub(crate) fn free_count(&self) -> u32 {
        let pooled = self.pools.as_ref().map_or(0, |pools| pools.user.len() + pools.moves.len());
        (self.free.len() + pooled) as u32
    }

    pub(crate) fn waiting_count(&self) -> u32 {
        self.queue.len() as u32
    }

    pub(crate) fn scrub_count(&self) -> u32 {
        self.scrub.len() as u32
    }

    pub(crate) fn is_scrub(&self, peb: u32) -> bool {
        self.scrub.contains(&peb)
    }

    pub(crate) fn unreadable_count(&self) -> u32 {
        self.pebs.iter().filter(|peb| peb.unreadable).count() as u32
    }
}
