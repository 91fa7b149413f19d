//! Checks names against inodes, and inodes against what belongs to them.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use flysch_api::finding::Severity;
use flysch_api::vfs::FileKind;
use flysch_api::volume::Volume;
use flysch_wire::ubifs::{
    BLOCK_SIZE, Compression, DirectoryEntry, EntryKind, INLINE_DATA_MAX, INODE_NODE_SIZE,
    InodeFlags, InodeNode, Key, KeyKind, NodeKind, ROOT_INODE,
};

use super::Check;
use crate::access::{Fault, Scratch};
use crate::file::{device_of, entry_size, is_name, kind_of};
use crate::location::Location;
use crate::store::Name;

/// The size of a directory without entries.
const DIRECTORY_SIZE: u64 = INODE_NODE_SIZE as u64;

/// What an inode node says.
#[derive(Clone, Copy)]
struct Said {
    kind: Option<FileKind>,
    links: u32,
    size: u64,
    flags: InodeFlags,
    xattr_count: u32,
    xattr_size: u32,
    xattr_names: u32,
    data_len: usize,
}

/// An inode and what was found about it.
struct Info {
    at: Location,
    /// `None`: the node cannot be read.
    said: Option<Said>,
    /// Directory entries that lead to it.
    names: u32,
    /// Extended attribute entries that lead to it.
    xattr_names_of: u32,
    /// The first of these entries: its parent and name.
    parent: u32,
    name: Box<[u8]>,
    directories: u32,
    entries_size: u64,
    xattr_count: u32,
    xattr_size: u64,
    xattr_names: u64,
}

type Infos = BTreeMap<u32, Info>;

