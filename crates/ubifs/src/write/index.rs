//! Writing index nodes: evenly filled, at the index head or into gaps.

use alloc::vec::Vec;

use flysch_api::vfs::FsError;
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{
    Branch, Group, INDEX_NODE_SIZE, Index as IndexNode, Node, NodeKind, align8,
};

use super::buffered::pad;
use super::merge::{Entry, IndexWriter};
use crate::access::Cause;
use crate::location::Location;

impl<V: VolumeMut> IndexWriter<'_, V> {
    /// Writes evenly filled nodes over `entries`; their branches go to `out`.
    pub(super) fn write_nodes(
        &mut self,
        level: u16,
        entries: &mut Vec<Entry>,
        out: &mut Vec<Entry>,
    ) -> Result<(), FsError> {
        let fanout = self.store.superblock.fanout as usize;
        let nodes = entries.len().div_ceil(fanout);
        let mut rest = entries.as_slice();
        for node in 0..nodes {
            let (part, behind) = rest.split_at(rest.len().div_ceil(nodes - node));
            out.push(self.write_node(level, part)?);
            rest = behind;
        }
        entries.clear();
        Ok(())
    }

    /// Adds levels until there is one node.
    pub(super) fn write_top(
        &mut self,
        mut level: u16,
        mut entries: Vec<Entry>,
    ) -> Result<Location, FsError> {
        loop {
            // A root with a single child is not needed: the child becomes the root.
            if level > 0 && entries.len() == 1 {
                return Ok(entries[0].at);
            }
            let mut above = Vec::new();
            self.write_nodes(level, &mut entries, &mut above)?;
            match above[..] {
                [] => return Err(FsError::Invalid("the file system would have no root directory")),
                [root] => return Ok(root.at),
                _ => (level, entries) = (level + 1, above),
            }
        }
    }

    /// Writes one index node.
    fn write_node(&mut self, level: u16, entries: &[Entry]) -> Result<Entry, FsError> {
        let format = self.store.format();
        let mut branches = alloc::vec![0; entries.len() * format.branch_size()];
        for (entry, out) in entries.iter().zip(branches.chunks_exact_mut(format.branch_size())) {
            let Location { lnum, offset, length } = entry.at;
            let hash = match &self.store.auth {
                Some(auth) => match auth.known(entry.at) {
                    Some(hash) => hash.bytes(),
                    None => return Err(self.unproven(entry.at)),
                },
                None => &[],
            };
            Branch { lnum, offset, length, key: entry.key, hash }.write(out);
        }
        let node = Node::Index(IndexNode::new(level, format, &branches));
        let length = (INDEX_NODE_SIZE + branches.len()) as u32;
        let mut bytes = alloc::vec![0; align8(length) as usize];
        node.emit(self.store.access.next_sequence(), Group::None, &mut bytes);
        let (lnum, offset) = self.put_index(&bytes)?;
        let at = Location { lnum, offset, length };
        // Cached, because the next lookups and the next commit need it.
        if let Some(index) = &self.store.index {
            index.keep(at, &bytes[..length as usize]);
        }
        if let Some(auth) = &mut self.store.auth {
            auth.know(at, auth.hash(&bytes[..length as usize]));
        }
        self.space.acquire(at);
        self.index.size += u64::from(align8(length));
        Ok(Entry { key: entries[0].key, at })
    }

    fn unproven(&self, at: Location) -> FsError {
        self.store.fault(at, NodeKind::Index, Cause::Unproven).into()
    }

    /// Finds a place for an index node and writes it there.
    fn put_index(&mut self, bytes: &[u8]) -> Result<(u32, u32), FsError> {
        let length = bytes.len() as u32;
        if self.index.at.1 + length > self.store.leb_size() {
            let Some(lnum) = self.next_index_leb() else { return self.put_full(bytes) };
            self.flush_index()?;
            self.store.access.clear_leb(lnum)?;
            self.space.change(lnum, |leb| leb.index = true);
            self.index.at = (lnum, 0);
            self.start = 0;
        }
        let (lnum, offset) = self.index.at;
        self.written.insert(lnum);
        self.buffer.extend_from_slice(bytes);
        self.index.at = (lnum, offset + length);
        self.space.change(lnum, |leb| leb.free = leb.free.wrapping_sub(length));
        Ok((lnum, offset))
    }

    /// Places an index node when no LEB is empty.
    fn put_full(&mut self, bytes: &[u8]) -> Result<(u32, u32), FsError> {
        // A new index that replaces the old one entirely leaves the old LEBs untouched.
        if self.store.index.is_none() {
            return Err(FsError::NoSpace);
        }
        let put = self.put_in_gap(bytes);
        #[cfg(test)]
        if put == Err(FsError::NoSpace) && self.empty_lebs.is_some() && !self.no_gaps {
            self.no_gaps = true;
            return self.put_index(bytes);
        }
        put
    }

    /// An empty LEB to continue in.
    fn next_index_leb(&mut self) -> Option<u32> {
        #[cfg(test)]
        if let Some(left) = self.empty_lebs.as_mut().filter(|_| !self.no_gaps) {
            *left = left.checked_sub(1)?;
        }
        self.space.empty_leb()
    }

    /// Writes what is buffered for the index head, padded.
    pub(super) fn flush_index(&mut self) -> Result<(), FsError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        pad(&mut self.buffer, self.store.unit() as usize);
        let (lnum, _) = self.index.at;
        let bytes = core::mem::take(&mut self.buffer);
        self.store.access.write_leb(lnum, self.start, &bytes)?;
        let end = self.start + bytes.len() as u32;
        self.start = end;
        self.index.at = (lnum, end);
        let free = self.store.leb_size() - end;
        self.space.change(lnum, |leb| leb.free = free);
        Ok(())
    }
}
