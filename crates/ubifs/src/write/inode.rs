//! Inodes: loading, changing attributes, deleting unused ones.

use alloc::vec::Vec;

use flysch_api::vfs::{Changes, FileFlags, FileKind, FsError, Timestamp};
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{InodeFlags, InodeNode, Key, Node};

use super::BASE;
use super::budget::Need;
use super::cache::Record;
use super::files::Files;
use crate::access::Scratch;
use crate::file::node_flags;
use crate::location::Location;

/// A time as stored in nodes.
pub(super) fn stamp(time: Timestamp) -> (u64, u32) {
    (time.seconds as u64, time.nanoseconds)
}

/// The kind of an inode; inode nodes are checked when they are loaded.
pub(super) fn kind(record: &Record) -> Option<FileKind> {
    FileKind::from_mode(record.node.mode)
}

impl<V: VolumeMut> Files<V> {
    /// The current inode with this number, including those of attribute values.
    pub(super) fn load_any(&self, number: u32) -> Result<Record, FsError> {
        match self.cache.inode(number) {
            Some(record) => Ok(record.clone()),
            None => self.disk.inode(number),
        }
    }

    /// The current inode of a file.
    pub(super) fn load(&self, number: u64) -> Result<Record, FsError> {
        let number = crate::store::number(number)?;
        let record = self.load_any(number)?;
        if record.has(InodeFlags::XATTR) { Err(FsError::NotFound) } else { Ok(record) }
    }

    /// The inode of a directory that names can be added to.
    pub(super) fn load_directory(&self, number: u64) -> Result<Record, FsError> {
        let record = self.load(number)?;
        if kind(&record) != Some(FileKind::Directory) {
            return Err(FsError::NotDirectory);
        }
        if record.node.links == 0 { Err(FsError::NotFound) } else { Ok(record) }
    }

    /// Keeps a changed inode in memory until it is written; its space must have been claimed.
    pub(super) fn keep(&mut self, record: Record) -> Result<(), FsError> {
        self.disk.changed = true;
        self.cache.put_inode(record);
        if self.cache.is_full() { self.write_back_all() } else { Ok(()) }
    }

    /// Whether an inode differs from the stored one only in its times, if at all.
    pub(super) fn differs_in_times(&self, number: u32) -> Result<bool, FsError> {
        let Some(record) = self.cache.inode(number) else { return Ok(true) };
        let store = self.disk.store();
        let Some(at) = store.find(record.key())? else { return Ok(false) };
        let mut scratch = Scratch::new();
        let stored = store.inode(number, at, &mut scratch)?;
        let InodeNode { accessed, changed, modified, creation_sequence, .. } = stored;
        let waiting = record.node();
        Ok(stored == InodeNode { accessed, changed, modified, creation_sequence, ..waiting })
    }

    /// Records that an inode was written with others and no longer waits.
    pub(super) fn written(&mut self, key: Key, at: Location) -> Result<(), FsError> {
        self.cache.take_inode(key.inode());
        self.disk.set(key, at)
    }

    pub(super) fn change_attributes(
        &mut self,
        number: u64,
        changes: &Changes,
        now: Timestamp,
    ) -> Result<(), FsError> {
        let mut record = self.load(number)?;
        if let Some(size) = changes.size {
            match kind(&record) {
                Some(FileKind::Regular) => {}
                Some(FileKind::Directory) => return Err(FsError::IsDirectory),
                _ => return Err(FsError::NoContent),
            }
            self.check_size(size)?;
            self.content_cipher(&record)?;
        }
        if let Some(flags) = changes.flags {
            let why = "a flag that UBIFS does not have";
            let flags = match kind(&record) {
                Some(FileKind::Directory) => flags,
                _ => flags.without(FileFlags::DIRSYNC),
            };
            record.node.flags =
                node_flags(record.node.flags, flags).ok_or(FsError::Unsupported(why))?;
        }
        let known = self.cache.inode(record.number()).is_some();
        let bytes = if known { 0 } else { record.cost() };
        let need = Need { bytes, leaves: 0 };
        match changes.size.is_some_and(|size| size < record.node.size) {
            true => self.claim_for_removal(need)?,
            false => self.claim(need)?,
        }
        if let Some(size) = changes.size {
            self.resize(&mut record, size, now)?;
        }
        let node = &mut record.node;
        if let Some(permissions) = changes.permissions {
            node.mode = node.mode & !0o7777 | u32::from(permissions & 0o7777);
        }
        node.owner = changes.owner.unwrap_or(node.owner);
        node.group = changes.group.unwrap_or(node.group);
        node.accessed = changes.accessed.map_or(node.accessed, stamp);
        node.modified = changes.modified.map_or(node.modified, stamp);
        node.changed = stamp(now);
        self.keep(record)
    }

    /// The deletions of attribute values that must be written with the last node of a file. Replay
    /// cannot look them up if the entries that lead to them have since been erased.
    pub(super) fn dead_values(&self, record: &Record) -> Result<Vec<Record>, FsError> {
        if record.node.links != 0 || record.node.xattr_count == 0 {
            return Ok(Vec::new());
        }
        let dead = |number| {
            let mut value = self.load_any(number)?;
            (value.node.links, value.node.size) = (0, 0);
            value.data.clear();
            Ok(value)
        };
        self.disk.store().xattr_inodes(record.number())?.into_iter().map(dead).collect()
    }

    /// Deletes a file if it has no name left.
    pub(super) fn forget_orphan(&mut self, number: u32) -> Result<(), FsError> {
        let Some(commit) = self.disk.orphans.since(number) else { return Ok(()) };
        self.disk.writable()?;
        self.cache.drop_blocks(number, 0);
        self.cache.take_inode(number);
        // The journal already has the node without links, unless a commit came in between.
        if commit != self.disk.master.node.commit {
            let mut record = self.load_any(number)?;
            record.node.links = 0;
            let dead = self.dead_values(&record)?;
            let nodes = dead.iter().chain([&record]).map(|record| Node::Inode(record.node()));
            self.journal(BASE, &nodes.collect::<Vec<_>>())?;
        }
        self.disk.changed = true;
        self.disk.remove_inode(number)?;
        self.disk.orphans.forget(number);
        Ok(())
    }
}
