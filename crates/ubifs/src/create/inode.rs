//! Inodes, names and extended attributes of a new file system.

use alloc::borrow::Cow;
use core::fmt;

use flysch_api::vfs::{DeviceNumber, FileKind, Timestamp};
use flysch_wire::ubifs::{
    Compression, DirectoryEntry, ENTRY_NODE_SIZE, EntryKind, INLINE_DATA_MAX, INODE_NODE_SIZE,
    InodeFlags, InodeNode, Key, NAME_MAX, Node, align8,
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::encrypt::is_encrypted;
use super::{LebSink, OptionsError, UbifsBuilder, UbifsCreateError};
use crate::crypt::CONTEXT_NAME;
use crate::file::type_of;

/// Largest total length of the names of a file's extended attributes, each with a NUL
/// (`XATTR_LIST_MAX`).
const XATTR_LIST_MAX: usize = 65536;

/// Attributes of a file to be written.
#[derive(Clone, Copy, Debug)]
pub struct NewInode<'a> {
    /// Its kind.
    pub kind: FileKind,
    /// 0 to 0o7777.
    pub permissions: u16,
    /// Link count; for a directory 2, plus one for each directory in it.
    pub links: u32,
    /// User id.
    pub owner: u32,
    /// Group id.
    pub group: u32,
    /// Length of a regular file; for a directory, the sum of [`UbifsBuilder::entry_size`] over its
    /// names. Ignored for other kinds.
    pub size: u64,
    /// Time of the last read.
    pub accessed: Timestamp,
    /// Time of the last change of content.
    pub modified: Timestamp,
    /// Time of the last change of attributes.
    pub changed: Timestamp,
    /// For a device node: its number.
    pub device: DeviceNumber,
    /// For a symbolic link: its target, 1 to 4096 bytes.
    pub target: &'a [u8],
    /// Flags of `chattr`; compression of new content is also set by the options.
    pub flags: InodeFlags,
    /// Extended attributes: full names and values. [`check_xattr`] says which are possible.
    pub xattrs: &'a [(&'a [u8], &'a [u8])],
}

impl<'a> NewInode<'a> {
    /// An empty directory, owned by root, with permissions 755.
    pub fn directory(now: Timestamp) -> Self {
        Self {
            kind: FileKind::Directory,
            permissions: 0o755,
            links: 2,
            owner: 0,
            group: 0,
            size: 0,
            accessed: now,
            modified: now,
            changed: now,
            device: DeviceNumber::default(),
            target: &[],
            flags: InodeFlags::default(),
            xattrs: &[],
        }
    }

    /// Bytes a name adds to the size of its directory.
    pub fn entry_size(name: &[u8]) -> u64 {
        align8((ENTRY_NODE_SIZE + name.len() + 1) as u32).into()
    }
}

/// Why UBIFS cannot hold an extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrRefusal {
    /// UBIFS holds only names that start with `user.`, `trusted.` or `security.`; in particular, no
    /// access control lists.
    Namespace,
    /// The name has more than 255 bytes.
    NameLength,
    /// The value has more than 4096 bytes.
    ValueLength,
}

impl fmt::Display for XattrRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Namespace => "UBIFS holds only user., trusted. and security. attributes",
            Self::NameLength => "its name is longer than 255 bytes",
            Self::ValueLength => "its value is longer than 4096 bytes",
        })
    }
}

impl core::error::Error for XattrRefusal {}

/// Checks that UBIFS can hold an extended attribute.
///
/// # Errors
/// Why not.
pub fn check_xattr(name: &[u8], value: &[u8]) -> Result<(), XattrRefusal> {
    let known = [&b"user."[..], b"trusted.", b"security."];
    if !known.iter().any(|prefix| name.starts_with(prefix) && name.len() > prefix.len()) {
        return Err(XattrRefusal::Namespace);
    }
    if name.len() > NAME_MAX {
        return Err(XattrRefusal::NameLength);
    }
    if value.len() > INLINE_DATA_MAX {
        return Err(XattrRefusal::ValueLength);
    }
    Ok(())
}

fn time(time: Timestamp) -> (u64, u32) {
    (time.seconds as u64, time.nanoseconds)
}

/// Totals of a file's extended attributes, as its inode states them.
#[derive(Default)]
struct Xattrs {
    count: u32,
    size: u32,
    names: u32,
}

impl<S: LebSink> UbifsBuilder<S> {
    /// Writes a name into a directory.
    ///
    /// # Errors
    /// [`UbifsCreateError::Sink`].
    ///
    /// # Panics
    /// If the name is empty or longer than 255 bytes.
    pub fn entry(
        &mut self,
        directory: u32,
        name: &[u8],
        inode: u32,
        kind: FileKind,
    ) -> Result<(), UbifsCreateError<S::Error>> {
        assert!(name.len() <= NAME_MAX, "a name of {} bytes", name.len());
        let name = self.stored_name(directory, name);
        self.name(EntryKind::Directory, (directory, &name), inode, type_of(kind))
    }

    fn name(
        &mut self,
        kind: EntryKind,
        (parent, name): (u32, &[u8]),
        inode: u32,
        file_type: u8,
    ) -> Result<(), UbifsCreateError<S::Error>> {
        assert!((1..=NAME_MAX).contains(&name.len()), "a name of {} bytes", name.len());
        let hash = self.superblock.key_hash().expect("made from the options").hash(name);
        let key = Key::any_entry(kind, parent, hash);
        let cookie = if self.superblock.format_version >= 5 {
            xxh3_64_with_seed(name, parent.into()) as u32
        } else {
            0
        };
        let inode = inode.into();
        self.leaf(key, &Node::Entry(DirectoryEntry { kind, key, inode, file_type, cookie, name }))
    }

