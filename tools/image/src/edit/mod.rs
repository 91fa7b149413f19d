//! Changing single files inside an image.

mod mode;
mod owner;
mod privileges;
mod put;

use std::io;
use std::path::PathBuf;

use flysch_api::vfs::{
    Attributes, Changes, DeviceNumber, FileKind, FileSystem, FileSystemMut, FsError, Inode,
    NewFile, Rename, Timestamp, XattrChange,
};

use crate::path::{PathError, follow, resolve};
use crate::tree::{DEPTH_MAX, children};

pub use mode::{Clause, ModeChange};
pub use owner::OwnerChange;
pub use privileges::FlagChange;
pub use put::{Put, PutOptions, tree_bytes};

/// Why an edit was not made.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// Something in the image is in the way, or missing.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A file outside the image.
    #[error("{}: {error}", path.display())]
    Source {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The file in the image does not allow the operation.
    #[error("/{path}: {problem}")]
    Refused {
        /// The path in the image.
        path: String,
        /// The error.
        problem: &'static str,
    },
    /// A name for which the image has no number.
    #[error("`{who}` is not in the image's {list}: give the number")]
    Unknown {
        /// The user or group.
        who: String,
        /// The list that should contain it.
        list: String,
    },
    /// The image could not be left in a clean state.
    #[error("{0}")]
    Sync(FsError),
}

impl EditError {
    /// Whether the file system had no space for it.
    pub fn lacks_room(&self) -> bool {
        match self {
            Self::Path(PathError::At { error, .. }) | Self::Sync(error) => {
                *error == FsError::NoSpace
            }
            _ => false,
        }
    }
}

/// Adds the path to an error.
fn at(path: &[u8]) -> impl Fn(FsError) -> EditError + '_ {
    move |error| PathError::At { path: shown(path), error }.into()
}

/// A path in the form used in messages.
fn shown(path: &[u8]) -> String {
    path.escape_ascii().to_string().trim_start_matches('/').to_owned()
}

fn refused(path: &[u8], problem: &'static str) -> EditError {
    EditError::Refused { path: shown(path), problem }
}

/// The extent of a change of attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// To everything below a directory.
    pub recursive: bool,
    /// To a symlink itself, not to its target.
    pub link_itself: bool,
}

/// Makes edits, one after the other, all with the same time.
pub struct Editor<'f> {
    fs: &'f mut dyn FileSystemMut,
    /// The time of new files and changes.
    now: Timestamp,
}

impl std::fmt::Debug for Editor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Editor").field("now", &self.now).finish_non_exhaustive()
    }
}

impl<'f> Editor<'f> {
    /// Edits `fs`; changes get the time `now`.
    pub fn new(fs: &'f mut dyn FileSystemMut, now: Timestamp) -> Self {
        Self { fs, now }
    }

    /// Puts everything on the medium.
    ///
    /// # Errors
    /// If it could not be written.
    pub fn finish(self) -> Result<(), EditError> {
        self.fs.sync(None).map_err(EditError::Sync)
    }

    /// The file that a path names; a final symlink is not followed.
    fn resolve(&self, path: &[u8]) -> Result<Inode, EditError> {
        // Upcast: a path is looked up in anything that can be read.
        let fs: &dyn FileSystem = &*self.fs;
        Ok(resolve(fs, path)?)
    }

    /// The file that a path leads to.
    fn follow(&self, path: &[u8]) -> Result<Inode, EditError> {
        let fs: &dyn FileSystem = &*self.fs;
        Ok(follow(fs, path)?)
    }