impl<V: Volume> Check<'_, V> {
    /// Checks every file.
    pub(super) fn files(&mut self) {
        let mut infos = Infos::new();
        self.read_nodes(&mut infos);
        self.read_names(&mut infos);
        let reachable = reachable(&infos);
        for (&inode, info) in &infos {
            self.judge(inode, info, reachable.get(&inode).copied().unwrap_or(false));
        }
        if !infos.contains_key(&ROOT_INODE) {
            let problem = String::from("there is no root directory");
            self.tell(Severity::Lost, "root directory", problem, (0, 0));
        }
        self.highest_inode(&infos);
        self.fill_paths(&infos);
    }

    fn fault(&mut self, fault: &Fault, inode: u32) {
        self.findings.push(fault.finding_of(Severity::Lost, inode));
    }

    /// Reads every inode and data node.
    fn read_nodes(&mut self, infos: &mut Infos) {
        let fs = self.fs;
        let mut scratch = Scratch::new();
        let walked = fs.store.nodes(Key::MIN, Key::MAX, &mut |key, at| {
            if key.kind() == KeyKind::Data {
                self.data(key, at, infos, &mut scratch);
            } else {
                let said = match fs.store.inode(key.inode(), at, &mut scratch) {
                    Ok(node) => Some(self.said(&node, at)),
                    Err(fault) => {
                        self.fault(&fault, key.inode());
                        None
                    }
                };
                if !key.is_inode_node() {
                    let node = (NodeKind::Inode, at, key.inode());
                    let problem = format!("its key in the index is {key}: no lookup finds it");
                    self.tell_inode(Severity::Lost, problem, node);
                }
                // The node under the inode's own key, if there is one, came first.
                infos.entry(key.inode()).or_insert(Info::new(at, said));
            }
            ControlFlow::Continue(())
        });
        if let Err(fault) = walked {
            self.findings.push(fault.finding(Severity::Lost));
        }
    }

    /// Records what an inode node says, and checks it on its own.
    fn said(&mut self, node: &InodeNode<'_>, at: Location) -> Said {
        let inode = node.key.inode();
        for problem in impossible(node) {
            self.tell_inode(Severity::Lost, problem, (NodeKind::Inode, at, inode));
        }
        Said {
            kind: FileKind::from_mode(node.mode),
            links: node.links,
            size: self.fs.size_of(node),
            flags: node.flags,
            xattr_count: node.xattr_count,
            xattr_size: node.xattr_size,
            xattr_names: node.xattr_names,
            data_len: node.data.len(),
        }
    }

    fn data(&mut self, key: Key, at: Location, infos: &Infos, scratch: &mut Scratch) {
        let inode = key.inode();
        let node = (NodeKind::Data, at, inode);
        let data = match self.fs.data(key, at, scratch) {
            Ok(data) => data,
            Err(fault) => return self.fault(&fault, inode),
        };
        let said = match infos.get(&inode) {
            None => {
                let problem = format!("block {} of an inode that does not exist", key.value());
                return self.tell_inode(Severity::Lost, problem, node);
            }
            Some(Info { said: None, .. }) => return,
            Some(Info { said: Some(said), .. }) => said,
        };
        let start = u64::from(key.value()) * u64::from(BLOCK_SIZE);
        if said.kind != Some(FileKind::Regular) {
            let problem = String::from("content of an inode that is not a regular file");
            self.tell_inode(Severity::Inconsistent, problem, node);
        } else if start + u64::from(data.size) > said.size {
            let end = start + u64::from(data.size);
            let problem = format!("content up to {end} in a file of size {}", said.size);
            self.tell_inode(Severity::Inconsistent, problem, node);
        } else if !self.unpacks(&data, said.flags.contains(InodeFlags::ENCRYPTED)) {
            let problem = format!("block {} cannot be decompressed", key.value());
            self.tell_inode(Severity::Lost, problem, node);
        }
    }

    /// Reads every name.
    fn read_names(&mut self, infos: &mut Infos) {
        let fs = self.fs;
        let walked = fs.store.names_between(Key::MIN, Key::MAX, &mut |name| {
            match &name.entry {
                Ok(entry) => self.name(&name, entry, infos),
                Err(fault) => self.fault(fault, name.key.inode()),
            }
            ControlFlow::Continue(())
        });
        if let Err(fault) = walked {
            self.findings.push(fault.finding(Severity::Lost));
        }
    }

    /// Checks one name: its own fields, its parent, and its target.
    fn name(&mut self, name: &Name<'_>, entry: &DirectoryEntry<'_>, infos: &mut Infos) {
        let parent = name.key.inode();
        let kind = match entry.kind {
            EntryKind::Directory => NodeKind::Entry,
            EntryKind::Xattr => NodeKind::XattrEntry,
        };
        let node = (kind, name.at, parent);
        let shown = entry.name.escape_ascii();
        let parent_said = infos.get(&parent).map(|info| info.said);
        let encrypted =
            parent_said.flatten().is_some_and(|said| said.flags.contains(InodeFlags::ENCRYPTED));
        let hash = self.fs.store.hash().hash(entry.name);
        if !encrypted && (hash != name.key.value() || !is_name(entry.name)) {
            let problem = format!("\"{shown}\" has hash {hash:#x}, but its key is {}", name.key);
            self.tell_inode(Severity::Lost, problem, node);
        }
        let is_directory = |said: Said| said.kind == Some(FileKind::Directory);
        match (entry.kind, parent_said) {
            (_, None) => {
                let problem = format!("\"{shown}\" belongs to an inode that does not exist");
                self.tell_inode(Severity::Lost, problem, node);
            }
            (EntryKind::Directory, Some(Some(said))) if !is_directory(said) => {
                let problem = format!("\"{shown}\" is in an inode that is not a directory");
                self.tell_inode(Severity::Lost, problem, node);
            }
            _ => {}
        }
        self.target(entry, (node, encrypted), infos);
    }

    /// Checks the target of a name.
    fn target(
        &mut self,
        entry: &DirectoryEntry<'_>,
        (node, encrypted): ((NodeKind, Location, u32), bool),
        infos: &mut Infos,
    ) {
        let (shown, parent) = (entry.name.escape_ascii(), node.2);
        let info = u32::try_from(entry.inode).ok().and_then(|inode| infos.get_mut(&inode));
        let Some(info) = info else {
            let problem =
                format!("\"{shown}\" leads to inode {}, which does not exist", entry.inode);
            return self.tell_inode(Severity::Lost, problem, node);
        };
        let said = info.said;
        let is_xattr = said.is_some_and(|said| said.flags.contains(InodeFlags::XATTR));
        let kind = said.and_then(|said| said.kind);
        // mkfs.ubifs gives the entry of an extended attribute the file type of its host.
        let type_fits = match entry.kind {
            EntryKind::Directory => kind_of(entry.file_type) == kind,
            EntryKind::Xattr => kind_of(entry.file_type).is_some(),
        };
        if said.is_some() && !type_fits {
            let kind = kind.map_or("an unknown kind".into(), |kind| format!("kind {kind:?}"));
            let problem =
                format!("\"{shown}\" has type {}, but its inode is of {kind}", entry.file_type);
            self.tell_inode(Severity::Lost, problem, node);
        }
        if said.is_some() && is_xattr != (entry.kind == EntryKind::Xattr) {
            let problem = format!(
                "\"{shown}\" leads to inode {}, which is used for something else",
                entry.inode
            );
            self.tell_inode(Severity::Lost, problem, node);
        }
        if info.names + info.xattr_names_of == 0 {
            info.parent = parent;
            let encrypted = encrypted && entry.kind == EntryKind::Directory;
            info.name = self.path_name(entry, (parent, encrypted));
        }
        let data_len = said.map_or(0, |said| said.data_len);
        match entry.kind {
            EntryKind::Directory => info.names += 1,
            EntryKind::Xattr => info.xattr_names_of += 1,
        }
        let Some(host) = infos.get_mut(&parent) else { return };
        match entry.kind {
            EntryKind::Directory => {
                host.directories += u32::from(kind == Some(FileKind::Directory));
                host.entries_size += entry_size(entry.name);
            }
            EntryKind::Xattr => {
                let value = (INODE_NODE_SIZE + data_len + 1).next_multiple_of(8) as u64;
                host.xattr_count += 1;
                host.xattr_size += entry_size(entry.name) + value;
                host.xattr_names += entry.name.len() as u64;
            }
        }
    }

    /// Checks an inode against what was found about it.
    fn judge(&mut self, inode: u32, info: &Info, reachable: bool) {
        let Some(said) = info.said else { return };
        let node = (NodeKind::Inode, info.at, inode);
        let is_xattr = said.flags.contains(InodeFlags::XATTR);
        if !reachable {
            let problem = match (is_xattr, info.names + info.xattr_names_of) {
                (true, _) => "an extended attribute that no file has",
                (false, 0) => "no directory names it",
                (false, _) => "no path leads to it",
            };
            self.tell_inode(Severity::Lost, problem.into(), node);
        }
        if said.flags.contains(InodeFlags::ENCRYPTED) && self.fs.store.context(inode).is_err() {
            let problem = String::from("its encryption context is missing or damaged");
            self.tell_inode(Severity::Lost, problem, node);
        }
        let is_directory = said.kind == Some(FileKind::Directory);
        let links = match is_directory {
            true => info.directories + 2,
            false => info.names + info.xattr_names_of,
        };
        if reachable && said.links != links {
            let problem = format!("nlink is {}, but should be {links}", said.links);
            self.tell_inode(Severity::Inconsistent, problem, node);
        }
        if is_directory && info.names > 1 {
            let problem = format!("{} names lead to a directory", info.names);
            self.tell_inode(Severity::Lost, problem, node);
        }
        let size = DIRECTORY_SIZE + info.entries_size;
        // mkfs.ubifs counts the unencrypted length of names.
        let encrypted = said.flags.contains(InodeFlags::ENCRYPTED);
        if is_directory && !encrypted && said.size != size {
            let problem = format!("size is {}, but its entries add up to {size}", said.size);
            self.tell_inode(Severity::Inconsistent, problem, node);
        }
        let xattrs = [
            ("xattr_cnt", u64::from(said.xattr_count), u64::from(info.xattr_count)),
            ("xattr_size", u64::from(said.xattr_size), info.xattr_size),
            ("xattr_names", u64::from(said.xattr_names), info.xattr_names),
        ];
        for (field, stored, found) in
            xattrs.into_iter().filter(|(_, stored, found)| stored != found)
        {
            let problem = format!("{field} is {stored}, but should be {found}");
            self.tell_inode(Severity::Inconsistent, problem, node);
        }
    }

    /// Checks that no committed inode number exceeds the highest one given out.
    fn highest_inode(&mut self, infos: &Infos) {
        let Some(chosen) = &self.fs.master else { return };
        let highest = chosen.master.highest_inode;
        let at = (chosen.lnum, chosen.offset);
        let is_new = |info: &Info| self.fs.buds.iter().any(|bud| bud.lnum == info.at.lnum);
        let last = infos.iter().rev().find(|(_, info)| !is_new(info));
        if let Some((&inode, _)) = last
            && u64::from(inode) > highest
        {
            let problem = format!("highest_inum is {highest}, yet there is inode {inode}");
            self.tell(Severity::Inconsistent, "master node", problem, at);
        }
    }

    /// Adds paths to the findings about an inode.
    fn fill_paths(&mut self, infos: &Infos) {
        for finding in &mut self.findings {
            if let (Some(inode), None) = (finding.inode, &finding.path) {
                finding.path = u32::try_from(inode.0).ok().and_then(|inode| path(infos, inode));
            }
        }
    }
}

