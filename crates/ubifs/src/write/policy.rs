//! When there is a commit: all of it.
//!
//! | when | who asks |
//! |---|---|
//! | nodes do not fit into the journal or the log any more | [`StoreMut::write`] |
//! | the journal is nearly full, and an operation is done | [`StoreMut::commit_if_due`] |
//! | there seems to be no room: what waits may take less than was promised, dirt may be collected | [`Files::claim`] |
//! | everything is to be on the flash: sync, the end of a mount | [`Files::commit_all`] |
//! | an opening found no empty LEB for garbage collection | [`StoreMut::make_gc_leb`] |
//!
//! Beside these, recovery and repair end with one: that is what makes their result count.

use alloc::vec::Vec;

use flysch_api::vfs::Error;
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{Node, align8};

use super::Stop;
use super::budget::Need;
use super::files::Files;
use super::heads::auth_size;
use super::store::StoreMut;
use crate::location::Location;

/// Most commits that one operation waits for.
const COMMITS_MAX: u32 = 2;

impl<V: VolumeMut> StoreMut<V> {
    /// Writes nodes of one operation at a journal head, all or none; tells where each lies.
    /// `waiting` is what was promised beside it.
    ///
    /// Makes room first; commits and collects garbage if need be.
    pub(super) fn write(
        &mut self,
        head: usize,
        nodes: &[Node<'_>],
        waiting: Need,
    ) -> Result<Vec<Location>, Error> {
        let length: u32 = nodes.iter().map(|node| align8(node.size() as u32)).sum();
        self.reserve(head, length + auth_size(&self.fs.store), waiting)?;
        self.heads().write(head, nodes)
    }

    /// The same of one node.
    pub(super) fn write_one(
        &mut self,
        head: usize,
        node: Node<'_>,
        waiting: Need,
    ) -> Result<Location, Error> {
        let places = self.write(head, &[node], waiting)?;
        Ok(*places.first().expect("one node has one place"))
    }

    fn reserve(&mut self, head: usize, length: u32, waiting: Need) -> Result<(), Error> {
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

    /// Commits when the journal is nearly full, so that no later operation has to wait in need.
    pub(super) fn commit_if_due(&mut self) -> Result<(), Error> {
        if self.journal.log.wants_commit(self.superblock()) { self.commit() } else { Ok(()) }
    }

    /// Sees to it that a LEB is reserved for garbage collection: one that a commit sets free, or
    /// whose contents go into the free end of another.
    pub(super) fn make_gc_leb(&mut self) -> Result<(), Error> {
        if self.space.gc_leb().is_some() {
            return Ok(());
        }
        self.mark_dirty()?;
        self.commit()?;
        self.space.take_gc_leb(self.master.node.gc_lnum);
        if self.space.gc_leb().is_some() {
            return Ok(());
        }
        let (victim, into) = self.space.squeeze().ok_or(Error::NoSpace)?;
        Ok(self.collector().squeeze(victim, into)?)
    }
}

impl<V: VolumeMut> Files<V> {
    /// Puts everything on the flash, so that nothing of it is in the journal alone.
    pub(super) fn commit_all(&mut self) -> Result<(), Error> {
        self.write_back_all()?;
        self.disk.commit()
    }

    /// Sees to it that there is room; what is in the cache is written, and a commit done, to find
    /// out how much it really is.
    pub(super) fn claim(&mut self, need: Need) -> Result<(), Error> {
        self.disk.writable()?;
        if self.budget().fits(need) {
            return Ok(());
        }
        self.write_back_all()?;
        if !self.budget().fits(need) {
            self.disk.commit()?;
        }
        if self.gather(need)? { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// Moves what is in use together, out of LEBs that are an eighth empty at least, until there is
    /// room: the index needs whole LEBs, and each LEB in use has an end that counts as lost. What
    /// is packed already is left alone, so a file system that stays full is not copied around.
    fn gather(&mut self, need: Need) -> Result<bool, Error> {
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

    /// As [`claim`](Self::claim) for what frees more than it takes: room is kept for it.
    pub(super) fn claim_for_removal(&mut self, need: Need) -> Result<(), Error> {
        match self.claim(need) {
            Err(Error::NoSpace) => Ok(()),
            claimed => claimed,
        }
    }
}
