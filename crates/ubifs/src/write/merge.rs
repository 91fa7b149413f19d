//! The next index: the committed one with the overlay merged into it.
//!
//! Copy on write, children before parents. Only nodes with changes below them are read; a node
//! whose content does not change keeps its place. Changed neighbours are packed together, so that
//! deletions do not thin out the tree.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use flysch_api::vfs::FsError;
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{Key, Node, NodeError, NodeKind, align8};

use super::buffered::Buffered;
use super::gaps::Gaps;
use super::space::Space;
use crate::access::{Cause, Fault, Scratch};
use crate::index::{Bounds, Met, location};
use crate::location::Location;
use crate::overlay::NameChange;
use crate::store::Store;

/// A branch: the smallest key below it, and the place it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) at: Location,
}

/// A committed index node and the keys that belong below it.
#[derive(Clone, Copy)]
struct Child {
    at: Location,
    /// `None` for the root.
    level: Option<u16>,
    /// The key of the branch that leads to it; none for the root.
    key: Option<Key>,
    /// New keys from this one on ...
    low: Key,
    /// ... and below this one belong to it; `None`: no upper bound.
    high: Option<Key>,
}

impl Child {
    /// The last key that a committed leaf below it may have.
    fn last(&self) -> Key {
        match self.high {
            // Names with the same hash may begin in one node and end in the next.
            Some(high) if high.is_hash() => high,
            Some(high) => high.previous(),
            None => Key::MAX,
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds { level: self.level, key: self.key, last: self.last() }
    }
}

/// What happened to a node.
enum Merged {
    /// It stays unchanged, in its place.
    Same,
    /// It is replaced by nodes with these branches; also its level.
    Changed(u16, Vec<Entry>),
}

/// The index between commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexState {
    /// Where the next index node goes: LEB and offset.
    pub(super) at: (u32, u32),
    /// Total size of its nodes as of the last commit, bytes.
    pub(super) size: u64,
    /// Worst case of what the overlay adds to it, bytes.
    pub(super) growth: u64,
}

/// One commit of the index: what it may change, and its state so far.
#[derive(Debug)]
pub(super) struct IndexWriter<'s, V> {
    pub(super) store: &'s mut Store<Buffered<V>>,
    pub(super) space: &'s mut Space,
    pub(super) index: &'s mut IndexState,
    /// Index LEBs from which all nodes are moved, so that the LEBs become free.
    pub(super) moving: BTreeSet<u32>,
    /// First keys of the nodes in those LEBs.
    pub(super) keys: BTreeSet<Key>,
    /// Nodes of the committed index that were read.
    met: Met,
    /// Bytes of the index head's LEB that are not written yet, and where they begin.
    pub(super) buffer: Vec<u8>,
    pub(super) start: u32,
    /// A LEB whose gaps are being filled.
    pub(super) gaps: Option<Gaps>,
    /// LEBs that were written to, at the index head or in their gaps: their new nodes must not be
    /// overwritten.
    pub(super) written: BTreeSet<u32>,
    /// Tests: treats no more than this many LEBs as empty for the index while there are gaps.
    #[cfg(test)]
    pub(super) empty_lebs: Option<u32>,
    #[cfg(test)]
    pub(super) no_gaps: bool,
}

impl<'s, V: VolumeMut> IndexWriter<'s, V> {
    /// Nothing written yet; continues in the index head's LEB.
    pub(super) fn new(
        store: &'s mut Store<Buffered<V>>,
        space: &'s mut Space,
        index: &'s mut IndexState,
    ) -> Self {
        Self {
            store,
            space,
            moving: BTreeSet::new(),
            keys: BTreeSet::new(),
            met: Met::default(),
            buffer: Vec::new(),
            start: index.at.1,
            index,
            gaps: None,
            written: BTreeSet::new(),
            #[cfg(test)]
            empty_lebs: None,
            #[cfg(test)]
            no_gaps: false,
        }
    }

