//! Names: creating, linking and removing files.

use core::ops::ControlFlow;

use flysch_api::vfs::{FileKind, FsError, Inode, NewFile, Timestamp};
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{
    Compression, DirectoryEntry, ENTRY_NODE_SIZE, EntryKind, INLINE_DATA_MAX, INODE_NODE_SIZE,
    InodeFlags, InodeNode, Key, NAME_MAX, Node, SuperblockFlags, align8,
};

use super::UbifsMut;
use super::budget::{INODE_COST, Need};
use super::cache::Record;
use super::inode::{kind, stamp};
use super::operation::Operation;
use super::sealed::CONTEXT_COST;
use crate::file::{entry_size, is_name, type_of};
use crate::store::default_compression;

/// Checks that a file can have this name.
pub(super) fn check_name(name: &[u8]) -> Result<(), FsError> {
    if name.len() > NAME_MAX {
        return Err(FsError::NameTooLong);
    }
    if is_name(name) { Ok(()) } else { Err(FsError::Invalid("not a valid name of a file")) }
}

/// The type byte of an entry (`UBIFS_ITYPE_*`).
pub(super) fn file_type(kind: Option<FileKind>) -> u8 {
    kind.map_or(0, type_of)
}

/// Size of an entry node, bytes.
pub(super) fn entry_cost(name: &[u8]) -> u64 {
    u64::from(align8((ENTRY_NODE_SIZE + name.len() + 1) as u32))
}

/// The inline data of a new file.
fn inline_data<'a>(file: &NewFile<'a>, number: &'a mut [u8; 4]) -> Result<&'a [u8], FsError> {
    match file.kind {
        FileKind::Symlink if file.target.is_empty() || file.target.contains(&0) => {
            Err(FsError::Invalid("a symlink's target must not be empty or contain NUL"))
        }
        FileKind::Symlink if file.target.len() > INLINE_DATA_MAX => Err(FsError::NameTooLong),
        FileKind::Symlink => Ok(file.target),
        FileKind::CharacterDevice | FileKind::BlockDevice => {
            let device = file.device.to_new();
            let device = device
                .ok_or(FsError::Invalid("the device number does not fit into 12 and 20 bits"))?;
            *number = device.to_le_bytes();
            Ok(number)
        }
        _ => Ok(&[]),
    }
}

