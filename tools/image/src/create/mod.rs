//! Creates images: a tree of files from a directory, an archive or a device table, as UBIFS or
//! JFFS2; volumes as UBI.

mod archive;
mod device_table;
mod directory;
mod jffs2;
mod tar_reader;
mod ubi;
mod ubifs;
mod ubifs_pipeline;

#[cfg(test)]
mod tests;

pub use jffs2::{Jffs2Written, XattrChoice, create_jffs2};
pub use ubi::{UbiPlan, UbiWritten, parse_ini};
pub use ubifs::{UbifsOptions, UbifsWritten, create_ubifs};

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flysch_api::vfs::{DeviceNumber, FileKind, Timestamp};

/// Maximum number of symlinks in one path, as in Linux.
const LINKS_MAX: usize = 40;

/// Why an image could not be created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// A file or directory of the source.
    #[error("{path}: {cause}")]
    Source {
        /// The file.
        path: String,
        /// The error.
        cause: io::Error,
    },
    /// A file of the source that the image cannot hold, or an invalid line of a table: where, and
    /// why.
    #[error("{0}: {1}")]
    Refused(String, String),
    /// The options contradict each other.
    #[error(transparent)]
    Options(Box<dyn Error + Send + Sync>),
    /// The image would exceed its maximum size.
    #[error(transparent)]
    Room(Box<dyn Error + Send + Sync>),
    /// Writing the image.
    #[error("the image cannot be written: {0}")]
    Output(io::Error),
}

impl CreateError {
    fn options(why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Options(why.into())
    }

    fn source(path: impl fmt::Display, cause: io::Error) -> Self {
        Self::Source { path: path.to_string(), cause }
    }

    fn refused(path: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::Refused(path.to_string(), why.to_string())
    }
}

/// How a tree is read from its source.
#[derive(Clone, Copy, Debug, Default)]
pub struct TreeOptions {
    /// Upper limit of all times: seconds since 1970 (`SOURCE_DATE_EPOCH`).
    pub latest: Option<i64>,
    /// Use the source's access and change times; by default they are those of the last change of
    /// content, so that the same tree gives the same image however often it was read.
    pub all_times: bool,
    /// Truncate times to whole seconds, as mkfs.ubifs stores them.
    pub whole_seconds: bool,
    /// Every file belongs to root.
    pub squash_owners: bool,
    /// Omit extended attributes.
    pub without_xattrs: bool,
}

impl TreeOptions {
    /// The times of a file: read, modified, changed.
    fn times(&self, times: [Timestamp; 3]) -> [Timestamp; 3] {
        let modified = times[1];
        let times = if self.all_times { times } else { [modified; 3] };
        times.map(|time| match self.latest {
            Some(latest) if time.seconds >= latest => Timestamp { seconds: latest, nanoseconds: 0 },
            _ if self.whole_seconds => Timestamp { nanoseconds: 0, ..time },
            _ => time,
        })
    }
}

/// Where the bytes of a regular file are.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// Nowhere: not a regular file, or an empty one.
    None,
    /// In a separate file.
    Path(PathBuf),
    /// In a stretch of a file that holds more.
    Stretch(Arc<File>, u64),
}

/// A file of a tree.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) kind: FileKind,
    pub(crate) permissions: u16,
    pub(crate) owner: u32,
    pub(crate) group: u32,
    /// Bytes of a regular file.
    pub(crate) size: u64,
    pub(crate) accessed: Timestamp,
    pub(crate) modified: Timestamp,
    pub(crate) changed: Timestamp,
    pub(crate) device: DeviceNumber,
    /// For a symbolic link.
    pub(crate) target: Vec<u8>,
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) content: Content,
    /// `chattr` flags, with Linux's numbers; those of regular files are read with their content.
    pub(crate) flags: u32,
    /// Number of its names; for a directory 2, plus one for each subdirectory.
    pub(crate) links: u32,
    /// For a directory: names, and the index of the file that each refers to, in byte order.
    pub(crate) names: BTreeMap<Vec<u8>, usize>,
}

impl Entry {
    fn directory(time: Timestamp) -> Self {
        Self::new(FileKind::Directory, 0o755, (0, 0), [time; 3])
    }

    fn new(
        kind: FileKind,
        permissions: u16,
        (owner, group): (u32, u32),
        [accessed, modified, changed]: [Timestamp; 3],
    ) -> Self {
        Self {
            kind,
            permissions,
            owner,
            group,
            size: 0,
            accessed,
            modified,
            changed,
            device: DeviceNumber::default(),
            target: Vec::new(),
            xattrs: Vec::new(),
            content: Content::None,
            flags: 0,
            links: if kind == FileKind::Directory { 2 } else { 1 },
            names: BTreeMap::new(),
        }
    }
}

