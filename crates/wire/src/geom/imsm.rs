//! Metadata of Intel's RAID (Intel Matrix Storage Manager, `isw` in dmraid): its records.
//!
//! From FreeBSD's `sys/geom/raid/md_intel.c` and mdadm's `super-intel.c`. The anchor is in the
//! second to last sector; what does not fit there is in the sectors before it. A header is followed
//! by the table of disks and by the volumes, each with one map, or with two while it migrates. All
//! numbers are little endian; all sectors have 512 bytes.
//!
//! Each record keeps the bytes that have no name here, so that reading and rewriting it changes
//! nothing.

use crate::WireError;
use crate::bytes::{array, le16, le32, put};

/// Signature of the anchor.
pub const SIGNATURE: [u8; 24] = *b"Intel Raid ISM Cfg Sig. ";
/// Bytes in a serial number in the table of disks.
pub const SERIAL_LEN: usize = 16;
/// Maximum bytes of the metadata; anything larger is rejected.
pub const LEN_MAX: u32 = 65536;
/// Mask of the disk number in an ordinal of a map.
pub const ORDINAL_DISK: u32 = 0x00FF_FFFF;
/// Bit of an ordinal of a map: the disk is not up to date.
pub const ORDINAL_REBUILD: u32 = 0x0100_0000;
/// The failed member of a map that has none.
pub const NO_MEMBER: u8 = 0xFF;
/// The SCSI address of a missing disk.
pub const NO_ADDRESS: u32 = u32::MAX;

/// Bits of [`Header::attributes`].
pub mod attributes {
    /// The checksum is valid.
    pub const CHECKSUM: u32 = 0x8000_0000;
    /// A log of bad blocks follows at the end.
    pub const BAD_BLOCKS: u32 = 0x0800_0000;
    /// A volume is larger than 2 TiB.
    pub const LARGE_VOLUME: u32 = 0x2000_0000;
    /// The known ones: levels, clone, extended stripes and RAID 10, caches, sizes.
    pub const KNOWN: u32 = 0xEE00_00FF;
}

/// Bits of [`Disk::status`].
pub mod disk_status {
    /// A spare.
    pub const SPARE: u32 = 1;
    /// Used by a volume.
    pub const CONFIGURED: u32 = 2;
    /// Failed.
    pub const FAILED: u32 = 4;
    /// Present (written by FreeBSD only).
    pub const ONLINE: u32 = 8;
}

/// Bits of [`ImsmVolume::status`].
pub mod volume_status {
    /// Adjacent reads may be coalesced.
    pub const READ_COALESCING: u32 = 4;
    /// Adjacent writes may be coalesced.
    pub const WRITE_COALESCING: u32 = 8;
}

crate::code::code! {
    /// State of the members of a map.
    pub enum MapState: u8 {
        /// All members are up to date.
        Normal = 0 => "normal",
        /// The members were never synchronised.
        Uninitialized = 1 => "uninitialized",
        /// A member is missing or out of date; redundancy covers it.
        Degraded = 2 => "degraded",
        /// More members are missing or out of date than redundancy covers.
        Failed = 3 => "failed",
    }
}

crate::code::code! {
    /// Why a volume has two maps.
    pub enum Migration: u8 {
        /// Its members are being synchronised for the first time.
        Init = 0 => "init",
        /// A member is being rebuilt from the others.
        Rebuild = 1 => "rebuild",
        /// Its members are being verified.
        Verify = 2 => "verify",
        /// Its level or its number of members is changing.
        General = 3 => "general migration",
        /// Another change.
        StateChange = 4 => "state change",
        /// Its members are being synchronised again after an unclean stop.
        Repair = 5 => "repair",
    }
}

/// Sum of the 32-bit words of the metadata, the checksum left out.
#[must_use]
pub fn checksum(whole: &[u8]) -> u32 {
    let words = whole.chunks_exact(4).map(|word| u32::from_le_bytes(array(word, 0)));
    let sum = words.fold(0, u32::wrapping_add);
    sum.wrapping_sub(if whole.len() >= Header::LEN { le32(whole, 0x20) } else { 0 })
}

/// A serial number in the form used for comparison: without blanks and control characters, with
/// colons replaced by semicolons, cut to its last [`SERIAL_LEN`] bytes.
#[must_use]
pub fn serial(text: &str) -> [u8; SERIAL_LEN] {
    let kept = |byte: &u8| *byte > b' ';
    let count = text.bytes().filter(kept).count();
    let mut serial = [0; SERIAL_LEN];
    let last = text.bytes().filter(kept).skip(count.saturating_sub(SERIAL_LEN));
    for (to, byte) in serial.iter_mut().zip(last) {
        *to = if byte == b':' { b';' } else { byte };
    }
    serial
}

