//! The pools of a fastmap: the only blocks that are taken while it is valid.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use flysch_wire::ubi::fastmap::{POOL_MAX, START_MAX};

use super::wear::{State, Wear};

/// Smallest size of the pool for LEBs (`UBI_FM_MIN_POOL_SIZE`).
const POOL_MIN: u32 = 8;

/// How the blocks are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Number of blocks of a fastmap.
    pub(crate) fastmap: usize,
    /// Number of blocks for LEBs: 5 % of all, 8 to 256.
    pub(crate) user: usize,
    /// Number of blocks for moves: half as many.
    pub(crate) moves: usize,
}

impl Sizes {
    /// As Linux computes them for a flash with this many blocks.
    pub(crate) fn new(blocks: u32, fastmap: usize) -> Self {
        let user = (blocks / 100 * 5).clamp(POOL_MIN, POOL_MAX as u32) as usize;
        let moves = (user / 2).min(POOL_MAX.saturating_sub(fastmap));
        Self { fastmap, user, moves }
    }

    /// Number of free blocks that fill everything.
    pub(crate) fn sum(&self) -> usize {
        self.fastmap + self.user + self.moves
    }
}

/// Erased blocks that every attach by the fastmap scans.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    /// For LEBs, least erased first.
    pub(crate) user: VecDeque<u32>,
    /// For moves, most erased first.
    pub(crate) moves: VecDeque<u32>,
    /// For the next fastmap, its anchor first; all or none.
    pub(crate) reserve: Vec<u32>,
    /// All blocks that the fastmap lists in its pools, taken or not.
    pub(crate) members: BTreeSet<u32>,
}

impl Pools {
    /// A block for a move; one is left for LEBs.
    pub(crate) fn take_for_move(&mut self) -> Option<u32> {
        if self.moves.is_empty() && self.user.len() > 1 {
            return self.user.pop_back();
        }
        self.moves.pop_front()
    }

    /// Free blocks that may have been taken when power was lost, although they look erased: the
    /// first one of each pool, and those reserved for a fastmap.
    pub(crate) fn take_next(&mut self, fastmap: usize) -> Vec<u32> {
        let moves = self.moves.len().min(fastmap + 1);
        self.user.pop_front().into_iter().chain(self.moves.drain(..moves)).collect()
    }

    /// The blocks that the fastmap lists: blocks for LEBs, and all others.
    pub(crate) fn lists(&self) -> [Vec<u32>; 2] {
        let others = self.reserve.iter().chain(&self.moves);
        [self.user.iter().copied().collect(), others.copied().collect()]
    }
}

impl Wear {
    /// Refills empty pools from the free blocks. The blocks of a fastmap are reserved for the next
    /// one if enough remain; `old_anchor`, which is about to be erased, may become its anchor.
    pub(crate) fn fill_pools(&mut self, sizes: &Sizes, range: u32, old_anchor: Option<u32>) {
        self.empty_pools();
        let mut pools = Pools::default();
        if self.free.len() >= sizes.fastmap + 2 {
            pools.reserve = self.reserve(sizes.fastmap, old_anchor);
        }
        loop {
            let (user, moves) = (pools.user.len(), pools.moves.len());
            if user < sizes.user {
                pools.user.extend(self.free.first().copied().map(|entry| self.pool(entry)));
            }
            if moves < sizes.moves {
                pools.moves.extend(self.most_worn(range).map(|entry| self.pool(entry)));
            }
            if (user, moves) == (pools.user.len(), pools.moves.len()) {
                break;
            }
        }
        let all = pools.user.iter().chain(&pools.moves).chain(&pools.reserve);
        pools.members = all.copied().collect();
        self.pools = Some(pools);
    }

    /// Blocks for the next fastmap, the anchor first; none if there is no anchor.
    fn reserve(&mut self, blocks: usize, old_anchor: Option<u32>) -> Vec<u32> {
        let free = self.free.iter().find(|entry| entry.1 < START_MAX).copied();
        let old = old_anchor.map(|peb| (self.erase_counter(peb) + 1, peb));
        let Some(anchor) = free.into_iter().chain(old).min() else { return Vec::new() };
        let anchor = if Some(anchor) == free { self.pool(anchor) } else { anchor.1 };
        let mut reserve = alloc::vec![anchor];
        while reserve.len() < blocks
            && let Some(&entry) = self.free.first()
        {
            reserve.push(self.pool(entry));
        }
        reserve
    }

