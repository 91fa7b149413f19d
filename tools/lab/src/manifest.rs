//! The contents of a tree, line by line, to compare what Linux shows with what Flysch shows.
//!
//! [`of_directory`] asks the kernel it runs on, [`of_file_system`] asks any [`FileSystem`]. Both
//! give the same lines for the same tree, so that a comparison is one of texts and a difference is
//! readable as it is.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use flysch_api::vfs::{FileKind, FileSystem, FsError, Inode, Timestamp};
use sha2::{Digest, Sha256};

/// A tree: for each path (escaped, without a leading '/') a description.
pub type Manifest = BTreeMap<String, String>;

/// Which properties of a file are compared. Some do not survive extraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Everything `stat` shows except the access time, including inode numbers and directory sizes.
    Whole,
    /// What an extraction restores: without inode numbers, change times, link counts of directories
    /// and sizes of anything but files and symlinks, which depend on the file system extracted to.
    Restored,
}

/// One file, from any source.
struct Item {
    kind: FileKind,
    permissions: u32,
    owner: u32,
    group: u32,
    links: u64,
    size: u64,
    inode: u64,
    modified: Timestamp,
    changed: Timestamp,
    device: (u32, u32),
    /// The checksum of a regular file, the target of a symlink, or the error from reading it.
    content: String,
    xattrs: BTreeMap<Vec<u8>, String>,
}

impl Item {
    fn line(&self, detail: Detail) -> String {
        let whole = detail == Detail::Whole;
        let is_directory = self.kind == FileKind::Directory;
        let mut line = format!("{:?} mode {:04o}", self.kind, self.permissions);
        let _ = write!(line, " owner {}:{}", self.owner, self.group);
        if whole || !is_directory {
            let _ = write!(line, " links {}", self.links);
        }
        // The size of anything else depends on the file system.
        if whole || matches!(self.kind, FileKind::Regular | FileKind::Symlink) {
            let _ = write!(line, " size {}", self.size);
        }
        let time = |time: &Timestamp| format!("{}.{:09}", time.seconds, time.nanoseconds);
        let _ = write!(line, " mtime {}", time(&self.modified));
        if whole {
            let _ = write!(line, " ctime {} inode {}", time(&self.changed), self.inode);
        }
        if matches!(self.kind, FileKind::CharacterDevice | FileKind::BlockDevice) {
            let _ = write!(line, " device {}:{}", self.device.0, self.device.1);
        }
        if !self.content.is_empty() {
            let _ = write!(line, " content {}", self.content);
        }
        for (name, value) in &self.xattrs {
            let _ = write!(line, " xattr {}={value}", name.escape_ascii());
        }
        line
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn target_text(target: &[u8]) -> String {
    format!("\"{}\"", target.escape_ascii())
}

/// The tree below `root`, `root` itself as the empty path, as this machine's kernel shows it.
///
/// A failure to read a file is recorded in its line.
///
/// # Errors
/// If a directory cannot be listed or a file has vanished.
pub fn of_directory(root: &Path, detail: Detail) -> io::Result<Manifest> {
    let mut manifest = Manifest::new();
    let mut waiting = vec![(Vec::new(), root.to_path_buf())];
    while let Some((name, path)) = waiting.pop() {
        let metadata = path.symlink_metadata()?;
        if metadata.is_dir() {
            for entry in path.read_dir()? {
                let entry = entry?;
                let mut child = name.clone();
                if !child.is_empty() {
                    child.push(b'/');
                }
                child.extend_from_slice(&entry.file_name().into_vec());
                waiting.push((child, entry.path()));
            }
        }
        let item = directory_item(&path, &metadata);
        manifest.insert(name.escape_ascii().to_string(), item.line(detail));
    }
    Ok(manifest)
}

fn directory_item(path: &Path, metadata: &std::fs::Metadata) -> Item {
    let kind = metadata.file_type();
    let kind = match () {
        () if kind.is_dir() => FileKind::Directory,
        () if kind.is_symlink() => FileKind::Symlink,
        () if kind.is_char_device() => FileKind::CharacterDevice,
        () if kind.is_block_device() => FileKind::BlockDevice,
        () if kind.is_fifo() => FileKind::Fifo,
        () if kind.is_socket() => FileKind::Socket,
        () => FileKind::Regular,
    };
    let content = match kind {
        FileKind::Regular => file_sum(path),
        FileKind::Symlink => {
            std::fs::read_link(path).map(|target| target_text(target.as_os_str().as_bytes()))
        }
        _ => Ok(String::new()),
    };
    let time = |seconds, nanoseconds: i64| Timestamp {
        seconds,
        nanoseconds: u32::try_from(nanoseconds).unwrap_or(u32::MAX),
    };
    let device = metadata.rdev();
    Item {
        kind,
        permissions: metadata.mode() & 0o7777,
        owner: metadata.uid(),
        group: metadata.gid(),
        links: metadata.nlink(),
        size: metadata.size(),
        inode: metadata.ino(),
        modified: time(metadata.mtime(), metadata.mtime_nsec()),
        changed: time(metadata.ctime(), metadata.ctime_nsec()),
        device: (rustix::fs::major(device), rustix::fs::minor(device)),
        content: content.unwrap_or_else(|error| format!("unreadable ({error})")),
        xattrs: path_xattrs(path)
            .unwrap_or_else(|error| BTreeMap::from([(b"unreadable".to_vec(), error.to_string())])),
    }
}

fn file_sum(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut sum = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hexadecimal(&sum.finalize())),
            len => sum.update(&buffer[..len]),
        }
    }
}

