//! Walking the committed index.
//!
//! A B+ tree of [`flysch_wire::ubifs::Index`] nodes: a branch's key is the smallest key below it,
//! and only names with the same hash may share a key. A child's keys end where the next branch
//! begins. Everything is checked on the way down ([`Bounds`], [`Met`]); a child that breaks a rule
//! is reported with the range of keys lost with it, and the walk continues past it. So no walk goes
//! through a node twice, whatever the image says.
//!
//! Looking up one key reads one node of each level. A walk over a whole undamaged tree therefore
//! records where the nodes of the lowest level are ([`Lowest`]), 24 bytes for about eight keys, and
//! later lookups begin there. Nodes that lookups read or commits write are cached ([`NodeCache`]),
//! unless the volume is in memory anyway.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use flysch_api::volume::Volume;
use flysch_wire::ubifs::{
    Branch, BranchFormat, HEADER_SIZE, Header, Index as IndexNode, Key, KeyKind, Layout, Node,
    NodeError, NodeKind,
};

use crate::access::{Access, Cause, Fault, Scratch};
use crate::auth::Digest;
use crate::location::Location;
use crate::node_cache::NodeCache;
use crate::overlay::Overlay;

/// Most levels of a tree: more than 2^60 leaves at the smallest fan-out.
const LEVELS_MAX: u16 = 40;

/// Receives what a walk meets, in key order. `Break` ends the walk.
pub(crate) trait Visit {
    /// A good index node.
    fn node(&mut self, _at: Location, _node: &IndexNode<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// A branch that leads to an inode, data or entry node; `from` is the index node it is in.
    fn leaf(&mut self, branch: &Branch<'_>, from: Location) -> ControlFlow<()>;

    /// The keys from `first` to `last` cannot be reached.
    fn lost(&mut self, fault: Fault, first: Key, last: Key) -> ControlFlow<()>;
}

/// The committed index.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) root: Location,
    /// Hash of the root, if the file system is authenticated.
    pub(crate) root_hash: Digest,
    pub(crate) format: BranchFormat,
    pub(crate) fanout: usize,
    /// Belongs to the tree below `root`; invalid once the root moves.
    lowest: Option<Lowest>,
    cache: NodeCache,
}

/// Where the nodes of the lowest level are.
#[derive(Clone, Debug)]
pub(crate) struct Lowest {
    root: Location,
    /// First key and place, in ascending order.
    nodes: Vec<(Key, Location)>,
    is_complete: bool,
}

impl Lowest {
    /// Most nodes noted, 12 MiB: beyond some 3 million keys, lookups descend from the root.
    const NODES_MAX: usize = 1 << 19;

    /// Empty, for the tree below `root`.
    pub(crate) fn new(root: Location) -> Self {
        Self { root, nodes: Vec::new(), is_complete: true }
    }

    /// Adds the good nodes of a walk, in its order.
    pub(crate) fn note(&mut self, at: Location, node: &IndexNode<'_>) {
        if node.level != 0 || !self.is_complete {
            return;
        }
        let key = node.key(0);
        let is_next = self.nodes.last().is_none_or(|last| last.0 <= key);
        if !is_next || self.nodes.len() == Self::NODES_MAX {
            self.is_complete = false;
            self.nodes = Vec::new();
            return;
        }
        self.nodes.push((key, at));
    }

    /// The nodes that may hold keys from `first` to `last`.
    fn between(&self, first: Key, last: Key) -> impl Iterator<Item = Child<'static>> + '_ {
        // Names with the same hash may begin in the node before the one that starts with it.
        let start = self.nodes.partition_point(|node| node.0 < first).saturating_sub(1);
        let wanted = self.nodes[start..].iter().take_while(move |node| node.0 <= last);
        (start..).zip(wanted).map(|(number, &(key, at))| Child {
            at,
            hash: &[],
            first: if number == 0 { Key::MIN } else { key },
            bounds: Bounds {
                level: Some(0),
                key: Some(key),
                last: self.nodes.get(number + 1).map_or(Key::MAX, |next| before(next.0)),
            },
        })
    }
}

/// What the branches above an index node say about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// `None` for the root.
    pub(crate) level: Option<u16>,
    /// The branch's key; none for the root.
    pub(crate) key: Option<Key>,
    /// The last key that may be below it.
    pub(crate) last: Key,
}

/// The good nodes of a walk that another branch may lead to as well.
///
/// The ranges of two branches share one key at most, and only one that names may share: the last of
/// the first range and the first of the second. A node with no other key fits below both. If on
/// each level several branches led to one such node, there would be more ways through the tree than
/// anyone can walk. Good trees have hardly any nodes of one key, and one branch to each.
#[derive(Debug, Default)]
pub(crate) struct Met(BTreeSet<(u32, u32)>);

impl Met {
    /// Notes a good node that begins with the key `first`; `false` if it was met before.
    pub(crate) fn is_new(&mut self, at: Location, first: Key, bounds: &Bounds) -> bool {
        let place = (at.lnum, at.offset);
        match first == bounds.last && first.is_hash() {
            true => self.0.insert(place),
            // No later branch can lead to it: their keys are higher.
            false => !self.0.contains(&place),
        }
    }
}

