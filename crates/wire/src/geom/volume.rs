//! The volume names of file systems, and where each keeps them.
//!
//! Nothing here follows more than a few pointers, each checked against the size of the medium, and
//! no read is longer than [`READ_MAX`].

use core::fmt;

use super::text;
use crate::bytes::{array, be32, le16, le32, le64};

/// Longest read requested, bytes.
pub const READ_MAX: usize = 4096;
/// Maximum bytes kept of a name.
const LABEL_MAX: usize = 255;

/// Known file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileSystem {
    /// ext2, ext3, ext4.
    Ext,
    /// FAT12, FAT16, FAT32.
    Fat,
    /// exFAT.
    ExFat,
    /// NTFS.
    Ntfs,
    /// ISO 9660.
    Iso9660,
    /// UDF.
    Udf,
    /// UFS and UFS2.
    Ufs,
    /// Linux swap.
    Swap,
    /// F2FS.
    F2fs,
    /// Btrfs.
    Btrfs,
    /// XFS.
    Xfs,
    /// Squashfs, which has no name.
    Squashfs,
    /// EROFS.
    Erofs,
    /// UBIFS without UBI beneath it, as written by `mkfs.ubifs`.
    Ubifs,
}

impl FileSystem {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Ext,
        Self::Fat,
        Self::ExFat,
        Self::Ntfs,
        Self::Iso9660,
        Self::Udf,
        Self::Ufs,
        Self::Swap,
        Self::F2fs,
        Self::Btrfs,
        Self::Xfs,
        Self::Squashfs,
        Self::Erofs,
        Self::Ubifs,
    ];

    /// Its usual name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext => "ext2/3/4",
            Self::Fat => "FAT",
            Self::ExFat => "exFAT",
            Self::Ntfs => "NTFS",
            Self::Iso9660 => "ISO 9660",
            Self::Udf => "UDF",
            Self::Ufs => "UFS",
            Self::Swap => "Linux swap",
            Self::F2fs => "F2FS",
            Self::Btrfs => "Btrfs",
            Self::Xfs => "XFS",
            Self::Squashfs => "Squashfs",
            Self::Erofs => "EROFS",
            Self::Ubifs => "UBIFS",
        }
    }

    /// The directory for its volume names. FreeBSD has `ext2fs`, `msdosfs`, `ntfs`, `iso9660`,
    /// `ufs` and `swap`; the others follow the same pattern.
    #[must_use]
    pub const fn folder(self) -> &'static str {
        match self {
            Self::Ext => "ext2fs",
            Self::Fat => "msdosfs",
            Self::ExFat => "exfat",
            Self::Ntfs => "ntfs",
            Self::Iso9660 => "iso9660",
            Self::Udf => "udf",
            Self::Ufs => "ufs",
            Self::Swap => "swap",
            Self::F2fs => "f2fs",
            Self::Btrfs => "btrfs",
            Self::Xfs => "xfs",
            Self::Squashfs => "squashfs",
            Self::Erofs => "erofs",
            Self::Ubifs => "ubifs",
        }
    }
}

/// A name, as UTF-8.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct VolumeName {
    bytes: [u8; LABEL_MAX],
    len: usize,
}

impl VolumeName {
    const EMPTY: Self = Self { bytes: [0; LABEL_MAX], len: 0 };

    /// The name; empty if the volume has none.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }

    /// Characters up to a zero, without the trailing blanks of padding.
    fn of(characters: impl Iterator<Item = char>) -> Self {
        let mut this = Self::EMPTY;
        let mut kept = 0;
        for character in characters.take_while(|&c| c != '\0') {
            let Some(room) = this.bytes[this.len..].get_mut(..character.len_utf8()) else { break };
            this.len += character.encode_utf8(room).len();
            if character != ' ' {
                kept = this.len;
            }
        }
        this.len = kept;
        this
    }

    /// A field of bytes: UTF-8 if valid, else Latin-1.
    fn of_bytes(field: &[u8]) -> Self {
        match text(field) {
            Some(text) => Self::of(text.chars()),
            None => Self::of(field.iter().map(|&byte| char::from(byte))),
        }
    }

    fn of_utf16(field: &[u8]) -> Self {
        let units = field.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
        let characters = char::decode_utf16(units);
        Self::of(characters.map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)))
    }
}

impl fmt::Debug for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// A volume that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name.
    pub name: VolumeName,
    /// First of the bytes that identify the file system.
    pub at: u64,
    /// Number of these bytes.
    pub len: u64,
    /// An identifier, for file systems that use one as a second name (UFS).
    pub id: Option<(u32, u32)>,
}

