//! Random operations on a file system and on a model, with power cuts now and then.

use flysch_random::XorShift64;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::format;
use std::rc::Rc;
use std::string::String;
use std::vec;
use std::vec::Vec;

use core::ops::ControlFlow;
use flysch_api::vfs::{
    Changes, FileKind, FileSystem, FileSystemMut, FsError, Inode, Rename, XattrChange,
};
use flysch_wire::ubifs::Compression;

use super::memory::Ram;
use super::{
    ROOT, assert_sound_with, at, authenticated, content, empty, encrypted, new_file, newer,
};
use crate::{CipherMode, OpenOptions, UbifsMut};

type Id = u32;
/// Path, kind, links and extended attributes.
type Shape = (String, FileKind, u32, BTreeMap<String, Vec<u8>>);

/// A file as it should be.
#[derive(Clone, Debug)]
struct File {
    kind: FileKind,
    links: u32,
    permissions: u16,
    content: Rc<Vec<u8>>,
    entries: BTreeMap<String, Id>,
    xattrs: BTreeMap<String, Vec<u8>>,
}

/// A file system as it should be.
#[derive(Clone, Debug)]
struct Model {
    files: BTreeMap<Id, File>,
    next: Id,
}

/// An operation.
#[derive(Clone, Debug)]
enum Op {
    Create(String, FileKind),
    Link(String, String),
    Remove(String),
    Rename(String, String, Rename),
    Write(String, u64, Vec<u8>),
    Resize(String, u64),
    Permit(String, u16),
    SetXattr(String, String, Vec<u8>),
    RemoveXattr(String, String),
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl Model {
    fn new() -> Self {
        let mut this = Self { files: BTreeMap::new(), next: 1 };
        this.add(FileKind::Directory);
        this.files.get_mut(&1).unwrap().permissions = 0o755;
        this
    }

    fn add(&mut self, kind: FileKind) -> Id {
        let links = if kind == FileKind::Directory { 2 } else { 1 };
        let (entries, xattrs) = (BTreeMap::new(), BTreeMap::new());
        let content = Rc::new(Vec::new());
        let file = File { kind, links, permissions: 0o644, content, entries, xattrs };
        let id = self.next;
        self.files.insert(id, file);
        self.next += 1;
        id
    }

    fn find(&self, path: &str) -> Option<Id> {
        let parts = path.split('/').filter(|part| !part.is_empty());
        parts.into_iter().try_fold(1, |id, part| self.files.get(&id)?.entries.get(part).copied())
    }

    fn directory(&mut self, path: &str) -> Option<&mut File> {
        let id = self.find(path)?;
        self.files.get_mut(&id).filter(|file| file.kind == FileKind::Directory)
    }

    /// Every path and its file, in order.
    fn walk(&self) -> Vec<(String, Id)> {
        let mut out = Vec::new();
        let mut waiting = vec![(String::new(), 1)];
        while let Some((path, id)) = waiting.pop() {
            for (name, child) in &self.files[&id].entries {
                waiting.push((format!("{path}/{name}"), *child));
            }
            out.push((path, id));
        }
        out.sort();
        out
    }

    fn drop_link(&mut self, id: Id) {
        let file = self.files.get_mut(&id).unwrap();
        file.links = if file.kind == FileKind::Directory { 0 } else { file.links - 1 };
        if file.links == 0 {
            self.files.remove(&id);
        }
    }

    fn is_directory(&self, id: Id) -> bool {
        self.files[&id].kind == FileKind::Directory
    }

    /// Performs an operation; `None` if it is impossible.
    fn apply(&mut self, op: &Op) -> Option<()> {
        match op {
            Op::Create(path, kind) => {
                let (parent, name) = split(path);
                self.directory(parent)?;
                if self.find(path).is_some() {
                    return None;
                }
                let id = self.add(*kind);
                let parent = self.directory(parent)?;
                parent.entries.insert(name.into(), id);
                parent.links += u32::from(*kind == FileKind::Directory);
            }
            Op::Link(from, to) => {
                let id = self.find(from)?;
                let (parent, name) = split(to);
                self.directory(parent)?;
                if self.is_directory(id) || self.find(to).is_some() {
                    return None;
                }
                self.files.get_mut(&id)?.links += 1;
                self.directory(parent)?.entries.insert(name.into(), id);
            }
            Op::Remove(path) => {
                let (parent, name) = split(path);
                let id = self.find(path).filter(|id| *id != 1)?;
                if !self.files[&id].entries.is_empty() {
                    return None;
                }
                let is_directory = self.is_directory(id);
                let parent = self.directory(parent)?;
                parent.entries.remove(name);
                parent.links -= u32::from(is_directory);
                self.drop_link(id);
            }
            Op::Rename(from, to, how) => return self.rename(from, to, *how),
            Op::Write(path, offset, data) => {
                let id = self.find(path)?;
                let file = self.files.get_mut(&id)?;
                if file.kind != FileKind::Regular {
                    return None;
                }
                let mut content = (*file.content).clone();
                let end = *offset as usize + data.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*offset as usize..end].copy_from_slice(data);
                file.content = Rc::new(content);
            }
            Op::Resize(path, size) => {
                let id = self.find(path)?;
                let file = self.files.get_mut(&id)?;
                if file.kind != FileKind::Regular {
                    return None;
                }
                let mut content = (*file.content).clone();
                content.resize(*size as usize, 0);
                file.content = Rc::new(content);
            }
            Op::Permit(path, permissions) => {
                let id = self.find(path)?;
                self.files.get_mut(&id)?.permissions = *permissions;
            }
            Op::SetXattr(path, name, value) => {
                let id = self.find(path)?;
                self.files.get_mut(&id)?.xattrs.insert(name.clone(), value.clone());
            }
            Op::RemoveXattr(path, name) => {
                let id = self.find(path)?;
                self.files.get_mut(&id)?.xattrs.remove(name)?;
            }
        }
        Some(())
    }

