//! Content of the file system: inodes, names, attributes, and where their nodes are.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use flysch_api::vfs::FsError;
use flysch_wire::jffs2::{ByteOrder, Dirent, Inode, crc32};
use once_cell::race::OnceBox;

use super::loaded::Loaded;
use super::space::{Kind, Raw};
use crate::found::{Address, NodeRef};

const WORN: FsError = FsError::Unsupported("an inode whose version counter has reached its end");

/// `DT_DIR`.
pub(crate) const KIND_DIRECTORY: u8 = 4;

/// A name in a directory, or a removed name.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) name: Box<[u8]>,
    /// 0 for a removal; the entry is kept as long as an older one may be found on the flash.
    pub(crate) ino: u32,
    pub(crate) version: u32,
    pub(crate) address: Address,
    /// `DT_*`.
    pub(crate) kind: u8,
    /// mkfs.jffs2 wrote it: its time is that of the file.
    pub(crate) by_mkfs: bool,
}

/// Position of a name in its directory: by hash, and a number among those with the same hash. It
/// keeps this position as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    hash: u32,
    number: u32,
}

impl Spot {
    /// The position after this entry, never 0.
    pub(crate) fn position(self) -> u64 {
        // 63 bits, for those who keep it with a sign.
        (u64::from(self.hash >> 1) << 32 | u64::from(self.number)) + 1
    }

    /// The first position at or after a given one.
    pub(crate) fn at(position: u64) -> Self {
        Self { hash: ((position >> 32) as u32) << 1, number: position as u32 }
    }
}

/// The hash by which names are ordered.
pub(crate) fn hash(name: &[u8]) -> u32 {
    // The lowest bit has no place in a position.
    crc32(name) & !1
}

/// Names of a directory with the same hash up to which they are compared one by one. Chance hardly
/// ever gives two; but for CRC-32, any number of such names is easy to make.
const ALIKE_MAX: usize = 8;

/// The names of a directory.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    names: BTreeMap<Spot, Name>,
    /// For each hash that more than [`ALIKE_MAX`] names have had: their numbers, by name.
    crowds: BTreeMap<u32, BTreeMap<Box<[u8]>, u32>>,
    /// The parent directory; 0 for the root and for directories without a name.
    pub(crate) parent: u32,
    /// Number of names that are not removed.
    pub(crate) live: u32,
    /// Number of directories among them.
    pub(crate) subdirectories: u32,
}

impl Directory {
    /// An empty directory in `parent`.
    pub(crate) fn below(parent: u32) -> Box<Self> {
        let mut directory = Box::<Self>::default();
        directory.parent = parent;
        directory
    }

    /// The entry of a name, even if it is a removal.
    pub(crate) fn entry(&self, name: &[u8]) -> Option<&Name> {
        self.spot(name).map(|spot| &self.names[&spot])
    }

    pub(crate) fn entry_mut(&mut self, name: &[u8]) -> Option<&mut Name> {
        let spot = self.spot(name)?;
        self.names.get_mut(&spot)
    }

    /// The entry of an existing name.
    pub(crate) fn lookup(&self, name: &[u8]) -> Option<&Name> {
        self.entry(name).filter(|entry| entry.ino != 0)
    }

    /// Replaces an older entry of that name, which is returned.
    pub(crate) fn put(&mut self, entry: Name) -> Option<Name> {
        self.count(&entry, true);
        let old = match self.spot(&entry.name) {
            Some(spot) => self.names.insert(spot, entry),
            None => {
                self.insert(entry);
                None
            }
        };
        if let Some(old) = &old {
            self.count(old, false);
        }
        old
    }

    /// Forgets a name.
    pub(crate) fn take(&mut self, name: &[u8]) -> Option<Name> {
        let spot = self.spot(name)?;
        let old = self.remove(spot)?;
        self.count(&old, false);
        Some(old)
    }

    /// Forgets the removals of names with this hash that are older than `version`; returns their
    /// positions.
    pub(crate) fn take_removals(&mut self, hash: u32, version: u32) -> Vec<Address> {
        let is_old = |entry: &Name| entry.ino == 0 && entry.version < version;
        let old: Vec<(Spot, Address)> = self
            .alike(hash)
            .filter(|(_, entry)| is_old(entry))
            .map(|(spot, entry)| (spot, entry.address))
            .collect();
        for (spot, _) in &old {
            self.remove(*spot);
        }
        old.into_iter().map(|(_, address)| address).collect()
    }

    /// The entry at `address`, of a name with this hash; `None` also if it would take long to find
    /// among others with the same hash.
    pub(crate) fn entry_at(&self, hash: u32, address: Address) -> Option<&Name> {
        let mut alike = self.alike(hash).take(ALIKE_MAX).map(|(_, name)| name);
        alike.find(|name| name.address == address)
    }

    /// All entries from a position on, including removals.
    pub(crate) fn from(&self, spot: Spot) -> impl Iterator<Item = (Spot, &Name)> {
        self.names.range(spot..).map(|(spot, name)| (*spot, name))
    }