/// The medium: fills the slice with the bytes at an offset of any alignment, and returns whether
/// that succeeded.
pub type Reader<'a> = dyn FnMut(u64, &mut [u8]) -> bool + 'a;

/// Probes for one file system.
pub fn probe(file_system: FileSystem, read: &mut Reader<'_>) -> Option<Found> {
    match file_system {
        FileSystem::Ext => ext(read),
        FileSystem::Fat => fat(read),
        FileSystem::ExFat => exfat(read),
        FileSystem::Ntfs => ntfs(read),
        FileSystem::Iso9660 => iso9660(read),
        FileSystem::Udf => udf(read),
        FileSystem::Ufs => ufs(read),
        FileSystem::Swap => swap(read),
        FileSystem::F2fs => f2fs(read),
        FileSystem::Btrfs => btrfs(read),
        FileSystem::Xfs => xfs(read),
        FileSystem::Squashfs => squashfs(read),
        FileSystem::Erofs => erofs(read),
        FileSystem::Ubifs => ubifs(read),
    }
}

/// `N` bytes at `at`.
fn get<const N: usize>(read: &mut Reader<'_>, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    read(at, &mut bytes).then_some(bytes)
}

fn found(name: VolumeName, at: u64, len: u64) -> Option<Found> {
    Some(Found { name, at, len, id: None })
}

fn ext(read: &mut Reader<'_>) -> Option<Found> {
    let block: [u8; 256] = get(read, 1024)?;
    let has_blocks = le32(&block, 4) > 0 && le32(&block, 24) < 7;
    let name = || VolumeName::of_bytes(&block[120..136]);
    (le16(&block, 56) == 0xEF53 && has_blocks).then(name).and_then(|name| found(name, 1080, 2))
}

/// A FAT name of eleven bytes; `NO NAME` stands for none.
fn fat_name(field: [u8; 11]) -> VolumeName {
    match &field {
        b"NO NAME    " => VolumeName::EMPTY,
        _ => VolumeName::of_bytes(&field),
    }
}

fn fat(read: &mut Reader<'_>) -> Option<Found> {
    let boot: [u8; 512] = get(read, 0)?;
    let jumps = boot[0] == 0xEB && boot[2] == 0x90 || boot[0] == 0xE9;
    if le16(&boot, 510) != 0xAA55 || !jumps {
        return None;
    }
    let sector = u64::from(le16(&boot, 11));
    let (cluster, tables) = (u64::from(boot[13]), u64::from(boot[16]));
    if !sector.is_power_of_two() || !(512..=4096).contains(&sector) {
        return None;
    }
    if !cluster.is_power_of_two() || tables == 0 || tables > 2 {
        return None;
    }
    let start = u64::from(le16(&boot, 14));
    let (name, at, root, len) = if boot[82..90] == *b"FAT32   " {
        let data = start + tables * u64::from(le32(&boot, 36));
        let root = data + u64::from(le32(&boot, 44)).checked_sub(2)? * cluster;
        (array(&boot, 71), 82, root, cluster * sector)
    } else if boot[54..59] == *b"FAT12" || boot[54..59] == *b"FAT16" {
        let root = start + tables * u64::from(le16(&boot, 22));
        (array(&boot, 43), 54, root, u64::from(le16(&boot, 17)) * 32)
    } else {
        return None;
    };
    let in_root = fat_root(read, root * sector, len);
    found(in_root.unwrap_or_else(|| fat_name(name)), at, 8)
}

/// The entry of the root directory that holds the volume's name; at most 64 KiB are searched.
fn fat_root(read: &mut Reader<'_>, at: u64, len: u64) -> Option<VolumeName> {
    const LONG_NAME: u8 = 0x0F;
    const VOLUME: u8 = 0x08;
    for place in (0..len.min(65536)).step_by(512) {
        let sector: [u8; 512] = get(read, at + place)?;
        for entry in sector.chunks_exact(32) {
            match (entry[0], entry[11]) {
                (0, _) => return None,
                (0xE5, _) | (_, LONG_NAME) => {}
                (_, kind) if kind & VOLUME != 0 => return Some(fat_name(array(entry, 0))),
                _ => {}
            }
        }
    }
    None
}

