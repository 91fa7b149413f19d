//! What may still be promised.
//!
//! Content accepted must find its place later, whatever it compresses to and however the index
//! grows: so what waits in the cache counts with its worst case, three times the index is kept for
//! the index, and a LEB for each journal head, one for garbage collection and one for deletions.

use flysch_api::vfs::Error;
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{
    BLOCK_SIZE, DATA_NODE_SIZE, INLINE_DATA_MAX, INODE_NODE_SIZE, JOURNAL_HEADS, align8,
};

use super::{Stop, UbifsMut};

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

impl<V: VolumeMut> UbifsMut<V> {
    /// LEBs to be kept for an index that grows by `growth` bytes.
    fn index_lebs_min(&self, growth: u64) -> u64 {
        let node_max = align8(self.fs.store.superblock.index_node_max() as u32);
        let room = u64::from(self.fs.store.leb_size().saturating_sub(node_max).max(1));
        let size = self.index_size + self.index_growth + growth;
        ((3 * size).div_ceil(room) + 1).max(INDEX_LEBS_MIN)
    }

    /// What the cache will need when it is written.
    fn outstanding(&self) -> Need {
        let (inodes, blocks, new_blocks) = self.cache.counts();
        Need { bytes: inodes * INODE_COST + blocks * BLOCK_COST, leaves: new_blocks }
    }

    /// LEBs beyond those the index has that are kept for it.
    pub(super) fn reserved_index_lebs(&self) -> u64 {
        let growth = self.outstanding().leaves * self.leaf_cost();
        self.index_lebs_min(growth).saturating_sub(self.space.sums().idx_lebs)
    }

    /// Bytes of nodes there is room for beside an index of `index_lebs` LEBs.
    fn available(&self, index_lebs: u64) -> u64 {
        let sums = self.space.sums();
        let leb_size = u64::from(self.fs.store.leb_size());
        let kept = (index_lebs + 1 + JOURNAL_HEADS as u64 + 1) * leb_size;
        // An index of more LEBs than it needs leaves them to others, without their dark space.
        let dark_mark =
            ((INODE_NODE_SIZE + INLINE_DATA_MAX) as u32).next_multiple_of(self.fs.store.unit());
        let more = sums.idx_lebs.saturating_sub(index_lebs) * u64::from(dark_mark);
        [sums.used, kept, sums.dead, sums.dark, more]
            .iter()
            .fold(self.space.len() * leb_size, |left, part| left.saturating_sub(*part))
    }

    fn fits(&self, need: Need) -> bool {
        let outstanding = self.outstanding();
        let leaves = outstanding.leaves + need.leaves;
        let index_lebs = self.index_lebs_min(leaves * self.leaf_cost());
        let sums = self.space.sums();
        if index_lebs.saturating_sub(sums.idx_lebs) > sums.available_lebs {
            return false;
        }
        self.available(index_lebs) >= outstanding.bytes + need.bytes
    }

    /// Sees to it that there is room; what is in the cache is written, and a commit done, to find
    /// out how much it really is.
    pub(super) fn claim(&mut self, need: Need) -> Result<(), Error> {
        self.writable()?;
        if self.fits(need) {
            return Ok(());
        }
        self.write_back_all()?;
        if !self.fits(need) {
            self.commit()?;
        }
        if self.gather(need)? { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// Moves what is in use together, out of LEBs that are an eighth empty at least, until there is
    /// room: the index needs whole LEBs, and each LEB in use has an end that counts as lost. What
    /// is packed already is left alone, so a file system that stays full is not copied around.
    fn gather(&mut self, need: Need) -> Result<bool, Error> {
        let least = (self.fs.store.leb_size() / 8).max((INODE_NODE_SIZE + INLINE_DATA_MAX) as u32);
        let least = least.next_multiple_of(self.fs.store.unit());
        let mut committed = false;
        for _ in 0..2 * self.space.len() {
            if self.fits(need) {
                return Ok(true);
            }
            if !self.may_fit(need, least) {
                return Ok(false);
            }
            self.mark_dirty()?;
            match self.collect_one(least) {
                Ok(()) => {}
                Err(Stop::Commit) if !committed => {
                    committed = true;
                    self.commit()?;
                }
                Err(Stop::Commit | Stop::Full) => return Ok(false),
                Err(Stop::Error(error)) => return Err(error),
            }
        }
        Ok(self.fits(need))
    }

    /// Whether there could be room if LEBs with `least` bytes not in use were packed.
    fn may_fit(&self, need: Need, least: u32) -> bool {
        let outstanding = self.outstanding();
        let leaves = outstanding.leaves + need.leaves;
        let index_lebs = self.index_lebs_min(leaves * self.leaf_cost());
        let sums = self.space.sums();
        let leb_size = self.fs.store.leb_size();
        let loose = self.space.lebs().filter(|(_, leb)| {
            !leb.taken
                && !leb.index
                && !leb.reserved
                && leb.used > 0
                && leb_size - leb.used >= least
        });
        let loose: u64 = loose.map(|(_, leb)| u64::from(leb_size - leb.used)).sum();
        let lebs = sums.available_lebs + loose / u64::from(leb_size);
        let bytes = self.available(index_lebs) + sums.dead + sums.dark;
        loose > 0
            && index_lebs.saturating_sub(sums.idx_lebs) <= lebs
            && bytes >= outstanding.bytes + need.bytes
    }

    /// As [`claim`](Self::claim) for what frees more than it takes: room is kept for it.
    pub(super) fn claim_for_removal(&mut self, need: Need) -> Result<(), Error> {
        match self.claim(need) {
            Err(Error::NoSpace) => Ok(()),
            claimed => claimed,
        }
    }

    /// Blocks of content there is room for, as Linux tells `statfs`: in all and left.
    pub(super) fn blocks(&self) -> (u64, u64) {
        let leb_size = u64::from(self.fs.store.leb_size());
        let overhead = leb_size % BLOCK_COST;
        // One LEB for garbage collection, one for deletions, the index's least, the heads'.
        let kept = 1 + 1 + INDEX_LEBS_MIN + JOURNAL_HEADS as u64;
        let all = self.space.len().saturating_sub(kept) * (leb_size - overhead);
        let sums = self.space.sums();
        let outstanding = self.outstanding();
        let index_lebs = self.index_lebs_min(outstanding.leaves * self.leaf_cost());
        let reserved = index_lebs.saturating_sub(sums.idx_lebs);
        let dark_mark =
            ((INODE_NODE_SIZE + INLINE_DATA_MAX) as u32).next_multiple_of(self.fs.store.unit());
        let empty = sums.available_lebs.saturating_sub(reserved);
        // The dark space of empty LEBs can be used, but for what does not divide by a block.
        let more = empty * u64::from(dark_mark).saturating_sub(overhead);
        let left = (self.available(index_lebs) + more).saturating_sub(outstanding.bytes);
        (self.reported(all), self.reported(left))
    }

    /// Blocks of content in so many bytes: each needs a header and its share of the index.
    fn reported(&self, bytes: u64) -> u64 {
        let superblock = &self.fs.store.superblock;
        let half = if superblock.fanout > 3 { u64::from(superblock.fanout >> 1) } else { 2 };
        let share = self.leaf_cost() * 3 / (half - 1);
        u64::try_from(u128::from(bytes) * u128::from(BLOCK_SIZE) / u128::from(BLOCK_COST + share))
            .unwrap_or(u64::MAX)
            / u64::from(BLOCK_SIZE)
    }
}
