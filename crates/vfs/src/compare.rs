//! Comparison of two file systems.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::ControlFlow;

use flysch_api::vfs::{FileKind, FileSystem, FsError, Inode};

use crate::{DEPTH_MAX, VIOLATIONS_MAX};

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Path of the file, without a leading '/'.
    pub path: Vec<u8>,
    /// What differs: "name", "content", "owner" ...
    pub what: &'static str,
    /// The two values.
    pub values: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}: {}: {}", self.path.escape_ascii(), self.what, self.values)
    }
}

/// The differences between two trees: names, kinds, all attributes except the time of last access
/// and the space used, extended attributes, contents, and which names belong to one file. Sizes and
/// link counts of directories depend on the format and are not compared. Stops after
/// [`VIOLATIONS_MAX`] differences.
pub fn compare(left: &dyn FileSystem, right: &dyn FileSystem) -> Vec<Difference> {
    let mut comparison = Comparison {
        left,
        right,
        path: vec![],
        pairs: [BTreeMap::new(), BTreeMap::new()],
        differences: vec![],
    };
    comparison.file(left.statistics().root, right.statistics().root, 0);
    comparison.differences
}

struct Comparison<'f> {
    left: &'f dyn FileSystem,
    right: &'f dyn FileSystem,
    path: Vec<u8>,
    /// Left to right, and right to left: which files correspond.
    pairs: [BTreeMap<Inode, Inode>; 2],
    differences: Vec<Difference>,
}

/// Names of a directory, or why they cannot be listed.
fn names(fs: &dyn FileSystem, directory: Inode) -> Result<BTreeMap<Vec<u8>, Inode>, FsError> {
    let mut names = BTreeMap::new();
    fs.list(directory, 0, &mut |entry| {
        names.insert(entry.name.to_vec(), entry.inode);
        ControlFlow::Continue(())
    })?;
    Ok(names)
}

fn xattrs(fs: &dyn FileSystem, inode: Inode) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, FsError> {
    let mut names: Vec<Vec<u8>> = vec![];
    fs.list_xattrs(inode, &mut |name| names.push(name.to_vec()))?;
    let mut values = BTreeMap::new();
    for name in names {
        let len = match fs.read_xattr(inode, &name, &mut []) {
            Err(FsError::BufferTooSmall(len)) => len,
            other => other?,
        };
        let mut value = vec![0; len];
        fs.read_xattr(inode, &name, &mut value)?;
        values.insert(name, value);
    }
    Ok(values)
}

impl Comparison<'_> {
    fn expect<T: PartialEq + fmt::Debug>(&mut self, what: &'static str, left: T, right: T) -> bool {
        let same = left == right;
        if !same && self.differences.len() < VIOLATIONS_MAX {
            let values = format!("{left:?} and {right:?}");
            self.differences.push(Difference { path: self.path.clone(), what, values });
        }
        same
    }

    fn file(&mut self, left: Inode, right: Inode, depth: usize) {
        let before = self.pairs[0].insert(left, right);
        let back = self.pairs[1].insert(right, left);
        if before.is_some() || back.is_some() {
            let expected = (Some(right), Some(left));
            self.expect("which names are one file", (before, back), expected);
            return;
        }
        let (a, b) = (self.left.attributes(left), self.right.attributes(right));
        let (Ok(a), Ok(b)) = (a, b) else {
            self.expect("attributes", a.map(drop), b.map(drop));
            return;
        };
        if !self.expect("kind", a.kind, b.kind) {
            return;
        }
        self.expect("permissions", a.permissions, b.permissions);
        self.expect("owner", (a.owner, a.group), (b.owner, b.group));
        self.expect("time of content", a.modified, b.modified);
        self.expect("time of change", a.changed, b.changed);
        self.expect("device number", a.device, b.device);
        let (x, y) = (xattrs(self.left, left), xattrs(self.right, right));
        self.expect("extended attributes", x, y);
        if a.kind == FileKind::Directory {
            self.directory(left, right, depth);
            return;
        }
        self.expect("links", a.links, b.links);
        let same_size = self.expect("size", a.size, b.size);
        if same_size && matches!(a.kind, FileKind::Regular | FileKind::Symlink) {
            self.content(left, right);
        }
    }

    fn directory(&mut self, left: Inode, right: Inode, depth: usize) {
        let (a, b) = (names(self.left, left), names(self.right, right));
        let (Ok(a), Ok(b)) = (&a, &b) else {
            self.expect("names", a.map(drop), b.map(drop));
            return;
        };
        let here = self.path.len();
        for name in a.keys().chain(b.keys().filter(|name| !a.contains_key(*name))) {
            if self.differences.len() >= VIOLATIONS_MAX {
                break;
            }
            if here > 0 {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name);
            match (a.get(name), b.get(name)) {
                (Some(left), Some(right)) if depth < DEPTH_MAX => {
                    self.file(*left, *right, depth + 1);
                }
                (left, right) => {
                    self.expect("name is there", left.is_some(), right.is_some());
                }
            }
            self.path.truncate(here);
        }
    }

    fn content(&mut self, left: Inode, right: Inode) {
        const PIECE: usize = 64 << 10;
        let (mut a, mut b) = (vec![0; PIECE], vec![0; PIECE]);
        let mut offset = 0;
        loop {
            let x = self.left.read(left, offset, &mut a);
            let y = self.right.read(right, offset, &mut b);
            let (Ok(x), Ok(y)) = (x, y) else {
                self.expect("content", x, y);
                return;
            };
            let differ = a[..x].iter().zip(&b[..y]).position(|(a, b)| a != b);
            if let Some(at) = differ.or((x != y).then_some(x.min(y))) {
                let byte = offset + at as u64;
                let values = (a[..x].get(at), b[..y].get(at));
                let values = format!("at byte {byte}: {values:?}");
                self.differences.push(Difference {
                    path: self.path.clone(),
                    what: "content",
                    values,
                });
                return;
            }
            if x == 0 {
                return;
            }
            offset += x as u64;
        }
    }
}