/// A tree of files for an image. Contents stay where they are until they are needed.
#[derive(Clone, Debug)]
pub struct Tree {
    /// All files; the first is the root directory.
    entries: Vec<Entry>,
    /// What could not be copied, each thing reported once.
    notes: Vec<String>,
}

impl Tree {
    /// An empty root directory, created at `time`.
    pub fn empty(time: Timestamp) -> Self {
        Self { entries: vec![Entry::directory(time)], notes: Vec::new() }
    }

    /// Number of files in the tree, including the root; one with several names counts once.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is only the root.
    pub fn is_empty(&self) -> bool {
        self.entries.len() == 1
    }

    /// When the root was last changed: the time of files added by a table.
    pub fn modified(&self) -> Timestamp {
        self.entries[0].modified
    }

    /// Bytes of all regular files.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.size).sum()
    }

    /// What could not be copied from the source.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Adds a file with its first name.
    fn add(&mut self, directory: usize, name: &[u8], entry: Entry) -> usize {
        let at = self.entries.len();
        if entry.kind == FileKind::Directory {
            self.entries[directory].links += 1;
        }
        self.entries.push(entry);
        self.entries[directory].names.insert(name.to_vec(), at);
        at
    }

    /// Gives a file that is not a directory another name.
    fn link(&mut self, directory: usize, name: &[u8], file: usize) {
        self.entries[file].links += 1;
        self.entries[directory].names.insert(name.to_vec(), file);
    }

    /// Directory and last name of a path, which may start with '/' or "./". Missing directories are
    /// created; symlinks are followed inside the tree.
    fn place<'p>(&mut self, path: &'p [u8], time: Timestamp) -> Result<(usize, &'p [u8]), String> {
        let mut names = names(path);
        let Some(last) = names.pop() else { return Ok((0, b"")) };
        if last == b".." || names.contains(&&b".."[..]) {
            return Err("the path leads upwards".to_string());
        }
        if last.len() > 255 || last.contains(&0) {
            return Err("the name is longer than 255 bytes or holds a NUL".to_string());
        }
        Ok((self.directory(&names, time)?, last))
    }

    fn directory(&mut self, names: &[&[u8]], time: Timestamp) -> Result<usize, String> {
        let mut at = vec![0];
        let mut links = 0;
        // The next name comes last.
        let mut todo: Vec<Vec<u8>> = names.iter().rev().map(|name| name.to_vec()).collect();
        while let Some(name) = todo.pop() {
            let here = at[at.len() - 1];
            if name == b".." {
                // Of a symlink; above the root is the root.
                at.truncate((at.len() - 1).max(1));
                continue;
            }
            let there = self.entries[here].names.get(&name).copied();
            match there.map(|there| (there, self.entries[there].kind)) {
                Some((there, FileKind::Directory)) => at.push(there),
                Some((there, FileKind::Symlink)) if links < LINKS_MAX => {
                    links += 1;
                    let target = &self.entries[there].target;
                    if target.starts_with(b"/") {
                        at.truncate(1);
                    }
                    todo.extend(self::names(target).into_iter().rev().map(<[u8]>::to_vec));
                }
                Some(_) => {
                    let shown = name.escape_ascii();
                    return Err(format!("{shown} is not a directory"));
                }
                None => at.push(self.add(here, &name, Entry::directory(time))),
            }
        }
        Ok(at[at.len() - 1])
    }

    /// A path that refers to a file, for people.
    fn path_of(&self, file: usize) -> String {
        let mut path = Vec::new();
        let mut at = file;
        while at != 0 {
            let holds = |entry: &Entry| {
                entry.names.iter().find(|(_, child)| **child == at).map(|(name, _)| name.clone())
            };
            let parent = self
                .entries
                .iter()
                .enumerate()
                .find_map(|(parent, entry)| holds(entry).map(|name| (parent, name)));
            let Some((parent, name)) = parent else { break };
            path = [b"/", &name[..], &path].concat();
            at = parent;
        }
        if path.is_empty() { "/".to_string() } else { shown(&path) }
    }

    /// The file of a path; `None` if there is none.
    fn find(&self, path: &[u8]) -> Option<usize> {
        names(path).into_iter().try_fold(0, |at, name| self.entries[at].names.get(name).copied())
    }
}

/// The progress of creating an image.
#[derive(Debug, Default)]
pub struct Making {
    bytes: AtomicU64,
}

impl Making {
    /// Bytes of the source that are already in the image.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Names of a path.
fn names(path: &[u8]) -> Vec<&[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect()
}

/// A path for people.
fn shown(path: &[u8]) -> String {
    path.escape_ascii().to_string()
}
