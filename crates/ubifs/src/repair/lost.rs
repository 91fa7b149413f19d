//! Which files a path leads to, and what happens to the others.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use flysch_api::vfs::FileKind;
use flysch_api::volume::Volume;
use flysch_wire::ubifs::{EntryKind, FIRST_INODE, Key, NodeKind, ROOT_INODE};

use super::Level;
use super::plan::{File, Name, Plan, Said};
use crate::access::Scratch;
use crate::file::type_of;
use crate::open::Ubifs;

impl Plan {
    /// Leaves directories and extended attributes one name each, the newest.
    pub(super) fn one_name_each<V: Volume>(&mut self, fs: &Ubifs<V>) {
        let mut names: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (number, name) in self.names.iter().enumerate().filter(|(_, name)| !name.dropped) {
            let single = |said: Said| said.kind == FileKind::Directory || said.is_xattr;
            if self.file(name.inode).is_some_and(|(_, said)| single(said)) {
                names.entry(name.inode).or_default().push(number);
            }
        }
        for (inode, numbers) in names {
            let newest = numbers.iter().copied().max_by_key(|number| self.sequence(fs, *number));
            for number in numbers {
                if inode == ROOT_INODE {
                    self.drop_name(fs, number, "it leads to the root directory");
                } else if Some(number) != newest {
                    self.drop_name(fs, number, "what it leads to may have only one name");
                }
            }
        }
    }

    fn sequence<V: Volume>(&self, fs: &Ubifs<V>, number: usize) -> u64 {
        let name = &self.names[number];
        let kind = match name.kind {
            EntryKind::Directory => NodeKind::Entry,
            EntryKind::Xattr => NodeKind::XattrEntry,
        };
        let Some(at) = name.at else { return 0 };
        let mut scratch = Scratch::new();
        fs.store.access.node(at, kind, &mut scratch).map_or(0, |(header, _)| header.sequence)
    }

    /// Makes a root directory, if there is none.
    pub(super) fn make_root<V: Volume>(&mut self, fs: &Ubifs<V>) {
        let root = self.file(ROOT_INODE).map(|(_, said)| said);
        if root.is_some_and(|said| said.kind == FileKind::Directory && !said.is_xattr) {
            return;
        }
        let problem = String::from("there is no root directory");
        let action = (Level::DangerDefault, "an empty one is made".into());
        self.tell(fs, action, ("root directory", None), (ROOT_INODE, problem));
        let old = self.files.insert(ROOT_INODE, directory());
        self.dropped.extend(old.and_then(|file| file.at));
        // Drop the names in whatever was there instead.
        for number in 0..self.names.len() {
            if self.names[number].key.inode() == ROOT_INODE && !self.names[number].dropped {
                self.drop_name(fs, number, "its directory is gone");
            }
        }
    }

    /// Marks the files that paths lead to.
    pub(super) fn reach(&mut self) {
        let mut below: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for name in self.names.iter().filter(|name| !name.dropped) {
            below.entry(name.key.inode()).or_default().push(name.inode);
        }
        self.mark(&below, ROOT_INODE);
    }

    fn mark(&mut self, below: &BTreeMap<u32, Vec<u32>>, from: u32) {
        let mut next = alloc::vec![from];
        while let Some(inode) = next.pop() {
            let Some(file) = self.files.get_mut(&inode) else { continue };
            if file.said.is_none() || core::mem::replace(&mut file.reached, true) {
                continue;
            }
            next.extend(below.get(&inode).into_iter().flatten());
        }
    }

    /// Gives regular files that lost their names new ones in `lost+found`.
    pub(super) fn rescue<V: Volume>(&mut self, fs: &Ubifs<V>) {
        let is_lost = |file: &File| {
            let lost =
                |said: Said| said.kind == FileKind::Regular && !said.is_xattr && said.links != 0;
            !file.reached && file.said.is_some_and(lost)
        };
        let lost: Vec<u32> = self.files.iter().filter(|it| is_lost(it.1)).map(|it| *it.0).collect();
        if lost.is_empty() {
            return;
        }
        let (folder, shown) = self.lost_found(fs);
        let mut attributes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for name in self.names.iter().filter(|it| !it.dropped && it.kind == EntryKind::Xattr) {
            attributes.entry(name.key.inode()).or_default().push(name.inode);
        }
        // Names in unreachable directories no longer count.
        self.drop_names_of_lost_directories(fs);
        let mut taken = self.names_in(folder);
        for inode in lost {
            let name = (0..)
                .map(|number| format!("INO_{inode}_{number}"))
                .find(|name| !taken.contains(name.as_bytes()))
                .unwrap_or_default();
            let at = self.files.get(&inode).and_then(|file| file.at);
            let action = (Level::DangerDefault, format!("it is now /{shown}/{name}"));
            let problem = String::from("no path leads to this file");
            self.tell(fs, action, (NodeKind::Inode.name(), at), (inode, problem));
            taken.insert(name.clone().into_bytes());
            self.add_name(fs, folder, name.as_bytes(), (inode, type_of(FileKind::Regular)));
            self.mark(&attributes, inode);
        }
    }

