//! Interprets the results of a scan: which entry of a name is valid, and which inodes have names.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;

use flysch_wire::jffs2::ROOT_INO;
use once_cell::race::{OnceBool, OnceBox, OnceNonZeroUsize};

use crate::file::Layout;
use crate::found::{Address, DirentRef, Found, NodeRef, Problem, Space, XattrRef, XrefRef};

/// `DT_DIR`.
const KIND_DIRECTORY: u8 = 4;

/// A directory entry node that may hold the time when its directory was changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastChange {
    pub(crate) version: u32,
    pub(crate) address: Address,
}

/// One inode that has a name, or is the root.
#[derive(Debug)]
pub(crate) struct InodeRecord {
    pub(crate) ino: u32,
    /// Number of its names.
    pub(crate) names: u32,
    /// Number of directories among its entries.
    pub(crate) subdirectories: u32,
    /// Its nodes in [`Index::nodes`], in ascending order of versions.
    nodes: (u32, u32),
    /// Its entries in [`Index::entries`], by name.
    entries: (u32, u32),
    /// Its entries and removals in [`Index::changes`], newest first.
    changes: (u32, u32),
    /// Which of its nodes determines the attributes, counted from 1, once this has been decided: a
    /// page that does not read the same each time is judged only once.
    pub(crate) told_by: OnceNonZeroUsize,
    /// Whether it is a directory, once this has been decided.
    pub(crate) is_directory: OnceBool,
    /// The pieces of a large file, once they have been determined.
    pub(crate) layout: OnceBox<Layout>,
}

impl InodeRecord {
    pub(crate) fn nodes(&self) -> Range<usize> {
        self.nodes.0 as usize..self.nodes.1 as usize
    }

    pub(crate) fn changes(&self) -> Range<usize> {
        self.changes.0 as usize..self.changes.1 as usize
    }

    pub(crate) fn entries(&self) -> Range<usize> {
        self.entries.0 as usize..self.entries.1 as usize
    }
}

/// The content of the file system, in tables sorted for lookup.
#[derive(Debug)]
pub(crate) struct Index {
    /// By inode and ascending version.
    pub(crate) nodes: Vec<NodeRef>,
    /// By inode number.
    pub(crate) inodes: Vec<InodeRecord>,
    /// Valid entries, by directory and name.
    pub(crate) entries: Vec<DirentRef>,
    pub(crate) names: Vec<u8>,
    /// Entries that may tell when directories were changed, by directory, newest first.
    pub(crate) changes: Vec<LastChange>,
    /// The newest node of each attribute, by number.
    pub(crate) xattrs: Vec<XattrRef>,
    /// Valid references, by inode.
    pub(crate) xrefs: Vec<XrefRef>,
    /// Entries that refer to no inode on the flash.
    pub(crate) dangling: Vec<DirentRef>,
    /// Inodes without a name, and those in directories without one.
    pub(crate) nameless: Vec<u32>,
    /// See [`Found::may_miss_nodes`].
    pub(crate) may_miss_nodes: bool,
    pub(crate) problems: Vec<Problem>,
    pub(crate) problems_dropped: u64,
    pub(crate) space: Space,
}

/// How to treat inodes to which no path leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nameless {
    /// They are dropped with everything in them, as in Linux.
    Drop,
    /// They can be accessed by number.
    Keep,
}

impl Index {
    pub(crate) fn build(mut found: Found, choice: Nameless) -> Self {
        let nodes = sorted_nodes(core::mem::take(&mut found.nodes));
        let by_mkfs = written_by_mkfs(&found.dirents, &nodes);
        let (winners, changes) = resolve(&mut found.dirents, &found.names, by_mkfs);
        drop(core::mem::take(&mut found.dirents));
        let inos = known_inos(&nodes, &winners, &changes);
        let (entries, dangling): (Vec<_>, Vec<_>) =
            winners.into_iter().partition(|entry| inos.binary_search(&entry.ino).is_ok());
        let all = if choice == Nameless::Keep { entries.clone() } else { Vec::new() };
        let (mut entries, nameless) = reachable(entries, &inos);
        let mut dropped = &nameless[..];
        if choice == Nameless::Keep {
            entries = all;
            dropped = &[];
        }
        let mut index = Self {
            inodes: records(&inos, dropped, &nodes, &entries, &changes),
            nodes,
            entries,
            names: found.names,
            changes: changes.into_iter().map(|(_, change)| change).collect(),
            xattrs: newest_xattrs(found.xattrs),
            xrefs: vec![],
            dangling,
            nameless,
            may_miss_nodes: found.may_miss_nodes,
            problems: found.problems,
            problems_dropped: found.problems_dropped,
            space: found.space,
        };
        index.xrefs = index.living_xrefs(found.xrefs);
        index
    }