    /// Writes an inode and its extended attributes. `creation` is a number from
    /// [`creation_sequence`](Self::creation_sequence), taken before the file's blocks were written.
    ///
    /// # Errors
    /// [`UbifsCreateError::Sink`], [`UbifsCreateError::Inodes`], and [`UbifsCreateError::Options`]
    /// for attributes that UBIFS cannot hold.
    pub fn inode(
        &mut self,
        number: u32,
        creation: u64,
        inode: &NewInode<'_>,
    ) -> Result<(), UbifsCreateError<S::Error>> {
        let mut xattrs = self.xattrs(number, inode)?;
        let mut flags = inode.flags.0;
        let mut target = Cow::Borrowed(inode.target);
        if let Some(encryption) = &mut self.encryption
            && is_encrypted(inode.kind)
        {
            flags |= InodeFlags::ENCRYPTED.0;
            if inode.kind == FileKind::Symlink {
                let sealed = encryption.target(number, inode.target);
                target = sealed.ok_or_else(|| target_too_long(number))?.into();
            }
            let context = encryption.context(number).emit();
            self.xattr((number, inode), (CONTEXT_NAME, &context), &mut xattrs)?;
        }
        let huge = inode.device.to_huge().to_le_bytes();
        let (size, data): (u64, &[u8]) = match inode.kind {
            FileKind::Regular => (inode.size, &[]),
            FileKind::Directory => (INODE_NODE_SIZE as u64 + inode.size, &[]),
            FileKind::Symlink => (target.len() as u64, &target),
            FileKind::CharacterDevice | FileKind::BlockDevice => (0, &huge),
            FileKind::Fifo | FileKind::Socket => (0, &[]),
        };
        if data.len() > INLINE_DATA_MAX {
            return Err(target_too_long(number));
        }
        if self.superblock.default_compression != Compression::None.code() {
            flags |= InodeFlags::COMPRESS.0;
        }
        let key = Key::inode_node(number);
        let node = InodeNode {
            key,
            creation_sequence: creation,
            size,
            accessed: time(inode.accessed),
            changed: time(inode.changed),
            modified: time(inode.modified),
            links: inode.links,
            owner: inode.owner,
            group: inode.group,
            mode: inode.kind.mode_bits() | u32::from(inode.permissions),
            flags: InodeFlags(flags),
            xattr_count: xattrs.count,
            xattr_size: xattrs.size,
            xattr_names: xattrs.names,
            compression: Compression::from_code(self.superblock.default_compression),
            data,
        };
        self.leaf(key, &Node::Inode(node))
    }

    /// Writes extended attributes: for each one a name, and an inode that holds the value.
    fn xattrs(
        &mut self,
        host: u32,
        inode: &NewInode<'_>,
    ) -> Result<Xattrs, UbifsCreateError<S::Error>> {
        let mut sum = Xattrs::default();
        let most = self.superblock.leb_size as usize / 2 / INODE_NODE_SIZE;
        let names: usize = inode.xattrs.iter().map(|(name, _)| name.len() + 1).sum();
        if inode.xattrs.len() > most || names > XATTR_LIST_MAX {
            return Err(UbifsCreateError::Options(OptionsError::TooManyXattrs { inode: host }));
        }
        for &(name, value) in inode.xattrs {
            check_xattr(name, value).map_err(|source| {
                UbifsCreateError::Options(OptionsError::Xattr { inode: host, source })
            })?;
            self.xattr((host, inode), (name, value), &mut sum)?;
        }
        Ok(sum)
    }

    /// Writes an extended attribute, and adds it to the totals.
    fn xattr(
        &mut self,
        (host, inode): (u32, &NewInode<'_>),
        (name, value): (&[u8], &[u8]),
        sum: &mut Xattrs,
    ) -> Result<(), UbifsCreateError<S::Error>> {
        let number = self.next_inode()?;
        let creation = self.creation_sequence();
        // As Linux and mkfs.ubifs 2.3 or later do; older versions write the type of a directory.
        self.name(EntryKind::Xattr, (host, name), number, type_of(FileKind::Regular))?;
        let key = Key::inode_node(number);
        let holder = InodeNode {
            key,
            creation_sequence: creation,
            size: value.len() as u64,
            accessed: time(inode.accessed),
            changed: time(inode.changed),
            modified: time(inode.modified),
            links: 1,
            owner: inode.owner,
            group: inode.group,
            mode: FileKind::Regular.mode_bits(),
            flags: InodeFlags::XATTR,
            xattr_count: 0,
            xattr_size: 0,
            xattr_names: 0,
            compression: Compression::from_code(self.superblock.default_compression),
            data: value,
        };
        self.leaf(key, &Node::Inode(holder))?;
        sum.count += 1;
        sum.names += name.len() as u32;
        sum.size += NewInode::entry_size(name) as u32;
        // One byte more than the node has, as Linux counts (`CALC_XATTR_BYTES`).
        sum.size += align8((INODE_NODE_SIZE + value.len() + 1) as u32);
        Ok(())
    }
}

fn target_too_long<E>(inode: u32) -> UbifsCreateError<E> {
    UbifsCreateError::Options(OptionsError::TargetTooLong { inode })
}
