//! Blocks of an image from before a repair.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use flysch_mtd::{FileStorage, StorageMut};
use flysch_wire::ubifs::crc32;

use crate::storage::GROWTH_MAX;

/// A backup starts with this.
const MAGIC: &[u8; 8] = b"FLYREPR1";
/// Maximum bytes of a block.
const BLOCK_MAX: u32 = 64 << 20;

/// Writes a backup: the blocks of `old` that differ in `new`, of `block` bytes each; returns their
/// number.
///
/// Little endian: magic, block size (u32), size of the old image (u64); then for each block its
/// offset (u64), its length (u32), CRC-32 of the bytes (u32), the bytes.
///
/// # Errors
/// Of reading and writing.
pub fn write_backup(old: &Path, new: &Path, block: u32, out: &mut dyn Write) -> io::Result<u64> {
    let (old, new) = (File::open(old)?, File::open(new)?);
    let (old_size, new_size) = (old.metadata()?.len(), new.metadata()?.len());
    out.write_all(MAGIC)?;
    out.write_all(&block.to_le_bytes())?;
    out.write_all(&old_size.to_le_bytes())?;
    let (mut one, mut other) = (vec![0; block as usize], vec![0; block as usize]);
    let mut blocks = 0;
    let mut at = 0;
    while at < old_size {
        let len = u64::from(block).min(old_size - at) as usize;
        old.read_exact_at(&mut one[..len], at)?;
        let is_same = at + len as u64 <= new_size && {
            new.read_exact_at(&mut other[..len], at)?;
            one[..len] == other[..len]
        };
        if !is_same {
            out.write_all(&at.to_le_bytes())?;
            out.write_all(&(len as u32).to_le_bytes())?;
            out.write_all(&crc32(&one[..len]).to_le_bytes())?;
            out.write_all(&one[..len])?;
            blocks += 1;
        }
        at += len as u64;
    }
    Ok(blocks)
}

/// One block of a backup.
struct Saved {
    /// Its offset in the image.
    at: u64,
    bytes: Vec<u8>,
}

/// A backup being read.
struct Backup<'r> {
    input: &'r mut dyn Read,
    /// Bytes of the original image.
    size: u64,
}

impl<'r> Backup<'r> {
    fn open(input: &'r mut dyn Read) -> io::Result<Self> {
        let mut head = [0; 20];
        input.read_exact(&mut head).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => bad("it is not a backup of a repair"),
            _ => error,
        })?;
        let (magic, rest) = head.split_at(8);
        if magic != MAGIC {
            return Err(bad("it is not a backup of a repair"));
        }
        Ok(Self { input, size: number(&rest[4..]) })
    }

    /// The next block, if there is one.
    fn next(&mut self) -> io::Result<Option<Saved>> {
        let mut head = [0; 16];
        match self.input.read(&mut head[..1])? {
            0 => return Ok(None),
            _ => self.input.read_exact(&mut head[1..])?,
        }
        let (at, len, crc) = (number(&head[..8]), number(&head[8..12]), number(&head[12..]));
        if len > BLOCK_MAX.into() || at.checked_add(len).is_none_or(|end| end > self.size) {
            return Err(bad("the backup is damaged: a block lies outside the image"));
        }
        let mut bytes = vec![0; len as usize];
        self.input.read_exact(&mut bytes)?;
        if u64::from(crc32(&bytes)) != crc {
            return Err(bad("the backup is damaged: bad CRC of a block"));
        }
        Ok(Some(Saved { at, bytes }))
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Whether the file at `backup` is a backup of the image at `path` in its present state, so that a
/// new backup of the same image contains everything in it: it was left by a repair that was killed
/// after writing it.
///
/// # Errors
/// Of reading the image.
pub fn is_backup_of(backup: &Path, path: &Path) -> io::Result<bool> {
    let Ok(file) = File::open(backup) else { return Ok(false) };
    let mut input = BufReader::new(file);
    let image = File::open(path)?;
    let Ok(mut backup) = Backup::open(&mut input) else { return Ok(false) };
    if backup.size != image.metadata()?.len() {
        return Ok(false);
    }
    let mut there = Vec::new();
    loop {
        match backup.next() {
            Ok(None) => return Ok(true),
            Ok(Some(Saved { at, bytes })) => {
                there.resize(bytes.len(), 0);
                image.read_exact_at(&mut there, at)?;
                if there != bytes {
                    return Ok(false);
                }
            }
            Err(_) => return Ok(false),
        }
    }
}

/// Puts a backup's blocks back into the image at `path`; returns their number.
///
/// # Errors
/// Of reading and writing, and [`io::ErrorKind::InvalidData`] if it is not a backup or is damaged;
/// the image may then be half restored.
pub fn restore_backup(backup: &mut dyn Read, path: &Path) -> io::Result<u64> {
    let mut backup = Backup::open(backup)?;
    let mut storage = FileStorage::open_writable(path)?;
    storage.grow(backup.size, GROWTH_MAX)?;
    let mut blocks = 0;
    while let Some(Saved { at, bytes }) = backup.next()? {
        storage.write_at(at, &bytes).map_err(|error| io::Error::other(error.to_string()))?;
        blocks += 1;
    }
    let file = File::options().write(true).open(path)?;
    file.set_len(backup.size)?;
    file.sync_all()?;
    Ok(blocks)
}
