//! The object below: its kind, its blocks, whether it may be written.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::DiskError;
use super::usage::Tree;

/// The I/O interface of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// io_uring.
    #[default]
    Uring,
    /// `io_submit` and `io_getevents`.
    Aio,
    /// `preadv2` and `pwritev2`, one after the other.
    Sync,
}

/// Whether the object is opened for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Never.
    Read,
    /// Yes: it is an error if that is refused.
    Write,
    /// Files if possible; block devices not.
    #[default]
    WriteIfFile,
}

/// How an object is opened, and how requests are sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The I/O interface.
    pub engine: Engine,
    /// Bypass the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Bytes of a block; `None` is the minimum that the object supports, and 4096 for files that
    /// support it.
    pub block: Option<u32>,
    /// Whether to open it for writing.
    pub access: Access,
    /// Poll for completions instead of using interrupts (io_uring: `IORING_SETUP_IOPOLL`).
    pub polled: bool,
    /// A kernel thread polls for submissions (io_uring).
    pub sqpoll: bool,
    /// Register memory and file with the ring once (io_uring).
    pub fixed: bool,
}

impl Default for Settings {
    /// io_uring, bypassing the page cache, registered, with interrupts.
    fn default() -> Self {
        Self {
            engine: Engine::Uring,
            direct: true,
            block: None,
            access: Access::default(),
            polled: false,
            sqpoll: false,
            fixed: true,
        }
    }
}

/// The properties of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// A block device, not a file.
    pub is_block: bool,
    /// Bytes.
    pub bytes: u64,
    /// Bytes of a block: the alignment of offsets and lengths.
    pub block: u32,
    /// Alignment of request memory, bytes.
    pub alignment: u32,
    /// Whether ranges can be discarded.
    pub can_delete: bool,
    /// Whether it is open for writing.
    pub writable: bool,
}

/// An open object, which lanes share.
#[derive(Clone, Debug)]
pub struct Object {
    pub(super) file: Arc<File>,
    pub(super) path: PathBuf,
    pub(super) settings: Settings,
    facts: Facts,
}

impl Object {
    /// Its properties.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }
}

/// `BLKGETSIZE64`, `BLKSSZGET` and `BLKDISCARD` of `linux/fs.h`.
const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;
const BLKSSZGET: libc::c_ulong = 0x1268;
const BLKDISCARD: libc::c_ulong = 0x1277;
/// `STATX_DIOALIGN` (Linux 6.1).
const STATX_DIOALIGN: u32 = 0x2000;
/// Default block size of a file.
const FILE_BLOCK: u32 = 4096;
const BLOCK_MAX: u32 = 65_536;

/// Opens the file or block device at `path`.
///
/// # Errors
/// [`DiskError`]: it is in use, cannot be as requested, or the system refuses.
pub fn open(path: &Path, settings: Settings) -> Result<Object, DiskError> {
    open_in(&Tree::system(), path, settings)
}

fn open_in(tree: &Tree, path: &Path, settings: Settings) -> Result<Object, DiskError> {
    check(&settings)?;
    let failed = |cause: io::Error| match cause.kind() {
        ErrorKind::NotFound => DiskError::Missing { path: path.into() },
        _ => DiskError::Open { path: path.into(), cause },
    };
    let metadata = fs::metadata(path).map_err(failed)?;
    let is_block = metadata.file_type().is_block_device();
    if let Some(what) = strange(&metadata) {
        return Err(DiskError::Kind { path: path.into(), what });
    }
    let number = numbers(if is_block { metadata.rdev() } else { metadata.dev() });
    let wants = settings.access;
    let mut writable = wants == Access::Write || (wants == Access::WriteIfFile && !is_block);
    if writable {
        let uses = if is_block { tree.uses(number) } else { tree.uses_of_file(path) };
        match (uses.is_empty(), wants) {
            (true, _) => {}
            (false, Access::WriteIfFile) => writable = false,
            (false, _) => {
                return Err(DiskError::Busy { path: path.into(), uses: uses.join("; ") });
            }
        }
    }
    let file = match open_file(path, is_block, &settings, writable) {
        Err(cause) if writable && is_protected(&cause) => {
            if wants == Access::Write {
                let cause = cause.to_string();
                return Err(DiskError::ReadOnly { path: path.into(), cause });
            }
            writable = false;
            open_file(path, is_block, &settings, false)
        }
        other => other,
    };
    let file = file.map_err(|cause| match cause.raw_os_error() {
        Some(libc::EINVAL) if settings.direct => DiskError::NoDirect { path: path.into() },
        Some(libc::EBUSY) => {
            let uses = "the kernel uses it (a file system, RAID, a mapper or another program has \
                        it exclusively)";
            DiskError::Busy { path: path.into(), uses: uses.into() }
        }
        _ => DiskError::Open { path: path.into(), cause },
    })?;
    let bytes = if is_block { size_of(&file).map_err(failed)? } else { metadata.len() };
    let (least, alignment) = alignment(tree, &file, is_block, number, &settings)?
        .ok_or_else(|| DiskError::NoDirect { path: path.into() })?;
    let block = block_size(path, &settings, is_block, bytes, least)?;
    if bytes < u64::from(block) {
        return Err(DiskError::TooSmall { path: path.into(), bytes, block });
    }
    if settings.polled {
        can_poll(tree, path, number)?;
    }
    let discards = || {
        let most = tree.queue(number, "discard_max_bytes");
        most.and_then(|text| text.parse::<u64>().ok()).is_some_and(|most| most > 0)
    };
    let can_delete = writable && (!is_block || discards());
    let facts = Facts { is_block, bytes, block, alignment, can_delete, writable };
    Ok(Object { file: Arc::new(file), path: path.into(), settings, facts })
}

