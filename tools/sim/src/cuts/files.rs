//! File systems under power cuts: steps on files, and what is known of them.
//!
//! The same steps are applied to the file system and to a model in memory. At any instant the
//! possible states are all states of the model since the last sync, and the one that the current
//! step leads to. After a cut each name, attribute, extended attribute and block of content must be
//! as in one of these states; what is the same in all of them is certain.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, DerefMut};
use std::rc::Rc;

use flysch_api::finding::{Finding, Severity};
use flysch_api::vfs::{
    Attributes, Changes, DeviceNumber, FileKind, FileSystem, FileSystemMut, FsError, Inode,
    NewFile, Rename, Timestamp, XattrChange,
};
use flysch_vfs::Memory;

use super::Scenario;
use super::chip::Chip;
use super::mistakes::Mistake;
use super::probe::Probe;
use super::setting::User;
use super::tree::{Node, Tree};
use super::ubi::{judge, rules};

/// Unit of content that is entirely old or new.
const BLOCK: usize = 4096;
/// Time of the first step, seconds.
const EPOCH: i64 = 1_700_000_000;

/// One step of a workload. Paths do not begin with a slash.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant says what its fields are")]
pub enum Step {
    /// Creates a file.
    Create(String),
    /// Creates a directory.
    Directory(String),
    /// Creates a symlink.
    Symlink { path: String, target: String },
    /// Writes `len` bytes at `at`; text is compressible, other content is not.
    Write { path: String, at: u64, len: usize, is_text: bool },
    /// Sets the length.
    Truncate { path: String, size: u64 },
    /// Renames.
    Rename { from: String, to: String, how: Rename },
    /// Adds a hard link.
    Link { path: String, to: String },
    /// Removes a name, and the file if it was the last one.
    Remove(String),
    /// Removes the last name of an open file.
    RemoveOpen(String),
    /// Writes to the file that was removed while open.
    WriteOpen { at: u64, len: usize },
    /// Closes it.
    Close,
    /// Changes the permissions.
    Permissions { path: String, mode: u16 },
    /// Sets an extended attribute to `len` bytes.
    Xattr { path: String, name: &'static str, len: usize },
    /// Removes an extended attribute.
    RemoveXattr { path: String, name: &'static str },
    /// Makes everything durable.
    Sync,
    /// Makes one file durable.
    SyncFile(String),
    /// Unmounts and mounts again.
    Remount,
}

/// A file system mounted for writing.
pub trait Mounted: DerefMut<Target = dyn FileSystemMut> {
    /// Unmounts it cleanly.
    ///
    /// # Errors
    /// If it fails.
    fn close(self: Box<Self>) -> Result<(), String>;
}

/// A file system on a chip.
pub trait Stack: 'static {
    /// Whether a file may have both its old and its new name after a cut in a rename.
    const RENAME_DOUBLES: bool;
    /// The most severe finding that the checker may report after a cut.
    const LEFT_BEHIND: Severity;
    /// Whether a block of content may be partly new, because a page is split into two nodes.
    const SPLITS_BLOCKS: bool;

    /// A new chip.
    fn chip(&self) -> Chip;
    /// Makes an empty file system.
    ///
    /// # Errors
    /// If it fails.
    fn make(&self, flash: Probe) -> Result<(), String>;
    /// Mounts it for writing.
    ///
    /// # Errors
    /// If it fails.
    fn mount(&self, flash: Probe) -> Result<Box<dyn Mounted>, String>;
    /// The findings of the checker.
    ///
    /// # Errors
    /// If there is nothing to check.
    fn check(&self, flash: &Probe) -> Result<Vec<Finding>, String>;
}

/// A workload on files.
#[derive(Debug)]
pub struct FileScenario<S> {
    /// The file system and the chip it runs on.
    pub stack: S,
    /// Steps before the first cut.
    pub before: Vec<Step>,
    /// Steps in which cuts are made.
    pub steps: Vec<Step>,
    /// The user of the file system.
    pub user: User,
    /// Determines everything else.
    pub seed: u64,
    /// Whether programs and erases fail.
    pub fails: bool,
}

/// What is known of a file system.
#[derive(Clone)]
pub struct Knowledge {
    model: Memory,
    /// Inode numbers of the model by those of the file system.
    ids: BTreeMap<u64, u64>,
    /// States since the last sync, the current one last.
    states: Vec<Rc<Tree>>,
    /// The state that the current step leads to, and the file it creates.
    next: Option<(Rc<Tree>, Option<u64>)>,
    /// The index of the first state in which a file is durable.
    since: BTreeMap<u64, usize>,
    /// The file removed while open: its inode numbers in the file system and in the model.
    open: Option<(Inode, Inode)>,
    step: Option<Step>,
    number: usize,
    /// Number of steps refused for lack of space.
    refused: usize,
}

impl std::fmt::Debug for Knowledge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Knowledge").field("number", &self.number).finish_non_exhaustive()
    }
}

