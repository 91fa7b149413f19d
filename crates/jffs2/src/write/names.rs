//! Names: creating, removing and moving them.

use alloc::vec;
use alloc::vec::Vec;

use flysch_api::flash::FlashMut;
use flysch_api::vfs::{DeviceNumber, FileKind, FsError, NewFile, Rename, Timestamp};
use flysch_wire::jffs2::{NAME_LEN_MAX, ROOT_INO};

use super::Jffs2Mut;
use super::collector::Purpose;
use super::content::id;
use super::loaded::Loaded;
use super::log::Room;
use super::tables::{Directory, Name};
use crate::create::{clamp_time, device_data};
use crate::read::Attributes;

/// Longest target of a symbolic link (`JFFS2_MAX_SYMLINK_LEN`).
const TARGET_LEN_MAX: usize = 254;

fn check_name(name: &[u8]) -> Result<(), FsError> {
    if name.is_empty() || name == b"." || name == b".." {
        return Err(FsError::Invalid("the name is empty, . or .."));
    }
    if name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(FsError::Invalid("a name must not contain NUL or /"));
    }
    if name.len() > NAME_LEN_MAX { Err(FsError::NameTooLong) } else { Ok(()) }
}

fn dirent_kind(kind: FileKind) -> u8 {
    (kind.mode_bits() >> 12) as u8
}

impl<F: FlashMut> Jffs2Mut<F> {
    /// A directory to which a name can be added: one that has a name itself.
    fn living_directory(&self, ino: u32) -> Result<&Directory, FsError> {
        let directory = self.inodes().directory(ino)?;
        if self.inodes().tables().state(ino)?.names == 0 {
            Err(FsError::NotFound)
        } else {
            Ok(directory)
        }
    }

    fn name(&self, directory: u32, name: &[u8]) -> Result<&Name, FsError> {
        self.inodes().directory(directory)?.lookup(name).ok_or(FsError::NotFound)
    }

    /// Room for this many entries in a directory, and for its node if it has none yet: without one,
    /// nobody will know when it was changed. Also checks that its version counter suffices.
    fn directory_room(&mut self, directory: u32, entries: u32) -> Result<Room, FsError> {
        let has_node = self.inodes_mut().loaded_mut(directory)?.latest.is_some();
        let versions = entries + u32::from(!has_node);
        self.inodes().tables().check_versions(directory, versions)?;
        Ok(if has_node { Room::default() } else { Room::inode(0) })
    }

    /// Writes a node for a directory that has none; there must be room.
    fn give_node(&mut self, directory: u32) -> Result<(), FsError> {
        match self.inodes_mut().loaded_mut(directory)?.latest {
            Some(_) => Ok(()),
            None => self.inodes_mut().append_metadata(directory),
        }
    }

    /// Room for a node that gives an inode's time of change.
    fn change_room(&self, ino: u32) -> Result<Room, FsError> {
        self.inodes().tables().check_versions(ino, 1)?;
        self.inodes().metadata_room(ino)
    }

    pub(crate) fn create_file(
        &mut self,
        (directory, name): (u32, &[u8]),
        file: &NewFile<'_>,
        xattrs: &[(&[u8], &[u8])],
        now: Timestamp,
    ) -> Result<u32, FsError> {
        check_name(name)?;
        if self.living_directory(directory)?.lookup(name).is_some() {
            return Err(FsError::Exists);
        }
        let (loaded, data) = self.new_inode(file, now)?;
        let room = self.directory_room(directory, 1)?;
        let room = room.and(Room::inode(data.len())).and(Room::dirent(name));
        let plans = xattrs.iter().map(|(name, value)| self.files.plan_new_xattr(name, value));
        let plans = plans.collect::<Result<Vec<_>, _>>()?;
        let room = plans.iter().fold(room, |room, plan| room.and(plan.room));
        if !xattrs.is_empty() {
            self.files.check_block(room)?;
        }
        self.files.collector.reserve(room, Purpose::Change)?;
        self.give_node(directory)?;
        let ino = self.inodes_mut().add_inode(file.kind, loaded)?;
        // The name comes last: without it, the rest counts for nothing.
        let done = self
            .inodes_mut()
            .append_metadata(ino)
            .and_then(|()| plans.into_iter().try_for_each(|plan| self.files.write_xattr(ino, plan)))
            .and_then(|()| {
                self.inodes_mut().append_name(directory, name, (ino, dirent_kind(file.kind)), now)
            });
        if let Err(error) = done {
            self.inodes_mut().drop_inode(ino);
            return Err(error);
        }
        let state = self.inodes_mut().tables_mut().inodes.get_mut(&ino).expect("it was just added");
        state.names = 1;
        if let Some(own) = &mut state.directory {
            own.parent = directory;
        }
        Ok(ino)
    }

