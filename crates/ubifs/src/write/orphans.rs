//! Files without names that are still in use.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use flysch_api::vfs::FsError;
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{Group, MasterFlags, Node, ORPHAN_NODE_SIZE, Orphans as OrphanNode};

use super::buffered::{Buffered, pad};
use crate::store::Store;

/// The orphans, each with the number of the last commit before it lost its last name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Orphans(BTreeMap<u32, u64>);

/// Orphans that fit into a LEB of the orphan area.
fn orphans_of_leb(leb_size: u32) -> usize {
    (leb_size as usize - ORPHAN_NODE_SIZE) / 8
}

impl Orphans {
    /// Whether `lebs` LEBs of the orphan area can hold no more.
    pub(super) fn is_full(&self, lebs: usize, leb_size: u32) -> bool {
        self.0.len() >= orphans_of_leb(leb_size) * lebs
    }

    /// Records that a file lost its last name after commit `commit`.
    pub(super) fn note(&mut self, inode: u32, commit: u64) {
        self.0.insert(inode, commit);
    }

    /// The last commit before a file lost its last name, if it is an orphan.
    pub(super) fn since(&self, inode: u32) -> Option<u64> {
        self.0.get(&inode).copied()
    }

    pub(super) fn forget(&mut self, inode: u32) {
        self.0.remove(&inode);
    }

    pub(super) fn inodes(&self) -> Vec<u32> {
        self.0.keys().copied().collect()
    }

    /// Writes the list for a commit; returns the flags for the master node.
    pub(super) fn write<V: VolumeMut>(
        &self,
        store: &mut Store<Buffered<V>>,
        commit: u64,
        flags: MasterFlags,
    ) -> Result<MasterFlags, FsError> {
        let (leb_size, unit) = (store.leb_size(), store.unit() as usize);
        let inodes: Vec<u8> =
            self.0.keys().flat_map(|inode| u64::from(*inode).to_le_bytes()).collect();
        let mut lebs = store.layout.orphans.clone();
        let mut parts = inodes.chunks(8 * orphans_of_leb(leb_size)).peekable();
        while let (Some(part), Some(lnum)) = (parts.next(), lebs.next()) {
            let node = Node::Orphans(OrphanNode::new(commit, parts.peek().is_none(), part));
            let mut bytes = alloc::vec![0; node.size()];
            node.emit(store.access.next_sequence(), Group::None, &mut bytes);
            pad(&mut bytes, unit);
            store.access.change_leb(lnum, &bytes)?;
        }
        for lnum in lebs {
            store.access.clear_leb(lnum)?;
        }
        let none = MasterFlags::NO_ORPHANS.0;
        Ok(MasterFlags(if self.0.is_empty() { flags.0 | none } else { flags.0 & !none }))
    }
}

#[cfg(test)]
mod tests {
    use super::Orphans;

    #[test]
    fn an_area_takes_so_many() {
        let mut orphans = Orphans::default();
        // A node has 32 bytes before its 4 numbers.
        let leb_size = 64;
        for inode in 100..107 {
            orphans.note(inode, 3);
            assert!(!orphans.is_full(2, leb_size));
        }
        orphans.note(107, 4);
        assert!(orphans.is_full(2, leb_size));
        assert_eq!((orphans.since(107), orphans.since(99)), (Some(4), None));
        orphans.forget(100);
        assert!(!orphans.is_full(2, leb_size));
        assert_eq!(orphans.inodes()[0], 101);
    }
}
