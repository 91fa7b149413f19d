//! Metadata of Silicon Image's RAID (Medley): the last sector of each disk holds the disk's
//! IDENTIFY data, with a record in the vendor specific area.
//!
//! From FreeBSD's `sys/geom/raid/md_sii.c`, checked against dmraid's `sil.h`. Little endian.

use crate::WireError;
use crate::bytes::{array, le16, le32, le64};

/// Sectors from the record to the end of the disk.
pub const FROM_END: u64 = 1;
/// Sectors at the end of a disk that hold copies of the record instead of data.
pub const RESERVED: u64 = 0x800;

crate::code::code! {
    /// Layout of the data on the disks.
    pub enum Kind: u8 {
        /// Striped.
        Raid0 = 0 => "RAID0",
        /// Mirrored on all disks.
        Raid1 = 1 => "RAID1",
        /// Striped over mirrored sets.
        Raid10 = 2 => "RAID10",
        /// A spare.
        Spare = 3 => "SPARE",
        /// Concatenated.
        Concat = 4 => "CONCAT",
        /// Striped with rotating parity.
        Raid5 = 0x10 => "RAID5",
        /// One disk.
        Jbod = 0xFF => "JBOD",
    }
}

crate::code::code! {
    /// State of a disk in the volume.
    pub enum DiskStatus: u8 {
        /// It is up to date.
        Current = 1 => "current",
        /// It is being rebuilt.
        Rebuild = 2 => "rebuild",
        /// It dropped out.
        Dropped = 3 => "dropped",
        /// It was removed.
        Removed = 4 => "removed",
    }
}

/// The record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sii {
    /// Sectors of the volume.
    pub sectors: u64,
    /// Time of creation, which distinguishes volumes: seconds first.
    pub made: [u8; 6],
    /// Sectors of a strip.
    pub strip: u16,
    /// Number of this disk in the volume.
    pub disk: u8,
    /// Layout of the data on the disks.
    pub kind: Kind,
    /// Strips in a row.
    pub raid0_disks: u8,
    /// Number of this disk's strip in the row.
    pub raid0_ident: u8,
    /// Disks in a mirrored set.
    pub raid1_disks: u8,
    /// Number of this disk's mirrored set.
    pub raid1_ident: u8,
    /// Incremented on every write.
    pub generation: u32,
    /// State of this disk.
    pub disk_status: DiskStatus,
    /// [`Self::ONLINE`] while the volume is being written.
    pub raid_status: u8,
    /// Also distinguishes volumes.
    pub location: u8,
    /// The volume's name, padded with blanks.
    pub name: [u8; 16],
}

impl Sii {
    /// Bit of [`Self::raid_status`]: writes are in progress.
    pub const ONLINE: u8 = 1;

    /// Reads the record, and returns whether its sum is right.
    ///
    /// # Errors
    /// If it is not valid.
    pub fn parse(sector: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(sector, 512)?;
        if le16(sector, 262) != 0x1095 {
            return Err(WireError::BadField("vendor"));
        }
        if le16(sector, 266) != 2 {
            return Err(WireError::BadField("version"));
        }
        let words = sector.chunks_exact(2).take(160);
        if words.map(|word| le16(word, 0)).fold(0, u16::wrapping_add) != 0 {
            return Err(WireError::BadField("checksum"));
        }
        Ok(Self {
            sectors: le64(sector, 108),
            made: array(sector, 268),
            strip: le16(sector, 274),
            disk: sector[278],
            kind: Kind::from_bits(sector[279]),
            raid0_disks: sector[280],
            raid0_ident: sector[281],
            raid1_disks: sector[282],
            raid1_ident: sector[283],
            generation: le32(sector, 292),
            disk_status: DiskStatus::from_bits(sector[296]),
            raid_status: sector[297],
            location: sector[298],
            name: array(sector, 302),
        })
    }
}
