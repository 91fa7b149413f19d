//! Blocks of an image from before a repair.
//!
//! They belong to the image as the repair left it, and to nothing else: in another image, or in
//! this one after an edit, they would be a mixture of both. The backup therefore contains a hash of
//! the repaired image, by which it is recognised, and one of the original, which is what a restore
//! must end with.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use flysch_mtd::{FileStorage, StorageMut};
use flysch_wire::ubi::EcHeader;
use flysch_wire::ubifs::{BranchFormat, Node, crc32};
use sha2::{Digest as _, Sha256};

use crate::storage::GROWTH_MAX;

/// A backup starts with this.
const MAGIC: &[u8; 8] = b"FLYREPR2";
/// The first format, without the states of the image.
const MAGIC_STATELESS: &[u8; 8] = b"FLYREPR1";
/// Maximum bytes of a block.
const BLOCK_MAX: u32 = 64 << 20;
/// Bytes hashed at a time.
const CHUNK: usize = 1 << 20;

/// What an image file contains: its bytes, and their SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    size: u64,
    hash: [u8; 32],
}

impl State {
    /// Bytes in a backup.
    const SIZE: usize = 40;

    fn of(file: &File) -> io::Result<Self> {
        let size = file.metadata()?.len();
        let mut hash = Sha256::new();
        let mut chunk = vec![0; CHUNK];
        let mut at = 0;
        while at < size {
            let len = (CHUNK as u64).min(size - at) as usize;
            file.read_exact_at(&mut chunk[..len], at)?;
            hash.update(&chunk[..len]);
            at += len as u64;
        }
        Ok(Self { size, hash: hash.finalize().into() })
    }

    fn parse(bytes: &[u8; Self::SIZE]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(&bytes[8..]);
        Self { size: number(&bytes[..8]), hash }
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.size.to_le_bytes())?;
        out.write_all(&self.hash)
    }
}

/// Writes a backup: the blocks of `old` that differ in `new`, of `block` bytes each; returns their
/// number.
///
/// Little endian: magic, block size (u32); size (u64) and SHA-256 of the old image; the same of the
/// new one; then for each block its offset (u64), its length (u32), CRC-32 of the bytes (u32), the
/// bytes.
///
/// # Errors
/// Of reading and writing.
pub fn write_backup(old: &Path, new: &Path, block: u32, out: &mut dyn Write) -> io::Result<u64> {
    let (old, new) = (File::open(old)?, File::open(new)?);
    let (old_state, new_state) = (State::of(&old)?, State::of(&new)?);
    let (old_size, new_size) = (old_state.size, new_state.size);
    out.write_all(MAGIC)?;
    out.write_all(&block.to_le_bytes())?;
    old_state.write(out)?;
    new_state.write(out)?;
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
    /// The original image and the repaired one; the first format does not have them.
    states: Option<(State, State)>,
}

impl<'r> Backup<'r> {
    fn open(input: &'r mut dyn Read) -> io::Result<Self> {
        let none = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => bad("it is not a backup of a repair"),
            _ => error,
        };
        let mut head = [0; 12];
        input.read_exact(&mut head).map_err(none)?;
        if head.starts_with(MAGIC_STATELESS) {
            let mut size = [0; 8];
            input.read_exact(&mut size).map_err(none)?;
            return Ok(Self { input, size: number(&size), states: None });
        }
        if !head.starts_with(MAGIC) {
            return Err(bad("it is not a backup of a repair"));
        }
        let (mut old, mut new) = ([0; State::SIZE], [0; State::SIZE]);
        input.read_exact(&mut old).map_err(none)?;
        input.read_exact(&mut new).map_err(none)?;
        let states = (State::parse(&old), State::parse(&new));
        Ok(Self { input, size: states.0.size, states: Some(states) })
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
    if let Some((old, _)) = backup.states
        && old != State::of(&image)?
    {
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

/// Restores the file at `path`, a copy of the image that a repair left, from the backup of that
/// repair; returns the number of blocks. An image that is already as it was before the repair stays
/// so.
///
/// # Errors
/// Of reading and writing, and [`io::ErrorKind::InvalidData`]: it is not a backup, or is damaged,
/// or the image is another one or has changed since the repair. The file may then be half restored.
pub fn restore_backup(backup: &mut dyn Read, path: &Path) -> io::Result<u64> {
    let mut backup = Backup::open(backup)?;
    let Some((old, new)) = backup.states else { return restore_stateless(backup, path) };
    match State::of(&File::open(path)?)? {
        state if state == new => {}
        state if state == old => return Ok(0),
        _ => {
            return Err(bad(
                "it does not belong to the image as it is: it was made for another image, or this \
                 one was changed after the repair; restore a copy of what the repair left, if \
                 there is one",
            ));
        }
    }
    let blocks = put_back(&mut backup, path, |_, _| Ok(()))?;
    match State::of(&File::open(path)?)? == old {
        true => Ok(blocks),
        false => Err(bad("the backup is damaged: its blocks do not give the image from before")),
    }
}

/// Of the first format only a backup that shows to which image it belongs: by a number of UBI or of
/// the file system in one of its blocks, which the image has in the same place.
fn restore_stateless(mut backup: Backup<'_>, path: &Path) -> io::Result<u64> {
    // A repair may append blocks, and cuts nothing off.
    if File::open(path)?.metadata()?.len() < backup.size {
        return Err(bad("it was made for another image: this one is shorter"));
    }
    let mut is_known = false;
    let blocks = put_back(&mut backup, path, |old, new| match (identity(old), identity(new)) {
        (Some(old), Some(new)) if old != new => {
            Err(bad("it was made for another image: this one has another number"))
        }
        (Some(_), Some(_)) => {
            is_known = true;
            Ok(())
        }
        _ => Ok(()),
    })?;
    let why = "it was made by an earlier version, and nothing in it shows that it belongs to this \
               image: only that version restores it";
    if is_known { Ok(blocks) } else { Err(bad(why)) }
}

/// By what a block shows to which image it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    Ubi(u32),
    Ubifs([u8; 16]),
}

fn identity(block: &[u8]) -> Option<Identity> {
    if let Ok(header) = EcHeader::parse(block) {
        // 0 is what tools write that do not number images.
        return Some(Identity::Ubi(header.image_sequence)).filter(|it| *it != Identity::Ubi(0));
    }
    match Node::parse(block, BranchFormat::default()) {
        Ok((_, Node::Superblock(it))) if it.uuid != [0; 16] => Some(Identity::Ubifs(it.uuid)),
        _ => None,
    }
}

/// Puts the blocks of a backup in the file at `path`; `judge` gets each of them with what is in its
/// place. Returns their number.
fn put_back(
    backup: &mut Backup<'_>,
    path: &Path,
    mut judge: impl FnMut(&[u8], &[u8]) -> io::Result<()>,
) -> io::Result<u64> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut storage = FileStorage::open_writable(path)?;
    storage.grow(backup.size, GROWTH_MAX)?;
    let mut there = Vec::new();
    let mut blocks = 0;
    while let Some(Saved { at, bytes }) = backup.next()? {
        there.resize(bytes.len(), 0);
        file.read_exact_at(&mut there, at)?;
        judge(&bytes, &there)?;
        storage.write_at(at, &bytes).map_err(|error| io::Error::other(error.to_string()))?;
        blocks += 1;
    }
    file.set_len(backup.size)?;
    file.sync_all()?;
    Ok(blocks)
}

#[cfg(test)]
mod tests;