/// What a file system is allowed to do after a cut.
struct Rules {
    doubles: bool,
    splits: bool,
}

impl Rules {
    fn of<S: Stack>() -> Self {
        Self { doubles: S::RENAME_DOUBLES, splits: S::SPLITS_BLOCKS }
    }
}

/// Without a cut nothing is excused.
const STRICT: Rules = Rules { doubles: false, splits: false };

/// The result of a step.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    made: Option<Inode>,
    opened: Option<Inode>,
    written: Option<usize>,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Content that differs for every step.
fn content(seed: usize, len: usize, is_text: bool) -> Vec<u8> {
    let mut random = flysch_models::random::Random::new(seed as u64);
    if is_text {
        let words = [&b"flash "[..], b"journal ", b"node ", b"erase ", b"commit ", b"bud "];
        let mut bytes = format!("step {seed}: ").into_bytes();
        while bytes.len() < len {
            bytes.extend_from_slice(words[random.below(6) as usize]);
        }
        bytes.truncate(len);
        return bytes;
    }
    (0..len).map(|_| random.bits() as u8).collect()
}

/// The directory at the end of `path`, and the name in it.
fn locate<'p, F: FileSystem + ?Sized>(fs: &F, path: &'p str) -> Result<(Inode, &'p [u8]), FsError> {
    let mut at = fs.statistics().root;
    let mut parts = path.split('/').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return Ok((at, part.as_bytes()));
        }
        at = fs.lookup(at, part.as_bytes())?;
    }
    Err(FsError::NotFound)
}

fn find<F: FileSystem + ?Sized>(fs: &F, path: &str) -> Result<Inode, FsError> {
    let (directory, name) = locate(fs, path)?;
    fs.lookup(directory, name)
}

fn new_file(kind: FileKind, target: &[u8]) -> NewFile<'_> {
    let permissions = if kind == FileKind::Directory { 0o755 } else { 0o644 };
    NewFile { kind, permissions, owner: 1000, group: 100, device: DeviceNumber::default(), target }
}

/// Performs a step that changes attributes.
fn change<F: FileSystemMut + ?Sized>(
    fs: &mut F,
    (number, step): (usize, &Step),
    now: Timestamp,
) -> Result<(), FsError> {
    match step {
        Step::Truncate { path, size } => {
            let inode = find(fs, path)?;
            let changes = Changes { size: Some(*size), ..Changes::default() };
            fs.set_attributes(inode, &changes, now)?;
        }
        Step::Permissions { path, mode } => {
            let inode = find(fs, path)?;
            let changes = Changes { permissions: Some(*mode), ..Changes::default() };
            fs.set_attributes(inode, &changes, now)?;
        }
        Step::Xattr { path, name, len } => {
            let inode = find(fs, path)?;
            let value = content(number, *len, false);
            fs.set_xattr(inode, name.as_bytes(), XattrChange::Set(&value), now)?;
        }
        Step::RemoveXattr { path, name } => {
            let inode = find(fs, path)?;
            fs.set_xattr(inode, name.as_bytes(), XattrChange::Remove, now)?;
        }
        _ => {}
    }
    Ok(())
}

