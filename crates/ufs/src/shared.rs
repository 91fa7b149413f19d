//! What the host and its lanes say to each other: a handful of atomics, no lock.
//!
//! Theory. Everything device-wide is decided by one owner, the [`Host`](crate::Host). Lanes may
//! run on other threads and must not be stopped by force. So the host publishes an *order* - one
//! word, a sequence number and flags - and every lane compares that word with the last one it
//! obeyed, once per call: that load is the whole price of recovery on a healthy I/O path. A lane
//! that sees a new order carries it out and acknowledges it by storing the word.
//!
//! A lane with nothing in flight need not be polled, so it cannot acknowledge. It *parks*
//! instead: parked counts as obedient. Leaving the park is a store of `ACTIVE` followed by a load
//! of the order; publishing an order is a store followed by loads of the lanes' words. Both are
//! sequentially consistent, so at least one side sees the other (Dekker's argument): either the
//! lane finds the order before it touches the queue, or the host finds the lane active and waits.

use crate::platform::QueueRegisters;
use crate::shares::Bounds;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Most slots one lane can have: the task tag is one byte.
pub(crate) const SLOTS_MAX: usize = 256;
const HELD_WORDS: usize = SLOTS_MAX / 32;

/// The host's standing order, flags in the low byte, sequence number above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order(u32);

impl Order {
    /// Start nothing, ring nothing.
    pub(crate) const PAUSE: u32 = 1;
    /// Hold every command of the logical unit in [`Shared::hold_lun`] for the host.
    pub(crate) const HOLD: u32 = 1 << 1;
    /// Finish every held command: it is no longer in the device.
    pub(crate) const RELEASE: u32 = 1 << 2;
    /// The controller is disabled: finish everything.
    pub(crate) const STOP: u32 = 1 << 3;
    /// The controller is out of order for good.
    pub(crate) const GONE: u32 = 1 << 4;
    /// The link hibernates: whoever has a command says so, and it wakes.
    pub(crate) const ASLEEP: u32 = 1 << 5;
    /// Something waits for the host: set by lanes, cleared by the host, no order.
    const ATTENTION: u32 = 1 << 7;

    pub(crate) fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    /// Whether lanes may start and ring.
    pub(crate) fn runs(self) -> bool {
        self.0 & (Self::PAUSE | Self::STOP | Self::GONE) == 0
    }
}

/// How a lane's queues stand after a reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Starts {
    /// MCQ: where the submission ring stands, a byte offset. SDQ: the slots of the list that are
    /// stuck, a mask.
    pub(crate) submission: u32,
    /// MCQ: where the completion ring stands, a byte offset.
    pub(crate) completion: u32,
    /// MCQ: where the run-time registers are.
    pub(crate) registers: QueueRegisters,
    /// How ends are told.
    pub(crate) signals: Signals,
}

/// How the ends of a lane's commands are told, as the controller took it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signals {
    /// Each queue raises a vector of its own.
    pub(crate) messages: bool,
    /// Several share an interrupt.
    pub(crate) aggregated: bool,
}

/// What one lane tells the host.
#[derive(Debug)]
pub(crate) struct LaneWord {
    /// The last order obeyed, [`ACTIVE`](Self::ACTIVE) or [`PARKED`](Self::PARKED).
    obeyed: AtomicU32,
    /// Slots the lane holds for the host, one bit each.
    held: [AtomicU32; HELD_WORDS],
    /// Held slots whose completion came after all.
    late: [AtomicU32; HELD_WORDS],
    /// Logical unit of each slot in flight.
    luns: Box<[AtomicU8]>,
    /// How the queues stand after a reset, see [`Starts`].
    starts: [AtomicU32; 6],
}

impl LaneWord {
    /// Not a word an order can be: the sequence number never gets that high.
    const PARKED: u32 = u32::MAX;
    const ACTIVE: u32 = u32::MAX - 1;

