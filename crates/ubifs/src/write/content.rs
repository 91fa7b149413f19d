//! Content of files: written to memory first, and to the journal later.

use alloc::boxed::Box;

use flysch_api::vfs::{FileKind, FsError, Timestamp};
use flysch_api::volume::VolumeMut;
use flysch_compress::Method;
use flysch_wire::ubifs::{BLOCK_SIZE, Compression, Data, InodeFlags, Key, Node, Truncation};

use super::budget::{BLOCK_COST, Need};
use super::cache::{Block, Record};
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
/// Compression that saves fewer bytes is not used (`UBIFS_MIN_COMPRESS_DIFF`).
const SAVING_MIN: usize = 64;
/// Longest file.
const SIZE_MAX: u64 = (Key::VALUE_MAX as u64 + 1) * BLOCK_SIZE as u64;

type Bytes = [u8; BLOCK_SIZE as usize];

impl<V: VolumeMut> Files<V> {
    pub(super) fn check_size(&self, size: u64) -> Result<(), FsError> {
        if size > SIZE_MAX { Err(FsError::FileTooLarge) } else { Ok(()) }
    }

    pub(super) fn write_content(
        &mut self,
        number: u64,
        offset: u64,
        data: &[u8],
        now: Timestamp,
    ) -> Result<usize, FsError> {
        self.disk.writable()?;
        let mut record = self.load(number)?;
        match kind(&record) {
            Some(FileKind::Regular) => {}
            Some(FileKind::Directory) => return Err(FsError::IsDirectory),
            _ => return Err(FsError::NoContent),
        }
        self.content_cipher(&record)?;
        self.check_size(offset.checked_add(data.len() as u64).ok_or(FsError::FileTooLarge)?)?;
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let within = (at % u64::from(BLOCK_SIZE)) as usize;
            let length = (BLOCK_SIZE as usize - within).min(data.len() - done);
            let place = ((at / u64::from(BLOCK_SIZE)) as u32, within);
            match self.write_part(&mut record, place, &data[done..done + length], now) {
                Ok(()) => done += length,
                Err(FsError::NoSpace) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes within one block; `record` is the current inode, and is updated.
    fn write_part(
        &mut self,
        record: &mut Record,
        (block, within): (u32, usize),
        part: &[u8],
        now: Timestamp,
    ) -> Result<(), FsError> {
        let key = (record.number(), block);
        if self.cache.block(key).is_none() {
            if self.cache.is_full() {
                self.write_back_all()?;
            }
            let opened = self.open_block(record, block, part.len() == BLOCK_SIZE as usize)?;
            self.cache.put_block(key, opened);
        }
        self.disk.changed = true;
        if let Some(block) = self.cache.block_mut(key) {
            block.bytes[within..within + part.len()].copy_from_slice(part);
        }
        let end = u64::from(block) * u64::from(BLOCK_SIZE) + (within + part.len()) as u64;
        let node = &mut record.node;
        node.size = node.size.max(end);
        (node.modified, node.changed) = (stamp(now), stamp(now));
        match self.cache.inode_mut(key.0) {
            Some(waiting) => waiting.node = record.node,
            None => self.cache.put_inode(record.clone()),
        }
        Ok(())
    }

    /// A block from the flash, to be changed; claims its space.
    fn open_block(&mut self, record: &Record, block: u32, whole: bool) -> Result<Block, FsError> {
        let key = Key::data(record.number(), block);
        let new = self.disk.store().find(key)?.is_none();
        let need = Need { bytes: BLOCK_COST + record.cost(), leaves: u64::from(new) };
        self.claim(need)?;
        let mut bytes: Box<Bytes> = Box::new([0; BLOCK_SIZE as usize]);
        if !new && !whole {
            self.read_stored(record, key, &mut bytes)?;
        }
        Ok(Block { bytes, new })
    }

    /// Reads a block from the flash; a missing one leaves `bytes` unchanged.
    fn read_stored(&mut self, record: &Record, key: Key, bytes: &mut Bytes) -> Result<(), FsError> {
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

    /// Writes everything that waits in the cache.
    pub(super) fn write_back_all(&mut self) -> Result<(), FsError> {
        self.cache.files().into_iter().try_for_each(|number| self.write_back(number))
    }

    /// Writes what is waiting of one file: the inode first, so that its size covers the content.
    pub(super) fn write_back(&mut self, number: u32) -> Result<(), FsError> {
        let waiting = self.promised();
        let Some(record) = self.cache.inode(number) else { return self.write_blocks(number) };
        let at = self.disk.write_one(BASE, Node::Inode(record.node()), waiting)?;
        self.disk.set(record.key(), at)?;
        match self.cache.take_inode(number) {
            Some(record) => self.write_blocks_of(&record),
            None => Ok(()),
        }
    }

    /// Writes the waiting content of a file whose inode on the flash already has its size.
    pub(super) fn write_blocks(&mut self, number: u32) -> Result<(), FsError> {
        if self.cache.blocks_of(number, 0, u32::MAX).next().is_none() {
            return Ok(());
        }
        let record = self.load_any(number)?;
        self.write_blocks_of(&record)
    }

    fn write_blocks_of(&mut self, record: &Record) -> Result<(), FsError> {
        let mut next = 0;
        while let Some(block) = self.cache.next_block(record.number(), next) {
            self.write_block(record, block)?;
            self.cache.take_block((record.number(), block));
            next = block + 1;
        }
        Ok(())
    }

    /// Writes one waiting block.
    fn write_block(&mut self, record: &Record, block: u32) -> Result<(), FsError> {
        let start = u64::from(block) * u64::from(BLOCK_SIZE);
        let length = record.node.size.saturating_sub(start).min(BLOCK_SIZE.into()) as usize;
        if length == 0 {
            return Ok(());
        }
        self.content_cipher(record)?;
        let waiting = self.promised();
        let Self { disk, cache, cipher } = self;
        let Some(cached) = cache.block((record.number(), block)) else { return Ok(()) };
        let key = Key::data(record.number(), block);
        let mut room = [0; BLOCK_SIZE as usize];
        let mut sealed;
        let mut data = pack(record, key, &cached.bytes[..length], &mut room);
        if record.is_encrypted() {
            sealed = [0; BLOCK_SIZE as usize];
            data = seal_block(cipher.as_ref(), data, &mut sealed)?;
        }
        let at = disk.write_one(DATA, Node::Data(data), waiting)?;
        disk.set(key, at)
    }

    /// Makes sure that the cipher of an encrypted file's content is loaded.
    pub(super) fn content_cipher(&mut self, record: &Record) -> Result<(), FsError> {
        let number = record.number();
        let is_here = self.cipher.as_ref().is_some_and(|(of, _)| *of == number);
        if record.is_encrypted() && !is_here {
            self.cipher = Some((number, self.disk.fs.cipher(number, Use::Contents)?));
        }
        Ok(())
    }

    /// Changes a file's length; the caller stores the inode.
    pub(super) fn resize(
        &mut self,
        record: &mut Record,
        size: u64,
        now: Timestamp,
    ) -> Result<(), FsError> {
        let old_size = record.node.size;
        record.node.size = size;
        record.node.modified = stamp(now);
        record.node.changed = stamp(now);
        if size < old_size { self.truncate(record, old_size) } else { Ok(()) }
    }

    /// Writes a truncation: the inode, the truncation node, and the rest of the last block.
    fn truncate(&mut self, record: &Record, old_size: u64) -> Result<(), FsError> {
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
                None if left => self.read_stored(record, key, &mut bytes)?,
                None => {}
            }
        }
        let mut room = [0; BLOCK_SIZE as usize];
        let key = Key::data(number, block);
        let mut data = pack(record, key, &bytes[..rest.max(1)], &mut room);
        let mut sealed;
        if left && record.is_encrypted() {
            sealed = [0; BLOCK_SIZE as usize];
            self.content_cipher(record)?;
            data = seal_block(self.cipher.as_ref(), data, &mut sealed)?;
        }
        let cut = Truncation { inode: number, old_size, new_size: size };
        let nodes = [Node::Inode(record.node()), Node::Truncation(cut), Node::Data(data)];
        let places = self.journal(BASE, &nodes[..if left { 3 } else { 2 }])?;
        let [inode, _, rest_at @ ..] = &places[..] else { unreachable!("two nodes at least") };
        self.written(record.key(), *inode)?;
        self.cache.drop_blocks(number, if rest == 0 { block } else { block + 1 });
        if let [at] = rest_at {
            self.cache.take_block((number, block));
            self.disk.set(key, *at)?;
        }
        match truncated_blocks(old_size, size) {
            Some((first, last)) => {
                self.disk.remove_range(Key::data(number, first), Key::data(number, last))
            }
            None => Ok(()),
        }
    }
}

/// A data node for `bytes`, compressed into `room` if the file asks for it and it pays.
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

/// Encrypts a block before it is written, into `room`.
fn seal_block<'b>(
    cipher: Option<&(u32, FileCipher)>,
    data: Data<'_>,
    room: &'b mut Bytes,
) -> Result<Data<'b>, FsError> {
    let (_, cipher) = cipher.ok_or(FsError::Encrypted)?;
    let plain = data.data.len();
    let sealed = &mut room[..plain.next_multiple_of(BLOCK)];
    sealed[..plain].copy_from_slice(data.data);
    sealed[plain..].fill(0);
    cipher.encrypt(data.key.value().into(), sealed);
    debug_assert!(plain <= BLOCK_SIZE as usize);
    let Data { key, size, compression, .. } = data;
    Ok(Data { key, size, compression, plain_size: plain as u16, data: sealed })
}
