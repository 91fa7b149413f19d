//! From keys to nodes: the committed index with the journal's changes on top.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use flysch_api::vfs::FsError;
use flysch_api::volume::Volume;
use flysch_wire::ubifs::{
    Branch, BranchFormat, Compression, DirectoryEntry, EntryKind, HEADER_SIZE, Header, InodeNode,
    Key, KeyHash, KeyKind, Layout, Node, NodeError, NodeKind, Superblock,
};

use crate::access::{Access, Cause, Fault, Scratch};
use crate::auth::{Auth, Digest};
use crate::index::{Index, Visit, location};
use crate::location::Location;
use crate::node_cache::NodeCache;
use crate::overlay::Overlay;

/// Where every node is.
#[derive(Clone, Debug)]
pub(crate) struct Store<V> {
    pub(crate) access: Access<V>,
    pub(crate) superblock: Superblock,
    pub(crate) layout: Layout,
    /// `None`: the index is lost, and the overlay holds everything.
    pub(crate) index: Option<Index>,
    pub(crate) overlay: Overlay,
    /// Sizes of files that grew after their inode was last written.
    pub(crate) sizes: BTreeMap<u32, u64>,
    /// Authenticates nodes, given the key of an authenticated file system.
    pub(crate) auth: Option<Box<Auth>>,
}

/// Longest name or inode node cached: an inode without data takes 160 bytes, a name 56 plus its
/// length.
const LEAF_MAX: usize = 224;
/// Approximate bytes of names and inodes cached.
const LEAVES: u64 = 1 << 20;
/// The cache takes at most one part in this many of the volume.
const LEAVES_PART: u64 = 8;

/// Whether nodes of this kind are cached while the file system is open for writing.
pub(crate) fn is_kept(kind: NodeKind) -> bool {
    matches!(kind, NodeKind::Inode | NodeKind::Entry | NodeKind::XattrEntry)
}

/// A name that was found.
pub(crate) struct Name<'n> {
    pub(crate) key: Key,
    /// Its rank among the names with this hash, in a fixed order.
    pub(crate) ordinal: u32,
    pub(crate) at: Location,
    pub(crate) entry: Result<DirectoryEntry<'n>, Fault>,
}

/// Turns closures into a [`Visit`].
struct Each<'e> {
    leaf: &'e mut dyn FnMut(Key, Location) -> ControlFlow<()>,
    fault: Option<Fault>,
}

impl Visit for Each<'_> {
    fn leaf(&mut self, branch: &Branch<'_>, _from: Location) -> ControlFlow<()> {
        (self.leaf)(branch.key, location(branch))
    }

    fn lost(&mut self, fault: Fault, _first: Key, _last: Key) -> ControlFlow<()> {
        self.fault.get_or_insert(fault);
        ControlFlow::Continue(())
    }
}

/// Looks for the branch that leads to a node, and compares its hash with the node's.
struct Vouch {
    at: Location,
    hash: Digest,
    vouched: bool,
    /// The fault to report otherwise.
    fault: Fault,
}

impl Visit for Vouch {
    fn leaf(&mut self, branch: &Branch<'_>, _from: Location) -> ControlFlow<()> {
        if location(branch) != self.at {
            return ControlFlow::Continue(());
        }
        self.vouched = self.hash.fits(branch.hash);
        self.fault.cause = Cause::Hash;
        ControlFlow::Break(())
    }

    fn lost(&mut self, fault: Fault, _first: Key, _last: Key) -> ControlFlow<()> {
        self.fault = fault;
        ControlFlow::Continue(())
    }
}

/// How new files are compressed: not at all if the superblock names an unknown method, because
/// inodes that name it could not be read.
pub(crate) fn default_compression(superblock: &Superblock) -> Compression {
    match Compression::from_code(superblock.default_compression) {
        Compression::Unknown(_) => Compression::None,
        known => known,
    }
}

impl<V: Volume> Store<V> {
    pub(crate) fn format(&self) -> BranchFormat {
        self.superblock.branch_format()
    }

    pub(crate) fn hash(&self) -> KeyHash {
        self.superblock.key_hash().unwrap_or(KeyHash::R5)
    }

    /// Walks the committed index where the overlay leaves it valid; the first fault met is returned
    /// at the end.
    pub(crate) fn committed(
        &self,
        range: (Key, Key),
        leaf: &mut dyn FnMut(Key, Location) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        self.committed_under(&self.overlay, range, leaf)
    }

