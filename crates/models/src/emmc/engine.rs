//! The command queueing engine: its registers, and the way of a task through it.
//!
//! Theory. A doorbell makes the engine fetch the task's descriptor and send it to the device
//! (CMD44, CMD45). From then on the device works on all its tasks at once, and says which are
//! ready; the data lines carry one task after the other, in the order they became ready. A direct
//! command waits until every task before it has ended, and every task after it waits for it.

use flysch_api::machine::GuestMemory;
use flysch_wire::mmc::CardStatus;
use flysch_wire::mmc::cqhci::{
    CQCAP, CQCFG, CQCRA, CQCRDCT, CQCRI, CQCTL, CQDPT, CQDQS, CQIC, CQIS, CQISGE, CQISTE, CQRMEM,
    CQSSC1, CQSSC2, CQTCLR, CQTCN, CQTDBR, CQTDLBA, CQTDLBAU, CQTERRI, CQVER, Cqcfg, Cqctl, Cqis,
    Cqterri, DIRECT, Direct, RMEM_DEFAULT, TASKS, Task as Descriptor, act,
};
use flysch_wire::mmc::sdhci::Interrupts;

use super::backend::Backend;
use super::card::Response;
use super::clock::{Clock, Event};
use super::config::Config;
use super::device::Device;
use super::host::Host;
use super::inject::{Ending, fault_of_medium};
use super::profile::Dialect;
use super::tasks::{Task, TaskRef, Tasks};
use super::transfer::List;
use crate::faults::{Injector, Kind};
use crate::media::Ready;

/// Version 5.10.
const VERSION: u32 = 0x510;
/// The bits of [`CQCFG`] that can be set.
const CONFIG: u32 = 0x1101;
/// What a command takes on the line besides its bits: the engine's own time, nanoseconds.
const ENGINE_NS: u64 = 200;

/// What is wrong with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The device answered this command of the engine with an error.
    Response(u8, CardStatus),
    /// Its data went wrong on the way, as the SD host controller says.
    Data(Interrupts),
}

/// The engine.
#[derive(Debug)]
pub(super) struct Engine {
    config: Cqcfg,
    control: Cqctl,
    status: Cqis,
    status_enable: u32,
    signal_enable: u32,
    coalescing: u32,
    list: u64,
    doorbell: u32,
    notification: u32,
    send_status: [u32; 2],
    response_mask: u32,
    error: Cqterri,
    direct_response: u32,
    response: (u8, u32),
    tasks: Tasks,
    /// A response with an error: nothing more is begun.
    is_stalled: bool,
    /// It halts when what is on the bus is done.
    is_halting: bool,
    /// The controller has an engine, and that takes direct commands.
    is_there: bool,
    has_direct: bool,
    /// Completions that raised no interrupt, and interrupts.
    silent: u64,
    interrupts: u64,
}

impl Engine {
    /// The engine of `config`; a controller of SD cards has none.
    pub(super) fn new(config: &Config) -> Self {
        Self {
            config: Cqcfg::new(),
            control: Cqctl::new(),
            status: Cqis::new(),
            status_enable: 0,
            signal_enable: 0,
            coalescing: 0,
            list: 0,
            doorbell: 0,
            notification: 0,
            send_status: [0; 2],
            response_mask: RMEM_DEFAULT,
            error: Cqterri::new(),
            direct_response: 0,
            response: (0, 0),
            tasks: Tasks::new(),
            is_stalled: false,
            is_halting: false,
            is_there: config.engine && config.profile.dialect == Dialect::Emmc,
            has_direct: config.direct,
            silent: 0,
            interrupts: 0,
        }
    }

    /// Everything as after power-on. What was counted stays.
    pub(super) fn reset(&mut self, backend: &mut Backend) {
        self.drop_tasks(backend);
        (self.config, self.control, self.status) = (Cqcfg::new(), Cqctl::new(), Cqis::new());
        (self.status_enable, self.signal_enable, self.coalescing) = (0, 0, 0);
        (self.list, self.send_status, self.response_mask) = (0, [0; 2], RMEM_DEFAULT);
        (self.direct_response, self.response, self.is_halting) = (0, (0, 0), false);
    }

