//! What the host and its lanes share: [`Orders`], overdue commands, errands, and what bring-up has
//! learnt.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, Ordering};
use flysch_api::machine::Instant;
use flysch_orders::Orders;

/// Why the host is needed: bits of [`Orders::causes`].
pub(crate) mod cause {
    /// An error interrupt, which is in the status register, or an error of the plain path.
    pub(crate) const ERROR: u32 = 1;
    /// Registers read as ones.
    pub(crate) const REMOVED: u32 = 2;
    /// A lane was dropped with commands in flight.
    pub(crate) const LOST: u32 = 4;
}

/// What a lane cannot do on its own: a command that needs the whole bus. The lane fills it in and
/// calls the host, which carries it out and stores the result.
#[derive(Debug, Default)]
pub(crate) struct ErrandWord {
    /// [`IDLE`](Self::IDLE), [`ASKED`](Self::ASKED) or [`DONE`](Self::DONE).
    state: AtomicU32,
    /// Command index | response << 8, argument, first and last sector of an erase, and the two
    /// halves of the deadline: microcontrollers have no 64-bit atomics, and `state` hands all of
    /// them over at once anyway.
    words: [AtomicU32; 6],
    /// How it ended, and the device status.
    result: [AtomicU32; 2],
}

/// An errand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errand {
    pub(crate) index: u8,
    pub(crate) argument: u32,
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) deadline: Instant,
}

impl ErrandWord {
    const IDLE: u32 = 0;
    const ASKED: u32 = 1;
    const DONE: u32 = 2;

    /// Lane: asks.
    pub(crate) fn ask(&self, errand: Errand) {
        let deadline = errand.deadline.nanos();
        let (low, high) = (deadline as u32, (deadline >> 32) as u32);
        let words = [errand.index.into(), errand.argument, errand.first, errand.last, low, high];
        for (place, word) in self.words.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        self.state.store(Self::ASKED, Ordering::Release);
    }

    /// Lane: nobody wants it any more.
    pub(crate) fn withdraw(&self) {
        self.state.store(Self::IDLE, Ordering::Release);
    }

    /// Lane: takes its result, once.
    pub(crate) fn take_result(&self) -> Option<[u32; 2]> {
        if self.state.load(Ordering::Acquire) != Self::DONE {
            return None;
        }
        let result = [0, 1].map(|n: usize| self.result[n].load(Ordering::Relaxed));
        self.state.store(Self::IDLE, Ordering::Release);
        Some(result)
    }

    /// Host: the request.
    pub(crate) fn asked(&self) -> Option<Errand> {
        if self.state.load(Ordering::Acquire) != Self::ASKED {
            return None;
        }
        let [index, argument, first, last, low, high] =
            [0, 1, 2, 3, 4, 5].map(|n: usize| self.words[n].load(Ordering::Relaxed));
        let deadline = Instant::from_nanos(u64::from(high) << 32 | u64::from(low));
        Some(Errand { index: index as u8, argument, first, last, deadline })
    }

    /// Host: stores the result.
    pub(crate) fn answer(&self, result: [u32; 2]) {
        for (place, word) in self.result.iter().zip(result) {
            place.store(word, Ordering::Relaxed);
        }
        let (order, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        // If it was withdrawn meanwhile, nobody notices.
        let _ = self.state.compare_exchange(Self::ASKED, Self::DONE, order, failure);
    }
}

/// What bring-up has determined for lanes; it takes effect with the next order to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The engine queues; otherwise the host moves one command at a time.
    pub(crate) queueing: bool,
    /// Tasks of each lane.
    pub(crate) tasks: u8,
    /// The engine takes direct commands.
    pub(crate) direct: bool,
    /// Sectors are addressed, and not bytes.
    pub(crate) sectors: bool,
    /// The partition that is selected.
    pub(crate) partition: u8,
}

impl Terms {
    fn into_bits(self) -> u32 {
        u32::from(self.queueing)
            | u32::from(self.direct) << 1
            | u32::from(self.sectors) << 2
            | u32::from(self.partition) << 8
            | u32::from(self.tasks) << 16
    }

    fn from_bits(bits: u32) -> Self {
        Self {
            queueing: bits & 1 != 0,
            direct: bits & 2 != 0,
            sectors: bits & 4 != 0,
            partition: (bits >> 8) as u8,
            tasks: (bits >> 16) as u8,
        }
    }
}

