//! The commit: moves everything since the last one into the index.
//!
//! The order ensures that a power cut at any point leaves either the old state with its journal or
//! the new one: write buffers, commit start with the references of the buds that stay open, index
//! nodes, LEB properties, orphans, master node; then the old log, and what only the old index used,
//! is given up. [`policy`](super::policy) decides when to commit.

use flysch_api::vfs::FsError;
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::Master;

use super::heads::Heads;
use super::merge::IndexWriter;
use super::store::StoreMut;
use crate::index::Index;
use crate::location::Location;
use crate::overlay::Overlay;

/// What a commit does with LEBs that have nothing in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdleLebs {
    /// They are erased: the journal says that what they held is deleted.
    Clear,
    /// They are taken only if no erased one is left. That the orphans are deleted which recovery
    /// found is nowhere on the flash before the commit is complete: if power is cut, the next
    /// recovery looks for them again.
    Keep,
}

impl<V: VolumeMut> StoreMut<V> {
    /// Commits all changes.
    pub(super) fn commit(&mut self) -> Result<(), FsError> {
        self.commit_with(IdleLebs::Clear)
    }

    /// Commits what recovery found.
    pub(super) fn commit_recovered(&mut self) -> Result<(), FsError> {
        self.commit_with(IdleLebs::Keep)
    }

    fn commit_with(&mut self, idle: IdleLebs) -> Result<(), FsError> {
        self.writable()?;
        if !self.changed && !self.fs.store.access.volume.appended {
            return Ok(());
        }
        let done = self.commit_steps(idle);
        if done.is_err() {
            // Half a commit cannot be undone in memory; on the flash it never happened.
            self.fs.store.access.give_up();
        }
        done
    }

    fn commit_steps(&mut self, idle: IdleLebs) -> Result<(), FsError> {
        self.mark_dirty()?;
        self.sync_heads()?;
        if idle == IdleLebs::Clear {
            self.clear_idle_lebs()?;
        }
        let commit = self.master.node.commit + 1;
        let mut heads = Heads { store: &mut self.fs.store, space: &mut self.space };
        let started = self.journal.start(&mut heads, commit)?;
        let root = self.write_index()?;
        self.space.leave_index_lebs(self.index.at.0);
        let mut master = self.master.node;
        master.commit = commit;
        master.log_lnum = started.log_start;
        (master.root_lnum, master.root_offs, master.root_len) =
            (root.lnum, root.offset, root.length);
        (master.ihead_lnum, master.ihead_offs) = self.index.at;
        master.index_size = self.index.size;
        master.highest_inode = self.numbers.highest_inode;
        master.gc_lnum = self.space.gc_leb().unwrap_or(u32::MAX);
        self.space.fill_master(&mut master);
        self.write_lpt(&mut master)?;
        self.sign(&mut master, root);
        master.flags = self.orphans.write(&mut self.fs.store, commit, master.flags)?;
        self.believable()?;
        self.master.write(&mut self.fs.store, master)?;
        self.switch_index(root);
        self.changed = false;
        self.fs.store.access.volume.appended = false;
        let mut heads = Heads { store: &mut self.fs.store, space: &mut self.space };
        self.journal.finish(&mut heads, started)?;
        for lnum in self.space.left().into_iter().chain(self.lpt.finish()) {
            self.fs.store.access.unmap_leb(lnum)?;
        }
        Ok(())
    }

    fn write_index(&mut self) -> Result<Location, FsError> {
        let (store, space) = (&mut self.fs.store, &mut self.space);
        #[cfg_attr(not(test), expect(unused_mut))]
        let mut writer = IndexWriter::new(store, space, &mut self.index);
        #[cfg(test)]
        {
            writer.empty_lebs = self.empty_lebs;
        }
        writer.write()
    }

    /// Erases data LEBs with nothing in use.
    fn clear_idle_lebs(&mut self) -> Result<(), FsError> {
        for lnum in self.space.idle() {
            self.fs.store.access.unmap_leb(lnum)?;
            self.space.erased(lnum);
        }
        Ok(())
    }

    fn write_lpt(&mut self, master: &mut Master) -> Result<(), FsError> {
        let most = self.fs.store.superblock.lsave_count as usize;
        let pieces = self.lpt.commit(&self.space.properties(), &self.space.interesting(most))?;
        for piece in pieces {
            if piece.offset == 0 {
                self.fs.store.access.clear_leb(piece.lnum)?;
            }
            self.fs.store.access.write_leb(piece.lnum, piece.offset, &piece.bytes)?;
        }
        self.lpt.fill_master(master);
        Ok(())
    }

    /// Stores the hashes of index and LEB properties in a master node.
    fn sign(&self, master: &mut Master, root: Location) {
        let store = &self.fs.store;
        if let Some(auth) = &store.auth {
            master.root_hash = store.hash_of(root).padded();
            master.lpt_hash = self.lpt.hash(auth.algorithm()).padded();
        }
    }

    /// Makes the index just written the committed one, with an empty overlay.
    fn switch_index(&mut self, root: Location) {
        let store = &mut self.fs.store;
        let root_hash = store.hash_of(root);
        let (format, fanout) = (store.format(), store.superblock.fanout as usize);
        match &mut store.index {
            Some(index) => index.moved(root, root_hash, self.index.size),
            index => *index = Some(Index::new(root, format, fanout, self.index.size)),
        }
        store.overlay = Overlay::default();
        if let Some(auth) = &mut store.auth {
            auth.forget();
        }
        self.index.growth = 0;
    }
}
