//! Names, attributes, content: [`Ubifs`] as a [`FileSystem`].

use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};

use flysch_api::vfs::{
    Attributes, DeviceNumber, Entry, FileFlags, FileKind, FileSystem, FsError, Inode, NameVisitor,
    Statistics, Timestamp, Visitor,
};
use flysch_api::volume::Volume;
use flysch_compress::Method;
use flysch_wire::ubifs::{
    BLOCK_SIZE, Compression, Data, DirectoryEntry, ENTRY_NODE_SIZE, EntryKind, InodeFlags,
    InodeNode, Key, NAME_MAX, Node, NodeKind, ROOT_INODE,
};

use crate::access::{Fault, Scratch};
use crate::crypt::{FileCipher, Use};
use crate::location::Location;
use crate::open::Ubifs;
use crate::sealed::{Names, decrypt_block};
use crate::store::{Name, field, number};

/// What an inode says, without its inline data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stat {
    pub(crate) kind: FileKind,
    pub(crate) size: u64,
    pub(crate) flags: InodeFlags,
}

impl Stat {
    pub(crate) fn is_encrypted(&self) -> bool {
        self.flags.contains(InodeFlags::ENCRYPTED)
    }
}

/// The kind of file that an entry's type byte stands for (`UBIFS_ITYPE_*`).
pub(crate) fn kind_of(file_type: u8) -> Option<FileKind> {
    Some(match file_type {
        0 => FileKind::Regular,
        1 => FileKind::Directory,
        2 => FileKind::Symlink,
        3 => FileKind::BlockDevice,
        4 => FileKind::CharacterDevice,
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        _ => return None,
    })
}

/// The type byte of a kind of file, the inverse of [`kind_of`].
pub(crate) fn type_of(kind: FileKind) -> u8 {
    match kind {
        FileKind::Regular => 0,
        FileKind::Directory => 1,
        FileKind::Symlink => 2,
        FileKind::BlockDevice => 3,
        FileKind::CharacterDevice => 4,
        FileKind::Fifo => 5,
        FileKind::Socket => 6,
    }
}

/// The device number of an inode: 4 bytes if the kernel wrote it, 8 if mkfs.ubifs did.
pub(crate) fn device_of(data: &[u8]) -> Option<DeviceNumber> {
    match data.len() {
        4 => data.try_into().ok().map(u32::from_le_bytes).map(DeviceNumber::from_new),
        8 => data.try_into().ok().map(u64::from_le_bytes).map(DeviceNumber::from_huge),
        _ => None,
    }
}

/// Whether a directory may hold this name.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.iter().any(|&b| b == 0 || b == b'/')
}