fn path_xattrs(path: &Path) -> io::Result<BTreeMap<Vec<u8>, String>> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
    let mut names = vec![0; 1 << 16];
    let len = rustix::fs::llistxattr(&path, &mut names[..])?;
    let mut xattrs = BTreeMap::new();
    for name in names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 1 << 16];
        let text = CString::new(name).map_err(io::Error::other)?;
        let value = match rustix::fs::lgetxattr(&path, &text, &mut value[..]) {
            Ok(len) => hexadecimal(&value[..len]),
            Err(error) => format!("unreadable ({error})"),
        };
        xattrs.insert(name.to_vec(), value);
    }
    Ok(xattrs)
}

/// The tree of `fs`, as `fs` shows it. An error is recorded in the line of the file.
pub fn of_file_system(fs: &dyn FileSystem, detail: Detail) -> Manifest {
    let mut manifest = Manifest::new();
    let mut waiting = vec![(Vec::new(), fs.statistics().root, FileKind::Directory)];
    while let Some((name, inode, kind)) = waiting.pop() {
        if kind == FileKind::Directory {
            let listed = fs.list(inode, 0, &mut |entry| {
                let mut child = name.clone();
                if !child.is_empty() {
                    child.push(b'/');
                }
                child.extend_from_slice(entry.name);
                waiting.push((child, entry.inode, entry.kind));
                ControlFlow::Continue(())
            });
            if let Err(error) = listed {
                let key = format!("{} (listing)", name.escape_ascii());
                manifest.insert(key, error.to_string());
            }
        }
        let line = match file_system_item(fs, inode) {
            Ok(item) if item.kind == kind => item.line(detail),
            Ok(item) => format!("{:?}, but the entry says {kind:?}", item.kind),
            Err(error) => format!("no attributes ({error})"),
        };
        manifest.insert(name.escape_ascii().to_string(), line);
    }
    manifest
}

fn file_system_item(fs: &dyn FileSystem, inode: Inode) -> Result<Item, FsError> {
    let attributes = fs.attributes(inode)?;
    let content = match attributes.kind {
        FileKind::Regular => stored_sum(fs, inode),
        FileKind::Symlink => {
            let mut target = vec![0; 1 << 13];
            fs.read(inode, 0, &mut target).map(|len| target_text(&target[..len]))
        }
        _ => Ok(String::new()),
    };
    let mut names = vec![];
    let listed = fs.list_xattrs(inode, &mut |name| names.push(name.to_vec()));
    let mut xattrs = BTreeMap::new();
    if let Err(error) = listed {
        xattrs.insert(b"unreadable".to_vec(), error.to_string());
    }
    for name in names {
        let mut value = vec![0; 1 << 16];
        let value = match fs.read_xattr(inode, &name, &mut value) {
            Ok(len) => hexadecimal(&value[..len]),
            Err(error) => format!("unreadable ({error})"),
        };
        xattrs.insert(name, value);
    }
    Ok(Item {
        kind: attributes.kind,
        permissions: attributes.permissions.into(),
        owner: attributes.owner,
        group: attributes.group,
        links: attributes.links.into(),
        size: attributes.size,
        inode: attributes.inode.0,
        modified: attributes.modified,
        changed: attributes.changed,
        device: (attributes.device.major, attributes.device.minor),
        content: content.unwrap_or_else(|error| format!("unreadable ({error})")),
        xattrs,
    })
}

fn stored_sum(fs: &dyn FileSystem, inode: Inode) -> Result<String, FsError> {
    let mut sum = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    let mut offset = 0;
    loop {
        match fs.read(inode, offset, &mut buffer)? {
            0 => return Ok(hexadecimal(&sum.finalize())),
            len => {
                sum.update(&buffer[..len]);
                offset += len as u64;
            }
        }
    }
}

/// The text form of a manifest: a line for each file, path and description separated by a tab.
pub fn to_text(manifest: &Manifest) -> String {
    manifest.iter().fold(String::new(), |mut text, (path, line)| {
        let _ = writeln!(text, "{path}\t{line}");
        text
    })
}

/// Parses the text form of a manifest; lines without a tab are skipped.
pub fn from_text(text: &str) -> Manifest {
    let parts = text.lines().filter_map(|line| line.split_once('\t'));
    parts.map(|(path, line)| (path.to_owned(), line.to_owned())).collect()
}

/// The differences between two manifests, a text for each path.
pub fn differences(expected: &Manifest, found: &Manifest) -> Vec<String> {
    let mut differences = vec![];
    for (path, line) in expected {
        match found.get(path) {
            Some(other) if other == line => {}
            Some(other) => differences.push(format!("/{path}\n  - {line}\n  + {other}")),
            None => differences.push(format!("/{path}\n  - {line}")),
        }
    }
    for (path, line) in found.iter().filter(|(path, _)| !expected.contains_key(*path)) {
        differences.push(format!("/{path}\n  + {line}"));
    }
    differences
}