    /// Walks the committed index where `overlay` leaves it valid.
    pub(crate) fn committed_under(
        &self,
        overlay: &Overlay,
        range: (Key, Key),
        leaf: &mut dyn FnMut(Key, Location) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        let Some(index) = &self.index else { return Ok(()) };
        let mut each = Each { leaf, fault: None };
        let _ = index.leaves((&self.access, &self.layout), overlay, range, &mut each);
        each.fault.map_or(Ok(()), Err)
    }

    /// Where the node of an inode or data key lies.
    pub(crate) fn find(&self, key: Key) -> Result<Option<Location>, Fault> {
        if let Some(at) = self.overlay.get(key) {
            return Ok(Some(at));
        }
        let mut found = None;
        let walked = self.committed((key, key), &mut |_, at| {
            found = Some(at);
            ControlFlow::Break(())
        });
        match found {
            Some(at) => Ok(Some(at)),
            None => walked.map(|()| None),
        }
    }

    /// Visits the inode and data nodes from `first` to `last`.
    pub(crate) fn nodes(
        &self,
        first: Key,
        last: Key,
        visit: &mut dyn FnMut(Key, Location) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        let mut changed = self.overlay.nodes(first, last).peekable();
        let mut stopped = false;
        let walked = self.committed((first, last), &mut |key, at| {
            while let Some((newer, newer_at)) = changed.next_if(|change| change.0 <= key) {
                if visit(newer, newer_at).is_break() {
                    stopped = true;
                    return ControlFlow::Break(());
                }
                if newer == key {
                    return ControlFlow::Continue(());
                }
            }
            if key.is_hash() {
                return ControlFlow::Continue(());
            }
            let flow = visit(key, at);
            stopped = flow.is_break();
            flow
        });
        if !stopped {
            for (key, at) in changed {
                if visit(key, at).is_break() {
                    break;
                }
            }
        }
        walked
    }

    /// Visits the names of a directory or the extended attributes of a file, from a hash on.
    pub(crate) fn names(
        &self,
        kind: EntryKind,
        parent: u32,
        from: u32,
        visit: &mut dyn FnMut(Name<'_>) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        let first = Key::any_entry(kind, parent, from);
        let last = Key::any_entry(kind, parent, Key::VALUE_MAX);
        self.names_between(first, last, visit)
    }

    /// Visits every name from `first` to `last`, of any directory or file.
    pub(crate) fn names_between(
        &self,
        first: Key,
        last: Key,
        visit: &mut dyn FnMut(Name<'_>) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        let mut names = Names { store: self, next: first, last, ordinal: 0, visit };
        let mut stopped = false;
        let walked = self.committed((first, last), &mut |key, at| {
            if !key.is_hash() {
                return ControlFlow::Continue(());
            }
            let flow = names.committed(key, at);
            stopped = flow.is_break();
            flow
        });
        if !stopped {
            let _ = names.flush(None);
        }
        walked
    }

    /// The place and the content of a name's entry.
    pub(crate) fn find_name(
        &self,
        kind: EntryKind,
        parent: u32,
        name: &[u8],
    ) -> Result<Option<(Location, u64, u8)>, Fault> {
        let key = Key::any_entry(kind, parent, self.hash().hash(name));
        let mut scratch = Scratch::new();
        if let Some(change) = self.overlay.names_of(key).iter().find(|it| *it.name == *name) {
            let Some(at) = change.location else { return Ok(None) };
            let entry = self.entry(kind, key, at, &mut scratch)?;
            return Ok(Some((at, entry.inode, entry.file_type)));
        }
        let (mut found, mut fault) = (None, None);
        let walked = self.committed((key, key), &mut |_, at| {
            if self.overlay.is_replaced(key, at) {
                return ControlFlow::Continue(());
            }
            match self.entry(kind, key, at, &mut scratch) {
                Ok(entry) if entry.name == name => {
                    found = Some((at, entry.inode, entry.file_type));
                    return ControlFlow::Break(());
                }
                Ok(_) => {}
                Err(damage) => fault = Some(damage),
            }
            ControlFlow::Continue(())
        });
        match (found, fault) {
            (None, Some(fault)) => Err(fault),
            (None, None) => walked.map(|()| None),
            (found, _) => Ok(found),
        }
    }

    /// Finds out which committed entries the changed names replace.
    ///
    /// Garbage collection moves entries and gives up the LEB they were in, so an entry that the
    /// committed index names may no longer exist. It then belongs to one of the changed names of
    /// its key.
    pub(crate) fn resolve_names(&mut self) {
        let keys: Vec<Key> = self.overlay.name_keys().collect();
        for key in keys {
            let mut leaves = Vec::new();
            let _ = self.committed((key, key), &mut |_, at| {
                leaves.push(at);
                ControlFlow::Continue(())
            });
            let mut missing = Vec::new();
            for at in leaves {
                let mut scratch = Scratch::new();
                let name: Option<Box<[u8]>> =
                    self.entry(kind_of(key), key, at, &mut scratch).ok().map(|it| it.name.into());
                match name {
                    Some(name) => self.overlay.stands_for(key, Some(&name), at),
                    None => missing.push(at),
                }
            }
            for at in missing {
                self.overlay.stands_for(key, None, at);
            }
        }
    }

    /// Reads an entry node that is known to have this key.
    pub(crate) fn entry<'b>(
        &'b self,
        kind: EntryKind,
        key: Key,
        at: Location,
        scratch: &'b mut Scratch,
    ) -> Result<DirectoryEntry<'b>, Fault> {
        let node_kind = match kind {
            EntryKind::Directory => NodeKind::Entry,
            EntryKind::Xattr => NodeKind::XattrEntry,
        };
        match self.node(at, node_kind, scratch)? {
            Node::Entry(entry) if entry.key == key => Ok(entry),
            _ => Err(self.mismatch(at, node_kind)),
        }
    }

