//! The promises of [`FileSystem`], as a test suite for any implementation.
//!
//! [`verify`] walks a whole tree and checks every call against the contract: lookups against
//! listings, listings against themselves from every position, reads in pieces against reads in one,
//! holes against zeros, sizes against contents, and bad arguments against the errors they must
//! give. It does not depend on any format. It returns [`Violation`]s; a correct file system on an
//! undamaged image has none.
//!
//! For changes there is a model: [`Memory`] is a file system that implements only the contract,
//! [`Exercise`] makes the same random changes to it and to another file system, and [`compare()`]
//! reports the differences between two.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod compare;
mod content;
mod exercise;
mod memory;
mod names;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

pub use compare::{Difference, compare};
pub use exercise::{Counts, Exercise, Limits, Mismatch};
pub use memory::Memory;

use flysch_api::vfs::{Attributes, DeviceNumber, FileKind, FileSystem, FsError, Inode};

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the file concerned, without a leading '/'.
    pub path: Vec<u8>,
    /// What the contract says, in a few words.
    pub rule: &'static str,
    /// What happened instead.
    pub found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}: {}: {}", self.path.escape_ascii(), self.rule, self.found)
    }
}

/// What a run of the suite covered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Files, directories and everything else.
    pub files: u64,
    /// Bytes of content read in one piece.
    pub bytes: u64,
    /// Promises that were not kept, at most [`VIOLATIONS_MAX`].
    pub violations: Vec<Violation>,
}

/// Number of violations after which the suite stops.
pub const VIOLATIONS_MAX: usize = 100;
/// Maximum depth: deeper directories are not entered.
const DEPTH_MAX: usize = 256;

/// Checks `fs` against the contract.
pub fn verify(fs: &dyn FileSystem) -> Report {
    let mut suite = Suite { fs, report: Report::default(), path: vec![], links: BTreeMap::new() };
    let statistics = fs.statistics();
    suite.statistics();
    suite.strangers();
    let mut entered = BTreeSet::from([statistics.root]);
    match fs.attributes(statistics.root) {
        Ok(attributes) => {
            suite.file(statistics.root, FileKind::Directory, &attributes);
            suite.directory(statistics.root, &mut entered, 0);
        }
        Err(error) => suite.violation("the root has attributes", error),
    }
    suite.link_counts();
    suite.report
}

/// What is known about a file with its names.
struct Seen {
    links: u32,
    names: u32,
    path: Vec<u8>,
}

struct Suite<'f> {
    fs: &'f dyn FileSystem,
    report: Report,
    path: Vec<u8>,
    /// Everything but directories.
    links: BTreeMap<Inode, Seen>,
}

impl Suite<'_> {
    fn violation(&mut self, rule: &'static str, found: impl fmt::Display) {
        if self.is_full() {
            return;
        }
        let path = self.path.clone();
        self.report.violations.push(Violation { path, rule, found: format!("{found}") });
    }

    fn is_full(&self) -> bool {
        self.report.violations.len() >= VIOLATIONS_MAX
    }

    /// Records a violation unless `found` is what was `expected`.
    fn expect<T: PartialEq + fmt::Debug>(&mut self, rule: &'static str, found: T, expected: T) {
        if found != expected {
            self.violation(rule, format_args!("{found:?}, expected {expected:?}"));
        }
    }

    fn statistics(&mut self) {
        let statistics = self.fs.statistics();
        if !statistics.block_size.is_power_of_two() {
            self.violation("the block size is a power of two", statistics.block_size);
        }
        if statistics.blocks_free > statistics.blocks {
            self.violation("no more is free than there is", statistics.blocks_free);
        }
        if !(1..=255).contains(&statistics.name_max) {
            self.violation("names have 1 to 255 bytes", statistics.name_max);
        }
        self.expect("statistics stay the same", self.fs.statistics(), statistics);
    }

    /// Inodes that do not exist.
    fn strangers(&mut self) {
        for inode in [Inode(u64::MAX), Inode(u64::from(u32::MAX)), Inode(1 << 40)] {
            if self.fs.attributes(inode).is_ok() {
                continue; // it happens to be there
            }
            let missing = Err(FsError::NotFound);
            self.expect(
                "no attributes without inode",
                self.fs.attributes(inode).map(drop),
                missing,
            );
            let found = self.fs.lookup(inode, b"x").map(drop);
            self.expect("no lookup without inode", found, missing);
            let found = self.fs.read(inode, 0, &mut [0; 4]).map(drop);
            self.expect("no read without inode", found, missing);
            let found = self.fs.read_xattr(inode, b"user.x", &mut [0; 4]).map(drop);
            self.expect("no attribute without inode", found, missing);
            let found = self.fs.list(inode, 0, &mut |_| core::ops::ControlFlow::Continue(()));
            self.expect("no listing without inode", found, missing);
        }
    }

    /// Checks one file of any kind.
    fn file(&mut self, inode: Inode, kind: FileKind, attributes: &Attributes) {
        self.report.files += 1;
        self.attributes(inode, kind, attributes);
        self.xattrs(inode);
        match attributes.kind {
            FileKind::Regular => self.regular(inode, attributes.size),
            FileKind::Symlink => self.symlink(inode, attributes.size),
            FileKind::Directory => {
                let found = self.fs.read(inode, 0, &mut [0; 4]);
                self.expect("a directory cannot be read", found, Err(FsError::IsDirectory));
            }
            _ => {
                let found = self.fs.read(inode, 0, &mut [0; 4]);
                self.expect("this kind has no content", found, Err(FsError::NoContent));
            }
        }
    }

    fn attributes(&mut self, inode: Inode, kind: FileKind, attributes: &Attributes) {
        self.expect("attributes name their inode", attributes.inode, inode);
        self.expect("entry and inode agree on the kind", attributes.kind, kind);
        self.expect("attributes stay the same", self.fs.attributes(inode), Ok(*attributes));
        if attributes.permissions > 0o7777 {
            self.violation("permissions are 12 bits", attributes.permissions);
        }
        for time in [attributes.accessed, attributes.modified, attributes.changed] {
            if time.nanoseconds > 999_999_999 {
                self.violation("a second has 10^9 nanoseconds", time.nanoseconds);
            }
        }
        let is_device =
            matches!(attributes.kind, FileKind::CharacterDevice | FileKind::BlockDevice);
        if !is_device {
            let found = attributes.device;
            self.expect("only devices have a number", found, DeviceNumber::default());
        }
        let least = if attributes.kind == FileKind::Directory { 2 } else { 1 };
        if attributes.links < least {
            self.violation("what has a name has a link", attributes.links);
        }
        if attributes.kind != FileKind::Directory {
            let (links, path) = (attributes.links, self.path.clone());
            let seen = self.links.entry(inode).or_insert(Seen { links, names: 0, path });
            seen.names += 1;
        }
    }

    /// Checks link counts against the names found.
    fn link_counts(&mut self) {
        for (inode, seen) in core::mem::take(&mut self.links) {
            if seen.links != seen.names {
                self.path = seen.path;
                let found = format!("inode {inode}: {} links, {} names", seen.links, seen.names);
                self.violation("links are names", found);
            }
        }
    }
}
