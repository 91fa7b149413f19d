//! UBI: the headers of each physical erase block, the volume table, the fastmap.
//!
//! Everything is big endian. Layout: Linux `ubi-media.h` (which may be used under BSD-3-Clause).
//! Checksums are CRC-32 with the reflected polynomial 0xEDB88320, started with all ones and not
//! inverted at the end ([`crc32`]); UBIFS uses the same.

pub mod fastmap;
mod headers;
mod volume_table;

#[cfg(test)]
mod tests;

pub use headers::{Compatibility, EcHeader, HeaderError, VidHeader, VolumeKind};
pub use volume_table::{RecordError, VolumeFlags, VolumeRecord, records_max};

/// First word of an erase counter header, "UBI#".
pub const EC_MAGIC: u32 = 0x5542_4923;
/// First word of a volume identifier header, "UBI!".
pub const VID_MAGIC: u32 = 0x5542_4921;
/// The only version.
pub const VERSION: u8 = 1;
/// Bytes in an erase counter header.
pub const EC_HEADER_SIZE: usize = 64;
/// Bytes in a volume identifier header.
pub const VID_HEADER_SIZE: usize = 64;
/// Largest erase counter (`UBI_MAX_ERASECOUNTER`).
pub const ERASE_COUNTER_MAX: u64 = 0x7fff_ffff;
/// Volumes have ids below this (`UBI_MAX_VOLUMES`).
pub const VOLUMES_MAX: u32 = 128;
/// Volume ids from here on are internal (`UBI_INTERNAL_VOL_START`).
pub const INTERNAL_VOLUME_START: u32 = 0x7fff_ffff - 4096;
/// The layout volume: two erase blocks with the same volume table.
pub const LAYOUT_VOLUME: u32 = INTERNAL_VOLUME_START;
/// Logical erase blocks of the layout volume.
pub const LAYOUT_VOLUME_LEBS: u32 = 2;
/// Bytes in a volume table record.
pub const RECORD_SIZE: usize = 172;
/// Longest volume name, bytes.
pub const NAME_MAX: usize = 127;

/// CRC-32 of UBI and UBIFS: started with all ones, not inverted at the end (JAMCRC).
pub fn crc32(data: &[u8]) -> u32 {
    !crc32fast::hash(data)
}
