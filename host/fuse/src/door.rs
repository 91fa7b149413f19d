//! The kernel's requests as calls of a [`FileSystem`](flysch_api::vfs::FileSystem).

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use flysch_api::vfs::{
    Attributes, Changes, DeviceNumber, FileFlags, FileKind, FileSystem, FsError, Inode, Timestamp,
    XattrChange,
};
use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags,
    ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::PANIC;
use crate::acl;
use crate::errno::errno;
use crate::store::Store;
use crate::wanted::{self, Wanted};
use crate::xattr;

/// How long the kernel may cache names and attributes: nothing changes except through it.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// The same for what could not be determined: ask again.
const NOT_AT_ALL: Duration = Duration::ZERO;
/// Longest symlink target, bytes.
const TARGET_MAX: usize = 4096;
/// Longest value of an extended attribute, bytes.
const VALUE_MAX: usize = 64 << 10;
/// The `chattr` ioctls; the values are 32-bit words, whatever the number of the call says.
const GET_FLAGS: u32 = libc::FS_IOC_GETFLAGS as u32;
const SET_FLAGS: u32 = libc::FS_IOC_SETFLAGS as u32;
/// XFS's variant, with fields that do not apply here (`FS_IOC_FSGETXATTR`, `struct fsxattr`).
const GET_EXTENDED: u32 = 0x801C_581F;
const EXTENDED_SIZE: usize = 28;
/// Offsets of directory entries start behind "." and "..".
const DOTS: u64 = 2;

thread_local! {
    /// A thread's read buffer, kept from one request to the next.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A file system as seen by the kernel.
pub(crate) struct Door {
    pub(crate) store: Store,
    root: Inode,
    /// Longest name, bytes.
    name_max: usize,
    /// Files can have access lists.
    has_lists: bool,
    /// The kernel checks them, and new files get those that their directory has for them.
    pub(crate) checks_lists: bool,
    on_panic: io::PipeWriter,
}

/// Notifies the thread that waits for the mount's end when a request handler panics.
struct PanicGuard<'d>(&'d Door);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = (&self.0.on_panic).write_all(&[PANIC]);
        }
    }
}

fn time(time: Timestamp) -> SystemTime {
    let nanoseconds = Duration::from_nanos(u64::from(time.nanoseconds.min(999_999_999)));
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = match time.seconds < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(seconds),
        false => SystemTime::UNIX_EPOCH.checked_add(seconds),
    };
    whole.and_then(|whole| whole.checked_add(nanoseconds)).unwrap_or(SystemTime::UNIX_EPOCH)
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::CharacterDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
    }
}

/// XFS's flags (`FS_XFLAG_*`), in the first word.
fn extended(flags: FileFlags) -> [u8; EXTENDED_SIZE] {
    let known =
        [(FileFlags::IMMUTABLE, 0x8_u32), (FileFlags::APPEND, 0x10), (FileFlags::SYNC, 0x20)];
    let set = known.iter().filter(|(flag, _)| flags.contains(*flag));
    let word = set.fold(0, |all, (_, bit)| all | bit);
    let mut bytes = [0; EXTENDED_SIZE];
    bytes[..4].copy_from_slice(&word.to_ne_bytes());
    bytes
}

/// FUSE carries device numbers in Linux's 4-byte form.
fn device(attributes: &Attributes) -> u32 {
    attributes.device.to_new().unwrap_or(0)
}

impl Door {
    /// `is_checked` says whether the kernel checks permissions.
    pub(crate) fn new(store: Store, is_checked: bool, on_panic: io::PipeWriter) -> Self {
        let (statistics, has_lists) = store.read(|fs| (fs.statistics(), fs.has_access_lists()));
        let (root, name_max) = (statistics.root, statistics.name_max as usize);
        let checks_lists = has_lists && is_checked;
        Self { store, root, name_max, has_lists, checks_lists, on_panic }
    }

