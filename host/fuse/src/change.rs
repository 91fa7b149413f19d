//! Changes by a mount's users, as calls of a [`FileSystemMut`](flysch_api::vfs::FileSystemMut).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use flysch_api::finding::Place;
use flysch_api::vfs::{
    Attributes, Changes, Damage, FileFlags, FileKind, FileSystem, FileSystemMut, FsError, Inode,
    NewFile, Rename, XattrChange,
};
use fuser::{RenameFlags, Request};

use crate::acl::{self, Inherited};
use crate::door::Door;
use crate::wanted::{Wanted, now};

/// Set-group-id: files created in such a directory belong to the directory's group.
const SET_GROUP_ID: u16 = 0o2000;

/// Whether names of a directory are written synchronously.
fn is_dirsync(directory: &Attributes) -> bool {
    directory.flags.intersects(FileFlags::DIRSYNC.with(FileFlags::SYNC))
}

/// A default list without the entries that every list has.
const INVALID_LIST: FsError = FsError::Damaged {
    structure: "default access list",
    place: Place { peb: None, leb: None, offset: None },
    cause: Damage::Field("entries"),
};

/// The access list of a directory for new files in it.
fn default_list(fs: &dyn FileSystem, directory: Inode) -> Result<Option<Vec<u8>>, FsError> {
    match fs.read_xattr(directory, acl::DEFAULT, &mut []) {
        Err(FsError::BufferTooSmall(len)) => {
            let mut list = vec![0; len];
            fs.read_xattr(directory, acl::DEFAULT, &mut list)?;
            // One without entries counts as none.
            Ok(Some(list).filter(|list| list.len() > acl::HEADER_SIZE))
        }
        Err(FsError::NoAttribute) | Ok(_) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Door {
    /// Puts a change on the medium, if it must be there when its call returns.
    pub(crate) fn settle(
        &self,
        fs: &mut dyn FileSystemMut,
        inode: Inode,
        is_sync: bool,
    ) -> Result<(), FsError> {
        if is_sync || self.store.is_through() { fs.sync(Some(inode)) } else { Ok(()) }
    }

    pub(crate) fn write_at(
        &self,
        inode: Inode,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, FsError> {
        self.store.change(|fs| {
            let file = fs.attributes(inode)?;
            file.may_write_at(offset)?;
            let len = fs.write(inode, offset, data, now())?;
            self.settle(fs, inode, file.flags.contains(FileFlags::SYNC))?;
            Ok(len)
        })
    }

    /// Changes attributes as far as flags allow; see [`Attributes::may_change`].
    pub(crate) fn set(
        &self,
        inode: Inode,
        changes: &Changes,
        (is_now, is_open): (bool, bool),
    ) -> Result<Attributes, FsError> {
        self.store.change(|fs| {
            let file = fs.attributes(inode)?;
            file.may_change(changes, is_now, is_open)?;
            fs.set_attributes(inode, changes, now())?;
            self.settle(fs, inode, file.flags.contains(FileFlags::SYNC))?;
            fs.attributes(inode)
        })
    }

    pub(crate) fn link_to(
        &self,
        inode: Inode,
        directory: Inode,
        name: &OsStr,
    ) -> Result<Attributes, FsError> {
        self.store.change(|fs| {
            let above = fs.attributes(directory)?;
            above.may_gain_name()?;
            fs.attributes(inode)?.may_be_linked()?;
            fs.link(inode, directory, name.as_bytes(), now())?;
            self.settle(fs, directory, is_dirsync(&above))?;
            fs.attributes(inode)
        })
    }

    /// Creates a file for the requesting user.
    pub(crate) fn make(
        &self,
        request: &Request,
        directory: Inode,
        name: &OsStr,
        wanted: &Wanted<'_>,
    ) -> Result<Attributes, FsError> {
        self.store.change(|fs| {
            let above = fs.attributes(directory)?;
            above.may_gain_name()?;
            let mut permissions = (wanted.permissions & 0o7777) as u16;
            let mut group = request.gid();
            if above.permissions & SET_GROUP_ID != 0 {
                group = above.group;
                if wanted.kind == FileKind::Directory {
                    permissions |= SET_GROUP_ID;
                }
            }
            let default = match wanted.kind {
                // A symlink has neither lists nor permissions of its own.
                FileKind::Symlink => None,
                _ if self.checks_lists => default_list(fs, directory)?,
                _ => None,
            };
            let Inherited { permissions, lists } = match default {
                Some(list) => {
                    let is_directory = wanted.kind == FileKind::Directory;
                    acl::inherited(&list, permissions, is_directory).ok_or(INVALID_LIST)?
                }
                None => {
                    let permissions = permissions & !(wanted.umask as u16);
                    Inherited { permissions, lists: vec![] }
                }
            };
            let lists: Vec<_> = lists.iter().map(|(name, list)| (*name, &list[..])).collect();
            let file = NewFile {
                kind: wanted.kind,
                permissions,
                owner: request.uid(),
                group,
                device: wanted.device,
                target: wanted.target,
            };
            let at = (directory, name.as_bytes());
            let inode = fs.create_with_xattrs(at, &file, &lists, now())?;
            self.settle(fs, directory, is_dirsync(&above))?;
            fs.attributes(inode)
        })
    }

    pub(crate) fn remove(&self, directory: Inode, name: &OsStr) -> Result<(), FsError> {
        self.store.change(|fs| {
            let above = fs.attributes(directory)?;
            let file = fs.lookup(directory, name.as_bytes())?;
            above.may_lose_name(&fs.attributes(file)?)?;
            fs.remove(directory, name.as_bytes(), now())?;
            self.settle(fs, directory, is_dirsync(&above))
        })
    }

    pub(crate) fn rename(
        &self,
        from: (Inode, &OsStr),
        to: (Inode, &OsStr),
        flags: RenameFlags,
    ) -> Result<(), FsError> {
        let how = match flags {
            flags if flags.is_empty() => Rename::Replace,
            RenameFlags::RENAME_NOREPLACE => Rename::Keep,
            RenameFlags::RENAME_EXCHANGE => Rename::Exchange,
            RenameFlags::RENAME_WHITEOUT => Rename::Whiteout,
            flags if flags == RenameFlags::RENAME_WHITEOUT | RenameFlags::RENAME_NOREPLACE => {
                Rename::Whiteout
            }
            _ => return Err(FsError::Invalid("flags that exclude each other")),
        };
        let keeps = flags.contains(RenameFlags::RENAME_NOREPLACE);
        let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
        let renamed = self.store.change(|fs| {
            let (file, replaced) = (fs.lookup(from.0, from.1)?, fs.lookup(to.0, to.1).ok());
            if keeps && replaced.is_some() {
                return Err(FsError::Exists);
            }
            let above = [fs.attributes(from.0)?, fs.attributes(to.0)?];
            above[0].may_lose_name(&fs.attributes(file)?)?;
            match replaced {
                Some(inode) => above[1].may_lose_name(&fs.attributes(inode)?)?,
                None => above[1].may_gain_name()?,
            }
            fs.rename(from, to, how, now())?;
            self.settle(fs, to.0, above.iter().any(is_dirsync))
        });
        match renamed {
            // So says renameat2(2) of flags that a file system does not know.
            Err(FsError::Unsupported(why)) => Err(FsError::Invalid(why)),
            renamed => renamed,
        }
    }

    /// Sets an extended attribute. An access list also sets the file's permissions, and is not kept
    /// if that is its only content.
    pub(crate) fn set_xattr(
        &self,
        inode: Inode,
        name: &[u8],
        change: XattrChange<'_>,
    ) -> Result<(), FsError> {
        let now = now();
        let list = match change {
            XattrChange::Set(value) if name == acl::ACCESS => acl::permissions(value),
            _ => None,
        };
        self.store.change(|fs| {
            let file = fs.attributes(inode)?;
            file.may_change_xattrs()?;
            let is_sync = file.flags.contains(FileFlags::SYNC);
            let Some(list) = list else {
                fs.set_xattr(inode, name, change, now)?;
                return self.settle(fs, inode, is_sync);
            };
            if !list.is_all {
                fs.set_xattr(inode, name, change, now)?;
            }
            let permissions = Some(file.permissions & !0o777 | list.bits);
            fs.set_attributes(inode, &Changes { permissions, ..Changes::default() }, now)?;
            if list.is_all {
                match fs.set_xattr(inode, name, XattrChange::Remove, now) {
                    Ok(()) | Err(FsError::NoAttribute) => {}
                    Err(error) => return Err(error),
                }
            }
            self.settle(fs, inode, is_sync)
        })
    }
}
