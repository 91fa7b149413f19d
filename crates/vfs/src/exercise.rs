//! Random changes, made both to a file system and to [`Memory`].
//!
//! After each change both must give the same answer; [`compare`](crate::compare()) tells at any
//! time whether they have the same content. The steps depend only on the seed, as long as the file
//! system has room: a change that it refuses for lack of space is not made to the model either.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use flysch_api::vfs::{
    Changes, DeviceNumber, FileKind, FileSystem, FileSystemMut, FsError, Inode, NewFile, Rename,
    Timestamp, XattrChange,
};

use flysch_random::SplitMix64;

use crate::Memory;

/// The capabilities of a format, and the limits of the steps.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum length of files, bytes.
    pub file_size: u64,
    /// Maximum length of one write, bytes.
    pub write_size: usize,
    /// Approximate number of files to keep.
    pub files: usize,
    /// Whether names can be exchanged and leave whiteouts ([`Rename::Exchange`],
    /// [`Rename::Whiteout`]).
    pub exchange: bool,
    /// Whether times are kept to the nanosecond; otherwise to the second.
    pub nanoseconds: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_size: 256 << 10,
            write_size: 20_000,
            files: 60,
            exchange: true,
            nanoseconds: true,
        }
    }
}

/// Statistics of an exercise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of steps.
    pub steps: u64,
    /// Steps that both refused.
    pub refused: u64,
    /// Steps for which the file system had no room.
    pub full: u64,
    /// Bytes written.
    pub written: u64,
}

/// A step for which the two answers differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The number of the step, from 0.
    pub step: u64,
    /// The call made to both.
    pub asked: String,
    /// The file system's answer.
    pub found: String,
    /// The expected answer.
    pub expected: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, asked, found, expected } = self;
        write!(f, "step {step}: {asked}: {found}, expected {expected}")
    }
}

/// The steps of one seed, and the file system to which they should lead.
#[derive(Clone, Debug)]
pub struct Exercise {
    model: Memory,
    limits: Limits,
    random: SplitMix64,
    counts: Counts,
    /// Files of the model and their inodes in the file system. Files without a name are included
    /// until they are forgotten.
    files: BTreeMap<Inode, Inode>,
    seconds: i64,
}

/// How a step ended on the file system.
type Answer<T> = Result<T, FsError>;

impl Exercise {
    /// The steps of `seed`, for a file system that is empty.
    pub fn new(fs: &dyn FileSystem, seed: u64, limits: Limits) -> Self {
        let seconds = 1_600_000_000;
        let start = Timestamp { seconds, nanoseconds: 0 };
        let mut model = Memory::new(u64::MAX, start);
        let root = (model.statistics().root, fs.statistics().root);
        // The root is older than the exercise.
        if let Ok(attributes) = fs.attributes(root.1) {
            model.adopt(root.0, &attributes);
        }
        Self {
            model,
            limits,
            random: SplitMix64::new(seed),
            counts: Counts::default(),
            files: BTreeMap::from([root]),
            seconds,
        }
    }

    /// The content that the file system should have now.
    pub fn model(&self) -> &Memory {
        &self.model
    }

    /// Statistics so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Call this after the file system was opened again: its inodes may have other numbers, and
    /// files without a name are gone.
    ///
    /// # Errors
    /// A name that no longer exists, or a file that has become two.
    pub fn reopened(&mut self, fs: &dyn FileSystem) -> Result<(), Mismatch> {
        let nameless: Vec<Inode> = self.nameless().collect();
        for inode in nameless {
            self.files.remove(&inode);
            self.model.forget(inode).expect("the model forgets anything");
        }
        let root = self.model.statistics().root;
        let mut pairs = BTreeMap::from([(root, fs.statistics().root)]);
        let mut open = vec![root];
        while let Some(directory) = open.pop() {
            for (name, inode) in self.model.names(directory) {
                let found = fs.lookup(pairs[&directory], &name).map_err(|error| {
                    let asked = format!("lookup of {} after reopening", name.escape_ascii());
                    self.mismatch(asked, format!("{error:?}"), "it is there".into())
                })?;
                if pairs.insert(inode, found).is_none() {
                    open.push(inode);
                }
            }
        }
        self.files = pairs;
        Ok(())
    }

