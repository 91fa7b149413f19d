//! Files in their current state: what waits in memory on top of what is stored.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use flysch_api::vfs::{FsError, Inode};
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{BLOCK_SIZE, InodeFlags, Key, Node, SuperblockFlags};

use super::budget::{BLOCK_COST, Budget, Need};
use super::cache::{Cache, Record};
use super::store::StoreMut;
use crate::crypt::{FileCipher, Use};
use crate::location::Location;

/// Inodes and content.
///
/// Names are not handled here but in [`UbifsMut`](super::UbifsMut).
#[derive(Debug)]
pub(super) struct Files<V> {
    pub(super) disk: StoreMut<V>,
    /// What waits to be written.
    pub(super) cache: Cache,
    /// The cipher for the content of the file used last.
    pub(super) cipher: Option<(u32, FileCipher)>,
}

impl<V: VolumeMut> Files<V> {
    pub(super) fn new(disk: StoreMut<V>) -> Self {
        Self { disk, cache: Cache::default(), cipher: None }
    }

    /// The space promised to what waits.
    pub(super) fn promised(&self) -> Need {
        let (inode_bytes, blocks, new_blocks) = self.cache.counts();
        Need { bytes: inode_bytes + blocks * BLOCK_COST, leaves: new_blocks }
    }

    /// The space that can still be promised.
    pub(super) fn budget(&self) -> Budget<'_> {
        self.disk.budget(self.promised())
    }

    /// Writes the nodes of one operation at a journal head; see [`StoreMut::write`].
    pub(super) fn journal(
        &mut self,
        head: usize,
        nodes: &[Node<'_>],
    ) -> Result<Vec<Location>, FsError> {
        self.disk.write(head, nodes, self.promised())
    }

    /// An inode waiting to be written.
    pub(super) fn waiting(&self, inode: Inode) -> Option<&Record> {
        let record = self.cache.inode(u32::try_from(inode.0).ok()?)?;
        (!record.has(InodeFlags::XATTR)).then_some(record)
    }

    /// The cipher of a file's content; `None` if it is not encrypted.
    pub(super) fn reading_cipher(&self, inode: Inode) -> Result<Option<FileCipher>, FsError> {
        if !self.disk.superblock().flags.contains(SuperblockFlags::ENCRYPTION) {
            return Ok(None);
        }
        let is_encrypted = match self.waiting(inode) {
            Some(record) => record.is_encrypted(),
            None => self.disk.fs.stat(inode)?.is_encrypted(),
        };
        let number = crate::store::number(inode.0)?;
        is_encrypted.then(|| self.disk.fs.cipher(number, Use::Contents)).transpose()
    }

    /// Copies waiting blocks over what was read from the flash.
    pub(super) fn read_waiting(&self, inode: u32, offset: u64, buffer: &mut [u8]) {
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
    pub(super) fn has_block(&self, inode: u32, block: u32) -> Result<bool, FsError> {
        Ok(self.cache.block((inode, block)).is_some()
            || self.disk.fs.store.find(Key::data(inode, block))?.is_some())
    }

    /// The next block with content, from `block` on.
    pub(super) fn next_block(&self, inode: u32, block: u32) -> Result<Option<u32>, FsError> {
        let mut next = self.cache.next_block(inode, block);
        let (first, last) = (Key::data(inode, block), Key::data(inode, Key::VALUE_MAX));
        self.disk.fs.store.nodes(first, last, &mut |key, _| {
            next = Some(next.map_or(key.value(), |next| next.min(key.value())));
            ControlFlow::Break(())
        })?;
        Ok(next)
    }
}
