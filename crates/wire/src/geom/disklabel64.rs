//! The disklabel of DragonFly BSD, with 64-bit byte offsets: FreeBSD's BSD64.
//!
//! Offsets are those of FreeBSD's `sys/geom/part/g_part_bsd64.c` and DragonFly's
//! `sys/sys/disklabel64.h`.

use super::gpt::Guid;
use crate::WireError;
use crate::bytes::{le32, le64, put};

/// First word of a label.
pub const MAGIC: u32 = 0xC446_4C59;
/// Offset of the label in a slice, bytes; it does not own the bytes before it.
pub const AT: usize = 512;
/// Maximum number of partitions, which is also the number that FreeBSD writes.
pub const PARTITIONS: usize = 16;
/// The entry reserved for the whole slice: `c`.
pub const RAW: usize = 2;
/// Bytes of a slice up to the end of a label with every partition.
pub const LEN: usize = ENTRIES_AT + ENTRY_LEN * PARTITIONS;
/// Bytes reserved for a label: room for 32 partitions.
pub const ROOM: usize = ENTRIES_AT + ENTRY_LEN * 32;
/// Offset of the partitions.
const ENTRIES_AT: usize = 712;
const ENTRY_LEN: usize = 64;

crate::code::code! {
    /// What a partition is used for, by the names of `gpart`.
    pub enum Kind: u8 {
        /// No partition.
        Unused = 0 => "unused",
        /// Swap.
        Swap = 1 => "dragonfly-swap",
        /// UFS.
        Ufs = 7 => "dragonfly-ufs",
        /// Given by its GUID.
        Other = 10 => "other",
        /// Vinum.
        Vinum = 14 => "dragonfly-vinum",
        /// Concatenated disks.
        Ccd = 20 => "dragonfly-ccd",
        /// HAMMER.
        Hammer = 22 => "dragonfly-hammer",
        /// HAMMER2.
        Hammer2 = 23 => "dragonfly-hammer2",
    }
}

/// One partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// First byte, counted from the start of the slice.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// What it is used for.
    pub kind: Kind,
    /// The same as a GUID, or zero.
    pub type_id: Guid,
    /// Its own GUID.
    pub id: Guid,
}

impl Partition {
    /// No partition.
    pub const UNUSED: Self =
        Self { offset: 0, size: 0, kind: Kind::Unused, type_id: Guid::ZERO, id: Guid::ZERO };
}

/// A label. All positions are bytes from the start of the slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disklabel64 {
    /// Preferred alignment of partitions.
    pub alignment: u32,
    /// Number of partitions, 1 to 16.
    pub count: usize,
    /// Its GUID.
    pub id: Guid,
    /// Size of the slice, bytes.
    pub total: u64,
    /// First byte of the boot code, which ends where partitions begin.
    pub boot: u64,
    /// First byte available to partitions.
    pub first: u64,
    /// End of the partition area.
    pub stop: u64,
    /// Position of a copy of the label, or 0.
    pub backup: u64,
    /// The partitions; those from `count` on are unused.
    pub partitions: [Partition; PARTITIONS],
}

