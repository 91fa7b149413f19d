//! Metadata of JMicron's RAID: one record in the last sector of each disk, with the identifiers of
//! all disks of the volume.
//!
//! From FreeBSD's `sys/geom/raid/md_jmicron.c`, checked against dmraid's `jm.h`. Little endian.

use crate::WireError;
use crate::bytes::{array, le16, le32};

/// Sectors from the record to the end of the disk.
pub const FROM_END: u64 = 1;
/// Maximum number of disks in a volume.
pub const DISKS_MAX: usize = 8;
/// Mask of the disk in an identifier; the other bits number a part of it.
pub const DISK_MASK: u32 = 0xFFFF_FFF0;

crate::code::code! {
    /// Layout of the data on the disks.
    pub enum Kind: u8 {
        /// Striped.
        Raid0 = 0 => "RAID0",
        /// Mirrored on two disks.
        Raid1 = 1 => "RAID1",
        /// Striped over mirrored pairs.
        Raid01 = 2 => "RAID0+1",
        /// Concatenated.
        Concat = 3 => "CONCAT",
        /// Striped with rotating parity.
        Raid5 = 5 => "RAID5",
    }
}

/// Bits of [`JMicron::flags`].
pub mod flags {
    /// If one disk of a volume has this bit, the disks without it are out of date.
    pub const BAD_SECTORS: u16 = 0x04;
    /// The disk may be out of sync.
    pub const UNSYNC: u16 = 0x20;
}

/// The record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JMicron {
    /// Identifier of this disk.
    pub disk: u32,
    /// Start of its part, in units of 16 sectors.
    pub offset: u32,
    /// Sectors of its part.
    pub sectors: u64,
    /// The volume's name, padded with blanks.
    pub name: [u8; 16],
    /// Layout of the data on the disks.
    pub kind: Kind,
    /// Log2 of the strip size in units of 1024 bytes.
    pub strip_shift: u8,
    /// [`flags`].
    pub flags: u16,
    /// Spare disks; 0 if there is none.
    pub spares: [u32; 2],
    /// The disks in order; 0 if there is none.
    pub disks: [u32; DISKS_MAX],
}

impl JMicron {
    /// Reads the record, and returns whether its sum is right.
    ///
    /// # Errors
    /// If it is not valid.
    pub fn parse(sector: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(sector, 512)?;
        if sector[..2] != *b"JM" {
            return Err(WireError::BadField("magic"));
        }
        let words = sector.chunks_exact(2).take(64);
        if words.map(|word| le16(word, 0)).fold(0, u16::wrapping_add) != 0 {
            return Err(WireError::BadField("checksum"));
        }
        let disks: [u8; 4 * DISKS_MAX] = array(sector, 64);
        let sectors = u64::from(le32(sector, 24)) << 16 | u64::from(le16(sector, 28));
        Ok(Self {
            disk: le32(sector, 16),
            offset: le32(sector, 20),
            sectors,
            name: array(sector, 32),
            kind: Kind::from_bits(sector[48]),
            strip_shift: sector[49],
            flags: le16(sector, 50),
            spares: [le32(sector, 56), le32(sector, 60)],
            disks: core::array::from_fn(|number| le32(&disks, number * 4)),
        })
    }

    /// A number that distinguishes sets of disks, computed because the record has no field for it.
    #[must_use]
    pub fn set(&self) -> u32 {
        let shifted = self.disks.iter().enumerate().map(|(number, disk)| disk << number);
        shifted.fold(0, u32::wrapping_add)
    }
}