/// The header of the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    raw: [u8; Self::LEN],
    /// `1.0.00` to `1.3.00`, depending on the contents.
    pub version: [u8; 6],
    /// Length of the whole metadata, bytes.
    pub len: u32,
    /// Distinguishes sets of disks.
    pub family: u32,
    /// Incremented on every write; the highest is valid.
    pub generation: u32,
    /// Features in use: [`attributes`].
    pub attributes: u32,
    /// Number of disks.
    pub disks: u8,
    /// Number of volumes.
    pub volumes: u8,
    /// The family when the metadata was created.
    pub original_family: u32,
    /// Bytes in the log of bad blocks at the end.
    pub bad_blocks_len: u32,
    /// Number of volumes ever created.
    pub volumes_made: u16,
}

impl Header {
    /// Bytes in a header.
    pub const LEN: usize = 0xD8;

    /// A header without disks and volumes.
    #[must_use]
    pub fn new(family: u32) -> Self {
        Self {
            raw: [0; Self::LEN],
            version: *b"1.0.00",
            len: Self::LEN as u32,
            family,
            generation: 0,
            attributes: attributes::CHECKSUM,
            disks: 0,
            volumes: 0,
            original_family: family,
            bad_blocks_len: 0,
            volumes_made: 0,
        }
    }

    /// Reads a header.
    ///
    /// # Errors
    /// If it is not valid; the checksum is not checked.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(bytes, Self::LEN)?;
        if array::<24>(bytes, 0) != SIGNATURE {
            return Err(WireError::BadField("signature"));
        }
        let len = le32(bytes, 0x24);
        if !((Self::LEN + Disk::LEN) as u32..=LEN_MAX).contains(&len) || !len.is_multiple_of(4) {
            return Err(WireError::BadField("mpb_size"));
        }
        Ok(Self {
            raw: array(bytes, 0),
            version: array(bytes, 0x18),
            len,
            family: le32(bytes, 0x28),
            generation: le32(bytes, 0x2C),
            attributes: le32(bytes, 0x34),
            disks: bytes[0x38],
            volumes: bytes[0x39],
            original_family: le32(bytes, 0x40),
            bad_blocks_len: le32(bytes, 0x48),
            volumes_made: le16(bytes, 0x4C),
        })
    }

    /// Fills the front of `bytes`, with a checksum of zero.
    pub fn emit(&self, bytes: &mut [u8]) {
        put(bytes, 0, self.raw);
        put(bytes, 0, SIGNATURE);
        put(bytes, 0x18, self.version);
        put(bytes, 0x20, [0; 4]);
        put(bytes, 0x24, self.len.to_le_bytes());
        put(bytes, 0x28, self.family.to_le_bytes());
        put(bytes, 0x2C, self.generation.to_le_bytes());
        put(bytes, 0x34, self.attributes.to_le_bytes());
        bytes[0x38] = self.disks;
        bytes[0x39] = self.volumes;
        put(bytes, 0x40, self.original_family.to_le_bytes());
        put(bytes, 0x48, self.bad_blocks_len.to_le_bytes());
        put(bytes, 0x4C, self.volumes_made.to_le_bytes());
    }
}

/// The low and the high half of a number that was widened later.
fn split(bytes: &[u8], low: usize, high: usize) -> u64 {
    u64::from(le32(bytes, low)) | u64::from(le32(bytes, high)) << 32
}

fn put_split(bytes: &mut [u8], (low, high): (usize, usize), value: u64) {
    put(bytes, low, (value as u32).to_le_bytes());
    put(bytes, high, ((value >> 32) as u32).to_le_bytes());
}

/// A disk of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    raw: [u8; Self::LEN],
    /// The end of its serial number, padded with zeros; followed by `:0` if the disk is missing.
    pub serial: [u8; SERIAL_LEN],
    /// Sectors.
    pub blocks: u64,
    /// Its last SCSI address; [`NO_ADDRESS`] if it is missing.
    pub address: u32,
    /// [`disk_status`].
    pub status: u32,
}

impl Disk {
    /// Bytes in a disk's record.
    pub const LEN: usize = 48;

    /// A new disk.
    #[must_use]
    pub fn new(serial: [u8; SERIAL_LEN], blocks: u64, status: u32) -> Self {
        Self { raw: [0; Self::LEN], serial, blocks, address: 0, status }
    }

    /// Reads a disk.
    ///
    /// # Errors
    /// If there are too few bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(bytes, Self::LEN)?;
        Ok(Self {
            raw: array(bytes, 0),
            serial: array(bytes, 0),
            blocks: split(bytes, 16, 32),
            address: le32(bytes, 20),
            status: le32(bytes, 24),
        })
    }

    /// Fills the front of `bytes`.
    pub fn emit(&self, bytes: &mut [u8]) {
        put(bytes, 0, self.raw);
        put(bytes, 0, self.serial);
        put_split(bytes, (16, 32), self.blocks);
        put(bytes, 20, self.address.to_le_bytes());
        put(bytes, 24, self.status.to_le_bytes());
    }

    /// Marks it as missing in the table; its serial number then matches no disk.
    pub fn mark_missing(&mut self) {
        self.status |= disk_status::FAILED;
        self.status &= !disk_status::ONLINE;
        if self.address == NO_ADDRESS {
            return;
        }
        self.address = NO_ADDRESS;
        let len = self.serial.iter().position(|&byte| byte == 0).unwrap_or(SERIAL_LEN);
        // With a terminator: the first bytes are dropped if it does not fit.
        let gone = (len + 3).saturating_sub(SERIAL_LEN);
        self.serial.copy_within(gone..len, 0);
        self.serial[len - gone..].fill(0);
        self.serial[len - gone..len - gone + 2].copy_from_slice(b":0");
    }
}

