use std::io;
use std::path::{Path, PathBuf};

use flysch_api::block::{BlockError, Cause, Operation};

/// Why a file or a block device cannot be a disk, in one line that names it, the cause and the
/// remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// It cannot be opened or queried.
    #[error("{}: {cause}", path.display())]
    Open {
        /// The object.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// It does not exist.
    #[error("{}: does not exist; {}", path.display(), remedy_of_missing(path))]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// It is neither a block device nor a file.
    #[error("{}: is {what}, neither a block device nor a regular file", path.display())]
    Kind {
        /// The object.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// A block device is to be written without explicit permission.
    #[error(
        "{}: is a block device, and its data would be lost; if that is meant, use `write=on`",
        path.display()
    )]
    NotAllowed {
        /// The device.
        path: PathBuf,
    },
    /// It is in use.
    #[error("{}: cannot be opened for writing: {uses}", path.display())]
    Busy {
        /// The object.
        path: PathBuf,
        /// The user, and how to end the use.
        uses: String,
    },
    /// It cannot be written.
    #[error("{}: cannot be written: {cause}", path.display())]
    ReadOnly {
        /// The object.
        path: PathBuf,
        /// The cause.
        cause: String,
    },
    /// It does not support direct I/O.
    #[error(
        "{}: its file system has no direct I/O (O_DIRECT); use `direct=off` to go through the \
         page cache",
        path.display()
    )]
    NoDirect {
        /// The file.
        path: PathBuf,
    },
    /// The requested block size is impossible.
    #[error("{}: blocks of {asked} bytes: {why}", path.display())]
    BlockSize {
        /// The object.
        path: PathBuf,
        /// The requested value.
        asked: u32,
        /// The error.
        why: String,
    },
    /// It holds less than one block.
    #[error("{}: {bytes} bytes are less than one block of {block}", path.display())]
    TooSmall {
        /// The object.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// Bytes of a block.
        block: u32,
    },
    /// Completions cannot be polled.
    #[error("{}: cannot be polled: {why}", path.display())]
    NotPolled {
        /// The object.
        path: PathBuf,
        /// The cause, and the remedy.
        why: String,
    },
    /// Two settings exclude each other.
    #[error("{key}: {why}")]
    Settings {
        /// The key.
        key: &'static str,
        /// The setting that excludes it.
        why: &'static str,
    },
    /// The engine could not be set up.
    #[error("{what}: {cause}{remedy}")]
    Engine {
        /// The call.
        what: &'static str,
        /// The system's error.
        cause: io::Error,
        /// The remedy, after a semicolon; or nothing.
        remedy: &'static str,
    },
}

/// Whether `path` is, or would be, among the machine's devices. If it is missing there, a device is
/// missing, and a file in its place would be taken for one; `/dev/shm` is for files.
pub fn is_among_devices(path: &Path) -> bool {
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    folder.is_some_and(|folder| folder.starts_with("/dev") && !folder.starts_with("/dev/shm"))
}

fn remedy_of_missing(path: &Path) -> &'static str {
    match is_among_devices(path) {
        true => "`lsblk` lists the disks of this machine",
        false => "give `size=` to make a file",
    }
}

/// The system's error as an error of a block device. Causes are SPC-6 sense keys and codes, from
/// which the kernel itself derives these errors (`blk_errors`).
pub(super) fn error_of(errno: i32, operation: Operation) -> BlockError {
    match errno {
        // DATA PROTECT, space allocation failed.
        libc::ENOSPC | libc::EDQUOT => BlockError::Device(Cause::sense(7, 0x27, 7)),
        libc::EROFS | libc::EPERM | libc::EACCES | libc::EBADF => BlockError::WriteProtected,
        libc::EOPNOTSUPP | libc::ENOSYS => BlockError::Unsupported,
        libc::EINVAL => BlockError::Misaligned,
        libc::ETIMEDOUT => BlockError::TimedOut,
        libc::ENODEV | libc::ENXIO | libc::ENOLINK => BlockError::Gone,
        libc::EFBIG => BlockError::OutOfRange,
        // Unrecovered read error; write error.
        _ if operation == Operation::Read => BlockError::Medium(Cause::sense(3, 0x11, 0)),
        _ => BlockError::Medium(Cause::sense(3, 0x0c, 0)),
    }
}

/// The remedy for an error, after a semicolon; or nothing.
pub(super) fn remedy(errno: i32, direct: bool, polled: bool) -> &'static str {
    match errno {
        libc::ENOSPC | libc::EDQUOT => "; the file's file system is full",
        libc::EOPNOTSUPP if polled => "; it cannot be polled: leave `polled` out",
        libc::EINVAL if direct => {
            "; direct I/O here needs larger blocks: try `block=4096`, or `direct=off`"
        }
        libc::EIO => "; see the kernel's log",
        _ => "",
    }
}