    /// Whether it interrupts.
    #[inline]
    pub(super) fn is_asserted(&self) -> bool {
        self.status.into_bits() & self.signal_enable != 0
    }

    /// Interrupts so far.
    pub(super) fn interrupts(&self) -> u64 {
        self.interrupts
    }

    /// Completions so far without an interrupt, because that is not enabled.
    #[inline]
    pub(super) fn silent(&self) -> u64 {
        self.silent
    }

    /// Whether a name is of a task that has not ended.
    #[inline]
    pub(super) fn is_current(&self, name: TaskRef) -> bool {
        self.tasks.is_current(name)
    }

    /// Reads a register.
    #[inline]
    pub(super) fn read(&self, offset: u32) -> u32 {
        match offset {
            _ if !self.is_there => 0,
            CQVER => VERSION,
            CQCAP => 0,
            CQCFG => self.config.into_bits(),
            CQCTL => self.control.into_bits(),
            CQIS => self.status.into_bits(),
            CQISTE => self.status_enable,
            CQISGE => self.signal_enable,
            CQIC => self.coalescing,
            CQTDLBA => self.list as u32,
            CQTDLBAU => (self.list >> 32) as u32,
            CQTDBR => self.doorbell,
            CQTCN => self.notification,
            CQDQS => self.tasks.ready_bits(),
            CQDPT => self.doorbell,
            CQSSC1 => self.send_status[0],
            CQSSC2 => self.send_status[1],
            CQCRDCT => self.direct_response,
            CQRMEM => self.response_mask,
            CQTERRI => self.error.into_bits(),
            CQCRI => self.response.0.into(),
            CQCRA => self.response.1,
            _ => 0,
        }
    }

    /// Writes a register other than the doorbell: whether tasks that waited may go on.
    pub(super) fn write(&mut self, offset: u32, value: u32, backend: &mut Backend) -> bool {
        match offset {
            _ if !self.is_there => {}
            CQCFG => {
                let was = self.config.enable();
                self.config = Cqcfg::from_bits(value & CONFIG);
                if !self.has_direct {
                    self.config.set_direct(false);
                }
                if was && !self.config.enable() {
                    self.drop_tasks(backend);
                }
            }
            CQCTL => return self.write_control(Cqctl::from_bits(value), backend),
            CQIS => self.status = Cqis::from_bits(self.status.into_bits() & !value),
            CQISTE => self.status_enable = value,
            CQISGE => self.signal_enable = value,
            CQIC => self.coalescing = value,
            CQTDLBA => self.list = self.list & !0xFFFF_FFFF | u64::from(value),
            CQTDLBAU => self.list = self.list & 0xFFFF_FFFF | u64::from(value) << 32,
            CQTCN => self.notification &= !value,
            CQTCLR => {
                for number in (0..TASKS).filter(|number| value >> number & 1 != 0) {
                    self.drop_task(number, backend);
                }
            }
            CQSSC1 => self.send_status[0] = value,
            CQSSC2 => self.send_status[1] = value,
            CQRMEM => self.response_mask = value,
            _ => {}
        }
        false
    }

    fn write_control(&mut self, value: Cqctl, backend: &mut Backend) -> bool {
        let was = self.control.halt();
        if value.clear_all() && was {
            self.drop_tasks(backend);
            self.raise(Cqis::new().with_cleared(true));
        }
        if !value.halt() {
            self.is_halting = false;
            self.control = Cqctl::new();
        } else if !was {
            // It stops when what is on the lines is done.
            self.is_halting = true;
            if !self.tasks.are_moving() {
                self.halt();
            }
        }
        !value.halt()
    }

    /// It halts, if it is to: nothing is on the lines any more.
    fn halt(&mut self) {
        if core::mem::take(&mut self.is_halting) {
            self.control = Cqctl::new().with_halt(true);
            self.raise(Cqis::new().with_halted(true));
        }
    }

    fn raise(&mut self, what: Cqis) {
        let bits = what.into_bits() & self.status_enable;
        self.status = Cqis::from_bits(self.status.into_bits() | bits);
    }

