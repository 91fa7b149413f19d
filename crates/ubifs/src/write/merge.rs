//! The next index: the committed one with the overlay merged in.
//!
//! Copy on write, children before parents. Only nodes are read that have changes below them; a node
//! whose content stays keeps its place. Neighbours that change are packed together, so a tree does
//! not grow thin under deletions.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use flysch_api::vfs::Error;
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{
    Branch, Group, INDEX_NODE_SIZE, Index as IndexNode, Key, Node, NodeKind, align8,
};

use super::{Stop, UbifsMut};
use crate::access::{Cause, Fault, Location, Scratch};
use crate::auth::Digest;
use crate::index::location;
use crate::overlay::NameChange;
use crate::store::Store;

/// A branch: the smallest key below it, and where it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) at: Location,
}

/// A committed index node and the keys that belong below it.
#[derive(Clone, Copy)]
struct Child {
    at: Location,
    /// New keys from here on ...
    low: Key,
    /// ... and below this are its; `None`: no bound.
    high: Option<Key>,
}

impl Child {
    /// The last key that a committed leaf below it can have.
    fn last(&self) -> Key {
        match self.high {
            // Names with one hash may begin in one node and end in the next.
            Some(high) if high.is_hash() => high,
            Some(high) => high.previous(),
            None => Key::MAX,
        }
    }
}

/// What became of a node.
enum Merged {
    /// It stays where it is.
    Same,
    /// It is replaced by nodes with these branches; its level.
    Changed(u16, Vec<Entry>),
}

/// What is written during one commit.
pub(super) struct Writing {
    /// Index LEBs whose nodes all move, so that the LEBs become free.
    pub(super) moving: BTreeSet<u32>,
    /// First keys of the nodes in them.
    keys: BTreeSet<Key>,
    /// Bytes of the index head's LEB not written yet, and where they begin.
    buffer: Vec<u8>,
    start: u32,
    /// A LEB whose gaps are being filled.
    pub(super) gaps: Option<super::gaps::Gaps>,
    /// LEBs whose gaps were filled: what is new in them is not to be overwritten.
    pub(super) filled: BTreeSet<u32>,
    #[cfg(test)]
    no_gaps: bool,
}

impl Writing {
    /// Nothing written yet; the index head's LEB goes on at `start`.
    pub(super) fn new(start: u32) -> Self {
        Self {
            moving: BTreeSet::new(),
            keys: BTreeSet::new(),
            buffer: Vec::new(),
            start,
            gaps: None,
            filled: BTreeSet::new(),
            #[cfg(test)]
            no_gaps: false,
        }
    }
}

impl<V: VolumeMut> UbifsMut<V> {
    /// Writes the index with the overlay in it; tells where its root is.
    pub(super) fn write_index(&mut self) -> Result<Location, Error> {
        self.settle_names()?;
        let Some(root) = self.fs.store.index.as_ref().map(|index| index.root) else {
            return self.write_whole_index();
        };
        let (moving, keys) = self.choose_moving()?;
        let start = self.index_head.1;
        let mut writing = Writing { moving, keys, ..Writing::new(start) };
        let whole = Child { at: root, low: Key::MIN, high: None };
        let merged = self.merge(&mut writing, whole, 0)?;
        let root = match merged {
            Merged::Same => root,
            Merged::Changed(level, entries) => self.write_top(&mut writing, level, entries)?,
        };
        self.finish_gaps(&mut writing)?;
        self.flush_index(&mut writing)?;
        Ok(root)
    }

    /// Puts the names of one hash in order and all of them into the overlay, so that none is to be
    /// found among committed ones: Linux looks for a name in the order of names.
    fn settle_names(&mut self) -> Result<(), Error> {
        let keys: Vec<Key> = self.fs.store.overlay.name_keys().collect();
        for key in keys {
            let mut others = Vec::new();
            let store = &self.fs.store;
            store.committed((key, key), &mut |_, at| {
                if !store.overlay.is_replaced(key, at) {
                    others.push(at);
                }
                ControlFlow::Continue(())
            })?;
            let kind = crate::store::kind_of(key);
            let mut added = Vec::new();
            for at in others {
                let mut scratch = Scratch::new();
                let name = self.fs.store.entry(kind, key, at, &mut scratch)?.name.into();
                added.push(NameChange { name, location: Some(at), replaces: Some(at) });
            }
            if let Some(names) = self.fs.store.overlay.names_of_mut(key) {
                names.extend(added);
                names.sort_by(|one, other| one.name.cmp(&other.name));
            }
        }
        Ok(())
    }

