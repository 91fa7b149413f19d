//! Side effects in Linux when root changes a file: what flags forbid, which privileges are removed,
//! and what a set-group-id directory passes on.

use flysch_api::vfs::{
    Attributes, Changes, FileFlags, FileKind, FsError, Inode, NewFile, XattrChange,
};

use super::{EditError, Editor, Reach, at};
use crate::tree::{DEPTH_MAX, children};

/// Permission bits of `st_mode`.
const SET_USER_ID: u16 = 0o4000;
const SET_GROUP_ID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;
/// Where Linux stores a program's privileges beyond those of its user.
const CAPABILITY: &[u8] = b"security.capability";

/// A change of flags in chattr's notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagChange {
    /// Add these.
    Add(FileFlags),
    /// Remove these.
    Remove(FileFlags),
    /// Exactly these.
    Set(FileFlags),
}

impl FlagChange {
    fn apply(self, old: FileFlags) -> FileFlags {
        match self {
            Self::Add(flags) => old.with(flags),
            Self::Remove(flags) => old.without(flags),
            Self::Set(flags) => flags,
        }
    }
}

impl std::str::FromStr for FlagChange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a change of flags such as +i, -a or =S; there are: i, a, S, D, c"
            )
        };
        let (how, letters) = text.split_at_checked(1).ok_or_else(wrong)?;
        let mut flags = FileFlags::default();
        for letter in letters.chars() {
            flags = flags.with(FileFlags::of_letter(letter).ok_or_else(wrong)?);
        }
        match (how, letters) {
            ("=", _) => Ok(Self::Set(flags)),
            ("+" | "-", "") => Err(wrong()),
            ("+", _) => Ok(Self::Add(flags)),
            ("-", _) => Ok(Self::Remove(flags)),
            _ => Err(wrong()),
        }
    }
}

/// The permissions that remain after a change of owner or content. Set-group-id without execute
/// permission for the group is a mark for locks, not a privilege.
fn without_set_ids(permissions: u16) -> u16 {
    match permissions & GROUP_EXECUTE {
        0 => permissions & !SET_USER_ID,
        _ => permissions & !(SET_USER_ID | SET_GROUP_ID),
    }
}

impl Editor<'_> {
    pub(super) fn attributes(&self, inode: Inode, path: &[u8]) -> Result<Attributes, EditError> {
        self.fs.attributes(inode).map_err(at(path))
    }

    /// Creates a file as Linux does for root: in a set-group-id directory for its group, and
    /// directories with that bit.
    pub(super) fn create_in(
        &mut self,
        directory: Inode,
        name: &[u8],
        file: &NewFile<'_>,
        path: &[u8],
    ) -> Result<Inode, EditError> {
        let above = self.attributes(directory, path)?;
        above.may_gain_name().map_err(at(path))?;
        let mut file = *file;
        if above.permissions & SET_GROUP_ID != 0 {
            file.group = above.group;
            if file.kind == FileKind::Directory {
                file.permissions |= SET_GROUP_ID;
            }
        }
        self.fs.create(directory, name, &file, self.now).map_err(at(path))
    }

    /// Changes attributes; a new owner and a new length remove privileges. `is_now` says that times
    /// become the current time.
    pub(super) fn set(
        &mut self,
        inode: Inode,
        path: &[u8],
        changes: &Changes,
        is_now: bool,
    ) -> Result<(), EditError> {
        let attributes = self.attributes(inode, path)?;
        attributes.may_change(changes, is_now, false).map_err(at(path))?;
        let mut changes = *changes;
        let is_owned = changes.owner.is_some() || changes.group.is_some();
        if is_owned && attributes.kind != FileKind::Directory {
            let left = without_set_ids(attributes.permissions);
            if left != attributes.permissions && changes.permissions.is_none() {
                changes.permissions = Some(left);
            }
            self.drop_capabilities(inode, path)?;
        }
        if changes.size.is_some() {
            self.drop_capabilities(inode, path)?;
        }
        self.fs.set_attributes(inode, &changes, self.now).map_err(at(path))
    }

    /// Removes a program's capabilities: it is no longer the one that got them.
    pub(super) fn drop_capabilities(&mut self, inode: Inode, path: &[u8]) -> Result<(), EditError> {
        let mut has_some = false;
        let listed = self.fs.list_xattrs(inode, &mut |name| has_some |= name == CAPABILITY);
        listed.map_err(at(path))?;
        if !has_some {
            return Ok(());
        }
        let removed = self.fs.set_xattr(inode, CAPABILITY, XattrChange::Remove, self.now);
        removed.map_err(at(path))
    }

    /// Changes flags of a file or directory, as chattr does.
    ///
    /// # Errors
    /// It does not exist, is of another type, or the format has no such flags.
    pub fn change_flags(
        &mut self,
        path: &[u8],
        change: FlagChange,
        reach: Reach,
    ) -> Result<(), EditError> {
        let inode = self.follow(path)?;
        self.change_flags_of(inode, path, change, if reach.recursive { DEPTH_MAX } else { 0 })
    }

    fn change_flags_of(
        &mut self,
        inode: Inode,
        path: &[u8],
        change: FlagChange,
        depth: usize,
    ) -> Result<(), EditError> {
        let attributes = self.attributes(inode, path)?;
        if !matches!(attributes.kind, FileKind::Regular | FileKind::Directory) {
            let why = "only files and directories have flags";
            return Err(at(path)(FsError::Unsupported(why)));
        }
        let flags = Some(change.apply(attributes.flags));
        let changes = Changes { flags, ..Changes::default() };
        self.fs.set_attributes(inode, &changes, self.now).map_err(at(path))?;
        if depth == 0 || attributes.kind != FileKind::Directory {
            return Ok(());
        }
        let (below, listed) = children(&*self.fs, inode);
        listed.map_err(at(path))?;
        // Links and nodes have none, and are passed over as chattr does below a directory.
        for child in below {
            if matches!(child.kind, FileKind::Regular | FileKind::Directory) {
                let path = [path, b"/", &child.name].concat();
                self.change_flags_of(child.inode, &path, change, depth - 1)?;
            }
        }
        Ok(())
    }
}
