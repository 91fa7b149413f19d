//! Disks as files of a mount.
//!
//! Unlike the files of a [`FileSystem`](flysch_api::vfs::FileSystem), disks come and go, are opened
//! and closed with consequences, and overlap: data written to one can be read from another. The
//! kernel therefore caches nothing of them, neither names nor pages, and every call is passed on.
//!
//! All calls are made by one thread, the disks' owner: the mount only passes on requests.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use rustix::io::Errno as Failed;

use crate::{FuseOptions, Mounted, start_session};

/// How long the kernel may cache names and attributes: not at all.
const NOT_AT_ALL: Duration = Duration::ZERO;
/// Longest request the kernel sends, bytes.
const WRITE_MAX: u32 = 1 << 20;

/// A name in a mount of disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number; 1 is the root. Never reused for something else.
    pub number: u64,
    /// Its kind.
    pub kind: EntryKind,
}

/// The kinds of name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A folder.
    Folder,
    /// A disk.
    Disk {
        /// Bytes.
        size: u64,
        /// Preferred unit of I/O, bytes.
        block_size: u32,
    },
    /// A path to somewhere else.
    Link(String),
}

/// How a disk's file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// For writing.
    pub writes: bool,
    /// Each write is on the medium when its call returns.
    pub is_sync: bool,
}

/// How a name is identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which<'a> {
    /// By its number.
    Number(u64),
    /// In a folder, by its name there.
    Name(u64, &'a [u8]),
}

/// Disks by name. Errors are the system's error numbers.
pub trait Disks {
    /// Looks up a name.
    ///
    /// # Errors
    /// `ENOENT`.
    fn entry(&mut self, which: Which<'_>) -> Result<Entry, Failed>;
    /// All names in a folder.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`.
    fn list(&mut self, folder: u64) -> Result<Vec<(String, Entry)>, Failed>;
    /// Opens a disk; its handle.
    ///
    /// # Errors
    /// The open is refused, or the disk is gone.
    fn open(&mut self, number: u64, wanted: Wanted) -> Result<u64, Failed>;
    /// Reads up to `length` bytes at any offset; fewer only at the end.
    ///
    /// # Errors
    /// The disk's error.
    fn read(&mut self, handle: u64, offset: u64, length: u32) -> Result<Vec<u8>, Failed>;
    /// Writes bytes at any offset; fewer only at the end.
    ///
    /// # Errors
    /// The disk's error; `ENOSPC` beyond the end.
    fn write(&mut self, handle: u64, offset: u64, bytes: &[u8]) -> Result<u32, Failed>;
    /// Puts everything written onto the medium.
    ///
    /// # Errors
    /// The disk's error.
    fn flush(&mut self, handle: u64) -> Result<(), Failed>;
    /// Closes a disk.
    fn close(&mut self, handle: u64);
}

/// A job for the owner of the disks.
pub type Job = Box<dyn FnOnce(&mut dyn Disks) + Send>;
/// Takes jobs to the owner of the disks.
pub type Sender = std::sync::Arc<dyn Fn(Job) + Send + Sync>;

/// Mounts disks on the directory `at`: for everybody if run by root, otherwise through fusermount3
/// for the user alone. The receiver of `send` must keep working until the mount has ended.
///
/// # Errors
/// The kernel or fusermount3 refuses.
pub fn mount_disks(send: Sender, at: &Path, options: &FuseOptions) -> io::Result<Mounted> {
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // One thread reads what the kernel asks: who closes a disk and then looks for what changed by
    // that finds it.
    let options = FuseOptions { threads: 1, trusted: false, ..options.clone() };
    start_session(at, &options, None, "flysch", |_| Ok(DiskDoor { send, owner }))
}

/// Ends a mount from another thread.
#[derive(Debug)]
pub struct Ender(pub(crate) io::PipeWriter);

impl Ender {
    /// Ends it, as a panic of a request handler does.
    pub fn end(&mut self) {
        let _ = io::Write::write_all(&mut self.0, &[crate::PANIC]);
    }
}

/// Disks as seen by the kernel.
pub(crate) struct DiskDoor {
    send: Sender,
    /// The owner of the files.
    owner: (u32, u32),
}

fn errno(failed: Failed) -> Errno {
    Errno::from_i32(failed.raw_os_error())
}

fn attributes(entry: &Entry, owner: (u32, u32)) -> FileAttr {
    let (kind, perm, size, blksize) = match &entry.kind {
        EntryKind::Folder => (FileType::Directory, 0o755, 0, 4096),
        EntryKind::Disk { size, block_size } => (FileType::RegularFile, 0o600, *size, *block_size),
        EntryKind::Link(to) => (FileType::Symlink, 0o777, to.len() as u64, 4096),
    };
    FileAttr {
        ino: INodeNo(entry.number),
        size,
        blocks: size.div_ceil(512),
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind,
        perm,
        nlink: 1,
        uid: owner.0,
        gid: owner.1,
        rdev: 0,
        blksize,
        flags: 0,
    }
}

impl DiskDoor {
    fn ask(&self, job: impl FnOnce(&mut dyn Disks) + Send + 'static) {
        (self.send)(Box::new(job));
    }
}

fn file_type(kind: &EntryKind) -> FileType {
    match kind {
        EntryKind::Folder => FileType::Directory,
        EntryKind::Disk { .. } => FileType::RegularFile,
        EntryKind::Link(_) => FileType::Symlink,
    }
}

impl Filesystem for DiskDoor {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        if let Err(most) = config.set_max_write(WRITE_MAX) {
            let _ = config.set_max_write(most);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (owner, name) = (self.owner, name.as_bytes().to_vec());
        self.ask(move |disks| match disks.entry(Which::Name(parent.0, &name)) {
            Ok(entry) => reply.entry(&NOT_AT_ALL, &attributes(&entry, owner), Generation(0)),
            Err(failed) => reply.error(errno(failed)),
        });
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let owner = self.owner;
        self.ask(move |disks| match disks.entry(Which::Number(number.0)) {
            Ok(entry) => reply.attr(&NOT_AT_ALL, &attributes(&entry, owner)),
            Err(failed) => reply.error(errno(failed)),
        });
    }

