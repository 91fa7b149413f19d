//! The exercise against the model itself, and against a model that breaks one promise.

use flysch_api::vfs::{Attributes, NameVisitor, Statistics, Visitor};

use super::*;
use crate::compare;

/// A promise to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Break {
    Nothing,
    /// A write loses its last byte.
    WriteShort,
    /// Truncated content comes back when the file grows.
    TruncateKeeps,
    /// A removed name stays.
    RemoveNothing,
    /// A rename replaces a file although it should not.
    KeepReplaces,
    /// An exchange is a plain rename.
    ExchangeMoves,
    /// A second name is a copy of the file.
    LinkCopies,
    /// The time of change does not follow the owner.
    OwnerKeepsTime,
    /// A new attribute may already exist.
    XattrCreateSets,
    /// A nameless file is deleted at once.
    RemoveForgets,
}

struct Broken(Memory, Break);

impl FileSystem for Broken {
    fn statistics(&self) -> Statistics {
        self.0.statistics()
    }
    fn lookup(&self, directory: Inode, name: &[u8]) -> Answer<Inode> {
        self.0.lookup(directory, name)
    }
    fn attributes(&self, inode: Inode) -> Answer<Attributes> {
        self.0.attributes(inode)
    }
    fn list(&self, directory: Inode, position: u64, visit: &mut Visitor<'_>) -> Answer<()> {
        self.0.list(directory, position, visit)
    }
    fn read(&self, inode: Inode, offset: u64, buffer: &mut [u8]) -> Answer<usize> {
        self.0.read(inode, offset, buffer)
    }
    fn list_xattrs(&self, inode: Inode, visit: &mut NameVisitor<'_>) -> Answer<()> {
        self.0.list_xattrs(inode, visit)
    }
    fn read_xattr(&self, inode: Inode, name: &[u8], buffer: &mut [u8]) -> Answer<usize> {
        self.0.read_xattr(inode, name, buffer)
    }
}

impl FileSystemMut for Broken {
    fn create(
        &mut self,
        directory: Inode,
        name: &[u8],
        file: &NewFile<'_>,
        now: Timestamp,
    ) -> Answer<Inode> {
        self.0.create(directory, name, file, now)
    }
    fn link(&mut self, inode: Inode, to: Inode, name: &[u8], now: Timestamp) -> Answer<()> {
        if self.1 == Break::LinkCopies && self.0.lookup(to, name).is_err() {
            let Attributes { kind, permissions, owner, group, device, .. } =
                self.0.attributes(inode)?;
            if matches!(kind, FileKind::Regular | FileKind::Fifo) {
                let file = NewFile { kind, permissions, owner, group, device, target: &[] };
                return self.0.create(to, name, &file, now).map(drop);
            }
        }
        self.0.link(inode, to, name, now)
    }
    fn remove(&mut self, directory: Inode, name: &[u8], now: Timestamp) -> Answer<()> {
        if self.1 == Break::RemoveNothing {
            return self.0.clone().remove(directory, name, now);
        }
        let inode = self.0.lookup(directory, name);
        self.0.remove(directory, name, now)?;
        if self.1 == Break::RemoveForgets { self.0.forget(inode?) } else { Ok(()) }
    }
    fn rename(
        &mut self,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
        how: Rename,
        now: Timestamp,
    ) -> Answer<()> {
        let how = match (self.1, how) {
            (Break::KeepReplaces, Rename::Keep) | (Break::ExchangeMoves, Rename::Exchange) => {
                Rename::Replace
            }
            _ => how,
        };
        self.0.rename(from, to, how, now)
    }
    fn set_attributes(&mut self, inode: Inode, changes: &Changes, now: Timestamp) -> Answer<()> {
        let before = self.0.attributes(inode)?;
        let mut now = now;
        if self.1 == Break::OwnerKeepsTime && changes.owner.is_some() {
            now = before.changed;
        }
        match changes.size {
            Some(size) if self.1 == Break::TruncateKeeps && size < before.size => {
                let mut tail = [0; 16];
                let len = self.0.read(inode, size, &mut tail)?;
                self.0.set_attributes(inode, changes, now)?;
                if len > 0 && size + 16 < before.size {
                    self.0.write(inode, size, &tail[..len], now)?;
                }
                Ok(())
            }
            _ => self.0.set_attributes(inode, changes, now),
        }
    }
    fn write(&mut self, inode: Inode, offset: u64, data: &[u8], now: Timestamp) -> Answer<usize> {
        if self.1 == Break::WriteShort && data.len() > 1 {
            return self.0.write(inode, offset, &data[..data.len() - 1], now).map(|len| len + 1);
        }
        self.0.write(inode, offset, data, now)
    }
    fn set_xattr(
        &mut self,
        inode: Inode,
        name: &[u8],
        change: XattrChange<'_>,
        now: Timestamp,
    ) -> Answer<()> {
        let change = match change {
            XattrChange::Create(value) if self.1 == Break::XattrCreateSets => {
                XattrChange::Set(value)
            }
            other => other,
        };
        self.0.set_xattr(inode, name, change, now)
    }
    fn sync(&mut self, inode: Option<Inode>) -> Answer<()> {
        self.0.sync(inode)
    }
    fn forget(&mut self, inode: Inode) -> Answer<()> {
        self.0.forget(inode)
    }
}

