//! Creation of images from files, as by mkfs.jffs2 and sumtool.
//!
//! A [`Jffs2Builder`] takes files one by one, parents before their children, and outputs erase
//! blocks as they fill. The same files in the same order give the same bytes. Nodes are in the
//! order of mkfs.jffs2: the directory entry, the inode's nodes, its attributes.

mod blocks;
mod summarize;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use flysch_api::vfs::{DeviceNumber, FileKind, NewFile, Timestamp};
use flysch_wire::jffs2::{
    ByteOrder, Compression, Dirent, Header, Inode, NAME_LEN_MAX, SummaryEntry, Xattr, XattrPrefix,
    Xref,
};

pub use flysch_wire::jffs2::ROOT_INO;

use self::blocks::Blocks;
pub use self::blocks::Written;
pub(crate) use self::summarize::entry_of;
pub use self::summarize::summarize;
use crate::compressor::{Compressors, Packer};
use crate::found::Address;
use crate::xattr::stored_form;

/// Smallest erase block, bytes, as in mkfs.jffs2.
const ERASE_SIZE_MIN: u32 = 4096;
/// Minimum data for which a node at the end of a block should have room (`JFFS2_MIN_DATA_LEN`).
const DATA_LEN_MIN: usize = 128;
/// Longest target of a symbolic link (`JFFS2_MAX_SYMLINK_LEN`).
const TARGET_LEN_MAX: usize = 254;
/// Bytes of the summary entry of an inode node.
const INODE_ENTRY_LEN: usize = 18;
/// Bytes of the summary entry of a directory entry node, without the name.
const DIRENT_ENTRY_LEN: usize = 24;

/// To which size the end of an image is padded with 0xFF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// No padding: it ends after the last node.
    None,
    /// To the end of the erase block (`--pad`).
    Block,
    /// To at least this many bytes, in whole erase blocks, each with a clean marker (`--pad=SIZE`).
    To(u64),
}

/// Options for making an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jffs2Options {
    /// Byte order of the target's processor.
    pub order: ByteOrder,
    /// Erase block size of the target's flash, bytes; a multiple of 4 from 4 KiB on.
    pub erase_size: u32,
    /// Page size of the target's processor, bytes: the maximum data of one node.
    pub page_size: u32,
    /// Length of the clean marker in each block, bytes: 12, or 0 for NAND, where clean markers are
    /// out of band and written by Linux.
    pub cleanmarker_len: u32,
    /// Size to which the image is padded.
    pub padding: Padding,
    /// Maximum size of the image: the size of the flash or partition, bytes.
    pub size_max: Option<u64>,
    /// Full blocks end with a summary, as sumtool adds them.
    pub summary: bool,
    /// Compression of files.
    pub compressors: Compressors,
    /// All files belong to root (`--squash-uids`).
    pub squash_owners: bool,
    /// Only owners may write, and no set-id bits remain (`--squash-perms`).
    pub squash_permissions: bool,
    /// Write exactly what mkfs.jffs2 writes: directory entries have the time of the file they name,
    /// where Linux and this builder put that of the directory; the root has no node; zeros are
    /// stored as data.
    pub as_mkfs: bool,
}

impl Default for Jffs2Options {
    /// The behaviour of mkfs.jffs2 on a little-endian machine without options.
    fn default() -> Self {
        Self {
            order: ByteOrder::Little,
            erase_size: 64 << 10,
            page_size: 4096,
            cleanmarker_len: Header::LEN as u32,
            padding: Padding::None,
            size_max: None,
            summary: false,
            compressors: Compressors::default(),
            squash_owners: false,
            squash_permissions: false,
            as_mkfs: false,
        }
    }
}

/// Why an image could not be made. `E` is the error of the output or of reading a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Jffs2CreateError<E> {
    /// Writing to the output failed.
    Output(E),
    /// The content of a file could not be read.
    Content(E),
    /// The content of a file ended before its size.
    ContentShort {
        /// Number of missing bytes.
        missing: u64,
    },
    /// The image would be larger than [`Jffs2Options::size_max`].
    Full {
        /// The limit, bytes.
        limit: u64,
    },
    /// The options contradict each other; the text says how.
    Options(&'static str),
    /// The entry cannot be stored in JFFS2; the text says why.
    Entry(&'static str),
    /// A node does not fit into an erase block.
    NodeTooLong {
        /// Bytes of the node.
        need: usize,
        /// Bytes available for nodes in a block.
        room: usize,
    },
}

impl<E: fmt::Display> fmt::Display for Jffs2CreateError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Output(error) => write!(f, "the image cannot be written: {error}"),
            Self::Content(error) => write!(f, "the content cannot be read: {error}"),
            Self::ContentShort { missing } => {
                write!(f, "the content ended {missing} bytes before its size")
            }
            Self::Full { limit } => write!(f, "the image would be larger than {limit} bytes"),
            Self::Options(what) | Self::Entry(what) => f.write_str(what),
            Self::NodeTooLong { need, room } => {
                write!(
                    f,
                    "a node of {need} bytes does not fit into an erase block, \
                           which has room for {room}"
                )
            }
        }
    }
}

