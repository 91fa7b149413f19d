//! File systems: names, files, directories.
//!
//! The contract is split in two. [`FileSystem`] is everything that reads; it takes `&self`, so one
//! opened file system serves many threads at once and its front end (FUSE, the command line) needs
//! no lock. [`FileSystemMut`] is everything that changes something; it takes `&mut self`, so a
//! read-write file system lives behind one reader-writer lock, and a read-only one need not pretend
//! to be more.
//!
//! File numbers are the file system's own inode numbers. Nothing is "opened": every call names its
//! inode, and there is no per-file state to leak.

use core::fmt;
use core::ops::{ControlFlow, Range};

mod flags;
#[cfg(feature = "alloc")]
mod path;
mod whole;

pub use flags::FileFlags;
pub use whole::{FileSystemExt, FileSystemMutExt};

use crate::flash::FlashError;
use crate::place::Place;

/// An inode number: the name of a file inside one file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode(pub u64);

impl fmt::Display for Inode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What kind of file an inode is (the `S_IFMT` bits of `st_mode`, the `DT_*` of a directory entry).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Bytes.
    Regular,
    /// Names.
    Directory,
    /// A path that points elsewhere.
    Symlink,
    /// A character device node.
    CharacterDevice,
    /// A block device node.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A Unix domain socket.
    Socket,
}

impl FileKind {
    /// The kind in a `st_mode` word, if POSIX defines its type bits.
    pub const fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o100_000 => Self::Regular,
            0o040_000 => Self::Directory,
            0o120_000 => Self::Symlink,
            0o020_000 => Self::CharacterDevice,
            0o060_000 => Self::BlockDevice,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }

    /// The type bits of `st_mode`.
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::Regular => 0o100_000,
            Self::Directory => 0o040_000,
            Self::Symlink => 0o120_000,
            Self::CharacterDevice => 0o020_000,
            Self::BlockDevice => 0o060_000,
            Self::Fifo => 0o010_000,
            Self::Socket => 0o140_000,
        }
    }
}

/// A point in time as files store it: seconds and nanoseconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// 0 to 999 999 999.
    pub nanoseconds: u32,
}

/// The device that a device node stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// Major number: the driver.
    pub major: u32,
    /// Minor number: the instance.
    pub minor: u32,
}

impl DeviceNumber {
    /// Linux's 2-byte form: `major << 8 | minor`.
    pub const fn from_old(value: u16) -> Self {
        Self { major: (value >> 8) as u32, minor: (value & 0xff) as u32 }
    }

    /// Linux's 4-byte form (`new_encode_dev`): 12 bits of major, 20 bits of minor.
    pub const fn from_new(value: u32) -> Self {
        Self { major: (value >> 8) & 0xfff, minor: (value & 0xff) | ((value >> 12) & 0xf_ff00) }
    }

    /// The 8-byte form of `dev_t` in the C library (`huge_encode_dev` and glibc's `makedev`).
    pub const fn from_huge(value: u64) -> Self {
        Self {
            major: (((value >> 8) & 0xfff) | ((value >> 32) & 0xffff_f000)) as u32,
            minor: ((value & 0xff) | ((value >> 12) & 0xffff_ff00)) as u32,
        }
    }

    /// The 4-byte form, or `None` when major needs more than 12 bits or minor more than 20.
    pub const fn to_new(self) -> Option<u32> {
        if self.major > 0xfff || self.minor > 0xf_ffff {
            return None;
        }
        Some((self.minor & 0xff) | (self.major << 8) | ((self.minor & 0xf_ff00) << 12))
    }

    /// The 8-byte form, which holds every number.
    pub const fn to_huge(self) -> u64 {
        let (major, minor) = (self.major as u64, self.minor as u64);
        (minor & 0xff)
            | ((major & 0xfff) << 8)
            | ((minor & 0xffff_ff00) << 12)
            | ((major & 0xffff_f000) << 32)
    }
}

/// Everything that `stat` reports about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number.
    pub inode: Inode,
    /// Kind of file.
    pub kind: FileKind,
    /// Permission bits with set-user-id, set-group-id and sticky: 0 to 0o7777.
    pub permissions: u16,
    /// Number of names (links) of this file.
    pub links: u32,
    /// Owner's user id.
    pub owner: u32,
    /// Group id.
    pub group: u32,
    /// Length in bytes.
    pub size: u64,
    /// Space used in units of 512 bytes, as `st_blocks` counts.
    pub blocks: u64,
    /// Time of last access.
    pub accessed: Timestamp,
    /// Time of the last change of content.
    pub modified: Timestamp,
    /// Time of the last change of these attributes.
    pub changed: Timestamp,
    /// Device nodes only; zero for every other kind.
    pub device: DeviceNumber,
    /// What `lsattr` shows; empty if the format has no flags.
    pub flags: FileFlags,
}

