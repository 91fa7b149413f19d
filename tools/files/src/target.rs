//! Resolves a path given by the user.

use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Maximum number of links to follow.
const LINKS_MAX: usize = 40;
/// Where processes show their descriptors.
const PROCESSES: &str = "/proc";

/// Whether `path` is `-`, the name of standard output.
pub fn is_standard_output(path: &Path) -> bool {
    path == Path::new("-")
}

/// Whether two paths lead to the same file or block device: what is written to one is then read
/// from the other.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let (Ok(one), Ok(other)) = (one.metadata(), other.metadata()) else { return false };
    let is_block = |it: &Metadata| it.file_type().is_block_device();
    match one.is_file() && other.is_file() {
        true => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        false => is_block(&one) && is_block(&other) && one.rdev() == other.rdev(),
    }
}

/// What a path leads to.
#[derive(Debug)]
pub(crate) enum Target {
    /// `-`.
    Standard,
    /// A regular file, existing or not, with all links resolved.
    Regular(PathBuf, Option<Metadata>),
    /// Anything else, which is written to in place.
    Existing(PathBuf),
    /// Standard error, under any name.
    Complaints,
}

impl Target {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        if is_standard_output(path) {
            return Ok(Self::Standard);
        }
        if path.as_os_str().is_empty() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "an empty name is not a file"));
        }
        let path = follow(path)?;
        if path.starts_with(PROCESSES) {
            return Ok(descriptor(path));
        }
        match std::fs::metadata(&path) {
            Ok(there) if there.is_dir() => Err(Errno::ISDIR.into()),
            Ok(there) if !there.is_file() => Ok(Self::Existing(path)),
            // Root may write to anything, but a file marked read-only must stay as it is.
            Ok(there) if there.permissions().readonly() => Err(Errno::ACCESS.into()),
            Ok(there) => Ok(Self::Regular(path, Some(there))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::Regular(path, None)),
            Err(error) => Err(error),
        }
    }
}

/// The path behind all links. Links to a process's descriptors are not followed: they do not say
/// where they lead.
fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let Some(name) = path.file_name() else { return Ok(path) };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize()?;
        path = folder.join(name);
        if folder.starts_with(PROCESSES) {
            return Ok(path);
        }
        match std::fs::read_link(&path) {
            Ok(link) => path = folder.join(link),
            // Not a link, or nothing is there.
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound) => {
                return Ok(path);
            }
            Err(error) => return Err(error),
        }
    }
    Err(Errno::LOOP.into())
}

/// The target of `/dev/stdout` and the like. Our own descriptors are shared, so that output of
/// others on them is not overwritten.
fn descriptor(path: PathBuf) -> Target {
    let own = Path::new(PROCESSES).join(std::process::id().to_string()).join("fd");
    match path.strip_prefix(own).ok().and_then(Path::to_str) {
        Some("1") => Target::Standard,
        Some("2") => Target::Complaints,
        _ => Target::Existing(path),
    }
}