    /// Writes the index with the overlay merged; returns the place of its root.
    pub(super) fn write(mut self) -> Result<Location, FsError> {
        self.settle_names()?;
        let Some(root) = self.store.index.as_ref().map(|index| index.root) else {
            return self.write_whole();
        };
        (self.moving, self.keys) = self.choose_moving()?;
        let whole = Child { at: root, level: None, key: None, low: Key::MIN, high: None };
        let root = match self.merge(whole)? {
            Merged::Same => root,
            Merged::Changed(level, entries) => self.write_top(level, entries)?,
        };
        self.finish_gaps()?;
        self.flush_index()?;
        Ok(root)
    }

    /// Writes an index over everything in the overlay; returns the place of its root.
    fn write_whole(&mut self) -> Result<Location, FsError> {
        let overlay = &self.store.overlay;
        let nodes = overlay.nodes(Key::MIN, Key::MAX).map(|(key, at)| Entry { key, at });
        let mut entries: Vec<Entry> = nodes.collect();
        for key in overlay.name_keys() {
            let places = overlay.names_of(key).iter().filter_map(|change| change.location);
            entries.extend(places.map(|at| Entry { key, at }));
        }
        // Stable: names with the same hash keep the order that `settle_names` gave them.
        entries.sort_by_key(|entry| entry.key);
        let root = self.write_top(0, entries)?;
        self.flush_index()?;
        Ok(root)
    }