    /// The directory that `path` lies in, and its last name.
    fn place<'p>(&self, path: &'p [u8]) -> Result<(Inode, &'p [u8]), EditError> {
        let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
        let clean = &path[..end];
        let cut = clean.iter().rposition(|&byte| byte == b'/');
        let (above, name) = match cut {
            Some(cut) => (&clean[..cut], &clean[cut + 1..]),
            None => (&b""[..], clean),
        };
        if matches!(name, b"" | b"." | b"..") {
            return Err(refused(path, "not a valid name of a file"));
        }
        Ok((self.follow(above)?, name))
    }

    /// Refuses a path that ends in '/' for anything but a directory: whoever writes that means one.
    fn may_be_called(path: &[u8], kind: FileKind) -> Result<(), EditError> {
        match path.ends_with(b"/") && kind != FileKind::Directory {
            true => Err(refused(path, "there is no such directory")),
            false => Ok(()),
        }
    }

    /// Removes a file; a directory with everything in it only if `recursive`.
    ///
    /// # Errors
    /// It does not exist, or is a directory that is not empty.
    pub fn remove(&mut self, path: &[u8], recursive: bool) -> Result<(), EditError> {
        let (directory, name) = self.place(path)?;
        self.remove_in(directory, name, path, if recursive { DEPTH_MAX } else { 0 })
    }

    fn remove_in(
        &mut self,
        directory: Inode,
        name: &[u8],
        path: &[u8],
        depth: usize,
    ) -> Result<(), EditError> {
        let inode = self.fs.lookup(directory, name).map_err(at(path))?;
        let file = self.attributes(inode, path)?;
        Self::may_be_called(path, file.kind)?;
        self.attributes(directory, path)?.may_lose_name(&file).map_err(at(path))?;
        if file.kind == FileKind::Directory && depth > 0 {
            let (below, listed) = children(&*self.fs, inode);
            listed.map_err(at(path))?;
            for child in below {
                let path = [path, b"/", &child.name].concat();
                self.remove_in(inode, &child.name, &path, depth - 1)?;
            }
        }
        self.fs.remove(directory, name, self.now).map_err(at(path))?;
        self.fs.forget(inode).map_err(at(path))
    }

    /// Creates a directory, and its parents if `parents`; then an existing one is no error.
    ///
    /// # Errors
    /// It exists, or its parent does not.
    pub fn make_directory(
        &mut self,
        path: &[u8],
        permissions: u16,
        parents: bool,
    ) -> Result<(), EditError> {
        if !parents {
            return self.make(path, FileKind::Directory, permissions, DeviceNumber::default());
        }
        for end in (0..=path.len()).filter(|&end| path.get(end).is_none_or(|&byte| byte == b'/')) {
            let above = &path[..end];
            if above.iter().all(|&byte| byte == b'/') {
                continue;
            }
            match self.follow(above) {
                Ok(inode) => {
                    let kind = self.fs.attributes(inode).map_err(at(above))?.kind;
                    if kind != FileKind::Directory {
                        return Err(at(above)(FsError::NotDirectory));
                    }
                }
                Err(_) => {
                    let none = DeviceNumber::default();
                    self.make(above, FileKind::Directory, permissions, none)?;
                }
            }
        }
        Ok(())
    }

    /// Creates an empty file, directory, device node, FIFO or socket, owned by 0:0, or the group of
    /// a set-group-id directory.
    ///
    /// # Errors
    /// The name exists, or cannot be created.
    pub fn make(
        &mut self,
        path: &[u8],
        kind: FileKind,
        permissions: u16,
        device: DeviceNumber,
    ) -> Result<(), EditError> {
        let file = NewFile { kind, permissions, owner: 0, group: 0, device, target: &[] };
        let (directory, name) = self.place(path)?;
        Self::may_be_called(path, kind)?;
        self.create_in(directory, name, &file, path).map(drop)
    }

    /// Creates a symlink to `target`, owned as by [`make`](Self::make).
    ///
    /// # Errors
    /// As for [`make`](Self::make).
    pub fn symlink(&mut self, target: &[u8], path: &[u8]) -> Result<(), EditError> {
        let file = NewFile {
            kind: FileKind::Symlink,
            permissions: 0o777,
            owner: 0,
            group: 0,
            device: DeviceNumber::default(),
            target,
        };
        let (directory, name) = self.place(path)?;
        Self::may_be_called(path, file.kind)?;
        self.create_in(directory, name, &file, path).map(drop)
    }

    /// Gives the file at `existing` another name.
    ///
    /// # Errors
    /// As for [`make`](Self::make); also for a directory.
    pub fn link(&mut self, existing: &[u8], path: &[u8]) -> Result<(), EditError> {
        let inode = self.resolve(existing)?;
        let kind = self.attributes(inode, existing)?.kind;
        let (directory, name) = self.place(path)?;
        Self::may_be_called(path, kind)?;
        self.attributes(inode, existing)?.may_be_linked().map_err(at(existing))?;
        self.attributes(directory, path)?.may_gain_name().map_err(at(path))?;
        self.fs.link(inode, directory, name, self.now).map_err(at(path))
    }

    /// Moves a file: into `to` if that is a directory (which it must be if `into`), otherwise to
    /// that name, whose file is replaced.
    ///
    /// # Errors
    /// It does not exist, or cannot be moved there.
    pub fn rename(&mut self, from: &[u8], to: &[u8], into: bool) -> Result<(), EditError> {
        let (old_directory, old) = self.place(from)?;
        let moved = self.fs.lookup(old_directory, old).map_err(at(from))?;
        let moved = self.attributes(moved, from)?;
        Self::may_be_called(from, moved.kind)?;
        self.attributes(old_directory, from)?.may_lose_name(&moved).map_err(at(from))?;
        let (new_directory, new) = match self.directory(to) {
            Some(directory) => (directory, old),
            None if into => return Err(refused(to, "several files can only go into a directory")),
            None => {
                Self::may_be_called(to, moved.kind)?;
                self.place(to)?
            }
        };
        let replaced = self.fs.lookup(new_directory, new).ok();
        let above = self.attributes(new_directory, to)?;
        match replaced {
            Some(inode) => above.may_lose_name(&self.attributes(inode, to)?),
            None => above.may_gain_name(),
        }
        .map_err(at(to))?;
        let places = ((old_directory, old), (new_directory, new));
        self.fs.rename(places.0, places.1, Rename::Replace, self.now).map_err(at(to))?;
        replaced.map_or(Ok(()), |inode| self.fs.forget(inode).map_err(at(to)))
    }

    /// The destination of a file called `name` that is moved to `path`: a name in it, if that is a
    /// directory (or leads to one and `through_links`).
    pub fn destination(&self, path: &[u8], name: &[u8], through_links: bool) -> Vec<u8> {
        let found = if through_links { self.follow(path) } else { self.resolve(path) };
        let kind = found.ok().and_then(|inode| self.fs.attributes(inode).ok()).map(|it| it.kind);
        let clean = name.split(|&byte| byte == b'/').rfind(|name| !name.is_empty());
        match (kind, clean) {
            (Some(FileKind::Directory), Some(name)) => [path, b"/", name].concat(),
            _ => path.to_vec(),
        }
    }

    /// Whether that name exists.
    pub fn is_there(&self, path: &[u8]) -> bool {
        self.resolve(path).is_ok()
    }

    /// The directory at `path`, if there is one.
    fn directory(&self, path: &[u8]) -> Option<Inode> {
        let inode = self.follow(path).ok()?;
        let kind = self.fs.attributes(inode).ok()?.kind;
        (kind == FileKind::Directory).then_some(inode)
    }

    /// Changes attributes of a file; `change` computes them from the present ones.
    ///
    /// # Errors
    /// It does not exist, or cannot have them.
    pub fn change(
        &mut self,
        path: &[u8],
        change: &dyn Fn(&Attributes) -> Changes,
        reach: Reach,
    ) -> Result<(), EditError> {
        let inode = if reach.link_itself { self.resolve(path) } else { self.follow(path) }?;
        self.change_inode(inode, path, change, if reach.recursive { DEPTH_MAX } else { 0 })
    }

    fn change_inode(
        &mut self,
        inode: Inode,
        path: &[u8],
        change: &dyn Fn(&Attributes) -> Changes,
        depth: usize,
    ) -> Result<(), EditError> {
        let attributes = self.attributes(inode, path)?;
        let changes = change(&attributes);
        if changes != Changes::default() {
            self.set(inode, path, &changes, false)?;
        }
        if depth == 0 || attributes.kind != FileKind::Directory {
            return Ok(());
        }
        let (below, listed) = children(&*self.fs, inode);
        listed.map_err(at(path))?;
        for child in below {
            let path = [path, b"/", &child.name].concat();
            self.change_inode(child.inode, &path, change, depth - 1)?;
        }
        Ok(())
    }

    /// Sets access and change times; `None` is now. A nonexistent file is created empty, or ignored
    /// if not `create`.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn touch(
        &mut self,
        path: &[u8],
        time: Option<Timestamp>,
        create: bool,
    ) -> Result<(), EditError> {
        if self.follow(path).is_err() {
            if !create {
                return Ok(());
            }
            self.make(path, FileKind::Regular, 0o644, DeviceNumber::default())?;
        }
        let inode = self.follow(path)?;
        let set = Some(time.unwrap_or(self.now));
        let changes = Changes { accessed: set, modified: set, ..Changes::default() };
        self.set(inode, path, &changes, time.is_none())
    }

    /// Sets or removes an extended attribute.
    ///
    /// # Errors
    /// The file does not exist, or cannot have it.
    pub fn set_xattr(
        &mut self,
        path: &[u8],
        name: &[u8],
        change: XattrChange<'_>,
        link_itself: bool,
    ) -> Result<(), EditError> {
        let inode = if link_itself { self.resolve(path) } else { self.follow(path) }?;
        self.attributes(inode, path)?.may_change_xattrs().map_err(at(path))?;
        self.fs.set_xattr(inode, name, change, self.now).map_err(at(path))
    }
}

#[cfg(test)]
mod tests;
