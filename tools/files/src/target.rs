//! Where a path of the user leads.

use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Most links on the way to a file.
const LINKS_MAX: usize = 40;
/// Where processes show their descriptors.
const PROCESSES: &str = "/proc";

/// Whether `path` is `-`, the name of standard output.
pub fn is_standard_output(path: &Path) -> bool {
    path == Path::new("-")
}

/// What a path leads to.
#[derive(Debug)]
pub(crate) enum Target {
    /// `-`.
    Standard,
    /// A plain file, there already or not; no link any more.
    Regular(PathBuf, Option<Metadata>),
    /// Something else, which is written to as it is.
    Existing(PathBuf),
    /// Standard error, by whatever name.
    Complaints,
}

impl Target {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        if is_standard_output(path) {
            return Ok(Self::Standard);
        }
        if path.as_os_str().is_empty() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "an empty name is no file"));
        }
        let path = follow(path)?;
        if path.starts_with(PROCESSES) {
            return Ok(descriptor(path));
        }
        match std::fs::metadata(&path) {
            Ok(there) if there.is_dir() => Err(Errno::ISDIR.into()),
            Ok(there) if !there.is_file() => Ok(Self::Existing(path)),
            // Root may write everything; a file marked read-only is still meant to stay.
            Ok(there) if there.permissions().readonly() => Err(Errno::ACCESS.into()),
            Ok(there) => Ok(Self::Regular(path, Some(there))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::Regular(path, None)),
            Err(error) => Err(error),
        }
    }
}

/// The path behind all links. The links to the descriptors of a process are not followed: they do
/// not say where they lead.
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
            // It is none, or nothing is there.
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound) => {
                return Ok(path);
            }
            Err(error) => return Err(error),
        }
    }
    Err(Errno::LOOP.into())
}

/// Where `/dev/stdout` and its kin lead: our own descriptors are shared, so that nothing written to
/// them by others is written over.
fn descriptor(path: PathBuf) -> Target {
    let own = Path::new(PROCESSES).join(std::process::id().to_string()).join("fd");
    match path.strip_prefix(own).ok().and_then(Path::to_str) {
        Some("1") => Target::Standard,
        Some("2") => Target::Complaints,
        _ => Target::Existing(path),
    }
}