    /// Sorts the names with the same hash and puts all of them into the overlay, so that no
    /// committed ones are left beside them: Linux searches these names in sorted order.
    fn settle_names(&mut self) -> Result<(), FsError> {
        let keys: Vec<Key> = self.store.overlay.name_keys().collect();
        for key in keys {
            let mut others = Vec::new();
            let store = &*self.store;
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
                let name = self.store.entry(kind, key, at, &mut scratch)?.name.into();
                added.push(NameChange { name, location: Some(at), replaces: Some(at) });
            }
            if let Some(names) = self.store.overlay.names_of_mut(key) {
                names.extend(added);
                names.sort_by(|one, other| one.name.cmp(&other.name));
            }
        }
        Ok(())
    }

    /// Index LEBs that are mostly dirt, as many as there is room to empty: into the LEB being
    /// written, into some of the empty ones or, if there are none, into the gaps of others. The
    /// budget relies on this: index LEBs beyond its need are promised to content.
    fn choose_moving(&mut self) -> Result<(BTreeSet<u32>, BTreeSet<Key>), FsError> {
        let leb_size = self.store.leb_size();
        let (mut moving, mut keys) = (BTreeSet::new(), BTreeSet::new());
        let needed = self.index.size.div_ceil(u64::from(leb_size)) + 1;
        if self.space.sums().idx_lebs <= needed + needed / 2 {
            return Ok((moving, keys));
        }
        let (head, end) = self.index.at;
        let others = |(lnum, leb): &(u32, &super::space::Leb)| leb.index && *lnum != head;
        let others = || self.space.lebs().filter(others);
        let spare = self.space.sums().available_lebs.saturating_sub(2).min(4);
        let gaps = |leb: &super::space::Leb| if spare == 0 { leb_size - leb.used } else { 0 };
        let mut left = u64::from(leb_size - end) + spare * u64::from(leb_size);
        left += others().map(|(_, leb)| u64::from(gaps(leb))).sum::<u64>();
        // The nodes above the moved ones are also written.
        left /= 2;
        let mut lebs: Vec<(u32, u32, u32)> = others()
            .filter(|(_, leb)| (1..leb_size / 2).contains(&leb.used))
            .map(|(lnum, leb)| (leb.used, lnum, gaps(leb)))
            .collect();
        lebs.sort_unstable();
        for (used, lnum, gaps) in lebs {
            // Moved nodes do not go into the gaps they leave.
            let Some(rest) = left.checked_sub(u64::from(used) + u64::from(gaps) / 2) else { break };
            left = rest;
            for node in self.index_nodes_in(lnum)? {
                keys.insert(node.key);
            }
            moving.insert(lnum);
        }
        Ok((moving, keys))
    }

    /// Reads a committed index node, and checks it: one that is trusted was never read before.
    fn index_node(&mut self, child: &Child) -> Result<(u16, Vec<Entry>), FsError> {
        let at = child.at;
        let mut scratch = Scratch::new();
        let hash = self.store.hash_of(at);
        let Store { access, index, auth, layout, .. } = &mut *self.store;
        let bad = |cause| {
            let place = access.place(at.lnum, at.offset);
            FsError::from(Fault { structure: NodeKind::Index.name(), place, cause })
        };
        let Some(index) = index else { return Err(bad(Cause::Misplaced)) };
        let (header, bytes) = index.node(access, (at, hash.bytes()), &mut scratch)?;
        let node = match Node::decode(header, bytes, index.format) {
            Ok(Node::Index(node)) => node,
            Ok(_) => return Err(bad(Cause::Node(NodeError::Kind(header.kind)))),
            Err(error) => return Err(bad(Cause::Node(error))),
        };
        let bounds = child.bounds();
        index.check(layout, &node, &bounds).map_err(bad)?;
        if !self.met.is_new(at, node.key(0), &bounds) {
            return Err(bad(Cause::Twice));
        }
        if let Some(auth) = auth {
            for branch in node.branches() {
                auth.learn(location(&branch), branch.hash);
            }
        }
        let entries = node.branches().map(|it| Entry { key: it.key, at: location(&it) });
        Ok((node.level, entries.collect()))
    }

    fn touches(&self, child: &Child) -> bool {
        let (first, last) = (child.low, child.last());
        self.store.overlay.touches(first, last) || self.keys.range(first..=last).next().is_some()
    }

    fn merge(&mut self, node: Child) -> Result<Merged, FsError> {
        let (level, entries) = self.index_node(&node)?;
        let (changed, entries) = if level == 0 {
            self.merge_leaves(&node, entries)
        } else {
            self.merge_children(&node, level, entries)?
        };
        if !changed && !self.moving.contains(&node.at.lnum) {
            return Ok(Merged::Same);
        }
        if let Some(index) = &self.store.index {
            index.forget(node.at);
        }
        self.space.release(node.at);
        // The size in the master node of a damaged image may be too small.
        self.index.size = self.index.size.saturating_sub(u64::from(align8(node.at.length)));
        Ok(Merged::Changed(level, entries))
    }

    fn merge_leaves(&self, node: &Child, entries: Vec<Entry>) -> (bool, Vec<Entry>) {
        let overlay = &self.store.overlay;
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
        // Stable: names with the same hash keep the order that `settle_names` gave them.
        kept.sort_by_key(|entry| entry.key);
        (changed, kept)
    }

    fn merge_children(
        &mut self,
        node: &Child,
        level: u16,
        entries: Vec<Entry>,
    ) -> Result<(bool, Vec<Entry>), FsError> {
        let mut changed = false;
        let mut out = Vec::with_capacity(entries.len());
        let mut pending = Vec::new();
        for (number, entry) in entries.iter().enumerate() {
            let low = if number == 0 { node.low } else { entry.key };
            let high = entries.get(number + 1).map_or(node.high, |next| Some(next.key));
            let (below, key) = (Some(level - 1), Some(entry.key));
            let child = Child { at: entry.at, level: below, key, low, high };
            let merged = match self.touches(&child) {
                true => self.merge(child)?,
                false => Merged::Same,
            };
            match merged {
                Merged::Same => {
                    self.write_nodes(level - 1, &mut pending, &mut out)?;
                    out.push(*entry);
                }
                Merged::Changed(_, entries) => {
                    changed = true;
                    pending.extend(entries);
                }
            }
        }
        self.write_nodes(level - 1, &mut pending, &mut out)?;
        Ok((changed, out))
    }
}