    fn pool(&mut self, entry: (u32, u32)) -> u32 {
        self.free.remove(&entry);
        self.pebs[entry.1 as usize].state = State::Pooled;
        entry.1
    }

    /// The blocks in the pools become ordinary free blocks: no fastmap is valid any more.
    pub(crate) fn empty_pools(&mut self) {
        let Some(pools) = self.pools.take() else { return };
        for peb in pools.user.into_iter().chain(pools.moves).chain(pools.reserve) {
            if self.state(peb) == State::Pooled {
                self.add_free(peb);
            }
        }
    }

    /// A block that was taken for a move is still free.
    pub(crate) fn put_back(&mut self, peb: u32) {
        match &mut self.pools {
            Some(pools) => {
                pools.moves.push_front(peb);
                self.pebs[peb as usize].state = State::Pooled;
            }
            None => self.add_free(peb),
        }
    }

    /// Takes over the pools of the fastmap that was used to attach, as far as its blocks are free.
    pub(crate) fn adopt_pools(&mut self, lists: &[Vec<u32>; 2]) {
        let members = lists.iter().flatten().copied().collect();
        let mut pools = Pools { members, ..Pools::default() };
        for (list, pool) in lists.iter().zip([&mut pools.user, &mut pools.moves]) {
            for &peb in list.iter().filter(|&&peb| self.state(peb) == State::Free) {
                pool.push_back(peb);
            }
        }
        for &peb in pools.user.iter().chain(&pools.moves) {
            self.pool((self.erase_counter(peb), peb));
        }
        self.pools = Some(pools);
    }

    /// Free blocks that attaching scans, for a fastmap, the anchor first. `None` if there are too
    /// few.
    pub(crate) fn take_members(&mut self, blocks: usize) -> Option<Vec<u32>> {
        let pools = self.pools.as_mut()?;
        if pools.reserve.len() == blocks {
            return Some(core::mem::take(&mut pools.reserve));
        }
        let pooled = pools.user.iter().chain(&pools.moves).chain(&pools.reserve).copied();
        let erased = pools.members.iter().copied();
        let erased = erased.filter(|&peb| self.pebs[peb as usize].state == State::Free);
        let mut all: Vec<(u32, u32)> =
            pooled.chain(erased).map(|peb| (self.pebs[peb as usize].erase_counter, peb)).collect();
        all.sort_unstable();
        let anchor = all.iter().position(|entry| entry.1 < START_MAX)?;
        let anchor = all.remove(anchor);
        if all.len() + 1 < blocks {
            return None;
        }
        let chosen: Vec<u32> =
            [anchor].into_iter().chain(all).take(blocks).map(|entry| entry.1).collect();
        for list in [&mut pools.user, &mut pools.moves] {
            list.retain(|peb| !chosen.contains(peb));
        }
        pools.reserve.retain(|peb| !chosen.contains(peb));
        for &peb in &chosen {
            self.free.remove(&(self.erase_counter(peb), peb));
        }
        Some(chosen)
    }

    /// Takes a block out of the erase queue, to be erased at once.
    pub(crate) fn unqueue(&mut self, peb: u32) {
        self.queue.retain(|waiting| waiting.peb != peb);
        self.pebs[peb as usize].state = State::Taken;
    }

    /// The old anchor was erased: it stays reserved for the next fastmap, unless it went bad.
    pub(crate) fn keep_reserved(&mut self, anchor: u32) {
        if self.state(anchor) == State::Free && self.pools.is_some() {
            self.pool((self.erase_counter(anchor), anchor));
        }
    }

    /// The least erased block in use among the first blocks, if it should make room for the
    /// anchors: if `worn` erases are `threshold` more than its own.
    pub(crate) fn anchor_place(&self, worn: u32, threshold: u32) -> Option<u32> {
        let first = (0..START_MAX).zip(&self.pebs);
        let used =
            first.filter(|(_, peb)| matches!(peb.state, State::Used { .. }) && !peb.unreadable);
        let (peb, least) = used.min_by_key(|(_, peb)| peb.erase_counter)?;
        (worn.saturating_sub(least.erase_counter) >= threshold).then_some(peb)
    }
}
