//! What the host and its lanes share: [`Orders`], held slots, positions of queues, and bounds.

use crate::keys::KeySlots;
use crate::platform::QueueRegisters;
use crate::shares::Bounds;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use flysch_orders::{Order, Orders};

/// Maximum number of slots of a lane: the task tag is one byte.
pub(crate) const SLOTS_MAX: usize = 256;
const HELD_WORDS: usize = SLOTS_MAX / 32;

/// The flags of orders that are specific to this driver.
pub(crate) mod order {
    use super::Order;

    /// Hold every command of the logical unit in [`Shared::hold_lun`](super::Shared::hold_lun) for
    /// the host.
    pub(crate) const HOLD: u32 = Order::OWN;
    /// Finish every held command: it is no longer in the device.
    pub(crate) const RELEASE: u32 = Order::OWN << 1;
    /// The link hibernates: a lane with a command says so, and the link wakes.
    pub(crate) const ASLEEP: u32 = Order::OWN << 2;
}

/// The positions of a lane's queues after a reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Starts {
    /// MCQ: the position in the submission ring, a byte offset. SDQ: the slots of the list that are
    /// stuck, a mask.
    pub(crate) submission: u32,
    /// MCQ: the position in the completion ring, a byte offset.
    pub(crate) completion: u32,
    /// MCQ: where the run-time registers are.
    pub(crate) registers: QueueRegisters,
    /// How completions are reported.
    pub(crate) signals: Signals,
}

/// How a lane's completions are reported, as the controller accepted it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signals {
    /// Each queue raises a vector of its own.
    pub(crate) messages: bool,
    /// Several share an interrupt.
    pub(crate) aggregated: bool,
}

/// A command that a lane holds for the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victim {
    pub(crate) lane: usize,
    pub(crate) slot: usize,
    pub(crate) lun: u8,
}

/// What a lane tells the host.
#[derive(Debug)]
pub(crate) struct LaneWord {
    /// Slots that the lane holds for the host, one bit each.
    held: [AtomicU32; HELD_WORDS],
    /// Held slots that completed after all.
    late: [AtomicU32; HELD_WORDS],
    /// Logical unit of each slot in flight.
    luns: Box<[AtomicU8]>,
    /// The positions of the queues after a reset, see [`Starts`].
    starts: [AtomicU32; 6],
}

impl LaneWord {
    fn new(slots: usize) -> Self {
        Self {
            held: [const { AtomicU32::new(0) }; HELD_WORDS],
            late: [const { AtomicU32::new(0) }; HELD_WORDS],
            luns: (0..slots).map(|_| AtomicU8::new(0)).collect(),
            starts: [const { AtomicU32::new(0) }; 6],
        }
    }

    pub(crate) fn hold(&self, slot: usize, lun: u8) {
        self.luns[slot].store(lun, Ordering::Relaxed);
        self.late[slot / 32].fetch_and(!(1 << (slot % 32)), Ordering::Relaxed);
        self.held[slot / 32].fetch_or(1 << (slot % 32), Ordering::Release);
    }

    pub(crate) fn unhold(&self, slot: usize) {
        self.held[slot / 32].fetch_and(!(1 << (slot % 32)), Ordering::Release);
    }

    pub(crate) fn came_late(&self, slot: usize) {
        self.late[slot / 32].fetch_or(1 << (slot % 32), Ordering::Release);
    }

    pub(crate) fn is_late(&self, slot: usize) -> bool {
        self.late[slot / 32].load(Ordering::Acquire) >> (slot % 32) & 1 != 0
    }

    /// Every held slot with its logical unit.
    pub(crate) fn held(&self) -> impl Iterator<Item = (usize, u8)> {
        (0..self.luns.len()).filter_map(|slot| {
            let held = self.held[slot / 32].load(Ordering::Acquire) >> (slot % 32) & 1 != 0;
            held.then(|| (slot, self.luns[slot].load(Ordering::Relaxed)))
        })
    }

    fn set_starts(&self, starts: Starts) {
        let words = [
            starts.submission,
            starts.completion,
            starts.registers.submission,
            starts.registers.completion,
            starts.registers.completion_interrupt,
            u32::from(starts.signals.messages) | u32::from(starts.signals.aggregated) << 1,
        ];
        for (slot, word) in self.starts.iter().zip(words) {
            slot.store(word, Ordering::Release);
        }
    }

