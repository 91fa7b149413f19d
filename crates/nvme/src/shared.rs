//! State shared by the host and its lanes: [`Orders`], overdue commands, and what bring-up learnt.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, Ordering};
use flysch_orders::Orders;

/// What one lane reports to the host.
#[derive(Debug)]
pub(crate) struct LaneWord {
    /// For each slot the overdue command that has not ended yet: [`VICTIM`] and its id.
    victims: Box<[AtomicU32]>,
}

/// The command is overdue.
const VICTIM: u32 = 1 << 31;
/// Its abort was sent.
const ASKED: u32 = 1 << 30;

impl LaneWord {
    fn new(slots: usize) -> Self {
        Self { victims: (0..slots).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Lane: this command must be aborted.
    pub(crate) fn add_victim(&self, slot: usize, cid: u16) {
        self.victims[slot].store(VICTIM | u32::from(cid), Ordering::Release);
    }

    /// Lane: the command has ended.
    pub(crate) fn remove_victim(&self, slot: usize) {
        self.victims[slot].store(0, Ordering::Release);
    }

    /// Host: takes a command whose abort has not been sent yet; from now on it counts as sent.
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

/// Why the host should check: bits of [`Orders::causes`].
pub(crate) mod cause {
    /// CSTS.CFS, or the controller is no longer ready.
    pub(crate) const FATAL: u32 = 1;
    /// Registers read as ones.
    pub(crate) const REMOVED: u32 = 2;
    /// A lane was dropped with commands in flight, or an admin command was not answered.
    pub(crate) const LOST: u32 = 4;
}

/// The block of atomics a host shares with its lanes.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) orders: Orders,
    /// Longest transfer, bytes, from bring-up; in force with the next order.
    transfer_max: AtomicU32,
    /// 1 if data may be a scatter gather list.
    sgls: AtomicU32,
    /// 1 if doorbells are also in memory.
    shadows: AtomicU32,
    /// Position of the lanes' submission queues in the register window, one after the other; 0 if
    /// they are in the driver's memory.
    controller_memory: AtomicU32,
    /// CRDT1 to CRDT3, milliseconds.
    retry_delays: [AtomicU32; 3],
    pub(crate) lanes: Box<[LaneWord]>,
}

impl Shared {
    pub(crate) fn new(lanes: usize, slots: usize, transfer_max: u32) -> Self {
        Self {
            orders: Orders::new(lanes),
            transfer_max: AtomicU32::new(transfer_max),
            sgls: AtomicU32::new(0),
            shadows: AtomicU32::new(0),
            controller_memory: AtomicU32::new(0),
            retry_delays: [const { AtomicU32::new(0) }; 3],
            lanes: (0..lanes).map(|_| LaneWord::new(slots)).collect(),
        }
    }

    /// Host: an overdue command whose abort has not been sent yet: its lane and its id.
    pub(crate) fn ask_victim(&self) -> Option<(usize, u16)> {
        let ask = |(lane, word): (usize, &LaneWord)| word.ask_victim().map(|cid| (lane, cid));
        self.lanes.iter().enumerate().find_map(ask)
    }

    /// Host: whether there are overdue commands.
    pub(crate) fn has_victims(&self) -> bool {
        self.lanes.iter().any(LaneWord::has_victims)
    }

    /// Host: sets the limits of command data, in force with the next order.
    pub(crate) fn set_data(&self, bytes: u32, sgls: bool) {
        self.transfer_max.store(bytes, Ordering::Relaxed);
        self.sgls.store(sgls.into(), Ordering::Relaxed);
    }

    pub(crate) fn has_sgls(&self) -> bool {
        self.sgls.load(Ordering::Relaxed) != 0
    }

    /// Host: sets whether doorbells are in memory, in force with the next order.
    pub(crate) fn set_shadows(&self, on: bool) {
        self.shadows.store(on.into(), Ordering::Relaxed);
    }

    pub(crate) fn has_shadows(&self) -> bool {
        self.shadows.load(Ordering::Relaxed) != 0
    }

    /// Host: sets where in the register window the submission queues begin, in force with the next
    /// order.
    pub(crate) fn set_controller_memory(&self, at: Option<u32>) {
        self.controller_memory.store(at.unwrap_or(0), Ordering::Relaxed);
    }

    pub(crate) fn controller_memory(&self) -> Option<u32> {
        Some(self.controller_memory.load(Ordering::Relaxed)).filter(|at| *at != 0)
    }

    /// Host: sets how long to wait before a command is retried, by CRD.
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
