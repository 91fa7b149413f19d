//! The command queueing engine: registers, tasks, and the order in which they have the bus.
//!
//! Theory. A doorbell makes the engine fetch the task's descriptor and send it to the device
//! (CMD44, CMD45). From then on the device works on all its tasks at once, and says which are
//! ready; the data lines carry one task after the other, in the order they became ready. A direct
//! command waits until every task before it has ended, and every task after it waits for it.

use alloc::collections::VecDeque;

use flysch_wire::mmc::CardStatus;
use flysch_wire::mmc::cqhci::{
    CQCAP, CQCFG, CQCRA, CQCRDCT, CQCRI, CQCTL, CQDPT, CQDQS, CQIC, CQIS, CQISGE, CQISTE, CQRMEM,
    CQSSC1, CQSSC2, CQTCLR, CQTCN, CQTDBR, CQTDLBA, CQTDLBAU, CQTERRI, CQVER, Cqcfg, Cqctl, Cqis,
    Cqterri, DIRECT, Direct, RMEM_DEFAULT, Task as Descriptor, act,
};
use flysch_wire::mmc::sdhci::Interrupts;

use super::card::{Busy, Load, Response};
use super::transfer::{Failed, List};
use super::{Emmc, Event};
use crate::faults::Kind;
use crate::media::Ready;

/// Version 5.10.
const VERSION: u32 = 0x510;
/// The bits of [`CQCFG`] that can be set.
const CONFIG: u32 = 0x1101;
/// What a command takes on the line besides its bits: the engine's own time, nanoseconds.
const ENGINE_NS: u64 = 200;

/// Where a task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Nowhere.
    #[default]
    Free,
    /// The doorbell rang; a direct command is before it.
    Held,
    /// On its way to the device, or worked on there.
    Queued,
    /// A write that waits for room in the device.
    Waiting,
    /// Ready for the data lines.
    Ready,
    /// On the data lines.
    Moving,
    /// Its data has arrived; it waits until that is on the medium.
    Settling,
    /// Its data has crossed the bus; it ends now, or late.
    Ending,
    /// Never answered (a fault).
    Swallowed,
}

/// A task.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Task {
    pub(super) state: State,
    pub(super) generation: u32,
    pub(super) descriptor: u64,
    pub(super) part: u8,
    pub(super) ready: Ready,
    /// What must be on the medium before it ends.
    pub(super) mark: u64,
    /// A fault has made it late already.
    pub(super) late: bool,
}

/// Names a task; stale once it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskRef {
    pub(super) number: u8,
    pub(super) generation: u32,
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
    pub(super) list: u64,
    pub(super) doorbell: u32,
    notification: u32,
    send_status: [u32; 2],
    response_mask: u32,
    error: Cqterri,
    direct_response: u32,
    response: (u8, u32),
    pub(super) tasks: [Task; 32],
    /// Tasks that are ready, in that order.
    pub(super) ready: VecDeque<u8>,
    /// Writes that wait for room, in order.
    pub(super) writes: VecDeque<u8>,
    /// The task that has the data lines.
    pub(super) moving: Option<u8>,
    /// The direct command waits or is under way.
    direct: bool,
    direct_begun: bool,
    /// A response with an error: nothing more is begun.
    stalled: bool,
    /// Takes direct commands.
    has_direct: bool,
}

