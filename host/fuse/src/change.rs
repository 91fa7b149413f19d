//! What a mount's users change, as calls of a
//! [`FileSystemMut`](flysch_api::vfs::FileSystemMut).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use flysch_api::vfs::{
    Attributes, Changes, DeviceNumber, Error, FileKind, Inode, NewFile, Rename, Timestamp,
    XattrChange,
};
use fuser::{RenameFlags, Request, TimeOrNow};

use crate::acl;
use crate::door::Door;

/// Set-group-id: who makes something in such a directory makes it for the directory's group.
const SET_GROUP_ID: u16 = 0o2000;

/// A file somebody wants to have.
pub(crate) struct Wanted<'a> {
    pub(crate) kind: FileKind,
    pub(crate) permissions: u32,
    pub(crate) device: DeviceNumber,
    pub(crate) target: &'a [u8],
}

/// The current time as file systems take it.
pub(crate) fn now() -> Timestamp {
    timestamp(SystemTime::now())
}

pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let whole = |since: Duration| i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Timestamp { seconds: whole(since), nanoseconds: since.subsec_nanos() },
        Err(before) => {
            // Nanoseconds count forward, before 1970 too.
            let before = before.duration();
            match before.subsec_nanos() {
                0 => Timestamp { seconds: -whole(before), nanoseconds: 0 },
                part => {
                    Timestamp { seconds: -whole(before) - 1, nanoseconds: 1_000_000_000 - part }
                }
            }
        }
    }
}

/// The attributes that a request names.
pub(crate) fn changes(
    mode: Option<u32>,
    (owner, group): (Option<u32>, Option<u32>),
    size: Option<u64>,
    (accessed, modified): (Option<TimeOrNow>, Option<TimeOrNow>),
    now: Timestamp,
) -> Changes {
    let time = |time| match time {
        TimeOrNow::SpecificTime(time) => timestamp(time),
        TimeOrNow::Now => now,
    };
    Changes {
        permissions: mode.map(|mode| (mode & 0o7777) as u16),
        owner,
        group,
        size,
        accessed: accessed.map(time),
        modified: modified.map(time),
    }
}

impl Door {
    /// Makes a file for the one who asks.
    pub(crate) fn make(
        &self,
        request: &Request,
        directory: Inode,
        name: &OsStr,
        wanted: &Wanted<'_>,
    ) -> Result<Attributes, Error> {
        self.store.change(|fs| {
            let above = fs.attributes(directory)?;
            let mut permissions = (wanted.permissions & 0o7777) as u16;
            let mut group = request.gid();
            if above.permissions & SET_GROUP_ID != 0 {
                group = above.group;
                if wanted.kind == FileKind::Directory {
                    permissions |= SET_GROUP_ID;
                }
            }
            let file = NewFile {
                kind: wanted.kind,
                permissions,
                owner: request.uid(),
                group,
                device: wanted.device,
                target: wanted.target,
            };
            let inode = fs.create(directory, name.as_bytes(), &file, now())?;
            fs.attributes(inode)
        })
    }

    pub(crate) fn remove(&self, directory: Inode, name: &OsStr) -> Result<(), Error> {
        self.store.change(|fs| fs.remove(directory, name.as_bytes(), now()))
    }

    pub(crate) fn rename(
        &self,
        from: (Inode, &OsStr),
        to: (Inode, &OsStr),
        flags: RenameFlags,
    ) -> Result<(), Error> {
        let how = match flags {
            flags if flags.is_empty() => Rename::Replace,
            RenameFlags::RENAME_NOREPLACE => Rename::Keep,
            RenameFlags::RENAME_EXCHANGE => Rename::Exchange,
            RenameFlags::RENAME_WHITEOUT => Rename::Whiteout,
            flags if flags == RenameFlags::RENAME_WHITEOUT | RenameFlags::RENAME_NOREPLACE => {
                Rename::Whiteout
            }
            _ => return Err(Error::Invalid("flags that can not go together")),
        };
        let keeps = flags.contains(RenameFlags::RENAME_NOREPLACE);
        let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
        let renamed = self.store.change(|fs| {
            if keeps && fs.lookup(to.0, to.1).is_ok() {
                return Err(Error::Exists);
            }
            fs.rename(from, to, how, now())
        });
        match renamed {
            // So says renameat2(2) of flags that a file system does not know.
            Err(Error::Unsupported(why)) => Err(Error::Invalid(why)),
            renamed => renamed,
        }
    }

    /// Sets an extended attribute. An access list is the file's permissions, too, and is not kept
    /// where it says no more than they do.
    pub(crate) fn set_xattr(
        &self,
        inode: Inode,
        name: &[u8],
        change: XattrChange<'_>,
    ) -> Result<(), Error> {
        let now = now();
        let list = match change {
            XattrChange::Set(value) if name == acl::ACCESS => acl::permissions(value),
            _ => None,
        };
        self.store.change(|fs| {
            fs.set_xattr(inode, name, change, now)?;
            let Some(list) = list else { return Ok(()) };
            let kept = fs.attributes(inode)?.permissions & !0o777;
            let permissions = Some(kept | list.bits);
            fs.set_attributes(inode, &Changes { permissions, ..Changes::default() }, now)?;
            if list.is_all { fs.set_xattr(inode, name, XattrChange::Remove, now) } else { Ok(()) }
        })
    }
}
