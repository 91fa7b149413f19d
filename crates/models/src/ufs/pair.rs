//! Controller and device together: actions of one that involve the other.
//!
//! Each of them does its own work and returns the results; here they are passed to the other. A
//! command goes from the controller to the device when it has been fetched, and comes back with its
//! overall command status. Both return values instead of calling each other, so whatever happens
//! inside the device has happened before the controller fetches the next command.

use flysch_wire::ufs::registers::{self as reg, Ahit, Hce};
use flysch_wire::ufs::upiu::{ServiceResponse, TaskFunction, TaskRequest, TaskResponse};
use flysch_wire::ufs::utmrd::TaskOcs;
use flysch_wire::ufs::utrd::Ocs;

use super::agenda::Event;
use super::controller::Controller;
use super::device::Device;
use super::exchange::Exchange;
use super::link::LinkState;
use super::mcq::{Entry, Rung};
use super::parameters::Reset;
use super::task::{State, Task, TaskRef};
use super::{crypto, mcq};
use crate::faults::Kind;

/// How long HCE takes to come up, nanoseconds.
const ENABLE_NS: u64 = 50_000;
/// How long HCE reads one before it falls back, and how long it takes from then on.
const GLITCH_NS: u64 = 300_000;

/// A controller, a device and what is between them.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) controller: Controller,
    pub(super) device: Device,
    pub(super) exchange: Exchange,
}

impl Pair {
    /// Reads a register.
    #[inline]
    pub(super) fn read(&mut self, offset: u32) -> u32 {
        self.controller.read(offset, &self.exchange)
    }

    /// Writes a register.
    #[inline]
    pub(super) fn write(&mut self, offset: u32, value: u32) {
        let registers = &mut self.controller.registers;
        match offset {
            reg::UTRLDBR => {
                registers.ring(value);
                return self.fetch_slots();
            }
            reg::IS => return registers.acknowledge(value),
            reg::UTRLCNR => {
                registers.utrlcnr &= !value;
                return;
            }
            // Hosts have been seen to write keys back before they set HCE.
            crypto::REGISTER.. => return self.exchange.crypto.write(offset, value),
            mcq::BANK.. if registers.enabled => {
                let (controller, x) = (&mut self.controller, &self.exchange);
                let (queues, mode) = (&mut controller.queues, controller.registers.mode);
                let has_commands = |queue| mode.qt() && x.tasks.has_of_queue(queue);
                let rung = queues.write(offset, value, has_commands);
                return self.act(rung);
            }
            reg::HCE => return self.write_enable(value),
            _ => {}
        }
        // Until HCE reads one, only HCE can be written (JESD223 5.3.4).
        if self.controller.registers.enabled {
            self.write_core(offset, value);
        }
    }

    fn write_core(&mut self, offset: u32, value: u32) {
        let registers = &mut self.controller.registers;
        match offset {
            reg::AHIT => self.set_auto_hibern8(Ahit::from_bits(value)),
            reg::UTRLCLR => self.clear_slots(!value),
            reg::UTRLRSR => {
                registers.utrlrsr = value & 1 != 0;
                self.fetch_slots();
            }
            reg::UTMRLDBR => self.controller.ring_task_management(value, &mut self.exchange),
            reg::UICCMD => self.controller.start_uic(value, &mut self.exchange),
            _ => registers.write(offset, value, self.exchange.tasks.held > 0),
        }
    }

    fn write_enable(&mut self, value: u32) {
        let value = Hce::from_bits(value);
        let (enable, has_crypto) = (value.hce(), self.controller.registers.cap.cs());
        self.exchange.crypto.enabled = enable && value.cge() && has_crypto;
        if enable == self.controller.registers.enable {
            return;
        }
        if !enable {
            self.exchange.crypto.clear();
        }
        self.reset_controller();
        self.controller.registers.enable = enable;
        if enable {
            let x = &mut self.exchange;
            x.agenda.after(ENABLE_NS, Event::Enabled { epoch: x.agenda.epoch() });
            if x.faults.is_active() && x.fires(Kind::EnableGlitch, 0) {
                x.agenda.after(GLITCH_NS, Event::Glitch { epoch: x.agenda.epoch() });
            }
        }
    }

    /// HCE falls back to zero: what was written meanwhile is lost.
    fn glitch(&mut self) {
        self.exchange.crypto.clear();
        self.reset_controller();
        self.controller.registers.enable = true;
        let agenda = &mut self.exchange.agenda;
        agenda.after(GLITCH_NS, Event::Enabled { epoch: agenda.epoch() });
    }