impl Engine {
    pub(super) fn new(has_direct: bool) -> Self {
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
            tasks: [Task::default(); 32],
            ready: VecDeque::with_capacity(32),
            writes: VecDeque::with_capacity(32),
            moving: None,
            direct: false,
            direct_begun: false,
            stalled: false,
            has_direct,
        }
    }

    #[inline]
    pub(super) fn is_asserted(&self) -> bool {
        self.status.into_bits() & self.signal_enable != 0
    }

    /// Whether tasks are begun.
    #[inline]
    fn runs(&self) -> bool {
        self.config.enable() && !self.control.halt() && !self.stalled
    }

    pub(super) fn is_on(&self) -> bool {
        self.config.enable()
    }

    #[inline]
    pub(super) fn is_current(&self, name: TaskRef) -> bool {
        self.tasks[usize::from(name.number & 31)].generation == name.generation
    }

    #[inline]
    pub(super) fn name(&self, number: u8) -> TaskRef {
        let generation = self.tasks[usize::from(number)].generation;
        TaskRef { number, generation }
    }

    #[inline]
    pub(super) fn read(&self, offset: u32) -> u32 {
        match offset {
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
            CQDQS => self.ready.iter().fold(0, |bits, task| bits | 1 << task),
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

    fn raise(&mut self, what: Cqis) {
        let bits = what.into_bits() & self.status_enable;
        self.status = Cqis::from_bits(self.status.into_bits() | bits);
    }

    /// A task is nowhere any more.
    pub(super) fn forget(&mut self, number: u8) {
        let task = &mut self.tasks[usize::from(number)];
        task.state = State::Free;
        task.generation = task.generation.wrapping_add(1);
        self.doorbell &= !(1 << number);
        self.ready.retain(|&other| other != number);
        self.writes.retain(|&other| other != number);
        if self.moving == Some(number) {
            self.moving = None;
        }
        if number == DIRECT {
            (self.direct, self.direct_begun) = (false, false);
        }
    }

    fn forget_all(&mut self) {
        (0..32).for_each(|number| self.forget(number));
        (self.notification, self.stalled, self.error) = (0, false, Cqterri::new());
    }

    /// Everything as after power-on.
    pub(super) fn reset(&mut self) {
        self.forget_all();
        let tasks = self.tasks;
        *self = Self { tasks, ..Self::new(self.has_direct) };
    }
}

impl Emmc {
    pub(super) fn write_engine(&mut self, offset: u32, value: u32) {
        let e = &mut self.engine;
        match offset {
            CQCFG => {
                let was = e.config.enable();
                e.config = Cqcfg::from_bits(value & CONFIG);
                if !e.has_direct {
                    e.config.set_direct(false);
                }
                if was && !e.config.enable() {
                    self.drop_tasks();
                }
            }
            CQCTL => self.control_engine(Cqctl::from_bits(value)),
            CQIS => e.status = Cqis::from_bits(e.status.into_bits() & !value),
            CQISTE => e.status_enable = value,
            CQISGE => e.signal_enable = value,
            CQIC => e.coalescing = value,
            CQTDLBA => e.list = e.list & !0xFFFF_FFFF | u64::from(value),
            CQTDLBAU => e.list = e.list & 0xFFFF_FFFF | u64::from(value) << 32,
            CQTDBR => self.ring(value),
            CQTCN => e.notification &= !value,
            CQTCLR => {
                for number in (0..32).filter(|number| value >> number & 1 != 0) {
                    self.drop_task(number);
                }
            }
            CQSSC1 => e.send_status[0] = value,
            CQSSC2 => e.send_status[1] = value,
            CQRMEM => e.response_mask = value,
            _ => {}
        }
    }

    /// The engine forgets everything; what the device was working on is not answered any more.
    pub(super) fn drop_tasks(&mut self) {
        (0..32).for_each(|number| self.drop_task(number));
        self.engine.forget_all();
    }

    /// A task is taken out of the engine. Room that its data was to have is free again.
    fn drop_task(&mut self, number: u8) {
        let task = self.engine.tasks[usize::from(number)];
        let write = !Descriptor::from_bits(task.descriptor).read();
        if number != DIRECT && write && matches!(task.state, State::Ready | State::Moving) {
            let bytes = u64::from(Descriptor::from_bits(task.descriptor).blocks()) * 512;
            self.media.release(bytes);
        }
        self.engine.forget(number);
    }

    fn control_engine(&mut self, value: Cqctl) {
        let was = self.engine.control.halt();
        if value.clear_all() && was {
            self.drop_tasks();
            self.engine.raise(Cqis::new().with_cleared(true));
        }
        if value.halt() && !was {
            // It stops when the task on the data lines is done.
            if self.engine.moving.is_some() || self.engine.direct_begun {
                self.halting = true;
            } else {
                self.halted();
            }
        } else if !value.halt() {
            self.halting = false;
            self.engine.control = Cqctl::new();
            self.pump();
        }
    }

    fn halted(&mut self) {
        self.halting = false;
        self.engine.control = Cqctl::new().with_halt(true);
        self.engine.raise(Cqis::new().with_halted(true));
    }

    /// The doorbell.
    #[inline]
    fn ring(&mut self, value: u32) {
        if !self.engine.is_on() || !self.card.is_powered {
            return;
        }
        let mut fresh = value & !self.engine.doorbell;
        self.engine.doorbell |= fresh;
        while fresh != 0 {
            let number = fresh.trailing_zeros() as u8;
            fresh &= fresh - 1;
            self.fetch(number);
        }
        self.pump();
    }

    /// Bytes of a slot, and of its task descriptor.
    fn slot(&self) -> (u64, u64) {
        if self.engine.config.descriptors_128() { (32, 16) } else { (16, 8) }
    }

    /// Where the transfer descriptor of a task lies.
    fn task_list(&self, number: u8) -> List {
        let (slot, task) = self.slot();
        let address = self.engine.list.wrapping_add(u64::from(number) * slot + task);
        // The descriptors of 64-bit addresses have 12 bytes, as Intel's engine has them.
        let stride = if self.engine.config.descriptors_128() { 12 } else { 8 };
        List { address, stride }
    }

    /// Fetches a task's descriptor and begins it, unless a direct command is before it.
    #[inline]
    fn fetch(&mut self, number: u8) {
        let at = self.engine.list.wrapping_add(u64::from(number) * self.slot().0);
        let mut bytes = [0; 8];
        let word = match self.memory.read(at, &mut bytes) {
            Ok(()) => u64::from_le_bytes(bytes),
            Err(_) => 0,
        };
        let barred = self.engine.direct;
        let task = &mut self.engine.tasks[usize::from(number)];
        task.descriptor = word;
        (task.late, task.mark) = (false, 0);
        task.state = State::Held;
        let descriptor = Descriptor::from_bits(word);
        if !descriptor.valid() || descriptor.act() != act::TASK {
            return self.data_error(number, Interrupts::new().with_adma(true));
        }
        if number == DIRECT && self.engine.config.direct() {
            self.engine.direct = true;
        } else if !barred {
            self.begin(number);
        }
    }

    /// Sends a task to the device.
    #[inline]
    fn begin(&mut self, number: u8) {
        let task = &mut self.engine.tasks[usize::from(number)];
        task.state = State::Queued;
        let name = self.engine.name(number);
        let commands = 2 * (self.command_ns() + ENGINE_NS);
        let start = self.command_free.max(self.now.nanos());
        self.command_free = start + commands;
        self.at(self.command_free, Event::Queued(name));
    }

    /// The device has a task.
    #[inline]
    pub(super) fn task_queued(&mut self, name: TaskRef) {
        if !self.engine.is_current(name) {
            return;
        }
        let number = name.number;
        let task = &self.engine.tasks[usize::from(number)];
        let descriptor = Descriptor::from_bits(task.descriptor);
        if self.faults.is_active() && self.fault_at_start(number) {
            return;
        }
        let (read, first) = (descriptor.read(), descriptor.address());
        let blocks = u32::from(descriptor.blocks());
        if self.card.tasks >> number & 1 != 0 {
            let error = CardStatus::new().with_illegal_command(true);
            return self.response_error(number, 44, error.into_bits());
        }
        let part = match self.card.queue(read, first, blocks) {
            Ok(part) => part,
            Err(error) => return self.response_error(number, 45, error.into_bits()),
        };
        if self.faults.is_active() && self.fault_in_task(number, (first, blocks)) {
            return;
        }
        self.card.tasks |= 1 << number;
        let accepted = self.media.accept(self.now.nanos(), false);
        let task = &mut self.engine.tasks[usize::from(number)];
        task.part = part;
        if read {
            let span = super::flow::span(&self.card, part, first, blocks);
            let ready = self.media.read(span, accepted);
            task.ready = ready;
            self.at(ready.first, Event::Ready(name));
        } else {
            task.ready = Ready { first: accepted, last: accepted };
            self.at(accepted, Event::Ready(name));
        }
    }

    /// A task is ready for the data lines; a write, if there is room for it.
    #[inline]
    pub(super) fn task_ready(&mut self, name: TaskRef) {
        if !self.engine.is_current(name) {
            return;
        }
        let number = name.number;
        let task = &mut self.engine.tasks[usize::from(number)];
        let descriptor = Descriptor::from_bits(task.descriptor);
        let bytes = u64::from(descriptor.blocks()) * 512;
        if !descriptor.read() {
            let waits = !self.engine.writes.is_empty();
            if waits || !self.media.admit(bytes) {
                task.state = State::Waiting;
                self.engine.writes.push_back(number);
                return self.program();
            }
        }
        task.state = State::Ready;
        self.engine.ready.push_back(number);
        self.pump();
    }

    /// Lets waiting writes go on as far as there is room.
    pub(super) fn admit_tasks(&mut self) {
        while let Some(&number) = self.engine.writes.front() {
            let task = &mut self.engine.tasks[usize::from(number)];
            let bytes = u64::from(Descriptor::from_bits(task.descriptor).blocks()) * 512;
            if !self.media.admit(bytes) {
                break;
            }
            task.state = State::Ready;
            self.engine.writes.pop_front();
            self.engine.ready.push_back(number);
        }
        self.pump();
    }

    /// Gives the data lines to the next task, or begins the direct command.
    #[inline]
    pub(super) fn pump(&mut self) {
        if !self.engine.runs() || self.halting {
            return;
        }
        if self.engine.direct {
            return self.begin_direct();
        }
        if self.engine.moving.is_some() {
            return;
        }
        let Some(number) = self.engine.ready.pop_front() else { return };
        let command = self.command_ns() + ENGINE_NS;
        let start = self.command_free.max(self.now.nanos()) + command;
        self.command_free = start;
        let task = &mut self.engine.tasks[usize::from(number)];
        task.state = State::Moving;
        let (ready, descriptor) = (task.ready, Descriptor::from_bits(task.descriptor));
        self.engine.moving = Some(number);
        let end = self.data_end(start, ready, descriptor.blocks().into());
        let name = self.engine.name(number);
        self.at(end, Event::Moved(name));
    }

    /// A task's data has crossed the bus.
    #[inline]
    pub(super) fn task_moved(&mut self, name: TaskRef) {
        if !self.engine.is_current(name) {
            return;
        }
        let number = name.number;
        self.engine.moving = None;
        let task = self.engine.tasks[usize::from(number)];
        let descriptor = Descriptor::from_bits(task.descriptor);
        if !self.bus_agrees() {
            return self.data_error(number, Interrupts::new().with_data_crc(true));
        }
        if self.faults.is_active() && self.fault_on_bus(number) {
            return;
        }
        let list = self.task_list(number);
        let offset = u64::from(descriptor.address()) * 512;
        let bytes = u64::from(descriptor.blocks()) * 512;
        let load = Load::Sectors { part: task.part, offset, force: false };
        let moved = self.move_data((descriptor.read(), load), list, bytes);
        match moved {
            Ok(()) => {}
            Err(Failed::List) => {
                return self.data_error(number, Interrupts::new().with_adma(true));
            }
            Err(Failed::Store) => {
                let error = CardStatus::new().with_ecc_failed(true);
                return self.response_error(number, 13, error.into_bits());
            }
        }
        if self.halting {
            self.halted();
        }
        self.engine.tasks[usize::from(number)].state = State::Ending;
        if descriptor.read() {
            self.complete(name);
        } else {
            let settles = !self.card.has_cache_on() || descriptor.reliable() || descriptor.forced();
            self.data_came(bytes);
            if settles {
                let task = &mut self.engine.tasks[usize::from(number)];
                task.mark = self.media.arrived_total();
                task.state = State::Settling;
                self.program();
                self.end_settled();
            } else {
                self.program();
                self.complete(name);
            }
        }
        self.pump();
    }

    /// Tasks whose data is on the medium end; a direct command may have waited for them.
    pub(super) fn end_settled(&mut self) {
        let programmed = self.media.programmed_total();
        let mut ended = false;
        for number in 0..32 {
            let task = &self.engine.tasks[usize::from(number)];
            if task.state == State::Settling && task.mark <= programmed {
                let name = self.engine.name(number);
                self.complete(name);
                ended = true;
            }
        }
        if ended {
            self.pump();
        }
    }

    /// Whether something waits for the medium.
    pub(super) fn tasks_wait(&self) -> bool {
        !self.engine.writes.is_empty()
            || self.engine.tasks.iter().any(|task| task.state == State::Settling)
    }

    /// A task has run its course.
    #[inline]
    pub(super) fn complete(&mut self, name: TaskRef) {
        if !self.engine.is_current(name) {
            return;
        }
        let number = name.number;
        if self.faults.is_active() && self.fault_at_end(name) {
            return;
        }
        self.done[usize::from(number)] = self.now.nanos();
        self.card.tasks &= !(1 << number);
        self.engine.forget(number);
        self.engine.notification |= 1 << number;
        let told = Cqis::new().with_complete(true);
        let heard = self.engine.signal_enable & told.into_bits() != 0;
        if !heard {
            self.silent += 1;
        }
        if heard && self.faults.is_active() {
            let lost = self.faults.fires(Kind::LostInterrupt, self.now, number.into());
            if lost {
                return;
            }
        }
        self.interrupts += u64::from(heard);
        self.engine.raise(told);
    }

    /// The device answered a command of the engine with an error.
    pub(super) fn response_error(&mut self, number: u8, command: u8, status: u32) {
        let e = &mut self.engine;
        e.response = (command, status);
        e.error =
            Cqterri::new().with_command(command).with_command_task(number).with_command_valid(true);
        e.stalled = true;
        e.tasks[usize::from(number)].state = State::Swallowed;
        if status & e.response_mask != 0 {
            e.raise(Cqis::new().with_response_error(true));
        }
        self.interrupts += 1;
    }

    /// Data of a task went wrong: the SD host controller says how, the engine for whom.
    pub(super) fn data_error(&mut self, number: u8, what: Interrupts) {
        let task = &mut self.engine.tasks[usize::from(number)];
        let read = Descriptor::from_bits(task.descriptor).read();
        let has_room = task.state == State::Moving;
        task.state = State::Swallowed;
        let command = if read { 46 } else { 47 };
        let e = &mut self.engine;
        e.error =
            Cqterri::new().with_data_command(command).with_data_task(number).with_data_valid(true);
        e.stalled = true;
        if !read && has_room {
            let bytes =
                u64::from(Descriptor::from_bits(e.tasks[usize::from(number)].descriptor).blocks());
            self.media.release(bytes * 512);
        }
        self.registers.raise(what);
        self.interrupts += 1;
        if self.halting {
            self.halted();
        }
    }

    /// Begins the direct command once nothing else is under way.
    fn begin_direct(&mut self) {
        let waits = self.engine.direct_begun;
        let others = self.engine.tasks[..usize::from(DIRECT)]
            .iter()
            .any(|task| !matches!(task.state, State::Free | State::Held));
        if waits || others {
            // What is before it goes on.
            if !waits && self.engine.moving.is_none() && !self.engine.ready.is_empty() {
                self.engine.direct = false;
                self.pump();
                self.engine.direct = true;
            }
            return;
        }
        self.engine.direct_begun = true;
        self.engine.tasks[usize::from(DIRECT)].state = State::Queued;
        let name = self.engine.name(DIRECT);
        let start = self.command_free.max(self.now.nanos());
        self.command_free = start + self.command_ns() + ENGINE_NS;
        self.at(self.command_free, Event::Direct(name));
    }

    /// The direct command reaches the device.
    pub(super) fn direct_arrives(&mut self, name: TaskRef) {
        if !self.engine.is_current(name) {
            return;
        }
        let word = self.engine.tasks[usize::from(DIRECT)].descriptor;
        let direct = Direct::from_bits(word as u32);
        let argument = (word >> 32) as u32;
        if self.faults.is_active() && self.fault_at_start(DIRECT) {
            return;
        }
        match self.execute(direct.command(), argument) {
            None => {
                // No response: the host controller's own command time-out.
                self.engine.error = Cqterri::new()
                    .with_command(direct.command())
                    .with_command_task(DIRECT)
                    .with_command_valid(true);
                self.engine.stalled = true;
                self.registers.raise(Interrupts::new().with_command_timeout(true));
            }
            Some(answer) => {
                if let Response::Status(status) = answer.response {
                    self.engine.direct_response = status;
                    self.engine.response = (direct.command(), status);
                }
                self.become_busy(answer.busy);
                if answer.busy == Busy::None || !self.card.is_busy {
                    self.end_direct();
                }
            }
        }
    }

    /// The device is no longer busy: a direct command with R1b ends.
    pub(super) fn end_direct(&mut self) {
        if !self.engine.direct_begun {
            return;
        }
        // SWITCH_ERROR shows with the end of busy.
        let status = self.card.status();
        self.engine.direct_response |= CardStatus::from_bits(status).errors().into_bits();
        let name = self.engine.name(DIRECT);
        self.complete(name);
        self.engine.direct = false;
        if self.halting {
            self.halted();
        }
        for number in 0..DIRECT {
            if self.engine.tasks[usize::from(number)].state == State::Held {
                self.begin(number);
            }
        }
        self.pump();
    }
}
