//! The device management command that the first lane carries for the host: reserving a slot for it,
//! issuing it and giving the slot back.

use super::Lane;
use crate::slots::{Management, Phase};
use flysch_api::machine::{Instant, Machine};
use flysch_wire::ufs::utrd::Utrd;

impl<M: Machine> Lane<M> {
    /// Reserves a slot for a device management command and returns its task tag; `None` until one
    /// is free.
    pub(crate) fn take_management_slot(&mut self) -> Option<u8> {
        self.harvest();
        let slot = self.free.pop();
        self.wants_slot = slot.is_none();
        self.set_reserve();
        let slot = slot?;
        self.slots[slot].phase = Phase::Management;
        self.management = Some(Management { slot, ocs: None });
        Some(self.slots[slot].tag)
    }

    /// Issues the device management command in the reserved slot.
    pub(crate) fn issue_management(&mut self, entry: &Utrd, now: Instant) {
        if let Some(management) = self.management {
            if self.obeyed.runs() {
                self.ring_rest(now);
            }
            self.queue.post(management.slot, entry.to_words(), &self.machine);
            self.queue.ring(&self.machine);
        }
    }

    /// Task tag of the device management command, 0 if there is none.
    pub(crate) fn management_tag(&self) -> u8 {
        self.management.map_or(0, |management| self.slots[management.slot].tag)
    }

    /// Overall command status of the device management command, once it has ended.
    pub(crate) fn management_status(&mut self) -> Option<u8> {
        self.harvest();
        self.management.and_then(|management| management.ocs)
    }

    pub(crate) fn release_management(&mut self) {
        if let Some(management) = self.management.take() {
            self.queue.forget(management.slot);
            self.slots[management.slot].phase = Phase::Free;
            self.free.push(management.slot);
        }
    }

    /// Stops waiting for a management slot.
    pub(crate) fn forgo_management_slot(&mut self) {
        self.wants_slot = false;
        self.set_reserve();
    }
}