impl<V: Volume> Ubifs<V> {
    /// Reads the inode node of a file. Inodes of extended attribute values are not found.
    fn with_inode<T>(
        &self,
        inode: Inode,
        read: impl FnOnce(&InodeNode<'_>, Location) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let inode = number(inode.0)?;
        let at = self.store.find(Key::inode_node(inode))?.ok_or(FsError::NotFound)?;
        let mut scratch = Scratch::new();
        let node = self.store.inode(inode, at, &mut scratch)?;
        if node.flags.contains(InodeFlags::XATTR) {
            return Err(FsError::NotFound);
        }
        read(&node, at)
    }

    pub(crate) fn bad_inode(&self, at: Location, name: &'static str) -> FsError {
        self.store.fault(at, NodeKind::Inode, field(name)).into()
    }

    /// The file's link count; 0 if its inode cannot be read.
    pub(crate) fn links(&self, inode: Inode) -> u32 {
        self.with_inode(inode, |node, _| Ok(node.links)).unwrap_or(0)
    }

    pub(crate) fn stat(&self, inode: Inode) -> Result<Stat, FsError> {
        self.with_inode(inode, |node, at| {
            let kind = FileKind::from_mode(node.mode).ok_or_else(|| self.bad_inode(at, "mode"))?;
            Ok(Stat { kind, size: self.size_of(node), flags: node.flags })
        })
    }

    /// A file's size, corrected after an unclean stop.
    pub(crate) fn size_of(&self, node: &InodeNode<'_>) -> u64 {
        self.store.sizes.get(&node.key.inode()).copied().unwrap_or(node.size)
    }

    /// Whether an inode that cannot be read is nevertheless a directory, because it contains names.
    ///
    /// Losing its attributes does not lose its files, so it is shown with made-up attributes; the
    /// check reports it. The root directory always exists.
    fn is_ruined_directory(&self, inode: Inode, error: &FsError) -> bool {
        let Ok(number) = number(inode.0) else { return false };
        if !matches!(error, FsError::Damaged { .. } | FsError::Medium { .. } | FsError::NotFound) {
            return false;
        }
        let mut any = number == ROOT_INODE;
        let _ = self.store.names(EntryKind::Directory, number, 0, &mut |_| {
            any = true;
            ControlFlow::Break(())
        });
        any
    }

    fn directory(&self, inode: Inode) -> Result<(u32, Stat), FsError> {
        let stat = match self.stat(inode) {
            Err(error) if self.is_ruined_directory(inode, &error) => {
                let (kind, flags) = (FileKind::Directory, InodeFlags::default());
                Stat { kind, size: 0, flags }
            }
            stat => stat?,
        };
        if stat.kind != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        Ok((number(inode.0)?, stat))
    }

    fn read_symlink(&self, inode: Inode, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        self.with_inode(inode, |node, at| {
            let plain;
            let target = match node.flags.contains(InodeFlags::ENCRYPTED) {
                true => {
                    plain = self.target(node)?;
                    &plain[..]
                }
                false => node.data,
            };
            if target.is_empty() || target.contains(&0) {
                return Err(self.bad_inode(at, "data_len"));
            }
            let rest = usize::try_from(offset).ok().and_then(|from| target.get(from..));
            let rest = rest.unwrap_or(&[]);
            let length = rest.len().min(buffer.len());
            buffer[..length].copy_from_slice(&rest[..length]);
            Ok(length)
        })
    }

    pub(crate) fn read_regular(
        &self,
        (inode, cipher): (u32, Option<&FileCipher>),
        size: u64,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, FsError> {
        let left = size.saturating_sub(offset);
        let length = left.min(buffer.len() as u64) as usize;
        let block_size = u64::from(BLOCK_SIZE);
        let first = offset / block_size;
        if length == 0 || first > u64::from(Key::VALUE_MAX) {
            buffer[..length].fill(0);
            return Ok(length);
        }
        let last = ((offset + length as u64 - 1) / block_size).min(u64::from(Key::VALUE_MAX));
        let range = (Key::data(inode, first as u32), Key::data(inode, last as u32));
        let mut scratch = Scratch::new();
        let mut fault: Option<(u64, Fault)> = None;
        // Blocks come in order; gaps between them are zeros.
        let mut filled = 0;
        let walked = self.store.nodes(range.0, range.1, &mut |key, at| {
            let start = u64::from(key.value()) * block_size;
            let from = (start.saturating_sub(offset) as usize).min(length);
            if filled < from {
                buffer[filled..from].fill(0);
            }
            let from = (key, at, cipher);
            match self.read_block(from, (offset, length), buffer, &mut scratch) {
                Ok(end) => {
                    filled = end;
                    ControlFlow::Continue(())
                }
                Err(damage) => {
                    fault = Some((start, damage));
                    ControlFlow::Break(())
                }
            }
        });
        match fault {
            Some((start, _)) if start > offset => Ok((start - offset) as usize),
            Some((_, fault)) => Err(fault.into()),
            None => {
                buffer[filled.min(length)..length].fill(0);
                walked.map(|()| length).map_err(FsError::from)
            }
        }
    }

    /// Decodes one block of content into `buffer`, whose first `length` bytes hold the file from
    /// `offset` on. Returns where the block ends in `buffer`; bytes after that may be overwritten.
    fn read_block(
        &self,
        (key, at, cipher): (Key, Location, Option<&FileCipher>),
        (offset, length): (u64, usize),
        buffer: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<usize, Fault> {
        let data = self.data(key, at, scratch)?;
        let bad = || self.store.fault(at, NodeKind::Data, field("data"));
        let mut room;
        let data = match cipher {
            Some(cipher) => {
                room = [0; BLOCK_SIZE as usize];
                decrypt_block(&data, cipher, &mut room).ok_or_else(bad)?
            }
            None => data,
        };
        let start = u64::from(key.value()) * u64::from(BLOCK_SIZE);
        let size = data.size as usize;
        if start >= offset && (start - offset) as usize + size <= length {
            let from = (start - offset) as usize;
            let room = buffer.len().min(from + size + SLACK);
            unpack_roomy(&data, size, &mut buffer[from..room]).ok_or_else(bad)?;
            return Ok(from + size);
        }
        let mut block = [0; BLOCK_SIZE as usize];
        unpack(&data, &mut block[..size]).ok_or_else(bad)?;
        let skip = offset.saturating_sub(start).min(size as u64) as usize;
        let from = start.saturating_sub(offset) as usize;
        let wanted = &block[skip..size];
        let length = wanted.len().min(length - from);
        buffer[from..from + length].copy_from_slice(&wanted[..length]);
        Ok(from + length)
    }

    /// Reads the data node of a key.
    pub(crate) fn data<'b>(
        &'b self,
        key: Key,
        at: Location,
        scratch: &'b mut Scratch,
    ) -> Result<Data<'b>, Fault> {
        match self.store.node(at, NodeKind::Data, scratch)? {
            Node::Data(data) if data.key == key => Ok(data),
            _ => Err(self.store.mismatch(at, NodeKind::Data)),
        }
    }

    /// The entry as a directory shows it; `None` if it cannot be shown.
    fn shown(
        &self,
        entry: &DirectoryEntry<'_>,
        encrypted: bool,
        names: Option<&Names>,
    ) -> Option<(Vec<u8>, FileKind)> {
        let kind = kind_of(entry.file_type)?;
        let name = Self::shown_name(entry, encrypted, names)?;
        (is_name(&name) && entry.inode != 0).then_some((name, kind))
    }
}

/// Bytes after a block that decompressors may overwrite.
const SLACK: usize = 512;

/// Decompresses a block into `output`, which has its size; `None` if the block is damaged.
pub(crate) fn unpack(data: &Data<'_>, output: &mut [u8]) -> Option<()> {
    unpack_roomy(data, output.len(), output)
}

/// Decompresses a block of `size` bytes to the start of `output`; bytes after it may be
/// overwritten.
fn unpack_roomy(data: &Data<'_>, size: usize, output: &mut [u8]) -> Option<()> {
    let method = match data.compression {
        Compression::None => {
            if data.data.len() != size {
                return None;
            }
            output[..size].copy_from_slice(data.data);
            return Some(());
        }
        Compression::Lzo => Method::Lzo,
        Compression::Zlib => Method::Deflate,
        Compression::Zstd => Method::Zstd,
        Compression::Unknown(_) => return None,
    };
    let length = flysch_compress::decompress(method, data.data, output).ok()?;
    (length == size).then_some(())
}

/// Position after which a listing continues: the hash, then the name's rank among those with that
/// hash.
fn position(name: &Name<'_>) -> u64 {
    (u64::from(name.key.value()) << 16) | u64::from(name.ordinal.min(0xffff))
}

fn time((seconds, nanoseconds): (u64, u32)) -> Timestamp {
    Timestamp { seconds: seconds as i64, nanoseconds: nanoseconds.min(999_999_999) }
}

impl<V: Volume> FileSystem for Ubifs<V> {
    fn statistics(&self) -> Statistics {
        let store = &self.store;
        let leb_size = u64::from(store.layout.leb_size);
        let main = u64::from(store.layout.main.end - store.layout.main.start) * leb_size;
        let free = self.master.as_ref().map_or(0, |chosen| {
            let master = &chosen.master;
            // As the kernel budgets: three times the index, plus LEBs for garbage collection, the
            // three journal heads and deletions.
            let index_room =
                leb_size - (store.superblock.index_node_max() as u64).min(leb_size / 2);
            let index_lebs = (3 * master.index_size.min(main)).div_ceil(index_room) + 1;
            let reserved = (index_lebs.max(2) + 1 + 3 + 1) * leb_size;
            let taken = [master.total_used, reserved, master.total_dead, master.total_dark];
            taken.iter().fold(main, |left, part| left.saturating_sub(*part))
        });
        // A block of content also needs its node's header and a share of the index.
        let fanout = u64::from(store.superblock.fanout.max(4));
        let share = 3 * store.superblock.index_node_max() as u64 / (fanout / 2 - 1);
        let scaled = free.saturating_mul(4096) / (4144 + share);
        Statistics {
            format: "ubifs",
            root: Inode(ROOT_INODE.into()),
            block_size: BLOCK_SIZE,
            blocks: main / u64::from(BLOCK_SIZE),
            blocks_free: scaled / u64::from(BLOCK_SIZE),
            files: None,
            name_max: NAME_MAX as u32,
        }
    }

