//! Content of files: written to memory first, to the journal later.

use alloc::boxed::Box;
use alloc::vec::Vec;

use flysch_api::vfs::{Error, FileKind, Timestamp};
use flysch_api::volume::VolumeMut;
use flysch_compress::Method;
use flysch_wire::ubifs::{BLOCK_SIZE, Compression, Data, InodeFlags, Key, Node, Truncation};

use super::budget::{BLOCK_COST, Need};
use super::cache::{Block, BlockKey, Record};
use super::files::Files;
use super::inode::{kind, stamp};
use super::{BASE, DATA};
use crate::access::Scratch;
use crate::crypt::{BLOCK, FileCipher, Use};
use crate::file::unpack;
use crate::replay::truncated_blocks;
use crate::sealed::decrypt_block;

/// Shorter content is not compressed (`UBIFS_MIN_COMPR_LEN`).
const COMPRESS_MIN: usize = 128;
/// Compression that saves less is not used (`UBIFS_MIN_COMPRESS_DIFF`).
const SAVING_MIN: usize = 64;
/// Longest file.
const SIZE_MAX: u64 = (Key::VALUE_MAX as u64 + 1) * BLOCK_SIZE as u64;

type Bytes = [u8; BLOCK_SIZE as usize];

impl<V: VolumeMut> Files<V> {
    pub(super) fn check_size(&self, size: u64) -> Result<(), Error> {
        if size > SIZE_MAX { Err(Error::FileTooLarge) } else { Ok(()) }
    }

