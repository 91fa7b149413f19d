//! The fastmap: what attach would find, written down, so that not every block must be read.
//!
//! It is one run of bytes over the data areas of its blocks: [`Superblock`], [`Header`], two
//! [`Pool`]s, erase counters ([`EraseCounter`]) of the free, used, to-be-scrubbed and to-be-erased
//! blocks in this order, then for each volume a [`Volume`] and its map ([`MapHeader`] and one
//! physical block number for each logical one).

use super::{LAYOUT_VOLUME, VERSION, VolumeKind};
use crate::bytes::{be16, be32, be64, put};

/// Volume id of the block that holds the start of the fastmap, its anchor (`UBI_FM_SB_VOLUME_ID`).
pub const SUPERBLOCK_VOLUME: u32 = LAYOUT_VOLUME + 1;
/// Volume id of the other blocks (`UBI_FM_DATA_VOLUME_ID`).
pub const DATA_VOLUME: u32 = LAYOUT_VOLUME + 2;
/// The anchor is in one of this many first blocks (`UBI_FM_MAX_START`).
pub const START_MAX: u32 = 64;
/// Most blocks of a fastmap (`UBI_FM_MAX_BLOCKS`).
pub const BLOCKS_MAX: usize = 32;
/// Most blocks in a pool (`UBI_FM_MAX_POOL_SIZE`).
pub const POOL_MAX: usize = 256;
/// Stands for a logical block without a physical one (`UBI_LEB_UNMAPPED`).
pub const UNMAPPED: u32 = u32::MAX;

const SUPERBLOCK_MAGIC: u32 = 0x7b11_d69f;
const HEADER_MAGIC: u32 = 0xd4b8_2ef7;
const POOL_MAGIC: u32 = 0x67af_4d08;
const VOLUME_MAGIC: u32 = 0xfa37_0ed1;
const MAP_MAGIC: u32 = 0xf0c0_40a8;

/// Why bytes are not what a fastmap has at this place; any of these means: scan instead.
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
    if be32(bytes, 0) != magic {
        return Err(FastmapError("bad magic in the fastmap"));
    }
    Ok(bytes)
}

/// Start of the fastmap (`ubi_fm_sb`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Checksum of all `used_blocks` data areas with this field as 0.
    pub data_crc: u32,
    /// Blocks the fastmap lies in: 1 to [`BLOCKS_MAX`].
    pub used_blocks: u32,
    /// Where they are; the first is the anchor.
    pub locations: [u32; BLOCKS_MAX],
    /// Their erase counters.
    pub erase_counters: [u32; BLOCKS_MAX],
    /// Highest sequence number when it was written.
    pub sequence: u64,
}

impl Superblock {
    /// Bytes.
    pub const SIZE: usize = 312;
    /// Where `data_crc` lies.
    pub const CRC_OFFSET: usize = 8;

    /// Reads the start of a fastmap.
    pub fn parse(bytes: &[u8]) -> Result<Self, FastmapError> {
        let bytes = frame(bytes, Self::SIZE, SUPERBLOCK_MAGIC)?;
        let used_blocks = be32(bytes, 12);
        if bytes[4] != VERSION {
            return Err(FastmapError("unknown fastmap version"));
        }
        if used_blocks == 0 || used_blocks as usize > BLOCKS_MAX {
            return Err(FastmapError("bad number of fastmap blocks"));
        }
        Ok(Self {
            data_crc: be32(bytes, 8),
            used_blocks,
            locations: core::array::from_fn(|i| be32(bytes, 16 + 4 * i)),
            erase_counters: core::array::from_fn(|i| be32(bytes, 144 + 4 * i)),
            sequence: be64(bytes, 272),
        })
    }

    /// The bytes, with `data_crc` as it is.
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        put(&mut out, 0, SUPERBLOCK_MAGIC.to_be_bytes());
        out[4] = VERSION;
        put(&mut out, 8, self.data_crc.to_be_bytes());
        put(&mut out, 12, self.used_blocks.to_be_bytes());
        for (i, value) in self.locations.iter().enumerate() {
            put(&mut out, 16 + 4 * i, value.to_be_bytes());
        }
        for (i, value) in self.erase_counters.iter().enumerate() {
            put(&mut out, 144 + 4 * i, value.to_be_bytes());
        }
        put(&mut out, 272, self.sequence.to_be_bytes());
        out
    }
}

/// How many of what follow (`ubi_fm_hdr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Free blocks.
    pub free: u32,
    /// Used blocks.
    pub used: u32,
    /// Used blocks that should be moved because of bit errors.
    pub scrub: u32,
    /// Bad blocks; they are counted and not listed.
    pub bad: u32,
    /// Blocks that wait to be erased.
    pub erase: u32,
    /// Volumes, the layout volume included.
    pub volumes: u32,
}

