//! The single doorbell: transfer request list and task management request list.

use core::sync::atomic::Ordering;

use flysch_wire::ufs::registers::Interrupts;
use flysch_wire::ufs::upiu::{
    EHS_LENGTH_OFFSET, ServiceResponse, TaskFunction, TaskRequest, TaskResponse,
};
use flysch_wire::ufs::utmrd::{self, TaskOcs, UtmrdHeader};
use flysch_wire::ufs::utrd::{self, CommandType, Ocs, UCD_ALIGNMENT, Utrd, UtrdStatus};

use super::task::{State, Task};
use super::{Event, Ufs};
use crate::ufs::link::LinkState;

/// How long the device takes for a task management function, nanoseconds.
const TASK_MANAGEMENT_NS: u64 = 20_000;

impl Ufs {
    /// UTRLDBR is written.
    #[inline]
    pub(super) fn ring(&mut self, value: u32) {
        let r = &mut self.registers;
        let slots = ((1_u64 << r.slots) - 1) as u32;
        let new = value & !r.utrldbr & slots;
        if !r.enabled || r.mode.qt() {
            return;
        }
        r.utrldbr |= new;
        r.unfetched |= new;
        self.fetch_slots();
    }

    /// Fetches what was rung, as far as list and link let it.
    pub(super) fn fetch_slots(&mut self) {
        if !self.registers.utrlrsr || !self.may_fetch() {
            return;
        }
        while self.registers.unfetched != 0 {
            let slot = self.registers.unfetched.trailing_zeros();
            self.registers.unfetched &= self.registers.unfetched - 1;
            self.fetch_slot(slot as u8);
        }
    }

    /// Whether the controller can talk to the device. A hibernated link holds commands back; a
    /// link that is down fails them.
    pub(super) fn may_fetch(&self) -> bool {
        self.link.state != LinkState::Hibernated && !self.registers.hcs.hei()
    }

    fn fetch_slot(&mut self, slot: u8) {
        let address = self.registers.utrlba + u64::from(slot) * utrd::LENGTH as u64;
        let mut bytes = [0; utrd::LENGTH];
        if self.memory.read(address, &mut bytes).is_err() {
            return self.bus_error();
        }
        let index = self.tasks.take_slot(slot);
        let task = self.tasks.get_mut(index);
        task.queue = 0;
        task.slot = slot;
        task.utrd = address;
        self.fetched(index, &Utrd::parse(&bytes));
    }

    /// A descriptor was fetched: checks it, fetches the UPIU, hands it to the device.
    pub(super) fn fetched(&mut self, index: u16, utrd: &Utrd) {
        let task = self.tasks.get_mut(index);
        task.state = State::Device;
        task.take_descriptor(utrd);
        // In multi-circular queue mode the low bits of the address carry nothing.
        let mask = if self.registers.mode.qt() { UCD_ALIGNMENT - 1 } else { 0 };
        task.ucd = utrd.ucd_base & !mask;
        let ucd = task.ucd;
        let wrong =
            utrd.header.ct() != CommandType::UfsStorage || !ucd.is_multiple_of(UCD_ALIGNMENT);
        let found = self.memory.read(ucd, &mut task.request);
        // Extra header segments are as long as both headers say.
        let wrong = wrong || utrd.header.ehsl() != task.request[EHS_LENGTH_OFFSET];
        let ocs = match found {
            Ok(()) if !wrong && !utrd.header.ce() => None,
            Ok(()) if !wrong => self.crypto.refusal(utrd.header.cci()),
            _ => Some(Ocs::InvalidCommandTableAttributes),
        };
        match ocs {
            None if self.link.state == LinkState::Up => self.receive_upiu(index),
            None => self.finish(index, Ocs::PeerCommunicationFailure),
            Some(ocs) => self.finish(index, ocs),
        }
    }

    /// The controller gives a task back to the host.
    #[inline]
    pub(super) fn finish(&mut self, index: u16, ocs: Ocs) {
        if self.sticks(index) {
            return;
        }
        if self.registers.mode.qt() {
            return self.post(index, ocs);
        }
        let task = self.tasks.get(index);
        let tag = task.tag;
        let (slot, interrupt, utrd) = (task.slot, task.interrupt, task.utrd);
        let done = task.done.unwrap_or(self.now.nanos());
        self.write_status(utrd, ocs);
        self.tasks.release(index, false);
        self.done[usize::from(slot)].store(done, Ordering::Relaxed);
        self.start_held_back();
        let lost = self.loses_interrupt(tag);
        let r = &mut self.registers;
        self.silent += u64::from(!r.ie.utrcs());
        r.utrldbr &= !(1 << slot);
        r.utrlcnr |= 1 << slot;
        if lost {
            return;
        }
        if interrupt {
            r.raise(Interrupts::new().with_utrcs(true));
        } else {
            self.aggregate();
        }
    }

    /// Writes the overall command status into the UTRD at a device address.
    fn write_status(&mut self, utrd: u64, ocs: Ocs) {
        let status = UtrdStatus::new().with_ocs(ocs).into_bits().to_le();
        if self.memory.store32(utrd + utrd::STATUS_OFFSET as u64, status).is_err() {
            self.bus_error();
        }
    }

    /// UTRLRSR is written.
    pub(super) fn run_transfer_list(&mut self, run: bool) {
        self.registers.utrlrsr = run;
        self.fetch_slots();
    }

