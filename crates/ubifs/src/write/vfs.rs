//! [`UbifsMut`] as a file system that can be changed.

use core::ops::Range;

use flysch_api::vfs::{
    Attributes, Changes, Error, FileKind, FileSystem, FileSystemMut, Inode, NameVisitor, NewFile,
    Rename, Statistics, Timestamp, Visitor, XattrChange,
};
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{BLOCK_SIZE, InodeFlags, Key, SuperblockFlags};

use super::UbifsMut;
use super::cache::Record;
use super::inode::kind;
use crate::crypt::{FileCipher, Use};
use crate::file::describe;

impl<V: VolumeMut> UbifsMut<V> {
    /// An inode that waits to be written.
    fn waiting(&self, inode: Inode) -> Option<&Record> {
        let record = self.cache.inode(u32::try_from(inode.0).ok()?)?;
        (!record.has(InodeFlags::XATTR)).then_some(record)
    }

    /// What decrypts a file's content; none if it is not encrypted.
    fn reading_cipher(&self, inode: Inode) -> Result<Option<FileCipher>, Error> {
        if !self.superblock().flags.contains(SuperblockFlags::ENCRYPTION) {
            return Ok(None);
        }
        let is_encrypted = match self.waiting(inode) {
            Some(record) => record.is_encrypted(),
            None => self.fs.stat(inode)?.is_encrypted(),
        };
        let number = crate::store::number(inode.0)?;
        is_encrypted.then(|| self.fs.cipher(number, Use::Contents)).transpose()
    }

    /// Puts the blocks that wait over what was read from the flash.
    fn read_waiting(&self, inode: u32, offset: u64, buffer: &mut [u8]) {
        let block_size = u64::from(BLOCK_SIZE);
        let end = offset + buffer.len() as u64;
        let first = (offset / block_size).min(u32::MAX.into()) as u32;
        let last = (end.saturating_sub(1) / block_size).min(u32::MAX.into()) as u32;
        if buffer.is_empty() {
            return;
        }
        for (number, block) in self.cache.blocks_of(inode, first, last) {
            let start = u64::from(number) * block_size;
            let (from, to) = (start.max(offset), (start + block_size).min(end));
            let part = &block.bytes[(from - start) as usize..(to - start) as usize];
            buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
        }
    }

    /// Whether a block of a file has content, stored or waiting.
    fn has_block(&self, inode: u32, block: u32) -> Result<bool, Error> {
        Ok(self.cache.block((inode, block)).is_some()
            || self.fs.store.find(Key::data(inode, block))?.is_some())
    }

    /// The next block with content, from `block` on.
    fn next_block(&self, inode: u32, block: u32) -> Result<Option<u32>, Error> {
        let mut next = self.cache.blocks_of(inode, block, u32::MAX).next().map(|it| it.0);
        let (first, last) = (Key::data(inode, block), Key::data(inode, Key::VALUE_MAX));
        self.fs.store.nodes(first, last, &mut |key, _| {
            next = Some(next.map_or(key.value(), |next| next.min(key.value())));
            core::ops::ControlFlow::Break(())
        })?;
        Ok(next)
    }
}

impl<V: VolumeMut> FileSystem for UbifsMut<V> {
    fn statistics(&self) -> Statistics {
        let (blocks, blocks_free) = self.blocks();
        Statistics { blocks, blocks_free, ..self.fs.statistics() }
    }

    fn lookup(&self, directory: Inode, name: &[u8]) -> Result<Inode, Error> {
        self.fs.lookup(directory, name)
    }

    fn attributes(&self, inode: Inode) -> Result<Attributes, Error> {
        match self.waiting(inode) {
            Some(record) if kind(record) == Some(FileKind::Symlink) => {
                let node = record.node();
                describe(&node, self.fs.shown_size(&node))
                    .map_err(|_| Error::Invalid("an inode of no kind"))
            }
            Some(record) => describe(&record.node(), record.node.size)
                .map_err(|_| Error::Invalid("an inode of no kind")),
            None => self.fs.attributes(inode),
        }
    }

    fn list(&self, directory: Inode, position: u64, visit: &mut Visitor<'_>) -> Result<(), Error> {
        self.fs.list(directory, position, visit)
    }