impl<E: core::error::Error + 'static> core::error::Error for Jffs2CreateError<E> {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Output(error) | Self::Content(error) => Some(error),
            _ => None,
        }
    }
}

/// A file's attributes. Owner and group are at most 65535; times are stored in whole seconds, from
/// 1970 to 2106.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Inode of the directory, which must have been added before; [`ROOT_INO`] for the root.
    pub parent: u32,
    /// Name in the directory: 1 to 254 bytes, no NUL, no '/'.
    pub name: &'a [u8],
    /// Kind, permissions, owner, device number, target.
    pub file: NewFile<'a>,
    /// Time of last access.
    pub accessed: Timestamp,
    /// Time of the last change of content.
    pub modified: Timestamp,
    /// Time of the last change of attributes.
    pub changed: Timestamp,
}

/// The content of a regular file.
#[allow(missing_debug_implementations, reason = "a function has none")]
pub struct Content<'a, E> {
    /// Its length, bytes; less than 4 GiB.
    pub size: u64,
    /// Fills its buffer from where the last call ended and returns the number of bytes, which is 0
    /// only at the end.
    pub read: &'a mut dyn FnMut(&mut [u8]) -> Result<usize, E>,
}

/// Makes an image. `S` receives its bytes, one erase block at a time; the last may be shorter.
#[derive(Debug)]
pub struct Jffs2Builder<S> {
    options: Jffs2Options,
    blocks: Blocks<S>,
    packer: Packer,
    page: Vec<u8>,
    next_ino: u32,
    /// Counts directory entries across all directories, as mkfs.jffs2 does.
    dirent_version: u32,
    /// Time of the last change of each directory.
    directories: BTreeMap<u32, u32>,
    /// Numbers of attributes by namespace, name and value: each value is stored only once.
    xids: BTreeMap<(u8, Vec<u8>, Vec<u8>), u32>,
    xseqno: u32,
    /// Every name, with its directory.
    names: BTreeSet<(u32, Box<[u8]>)>,
    /// A file failed after its name was written.
    is_half_added: bool,
}

/// Whole seconds as JFFS2 stores them: 1970 to 2106, or the nearest possible.
pub(crate) fn clamp_time(time: Timestamp) -> u32 {
    u32::try_from(time.seconds.max(0)).unwrap_or(u32::MAX)
}

/// The stored form of a device number, and its length: 2 bytes if they suffice, as in Linux
/// (`jffs2_encode_dev`). When an attribute changes, Linux writes its own form; if an earlier node
/// had another length, it refuses the inode ("Special inode had more than one node").
pub(crate) fn device_data(order: ByteOrder, device: DeviceNumber) -> Option<([u8; 4], usize)> {
    let mut bytes = [0; 4];
    if device.major < 256 && device.minor < 256 {
        let number = (device.major << 8 | device.minor) as u16;
        bytes[..2].copy_from_slice(&order.bytes16(number));
        return Some((bytes, 2));
    }
    bytes = order.bytes32(device.to_new()?);
    Some((bytes, 4))
}

