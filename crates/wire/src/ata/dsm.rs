//! The ranges of DATA SET MANAGEMENT (ACS 7.5).

/// Bytes per range.
pub const RANGE: usize = 8;
/// Maximum sectors of one range.
pub const RANGE_SECTORS_MAX: u32 = 0xFFFF;
/// Ranges in a block of 512 bytes.
pub const RANGES: usize = super::SECTOR / RANGE;
/// Maximum sectors that one block of ranges can cover.
pub const SECTORS_MAX: u32 = RANGES as u32 * RANGE_SECTORS_MAX;
/// FEATURES: trim.
pub const TRIM: u16 = 1;

/// Fills a block with the ranges of `sectors` from `lba` on; those that do not fit are left out.
/// Returns how many sectors the block covers.
pub fn fill(block: &mut [u8; super::SECTOR], lba: u64, sectors: u32) -> u32 {
    let (mut at, mut left) = (lba, sectors);
    for entry in block.as_chunks_mut::<RANGE>().0 {
        let count = left.min(RANGE_SECTORS_MAX);
        let value = if count == 0 { 0 } else { at & 0xFFFF_FFFF_FFFF | u64::from(count) << 48 };
        *entry = value.to_le_bytes();
        at += u64::from(count);
        left -= count;
    }
    sectors - left
}

/// LBA and length in sectors of each range; empty ranges are skipped.
pub fn ranges(bytes: &[u8]) -> impl Iterator<Item = (u64, u32)> + '_ {
    bytes.as_chunks::<RANGE>().0.iter().filter_map(|entry| {
        let value = u64::from_le_bytes(*entry);
        let count = (value >> 48) as u32;
        (count != 0).then_some((value & 0xFFFF_FFFF_FFFF, count))
    })
}
