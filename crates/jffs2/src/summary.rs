//! Collects the summary of an erase block while the block is written.

use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::jffs2::{ByteOrder, Summary, SummaryEntry, SummaryTrailer};

/// Longest entry: a directory entry with a name of 255 bytes.
const ENTRY_LEN_MAX: usize = 24 + 255;
/// Linux does not read a longer summary (`MAX_SUMMARY_SIZE`), bytes.
const LEN_MAX: usize = 65536;

/// The entries of one block so far.
#[derive(Clone, Debug)]
pub(crate) struct Collector {
    order: ByteOrder,
    entries: Vec<u8>,
    count: u32,
}

impl Collector {
    pub(crate) fn new(order: ByteOrder) -> Self {
        Self { order, entries: vec![], count: 0 }
    }

    /// Bytes that the summary will take at the end of the block, with `more` bytes of entries.
    pub(crate) fn len_with(&self, more: usize) -> usize {
        summary_len(self.entries.len() + more)
    }

    pub(crate) fn push(&mut self, entry: &SummaryEntry<'_>) {
        let mut bytes = [0; ENTRY_LEN_MAX];
        let len = entry.emit(self.order, &mut bytes);
        self.entries.extend_from_slice(&bytes[..len]);
        self.count += 1;
    }

    /// Writes the summary into `out`, which reaches from `offset` to the end of the block, and
    /// starts a new one. Returns whether that was possible: `out` must be long enough and not too
    /// long.
    pub(crate) fn finish(&mut self, offset: u32, facts: Facts, out: &mut [u8]) -> bool {
        let fits = self.count > 0 && out.len() >= self.len_with(0) && out.len() <= LEN_MAX;
        if fits {
            let summary = Summary {
                entries: self.count,
                cleanmarker_len: facts.cleanmarker_len,
                padded: facts.padded,
                sum_crc: 0,
            };
            out[Summary::LEN..Summary::LEN + self.entries.len()].copy_from_slice(&self.entries);
            summary.emit(self.entries.len(), offset, self.order, out);
        }
        self.entries.clear();
        self.count = 0;
        fits
    }
}

/// What a summary says about its block, apart from nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    /// Length of the in-band clean marker, 0 without one.
    pub(crate) cleanmarker_len: u32,
    /// Bytes of padding nodes.
    pub(crate) padded: u32,
}

/// Bytes of a summary with `entries_len` bytes of entries, rounded up to the next node boundary.
pub(crate) fn summary_len(entries_len: usize) -> usize {
    (Summary::LEN + entries_len + SummaryTrailer::LEN).next_multiple_of(4)
}
