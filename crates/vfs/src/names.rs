//! Directories and extended attributes: everything with names.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use flysch_api::vfs::{FileKind, FsError, Inode};

use crate::{DEPTH_MAX, Suite};

/// Positions from which a listing is resumed, in large directories.
const RESUMES_MAX: usize = 40;
/// Names that no directory contains.
const NOT_NAMES: [&[u8]; 6] = [b"", b".", b"..", b"a/b", b"nul\0", &[b'x'; 300]];

/// A copy of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    name: Vec<u8>,
    inode: Inode,
    kind: FileKind,
    position: u64,
}

impl Suite<'_> {
    /// At most `most` entries after `position`.
    fn listed(&self, directory: Inode, position: u64, most: usize) -> Result<Vec<Kept>, FsError> {
        let mut entries = vec![];
        let result = self.fs.list(directory, position, &mut |entry| {
            entries.push(Kept {
                name: entry.name.to_vec(),
                inode: entry.inode,
                kind: entry.kind,
                position: entry.position,
            });
            if entries.len() >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        result.map(|()| entries)
    }

    pub(crate) fn directory(
        &mut self,
        directory: Inode,
        entered: &mut BTreeSet<Inode>,
        depth: usize,
    ) {
        let entries = match self.listed(directory, 0, usize::MAX) {
            Ok(entries) => entries,
            Err(error) => return self.violation("a directory can be listed", error),
        };
        self.listing(directory, &entries);
        for name in NOT_NAMES {
            let found = self.fs.lookup(directory, name);
            self.expect("what is no name is not found", found, Err(FsError::NotFound));
        }
        let length = self.path.len();
        for entry in &entries {
            if self.is_full() {
                return;
            }
            if length > 0 {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&entry.name);
            self.entry(directory, entry, entered, depth);
            self.path.truncate(length);
        }
    }

    /// Checks a listing against itself.
    fn listing(&mut self, directory: Inode, entries: &[Kept]) {
        let mut names = BTreeSet::new();
        let name_max = self.fs.statistics().name_max as usize;
        for entry in entries {
            let name = &entry.name[..];
            let is_name = !NOT_NAMES[..3].contains(&name)
                && name.len() <= name_max
                && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
            if !is_name {
                self.violation("entries have names", name.escape_ascii());
            }
            if !names.insert(name) {
                self.violation("names are unique", name.escape_ascii());
            }
        }
        if !entries.is_sorted_by(|a, b| a.position < b.position) {
            self.violation("positions rise", format!("{:?}", positions(entries)));
        }
        if entries.first().is_some_and(|entry| entry.position == 0) {
            self.violation("0 is before the first entry", "the first entry has position 0");
        }
        let step = entries.len().div_ceil(RESUMES_MAX).max(1);
        for (number, entry) in entries.iter().enumerate().step_by(step) {
            let rest = self.listed(directory, entry.position, usize::MAX);
            if rest.as_deref() != Ok(&entries[number + 1..]) {
                self.violation("a listing resumes", format!("behind entry {number}: {rest:?}"));
            }
            let one = self.listed(directory, entry.position, 1);
            let next = &entries[number + 1..entries.len().min(number + 2)];
            if one.as_deref() != Ok(next) {
                self.violation("a listing stops", format!("behind entry {number}: {one:?}"));
            }
        }
        let behind = self.listed(directory, u64::MAX, usize::MAX);
        self.expect("nothing is behind the last position", behind, Ok(vec![]));
    }

    fn entry(
        &mut self,
        directory: Inode,
        entry: &Kept,
        entered: &mut BTreeSet<Inode>,
        depth: usize,
    ) {
        let found = self.fs.lookup(directory, &entry.name);
        self.expect("what is listed is found", found, Ok(entry.inode));
        let mut other = entry.name.clone();
        other.push(b'?');
        if self
            .listed(directory, 0, usize::MAX)
            .is_ok_and(|all| all.iter().all(|e| e.name != other))
        {
            let found = self.fs.lookup(directory, &other);
            self.expect("what is not listed is not found", found, Err(FsError::NotFound));
        }
        let attributes = match self.fs.attributes(entry.inode) {
            Ok(attributes) => attributes,
            Err(error) => return self.violation("what has a name has attributes", error),
        };
        self.file(entry.inode, entry.kind, &attributes);
        if attributes.kind != FileKind::Directory {
            let found = self.fs.lookup(entry.inode, b"x");
            self.expect("only directories have names in them", found, Err(FsError::NotDirectory));
            let found = self.listed(entry.inode, 0, 1);
            self.expect("only directories are listed", found, Err(FsError::NotDirectory));
        } else if !entered.insert(entry.inode) {
            self.violation("a directory has one name", format!("inode {}", entry.inode));
        } else if depth < DEPTH_MAX {
            self.directory(entry.inode, entered, depth + 1);
        }
    }

    pub(crate) fn xattrs(&mut self, inode: Inode) {
        let mut names: Vec<Vec<u8>> = vec![];
        if let Err(error) = self.fs.list_xattrs(inode, &mut |name| names.push(name.to_vec())) {
            self.violation("attributes can be listed", error);
        }
        let unique: BTreeSet<_> = names.iter().collect();
        self.expect("attribute names are unique", unique.len(), names.len());
        for name in &names {
            if !name.contains(&b'.') || name.contains(&0) {
                self.violation("an attribute name has a namespace", name.escape_ascii());
            }
            let mut value = vec![0xA5; 1 << 16];
            let len = match self.fs.read_xattr(inode, name, &mut value) {
                Ok(len) => len,
                Err(error) => {
                    self.violation("a listed attribute can be read", error);
                    continue;
                }
            };
            let mut exact = vec![0x5A; len];
            let found = self.fs.read_xattr(inode, name, &mut exact);
            self.expect("a buffer of the right size is enough", found, Ok(len));
            self.expect("a value stays the same", &exact[..], &value[..len]);
            if len > 0 {
                let found = self.fs.read_xattr(inode, name, &mut exact[..len - 1]);
                let short = Err(FsError::BufferTooSmall(len));
                self.expect("a short buffer is told the size", found, short);
            }
        }
        let found = self.fs.read_xattr(inode, b"user.there is no such attribute", &mut [0; 8]);
        self.expect("an attribute that is not there is told", found, Err(FsError::NoAttribute));
    }
}

fn positions(entries: &[Kept]) -> Vec<u64> {
    entries.iter().map(|entry| entry.position).collect()
}