/// One name of a directory. "." and ".." are never listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The name: 1 to 255 bytes, no NUL and no '/', in no particular encoding.
    pub name: &'a [u8],
    /// The file it names.
    pub inode: Inode,
    /// Its kind.
    pub kind: FileKind,
    /// Pass this to [`FileSystem::list`] to continue after this entry.
    pub position: u64,
}

/// Sizes of a whole file system, as `statvfs` reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Short name of the format: "ubifs", "jffs2".
    pub format: &'static str,
    /// The root directory.
    pub root: Inode,
    /// Unit of `blocks` and `blocks_free`, bytes.
    pub block_size: u32,
    /// Total room for data.
    pub blocks: u64,
    /// Free room for data.
    pub blocks_free: u64,
    /// Inodes in use, if the format counts them.
    pub files: Option<u64>,
    /// Longest name, bytes.
    pub name_max: u32,
}

/// Why a file system call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FsError {
    /// No such name or inode (`ENOENT`).
    NotFound,
    /// The file has no extended attribute of this name (`ENODATA`).
    NoAttribute,
    /// A name was looked up in something that is not a directory.
    NotDirectory,
    /// Content of a directory was requested.
    IsDirectory,
    /// The kind of file has no content: device, FIFO, socket.
    NoContent,
    /// The caller's buffer is shorter than the value; this is the length needed.
    BufferTooSmall(usize),
    /// The image is damaged here: what is stored is not what was written. No data is returned.
    Damaged {
        /// The structure that is wrong, in the terms of the format.
        structure: &'static str,
        /// Where.
        place: Place,
        /// What is wrong with it.
        cause: Damage,
    },
    /// The content or name is encrypted and the key is not available.
    Encrypted,
    /// The image uses something that this implementation does not read; the text names it.
    Unsupported(&'static str),
    /// The medium could not be read or written.
    Medium {
        /// Where.
        place: Place,
        /// What the flash answered.
        source: FlashError,
    },
    /// The name is taken (`EEXIST`).
    Exists,
    /// The directory to be removed or replaced has entries (`ENOTEMPTY`).
    NotEmpty,
    /// No room is left; no part of the call was done (`ENOSPC`).
    NoSpace,
    /// The file system or its medium cannot be changed, or can no longer be changed (`EROFS`).
    ReadOnly,
    /// A name is longer than the format allows (`ENAMETOOLONG`).
    NameTooLong,
    /// The file itself cannot get a name there, but a copy of it can (`EXDEV`).
    CrossDevice,
    /// A file would get more names than the format can count (`EMLINK`).
    TooManyLinks,
    /// A file would get longer than the format allows (`EFBIG`).
    FileTooLarge,
    /// The request is impossible; the text says why (`EINVAL`).
    Invalid(&'static str),
    /// A flag of the file forbids it: it is immutable or append-only (`EPERM`).
    Protected(FileFlags),
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("no such file or directory"),
            Self::NoAttribute => f.write_str("the file has no such extended attribute"),
            Self::NotDirectory => f.write_str("not a directory"),
            Self::IsDirectory => f.write_str("is a directory"),
            Self::NoContent => f.write_str("this kind of file has no content"),
            Self::BufferTooSmall(need) => write!(f, "the value needs {need} bytes"),
            Self::Damaged { structure, place, cause } => {
                write!(f, "damaged {structure} at {place}: {cause}")
            }
            Self::Encrypted => f.write_str("encrypted, and the key is not available"),
            Self::Unsupported(what) => write!(f, "not supported: {what}"),
            Self::Medium { place, source } => write!(f, "the medium failed at {place}: {source}"),
            Self::Exists => f.write_str("the name exists already"),
            Self::NotEmpty => f.write_str("the directory is not empty"),
            Self::NoSpace => f.write_str("no space left"),
            Self::ReadOnly => f.write_str("the file system is read-only"),
            Self::NameTooLong => f.write_str("the name is too long for the format"),
            Self::CrossDevice => {
                f.write_str("it can only be copied there: it is encrypted otherwise")
            }
            Self::TooManyLinks => f.write_str("the file has all the names the format can count"),
            Self::FileTooLarge => f.write_str("the file would be longer than the format holds"),
            Self::Invalid(what) => f.write_str(what),
            Self::Protected(flags) if flags.contains(FileFlags::IMMUTABLE) => {
                f.write_str("immutable: nothing of it can be changed (chattr -i)")
            }
            Self::Protected(_) => f.write_str("append-only: nothing else is allowed (chattr -a)"),
        }
    }
}