/// Performs a step on a file system or on the model.
fn perform<F: FileSystemMut + ?Sized>(
    fs: &mut F,
    (number, step): (usize, &Step),
    open: Option<Inode>,
    limit: Option<usize>,
) -> Result<Done, FsError> {
    let now = Timestamp { seconds: EPOCH + number as i64, nanoseconds: 0 };
    let mut done = Done::default();
    let mut make = |fs: &mut F, path: &str, file: &NewFile<'_>| {
        let (directory, name) = locate(fs, path)?;
        let made = fs.create(directory, name, file, now)?;
        done.made = Some(made);
        Ok::<(), FsError>(())
    };
    match step {
        Step::Create(path) => make(fs, path, &new_file(FileKind::Regular, &[]))?,
        Step::Directory(path) => make(fs, path, &new_file(FileKind::Directory, &[]))?,
        Step::Symlink { path, target } => {
            make(fs, path, &new_file(FileKind::Symlink, target.as_bytes()))?;
        }
        Step::Write { path, at, len, is_text } => {
            let inode = find(fs, path)?;
            let data = content(number, *len, *is_text);
            let data = &data[..limit.unwrap_or(data.len())];
            done.written = Some(fs.write(inode, *at, data, now)?);
        }
        Step::WriteOpen { at, len } => {
            let inode = open.ok_or(FsError::NotFound)?;
            let data = content(number, *len, false);
            let data = &data[..limit.unwrap_or(data.len())];
            done.written = Some(fs.write(inode, *at, data, now)?);
        }
        Step::Rename { from, to, how } => {
            let (from, to) = (locate(fs, from)?, locate(fs, to)?);
            let replaced = fs.lookup(to.0, to.1).ok().filter(|_| *how == Rename::Replace);
            fs.rename(from, to, *how, now)?;
            if let Some(replaced) = replaced {
                fs.forget(replaced)?;
            }
        }
        Step::Link { path, to } => {
            let inode = find(fs, path)?;
            let (directory, name) = locate(fs, to)?;
            fs.link(inode, directory, name, now)?;
        }
        Step::Remove(path) | Step::RemoveOpen(path) => {
            let (directory, name) = locate(fs, path)?;
            let inode = fs.lookup(directory, name)?;
            fs.remove(directory, name, now)?;
            match step {
                Step::Remove(_) => fs.forget(inode)?,
                _ => done.opened = Some(inode),
            }
        }
        Step::Close => fs.forget(open.ok_or(FsError::NotFound)?)?,
        Step::Truncate { .. }
        | Step::Permissions { .. }
        | Step::Xattr { .. }
        | Step::RemoveXattr { .. } => change(fs, (number, step), now)?,
        Step::Sync => fs.sync(None)?,
        Step::SyncFile(path) => {
            let inode = find(fs, path)?;
            fs.sync(Some(inode))?;
        }
        Step::Remount => {}
    }
    Ok(done)
}

impl Knowledge {
    fn new(fs: &dyn FileSystem) -> Result<Self, String> {
        let root = fs.attributes(fs.statistics().root).map_err(text)?;
        let mut model = Memory::new(1 << 30, root.modified);
        let changes = Changes {
            permissions: Some(root.permissions),
            owner: Some(root.owner),
            group: Some(root.group),
            ..Changes::default()
        };
        let top = model.statistics().root;
        model.set_attributes(top, &changes, root.changed).map_err(text)?;
        let tree = Rc::new(Tree::of(&model, None)?);
        Ok(Self {
            model,
            ids: BTreeMap::from([(root.inode.0, top.0)]),
            states: vec![tree],
            next: None,
            since: BTreeMap::new(),
            open: None,
            step: None,
            number: 0,
            refused: 0,
        })
    }

    /// The possible states, from the `first` on.
    fn possible(&self, first: usize) -> impl Iterator<Item = &Tree> {
        let next = self.next.iter().map(|(tree, _)| &**tree);
        self.states.iter().skip(first).map(|tree| &**tree).chain(next)
    }

