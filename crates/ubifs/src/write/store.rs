//! The layer below files: nodes on the flash, and everything that says where they lie.

use flysch_api::vfs::{Damage, FileKind, FsError};
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

/// The store of a file system open for writing.
///
/// Each part has its own type for the state that only it changes; [`Heads`], [`Tnc`], [`Collector`]
/// and [`IndexWriter`](super::merge::IndexWriter) borrow the parts that one kind of step changes
/// together.
#[derive(Debug)]
pub(super) struct StoreMut<V> {
    /// The reading side: the flash with its write buffers, the committed index, the overlay.
    pub(super) fs: Ubifs<Buffered<V>>,
    pub(super) space: Space,
    pub(super) journal: Journal,
    pub(super) index: IndexState,
    pub(super) lpt: Lpt,
    pub(super) master: MasterArea,
    pub(super) orphans: Orphans,
    pub(super) numbers: Numbers,
    /// Whether anything has changed since the last commit, or is waiting to.
    pub(super) changed: bool,
    /// Tests: a commit treats no more than this many LEBs as empty for the index while there are
    /// gaps.
    #[cfg(test)]
    pub(super) empty_lebs: Option<u32>,
}

impl<V: VolumeMut> StoreMut<V> {
    pub(super) fn store(&self) -> &Store<Buffered<V>> {
        &self.fs.store
    }

    pub(super) fn superblock(&self) -> &Superblock {
        &self.fs.store.superblock
    }

    /// Fails once the flash has refused a change, or if the accounting of space is contradictory.
    pub(super) fn writable(&self) -> Result<(), FsError> {
        self.fs.store.access.writable()?;
        self.believable()
    }

    /// Fails if the accounting of space is contradictory.
    pub(super) fn believable(&self) -> Result<(), FsError> {
        let (structure, place) = ("LEB properties", Default::default());
        let cause = Damage::Field("free and dirty bytes");
        if self.space.is_astray() {
            Err(FsError::Damaged { structure, place, cause })
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

    /// The space that can be promised besides `waiting`.
    pub(super) fn budget(&self, waiting: Need) -> Budget<'_> {
        let superblock = &self.fs.store.superblock;
        Budget { superblock, space: &self.space, index: self.index, waiting }
    }

    /// The inode with this number as written last, including those of attribute values.
    pub(super) fn inode(&self, number: u32) -> Result<Record, FsError> {
        let store = &self.fs.store;
        let at = store.find(Key::inode_node(number))?.ok_or(FsError::NotFound)?;
        let mut scratch = Scratch::new();
        let node = store.inode(number, at, &mut scratch)?;
        if FileKind::from_mode(node.mode).is_none() {
            return Err(self.fs.bad_inode(at, "mode"));
        }
        Ok(Record::new(&node))
    }

    /// Sets the place of the node of an inode or data key.
    pub(super) fn set(&mut self, key: Key, at: Location) -> Result<(), FsError> {
        let done = self.tnc().set(key, at);
        self.taken_over(done)
    }

    /// Sets the place of a name's entry, or deletes the name.
    pub(super) fn set_name(
        &mut self,
        kind: EntryKind,
        (parent, name): (u32, &[u8]),
        at: Option<Location>,
    ) -> Result<(), FsError> {
        let done = self.tnc().set_name(kind, parent, name, at);
        self.taken_over(done)
    }

    /// Removes everything from `first` to `last`.
    pub(super) fn remove_range(&mut self, first: Key, last: Key) -> Result<(), FsError> {
        let done = self.tnc().remove_range(first, last);
        self.taken_over(done)
    }

    /// Deletes an inode with everything that belongs to it.
    pub(super) fn remove_inode(&mut self, inode: u32) -> Result<(), FsError> {
        let done = self.tnc().remove_inode(inode);
        self.taken_over(done)
    }

    /// What could not be taken over is in the journal all the same: nothing may be written after
    /// it, which would be by what is known here.
    fn taken_over(&mut self, done: Result<(), FsError>) -> Result<(), FsError> {
        if done.is_err() {
            self.fs.store.access.give_up();
        }
        done
    }

    pub(super) fn sync_heads(&mut self) -> Result<(), FsError> {
        self.heads().sync_heads()
    }

    /// Marks the file system as in use, so that the next opening looks for torn writes.
    pub(super) fn mark_dirty(&mut self) -> Result<(), FsError> {
        self.writable()?;
        self.master.mark_dirty(&mut self.fs.store)
    }

    /// Records that a file was written without links and is still in use.
    pub(super) fn note_orphan(&mut self, inode: u32) {
        self.orphans.note(inode, self.master.node.commit);
    }

    /// Whether no more files without names can be kept.
    pub(super) fn has_orphans_enough(&self) -> bool {
        self.orphans.is_full(self.fs.store.layout.orphans.len(), self.fs.store.leb_size())
    }

    pub(super) fn write_superblock(&mut self) -> Result<(), FsError> {
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

    /// Marks the committed file system as clean; returns the volume.
    pub(super) fn close(mut self) -> Result<V, FsError> {
        if self.master.is_dirty() {
            // LEBs that the commit gave up must be erased first: after a clean stop, the next
            // opening does not look for them.
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