    fn rename(&mut self, from: &str, to: &str, how: Rename) -> Option<()> {
        let id = self.find(from).filter(|id| *id != 1)?;
        let ((old, old_name), (new, new_name)) = (split(from), split(to));
        self.directory(new)?;
        let other = self.find(to);
        if other == Some(1) {
            return None;
        }
        let same_parent = self.find(old) == self.find(new);
        let below = |path: &str, root: &str| format!("{path}/").starts_with(&format!("{root}/"));
        if other == Some(id) {
            return (how != Rename::Keep).then_some(());
        }
        if how == Rename::Keep && other.is_some() || how == Rename::Exchange && other.is_none() {
            return None;
        }
        let moved_directory = self.is_directory(id);
        if moved_directory && !same_parent && below(new, from) {
            return None;
        }
        let other_directory = other.is_some_and(|other| self.is_directory(other));
        if how == Rename::Exchange {
            if other_directory && !same_parent && below(old, to) {
                return None;
            }
            let other = other?;
            self.directory(new)?.entries.insert(new_name.into(), id);
            self.directory(old)?.entries.insert(old_name.into(), other);
            let change = i64::from(moved_directory) - i64::from(other_directory);
            // Paths may lead elsewhere now; recount the links.
            let _ = change;
            self.count_links();
            return Some(());
        }
        if let Some(other) = other {
            let empty = self.files[&other].entries.is_empty();
            if other_directory != moved_directory || !empty {
                return None;
            }
        }
        let whiteout = (how == Rename::Whiteout).then(|| self.add(FileKind::CharacterDevice));
        let parent = self.directory(new)?;
        parent.entries.insert(new_name.into(), id);
        let parent = self.directory(old)?;
        match whiteout {
            Some(whiteout) => parent.entries.insert(old_name.into(), whiteout),
            None => parent.entries.remove(old_name),
        };
        if let Some(whiteout) = whiteout {
            self.files.get_mut(&whiteout)?.permissions = 0;
        }
        if let Some(other) = other {
            self.drop_link(other);
        }
        self.count_links();
        Some(())
    }

    fn count_links(&mut self) {
        let ids: Vec<Id> = self.files.keys().copied().collect();
        for id in ids {
            if self.is_directory(id) {
                let children: Vec<Id> = self.files[&id].entries.values().copied().collect();
                let below = children.iter().filter(|child| self.is_directory(**child)).count();
                self.files.get_mut(&id).unwrap().links = 2 + below as u32;
            }
        }
    }