    /// The kernel calls the root 1. A file with the number 1 gets the root's number instead.
    fn swap(&self, number: u64) -> u64 {
        match number {
            number if number == self.root.0 => INodeNo::ROOT.0,
            number if number == INodeNo::ROOT.0 => self.root.0,
            number => number,
        }
    }

    pub(crate) fn inode(&self, number: INodeNo) -> Inode {
        Inode(self.swap(number.0))
    }

    fn number(&self, inode: Inode) -> INodeNo {
        INodeNo(self.swap(inode.0))
    }

    fn file_attr(&self, attributes: &Attributes) -> FileAttr {
        FileAttr {
            ino: self.number(attributes.inode),
            size: attributes.size,
            blocks: attributes.blocks,
            atime: time(attributes.accessed),
            mtime: time(attributes.modified),
            ctime: time(attributes.changed),
            crtime: SystemTime::UNIX_EPOCH,
            kind: file_type(attributes.kind),
            perm: attributes.permissions,
            nlink: attributes.links,
            uid: attributes.owner,
            gid: attributes.group,
            rdev: device(attributes),
            blksize: 4096,
            flags: 0,
        }
    }

    /// Attributes of a file whose own are unreadable: only its type is known.
    fn unknown_attr(&self, inode: Inode, kind: FileKind) -> FileAttr {
        self.file_attr(&Attributes {
            inode,
            kind,
            permissions: 0,
            links: 1,
            owner: 0,
            group: 0,
            size: 0,
            blocks: 0,
            accessed: Timestamp::default(),
            modified: Timestamp::default(),
            changed: Timestamp::default(),
            device: Default::default(),
            flags: FileFlags::default(),
        })
    }

    /// Passes the entries of a directory from `offset` on to `add`, "." and ".." first; `add`
    /// returns whether there is no more room.
    fn entries(
        fs: &dyn FileSystem,
        directory: Inode,
        offset: u64,
        add: &mut dyn FnMut(Inode, u64, &OsStr, FileKind) -> bool,
    ) -> Result<(), FsError> {
        for (number, name) in [(0, "."), (1, "..")] {
            if offset <= number && add(directory, number + 1, OsStr::new(name), FileKind::Directory)
            {
                return Ok(());
            }
        }
        let mut taken = 0u64;
        let position = offset.saturating_sub(DOTS);
        let result = fs.list(directory, position, &mut |entry| {
            let next = entry.position.saturating_add(DOTS);
            if add(entry.inode, next, OsStr::from_bytes(entry.name), entry.kind) {
                return ControlFlow::Break(());
            }
            taken += 1;
            ControlFlow::Continue(())
        });
        // What could be read is shown; the error comes when nothing else does.
        if taken > 0 { Ok(()) } else { result }
    }