/// The first thing that goes wrong in a few thousand steps.
fn run(broken: Break, seed: u64) -> Option<String> {
    let start = Timestamp { seconds: 5, nanoseconds: 7 };
    let mut fs = Broken(Memory::new(1 << 30, start), broken);
    let mut exercise = Exercise::new(&fs, seed, Limits::default());
    for _ in 0..8 {
        for _ in 0..250 {
            if let Err(mismatch) = exercise.step(&mut fs) {
                return Some(format!("{mismatch}"));
            }
        }
        if let Some(difference) = compare(&fs, exercise.model()).first() {
            return Some(format!("{difference}"));
        }
        let nameless: Vec<Inode> =
            exercise.nameless().map(|inode| exercise.files[&inode]).collect();
        nameless.into_iter().for_each(|inode| fs.forget(inode).unwrap());
        if let Err(mismatch) = exercise.reopened(&fs) {
            return Some(format!("{mismatch}"));
        }
    }
    let counts = exercise.counts();
    assert!(counts.refused > 100 && counts.refused < 1200, "{counts:?}");
    None
}

#[test]
fn model_agrees_with_itself() {
    for seed in 0..10 {
        assert_eq!(run(Break::Nothing, seed), None, "seed {seed}");
    }
}

#[test]
fn every_broken_promise_is_noticed() {
    for broken in [
        Break::WriteShort,
        Break::TruncateKeeps,
        Break::RemoveNothing,
        Break::KeepReplaces,
        Break::ExchangeMoves,
        Break::LinkCopies,
        Break::OwnerKeepsTime,
        Break::XattrCreateSets,
        Break::RemoveForgets,
    ] {
        assert!(run(broken, 1).is_some(), "{broken:?}");
    }
}

#[test]
fn a_name_that_changes_places_with_itself_is_not_touched() {
    let time = |seconds| Timestamp { seconds, nanoseconds: 0 };
    let mut fs = Memory::new(1 << 20, time(1));
    let root = fs.statistics().root;
    let file = NewFile {
        kind: FileKind::Regular,
        permissions: 0o644,
        owner: 0,
        group: 0,
        device: DeviceNumber::default(),
        target: b"",
    };
    let inode = fs.create(root, b"a", &file, time(2)).unwrap();
    fs.link(inode, root, b"b", time(3)).unwrap();
    for (to, how) in [(b"a", Rename::Exchange), (b"b", Rename::Exchange), (b"b", Rename::Replace)] {
        fs.rename((root, b"a"), (root, to), how, time(4)).unwrap();
        assert_eq!(fs.attributes(inode).unwrap().changed, time(3));
        assert_eq!(fs.attributes(root).unwrap().modified, time(3));
        assert_eq!(fs.lookup(root, b"a"), Ok(inode));
    }
}

#[test]
fn want_of_space_is_no_mismatch() {
    let start = Timestamp { seconds: 5, nanoseconds: 7 };
    let mut fs = Memory::new(64 << 10, start);
    let mut exercise = Exercise::new(&fs, 3, Limits::default());
    for _ in 0..2000 {
        exercise.step(&mut fs).unwrap();
    }
    assert!(exercise.counts().full > 50, "{:?}", exercise.counts());
    assert_eq!(compare(&fs, exercise.model()), []);
}

#[test]
fn model_keeps_the_reading_contract() {
    let start = Timestamp { seconds: 5, nanoseconds: 7 };
    let mut fs = Memory::new(1 << 30, start);
    let mut exercise = Exercise::new(&fs, 9, Limits::default());
    for _ in 0..3000 {
        exercise.step(&mut fs).unwrap();
    }
    let report = crate::verify(&fs);
    assert_eq!(report.violations, []);
    assert!(report.files > 20);
}
