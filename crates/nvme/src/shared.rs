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

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, Ordering};

/// The host's standing order, flags in the low byte, sequence number above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order(u32);

impl Order {
    /// Start nothing, ring nothing.
    pub(crate) const PAUSE: u32 = 1;
    /// The controller is disabled: finish everything.
    pub(crate) const STOP: u32 = 1 << 1;
    /// The controller is out of order for good.
    pub(crate) const GONE: u32 = 1 << 2;
    /// Something waits for the host: set by lanes, cleared by the host, no order.
    const ATTENTION: u32 = 1 << 7;
    /// No order there can be: a lane that obeys it looks at the next one closely.
    pub(crate) const NONE: Self = Self(u32::MAX);

    pub(crate) fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    /// Whether lanes may start and ring.
    pub(crate) fn runs(self) -> bool {
        self.0 & (Self::PAUSE | Self::STOP | Self::GONE) == 0
    }
}

/// What one lane tells the host.
#[derive(Debug)]
pub(crate) struct LaneWord {
    /// The last order obeyed, [`ACTIVE`](Self::ACTIVE) or [`PARKED`](Self::PARKED).
    obeyed: AtomicU32,
    /// For each slot the command that is overdue and not ended yet: [`VICTIM`] and its id.
    victims: Box<[AtomicU32]>,
}

/// A command is overdue.
const VICTIM: u32 = 1 << 31;
/// Its abort was sent.
const ASKED: u32 = 1 << 30;

impl LaneWord {
    /// Not words an order can be: the sequence number never gets that high.
    const PARKED: u32 = u32::MAX;
    const ACTIVE: u32 = u32::MAX - 1;

    fn new(slots: usize) -> Self {
        let victims = (0..slots).map(|_| AtomicU32::new(0)).collect();
        Self { obeyed: AtomicU32::new(Self::PARKED), victims }
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

    /// Lane: this command shall be aborted.
    pub(crate) fn add_victim(&self, slot: usize, cid: u16) {
        self.victims[slot].store(VICTIM | u32::from(cid), Ordering::Release);
    }

    /// Lane: it has ended.
    pub(crate) fn remove_victim(&self, slot: usize) {
        self.victims[slot].store(0, Ordering::Release);
    }

    /// Host: a command to be aborted whose abort was not sent yet; now it counts as sent.
    fn ask_victim(&self) -> Option<u16> {
        self.victims.iter().find_map(|victim| {
            let word = victim.load(Ordering::Acquire);
            let fresh = word & VICTIM != 0 && word & ASKED == 0;
            let (order, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            // If it ended meanwhile there is nothing to abort.
            let asked =
                fresh && victim.compare_exchange(word, word | ASKED, order, failure).is_ok();
            asked.then_some(word as u16)
        })
    }

    fn has_victims(&self) -> bool {
        self.victims.iter().any(|victim| victim.load(Ordering::Acquire) != 0)
    }
}

/// Why the host should look: bits of [`Shared::causes`].
pub(crate) mod cause {
    /// CSTS.CFS, or the controller is not ready any more.
    pub(crate) const FATAL: u32 = 1;
    /// Registers read as ones.
    pub(crate) const REMOVED: u32 = 2;
    /// A lane was dropped with commands in flight, or an admin command was not answered.
    pub(crate) const LOST: u32 = 4;
}

/// The block of atomics a host shares with its lanes.
#[derive(Debug)]
pub(crate) struct Shared {
    order: AtomicU32,
    causes: AtomicU32,
    /// Longest transfer, bytes: what bring-up learnt, in force with the next order.
    transfer_max: AtomicU32,
    /// 1 where data may be a scatter gather list.
    sgls: AtomicU32,
    /// CRDT1 to CRDT3, milliseconds.
    retry_delays: [AtomicU32; 3],
    pub(crate) lanes: Box<[LaneWord]>,
}

impl Shared {
    pub(crate) fn new(lanes: usize, slots: usize, transfer_max: u32) -> Self {
        Self {
            order: AtomicU32::new(0),
            causes: AtomicU32::new(0),
            transfer_max: AtomicU32::new(transfer_max),
            sgls: AtomicU32::new(0),
            retry_delays: [const { AtomicU32::new(0) }; 3],
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

    /// Something is wrong with the controller.
    pub(crate) fn report(&self, causes: u32) {
        self.causes.fetch_or(causes, Ordering::SeqCst);
        self.call_host();
    }

    /// Host: whether a lane has called.
    pub(crate) fn is_called(&self) -> bool {
        self.order.load(Ordering::Relaxed) & Order::ATTENTION != 0
    }

    /// Host: takes the call.
    pub(crate) fn take_call(&self) {
        self.order.fetch_and(!Order::ATTENTION, Ordering::SeqCst);
    }

    /// Host: what is wrong.
    pub(crate) fn causes(&self) -> u32 {
        self.causes.load(Ordering::SeqCst)
    }

    pub(crate) fn take_causes(&self) -> u32 {
        self.causes.swap(0, Ordering::SeqCst)
    }

    /// Host: an overdue command whose abort was not sent yet: its lane and its id.
    pub(crate) fn ask_victim(&self) -> Option<(usize, u16)> {
        let ask = |(lane, word): (usize, &LaneWord)| word.ask_victim().map(|cid| (lane, cid));
        self.lanes.iter().enumerate().find_map(ask)
    }

    /// Host: whether there are overdue commands.
    pub(crate) fn has_victims(&self) -> bool {
        self.lanes.iter().any(LaneWord::has_victims)
    }

    /// Host: what data of a command may be, in force with the next order.
    pub(crate) fn set_data(&self, bytes: u32, sgls: bool) {
        self.transfer_max.store(bytes, Ordering::Relaxed);
        self.sgls.store(sgls.into(), Ordering::Relaxed);
    }

    pub(crate) fn has_sgls(&self) -> bool {
        self.sgls.load(Ordering::Relaxed) != 0
    }

    /// Host: how long to wait before a command is tried again, by CRD.
    pub(crate) fn set_retry_delays(&self, units_of_100_ms: [u16; 3]) {
        for (delay, units) in self.retry_delays.iter().zip(units_of_100_ms) {
            delay.store(u32::from(units) * 100, Ordering::Relaxed);
        }
    }

    pub(crate) fn retry_delay_ms(&self, crd: u8) -> u32 {
        let delay = usize::from(crd).checked_sub(1).and_then(|at| self.retry_delays.get(at));
        delay.map_or(0, |delay| delay.load(Ordering::Relaxed))
    }

    pub(crate) fn transfer_max(&self) -> u32 {
        self.transfer_max.load(Ordering::Relaxed)
    }
}
