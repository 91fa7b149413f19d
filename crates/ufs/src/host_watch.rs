//! What a lane does if nobody polls its host.
//!
//! Only the host can remove an overdue command from the device. A host that is never polled never
//! will: then ending everything is better than waiting forever.

use crate::options::Timeouts;
use crate::shared::Shared;
use crate::time::{MS, US};
use flysch_api::machine::{Instant, Machine};
use flysch_orders::Order;
use flysch_wire::ufs::registers::{HCE, IE};

/// A lane's watch over its host while commands are overdue.
#[derive(Debug)]
pub(crate) struct HostWatch {
    /// The host's pulse, and since when it has had this value.
    pulse: Option<(u32, Instant)>,
    /// How long it may stay the same, and how long a controller takes to switch off, nanoseconds.
    silence_nanos: u64,
    disable_nanos: u64,
}

impl HostWatch {
    pub(crate) fn new(timeouts: &Timeouts) -> Self {
        Self {
            pulse: None,
            silence_nanos: u64::from(timeouts.host_ms) * MS,
            disable_nanos: u64::from(timeouts.enable_ms) * MS,
        }
    }

    /// Stops the controller and orders the end of every command of every lane, if this lane `waits`
    /// for a host that has been silent for too long. Returns whether it did.
    pub(crate) fn ends(
        &mut self,
        waits: bool,
        machine: &impl Machine,
        shared: &Shared,
        now: Instant,
    ) -> bool {
        let ends = self.gives_up(waits, shared, now);
        if ends {
            switch_off(machine, self.disable_nanos);
            shared.orders.publish(Order::PAUSE | Order::STOP | Order::GONE);
        }
        ends
    }

    fn gives_up(&mut self, waits: bool, shared: &Shared, now: Instant) -> bool {
        let pulse = shared.pulse();
        match self.pulse.filter(|&(last, _)| waits && last == pulse) {
            Some((_, since)) if now >= since.after_nanos(self.silence_nanos) => {
                self.pulse = None;
                true
            }
            Some(_) => false,
            None => {
                self.pulse = waits.then_some((pulse, now));
                false
            }
        }
    }
}

/// Stops the controller's DMA at once, whatever is in progress, and waits for it up to this time.
pub(crate) fn switch_off(machine: &impl Machine, nanos: u64) {
    machine.write32(IE, 0);
    machine.write32(HCE, 0);
    let end = machine.now().after_nanos(nanos);
    // All ones: the controller is gone.
    while !matches!(machine.read32(HCE), 0 | u32::MAX) && machine.now() < end {
        machine.wait(Some(machine.now().after_nanos(10 * US)));
    }
}
