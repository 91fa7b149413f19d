//! Owners, permissions, extended attributes, times - in this order: a new owner clears the
//! set-user-id bit and capabilities, and everything else changes the times.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use flysch_api::vfs::{Attributes, FileKind, FsError, Timestamp};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::{Cause, Run};

/// Longest value of an extended attribute in Linux, bytes.
const VALUE_MAX: usize = 64 << 10;

/// Permissions with which a file belongs to its owner.
const SET_ID: u16 = 0o6000;

fn times(attributes: &Attributes) -> Timestamps {
    let time =
        |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds) };
    Timestamps {
        last_access: time(attributes.accessed),
        last_modification: time(attributes.modified),
    }
}

/// Owner and group, each `None` if no call sets it.
type Ids = (Option<Uid>, Option<Gid>);

fn ids(attributes: &Attributes) -> Ids {
    // All ones mean "leave it alone" to the system call.
    let id = |id: u32| (id != u32::MAX).then_some(id);
    (id(attributes.owner).map(Uid::from_raw), id(attributes.group).map(Gid::from_raw))
}

impl Run<'_> {
    /// Whether the file has its owner now; it may lack it merely for lack of rights.
    fn owner_set(&self, result: Result<(), Errno>, ids: Ids) -> Result<bool, Errno> {
        match result {
            Err(Errno::PERM | Errno::INVAL) => {
                self.report(|report| report.without_owner += 1);
                Ok(false)
            }
            other => other.map(|()| ids.0.is_some() && ids.1.is_some()),
        }
    }

    /// The mode of a file. Without its owner it belongs to whoever extracts, and must not run with
    /// his rights for everybody.
    fn mode(&self, attributes: &Attributes, has_owner: bool) -> Mode {
        let wanted = attributes.permissions;
        if has_owner || wanted & SET_ID == 0 {
            return Mode::from_raw_mode(u32::from(wanted));
        }
        self.report(|report| report.without_set_id += 1);
        Mode::from_raw_mode(u32::from(wanted & !SET_ID))
    }

    /// Restores a file that is open for writing; `is_owned`: owner and mode are already right.
    pub(super) fn restore_file(
        &self,
        file: &OwnedFd,
        attributes: &Attributes,
        is_owned: bool,
        path: impl Fn() -> Vec<u8>,
    ) {
        let restored = match is_owned {
            true => self.restore_rest(file.as_fd(), attributes),
            false => self.restore(file.as_fd(), attributes),
        };
        if let Err(cause) = restored {
            self.lacks(path(), cause);
        }
    }

    /// Restores a directory by its handle.
    pub(super) fn restore_open(&self, handle: &OwnedFd, attributes: &Attributes, path: &[u8]) {
        if let Err(cause) = self.restore(handle.as_fd(), attributes) {
            self.lacks(path.to_vec(), cause);
        }
    }

    fn restore(&self, file: BorrowedFd<'_>, attributes: &Attributes) -> Result<(), Cause> {
        let ids = ids(attributes);
        let has_owner = self.owner_set(rustix::fs::fchown(file, ids.0, ids.1), ids)?;
        rustix::fs::fchmod(file, self.mode(attributes, has_owner))?;
        self.restore_rest(file, attributes)
    }

    /// Extended attributes and times.
    fn restore_rest(&self, file: BorrowedFd<'_>, attributes: &Attributes) -> Result<(), Cause> {
        let xattrs = self.each_xattr(attributes, |name, value| {
            rustix::fs::fsetxattr(file, name, value, XattrFlags::empty())
        });
        rustix::fs::futimens(file, &times(attributes))?;
        xattrs
    }

    /// Restores something that cannot be opened for writing, by its name.
    pub(super) fn restore_named(
        &self,
        directory: &OwnedFd,
        name: &[u8],
        attributes: &Attributes,
        path: impl Fn() -> Vec<u8>,
    ) -> Result<(), Cause> {
        let no_follow = AtFlags::SYMLINK_NOFOLLOW;
        let ids = ids(attributes);
        let done = rustix::fs::chownat(directory, name, ids.0, ids.1, no_follow);
        let has_owner = self.owner_set(done, ids)?;
        if attributes.kind != FileKind::Symlink {
            let mode = self.mode(attributes, has_owner);
            rustix::fs::chmodat(directory, name, mode, AtFlags::empty())?;
        }
        let xattrs = self.each_xattr(attributes, |key, value| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let handle = rustix::fs::openat(directory, name, flags, Mode::empty())?;
            // The kernel's own link leads to what was opened, a symlink included.
            let through = format!("/proc/self/fd/{}", handle.as_raw_fd());
            rustix::fs::setxattr(through, key, value, XattrFlags::empty())
        });
        if let Err(cause) = xattrs {
            self.lacks(path(), cause);
        }
        rustix::fs::utimensat(directory, name, &times(attributes), no_follow)?;
        Ok(())
    }

    /// Reads every extended attribute and passes it to `set`.
    fn each_xattr(
        &self,
        attributes: &Attributes,
        set: impl Fn(&[u8], &[u8]) -> Result<(), Errno>,
    ) -> Result<(), Cause> {
        let mut names: Vec<Vec<u8>> = vec![];
        let listed = self.fs.list_xattrs(attributes.inode, &mut |name| names.push(name.to_vec()));
        let mut value = vec![];
        for name in names {
            value.resize(VALUE_MAX, 0);
            let len = match self.fs.read_xattr(attributes.inode, &name, &mut value) {
                Err(FsError::BufferTooSmall(_)) => return Err(Errno::TOOBIG.into()),
                other => other?,
            };
            match set(&name, &value[..len]) {
                Ok(()) => {}
                Err(Errno::PERM | Errno::ACCESS | Errno::NOTSUP) => {
                    self.report(|report| report.without_xattr += 1);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(listed?)
    }
}