    /// Everything that the controller holds is gone; the device notices when the link starts up
    /// again.
    pub(super) fn reset_controller(&mut self) {
        self.exchange.agenda.begin_life();
        self.controller.reset();
        self.exchange.tasks.clear();
        self.device.forget_waiting();
        self.exchange.link.reset();
        self.device.backend.media.set_link_rate(self.exchange.link.rate);
        self.device.backend.media.set_auto_hibern8((0, 0), 0);
    }

    /// The device starts afresh.
    pub(super) fn reset_device(&mut self, reset: Reset) {
        self.drop_tasks(|_| true);
        self.device.start_over(reset, self.exchange.now());
        self.device.meter_state(&self.exchange);
    }

    /// Handles an event that is due.
    #[inline]
    pub(super) fn happen(&mut self, event: Event) {
        let (device, x) = (&mut self.device, &mut self.exchange);
        let epoch_now = x.agenda.epoch();
        match event {
            Event::Ready(task) => device.send_data(task, x),
            Event::Complete(task) => {
                let ended = device.complete(task, x);
                self.finish_if(task, ended);
            }
            Event::Arrived(task, len) => {
                let ended = device.data_arrived(task, len, x);
                self.finish_if(task, ended);
            }
            Event::Accepted(task) => device.accepted(task, x),
            Event::Die(die) => device.die_done(die, x),
            Event::Idle => device.idle(x),
            Event::Resize => device.resize_booster(x),
            Event::PowerBack => self.restore_power(),
            Event::Enabled { epoch } if epoch == epoch_now => self.controller.enabled(),
            Event::Glitch { epoch } if epoch == epoch_now => self.glitch(),
            Event::Uic { epoch } if epoch == epoch_now => self.finish_uic(),
            Event::LinkChanged { epoch } if epoch == epoch_now => self.link_changed(),
            Event::TaskManagement { epoch, slot } if epoch == epoch_now => self.manage_tasks(slot),
            Event::Aggregation { epoch, queue } if epoch == epoch_now => {
                self.controller.aggregation_expired(queue, x);
            }
            // An event of an earlier controller life, which a reset has ended.
            _ => {}
        }
    }

    /// Fetches the slots that were rung, as far as list and link permit.
    #[inline]
    pub(super) fn fetch_slots(&mut self) {
        if !self.controller.may_fetch_slots(&self.exchange) {
            return;
        }
        while let Some(slot) = self.controller.registers.take_rung() {
            if let Some((index, taken)) = self.controller.fetch_slot(slot, &mut self.exchange) {
                self.deliver(index, taken);
            }
        }
    }

    /// A register of a queue was written.
    #[inline]
    pub(super) fn act(&mut self, rung: Rung) {
        match rung {
            Rung::Nothing => {}
            Rung::Fetch(number) => self.fetch_queue(number),
            Rung::Drain(number) => {
                self.controller.drain_backlog(number, &mut self.exchange);
                self.fetch_queues();
            }
            Rung::Control(number, command) => {
                let named = self.controller.control_queue(number, command, &self.exchange);
                if let Some(index) = named {
                    self.device.backend.forget(self.exchange.tasks.name(index));
                    self.post(index, Ocs::Aborted);
                }
                // A host that requests a clean-up without STOP has restarted the queue.
                self.fetch_queue(number);
            }
        }
    }

    /// Fetches entries of a submission queue while there is room for more commands.
    #[inline]
    fn fetch_queue(&mut self, number: usize) {
        if self.controller.may_fetch_entries(&self.exchange) {
            while self.fetch_entry(number) {}
        }
    }

    /// Continues with every queue that waited for the link or for room.
    pub(super) fn fetch_queues(&mut self) {
        if !self.controller.may_fetch_entries(&self.exchange) {
            return;
        }
        let mut empty = 0;
        while empty < self.controller.queues.len() && self.controller.has_room(&self.exchange) {
            let number = self.controller.queues.take_turn();
            empty = if self.fetch_entry(number) { 0 } else { empty + 1 };
        }
    }

    /// Fetches the next entry of a submission queue; `false` if there is none that may be fetched.
    #[inline]
    fn fetch_entry(&mut self, number: usize) -> bool {
        match self.controller.fetch_entry(number, &mut self.exchange) {
            Entry::None => return false,
            Entry::Nullified => {}
            Entry::Task(index, taken) => self.deliver(index, taken),
        }
        true
    }