    /// Names, kinds, links and attributes: what an operation changes immediately.
    fn shape(&self) -> Vec<Shape> {
        let shape = |(path, id): (String, Id)| {
            let file = &self.files[&id];
            (path, file.kind, file.links, file.xattrs.clone())
        };
        self.walk().into_iter().map(shape).collect()
    }
}

/// Reads a file system into a model.
fn read<F: FileSystem>(fs: &F) -> Model {
    let mut model = Model { files: BTreeMap::new(), next: 1 };
    let mut known: BTreeMap<u64, Id> = BTreeMap::new();
    let mut waiting = vec![ROOT];
    known.insert(1, 1);
    model.next = 2;
    while let Some(inode) = waiting.pop() {
        let stat = fs.attributes(inode).unwrap();
        let mut entries = BTreeMap::new();
        if stat.kind == FileKind::Directory {
            fs.list(inode, 0, &mut |entry| {
                let id = *known.entry(entry.inode.0).or_insert_with(|| {
                    waiting.push(entry.inode);
                    model.next += 1;
                    model.next - 1
                });
                let name = String::from_utf8_lossy(entry.name).into_owned();
                assert!(entries.insert(name, id).is_none(), "a name is listed twice");
                ControlFlow::Continue(())
            })
            .unwrap();
        }
        let bytes = match stat.kind {
            FileKind::Regular => content(fs, inode),
            _ => Vec::new(),
        };
        let mut xattrs = BTreeMap::new();
        let mut names = Vec::new();
        fs.list_xattrs(inode, &mut |name| names.push(name.to_vec())).unwrap();
        for name in names {
            let mut value = vec![0; 4096];
            let length = fs.read_xattr(inode, &name, &mut value).unwrap();
            value.truncate(length);
            xattrs.insert(String::from_utf8_lossy(&name).into_owned(), value);
        }
        let file = File {
            kind: stat.kind,
            links: stat.links,
            permissions: stat.permissions,
            content: Rc::new(bytes),
            entries,
            xattrs,
        };
        model.files.insert(known[&inode.0], file);
    }
    model
}

struct Run {
    fs: Option<Box<UbifsMut<Ram>>>,
    model: Model,
    /// States that a power cut may restore, the current one last.
    since: Vec<Model>,
    /// The contents of each file since it was last made durable.
    versions: BTreeMap<Id, Vec<Rc<Vec<u8>>>>,
    random: XorShift64,
    /// The last number drawn.
    last: u64,
    /// Files without names that are in use.
    open: Vec<(Inode, Rc<Vec<u8>>)>,
    seed: u64,
    step: u64,
    no_space: u64,
    cuts: u64,
    prefix: &'static str,
    /// How the file system is opened.
    options: OpenOptions,
}

impl Run {
    fn new(ram: Ram, seed: u64) -> Self {
        Self::with(ram, seed, OpenOptions::default())
    }

    fn with(ram: Ram, seed: u64, options: OpenOptions) -> Self {
        let fs = UbifsMut::open_with(ram, &options).unwrap();
        let model = Model::new();
        Self {
            fs: Some(Box::new(fs)),
            since: vec![model.clone()],
            model,
            versions: BTreeMap::new(),
            random: XorShift64::new(seed),
            last: 0,
            open: Vec::new(),
            seed,
            step: 0,
            no_space: 0,
            cuts: 0,
            prefix: "n",
            options,
        }
    }

    fn next(&mut self, below: u64) -> u64 {
        self.last = self.random.bits();
        (self.last >> 11) % below
    }

    fn fs(&mut self) -> &mut UbifsMut<Ram> {
        self.fs.as_mut().unwrap()
    }

    fn any_path(&mut self) -> String {
        let all = self.model.walk();
        let at = self.next(all.len() as u64) as usize;
        all[at].0.clone()
    }

    fn new_path(&mut self) -> String {
        let all = self.model.walk();
        let directories: Vec<&String> =
            all.iter().filter(|it| self.model.is_directory(it.1)).map(|it| &it.0).collect();
        let at = self.last as usize % directories.len();
        let parent = directories[at].clone();
        let long = if self.next(20) == 0 { "x".repeat(self.next(200) as usize) } else { "".into() };
        let number = self.next(30);
        format!("{parent}/{}{number}{long}", self.prefix)
    }