    /// All entries, including removals.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Name> {
        self.names.values()
    }

    fn count(&mut self, entry: &Name, more: bool) {
        let change = |count: &mut u32| *count = if more { *count + 1 } else { *count - 1 };
        if entry.ino != 0 {
            change(&mut self.live);
            if entry.kind == KIND_DIRECTORY {
                change(&mut self.subdirectories);
            }
        }
    }

    fn spot(&self, name: &[u8]) -> Option<Spot> {
        let hash = hash(name);
        if let Some(crowd) = self.crowds.get(&hash) {
            return crowd.get(name).map(|&number| Spot { hash, number });
        }
        self.alike(hash).find(|(_, entry)| *entry.name == *name).map(|(spot, _)| spot)
    }

    /// Entries of names with the same hash.
    fn alike(&self, hash: u32) -> impl Iterator<Item = (Spot, &Name)> {
        let range = Spot { hash, number: 0 }..=Spot { hash, number: u32::MAX };
        let alike = self.names.range(range).map(|(spot, name)| (*spot, name));
        #[cfg(test)]
        let alike = alike.inspect(|_| crate::steps::count());
        alike
    }

    /// Adds a name that is not there.
    fn insert(&mut self, entry: Name) {
        let hash = hash(&entry.name);
        let range = Spot { hash, number: 0 }..=Spot { hash, number: u32::MAX };
        let last = self.names.range(range).next_back();
        let number = last.map_or(0, |(spot, _)| spot.number.wrapping_add(1));
        if let Some(crowd) = self.crowds.get_mut(&hash) {
            crowd.insert(entry.name.clone(), number);
        }
        self.names.insert(Spot { hash, number }, entry);
        if !self.crowds.contains_key(&hash) && self.alike(hash).nth(ALIKE_MAX).is_some() {
            let crowd = self.alike(hash).map(|(spot, name)| (name.name.clone(), spot.number));
            let crowd = crowd.collect();
            self.crowds.insert(hash, crowd);
        }
    }

    fn remove(&mut self, spot: Spot) -> Option<Name> {
        let old = self.names.remove(&spot)?;
        if let Some(crowd) = self.crowds.get_mut(&spot.hash) {
            crowd.remove(&old.name);
            if crowd.is_empty() {
                self.crowds.remove(&spot.hash);
            }
        }
        Some(old)
    }
}

/// What is known about an inode in use.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Found by a reader: never changed.
    seen: OnceBox<Loaded>,
    /// Kept up to date with every change.
    own: Option<Box<Loaded>>,
}

impl Kept {
    pub(crate) fn get(&self) -> Option<&Loaded> {
        self.own.as_deref().or_else(|| self.seen.get())
    }

    /// Keeps what a reader found; if there are several, the first.
    pub(crate) fn see(&self, loaded: Loaded) {
        let _ = self.seen.set(Box::new(loaded));
    }

    pub(crate) fn get_mut(&mut self) -> Option<&mut Loaded> {
        self.own.as_deref_mut()
    }

    pub(crate) fn set(&mut self, loaded: Loaded) {
        *self = Self { seen: OnceBox::new(), own: Some(Box::new(loaded)) };
    }

    /// A node was copied elsewhere.
    fn moved(&mut self, from: Address, to: Address, node_start: u32) {
        self.seen = OnceBox::new();
        if let Some(own) = &mut self.own {
            own.moved(from, to, node_start);
        }
    }
}

/// An inode.
#[derive(Debug, Default)]
pub(crate) struct InodeState {
    /// Its nodes that may be valid, in ascending order of versions. A length of 0 marks an invalid
    /// one.
    pub(crate) nodes: Vec<NodeRef>,
    /// How many of them are invalid.
    dead: usize,
    /// The highest version of its nodes, and of its entries.
    pub(crate) version: u32,
    /// Number of its names; a directory has one.
    pub(crate) names: u32,
    pub(crate) directory: Option<Box<Directory>>,
    /// Invalid nodes have been sorted out.
    pub(crate) is_settled: bool,
    /// What else is known about it, once it has been read.
    pub(crate) loaded: Kept,
}

impl InodeState {
    /// A new one, without invalid nodes.
    pub(crate) fn new(directory: Option<Box<Directory>>) -> Self {
        Self { directory, is_settled: true, ..Self::default() }
    }

    /// Its nodes that may be valid.
    pub(crate) fn living(&self) -> Vec<NodeRef> {
        self.nodes.iter().filter(|node| node.total_len != 0).copied().collect()
    }

    fn index(&self, version: u32, address: Address) -> Option<usize> {
        let start = self.nodes.partition_point(|node| node.version < version);
        let same = self.nodes[start..].iter().take_while(|node| node.version == version);
        same.zip(start..).find(|(node, _)| node.address == address).map(|(_, index)| index)
    }

    /// A node becomes invalid.
    pub(crate) fn forget(&mut self, version: u32, address: Address) {
        let Some(index) = self.index(version, address) else { return };
        self.nodes[index].total_len = 0;
        self.dead += 1;
        if self.dead * 2 > self.nodes.len() + 16 {
            self.nodes.retain(|node| node.total_len != 0);
            self.dead = 0;
        }
    }