    pub(crate) fn starts(&self) -> Starts {
        let word = |n: usize| self.starts[n].load(Ordering::Acquire);
        Starts {
            submission: word(0),
            completion: word(1),
            registers: QueueRegisters {
                submission: word(2),
                completion: word(3),
                completion_interrupt: word(4),
            },
            signals: Signals { messages: word(5) & 1 != 0, aggregated: word(5) & 2 != 0 },
        }
    }
}

/// The block of atomics that a host shares with its lanes.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Their causes are bits of IS that lanes saw and that are errors.
    pub(crate) orders: Orders,
    /// A response reported an exception event of the device.
    event: AtomicU8,
    /// A lane has a command for a link that hibernates.
    wake: AtomicU8,
    /// Counts how often the host has worked.
    pulse: AtomicU32,
    /// The logical unit that [`order::HOLD`] concerns.
    hold_lun: AtomicU8,
    pub(crate) bounds: Bounds,
    pub(crate) keys: KeySlots,
    pub(crate) lanes: Box<[LaneWord]>,
}

impl Shared {
    /// For `lanes` lanes of up to `slots` slots, of which the first `own` are the host's.
    pub(crate) fn new(lanes: usize, slots: usize, own: usize, keys: KeySlots) -> Self {
        Self {
            orders: Orders::new(lanes),
            event: AtomicU8::new(0),
            wake: AtomicU8::new(0),
            pulse: AtomicU32::new(0),
            hold_lun: AtomicU8::new(0),
            bounds: Bounds::new(lanes, own),
            keys,
            lanes: (0..lanes).map(|_| LaneWord::new(slots)).collect(),
        }
    }

    /// Host: publishes the positions of a lane's queues after a reset, before it orders the lane to
    /// run.
    pub(crate) fn set_starts(&self, lane: usize, starts: Starts) {
        self.lanes[lane].set_starts(starts);
        self.orders.renew(lane);
    }

    /// Host: orders that every command of this logical unit is held.
    pub(crate) fn publish_hold(&self, lun: u8) {
        self.hold_lun.store(lun, Ordering::Relaxed);
        self.orders.publish(Order::PAUSE | order::HOLD);
    }

    pub(crate) fn hold_lun(&self) -> u8 {
        self.hold_lun.load(Ordering::Relaxed)
    }

    /// Host: shows that it is working.
    pub(crate) fn beat(&self) {
        self.pulse.fetch_add(1, Ordering::Relaxed);
    }

    /// Lane: a number that changes while the host is polled.
    pub(crate) fn pulse(&self) -> u32 {
        self.pulse.load(Ordering::Relaxed)
    }

    /// Lane: reports that a response carried the event alert.
    pub(crate) fn report_event(&self) {
        if self.event.swap(1, Ordering::Relaxed) == 0 {
            self.orders.call_host();
        }
    }

    /// Lane: reports that a command waits for the link to wake.
    pub(crate) fn ask_to_wake(&self) {
        self.wake.store(1, Ordering::Relaxed);
        self.orders.call_host();
    }

    /// Host: whether a command waits for the link.
    pub(crate) fn take_wake(&self) -> bool {
        self.wake.swap(0, Ordering::Relaxed) != 0
    }

    pub(crate) fn event_pending(&self) -> bool {
        self.event.load(Ordering::Relaxed) != 0
    }

    /// Host: the event has been dealt with; the next alert calls again.
    pub(crate) fn rearm_event(&self) {
        self.event.store(0, Ordering::Relaxed);
    }

    /// Host: whether any lane holds a slot.
    pub(crate) fn any_held(&self) -> bool {
        self.victims().next().is_some()
    }

    /// Host: every held command of every lane.
    pub(crate) fn victims(&self) -> impl Iterator<Item = Victim> {
        self.lanes
            .iter()
            .enumerate()
            .flat_map(|(lane, word)| word.held().map(move |(slot, lun)| Victim { lane, slot, lun }))
    }
}

#[cfg(test)]
mod tests;
