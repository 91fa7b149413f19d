//! The bus between host and card: one command line, and data lines that carry one direction at a
//! time. What crosses them takes the clocks of its bits, at the rate and width that are set.

use super::controller::Registers;
use super::profile::Profile;
use crate::media::Ready;

/// Bits of a command and a response on the line, and the gaps between them, clocks.
const COMMAND_CLOCKS: u64 = 48 + 48 + 16;
/// Start bit, CRC and end bit of a block, clocks.
const BLOCK_CLOCKS: u64 = 18;

/// From when on the lines are free, and what a card needs besides bits.
#[derive(Debug)]
pub(super) struct Lines {
    /// From when on the command line and the data lines are free, nanoseconds.
    command_free: u64,
    data_free: u64,
    /// Clocks between two blocks.
    block_gap: u64,
    /// Sectors of a page of the medium: the last of a read is ready that much later.
    page: u64,
}

impl Lines {
    /// The lines to a card of `profile`.
    pub(super) fn new(profile: &Profile) -> Self {
        Self {
            command_free: 0,
            data_free: 0,
            block_gap: profile.block_gap.into(),
            page: u64::from(profile.timing.page_bytes) / 512,
        }
    }

    /// When `count` commands that may go at `now` have crossed their line with their responses,
    /// each with `more` nanoseconds of who sends it.
    #[inline]
    pub(super) fn commands(&mut self, bus: &Registers, count: u64, more: u64, now: u64) -> u64 {
        let one = COMMAND_CLOCKS * 1_000_000_000 / bus.hertz().max(1) + more;
        self.command_free = self.command_free.max(now) + count * one;
        self.command_free
    }

    /// When `blocks` that may go at `start` have crossed the data lines, as they become `ready`.
    #[inline]
    pub(super) fn data(&mut self, bus: &Registers, start: u64, ready: Ready, blocks: u64) -> u64 {
        let start = self.data_free.max(start).max(ready.first);
        let streamed = start + self.data_ns(bus, blocks);
        self.data_free = streamed.max(ready.last + self.data_ns(bus, blocks.min(self.page)));
        self.data_free
    }

    /// Blocks on the data lines, nanoseconds.
    #[inline]
    fn data_ns(&self, bus: &Registers, blocks: u64) -> u64 {
        let (lines, both) = bus.lines();
        let edges = u64::from(lines) * if both { 2 } else { 1 };
        let clocks = blocks * (512 * 8 / edges + BLOCK_CLOCKS + self.block_gap);
        clocks * 1_000_000_000 / bus.hertz().max(1)
    }
}