    fn any_op(&mut self) -> Op {
        match self.next(100) {
            0..16 => Op::Create(self.new_path(), FileKind::Regular),
            16..21 => Op::Create(self.new_path(), FileKind::Directory),
            21..23 => Op::Create(self.new_path(), FileKind::Symlink),
            23..25 => Op::Create(self.new_path(), FileKind::CharacterDevice),
            25..29 => Op::Link(self.any_path(), self.new_path()),
            29..43 => Op::Remove(self.any_path()),
            43..52 => {
                let how = [Rename::Replace, Rename::Keep, Rename::Exchange, Rename::Whiteout];
                let how = how[self.next(4) as usize];
                let to = if self.next(2) == 0 { self.any_path() } else { self.new_path() };
                Op::Rename(self.any_path(), to, how)
            }
            52..78 => {
                let offset = self.next(30_000) / [1, 4096][self.next(2) as usize] * 64;
                let length = self.next(9000) as usize + 1;
                let (fill, noisy) = (self.next(256) as u8, self.next(2) == 0);
                let byte = |at: usize| if noisy { ((at * at) >> 3) as u8 ^ fill } else { fill };
                Op::Write(self.any_path(), offset % 40_000, (0..length).map(byte).collect())
            }
            78..84 => Op::Resize(self.any_path(), self.next(50_000)),
            84..88 => Op::Permit(self.any_path(), self.next(0o777) as u16),
            88..96 => {
                let name = format!("user.x{}", self.next(6));
                let value = vec![self.next(256) as u8; self.next(300) as usize];
                Op::SetXattr(self.any_path(), name, value)
            }
            _ => Op::RemoveXattr(self.any_path(), format!("user.x{}", self.next(6))),
        }
    }