impl<V: VolumeMut> UbifsMut<V> {
    /// An entry node; inode 0 deletes the name.
    pub(super) fn entry<'n>(
        &mut self,
        kind: EntryKind,
        parent: u32,
        name: &'n [u8],
        (inode, file_type): (u32, u8),
    ) -> Node<'n> {
        let key = Key::any_entry(kind, parent, self.files.disk.fs.store.hash().hash(name));
        let double =
            self.files.disk.fs.store.superblock.flags.contains(SuperblockFlags::DOUBLE_HASH);
        let cookie = if double { self.files.disk.numbers.cookie() } else { 0 };
        Node::Entry(DirectoryEntry { kind, key, inode: inode.into(), file_type, cookie, name })
    }

    /// The inode that a name leads to.
    pub(super) fn find_entry(&self, directory: u32, name: &[u8]) -> Result<Option<u32>, FsError> {
        match self.files.disk.fs.store.find_name(EntryKind::Directory, directory, name)? {
            Some((_, inode, _)) => crate::store::number(inode).map(Some),
            None => Ok(None),
        }
    }

    /// A new file for `directory`, still without a name.
    pub(super) fn new_record(
        &mut self,
        directory: &Record,
        file: &NewFile<'_>,
        now: Timestamp,
    ) -> Result<Record, FsError> {
        let mut device = [0; 4];
        let data = inline_data(file, &mut device)?;
        let number = self.files.disk.numbers.inode()?;
        let mut inherited = InodeFlags::COMPRESS.0 | InodeFlags::SYNC.0;
        if file.kind == FileKind::Directory {
            inherited |= InodeFlags::DIRSYNC.0;
        }
        let compression = match file.kind {
            FileKind::Regular => default_compression(&self.files.disk.fs.store.superblock),
            _ => Compression::None,
        };
        let node = InodeNode {
            key: Key::inode_node(number),
            creation_sequence: self.files.disk.fs.store.access.volume.sequence + 1,
            size: match file.kind {
                FileKind::Directory => INODE_NODE_SIZE as u64,
                FileKind::Symlink => data.len() as u64,
                _ => 0,
            },
            accessed: stamp(now),
            changed: stamp(now),
            modified: stamp(now),
            links: if file.kind == FileKind::Directory { 2 } else { 1 },
            owner: file.owner,
            group: file.group,
            mode: file.kind.mode_bits() | u32::from(file.permissions & 0o7777),
            flags: InodeFlags(directory.node.flags.0 & inherited),
            xattr_count: 0,
            xattr_size: 0,
            xattr_names: 0,
            compression,
            data,
        };
        Ok(Record::new(&node))
    }

    pub(super) fn make(
        &mut self,
        directory: u64,
        name: &[u8],
        file: &NewFile<'_>,
        now: Timestamp,
    ) -> Result<Inode, FsError> {
        self.files.disk.writable()?;
        let mut parent = self.files.load_directory(directory)?;
        check_name(name)?;
        let name = &*self.new_name(&parent, name)?;
        if self.find_entry(parent.number(), name)?.is_some() {
            return Err(FsError::Exists);
        }
        let data = if file.kind == FileKind::Symlink { file.target.len() as u64 } else { 8 };
        let context = if parent.is_encrypted() { CONTEXT_COST } else { 0 };
        let bytes = entry_cost(name) + 2 * INODE_COST + data.next_multiple_of(8) + context;
        self.files.claim(Need { bytes, leaves: if context == 0 { 2 } else { 4 } })?;
        let mut record = self.new_record(&parent, file, now)?;
        let context = self.seal_new(&parent, &mut record, file)?;
        parent.node.size += entry_size(name);
        parent.node.links += u32::from(file.kind == FileKind::Directory);
        (parent.node.modified, parent.node.changed) = (stamp(now), stamp(now));
        self.put_name(&parent, name, (&record, context.as_ref()))?;
        Ok(Inode(record.number().into()))
    }

    /// Writes entry, inode and directory, preceded by an encrypted file's context.
    fn put_name(
        &mut self,
        parent: &Record,
        name: &[u8],
        (record, context): (&Record, Option<&Record>),
    ) -> Result<(), FsError> {
        let to = (record.number(), file_type(kind(record)));
        let entry = self.entry(EntryKind::Directory, parent.number(), name, to);
        let mut operation = Operation::new();
        if let Some(value) = context {
            operation.entry(self.context_entry(record, value)).inode(value);
        }
        operation.entry(entry).inode(record).inode(parent);
        self.perform(operation)
    }

    pub(super) fn add_link(
        &mut self,
        inode: u64,
        directory: u64,
        name: &[u8],
        now: Timestamp,
    ) -> Result<(), FsError> {
        self.files.disk.writable()?;
        let mut record = self.files.load(inode)?;
        let mut parent = self.files.load_directory(directory)?;
        check_name(name)?;
        match kind(&record) {
            Some(FileKind::Directory) => return Err(FsError::IsDirectory),
            _ if record.node.links == 0 => return Err(FsError::NotFound),
            _ if record.node.links == u32::MAX => return Err(FsError::TooManyLinks),
            _ => {}
        }
        self.check_policy(&parent, &record)?;
        let name = &*self.new_name(&parent, name)?;
        if self.find_entry(parent.number(), name)?.is_some() {
            return Err(FsError::Exists);
        }
        let bytes = entry_cost(name) + INODE_COST + record.cost();
        self.files.claim(Need { bytes, leaves: 1 })?;
        record.node.links += 1;
        record.node.changed = stamp(now);
        parent.node.size += entry_size(name);
        (parent.node.modified, parent.node.changed) = (stamp(now), stamp(now));
        self.put_name(&parent, name, (&record, None))
    }

    /// Removes a link from a file that is about to be written.
    pub(super) fn drop_link(&mut self, record: &mut Record, now: Timestamp) -> Result<(), FsError> {
        let node = &mut record.node;
        let directory = kind_is_directory(node.mode);
        node.links = if directory { 0 } else { node.links.saturating_sub(1) };
        node.changed = stamp(now);
        if node.links == 0 && self.files.disk.has_orphans_enough() {
            return Err(FsError::NoSpace);
        }
        Ok(())
    }

    /// Checks that a directory has no names.
    pub(super) fn check_empty(&self, record: &Record) -> Result<(), FsError> {
        let mut any = false;
        self.files.disk.fs.store.names(EntryKind::Directory, record.number(), 0, &mut |_| {
            any = true;
            ControlFlow::Break(())
        })?;
        if any { Err(FsError::NotEmpty) } else { Ok(()) }
    }

    pub(super) fn unname(
        &mut self,
        directory: u64,
        name: &[u8],
        now: Timestamp,
    ) -> Result<(), FsError> {
        self.files.disk.writable()?;
        let mut parent = self.files.load_directory(directory)?;
        if name.len() > NAME_MAX || !is_name(name) {
            return Err(FsError::NotFound);
        }
        let name = &*self.old_name(&parent, name)?;
        let number = self.find_entry(parent.number(), name)?.ok_or(FsError::NotFound)?;
        let mut record = self.files.load(number.into())?;
        let directory = kind(&record) == Some(FileKind::Directory);
        if directory {
            self.check_empty(&record)?;
        }
        self.drop_link(&mut record, now)?;
        let dead = self.files.dead_values(&record)?;
        let values = dead.len() as u64 * INODE_COST;
        let bytes = entry_cost(name) + INODE_COST + record.cost() + values;
        self.files.claim_for_removal(Need { bytes, leaves: 0 })?;
        parent.node.size = parent.node.size.saturating_sub(entry_size(name));
        parent.node.links = parent.node.links.saturating_sub(directory.into());
        (parent.node.modified, parent.node.changed) = (stamp(now), stamp(now));
        let entry = self.entry(EntryKind::Directory, parent.number(), name, (0, 0));
        let mut operation = Operation::new();
        operation.entry(entry).unlinked(&record).dead(&dead).inode(&parent);
        self.perform(operation)
    }
}

fn kind_is_directory(mode: u32) -> bool {
    FileKind::from_mode(mode) == Some(FileKind::Directory)
}
