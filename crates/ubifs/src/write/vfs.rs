//! [`UbifsMut`] as a writable file system.

use core::ops::Range;

use flysch_api::vfs::{
    Attributes, Changes, FileKind, FileSystem, FileSystemMut, FsError, Inode, NameVisitor, NewFile,
    Rename, Statistics, Timestamp, Visitor, XattrChange,
};
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{BLOCK_SIZE, Key};

use super::UbifsMut;
use super::inode::kind;
use crate::file::describe;

impl<V: VolumeMut> FileSystem for UbifsMut<V> {
    fn statistics(&self) -> Statistics {
        let (blocks, blocks_free) = self.files.budget().blocks();
        Statistics { blocks, blocks_free, ..self.files.disk.fs.statistics() }
    }

    fn lookup(&self, directory: Inode, name: &[u8]) -> Result<Inode, FsError> {
        self.files.disk.fs.lookup(directory, name)
    }

    fn attributes(&self, inode: Inode) -> Result<Attributes, FsError> {
        match self.files.waiting(inode) {
            Some(record) if kind(record) == Some(FileKind::Symlink) => {
                let node = record.node();
                // No cause: only the mode can be wrong in a node made here.
                describe(&node, self.files.disk.fs.shown_size(&node))
                    .map_err(|_| FsError::Invalid("an inode of unknown kind"))
            }
            // No cause: as above.
            Some(record) => describe(&record.node(), record.node.size)
                .map_err(|_| FsError::Invalid("an inode of unknown kind")),
            None => self.files.disk.fs.attributes(inode),
        }
    }

    fn list(
        &self,
        directory: Inode,
        position: u64,
        visit: &mut Visitor<'_>,
    ) -> Result<(), FsError> {
        self.files.disk.fs.list(directory, position, visit)
    }

    fn read(&self, inode: Inode, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        let attributes = self.attributes(inode)?;
        if attributes.kind != FileKind::Regular {
            return self.files.disk.fs.read(inode, offset, buffer);
        }
        let number = crate::store::number(inode.0)?;
        let cipher = self.files.reading_cipher(inode)?;
        let from = (number, cipher.as_ref());
        let length = self.files.disk.fs.read_regular(from, attributes.size, offset, buffer)?;
        self.files.read_waiting(number, offset, &mut buffer[..length]);
        Ok(length)
    }

    fn next_data(&self, inode: Inode, offset: u64) -> Result<Option<Range<u64>>, FsError> {
        let attributes = self.attributes(inode)?;
        if attributes.kind != FileKind::Regular || offset >= attributes.size {
            return self.files.disk.fs.next_data(inode, offset);
        }
        let number = crate::store::number(inode.0)?;
        let block_size = u64::from(BLOCK_SIZE);
        let Ok(block) = u32::try_from(offset / block_size) else { return Ok(None) };
        let Some(first) = self.files.next_block(number, block)? else { return Ok(None) };
        let mut behind = first + 1;
        while behind <= Key::VALUE_MAX && self.files.has_block(number, behind)? {
            behind += 1;
        }
        let start = (u64::from(first) * block_size).max(offset);
        let end = (u64::from(behind) * block_size).min(attributes.size);
        Ok((start < end).then_some(start..end))
    }

    fn list_xattrs(&self, inode: Inode, visit: &mut NameVisitor<'_>) -> Result<(), FsError> {
        self.files.disk.fs.list_xattrs(inode, visit)
    }

    fn read_xattr(&self, inode: Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize, FsError> {
        self.files.disk.fs.read_xattr(inode, name, buffer)
    }
}

impl<V: VolumeMut> FileSystemMut for UbifsMut<V> {
    fn create(
        &mut self,
        directory: Inode,
        name: &[u8],
        file: &NewFile<'_>,
        now: Timestamp,
    ) -> Result<Inode, FsError> {
        self.make(directory.0, name, file, now)
    }

    fn link(
        &mut self,
        inode: Inode,
        directory: Inode,
        name: &[u8],
        now: Timestamp,
    ) -> Result<(), FsError> {
        self.add_link(inode.0, directory.0, name, now)
    }

    fn remove(&mut self, directory: Inode, name: &[u8], now: Timestamp) -> Result<(), FsError> {
        self.unname(directory.0, name, now)
    }

    fn rename(
        &mut self,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
        how: Rename,
        now: Timestamp,
    ) -> Result<(), FsError> {
        self.move_name(from, to, how, now)
    }

    fn set_attributes(
        &mut self,
        inode: Inode,
        changes: &Changes,
        now: Timestamp,
    ) -> Result<(), FsError> {
        self.files.disk.writable()?;
        self.files.change_attributes(inode.0, changes, now)
    }

    fn write(
        &mut self,
        inode: Inode,
        offset: u64,
        data: &[u8],
        now: Timestamp,
    ) -> Result<usize, FsError> {
        self.files.write_content(inode.0, offset, data, now)
    }

    fn set_xattr(
        &mut self,
        inode: Inode,
        name: &[u8],
        change: XattrChange<'_>,
        now: Timestamp,
    ) -> Result<(), FsError> {
        self.change_xattr(inode.0, name, change, now)
    }

    fn sync(&mut self, inode: Option<Inode>) -> Result<(), FsError> {
        self.files.disk.writable()?;
        match inode {
            Some(inode) => {
                self.files.write_back(crate::store::number(inode.0)?)?;
                self.files.disk.sync_heads()?;
            }
            None => {
                self.files.commit_all()?;
            }
        }
        self.files.disk.fs.store.access.sync_volume()
    }

    fn sync_data(&mut self, inode: Option<Inode>) -> Result<(), FsError> {
        self.files.disk.writable()?;
        match inode {
            Some(inode) => {
                let number = crate::store::number(inode.0)?;
                match self.files.differs_in_times(number)? {
                    true => self.files.write_blocks(number)?,
                    false => self.files.write_back(number)?,
                }
            }
            // The journal suffices: no commit, as in Linux.
            None => self.files.write_back_all()?,
        }
        self.files.disk.sync_heads()?;
        self.files.disk.fs.store.access.sync_volume()
    }

    fn forget(&mut self, inode: Inode) -> Result<(), FsError> {
        match u32::try_from(inode.0) {
            Ok(number) => self.files.forget_orphan(number),
            Err(_) => Ok(()),
        }
    }
}