    /// The record of `ino`, if that inode has a name.
    pub(crate) fn inode(&self, ino: u32) -> Option<&InodeRecord> {
        let at = self.inodes.binary_search_by_key(&ino, |record| record.ino).ok()?;
        Some(&self.inodes[at])
    }

    /// The entry `name` of a directory.
    pub(crate) fn lookup(&self, directory: &InodeRecord, name: &[u8]) -> Option<&DirentRef> {
        let entries = &self.entries[directory.entries()];
        let at = entries.binary_search_by(|entry| entry.name(&self.names).cmp(name)).ok()?;
        Some(&entries[at])
    }

    /// References of `ino` to attributes.
    pub(crate) fn xrefs_of(&self, ino: u32) -> &[XrefRef] {
        let start = self.xrefs.partition_point(|xref| xref.ino < ino);
        let len = self.xrefs[start..].partition_point(|xref| xref.ino == ino);
        &self.xrefs[start..start + len]
    }

    /// The node of attribute `xid`.
    pub(crate) fn xattr(&self, xid: u32) -> Option<&XattrRef> {
        let at = self.xattrs.binary_search_by_key(&xid, |xattr| xattr.xid).ok()?;
        Some(&self.xattrs[at])
    }

    /// Of all references, the newest for each inode and attribute, unless it is a removal.
    fn living_xrefs(&self, mut xrefs: Vec<XrefRef>) -> Vec<XrefRef> {
        xrefs.sort_unstable_by_key(|xref| (xref.ino, xref.xid, Reverse(xref.xseqno)));
        xrefs.dedup_by_key(|xref| (xref.ino, xref.xid));
        xrefs.retain(|xref| xref.xseqno & 1 == 0 && self.inode(xref.ino).is_some());
        xrefs
    }
}

fn sorted_nodes(mut nodes: Vec<NodeRef>) -> Vec<NodeRef> {
    // Images of mkfs are in this order already, which the stable sort notices. Equal versions keep
    // the order of the flash.
    nodes.sort_by_key(|node| (node.ino, node.version));
    nodes.shrink_to_fit();
    nodes
}

/// The last directory entry node of the part at the front of the flash that mkfs.jffs2 wrote and
/// that has not been moved since.
///
/// mkfs.jffs2 numbers the entries of all directories with one counter from 0, in the order of the
/// flash, which Linux never does, and gives each the time of the file, not that of the directory's
/// change. If Linux continues in the directory whose entry was the last one, it continues the
/// numbers too. But it writes a new file before its name, and mkfs.jffs2 writes the name before the
/// file.
pub(crate) fn written_by_mkfs(dirents: &[DirentRef], nodes: &[NodeRef]) -> Option<Address> {
    let count = (0u32..).zip(dirents).take_while(|(n, dirent)| *n == dirent.version).count();
    let last = dirents[..count].last()?;
    let before = |node: &&NodeRef| node.ino == last.ino && node.address < last.address;
    if last.ino != 0 && !nodes.iter().any(|node| before(&node)) {
        return Some(last.address);
    }
    let mut first: BTreeMap<u32, Address> = BTreeMap::new();
    for node in nodes {
        let at = first.entry(node.ino).or_insert(node.address);
        *at = node.address.min(*at);
    }
    // A name that follows its file is the second one of it, or not by mkfs.
    let mut named = BTreeSet::new();
    let by_mkfs = |dirent: &&DirentRef| {
        let is_first = named.insert(dirent.ino);
        let follows = first.get(&dirent.ino).is_some_and(|first| *first < dirent.address);
        dirent.ino != 0 && !(is_first && follows)
    };
    dirents[..count].iter().take_while(by_mkfs).last().map(|dirent| dirent.address)
}

/// For each name of each directory the valid entry, without removals, by directory and name; and
/// the same entries including removals, newest first in each directory, without those up to
/// `by_mkfs`.
fn resolve(
    dirents: &mut [DirentRef],
    names: &[u8],
    by_mkfs: Option<Address>,
) -> (Vec<DirentRef>, Vec<(u32, LastChange)>) {
    let mut changes: Vec<(u32, LastChange)> = vec![];
    dirents.sort_by(|a, b| {
        let a_key = (a.pino, a.name(names), Reverse(a.version));
        let b_key = (b.pino, b.name(names), Reverse(b.version));
        // Of two with the same version the one that lies further back counts.
        a_key.cmp(&b_key).then(b.address.cmp(&a.address))
    });
    let mut winners = vec![];
    let mut previous: Option<&DirentRef> = None;
    for dirent in dirents.iter() {
        let same_name =
            previous.is_some_and(|p| p.pino == dirent.pino && p.name(names) == dirent.name(names));
        previous = Some(dirent);
        if same_name {
            continue;
        }
        if Some(dirent.address) > by_mkfs {
            let change = LastChange { version: dirent.version, address: dirent.address };
            changes.push((dirent.pino, change));
        }
        if dirent.ino != 0 {
            winners.push(*dirent);
        }
    }
    changes.sort_unstable_by_key(|(pino, change)| (*pino, Reverse(change.version)));
    (winners, changes)
}

