//! Reading every node that the index points to.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::ControlFlow;

use flysch_api::vfs::FileKind;
use flysch_api::volume::Volume;
use flysch_wire::ubifs::{
    BLOCK_SIZE, DirectoryEntry, EntryKind, InodeFlags, Key, KeyKind, Node, NodeKind,
};

use super::Level;
use super::plan::{File, Name, Plan, Said};
use crate::access::Scratch;
use crate::check::files::impossible;
use crate::file::{is_name, kind_of, type_of, unpack};
use crate::location::Location;
use crate::master::INODE_WATERMARK;
use crate::open::Ubifs;

impl Plan {
    /// Reads every inode and block.
    pub(super) fn read_nodes<V: Volume>(&mut self, fs: &Ubifs<V>) {
        let mut leaves = Vec::new();
        // What this index does not reach, the rebuilt one does.
        let _ = fs.store.nodes(Key::MIN, Key::MAX, &mut |key, at| {
            leaves.push((key, at));
            ControlFlow::Continue(())
        });
        let mut scratch = Scratch::new();
        for (key, at) in leaves {
            match key.kind() {
                KeyKind::Data => self.read_block(fs, (key, at), &mut scratch),
                _ => self.read_inode(fs, (key, at), &mut scratch),
            }
        }
    }

    fn read_inode<V: Volume>(
        &mut self,
        fs: &Ubifs<V>,
        (key, at): (Key, Location),
        scratch: &mut Scratch,
    ) {
        let inode = key.inode();
        let mut file = File::new(Some(at));
        let problem = match fs.store.inode(inode, at, scratch) {
            Err(fault) => Some(fault.cause.to_string()),
            Ok(node) => {
                let size = fs.size_of(&node);
                file.grown = size != node.size;
                let is_xattr = node.flags.contains(InodeFlags::XATTR);
                let said = |kind| Said {
                    kind,
                    is_xattr,
                    links: node.links,
                    size,
                    xattr_count: node.xattr_count,
                    xattr_size: node.xattr_size,
                    xattr_names: node.xattr_names,
                    data_len: node.data.len(),
                };
                file.said = FileKind::from_mode(node.mode).map(said);
                let mut problems = impossible(&node);
                if u64::from(inode) >= INODE_WATERMARK {
                    problems.push(String::from("impossible number"));
                }
                problems.into_iter().next()
            }
        };
        let misplaced = problem.is_none() && !key.is_inode_node();
        if misplaced && self.file(inode).is_none() {
            // Under the key for its number, lookups find it again.
            let problem = format!("its key in the index is {key}: no lookup finds it");
            let action = (Level::Safe, "it gets the key of its inode".into());
            self.tell(fs, action, (NodeKind::Inode.name(), Some(at)), (inode, problem));
        } else if misplaced {
            return self.dropped.push(at);
        }
        if let Some(problem) = problem {
            if let Ok(Node::Inode(node)) = fs.store.node(at, NodeKind::Inode, scratch)
                && node.key.inode() != inode
            {
                self.misfiled.push((node.key.inode(), at));
            }
            file.said = None;
            self.dropped.push(at);
            let action = (Level::DangerDefault, "the inode is dropped".into());
            self.tell(fs, action, (NodeKind::Inode.name(), Some(at)), (inode, problem));
            // A damaged index may also lead to a good node of this inode.
            if self.file(inode).is_some() {
                return;
            }
        }
        self.files.insert(inode, file);
    }

    fn read_block<V: Volume>(
        &mut self,
        fs: &Ubifs<V>,
        (key, at): (Key, Location),
        scratch: &mut Scratch,
    ) {
        let (inode, number) = (key.inode(), key.value());
        let problem = match fs.data(key, at, scratch) {
            Err(fault) => Err(fault.cause.to_string()),
            Ok(data) => match self.files.get(&inode).map(|file| file.said) {
                None => Err(String::from("its inode does not exist")),
                // Dropped with its inode.
                Some(None) => return self.dropped.push(at),
                Some(Some(said)) if said.kind != FileKind::Regular && !said.is_xattr => {
                    if let Some(file) = self.files.get_mut(&inode) {
                        file.has_blocks = true;
                    }
                    Err(String::from("its inode is not a regular file"))
                }
                Some(Some(_)) if self.damaged_buds.contains(&at.lnum) => {
                    Err(String::from("it is in a LEB of the journal that lost nodes"))
                }
                Some(Some(_)) => {
                    let mut block = [0; BLOCK_SIZE as usize];
                    let size = data.size as usize;
                    unpack(&data, &mut block[..size])
                        .map(|()| u64::from(number) * u64::from(BLOCK_SIZE) + size as u64)
                        .ok_or_else(|| String::from("it cannot be decompressed"))
                }
            },
        };
        match problem {
            Ok(end) => {
                self.data.push((key, at));
                if let Some(file) = self.files.get_mut(&inode) {
                    file.end = file.end.max(end);
                }
            }
            Err(problem) => {
                self.dropped.push(at);
                let problem = format!("block {number}: {problem}");
                let action = (Level::DangerDefault, "the block is dropped".into());
                self.tell(fs, action, (NodeKind::Data.name(), Some(at)), (inode, problem));
            }
        }
    }