fn exfat(read: &mut Reader<'_>) -> Option<Found> {
    let boot: [u8; 512] = get(read, 0)?;
    if boot[3..11] != *b"EXFAT   " || le16(&boot, 510) != 0xAA55 {
        return None;
    }
    let (sector, cluster) = (u32::from(boot[108]), u32::from(boot[109]));
    if !(9..=12).contains(&sector) || cluster > 25 - sector {
        return None;
    }
    let heap = u64::from(le32(&boot, 88)) << sector;
    let root = heap + (u64::from(le32(&boot, 96)).checked_sub(2)? << (sector + cluster));
    let mut name = VolumeName::EMPTY;
    'root: for place in (0..(1_u64 << (sector + cluster)).min(65536)).step_by(512) {
        let Some(entries) = get::<512>(read, root + place) else { break };
        for entry in entries.chunks_exact(32) {
            match entry[0] {
                0 => break 'root,
                0x83 => {
                    name = VolumeName::of_utf16(&entry[2..2 + 2 * usize::from(entry[1].min(11))]);
                    break 'root;
                }
                _ => {}
            }
        }
    }
    found(name, 3, 8)
}

fn ntfs(read: &mut Reader<'_>) -> Option<Found> {
    let boot: [u8; 512] = get(read, 0)?;
    if boot[3..11] != *b"NTFS    " {
        return None;
    }
    let sector = u64::from(le16(&boot, 11));
    let cluster = match boot[13] {
        shift @ 0xE8.. => 1 << (256 - u32::from(shift)),
        sectors => u64::from(sectors),
    } * sector;
    let record = match boot[64] as i8 {
        shift @ -12..0 => 1 << -shift,
        clusters => u64::try_from(clusters).ok()? * cluster,
    };
    if !(512..=READ_MAX as u64).contains(&record) || !record.is_power_of_two() {
        return None;
    }
    // The fourth record of the master file table is `$Volume`.
    let at = le64(&boot, 48).checked_mul(cluster)?.checked_add(3 * record)?;
    let mut buffer = [0; READ_MAX];
    let bytes = &mut buffer[..record as usize];
    let name = if read(at, bytes) { ntfs_name(bytes) } else { None };
    found(name.unwrap_or(VolumeName::EMPTY), 3, 8)
}

/// The attribute `$VOLUME_NAME` of a record.
fn ntfs_name(record: &mut [u8]) -> Option<VolumeName> {
    if record[..4] != *b"FILE" {
        return None;
    }
    // The last two bytes of every 512 are saved in the header, so that torn records can be
    // detected.
    let (from, count) = (usize::from(le16(record, 4)), usize::from(le16(record, 6)));
    for piece in 1..count {
        let moved: [u8; 2] = record.get(from + 2 * piece..)?.first_chunk().copied()?;
        record.get_mut(512 * piece - 2..512 * piece)?.copy_from_slice(&moved);
    }
    let mut at = usize::from(le16(record, 20));
    loop {
        let attribute = record.get(at..)?;
        if attribute.len() < 24 || le32(attribute, 0) == u32::MAX {
            return None;
        }
        if le32(attribute, 0) == 0x60 {
            let start = usize::from(le16(attribute, 20));
            let len = le32(attribute, 16) as usize;
            return Some(VolumeName::of_utf16(attribute.get(start..start.checked_add(len)?)?));
        }
        let len = le32(attribute, 4) as usize;
        at = at.checked_add(len).filter(|_| len >= 24)?;
    }
}

fn iso9660(read: &mut Reader<'_>) -> Option<Found> {
    let volume: [u8; 128] = get(read, 32768)?;
    let is_primary = volume[0] == 1 && volume[1..6] == *b"CD001";
    let name = || VolumeName::of_bytes(&volume[40..72]);
    is_primary.then(name).and_then(|name| found(name, 32769, 5))
}

fn udf(read: &mut Reader<'_>) -> Option<Found> {
    let mut proof = None;
    // The sequence of standard identifiers, in blocks of 2048 bytes or of one sector.
    for step in [2048, 4096] {
        for number in 0..8 {
            let at = 32768 + number * step;
            let Some(header) = get::<6>(read, at) else { break };
            if header[1..6] == *b"NSR02" || header[1..6] == *b"NSR03" {
                proof = Some(at + 1);
            }
        }
    }
    let proof = proof?;
    let name = [2048, 512, 4096].into_iter().find_map(|block| udf_name(read, block));
    found(name.unwrap_or(VolumeName::EMPTY), proof, 5)
}

fn udf_name(read: &mut Reader<'_>, block: u64) -> Option<VolumeName> {
    const ANCHOR: u16 = 2;
    const LOGICAL_VOLUME: u16 = 6;
    const END: u16 = 8;
    let anchor: [u8; 32] = get(read, 256 * block)?;
    if le16(&anchor, 0) != ANCHOR || le32(&anchor, 12) != 256 {
        return None;
    }
    let (len, start) = (u64::from(le32(&anchor, 16)), u64::from(le32(&anchor, 20)));
    for at in 0..(len / block).min(64) {
        let descriptor: [u8; 256] = get(read, (start + at) * block)?;
        match le16(&descriptor, 0) {
            LOGICAL_VOLUME => return Some(udf_text(&descriptor[84..212])),
            END => return None,
            _ => {}
        }
    }
    None
}

