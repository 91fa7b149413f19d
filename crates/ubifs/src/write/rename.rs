//! Moving names.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use flysch_api::vfs::{DeviceNumber, FileKind, FsError, Inode, NewFile, Rename, Timestamp};
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{EntryKind, InodeFlags};

use super::UbifsMut;
use super::budget::{INODE_COST, Need};
use super::cache::Record;
use super::inode::{kind, stamp};
use super::names::{check_name, entry_cost, file_type};
use super::operation::Operation;
use crate::file::{entry_size, kind_of};

/// A name: the directory and the name in it.
type Named<'n> = (Inode, &'n [u8]);

/// The two directories; `to` is `None` if they are the same.
struct Parents {
    from: Record,
    to: Option<Record>,
}

impl Parents {
    fn to(&mut self) -> &mut Record {
        self.to.as_mut().unwrap_or(&mut self.from)
    }

    fn to_number(&self) -> u32 {
        self.to.as_ref().unwrap_or(&self.from).number()
    }

    /// Updates the links for a subdirectory that moves from one to the other.
    fn move_directory(&mut self) {
        if let Some(to) = &mut self.to {
            to.node.links += 1;
            self.from.node.links = self.from.node.links.saturating_sub(1);
        }
    }

    fn write<'o>(&'o self, operation: &mut Operation<'o>) {
        operation.inode(&self.from);
        if let Some(to) = &self.to {
            operation.inode(to);
        }
    }

    fn touch(&mut self, now: Timestamp) {
        for record in core::iter::once(&mut self.from).chain(&mut self.to) {
            (record.node.modified, record.node.changed) = (stamp(now), stamp(now));
        }
    }
}

impl<V: VolumeMut> UbifsMut<V> {
    pub(super) fn move_name(
        &mut self,
        from: Named<'_>,
        to: Named<'_>,
        how: Rename,
        now: Timestamp,
    ) -> Result<(), FsError> {
        self.files.disk.writable()?;
        let old_parent = self.files.load_directory(from.0.0)?;
        let new_parent = self.files.load_directory(to.0.0)?;
        check_name(to.1)?;
        if !crate::file::is_name(from.1) {
            return Err(FsError::NotFound);
        }
        let old_name = &*self.old_name(&old_parent, from.1)?;
        let new_name = &*self.new_name(&new_parent, to.1)?;
        let number = self.find_entry(old_parent.number(), old_name)?.ok_or(FsError::NotFound)?;
        let moved = self.files.load(number.into())?;
        let replaced = match self.find_entry(new_parent.number(), new_name)? {
            Some(_) if how == Rename::Keep => return Err(FsError::Exists),
            Some(other) => Some(self.files.load(other.into())?),
            None if how == Rename::Exchange => return Err(FsError::NotFound),
            None => None,
        };
        if replaced.as_ref().is_some_and(|it| it.number() == number) {
            return Ok(());
        }
        self.check_policy(&new_parent, &moved)?;
        let same = old_parent.number() == new_parent.number();
        let parents = Parents { from: old_parent, to: (!same).then_some(new_parent) };
        self.check_circle(&parents, Some(&moved), parents.to_number())?;
        if how == Rename::Exchange {
            let other = replaced.ok_or(FsError::NotFound)?;
            self.check_circle(&parents, Some(&other), parents.from.number())?;
            self.check_policy(&parents.from, &other)?;
            return self.exchange(parents, (old_name, &moved), (new_name, &other), now);
        }
        self.replace(parents, (old_name, moved), (new_name, replaced), (how, now))
    }

    /// Checks that a directory does not move below itself: `target` must not be below `moved`.
    fn check_circle(
        &self,
        parents: &Parents,
        moved: Option<&Record>,
        target: u32,
    ) -> Result<(), FsError> {
        let Some(moved) = moved else { return Ok(()) };
        if kind(moved) != Some(FileKind::Directory) || parents.to.is_none() {
            return Ok(());
        }
        // There are no pointers to parents, so everything below is searched, except directories
        // whose link count says that they contain no others. A damaged tree may have cycles.
        let mut waiting = alloc::vec![moved.number()];
        let mut seen = BTreeSet::new();
        while let Some(directory) = waiting.pop() {
            if directory == target {
                return Err(FsError::Invalid("a directory cannot be moved below itself"));
            }
            let is_last = self.files.load_any(directory).is_ok_and(|record| record.node.links <= 2);
            if is_last || !seen.insert(directory) {
                continue;
            }
            let mut refused = None;
            self.files.disk.fs.store.names(EntryKind::Directory, directory, 0, &mut |name| {
                match &name.entry {
                    Ok(entry) if kind_of(entry.file_type) == Some(FileKind::Directory) => {
                        waiting.extend(u32::try_from(entry.inode).ok());
                    }
                    Err(fault) if fault.is_refusal() => refused = Some(*fault),
                    _ => {}
                }
                ControlFlow::Continue(())
            })?;
            if let Some(fault) = refused {
                return Err(fault.into());
            }
        }
        Ok(())
    }