    /// Index LEBs that are mostly dirt, as many as there is room to empty: in the LEB that is being
    /// written, in some of the empty ones, and without any in the gaps of the others. The budget
    /// counts on it: of the LEBs of an index all that it does not need are promised to content.
    fn choose_moving(&mut self) -> Result<(BTreeSet<u32>, BTreeSet<Key>), Error> {
        let leb_size = self.fs.store.leb_size();
        let (mut moving, mut keys) = (BTreeSet::new(), BTreeSet::new());
        let needed = self.index_size.div_ceil(u64::from(leb_size)) + 1;
        if self.space.sums().idx_lebs <= needed + needed / 2 {
            return Ok((moving, keys));
        }
        let (head, end) = self.index_head;
        let others = |(lnum, leb): &(u32, &super::space::Leb)| leb.index && *lnum != head;
        let others = || self.space.lebs().filter(others);
        let spare = self.space.sums().available_lebs.saturating_sub(2).min(4);
        let gaps = |leb: &super::space::Leb| if spare == 0 { leb_size - leb.used } else { 0 };
        let mut left = u64::from(leb_size - end) + spare * u64::from(leb_size);
        left += others().map(|(_, leb)| u64::from(gaps(leb))).sum::<u64>();
        // Nodes above those that move are written as well.
        left /= 2;
        let mut lebs: Vec<(u32, u32, u32)> = others()
            .filter(|(_, leb)| (1..leb_size / 2).contains(&leb.used))
            .map(|(lnum, leb)| (leb.used, lnum, gaps(leb)))
            .collect();
        lebs.sort_unstable();
        for (used, lnum, gaps) in lebs {
            // What moves does not go into the gaps that it leaves.
            let Some(rest) = left.checked_sub(u64::from(used) + u64::from(gaps) / 2) else { break };
            left = rest;
            for node in self.index_nodes_in(lnum)? {
                keys.insert(node.key);
            }
            moving.insert(lnum);
        }
        Ok((moving, keys))
    }

    /// Reads a committed index node.
    pub(super) fn index_node(&mut self, at: Location) -> Result<(u16, Vec<Entry>), Error> {
        let mut scratch = Scratch::new();
        let hash = self.hash_of(at);
        let Store { access, index, auth, superblock, .. } = &mut self.fs.store;
        let (header, bytes) = match index {
            Some(index) => index.node(access, (at, hash.bytes()), &mut scratch)?,
            None => access.index_node(at, hash.bytes(), &mut scratch)?,
        };
        let bad = |cause| {
            let place = access.place(at.lnum, at.offset);
            Error::from(Fault { structure: NodeKind::Index.name(), place, cause })
        };
        match Node::decode(header, bytes, superblock.branch_format()) {
            Ok(Node::Index(node)) => {
                if let Some(auth) = auth {
                    for branch in node.branches() {
                        auth.learn(location(&branch), branch.hash);
                    }
                }
                let entries = node.branches().map(|it| Entry { key: it.key, at: location(&it) });
                Ok((node.level, entries.collect()))
            }
            Ok(_) => Err(bad(Cause::Mismatch("key"))),
            Err(error) => Err(bad(Cause::Node(error))),
        }
    }

    fn touches(&self, writing: &Writing, child: &Child) -> bool {
        let (first, last) = (child.low, child.last());
        self.fs.store.overlay.touches(first, last)
            || writing.keys.range(first..=last).next().is_some()
    }

