//! The partition table of PCs: the master boot record and the chained records of extended
//! partitions.

use crate::WireError;
use crate::bytes::{array, le16, le32, put};

/// Offset of the four entries.
pub const TABLE_AT: usize = 446;
/// Offset of the disk's serial number.
pub const SERIAL_AT: usize = 440;
/// Bytes in the record.
pub const LEN: usize = 512;
/// The last two bytes.
pub const SIGNATURE: u16 = 0xAA55;
/// Number of entries.
pub const ENTRIES: usize = 4;
/// Status of the partition that a PC boots from.
pub const ACTIVE: u8 = 0x80;

crate::code::code! {
    /// Types of partitions, by the names of `gpart`.
    pub enum Kind: u8 {
        /// No partition.
        Unused = 0x00 => "unused",
        /// FAT16 with more than 32 MiB.
        Fat16 = 0x06 => "fat16",
        /// NTFS or exFAT.
        Ntfs = 0x07 => "ntfs",
        /// FAT32, addressed by cylinders.
        Fat32 = 0x0B => "fat32",
        /// FAT32.
        Fat32Lba = 0x0C => "fat32lba",
        /// FAT16.
        Fat16Lba = 0x0E => "fat16lba",
        /// Extended partition, addressed by cylinders.
        Extended = 0x05 => "ebr",
        /// Extended partition.
        ExtendedLba = 0x0F => "ebrlba",
        /// PowerPC firmware.
        Prep = 0x41 => "prep-boot",
        /// Linux swap.
        LinuxSwap = 0x82 => "linux-swap",
        /// Linux file systems.
        LinuxData = 0x83 => "linux-data",
        /// Linux logical volumes.
        LinuxLvm = 0x8E => "linux-lvm",
        /// A FreeBSD slice.
        FreeBsd = 0xA5 => "freebsd",
        /// A file system of Apple's UFS.
        AppleUfs = 0xA8 => "apple-ufs",
        /// Apple's boot partition.
        AppleBoot = 0xAB => "apple-boot",
        /// A file system of Apple's HFS.
        AppleHfs = 0xAF => "apple-hfs",
        /// Protects a disk that has a GPT.
        Protective = 0xEE => "pmbr",
        /// EFI system partition.
        Efi = 0xEF => "efi",
        /// Linux RAID.
        LinuxRaid = 0xFD => "linux-raid",
    }
}

impl Kind {
    /// Whether it is an extended partition.
    #[must_use]
    pub const fn is_extended(self) -> bool {
        matches!(self, Self::Extended | Self::ExtendedLba)
    }
}

/// An address as cylinder, head and sector, packed as in an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chs(pub [u8; 3]);

impl Chs {
    /// Stands for an address that cannot be expressed.
    pub const BEYOND: Self = Self([0xFF; 3]);

    /// The address of sector `lba` on a disk with `heads` heads and `sectors` sectors per track
    /// (neither 0).
    #[must_use]
    pub fn of(lba: u64, heads: u32, sectors: u32) -> Self {
        let (heads, sectors) = (u64::from(heads.max(1)), u64::from(sectors.max(1)));
        let (cylinder, rest) = (lba / (heads * sectors), lba % (heads * sectors));
        if cylinder > 1023 {
            return Self([0xFE, 0xFF, 0xFF]);
        }
        let (head, sector) = (rest / sectors, rest % sectors + 1);
        Self([head as u8, sector as u8 | (cylinder >> 2) as u8 & 0xC0, cylinder as u8])
    }
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// 0, or [`ACTIVE`].
    pub status: u8,
    /// First sector.
    pub first: Chs,
    /// What the partition is used for.
    pub kind: Kind,
    /// Last sector.
    pub last: Chs,
    /// First sector, relative to the disk in a master boot record; an extended one has other
    /// origins.
    pub start: u32,
    /// Number of sectors.
    pub count: u32,
}

impl Entry {
    /// No partition.
    pub const UNUSED: Self = Self {
        status: 0,
        first: Chs([0; 3]),
        kind: Kind::Unused,
        last: Chs([0; 3]),
        start: 0,
        count: 0,
    };

    fn parse(bytes: [u8; 16]) -> Self {
        Self {
            status: bytes[0],
            first: Chs(array(&bytes, 1)),
            kind: Kind::from_bits(bytes[4]),
            last: Chs(array(&bytes, 5)),
            start: le32(&bytes, 8),
            count: le32(&bytes, 12),
        }
    }

    fn emit(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[0] = self.status;
        put(&mut out, 1, self.first.0);
        out[4] = self.kind.into_bits();
        put(&mut out, 5, self.last.0);
        put(&mut out, 8, self.start.to_le_bytes());
        put(&mut out, 12, self.count.to_le_bytes());
        out
    }

    /// Whether it describes a partition.
    #[must_use]
    pub const fn is_used(&self) -> bool {
        !matches!(self.kind, Kind::Unused) && self.count > 0
    }
}

/// A boot record: the master, or one of an extended partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The serial number that Windows assigns to a disk.
    pub serial: u32,
    /// The entries.
    pub entries: [Entry; ENTRIES],
}

impl Record {
    /// A record without partitions.
    pub const EMPTY: Self = Self { serial: 0, entries: [Entry::UNUSED; ENTRIES] };

    /// Reads a record. It does not check that the entries make sense: see
    /// [`has_sound_status`](Self::has_sound_status).
    ///
    /// # Errors
    /// If it is not a record.
    pub fn parse(sector: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(sector, LEN)?;
        if le16(sector, LEN - 2) != SIGNATURE {
            return Err(WireError::BadField("signature"));
        }
        let entry = |at: usize| Entry::parse(array(sector, TABLE_AT + 16 * at));
        Ok(Self {
            serial: le32(sector, SERIAL_AT),
            entries: [entry(0), entry(1), entry(2), entry(3)],
        })
    }

    /// Writes the entries, the serial number and the signature into `sector`, which must hold
    /// [`LEN`] bytes; boot code before them is preserved.
    pub fn emit(&self, sector: &mut [u8]) {
        put(sector, SERIAL_AT, self.serial.to_le_bytes());
        for (at, entry) in self.entries.iter().enumerate() {
            put(sector, TABLE_AT + 16 * at, entry.emit());
        }
        put(sector, LEN - 2, SIGNATURE.to_le_bytes());
    }

    /// Whether every status byte is 0 or [`ACTIVE`]. A file system's boot code, read as a record,
    /// has other values there.
    #[must_use]
    pub fn has_sound_status(&self) -> bool {
        self.entries.iter().all(|entry| entry.status & !ACTIVE == 0)
    }

    /// Whether one of the entries protects a GPT.
    #[must_use]
    pub fn is_protective(&self) -> bool {
        self.entries.iter().any(|entry| entry.kind == Kind::Protective)
    }

    /// The protective record of a GPT, for a disk of `sectors` sectors.
    #[must_use]
    pub fn protective(sectors: u64) -> Self {
        let mut this = Self::EMPTY;
        this.entries[0] = Entry {
            status: 0,
            first: Chs([0, 2, 0]),
            kind: Kind::Protective,
            last: Chs::BEYOND,
            start: 1,
            count: u32::try_from(sectors.saturating_sub(1)).unwrap_or(u32::MAX),
        };
        this
    }
}
