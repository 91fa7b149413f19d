//! Metadata of NVIDIA's RAID (MediaShield): one record in the last sector but one of each disk,
//! about the one volume that the disk is part of.
//!
//! Learnt from FreeBSD's `sys/geom/raid/md_nvidia.c`, checked against dmraid's `nv.h`. Little
//! endian.

use crate::Error;
use crate::bytes::{array, le16, le32};

/// What it starts with.
pub const MAGIC: [u8; 8] = *b"NVIDIA  ";
/// Sectors from its own to the end of the disk.
pub const FROM_END: u64 = 2;

crate::code::code! {
    /// How bytes lie on the disks.
    pub enum Kind: u16 {
        /// In turns.
        Raid0 = 0x80 => "RAID0",
        /// The same on both.
        Raid1 = 0x81 => "RAID1",
        /// In turns, with a disk for parity.
        Raid3 = 0x83 => "RAID3",
        /// In turns, with parity that moves; data from the first disk on.
        Raid5 = 0x85 => "RAID5",
        /// The same; data from behind the parity on.
        Raid5Symmetric = 0x95 => "RAID5 symmetric",
        /// Two stripes that hold the same.
        Raid01 = 0x8180 => "RAID0+1",
        /// One disk behind the other.
        Concat = 0xFF => "CONCAT",
    }
}

crate::code::code! {
    /// What goes on.
    pub enum State: u8 {
        /// Nothing.
        Idle = 0 => "idle",
        /// The disks are made equal for the first time.
        Init = 2 => "init",
        /// A disk is rebuilt.
        Rebuild = 3 => "rebuild",
        /// Its level or size changes.
        Upgrade = 4 => "upgrade",
        /// The disks are made equal.
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
    /// Bytes of a sector.
    pub sector_size: u32,
    /// The volume's name, padded with blanks.
    pub name: [u8; 16],
    /// Of this disk: [`Self::REBUILT`].
    pub disk_status: u32,
    /// Tells volumes apart.
    pub id: [u8; 16],
    /// What goes on.
    pub state: State,
    /// Strips of a row.
    pub width: u8,
    /// Number of disks, with those that wait to replace another one.
    pub disks: u8,
    /// How bytes lie on the disks.
    pub kind: Kind,
    /// Sectors of a strip.
    pub strip: u32,
}

impl Nvidia {
    /// This disk is the one that is rebuilt.
    pub const REBUILT: u32 = 0x100;

    /// Reads the record, and whether its sum is right.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(sector: &[u8]) -> Result<Self, Error> {
        Error::check_len(sector, 512)?;
        if sector[..8] != MAGIC {
            return Err(Error::BadField("magic"));
        }
        let words = le32(sector, 8);
        if !(30..=128).contains(&words) {
            return Err(Error::BadField("config_size"));
        }
        let words = sector.chunks_exact(4).take(words as usize);
        if words.map(|word| le32(word, 0)).fold(0, u32::wrapping_add) != 0 {
            return Err(Error::BadField("checksum"));
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