    /// Reads every name.
    pub(super) fn read_names<V: Volume>(&mut self, fs: &Ubifs<V>) {
        let _ = fs.store.names_between(Key::MIN, Key::MAX, &mut |name| {
            match &name.entry {
                Ok(entry) => self.read_name(fs, (name.key, name.at), entry),
                Err(fault) => {
                    self.dropped.push(name.at);
                    let action = (Level::DangerDefault, "the name is dropped".into());
                    let what = (name.key.inode(), fault.cause.to_string());
                    self.tell(fs, action, (fault.structure, Some(name.at)), what);
                }
            }
            ControlFlow::Continue(())
        });
    }

    fn read_name<V: Volume>(
        &mut self,
        fs: &Ubifs<V>,
        (key, at): (Key, Location),
        entry: &DirectoryEntry<'_>,
    ) {
        self.names.push(Name {
            key,
            kind: entry.kind,
            name: entry.name.into(),
            inode: u32::try_from(entry.inode).unwrap_or(0),
            file_type: entry.file_type,
            at: Some(at),
            dropped: false,
        });
        let last = self.names.len() - 1;
        let is_twin = |other: &Name| other.key == key && *other.name == *entry.name;
        let twin = self.names[..last].iter().rev().take_while(|it| it.key == key).any(is_twin);
        let problem = if twin {
            "it occurs twice"
        } else if fs.store.hash().hash(entry.name) != key.value() || !is_name(entry.name) {
            "it does not match its key"
        } else {
            return;
        };
        self.drop_name(fs, last, problem);
    }

    /// Drops a name and records why.
    pub(super) fn drop_name<V: Volume>(&mut self, fs: &Ubifs<V>, number: usize, problem: &str) {
        let name = &mut self.names[number];
        name.dropped = true;
        self.dropped.extend(name.at);
        let kind = match name.kind {
            EntryKind::Directory => NodeKind::Entry,
            EntryKind::Xattr => NodeKind::XattrEntry,
        };
        let problem = format!("\"{}\": {problem}", name.name.escape_ascii());
        let (inode, at) = (name.key.inode(), name.at);
        let action = (Level::DangerDefault, "the name is dropped".into());
        self.tell(fs, action, (kind.name(), at), (inode, problem));
    }

    /// Compares each name with its directory and its target.
    pub(super) fn judge_names<V: Volume>(&mut self, fs: &Ubifs<V>) {
        for number in 0..self.names.len() {
            let problem = match &self.names[number] {
                name if name.dropped => None,
                name => self.misfit(name),
            };
            if let Some(problem) = problem {
                self.drop_name(fs, number, problem);
            }
        }
        self.judge_types(fs);
    }

    /// Compares the type in each name with its inode.
    ///
    /// The inode says what it is, and Linux considers nothing else when it looks up a name. So a
    /// name gets the type of its inode if the inode counts it among its links; if not, the inode
    /// number is just as likely to be wrong. Linux does not accept an entry with an unknown type.
    fn judge_types<V: Volume>(&mut self, fs: &Ubifs<V>) {
        let mut links: BTreeMap<u32, u32> = BTreeMap::new();
        for name in self.names.iter().filter(|name| !name.dropped) {
            *links.entry(name.inode).or_default() += 1;
        }
        for number in 0..self.names.len() {
            let name = &self.names[number];
            if name.dropped || name.kind == EntryKind::Xattr {
                continue;
            }
            let Some((file, said)) = self.file(name.inode) else { continue };
            if kind_of(name.file_type) == Some(said.kind) {
                continue;
            }
            let names = links.get(&name.inode).copied().unwrap_or(0);
            if kind_of(name.file_type).is_some() && is_like_its_kind(file, said, names) {
                self.correct_type(fs, number, said.kind);
            } else {
                links.entry(name.inode).and_modify(|names| *names -= 1);
                self.drop_name(fs, number, "its type is not that of its inode");
            }
        }
    }

    /// Marks a name to be rewritten with another type.
    fn correct_type<V: Volume>(&mut self, fs: &Ubifs<V>, number: usize, kind: FileKind) {
        let name = &mut self.names[number];
        let (inode, at) = (name.inode, name.at.take());
        name.file_type = type_of(kind);
        let problem =
            format!("\"{}\": its type is not that of its inode", name.name.escape_ascii());
        self.dropped.extend(at);
        let action = (Level::DangerDefault, format!("it gets the type of its inode, {kind:?}"));
        self.tell(fs, action, (NodeKind::Entry.name(), at), (inode, problem));
    }

    fn misfit(&self, name: &Name) -> Option<&'static str> {
        let is_xattr = name.kind == EntryKind::Xattr;
        let Some((_, parent)) = self.file(name.key.inode()) else {
            return Some("it belongs to an inode that does not exist");
        };
        if parent.is_xattr || !is_xattr && parent.kind != FileKind::Directory {
            return Some("it belongs to an inode that cannot have names");
        }
        let Some((_, target)) = self.file(name.inode) else {
            return Some("it leads to an inode that does not exist");
        };
        if target.is_xattr != is_xattr {
            return Some("it leads to an inode that is used for something else");
        }
        (is_xattr && kind_of(name.file_type).is_none()).then_some("its type is unknown")
    }
}

/// Whether an inode with `names` names looks like a good one of its kind.
fn is_like_its_kind(file: &File, said: Said, names: u32) -> bool {
    match said.kind {
        FileKind::Directory => names == 1 && said.links >= 2 && !file.has_blocks,
        FileKind::Regular => names == said.links,
        FileKind::Symlink => names == said.links && !file.has_blocks,
        // Linux counts a device's number as content.
        _ => {
            let is_empty = said.size == 0 || said.size == said.data_len as u64;
            names == said.links && is_empty && !file.has_blocks
        }
    }
}