    fn new(slots: usize) -> Self {
        Self {
            obeyed: AtomicU32::new(Self::PARKED),
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

    /// Host: how the queues stand, before it orders them to run.
    pub(crate) fn set_starts(&self, starts: Starts) {
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

    /// The lane has nothing in flight and may stay silent.
    pub(crate) fn park(&self) {
        self.obeyed.store(Self::PARKED, Ordering::SeqCst);
    }

    /// The lane is about to use its queue. Look at the order afterwards.
    pub(crate) fn unpark(&self) {
        self.obeyed.store(Self::ACTIVE, Ordering::SeqCst);
    }

    pub(crate) fn obey(&self, order: Order) {
        self.obeyed.store(order.0, Ordering::SeqCst);
    }
}

/// The block of atomics a host shares with its lanes.
#[derive(Debug)]
pub(crate) struct Shared {
    order: AtomicU32,
    /// Interrupt causes (bits of IS) that lanes saw and that are errors.
    causes: AtomicU32,
    /// A response said that the device has an exception event.
    event: AtomicU8,
    /// A lane has a command for a link that hibernates.
    wake: AtomicU8,
    /// Which logical unit [`Order::HOLD`] is about.
    hold_lun: AtomicU8,
    pub(crate) bounds: Bounds,
    pub(crate) lanes: Box<[LaneWord]>,
}

impl Shared {
    /// For `lanes` lanes of up to `slots` slots, of which the first `own` are the host's.
    pub(crate) fn new(lanes: usize, slots: usize, own: usize) -> Self {
        Self {
            order: AtomicU32::new(0),
            causes: AtomicU32::new(0),
            event: AtomicU8::new(0),
            wake: AtomicU8::new(0),
            hold_lun: AtomicU8::new(0),
            bounds: Bounds::new(lanes, own),
            lanes: (0..lanes).map(|_| LaneWord::new(slots)).collect(),
        }
    }

    /// The order as a lane compares it, once per call.
    #[inline]
    pub(crate) fn order(&self) -> Order {
        Order(self.order.load(Ordering::Relaxed) & !Order::ATTENTION)
    }

    /// Host: whether neither the order has changed nor a lane has called.
    #[inline]
    pub(crate) fn is_quiet(&self, obeyed: Order) -> bool {
        self.order.load(Ordering::Relaxed) == obeyed.0
    }

    /// The order, with everything written before it was published; pairs with `unpark`.
    pub(crate) fn order_now(&self) -> Order {
        Order(self.order.load(Ordering::SeqCst) & !Order::ATTENTION)
    }

    /// Host: publishes a new order.
    pub(crate) fn publish(&self, flags: u32) {
        let next = |word: u32| {
            let sequence = ((word >> 8) + 1) & 0x7F_FFFF;
            sequence << 8 | word & Order::ATTENTION | flags
        };
        // The closure always answers, so this cannot fail.
        let _ = self.order.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |w| Some(next(w)));
    }

    /// Host: holds every command of this logical unit.
    pub(crate) fn publish_hold(&self, lun: u8) {
        self.hold_lun.store(lun, Ordering::Relaxed);
        self.publish(Order::PAUSE | Order::HOLD);
    }

    pub(crate) fn hold_lun(&self) -> u8 {
        self.hold_lun.load(Ordering::Relaxed)
    }

    /// Host: whether every lane obeys the standing order.
    pub(crate) fn all_obey(&self) -> bool {
        let order = self.order_now().0;
        self.lanes.iter().all(|lane| {
            let word = lane.obeyed.load(Ordering::SeqCst);
            word == order || word == LaneWord::PARKED
        })
    }

    /// Host: whether every lane but its own has nothing in flight.
    pub(crate) fn others_parked(&self) -> bool {
        let parked = |lane: &LaneWord| lane.obeyed.load(Ordering::SeqCst) == LaneWord::PARKED;
        self.lanes.iter().skip(1).all(parked)
    }

    /// Lane: the host should look.
    pub(crate) fn call_host(&self) {
        self.order.fetch_or(Order::ATTENTION, Ordering::SeqCst);
    }

    /// Lane: error causes were seen in IS.
    pub(crate) fn report_causes(&self, causes: u32) {
        self.causes.fetch_or(causes, Ordering::SeqCst);
        self.call_host();
    }

    /// Lane: a response carried the event alert.
    pub(crate) fn report_event(&self) {
        if self.event.swap(1, Ordering::Relaxed) == 0 {
            self.call_host();
        }
    }

    /// Lane: a command waits for the link to wake.
    pub(crate) fn ask_to_wake(&self) {
        self.wake.store(1, Ordering::Relaxed);
        self.call_host();
    }

    /// Host: whether a command waits for the link.
    pub(crate) fn take_wake(&self) -> bool {
        self.wake.swap(0, Ordering::Relaxed) != 0
    }

    /// Host: whether a lane has called.
    pub(crate) fn is_called(&self) -> bool {
        self.order.load(Ordering::Relaxed) & Order::ATTENTION != 0
    }

    /// Host: takes the call, if there was one.
    pub(crate) fn take_call(&self) -> bool {
        let was = self.order.fetch_and(!Order::ATTENTION, Ordering::SeqCst);
        was & Order::ATTENTION != 0
    }

    /// Host: the error causes that wait for it.
    pub(crate) fn causes(&self) -> u32 {
        self.causes.load(Ordering::SeqCst)
    }

    pub(crate) fn take_causes(&self) -> u32 {
        self.causes.swap(0, Ordering::SeqCst)
    }

    pub(crate) fn event_pending(&self) -> bool {
        self.event.load(Ordering::Relaxed) != 0
    }

    /// Host: the event was dealt with; the next alert calls again.
    pub(crate) fn rearm_event(&self) {
        self.event.store(0, Ordering::Relaxed);
    }

    /// Host: whether any lane holds a slot.
    pub(crate) fn any_held(&self) -> bool {
        self.lanes.iter().any(|lane| lane.held().next().is_some())
    }
}

#[cfg(test)]
mod tests;