    fn inode(&mut self, path: &str) -> Result<Inode, FsError> {
        let mut inode = ROOT;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            inode = self.fs().lookup(inode, part.as_bytes())?;
        }
        Ok(inode)
    }

    /// Performs it on the file system; returns the bytes that a write took.
    fn perform(&mut self, op: &Op) -> Result<usize, FsError> {
        let now = at(self.step as i64);
        match op {
            Op::Create(path, kind) => {
                let (parent, name) = split(path);
                let parent = self.inode(parent)?;
                self.fs().create(parent, name.as_bytes(), &new_file(*kind), now)?;
            }
            Op::Link(from, to) => {
                let (parent, name) = split(to);
                let (inode, parent) = (self.inode(from)?, self.inode(parent)?);
                self.fs().link(inode, parent, name.as_bytes(), now)?;
            }
            Op::Remove(path) => {
                let (parent, name) = split(path);
                let (inode, parent) = (self.inode(path)?, self.inode(parent)?);
                let links = self.fs().attributes(inode)?.links;
                let kind = self.fs().attributes(inode)?.kind;
                self.fs().remove(parent, name.as_bytes(), now)?;
                let content = self.model.find(path).map(|id| self.model.files[&id].content.clone());
                if kind == FileKind::Regular && links == 1 && self.next(3) == 0 {
                    self.open.extend(content.map(|content| (inode, content)));
                } else {
                    self.fs().forget(inode)?;
                }
            }
            Op::Rename(from, to, how) => {
                let ((old, old_name), (new, new_name)) = (split(from), split(to));
                let (old, new) = (self.inode(old)?, self.inode(new)?);
                let there = self.fs().lookup(new, new_name.as_bytes());
                let names = ((old, old_name.as_bytes()), (new, new_name.as_bytes()));
                self.fs().rename(names.0, names.1, *how, now)?;
                if let Ok(there) = there {
                    self.fs().forget(there)?;
                }
            }
            Op::Write(path, offset, data) => {
                let inode = self.inode(path)?;
                return self.fs().write(inode, *offset, data, now);
            }
            Op::Resize(path, size) => {
                let inode = self.inode(path)?;
                let changes = Changes { size: Some(*size), ..Changes::default() };
                self.fs().set_attributes(inode, &changes, now)?;
            }
            Op::Permit(path, permissions) => {
                let inode = self.inode(path)?;
                let changes = Changes { permissions: Some(*permissions), ..Changes::default() };
                self.fs().set_attributes(inode, &changes, now)?;
            }
            Op::SetXattr(path, name, value) => {
                let inode = self.inode(path)?;
                self.fs().set_xattr(inode, name.as_bytes(), XattrChange::Set(value), now)?;
            }
            Op::RemoveXattr(path, name) => {
                let inode = self.inode(path)?;
                self.fs().set_xattr(inode, name.as_bytes(), XattrChange::Remove, now)?;
            }
        }
        Ok(0)
    }

    fn one(&mut self) {
        self.step += 1;
        match self.next(200) {
            0 => return self.sync(None),
            1..4 => {
                let path = self.any_path();
                return self.sync(Some(path));
            }
            4 => return self.remount(),
            5..8 => return self.forget(),
            _ => {}
        }
        let mut op = self.any_op();
        let mut after = self.model.clone();
        let possible = after.apply(&op).is_some();
        let done = self.perform(&op);
        if done.is_err_and(|error| matches!(error, FsError::Medium { .. } | FsError::ReadOnly)) {
            if possible {
                self.note(after);
            }
            return self.power_cut();
        }
        match done {
            Ok(taken) => {
                assert!(possible, "seed {} step {}: {op:?} was done", self.seed, self.step);
                if let Op::Write(_, _, data) = &mut op
                    && taken < data.len()
                {
                    assert!(taken > 0);
                    self.no_space += 1;
                    data.truncate(taken);
                    after = self.model.clone();
                    after.apply(&op).unwrap();
                }
                self.note(after);
            }
            Err(FsError::NoSpace) => self.no_space += 1,
            Err(error) => {
                assert!(!possible, "seed {} step {}: {op:?}: {error}", self.seed, self.step);
            }
        }
    }

    /// Makes `after` the current state.
    fn note(&mut self, after: Model) {
        for (id, file) in &after.files {
            let versions = self.versions.entry(*id).or_default();
            if versions.is_empty()
                && let Some(old) = self.model.files.get(id)
            {
                versions.push(old.content.clone());
            }
            if versions.last().is_none_or(|last| !Rc::ptr_eq(last, &file.content)) {
                versions.push(file.content.clone());
            }
        }
        self.model = after;
        self.since.push(self.model.clone());
    }

    fn sync(&mut self, path: Option<String>) {
        let inode = path.as_ref().map(|path| self.inode(path));
        let inode = match inode {
            Some(Ok(inode)) => Some(inode),
            Some(Err(FsError::Medium { .. })) => return self.power_cut(),
            Some(Err(error)) => panic!("{error}"),
            None => None,
        };
        match self.fs().sync(inode) {
            Ok(()) => {}
            Err(FsError::Medium { .. } | FsError::ReadOnly) => return self.power_cut(),
            Err(error) => panic!("seed {} step {}: sync: {error}", self.seed, self.step),
        }
        self.since = vec![self.model.clone()];
        match path.and_then(|path| self.model.find(&path)) {
            Some(id) => {
                self.versions.remove(&id);
            }
            None => self.versions.clear(),
        }
    }

    fn forget(&mut self) {
        let Some((inode, expected)) = self.open.pop() else { return };
        assert_eq!(content(self.fs(), inode), *expected, "seed {}", self.seed);
        if self.fs().forget(inode).is_err() {
            self.power_cut();
        }
    }

    fn remount(&mut self) {
        self.open.clear();
        let ram = self.fs().volume().clone();
        match self.fs.take().unwrap().close() {
            Ok(ram) => {
                let what = format!("seed {} step {}", self.seed, self.step);
                assert_sound_with(&ram, &self.options, &what);
                self.fs = Some(Box::new(UbifsMut::open_with(ram, &self.options).unwrap()));
                self.compare();
                self.since = vec![self.model.clone()];
                self.versions.clear();
            }
            Err(FsError::Medium { .. } | FsError::ReadOnly) => {
                // `close` consumed the volume: use the state before it.
                let mut ram = ram;
                self.after_cut(&mut ram);
            }
            Err(error) => panic!("seed {} step {}: close: {error}", self.seed, self.step),
        }
    }

    fn compare(&mut self) {
        let found = read(self.fs());
        let what = format!("seed {} step {}", self.seed, self.step);
        assert_eq!(found.shape(), self.model.shape(), "{what}");
        for (path, id) in self.model.walk() {
            let (file, there) = (&self.model.files[&id], &found.files[&found.find(&path).unwrap()]);
            assert_eq!(there.permissions, file.permissions, "{what}: {path}");
            assert!(there.content == file.content, "{what}: content of {path}");
        }
    }

    fn power_cut(&mut self) {
        let mut ram = self.fs().volume().clone();
        self.after_cut(&mut ram);
    }

    fn after_cut(&mut self, ram: &mut Ram) {
        self.cuts += 1;
        self.open.clear();
        let seed = self.next(1 << 30);
        ram.power_up(seed);
        let what = format!("seed {} step {} cut {}", self.seed, self.step, self.cuts);
        // What a reader sees is what recovery makes durable.
        let seen = read(&crate::Ubifs::open(&*ram, &self.options).unwrap());
        // Power may also be lost during recovery.
        for _ in 0..self.next(3) {
            let mut other = ram.clone();
            other.cut_in = Some(self.next(40));
            let _ = UbifsMut::open_with(&mut other, &self.options);
            other.power_up(seed);
            *ram = other;
        }
        let fs = match UbifsMut::open_with(ram.clone(), &self.options) {
            Ok(fs) => fs,
            Err(error) => {
                let reader = crate::Ubifs::open(&*ram, &self.options).unwrap();
                panic!("{what}: {error}: {:#?}", reader.findings());
            }
        };
        assert_sound_with(fs.volume(), &self.options, &what);
        let found = read(&fs);
        assert_eq!(found.shape(), seen.shape(), "{what}: reader and recovery");
        let shape = found.shape();
        // States may look alike: two files that were swapped have the contents of either one.
        let alike = self.since.iter().rev().filter(|state| state.shape() == shape);
        let judged: Vec<_> = alike.map(|state| (state, self.difference(state, &found))).collect();
        let Some((state, _)) = judged.iter().find(|(_, different)| different.is_none()) else {
            let different = judged.first().and_then(|(_, different)| different.clone());
            panic!("{what}: no state since the last sync: {different:?} {shape:#?}");
        };
        let mut model = (*state).clone();
        for (path, id) in state.walk() {
            let there = &found.files[&found.find(&path).unwrap()];
            let file = model.files.get_mut(&id).unwrap();
            file.content = there.content.clone();
            file.permissions = there.permissions;
        }
        self.model = model;
        self.since = vec![self.model.clone()];
        self.versions.clear();
        self.fs = Some(Box::new(fs));
    }

    /// A difference that rules out that `found` is what remains of `state`, which has the same
    /// shape.
    fn difference(&self, state: &Model, found: &Model) -> Option<String> {
        state.walk().into_iter().find_map(|(path, id)| {
            let there = &found.files[&found.find(&path).unwrap()];
            let none = Vec::new();
            let versions = self.versions.get(&id).unwrap_or(&none);
            if versions.len() >= 2 {
                let block = unknown_block(&there.content, versions)?;
                return Some(format!("{path}: block {block} was never written"));
            }
            let expected = versions.first().unwrap_or(&state.files[&id].content);
            (there.content != *expected).then(|| format!("content of {path}"))
        })
    }
}

