//! What may still be promised.
//!
//! Content accepted must find its place later, whatever it compresses to and however the index
//! grows: so what waits in the cache counts with its worst case, three times the index is kept for
//! the index, and a LEB for each journal head, one for garbage collection and one for deletions.

use flysch_wire::ubifs::{
    BLOCK_SIZE, DATA_NODE_SIZE, INLINE_DATA_MAX, INODE_NODE_SIZE, JOURNAL_HEADS, NODE_ALIGNMENT,
    Superblock,
};

use super::merge::IndexState;
use super::space::Space;
use super::tnc::leaf_cost;

/// Bytes that a block of content takes at most.
pub(super) const BLOCK_COST: u64 = DATA_NODE_SIZE as u64 + BLOCK_SIZE as u64;
/// Bytes that an inode without inline data takes.
pub(super) const INODE_COST: u64 = INODE_NODE_SIZE as u64;
/// Fewest LEBs that are kept for the index.
const INDEX_LEBS_MIN: u64 = 2;

/// What an operation will need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Need {
    /// Bytes of nodes.
    pub(super) bytes: u64,
    /// New leaves of the index.
    pub(super) leaves: u64,
}

/// What there is to be promised: worked out from how things are, anew each time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget<'s> {
    pub(super) superblock: &'s Superblock,
    pub(super) space: &'s Space,
    pub(super) index: IndexState,
    /// What was promised to content and inodes that wait in memory.
    pub(super) waiting: Need,
}