/// Settings that exclude each other.
fn check(settings: &Settings) -> Result<(), DiskError> {
    let wrong = |key, why| Err(DiskError::Settings { key, why });
    match settings {
        Settings { polled: true, direct: false, .. } => {
            wrong("polled", "only direct I/O can be polled; leave `direct=off` out")
        }
        Settings { polled: true, engine: Engine::Aio, .. } => {
            wrong("polled", "`engine=aio` has no polling; use io_uring or psync")
        }
        Settings { sqpoll: true, engine: Engine::Aio | Engine::Sync, .. } => {
            wrong("sqpoll", "only `engine=io_uring` has a thread for submissions")
        }
        _ => Ok(()),
    }
}

fn strange(metadata: &fs::Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    match () {
        () if kind.is_block_device() || kind.is_file() => None,
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_char_device() => Some("a character device"),
        () if kind.is_fifo() => Some("a pipe"),
        () => Some("a socket"),
    }
}

fn is_protected(cause: &io::Error) -> bool {
    matches!(cause.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

fn numbers(device: u64) -> (u32, u32) {
    (rustix::fs::major(device), rustix::fs::minor(device))
}

fn open_file(path: &Path, is_block: bool, settings: &Settings, write: bool) -> io::Result<File> {
    let mut flags = libc::O_CLOEXEC;
    if settings.direct {
        flags |= libc::O_DIRECT;
    }
    // The kernel refuses a device that anything has claimed, whatever could not be seen above.
    if is_block && write {
        flags |= libc::O_EXCL;
    }
    File::options().read(true).write(write).custom_flags(flags).open(path)
}

/// The whole size of a block device.
fn size_of(file: &File) -> io::Result<u64> {
    let mut bytes = 0_u64;
    // SAFETY: BLKGETSIZE64 stores one u64.
    match unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64 as _, &raw mut bytes) } {
        0 => Ok(bytes),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The minimum block size and the alignment of memory; `None` if there is no direct I/O and it is
/// requested.
fn alignment(
    tree: &Tree,
    file: &File,
    is_block: bool,
    number: (u32, u32),
    settings: &Settings,
) -> Result<Option<(u32, u32)>, DiskError> {
    let queue = |name| tree.queue(number, name).and_then(|text| text.parse::<u32>().ok());
    if is_block {
        let mut bytes: libc::c_int = 0;
        // SAFETY: BLKSSZGET stores one int.
        let done = unsafe { libc::ioctl(file.as_raw_fd(), BLKSSZGET as _, &raw mut bytes) };
        let logical = if done == 0 { bytes as u32 } else { FILE_BLOCK };
        let memory = queue("dma_alignment").map_or(logical, |mask| mask.saturating_add(1));
        let memory = if settings.direct { memory.clamp(1, logical) } else { 1 };
        return Ok(Some((logical, memory)));
    }
    if !settings.direct {
        return Ok(Some((512, 1)));
    }
    let mut answer = MaybeUninit::<libc::statx>::zeroed();
    let (at, empty) = (file.as_raw_fd(), c"".as_ptr());
    // SAFETY: the path is an empty string, and statx fills a structure of its own size.
    let done =
        unsafe { libc::statx(at, empty, libc::AT_EMPTY_PATH, STATX_DIOALIGN, answer.as_mut_ptr()) };
    // SAFETY: all bytes of the structure were zeroed, and any bytes are valid.
    let answer = unsafe { answer.assume_init() };
    if done == 0 && answer.stx_mask & STATX_DIOALIGN != 0 {
        let (memory, offset) = (answer.stx_dio_mem_align, answer.stx_dio_offset_align);
        return Ok((offset != 0).then_some((offset.max(512), memory.max(1))));
    }
    // Older kernels do not tell: the blocks of the device below are enough.
    let logical = queue("logical_block_size").unwrap_or(FILE_BLOCK);
    Ok(Some((logical, logical)))
}

fn block_size(
    path: &Path,
    settings: &Settings,
    is_block: bool,
    bytes: u64,
    least: u32,
) -> Result<u32, DiskError> {
    let wrong = |asked, why: String| DiskError::BlockSize { path: path.into(), asked, why };
    if !least.is_power_of_two() || least > BLOCK_MAX {
        return Err(wrong(least, format!("are not a power of two up to {BLOCK_MAX}")));
    }
    match settings.block {
        Some(asked) if asked < least => {
            Err(wrong(asked, format!("its own have {least}; leave `block=` out")))
        }
        Some(asked) => Ok(asked),
        None if is_block || !bytes.is_multiple_of(FILE_BLOCK.into()) => Ok(least),
        None => Ok(least.max(FILE_BLOCK)),
    }
}

/// Whether the disk has polling queues.
fn can_poll(tree: &Tree, path: &Path, number: (u32, u32)) -> Result<(), DiskError> {
    if tree.queue(number, "io_poll").as_deref() == Some("1") {
        return Ok(());
    }
    let why = "its disk has no queues for that (`queue/io_poll` is not 1); NVMe has them with \
               `modprobe nvme poll_queues=2`, UFS where its driver was given poll_queues; else \
               leave `polled` out";
    Err(DiskError::NotPolled { path: path.into(), why: why.into() })
}

/// Discards a range of a block device.
pub(super) fn discard(file: &File, offset: u64, length: u64) -> i32 {
    let range = [offset, length];
    // SAFETY: BLKDISCARD reads two u64.
    match unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD as _, range.as_ptr()) } {
        0 => 0,
        _ => -errno(),
    }
}

/// The error of the previous call.
pub(super) fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}
