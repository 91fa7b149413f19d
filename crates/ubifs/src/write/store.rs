//! What there is below files: nodes on the flash, and everything that says where they lie.

use flysch_api::vfs::{Damage, Error, FileKind};
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{EntryKind, Group, Key, Node, SUPERBLOCK_HMAC, SUPERBLOCK_LEB};
use flysch_wire::ubifs::{MasterFlags, SUPERBLOCK_NODE_SIZE, Superblock};

use super::budget::{Budget, Need};
use super::buffered::{Buffered, pad};
use super::cache::Record;
use super::collect::Collector;
use super::heads::Heads;
use super::journal::Journal;
use super::master::MasterArea;
use super::merge::IndexState;
use super::numbers::Numbers;
use super::orphans::Orphans;
use super::space::Space;
use super::tnc::Tnc;
use crate::access::Scratch;
use crate::location::Location;
use crate::lpt::Lpt;
use crate::open::Ubifs;
use crate::store::Store;

/// The store of a file system that is written.
///
/// Each part has a type of its own that holds what only it changes; [`Heads`], [`Tnc`],
/// [`Collector`] and [`IndexWriter`](super::merge::IndexWriter) borrow the parts that one kind of
/// step changes together.
#[derive(Debug)]
pub(super) struct StoreMut<V> {
    /// Reading: the flash with its write buffers, the committed index, the overlay.
    pub(super) fs: Ubifs<Buffered<V>>,
    pub(super) space: Space,
    pub(super) journal: Journal,
    pub(super) index: IndexState,
    pub(super) lpt: Lpt,
    pub(super) master: MasterArea,
    pub(super) orphans: Orphans,
    pub(super) numbers: Numbers,
    /// Something changed since the last commit, or waits to.
    pub(super) changed: bool,
    /// Tests: commits find no empty LEB for the index as long as there are gaps.
    #[cfg(test)]
    pub(super) only_gaps: bool,
}

impl<V: VolumeMut> StoreMut<V> {
    pub(super) fn store(&self) -> &Store<Buffered<V>> {
        &self.fs.store
    }

    pub(super) fn superblock(&self) -> &Superblock {
        &self.fs.store.superblock
    }

    /// Refuses when the flash refused, or what is known of space contradicts itself.
    pub(super) fn writable(&self) -> Result<(), Error> {
        self.fs.store.access.writable()?;
        self.believable()
    }

    /// Refuses when what is known of space contradicts itself.
    pub(super) fn believable(&self) -> Result<(), Error> {
        let (structure, place) = ("LEB properties", Default::default());
        let cause = Damage::Field("free and dirty bytes");
        if self.space.is_astray() {
            Err(Error::Damaged { structure, place, cause })
        } else {
            Ok(())
        }
    }

    pub(super) fn heads(&mut self) -> Heads<'_, V> {
        Heads { store: &mut self.fs.store, space: &mut self.space }
    }

    pub(super) fn collector(&mut self) -> Collector<'_, V> {
        let heads = Heads { store: &mut self.fs.store, space: &mut self.space };
        Collector { heads, journal: &mut self.journal }
    }

    fn tnc(&mut self) -> Tnc<'_, V> {
        let growth = &mut self.index.growth;
        Tnc { store: &mut self.fs.store, space: &mut self.space, growth }
    }

    /// What there is to be promised, beside what `waiting` was.
    pub(super) fn budget(&self, waiting: Need) -> Budget<'_> {
        let superblock = &self.fs.store.superblock;
        Budget { superblock, space: &self.space, index: self.index, waiting }
    }

    /// An inode as it was written last, of whatever use.
    pub(super) fn inode(&self, number: u32) -> Result<Record, Error> {
        let store = &self.fs.store;
        let at = store.find(Key::inode_node(number))?.ok_or(Error::NotFound)?;
        let mut scratch = Scratch::new();
        let node = store.inode(number, at, &mut scratch)?;
        if FileKind::from_mode(node.mode).is_none() {
            return Err(self.fs.bad_inode(at, "mode"));
        }
        Ok(Record::new(&node))
    }

    /// The node of an inode or data key lies at `at` now.
    pub(super) fn set(&mut self, key: Key, at: Location) -> Result<(), Error> {
        self.tnc().set(key, at)
    }

    /// The entry of a name lies at `at` now, or the name is gone.
    pub(super) fn set_name(
        &mut self,
        kind: EntryKind,
        (parent, name): (u32, &[u8]),
        at: Option<Location>,
    ) -> Result<(), Error> {
        self.tnc().set_name(kind, parent, name, at)
    }

    /// Nothing from `first` to `last` is there any more.
    pub(super) fn remove_range(&mut self, first: Key, last: Key) -> Result<(), Error> {
        self.tnc().remove_range(first, last)
    }

    /// Deletes an inode with everything that hangs on it.
    pub(super) fn remove_inode(&mut self, inode: u32) -> Result<(), Error> {
        self.tnc().remove_inode(inode)
    }

    pub(super) fn sync_heads(&mut self) -> Result<(), Error> {
        self.heads().sync_heads()
    }

    /// Says on the flash that it is in use, so that the next opening looks for torn writes.
    pub(super) fn mark_dirty(&mut self) -> Result<(), Error> {
        self.writable()?;
        self.master.mark_dirty(&mut self.fs.store)
    }

    /// A file that was written without links waits to be forgotten.
    pub(super) fn note_orphan(&mut self, inode: u32) {
        self.orphans.note(inode, self.master.node.commit);
    }

    /// Whether no more files without a name can be kept.
    pub(super) fn has_orphans_enough(&self) -> bool {
        self.orphans.is_full(self.fs.store.layout.orphans.len(), self.fs.store.leb_size())
    }

    pub(super) fn write_superblock(&mut self) -> Result<(), Error> {
        let store = &mut self.fs.store;
        let mut bytes = alloc::vec![0; SUPERBLOCK_NODE_SIZE];
        if let Some(hmac) = store.auth.as_ref().and_then(|auth| auth.well_known()) {
            store.superblock.hmac_wkm = hmac.padded();
        }
        let node = Node::Superblock(store.superblock);
        node.emit(store.access.next_sequence(), Group::None, &mut bytes);
        if let Some(auth) = &store.auth {
            auth.sign(&mut bytes, SUPERBLOCK_HMAC.start);
        }
        pad(&mut bytes, store.unit() as usize);
        store.access.change_leb(SUPERBLOCK_LEB, &bytes)
    }

    /// Leaves a clean file system, everything of which was committed; gives the volume back.
    pub(super) fn close(mut self) -> Result<V, Error> {
        if self.master.is_dirty() {
            // What the commit gave up is gone before nobody looks for it any more.
            self.fs.store.access.sync_volume()?;
            let mut node = self.master.node;
            node.flags.0 &= !(MasterFlags::DIRTY.0 | MasterFlags::RECOVERY.0);
            node.gc_lnum = self.space.gc_leb().unwrap_or(u32::MAX);
            self.master.write(&mut self.fs.store, node)?;
            self.fs.store.access.sync_volume()?;
        }
        Ok(self.fs.store.access.volume.into_flash())
    }
}