/// One walk.
struct Walk<'w, V> {
    /// Whether nodes may come from the cache instead of the flash.
    cached: bool,
    access: &'w Access<V>,
    layout: &'w Layout,
    index: &'w Index,
    overlay: &'w Overlay,
    first: Key,
    last: Key,
    met: Met,
    visit: &'w mut dyn Visit,
}

/// A branch to an index node, and the keys that may be below it.
#[derive(Clone, Copy)]
struct Child<'h> {
    at: Location,
    /// The node's hash; empty if none is required.
    hash: &'h [u8],
    first: Key,
    bounds: Bounds,
}

impl Index {
    /// The tree below `root`, about `bytes` in size.
    pub(crate) fn new(root: Location, format: BranchFormat, fanout: usize, bytes: u64) -> Self {
        let node_max = flysch_wire::ubifs::INDEX_NODE_SIZE + fanout * format.branch_size();
        let cache = NodeCache::new(node_max, bytes);
        Self { root, root_hash: Digest::NONE, format, fanout, lowest: None, cache }
    }

    /// Notes that a commit moved the root; the tree now takes `bytes`.
    pub(crate) fn moved(&mut self, root: Location, hash: Digest, bytes: u64) {
        self.root_hash = hash;
        if self.root != root {
            (self.root, self.lowest) = (root, None);
        }
        if self.cache.is_small_for(bytes) {
            self.cache = self.cache.grown(bytes);
        }
    }

    /// Caches a node that was written or is about to be.
    pub(crate) fn keep(&self, at: Location, node: &[u8]) {
        self.cache.put(at, node);
    }

    /// Caches a node that was read, unless the volume supports `point`.
    fn keep_read<V: Volume>(&self, access: &Access<V>, at: Location, node: &[u8]) {
        if access.volume.point(at.lnum, at.offset, node.len()).is_none() {
            self.cache.put(at, node);
        }
    }

    /// Drops a node that is no longer part of the tree.
    pub(crate) fn forget(&self, at: Location) {
        self.cache.forget(at);
    }