    /// Everything is forgotten; what the device was working on is not answered any more.
    fn drop_tasks(&mut self, backend: &mut Backend) {
        (0..TASKS).for_each(|number| self.drop_task(number, backend));
        (self.notification, self.is_stalled, self.error) = (0, false, Cqterri::new());
    }

    /// A task is taken out of the engine. Room that its data was to have is free again.
    fn drop_task(&mut self, number: u8, backend: &mut Backend) {
        backend.release(self.tasks.take_room(number));
        self.forget(number, backend);
    }

    /// A task is nowhere any more.
    #[inline]
    fn forget(&mut self, number: u8, backend: &mut Backend) {
        self.tasks.forget(number);
        backend.forget_task(number);
        self.doorbell &= !(1 << number);
    }

    /// A task is never answered.
    pub(super) fn swallow(&mut self, number: u8, backend: &mut Backend) {
        backend.release(self.tasks.take_room(number));
        self.tasks.swallow(number);
        backend.forget_task(number);
    }

    /// No task in the device is ever answered.
    pub(super) fn swallow_all(&mut self, backend: &mut Backend) {
        (0..TASKS).for_each(|number| backend.release(self.tasks.take_room(number)));
        backend.forget_tasks();
        self.tasks.swallow_all();
    }

    /// The doorbell.
    #[inline]
    pub(super) fn ring(
        &mut self,
        value: u32,
        memory: &GuestMemory,
        host: &mut Host,
        clock: &mut Clock,
    ) {
        if !self.is_there || !self.config.enable() {
            return;
        }
        let mut fresh = value & !self.doorbell;
        self.doorbell |= fresh;
        while fresh != 0 {
            let number = fresh.trailing_zeros() as u8;
            fresh &= fresh - 1;
            self.fetch(number, memory, host, clock);
        }
    }

    /// Bytes of a slot, and of its task descriptor.
    fn slot(&self) -> (u64, u64) {
        if self.config.descriptors_128() { (32, 16) } else { (16, 8) }
    }

    /// Where the transfer descriptor of a task lies.
    fn task_list(&self, number: u8) -> List {
        let (slot, task) = self.slot();
        let address = self.list.wrapping_add(u64::from(number) * slot + task);
        // The descriptors of 64-bit addresses have 12 bytes, as Intel's engine has them.
        let stride = if self.config.descriptors_128() { 12 } else { 8 };
        List { address, stride }
    }

    /// Fetches a task's descriptor and begins it, unless a direct command is before it.
    #[inline]
    fn fetch(&mut self, number: u8, memory: &GuestMemory, host: &mut Host, clock: &mut Clock) {
        let at = self.list.wrapping_add(u64::from(number) * self.slot().0);
        let mut bytes = [0; 8];
        let word = match memory.read(at, &mut bytes) {
            Ok(()) => u64::from_le_bytes(bytes),
            Err(_) => 0,
        };
        self.tasks.hold(number, word);
        let descriptor = Descriptor::from_bits(word);
        if !descriptor.valid() || descriptor.act() != act::TASK {
            return self.data_error(number, Interrupts::new().with_adma(true), host);
        }
        if number == DIRECT && self.config.direct() {
            self.tasks.bar(true);
        } else if !self.tasks.are_barred() {
            self.begin(number, host, clock);
        }
    }

    /// Sends a task to the device.
    #[inline]
    fn begin(&mut self, number: u8, host: &mut Host, clock: &mut Clock) {
        let name = self.tasks.begin(number);
        clock.at(host.commands(2, ENGINE_NS, clock.nanos()), Event::Queued(name));
    }

