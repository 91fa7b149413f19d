//! Scatter gather lists (4.1.2).

use crate::bytes::{le32, le64};

/// Bytes of a descriptor.
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
    /// Data that is thrown away.
    pub const BIT_BUCKET: u8 = 0x10;
    /// More descriptors, the last of which is of this type or [`LAST_SEGMENT`] again.
    pub const SEGMENT: u8 = 0x20;
    /// The last descriptors.
    pub const LAST_SEGMENT: u8 = 0x30;
}

impl Descriptor {
    /// The descriptor as two words of memory.
    #[inline]
    pub const fn to_words(self) -> [u64; 2] {
        [self.address.to_le(), (self.length as u64 | (self.kind as u64) << 56).to_le()]
    }

    /// The descriptor in two words as values.
    #[inline]
    pub const fn from_values(low: u64, high: u64) -> Self {
        Self { address: low, length: high as u32, kind: (high >> 56) as u8 }
    }

    /// The descriptor in these bytes.
    pub fn parse(bytes: &[u8; LENGTH]) -> Self {
        Self { address: le64(bytes, 0), length: le32(bytes, 8), kind: bytes[15] }
    }
}