    /// The index node that another one refers to; its CRC and hash are verified, now or earlier.
    pub(crate) fn node<'b, V: Volume>(
        &self,
        access: &'b Access<V>,
        (at, hash): (Location, &[u8]),
        scratch: &'b mut Scratch,
    ) -> Result<(Header, &'b [u8]), Fault> {
        if access.volume.point(at.lnum, at.offset, at.length as usize).is_some() {
            return access.index_node(at, hash, scratch);
        }
        let length = at.length as usize;
        if length <= Scratch::INLINE && self.cache.get(at, scratch.room(length)) {
            // It was checked before it was cached.
            if let Ok(header) = Header::parse(scratch.room(length)) {
                return Ok((header, scratch.room(length)));
            }
        }
        let (header, bytes) = access.index_node(at, hash, scratch)?;
        self.cache.put(at, bytes);
        Ok((header, bytes))
    }

    /// Takes over what a walk over the whole tree recorded, unless it met a fault.
    pub(crate) fn remember(&mut self, mut lowest: Lowest) {
        lowest.nodes.shrink_to_fit();
        self.lowest = Some(lowest).filter(|it| it.is_complete && !it.nodes.is_empty());
    }

    /// Visits the leaves from `first` to `last` that `overlay` leaves to the committed index; skips
    /// the index nodes above them where possible.
    pub(crate) fn leaves<V: Volume>(
        &self,
        (access, layout): (&Access<V>, &Layout),
        overlay: &Overlay,
        (first, last): (Key, Key),
        visit: &mut dyn Visit,
    ) -> ControlFlow<()> {
        let met = Met::default();
        let mut walk =
            Walk { cached: true, access, layout, index: self, overlay, first, last, met, visit };
        let usable = |lowest: &&Lowest| lowest.root == self.root && access.verify.is_none();
        let Some(lowest) = self.lowest.as_ref().filter(usable) else {
            return walk.whole();
        };
        if overlay.covers(first, last) {
            return ControlFlow::Continue(());
        }
        for child in lowest.between(first, last) {
            if !overlay.covers(child.first, child.bounds.last) {
                walk.descend(child)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Walks over all keys from `first` to `last` that `overlay` leaves to the committed index,
    /// reading from the flash.
    pub(crate) fn walk<V: Volume>(
        &self,
        (access, layout): (&Access<V>, &Layout),
        overlay: &Overlay,
        (first, last): (Key, Key),
        visit: &mut dyn Visit,
    ) -> ControlFlow<()> {
        let met = Met::default();
        let mut walk =
            Walk { cached: false, access, layout, index: self, overlay, first, last, met, visit };
        walk.whole()
    }

    /// Checks the rules of the tree that can be judged from one node.
    pub(crate) fn check(
        &self,
        layout: &Layout,
        node: &IndexNode<'_>,
        bounds: &Bounds,
    ) -> Result<(), Cause> {
        let field = |name| Err(Cause::Node(NodeError::Field(name)));
        if bounds.level.is_some_and(|level| level != node.level) || node.level >= LEVELS_MAX {
            return field("level");
        }
        if node.is_empty() || node.len() > self.fanout {
            return field("child_cnt");
        }
        // Linux leaves a branch unchanged when the first key of its node is deleted.
        if bounds.key.is_some_and(|key| node.key(0) < key) {
            return Err(Cause::Mismatch("first key for its branch"));
        }
        let mut previous: Option<Key> = None;
        for branch in node.branches() {
            let key = branch.key;
            if previous.is_some_and(|previous| key < previous || key == previous && !key.is_hash())
                || key > bounds.last
            {
                return Err(Cause::Mismatch("order of keys"));
            }
            if matches!(key.kind(), KeyKind::Unknown(_)) {
                return field("key");
            }
            let least = if node.level > 0 { self.node_min() } else { HEADER_SIZE as u32 };
            let holds = layout.holds(&layout.main, branch.lnum, branch.offset, branch.length);
            if !holds || branch.length < least {
                return Err(Cause::Mismatch("branch address or length"));
            }
            previous = Some(key);
        }
        Ok(())
    }

    /// Size of the smallest node, bytes.
    fn node_min(&self) -> u32 {
        (flysch_wire::ubifs::INDEX_NODE_SIZE + self.format.branch_size()) as u32
    }
}

impl<V: Volume> Walk<'_, V> {
    /// Walks from the root.
    fn whole(&mut self) -> ControlFlow<()> {
        if self.overlay.covers(self.first, self.last) {
            return ControlFlow::Continue(());
        }
        let (at, hash) = (self.index.root, self.index.root_hash.bytes());
        let bounds = Bounds { level: None, key: None, last: Key::MAX };
        self.descend(Child { at, hash, first: Key::MIN, bounds })
    }

    fn descend(&mut self, child: Child<'_>) -> ControlFlow<()> {
        let access = self.access;
        let mut scratch = Scratch::new();
        let read = match self.cached {
            true => self.index.node(access, (child.at, child.hash), &mut scratch),
            false => access.index_node(child.at, child.hash, &mut scratch).inspect(|found| {
                self.index.keep_read(access, child.at, found.1);
            }),
        };
        let (header, bytes) = match read {
            Ok(found) if self.layout.main.contains(&child.at.lnum) => found,
            Ok(_) => return self.lose(child, Cause::Misplaced),
            Err(fault) => return self.visit.lost(fault, child.first, child.bounds.last),
        };
        let node = match Node::decode(header, bytes, self.index.format) {
            Ok(Node::Index(node)) => node,
            Ok(_) => return self.lose(child, Cause::Node(NodeError::Kind(header.kind))),
            Err(error) => return self.lose(child, Cause::Node(error)),
        };
        if let Err(cause) = self.index.check(self.layout, &node, &child.bounds) {
            return self.lose(child, cause);
        }
        if !self.met.is_new(child.at, node.key(0), &child.bounds) {
            return self.lose(child, Cause::Twice);
        }
        self.visit.node(child.at, &node)?;
        let count = node.len();
        // Names with the wanted hash may also be at the end of the child before the one that starts
        // with it.
        let before = partition(&node, self.first);
        let start = if node.level == 0 { before } else { before.saturating_sub(1) };
        for at in start..count {
            let branch = node.branch(at);
            if branch.key > self.last {
                break;
            }
            let last = upper_bound(&node, at, child.bounds.last);
            if node.level == 0 {
                if branch.key >= self.first && !self.overlay.is_gone(branch.key) {
                    self.visit.leaf(&branch, child.at)?;
                }
            } else if !self.overlay.covers(branch.key, last) {
                self.descend(Child {
                    at: location(&branch),
                    hash: branch.hash,
                    first: if at == 0 { child.first } else { branch.key },
                    bounds: Bounds { level: Some(node.level - 1), key: Some(branch.key), last },
                })?;
            }
        }
        ControlFlow::Continue(())
    }

    fn lose(&mut self, child: Child<'_>, cause: Cause) -> ControlFlow<()> {
        let place = self.access.place(child.at.lnum, child.at.offset);
        let fault = Fault { structure: NodeKind::Index.name(), place, cause };
        self.visit.lost(fault, child.first, child.bounds.last)
    }
}

/// Number of branches whose keys are below `key`.
fn partition(node: &IndexNode<'_>, key: Key) -> usize {
    let (mut low, mut high) = (0, node.len());
    while low < high {
        let middle = (low + high) / 2;
        if node.key(middle) < key {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The last key that can be below branch `at`.
fn upper_bound(node: &IndexNode<'_>, at: usize, last: Key) -> Key {
    if at + 1 == node.len() {
        return last;
    }
    before(node.key(at + 1))
}

/// The last key that can be below a branch when the next one starts with `next`.
fn before(next: Key) -> Key {
    if next.is_hash() { next } else { next.previous() }
}

/// Where a branch leads.
pub(crate) fn location(branch: &Branch<'_>) -> Location {
    Location { lnum: branch.lnum, offset: branch.offset, length: branch.length }
}