/// The block of atomics a host shares with its lanes.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) orders: Orders,
    terms: AtomicU32,
    /// Tasks that are overdue, one bit each.
    victims: AtomicU32,
    /// The lane that uses the task of direct commands, plus one.
    direct: AtomicU32,
    /// The tasks to blame for a stop: [`Blame`].
    blame: [AtomicU32; 3],
    pub(crate) errands: Box<[ErrandWord]>,
}

/// The tasks that a recovery blames, and the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blame {
    /// Tasks, one bit each.
    pub(crate) tasks: u32,
    /// The error of the bus.
    pub(crate) code: u32,
    /// The card's device status, 0 if there was none.
    pub(crate) status: u32,
}

impl Shared {
    pub(crate) fn new(lanes: usize) -> Self {
        Self {
            orders: Orders::new(lanes),
            terms: AtomicU32::new(0),
            victims: AtomicU32::new(0),
            direct: AtomicU32::new(0),
            blame: Default::default(),
            errands: (0..lanes).map(|_| ErrandWord::default()).collect(),
        }
    }

    /// Host: sets the terms from the next order to run on.
    pub(crate) fn set_terms(&self, terms: Terms) {
        self.terms.store(terms.into_bits(), Ordering::Release);
    }

    pub(crate) fn terms(&self) -> Terms {
        Terms::from_bits(self.terms.load(Ordering::Acquire))
    }

    /// Lane: these tasks are overdue.
    pub(crate) fn add_victims(&self, tasks: u32) {
        self.victims.fetch_or(tasks, Ordering::AcqRel);
    }

    /// Lane: they have ended.
    pub(crate) fn remove_victims(&self, tasks: u32) {
        self.victims.fetch_and(!tasks, Ordering::AcqRel);
    }

    pub(crate) fn victims(&self) -> u32 {
        self.victims.load(Ordering::Acquire)
    }

    /// Lane: takes the task of direct commands, if nobody has it.
    pub(crate) fn take_direct(&self, lane: usize) -> bool {
        let (order, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        self.direct.compare_exchange(0, lane as u32 + 1, order, failure).is_ok()
    }

    /// Lane: gives it back.
    pub(crate) fn give_direct(&self, lane: usize) {
        let (order, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = self.direct.compare_exchange(lane as u32 + 1, 0, order, failure);
    }

    /// Host: sets the tasks to blame for the stop that is ordered next.
    pub(crate) fn set_blame(&self, blame: Blame) {
        let words = [blame.tasks, blame.code, blame.status];
        for (place, word) in self.blame.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
    }

    pub(crate) fn blame(&self) -> Blame {
        let [tasks, code, status] = [0, 1, 2].map(|n: usize| self.blame[n].load(Ordering::Relaxed));
        Blame { tasks, code, status }
    }

    /// Host: a lane that asks for an errand.
    pub(crate) fn errand(&self) -> Option<usize> {
        self.errands.iter().position(|errand| errand.asked().is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errand_is_answered_once_and_not_after_it_was_withdrawn() {
        let word = ErrandWord::default();
        let deadline = Instant::from_nanos(7 << 32 | 0xFFFF_FFF9);
        let errand = Errand { index: 38, argument: 1, first: 2, last: 3, deadline };
        word.ask(errand);
        assert_eq!(word.asked(), Some(errand));
        word.answer([4, 5]);
        assert_eq!(
            (word.asked(), word.take_result(), word.take_result()),
            (None, Some([4, 5]), None)
        );
        word.ask(errand);
        word.withdraw();
        word.answer([6, 7]);
        assert_eq!(word.take_result(), None);
    }

    #[test]
    fn terms_go_through_a_word() {
        let terms = Terms { queueing: true, tasks: 31, direct: true, sectors: true, partition: 7 };
        assert_eq!(Terms::from_bits(terms.into_bits()), terms);
        let shared = Shared::new(2);
        assert!(shared.take_direct(1) && !shared.take_direct(0));
        shared.give_direct(0);
        assert!(!shared.take_direct(0), "it is another lane's");
        shared.give_direct(1);
        assert!(shared.take_direct(0));
    }
}