    fn merge(&mut self, writing: &mut Writing, node: Child, depth: u32) -> Result<Merged, Error> {
        /// More levels than a tree verified at opening has.
        const DEPTH_MAX: u32 = 64;
        if depth > DEPTH_MAX {
            return Err(self.fs.store.mismatch(node.at, NodeKind::Index).into());
        }
        let (level, entries) = self.index_node(node.at)?;
        let (changed, entries) = if level == 0 {
            self.merge_leaves(&node, entries)
        } else {
            self.merge_children(writing, &node, (level, depth), entries)?
        };
        if !changed && !writing.moving.contains(&node.at.lnum) {
            return Ok(Merged::Same);
        }
        if let Some(index) = &self.fs.store.index {
            index.forget(node.at);
        }
        self.space.release(node.at);
        // The master node of a damaged image may have told too little.
        self.index_size = self.index_size.saturating_sub(u64::from(align8(node.at.length)));
        Ok(Merged::Changed(level, entries))
    }

    fn merge_leaves(&self, node: &Child, entries: Vec<Entry>) -> (bool, Vec<Entry>) {
        let overlay = &self.fs.store.overlay;
        let stays = |entry: &Entry| {
            !overlay.is_gone(entry.key)
                && overlay.get(entry.key).is_none()
                && !overlay.is_replaced(entry.key, entry.at)
        };
        let old = entries.len();
        let mut kept: Vec<Entry> = entries.into_iter().filter(stays).collect();
        let survivors = kept.len();
        let last = node.high.map_or(Key::MAX, Key::previous);
        kept.extend(overlay.nodes(node.low, last).map(|(key, at)| Entry { key, at }));
        let mut next = overlay.next_names(node.low, last);
        while let Some(key) = next {
            let places = overlay.names_of(key).iter().filter_map(|change| change.location);
            kept.extend(places.map(|at| Entry { key, at }));
            next = if key < last { overlay.next_names(key.next(), last) } else { None };
        }
        let changed = survivors != old || kept.len() != survivors;
        // Stable: names of one hash stay in the order that `settle_names` gave them.
        kept.sort_by_key(|entry| entry.key);
        (changed, kept)
    }

    fn merge_children(
        &mut self,
        writing: &mut Writing,
        node: &Child,
        (level, depth): (u16, u32),
        entries: Vec<Entry>,
    ) -> Result<(bool, Vec<Entry>), Error> {
        let mut changed = false;
        let mut out = Vec::with_capacity(entries.len());
        let mut pending = Vec::new();
        for (number, entry) in entries.iter().enumerate() {
            let low = if number == 0 { node.low } else { entry.key };
            let high = entries.get(number + 1).map_or(node.high, |next| Some(next.key));
            let child = Child { at: entry.at, low, high };
            let merged = match self.touches(writing, &child) {
                true => self.merge(writing, child, depth + 1)?,
                false => Merged::Same,
            };
            match merged {
                Merged::Same => {
                    self.write_nodes(writing, level - 1, &mut pending, &mut out)?;
                    out.push(*entry);
                }
                Merged::Changed(_, entries) => {
                    changed = true;
                    pending.extend(entries);
                }
            }
        }
        self.write_nodes(writing, level - 1, &mut pending, &mut out)?;
        Ok((changed, out))
    }

    /// Writes nodes over `entries`, evenly filled; their branches go to `out`.
    fn write_nodes(
        &mut self,
        writing: &mut Writing,
        level: u16,
        entries: &mut Vec<Entry>,
        out: &mut Vec<Entry>,
    ) -> Result<(), Error> {
        let fanout = self.fs.store.superblock.fanout as usize;
        let nodes = entries.len().div_ceil(fanout);
        let mut rest = entries.as_slice();
        for node in 0..nodes {
            let (part, behind) = rest.split_at(rest.len().div_ceil(nodes - node));
            out.push(self.write_node(writing, level, part)?);
            rest = behind;
        }
        entries.clear();
        Ok(())
    }

    /// Adds levels until there is one node.
    pub(super) fn write_top(
        &mut self,
        writing: &mut Writing,
        mut level: u16,
        mut entries: Vec<Entry>,
    ) -> Result<Location, Error> {
        loop {
            // A root with one child below is not needed: the child is the root.
            if level > 0 && entries.len() == 1 {
                return Ok(entries[0].at);
            }
            let mut above = Vec::new();
            self.write_nodes(writing, level, &mut entries, &mut above)?;
            match above[..] {
                [] => return Err(Error::Invalid("the file system would have no root directory")),
                [root] => return Ok(root.at),
                _ => (level, entries) = (level + 1, above),
            }
        }
    }