    /// Reads an inode node that is known to have this number.
    pub(crate) fn inode<'b>(
        &'b self,
        inode: u32,
        at: Location,
        scratch: &'b mut Scratch,
    ) -> Result<InodeNode<'b>, Fault> {
        match self.node(at, NodeKind::Inode, scratch)? {
            Node::Inode(node) if node.key == Key::inode_node(inode) => Ok(node),
            _ => Err(self.mismatch(at, NodeKind::Inode)),
        }
    }

    /// Reads a node of this kind.
    pub(crate) fn node<'b>(
        &'b self,
        at: Location,
        kind: NodeKind,
        scratch: &'b mut Scratch,
    ) -> Result<Node<'b>, Fault> {
        let decode = |(header, bytes)| {
            Node::decode(header, bytes, self.format())
                .map_err(|error| self.fault(at, kind, Cause::Node(error)))
        };
        let leaves = self.access.leaves.as_ref().filter(|_| is_kept(kind));
        let length = at.length as usize;
        if let Some(leaves) = leaves
            && length <= LEAF_MAX
            && leaves.get(at, scratch.room(length))
            && let Ok(header) = Header::parse(scratch.room(length))
            && header.kind == kind
        {
            // It was checked before it was cached.
            return decode((header, scratch.room(length)));
        }
        let (header, bytes) = self.access.node(at, kind, scratch)?;
        if let Some(auth) = &self.auth {
            self.prove(auth, at, (kind, bytes))?;
        }
        if let Some(leaves) = leaves {
            leaves.put(at, bytes);
        }
        decode((header, bytes))
    }

    /// Starts caching names and inodes, because from now on only the caller changes the flash.
    pub(crate) fn keep_leaves(&mut self) {
        let all = u64::from(self.layout.leb_size) * u64::from(self.layout.main.end);
        self.access.leaves = Some(NodeCache::new(LEAF_MAX, LEAVES.min(all / LEAVES_PART)));
    }

    /// Verifies a node of the main area against the journal's or the committed index's hash.
    pub(crate) fn prove(
        &self,
        auth: &Auth,
        at: Location,
        (kind, bytes): (NodeKind, &[u8]),
    ) -> Result<(), Fault> {
        let hash = auth.hash(bytes);
        if let Some(known) = auth.known(at) {
            let same = known.fits(hash.bytes());
            return if same { Ok(()) } else { Err(self.fault(at, kind, Cause::Hash)) };
        }
        let fault = self.fault(at, kind, Cause::Unproven);
        let mut vouch = Vouch { at, hash, vouched: false, fault };
        let key = bytes.get(HEADER_SIZE..).and_then(Key::parse);
        if let (Some(key), Some(index)) = (key, &self.index) {
            let area = (&self.access, &self.layout);
            let _ = index.leaves(area, &Overlay::default(), (key, key), &mut vouch);
        }
        if vouch.vouched { Ok(()) } else { Err(vouch.fault) }
    }

    /// Hash of the index node that becomes the root; [`Digest::NONE`] unless authenticated.
    pub(crate) fn hash_of(&self, root: Location) -> Digest {
        let known = self.auth.as_ref().and_then(|auth| auth.known(root));
        let old = self.index.as_ref().filter(|index| index.root == root);
        known.copied().or(old.map(|index| index.root_hash)).unwrap_or(Digest::NONE)
    }

    pub(crate) fn fault(&self, at: Location, kind: NodeKind, cause: Cause) -> Fault {
        Fault { structure: kind.name(), place: self.access.place(at.lnum, at.offset), cause }
    }

    pub(crate) fn mismatch(&self, at: Location, kind: NodeKind) -> Fault {
        self.fault(at, kind, Cause::Mismatch("key"))
    }

    /// Deletes an inode with everything that belongs to it: content, names, extended attributes.
    pub(crate) fn remove_inode(&mut self, inode: u32) {
        let mut values = Vec::new();
        let _ = self.names(EntryKind::Xattr, inode, 0, &mut |name| {
            values.extend(name.entry.ok().and_then(|entry| u32::try_from(entry.inode).ok()));
            ControlFlow::Continue(())
        });
        for inode in values.into_iter().chain([inode]) {
            self.overlay.remove(Key::inode_node(inode), Key::last_of(inode));
            // The file may have been written to after it lost its name: it has no size to correct.
            self.sizes.remove(&inode);
        }
    }
}

