//! The commit: everything since the last one becomes part of the index.
//!
//! Order, so that a power cut at any point leaves the old state with its journal or the new one:
//! write buffers, commit start with the references of the buds that stay open, index nodes, LEB
//! properties, orphans, master node; then the old log and what the old index alone used is given
//! up.

use alloc::vec::Vec;

use flysch_api::vfs::Error;
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{
    CommitStart, Group, MASTER_HMAC, MASTER_LEB, MASTER_NODE_SIZE, Master, MasterFlags, Node,
    ORPHAN_NODE_SIZE, Orphans, REFERENCE_NODE_SIZE, Reference,
};

use super::UbifsMut;
use crate::index::Index;
use crate::overlay::Overlay;
use crate::replay::Bud;

impl<V: VolumeMut> UbifsMut<V> {
    /// Commits what changed.
    pub(super) fn commit(&mut self) -> Result<(), Error> {
        self.writable()?;
        if !self.changed {
            return Ok(());
        }
        let done = self.commit_steps();
        // Half a commit in memory has no way back; on the flash it never happened.
        if done.is_err() {
            self.fs.store.access.give_up();
        }
        done
    }

    fn commit_steps(&mut self) -> Result<(), Error> {
        self.mark_dirty()?;
        self.sync_heads()?;
        self.free_lebs()?;
        let (log_start, open) = self.start_log()?;
        let root = self.write_index()?;
        self.leave_index_lebs();
        let mut master = self.master;
        master.commit += 1;
        master.log_lnum = log_start;
        (master.root_lnum, master.root_offs, master.root_len) =
            (root.lnum, root.offset, root.length);
        (master.ihead_lnum, master.ihead_offs) = self.index_head;
        master.index_size = self.index_size;
        master.highest_inode = self.highest_inode;
        master.gc_lnum = self.gc_leb().unwrap_or(u32::MAX);
        self.space.fill_master(&mut master);
        self.write_lpt(&mut master)?;
        let root_hash = self.hash_of(root);
        if let Some(auth) = &self.fs.store.auth {
            master.root_hash = root_hash.padded();
            master.lpt_hash = self.lpt.hash(auth.algorithm()).padded();
        }
        self.write_orphans(&mut master)?;
        self.believable()?;
        self.write_master(master)?;
        let (format, fanout) = (self.fs.store.format(), self.fs.store.superblock.fanout as usize);
        match &mut self.fs.store.index {
            Some(index) => index.moved(root, root_hash, self.index_size),
            index => *index = Some(Index::new(root, format, fanout, self.index_size)),
        }
        self.fs.store.overlay = Overlay::default();
        if let Some(auth) = &mut self.fs.store.auth {
            auth.forget();
        }
        self.index_growth = 0;
        self.changed = false;
        self.give_up_old(log_start, open)
    }

    /// Data LEBs that hold nothing in use become empty.
    fn free_lebs(&mut self) -> Result<(), Error> {
        let leb_size = self.fs.store.leb_size();
        let idle = self.space.lebs().filter(|(_, leb)| leb.is_available() && leb.free < leb_size);
        let idle: Vec<u32> = idle.map(|(lnum, _)| lnum).collect();
        for lnum in idle {
            self.fs.store.access.unmap_leb(lnum)?;
            self.space.change(lnum, |leb| leb.free = leb_size);
        }
        Ok(())
    }

