//! The two queue designs behind one small enum.
//!
//! | | SDQ | MCQ |
//! |---|---|---|
//! | where an entry goes | its slot in the transfer request list | the tail of the submission ring |
//! | doorbell | bits of all new slots, one write | the new tail, one write |
//! | how an end is seen | a bit this lane issued is no longer in the doorbell | an entry at the head of the completion ring |
//! | price per batch | one register read | one register read and one write, none while idle |

mod mcq;
mod sdq;

pub(crate) use mcq::Mcq;
pub(crate) use sdq::Sdq;

use crate::layout::ENTRY;
use crate::slots::Done;
use flysch_api::machine::Registers;

/// A lane's share of the controller's queues.
#[derive(Debug)]
pub(crate) enum Queue {
    Sdq(Sdq),
    Mcq(Mcq),
}

impl Queue {
    /// Puts an entry where the controller will look for it after [`ring`](Self::ring).
    #[inline]
    pub(crate) fn post(
        &mut self,
        slot: usize,
        entry: [u64; ENTRY / 8],
        registers: &impl Registers,
    ) {
        match self {
            Self::Sdq(queue) => queue.post(slot, entry, registers),
            Self::Mcq(queue) => queue.post(entry, registers),
        }
    }

    /// Rings one doorbell for everything posted, at least one entry.
    #[inline]
    pub(crate) fn ring(&mut self, registers: &impl Registers) {
        match self {
            Self::Sdq(queue) => queue.ring(registers),
            Self::Mcq(queue) => queue.ring(registers),
        }
    }

    /// The next entry of the current batch.
    #[inline]
    pub(crate) fn take(&mut self, registers: &impl Registers) -> Option<Done> {
        match self {
            Self::Sdq(queue) => queue.take(registers),
            Self::Mcq(queue) => queue.take(registers),
        }
    }

    /// Looks for a new batch.
    #[inline]
    pub(crate) fn refill(&mut self, registers: &impl Registers) -> bool {
        match self {
            Self::Sdq(queue) => queue.refill(registers),
            Self::Mcq(queue) => queue.refill(registers),
        }
    }

    /// Clears this queue's own interrupt status before completions are looked for, and writes
    /// `count` to its aggregation register, which restarts the count.
    #[inline]
    pub(crate) fn acknowledge(&self, registers: &impl Registers, count: Option<u32>) {
        match self {
            Self::Sdq(queue) => queue.acknowledge(registers, count),
            Self::Mcq(queue) => queue.acknowledge(registers, count),
        }
    }

    /// Whether an entry belongs to the device management command, where that has no slot of its
    /// own.
    pub(crate) fn is_management(&self, done: Done) -> bool {
        match self {
            Self::Sdq(_) => false,
            Self::Mcq(queue) => queue.is_management(done),
        }
    }

    /// Stops looking at a slot: the host takes care of its end.
    pub(crate) fn forget(&mut self, slot: usize) {
        if let Self::Sdq(queue) = self {
            queue.forget(slot);
        }
    }

    /// The state of a slot that is no longer looked at, as it is in memory; `None` if only a
    /// completion entry would show it.
    pub(crate) fn status(&self, slot: usize, registers: &impl Registers) -> Option<u8> {
        match self {
            Self::Sdq(queue) => Some(queue.status(slot, registers)),
            Self::Mcq(_) => None,
        }
    }
}
