//! A file system that implements only its contract: everything in memory, nothing stored.
//!
//! Other file systems are compared with it, and front ends are tested with it. Content is kept as
//! bytes, including holes, so it is for files of megabytes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::{Bound, ControlFlow};

use flysch_api::vfs::{
    Attributes, Changes, DeviceNumber, Entry, FileFlags, FileKind, FileSystem, FileSystemMut,
    FsError, Inode, NameVisitor, NewFile, Rename, Statistics, Timestamp, Visitor, XattrChange,
};

/// Longest name, bytes.
const NAME_MAX: usize = 255;
/// Longest file, bytes.
const SIZE_MAX: u64 = 1 << 30;
/// Extended attributes it keeps.
const NAMESPACES: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system.posix_acl_"];
const BLOCK_SIZE: u32 = 4096;

/// A file system in memory. Clones are independent: a clone is a snapshot.
#[derive(Clone, Debug)]
pub struct Memory {
    files: BTreeMap<Inode, File>,
    /// Inode numbers are not reused.
    next: u64,
    /// Capacity for content, bytes.
    capacity: u64,
    used: u64,
    /// Number of calls that synced a single file.
    synced: u64,
}

#[derive(Clone, Debug)]
struct File {
    attributes: Attributes,
    /// Content of a regular file, target of a symlink.
    content: Vec<u8>,
    directory: Directory,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Names of a directory. Each keeps its position for as long as it exists.
#[derive(Clone, Debug, Default)]
struct Directory {
    names: BTreeMap<Vec<u8>, (u64, Inode)>,
    positions: BTreeMap<u64, Vec<u8>>,
    last: u64,
    /// The parent directory; none for the root and for what was removed.
    parent: Option<Inode>,
}

impl Directory {
    fn insert(&mut self, name: &[u8], inode: Inode) {
        self.last += 1;
        if let Some((old, _)) = self.names.insert(name.to_vec(), (self.last, inode)) {
            self.positions.remove(&old);
        }
        self.positions.insert(self.last, name.to_vec());
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some((position, _)) = self.names.remove(name) {
            self.positions.remove(&position);
        }
    }
}

/// Whether a name is valid.
fn check_name(name: &[u8]) -> Result<(), FsError> {
    if name.is_empty() || name == b"." || name == b".." {
        return Err(FsError::Invalid("the name is empty, . or .."));
    }
    if name.contains(&0) || name.contains(&b'/') {
        return Err(FsError::Invalid("a name must not contain NUL or /"));
    }
    if name.len() > NAME_MAX { Err(FsError::NameTooLong) } else { Ok(()) }
}

impl Memory {
    /// An empty file system for `capacity` bytes of content, whose root is owned by 0:0 and has the
    /// time `now`.
    pub fn new(capacity: u64, now: Timestamp) -> Self {
        let root = NewFile {
            kind: FileKind::Directory,
            permissions: 0o755,
            owner: 0,
            group: 0,
            device: DeviceNumber::default(),
            target: &[],
        };
        let mut files = BTreeMap::new();
        files.insert(Inode(1), File::new(Inode(1), &root, now));
        Self { files, next: 2, capacity, used: 0, synced: 0 }
    }

    /// Names of a directory and their inodes; none for anything else.
    pub(crate) fn names(&self, directory: Inode) -> Vec<(Vec<u8>, Inode)> {
        let names = self.files.get(&directory).map(|file| &file.directory.names);
        let pair = |(name, (_, inode)): (&Vec<u8>, &(u64, Inode))| (name.clone(), *inode);
        names.into_iter().flatten().map(pair).collect()
    }

    /// How often single files were synced.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// Gives a file the owner, permissions and times of another.
    pub(crate) fn adopt(&mut self, inode: Inode, from: &Attributes) {
        if let Some(file) = self.files.get_mut(&inode) {
            let Attributes { permissions, owner, group, accessed, modified, changed, .. } = *from;
            let own = file.attributes;
            file.attributes =
                Attributes { permissions, owner, group, accessed, modified, changed, ..own };
        }
    }

    fn file(&self, inode: Inode) -> Result<&File, FsError> {
        self.files.get(&inode).ok_or(FsError::NotFound)
    }

    fn file_mut(&mut self, inode: Inode) -> Result<&mut File, FsError> {
        self.files.get_mut(&inode).ok_or(FsError::NotFound)
    }

    fn directory(&self, inode: Inode) -> Result<&Directory, FsError> {
        let file = self.file(inode)?;
        match file.attributes.kind {
            FileKind::Directory => Ok(&file.directory),
            _ => Err(FsError::NotDirectory),
        }
    }

