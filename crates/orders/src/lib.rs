//! Communication between the owner of a controller and its lanes: a few atomics, no lock.
//!
//! Theory. Everything device-wide is decided by one owner, the host. Lanes may run on other threads
//! and must not be stopped by force. So the host publishes an *order*, one word that consists of a
//! sequence number and flags. Every lane compares that word with the last one it obeyed, before it
//! rings and before it looks: on a healthy I/O path that load is the whole cost of recovery. A lane
//! that sees a new order carries it out and acknowledges it by storing the word.
//!
//! A lane with nothing in flight need not be polled, so it cannot acknowledge. It *parks*
//! instead: parked counts as obedient. Leaving the park is a store of `ACTIVE` followed by a load
//! of the order; publishing an order is a store followed by loads of the lanes' words. Both are
//! sequentially consistent, so at least one side sees the other (Dekker's argument): either the
//! lane finds the order before it touches the queue, or the host finds the lane active and waits.
//!
//! A parked lane may sleep through a whole recovery. Meanwhile its queues have been recreated in
//! places it does not know. So the host marks them as *renewed* before it lets lanes run, and a
//! lane that comes back checks for that.
//!
//! In the other direction, a lane *calls* the host, or *reports* causes to it, which is also a
//! call.

#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The host's standing order, flags in the low byte, sequence number above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order(u32);

impl Order {
    /// Start nothing, ring nothing.
    pub const PAUSE: u32 = 1;
    /// The controller is disabled: finish everything.
    pub const STOP: u32 = 1 << 1;
    /// The controller has failed permanently.
    pub const GONE: u32 = 1 << 2;
    /// The first of four flags whose meaning is up to the driver.
    pub const OWN: u32 = 1 << 3;
    /// Something waits for the host: set by lanes, cleared by the host; not an order.
    const ATTENTION: u32 = 1 << 7;
    /// A value that no order can have: a lane that has obeyed it examines the next order closely.
    pub const NONE: Self = Self(u32::MAX);

    /// Whether the order has any of these flags.
    #[inline]
    pub fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    /// Whether lanes may start and ring.
    #[inline]
    pub fn runs(self) -> bool {
        self.0 & (Self::PAUSE | Self::STOP | Self::GONE) == 0
    }
}

/// The state shared by the host and one lane, in its own cache line: at depth 1 the lane stores
/// here for each command.
#[derive(Debug)]
#[repr(align(64))]
struct Word {
    /// The lane's state: the last order obeyed, [`ACTIVE`](Self::ACTIVE) or
    /// [`PARKED`](Self::PARKED).
    said: AtomicU32,
    /// The lane's queues were recreated, and it does not know yet.
    renewed: AtomicBool,
}

impl Word {
    /// Values that no order can have: the sequence number never gets that high.
    const PARKED: u32 = u32::MAX;
    const ACTIVE: u32 = u32::MAX - 1;

    fn parked() -> Self {
        Self { said: AtomicU32::new(Self::PARKED), renewed: AtomicBool::new(false) }
    }
}

/// The standing order, and the state of the lanes.
#[derive(Debug)]
pub struct Orders {
    order: AtomicU32,
    /// Causes seen by lanes that the host must deal with; the bits are defined by the driver.
    causes: AtomicU32,
    lanes: Box<[Word]>,
}

impl Orders {
    /// For this many lanes, all of them parked, under an order to run.
    pub fn new(lanes: usize) -> Self {
        Self {
            order: AtomicU32::new(0),
            causes: AtomicU32::new(0),
            lanes: (0..lanes).map(|_| Word::parked()).collect(),
        }
    }

    /// The order as a lane compares it, before it rings and before it looks.
    #[inline]
    pub fn order(&self) -> Order {
        Order(self.order.load(Ordering::Relaxed) & !Order::ATTENTION)
    }

    /// The order, with everything written before it was published; pairs with
    /// [`unpark`](Self::unpark).
    #[inline]
    pub fn order_now(&self) -> Order {
        Order(self.order.load(Ordering::SeqCst) & !Order::ATTENTION)
    }

    /// Lane: it has nothing in flight and may stay silent.
    #[inline]
    pub fn park(&self, lane: usize) {
        self.lanes[lane].said.store(Word::PARKED, Ordering::SeqCst);
    }

    /// Lane: it is about to use its queue. Look at the order afterwards.
    #[inline]
    pub fn unpark(&self, lane: usize) {
        self.lanes[lane].said.store(Word::ACTIVE, Ordering::SeqCst);
    }

