//! The fastmap: the result of a scan, stored so that attaching need not read every block.
//!
//! It is one run of bytes over the data areas of its blocks: [`Superblock`], [`Header`], two
//! [`Pool`]s, erase counters ([`EraseCounter`]) of the free, used, to-be-scrubbed and to-be-erased
//! blocks, in this order, then for each volume a [`FastmapVolume`] and its map ([`MapHeader`] and
//! one physical block number for each logical one).

use super::{LAYOUT_VOLUME, VERSION, VolumeKind};
use crate::field::{Big, Field, fields};

/// Volume id of the block that holds the start of the fastmap, its anchor (`UBI_FM_SB_VOLUME_ID`).
pub const SUPERBLOCK_VOLUME: u32 = LAYOUT_VOLUME + 1;
/// Volume id of the other blocks (`UBI_FM_DATA_VOLUME_ID`).
pub const DATA_VOLUME: u32 = LAYOUT_VOLUME + 2;
/// The anchor lies within this many blocks from the start (`UBI_FM_MAX_START`).
pub const START_MAX: u32 = 64;
/// Maximum number of blocks of a fastmap (`UBI_FM_MAX_BLOCKS`).
pub const BLOCKS_MAX: usize = 32;
/// Maximum number of blocks in a pool (`UBI_FM_MAX_POOL_SIZE`).
pub const POOL_MAX: usize = 256;
/// Marks a logical block without a physical one (`UBI_LEB_UNMAPPED`).
pub const UNMAPPED: u32 = u32::MAX;

const SUPERBLOCK_MAGIC: u32 = 0x7b11_d69f;
const HEADER_MAGIC: u32 = 0xd4b8_2ef7;
const POOL_MAGIC: u32 = 0x67af_4d08;
const VOLUME_MAGIC: u32 = 0xfa37_0ed1;
const MAP_MAGIC: u32 = 0xf0c0_40a8;

/// First word of each part except the erase counters.
const MAGIC: Field<u32, Big> = Field::at(0);

fields! {
    /// `struct ubi_fm_sb`, after its magic.
    mod sb: Big[Superblock::SIZE] {
        VERSION: u8 = 4,
        DATA_CRC: u32 = 8,
        USED_BLOCKS: u32 = 12,
        BLOCK_LOC: [u32; 32] = 16,
        BLOCK_EC: [u32; 32] = 144,
        SQNUM: u64 = 272,
    }
}

fields! {
    /// `struct ubi_fm_hdr`, after its magic.
    mod hdr: Big[Header::SIZE] {
        FREE_PEB_COUNT: u32 = 4,
        USED_PEB_COUNT: u32 = 8,
        SCRUB_PEB_COUNT: u32 = 12,
        BAD_PEB_COUNT: u32 = 16,
        ERASE_PEB_COUNT: u32 = 20,
        VOL_COUNT: u32 = 24,
    }
}

fields! {
    /// `struct ubi_fm_scan_pool`, after its magic.
    mod pool: Big[Pool::SIZE] {
        SIZE: u16 = 4,
        MAX_SIZE: u16 = 6,
        PEBS: [u32; 256] = 8,
    }
}

fields! {
    /// `struct ubi_fm_ec`.
    mod ec: Big[EraseCounter::SIZE] {
        PNUM: u32 = 0,
        EC: u32 = 4,
    }
}

fields! {
    /// `struct ubi_fm_volhdr`, after its magic.
    mod volhdr: Big[FastmapVolume::SIZE] {
        VOL_ID: u32 = 4,
        VOL_TYPE: u8 = 8,
        DATA_PAD: u32 = 12,
        USED_EBS: u32 = 16,
        LAST_EB_BYTES: u32 = 20,
    }
}

fields! {
    /// `struct ubi_fm_eba`, after its magic.
    mod eba: Big[MapHeader::SIZE] {
        RESERVED_PEBS: u32 = 4,
    }
}

/// Why bytes are not this part of a fastmap; on any of these errors, scan instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastmapError(
    /// What is wrong.
    pub &'static str,
);

impl core::fmt::Display for FastmapError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for FastmapError {}

fn frame(bytes: &[u8], size: usize, magic: u32) -> Result<&[u8], FastmapError> {
    let bytes = bytes.get(..size).ok_or(FastmapError("the fastmap ends too early"))?;
    if MAGIC.get(bytes) != magic {
        return Err(FastmapError("bad magic in the fastmap"));
    }
    Ok(bytes)
}

