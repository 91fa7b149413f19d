//! The journal: room for nodes, buds, the log.

use alloc::vec::Vec;

use flysch_api::vfs::Error;
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{Group, Node, REFERENCE_NODE_SIZE, Reference, align8};

use super::{BASE, Stop, UbifsMut};
use crate::access::Location;
use crate::replay::Bud;
use crate::store::is_kept;

/// Where the log is being written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Log {
    /// Oldest LEB in use: it starts with the commit.
    pub(super) tail: u32,
    /// Where the next reference goes.
    pub(super) head: (u32, u32),
    /// Bytes of journal that the log's references stand for.
    pub(super) bud_bytes: u64,
}

impl<V: VolumeMut> UbifsMut<V> {
    /// Writes nodes of one operation, all or none; tells where each lies.
    pub(super) fn journal(
        &mut self,
        head: usize,
        nodes: &[Node<'_>],
    ) -> Result<Vec<Location>, Error> {
        let length: u32 = nodes.iter().map(|node| align8(node.size() as u32)).sum();
        let length = length + self.auth_size();
        self.reserve(head, length)?;
        let mut bytes = alloc::vec![0; length as usize];
        let mut at = 0;
        let mut places = Vec::with_capacity(nodes.len());
        for (number, node) in nodes.iter().enumerate() {
            let group = match number + 1 == nodes.len() {
                _ if head != BASE => Group::None,
                true => Group::Last,
                false => Group::More,
            };
            let size =
                node.emit(self.fs.store.access.next_sequence(), group, &mut bytes[at..]) as u32;
            places.push((at as u32, size));
            at += align8(size) as usize;
        }
        let (lnum, start) = self.fs.store.access.volume.end_of(head);
        let place = |(offset, length)| Location { lnum, offset: start + offset, length };
        let places: Vec<Location> = places.into_iter().map(place).collect();
        if self.fs.store.auth.is_some() {
            self.authenticate(head, &places, (&mut bytes, at));
        }
        self.append(head, &bytes)?;
        if let Some(leaves) = &self.fs.store.access.leaves {
            let kept = places.iter().zip(nodes).filter(|(_, node)| is_kept(node.kind()));
            for (at, _) in kept {
                let from = (at.offset - start) as usize;
                leaves.put(*at, &bytes[from..from + at.length as usize]);
            }
        }
        Ok(places)
    }

    /// Bytes of the node that goes behind those of each operation in authenticated file systems.
    pub(super) fn auth_size(&self) -> u32 {
        self.fs.store.auth.as_ref().map_or(0, |auth| auth.node_size())
    }

    /// Puts an authentication node behind the nodes of an operation.
    fn authenticate(&mut self, head: usize, places: &[Location], (bytes, end): (&mut [u8], usize)) {
        let start = places.first().map_or(0, |first| first.offset);
        let sequence = self.fs.store.access.next_sequence();
        let Some(auth) = &mut self.fs.store.auth else { return };
        for at in places {
            auth.journal(head, *at, &bytes[(at.offset - start) as usize..]);
        }
        auth.emit(head, sequence, &mut bytes[end..]);
    }

    /// Puts an authentication node behind what garbage collection has moved.
    pub(super) fn authenticate_moved(&mut self) -> Result<(), Error> {
        let mut bytes = alloc::vec![0; self.auth_size() as usize];
        self.authenticate(super::GC, &[], (&mut bytes, 0));
        self.append(super::GC, &bytes).map(drop)
    }

    /// Appends whole nodes to a head that has room; tells where they begin.
    pub(super) fn append(&mut self, head: usize, bytes: &[u8]) -> Result<Location, Error> {
        self.changed = true;
        let at = self.fs.store.access.append(head, bytes)?;
        self.space.change(at.lnum, |leb| leb.free = leb.free.wrapping_sub(at.length));
        Ok(at)
    }

    /// Puts what a head holds back on the flash.
    pub(super) fn sync_head(&mut self, head: usize) -> Result<(), Error> {
        let Some((lnum, end)) = self.fs.store.access.sync_head(head)? else { return Ok(()) };
        let free = self.fs.store.leb_size() - end;
        self.space.change(lnum, |leb| leb.free = free);
        Ok(())
    }

    pub(super) fn sync_heads(&mut self) -> Result<(), Error> {
        (0..self.fs.store.access.volume.heads.len()).try_for_each(|head| self.sync_head(head))
    }

    /// Whether a head's LEB takes this many bytes more.
    pub(super) fn has_room(&self, head: usize, length: u32) -> bool {
        let head = &self.fs.store.access.volume.heads[head];
        head.lnum.is_some() && head.end() + length <= self.fs.store.leb_size()
    }

    /// Makes room for `length` bytes at a head; commits and collects garbage if need be.
    fn reserve(&mut self, head: usize, length: u32) -> Result<(), Error> {
        self.mark_dirty()?;
        let mut commits = 0;
        while !self.has_room(head, length) {
            match self.open_bud(head, length, commits > 0) {
                Ok(()) => {}
                Err(Stop::Commit | Stop::Full) if commits < 2 => {
                    commits += 1;
                    self.commit()?;
                }
                Err(Stop::Commit | Stop::Full) => return Err(Error::NoSpace),
                Err(Stop::Error(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives a head a LEB with room for `length` bytes.
    fn open_bud(&mut self, head: usize, length: u32, committed: bool) -> Result<(), Stop> {
        if !committed && self.journal_is_full() {
            return Err(Stop::Commit);
        }
        let (lnum, offset) = match self.find_space(head, length) {
            Some(place) => place,
            None => self.collect_for(head, length)?,
        };
        self.switch_head(head, lnum, offset)
    }

    /// Whether another LEB would make the journal longer than it may be.
    fn journal_is_full(&self) -> bool {
        let most = self.fs.store.superblock.bud_bytes_max;
        self.log.bud_bytes + u64::from(self.fs.store.leb_size()) > most
    }

    /// Whether it is time for a commit that nobody has to wait for.
    pub(super) fn wants_commit(&self) -> bool {
        // `bg_bud_bytes`: 13/16 of the journal.
        self.log.bud_bytes > self.fs.store.superblock.bud_bytes_max / 16 * 13
    }

    /// Moves a head to a LEB that was found for it.
    pub(super) fn switch_head(&mut self, head: usize, lnum: u32, offset: u32) -> Result<(), Stop> {
        // Only the last bud of a head may end in a torn write: the old one is finished first.
        self.sync_head(head)?;
        self.refer(Bud { lnum, start: offset, head: head as u32 })?;
        self.space.change(lnum, |leb| {
            leb.taken = true;
            leb.reserved = false;
        });
        self.fs.store.access.volume.seek(head, Some(lnum), offset);
        Ok(())
    }

    /// Tells the log of a bud, before it is used.
    fn refer(&mut self, bud: Bud) -> Result<(), Stop> {
        let unit = self.fs.store.unit();
        let size = (REFERENCE_NODE_SIZE as u32).next_multiple_of(unit);
        let (mut lnum, mut offset) = self.log.head;
        if offset + size > self.fs.store.leb_size() {
            lnum = self.next_log_leb(lnum);
            // One LEB of the log is kept for the commit.
            if lnum == self.log.tail || self.next_log_leb(lnum) == self.log.tail {
                return Err(Stop::Commit);
            }
            offset = 0;
        }
        if bud.start == 0 {
            // Older content must not come back under a reference.
            if self.fs.store.access.is_mapped(bud.lnum) {
                // What made the old content needless must not be only in memory.
                self.sync_heads()?;
                self.fs.store.access.unmap_leb(bud.lnum)?;
            }
            self.fs.store.access.map_leb(bud.lnum)?;
        }
        if offset == 0 {
            self.fs.store.access.clear_leb(lnum)?;
        }
        let reference =
            Node::Reference(Reference { lnum: bud.lnum, offset: bud.start, head: bud.head });
        let mut bytes = alloc::vec![0; REFERENCE_NODE_SIZE];
        reference.emit(self.fs.store.access.next_sequence(), Group::None, &mut bytes);
        if let Some(auth) = &mut self.fs.store.auth {
            auth.log(&bytes);
            auth.open_bud(bud.head as usize);
        }
        super::buffered::pad(&mut bytes, unit as usize);
        self.fs.store.access.write_leb(lnum, offset, &bytes)?;
        self.log.head = (lnum, offset + size);
        self.log.bud_bytes += u64::from(self.fs.store.leb_size() - bud.start);
        self.fs.buds.push(bud);
        Ok(())
    }

    pub(super) fn next_log_leb(&self, lnum: u32) -> u32 {
        let log = &self.fs.store.layout.log;
        if lnum + 1 < log.end { lnum + 1 } else { log.start }
    }

    /// A LEB with room at its end, and where that begins.
    pub(super) fn find_space(&mut self, head: usize, length: u32) -> Option<(u32, u32)> {
        // Names and inodes fill up what is left somewhere; content takes whole LEBs if it can.
        let partial_first = head != super::DATA;
        for partial in [partial_first, !partial_first] {
            let found = if partial { self.find_partial(length) } else { self.find_empty() };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn find_partial(&mut self, length: u32) -> Option<(u32, u32)> {
        loop {
            let leb_size = self.fs.store.leb_size();
            let fits = |leb: &super::space::Leb| {
                leb.free >= length && leb.used > 0 && !leb.taken && !leb.reserved && !leb.index
            };
            let lebs = self.space.lebs().filter(|(_, leb)| fits(leb));
            let (lnum, leb) = lebs.min_by_key(|(_, leb)| leb.free)?;
            let offset = leb_size - leb.free;
            if offset.is_multiple_of(self.fs.store.unit())
                && self.fs.store.access.is_untouched(lnum, offset, (leb_size, self.fs.store.unit()))
            {
                return Some((lnum, offset));
            }
            // What is said to be free is not: it is dirt.
            self.space.change(lnum, |leb| leb.free = 0);
        }
    }

    /// An empty LEB that the index does not need.
    fn find_empty(&mut self) -> Option<(u32, u32)> {
        if self.reserved_index_lebs() >= self.space.sums().available_lebs {
            return None;
        }
        let lnum = self.empty_leb()?;
        Some((lnum, 0))
    }

    /// A LEB with nothing in use. What is in it is given up.
    pub(super) fn empty_leb(&mut self) -> Option<u32> {
        let available = |leb: &super::space::Leb| leb.is_available();
        let leb_size = self.fs.store.leb_size();
        let (lnum, _) = self
            .space
            .lebs()
            .filter(|(lnum, leb)| available(leb) && !self.leaving.contains(lnum))
            .max_by_key(|(_, leb)| leb.free == leb_size)?;
        self.space.change(lnum, |leb| leb.free = leb_size);
        Some(lnum)
    }

    /// The LEB reserved for garbage collection.
    pub(super) fn gc_leb(&self) -> Option<u32> {
        self.space.lebs().find(|(_, leb)| leb.reserved).map(|(lnum, _)| lnum)
    }
}