    fn exchange(
        &mut self,
        mut parents: Parents,
        (old_name, moved): (&[u8], &Record),
        (new_name, other): (&[u8], &Record),
        now: Timestamp,
    ) -> Result<(), FsError> {
        let bytes = entry_cost(old_name)
            + entry_cost(new_name)
            + 2 * INODE_COST
            + moved.cost()
            + other.cost();
        self.files.claim(Need { bytes, leaves: 0 })?;
        let (old, new) = (parents.from.number(), parents.to_number());
        let is_directory = |record: &Record| kind(record) == Some(FileKind::Directory);
        match (is_directory(moved), is_directory(other)) {
            (true, false) => parents.move_directory(),
            (false, true) => {
                if let Some(to) = &mut parents.to {
                    to.node.links = to.node.links.saturating_sub(1);
                    parents.from.node.links += 1;
                }
            }
            _ => {}
        }
        parents.touch(now);
        let (mut moved, mut other) = (moved.clone(), other.clone());
        (moved.node.changed, other.node.changed) = (stamp(now), stamp(now));
        let kind_of = |record: &Record| (record.number(), file_type(kind(record)));
        let here = self.entry(EntryKind::Directory, new, new_name, kind_of(&moved));
        let there = self.entry(EntryKind::Directory, old, old_name, kind_of(&other));
        let mut operation = Operation::new();
        operation.entry(here).entry(there);
        parents.write(&mut operation);
        operation.keep(moved).keep(other);
        self.perform(operation)
    }

    fn replace(
        &mut self,
        mut parents: Parents,
        (old_name, mut moved): (&[u8], Record),
        (new_name, mut replaced): (&[u8], Option<Record>),
        (how, now): (Rename, Timestamp),
    ) -> Result<(), FsError> {
        let is_directory = kind(&moved) == Some(FileKind::Directory);
        if let Some(replaced) = &mut replaced {
            self.check_replaced(is_directory, replaced)?;
            self.drop_link(replaced, now)?;
        }
        let dead = match &replaced {
            Some(replaced) => self.files.dead_values(replaced)?,
            None => Vec::new(),
        };
        let other = replaced.as_ref().map_or(0, Record::cost) + dead.len() as u64 * INODE_COST;
        let bytes =
            entry_cost(old_name) + entry_cost(new_name) + 3 * INODE_COST + moved.cost() + other;
        self.files.claim(Need { bytes, leaves: if how == Rename::Whiteout { 2 } else { 1 } })?;
        let (old, new) = (parents.from.number(), parents.to_number());
        parents.touch(now);
        moved.node.changed = stamp(now);
        if is_directory {
            parents.move_directory();
        }
        match &replaced {
            // The name already exists; a replaced directory takes its ".." with it.
            Some(replaced) => {
                let gone = u32::from(kind(replaced) == Some(FileKind::Directory));
                let to = parents.to();
                to.node.links = to.node.links.saturating_sub(gone);
            }
            None => parents.to().node.size += entry_size(new_name),
        }
        let whiteout = match how {
            Rename::Whiteout => Some(self.whiteout(&parents.from, now)?),
            _ => None,
        };
        if whiteout.is_none() {
            let size = &mut parents.from.node.size;
            *size = size.saturating_sub(entry_size(old_name));
        }
        let to = (moved.number(), file_type(kind(&moved)));
        let here = self.entry(EntryKind::Directory, new, new_name, to);
        let left = whiteout.as_ref().map_or((0, 0), |it| (it.number(), file_type(kind(it))));
        let there = self.entry(EntryKind::Directory, old, old_name, left);
        let mut operation = Operation::new();
        operation.entry(here).entry(there);
        if let Some(replaced) = &replaced {
            operation.unlinked(replaced);
        }
        if let Some(whiteout) = &whiteout {
            operation.inode(whiteout);
        }
        parents.write(&mut operation);
        // Only one of its times changed, and many files are removed before that must be written.
        operation.dead(&dead).keep(moved);
        self.perform(operation)
    }

    /// Checks that a file may be replaced by a directory, or by another kind of file.
    fn check_replaced(&self, is_directory: bool, replaced: &Record) -> Result<(), FsError> {
        match (is_directory, kind(replaced) == Some(FileKind::Directory)) {
            (true, true) => self.check_empty(replaced),
            (true, false) => Err(FsError::NotDirectory),
            (false, true) => Err(FsError::IsDirectory),
            (false, false) => Ok(()),
        }
    }

    /// The whiteout that replaces a moved name for overlayfs.
    fn whiteout(&mut self, parent: &Record, now: Timestamp) -> Result<Record, FsError> {
        let file = NewFile {
            kind: FileKind::CharacterDevice,
            permissions: 0,
            owner: 0,
            group: 0,
            device: DeviceNumber::default(),
            target: &[],
        };
        let mut record = self.new_record(parent, &file, now)?;
        record.node.flags = InodeFlags(parent.node.flags.0 & InodeFlags::COMPRESS.0);
        Ok(record)
    }
}