/// The first block that is neither from one of the versions nor a hole.
fn unknown_block(found: &[u8], versions: &[Rc<Vec<u8>>]) -> Option<usize> {
    found.chunks(4096).enumerate().position(|(number, block)| {
        let from = |version: &Rc<Vec<u8>>| {
            let start = (number * 4096).min(version.len());
            let old = &version[start..(start + 4096).min(version.len())];
            let common = old.len().min(block.len());
            old[..common] == block[..common] && block[common..].iter().all(|&byte| byte == 0)
        };
        !block.iter().all(|&byte| byte == 0) && !versions.iter().any(from)
    })
}

fn run(
    geometry: (u32, u32, u32),
    compression: Compression,
    seed: u64,
    cuts: bool,
    steps: u64,
) -> Run {
    let run = Run::new(empty(geometry, compression), seed);
    go(run, cuts, steps)
}

fn go(mut run: Run, cuts: bool, steps: u64) -> Run {
    let seed = run.seed;
    for step in 0..steps {
        // Every other run treats few LEBs as empty for the index, or none.
        run.fs().files.disk.empty_lebs = (seed % 2 == 1).then_some(seed as u32 / 2 % 3);
        if cuts && step % 40 == 0 {
            let cut = run.next(30);
            run.fs.as_mut().unwrap().volume_mut().cut_in = Some(cut);
        }
        run.one();
    }
    run
}