impl Header {
    /// Bytes.
    pub const SIZE: usize = 32;

    /// Reads the header behind the superblock.
    pub fn parse(bytes: &[u8]) -> Result<Self, FastmapError> {
        let bytes = frame(bytes, Self::SIZE, HEADER_MAGIC)?;
        Ok(Self {
            free: be32(bytes, 4),
            used: be32(bytes, 8),
            scrub: be32(bytes, 12),
            bad: be32(bytes, 16),
            erase: be32(bytes, 20),
            volumes: be32(bytes, 24),
        })
    }

    /// The bytes.
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        let words =
            [HEADER_MAGIC, self.free, self.used, self.scrub, self.bad, self.erase, self.volumes];
        for (i, word) in words.iter().enumerate() {
            put(&mut out, 4 * i, word.to_be_bytes());
        }
        out
    }
}

/// Blocks that may have been used since, so attach must look at them (`ubi_fm_scan_pool`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Blocks in the pool, at most [`POOL_MAX`].
    pub size: u16,
    /// How many it holds when full.
    pub size_max: u16,
    /// The blocks; only the first `size` count.
    pub pebs: [u32; POOL_MAX],
}

impl Pool {
    /// Bytes.
    pub const SIZE: usize = 1048;

    /// Reads a pool.
    pub fn parse(bytes: &[u8]) -> Result<Self, FastmapError> {
        let bytes = frame(bytes, Self::SIZE, POOL_MAGIC)?;
        let (size, size_max) = (be16(bytes, 4), be16(bytes, 6));
        if usize::from(size) > POOL_MAX || usize::from(size_max) > POOL_MAX {
            return Err(FastmapError("bad pool size in the fastmap"));
        }
        Ok(Self { size, size_max, pebs: core::array::from_fn(|i| be32(bytes, 8 + 4 * i)) })
    }

    /// The bytes.
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        put(&mut out, 0, POOL_MAGIC.to_be_bytes());
        put(&mut out, 4, self.size.to_be_bytes());
        put(&mut out, 6, self.size_max.to_be_bytes());
        for (i, peb) in self.pebs.iter().enumerate() {
            put(&mut out, 8 + 4 * i, peb.to_be_bytes());
        }
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
    /// Bytes.
    pub const SIZE: usize = 8;

    /// Reads one.
    pub fn parse(bytes: &[u8]) -> Result<Self, FastmapError> {
        let bytes = bytes.get(..Self::SIZE).ok_or(FastmapError("the fastmap ends too early"))?;
        Ok(Self { peb: be32(bytes, 0), erase_counter: be32(bytes, 4) })
    }

    /// The bytes.
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        put(&mut out, 0, self.peb.to_be_bytes());
        put(&mut out, 4, self.erase_counter.to_be_bytes());
        out
    }
}

/// The kind in a fastmap's `vol_type` byte: the numbers of `ubi-user.h`, not those of the headers.
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
pub struct Volume {
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

impl Volume {
    /// Bytes.
    pub const SIZE: usize = 32;

    /// Reads a volume header.
    pub fn parse(bytes: &[u8]) -> Result<Self, FastmapError> {
        let bytes = frame(bytes, Self::SIZE, VOLUME_MAGIC)?;
        Ok(Self {
            volume: be32(bytes, 4),
            kind: kind_from_code(bytes[8]).ok_or(FastmapError("bad volume type in the fastmap"))?,
            data_pad: be32(bytes, 12),
            used_ebs: be32(bytes, 16),
            last_eb_bytes: be32(bytes, 20),
        })
    }

    /// The bytes.
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        put(&mut out, 0, VOLUME_MAGIC.to_be_bytes());
        put(&mut out, 4, self.volume.to_be_bytes());
        out[8] = kind_code(self.kind);
        put(&mut out, 12, self.data_pad.to_be_bytes());
        put(&mut out, 16, self.used_ebs.to_be_bytes());
        put(&mut out, 20, self.last_eb_bytes.to_be_bytes());
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
    /// Bytes.
    pub const SIZE: usize = 8;

    /// Reads the start of a map.
    pub fn parse(bytes: &[u8]) -> Result<Self, FastmapError> {
        let bytes = frame(bytes, Self::SIZE, MAP_MAGIC)?;
        Ok(Self { reserved_pebs: be32(bytes, 4) })
    }

    /// The bytes.
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        put(&mut out, 0, MAP_MAGIC.to_be_bytes());
        put(&mut out, 4, self.reserved_pebs.to_be_bytes());
        out
    }
}