    /// Everything is durable.
    fn settle(&mut self) {
        self.states.drain(..self.states.len() - 1);
        self.since.clear();
    }

    /// Whether `found` is possible after a cut now.
    fn allows(&self, found: &Tree, rules: &Rules) -> Result<(), String> {
        let mut ids = self.ids.clone();
        if let Some((_, Some(made))) = &self.next {
            // An inode number may be reused when nothing is left of its previous file.
            let is_left = |model: &u64| self.possible(0).any(|tree| tree.nodes.contains_key(model));
            let is_new = |inode: &&u64| !ids.get(inode).is_some_and(is_left);
            let new = found.nodes.keys().find(is_new).copied();
            new.map(|inode| ids.insert(inode, *made));
        }
        let id = |inode: &u64| ids.get(inode).copied().ok_or(format!("inode {inode} was not made"));
        let mut names: BTreeMap<(u64, Vec<u8>), u64> = BTreeMap::new();
        for ((directory, name), inode) in &found.names {
            names.insert((id(directory)?, name.clone()), id(inode)?);
        }
        self.allows_names(&names, rules.doubles)?;
        for (inode, node) in &found.nodes {
            let model = id(inode)?;
            let is_root = found.names.values().all(|named| named != inode);
            let path = match found.names_of(*inode).next() {
                Some((_, name)) => String::from_utf8_lossy(name).into_owned(),
                None if is_root => "the root".into(),
                None => "a file without a name".into(),
            };
            self.allows_node(model, node, rules).map_err(|problem| format!("{path}: {problem}"))?;
            let count = names.values().filter(|named| **named == model).count();
            if node.attributes.kind != FileKind::Directory
                && node.attributes.links as usize != count
            {
                let links = node.attributes.links;
                return Err(format!("{path}: {links} links and {count} names"));
            }
        }
        Ok(())
    }

    fn allows_names(
        &self,
        found: &BTreeMap<(u64, Vec<u8>), u64>,
        doubles: bool,
    ) -> Result<(), String> {
        let show = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        for (place, inode) in found {
            if !self.possible(0).any(|tree| tree.names.get(place) == Some(inode)) {
                return Err(format!("{} names what it never named", show(&place.1)));
            }
        }
        let all: BTreeSet<_> = self.possible(0).flat_map(|tree| tree.names.keys()).collect();
        for place in all {
            let is_certain = self.possible(0).all(|tree| tree.names.contains_key(place));
            if is_certain && !found.contains_key(place) {
                return Err(format!("{} is gone", show(&place.1)));
            }
        }
        let inodes: BTreeSet<u64> =
            self.possible(0).flat_map(|tree| tree.names.values().copied()).collect();
        for inode in inodes {
            let count = found.values().filter(|named| **named == inode).count();
            let counts = || self.possible(0).map(|tree| tree.names_of(inode).count());
            let least = counts().min().unwrap_or(0).min(1);
            let most = counts().max().unwrap_or(0);
            if count < least || (count > most && !doubles) {
                let name = self.possible(0).flat_map(|tree| tree.names_of(inode)).next();
                let name = name.map(|(_, name)| show(name)).unwrap_or_default();
                return Err(format!("{name} has {count} names, {least} to {most} are possible"));
            }
        }
        Ok(())
    }

