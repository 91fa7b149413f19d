//! The file-system interface of a mount for writing.

use core::ops::Range;

use flysch_api::flash::{Flash, FlashMut};
use flysch_api::vfs::{
    Attributes, Changes, FileSystem, FileSystemMut, FsError, Inode, NameVisitor, NewFile, Rename,
    Statistics, Timestamp, Visitor, XattrChange,
};
use flysch_wire::jffs2::{NAME_LEN_MAX, ROOT_INO};

use super::Jffs2Mut;
use crate::read::{BLOCK_SIZE, View};

impl<F: Flash> FileSystem for Jffs2Mut<F> {
    fn statistics(&self) -> Statistics {
        let log = self.inodes().log();
        let geometry = &log.blocks.geometry;
        let erase_size = u64::from(geometry.erase_size);
        let current = u64::from(log.room_left(0).unwrap_or(0));
        let free = u64::from(log.blocks.available()) * erase_size + current + log.blocks.dirty();
        let reserve = (u64::from(self.files.collector.reserves.write) + 1) * erase_size;
        let unit = u64::from(BLOCK_SIZE);
        Statistics {
            format: "jffs2",
            root: Inode(u64::from(ROOT_INO)),
            block_size: BLOCK_SIZE,
            blocks: geometry.size / unit,
            blocks_free: free.saturating_sub(reserve) / unit,
            files: Some(self.inodes().tables().inodes.len() as u64),
            name_max: NAME_LEN_MAX as u32,
        }
    }

    fn lookup(&self, directory: Inode, name: &[u8]) -> Result<Inode, FsError> {
        View(self.inodes()).lookup(directory, name)
    }

    fn attributes(&self, inode: Inode) -> Result<Attributes, FsError> {
        View(self.inodes()).attributes(inode)
    }

    fn list(
        &self,
        directory: Inode,
        position: u64,
        visit: &mut Visitor<'_>,
    ) -> Result<(), FsError> {
        View(self.inodes()).list(directory, position, visit)
    }

    fn read(&self, inode: Inode, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        View(self.inodes()).read(inode, offset, buffer)
    }

    fn next_data(&self, inode: Inode, offset: u64) -> Result<Option<Range<u64>>, FsError> {
        View(self.inodes()).next_data(inode, offset)
    }

    fn list_xattrs(&self, inode: Inode, visit: &mut NameVisitor<'_>) -> Result<(), FsError> {
        View(self.inodes()).list_xattrs(inode, visit)
    }

    fn read_xattr(&self, inode: Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize, FsError> {
        View(self.inodes()).read_xattr(inode, name, buffer)
    }

    fn has_access_lists(&self) -> bool {
        true
    }
}

impl<F: FlashMut> FileSystemMut for Jffs2Mut<F> {
    fn create(
        &mut self,
        directory: Inode,
        name: &[u8],
        file: &NewFile<'_>,
        now: Timestamp,
    ) -> Result<Inode, FsError> {
        self.create_with_xattrs((directory, name), file, &[], now)
    }

    /// At once, with a name that is written last.
    fn create_with_xattrs(
        &mut self,
        at: (Inode, &[u8]),
        file: &NewFile<'_>,
        xattrs: &[(&[u8], &[u8])],
        now: Timestamp,
    ) -> Result<Inode, FsError> {
        self.begin()?;
        let ino = self.create_file((Self::ino(at.0)?, at.1), file, xattrs, now)?;
        Ok(Inode(u64::from(ino)))
    }

    fn link(
        &mut self,
        inode: Inode,
        directory: Inode,
        name: &[u8],
        now: Timestamp,
    ) -> Result<(), FsError> {
        self.begin()?;
        self.link_file(Self::ino(inode)?, Self::ino(directory)?, name, now)
    }

    fn remove(&mut self, directory: Inode, name: &[u8], now: Timestamp) -> Result<(), FsError> {
        self.begin()?;
        self.remove_name(Self::ino(directory)?, name, now)
    }

    fn rename(
        &mut self,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
        how: Rename,
        now: Timestamp,
    ) -> Result<(), FsError> {
        self.begin()?;
        let (from_ino, to_ino) = (Self::ino(from.0)?, Self::ino(to.0)?);
        self.rename_file((from_ino, from.1), (to_ino, to.1), how, now)
    }

    fn set_attributes(
        &mut self,
        inode: Inode,
        changes: &Changes,
        now: Timestamp,
    ) -> Result<(), FsError> {
        self.begin()?;
        self.files.change_attributes(Self::ino(inode)?, changes, now)
    }

    fn write(
        &mut self,
        inode: Inode,
        offset: u64,
        data: &[u8],
        now: Timestamp,
    ) -> Result<usize, FsError> {
        self.begin()?;
        self.files.write_file(Self::ino(inode)?, offset, data, now)
    }

    fn set_xattr(
        &mut self,
        inode: Inode,
        name: &[u8],
        change: XattrChange<'_>,
        now: Timestamp,
    ) -> Result<(), FsError> {
        self.begin()?;
        self.files.change_xattr(Self::ino(inode)?, name, change, now)
    }

    fn sync(&mut self, inode: Option<Inode>) -> Result<(), FsError> {
        // Nodes of one file cannot be written without those before them.
        let _ = inode;
        self.inodes().log().check_alive()?;
        self.inodes_mut().nodes.flush()?;
        self.inodes_mut().nodes.erase_all()?;
        let log = self.inodes_mut().log_mut();
        log.medium.sync().map_err(|error| log.failed(error, 0))
    }

    fn forget(&mut self, inode: Inode) -> Result<(), FsError> {
        let ino = Self::ino(inode)?;
        if self.inodes().tables().inodes.get(&ino).is_some_and(|state| state.names == 0) {
            self.inodes_mut().drop_inode(ino);
        }
        Ok(())
    }
}

impl<F: FlashMut> Jffs2Mut<F> {
    /// Called before each change.
    fn begin(&mut self) -> Result<(), FsError> {
        self.inodes().log().check_alive()?;
        self.inodes_mut().unload();
        Ok(())
    }
}