    /// Writes one index node.
    fn write_node(
        &mut self,
        writing: &mut Writing,
        level: u16,
        entries: &[Entry],
    ) -> Result<Entry, Error> {
        let format = self.fs.store.format();
        let mut branches = alloc::vec![0; entries.len() * format.branch_size()];
        for (entry, out) in entries.iter().zip(branches.chunks_exact_mut(format.branch_size())) {
            let Location { lnum, offset, length } = entry.at;
            let hash = match &self.fs.store.auth {
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
        node.emit(self.fs.store.access.next_sequence(), Group::None, &mut bytes);
        let (lnum, offset) = self.put_index(writing, &bytes)?;
        let at = Location { lnum, offset, length };
        // It is not read back: the next lookups and the next commit need it.
        if let Some(index) = &self.fs.store.index {
            index.keep(at, &bytes[..length as usize]);
        }
        if let Some(auth) = &mut self.fs.store.auth {
            auth.know(at, auth.hash(&bytes[..length as usize]));
        }
        self.space.acquire(at);
        self.index_size += u64::from(align8(length));
        Ok(Entry { key: entries[0].key, at })
    }

    fn unproven(&self, at: Location) -> Error {
        self.fs.store.fault(at, NodeKind::Index, Cause::Unproven).into()
    }

    /// Hash of an index node that is to be the root; none unless authenticated.
    pub(super) fn hash_of(&self, root: Location) -> Digest {
        let store = &self.fs.store;
        let known = store.auth.as_ref().and_then(|auth| auth.known(root));
        let old = store.index.as_ref().filter(|index| index.root == root);
        known.copied().or(old.map(|index| index.root_hash)).unwrap_or(Digest::NONE)
    }

    /// Finds a place for an index node and puts it there.
    fn put_index(&mut self, writing: &mut Writing, bytes: &[u8]) -> Result<(u32, u32), Error> {
        let length = bytes.len() as u32;
        let (lnum, offset) = self.index_head;
        if offset + length > self.fs.store.leb_size() {
            match self.next_index_leb(writing) {
                Ok(()) => {}
                // A new index that stands for itself leaves the old LEBs as they are.
                Err(Stop::Full) if self.fs.store.index.is_none() => return Err(Error::NoSpace),
                Err(Stop::Full) => {
                    let put = self.put_in_gap(writing, bytes);
                    #[cfg(test)]
                    if put == Err(Error::NoSpace) && self.only_gaps {
                        writing.no_gaps = true;
                        return self.put_index(writing, bytes);
                    }
                    return put;
                }
                Err(Stop::Error(error)) => return Err(error),
                Err(Stop::Commit) => return Err(Error::NoSpace),
            }
            return self.put_index(writing, bytes);
        }
        writing.buffer.extend_from_slice(bytes);
        self.index_head = (lnum, offset + length);
        self.space.change(lnum, |leb| leb.free = leb.free.wrapping_sub(length));
        Ok((lnum, offset))
    }

    /// Goes on in an empty LEB.
    fn next_index_leb(&mut self, writing: &mut Writing) -> Result<(), Stop> {
        #[cfg(test)]
        if self.only_gaps && !writing.no_gaps {
            return Err(Stop::Full);
        }
        let lnum = self.empty_leb().ok_or(Stop::Full)?;
        self.flush_index(writing)?;
        self.fs.store.access.clear_leb(lnum)?;
        self.space.change(lnum, |leb| leb.index = true);
        self.index_head = (lnum, 0);
        writing.start = 0;
        Ok(())
    }

    /// Writes what was put at the index head, padded.
    pub(super) fn flush_index(&mut self, writing: &mut Writing) -> Result<(), Error> {
        if writing.buffer.is_empty() {
            return Ok(());
        }
        super::buffered::pad(&mut writing.buffer, self.fs.store.unit() as usize);
        let (lnum, _) = self.index_head;
        let bytes = core::mem::take(&mut writing.buffer);
        self.fs.store.access.write_leb(lnum, writing.start, &bytes)?;
        let end = writing.start + bytes.len() as u32;
        writing.start = end;
        self.index_head = (lnum, end);
        let free = self.fs.store.leb_size() - end;
        self.space.change(lnum, |leb| leb.free = free);
        Ok(())
    }
}
