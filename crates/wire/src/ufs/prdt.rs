//! Physical region description table (JESD223 6.1.2): the location of a transfer request's data.
//! Little-endian, 16 bytes per entry.

use crate::bytes::{le32, le64, put};

/// Length of an entry, bytes.
pub const LENGTH: usize = 16;
/// Maximum bytes that one entry can describe.
pub const ENTRY_MAX: u32 = 256 * 1024;
/// Alignment of an entry's address and length, bytes.
pub const ALIGNMENT: u32 = 4;

/// Mask of the byte count field.
const COUNT_MASK: u32 = ENTRY_MAX - 1;

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrdtEntry {
    /// Address of the data, a multiple of [`ALIGNMENT`].
    pub address: u64,
    /// Length of the data, bytes: 1..=[`ENTRY_MAX`], a multiple of [`ALIGNMENT`]. Stored minus one.
    pub length: u32,
}

impl PrdtEntry {
    /// Parses an entry. Every byte count is a valid length, but from a hostile host it may not be a
    /// multiple of [`ALIGNMENT`], see [`is_aligned`](Self::is_aligned).
    #[inline]
    pub fn parse(bytes: &[u8; LENGTH]) -> Self {
        Self { address: le64(bytes, 0), length: (le32(bytes, 12) & COUNT_MASK) + 1 }
    }

    /// Writes the entry. A length out of range is taken modulo [`ENTRY_MAX`].
    #[inline]
    pub fn emit(&self, bytes: &mut [u8; LENGTH]) {
        put(bytes, 0, self.address.to_le_bytes());
        put(bytes, 8, (u64::from(self.byte_count()) << 32).to_le_bytes());
    }

    /// The entry as two words which, stored one after the other in the byte order of this machine,
    /// give the same bytes as [`emit`](Self::emit).
    #[inline]
    pub const fn to_words(&self) -> [u64; 2] {
        [self.address.to_le(), ((self.byte_count() as u64) << 32).to_le()]
    }

    /// Whether address and length are multiples of [`ALIGNMENT`].
    #[inline]
    pub const fn is_aligned(&self) -> bool {
        self.address.is_multiple_of(ALIGNMENT as u64) && self.length.is_multiple_of(ALIGNMENT)
    }

    #[inline]
    const fn byte_count(&self) -> u32 {
        self.length.wrapping_sub(1) & COUNT_MASK
    }
}

/// Entries needed for `length` bytes of contiguous memory.
#[inline]
pub const fn entries_for(length: u32) -> u32 {
    length.div_ceil(ENTRY_MAX)
}

/// The entries that describe `length` bytes of contiguous memory at `address`.
#[inline]
pub fn entries(address: u64, length: u32) -> impl Iterator<Item = PrdtEntry> {
    (0..entries_for(length)).map(move |n| {
        let done = n * ENTRY_MAX;
        PrdtEntry {
            address: address.wrapping_add(u64::from(done)),
            length: (length - done).min(ENTRY_MAX),
        }
    })
}
