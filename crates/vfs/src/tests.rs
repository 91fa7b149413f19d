//! Runs the suite against a file system in memory that keeps the contract, and against the same
//! with one promise broken at a time: each must be noticed.

use std::ops::{ControlFlow, Range};
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use flysch_api::vfs::{
    Attributes, DeviceNumber, Entry, FileKind, FileSystem, FsError, Inode, NameVisitor, Statistics,
    Timestamp, Visitor,
};

use super::verify;

/// A promise to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Break {
    Nothing,
    LookupMisses,
    LookupTakesAnything,
    ResumeRepeats,
    ListGoesOn,
    DuplicateName,
    BadName,
    SizeTooLarge,
    ReadsBehindEnd,
    PiecesShifted,
    HoleWithData,
    KindDisagrees,
    LinksWrong,
    XattrTooLong,
    XattrMissingIsEmpty,
    StrangerHasContent,
    SymlinkSize,
    Nanoseconds,
    ListsFiles,
    ReadsDirectories,
}

const BREAKS: [Break; 19] = [
    Break::LookupMisses,
    Break::LookupTakesAnything,
    Break::ResumeRepeats,
    Break::ListGoesOn,
    Break::DuplicateName,
    Break::BadName,
    Break::SizeTooLarge,
    Break::ReadsBehindEnd,
    Break::PiecesShifted,
    Break::HoleWithData,
    Break::KindDisagrees,
    Break::LinksWrong,
    Break::XattrTooLong,
    Break::XattrMissingIsEmpty,
    Break::StrangerHasContent,
    Break::SymlinkSize,
    Break::Nanoseconds,
    Break::ListsFiles,
    Break::ReadsDirectories,
];

const ROOT: Inode = Inode(1);
const FILE: Inode = Inode(2);
const LINK: Inode = Inode(3);
const FOLDER: Inode = Inode(4);
const DEVICE: Inode = Inode(5);
const CONTENT: [u8; 9000] = {
    let mut content = [0; 9000];
    let mut at = 4096;
    while at < 9000 {
        content[at] = (at % 251) as u8;
        at += 1;
    }
    content
};

struct Tree(Break);

impl Tree {
    fn entries(&self, directory: Inode) -> Vec<(&'static [u8], Inode, FileKind)> {
        let mut entries: Vec<(&[u8], Inode, FileKind)> = match directory {
            ROOT => vec![
                (b"device", DEVICE, FileKind::CharacterDevice),
                (b"file", FILE, FileKind::Regular),
                (b"folder", FOLDER, FileKind::Directory),
                (b"link", LINK, FileKind::Symlink),
            ],
            FOLDER => vec![(b"again", FILE, FileKind::Regular)],
            _ => vec![],
        };
        match self.0 {
            Break::DuplicateName if directory == FOLDER => entries.push(entries[0]),
            Break::BadName if directory == FOLDER => entries[0].0 = b"..",
            Break::KindDisagrees if directory == FOLDER => entries[0].2 = FileKind::Fifo,
            _ => {}
        }
        entries
    }

    fn kind(inode: Inode) -> Option<FileKind> {
        Some(match inode {
            ROOT | FOLDER => FileKind::Directory,
            FILE => FileKind::Regular,
            LINK => FileKind::Symlink,
            DEVICE => FileKind::CharacterDevice,
            _ => return None,
        })
    }
}

impl FileSystem for Tree {
    fn statistics(&self) -> Statistics {
        Statistics {
            format: "test",
            root: ROOT,
            block_size: 4096,
            blocks: 10,
            blocks_free: 5,
            files: None,
            name_max: 255,
        }
    }

    fn lookup(&self, directory: Inode, name: &[u8]) -> Result<Inode, FsError> {
        match Self::kind(directory) {
            None => return Err(FsError::NotFound),
            Some(FileKind::Directory) => {}
            Some(_) => return Err(FsError::NotDirectory),
        }
        if self.0 == Break::LookupTakesAnything {
            return Ok(FILE);
        }
        let entries = self.entries(directory);
        let found = entries.iter().find(|(found, ..)| *found == name).map(|(_, inode, _)| *inode);
        found.filter(|_| self.0 != Break::LookupMisses).ok_or(FsError::NotFound)
    }

