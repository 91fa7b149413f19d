//! The journal's heads: append nodes to their LEBs and account for the space.

use alloc::vec::Vec;

use flysch_api::vfs::FsError;
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{Group, JOURNAL_HEADS, Node, align8};

use super::buffered::Buffered;
use super::space::Space;
use super::{BASE, DATA, GC};
use crate::location::Location;
use crate::store::{Store, is_kept};

/// Exactly what appending to the journal changes: the flash with its write buffers, and the
/// accounting of the main area's LEBs.
#[derive(Debug)]
pub(super) struct Heads<'s, V> {
    pub(super) store: &'s mut Store<Buffered<V>>,
    pub(super) space: &'s mut Space,
}

/// Bytes of the node that follows each operation in an authenticated file system; else 0.
pub(super) fn auth_size<V>(store: &Store<Buffered<V>>) -> u32 {
    store.auth.as_ref().map_or(0, |auth| auth.node_size())
}

impl<V: VolumeMut> Heads<'_, V> {
    /// Writes the nodes of one operation at a head with room for them; returns their places.
    pub(super) fn write(
        &mut self,
        head: usize,
        nodes: &[Node<'_>],
    ) -> Result<Vec<Location>, FsError> {
        let length: u32 = nodes.iter().map(|node| align8(node.size() as u32)).sum();
        let mut bytes = alloc::vec![0; (length + auth_size(self.store)) as usize];
        let mut at = 0;
        let (lnum, start) = self.store.access.volume.end_of(head);
        let mut places = Vec::with_capacity(nodes.len());
        for (number, node) in nodes.iter().enumerate() {
            let group = match number + 1 == nodes.len() {
                _ if head != BASE => Group::None,
                true => Group::Last,
                false => Group::More,
            };
            let sequence = self.store.access.next_sequence();
            let length = node.emit(sequence, group, &mut bytes[at..]) as u32;
            places.push(Location { lnum, offset: start + at as u32, length });
            at += align8(length) as usize;
        }
        if self.store.auth.is_some() {
            self.authenticate(head, &places, (&mut bytes, at));
        }
        self.append(head, &bytes)?;
        if let Some(leaves) = &self.store.access.leaves {
            let kept = places.iter().zip(nodes).filter(|(_, node)| is_kept(node.kind()));
            for (at, _) in kept {
                let from = (at.offset - start) as usize;
                leaves.put(*at, &bytes[from..from + at.length as usize]);
            }
        }
        Ok(places)
    }

    /// Puts an authentication node after the nodes of an operation.
    fn authenticate(&mut self, head: usize, places: &[Location], (bytes, end): (&mut [u8], usize)) {
        let start = places.first().map_or(0, |first| first.offset);
        let sequence = self.store.access.next_sequence();
        let Some(auth) = &mut self.store.auth else { return };
        for at in places {
            auth.journal(head, *at, &bytes[(at.offset - start) as usize..]);
        }
        auth.emit(head, sequence, &mut bytes[end..]);
    }

    /// Puts an authentication node after the nodes that garbage collection moved.
    pub(super) fn authenticate_moved(&mut self) -> Result<(), FsError> {
        let mut bytes = alloc::vec![0; auth_size(self.store) as usize];
        self.authenticate(GC, &[], (&mut bytes, 0));
        self.append(GC, &bytes).map(drop)
    }

    /// Appends whole nodes to a head with room for them; returns where they begin.
    pub(super) fn append(&mut self, head: usize, bytes: &[u8]) -> Result<Location, FsError> {
        let at = self.store.access.append(head, bytes)?;
        self.space.change(at.lnum, |leb| leb.free = leb.free.wrapping_sub(at.length));
        Ok(at)
    }

    /// Writes a head's buffered data to the flash.
    pub(super) fn sync_head(&mut self, head: usize) -> Result<(), FsError> {
        let Some((lnum, end)) = self.store.access.sync_head(head)? else { return Ok(()) };
        let free = self.store.leb_size() - end;
        self.space.change(lnum, |leb| leb.free = free);
        Ok(())
    }

    pub(super) fn sync_heads(&mut self) -> Result<(), FsError> {
        (0..JOURNAL_HEADS).try_for_each(|head| self.sync_head(head))
    }

    /// Whether a head's LEB has room for `length` more bytes.
    pub(super) fn has_room(&self, head: usize, length: u32) -> bool {
        let head = &self.store.access.volume.heads[head];
        head.lnum.is_some() && head.end() + length <= self.store.leb_size()
    }

    /// A LEB with room at its end, and where that room begins; `kept` empty LEBs are left for the
    /// index.
    pub(super) fn find_space(
        &mut self,
        head: usize,
        length: u32,
        kept: u64,
    ) -> Result<Option<(u32, u32)>, FsError> {
        // Names and inodes fill up partly used LEBs; content prefers whole LEBs.
        if head == DATA
            && let Some(empty) = self.find_empty(kept)
        {
            return Ok(Some(empty));
        }
        match self.find_partial(length)? {
            None if head != DATA => Ok(self.find_empty(kept)),
            partial => Ok(partial),
        }
    }

    fn find_partial(&mut self, length: u32) -> Result<Option<(u32, u32)>, FsError> {
        let (leb_size, unit) = (self.store.leb_size(), self.store.unit());
        loop {
            let Some((lnum, offset)) = self.space.partial(length) else { return Ok(None) };
            let access = &self.store.access;
            if offset.is_multiple_of(unit) && access.is_untouched(lnum, offset, (leb_size, unit))? {
                return Ok(Some((lnum, offset)));
            }
            // The supposedly free space was written to: count it as dirt.
            self.space.change(lnum, |leb| leb.free = 0);
        }
    }

    /// An empty LEB that the index does not need.
    fn find_empty(&mut self, kept: u64) -> Option<(u32, u32)> {
        if kept >= self.space.sums().available_lebs {
            return None;
        }
        Some((self.space.empty_leb()?, 0))
    }
}
