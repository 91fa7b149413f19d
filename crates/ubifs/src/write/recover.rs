//! Writes back what an unclean stop left: torn ends, the log, sizes that follow the data.

use alloc::vec::Vec;

use flysch_api::vfs::FsError;
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::Node;

use super::BASE;
use super::budget::Need;
use super::buffered::pad;
use super::store::StoreMut;
use crate::replay::{BudEnd, FoundLog};

/// The recovery of a file system being opened.
#[derive(Debug)]
pub(super) struct Recovery<'d, V> {
    pub(super) disk: &'d mut StoreMut<V>,
}

impl<V: VolumeMut> Recovery<'_, V> {
    /// Writes back torn ends as they were first read.
    pub(super) fn write_back(&mut self, ends: &[BudEnd], log: &FoundLog) -> Result<(), FsError> {
        let buds = self.disk.journal.buds.clone();
        for (bud, end) in buds.iter().zip(ends) {
            // A write cut short may look erased, or read well just once: rewrite it.
            if end.is_torn || end.is_last {
                let end = self.disk.fs.store.cut_leb(bud.lnum, end.at)?;
                let free = self.disk.fs.store.leb_size() - end;
                self.disk.space.change(bud.lnum, |leb| leb.free = free);
            }
        }
        let (lnum, offset) = self.disk.index.at;
        if offset < self.disk.fs.store.leb_size() {
            self.disk.fs.store.cut_leb(lnum, offset)?;
        }
        let head = self.disk.lpt.head();
        if head.offset < self.disk.fs.store.leb_size() {
            self.disk.fs.store.cut_leb(head.lnum, head.offset)?;
        }
        let idle: Vec<u32> = self.disk.lpt.idle_lebs().filter(|lnum| *lnum != head.lnum).collect();
        for lnum in idle {
            self.disk.fs.store.access.clear_leb(lnum)?;
        }
        self.recover_log(log)
    }

    /// Rewrites the log into its first LEB, so that the start of an interrupted commit is not in
    /// the way.
    fn recover_log(&mut self, log: &FoundLog) -> Result<(), FsError> {
        let mut nodes = log.nodes.clone();
        pad(&mut nodes, self.disk.fs.store.unit() as usize);
        let tail = self.disk.journal.log.tail;
        let mut used = alloc::vec![tail];
        if nodes.len() <= self.disk.fs.store.leb_size() as usize {
            self.disk.fs.store.access.change_leb(tail, &nodes)?;
            self.disk.journal.log.head = (tail, nodes.len() as u32);
        } else {
            // Keep it as it is up to its last node.
            let (lnum, _) = log.head;
            self.disk.journal.log.head = (lnum, self.disk.fs.store.cut_leb(lnum, log.end)?);
            while used.last() != Some(&lnum) {
                used.push(self.disk.journal.log.next(used[used.len() - 1]));
            }
        }
        for lnum in self.disk.fs.store.layout.log.clone() {
            if !used.contains(&lnum) {
                self.disk.fs.store.access.clear_leb(lnum)?;
            }
        }
        Ok(())
    }

    /// Commits what recovery found: sizes that follow the data, deleted files.
    pub(super) fn finish(&mut self) -> Result<(), FsError> {
        self.disk.changed = true;
        // No commit may come before the sizes are written, so the journal may exceed its usual
        // length.
        self.disk.journal.log.bud_bytes = 0;
        for (inode, size) in core::mem::take(&mut self.disk.fs.store.sizes) {
            let mut record = self.disk.inode(inode)?;
            record.node.size = size;
            let at = self.disk.write_one(BASE, Node::Inode(record.node()), Need::default())?;
            self.disk.set(record.key(), at)?;
        }
        self.empty_lebs_hold_nothing()?;
        self.disk.make_index_lebs()?;
        self.disk.commit_recovered()
    }

    /// Clears the LEBs that count as empty. Their content was given up before the stop, but UBI may
    /// still have it, or what is left of it after an erase that power loss cut short: a fastmap
    /// does not show that.
    fn empty_lebs_hold_nothing(&mut self) -> Result<(), FsError> {
        for lnum in self.disk.space.erased_lebs(self.disk.index.at.0) {
            self.disk.fs.store.access.clear_leb(lnum)?;
        }
        Ok(())
    }
}