    /// Lane: it has carried the order out.
    #[inline]
    pub fn obey(&self, lane: usize, order: Order) {
        self.lanes[lane].said.store(order.0, Ordering::SeqCst);
    }

    /// Lane: whether its queues were recreated and it has not yet confirmed that it
    /// [knows](Self::know). To be called under an order to run.
    pub fn is_renewed(&self, lane: usize) -> bool {
        self.lanes[lane].renewed.load(Ordering::SeqCst)
    }

    /// Lane: it knows where its queues are.
    pub fn know(&self, lane: usize) {
        self.lanes[lane].renewed.store(false, Ordering::SeqCst);
    }

    /// Host: the queues of this lane were recreated; to be called before the order to run.
    pub fn renew(&self, lane: usize) {
        self.lanes[lane].renewed.store(true, Ordering::SeqCst);
    }

    /// Lane: asks the host to look.
    pub fn call_host(&self) {
        self.order.fetch_or(Order::ATTENTION, Ordering::SeqCst);
    }

    /// Lane: reports something that the host must deal with.
    pub fn report(&self, causes: u32) {
        self.causes.fetch_or(causes, Ordering::SeqCst);
        self.call_host();
    }

    /// Host: publishes a new order.
    pub fn publish(&self, flags: u32) {
        let next = |word: u32| {
            let sequence = ((word >> 8) + 1) & 0x7F_FFFF;
            sequence << 8 | word & Order::ATTENTION | flags
        };
        // The closure always answers, so this cannot fail.
        let _ = self.order.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |w| Some(next(w)));
    }

    /// Host: whether the order is unchanged and no lane has called.
    #[inline]
    pub fn is_quiet(&self, obeyed: Order) -> bool {
        self.order.load(Ordering::Relaxed) == obeyed.0
    }

    /// Host: whether every lane obeys the standing order.
    pub fn all_obey(&self) -> bool {
        let order = self.order_now().0;
        self.lanes.iter().all(|lane| {
            let word = lane.said.load(Ordering::SeqCst);
            word == order || word == Word::PARKED
        })
    }

    /// Host: whether no lane except its own, the first, has commands in flight.
    pub fn others_parked(&self) -> bool {
        self.lanes.iter().skip(1).all(|lane| lane.said.load(Ordering::SeqCst) == Word::PARKED)
    }

    /// Host: whether a lane has called.
    #[inline]
    pub fn is_called(&self) -> bool {
        self.order.load(Ordering::Relaxed) & Order::ATTENTION != 0
    }

    /// Host: takes the call, if there is one.
    pub fn take_call(&self) -> bool {
        let was = self.order.fetch_and(!Order::ATTENTION, Ordering::SeqCst);
        was & Order::ATTENTION != 0
    }

    /// Host: the causes reported.
    #[inline]
    pub fn causes(&self) -> u32 {
        self.causes.load(Ordering::SeqCst)
    }

    /// Host: takes the causes reported.
    pub fn take_causes(&self) -> u32 {
        self.causes.swap(0, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_obeyed_by_acknowledging_or_by_being_parked() {
        let orders = Orders::new(2);
        orders.unpark(0);
        orders.publish(Order::PAUSE);
        assert!(!orders.all_obey());
        orders.obey(0, orders.order_now());
        assert!(orders.all_obey());
        orders.publish(0);
        assert!(!orders.all_obey(), "every order wants its own answer");
        orders.park(0);
        assert!(orders.all_obey());
    }

    #[test]
    fn a_lane_that_slept_through_a_recovery_learns_that_its_queues_are_new() {
        let orders = Orders::new(2);
        orders.publish(Order::PAUSE | Order::STOP);
        assert!(orders.all_obey(), "both are parked");
        orders.renew(1);
        orders.publish(0);
        orders.unpark(1);
        assert!(orders.order_now().runs());
        assert_eq!([0, 1].map(|lane| orders.is_renewed(lane)), [false, true]);
        orders.know(1);
        assert!(!orders.is_renewed(1));
    }

    #[test]
    fn a_call_for_the_host_changes_no_order() {
        let orders = Orders::new(1);
        orders.unpark(0);
        orders.publish(Order::PAUSE);
        orders.obey(0, orders.order_now());
        orders.call_host();
        assert!(orders.all_obey());
        assert!(orders.take_call());
        assert!(!orders.take_call());
    }
}