    /// A disk has a fixed length: truncation as part of opening has no effect, as with block
    /// devices; setting another length fails. Times and modes are not stored.
    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        owner: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let ours = self.owner;
        let is_changed = mode.is_some() || owner.is_some() || group.is_some();
        self.ask(move |disks| match disks.entry(Which::Number(number.0)) {
            Ok(_) if is_changed => reply.error(Errno::EPERM),
            Ok(entry) => {
                let is_open = handle.is_some();
                let fits = match (&entry.kind, size) {
                    (_, None) => true,
                    (EntryKind::Disk { size: has, .. }, Some(wanted)) => {
                        wanted == *has || wanted == 0 && !is_open
                    }
                    _ => false,
                };
                match fits {
                    true => reply.attr(&NOT_AT_ALL, &attributes(&entry, ours)),
                    false => reply.error(Errno::EINVAL),
                }
            }
            Err(failed) => reply.error(errno(failed)),
        });
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        self.ask(move |disks| match disks.entry(Which::Number(number.0)) {
            Ok(Entry { kind: EntryKind::Link(to), .. }) => reply.data(to.as_bytes()),
            Ok(_) => reply.error(Errno::EINVAL),
            Err(failed) => reply.error(errno(failed)),
        });
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.ask(move |disks| match disks.list(number.0) {
            Ok(mut all) => {
                let itself = Entry { number: number.0, kind: EntryKind::Folder };
                all.splice(0..0, [(".".into(), itself.clone()), ("..".into(), itself)]);
                for ((name, entry), next) in all.iter().zip(1..).skip(offset as usize) {
                    let kind = file_type(&entry.kind);
                    if reply.add(INodeNo(entry.number), next, kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(failed) => reply.error(errno(failed)),
        });
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let writes = flags.0 & libc::O_ACCMODE != libc::O_RDONLY;
        let wanted = Wanted { writes, is_sync: flags.0 & libc::O_DSYNC != 0 };
        self.ask(move |disks| match disks.open(number.0, wanted) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO),
            Err(failed) => reply.error(errno(failed)),
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.ask(move |disks| match disks.read(handle.0, offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(failed) => reply.error(errno(failed)),
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let data = data.to_vec();
        self.ask(move |disks| match disks.write(handle.0, offset, &data) {
            Ok(written) => reply.written(written),
            Err(failed) => reply.error(errno(failed)),
        });
    }

    /// A file is closed somewhere; others may still have it open.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.ask(move |disks| match disks.flush(handle.0) {
            Ok(()) => reply.ok(),
            Err(failed) => reply.error(errno(failed)),
        });
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.ask(move |disks| {
            disks.close(handle.0);
            reply.ok();
        });
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks permissions itself, or the user is the only one who gets here.
        reply.error(Errno::ENOSYS);
    }

    // Names are the graph's to make.

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EPERM);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }
}
