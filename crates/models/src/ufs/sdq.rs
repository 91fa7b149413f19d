//! The single doorbell: transfer request list and task management request list.

use flysch_wire::ufs::registers::Interrupts;
use flysch_wire::ufs::upiu::{TaskRequest, TaskResponse};
use flysch_wire::ufs::utmrd::{self, TaskOcs, UtmrdHeader};
use flysch_wire::ufs::utrd::{self, Ocs, Utrd, UtrdStatus};

use super::agenda::Event;
use super::controller::Controller;
use super::exchange::Exchange;
use super::registers::Registers;
use super::task::State;
use crate::faults::Kind;

/// Duration of a task management function in the device, nanoseconds.
const TASK_MANAGEMENT_NS: u64 = 20_000;

impl Registers {
    /// UTRLDBR is written.
    #[inline]
    pub(super) fn ring(&mut self, value: u32) {
        let slots = ((1_u64 << self.slots) - 1) as u32;
        let new = value & !self.utrldbr & slots;
        if self.enabled && !self.mode.qt() {
            self.utrldbr |= new;
            self.unfetched |= new;
        }
    }

    /// The next slot that was rung and not yet fetched.
    #[inline]
    pub(super) fn take_rung(&mut self) -> Option<u8> {
        let slot = (self.unfetched != 0).then(|| self.unfetched.trailing_zeros())?;
        self.unfetched &= self.unfetched - 1;
        Some(slot as u8)
    }
}

/// A request of the task management list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Management {
    slot: u8,
    address: u64,
    interrupt: bool,
    /// The request; `None` if it is invalid.
    pub(super) request: Option<TaskRequest>,
}

fn at(address: u64, offset: usize) -> u64 {
    address.wrapping_add(offset as u64)
}

impl Controller {
    /// Whether slots may be fetched now.
    #[inline]
    pub(super) fn may_fetch_slots(&self, x: &Exchange) -> bool {
        self.registers.utrlrsr && self.may_fetch(x)
    }

    /// Fetches the descriptor of `slot` into a task: returns its index, and how it ends if it does
    /// not reach the device. `None` if there is no such memory.
    #[inline]
    pub(super) fn fetch_slot(
        &mut self,
        slot: u8,
        x: &mut Exchange,
    ) -> Option<(u16, Result<(), Ocs>)> {
        let address = self.registers.utrlba + u64::from(slot) * utrd::LENGTH as u64;
        let mut bytes = [0; utrd::LENGTH];
        if x.memory.read(address, &mut bytes).is_err() {
            self.registers.bus_error();
            return None;
        }
        let index = x.tasks.take_slot(slot);
        let task = x.tasks.get_mut(index);
        task.queue = 0;
        task.slot = slot;
        task.utrd = address;
        Some((index, self.take_descriptor(index, &Utrd::parse(&bytes), x)))
    }

    /// Writes how the task in a slot ended into its descriptor; the device no longer holds it.
    #[inline]
    pub(super) fn end_slot(&mut self, index: u16, ocs: Ocs, x: &mut Exchange) {
        let task = x.tasks.get(index);
        let (slot, utrd) = (task.slot, task.utrd);
        let done = task.done.unwrap_or(x.agenda.now());
        self.write_status(utrd, ocs, x);
        x.tasks.release(index, false);
        self.done[usize::from(slot)].set(done);
    }

    /// Releases a slot to the host; `interrupt` is the descriptor's setting.
    #[inline]
    pub(super) fn give_slot_back(
        &mut self,
        slot: u8,
        (tag, interrupt): (u8, bool),
        x: &mut Exchange,
    ) {
        let lost = x.faults.is_active() && x.fires(Kind::LostInterrupt, tag.into());
        let r = &mut self.registers;
        r.told.silent += u64::from(!r.ie.utrcs());
        r.utrldbr &= !(1 << slot);
        r.utrlcnr |= 1 << slot;
        if lost {
            return;
        }
        if interrupt {
            r.raise(Interrupts::new().with_utrcs(true));
        } else {
            r.aggregate(&mut x.agenda);
        }
    }

    /// Writes the overall command status into the UTRD at a device address.
    fn write_status(&mut self, utrd: u64, ocs: Ocs, x: &Exchange) {
        let status = UtrdStatus::new().with_ocs(ocs).into_bits().to_le();
        if x.memory.store32(utrd + utrd::STATUS_OFFSET as u64, status).is_err() {
            self.registers.bus_error();
        }
    }

    /// UTRLCLR: empties `slot` without an interrupt. Returns the task that was in it.
    pub(super) fn clear_slot(&mut self, slot: u8, x: &mut Exchange) -> Option<u16> {
        let bit = 1 << slot;
        let index = u16::from(slot);
        let state = x.tasks.get(index).state;
        if self.registers.utrldbr & bit == 0 || state == State::Stuck {
            return None;
        }
        self.registers.unfetched &= !bit;
        self.registers.utrldbr &= !bit;
        if state == State::Free {
            return None;
        }
        let utrd = x.tasks.get(index).utrd;
        self.write_status(utrd, Ocs::Aborted, x);
        Some(index)
    }

    /// UTMRLDBR is written.
    pub(super) fn ring_task_management(&mut self, value: u32, x: &mut Exchange) {
        let slots = (1 << self.registers.task_slots) - 1;
        let new = value & !self.registers.utmrldbr & slots;
        if !self.registers.utmrlrsr {
            return;
        }
        self.registers.utmrldbr |= new;
        for slot in (0..8).filter(|slot| new >> slot & 1 != 0) {
            let event = Event::TaskManagement { epoch: x.agenda.epoch(), slot };
            x.agenda.after(TASK_MANAGEMENT_NS, event);
        }
    }

    /// Fetches the task management request in `slot`, unless it has been cleared.
    pub(super) fn fetch_management(&mut self, slot: u8, x: &Exchange) -> Option<Management> {
        if self.registers.utmrldbr >> slot & 1 == 0 {
            return None;
        }
        let address = self.registers.utmrlba + u64::from(slot) * utmrd::LENGTH as u64;
        let (mut header, mut request) = ([0; 4], [0; 32]);
        let read = x
            .memory
            .read(at(address, utmrd::HEADER_OFFSET), &mut header)
            .and_then(|()| x.memory.read(at(address, utmrd::REQUEST_OFFSET), &mut request));
        if read.is_err() {
            self.registers.bus_error();
            return None;
        }
        let interrupt = UtmrdHeader::from_bits(u32::from_le_bytes(header)).i();
        let request = TaskRequest::parse(&request).ok();
        Some(Management { slot, address, interrupt, request })
    }

    /// Ends a task management request, with the device's answer if it reached the device.
    pub(super) fn end_management(
        &mut self,
        ended: &Management,
        (ocs, response): (TaskOcs, Option<TaskResponse>),
        x: &Exchange,
    ) {
        let mut written = Ok(());
        if let Some(response) = response {
            let mut bytes = [0; 32];
            response.emit(&mut bytes);
            written = x.memory.write(at(ended.address, utmrd::RESPONSE_OFFSET), &bytes);
        }
        let status = u32::from(ocs.into_bits()).to_le();
        let stored = x.memory.store32(at(ended.address, utmrd::STATUS_OFFSET), status);
        if written.and(stored).is_err() {
            return self.registers.bus_error();
        }
        self.registers.utmrldbr &= !(1 << ended.slot);
        if ended.interrupt {
            self.registers.raise(Interrupts::new().with_utmrcs(true));
        }
    }
}
