//! Parameter list of UNMAP (SBC-4).

use crate::bytes::{be16, be32, be64, put};
use crate::error::WireError;

/// Length of the header of the list, bytes.
pub const HEADER_LENGTH: usize = 8;
/// Length of a block descriptor, bytes.
pub const DESCRIPTOR_LENGTH: usize = 16;
/// Maximum number of descriptors in a list: its length is 16 bits.
pub const DESCRIPTORS_MAX: usize = (u16::MAX as usize - HEADER_LENGTH) / DESCRIPTOR_LENGTH;

/// A range to unmap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnmapRange {
    /// UNMAP LOGICAL BLOCK ADDRESS.
    pub lba: u64,
    /// NUMBER OF LOGICAL BLOCKS.
    pub blocks: u32,
}

/// Length of the parameter list with this number of ranges, bytes.
pub const fn length(ranges: usize) -> usize {
    HEADER_LENGTH + ranges * DESCRIPTOR_LENGTH
}

/// Writes a parameter list and returns its length; `None` if it does not fit.
pub fn emit(ranges: &[UnmapRange], bytes: &mut [u8]) -> Option<usize> {
    let length = length(ranges.len());
    if ranges.len() > DESCRIPTORS_MAX {
        return None;
    }
    let out = bytes.get_mut(..length)?;
    out.fill(0);
    put(out, 0, (length as u16 - 2).to_be_bytes());
    put(out, 2, ((length - HEADER_LENGTH) as u16).to_be_bytes());
    for (n, range) in ranges.iter().enumerate() {
        let at = self::length(n);
        put(out, at, range.lba.to_be_bytes());
        put(out, at + 8, range.blocks.to_be_bytes());
    }
    Some(length)
}

/// The ranges in a parameter list. An empty list is not an error (SBC-4).
///
/// # Errors
/// [`WireError::Truncated`] if the list is shorter than it says, which a device reports as
/// PARAMETER LIST LENGTH ERROR. [`WireError::BadField`] if the two lengths contradict each other.
pub fn parse(bytes: &[u8]) -> Result<impl Iterator<Item = UnmapRange> + '_, WireError> {
    WireError::check_len(bytes, HEADER_LENGTH)?;
    let data_length = usize::from(be16(bytes, 0)) + 2;
    let descriptors = usize::from(be16(bytes, 2));
    if descriptors + HEADER_LENGTH > data_length.max(HEADER_LENGTH) {
        return Err(WireError::BadField("UNMAP BLOCK DESCRIPTOR DATA LENGTH"));
    }
    // If the length is not a multiple of a descriptor's, the rest is ignored.
    let end = HEADER_LENGTH + descriptors / DESCRIPTOR_LENGTH * DESCRIPTOR_LENGTH;
    WireError::check_len(bytes, end)?;
    let list = bytes[HEADER_LENGTH..end].chunks_exact(DESCRIPTOR_LENGTH);
    Ok(list.map(|entry| UnmapRange { lba: be64(entry, 0), blocks: be32(entry, 8) }))
}