const GEOMETRIES: [(u32, u32, u32); 3] = [(15_872, 64, 512), (16_384, 120, 2048), (15_360, 56, 1)];

/// Number of seeds: 4, or `FLYSCH_SEEDS`.
fn seeds() -> u64 {
    std::env::var("FLYSCH_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

#[test]
fn random_operations_leave_what_they_should() {
    let mut full = 0;
    for seed in 0..seeds() {
        let geometry = GEOMETRIES[seed as usize % 3];
        let method = [Compression::None, Compression::Lzo, Compression::Zlib, Compression::Zstd];
        let mut run = run(geometry, method[seed as usize % 4], seed, false, 3000);
        run.compare();
        run.remount();
        full += u64::from(run.no_space > 0);
    }
    assert!(full > 0, "no file system got full");
}

#[test]
fn a_tree_of_leb_properties_over_many_lebs() {
    let mut run = run((15_360, 4000, 512), Compression::None, 5, false, 3000);
    assert!(run.fs().files.disk.lpt.is_big());
    run.compare();
    run.remount();
    for seed in 0..seeds() / 4 + 1 {
        run.seed = 100 + seed;
        let cut = run.next(60);
        run.fs().volume_mut().cut_in = Some(cut);
        for _ in 0..300 {
            run.one();
        }
    }
    run.fs().volume_mut().cut_in = None;
    run.remount();
}

#[test]
fn names_of_one_hash_are_told_apart() {
    use crate::create::{CreateOptions, NewInode, format};
    for seed in 0..seeds() / 2 {
        let (leb_size, lebs, unit) = GEOMETRIES[0];
        let mut ram = Ram::new(leb_size, lebs, unit);
        let key_hash = flysch_wire::ubifs::KeyHash::Test;
        let options = CreateOptions { key_hash, ..CreateOptions::new(unit, leb_size, lebs) };
        format(&mut ram, &options, &NewInode::directory(at(1))).unwrap();
        // The test hash is the first four bytes of the name.
        let run = Run { prefix: "name", ..Run::new(ram, 50 + seed) };
        let mut run = go(run, seed % 2 == 1, 2000);
        run.fs.as_mut().unwrap().volume_mut().cut_in = None;
        run.remount();
    }
}

#[test]
fn power_cuts_lead_to_a_state_that_was() {
    let mut cuts = 0;
    for seed in 0..seeds() {
        let mut run = run(GEOMETRIES[seed as usize % 3], Compression::Lzo, seed, true, 2000);
        run.fs.as_mut().unwrap().volume_mut().cut_in = None;
        run.remount();
        cuts += run.cuts;
    }
    assert!(cuts > 15 * seeds(), "{cuts} cuts");
}

/// The same with everything signed: only what is authenticated counts, and everything is verified.
#[test]
fn authenticated_power_cuts_lead_to_a_state_that_was() {
    let mut cuts = 0;
    for seed in 0..seeds() {
        let (ram, options) = authenticated(GEOMETRIES[seed as usize % 3]);
        let mut run = go(Run::with(ram, 200 + seed, options), true, 1500);
        run.fs.as_mut().unwrap().volume_mut().cut_in = None;
        run.remount();
        cuts += run.cuts;
    }
    assert!(cuts > 10 * seeds(), "{cuts} cuts");
}

/// The same with all names, targets and contents encrypted, and half of the runs signed, too.
#[test]
fn encrypted_power_cuts_lead_to_a_state_that_was() {
    let modes = [CipherMode::Aes256Xts, CipherMode::Adiantum, CipherMode::Aes128Cbc];
    for seed in 0..seeds() {
        let geometry = GEOMETRIES[seed as usize % 3];
        let (ram, options) = match seed % 2 {
            0 => authenticated(geometry),
            _ => (newer(geometry), OpenOptions::default()),
        };
        let (ram, options) = encrypted(ram, &options, modes[seed as usize % 3]);
        let mut run = go(Run::with(ram, 300 + seed, options), true, 1500);
        run.fs.as_mut().unwrap().volume_mut().cut_in = None;
        run.remount();
        assert!(run.cuts > 10, "{} cuts", run.cuts);
    }
}