    fn read(&self, inode: Inode, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        let attributes = self.attributes(inode)?;
        if attributes.kind != FileKind::Regular {
            return self.fs.read(inode, offset, buffer);
        }
        let number = crate::store::number(inode.0)?;
        let cipher = self.reading_cipher(inode)?;
        let from = (number, cipher.as_ref());
        let length = self.fs.read_regular(from, attributes.size, offset, buffer)?;
        self.read_waiting(number, offset, &mut buffer[..length]);
        Ok(length)
    }

    fn next_data(&self, inode: Inode, offset: u64) -> Result<Option<Range<u64>>, Error> {
        let attributes = self.attributes(inode)?;
        if attributes.kind != FileKind::Regular || offset >= attributes.size {
            return self.fs.next_data(inode, offset);
        }
        let number = crate::store::number(inode.0)?;
        let block_size = u64::from(BLOCK_SIZE);
        let Ok(block) = u32::try_from(offset / block_size) else { return Ok(None) };
        let Some(first) = self.next_block(number, block)? else { return Ok(None) };
        let mut behind = first + 1;
        while behind <= Key::VALUE_MAX && self.has_block(number, behind)? {
            behind += 1;
        }
        let start = (u64::from(first) * block_size).max(offset);
        let end = (u64::from(behind) * block_size).min(attributes.size);
        Ok((start < end).then_some(start..end))
    }

    fn list_xattrs(&self, inode: Inode, visit: &mut NameVisitor<'_>) -> Result<(), Error> {
        self.fs.list_xattrs(inode, visit)
    }

    fn read_xattr(&self, inode: Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize, Error> {
        self.fs.read_xattr(inode, name, buffer)
    }
}

impl<V: VolumeMut> FileSystemMut for UbifsMut<V> {
    fn create(
        &mut self,
        directory: Inode,
        name: &[u8],
        file: &NewFile<'_>,
        now: Timestamp,
    ) -> Result<Inode, Error> {
        self.make(directory.0, name, file, now)
    }

    fn link(
        &mut self,
        inode: Inode,
        directory: Inode,
        name: &[u8],
        now: Timestamp,
    ) -> Result<(), Error> {
        self.add_link(inode.0, directory.0, name, now)
    }

    fn remove(&mut self, directory: Inode, name: &[u8], now: Timestamp) -> Result<(), Error> {
        self.unname(directory.0, name, now)
    }

    fn rename(
        &mut self,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
        how: Rename,
        now: Timestamp,
    ) -> Result<(), Error> {
        self.move_name(from, to, how, now)
    }

    fn set_attributes(
        &mut self,
        inode: Inode,
        changes: &Changes,
        now: Timestamp,
    ) -> Result<(), Error> {
        self.writable()?;
        self.change_attributes(inode.0, changes, now)
    }

    fn write(
        &mut self,
        inode: Inode,
        offset: u64,
        data: &[u8],
        now: Timestamp,
    ) -> Result<usize, Error> {
        self.write_content(inode.0, offset, data, now)
    }

    fn set_xattr(
        &mut self,
        inode: Inode,
        name: &[u8],
        change: XattrChange<'_>,
        now: Timestamp,
    ) -> Result<(), Error> {
        self.change_xattr(inode.0, name, change, now)
    }

    fn sync(&mut self, inode: Option<Inode>) -> Result<(), Error> {
        self.writable()?;
        match inode {
            Some(inode) => {
                self.write_back(crate::store::number(inode.0)?)?;
                self.sync_heads()?;
            }
            None => {
                self.write_back_all()?;
                self.commit()?;
            }
        }
        self.fs.store.access.sync_volume()
    }

    fn sync_data(&mut self, inode: Option<Inode>) -> Result<(), Error> {
        self.writable()?;
        match inode {
            Some(inode) => {
                let number = crate::store::number(inode.0)?;
                match self.differs_in_times(number)? {
                    true => self.write_blocks(number)?,
                    false => self.write_back(number)?,
                }
            }
            // The journal has it: no commit, as in Linux.
            None => self.write_back_all()?,
        }
        self.sync_heads()?;
        self.fs.store.access.sync_volume()
    }

    fn forget(&mut self, inode: Inode) -> Result<(), Error> {
        match u32::try_from(inode.0) {
            Ok(number) => self.forget_orphan(number),
            Err(_) => Ok(()),
        }
    }
}