    fn lookup(&self, directory: Inode, name: &[u8]) -> Result<Inode, FsError> {
        let (parent, stat) = self.directory(directory)?;
        if !is_name(name) || name.len() > NAME_MAX {
            return Err(FsError::NotFound);
        }
        let stored;
        let name = match stat.is_encrypted() {
            true => {
                stored = self.stored_name(parent, name)?.ok_or(FsError::NotFound)?;
                &stored[..]
            }
            false => name,
        };
        match self.store.find_name(EntryKind::Directory, parent, name)? {
            Some((_, inode, _)) => Ok(Inode(inode)),
            None => Err(FsError::NotFound),
        }
    }

    fn attributes(&self, inode: Inode) -> Result<Attributes, FsError> {
        let read = self.with_inode(inode, |node, at| {
            let size = self.shown_size(node);
            describe(node, size).map_err(|field| self.bad_inode(at, field))
        });
        match read {
            // What the flash does not give now is not to be made up.
            Err(error @ FsError::Medium { .. }) => Err(error),
            Err(error) if self.is_ruined_directory(inode, &error) => Ok(ruined(inode)),
            read => read,
        }
    }

    fn list(&self, directory: Inode, after: u64, visit: &mut Visitor<'_>) -> Result<(), FsError> {
        let (parent, stat) = self.directory(directory)?;
        // Without the key, or support for its cipher, names are shown as stored.
        let names = if stat.is_encrypted() { self.names_of(parent).ok() } else { None };
        let from = (after >> 16).min(Key::VALUE_MAX.into()) as u32;
        let mut fault = None;
        let walked = self.store.names(EntryKind::Directory, parent, from, &mut |name| {
            let position = position(&name);
            if position <= after && after != 0 {
                return ControlFlow::Continue(());
            }
            let entry = match &name.entry {
                Ok(entry) => entry,
                Err(damage) => {
                    fault.get_or_insert(*damage);
                    return ControlFlow::Continue(());
                }
            };
            let Some((shown, kind)) = self.shown(entry, stat.is_encrypted(), names.as_ref()) else {
                fault.get_or_insert(self.store.fault(name.at, NodeKind::Entry, field("name")));
                return ControlFlow::Continue(());
            };
            visit(Entry { name: &shown, inode: Inode(entry.inode), kind, position })
        });
        walked?;
        fault.map_or(Ok(()), |fault| Err(fault.into()))
    }

