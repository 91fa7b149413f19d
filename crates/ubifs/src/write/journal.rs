//! The journal: buds, and the log that refers to them.

use alloc::vec::Vec;
use core::ops::Range;

use flysch_api::vfs::FsError;
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{
    COMMIT_START_NODE_SIZE, CommitStart, Group, JOURNAL_HEADS, Node, REFERENCE_NODE_SIZE,
    Reference, Superblock,
};

use super::Stop;
use super::buffered::pad;
use super::heads::Heads;
use crate::replay::Bud;

/// Where the log is written: a ring of LEBs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Log {
    /// The LEBs of the log.
    ring: Range<u32>,
    /// The oldest LEB in use; it begins with the commit start node.
    pub(super) tail: u32,
    /// Where the next reference goes.
    pub(super) head: (u32, u32),
    /// Bytes in the buds that the log refers to.
    pub(super) bud_bytes: u64,
}

impl Log {
    pub(super) fn new(ring: Range<u32>, tail: u32) -> Self {
        Self { ring, tail, head: (tail, 0), bud_bytes: 0 }
    }

    /// The LEB after this one in the ring.
    pub(super) fn next(&self, lnum: u32) -> u32 {
        if lnum + 1 < self.ring.end { lnum + 1 } else { self.ring.start }
    }

    /// Where a reference of `size` bytes goes; `None` if a commit must come first.
    fn place(&self, size: u32, leb_size: u32) -> Option<(u32, u32)> {
        let (lnum, offset) = self.head;
        if offset + size <= leb_size {
            return Some(self.head);
        }
        let lnum = self.next(lnum);
        // One LEB of the log is reserved for the commit.
        (lnum != self.tail && self.next(lnum) != self.tail).then_some((lnum, 0))
    }

    /// Whether another bud would exceed the journal's maximum size.
    pub(super) fn is_full(&self, superblock: &Superblock) -> bool {
        self.bud_bytes + u64::from(superblock.leb_size) > superblock.bud_bytes_max
    }

    /// Whether it is time for a commit, before anyone has to wait for one.
    pub(super) fn wants_commit(&self, superblock: &Superblock) -> bool {
        // `bg_bud_bytes`: 13/16 of the journal.
        self.bud_bytes > superblock.bud_bytes_max / 16 * 13
    }
}

/// The log as a commit started it.
pub(super) struct Started {
    /// The LEB it starts in.
    pub(super) log_start: u32,
    /// The buds that stay open.
    open: Vec<Bud>,
}

/// The journal since the last commit.
#[derive(Clone, Debug)]
pub(super) struct Journal {
    pub(super) log: Log,
    /// The buds that the log refers to.
    pub(super) buds: Vec<Bud>,
}

impl Journal {
    /// Moves a head to the LEB found for it.
    pub(super) fn switch_head<V: VolumeMut>(
        &mut self,
        heads: &mut Heads<'_, V>,
        head: usize,
        (lnum, offset): (u32, u32),
    ) -> Result<(), Stop> {
        // Only the last bud of a head may end in a torn write: finish the old one first.
        heads.sync_head(head)?;
        self.refer(heads, Bud { lnum, start: offset, head: head as u32 })?;
        heads.space.change(lnum, |leb| {
            leb.taken = true;
            leb.reserved = false;
        });
        heads.store.access.volume.seek(head, Some(lnum), offset);
        Ok(())
    }

    /// Adds a reference to a bud to the log, before the bud is used.
    fn refer<V: VolumeMut>(&mut self, heads: &mut Heads<'_, V>, bud: Bud) -> Result<(), Stop> {
        let (leb_size, unit) = (heads.store.leb_size(), heads.store.unit());
        let size = (REFERENCE_NODE_SIZE as u32).next_multiple_of(unit);
        let (lnum, offset) = self.log.place(size, leb_size).ok_or(Stop::Commit)?;
        if bud.start == 0 {
            // Old content must not reappear under a reference.
            if heads.store.access.is_mapped(bud.lnum) {
                // Whatever made the old content obsolete must be on the flash first.
                heads.sync_heads()?;
                heads.store.access.unmap_leb(bud.lnum)?;
            }
            heads.store.access.map_leb(bud.lnum)?;
        }
        let store = &mut *heads.store;
        if offset == 0 {
            store.access.clear_leb(lnum)?;
        }
        let mut bytes = alloc::vec![0; REFERENCE_NODE_SIZE];
        reference(bud).emit(store.access.next_sequence(), Group::None, &mut bytes);
        if let Some(auth) = &mut store.auth {
            auth.log(&bytes);
            auth.open_bud(bud.head as usize);
        }
        pad(&mut bytes, unit as usize);
        store.access.write_leb(lnum, offset, &bytes)?;
        self.log.head = (lnum, offset + size);
        self.log.bud_bytes += u64::from(leb_size - bud.start);
        self.buds.push(bud);
        Ok(())
    }

