//! What is kept, what is dropped, and what is recomputed.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use flysch_api::finding::{Finding, Place, Severity};
use flysch_api::vfs::{FileKind, Inode};
use flysch_api::volume::Volume;
use flysch_wire::ubifs::{
    Compression, EntryKind, INODE_NODE_SIZE, InodeFlags, InodeNode, Key, NodeKind, ROOT_INODE,
};

use super::{Change, Level, Report};
use crate::access::Scratch;
use crate::file::entry_size;
use crate::location::Location;
use crate::open::Ubifs;
use crate::store::default_compression;
use crate::write::rebase::{NewName, NewState};

/// What an inode says about itself, or will say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) kind: FileKind,
    pub(super) is_xattr: bool,
    pub(super) links: u32,
    pub(super) size: u64,
    pub(super) xattr_count: u32,
    pub(super) xattr_size: u32,
    pub(super) xattr_names: u32,
    pub(super) data_len: usize,
}

/// An inode.
#[derive(Clone, Debug)]
pub(super) struct File {
    /// `None`: a new inode.
    pub(super) at: Option<Location>,
    /// `None`: cannot be kept.
    pub(super) said: Option<Said>,
    /// The stored size differs: data was written after the inode.
    pub(super) grown: bool,
    /// Blocks of content belong to it, although it is not a regular file.
    pub(super) has_blocks: bool,
    /// Where its last block ends.
    pub(super) end: u64,
    /// A path leads to it, or to the file that it is an attribute of.
    pub(super) reached: bool,
}

impl File {
    /// An inode known only by its place.
    pub(super) fn new(at: Option<Location>) -> Self {
        Self { at, said: None, grown: false, has_blocks: false, end: 0, reached: false }
    }
}

/// A name.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub(super) key: Key,
    pub(super) kind: EntryKind,
    pub(super) name: Box<[u8]>,
    pub(super) inode: u32,
    pub(super) file_type: u8,
    /// `None`: a new name.
    pub(super) at: Option<Location>,
    pub(super) dropped: bool,
}

/// The changes to make.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) report: Report,
    pub(super) files: BTreeMap<u32, File>,
    /// In key order; new ones come last.
    pub(super) names: Vec<Name>,
    pub(super) data: Vec<(Key, Location)>,
    pub(super) dropped: Vec<Location>,
    /// LEBs of the journal in which nodes were lost.
    pub(super) damaged_buds: Vec<u32>,
    /// Good inode nodes that the index lists under the number of another inode: their own numbers
    /// and places.
    pub(super) misfiled: Vec<(u32, Location)>,
}

impl Plan {
    pub(super) fn new<V: Volume>(fs: &Ubifs<V>, damaged_buds: &[u32]) -> Self {
        let mut plan = Self { damaged_buds: damaged_buds.into(), ..Self::default() };
        plan.read_nodes(fs);
        plan.read_names(fs);
        if plan.is_empty() {
            // No inode is left for names or blocks to belong to.
            plan.drop_unreached(fs);
            plan.make_root(fs);
            plan.recount(fs);
            plan.fill_paths();
            return plan;
        }
        plan.judge_names(fs);
        plan.one_name_each(fs);
        plan.make_root(fs);
        plan.reach();
        plan.rescue(fs);
        plan.drop_unreached(fs);
        plan.recount(fs);
        plan.fill_paths();
        plan
    }

    /// Whether no inode on the flash can be kept.
    pub(super) fn is_empty(&self) -> bool {
        !self.files.values().any(|file| file.said.is_some() && file.at.is_some())
    }

    /// Puts the changes to structures below the files before the others.
    pub(super) fn add_structures(&mut self, mut structures: Vec<Change>) {
        structures.append(&mut self.report.changes);
        self.report.level = structures.iter().map(|change| change.level).max();
        self.report.changes = structures;
    }