impl Budget<'_> {
    fn leb_size(&self) -> u64 {
        self.superblock.leb_size.into()
    }

    /// Less than this at the end of a LEB counts as dark: not every node fits there.
    fn dark_mark(&self) -> u32 {
        let unit = self.superblock.min_io_size.max(NODE_ALIGNMENT);
        ((INODE_NODE_SIZE + INLINE_DATA_MAX) as u32).next_multiple_of(unit)
    }

    /// LEBs with fewer bytes not in use than this are packed already: an eighth of them.
    pub(super) fn packed(&self) -> u32 {
        let unit = self.superblock.min_io_size.max(NODE_ALIGNMENT);
        (self.superblock.leb_size / 8).next_multiple_of(unit).max(self.dark_mark())
    }

    /// LEBs to be kept for an index that grows by `growth` bytes.
    fn index_lebs_min(&self, growth: u64) -> u64 {
        let room = self.leb_size().saturating_sub(leaf_cost(self.superblock)).max(1);
        let size = self.index.size + self.index.growth + growth;
        ((3 * size).div_ceil(room) + 1).max(INDEX_LEBS_MIN)
    }

    /// LEBs beyond those the index has that are kept for it.
    pub(super) fn reserved_index_lebs(&self) -> u64 {
        let growth = self.waiting.leaves * leaf_cost(self.superblock);
        self.index_lebs_min(growth).saturating_sub(self.space.sums().idx_lebs)
    }

    /// Bytes of nodes there is room for beside an index of `index_lebs` LEBs.
    fn available(&self, index_lebs: u64) -> u64 {
        let sums = self.space.sums();
        let leb_size = self.leb_size();
        let kept = (index_lebs + 1 + JOURNAL_HEADS as u64 + 1) * leb_size;
        // An index of more LEBs than it needs leaves them to others, without their dark space.
        let more = sums.idx_lebs.saturating_sub(index_lebs) * u64::from(self.dark_mark());
        [sums.used, kept, sums.dead, sums.dark, more]
            .iter()
            .fold(self.space.len() * leb_size, |left, part| left.saturating_sub(*part))
    }

    /// Whether there is room for `need` beside what was promised.
    pub(super) fn fits(&self, need: Need) -> bool {
        let outstanding = self.waiting;
        let leaves = outstanding.leaves + need.leaves;
        let index_lebs = self.index_lebs_min(leaves * leaf_cost(self.superblock));
        let sums = self.space.sums();
        if index_lebs.saturating_sub(sums.idx_lebs) > sums.available_lebs {
            return false;
        }
        self.available(index_lebs) >= outstanding.bytes + need.bytes
    }

    /// Whether there could be room if LEBs with `least` bytes not in use were packed.
    pub(super) fn may_fit(&self, need: Need, least: u32) -> bool {
        let outstanding = self.waiting;
        let leaves = outstanding.leaves + need.leaves;
        let index_lebs = self.index_lebs_min(leaves * leaf_cost(self.superblock));
        let sums = self.space.sums();
        let loose = self.space.loose_bytes(least);
        let lebs = sums.available_lebs + loose / self.leb_size();
        let bytes = self.available(index_lebs) + sums.dead + sums.dark;
        loose > 0
            && index_lebs.saturating_sub(sums.idx_lebs) <= lebs
            && bytes >= outstanding.bytes + need.bytes
    }

    /// Blocks of content there is room for, as Linux tells `statfs`: in all and left.
    pub(super) fn blocks(&self) -> (u64, u64) {
        let leb_size = self.leb_size();
        let overhead = leb_size % BLOCK_COST;
        // One LEB for garbage collection, one for deletions, the index's least, the heads'.
        let kept = 1 + 1 + INDEX_LEBS_MIN + JOURNAL_HEADS as u64;
        let all = self.space.len().saturating_sub(kept) * (leb_size - overhead);
        let sums = self.space.sums();
        let outstanding = self.waiting;
        let index_lebs = self.index_lebs_min(outstanding.leaves * leaf_cost(self.superblock));
        let reserved = index_lebs.saturating_sub(sums.idx_lebs);
        let empty = sums.available_lebs.saturating_sub(reserved);
        // The dark space of empty LEBs can be used, but for what does not divide by a block.
        let more = empty * u64::from(self.dark_mark()).saturating_sub(overhead);
        let left = (self.available(index_lebs) + more).saturating_sub(outstanding.bytes);
        (self.reported(all), self.reported(left))
    }

    /// Blocks of content in so many bytes: each needs a header and its share of the index.
    fn reported(&self, bytes: u64) -> u64 {
        let superblock = self.superblock;
        let half = if superblock.fanout > 3 { u64::from(superblock.fanout >> 1) } else { 2 };
        let share = leaf_cost(self.superblock) * 3 / (half - 1);
        u64::try_from(u128::from(bytes) * u128::from(BLOCK_SIZE) / u128::from(BLOCK_COST + share))
            .unwrap_or(u64::MAX)
            / u64::from(BLOCK_SIZE)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::{BLOCK_COST, Budget, Need, Space};
    use crate::create::CreateOptions;
    use crate::write::merge::IndexState;
    use flysch_wire::ubifs::lpt::LebProperties;

    #[test]
    fn what_is_promised_is_not_promised_again() {
        let superblock = CreateOptions::new(512, 15_360, 64).superblock(64).unwrap();
        let empty = LebProperties { free: 15_360, dirty: 0, index: false };
        let space = Space::new(&superblock, &(10..30), &vec![empty; 20]);
        let index = IndexState { at: (10, 0), size: 400, growth: 0 };
        let waiting = Need::default();
        let budget = Budget { superblock: &superblock, space: &space, index, waiting };
        let mut blocks = 0;
        let need = |blocks| Need { bytes: blocks * BLOCK_COST, leaves: blocks };
        while budget.fits(need(blocks + 1)) {
            blocks += 1;
        }
        assert!(blocks > 0 && blocks < 20 * 15_360 / BLOCK_COST);
        let full = Budget { waiting: need(blocks), ..budget };
        assert!(full.fits(Need::default()) && !full.fits(need(1)));
        assert!(full.blocks().1 < budget.blocks().1);
        assert_eq!(full.blocks().0, budget.blocks().0);
        // Nothing lies anywhere that could be packed.
        assert!(!full.may_fit(need(1), 512));
        // The index keeps what its leaves may need.
        let waiting = Need { bytes: 0, leaves: 100 };
        let more = Budget { waiting, ..budget };
        assert!(more.reserved_index_lebs() > budget.reserved_index_lebs());
    }
}
