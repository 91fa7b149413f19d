//! The two queue designs behind one small enum, and the slots they carry.
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
use flysch_api::command::{Ended, Token};
use flysch_api::data::Data;
use flysch_api::machine::{Instant, Registers};

/// One ended queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// The lane's own number of the slot, or [`MANAGEMENT`].
    pub(crate) slot: usize,
    /// Overall command status.
    pub(crate) ocs: u8,
}

/// [`Done::slot`] of the device management command in MCQ: its command descriptor belongs to no
/// slot.
pub(crate) const MANAGEMENT: usize = usize::MAX;
/// [`Done::slot`] of an entry that names no command of this lane.
pub(crate) const STRANGER: usize = usize::MAX - 1;

/// A lane's share of the controller's queues.
#[derive(Debug)]
pub(crate) enum Queue {
    Sdq(Sdq),
    Mcq(Mcq),
}

impl Queue {
    /// Puts an entry where the controller will look for it. It sees it after [`ring`](Self::ring).
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

    /// One doorbell for everything posted.
    #[inline]
    pub(crate) fn ring(&mut self, registers: &impl Registers) {
        match self {
            Self::Sdq(queue) => queue.ring(registers),
            Self::Mcq(queue) => queue.ring(registers),
        }
    }

    /// The next entry of the present batch.
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

    /// Clears this queue's own interrupt status, before a look for completions, and with `count`
    /// written to its aggregation register has it count them anew.
    #[inline]
    pub(crate) fn acknowledge(&self, registers: &impl Registers, count: Option<u32>) {
        match self {
            Self::Sdq(queue) => queue.acknowledge(registers, count),
            Self::Mcq(queue) => queue.acknowledge(registers, count),
        }
    }

    /// Stops looking at a slot: its end is settled by the host.
    pub(crate) fn forget(&mut self, slot: usize) {
        if let Self::Sdq(queue) = self {
            queue.forget(slot);
        }
    }

    /// How a slot that is no longer looked at stands in memory; `None` where only a completion
    /// entry would tell.
    pub(crate) fn status(&self, slot: usize, registers: &impl Registers) -> Option<u8> {
        match self {
            Self::Sdq(queue) => Some(queue.status(slot, registers)),
            Self::Mcq(_) => None,
        }
    }
}

/// Where a slot is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nobody's.
    #[default]
    Free,
    /// Posted, the doorbell has not rung.
    Started,
    /// The device's.
    Issued,
    /// Overdue or caught in a reset: the host finds out what became of it.
    Held,
    /// Carries a device management command of the host.
    Management,
    /// Stuck in the controller for good.
    Dead,
}

/// How an ended slot ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The controller said so; the answer is in the response UPIU if it is a success.
    Ocs(u8),
    /// The host said so.
    Cause(Ended),
}

/// One place in a lane's queue, with the token that owes an outcome. The token is moved out when
/// the outcome is made, so there cannot be two.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) phase: Phase,
    pub(crate) lun: u8,
    /// The owner asked for the end.
    pub(crate) abort: bool,
    pub(crate) verdict: Verdict,
    pub(crate) expected: u32,
    pub(crate) owed: Option<Token>,
    pub(crate) deadline: Instant,
    pub(crate) issued: Instant,
    /// What the device writes, where it has to be synchronised back.
    pub(crate) incoming: Data,
}

impl Slot {
    pub(crate) const FREE: Self = Self {
        phase: Phase::Free,
        lun: 0,
        abort: false,
        verdict: Verdict::Ocs(0),
        expected: 0,
        owed: None,
        deadline: Instant::NEVER,
        issued: Instant::START,
        incoming: Data::NONE,
    };
}

/// The free slots of a lane, last freed first taken: it is the warmest in the cache.
#[derive(Debug)]
pub(crate) struct FreeSlots {
    stack: [u8; 256],
    len: usize,
}

impl FreeSlots {
    pub(crate) fn new(slots: usize) -> Self {
        let mut free = Self { stack: [0; 256], len: 0 };
        free.refill((0..slots).rev());
        free
    }

    /// Replaces the content.
    pub(crate) fn refill(&mut self, slots: impl Iterator<Item = usize>) {
        self.len = 0;
        for slot in slots {
            self.put(slot);
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Option<usize> {
        self.len = self.len.checked_sub(1)?;
        self.stack.get(self.len).map(|&slot| slot.into())
    }

    #[inline]
    pub(crate) fn put(&mut self, slot: usize) {
        self.stack[self.len] = slot as u8;
        self.len += 1;
    }
}