/// A field whose first byte gives the width of its characters, and whose last byte its length.
fn udf_text(field: &[u8]) -> VolumeName {
    let len = usize::from(field[field.len() - 1]).clamp(1, field.len() - 1);
    let characters = &field[1..len];
    match field[0] {
        16 => {
            let units =
                characters.chunks_exact(2).map(|unit| u16::from_be_bytes([unit[0], unit[1]]));
            let decoded = char::decode_utf16(units);
            VolumeName::of(decoded.map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)))
        }
        8 => VolumeName::of(characters.iter().map(|&byte| char::from(byte))),
        _ => VolumeName::EMPTY,
    }
}

fn ufs(read: &mut Reader<'_>) -> Option<Found> {
    const UFS1: u32 = 0x0001_1954;
    const UFS2: u32 = 0x1954_0119;
    for at in [65536, 8192, 0, 262_144] {
        let Some(magic) = get::<4>(read, at + 1372) else { continue };
        if !matches!(u32::from_le_bytes(magic), UFS1 | UFS2) {
            continue;
        }
        let block: [u8; 1024] = get(read, at)?;
        let id = (le32(&block, 144), le32(&block, 148));
        let name = VolumeName::of_bytes(&block[680..712]);
        let id = (id != (0, 0)).then_some(id);
        return Some(Found { name, at: at + 1372, len: 4, id });
    }
    None
}

fn swap(read: &mut Reader<'_>) -> Option<Found> {
    let page = [4096, 8192, 16384, 65536]
        .into_iter()
        .find(|page| get::<10>(read, page - 10).is_some_and(|magic| magic == *b"SWAPSPACE2"))?;
    let header: [u8; 44] = get(read, 1024)?;
    found(VolumeName::of_bytes(&header[28..44]), page - 10, 10)
}

fn f2fs(read: &mut Reader<'_>) -> Option<Found> {
    let block: [u8; 1148] = get(read, 1024)?;
    let name = || VolumeName::of_utf16(&block[124..1148]);
    (le32(&block, 0) == 0xF2F5_2010).then(name).and_then(|name| found(name, 1024, 4))
}

fn btrfs(read: &mut Reader<'_>) -> Option<Found> {
    let block: [u8; 555] = get(read, 65536)?;
    let name = || VolumeName::of_bytes(&block[299..555]);
    (block[64..72] == *b"_BHRfS_M").then(name).and_then(|name| found(name, 65600, 8))
}

fn xfs(read: &mut Reader<'_>) -> Option<Found> {
    let block: [u8; 128] = get(read, 0)?;
    let is_sound = be32(&block, 4).is_power_of_two();
    let name = || VolumeName::of_bytes(&block[108..120]);
    (block[..4] == *b"XFSB" && is_sound).then(name).and_then(|name| found(name, 0, 4))
}

fn squashfs(read: &mut Reader<'_>) -> Option<Found> {
    let block: [u8; 96] = get(read, 0)?;
    let is_sound = block[..4] == *b"hsqs" && le16(&block, 28) == 4;
    is_sound.then_some(VolumeName::EMPTY).and_then(|name| found(name, 0, 4))
}

fn erofs(read: &mut Reader<'_>) -> Option<Found> {
    let block: [u8; 128] = get(read, 1024)?;
    let name = || VolumeName::of_bytes(&block[64..80]);
    (le32(&block, 0) == 0xE0F5_E1E2).then(name).and_then(|name| found(name, 1024, 4))
}

/// UBIFS volumes have no name: the unique id takes its place.
fn ubifs(read: &mut Reader<'_>) -> Option<Found> {
    const SUPERBLOCK: u8 = 6;
    let node: [u8; READ_MAX] = get(read, 0)?;
    let is_superblock = le32(&node, 0) == crate::ubifs::NODE_MAGIC && node[20] == SUPERBLOCK;
    let is_sound =
        le32(&node, 16) as usize == READ_MAX && le32(&node, 4) == crate::ubifs::crc32(&node[8..]);
    if !is_superblock || !is_sound {
        return None;
    }
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
    let uuid = array::<16>(&node, 108);
    let text = uuid.iter().enumerate().flat_map(|(at, byte)| {
        let dash = matches!(at, 4 | 6 | 8 | 10).then_some('-');
        dash.into_iter().chain([digit(byte >> 4), digit(byte & 15)])
    });
    let has_id = uuid != [0; 16];
    let name = if has_id { VolumeName::of(text) } else { VolumeName::EMPTY };
    found(name, 0, 24)
}