    /// The device has a task: it takes it up, or answers with an error.
    #[inline]
    pub(super) fn queued(
        &mut self,
        name: TaskRef,
        device: &mut Device,
        clock: &mut Clock,
        faults: &mut Injector,
    ) {
        let number = name.number;
        let descriptor = self.tasks.get(number).descriptor();
        let (read, first) = (descriptor.read(), descriptor.address());
        let blocks = u32::from(descriptor.blocks());
        let card = &mut device.card;
        let queued = match card.tasks >> number & 1 != 0 {
            true => Err((44, CardStatus::new().with_illegal_command(true))),
            false => card.queue(read, first, blocks).map_err(|error| (45, error)),
        };
        let queued = queued.and_then(|part| {
            let range = u64::from(first)..u64::from(first) + u64::from(blocks);
            let fault = match faults.is_active() {
                true => fault_of_medium(faults, range, clock.now(), number.into()),
                false => None,
            };
            fault.map_or(Ok(part), |error| Err((13, error)))
        });
        let part = match queued {
            Ok(part) => part,
            Err((command, error)) => return self.response_error(number, command, error),
        };
        card.tasks |= 1 << number;
        let accepted = device.backend.accept(clock.nanos());
        let ready = match read {
            true => {
                let span = device.card.parts.span(part, first, blocks);
                device.backend.read(span, accepted)
            }
            false => Ready { first: accepted, last: accepted },
        };
        let task = self.tasks.get_mut(number);
        (task.part, task.ready) = (part, ready);
        clock.at(ready.first, Event::Ready(name));
    }

    /// A task is ready for the data lines; a write, if there is room for it.
    #[inline]
    pub(super) fn ready(
        &mut self,
        name: TaskRef,
        host: &mut Host,
        backend: &mut Backend,
        clock: &mut Clock,
    ) {
        let task = self.tasks.get(name.number);
        if !task.descriptor().read() && !backend.admit_task(name.number, task.bytes()) {
            return backend.program(clock);
        }
        self.tasks.is_ready(name.number);
        self.pump(host, backend, clock);
    }

    /// Lets waiting writes go on as far as there is room.
    pub(super) fn admit(&mut self, host: &mut Host, backend: &mut Backend, clock: &mut Clock) {
        while let Some(number) = backend.next_task() {
            self.tasks.is_ready(number);
        }
        self.pump(host, backend, clock);
    }

    /// Gives the data lines to the next task, or begins the direct command.
    #[inline]
    pub(super) fn pump(&mut self, host: &mut Host, backend: &mut Backend, clock: &mut Clock) {
        let runs = self.config.enable() && !self.control.halt() && !self.is_stalled;
        if !runs || self.is_halting {
            return;
        }
        if self.tasks.are_barred() {
            if let Some(name) = self.tasks.begin_direct() {
                let end = host.commands(1, ENGINE_NS, clock.nanos());
                return clock.at(end, Event::Direct(name));
            }
            if self.tasks.is_direct_begun() {
                return;
            }
            // What is before it goes on.
        }
        let Some(number) = self.tasks.next() else { return };
        let (task, name) = (self.tasks.get(number), self.tasks.name(number));
        let start = host.commands(1, ENGINE_NS, clock.nanos());
        let blocks = task.descriptor().blocks().into();
        let end = host.data(backend, start, task.ready, blocks);
        clock.at(end, Event::Moved(name));
    }

    /// The data of a task has crossed the bus: the task, and where the host's memory for it is.
    pub(super) fn moved(&mut self, name: TaskRef) -> (Task, List) {
        (self.tasks.moved(name.number), self.task_list(name.number))
    }

    /// Its data is where it belongs: it ends, at once or when that is on the medium.
    pub(super) fn end_data(
        &mut self,
        name: TaskRef,
        device: &mut Device,
        clock: &mut Clock,
        faults: &mut Injector,
    ) {
        self.halt();
        let descriptor = self.tasks.get(name.number).descriptor();
        self.tasks.end(name.number);
        if descriptor.read() {
            return self.complete(name, device, clock, faults);
        }
        device.backend.arrived(self.tasks.take_room(name.number));
        let settles =
            !device.card.ext_csd.has_cache_on() || descriptor.reliable() || descriptor.forced();
        if settles {
            device.backend.settle(name.number);
        }
        device.backend.program(clock);
        if settles {
            self.end_settled(device, clock, faults);
        } else {
            self.complete(name, device, clock, faults);
        }
    }

    /// Tasks whose data is on the medium end.
    pub(super) fn end_settled(
        &mut self,
        device: &mut Device,
        clock: &mut Clock,
        faults: &mut Injector,
    ) {
        let mut settled = device.backend.settled();
        while settled != 0 {
            let number = settled.trailing_zeros() as u8;
            settled &= settled - 1;
            device.backend.forget_task(number);
            self.complete(self.tasks.name(number), device, clock, faults);
        }
    }

