//! Metadata of NVIDIA's RAID (MediaShield): one record in the second to last sector of each disk,
//! about the one volume that the disk belongs to.
//!
//! From FreeBSD's `sys/geom/raid/md_nvidia.c`, checked against dmraid's `nv.h`. Little endian.

use crate::WireError;
use crate::bytes::{array, le16, le32};

/// Magic of the record.
pub const MAGIC: [u8; 8] = *b"NVIDIA  ";
/// Sectors from the record to the end of the disk.
pub const FROM_END: u64 = 2;

crate::code::code! {
    /// Layout of the data on the disks.
    pub enum Kind: u16 {
        /// Striped.
        Raid0 = 0x80 => "RAID0",
        /// Mirrored on two disks.
        Raid1 = 0x81 => "RAID1",
        /// Striped with a parity disk.
        Raid3 = 0x83 => "RAID3",
        /// Striped with rotating parity; data starts at the first disk.
        Raid5 = 0x85 => "RAID5",
        /// The same; data starts after the parity.
        Raid5Symmetric = 0x95 => "RAID5 symmetric",
        /// Two mirrored stripes.
        Raid01 = 0x8180 => "RAID0+1",
        /// Concatenated.
        Concat = 0xFF => "CONCAT",
    }
}

crate::code::code! {
    /// Activity of the volume.
    pub enum State: u8 {
        /// None.
        Idle = 0 => "idle",
        /// The disks are being synchronised for the first time.
        Init = 2 => "init",
        /// A disk is being rebuilt.
        Rebuild = 3 => "rebuild",
        /// Its level or size is changing.
        Upgrade = 4 => "upgrade",
        /// The disks are being synchronised.
        Sync = 5 => "sync",
    }
}

/// The record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nvidia {
    /// Number of this disk in the volume.
    pub disk: u8,
    /// Sectors of the volume.
    pub sectors: u32,
    /// Bytes per sector.
    pub sector_size: u32,
    /// The volume's name, padded with blanks.
    pub name: [u8; 16],
    /// Status of this disk: [`Self::REBUILT`].
    pub disk_status: u32,
    /// Distinguishes volumes.
    pub id: [u8; 16],
    /// Activity of the volume.
    pub state: State,
    /// Strips in a row.
    pub width: u8,
    /// Number of disks, spares included.
    pub disks: u8,
    /// Layout of the data on the disks.
    pub kind: Kind,
    /// Sectors of a strip.
    pub strip: u32,
}

impl Nvidia {
    /// This disk is being rebuilt.
    pub const REBUILT: u32 = 0x100;

    /// Reads the record, and returns whether its sum is right.
    ///
    /// # Errors
    /// If it is not valid.
    pub fn parse(sector: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(sector, 512)?;
        if sector[..8] != MAGIC {
            return Err(WireError::BadField("magic"));
        }
        let words = le32(sector, 8);
        if !(30..=128).contains(&words) {
            return Err(WireError::BadField("config_size"));
        }
        let words = sector.chunks_exact(4).take(words as usize);
        if words.map(|word| le32(word, 0)).fold(0, u32::wrapping_add) != 0 {
            return Err(WireError::BadField("checksum"));
        }
        Ok(Self {
            disk: sector[18],
            sectors: le32(sector, 20),
            sector_size: le32(sector, 24),
            name: array(sector, 28),
            disk_status: le32(sector, 48),
            id: array(sector, 56),
            state: State::from_bits(sector[72]),
            width: sector[73],
            disks: sector[74],
            kind: Kind::from_bits(le16(sector, 76)),
            strip: le32(sector, 80),
        })
    }
}