    pub(super) fn write_content(
        &mut self,
        number: u64,
        offset: u64,
        data: &[u8],
        now: Timestamp,
    ) -> Result<usize, Error> {
        self.disk.writable()?;
        let record = self.load(number)?;
        match kind(&record) {
            Some(FileKind::Regular) => {}
            Some(FileKind::Directory) => return Err(Error::IsDirectory),
            _ => return Err(Error::NoContent),
        }
        self.content_cipher(&record)?;
        self.check_size(offset.checked_add(data.len() as u64).ok_or(Error::FileTooLarge)?)?;
        let number = record.number();
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let within = (at % u64::from(BLOCK_SIZE)) as usize;
            let length = (BLOCK_SIZE as usize - within).min(data.len() - done);
            let key = (number, (at / u64::from(BLOCK_SIZE)) as u32);
            let part = &data[done..done + length];
            match self.write_part(key, within, part, now) {
                Ok(()) => done += length,
                Err(Error::NoSpace) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes inside one block.
    fn write_part(
        &mut self,
        key: BlockKey,
        within: usize,
        part: &[u8],
        now: Timestamp,
    ) -> Result<(), Error> {
        if self.cache.block(key).is_none() {
            if self.cache.is_full() {
                self.write_back_all()?;
            }
            let block = self.open_block(key, part.len() == BLOCK_SIZE as usize)?;
            self.cache.put_block(key, block);
        }
        if self.cache.inode(key.0).is_none() {
            let record = self.load_any(key.0)?;
            self.cache.put_inode(record);
        }
        self.disk.changed = true;
        if let Some(block) = self.cache.block_mut(key) {
            block.bytes[within..within + part.len()].copy_from_slice(part);
        }
        let end = u64::from(key.1) * u64::from(BLOCK_SIZE) + (within + part.len()) as u64;
        if let Some(record) = self.cache.inode_mut(key.0) {
            record.node.size = record.node.size.max(end);
            record.node.modified = stamp(now);
            record.node.changed = stamp(now);
        }
        Ok(())
    }

    /// A block as it is on the flash, to be changed; its room is claimed.
    fn open_block(&mut self, key: BlockKey, whole: bool) -> Result<Block, Error> {
        let new = self.disk.fs.store.find(Key::data(key.0, key.1))?.is_none();
        let record = self.load_any(key.0)?;
        let need = Need { bytes: BLOCK_COST + record.cost(), leaves: u64::from(new) };
        self.claim(need)?;
        let mut bytes: Box<Bytes> = Box::new([0; BLOCK_SIZE as usize]);
        if !new && !whole {
            self.read_stored(&record, key, &mut bytes)?;
        }
        Ok(Block { bytes, new })
    }

    /// Reads a block from the flash; what is not there stays as it is.
    fn read_stored(
        &mut self,
        record: &Record,
        key: BlockKey,
        bytes: &mut Bytes,
    ) -> Result<(), Error> {
        let key = Key::data(key.0, key.1);
        self.content_cipher(record)?;
        let cipher = self.cipher.as_ref().filter(|_| record.is_encrypted());
        let Some(at) = self.disk.fs.store.find(key)? else { return Ok(()) };
        let mut scratch = Scratch::new();
        let data = self.disk.fs.data(key, at, &mut scratch)?;
        let bad = || {
            self.disk.fs.store.fault(
                at,
                flysch_wire::ubifs::NodeKind::Data,
                crate::store::field("data"),
            )
        };
        let mut room;
        let data = match cipher {
            Some((_, cipher)) => {
                room = [0; BLOCK_SIZE as usize];
                decrypt_block(&data, cipher, &mut room).ok_or_else(bad)?
            }
            None => data,
        };
        unpack(&data, &mut bytes[..data.size as usize]).ok_or_else(|| bad().into())
    }

    /// Writes everything that waits.
    pub(super) fn write_back_all(&mut self) -> Result<(), Error> {
        self.cache.files().into_iter().try_for_each(|number| self.write_back(number))
    }

    /// Writes what waits of one file: the inode first, so that its size covers what follows.
    pub(super) fn write_back(&mut self, number: u32) -> Result<(), Error> {
        if let Some(record) = self.cache.inode(number).cloned() {
            self.write_inode(&record)?;
            self.cache.take_inode(number);
        }
        self.write_blocks(number)
    }

    /// Writes the content that waits of one file, whose inode on the flash has its size.
    pub(super) fn write_blocks(&mut self, number: u32) -> Result<(), Error> {
        let blocks: Vec<u32> = self.cache.blocks_of(number, 0, u32::MAX).map(|it| it.0).collect();
        if blocks.is_empty() {
            return Ok(());
        }
        let record = self.load_any(number)?;
        for block in blocks {
            let Some(cached) = self.cache.block((number, block)) else { continue };
            let bytes = cached.bytes.clone();
            self.write_block(&record, block, &bytes)?;
            self.cache.take_block((number, block));
        }
        Ok(())
    }

    /// Writes one block.
    fn write_block(&mut self, record: &Record, block: u32, bytes: &Bytes) -> Result<(), Error> {
        let start = u64::from(block) * u64::from(BLOCK_SIZE);
        let length = record.node.size.saturating_sub(start).min(BLOCK_SIZE.into()) as usize;
        if length == 0 {
            return Ok(());
        }
        let key = Key::data(record.number(), block);
        let mut room = [0; BLOCK_SIZE as usize];
        let mut data = pack(record, key, &bytes[..length], &mut room);
        let mut sealed;
        if record.is_encrypted() {
            sealed = [0; BLOCK_SIZE as usize];
            data = self.seal_block(record, data, &mut sealed)?;
        }
        let places = self.journal(DATA, &[Node::Data(data)])?;
        self.disk.set(key, places[0])
    }

    /// What encrypts a file's content; none if it is not encrypted.
    pub(super) fn content_cipher(&mut self, record: &Record) -> Result<Option<&FileCipher>, Error> {
        if !record.is_encrypted() {
            return Ok(None);
        }
        let number = record.number();
        if self.cipher.as_ref().is_none_or(|(of, _)| *of != number) {
            self.cipher = Some((number, self.disk.fs.cipher(number, Use::Contents)?));
        }
        Ok(self.cipher.as_ref().map(|(_, cipher)| cipher))
    }

    /// Encrypts a block that is about to be written, into `room`.
    pub(super) fn seal_block<'b>(
        &mut self,
        record: &Record,
        data: Data<'_>,
        room: &'b mut Bytes,
    ) -> Result<Data<'b>, Error> {
        let plain = data.data.len();
        let sealed = &mut room[..plain.next_multiple_of(BLOCK)];
        sealed[..plain].copy_from_slice(data.data);
        sealed[plain..].fill(0);
        let cipher = self.content_cipher(record)?.ok_or(Error::Encrypted)?;
        cipher.encrypt(data.key.value().into(), sealed);
        debug_assert!(plain <= BLOCK_SIZE as usize);
        let Data { key, size, compression, .. } = data;
        Ok(Data { key, size, compression, plain_size: plain as u16, data: sealed })
    }