    fn new_inode(&self, file: &NewFile<'_>, now: Timestamp) -> Result<(Loaded, Vec<u8>), FsError> {
        let time = clamp_time(now);
        let data = match file.kind {
            FileKind::Symlink => {
                if file.target.is_empty() || file.target.contains(&0) {
                    let why = "a symlink's target must not be empty or contain NUL";
                    return Err(FsError::Invalid(why));
                }
                if file.target.len() > TARGET_LEN_MAX {
                    return Err(FsError::NameTooLong);
                }
                file.target.to_vec()
            }
            FileKind::CharacterDevice | FileKind::BlockDevice => {
                let why = "the device number does not fit into 12 and 20 bits";
                let (bytes, len) = device_data(self.inodes().log().order, file.device)
                    .ok_or(FsError::Invalid(why))?;
                bytes[..len].to_vec()
            }
            _ => vec![],
        };
        let attributes = Attributes {
            mode: file.kind.mode_bits() | u32::from(file.permissions & 0o7777),
            uid: id(file.owner)?,
            gid: id(file.group)?,
            size: if file.kind == FileKind::Symlink { data.len() as u32 } else { 0 },
            atime: time,
            mtime: time,
            ctime: time,
        };
        Ok((Loaded::new(attributes, &data), data))
    }

    pub(crate) fn link_file(
        &mut self,
        ino: u32,
        directory: u32,
        name: &[u8],
        now: Timestamp,
    ) -> Result<(), FsError> {
        check_name(name)?;
        if self.inodes().kind(ino)? == FileKind::Directory {
            return Err(FsError::IsDirectory);
        }
        if self.inodes().tables().state(ino)?.names == 0 {
            return Err(FsError::NotFound);
        }
        if self.living_directory(directory)?.lookup(name).is_some() {
            return Err(FsError::Exists);
        }
        let kind = dirent_kind(self.inodes().kind(ino)?);
        let room = self.directory_room(directory, 1)?;
        let room = room.and(Room::dirent(name)).and(self.change_room(ino)?);
        self.files.collector.reserve(room, Purpose::Change)?;
        self.give_node(directory)?;
        self.inodes_mut().append_name(directory, name, (ino, kind), now)?;
        self.inodes_mut().tables_mut().state_mut(ino)?.names += 1;
        self.inodes_mut().append_change(ino, now)
    }

    pub(crate) fn remove_name(
        &mut self,
        directory: u32,
        name: &[u8],
        now: Timestamp,
    ) -> Result<(), FsError> {
        let ino = self.name(directory, name)?.ino;
        if self.inodes().directory(ino).is_ok_and(|directory| directory.live > 0) {
            return Err(FsError::NotEmpty);
        }
        let room = self.directory_room(directory, 1)?.and(Room::dirent(name));
        // The time of change of a file that has more names; of one that cannot be read it stays.
        let stays =
            self.inodes().tables().state(ino)?.names > 1 && self.inodes().loaded(ino).is_ok();
        let more = if stays { self.change_room(ino)? } else { Room::default() };
        self.files.collector.reserve(room.and(more), Purpose::Removal)?;
        self.give_node(directory)?;
        self.inodes_mut().append_name(directory, name, (0, 0), now)?;
        self.lose_name(ino, now);
        if stays { self.inodes_mut().append_change(ino, now) } else { Ok(()) }
    }

    /// Removes one name.
    fn lose_name(&mut self, ino: u32, now: Timestamp) {
        if let Ok(loaded) = self.inodes_mut().loaded_mut(ino) {
            loaded.attributes.ctime = clamp_time(now);
        }
        if let Some(state) = self.inodes_mut().tables_mut().inodes.get_mut(&ino) {
            state.names = state.names.saturating_sub(1);
            if let Some(directory) = &mut state.directory {
                directory.parent = 0;
            }
        }
    }

    /// Removes one of two names of a directory, and nothing else.
    pub(crate) fn write_removal_of_double(&mut self, pino: u32, name: Name) -> Result<(), FsError> {
        let time = self.inodes_mut().loaded_mut(pino)?.attributes.mtime;
        let now = Timestamp { seconds: i64::from(time), nanoseconds: 0 };
        self.files.collector.reserve(Room::dirent(&name.name), Purpose::Removal)?;
        self.inodes_mut().append_name(pino, &name.name, (0, 0), now)?;
        let state = self.inodes_mut().tables_mut().state_mut(name.ino)?;
        state.names = state.names.saturating_sub(1);
        Ok(())
    }