impl Info {
    fn new(at: Location, said: Option<Said>) -> Self {
        Self {
            at,
            said,
            names: 0,
            xattr_names_of: 0,
            parent: 0,
            name: Box::default(),
            directories: 0,
            entries_size: 0,
            xattr_count: 0,
            xattr_size: 0,
            xattr_names: 0,
        }
    }
}

/// What is impossible in an inode node, judged on its own.
pub(crate) fn impossible(node: &InodeNode<'_>) -> Vec<String> {
    let kind = FileKind::from_mode(node.mode);
    let is_xattr = node.flags.contains(InodeFlags::XATTR);
    let length = node.data.len();
    let data_fits = match kind {
        _ if is_xattr => length as u64 == node.size,
        // An encrypted target is padded for the cipher.
        Some(FileKind::Symlink) if node.flags.contains(InodeFlags::ENCRYPTED) => length > 0,
        Some(FileKind::Symlink) => length as u64 == node.size && length > 0,
        Some(FileKind::CharacterDevice | FileKind::BlockDevice) => device_of(node.data).is_some(),
        _ => length == 0,
    };
    let mode_fits = kind.is_some() && (!is_xattr || kind == Some(FileKind::Regular));
    let known = !matches!(node.compression, Compression::Unknown(_));
    let problems = [
        (mode_fits, format!("mode {:#o} with flags {:#x}", node.mode, node.flags.0)),
        (data_fits, format!("data_len {length} with mode {:#o} size {}", node.mode, node.size)),
        (known, format!("compr_type {}", node.compression.code())),
        (length <= INLINE_DATA_MAX, format!("data_len {length}")),
    ];
    let wrong = problems.into_iter().filter(|(fits, _)| !fits);
    wrong.map(|(_, problem)| format!("impossible {problem}")).collect()
}

