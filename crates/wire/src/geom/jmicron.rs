//! Metadata of JMicron's RAID: one record in the last sector of each disk, with the identifiers of
//! all disks of the volume.
//!
//! Learnt from FreeBSD's `sys/geom/raid/md_jmicron.c`, checked against dmraid's `jm.h`. Little
//! endian.

use crate::Error;
use crate::bytes::{array, le16, le32};

/// Sectors from its own to the end of the disk.
pub const FROM_END: u64 = 1;
/// Most disks of a volume.
pub const DISKS_MAX: usize = 8;
/// Of an identifier: the disk. The rest is the number of a part of it.
pub const DISK_MASK: u32 = 0xFFFF_FFF0;

crate::code::code! {
    /// How bytes lie on the disks.
    pub enum Kind: u8 {
        /// In turns.
        Raid0 = 0 => "RAID0",
        /// The same on both.
        Raid1 = 1 => "RAID1",
        /// In turns on pairs that hold the same.
        Raid01 = 2 => "RAID0+1",
        /// One disk behind the other.
        Concat = 3 => "CONCAT",
        /// In turns, with parity that moves.
        Raid5 = 5 => "RAID5",
    }
}

/// Bits of [`JMicron::flags`].
pub mod flags {
    /// Disks without this bit beside one that has it do not hold everything.
    pub const BAD_SECTORS: u16 = 0x04;
    /// The disk may differ from the others.
    pub const UNSYNC: u16 = 0x20;
}

/// The record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JMicron {
    /// This disk.
    pub disk: u32,
    /// First byte of its part, in units of 16 sectors.
    pub offset: u32,
    /// Sectors of its part.
    pub sectors: u64,
    /// The volume's name, padded with blanks.
    pub name: [u8; 16],
    /// How bytes lie on the disks.
    pub kind: Kind,
    /// Bytes of a strip: 1024 shifted by so much.
    pub strip_shift: u8,
    /// [`flags`].
    pub flags: u16,
    /// Disks that wait to replace another one; 0 where there is none.
    pub spares: [u32; 2],
    /// The disks in their order; 0 where there is none.
    pub disks: [u32; DISKS_MAX],
}

impl JMicron {
    /// Reads the record, and whether its sum is right.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(sector: &[u8]) -> Result<Self, Error> {
        Error::check_len(sector, 512)?;
        if sector[..2] != *b"JM" {
            return Err(Error::BadField("magic"));
        }
        let words = sector.chunks_exact(2).take(64);
        if words.map(|word| le16(word, 0)).fold(0, u16::wrapping_add) != 0 {
            return Err(Error::BadField("checksum"));
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

    /// The number of what tells sets of disks apart: there is no such field.
    #[must_use]
    pub fn set(&self) -> u32 {
        let shifted = self.disks.iter().enumerate().map(|(number, disk)| disk << number);
        shifted.fold(0, u32::wrapping_add)
    }
}