impl<E, S: FnMut(&[u8]) -> Result<(), E>> Jffs2Builder<S> {
    /// Starts an image.
    ///
    /// # Errors
    /// [`Jffs2CreateError::Options`].
    pub fn new(options: Jffs2Options, sink: S) -> Result<Self, Jffs2CreateError<E>> {
        let erase_size = options.erase_size;
        if erase_size < ERASE_SIZE_MIN || !erase_size.is_multiple_of(4) {
            return Err(Jffs2CreateError::Options(
                "the erase block size must be a multiple of 4, and at least 4 KiB",
            ));
        }
        if !options.page_size.is_power_of_two() || !(4096..=65536).contains(&options.page_size) {
            return Err(Jffs2CreateError::Options(
                "the page size must be a power of two from 4 KiB to 64 KiB",
            ));
        }
        if matches!(options.padding, Padding::To(size) if size > Address::LIMIT) {
            return Err(Jffs2CreateError::Options("JFFS2 has 16 GiB at most: pad to less"));
        }
        let marker = options.cleanmarker_len;
        if marker != 0 && (marker < Header::LEN as u32 || marker > erase_size / 2) {
            return Err(Jffs2CreateError::Options(
                "a clean marker must have 12 bytes to half an erase block",
            ));
        }
        Ok(Self {
            blocks: Blocks::new(&options, sink),
            packer: Packer::new(options.compressors.clone()),
            page: vec![0; options.page_size as usize],
            next_ino: ROOT_INO + 1,
            dirent_version: 0,
            directories: BTreeMap::from([(ROOT_INO, 0)]),
            xids: BTreeMap::new(),
            xseqno: 0,
            names: BTreeSet::new(),
            is_half_added: false,
            options,
        })
    }