impl Disklabel64 {
    /// Reads the label of a slice that begins with `bytes`.
    ///
    /// # Errors
    /// If it is not a valid label.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(bytes, LEN)?;
        if le32(bytes, AT) != MAGIC {
            return Err(WireError::BadField("magic"));
        }
        let count = le32(bytes, 524) as usize;
        if !(1..=PARTITIONS).contains(&count) {
            return Err(WireError::BadField("number of partitions"));
        }
        if sum(bytes, count) != le32(bytes, 516) {
            return Err(WireError::BadField("checksum"));
        }
        let guid = |at: usize| {
            let mut guid = [0; 16];
            guid.copy_from_slice(&bytes[at..at + 16]);
            Guid(guid)
        };
        let mut partitions = [Partition::UNUSED; PARTITIONS];
        for (number, partition) in partitions[..count].iter_mut().enumerate() {
            let at = ENTRIES_AT + ENTRY_LEN * number;
            *partition = Partition {
                offset: le64(bytes, at),
                size: le64(bytes, at + 8),
                kind: Kind::from_bits(bytes[at + 16]),
                type_id: guid(at + 32),
                id: guid(at + 48),
            };
        }
        Ok(Self {
            alignment: le32(bytes, 520),
            count,
            id: guid(528),
            total: le64(bytes, 544),
            boot: le64(bytes, 552),
            first: le64(bytes, 560),
            stop: le64(bytes, 568),
            backup: le64(bytes, 576),
            partitions,
        })
    }

    /// Writes the label into the front of a slice, of which `bytes` holds at least [`LEN`]. The
    /// label's name and fields that this value does not hold are preserved.
    pub fn emit(&self, bytes: &mut [u8]) {
        let count = self.count.clamp(1, PARTITIONS);
        put(bytes, AT, MAGIC.to_le_bytes());
        put(bytes, 520, self.alignment.to_le_bytes());
        put(bytes, 524, (count as u32).to_le_bytes());
        put(bytes, 528, self.id.0);
        for (at, value) in
            (544..).step_by(8).zip([self.total, self.boot, self.first, self.stop, self.backup])
        {
            put(bytes, at, value.to_le_bytes());
        }
        for (number, partition) in self.partitions[..count].iter().enumerate() {
            let at = ENTRIES_AT + ENTRY_LEN * number;
            put(bytes, at, partition.offset.to_le_bytes());
            put(bytes, at + 8, partition.size.to_le_bytes());
            put(bytes, at + 16, [0; 16]);
            bytes[at + 16] = partition.kind.into_bits();
            put(bytes, at + 32, partition.type_id.0);
            put(bytes, at + 48, partition.id.0);
        }
        let sum = sum(bytes, count);
        put(bytes, 516, sum.to_le_bytes());
    }
}

/// CRC-32 of a label with `count` partitions, its checksum left out.
fn sum(bytes: &[u8], count: usize) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[AT..AT + 4]);
    hasher.update(&[0; 4]);
    hasher.update(&bytes[AT + 8..ENTRIES_AT + ENTRY_LEN * count]);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_lies_where_it_says() {
        let mut label = Disklabel64 {
            alignment: 4096,
            count: PARTITIONS,
            id: Guid([7; 16]),
            total: 64 << 20,
            boot: 4096,
            first: 1 << 20,
            stop: 63 << 20,
            backup: (64 << 20) - 4096,
            partitions: [Partition::UNUSED; PARTITIONS],
        };
        label.partitions[3] = Partition {
            offset: 1 << 20,
            size: 2 << 20,
            kind: Kind::Hammer2,
            type_id: Guid::ZERO,
            id: Guid([9; 16]),
        };
        let mut bytes = [0; 2048];
        bytes[..512].fill(0xB0);
        label.emit(&mut bytes);
        assert_eq!(Disklabel64::parse(&bytes), Ok(label));
        assert_eq!(bytes[..512], [0xB0; 512], "what is in front stays");
        assert_eq!(
            (LEN, ROOM, bytes[512..516].to_vec()),
            (1736, 2760, [0x59, 0x4C, 0x46, 0xC4].into())
        );
        assert_eq!((bytes[712 + 192 + 2], bytes[712 + 192 + 16]), (0x10, 23));
        // As zlib and DragonFly compute it, with the checksum field empty.
        let mut crc = bytes[512..1736].to_vec();
        crc[4..8].fill(0);
        assert_eq!(crc32fast::hash(&crc).to_le_bytes(), bytes[516..520]);
        for at in 512..1736 {
            let mut other = bytes;
            other[at] ^= 1;
            assert!(Disklabel64::parse(&other).is_err(), "byte {at}");
        }
        assert!(Disklabel64::parse(&bytes[..1735]).is_err());
    }
}