    /// A task was fetched: passes it to the device, or ends it.
    #[inline]
    fn deliver(&mut self, index: u16, taken: Result<(), Ocs>) {
        if let Err(ocs) = taken {
            return self.finish(index, ocs);
        }
        let by_tag = self.controller.registers.mode.qt();
        let task = self.exchange.tasks.get_mut(index);
        task.address(by_tag);
        if self.exchange.faults.is_active() && self.fault_at_start(index) {
            return;
        }
        self.device.receive(index, &mut self.exchange);
    }

    #[inline]
    fn finish_if(&mut self, name: TaskRef, ended: Option<Ocs>) {
        if let Some(ocs) = ended {
            self.finish(name.index, ocs);
        }
    }

    /// Returns a task to the host.
    #[inline]
    fn finish(&mut self, index: u16, ocs: Ocs) {
        if self.exchange.faults.is_active() && self.sticks(index) {
            return;
        }
        if self.controller.registers.mode.qt() {
            return self.post(index, ocs);
        }
        let x = &mut self.exchange;
        let task = x.tasks.get(index);
        let (slot, told) = (task.slot, (task.tag, task.interrupt));
        self.controller.end_slot(index, ocs, x);
        self.device.start_held_back(x);
        self.controller.give_slot_back(slot, told, x);
    }

    /// Posts the completion of a task and frees its place.
    #[inline]
    fn post(&mut self, index: u16, ocs: Ocs) {
        let x = &mut self.exchange;
        let completion = self.controller.end_entry(index, ocs, x);
        self.device.start_held_back(x);
        self.controller.post(&completion, x);
        if completion.was_full {
            self.fetch_queues();
        }
    }

    /// UTRLCLR is written: the slots in `mask` are emptied without an interrupt.
    fn clear_slots(&mut self, mask: u32) {
        if self.controller.registers.mode.qt() {
            return;
        }
        let x = &mut self.exchange;
        for slot in (0..32_u8).filter(|slot| mask >> slot & 1 != 0) {
            if let Some(index) = self.controller.clear_slot(slot, x) {
                self.device.backend.forget(x.tasks.name(index));
                x.tasks.release(index, false);
            }
        }
        self.device.start_held_back(x);
    }

    /// The device carries out the task management request in `slot`.
    fn manage_tasks(&mut self, slot: u8) {
        let fetched = self.controller.fetch_management(slot, &self.exchange);
        let Some(management) = fetched else { return };
        let answer = match &management.request {
            _ if self.exchange.link.state != LinkState::Up => {
                (TaskOcs::PeerCommunicationFailure, None)
            }
            None => (TaskOcs::InvalidAttributes, None),
            Some(request) => {
                let response = self.manage(request);
                let unit = TaskResponse::new(request.header.task_tag, request.lun, response);
                (TaskOcs::Success, Some(unit))
            }
        };
        self.controller.end_management(&management, answer, &self.exchange);
    }

    /// Task management (SAM-5 7, JESD220 10.9.8) on the commands in the device.
    fn manage(&mut self, request: &TaskRequest) -> ServiceResponse {
        let (lun, tag, iid) = (request.lun, request.task_tag, request.iid);
        if !self.device.units.has_lun(lun) {
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
                self.device.reset_unit(lun, self.exchange.now());
            }
            TaskFunction::QueryTask => return self.query_tasks(one),
            TaskFunction::QueryTaskSet => return self.query_tasks(mine),
            TaskFunction::Unknown(_) => return ServiceResponse::FunctionNotSupported,
        }
        ServiceResponse::FunctionComplete
    }

    fn query_tasks(&self, is_meant: impl Fn(&Task) -> bool) -> ServiceResponse {
        let mut tasks = self.exchange.tasks.iter();
        let found = tasks.any(|(_, task)| task.in_device() && is_meant(task));
        if found { ServiceResponse::FunctionSucceeded } else { ServiceResponse::FunctionComplete }
    }

    /// Takes commands away from the device.
    fn drop_tasks(&mut self, is_meant: impl FnMut(&Task) -> bool) {
        let x = &mut self.exchange;
        x.tasks.drop_from_device(is_meant);
        self.device.backend.forget_stale(&x.tasks);
        self.device.start_held_back(x);
    }

    /// Whether a fault prevents the slot from being released.
    fn sticks(&mut self, index: u16) -> bool {
        let x = &mut self.exchange;
        let task = x.tasks.get(index);
        let (is_command, tag) = (task.holds_command(), u32::from(task.tag));
        let sticks = is_command && x.fires(Kind::StuckDoorbell, tag);
        if sticks {
            x.tasks.get_mut(index).state = State::Stuck;
        }
        sticks
    }
}