    fn names_in(&self, folder: u32) -> BTreeSet<Vec<u8>> {
        let names = self.names.iter().filter(|name| !name.dropped && name.key.inode() == folder);
        names.map(|name| name.name.to_vec()).collect()
    }

    /// The directory for rescued files, and its name.
    fn lost_found<V: Volume>(&mut self, fs: &Ubifs<V>) -> (u32, String) {
        for number in 0_u32.. {
            let shown = match number {
                0 => String::from("lost+found"),
                number => format!("lost+found-{number}"),
            };
            let is_it = |name: &&Name| {
                !name.dropped
                    && name.kind == EntryKind::Directory
                    && name.key.inode() == ROOT_INODE
                    && *name.name == *shown.as_bytes()
            };
            let Some(inode) = self.names.iter().find(is_it).map(|name| name.inode) else {
                let highest = fs.master.as_ref().map_or(0, |chosen| chosen.master.highest_inode);
                let highest = u32::try_from(highest).unwrap_or(0).max(FIRST_INODE);
                let used = self.files.keys().next_back().copied().unwrap_or(0);
                let inode = highest.max(used) + 1;
                let file = File { reached: true, ..directory() };
                self.files.insert(inode, file);
                self.add_name(
                    fs,
                    ROOT_INODE,
                    shown.as_bytes(),
                    (inode, type_of(FileKind::Directory)),
                );
                return (inode, shown);
            };
            if self.file(inode).is_some_and(|(_, said)| said.kind == FileKind::Directory) {
                return (inode, shown);
            }
        }
        unreachable!("some name is free")
    }

    fn add_name<V: Volume>(
        &mut self,
        fs: &Ubifs<V>,
        parent: u32,
        name: &[u8],
        (inode, file_type): (u32, u8),
    ) {
        let kind = EntryKind::Directory;
        let key = Key::any_entry(kind, parent, fs.store.hash().hash(name));
        let name = name.into();
        self.names.push(Name { key, kind, name, inode, file_type, at: None, dropped: false });
    }

    fn drop_names_of_lost_directories<V: Volume>(&mut self, fs: &Ubifs<V>) {
        for number in 0..self.names.len() {
            let name = &self.names[number];
            let lost = self.files.get(&name.key.inode()).is_none_or(|file| !file.reached);
            if !name.dropped && name.kind == EntryKind::Directory && lost {
                self.drop_name(fs, number, "no path leads to its directory");
            }
        }
    }

    /// Drops the files that nothing leads to.
    pub(super) fn drop_unreached<V: Volume>(&mut self, fs: &Ubifs<V>) {
        self.drop_names_of_lost_directories(fs);
        let mut gone = Vec::new();
        for (&inode, file) in self.files.iter_mut().filter(|it| !it.1.reached) {
            if let Some(said) = file.said.take() {
                self.dropped.extend(file.at);
                gone.push((inode, file.at, said));
            }
        }
        for (inode, at, said) in gone {
            let problem = match said {
                Said { is_xattr: true, .. } => "an extended attribute that no file has",
                Said { links: 0, .. } => "a deleted file that is not in the orphan area",
                _ => "no path leads to it, and it is not a regular file",
            };
            let action = (Level::DangerDefault, "it is dropped".into());
            self.tell(fs, action, (NodeKind::Inode.name(), at), (inode, problem.into()));
        }
        for number in 0..self.names.len() {
            let name = &self.names[number];
            let is_gone = |inode| self.file(inode).is_none();
            if !name.dropped && (is_gone(name.key.inode()) || is_gone(name.inode)) {
                self.drop_name(fs, number, "its file is gone");
            }
        }
        let files = &self.files;
        let (kept, rest) = core::mem::take(&mut self.data)
            .into_iter()
            .partition(|(key, _)| files.get(&key.inode()).is_some_and(|it| it.said.is_some()));
        self.data = kept;
        let rest: Vec<(Key, _)> = rest;
        self.dropped.extend(rest.into_iter().map(|(_, at)| at));
    }
}

/// A new directory.
fn directory() -> File {
    let said = Said {
        kind: FileKind::Directory,
        is_xattr: false,
        links: 2,
        size: 0,
        xattr_count: 0,
        xattr_size: 0,
        xattr_names: 0,
        data_len: 0,
    };
    File { said: Some(said), ..File::new(None) }
}
