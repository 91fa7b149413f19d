//! Completion queue entries (3.3.3.2).

use super::Status;

/// Length of an entry, bytes.
pub const LENGTH: usize = 16;
/// Words of 64 bits in an entry.
pub const WORDS: usize = LENGTH / 8;
/// Offset of the word with the phase, bytes.
pub const STATUS_OFFSET: usize = 8;

/// DNR in the status field without the phase: a retry of the same command would fail too.
pub const DO_NOT_RETRY: u16 = 1 << 14;
/// M: the error information log has more about the error.
pub const MORE: u16 = 1 << 13;

/// A completion queue entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cqe {
    /// DW0: command specific result.
    pub result: u32,
    /// DW1, reserved for most commands.
    pub dw1: u32,
    /// SQHD: head of the submission queue.
    pub sq_head: u16,
    /// SQID: the submission queue.
    pub sq: u16,
    /// CID: the command.
    pub cid: u16,
    /// P: phase.
    pub phase: bool,
    /// The status field without the phase: SC 7:0, SCT 10:8, CRD 12:11, M 13, DNR 14.
    pub status: u16,
}

impl Cqe {
    /// The entry as 64-bit words, as they lie in memory.
    #[inline]
    pub const fn to_words(&self) -> [u64; WORDS] {
        let status = (self.status as u64) << 1 | self.phase as u64;
        let low = self.result as u64 | (self.dw1 as u64) << 32;
        let high =
            self.sq_head as u64 | (self.sq as u64) << 16 | (self.cid as u64) << 32 | status << 48;
        [low.to_le(), high.to_le()]
    }

    /// Reads the entry from these words of memory.
    #[inline]
    pub const fn from_words(words: [u64; WORDS]) -> Self {
        let (low, high) = (u64::from_le(words[0]), u64::from_le(words[1]));
        Self {
            result: low as u32,
            dw1: (low >> 32) as u32,
            sq_head: high as u16,
            sq: (high >> 16) as u16,
            cid: (high >> 32) as u16,
            phase: high >> 48 & 1 != 0,
            status: (high >> 49) as u16,
        }
    }

    /// SCT and SC.
    pub const fn code(&self) -> Status {
        Status::of_field(self.status)
    }
}