    /// Starts a new LEB of the log; the buds that stay open are referred to again.
    fn start_log(&mut self) -> Result<(u32, Vec<Bud>), Error> {
        let lnum = match self.log.head {
            (lnum, 0) => lnum,
            (lnum, _) => self.next_log_leb(lnum),
        };
        let leb_size = self.fs.store.leb_size();
        let mut bytes = alloc::vec![0; flysch_wire::ubifs::COMMIT_START_NODE_SIZE];
        let commit = self.master.commit + 1;
        let start = Node::CommitStart(CommitStart { commit });
        start.emit(self.fs.store.access.next_sequence(), Group::None, &mut bytes);
        if let Some(auth) = &mut self.fs.store.auth {
            auth.restart_log();
            auth.log(&bytes);
        }
        let mut open = Vec::new();
        for head in 0..self.fs.store.access.volume.heads.len() {
            let state = &self.fs.store.access.volume.heads[head];
            let (Some(lnum), offset) = (state.lnum, state.end()) else { continue };
            if offset == leb_size {
                self.fs.store.access.volume.seek(head, None, 0);
                continue;
            }
            open.push(Bud { lnum, start: offset, head: head as u32 });
            let reference = Node::Reference(Reference { lnum, offset, head: head as u32 });
            let at = bytes.len();
            bytes.resize(at + REFERENCE_NODE_SIZE, 0);
            reference.emit(self.fs.store.access.next_sequence(), Group::None, &mut bytes[at..]);
            if let Some(auth) = &mut self.fs.store.auth {
                auth.log(&bytes[at..]);
                auth.open_bud(head);
            }
        }
        super::buffered::pad(&mut bytes, self.fs.store.unit() as usize);
        self.fs.store.access.clear_leb(lnum)?;
        self.fs.store.access.write_leb(lnum, 0, &bytes)?;
        self.log.head = (lnum, bytes.len() as u32);
        self.log.bud_bytes = open.iter().map(|bud| u64::from(leb_size - bud.start)).sum();
        Ok((lnum, open))
    }

    /// Index LEBs that only the old index uses are empty from the new one on.
    fn leave_index_lebs(&mut self) {
        let leb_size = self.fs.store.leb_size();
        let head = self.index_head.0;
        let idle = |lnum: u32, leb: &super::space::Leb| leb.index && leb.used == 0 && lnum != head;
        let idle = self.space.lebs().filter(|(lnum, leb)| idle(*lnum, leb)).map(|it| it.0);
        let idle: Vec<u32> = idle.collect();
        for lnum in idle {
            self.space.change(lnum, |leb| {
                leb.index = false;
                leb.free = leb_size;
            });
            self.leaving.insert(lnum);
        }
    }

    fn write_lpt(&mut self, master: &mut Master) -> Result<(), Error> {
        let properties = self.space.properties();
        let leb_size = self.fs.store.leb_size();
        let worth = |leb: &super::space::Leb| !leb.index && leb.used < leb_size;
        let interesting = self.space.lebs().filter(|(_, leb)| worth(leb)).map(|it| it.0);
        let most = self.fs.store.superblock.lsave_count as usize;
        let interesting: Vec<u32> = interesting.take(most).collect();
        let pieces = self.lpt.commit(&properties, &interesting).map_err(|_| Error::NoSpace)?;
        for piece in pieces {
            if piece.offset == 0 {
                self.fs.store.access.clear_leb(piece.lnum)?;
            }
            self.fs.store.access.write_leb(piece.lnum, piece.offset, &piece.bytes)?;
        }
        self.lpt.fill_master(master);
        Ok(())
    }

    /// Most orphans the area holds.
    pub(super) fn orphans_max(&self) -> usize {
        self.orphans_of_leb() * self.fs.store.layout.orphans.len()
    }

    fn orphans_of_leb(&self) -> usize {
        (self.fs.store.leb_size() as usize - ORPHAN_NODE_SIZE) / 8
    }

    /// Writes the list of files that have no name and are still in use.
    fn write_orphans(&mut self, master: &mut Master) -> Result<(), Error> {
        let unit = self.fs.store.unit() as usize;
        let inodes: Vec<u8> =
            self.orphans.keys().flat_map(|inode| u64::from(*inode).to_le_bytes()).collect();
        let mut lebs = self.fs.store.layout.orphans.clone();
        let mut parts = inodes.chunks(8 * self.orphans_of_leb()).peekable();
        while let (Some(part), Some(lnum)) = (parts.next(), lebs.next()) {
            let node = Node::Orphans(Orphans::new(master.commit, parts.peek().is_none(), part));
            let mut bytes = alloc::vec![0; node.size()];
            node.emit(self.fs.store.access.next_sequence(), Group::None, &mut bytes);
            super::buffered::pad(&mut bytes, unit);
            self.fs.store.access.change_leb(lnum, &bytes)?;
        }
        for lnum in lebs {
            self.fs.store.access.clear_leb(lnum)?;
        }
        let none = MasterFlags::NO_ORPHANS.0;
        let flags = &mut master.flags.0;
        *flags = if self.orphans.is_empty() { *flags | none } else { *flags & !none };
        Ok(())
    }

