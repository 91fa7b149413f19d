//! Scatter gather lists (4.1.2).

use crate::bytes::{le32, le64};

/// Bytes per descriptor.
pub const LENGTH: usize = 16;

/// A descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Address.
    pub address: u64,
    /// Length, bytes.
    pub length: u32,
    /// Type in bits 7:4, subtype in bits 3:0: see [`kind`].
    pub kind: u8,
}

/// Descriptor types with subtype 0, address.
pub mod kind {
    /// Data.
    pub const DATA: u8 = 0x00;
    /// Data to be discarded.
    pub const BIT_BUCKET: u8 = 0x10;
    /// A segment of further descriptors, the last of which points to another segment of this type
    /// or to a [`LAST_SEGMENT`].
    pub const SEGMENT: u8 = 0x20;
    /// The last segment of descriptors.
    pub const LAST_SEGMENT: u8 = 0x30;
}

impl Descriptor {
    /// The descriptor as two words of memory.
    #[inline]
    pub const fn to_words(self) -> [u64; 2] {
        [self.address.to_le(), (self.length as u64 | (self.kind as u64) << 56).to_le()]
    }

    /// Reads the descriptor from the numeric values of its two words.
    #[inline]
    pub const fn from_values(low: u64, high: u64) -> Self {
        Self { address: low, length: high as u32, kind: (high >> 56) as u8 }
    }

    /// Parses a descriptor.
    pub fn parse(bytes: &[u8; LENGTH]) -> Self {
        Self { address: le64(bytes, 0), length: le32(bytes, 8), kind: bytes[15] }
    }
}
