//! How much space can still be promised.
//!
//! Content that was accepted must fit later, however badly it compresses and however much the index
//! grows. So cached content counts at its worst case, three times the size of the index is reserved
//! for the index, and one LEB each for every journal head, for garbage collection and for
//! deletions.

use flysch_wire::ubifs::{
    BLOCK_SIZE, DATA_NODE_SIZE, INLINE_DATA_MAX, INODE_NODE_SIZE, JOURNAL_HEADS, NODE_ALIGNMENT,
    Superblock,
};

use super::merge::IndexState;
use super::space::Space;
use super::tnc::leaf_cost;

/// Largest node for a block of content, bytes.
pub(super) const BLOCK_COST: u64 = DATA_NODE_SIZE as u64 + BLOCK_SIZE as u64;
/// Size of an inode without inline data, bytes.
pub(super) const INODE_COST: u64 = INODE_NODE_SIZE as u64;
/// Fewest LEBs reserved for the index.
const INDEX_LEBS_MIN: u64 = 2;

/// What an operation needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Need {
    /// Bytes of nodes.
    pub(super) bytes: u64,
    /// New leaves of the index.
    pub(super) leaves: u64,
}

/// The space that can be promised, computed from the current state each time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget<'s> {
    pub(super) superblock: &'s Superblock,
    pub(super) space: &'s Space,
    pub(super) index: IndexState,
    /// What was promised to content and inodes waiting in memory.
    pub(super) waiting: Need,
}

impl Budget<'_> {
    fn leb_size(&self) -> u64 {
        self.superblock.leb_size.into()
    }

    /// Less space than this at the end of a LEB counts as dark: not every node fits there.
    fn dark_mark(&self) -> u32 {
        let unit = self.superblock.min_io_size.max(NODE_ALIGNMENT);
        ((INODE_NODE_SIZE + INLINE_DATA_MAX) as u32).next_multiple_of(unit)
    }

    /// LEBs with fewer unused bytes than this, an eighth, count as packed.
    pub(super) fn packed(&self) -> u32 {
        let unit = self.superblock.min_io_size.max(NODE_ALIGNMENT);
        (self.superblock.leb_size / 8).next_multiple_of(unit).max(self.dark_mark())
    }

    /// LEBs to reserve for an index that grows by `growth` bytes.
    fn index_lebs_min(&self, growth: u64) -> u64 {
        let room = self.leb_size().saturating_sub(leaf_cost(self.superblock)).max(1);
        let size = self.index.size + self.index.growth + growth;
        ((3 * size).div_ceil(room) + 1).max(INDEX_LEBS_MIN)
    }

    /// LEBs reserved for the index beyond those it has.
    pub(super) fn reserved_index_lebs(&self) -> u64 {
        let growth = self.waiting.leaves * leaf_cost(self.superblock);
        self.index_lebs_min(growth).saturating_sub(self.space.sums().idx_lebs)
    }

    /// Bytes available to nodes beside an index of `index_lebs` LEBs.
    fn available(&self, index_lebs: u64) -> u64 {
        let sums = self.space.sums();
        let leb_size = self.leb_size();
        let kept = (index_lebs + 1 + JOURNAL_HEADS as u64 + 1) * leb_size;
        // LEBs that an index has beyond its need count as available, except for their dark space.
        let more = sums.idx_lebs.saturating_sub(index_lebs) * u64::from(self.dark_mark());
        [sums.used, kept, sums.dead, sums.dark, more]
            .iter()
            .fold(self.space.len() * leb_size, |left, part| left.saturating_sub(*part))
    }

    /// Whether `need` fits in addition to what was promised.
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

    /// Whether `need` could fit if all LEBs with at least `least` unused bytes were packed.
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

    /// Blocks of content, in total and free, as Linux reports them in `statfs`.
    pub(super) fn blocks(&self) -> (u64, u64) {
        let leb_size = self.leb_size();
        let overhead = leb_size % BLOCK_COST;
        // One LEB for garbage collection, one for deletions, the index's minimum, one per head.
        let kept = 1 + 1 + INDEX_LEBS_MIN + JOURNAL_HEADS as u64;
        let all = self.space.len().saturating_sub(kept) * (leb_size - overhead);
        let sums = self.space.sums();
        let outstanding = self.waiting;
        let index_lebs = self.index_lebs_min(outstanding.leaves * leaf_cost(self.superblock));
        let reserved = index_lebs.saturating_sub(sums.idx_lebs);
        let empty = sums.available_lebs.saturating_sub(reserved);
        // The dark space of empty LEBs is usable, except for the remainder that fits no block.
        let more = empty * u64::from(self.dark_mark()).saturating_sub(overhead);
        let left = (self.available(index_lebs) + more).saturating_sub(outstanding.bytes);
        (self.reported(all), self.reported(left))
    }

    /// Blocks of content in `bytes`: each needs a header and its share of the index.
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
        // There is nothing that could be packed.
        assert!(!full.may_fit(need(1), 512));
        // The index reserves what its new leaves may need.
        let waiting = Need { bytes: 0, leaves: 100 };
        let more = Budget { waiting, ..budget };
        assert!(more.reserved_index_lebs() > budget.reserved_index_lebs());
    }
}