/// A listing of names in progress.
struct Names<'n, V> {
    store: &'n Store<V>,
    /// The first key whose new names have not been visited yet.
    next: Key,
    last: Key,
    ordinal: u32,
    visit: &'n mut dyn FnMut(Name<'_>) -> ControlFlow<()>,
}

impl<V: Volume> Names<'_, V> {
    /// Visits a name of the committed index.
    pub(crate) fn committed(&mut self, key: Key, at: Location) -> ControlFlow<()> {
        if key > self.next {
            self.flush(Some(key))?;
            self.next = key;
            self.ordinal = 0;
        }
        // A replaced entry may have been overwritten since.
        if self.store.overlay.is_replaced(key, at) {
            return ControlFlow::Continue(());
        }
        let mut scratch = Scratch::new();
        let entry = self.store.entry(kind_of(key), key, at, &mut scratch);
        let changes = self.store.overlay.names_of(key);
        if let Ok(entry) = &entry
            && changes.iter().any(|change| *change.name == *entry.name)
        {
            return ControlFlow::Continue(());
        }
        self.tell(key, at, entry)
    }

    fn tell(
        &mut self,
        key: Key,
        at: Location,
        entry: Result<DirectoryEntry<'_>, Fault>,
    ) -> ControlFlow<()> {
        let ordinal = self.ordinal;
        self.ordinal += 1;
        (self.visit)(Name { key, ordinal, at, entry })
    }

    /// Visits the journal's names before `until`.
    fn flush(&mut self, until: Option<Key>) -> ControlFlow<()> {
        let last = until.map_or(self.last, Key::previous);
        while let Some(key) = self.store.overlay.next_names(self.next, last) {
            if key > self.next {
                self.ordinal = 0;
            }
            for change in self.store.overlay.names_of(key) {
                let Some(at) = change.location else { continue };
                let mut scratch = Scratch::new();
                let entry = self.store.entry(kind_of(key), key, at, &mut scratch);
                self.tell(key, at, entry)?;
            }
            if key == Key::MAX {
                break;
            }
            self.next = key.next();
            self.ordinal = 0;
        }
        ControlFlow::Continue(())
    }
}

/// The kind of names a key belongs to.
pub(crate) fn kind_of(key: Key) -> EntryKind {
    match key.kind() {
        KeyKind::XattrEntry => EntryKind::Xattr,
        _ => EntryKind::Directory,
    }
}

/// An inode number in the width that UBIFS stores.
pub(crate) fn number(inode: u64) -> Result<u32, FsError> {
    u32::try_from(inode).map_err(|_| FsError::NotFound)
}

/// The cause for a bad field in a node with a good checksum.
pub(crate) fn field(name: &'static str) -> Cause {
    Cause::Node(NodeError::Field(name))
}
