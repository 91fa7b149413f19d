//! The slots of a lane, and how they end.

use crate::shared::SLOTS_MAX;
use core::mem::take;
use flysch_api::command::{Ended, Outcome, Token};
use flysch_api::data::Data;
use flysch_api::machine::Instant;

/// One ended queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// The lane's own number of the slot, or a number beyond all slots: that of device management
    /// ([`Queue::is_management`](crate::queue::Queue::is_management)) or of nothing.
    pub(crate) number: u64,
    /// Overall command status.
    pub(crate) ocs: u8,
}

impl Done {
    /// The index of the slot, if there is such a slot.
    #[inline]
    pub(crate) fn slot(self) -> usize {
        usize::try_from(self.number).unwrap_or(usize::MAX)
    }
}

/// The state of a slot. While it owes an outcome it holds the token for it, which is moved out when
/// the outcome is made, so there cannot be two.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Free.
    #[default]
    Free,
    /// Posted, but the doorbell has not rung.
    Started(Token),
    /// Owned by the device.
    Issued(Token),
    /// Overdue or caught in a reset: the host finds out its result.
    Held(Token),
    /// Carries a device management command of the host.
    Management,
    /// Stuck in the controller permanently.
    Dead,
}

/// How an ended slot ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// According to the controller; the answer is in the response UPIU if it is a success.
    Ocs(u8),
    /// According to the host.
    Cause(Ended),
}

/// The same outcome, rebuilt from its parts.
#[inline(always)]
pub(crate) fn renewed(outcome: Outcome) -> Outcome {
    let Outcome { issued, device_done, token, ended } = outcome;
    Outcome { issued, device_done, token, ended }
}

/// One place in a lane's queue.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) phase: Phase,
    /// Its task tag.
    pub(crate) tag: u8,
    pub(crate) lun: u8,
    /// The owner asked for the end.
    pub(crate) abort: bool,
    pub(crate) verdict: Verdict,
    pub(crate) expected: u32,
    pub(crate) deadline: Instant,
    /// When its doorbell rang, or when it was given up before that.
    pub(crate) issued: Instant,
    /// Where the device writes, if that has to be synchronised back.
    pub(crate) incoming: Data,
}

impl Slot {
    pub(crate) fn free(tag: u8) -> Self {
        Self {
            phase: Phase::Free,
            tag,
            lun: 0,
            abort: false,
            verdict: Verdict::Ocs(0),
            expected: 0,
            deadline: Instant::NEVER,
            issued: Instant::START,
            incoming: Data::NONE,
        }
    }

    /// The doorbell rings.
    ///
    /// # Panics
    /// If the slot was not started.
    #[inline(always)]
    pub(crate) fn issue(&mut self, now: Instant) {
        let Phase::Started(token) = take(&mut self.phase) else {
            unreachable!("the doorbell rings for what was started")
        };
        self.phase = Phase::Issued(token);
        self.issued = now;
    }

    /// Takes the token of a slot if the device owns the slot, which is free then.
    #[inline(always)]
    pub(crate) fn settle(&mut self) -> Option<Token> {
        if !matches!(self.phase, Phase::Issued(_)) {
            return None;
        }
        self.take_owed()
    }

    /// Takes the token of a slot that owes an outcome; the slot is free then.
    #[inline(always)]
    pub(crate) fn take_owed(&mut self) -> Option<Token> {
        match take(&mut self.phase) {
            Phase::Started(token) | Phase::Issued(token) | Phase::Held(token) => Some(token),
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// The token of a slot that owes an outcome.
    pub(crate) fn owed(&self) -> Option<&Token> {
        match &self.phase {
            Phase::Started(token) | Phase::Issued(token) | Phase::Held(token) => Some(token),
            Phase::Free | Phase::Management | Phase::Dead => None,
        }
    }

    /// Whether the device owns it.
    pub(crate) fn is_issued(&self) -> bool {
        matches!(self.phase, Phase::Issued(_))
    }

    /// Whether it waits for the host to find out its result.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Held(_))
    }

    /// Moves it from the device to the host.
    pub(crate) fn hold(&mut self) {
        self.verdict = Verdict::Cause(Ended::TimedOut);
        self.phase = match take(&mut self.phase) {
            Phase::Issued(token) => Phase::Held(token),
            other => other,
        };
    }

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

/// The device management command that a lane carries for the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Management {
    pub(crate) slot: usize,
    pub(crate) ocs: Option<u8>,
}

/// Numbers of slots, each at most once, so that there are never more than a byte can represent, and
/// an access needs no check.
#[derive(Debug)]
pub(crate) struct SlotStack {
    numbers: [u8; SLOTS_MAX],
    len: u32,
}

const _: () = assert!(SLOTS_MAX == 1 << u8::BITS);

impl SlotStack {
    pub(crate) const EMPTY: Self = Self { numbers: [0; SLOTS_MAX], len: 0 };

    /// The free slots of a lane with this many slots. The slot freed last is taken first, because
    /// it is the warmest in the cache.
    pub(crate) fn free(slots: usize) -> Self {
        let mut free = Self::EMPTY;
        free.refill((0..slots).rev());
        free
    }

    /// Replaces the content.
    pub(crate) fn refill(&mut self, slots: impl Iterator<Item = usize>) {
        self.clear();
        for slot in slots {
            self.push(slot);
        }
    }

    /// Takes free slots that are stuck in the controller, bits of `dead`, out of use, and those
    /// that no longer are back into use.
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
        self.len as usize
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<usize> {
        self.len = self.len.checked_sub(1)?;
        Some(self.numbers[usize::from(self.len as u8)].into())
    }

    #[inline]
    pub(crate) fn push(&mut self, slot: usize) {
        self.numbers[usize::from(self.len as u8)] = slot as u8;
        self.len += 1;
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.numbers[..self.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_that_was_freed_last_is_taken_first() {
        let mut free = SlotStack::free(3);
        assert_eq!(
            [free.pop(), free.pop(), free.pop(), free.pop()],
            [Some(0), Some(1), Some(2), None]
        );
        free.push(1);
        free.push(0);
        assert_eq!((free.len(), free.pop()), (2, Some(0)));
        free.refill([2].into_iter());
        assert_eq!((free.pop(), free.pop()), (Some(2), None));
        let mut all = SlotStack::free(256);
        assert_eq!((all.len(), all.as_slice()[255]), (256, 0));
        assert!((0..256).all(|n| all.pop() == Some(n)));
    }
}
