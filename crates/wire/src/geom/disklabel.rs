//! The disklabel of BSD systems, with 32-bit sector numbers.

use crate::WireError;
use crate::bytes::{le16, le32, put};

/// First and 34th word of a label.
pub const MAGIC: u32 = 0x8256_4557;
/// Sector of the label in a slice.
pub const SECTOR: u64 = 1;
/// Minimum number of partitions in a label that FreeBSD writes.
pub const PARTITIONS_MIN: usize = 8;
/// Maximum number of partitions.
pub const PARTITIONS_MAX: usize = 20;
/// The partition that covers the whole slice: `c`.
pub const RAW: usize = 2;
/// Bytes before the partitions.
const FIXED: usize = 148;

crate::code::code! {
    /// What a partition is used for, by the names of `gpart`.
    pub enum Kind: u8 {
        /// No partition.
        Unused = 0 => "unused",
        /// Swap.
        Swap = 1 => "freebsd-swap",
        /// UFS.
        Ufs = 7 => "freebsd-ufs",
        /// Vinum.
        Vinum = 14 => "freebsd-vinum",
        /// ZFS.
        Zfs = 27 => "freebsd-zfs",
    }
}

/// One partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Sectors.
    pub size: u32,
    /// First sector, counted from the same origin as that of partition `c`.
    pub offset: u32,
    /// Bytes per fragment.
    pub fragment_size: u32,
    /// What it is used for.
    pub kind: Kind,
    /// Fragments per block.
    pub fragments: u8,
    /// Cylinders per group.
    pub group: u16,
}

impl Partition {
    /// No partition.
    pub const UNUSED: Self =
        Self { size: 0, offset: 0, fragment_size: 0, kind: Kind::Unused, fragments: 0, group: 0 };
}

/// A label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disklabel {
    /// Bytes per sector.
    pub sector_size: u32,
    /// Sectors per track.
    pub sectors: u32,
    /// Tracks per cylinder.
    pub tracks: u32,
    /// Cylinders.
    pub cylinders: u32,
    /// Sectors of the slice.
    pub total: u32,
    /// Number of partitions, 8 to 20.
    pub count: usize,
    /// The partitions; those from `count` on are unused.
    pub partitions: [Partition; PARTITIONS_MAX],
}

impl Disklabel {
    /// Bytes in a label with `count` partitions.
    #[must_use]
    pub const fn len(count: usize) -> usize {
        FIXED + 16 * count
    }

    /// Reads the label at the front of `sector`.
    ///
    /// # Errors
    /// If it is not a valid label.
    pub fn parse(sector: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(sector, Self::len(PARTITIONS_MIN))?;
        if le32(sector, 0) != MAGIC || le32(sector, 132) != MAGIC {
            return Err(WireError::BadField("magic"));
        }
        let count = usize::from(le16(sector, 138));
        if !(1..=PARTITIONS_MAX).contains(&count) {
            return Err(WireError::BadField("number of partitions"));
        }
        let bytes =
            sector.get(..Self::len(count)).ok_or(WireError::BadField("number of partitions"))?;
        if sum(bytes) != 0 {
            return Err(WireError::BadField("checksum"));
        }
        let mut partitions = [Partition::UNUSED; PARTITIONS_MAX];
        for (partition, at) in partitions.iter_mut().zip((FIXED..bytes.len()).step_by(16)) {
            *partition = Partition {
                size: le32(bytes, at),
                offset: le32(bytes, at + 4),
                fragment_size: le32(bytes, at + 8),
                kind: Kind::from_bits(bytes[at + 12]),
                fragments: bytes[at + 13],
                group: le16(bytes, at + 14),
            };
        }
        Ok(Self {
            sector_size: le32(bytes, 40),
            sectors: le32(bytes, 44),
            tracks: le32(bytes, 48),
            cylinders: le32(bytes, 52),
            total: le32(bytes, 60),
            count,
            partitions,
        })
    }

    /// Writes the label into `sector`, which must hold [`len`](Self::len) bytes. Fields of an older
    /// label that this value does not hold are preserved.
    pub fn emit(&self, sector: &mut [u8]) {
        let count = self.count.min(PARTITIONS_MAX);
        put(sector, 0, MAGIC.to_le_bytes());
        put(sector, 40, self.sector_size.to_le_bytes());
        put(sector, 44, self.sectors.to_le_bytes());
        put(sector, 48, self.tracks.to_le_bytes());
        put(sector, 52, self.cylinders.to_le_bytes());
        put(sector, 56, self.sectors.wrapping_mul(self.tracks).to_le_bytes());
        put(sector, 60, self.total.to_le_bytes());
        // Revolutions per minute and interleave, as FreeBSD writes them.
        put(sector, 72, 3600_u16.to_le_bytes());
        put(sector, 74, 1_u16.to_le_bytes());
        put(sector, 132, MAGIC.to_le_bytes());
        put(sector, 136, [0; 2]);
        put(sector, 138, (count as u16).to_le_bytes());
        put(sector, 140, 8192_u32.to_le_bytes());
        put(sector, 144, 0_u32.to_le_bytes());
        for (at, partition) in self.partitions[..count].iter().enumerate() {
            let at = FIXED + 16 * at;
            put(sector, at, partition.size.to_le_bytes());
            put(sector, at + 4, partition.offset.to_le_bytes());
            put(sector, at + 8, partition.fragment_size.to_le_bytes());
            sector[at + 12] = partition.kind.into_bits();
            sector[at + 13] = partition.fragments;
            put(sector, at + 14, partition.group.to_le_bytes());
        }
        let sum = sum(&sector[..Self::len(count)]);
        put(sector, 136, sum.to_le_bytes());
    }
}

/// Exclusive or of all 16-bit words; 0 over a label that includes its checksum.
fn sum(bytes: &[u8]) -> u16 {
    bytes.chunks_exact(2).fold(0, |sum, word| sum ^ u16::from_le_bytes([word[0], word[1]]))
}
