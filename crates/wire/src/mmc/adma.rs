//! ADMA2 descriptors (SDHCI 1.13.3): attributes and length in the first word, then the address.

/// Bytes in a descriptor with a 32-bit address.
pub const LENGTH_32: usize = 8;
/// Bytes in a descriptor with a 64-bit address, host version 3 (not a multiple of 8).
pub const LENGTH_96: usize = 12;
/// Bytes in a descriptor with a 64-bit address, host version 4.
pub const LENGTH_128: usize = 16;

/// Valid.
pub const VALID: u32 = 1;
/// This is the last descriptor.
pub const END: u32 = 1 << 1;
/// Raises the DMA interrupt.
pub const INTERRUPT: u32 = 1 << 2;
/// Act: transfers data.
pub const TRANSFER: u32 = 0b10 << 4;
/// Act: the address points to the next descriptor.
pub const LINK: u32 = 0b11 << 4;
/// Mask of Act.
pub const ACT: u32 = 0b11 << 4;

/// Maximum bytes that one descriptor transfers; the length field is then 0.
pub const RANGE_MAX: u32 = 1 << 16;

/// The first word of a descriptor that transfers `len` bytes, at most [`RANGE_MAX`].
#[inline]
pub const fn transfer(len: u32, attributes: u32) -> u32 {
    len << 16 | TRANSFER | VALID | attributes
}

/// Bytes that a descriptor with this first word transfers.
#[inline]
pub const fn length(word: u32) -> u32 {
    match word >> 16 {
        0 => RANGE_MAX,
        length => length,
    }
}