    /// A task has run its course.
    #[inline]
    pub(super) fn complete(
        &mut self,
        name: TaskRef,
        device: &mut Device,
        clock: &mut Clock,
        faults: &mut Injector,
    ) {
        if !self.is_current(name) {
            return;
        }
        let number = name.number;
        if faults.is_active() {
            let task = self.tasks.get_mut(number);
            match Ending::with_faults(faults, task, clock.now(), number.into()) {
                Ending::Never => return self.swallow(number, &mut device.backend),
                Ending::Late(nanos) => return clock.after(nanos, Event::Late(name)),
                Ending::Now => {}
            }
        }
        device.note_done(number, clock.nanos());
        device.card.tasks &= !(1 << number);
        self.forget(number, &mut device.backend);
        self.notification |= 1 << number;
        let told = Cqis::new().with_complete(true);
        let heard = self.signal_enable & told.into_bits() != 0;
        if !heard {
            self.silent += 1;
        }
        if heard
            && faults.is_active()
            && faults.fires(Kind::LostInterrupt, clock.now(), number.into())
        {
            return;
        }
        self.interrupts += u64::from(heard);
        self.raise(told);
    }

    /// A task whose data has crossed the bus ends badly.
    pub(super) fn fail(
        &mut self,
        number: u8,
        wrong: Wrong,
        host: &mut Host,
        backend: &mut Backend,
    ) {
        backend.release(self.tasks.take_room(number));
        match wrong {
            Wrong::Response(command, error) => self.response_error(number, command, error),
            Wrong::Data(what) => self.data_error(number, what, host),
        }
    }

    /// The device answered a command of the engine with an error.
    fn response_error(&mut self, number: u8, command: u8, status: CardStatus) {
        let status = status.into_bits();
        self.response = (command, status);
        self.error =
            Cqterri::new().with_command(command).with_command_task(number).with_command_valid(true);
        self.is_stalled = true;
        self.tasks.fail(number);
        if status & self.response_mask != 0 {
            self.raise(Cqis::new().with_response_error(true));
        }
        self.interrupts += 1;
    }

    /// Data of a task went wrong: the SD host controller says how, the engine for whom.
    fn data_error(&mut self, number: u8, what: Interrupts, host: &mut Host) {
        let command = if self.tasks.get(number).descriptor().read() { 46 } else { 47 };
        self.tasks.fail(number);
        self.error =
            Cqterri::new().with_data_command(command).with_data_task(number).with_data_valid(true);
        self.is_stalled = true;
        host.registers.raise(what);
        self.interrupts += 1;
        self.halt();
    }

    /// The direct command: its index and argument.
    pub(super) fn direct(&self) -> (u8, u32) {
        let word = self.tasks.get(DIRECT).word;
        (Direct::from_bits(word as u32).command(), (word >> 32) as u32)
    }

    /// The device does not answer the direct command: the host controller's own command time-out.
    pub(super) fn direct_unanswered(&mut self, host: &mut Host) {
        let (command, _) = self.direct();
        self.error =
            Cqterri::new().with_command(command).with_command_task(DIRECT).with_command_valid(true);
        self.is_stalled = true;
        host.silence();
    }

    /// The device answers the direct command.
    pub(super) fn direct_answered(&mut self, response: Response) {
        if let Response::Status(status) = response {
            self.direct_response = status;
            self.response = (self.direct().0, status);
        }
    }

    /// The device is no longer busy: a direct command with R1b ends, and what it barred begins.
    pub(super) fn end_direct(
        &mut self,
        host: &mut Host,
        device: &mut Device,
        clock: &mut Clock,
        faults: &mut Injector,
    ) {
        if !self.tasks.is_direct_begun() {
            return;
        }
        // SWITCH_ERROR shows with the end of busy.
        let status = CardStatus::from_bits(device.card.status());
        self.direct_response |= status.errors().into_bits();
        self.complete(self.tasks.name(DIRECT), device, clock, faults);
        self.tasks.bar(false);
        self.halt();
        for number in 0..DIRECT {
            if self.tasks.is_held(number) {
                self.begin(number, host, clock);
            }
        }
        self.pump(host, &mut device.backend, clock);
    }
}

#[cfg(test)]
mod tests;