/// Inodes with a node, and directories with an entry, even if it is a removal: Linux makes up
/// attributes for the latter. Directories with nothing but removals are included only if they have
/// a name.
fn known_inos(nodes: &[NodeRef], entries: &[DirentRef], changes: &[(u32, LastChange)]) -> Vec<u32> {
    let mut inos: Vec<u32> = vec![ROOT_INO];
    inos.extend(nodes.chunk_by(|a, b| a.ino == b.ino).map(|chunk| chunk[0].ino));
    inos.extend(entries.chunk_by(|a, b| a.pino == b.pino).map(|chunk| chunk[0].pino));
    inos.sort_unstable();
    inos.dedup();
    let changed = changes.chunk_by(|a, b| a.0 == b.0).map(|chunk| chunk[0].0);
    let bare: Vec<u32> = changed.filter(|pino| inos.binary_search(pino).is_err()).collect();
    let named: BTreeSet<u32> = match bare[..] {
        [] => BTreeSet::new(),
        _ => entries.iter().map(|entry| entry.ino).collect(),
    };
    inos.extend(bare.into_iter().filter(|pino| named.contains(pino)));
    inos.sort_unstable();
    inos
}

/// Drops the entries of directories that have no name themselves, down the tree; returns the
/// remaining entries and the inodes that end up without a name.
fn reachable(entries: Vec<DirentRef>, inos: &[u32]) -> (Vec<DirentRef>, Vec<u32>) {
    let position = |ino: u32| inos.binary_search(&ino).ok();
    let mut names = vec![0u32; inos.len()];
    for entry in &entries {
        if let Some(at) = position(entry.ino) {
            names[at] += 1;
        }
    }
    let is_nameless = |names: &[u32], at: usize| names[at] == 0 && inos[at] != ROOT_INO;
    let mut nameless: Vec<usize> = (0..inos.len()).filter(|&at| is_nameless(&names, at)).collect();
    let mut next = 0;
    while let Some(&at) = nameless.get(next) {
        next += 1;
        let start = entries.partition_point(|entry| entry.pino < inos[at]);
        for entry in entries[start..].iter().take_while(|entry| entry.pino == inos[at]) {
            if let Some(child) = position(entry.ino) {
                names[child] -= 1;
                if is_nameless(&names, child) {
                    nameless.push(child);
                }
            }
        }
    }
    let mut nameless: Vec<u32> = nameless.into_iter().map(|at| inos[at]).collect();
    nameless.sort_unstable();
    let stay = |entry: &DirentRef| nameless.binary_search(&entry.pino).is_err();
    let entries = entries.into_iter().filter(stay).collect();
    (entries, nameless)
}

fn records(
    inos: &[u32],
    nameless: &[u32],
    nodes: &[NodeRef],
    entries: &[DirentRef],
    changes: &[(u32, LastChange)],
) -> Vec<InodeRecord> {
    let mut records: Vec<InodeRecord> = Vec::with_capacity(inos.len() - nameless.len());
    let (mut node_at, mut entry_at) = (0, 0);
    for &ino in inos.iter().filter(|ino| nameless.binary_search(ino).is_err()) {
        node_at += nodes[node_at..].partition_point(|node| node.ino < ino);
        let nodes_len = nodes[node_at..].iter().take_while(|node| node.ino == ino).count();
        entry_at += entries[entry_at..].partition_point(|entry| entry.pino < ino);
        let own = entries[entry_at..].iter().take_while(|entry| entry.pino == ino);
        let (count, subdirectories) = own.fold((0, 0), |(count, directories), entry| {
            (count + 1, directories + u32::from(entry.kind == KIND_DIRECTORY))
        });
        let change_at = changes.partition_point(|(pino, _)| *pino < ino);
        let change_end = changes.partition_point(|(pino, _)| *pino <= ino);
        records.push(InodeRecord {
            ino,
            names: 0,
            subdirectories,
            nodes: (node_at as u32, (node_at + nodes_len) as u32),
            entries: (entry_at as u32, (entry_at + count) as u32),
            changes: (change_at as u32, change_end as u32),
            told_by: OnceNonZeroUsize::new(),
            is_directory: OnceBool::new(),
            layout: OnceBox::new(),
        });
    }
    for entry in entries {
        if let Ok(at) = records.binary_search_by_key(&entry.ino, |record| record.ino) {
            records[at].names += 1;
        }
    }
    records
}

/// The newest node of each attribute, by number.
fn newest_xattrs(mut xattrs: Vec<XattrRef>) -> Vec<XattrRef> {
    xattrs.sort_by_key(|xattr| (xattr.xid, Reverse(xattr.version)));
    xattrs.dedup_by_key(|xattr| xattr.xid);
    xattrs
}