    fn allows_node(&self, model: u64, found: &Node, rules: &Rules) -> Result<(), String> {
        let first = self.since.get(&model).copied().unwrap_or(0);
        let nodes: Vec<&Node> =
            self.possible(first).filter_map(|tree| tree.nodes.get(&model)).collect();
        let is = &found.attributes;
        fn one_of<T: PartialEq + std::fmt::Debug>(
            nodes: &[&Node],
            what: &str,
            found: &Node,
            get: impl Fn(&Attributes) -> T,
        ) -> Result<(), String> {
            let is = get(&found.attributes);
            if nodes.iter().any(|node| get(&node.attributes) == is) {
                return Ok(());
            }
            let possible: Vec<T> = nodes.iter().map(|node| get(&node.attributes)).collect();
            Err(format!("{what} is {is:?}, possible are {possible:?}"))
        }
        one_of(&nodes, "the kind", found, |a| a.kind)?;
        one_of(&nodes, "the mode", found, |a| a.permissions)?;
        one_of(&nodes, "the owner", found, |a| (a.owner, a.group))?;
        if is.kind != FileKind::Directory {
            one_of(&nodes, "the time of content", found, |a| a.modified)?;
            one_of(&nodes, "the time of change", found, |a| a.changed)?;
        }
        for name in nodes.iter().flat_map(|node| node.xattrs.keys()).chain(found.xattrs.keys()) {
            let value = found.xattrs.get(name);
            if !nodes.iter().any(|node| node.xattrs.get(name) == value) {
                let name = String::from_utf8_lossy(name);
                let len = value.map(Vec::len);
                return Err(format!("attribute {name} never had this value of {len:?} bytes"));
            }
        }
        match is.kind {
            FileKind::Regular => allows_content(&nodes, &found.content, rules.splits),
            FileKind::Symlink => match nodes.iter().any(|node| node.content == found.content) {
                true => Ok(()),
                false => Err("the target is another".into()),
            },
            _ => Ok(()),
        }
    }
}

/// Each block is as in one state, or was absent in one and is a hole now.
fn allows_content(nodes: &[&Node], found: &[u8], splits: bool) -> Result<(), String> {
    let sizes = || nodes.iter().map(|node| node.content.len());
    let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
    if !(least..=most).contains(&found.len()) {
        return Err(format!("{} bytes, {least} to {most} are possible", found.len()));
    }
    for (index, block) in found.chunks(BLOCK).enumerate() {
        let start = index * BLOCK;
        let is_of = |node: &&Node| {
            let content = &node.content[start.min(node.content.len())..];
            let len = content.len().min(block.len());
            block[..len] == content[..len] && block[len..].iter().all(|&byte| byte == 0)
        };
        let is_hole = start >= least && block.iter().all(|&byte| byte == 0);
        let is_mixed = || {
            splits
                && (start..).zip(block).all(|(at, byte)| {
                    let is_byte =
                        |node: &&Node| node.content.get(at).map_or(*byte == 0, |old| old == byte);
                    nodes.iter().any(is_byte)
                })
        };
        if !is_hole && !nodes.iter().any(is_of) && !is_mixed() {
            return Err(format!("the block at byte {start} never had this content"));
        }
    }
    Ok(())
}

impl<S: Stack> FileScenario<S> {
    fn work(
        &self,
        flash: &Probe,
        knowledge: &Rc<RefCell<Knowledge>>,
        steps: &[Step],
    ) -> Result<(), String> {
        let skip_sync = flash.mistake() == Some(Mistake::SkippedSync);
        let mut fs = self.stack.mount(flash.clone())?;
        for step in steps {
            let number = knowledge.borrow().number + 1;
            let problem = |what: String| format!("step {number}, {step:?}: {what}");
            let (model, modelled) = plan(&mut knowledge.borrow_mut(), number, step)?;
            let open = knowledge.borrow().open.map(|(real, _)| real);
            let result = match step {
                Step::Sync | Step::SyncFile(_) if skip_sync => Ok(Done::default()),
                Step::Remount => {
                    self.leave(fs).map_err(problem)?;
                    fs = self.stack.mount(flash.clone()).map_err(problem)?;
                    Ok(Done::default())
                }
                _ => perform(&mut **fs, (number, step), open, None),
            };
            let mut known = knowledge.borrow_mut();
            finish(&mut known, (number, step), (model, modelled), result).map_err(problem)?;
        }
        let known = knowledge.borrow();
        let found = Tree::of(&**fs, None)?;
        drop(fs);
        known.allows(&found, &STRICT).map_err(|what| format!("at the end: {what}"))?;
        Ok(())
    }
}