    /// UTRLCLR is written: the slots in `mask` are emptied without an interrupt.
    pub(super) fn clear_slots(&mut self, mask: u32) {
        if self.registers.mode.qt() {
            return;
        }
        for slot in (0..32_u8).filter(|slot| mask >> slot & 1 != 0) {
            let bit = 1 << slot;
            let index = u16::from(slot);
            let stuck = self.tasks.get(index).state == State::Stuck;
            if self.registers.utrldbr & bit == 0 || stuck {
                continue;
            }
            if self.tasks.get(index).state != State::Free {
                let utrd = self.tasks.get(index).utrd;
                self.write_status(utrd, Ocs::Aborted);
                self.device.forget(self.tasks.name(index));
                self.tasks.release(index, false);
            }
            self.registers.unfetched &= !bit;
            self.registers.utrldbr &= !bit;
        }
        self.start_held_back();
    }

    /// UTMRLDBR is written.
    pub(super) fn ring_task_management(&mut self, value: u32) {
        let slots = (1 << self.registers.task_slots) - 1;
        let new = value & !self.registers.utmrldbr & slots;
        if !self.registers.utmrlrsr {
            return;
        }
        self.registers.utmrldbr |= new;
        for slot in (0..8).filter(|slot| new >> slot & 1 != 0) {
            let event = Event::TaskManagement { epoch: self.epoch, slot };
            self.after(TASK_MANAGEMENT_NS, event);
        }
    }

    /// UTMRLCLR is written.
    pub(super) fn clear_task_management(&mut self, mask: u32) {
        self.registers.utmrldbr &= !mask;
    }

    /// The device carries out the task management request in `slot`.
    pub(super) fn manage_tasks(&mut self, slot: u8) {
        if self.registers.utmrldbr >> slot & 1 == 0 {
            return;
        }
        let address = self.registers.utmrlba + u64::from(slot) * utmrd::LENGTH as u64;
        let at = |offset: usize| address.wrapping_add(offset as u64);
        let (mut header, mut request) = ([0; 4], [0; 32]);
        let read = self
            .memory
            .read(at(utmrd::HEADER_OFFSET), &mut header)
            .and_then(|()| self.memory.read(at(utmrd::REQUEST_OFFSET), &mut request));
        if read.is_err() {
            return self.bus_error();
        }
        let interrupt = UtmrdHeader::from_bits(u32::from_le_bytes(header)).i();
        let mut written = Ok(());
        let ocs = match TaskRequest::parse(&request) {
            _ if self.link.state != LinkState::Up => TaskOcs::PeerCommunicationFailure,
            Err(_) => TaskOcs::InvalidAttributes,
            Ok(request) => {
                let response = self.manage(&request);
                let unit = TaskResponse::new(request.header.task_tag, request.lun, response);
                let mut bytes = [0; 32];
                unit.emit(&mut bytes);
                written = self.memory.write(at(utmrd::RESPONSE_OFFSET), &bytes);
                TaskOcs::Success
            }
        };
        let status = u32::from(ocs.into_bits()).to_le();
        let stored = self.memory.store32(at(utmrd::STATUS_OFFSET), status);
        if written.and(stored).is_err() {
            return self.bus_error();
        }
        self.registers.utmrldbr &= !(1 << slot);
        if interrupt {
            self.registers.raise(Interrupts::new().with_utmrcs(true));
        }
    }

    /// Task management (SAM-5 7, JESD220 10.9.8) on the commands in the device.
    fn manage(&mut self, request: &TaskRequest) -> ServiceResponse {
        let (lun, tag, iid) = (request.lun, request.task_tag, request.iid);
        if !self.device.has_lun(lun) {
            return ServiceResponse::IncorrectLogicalUnitNumber;
        }
        let one = move |task: &Task| task.lun == lun && task.tag == tag && task.iid == iid;
        let mine = move |task: &Task| task.lun == lun && task.iid == iid;
        match request.function() {
            TaskFunction::AbortTask => self.drop_tasks(one),
            TaskFunction::AbortTaskSet => self.drop_tasks(mine),
            TaskFunction::ClearTaskSet => self.drop_tasks(move |task| task.lun == lun),
            TaskFunction::LogicalUnitReset => {
                self.drop_tasks(move |task| task.lun == lun);
                self.device.reset_unit(lun, self.now.nanos());
            }
            TaskFunction::QueryTask => return self.query_tasks(one),
            TaskFunction::QueryTaskSet => return self.query_tasks(mine),
            TaskFunction::Unknown(_) => return ServiceResponse::FunctionNotSupported,
        }
        ServiceResponse::FunctionComplete
    }

    fn query_tasks(&self, is_meant: impl Fn(&Task) -> bool) -> ServiceResponse {
        let found = self.tasks.iter().any(|(_, task)| task.in_device() && is_meant(task));
        if found { ServiceResponse::FunctionSucceeded } else { ServiceResponse::FunctionComplete }
    }

    /// Takes commands away from the device.
    pub(super) fn drop_tasks(&mut self, is_meant: impl FnMut(&Task) -> bool) {
        self.tasks.drop_from_device(is_meant);
        self.device.forget_stale(&self.tasks);
        self.start_held_back();
    }

    /// The controller could not reach memory it was pointed at: fatal.
    pub(super) fn bus_error(&mut self) {
        self.registers.hcs.set_hei(true);
        self.registers.raise(Interrupts::new().with_sbfes(true));
    }
}