impl core::error::Error for FsError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Damaged { cause, .. } => Some(cause),
            Self::Medium { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// What is wrong with a damaged structure, in any format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// There are fewer bytes than it claims or needs.
    Truncated,
    /// There is no such structure there: its magic number is missing.
    Magic,
    /// A checksum is wrong.
    Checksum,
    /// There is a structure of another kind in its place.
    Kind,
    /// A field has an impossible value or contradicts another; the name of the field, if one is to
    /// blame.
    Field(&'static str),
    /// It is intact, but belongs to something other than what refers to it.
    Mismatch,
    /// It lies where no such structure can lie.
    Misplaced,
    /// What refers to it exists, but it does not.
    Missing,
    /// Its content does not expand to the expected content.
    Compression,
    /// Its content does not decrypt to anything that makes sense.
    Encryption,
    /// It is not what was signed, or no signature covers it.
    Authentication,
    /// Writing it was interrupted.
    Torn,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "it is cut off",
            Self::Magic => "its magic number is missing",
            Self::Checksum => "a checksum is wrong",
            Self::Kind => "another structure lies in its place",
            Self::Field(name) => return write!(f, "impossible value of {name}"),
            Self::Mismatch => "it belongs to something else",
            Self::Misplaced => "no such structure can lie there",
            Self::Missing => "nothing is there",
            Self::Compression => "its content does not expand",
            Self::Encryption => "its content does not decrypt",
            Self::Authentication => "it is not what was signed",
            Self::Torn => "its write was cut off",
        })
    }
}

impl core::error::Error for Damage {}

/// Receives directory entries one by one; `Break` stops the listing.
pub type Visitor<'v> = dyn FnMut(Entry<'_>) -> ControlFlow<()> + 'v;

/// Receives the names of extended attributes one by one.
pub type NameVisitor<'v> = dyn FnMut(&[u8]) + 'v;

/// The reading side of a file system.
///
/// Data with a wrong checksum is never returned: the call fails with [`FsError::Damaged`], and
/// every other file can still be read.
pub trait FileSystem {
    /// Sizes and limits of the whole file system.
    fn statistics(&self) -> Statistics;

    /// The inode behind `name` in `directory`.
    fn lookup(&self, directory: Inode, name: &[u8]) -> Result<Inode, FsError>;

    /// What `stat` reports about `inode`.
    fn attributes(&self, inode: Inode) -> Result<Attributes, FsError>;

