//! Physical region pages (4.1.1): where data lies, a page at a time.

/// Bytes of an entry.
pub const ENTRY: usize = 8;

/// How a piece of memory in one piece of `len` bytes (at least one) at `address` looks: PRP1,
/// the first address behind it at a page, and how many entries follow PRP1.
///
/// With no entry PRP2 is nothing; with one it is that address; with more it is the address of a
/// list of them.
#[inline(always)]
pub const fn span(address: u64, len: u32, page: u64) -> (u64, u64, u32) {
    let offset = address & (page - 1);
    let next = address - offset + page;
    let more = (offset + len as u64 - 1) / page;
    (address, next, more as u32)
}
