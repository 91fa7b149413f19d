//! A directory of this machine as the source.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use flysch_api::vfs::{DeviceNumber, FileKind, Timestamp};
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::{Content, CreateError, Entry, Tree, TreeOptions};

/// Longest list of names and longest value of extended attributes in Linux.
const XATTR_MAX: usize = 65536;

/// Traverses a directory.
struct Walk<'w> {
    tree: Tree,
    options: &'w TreeOptions,
    /// Files with several names, by device and number.
    links: HashMap<(u64, u64), usize>,
    names: Vec<u8>,
    value: Vec<u8>,
}

impl Tree {
    /// The tree below the directory `root`. Its files are examined but not yet read.
    ///
    /// # Errors
    /// [`CreateError::Source`] for files that cannot be examined.
    pub fn from_directory(root: &Path, options: &TreeOptions) -> Result<Self, CreateError> {
        let fail = |error: Errno| CreateError::source(root.display(), error.into());
        let stat = rustix::fs::stat(root).map_err(fail)?;
        if FileKind::from_mode(stat.st_mode) != Some(FileKind::Directory) {
            return Err(fail(Errno::NOTDIR));
        }
        let mut walk = Walk {
            tree: Self::empty(Timestamp::default()),
            options,
            links: HashMap::new(),
            names: vec![0; XATTR_MAX],
            value: vec![0; XATTR_MAX],
        };
        walk.tree.entries[0] =
            walk.entry(root, &stat).map_err(|error| CreateError::source(root.display(), error))?;
        let mut waiting = vec![(root.to_path_buf(), 0)];
        while let Some((path, at)) = waiting.pop() {
            walk.directory(&path, at, &mut waiting)?;
        }
        Ok(walk.tree)
    }
}

impl Walk<'_> {
    /// Adds everything in a directory; subdirectories are put into `waiting`.
    fn directory(
        &mut self,
        path: &Path,
        at: usize,
        waiting: &mut Vec<(PathBuf, usize)>,
    ) -> Result<(), CreateError> {
        let fail = |error: Errno| CreateError::source(path.display(), error.into());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(fail)?;
        self.tree.entries[at].flags =
            rustix::fs::ioctl_getflags(&directory).map_or(0, |flags| flags.bits());
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&directory).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        // Files get their places in the tree in this order, whatever the directory's own is.
        names.sort_unstable();
        for name in names {
            let child = path.join(OsStr::from_bytes(&name));
            let stat = rustix::fs::statat(&directory, &name[..], AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|error| CreateError::source(child.display(), error.into()))?;
            let identity = (stat.st_dev, stat.st_ino);
            if let Some(&file) = self.links.get(&identity) {
                self.tree.link(at, &name, file);
                continue;
            }
            let entry = self
                .entry(&child, &stat)
                .map_err(|error| CreateError::source(child.display(), error))?;
            let is_directory = entry.kind == FileKind::Directory;
            let file = self.tree.add(at, &name, entry);
            if is_directory {
                waiting.push((child, file));
            } else if stat.st_nlink > 1 {
                self.links.insert(identity, file);
            }
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, stat: &Stat) -> io::Result<Entry> {
        let kind = FileKind::from_mode(stat.st_mode)
            .ok_or_else(|| io::Error::other("a file of unknown kind"))?;
        let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        let times = self.options.times([
            time(stat.st_atime, stat.st_atime_nsec as u32),
            time(stat.st_mtime, stat.st_mtime_nsec as u32),
            time(stat.st_ctime, stat.st_ctime_nsec as u32),
        ]);
        let owners = if self.options.squash_owners { (0, 0) } else { (stat.st_uid, stat.st_gid) };
        let mut entry = Entry::new(kind, (stat.st_mode & 0o7777) as u16, owners, times);
        match kind {
            FileKind::Regular if stat.st_size > 0 => {
                entry.size = stat.st_size as u64;
                entry.content = Content::Path(path.to_path_buf());
            }
            FileKind::Symlink => {
                entry.target = rustix::fs::readlink(path, Vec::new())?.into_bytes();
            }
            FileKind::CharacterDevice | FileKind::BlockDevice => {
                entry.device = DeviceNumber {
                    major: rustix::fs::major(stat.st_rdev),
                    minor: rustix::fs::minor(stat.st_rdev),
                };
            }
            _ => {}
        }
        if !self.options.without_xattrs {
            self.xattrs(path, &mut entry)?;
        }
        Ok(entry)
    }

    fn xattrs(&mut self, path: &Path, entry: &mut Entry) -> io::Result<()> {
        let length = match rustix::fs::llistxattr(path, &mut self.names[..]) {
            Ok(length) => length,
            // A file system without extended attributes has none.
            Err(Errno::NOTSUP | Errno::NOENT | Errno::PERM) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let names = self.names[..length].split(|&byte| byte == 0);
        for name in names.filter(|name| !name.is_empty()) {
            match rustix::fs::lgetxattr(path, name, &mut self.value[..]) {
                Ok(length) => {
                    entry.xattrs.push((name.to_vec(), self.value[..length].to_vec()));
                }
                // Gone meanwhile, or not for us to read.
                Err(Errno::NODATA | Errno::PERM) => {}
                Err(error) => return Err(error.into()),
            }
        }
        entry.xattrs.sort();
        Ok(())
    }
}