    /// A node, whose data begins at `node_start`, was copied elsewhere.
    pub(crate) fn moved(&mut self, version: u32, from: Address, to: Address, node_start: u32) {
        if let Some(index) = self.index(version, from) {
            self.nodes[index].address = to;
        }
        self.loaded.moved(from, to, node_start);
    }
}

/// An extended attribute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XattrState {
    pub(crate) version: u32,
    pub(crate) address: Address,
    pub(crate) total_len: u32,
    /// Number of inodes that have it.
    pub(crate) inodes: u32,
}

/// Records that an inode has an attribute, or had it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XrefState {
    pub(crate) xseqno: u32,
    pub(crate) address: Address,
    /// It records that the attribute was removed.
    pub(crate) is_removal: bool,
}

/// The complete content.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) inodes: BTreeMap<u32, InodeState>,
    pub(crate) xattrs: BTreeMap<u32, XattrState>,
    /// By inode and number of the attribute.
    pub(crate) xrefs: BTreeMap<(u32, u32), XrefState>,
    /// Number of nodes on the flash that record an existing entry where a newer node records
    /// otherwise, by directory and hash of the name. As long as there is one, a removal must stay.
    pub(crate) old_names: BTreeMap<(u32, u32), u32>,
    /// The same for attributes, by inode and number of the attribute.
    pub(crate) old_xrefs: BTreeMap<(u32, u32), u32>,
    pub(crate) next_ino: u32,
    pub(crate) next_xid: u32,
    pub(crate) xseqno: u32,
}

impl Tables {
    pub(super) fn state(&self, ino: u32) -> Result<&InodeState, FsError> {
        self.inodes.get(&ino).ok_or(FsError::NotFound)
    }

    pub(super) fn state_mut(&mut self, ino: u32) -> Result<&mut InodeState, FsError> {
        self.inodes.get_mut(&ino).ok_or(FsError::NotFound)
    }

    pub(super) fn directory_mut(&mut self, ino: u32) -> Result<&mut Directory, FsError> {
        let state = self.inodes.get_mut(&ino).ok_or(FsError::NotFound)?;
        state.directory.as_deref_mut().ok_or(FsError::NotDirectory)
    }

    /// The version of the next node of an inode.
    pub(super) fn next_version(&mut self, ino: u32) -> Result<u32, FsError> {
        let state = self.inodes.get_mut(&ino).ok_or(FsError::NotFound)?;
        state.version = state.version.checked_add(1).ok_or(WORN)?;
        Ok(state.version)
    }

    /// Returns an error if an inode cannot have this many more versions: to be called before the
    /// first of several nodes is written.
    pub(super) fn check_versions(&self, ino: u32, more: u32) -> Result<(), FsError> {
        self.state(ino)?.version.checked_add(more).ok_or(WORN).map(drop)
    }

    /// Notifies the owner that a copy of a node has replaced it.
    pub(super) fn moved(
        &mut self,
        raw: &Raw,
        (from, to): (Address, Address),
        bytes: &[u8],
        order: ByteOrder,
    ) {
        match raw.kind {
            Kind::Inode => {
                let start = Inode::parse(bytes, order).map_or(0, |inode| inode.offset);
                if let Some(state) = self.inodes.get_mut(&raw.owner) {
                    state.moved(raw.tag, from, to, start);
                }
            }
            Kind::Dirent | Kind::Removal => {
                let name = Dirent::parse(bytes, order).and_then(|dirent| dirent.name(bytes));
                if let Ok(name) = name
                    && let Ok(directory) = self.directory_mut(raw.owner)
                    && let Some(entry) = directory.entry_mut(name)
                    && entry.address == from
                {
                    entry.address = to;
                }
            }
            Kind::Xattr => {
                if let Some(xattr) = self.xattrs.get_mut(&raw.owner) {
                    xattr.address = to;
                }
            }
            Kind::Xref | Kind::XrefRemoval => {
                if let Some(xref) = self.xrefs.get_mut(&(raw.owner, raw.tag)) {
                    xref.address = to;
                }
            }
            Kind::Other => {}
        }
    }

    /// References of an inode to existing attributes, with the number of the attribute.
    pub(crate) fn xrefs_of(&self, ino: u32) -> Vec<(u32, XrefState)> {
        let range = self.xrefs.range((ino, 0)..=(ino, u32::MAX));
        let living = range.filter(|(_, xref)| !xref.is_removal);
        living.map(|((_, xid), xref)| (*xid, *xref)).collect()
    }
}

/// Counts one more node under `key`.
pub(crate) fn more(counts: &mut BTreeMap<(u32, u32), u32>, key: (u32, u32)) {
    *counts.entry(key).or_default() += 1;
}

/// Counts one node less under `key`; returns whether it was the last.
pub(crate) fn less(counts: &mut BTreeMap<(u32, u32), u32>, key: (u32, u32)) -> bool {
    let Some(count) = counts.get_mut(&key) else { return false };
    *count -= 1;
    let last = *count == 0;
    if last {
        counts.remove(&key);
    }
    last
}

#[cfg(test)]
mod tests;