    /// Calls `visit` for the entries of `directory` after `position`, in the order of positions.
    ///
    /// Position 0 starts with the first entry. A listing may be stopped, and resumed with the
    /// position of the last entry taken. If an entry is damaged, the call fails only after every
    /// readable entry was visited.
    fn list(&self, directory: Inode, position: u64, visit: &mut Visitor<'_>)
    -> Result<(), FsError>;

    /// Reads the content of a regular file, or the target of a symlink, from `offset` on.
    ///
    /// Returns the number of bytes read, which may be smaller than requested: a caller that wants
    /// more goes on behind them until 0 comes back, which means the end, or an error. [`read_full`]
    /// does that. Holes read as zeros. The rest of `buffer` may be overwritten. If something inside
    /// the range is damaged, the bytes before it are returned; the call that starts at the damage
    /// fails.
    ///
    /// [`read_full`]: FileSystemExt::read_full
    fn read(&self, inode: Inode, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError>;

    /// The range of the next stored bytes at or after `offset`; `None` if only a hole follows.
    ///
    /// For sparse copies (`SEEK_DATA`, `SEEK_HOLE`). A range may cover zeros that are stored.
    fn next_data(&self, inode: Inode, offset: u64) -> Result<Option<Range<u64>>, FsError> {
        let size = self.attributes(inode)?.size;
        Ok((offset < size).then_some(offset..size))
    }

    /// Calls `visit` with the full names of the extended attributes of `inode` ("user.comment").
    fn list_xattrs(&self, inode: Inode, visit: &mut NameVisitor<'_>) -> Result<(), FsError>;

    /// Puts the value of an extended attribute into `buffer` and returns its length.
    ///
    /// [`FsError::BufferTooSmall`] gives the length needed.
    fn read_xattr(&self, inode: Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize, FsError>;

    /// Whether files can have POSIX access lists: the extended attributes `system.posix_acl_access`
    /// and, for directories, `system.posix_acl_default`, in the form that Linux gives them. A list
    /// then follows the permissions that [`FileSystemMut::set_attributes`] sets. Checking lists,
    /// and passing them on to new files, is up to the caller.
    fn has_access_lists(&self) -> bool {
        false
    }
}

/// The attributes of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewFile<'a> {
    /// Kind of file.
    pub kind: FileKind,
    /// Permission bits with set-user-id, set-group-id and sticky: 0 to 0o7777.
    pub permissions: u16,
    /// Owner's user id.
    pub owner: u32,
    /// Group id. In a set-group-id directory the group is inherited; the caller sees to that.
    pub group: u32,
    /// Device nodes only.
    pub device: DeviceNumber,
    /// Symlinks only: the target. Not empty, no NUL.
    pub target: &'a [u8],
}

/// Attributes to change; `None` leaves an attribute as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Permission bits: 0 to 0o7777.
    pub permissions: Option<u16>,
    /// Owner's user id.
    pub owner: Option<u32>,
    /// Group id.
    pub group: Option<u32>,
    /// Length of a regular file: truncated, or extended by a hole.
    pub size: Option<u64>,
    /// Time of last access.
    pub accessed: Option<Timestamp>,
    /// Time of the last change of content.
    pub modified: Option<Timestamp>,
    /// What `chattr` sets: the complete set of flags.
    pub flags: Option<FileFlags>,
}

/// What a rename does if a file already has the new name (`renameat2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rename {
    /// It is replaced, atomically.
    Replace,
    /// The call fails with [`FsError::Exists`] (`RENAME_NOREPLACE`).
    Keep,
    /// The two files exchange their names (`RENAME_EXCHANGE`).
    Exchange,
    /// It is replaced, and a character device 0:0 without permissions, of user 0 and group 0, takes
    /// the old name (`RENAME_WHITEOUT`).
    Whiteout,
}

/// A change to an extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrChange<'a> {
    /// Set this value, whether the attribute exists or not.
    Set(&'a [u8]),
    /// Set this value; [`FsError::Exists`] if the attribute exists (`XATTR_CREATE`).
    Create(&'a [u8]),
    /// Set this value; [`FsError::NoAttribute`] if the attribute does not exist (`XATTR_REPLACE`).
    Replace(&'a [u8]),
    /// Remove the attribute; [`FsError::NoAttribute`] if it does not exist.
    Remove,
}

/// The changing side of a file system.
///
/// Every call is atomic with respect to a power cut ([`write`](Self::write) per block of the
/// format): afterwards the call is either done or not. Reads see the effect of a call at once; it
/// is on the medium after [`sync`](Self::sync), and not before. A call that fails has changed
/// nothing, unless the medium itself failed.
///
/// There is one exception: a format may have to record a change in several places that it cannot
/// tie together, such as the new and the old name of a file that is renamed, or its name and its
/// time of change. A power cut may then leave some of them. The order is such that nothing is lost:
/// the new name comes before the old one goes. The documentation of the format says which calls
/// this concerns.
///
/// Time comes in as `now`; the file system has no clock. Checking permissions is up to the caller.
///
/// A file whose last name was removed stays as it is, without a name, until
/// [`forget`](Self::forget): a process that still has it open can go on reading and writing.
pub trait FileSystemMut: FileSystem {
    /// Creates a file named `name` in `directory`. Returns its inode.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::NotDirectory`], [`FsError::NameTooLong`],
    /// [`FsError::NoSpace`], [`FsError::ReadOnly`]; [`FsError::Invalid`] for an impossible name,
    /// target or device number.
    fn create(
        &mut self,
        directory: Inode,
        name: &[u8],
        file: &NewFile<'_>,
        now: Timestamp,
    ) -> Result<Inode, FsError>;

    /// As [`create`](Self::create), at a directory and a name in it, with extended attributes: full
    /// names and values, each name once.
    ///
    /// Unless a format does better, they are set one after the other, and a power cut may leave the
    /// file with some of them.
    ///
    /// # Errors
    /// As [`create`](Self::create) and [`set_xattr`](Self::set_xattr); there is no new file then.
    fn create_with_xattrs(
        &mut self,
        at: (Inode, &[u8]),
        file: &NewFile<'_>,
        xattrs: &[(&[u8], &[u8])],
        now: Timestamp,
    ) -> Result<Inode, FsError> {
        let (directory, name) = at;
        let inode = self.create(directory, name, file, now)?;
        for (xattr, value) in xattrs {
            if let Err(error) = self.set_xattr(inode, xattr, XattrChange::Create(value), now) {
                self.remove(directory, name, now)?;
                self.forget(inode)?;
                return Err(error);
            }
        }
        Ok(inode)
    }

    /// Gives `inode` one more name.
    ///
    /// # Errors
    /// As [`create`](Self::create); [`FsError::IsDirectory`] for a directory,
    /// [`FsError::TooManyLinks`], [`FsError::NotFound`] for a file without a name.
    fn link(
        &mut self,
        inode: Inode,
        directory: Inode,
        name: &[u8],
        now: Timestamp,
    ) -> Result<(), FsError>;

    /// Removes a name: of a file (`unlink`) or of an empty directory (`rmdir`).
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotEmpty`], [`FsError::ReadOnly`].
    fn remove(&mut self, directory: Inode, name: &[u8], now: Timestamp) -> Result<(), FsError>;

    /// Moves a name: `from` and `to` are each a directory and a name in it.
    ///
    /// If old and new name belong to one file, nothing is done. A directory replaces only an empty
    /// directory.
    ///
    /// # Errors
    /// [`FsError::NotFound`]; [`FsError::Exists`] with [`Rename::Keep`]; [`FsError::NotEmpty`],
    /// [`FsError::NotDirectory`] and [`FsError::IsDirectory`] if `from` may not replace a file of
    /// that kind; [`FsError::Invalid`] for a directory moved below itself; otherwise as
    /// [`create`](Self::create).
    fn rename(
        &mut self,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
        how: Rename,
        now: Timestamp,
    ) -> Result<(), FsError>;

    /// Changes the attributes that are not `None`, and the time of change.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::IsDirectory`] and [`FsError::NoContent`] for a size,
    /// [`FsError::FileTooLarge`], [`FsError::NoSpace`], [`FsError::ReadOnly`];
    /// [`FsError::Unsupported`] for flags that the format does not have.
    fn set_attributes(
        &mut self,
        inode: Inode,
        changes: &Changes,
        now: Timestamp,
    ) -> Result<(), FsError>;

    /// Writes `data` at `offset` of a regular file, which grows if necessary; the range between the
    /// old end and `offset` becomes a hole. Returns the number of bytes accepted: at least one, and
    /// less than all of them if space ran out. Accepted bytes are certain to find space on the
    /// medium later. [`FileSystemMutExt::write_all`] writes all or fails.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] when nothing could be accepted; [`FsError::IsDirectory`],
    /// [`FsError::NoContent`], [`FsError::FileTooLarge`], [`FsError::ReadOnly`].
    fn write(
        &mut self,
        inode: Inode,
        offset: u64,
        data: &[u8],
        now: Timestamp,
    ) -> Result<usize, FsError>;

    /// Sets or removes the extended attribute with the full name `name` ("user.comment").
    ///
    /// # Errors
    /// As documented for the variants of [`XattrChange`]; [`FsError::Invalid`] for a namespace or
    /// value that the format cannot hold; [`FsError::NoSpace`], [`FsError::ReadOnly`].
    fn set_xattr(
        &mut self,
        inode: Inode,
        name: &[u8],
        change: XattrChange<'_>,
        now: Timestamp,
    ) -> Result<(), FsError>;

    /// Writes `inode` and its content, or everything, to the medium. The effects of other calls may
    /// be written along with it.
    ///
    /// # Errors
    /// [`FsError::Medium`] or [`FsError::ReadOnly`] if the medium failed during the call.
    fn sync(&mut self, inode: Option<Inode>) -> Result<(), FsError>;

    /// As [`sync`](Self::sync), at the lowest cost. For a file: its content and what is needed to
    /// read it again, which does not include its times (`fdatasync`). For everything: enough that a
    /// power cut loses nothing, though the next mount may have to recover; this suits callers that
    /// write back periodically.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    fn sync_data(&mut self, inode: Option<Inode>) -> Result<(), FsError> {
        self.sync(inode)
    }

    /// Tells the file system that nobody uses `inode` any more. A file without a name is deleted;
    /// otherwise nothing happens. A nameless file that is never forgotten is deleted when the file
    /// system is next opened.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    fn forget(&mut self, inode: Inode) -> Result<(), FsError>;
}

#[cfg(test)]
mod tests;
