//! Metadata of Promise's RAID (FastTrak), and of ATI's: a record of four sectors for each part of a
//! disk that a volume uses. The first starts 63 sectors before the end of the disk, each further
//! one 14 sectors after its predecessor.
//!
//! From FreeBSD's `sys/geom/raid/md_promise.c`, checked against dmraid's `pdc.h`. Little endian.

use crate::WireError;
use crate::bytes::{array, le16, le32, le64};

/// Magic of a record.
pub const MAGIC: [u8; 24] = *b"Promise Technology, Inc.";
/// Magic that FreeBSD once wrote.
pub const MAGIC_OF_FREEBSD: [u8; 24] = *b"FreeBSD ATA driver RAID ";
/// Bytes in a record.
pub const LEN: usize = 2048;
/// Maximum number of disks in a volume.
pub const DISKS_MAX: usize = 8;
/// Maximum number of records on a disk.
pub const RECORDS_MAX: u64 = 2;

/// Sectors from the start of a record to the end of the disk.
#[must_use]
pub const fn from_end(number: u64) -> u64 {
    63 - number * 14
}

crate::code::code! {
    /// Layout of the data on the disks.
    pub enum Kind: u8 {
        /// Striped.
        Raid0 = 0 => "RAID0",
        /// Mirrored; with a width above 1, striped over mirrored sets.
        Raid1 = 1 => "RAID1",
        /// Striped with a parity disk.
        Raid3 = 2 => "RAID3",
        /// Striped with rotating parity.
        Raid5 = 4 => "RAID5",
        /// Concatenated.
        Span = 8 => "SPAN",
        /// One disk.
        Jbod = 0x10 => "JBOD",
    }
}

/// Bits of [`Disk::flags`].
pub mod flags {
    /// It is active.
    pub const ONLINE: u8 = 0x02;
    /// A volume uses it.
    pub const ASSIGNED: u8 = 0x04;
    /// It is being rebuilt.
    pub const REDIR: u8 = 0x20;
    /// It failed.
    pub const DOWN: u8 = 0x40;
}

/// A part of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// [`flags`].
    pub flags: u8,
    /// Its identifier.
    pub id: u64,
}

impl Disk {
    fn parse(bytes: &[u8], at: usize) -> Self {
        Self { flags: bytes[at], id: le64(bytes, at + 4) }
    }
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The part that the record describes.
    pub own: Disk,
    /// First sector of that part.
    pub offset: u64,
    /// Sectors of the part.
    pub sectors: u64,
    /// Incremented on every write; wraps.
    pub generation: u16,
    /// Status bits: [`Self::MARKED`], [`Self::MIGRATING`].
    pub status: u8,
    /// Layout of the data on the disks.
    pub kind: Kind,
    /// Number of disks.
    pub count: u8,
    /// Log2 of the strip size in sectors of 512 bytes.
    pub strip_shift: u8,
    /// Strips in a row.
    pub width: u8,
    /// Sectors of the volume.
    pub volume_sectors: u64,
    /// Sectors of 512 bytes in a sector of the volume.
    pub sector_size: u8,
    /// Distinguishes volumes.
    pub volume: u64,
    /// The parts of the volume; the first [`Self::count`] are valid.
    pub disks: [Disk; DISKS_MAX],
    /// The volume's name, padded with blanks.
    pub name: [u8; 32],
}

impl Promise {
    /// Bit of [`Self::status`]: writes are in progress.
    pub const MARKED: u8 = 0x20;
    /// Bit of [`Self::status`]: its level or size is changing.
    pub const MIGRATING: u8 = 0x40;

    /// Whether `bytes` start a record.
    #[must_use]
    pub fn is_it(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC) || bytes.starts_with(&MAGIC_OF_FREEBSD)
    }

    /// Reads a record, and returns whether its sum is right.
    ///
    /// # Errors
    /// If it is not valid.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        const VALID: u32 = 0x80;
        WireError::check_len(bytes, LEN)?;
        if !Self::is_it(bytes) {
            return Err(WireError::BadField("magic"));
        }
        let words = bytes.chunks_exact(4).take(511).map(|word| le32(word, 0));
        if words.fold(0, u32::wrapping_add) != le32(bytes, 0x7FC) {
            return Err(WireError::BadField("checksum"));
        }
        if le32(bytes, 0x200) & VALID == 0 {
            return Err(WireError::BadField("integrity"));
        }
        if usize::from(bytes[0x220]) > DISKS_MAX {
            return Err(WireError::BadField("number of disks"));
        }
        // Older versions have filler values of their own in the fields that newer ones use.
        let filled = [0x8B8C_8D8E, 0x8788_898A, 0x8384_8586];
        let high = [0x372, 0x376, 0x37A].map(|at| le32(bytes, at));
        let is_old = high == filled;
        let [offset, sectors, _] = if is_old { [0; 3] } else { high };
        let volume_high = le32(bytes, 0x2E8);
        // A value out of range is not a size.
        let volume_high = if volume_high < 256 { volume_high } else { 0 };
        let wide = |high: u32, at: usize| u64::from(high) << 32 | u64::from(le32(bytes, at));
        let sector_size = Some(bytes[0x2ED]).filter(|size| (1..=8).contains(size) && !is_old);
        Ok(Self {
            own: Disk::parse(bytes, 0x204),
            offset: wide(offset, 0x210),
            sectors: wide(sectors, 0x214),
            generation: le16(bytes, 0x21C),
            status: bytes[0x21E],
            kind: Kind::from_bits(bytes[0x21F]),
            count: bytes[0x220],
            strip_shift: bytes[0x221],
            width: bytes[0x222],
            volume_sectors: wide(volume_high, 0x224),
            sector_size: sector_size.unwrap_or(1),
            volume: le64(bytes, 0x22C),
            disks: core::array::from_fn(|number| Disk::parse(bytes, 0x234 + number * 12)),
            name: array(bytes, 0x294),
        })
    }
}