    /// Makes one step on both.
    ///
    /// # Errors
    /// The step, if the two answers differ.
    pub fn step(&mut self, fs: &mut dyn FileSystemMut) -> Result<(), Mismatch> {
        self.seconds += 1;
        let grown = self.files.len() > self.limits.files;
        match self.random.modulo(100) {
            0..12 => self.create(fs, FileKind::Regular),
            12..16 => self.create(fs, FileKind::Directory),
            16..20 => self.create_special(fs),
            20..24 => self.link(fs),
            24..30 => self.remove(fs),
            30..34 if grown => self.remove(fs),
            30..42 => self.rename(fs),
            42..70 => self.write(fs),
            70..78 => self.truncate(fs),
            78..84 => self.attributes(fs),
            84..90 => self.xattr(fs),
            90..94 => self.forget(fs),
            94..98 => self.read(fs),
            _ => {
                let inode = self.random.percent(50).then(|| self.any_file());
                let asked = format!("sync of {inode:?}");
                let found = fs.sync(inode.map(|inode| self.files[&inode]));
                self.settle(asked, found, Ok(())).map(drop)
            }
        }?;
        self.counts.steps += 1;
        Ok(())
    }

    fn mismatch(&self, asked: String, found: String, expected: String) -> Mismatch {
        Mismatch { step: self.counts.steps, asked, found, expected }
    }

    /// Compares an answer with the expected one.
    fn settle<T: PartialEq + fmt::Debug>(
        &mut self,
        asked: String,
        found: Answer<T>,
        expected: Answer<T>,
    ) -> Result<(), Mismatch> {
        let same = match (&found, &expected) {
            // What is wrong in two ways may be refused for either; failing is no refusal.
            (Err(found), Err(_)) => !matches!(
                found,
                FsError::Damaged { .. } | FsError::Medium { .. } | FsError::ReadOnly
            ),
            (found, expected) => found == expected,
        };
        if !same {
            return Err(self.mismatch(asked, format!("{found:?}"), format!("{expected:?}")));
        }
        self.counts.refused += u64::from(found.is_err());
        Ok(())
    }

    /// Makes a change to the file system and, unless that had no room for it, to the model.
    fn change(
        &mut self,
        asked: String,
        found: Answer<()>,
        change: impl FnOnce(&mut Memory) -> Answer<()>,
    ) -> Result<bool, Mismatch> {
        if found == Err(FsError::NoSpace) {
            self.counts.full += 1;
            return Ok(false);
        }
        let expected = change(&mut self.model);
        let done = expected.is_ok();
        self.settle(asked, found, expected)?;
        Ok(done)
    }

    fn now(&mut self) -> Timestamp {
        let nanoseconds =
            if self.limits.nanoseconds { self.random.modulo(1_000_000_000) as u32 } else { 0 };
        Timestamp { seconds: self.seconds, nanoseconds }
    }

