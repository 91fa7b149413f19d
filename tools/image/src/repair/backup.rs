//! Blocks of an image as they were before a repair.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use flysch_mtd::StorageMut;
use flysch_wire::ubifs::crc32;

use crate::storage::FileStorage;

/// A backup starts with this.
const MAGIC: &[u8; 8] = b"FLYREPR1";
/// Most bytes of a block.
const BLOCK_MAX: u32 = 64 << 20;

/// Writes a backup: the blocks of `old` in which `new` differs, in `block` bytes each; tells how
/// many.
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

/// Puts a backup's blocks back into the image at `path`; tells how many.
///
/// # Errors
/// Of reading and writing, and [`io::ErrorKind::InvalidData`] if it is no backup or damaged; the
/// image may then be half restored.
pub fn restore_backup(backup: &mut dyn Read, path: &Path) -> io::Result<u64> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut head = [0; 20];
    backup.read_exact(&mut head).map_err(|_| bad("it is no backup of a repair"))?;
    let (magic, rest) = head.split_at(8);
    if magic != MAGIC {
        return Err(bad("it is no backup of a repair"));
    }
    let number = |bytes: &[u8]| {
        bytes.iter().rev().fold(0_u64, |number, &byte| number << 8 | u64::from(byte))
    };
    let size = number(&rest[4..]);
    let mut storage = FileStorage::open_writable(path)?;
    storage.grow(size)?;
    let mut blocks = 0;
    loop {
        let mut head = [0; 16];
        match backup.read(&mut head[..1])? {
            0 => break,
            _ => backup.read_exact(&mut head[1..])?,
        }
        let (at, len, crc) = (number(&head[..8]), number(&head[8..12]), number(&head[12..]));
        if len > BLOCK_MAX.into() || at.checked_add(len).is_none_or(|end| end > size) {
            return Err(bad("the backup is damaged: a block lies outside the image"));
        }
        let mut bytes = vec![0; len as usize];
        backup.read_exact(&mut bytes)?;
        if u64::from(crc32(&bytes)) != crc {
            return Err(bad("the backup is damaged: bad CRC of a block"));
        }
        storage.write_at(at, &bytes).map_err(|error| io::Error::other(error.to_string()))?;
        blocks += 1;
    }
    let file = File::options().write(true).open(path)?;
    file.set_len(size)?;
    file.sync_all()?;
    Ok(blocks)
}
