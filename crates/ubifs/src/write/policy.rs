//! When a commit happens: every case.
//!
//! | when | requested by |
//! |---|---|
//! | nodes no longer fit into the journal or the log | [`StoreMut::write`] |
//! | the journal is nearly full, and an operation has ended | [`StoreMut::commit_if_due`] |
//! | space seems to be short: waiting data may take less than promised, dirt may be collected | [`Files::claim`] |
//! | everything must reach the flash: sync, unmount | [`Files::commit_all`] |
//! | an opening found no empty LEB for garbage collection | [`StoreMut::make_gc_leb`] |
//!
//! Besides these, recovery and repair end with a commit, which makes their result count.

use alloc::vec::Vec;

use flysch_api::vfs::FsError;
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{Node, align8};

use super::Stop;
use super::budget::Need;
use super::files::Files;
use super::heads::auth_size;
use super::store::StoreMut;
use crate::location::Location;

/// Most commits that one operation may wait for.
const COMMITS_MAX: u32 = 2;

impl<V: VolumeMut> StoreMut<V> {
    /// Writes the nodes of one operation at a journal head, all or none; returns their places.
    /// `waiting` is what else has been promised.
    ///
    /// Makes room first; commits and collects garbage if necessary.
    pub(super) fn write(
        &mut self,
        head: usize,
        nodes: &[Node<'_>],
        waiting: Need,
    ) -> Result<Vec<Location>, FsError> {
        let length: u32 = nodes.iter().map(|node| align8(node.size() as u32)).sum();
        self.reserve(head, length + auth_size(&self.fs.store), waiting)?;
        self.heads().write(head, nodes)
    }

    /// The same for one node.
    pub(super) fn write_one(
        &mut self,
        head: usize,
        node: Node<'_>,
        waiting: Need,
    ) -> Result<Location, FsError> {
        let places = self.write(head, &[node], waiting)?;
        Ok(*places.first().expect("one node has one place"))
    }

    fn reserve(&mut self, head: usize, length: u32, waiting: Need) -> Result<(), FsError> {
        self.mark_dirty()?;
        let mut commits = 0;
        while !self.heads().has_room(head, length) {
            let opened = match commits == 0 && self.journal.log.is_full(self.superblock()) {
                true => Err(Stop::Commit),
                false => {
                    let kept = self.budget(waiting).reserved_index_lebs();
                    self.collector().open_bud(head, length, kept)
                }
            };
            match opened {
                Ok(()) => {}
                Err(Stop::Commit | Stop::Full) if commits < COMMITS_MAX => {
                    commits += 1;
                    self.commit()?;
                }
                Err(stop) => return Err(stop.into()),
            }
        }
        Ok(())
    }

    /// Commits when the journal is nearly full, so that no later operation has to wait for it.
    pub(super) fn commit_if_due(&mut self) -> Result<(), FsError> {
        if self.journal.log.wants_commit(self.superblock()) { self.commit() } else { Ok(()) }
    }

    /// Makes sure, as far as there is dirt to collect, that the index finds the empty LEBs reserved
    /// for it. Before a stop, these may have been LEBs emptied by changes that never reached the
    /// flash: what those changes had deleted is in use again.
    pub(super) fn make_index_lebs(&mut self) -> Result<(), FsError> {
        for _ in 0..self.space.len() {
            let reserved = self.budget(Need::default()).reserved_index_lebs();
            if self.space.sums().available_lebs >= reserved {
                break;
            }
            let mut collector = self.collector();
            match collector.collect_one(collector.least()) {
                Ok(()) => {}
                Err(Stop::Commit | Stop::Full) => break,
                Err(Stop::Error(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes sure that a LEB is reserved for garbage collection: one that a commit frees, or one
    /// whose content fits into the free end of another.
    pub(super) fn make_gc_leb(&mut self) -> Result<(), FsError> {
        if self.space.gc_leb().is_some() {
            return Ok(());
        }
        self.mark_dirty()?;
        self.commit()?;
        self.space.take_gc_leb(self.master.node.gc_lnum);
        if self.space.gc_leb().is_some() {
            return Ok(());
        }
        let (victim, into) = self.space.squeeze().ok_or(FsError::NoSpace)?;
        Ok(self.collector().squeeze(victim, into)?)
    }
}

impl<V: VolumeMut> Files<V> {
    /// Commits everything, so that nothing is in the journal alone.
    pub(super) fn commit_all(&mut self) -> Result<(), FsError> {
        self.write_back_all()?;
        self.disk.commit()
    }

    /// Makes sure that there is room. If there seems to be none, writes back the cache and commits,
    /// to find out how much is really needed.
    pub(super) fn claim(&mut self, need: Need) -> Result<(), FsError> {
        self.disk.writable()?;
        if self.budget().fits(need) {
            return Ok(());
        }
        self.write_back_all()?;
        if !self.budget().fits(need) {
            self.disk.commit()?;
        }
        if self.gather(need)? { Ok(()) } else { Err(FsError::NoSpace) }
    }

    /// Packs the nodes in use from LEBs that are at least an eighth empty, until there is room: the
    /// index needs whole LEBs, and the end of each LEB in use counts as lost. Packed LEBs are left
    /// alone, so a file system that stays full is not copied around.
    fn gather(&mut self, need: Need) -> Result<bool, FsError> {
        let least = self.budget().packed();
        let mut committed = false;
        for _ in 0..2 * self.disk.space.len() {
            if self.budget().fits(need) {
                return Ok(true);
            }
            if !self.budget().may_fit(need, least) {
                return Ok(false);
            }
            self.disk.mark_dirty()?;
            match self.disk.collector().collect_one(least) {
                Ok(()) => {}
                Err(Stop::Commit) if !committed => {
                    committed = true;
                    self.disk.commit()?;
                }
                Err(Stop::Commit | Stop::Full) => return Ok(false),
                Err(Stop::Error(error)) => return Err(error),
            }
        }
        Ok(self.budget().fits(need))
    }

    /// As [`claim`](Self::claim), for operations that free more than they take: space is reserved
    /// for them.
    pub(super) fn claim_for_removal(&mut self, need: Need) -> Result<(), FsError> {
        match self.claim(need) {
            Err(FsError::NoSpace) => Ok(()),
            claimed => claimed,
        }
    }
}