/// Performs the step on the model, and records the possible results.
fn plan(
    known: &mut Knowledge,
    number: usize,
    step: &Step,
) -> Result<(Memory, Result<Done, FsError>), String> {
    let mut model = known.model.clone();
    let open = known.open.map(|(_, model)| model);
    let modelled = perform(&mut model, (number, step), open, None);
    let made = modelled.as_ref().ok().and_then(|done| done.made).map(|inode| inode.0);
    let before = known.states.last().cloned();
    known.next = match &modelled {
        Ok(_) => Some((Rc::new(Tree::modelled(&model, before.as_deref(), open)?), made)),
        Err(_) => None,
    };
    known.number = number;
    known.step = Some(step.clone());
    Ok((model, modelled))
}

/// The step is finished.
fn finish(
    known: &mut Knowledge,
    (number, step): (usize, &Step),
    (mut model, modelled): (Memory, Result<Done, FsError>),
    result: Result<Done, FsError>,
) -> Result<(), String> {
    let next = known.next.take();
    known.step = None;
    known.refused += usize::from(result.as_ref().is_err_and(|error| *error == FsError::NoSpace));
    let done = match (&modelled, &result) {
        (Ok(_), Err(FsError::NoSpace | FsError::Unsupported(_))) => return Ok(()),
        (Ok(_), Ok(done)) => *done,
        (Err(_), Err(_)) => return Ok(()),
        _ => return Err(format!("{result:?} where the model has {modelled:?}")),
    };
    let modelled = modelled.unwrap_or_default();
    let mut tree = next.map(|(tree, _)| tree);
    if let Some(written) = done.written
        && modelled.written != Some(written)
    {
        // Not everything was written: the model follows.
        model = known.model.clone();
        let open = known.open.map(|(_, model)| model);
        perform(&mut model, (number, step), open, Some(written)).map_err(text)?;
        let before = known.states.last().cloned();
        tree = Some(Rc::new(Tree::modelled(&model, before.as_deref(), open)?));
    }
    if let (Some(real), Some(made)) = (done.made, modelled.made) {
        known.ids.insert(real.0, made.0);
    }
    if let (Some(real), Some(opened)) = (done.opened, modelled.opened) {
        known.open = Some((real, opened));
    }
    if *step == Step::Close {
        known.open = None;
    }
    known.model = model;
    known.states.extend(tree);
    match step {
        Step::Sync | Step::Remount => known.settle(),
        Step::SyncFile(path) => {
            let inode = find(&known.model, path).map_err(text)?;
            let index = known.states.len() - 1;
            known.since.insert(inode.0, index);
        }
        _ => {}
    }
    Ok(())
}

impl<S: Stack> Scenario for FileScenario<S> {
    type Knowledge = Knowledge;

    fn begin(&self) -> Result<(Chip, Knowledge), String> {
        let flash = Probe::new(self.stack.chip(), None, None);
        self.stack.make(flash.clone())?;
        let known = Knowledge::new(&**self.stack.mount(flash.clone())?)?;
        let knowledge = Rc::new(RefCell::new(known));
        let mut before = self.before.clone();
        before.push(Step::Remount);
        self.work(&flash, &knowledge, &before)?;
        let knowledge = knowledge.borrow().clone();
        Ok((flash.fork(), knowledge))
    }

    fn run(&self, flash: Probe, knowledge: &Rc<RefCell<Knowledge>>) -> Result<(), String> {
        self.work(&flash, knowledge, &self.steps)?;
        rules(&flash)
    }

