//! Completion queue entry (UFSHCI 4.0): how a transfer request ended in multi-circular queue mode.
//! Little-endian.

use super::utrd::{Ocs, UCD_ALIGNMENT, UcdSpan};
use crate::bytes::{le32, le64, put};
use bitfield_struct::bitfield;

/// Length of an entry, bytes.
pub const LENGTH: usize = 32;
/// Offset of DW0 and DW1, [`CqeUcd`].
pub const UCD_OFFSET: usize = 0;
/// Offset of DW2, the response UPIU's [`UcdSpan`].
pub const RESPONSE_OFFSET: usize = 8;
/// Offset of DW3, the PRDT's [`UcdSpan`].
pub const PRDT_OFFSET: usize = 12;
/// Offset of DW4, [`CqeStatus`].
pub const STATUS_OFFSET: usize = 16;
/// Offset of DW5, [`CqeNexus`].
pub const NEXUS_OFFSET: usize = 20;

/// DW0 and DW1: the submission queue, in the low bits of the UTP command descriptor's address.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct CqeUcd {
    /// SQID: the submission queue the request came from.
    #[bits(5)]
    #[inline]
    pub sqid: u8,
    #[bits(2)]
    __: u8,
    /// The address of the UTP command descriptor divided by [`UCD_ALIGNMENT`].
    #[bits(57)]
    #[inline]
    pub ucd_number: u64,
}

impl CqeUcd {
    /// The address of the UTP command descriptor.
    #[inline]
    pub const fn base(self) -> u64 {
        self.into_bits() & !(UCD_ALIGNMENT - 1)
    }

    /// The word for a descriptor address (its low bits are dropped) and a queue.
    #[inline]
    pub const fn pack(base: u64, sqid: u8) -> Self {
        Self::from_bits(base & !(UCD_ALIGNMENT - 1) | (sqid & 0x1F) as u64)
    }
}

/// DW4.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CqeStatus {
    /// OCS: overall command status.
    #[bits(8)]
    #[inline]
    pub ocs: Ocs,
    /// EEC: extended error code.
    #[inline]
    pub eec: u8,
    __: u16,
}

/// DW5, filled since UFSHCI 4.1; zero in 4.0.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CqeNexus {
    /// Task tag of the request.
    #[inline]
    pub task_tag: u8,
    /// Logical unit of the request.
    #[inline]
    pub lun: u8,
    /// IID of the request.
    #[bits(4)]
    #[inline]
    pub iid: u8,
    /// EXT_IID of the request.
    #[bits(4)]
    #[inline]
    pub ext_iid: u8,
    __: u8,
}

/// An entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cqe {
    /// DW0 and DW1: command descriptor and submission queue.
    pub ucd: CqeUcd,
    /// DW2: position of the response UPIU, copied from the request.
    pub response: UcdSpan,
    /// DW3: position of the PRDT, copied from the request.
    pub prdt: UcdSpan,
    /// DW4: how the request ended.
    pub status: CqeStatus,
    /// DW5: the nexus of the command.
    pub nexus: CqeNexus,
}

impl Cqe {
    /// Parses an entry.
    #[inline]
    pub fn parse(bytes: &[u8; LENGTH]) -> Self {
        Self {
            ucd: CqeUcd::from_bits(le64(bytes, UCD_OFFSET)),
            response: UcdSpan::from_bits(le32(bytes, RESPONSE_OFFSET)),
            prdt: UcdSpan::from_bits(le32(bytes, PRDT_OFFSET)),
            status: CqeStatus::from_bits(le32(bytes, STATUS_OFFSET)),
            nexus: CqeNexus::from_bits(le32(bytes, NEXUS_OFFSET)),
        }
    }

    /// Writes the entry, DW6 and DW7 (reserved) as zero.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8; LENGTH]) {
        put(bytes, UCD_OFFSET, self.ucd.into_bits().to_le_bytes());
        put(bytes, RESPONSE_OFFSET, self.response.into_bits().to_le_bytes());
        put(bytes, PRDT_OFFSET, self.prdt.into_bits().to_le_bytes());
        put(bytes, STATUS_OFFSET, self.status.into_bits().to_le_bytes());
        put(bytes, NEXUS_OFFSET, self.nexus.into_bits().to_le_bytes());
        put(bytes, 24, [0; 8]);
    }
}
