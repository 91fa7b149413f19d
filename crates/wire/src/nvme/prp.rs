//! Physical region pages (4.1.1): the location of data, page by page.

/// Bytes per entry.
pub const ENTRY: usize = 8;

/// Describes `len` bytes (at least one) of contiguous memory at `address`: PRP1, the first page
/// address after it, and the number of entries that follow PRP1.
///
/// With no further entry, PRP2 is unused; with one, it is that page address; with more, it is the
/// address of a list of them.
#[inline(always)]
pub const fn span(address: u64, len: u32, page: u64) -> (u64, u64, u32) {
    let offset = address & (page - 1);
    let next = address - offset + page;
    let more = (offset + len as u64 - 1) / page;
    (address, next, more as u32)
}