/// Start of the fastmap (`ubi_fm_sb`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Checksum of all `used_blocks` data areas, computed with this field as 0.
    pub data_crc: u32,
    /// Blocks of the fastmap: 1 to [`BLOCKS_MAX`].
    pub used_blocks: u32,
    /// Their numbers; the first is the anchor.
    pub locations: [u32; BLOCKS_MAX],
    /// Their erase counters.
    pub erase_counters: [u32; BLOCKS_MAX],
    /// Highest sequence number when it was written.
    pub sequence: u64,
}

impl Superblock {
    /// Size in bytes.
    pub const SIZE: usize = 312;
    /// Offset of `data_crc`.
    pub const CRC_OFFSET: usize = sb::DATA_CRC.start();

    /// Reads the start of a fastmap.
    pub fn parse(bytes: &[u8]) -> Result<Self, FastmapError> {
        let bytes = frame(bytes, Self::SIZE, SUPERBLOCK_MAGIC)?;
        let used_blocks = sb::USED_BLOCKS.get(bytes);
        if sb::VERSION.get(bytes) != VERSION {
            return Err(FastmapError("unknown fastmap version"));
        }
        if used_blocks == 0 || used_blocks as usize > BLOCKS_MAX {
            return Err(FastmapError("bad number of fastmap blocks"));
        }
        Ok(Self {
            data_crc: sb::DATA_CRC.get(bytes),
            used_blocks,
            locations: sb::BLOCK_LOC.get(bytes),
            erase_counters: sb::BLOCK_EC.get(bytes),
            sequence: sb::SQNUM.get(bytes),
        })
    }

    /// The bytes, with `data_crc` unchanged.
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        MAGIC.put(&mut out, SUPERBLOCK_MAGIC);
        sb::VERSION.put(&mut out, VERSION);
        sb::DATA_CRC.put(&mut out, self.data_crc);
        sb::USED_BLOCKS.put(&mut out, self.used_blocks);
        sb::BLOCK_LOC.put(&mut out, self.locations);
        sb::BLOCK_EC.put(&mut out, self.erase_counters);
        sb::SQNUM.put(&mut out, self.sequence);
        out
    }
}

/// Numbers of the entries that follow (`ubi_fm_hdr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Free blocks.
    pub free: u32,
    /// Used blocks.
    pub used: u32,
    /// Used blocks that should be moved because of bit errors.
    pub scrub: u32,
    /// Bad blocks, which are counted but not listed.
    pub bad: u32,
    /// Blocks to be erased.
    pub erase: u32,
    /// Volumes, the layout volume included.
    pub volumes: u32,
}

impl Header {
    /// Size in bytes.
    pub const SIZE: usize = 32;

    /// Reads the header that follows the superblock.
    pub fn parse(bytes: &[u8]) -> Result<Self, FastmapError> {
        let bytes = frame(bytes, Self::SIZE, HEADER_MAGIC)?;
        Ok(Self {
            free: hdr::FREE_PEB_COUNT.get(bytes),
            used: hdr::USED_PEB_COUNT.get(bytes),
            scrub: hdr::SCRUB_PEB_COUNT.get(bytes),
            bad: hdr::BAD_PEB_COUNT.get(bytes),
            erase: hdr::ERASE_PEB_COUNT.get(bytes),
            volumes: hdr::VOL_COUNT.get(bytes),
        })
    }

    /// The bytes.
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        MAGIC.put(&mut out, HEADER_MAGIC);
        hdr::FREE_PEB_COUNT.put(&mut out, self.free);
        hdr::USED_PEB_COUNT.put(&mut out, self.used);
        hdr::SCRUB_PEB_COUNT.put(&mut out, self.scrub);
        hdr::BAD_PEB_COUNT.put(&mut out, self.bad);
        hdr::ERASE_PEB_COUNT.put(&mut out, self.erase);
        hdr::VOL_COUNT.put(&mut out, self.volumes);
        out
    }
}

/// Blocks that may have been used since, and that attach must read (`ubi_fm_scan_pool`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Blocks in the pool, at most [`POOL_MAX`].
    pub size: u16,
    /// Blocks in a full pool.
    pub size_max: u16,
    /// The blocks; only the first `size` are valid.
    pub pebs: [u32; POOL_MAX],
}

impl Pool {
    /// Size in bytes.
    pub const SIZE: usize = 1048;