    fn read(&self, inode: Inode, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        let stat = self.stat(inode)?;
        match stat.kind {
            FileKind::Regular => {
                let number = number(inode.0)?;
                let cipher = match stat.is_encrypted() {
                    true => Some(self.cipher(number, Use::Contents)?),
                    false => None,
                };
                self.read_regular((number, cipher.as_ref()), stat.size, offset, buffer)
            }
            FileKind::Symlink => self.read_symlink(inode, offset, buffer),
            FileKind::Directory => Err(FsError::IsDirectory),
            _ => Err(FsError::NoContent),
        }
    }

    fn next_data(&self, inode: Inode, offset: u64) -> Result<Option<Range<u64>>, FsError> {
        let stat = self.stat(inode)?;
        if stat.kind != FileKind::Regular {
            return Ok((offset < stat.size).then_some(offset..stat.size));
        }
        let number = number(inode.0)?;
        let block_size = u64::from(BLOCK_SIZE);
        let Ok(first) = u32::try_from(offset / block_size) else { return Ok(None) };
        if offset >= stat.size || first > Key::VALUE_MAX {
            return Ok(None);
        }
        let mut found: Option<Range<u64>> = None;
        let last = Key::data(number, Key::VALUE_MAX);
        self.store.nodes(Key::data(number, first), last, &mut |key, _| {
            let start = u64::from(key.value()) * block_size;
            match &mut found {
                None => found = Some(start..start + block_size),
                Some(range) if range.end == start => range.end += block_size,
                Some(_) => return ControlFlow::Break(()),
            }
            ControlFlow::Continue(())
        })?;
        let range = found.map(|range| range.start.max(offset)..range.end.min(stat.size));
        Ok(range.filter(|range| range.start < range.end))
    }

    fn list_xattrs(&self, inode: Inode, visit: &mut NameVisitor<'_>) -> Result<(), FsError> {
        let mut fault = None;
        let walked = self.store.names(EntryKind::Xattr, number(inode.0)?, 0, &mut |name| {
            match name.entry {
                Ok(entry) if is_xattr_name(entry.name) => visit(entry.name),
                Ok(_) => {}
                Err(damage) => fault = Some(damage),
            }
            ControlFlow::Continue(())
        });
        walked?;
        fault.map_or(Ok(()), |fault| Err(fault.into()))
    }