    /// A directory to which a name can be added: one that still has a name itself.
    fn living_directory(&self, inode: Inode) -> Result<&Directory, FsError> {
        let directory = self.directory(inode)?;
        match self.file(inode)?.attributes.links {
            0 => Err(FsError::NotFound),
            _ => Ok(directory),
        }
    }

    /// Adds and removes names, and maintains the link counts.
    fn put(&mut self, directory: Inode, name: &[u8], inode: Inode, now: Timestamp) {
        let is_directory = self.files[&inode].attributes.kind == FileKind::Directory;
        let above = self.files.get_mut(&directory).expect("checked by the caller");
        above.directory.insert(name, inode);
        above.attributes.links += u32::from(is_directory);
        above.touch(now);
        if is_directory {
            let file = self.files.get_mut(&inode).expect("checked by the caller");
            file.directory.parent = Some(directory);
        }
    }

    fn take(&mut self, directory: Inode, name: &[u8], inode: Inode, now: Timestamp) {
        let is_directory = self.files[&inode].attributes.kind == FileKind::Directory;
        let above = self.files.get_mut(&directory).expect("checked by the caller");
        above.directory.remove(name);
        above.attributes.links -= u32::from(is_directory);
        above.touch(now);
    }

    /// Removes a name; a directory then has none left.
    fn lose(&mut self, inode: Inode, now: Timestamp) {
        let file = self.files.get_mut(&inode).expect("checked by the caller");
        file.attributes.changed = now;
        if file.attributes.kind == FileKind::Directory {
            file.attributes.links = 0;
            file.directory.parent = None;
        } else {
            file.attributes.links -= 1;
        }
    }

    /// Whether `inode` is `below` or an ancestor of it.
    fn is_above(&self, inode: Inode, below: Inode) -> bool {
        let mut at = Some(below);
        while let Some(here) = at {
            if here == inode {
                return true;
            }
            at = self.files.get(&here).and_then(|file| file.directory.parent);
        }
        false
    }

    /// Whether `moved` may replace `replaced`.
    fn check_replace(&self, moved: Inode, replaced: Inode) -> Result<(), FsError> {
        let is_directory =
            |inode| self.file(inode).map(|file: &File| file.attributes.kind == FileKind::Directory);
        match (is_directory(moved)?, is_directory(replaced)?) {
            (true, false) => Err(FsError::NotDirectory),
            (false, true) => Err(FsError::IsDirectory),
            (true, true) if !self.directory(replaced)?.names.is_empty() => Err(FsError::NotEmpty),
            _ => Ok(()),
        }
    }

    /// Changes the length of a file's content.
    fn resize(&mut self, inode: Inode, size: u64) -> Result<(), FsError> {
        let file = self.file(inode)?;
        match file.attributes.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(FsError::IsDirectory),
            _ => return Err(FsError::NoContent),
        }
        if size > SIZE_MAX {
            return Err(FsError::FileTooLarge);
        }
        let used = self.used - file.content.len() as u64 + size;
        if used > self.capacity && size > file.content.len() as u64 {
            return Err(FsError::NoSpace);
        }
        self.used = used;
        let file = self.file_mut(inode)?;
        file.content.resize(size as usize, 0);
        file.attributes.size = size;
        file.attributes.blocks = size.div_ceil(512);
        Ok(())
    }
}

impl File {
    fn new(inode: Inode, new: &NewFile<'_>, now: Timestamp) -> Self {
        let is_symlink = new.kind == FileKind::Symlink;
        let content = if is_symlink { new.target.to_vec() } else { Vec::new() };
        let attributes = Attributes {
            inode,
            kind: new.kind,
            permissions: new.permissions & 0o7777,
            links: if new.kind == FileKind::Directory { 2 } else { 1 },
            owner: new.owner,
            group: new.group,
            size: content.len() as u64,
            blocks: 0,
            accessed: now,
            modified: now,
            changed: now,
            device: new.device,
            flags: FileFlags::default(),
        };
        Self { attributes, content, directory: Directory::default(), xattrs: BTreeMap::new() }
    }

    /// Notes that content or names were changed.
    fn touch(&mut self, now: Timestamp) {
        self.attributes.modified = now;
        self.attributes.changed = now;
    }
}