    fn recover(&self, flash: Probe, knowledge: &Knowledge) -> Result<(), String> {
        let place = |problem: String| match &knowledge.step {
            Some(step) => format!("in step {}, {step:?}: {problem}", knowledge.number),
            None => format!("after step {}: {problem}", knowledge.number),
        };
        if self.user == User::Hasty {
            flash.break_off(self.seed, || drop(self.stack.mount(flash.clone())));
        }
        let mut fs = self.stack.mount(flash.clone()).map_err(place)?;
        let found = Tree::of(&**fs, None).map_err(place)?;
        knowledge.allows(&found, &Rules::of::<S>()).map_err(place)?;
        let second = match Tree::of(&**fs, None) {
            Ok(again) => found.difference(&again).map_or(Ok(()), Err),
            Err(problem) => Err(problem),
        };
        second.map_err(|what| place(format!("read again, before a sync: {what}")))?;
        fs.sync(None).map_err(|e| place(format!("the first sync: {e}")))?;
        drop(fs);
        self.check(&flash).map_err(place)?;
        flash.disarm();
        let mut fs = self.stack.mount(flash.clone()).map_err(place)?;
        let again = Tree::of(&**fs, None).map_err(place)?;
        if let Some(what) = found.difference(&again) {
            return Err(place(format!("another mount shows something else: {what}")));
        }
        let goes_on = go_on(&mut **fs).map_err(place)?;
        self.leave(fs).map_err(|e| place(format!("closing after going on: {e}")))?;
        let mut fs = self.stack.mount(flash.clone()).map_err(place)?;
        let end = Tree::of(&**fs, None).map_err(place)?;
        if let Some(what) = goes_on.difference(&end) {
            return Err(place(format!("going on: another mount shows something else: {what}")));
        }
        // It erases blocks that failed while mounted; otherwise it has nothing to do.
        if self.fails {
            fs.sync(None).map_err(|e| place(format!("the last sync: {e}")))?;
        }
        drop(fs);
        self.check(&flash).map_err(place)?;
        rules(&flash).map_err(place)
    }
}

impl<S: Stack> FileScenario<S> {
    /// The file system is no longer needed: closes it, or just syncs and drops it.
    fn leave(&self, mut fs: Box<dyn Mounted>) -> Result<(), String> {
        match self.user {
            User::Bare => fs.sync(None).map_err(text),
            _ => fs.close(),
        }
    }

    fn check(&self, flash: &Probe) -> Result<(), String> {
        let findings = self.stack.check(flash)?;
        judge(flash, &findings, S::LEFT_BEHIND)
    }
}

/// Continues to use the file system: creates, writes, renames and removes a file, while another one
/// stays. Returns the state afterwards.
fn go_on(fs: &mut dyn FileSystemMut) -> Result<Tree, String> {
    let now = Timestamp { seconds: EPOCH + 100_000, nanoseconds: 0 };
    let root = fs.statistics().root;
    let failed = |what: &'static str| move |error: FsError| format!("going on, {what}: {error}");
    let file = new_file(FileKind::Regular, &[]);
    let data = content(77, 6000, false);
    let made = fs.create(root, b"going on", &file, now);
    let inode = match made {
        Err(FsError::NoSpace) => {
            make_room(fs, now)?;
            fs.sync(None).map_err(failed("sync of a full flash"))?;
            return Tree::of(fs, None);
        }
        other => other.map_err(failed("create"))?,
    };
    match fs.write(inode, 100, &data, now) {
        Ok(_) | Err(FsError::NoSpace) => {}
        Err(other) => return Err(failed("write")(other)),
    }
    match fs.rename((root, b"going on"), (root, b"gone on"), Rename::Replace, now) {
        Ok(()) | Err(FsError::NoSpace) => {}
        Err(other) => return Err(failed("rename")(other)),
    }
    fs.sync(None).map_err(failed("sync"))?;
    Tree::of(fs, None)
}

/// Removing must always be possible.
fn make_room(fs: &mut dyn FileSystemMut, now: Timestamp) -> Result<(), String> {
    let root = fs.statistics().root;
    let mut victim = None;
    fs.list(root, 0, &mut |entry| {
        if entry.kind == FileKind::Regular {
            victim = Some((entry.name.to_vec(), entry.inode));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })
    .map_err(text)?;
    let Some((name, inode)) = victim else { return Ok(()) };
    fs.remove(root, &name, now).map_err(|e| format!("a full flash refuses a removal: {e}"))?;
    fs.forget(inode).map_err(|e| format!("a full flash refuses to forget: {e}"))
}