    /// A master node, signed if it has to be.
    pub(super) fn emit_master(&mut self, master: Master) -> Vec<u8> {
        let mut bytes = alloc::vec![0; MASTER_NODE_SIZE];
        Node::Master(master).emit(self.fs.store.access.next_sequence(), Group::None, &mut bytes);
        if let Some(auth) = &self.fs.store.auth {
            auth.sign(&mut bytes, MASTER_HMAC.start);
        }
        bytes
    }

    /// Writes the master node behind the last one, first copy first.
    pub(super) fn write_master(&mut self, master: Master) -> Result<(), Error> {
        let size = (MASTER_NODE_SIZE as u32).next_multiple_of(self.fs.store.unit());
        let mut offset = self.master_at + size;
        if offset + size > self.fs.store.leb_size() {
            offset = 0;
        }
        let mut bytes = self.emit_master(master);
        super::buffered::pad(&mut bytes, self.fs.store.unit() as usize);
        for lnum in [MASTER_LEB, MASTER_LEB + 1] {
            if offset == 0 {
                self.fs.store.access.unmap_leb(lnum)?;
            }
            self.fs.store.access.write_leb(lnum, offset, &bytes)?;
        }
        (self.master, self.master_at) = (master, offset);
        if let Some(chosen) = &mut self.fs.master {
            (chosen.master, chosen.offset) = (master, offset);
        }
        Ok(())
    }

    /// Says on the flash that it is in use, so that the next opening looks for torn writes.
    pub(super) fn mark_dirty(&mut self) -> Result<(), Error> {
        self.writable()?;
        if self.master.flags.contains(MasterFlags::DIRTY) {
            return Ok(());
        }
        let flags = MasterFlags(self.master.flags.0 | MasterFlags::DIRTY.0);
        self.write_master(Master { flags, ..self.master })
    }

    /// The new state counts: what only the old one used goes.
    fn give_up_old(&mut self, log_start: u32, open: Vec<Bud>) -> Result<(), Error> {
        for bud in core::mem::take(&mut self.fs.buds) {
            self.space.change(bud.lnum, |leb| leb.taken = false);
        }
        for bud in &open {
            self.space.change(bud.lnum, |leb| leb.taken = true);
        }
        self.fs.buds = open;
        let mut lnum = self.log.tail;
        while lnum != log_start {
            self.fs.store.access.unmap_leb(lnum)?;
            lnum = self.next_log_leb(lnum);
        }
        self.log.tail = log_start;
        for lnum in core::mem::take(&mut self.leaving) {
            self.fs.store.access.unmap_leb(lnum)?;
        }
        for lnum in self.lpt.finish() {
            self.fs.store.access.unmap_leb(lnum)?;
        }
        Ok(())
    }

    /// Writes everything, deletes what has no name, and leaves a clean file system; gives the
    /// volume back.
    ///
    /// # Errors
    /// [`Error::Medium`] and [`Error::ReadOnly`] when the flash refuses, now or before.
    pub fn close(mut self) -> Result<V, Error> {
        let orphans: Vec<u32> = self.orphans.keys().copied().collect();
        for inode in orphans {
            self.forget_orphan(inode)?;
        }
        self.write_back_all()?;
        self.commit()?;
        if self.master.flags.contains(MasterFlags::DIRTY) {
            // What the commit gave up is gone before nobody looks for it any more.
            self.fs.store.access.sync_volume()?;
            let gone = MasterFlags::DIRTY.0 | MasterFlags::RECOVERY.0;
            let flags = MasterFlags(self.master.flags.0 & !gone);
            let gc_lnum = self.gc_leb().unwrap_or(u32::MAX);
            self.write_master(Master { flags, gc_lnum, ..self.master })?;
            self.fs.store.access.sync_volume()?;
        }
        Ok(self.fs.store.access.volume.into_flash())
    }
}
