//! What the models of raw flash chips share: their power supply, how it fails, and what that
//! leaves.
//!
//! Every program of a page (of a write buffer, on NOR) and every erase of a block is one operation
//! with a number, from 0 on. Power can be cut during any of them, in one of the ways of [`Tear`].
//! From then on a chip answers [`PowerLost`](flysch_api::flash::FlashError::PowerLost) until it is
//! switched on again. Blocks are copied on write, so that `clone` makes a second world at the cost
//! of one reference count per block: a run forks a world at every operation and examines the
//! outcome.

mod cut;
mod cuts;
mod power;
mod tear;

pub use cut::Aftermath;
pub(crate) use cut::{Act, Tearing};
pub use cuts::{Cut, CutError, CutList};
pub use power::{Operation, Power, Tear};
pub(crate) use tear::{Torn, tear};

use alloc::vec::Vec;

/// A breach of a chip's rules, which the chip itself does not report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A page was programmed below one already programmed: the pages of a block must be programmed
    /// upwards.
    OutOfOrder {
        /// The page.
        page: u64,
    },
    /// A page was programmed more often between two erases than the chip allows (NOP).
    TooManyPrograms {
        /// The page.
        page: u64,
    },
    /// A cell that is 0 should have become 1: it stays 0.
    NotErased {
        /// First byte of the operation; for a page, out-of-band bytes are not counted.
        offset: u64,
    },
    /// A block marked bad by the manufacturer was erased or programmed.
    FactoryBad {
        /// The block.
        block: u32,
    },
}

/// Maximum number of violations kept; further ones are only counted.
const KEPT: usize = 64;

/// The violations so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Violations {
    first: Vec<Violation>,
}

impl Violations {
    pub(crate) fn add(&mut self, violation: Violation) {
        if self.first.len() < KEPT {
            self.first.push(violation);
        }
    }

    pub(crate) fn as_slice(&self) -> &[Violation] {
        &self.first
    }
}