    /// Starts a new LEB of the log for commit `commit`, with references to the buds that stay open.
    pub(super) fn start<V: VolumeMut>(
        &mut self,
        heads: &mut Heads<'_, V>,
        commit: u64,
    ) -> Result<Started, FsError> {
        let log_start = match self.log.head {
            (lnum, 0) => lnum,
            (lnum, _) => self.log.next(lnum),
        };
        let store = &mut *heads.store;
        let leb_size = store.leb_size();
        let mut bytes = alloc::vec![0; COMMIT_START_NODE_SIZE];
        let start = Node::CommitStart(CommitStart { commit });
        start.emit(store.access.next_sequence(), Group::None, &mut bytes);
        if let Some(auth) = &mut store.auth {
            auth.restart_log();
            auth.log(&bytes);
        }
        let mut open = Vec::new();
        for head in 0..JOURNAL_HEADS {
            let state = &store.access.volume.heads[head];
            let (Some(lnum), offset) = (state.lnum, state.end()) else { continue };
            if offset == leb_size {
                store.access.volume.seek(head, None, 0);
                continue;
            }
            let bud = Bud { lnum, start: offset, head: head as u32 };
            open.push(bud);
            let at = bytes.len();
            bytes.resize(at + REFERENCE_NODE_SIZE, 0);
            let sequence = store.access.next_sequence();
            reference(bud).emit(sequence, Group::None, &mut bytes[at..]);
            if let Some(auth) = &mut store.auth {
                auth.log(&bytes[at..]);
                auth.open_bud(head);
            }
        }
        pad(&mut bytes, store.unit() as usize);
        store.access.clear_leb(log_start)?;
        store.access.write_leb(log_start, 0, &bytes)?;
        self.log.head = (log_start, bytes.len() as u32);
        self.log.bud_bytes = open.iter().map(|bud| u64::from(leb_size - bud.start)).sum();
        Ok(Started { log_start, open })
    }

    /// Completes the commit that started the log: frees old buds for collection, drops the old log.
    pub(super) fn finish<V: VolumeMut>(
        &mut self,
        heads: &mut Heads<'_, V>,
        started: Started,
    ) -> Result<(), FsError> {
        for bud in &self.buds {
            heads.space.change(bud.lnum, |leb| leb.taken = false);
        }
        for bud in &started.open {
            heads.space.change(bud.lnum, |leb| leb.taken = true);
        }
        self.buds = started.open;
        let mut lnum = self.log.tail;
        while lnum != started.log_start {
            heads.store.access.unmap_leb(lnum)?;
            lnum = self.log.next(lnum);
        }
        self.log.tail = started.log_start;
        Ok(())
    }
}

fn reference(bud: Bud) -> Node<'static> {
    Node::Reference(Reference { lnum: bud.lnum, offset: bud.start, head: bud.head })
}

#[cfg(test)]
mod tests {
    use super::Log;

    #[test]
    fn the_log_is_a_ring_that_keeps_a_leb_for_the_commit() {
        let mut log = Log::new(3..7, 5);
        assert_eq!((log.next(5), log.next(6)), (6, 3));
        assert_eq!(log.place(512, 4096), Some((5, 0)));
        log.head = (5, 4096);
        assert_eq!(log.place(512, 4096), Some((6, 0)));
        log.head = (6, 3584);
        assert_eq!(log.place(512, 4096), Some((6, 3584)), "to the last byte");
        log.head = (6, 3585);
        assert_eq!(log.place(512, 4096), Some((3, 0)));
        // LEB 4 is the last one before the tail: a commit needs it.
        log.head = (3, 4096);
        assert_eq!(log.place(512, 4096), None);
    }
}