    fn attributes(&self, inode: Inode) -> Result<Attributes, FsError> {
        let kind = Self::kind(inode).ok_or(FsError::NotFound)?;
        let time = Timestamp {
            seconds: 1,
            nanoseconds: if self.0 == Break::Nanoseconds { 1_000_000_000 } else { 0 },
        };
        let (size, links) = match kind {
            FileKind::Regular if self.0 == Break::LinksWrong => (9000, 3),
            FileKind::Regular if self.0 == Break::SizeTooLarge => (9001, 2),
            FileKind::Regular => (9000, 2),
            FileKind::Symlink if self.0 == Break::SymlinkSize => (5, 1),
            FileKind::Symlink => (6, 1),
            FileKind::Directory => (0, 2),
            _ => (0, 1),
        };
        Ok(Attributes {
            inode,
            kind,
            permissions: 0o755,
            links,
            owner: 0,
            group: 0,
            size,
            blocks: 1,
            accessed: time,
            modified: time,
            changed: time,
            device: match kind {
                FileKind::CharacterDevice => DeviceNumber { major: 1, minor: 3 },
                _ => DeviceNumber::default(),
            },
            flags: Default::default(),
        })
    }

    fn list(
        &self,
        directory: Inode,
        position: u64,
        visit: &mut Visitor<'_>,
    ) -> Result<(), FsError> {
        match Self::kind(directory) {
            None => return Err(FsError::NotFound),
            Some(FileKind::Directory) => {}
            Some(_) if self.0 == Break::ListsFiles => {}
            Some(_) => return Err(FsError::NotDirectory),
        }
        for (number, (name, inode, kind)) in self.entries(directory).into_iter().enumerate() {
            let own = number as u64 + 1;
            let is_behind = match self.0 {
                Break::ResumeRepeats => own >= position,
                _ => own > position,
            };
            if is_behind {
                let flow = visit(Entry { name, inode, kind, position: own });
                if flow == ControlFlow::Break(()) && self.0 != Break::ListGoesOn {
                    break;
                }
            }
        }
        Ok(())
    }

    fn read(&self, inode: Inode, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        let content: &[u8] = match Self::kind(inode) {
            Some(FileKind::Regular) => &CONTENT,
            Some(FileKind::Symlink) => b"target",
            Some(FileKind::Directory) if self.0 == Break::ReadsDirectories => return Ok(0),
            Some(FileKind::Directory) => return Err(FsError::IsDirectory),
            Some(_) => return Err(FsError::NoContent),
            None if self.0 == Break::StrangerHasContent => return Ok(0),
            None => return Err(FsError::NotFound),
        };
        if self.0 == Break::ReadsBehindEnd && offset == u64::MAX {
            return Ok(buffer.len());
        }
        let mut start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        if self.0 == Break::PiecesShifted && start % 4096 == 1 {
            start -= 1;
        }
        let len = buffer.len().min(content.len() - start);
        buffer[..len].copy_from_slice(&content[start..start + len]);
        Ok(len)
    }

    fn next_data(&self, inode: Inode, offset: u64) -> Result<Option<Range<u64>>, FsError> {
        let size = self.attributes(inode)?.size;
        let start = if self.0 == Break::HoleWithData { 5000 } else { 4096 };
        Ok((offset < size).then(|| offset.max(start)..size))
    }

    fn list_xattrs(&self, inode: Inode, visit: &mut NameVisitor<'_>) -> Result<(), FsError> {
        if inode == FILE {
            visit(b"user.comment");
        }
        Ok(())
    }

    fn read_xattr(&self, inode: Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize, FsError> {
        if Self::kind(inode).is_none() {
            return Err(FsError::NotFound);
        }
        if inode != FILE || name != b"user.comment" {
            let is_empty = self.0 == Break::XattrMissingIsEmpty;
            return if is_empty { Ok(0) } else { Err(FsError::NoAttribute) };
        }
        if self.0 == Break::XattrTooLong && buffer.len() < 5 {
            return Ok(buffer.len());
        }
        buffer.get_mut(..5).ok_or(FsError::BufferTooSmall(5))?.copy_from_slice(b"hello");
        Ok(5)
    }
}

#[test]
fn a_sound_file_system_passes() {
    let report = verify(&Tree(Break::Nothing));
    assert_eq!(report.violations, []);
    assert_eq!((report.files, report.bytes), (6, 18000));
}

#[test]
fn every_broken_promise_is_noticed() {
    for broken in BREAKS {
        let report = verify(&Tree(broken));
        assert!(!report.violations.is_empty(), "{broken:?} passed");
    }
}

#[test]
fn a_violation_says_where_and_what() {
    let report = verify(&Tree(Break::KindDisagrees));
    let text = report.violations[0].to_string();
    assert_eq!(text, "/folder/again: entry and inode agree on the kind: Regular, expected Fifo");
}
