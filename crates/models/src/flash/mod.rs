//! What the models of raw flash chips share: their power, how it goes, and what it leaves.
//!
//! Every program of a page (of a write buffer, on NOR) and every erase of a block is one operation
//! with a number, from 0 on. The power can be cut at any of them, in one of the ways of [`Tear`].
//! From then on a chip answers [`PowerLost`](flysch_api::flash::Error::PowerLost) until it is
//! switched on again. Blocks are copied on write, so that `clone` makes a second world in the time
//! of one reference count per block: a run forks a world at every operation and looks what becomes
//! of it.

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

/// What a chip does not say when it is used against its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A page below one that is programmed already was programmed: pages of a block go upwards.
    OutOfOrder {
        /// The page.
        page: u64,
    },
    /// A page was programmed more often between two erases than the chip allows (NOP).
    TooManyPrograms {
        /// The page.
        page: u64,
    },
    /// A cell that is 0 was to become 1: it stays 0.
    NotErased {
        /// First byte of the operation; of the page with its out-of-band bytes not counted.
        offset: u64,
    },
    /// A block that the maker marked bad was erased or programmed.
    FactoryBad {
        /// The block.
        block: u32,
    },
}

/// Violations that are kept; more are only counted.
const KEPT: usize = 64;

/// What was done against the rules.
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