    /// Records a change to a file.
    pub(super) fn tell<V: Volume>(
        &mut self,
        fs: &Ubifs<V>,
        (level, action): (Level, String),
        (structure, at): (&'static str, Option<Location>),
        (inode, problem): (u32, String),
    ) {
        let severity = if level == Level::Safe { Severity::Inconsistent } else { Severity::Lost };
        let place = at.map_or(Place::default(), |at| fs.store.access.place(at.lnum, at.offset));
        let inode = Some(Inode(inode.into()));
        let finding = Finding { severity, structure, problem, place, inode, path: None };
        self.report.changes.push(Change { level, finding, action });
    }

    /// Shows that the index is misleading: an inode that names lead to exists, but the index has it
    /// only under the number of another one.
    pub(super) fn astray<V: Volume>(&self, fs: &Ubifs<V>) -> Option<Finding> {
        let is_missed = |inode: u32| {
            let is_wanted = |name: &Name| name.inode == inode || name.key.inode() == inode;
            !self.files.contains_key(&inode) && self.names.iter().any(is_wanted)
        };
        let (inode, at) = self.misfiled.iter().find(|(inode, _)| is_missed(*inode))?;
        Some(Finding {
            severity: Severity::Inconsistent,
            structure: NodeKind::Index.name(),
            problem: format!("inode {inode} is listed under the number of another inode"),
            place: fs.store.access.place(at.lnum, at.offset),
            inode: Some(Inode((*inode).into())),
            path: None,
        })
    }

    pub(super) fn file(&self, inode: u32) -> Option<(&File, Said)> {
        let file = self.files.get(&inode)?;
        file.said.map(|said| (file, said))
    }

    /// Compares every inode with what belongs to it.
    fn recount<V: Volume>(&mut self, fs: &Ubifs<V>) {
        let mut counted: BTreeMap<u32, Said> = BTreeMap::new();
        for (&inode, file) in &self.files {
            let Some(said) = file.said else { continue };
            let is_directory = said.kind == FileKind::Directory;
            let size = match said.kind {
                FileKind::Directory => INODE_NODE_SIZE as u64,
                FileKind::Regular if !said.is_xattr => said.size.max(file.end),
                _ => said.size,
            };
            let links = if is_directory { 2 } else { 0 };
            let (xattr_count, xattr_size, xattr_names) = (0, 0, 0);
            let new = Said { links, size, xattr_count, xattr_size, xattr_names, ..said };
            counted.insert(inode, new);
        }
        for name in self.names.iter().filter(|name| !name.dropped) {
            let Some(target) = counted.get_mut(&name.inode) else { continue };
            let is_directory = target.kind == FileKind::Directory;
            target.links += u32::from(!is_directory);
            let value = (INODE_NODE_SIZE + target.data_len + 1).next_multiple_of(8) as u64;
            let Some(parent) = counted.get_mut(&name.key.inode()) else { continue };
            match name.kind {
                EntryKind::Directory => {
                    parent.links += u32::from(is_directory);
                    parent.size += entry_size(&name.name);
                }
                EntryKind::Xattr => {
                    parent.xattr_count += 1;
                    parent.xattr_size += (entry_size(&name.name) + value) as u32;
                    parent.xattr_names += name.name.len() as u32;
                }
            }
        }
        for (inode, new) in counted {
            self.compare(fs, inode, new);
        }
        self.report.level = self.report.changes.iter().map(|change| change.level).max();
    }

    fn compare<V: Volume>(&mut self, fs: &Ubifs<V>, inode: u32, new: Said) {
        let Some(file) = self.files.get_mut(&inode) else { return };
        let (at, Some(old)) = (file.at, file.said.replace(new)) else { return };
        if at.is_none() {
            return;
        }
        file.grown |= new != old;
        let fields = [
            ("nlink", u64::from(old.links), u64::from(new.links)),
            ("size", old.size, new.size),
            ("xattr_cnt", old.xattr_count.into(), new.xattr_count.into()),
            ("xattr_size", old.xattr_size.into(), new.xattr_size.into()),
            ("xattr_names", old.xattr_names.into(), new.xattr_names.into()),
        ];
        for (field, old, new) in fields.into_iter().filter(|(_, old, new)| old != new) {
            let action = format!("{field} set to {new}");
            let problem = format!("{field} is {old}, but should be {new}");
            self.tell(fs, (Level::Safe, action), ("inode node", at), (inode, problem));
        }
    }

    /// Adds paths to the changes that concern an inode.
    fn fill_paths(&mut self) {
        /// More levels than any path has.
        const LEVELS_MAX: usize = 4096;
        let mut above: BTreeMap<u32, (u32, &[u8])> = BTreeMap::new();
        for name in &self.names {
            above.entry(name.inode).or_insert((name.key.inode(), &name.name));
        }
        for change in &mut self.report.changes {
            let Some(Inode(inode)) = change.finding.inode else { continue };
            let mut names = Vec::new();
            let mut at = inode as u32;
            while at != ROOT_INODE && names.len() < LEVELS_MAX {
                let Some((parent, name)) = above.get(&at) else { break };
                names.push(*name);
                at = *parent;
            }
            if at == ROOT_INODE {
                names.reverse();
                change.finding.path = Some(names.join(&b'/'));
            }
        }
    }

    /// The state to write.
    pub(super) fn state<V: Volume>(self, fs: &Ubifs<V>, now: u64) -> NewState {
        let mut state = NewState { dropped: self.dropped, ..NewState::default() };
        let mut scratch = Scratch::new();
        for (&inode, file) in &self.files {
            let key = Key::inode_node(inode);
            match (file.at, file.said) {
                (Some(at), Some(_)) if !file.grown => state.kept.set(key, at),
                (Some(at), Some(said)) => {
                    let Ok(node) = fs.store.inode(inode, at, &mut scratch) else { continue };
                    state.inodes.push((updated(&node, &said), node.data.into()));
                }
                (None, Some(said)) => state.inodes.push((made(inode, &said, fs, now), Vec::new())),
                (_, None) => {}
            }
        }
        let kept: BTreeSet<u32> =
            self.files.iter().filter(|it| it.1.said.is_some()).map(|it| *it.0).collect();
        for (key, at) in self.data.into_iter().filter(|(key, _)| kept.contains(&key.inode())) {
            state.kept.set(key, at);
        }
        for name in self.names.into_iter().filter(|name| !name.dropped) {
            match name.at {
                Some(at) => state.kept.set_name(name.key, &name.name, Some(at)),
                None => state.names.push(NewName {
                    parent: name.key.inode(),
                    name: name.name,
                    inode: name.inode,
                    file_type: name.file_type,
                }),
            }
        }
        state
    }
}

/// An inode node with new counts.
fn updated(node: &InodeNode<'_>, said: &Said) -> InodeNode<'static> {
    InodeNode {
        links: said.links,
        size: said.size,
        xattr_count: said.xattr_count,
        xattr_size: said.xattr_size,
        xattr_names: said.xattr_names,
        data: &[],
        ..*node
    }
}

/// The inode node of a new directory.
fn made<V: Volume>(inode: u32, said: &Said, fs: &Ubifs<V>, now: u64) -> InodeNode<'static> {
    let compression = default_compression(fs.superblock());
    let is_packed = compression != Compression::None;
    InodeNode {
        key: Key::inode_node(inode),
        creation_sequence: fs.master.as_ref().map_or(0, |chosen| chosen.sequence),
        size: said.size,
        accessed: (now, 0),
        changed: (now, 0),
        modified: (now, 0),
        links: said.links,
        owner: 0,
        group: 0,
        mode: FileKind::Directory.mode_bits() | if inode == ROOT_INODE { 0o755 } else { 0o700 },
        flags: if is_packed { InodeFlags::COMPRESS } else { InodeFlags::default() },
        xattr_count: 0,
        xattr_size: 0,
        xattr_names: 0,
        compression,
        data: &[],
    }
}