    fn read_xattr(&self, inode: Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize, FsError> {
        let _ = self.stat(inode)?;
        if !is_xattr_name(name) || name.len() > NAME_MAX {
            return Err(FsError::NoAttribute);
        }
        let found = self.store.find_name(EntryKind::Xattr, number(inode.0)?, name)?;
        let (_, value, _) = found.ok_or(FsError::NoAttribute)?;
        let value = number(value)?;
        let at = self.store.find(Key::inode_node(value))?.ok_or(FsError::NotFound)?;
        let mut scratch = Scratch::new();
        let node = self.store.inode(value, at, &mut scratch)?;
        if !node.flags.contains(InodeFlags::XATTR) {
            return Err(self.bad_inode(at, "flags"));
        }
        let room = buffer.get_mut(..node.data.len());
        room.ok_or(FsError::BufferTooSmall(node.data.len()))?.copy_from_slice(node.data);
        Ok(node.data.len())
    }
}

/// The attributes of an inode node; the error names the field that cannot be right.
pub(crate) fn describe(node: &InodeNode<'_>, size: u64) -> Result<Attributes, &'static str> {
    let kind = FileKind::from_mode(node.mode).ok_or("mode")?;
    let is_device = matches!(kind, FileKind::CharacterDevice | FileKind::BlockDevice);
    let device = match device_of(node.data) {
        Some(device) if is_device => device,
        None if is_device => return Err("data_len"),
        _ => DeviceNumber::default(),
    };
    let used = size.saturating_add(node.xattr_size.into());
    let blocks = match kind {
        FileKind::Regular => used.div_ceil(BLOCK_SIZE.into()).saturating_mul(8),
        _ => 0,
    };
    Ok(Attributes {
        inode: Inode(node.key.inode().into()),
        kind,
        permissions: (node.mode & 0o7777) as u16,
        links: node.links,
        owner: node.owner,
        group: node.group,
        size,
        blocks,
        accessed: time(node.accessed),
        modified: time(node.modified),
        changed: time(node.changed),
        device,
        flags: flags(node.flags),
    })
}

/// The flags of UBIFS and the matching ones of `chattr`.
const FLAGS: [(InodeFlags, FileFlags); 5] = [
    (InodeFlags::COMPRESS, FileFlags::COMPRESS),
    (InodeFlags::SYNC, FileFlags::SYNC),
    (InodeFlags::IMMUTABLE, FileFlags::IMMUTABLE),
    (InodeFlags::APPEND, FileFlags::APPEND),
    (InodeFlags::DIRSYNC, FileFlags::DIRSYNC),
];

fn flags(node: InodeFlags) -> FileFlags {
    let set = FLAGS.iter().filter(|(ours, _)| node.contains(*ours));
    set.fold(FileFlags::default(), |all, (_, flag)| all.with(*flag))
}

/// A node's flags with the `chattr` flags replaced by `wanted`; `None` if UBIFS lacks one of them.
pub(crate) fn node_flags(node: InodeFlags, wanted: FileFlags) -> Option<InodeFlags> {
    let known = FLAGS.iter().fold(FileFlags::default(), |all, (_, flag)| all.with(*flag));
    if wanted.without(known) != FileFlags::default() {
        return None;
    }
    Some(InodeFlags(FLAGS.iter().fold(node.0, |all, (ours, flag)| match wanted.contains(*flag) {
        true => all | ours.0,
        false => all & !ours.0,
    })))
}

/// The attributes shown for a directory whose inode is lost.
fn ruined(inode: Inode) -> Attributes {
    let never = Timestamp::default();
    Attributes {
        inode,
        kind: FileKind::Directory,
        permissions: 0o755,
        links: 2,
        owner: 0,
        group: 0,
        size: 0,
        blocks: 0,
        accessed: never,
        modified: never,
        changed: never,
        device: DeviceNumber::default(),
        flags: FileFlags::default(),
    }
}

/// Whether an extended attribute is visible to users; the file system's own have no namespace.
pub(crate) fn is_xattr_name(name: &[u8]) -> bool {
    [&b"user."[..], b"trusted.", b"security.", b"system."].iter().any(|it| name.starts_with(it))
}

/// Bytes a name adds to its directory's size.
pub(crate) fn entry_size(name: &[u8]) -> u64 {
    (ENTRY_NODE_SIZE as u64 + name.len() as u64 + 1).next_multiple_of(8)
}