/// Whether a path leads to each inode. Each inode is judged once, by its first name.
fn reachable(infos: &Infos) -> BTreeMap<u32, bool> {
    let mut known = BTreeMap::from([(ROOT_INODE, infos.contains_key(&ROOT_INODE))]);
    for &start in infos.keys() {
        let mut way = Vec::new();
        let mut inode = start;
        let reached = loop {
            if let Some(&reached) = known.get(&inode) {
                break reached;
            }
            let Some(info) = infos.get(&inode).filter(|info| info.parent != 0) else {
                break false;
            };
            // Counts as unreachable while its path is followed: a second visit means a cycle.
            known.insert(inode, false);
            way.push(inode);
            inode = info.parent;
        };
        known.extend(way.into_iter().map(|inode| (inode, reached)));
        known.entry(start).or_insert(reached);
    }
    known
}

/// A path to an inode, without a leading '/'.
fn path(infos: &Infos, inode: u32) -> Option<Vec<u8>> {
    /// More levels than any path has.
    const LEVELS_MAX: usize = 4096;
    let mut names: Vec<&[u8]> = Vec::new();
    let mut at = inode;
    while at != ROOT_INODE {
        let info = infos.get(&at).filter(|info| info.parent != 0)?;
        if names.len() == LEVELS_MAX {
            return None;
        }
        names.push(&info.name);
        at = info.parent;
    }
    names.reverse();
    Some(names.join(&b'/'))
}