    fn nameless(&self) -> impl Iterator<Item = Inode> + '_ {
        let links = |inode: Inode| self.model.attributes(inode).map_or(0, |found| found.links);
        self.files.keys().copied().filter(move |inode| links(*inode) == 0)
    }

    fn any_file(&mut self) -> Inode {
        // What has no name is there for a short time only.
        if self.random.percent(5)
            && let Some(inode) = self.nameless().next()
        {
            return inode;
        }
        let at = self.random.modulo(self.files.len() as u64) as usize;
        self.files.keys().copied().nth(at).expect("the root is always there")
    }

    /// A file of this kind, if a few attempts find one.
    fn any_of(&mut self, kind: FileKind) -> Option<Inode> {
        for _ in 0..8 {
            let inode = self.any_file();
            if self.model.attributes(inode).is_ok_and(|attributes| attributes.kind == kind) {
                return Some(inode);
            }
        }
        None
    }

    fn any_directory(&mut self) -> Inode {
        match self.any_of(FileKind::Directory) {
            Some(inode) => inode,
            None => self.model.statistics().root,
        }
    }

    /// Mostly short and from a small set, so that names occur again.
    fn any_name(&mut self) -> Vec<u8> {
        match self.random.modulo(40) {
            0 => vec![b'n'; 200 + self.random.modulo(50) as usize],
            1 => "größe".into(),
            _ => format!("f{}", self.random.modulo(50)).into_bytes(),
        }
    }

    /// Usually a name that exists.
    fn any_entry(&mut self) -> (Inode, Vec<u8>) {
        let directory = self.any_directory();
        let names = self.model.names(directory);
        if names.is_empty() || self.random.percent(3) {
            return (directory, self.any_name());
        }
        let at = self.random.modulo(names.len() as u64) as usize;
        (directory, names.into_iter().nth(at).expect("it is one of them").0)
    }

    fn data(&mut self, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        match self.random.modulo(3) {
            0 => data.fill(self.random.bits() as u8),
            1 => data.iter_mut().for_each(|byte| *byte = b'a' + self.random.modulo(4) as u8),
            _ => data.iter_mut().for_each(|byte| *byte = self.random.bits() as u8),
        }
        data
    }

    fn create(&mut self, fs: &mut dyn FileSystemMut, kind: FileKind) -> Result<(), Mismatch> {
        self.create_as(fs, kind, DeviceNumber::default(), &[])
    }

    fn create_special(&mut self, fs: &mut dyn FileSystemMut) -> Result<(), Mismatch> {
        let device = DeviceNumber {
            major: self.random.modulo(4000) as u32,
            minor: self.random.modulo(70_000) as u32,
        };
        match self.random.modulo(5) {
            0 => self.create_as(fs, FileKind::CharacterDevice, device, &[]),
            1 => self.create_as(fs, FileKind::BlockDevice, device, &[]),
            2 => self.create_as(fs, FileKind::Fifo, DeviceNumber::default(), &[]),
            3 => self.create_as(fs, FileKind::Socket, DeviceNumber::default(), &[]),
            _ => {
                let target = self.any_name();
                self.create_as(fs, FileKind::Symlink, DeviceNumber::default(), &target)
            }
        }
    }

    fn create_as(
        &mut self,
        fs: &mut dyn FileSystemMut,
        kind: FileKind,
        device: DeviceNumber,
        target: &[u8],
    ) -> Result<(), Mismatch> {
        let (directory, name, now) = (self.any_directory(), self.any_name(), self.now());
        let permissions = self.random.modulo(0o10000) as u16;
        let (owner, group) = (self.random.modulo(2000) as u32, self.random.modulo(3) as u32);
        let file = NewFile { kind, permissions, owner, group, device, target };
        let asked = format!("create {kind:?} {} in {directory}", name.escape_ascii());
        let found = fs.create(self.files[&directory], &name, &file, now);
        let mut made = None;
        self.change(asked, found.map(drop), |model| {
            made = Some(model.create(directory, &name, &file, now)?);
            Ok(())
        })?;
        if let (Some(made), Ok(found)) = (made, found) {
            self.files.insert(made, found);
        }
        Ok(())
    }

    fn link(&mut self, fs: &mut dyn FileSystemMut) -> Result<(), Mismatch> {
        let (file, directory) = (self.any_file(), self.any_directory());
        let (name, now) = (self.any_name(), self.now());
        let asked = format!("link {file} as {} in {directory}", name.escape_ascii());
        let found = fs.link(self.files[&file], self.files[&directory], &name, now);
        self.change(asked, found, |model| model.link(file, directory, &name, now)).map(drop)
    }

    fn remove(&mut self, fs: &mut dyn FileSystemMut) -> Result<(), Mismatch> {
        let ((directory, name), now) = (self.any_entry(), self.now());
        let asked = format!("remove {} from {directory}", name.escape_ascii());
        let found = fs.remove(self.files[&directory], &name, now);
        self.change(asked, found, |model| model.remove(directory, &name, now))?;
        // Some stay open for a while.
        if self.random.percent(50) { self.forget(fs) } else { Ok(()) }
    }

    fn forget(&mut self, fs: &mut dyn FileSystemMut) -> Result<(), Mismatch> {
        let nameless: Vec<Inode> = self.nameless().collect();
        for inode in nameless {
            let found = fs.forget(self.files[&inode]);
            let asked = format!("forget {inode}");
            if self.change(asked, found, |model| model.forget(inode))? {
                self.files.remove(&inode);
            }
        }
        Ok(())
    }

    fn rename(&mut self, fs: &mut dyn FileSystemMut) -> Result<(), Mismatch> {
        let (from, old) = self.any_entry();
        let (to, new) = match self.random.percent(40) {
            true => self.any_entry(),
            false => (self.any_directory(), self.any_name()),
        };
        let how = match self.random.modulo(10) {
            0 if self.limits.exchange => Rename::Whiteout,
            1..3 if self.limits.exchange => Rename::Exchange,
            3..5 => Rename::Keep,
            _ => Rename::Replace,
        };
        let now = self.now();
        let (old_text, new_text) = (old.escape_ascii(), new.escape_ascii());
        let asked = format!("rename ({how:?}) {old_text} in {from} to {new_text} in {to}");
        let places = ((self.files[&from], &old[..]), (self.files[&to], &new[..]));
        let found = fs.rename(places.0, places.1, how, now);
        let done =
            self.change(asked, found, |model| model.rename((from, &old), (to, &new), how, now))?;
        if done
            && how == Rename::Whiteout
            && let (Ok(whiteout), Ok(found)) =
                (self.model.lookup(from, &old), fs.lookup(self.files[&from], &old))
        {
            self.files.insert(whiteout, found);
        }
        Ok(())
    }

    fn write(&mut self, fs: &mut dyn FileSystemMut) -> Result<(), Mismatch> {
        let Some(file) = self.any_of(FileKind::Regular) else { return Ok(()) };
        let size = self.model.attributes(file).map_or(0, |attributes| attributes.size);
        let offset = match self.random.modulo(4) {
            0 => self.random.modulo(self.limits.file_size),
            1 => self.random.modulo(size + 1),
            2 => self.random.modulo(size + 1) & !4095,
            _ => size,
        };
        let offset = offset.min(self.limits.file_size);
        let len = match self.random.modulo(3) {
            0 => 1 + self.random.modulo(100),
            1 => 4096,
            _ => 1 + self.random.modulo(self.limits.write_size as u64),
        };
        let (data, now) = (self.data(len as usize), self.now());
        let asked = format!("write {len} bytes at {offset} of {file}");
        let found = fs.write(self.files[&file], offset, &data, now);
        let accepted = found.unwrap_or(0).min(data.len());
        let found = match found {
            // Something has to be accepted.
            Ok(0) => Err(FsError::Invalid("nothing was written")),
            other => other.map(drop),
        };
        self.change(asked, found, |model| {
            model.write(file, offset, &data[..accepted], now).map(drop)
        })?;
        self.counts.full += u64::from(accepted > 0 && accepted < data.len());
        self.counts.written += accepted as u64;
        Ok(())
    }

    fn truncate(&mut self, fs: &mut dyn FileSystemMut) -> Result<(), Mismatch> {
        let file = if self.random.percent(5) { Some(self.any_file()) } else { None };
        let Some(file) = file.or_else(|| self.any_of(FileKind::Regular)) else { return Ok(()) };
        let size = self.model.attributes(file).map_or(0, |attributes| attributes.size);
        let size = match self.random.modulo(4) {
            0 => 0,
            1 => self.random.modulo(self.limits.file_size),
            2 => self.random.modulo(size + 1) & !4095,
            _ => self.random.modulo(size + 1),
        };
        self.set(fs, file, Changes { size: Some(size), ..Changes::default() })
    }

    fn attributes(&mut self, fs: &mut dyn FileSystemMut) -> Result<(), Mismatch> {
        let file = self.any_file();
        let time = self.now();
        let mut changes = Changes::default();
        match self.random.modulo(3) {
            0 => changes.permissions = Some(self.random.modulo(0o10000) as u16),
            1 => {
                changes.owner = Some(self.random.modulo(70_000) as u32 & 0xffff);
                changes.group = Some(self.random.modulo(50) as u32);
            }
            _ => {
                changes.accessed = Some(time);
                changes.modified = Some(Timestamp { seconds: time.seconds - 1000, ..time });
            }
        }
        self.set(fs, file, changes)
    }

    fn set(
        &mut self,
        fs: &mut dyn FileSystemMut,
        file: Inode,
        changes: Changes,
    ) -> Result<(), Mismatch> {
        let now = self.now();
        let asked = format!("set {changes:?} of {file}");
        let found = fs.set_attributes(self.files[&file], &changes, now);
        self.change(asked, found, |model| model.set_attributes(file, &changes, now)).map(drop)
    }

    fn xattr(&mut self, fs: &mut dyn FileSystemMut) -> Result<(), Mismatch> {
        // Often the same file, so that attributes meet again.
        let root = self.model.statistics().root;
        let file = if self.random.percent(40) { root } else { self.any_file() };
        let now = self.now();
        let is_plain = self.model.attributes(file).is_ok_and(|attributes| {
            matches!(attributes.kind, FileKind::Regular | FileKind::Directory)
        });
        let space = if is_plain { "user" } else { "trusted" };
        let name = format!("{space}.x{}", self.random.modulo(4)).into_bytes();
        let len = if self.random.percent(20) { 2000 } else { 40 };
        let len = self.random.modulo(len) as usize;
        let value = self.data(len);
        let change = match self.random.modulo(6) {
            0 => XattrChange::Create(&value),
            1 => XattrChange::Replace(&value),
            2 => XattrChange::Remove,
            _ => XattrChange::Set(&value),
        };
        let asked = format!("{change:.0?} of xattr {} of {file}", name.escape_ascii());
        let found = fs.set_xattr(self.files[&file], &name, change, now);
        self.change(asked, found, |model| model.set_xattr(file, &name, change, now)).map(drop)
    }

    fn read(&mut self, fs: &mut dyn FileSystemMut) -> Result<(), Mismatch> {
        let Some(file) = self.any_of(FileKind::Regular) else { return Ok(()) };
        let offset = self.random.modulo(self.limits.file_size);
        let len = self.random.modulo(10_000) as usize;
        let (mut found, mut expected) = (vec![0; len], vec![0; len]);
        let asked = format!("read {len} bytes at {offset} of {file}");
        let answer = fs.read(self.files[&file], offset, &mut found);
        let model = self.model.read(file, offset, &mut expected);
        self.settle(asked.clone(), answer, model)?;
        // What lies behind the bytes that were read may be anything.
        let len = answer.unwrap_or(0).min(len);
        match found[..len] == expected[..len] {
            true => Ok(()),
            false => Err(self.mismatch(asked, "other bytes".into(), "what was written".into())),
        }
    }
}

#[cfg(test)]
mod tests;