    /// Sets the attributes of the root, which has neither parent nor name. Must be called first.
    /// Without it, the root has Linux's defaults: 0755, owned by root, 1970.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn root(&mut self, entry: &Entry<'_>) -> Result<(), Jffs2CreateError<E>> {
        self.directories.insert(ROOT_INO, clamp_time(entry.modified));
        if self.options.as_mkfs {
            return Ok(());
        }
        let inode = self.attributes(ROOT_INO, entry)?;
        self.inode(inode, &[])
    }

    /// Adds a file; returns its inode. A regular file needs `content`. If its content cannot be
    /// read to its end, its name is in the image already, and [`finish`](Self::finish) fails.
    ///
    /// # Errors
    /// [`Jffs2CreateError::Entry`] for what JFFS2 cannot store and for a name that the directory
    /// has already, and everything that prevents the image from growing.
    pub fn add(
        &mut self,
        entry: &Entry<'_>,
        content: Option<Content<'_, E>>,
    ) -> Result<u32, Jffs2CreateError<E>> {
        if entry.file.kind == FileKind::Regular && content.is_none() {
            return Err(Jffs2CreateError::Entry("a regular file has no content"));
        }
        let is_device =
            matches!(entry.file.kind, FileKind::CharacterDevice | FileKind::BlockDevice);
        let device = if is_device { entry.file.device } else { DeviceNumber::default() };
        let (data, len) = device_data(self.options.order, device)
            .ok_or(Jffs2CreateError::Entry("the device number does not fit into 12 and 20 bits"))?;
        let ino = self.next_ino;
        let mut inode = self.attributes(ino, entry)?;
        self.dirent(entry, ino)?;
        self.next_ino += 1;
        self.is_half_added = true;
        match entry.file.kind {
            FileKind::Regular => content.map_or(Ok(()), |content| self.content(inode, content))?,
            FileKind::Directory => {
                self.directories.insert(ino, inode.mtime);
                self.inode(inode, &[])?;
            }
            FileKind::Symlink => {
                let target = entry.file.target;
                inode.isize = target.len() as u32;
                self.inode(inode, target)?;
            }
            FileKind::CharacterDevice | FileKind::BlockDevice => {
                self.inode(inode, &data[..len])?;
            }
            FileKind::Fifo | FileKind::Socket => self.inode(inode, &[])?,
        }
        self.is_half_added = false;
        Ok(ino)
    }

    /// Adds the name of `entry` as another name of inode `ino`, which must have been added before.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn link(&mut self, entry: &Entry<'_>, ino: u32) -> Result<(), Jffs2CreateError<E>> {
        if ino >= self.next_ino {
            return Err(Jffs2CreateError::Entry("the file to link to was not added"));
        }
        self.dirent(entry, ino)
    }

    /// Gives inode `ino` an extended attribute, by full name ("user.comment") and value. Access
    /// control lists have the form of Linux's `system.posix_acl_*` attributes.
    ///
    /// # Errors
    /// [`Jffs2CreateError::Entry`] if JFFS2 does not have the namespace or the value is too long;
    /// otherwise as [`add`](Self::add).
    pub fn xattr(
        &mut self,
        ino: u32,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), Jffs2CreateError<E>> {
        let (prefix, name, value) =
            stored_form(name, value, self.options.order).map_err(Jffs2CreateError::Entry)?;
        let key = (u8::from(prefix), name, value);
        let xid = match self.xids.get(&key) {
            Some(&xid) => xid,
            None => {
                let xid = self.xids.len() as u32 + 1;
                self.xattr_node(xid, prefix, &key.1, &key.2)?;
                self.xids.insert(key, xid);
                xid
            }
        };
        self.xseqno += 2;
        let xref = Xref { ino, xid, xseqno: self.xseqno };
        self.blocks.reserve(Xref::LEN, 6)?;
        let order = self.options.order;
        self.blocks
            .append(Xref::LEN, SummaryEntry::Xref { offset: 0 }, |out| xref.emit(order, out));
        Ok(())
    }

    /// Outputs the last block.
    ///
    /// # Errors
    /// [`Jffs2CreateError::Output`], [`Jffs2CreateError::Full`]; [`Jffs2CreateError::Entry`] if a
    /// file was added only in part.
    pub fn finish(self) -> Result<Written, Jffs2CreateError<E>> {
        if self.is_half_added {
            return Err(Jffs2CreateError::Entry(
                "a file failed before it was complete: its name leads nowhere",
            ));
        }
        self.blocks.finish()
    }

    fn attributes(&self, ino: u32, entry: &Entry<'_>) -> Result<Inode, Jffs2CreateError<E>> {
        let file = &entry.file;
        let (mut owner, mut group) = (file.owner, file.group);
        if self.options.squash_owners {
            (owner, group) = (0, 0);
        }
        let mut permissions = file.permissions & 0o7777;
        if self.options.squash_permissions && file.kind != FileKind::Symlink {
            permissions &= !0o6022;
        }
        let id = |id| {
            u16::try_from(id)
                .map_err(|_| Jffs2CreateError::Entry("JFFS2 keeps owners only up to 65535"))
        };
        if file.kind == FileKind::Symlink && !(1..=TARGET_LEN_MAX).contains(&file.target.len()) {
            return Err(Jffs2CreateError::Entry(
                "the target of a symbolic link must have 1 to 254 bytes",
            ));
        }
        Ok(Inode {
            ino,
            version: 1,
            mode: file.kind.mode_bits() | u32::from(permissions),
            uid: id(owner)?,
            gid: id(group)?,
            isize: 0,
            atime: clamp_time(entry.accessed),
            mtime: clamp_time(entry.modified),
            ctime: clamp_time(entry.changed),
            offset: 0,
            csize: 0,
            dsize: 0,
            compression: Compression::None,
            user_compression: 0,
            flags: 0,
            data_crc: 0,
        })
    }

    fn dirent(&mut self, entry: &Entry<'_>, ino: u32) -> Result<(), Jffs2CreateError<E>> {
        let name = entry.name;
        if name.is_empty() || name.len() > NAME_LEN_MAX {
            return Err(Jffs2CreateError::Entry("JFFS2 keeps only names of 1 to 254 bytes"));
        }
        if name.iter().any(|byte| matches!(byte, 0 | b'/')) || name == b"." || name == b".." {
            return Err(Jffs2CreateError::Entry("no file can have this name"));
        }
        let Some(&changed) = self.directories.get(&entry.parent) else {
            return Err(Jffs2CreateError::Entry("the directory was not added"));
        };
        if !self.names.insert((entry.parent, name.into())) {
            return Err(Jffs2CreateError::Entry("the directory has this name already"));
        }
        let dirent = Dirent {
            pino: entry.parent,
            version: self.dirent_version,
            ino,
            mctime: if self.options.as_mkfs { clamp_time(entry.modified) } else { changed },
            nsize: 0,
            kind: (entry.file.kind.mode_bits() >> 12) as u8,
            name_crc: 0,
        };
        let Dirent { pino, version, kind, .. } = dirent;
        let len = Dirent::LEN + name.len();
        self.blocks.reserve(len, DIRENT_ENTRY_LEN + name.len())?;
        let total_len = len as u32;
        let entry = SummaryEntry::Dirent { total_len, offset: 0, pino, version, ino, kind, name };
        let order = self.options.order;
        self.blocks.append(len, entry, |out| dirent.emit(name, order, out));
        self.dirent_version += 1;
        Ok(())
    }

    /// Writes an inode's only node.
    fn inode(&mut self, mut inode: Inode, data: &[u8]) -> Result<(), Jffs2CreateError<E>> {
        inode.dsize = data.len() as u32;
        self.blocks.reserve(Inode::LEN + data.len(), INODE_ENTRY_LEN)?;
        append_inode(&mut self.blocks, self.options.order, &inode, data);
        Ok(())
    }

    /// Writes the nodes of a regular file, one for each page, one for each hole.
    fn content(
        &mut self,
        mut inode: Inode,
        content: Content<'_, E>,
    ) -> Result<(), Jffs2CreateError<E>> {
        inode.isize = u32::try_from(content.size)
            .ok()
            .filter(|&size| size != u32::MAX)
            .ok_or(Jffs2CreateError::Entry("JFFS2 keeps only files of less than 4 GiB"))?;
        if inode.isize == 0 {
            return self.inode(inode, &[]);
        }
        let mut page = core::mem::take(&mut self.page);
        let mut hole = 0;
        let mut result = Ok(());
        while result.is_ok() && inode.offset + hole < inode.isize {
            let left = (inode.isize - inode.offset - hole) as usize;
            let len = left.min(page.len());
            result = fill(&mut page[..len], content.read);
            if result.is_err() {
                break;
            }
            if !self.options.as_mkfs && page[..len].iter().all(|&byte| byte == 0) {
                hole += len as u32;
                continue;
            }
            result = self.hole(&mut inode, &mut hole);
            if result.is_ok() {
                result = self.data(&mut inode, &page[..len]);
            }
        }
        self.page = page;
        result?;
        self.hole(&mut inode, &mut hole)
    }

    fn hole(&mut self, inode: &mut Inode, hole: &mut u32) -> Result<(), Jffs2CreateError<E>> {
        if *hole == 0 {
            return Ok(());
        }
        self.blocks.reserve(Inode::LEN, INODE_ENTRY_LEN)?;
        inode.compression = Compression::Zero;
        inode.dsize = *hole;
        append_inode(&mut self.blocks, self.options.order, inode, &[]);
        inode.version += 1;
        inode.offset += core::mem::take(hole);
        Ok(())
    }

    fn data(&mut self, inode: &mut Inode, mut data: &[u8]) -> Result<(), Jffs2CreateError<E>> {
        while !data.is_empty() {
            let room = self.blocks.reserve(Inode::LEN + DATA_LEN_MIN, INODE_ENTRY_LEN)?;
            let packed = self.packer.pack(data, room - Inode::LEN);
            inode.compression = packed.compression;
            inode.dsize = packed.len as u32;
            append_inode(&mut self.blocks, self.options.order, inode, packed.stored);
            inode.version += 1;
            inode.offset += packed.len as u32;
            data = &data[packed.len..];
        }
        Ok(())
    }

    fn xattr_node(
        &mut self,
        xid: u32,
        prefix: XattrPrefix,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), Jffs2CreateError<E>> {
        let xattr = Xattr { xid, version: 1, prefix, name_len: 0, value_len: 0, data_crc: 0 };
        let len = Xattr::node_len(name.len(), value.len());
        self.blocks.reserve(len, INODE_ENTRY_LEN)?;
        let entry = SummaryEntry::Xattr { xid, version: 1, offset: 0, total_len: len as u32 };
        let order = self.options.order;
        self.blocks.append(len, entry, |out| xattr.emit(name, value, order, out));
        Ok(())
    }
}

fn append_inode<E, S: FnMut(&[u8]) -> Result<(), E>>(
    blocks: &mut Blocks<S>,
    order: ByteOrder,
    inode: &Inode,
    data: &[u8],
) {
    let total_len = (Inode::LEN + data.len()) as u32;
    let Inode { ino, version, .. } = *inode;
    let entry = SummaryEntry::Inode { ino, version, offset: 0, total_len };
    blocks.append(total_len as usize, entry, |out| inode.emit(data, order, out));
}

/// Fills `buffer` even if single reads return less.
fn fill<E>(
    buffer: &mut [u8],
    read: &mut dyn FnMut(&mut [u8]) -> Result<usize, E>,
) -> Result<(), Jffs2CreateError<E>> {
    let mut at = 0;
    while at < buffer.len() {
        match read(&mut buffer[at..]).map_err(Jffs2CreateError::Content)? {
            0 => {
                return Err(Jffs2CreateError::ContentShort { missing: (buffer.len() - at) as u64 });
            }
            len => at += len.min(buffer.len() - at),
        }
    }
    Ok(())
}