impl FileSystem for Memory {
    fn statistics(&self) -> Statistics {
        let blocks = self.capacity / u64::from(BLOCK_SIZE);
        let free = self.capacity.saturating_sub(self.used) / u64::from(BLOCK_SIZE);
        Statistics {
            format: "memory",
            root: Inode(1),
            block_size: BLOCK_SIZE,
            blocks,
            blocks_free: free,
            files: Some(self.files.len() as u64),
            name_max: NAME_MAX as u32,
        }
    }

    fn lookup(&self, directory: Inode, name: &[u8]) -> Result<Inode, FsError> {
        let found = self.directory(directory)?.names.get(name);
        found.map(|(_, inode)| *inode).ok_or(FsError::NotFound)
    }

    fn attributes(&self, inode: Inode) -> Result<Attributes, FsError> {
        self.file(inode).map(|file| file.attributes)
    }

    fn list(
        &self,
        directory: Inode,
        position: u64,
        visit: &mut Visitor<'_>,
    ) -> Result<(), FsError> {
        let directory = self.directory(directory)?;
        let behind = (Bound::Excluded(position), Bound::Unbounded);
        for (position, name) in directory.positions.range(behind) {
            let inode = directory.names[name].1;
            let kind = self.files[&inode].attributes.kind;
            let entry = Entry { name, inode, kind, position: *position };
            if visit(entry) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn read(&self, inode: Inode, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        let file = self.file(inode)?;
        match file.attributes.kind {
            FileKind::Regular | FileKind::Symlink => {}
            FileKind::Directory => return Err(FsError::IsDirectory),
            _ => return Err(FsError::NoContent),
        }
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(file.content.len());
        let len = buffer.len().min(file.content.len() - start);
        buffer[..len].copy_from_slice(&file.content[start..start + len]);
        Ok(len)
    }

    fn list_xattrs(&self, inode: Inode, visit: &mut NameVisitor<'_>) -> Result<(), FsError> {
        self.file(inode)?.xattrs.keys().for_each(|name| visit(name));
        Ok(())
    }

    fn read_xattr(&self, inode: Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize, FsError> {
        let value = self.file(inode)?.xattrs.get(name).ok_or(FsError::NoAttribute)?;
        let space = buffer.get_mut(..value.len()).ok_or(FsError::BufferTooSmall(value.len()))?;
        space.copy_from_slice(value);
        Ok(value.len())
    }
}

impl FileSystemMut for Memory {
    fn create(
        &mut self,
        directory: Inode,
        name: &[u8],
        file: &NewFile<'_>,
        now: Timestamp,
    ) -> Result<Inode, FsError> {
        check_name(name)?;
        if self.living_directory(directory)?.names.contains_key(name) {
            return Err(FsError::Exists);
        }
        let is_symlink = file.kind == FileKind::Symlink;
        if is_symlink && (file.target.is_empty() || file.target.contains(&0)) {
            return Err(FsError::Invalid("a symlink's target must not be empty or contain NUL"));
        }
        let inode = Inode(self.next);
        self.next += 1;
        self.files.insert(inode, File::new(inode, file, now));
        self.put(directory, name, inode, now);
        Ok(inode)
    }

    fn link(
        &mut self,
        inode: Inode,
        directory: Inode,
        name: &[u8],
        now: Timestamp,
    ) -> Result<(), FsError> {
        check_name(name)?;
        let attributes = self.file(inode)?.attributes;
        if attributes.kind == FileKind::Directory {
            return Err(FsError::IsDirectory);
        }
        if attributes.links == 0 {
            return Err(FsError::NotFound);
        }
        if self.living_directory(directory)?.names.contains_key(name) {
            return Err(FsError::Exists);
        }
        let file = self.file_mut(inode)?;
        file.attributes.links += 1;
        file.attributes.changed = now;
        self.put(directory, name, inode, now);
        Ok(())
    }

    fn remove(&mut self, directory: Inode, name: &[u8], now: Timestamp) -> Result<(), FsError> {
        let inode = self.lookup(directory, name)?;
        let file = self.file(inode)?;
        if !file.directory.names.is_empty() {
            return Err(FsError::NotEmpty);
        }
        self.take(directory, name, inode, now);
        self.lose(inode, now);
        Ok(())
    }

    fn rename(
        &mut self,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
        how: Rename,
        now: Timestamp,
    ) -> Result<(), FsError> {
        let moved = self.lookup(from.0, from.1)?;
        check_name(to.1)?;
        self.living_directory(to.0)?;
        let replaced = self.lookup(to.0, to.1).ok();
        if self.is_above(moved, to.0) {
            return Err(FsError::Invalid("a directory cannot be moved below itself"));
        }
        match (how, replaced) {
            (Rename::Keep, Some(_)) => return Err(FsError::Exists),
            (Rename::Exchange, None) => return Err(FsError::NotFound),
            // Two names of one file, or twice the same name: nothing happens, as in Linux.
            (_, Some(other)) if other == moved => return Ok(()),
            (Rename::Exchange, Some(other)) => {
                if self.is_above(other, from.0) {
                    return Err(FsError::Invalid("a directory cannot be moved below itself"));
                }
                self.take(from.0, from.1, moved, now);
                self.take(to.0, to.1, other, now);
                self.put(from.0, from.1, other, now);
                self.put(to.0, to.1, moved, now);
                self.file_mut(moved)?.attributes.changed = now;
                self.file_mut(other)?.attributes.changed = now;
                return Ok(());
            }
            (_, Some(other)) => {
                self.check_replace(moved, other)?;
                self.take(to.0, to.1, other, now);
                self.lose(other, now);
            }
            (_, None) => {}
        }
        self.take(from.0, from.1, moved, now);
        self.put(to.0, to.1, moved, now);
        self.file_mut(moved)?.attributes.changed = now;
        if how == Rename::Whiteout {
            let whiteout = NewFile {
                kind: FileKind::CharacterDevice,
                permissions: 0,
                owner: 0,
                group: 0,
                device: DeviceNumber::default(),
                target: &[],
            };
            self.create(from.0, from.1, &whiteout, now)?;
        }
        Ok(())
    }

    fn set_attributes(
        &mut self,
        inode: Inode,
        changes: &Changes,
        now: Timestamp,
    ) -> Result<(), FsError> {
        if let Some(size) = changes.size {
            self.resize(inode, size)?;
            self.file_mut(inode)?.attributes.modified = now;
        }
        let attributes = &mut self.file_mut(inode)?.attributes;
        attributes.changed = now;
        attributes.permissions = changes.permissions.unwrap_or(attributes.permissions) & 0o7777;
        attributes.owner = changes.owner.unwrap_or(attributes.owner);
        attributes.group = changes.group.unwrap_or(attributes.group);
        attributes.accessed = changes.accessed.unwrap_or(attributes.accessed);
        attributes.modified = changes.modified.unwrap_or(attributes.modified);
        attributes.flags = changes.flags.unwrap_or(attributes.flags);
        Ok(())
    }

    fn write(
        &mut self,
        inode: Inode,
        offset: u64,
        data: &[u8],
        now: Timestamp,
    ) -> Result<usize, FsError> {
        let size = self.attributes(inode)?.size;
        let end = offset.checked_add(data.len() as u64).ok_or(FsError::FileTooLarge)?;
        self.resize(inode, if data.is_empty() { size } else { size.max(end) })?;
        if data.is_empty() {
            return Ok(0);
        }
        let file = self.file_mut(inode)?;
        file.content[offset as usize..end as usize].copy_from_slice(data);
        file.touch(now);
        Ok(data.len())
    }

    fn set_xattr(
        &mut self,
        inode: Inode,
        name: &[u8],
        change: XattrChange<'_>,
        now: Timestamp,
    ) -> Result<(), FsError> {
        if !NAMESPACES.iter().any(|space| name.starts_with(space)) {
            return Err(FsError::Unsupported("extended attributes of this namespace"));
        }
        let file = self.file_mut(inode)?;
        let is_there = file.xattrs.contains_key(name);
        match (change, is_there) {
            (XattrChange::Create(_), true) => return Err(FsError::Exists),
            (XattrChange::Replace(_) | XattrChange::Remove, false) => {
                return Err(FsError::NoAttribute);
            }
            (XattrChange::Remove, true) => drop(file.xattrs.remove(name)),
            (
                XattrChange::Set(value) | XattrChange::Create(value) | XattrChange::Replace(value),
                _,
            ) => drop(file.xattrs.insert(name.to_vec(), value.to_vec())),
        }
        file.attributes.changed = now;
        Ok(())
    }

    fn sync(&mut self, inode: Option<Inode>) -> Result<(), FsError> {
        self.synced += u64::from(inode.is_some());
        Ok(())
    }

    fn forget(&mut self, inode: Inode) -> Result<(), FsError> {
        if let Some(file) = self.files.get(&inode)
            && file.attributes.links == 0
        {
            let regular = file.attributes.kind == FileKind::Regular;
            self.used -= if regular { file.content.len() as u64 } else { 0 };
            self.files.remove(&inode);
        }
        Ok(())
    }
}