    /// Gives a file another length; the caller keeps the inode.
    pub(super) fn resize(
        &mut self,
        record: &mut Record,
        size: u64,
        now: Timestamp,
    ) -> Result<(), Error> {
        let old_size = record.node.size;
        record.node.size = size;
        record.node.modified = stamp(now);
        record.node.changed = stamp(now);
        if size < old_size { self.truncate(record, old_size) } else { Ok(()) }
    }

    /// Writes the truncation: inode, truncation node, what is left of the last block.
    fn truncate(&mut self, record: &Record, old_size: u64) -> Result<(), Error> {
        let (number, size) = (record.number(), record.node.size);
        let block = (size / u64::from(BLOCK_SIZE)) as u32;
        let rest = (size % u64::from(BLOCK_SIZE)) as usize;
        let mut bytes = [0; BLOCK_SIZE as usize];
        let mut left = false;
        if rest != 0 {
            let key = Key::data(number, block);
            left = self.disk.fs.store.find(key)?.is_some();
            match self.cache.block((number, block)) {
                Some(cached) => {
                    bytes.copy_from_slice(&cached.bytes[..]);
                    left = true;
                }
                None if left => self.read_stored(record, (number, block), &mut bytes)?,
                None => {}
            }
        }
        let mut room = [0; BLOCK_SIZE as usize];
        let key = Key::data(number, block);
        let mut data = pack(record, key, &bytes[..rest.max(1)], &mut room);
        let mut sealed;
        if left && record.is_encrypted() {
            sealed = [0; BLOCK_SIZE as usize];
            data = self.seal_block(record, data, &mut sealed)?;
        }
        let cut = Truncation { inode: number, old_size, new_size: size };
        let nodes = [Node::Inode(record.node()), Node::Truncation(cut), Node::Data(data)];
        let places = self.journal(BASE, &nodes[..if left { 3 } else { 2 }])?;
        self.written(record, places[0])?;
        self.cache.drop_blocks(number, if rest == 0 { block } else { block + 1 });
        if left {
            self.cache.take_block((number, block));
            self.disk.set(key, places[2])?;
        }
        match truncated_blocks(old_size, size) {
            Some((first, last)) => {
                self.disk.remove_range(Key::data(number, first), Key::data(number, last))
            }
            None => Ok(()),
        }
    }
}

/// A data node over `bytes`, compressed into `room` if the file wants it and it is worth it.
fn pack<'b>(record: &Record, key: Key, bytes: &'b [u8], room: &'b mut Bytes) -> Data<'b> {
    let plain = Data {
        key,
        size: bytes.len() as u32,
        compression: Compression::None,
        plain_size: 0,
        data: bytes,
    };
    let compression = record.node.compression;
    let method = match compression {
        Compression::Lzo => Method::Lzo,
        Compression::Zlib => Method::Deflate,
        Compression::Zstd => Method::Zstd,
        Compression::None | Compression::Unknown(_) => return plain,
    };
    if !record.has(InodeFlags::COMPRESS) || bytes.len() < COMPRESS_MIN {
        return plain;
    }
    let most = bytes.len() - SAVING_MIN;
    match flysch_compress::compress(method, bytes, &mut room[..most]) {
        Some(length) => Data { compression, data: &room[..length], ..plain },
        None => plain,
    }
}