    fn reply_made(&self, made: Result<Attributes, FsError>, reply: ReplyEntry) {
        match made {
            Ok(attributes) => reply.entry(&FOREVER, &self.file_attr(&attributes), Generation(0)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn reply_xattr_changed(
        &self,
        number: INodeNo,
        name: &OsStr,
        change: XattrChange<'_>,
        reply: ReplyEmpty,
    ) {
        match xattr::check_name(name.as_bytes(), self.has_lists) {
            Ok(name) => reply_done(self.set_xattr(self.inode(number), name, change), reply),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn reply_value(size: u32, value: &[u8], reply: ReplyXattr) {
        match u32::try_from(value.len()) {
            Ok(len) if size == 0 => reply.size(len),
            Ok(len) if len <= size => reply.data(value),
            _ => reply.error(Errno::ERANGE),
        }
    }
}

impl Filesystem for Door {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in [
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_NO_OPEN_SUPPORT,
            InitFlags::FUSE_NO_OPENDIR_SUPPORT,
            InitFlags::FUSE_EXPORT_SUPPORT,
        ] {
            // An older kernel works without.
            let _ = config.add_capabilities(flag);
        }
        // Where the kernel checks lists it must leave the umask to us: a default list replaces it.
        let lists = InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK;
        self.checks_lists = self.checks_lists && config.add_capabilities(lists).is_ok();
        if let Err(most) = config.set_max_readahead(u32::MAX) {
            let _ = config.set_max_readahead(most);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _guard = PanicGuard(self);
        // Every call that names a file begins here, and the kernel knows no limit.
        if name.len() > self.name_max {
            return reply.error(Errno::ENAMETOOLONG);
        }
        let (found, attributes) = self.store.read(|fs| {
            let found = fs.lookup(self.inode(parent), name.as_bytes());
            (found, found.and_then(|inode| fs.attributes(inode)))
        });
        match attributes {
            Ok(attributes) => reply.entry(&FOREVER, &self.file_attr(&attributes), Generation(0)),
            // The kernel may remember that there is nothing, too: an entry without inode.
            Err(FsError::NotFound) if found.is_err() => {
                let mut nothing = self.unknown_attr(Inode(0), FileKind::Regular);
                nothing.ino = INodeNo(0);
                reply.entry(&FOREVER, &nothing, Generation(0));
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let _guard = PanicGuard(self);
        match self.store.read(|fs| fs.attributes(self.inode(number))) {
            Ok(attributes) => reply.attr(&FOREVER, &self.file_attr(&attributes)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        let _guard = PanicGuard(self);
        let mut target = [0; TARGET_MAX];
        match self.store.read(|fs| fs.read(self.inode(number), 0, &mut target)) {
            Ok(len) => reply.data(&target[..len]),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _guard = PanicGuard(self);
        if self.store.is_fixed() {
            // There is nothing to open: the kernel need not ask again, and keeps its pages.
            return reply.error(Errno::ENOSYS);
        }
        // Of flags that forbid writing the kernel does not know.
        let allowed = match flags.0 & libc::O_ACCMODE {
            libc::O_RDONLY => Ok(()),
            _ => self.store.read(|fs| {
                let file = fs.attributes(self.inode(number))?;
                file.may_open_to_write(flags.0 & libc::O_APPEND != 0)
            }),
        };
        match allowed {
            Ok(()) => {
                let keep = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
                reply.opened(FileHandle(0), keep);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn ioctl(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        command: u32,
        input: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let _guard = PanicGuard(self);
        let inode = self.inode(number);
        match (command, input.first_chunk::<4>()) {
            (GET_FLAGS, _) => match self.store.read(|fs| fs.attributes(inode)) {
                Ok(file) => reply.ioctl(0, &file.flags.0.to_ne_bytes()),
                Err(error) => reply.error(errno(error)),
            },
            // Linux asks so before it sets them.
            (GET_EXTENDED, _) => match self.store.read(|fs| fs.attributes(inode)) {
                Ok(file) => reply.ioctl(0, &extended(file.flags)),
                Err(error) => reply.error(errno(error)),
            },
            // Who may is checked by the kernel.
            (SET_FLAGS, Some(flags)) => {
                let flags = Some(FileFlags(u32::from_ne_bytes(*flags)));
                let changes = Changes { flags, ..Changes::default() };
                match self.set(inode, &changes, (true, false)) {
                    Ok(_) => reply.ioctl(0, &[]),
                    Err(error) => reply.error(errno(error)),
                }
            }
            _ => reply.error(Errno::ENOTTY),
        }
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _guard = PanicGuard(self);
        BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let inode = self.inode(number);
            // A short answer would be taken for the end of the file, so damage in the middle fails.
            let read = self.store.read(|fs| {
                let mut len = 0;
                while len < size {
                    match fs.read(inode, offset + len as u64, &mut buffer[len..size])? {
                        0 => break,
                        more => len += more,
                    }
                }
                Ok(len)
            });
            match read {
                Ok(len) => reply.data(&buffer[..len]),
                Err(error) => reply.error(errno(error)),
            }
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
        let _guard = PanicGuard(self);
        let listed = self.store.read(|fs| {
            Self::entries(fs, self.inode(number), offset, &mut |inode, next, name, kind| {
                reply.add(self.number(inode), next, file_type(kind), name)
            })
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let _guard = PanicGuard(self);
        let listed = self.store.read(|fs| {
            Self::entries(fs, self.inode(number), offset, &mut |inode, next, name, kind| {
                let (attr, ttl) = match fs.attributes(inode) {
                    Ok(attributes) => (self.file_attr(&attributes), FOREVER),
                    Err(_) => (self.unknown_attr(inode, kind), NOT_AT_ALL),
                };
                reply.add(self.number(inode), next, name, &ttl, &attr, Generation(0))
            })
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let _guard = PanicGuard(self);
        let statistics = self.store.read(|fs| fs.statistics());
        let free = statistics.blocks_free;
        // Both formats have inode numbers for everybody: beside a number in use, 0 left would read
        // as none left.
        let files = if self.store.is_fixed() { statistics.files.unwrap_or(0) } else { 0 };
        reply.statfs(
            statistics.blocks,
            free,
            free,
            files,
            0,
            statistics.block_size,
            statistics.name_max,
            statistics.block_size,
        );
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let _guard = PanicGuard(self);
        let name = match xattr::check_name(name.as_bytes(), self.has_lists) {
            Ok(name) => name,
            Err(error) => return reply.error(errno(error)),
        };
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < VALUE_MAX {
                buffer.resize(VALUE_MAX, 0);
            }
            let inode = self.inode(number);
            match self.store.read(|fs| fs.read_xattr(inode, name, buffer)) {
                Ok(len) => Self::reply_value(size, &buffer[..len], reply),
                // A list that cannot be read lets nobody in but the owner, and root.
                Err(FsError::Damaged { .. }) if self.checks_lists && name == acl::ACCESS => {
                    reply.error(Errno::EACCES);
                }
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn listxattr(&self, request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let _guard = PanicGuard(self);
        let mut names = vec![];
        let is_root = request.uid() == 0;
        let listed = self.store.read(|fs| {
            fs.list_xattrs(self.inode(number), &mut |name| {
                if is_root || !name.starts_with(xattr::TRUSTED) {
                    names.extend_from_slice(name);
                    names.push(0);
                }
            })
        });
        match listed {
            Err(error) if names.is_empty() => reply.error(errno(error)),
            _ => Self::reply_value(size, &names, reply),
        }
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks permissions itself, or the user is the only one who gets here.
        reply.error(Errno::ENOSYS);
    }

    fn lseek(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _guard = PanicGuard(self);
        match self.store.read(|fs| seek(fs, self.inode(number), offset, whence)) {
            Ok(offset) => reply.offset(offset),
            Err(error) => reply.error(error),
        }
    }

    // Whatever follows changes something; of a read-only mount only syncs get here.

    fn forget(&self, _: &Request, number: INodeNo, _: u64) {
        let _guard = PanicGuard(self);
        if !self.store.is_fixed() {
            // An error will be met again by somebody who can be told.
            let _ = self.store.change(|fs| fs.forget(self.inode(number)));
        }
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        owner: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let _guard = PanicGuard(self);
        let how = (wanted::is_now([&accessed, &modified]), handle.is_some());
        let times = (accessed, modified);
        let changes = wanted::changes(mode, (owner, group), size, times, wanted::now());
        match self.set(self.inode(number), &changes, how) {
            Ok(attributes) => reply.attr(&FOREVER, &self.file_attr(&attributes)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let _guard = PanicGuard(self);
        let Some(kind) = FileKind::from_mode(mode) else { return reply.error(Errno::EINVAL) };
        let device = match kind {
            FileKind::CharacterDevice | FileKind::BlockDevice => DeviceNumber::from_new(device),
            _ => DeviceNumber::default(),
        };
        let wanted = Wanted { kind, permissions: mode, umask, device, target: &[] };
        self.reply_made(self.make(request, self.inode(parent), name, &wanted), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let _guard = PanicGuard(self);
        let wanted = Wanted {
            kind: FileKind::Directory,
            permissions: mode,
            umask,
            device: DeviceNumber::default(),
            target: &[],
        };
        self.reply_made(self.make(request, self.inode(parent), name, &wanted), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let _guard = PanicGuard(self);
        let wanted = Wanted {
            kind: FileKind::Symlink,
            permissions: 0o777,
            umask: 0,
            device: DeviceNumber::default(),
            target: target.as_os_str().as_bytes(),
        };
        self.reply_made(self.make(request, self.inode(parent), name, &wanted), reply);
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _guard = PanicGuard(self);
        let (inode, directory) = (self.inode(number), self.inode(parent));
        self.reply_made(self.link_to(inode, directory, name), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _guard = PanicGuard(self);
        reply_done(self.remove(self.inode(parent), name), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _guard = PanicGuard(self);
        reply_done(self.remove(self.inode(parent), name), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _guard = PanicGuard(self);
        let (from, to) = ((self.inode(parent), name), (self.inode(new_parent), new_name));
        reply_done(self.rename(from, to, flags), reply);
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _guard = PanicGuard(self);
        match self.write_at(self.inode(number), offset, data) {
            // No longer than the request, which has 32 bits.
            Ok(len) => reply.written(len as u32),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn fsync(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        let _guard = PanicGuard(self);
        if self.store.is_fixed() {
            // There is nothing to write: the kernel need not ask again.
            return reply.error(Errno::ENOSYS);
        }
        let inode = self.inode(number);
        let synced = self.store.change(|fs| match datasync {
            true => fs.sync_data(Some(inode)),
            false => fs.sync(Some(inode)),
        });
        reply_done(synced, reply);
    }

    fn fsyncdir(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let _guard = PanicGuard(self);
        if self.store.is_fixed() {
            return reply.error(Errno::ENOSYS);
        }
        let inode = self.inode(number);
        reply_done(self.store.change(|fs| fs.sync(Some(inode))), reply);
    }

    fn setxattr(
        &self,
        _: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let _guard = PanicGuard(self);
        let change = match flags {
            libc::XATTR_CREATE => XattrChange::Create(value),
            libc::XATTR_REPLACE => XattrChange::Replace(value),
            _ => XattrChange::Set(value),
        };
        self.reply_xattr_changed(number, name, change, reply);
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _guard = PanicGuard(self);
        self.reply_xattr_changed(number, name, XattrChange::Remove, reply);
    }
}

fn reply_done(done: Result<(), FsError>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

/// `SEEK_DATA` and `SEEK_HOLE`.
fn seek(fs: &dyn FileSystem, inode: Inode, offset: i64, whence: i32) -> Result<i64, Errno> {
    let size = fs.attributes(inode).map_err(errno)?.size;
    let start = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
    if start >= size {
        return Err(Errno::ENXIO);
    }
    let data = fs.next_data(inode, start).map_err(errno)?;
    let found = match (whence, data) {
        (libc::SEEK_DATA, Some(range)) => range.start.max(start),
        (libc::SEEK_DATA, None) => return Err(Errno::ENXIO),
        (libc::SEEK_HOLE, Some(range)) if range.start <= start => {
            // Pieces of data that touch are one.
            let mut end = range.end;
            while let Some(next) = fs.next_data(inode, end).map_err(errno)? {
                if next.start > end || next.end <= end {
                    break;
                }
                end = next.end;
            }
            end.min(size)
        }
        (libc::SEEK_HOLE, _) => start,
        _ => return Err(Errno::EINVAL),
    };
    i64::try_from(found).map_err(|_| Errno::EOVERFLOW)
}