    /// Reads a pool.
    pub fn parse(bytes: &[u8]) -> Result<Self, FastmapError> {
        let bytes = frame(bytes, Self::SIZE, POOL_MAGIC)?;
        let (size, size_max) = (pool::SIZE.get(bytes), pool::MAX_SIZE.get(bytes));
        if usize::from(size) > POOL_MAX || usize::from(size_max) > POOL_MAX {
            return Err(FastmapError("bad pool size in the fastmap"));
        }
        Ok(Self { size, size_max, pebs: pool::PEBS.get(bytes) })
    }

    /// The bytes.
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        MAGIC.put(&mut out, POOL_MAGIC);
        pool::SIZE.put(&mut out, self.size);
        pool::MAX_SIZE.put(&mut out, self.size_max);
        pool::PEBS.put(&mut out, self.pebs);
        out
    }

    /// The blocks in the pool.
    pub fn pebs(&self) -> &[u32] {
        &self.pebs[..usize::from(self.size)]
    }
}

/// A block and its erase counter (`ubi_fm_ec`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EraseCounter {
    /// Physical erase block.
    pub peb: u32,
    /// Times erased.
    pub erase_counter: u32,
}

impl EraseCounter {
    /// Size in bytes.
    pub const SIZE: usize = 8;

    /// Reads one entry.
    pub fn parse(bytes: &[u8]) -> Result<Self, FastmapError> {
        let bytes = bytes.get(..Self::SIZE).ok_or(FastmapError("the fastmap ends too early"))?;
        Ok(Self { peb: ec::PNUM.get(bytes), erase_counter: ec::EC.get(bytes) })
    }

    /// The bytes.
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        ec::PNUM.put(&mut out, self.peb);
        ec::EC.put(&mut out, self.erase_counter);
        out
    }
}

/// The kind for a `vol_type` byte of a fastmap, which has the numbers of `ubi-user.h`, not those of
/// the headers.
fn kind_from_code(code: u8) -> Option<VolumeKind> {
    match code {
        3 => Some(VolumeKind::Dynamic),
        4 => Some(VolumeKind::Static),
        _ => None,
    }
}

fn kind_code(kind: VolumeKind) -> u8 {
    match kind {
        VolumeKind::Dynamic => 3,
        VolumeKind::Static => 4,
    }
}

/// A volume (`ubi_fm_volhdr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastmapVolume {
    /// Volume id.
    pub volume: u32,
    /// Kind.
    pub kind: VolumeKind,
    /// As in the volume table.
    pub data_pad: u32,
    /// Logical erase blocks in use.
    pub used_ebs: u32,
    /// Bytes in the last of them.
    pub last_eb_bytes: u32,
}

impl FastmapVolume {
    /// Size in bytes.
    pub const SIZE: usize = 32;

    /// Reads a volume header.
    pub fn parse(bytes: &[u8]) -> Result<Self, FastmapError> {
        let bytes = frame(bytes, Self::SIZE, VOLUME_MAGIC)?;
        let kind = kind_from_code(volhdr::VOL_TYPE.get(bytes));
        Ok(Self {
            volume: volhdr::VOL_ID.get(bytes),
            kind: kind.ok_or(FastmapError("bad volume type in the fastmap"))?,
            data_pad: volhdr::DATA_PAD.get(bytes),
            used_ebs: volhdr::USED_EBS.get(bytes),
            last_eb_bytes: volhdr::LAST_EB_BYTES.get(bytes),
        })
    }

    /// The bytes.
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        MAGIC.put(&mut out, VOLUME_MAGIC);
        volhdr::VOL_ID.put(&mut out, self.volume);
        volhdr::VOL_TYPE.put(&mut out, kind_code(self.kind));
        volhdr::DATA_PAD.put(&mut out, self.data_pad);
        volhdr::USED_EBS.put(&mut out, self.used_ebs);
        volhdr::LAST_EB_BYTES.put(&mut out, self.last_eb_bytes);
        out
    }
}

/// Start of a volume's map (`ubi_fm_eba`); `reserved_pebs` physical block numbers follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapHeader {
    /// Logical erase blocks in the map.
    pub reserved_pebs: u32,
}

impl MapHeader {
    /// Size in bytes.
    pub const SIZE: usize = 8;

    /// Reads the start of a map.
    pub fn parse(bytes: &[u8]) -> Result<Self, FastmapError> {
        let bytes = frame(bytes, Self::SIZE, MAP_MAGIC)?;
        Ok(Self { reserved_pebs: eba::RESERVED_PEBS.get(bytes) })
    }

    /// The bytes.
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        MAGIC.put(&mut out, MAP_MAGIC);
        eba::RESERVED_PEBS.put(&mut out, self.reserved_pebs);
        out
    }
}
