//! The slots of a lane, and how they end.

use flysch_api::command::{Ended, Token};
use flysch_api::data::Data;
use flysch_api::machine::Instant;

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

    /// Why a command that did not complete ended: its owner's wish and its deadline come first.
    pub(crate) fn why(&self, cause: Ended, now: Instant) -> Ended {
        if cause == Ended::Gone {
            cause
        } else if self.abort {
            Ended::Aborted
        } else if self.deadline <= now {
            Ended::TimedOut
        } else {
            cause
        }
    }
}

/// The device management command a lane carries for the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Management {
    pub(crate) slot: usize,
    pub(crate) ocs: Option<u8>,
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

    /// Takes free slots out of use that are stuck in the controller, bits of `dead`, and those that
    /// are not any more into use again.
    pub(crate) fn retire(&mut self, slots: &mut [Slot], dead: u32) {
        let is_dead = |n: usize| n < 32 && dead >> n & 1 != 0;
        for (n, slot) in slots.iter_mut().enumerate() {
            match slot.phase {
                Phase::Free if is_dead(n) => slot.phase = Phase::Dead,
                Phase::Dead if !is_dead(n) => slot.phase = Phase::Free,
                _ => {}
            }
        }
        self.refill((0..slots.len()).rev().filter(|&n| slots[n].phase == Phase::Free));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_that_was_freed_last_is_taken_first() {
        let mut free = FreeSlots::new(3);
        assert_eq!(
            [free.take(), free.take(), free.take(), free.take()],
            [Some(0), Some(1), Some(2), None]
        );
        free.put(1);
        free.put(0);
        assert_eq!((free.len(), free.take()), (2, Some(0)));
        free.refill([2].into_iter());
        assert_eq!((free.take(), free.take()), (Some(2), None));
        let all = FreeSlots::new(256);
        assert_eq!(all.len(), 256);
    }
}