    /// Whether `ino` is `below` or an ancestor of it.
    fn is_above(&self, ino: u32, below: u32) -> bool {
        let mut at = below;
        // No tree is deeper than it has inodes.
        for _ in 0..=self.inodes().tables().inodes.len() {
            if at == ino {
                return true;
            }
            match self.inodes().directory(at) {
                Ok(directory) if at != ROOT_INO => at = directory.parent,
                _ => return false,
            }
        }
        true
    }

    fn check_replace(&self, moved: u32, replaced: u32) -> Result<(), FsError> {
        match (self.inodes().directory(moved).is_ok(), self.inodes().directory(replaced)) {
            (true, Err(_)) => Err(FsError::NotDirectory),
            (false, Ok(_)) => Err(FsError::IsDirectory),
            (true, Ok(directory)) if directory.live > 0 => Err(FsError::NotEmpty),
            _ => Ok(()),
        }
    }

    /// Two entries are written, the new name first: after a power cut in between, the file has
    /// both. A directory has only one of them after the next mount. JFFS2 does not allow anything
    /// better.
    pub(crate) fn rename_file(
        &mut self,
        from: (u32, &[u8]),
        to: (u32, &[u8]),
        how: Rename,
        now: Timestamp,
    ) -> Result<(), FsError> {
        let moved = self.name(from.0, from.1)?;
        let (ino, kind) = (moved.ino, moved.kind);
        check_name(to.1)?;
        let replaced = self.living_directory(to.0)?.lookup(to.1).map(|entry| entry.ino);
        if self.inodes().directory(ino).is_ok() && self.is_above(ino, to.0) {
            return Err(FsError::Invalid("a directory cannot be moved below itself"));
        }
        match (how, replaced) {
            (Rename::Exchange, _) => {
                return Err(FsError::Unsupported("JFFS2 cannot exchange two names in one step"));
            }
            (Rename::Keep, Some(_)) => return Err(FsError::Exists),
            (_, Some(other)) if other == ino => return Ok(()),
            (_, Some(other)) => self.check_replace(ino, other)?,
            (_, None) => {}
        }
        let directories = self.directory_room(from.0, 2)?.and(self.directory_room(to.0, 2)?);
        let readable = self.inodes().loaded(ino).is_ok();
        let metadata = if readable { self.change_room(ino)? } else { Room::default() };
        let names = Room::dirent(to.1).and(Room::dirent(from.1));
        let whiteout = if how == Rename::Whiteout { Room::inode(4) } else { Room::default() };
        // A file that was replaced and has more names keeps a time of change.
        let stays = replaced.filter(|other| {
            self.inodes().tables().state(*other).is_ok_and(|state| state.names > 1)
                && self.inodes().loaded(*other).is_ok()
        });
        let other = stays.map_or(Ok(Room::default()), |other| self.change_room(other))?;
        let room = directories.and(names).and(metadata).and(whiteout).and(other);
        self.files.collector.reserve(room, Purpose::Change)?;
        self.give_node(from.0)?;
        self.give_node(to.0)?;
        let old = match how {
            Rename::Whiteout => (self.whiteout(now)?, dirent_kind(FileKind::CharacterDevice)),
            _ => (0, 0),
        };
        self.inodes_mut().append_name(to.0, to.1, (ino, kind), now)?;
        self.inodes_mut().append_name(from.0, from.1, old, now)?;
        if let Some(other) = replaced {
            self.lose_name(other, now);
        }
        if let Some(other) = stays {
            self.inodes_mut().append_metadata(other)?;
        }
        if let Ok(directory) = self.inodes_mut().tables_mut().directory_mut(ino) {
            directory.parent = to.0;
        }
        if readable { self.inodes_mut().append_change(ino, now) } else { Ok(()) }
    }

    fn whiteout(&mut self, now: Timestamp) -> Result<u32, FsError> {
        let file = NewFile {
            kind: FileKind::CharacterDevice,
            permissions: 0,
            owner: 0,
            group: 0,
            device: DeviceNumber::default(),
            target: &[],
        };
        let (loaded, _) = self.new_inode(&file, now)?;
        let ino = self.inodes_mut().add_inode(file.kind, loaded)?;
        self.inodes_mut().append_metadata(ino)?;
        self.inodes_mut().tables_mut().state_mut(ino)?.names = 1;
        Ok(ino)
    }
}