/// A volume, without its maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImsmVolume {
    raw: [u8; Self::LEN],
    /// Its name, padded with zeros.
    pub name: [u8; 16],
    /// Sectors of the volume.
    pub blocks: u64,
    /// [`volume_status`].
    pub status: u32,
    /// Its number among all volumes ever created.
    pub number: u16,
    /// The migration under way, if it has two maps.
    pub migration: Option<Migration>,
    /// Completed units of the migration.
    pub unit: u64,
    /// Writes were in progress.
    pub dirty: u8,
}

impl ImsmVolume {
    /// Bytes in a volume's record.
    pub const LEN: usize = 112;

    /// A new volume.
    #[must_use]
    pub fn new(name: [u8; 16], blocks: u64, number: u16) -> Self {
        let status = volume_status::READ_COALESCING | volume_status::WRITE_COALESCING;
        let (raw, migration, unit, dirty) = ([0; Self::LEN], None, 0, 0);
        Self { raw, name, blocks, status, number, migration, unit, dirty }
    }

    /// Reads a volume.
    ///
    /// # Errors
    /// If there are too few bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(bytes, Self::LEN)?;
        Ok(Self {
            raw: array(bytes, 0),
            name: array(bytes, 0),
            blocks: split(bytes, 16, 20),
            status: le32(bytes, 24),
            number: le16(bytes, 40),
            migration: (bytes[88] != 0).then(|| Migration::from_bits(bytes[89])),
            unit: split(bytes, 80, 96),
            dirty: bytes[90],
        })
    }

    /// Fills the front of `bytes`.
    pub fn emit(&self, bytes: &mut [u8]) {
        put(bytes, 0, self.raw);
        put(bytes, 0, self.name);
        put_split(bytes, (16, 20), self.blocks);
        put(bytes, 24, self.status.to_le_bytes());
        put(bytes, 40, self.number.to_le_bytes());
        bytes[88] = u8::from(self.migration.is_some());
        bytes[89] = self.migration.map_or(0, Migration::into_bits);
        put_split(bytes, (80, 96), self.unit);
        bytes[90] = self.dirty;
    }
}

/// A map without its ordinals: the positions of a volume's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Map {
    raw: [u8; Self::LEN],
    /// First sector on each disk.
    pub start: u64,
    /// Sectors on each disk.
    pub blocks: u64,
    /// Stripes of data, as the option ROM counts them.
    pub stripes: u64,
    /// Sectors of a strip.
    pub strip: u16,
    /// Its state.
    pub state: MapState,
    /// 0, 1, 5, or 10.
    pub level: u8,
    /// Number of members.
    pub members: u8,
    /// Number of copies of the data.
    pub domains: u8,
    /// The first failed member, or [`NO_MEMBER`].
    pub failed: u8,
}

impl Map {
    /// Bytes in a map's record.
    pub const LEN: usize = 48;

    /// An empty map.
    #[must_use]
    pub fn new(level: u8, members: u8, domains: u8) -> Self {
        let mut raw = [0; Self::LEN];
        raw[19] = 1;
        let (state, failed) = (MapState::Normal, NO_MEMBER);
        let (start, blocks, stripes, strip) = (0, 0, 0, 0);
        Self { raw, start, blocks, stripes, strip, state, level, members, domains, failed }
    }

    /// Reads a map.
    ///
    /// # Errors
    /// If there are too few bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(bytes, Self::LEN)?;
        Ok(Self {
            raw: array(bytes, 0),
            start: split(bytes, 0, 20),
            blocks: split(bytes, 4, 24),
            stripes: split(bytes, 8, 28),
            strip: le16(bytes, 12),
            state: MapState::from_bits(bytes[14]),
            level: bytes[15],
            members: bytes[16],
            domains: bytes[17],
            failed: bytes[18],
        })
    }

    /// Fills the front of `bytes`.
    pub fn emit(&self, bytes: &mut [u8]) {
        put(bytes, 0, self.raw);
        put_split(bytes, (0, 20), self.start);
        put_split(bytes, (4, 24), self.blocks);
        put_split(bytes, (8, 28), self.stripes);
        put(bytes, 12, self.strip.to_le_bytes());
        bytes[14] = self.state.into_bits();
        bytes[15] = self.level;
        bytes[16] = self.members;
        bytes[17] = self.domains;
        bytes[18] = self.failed;
    }
}
