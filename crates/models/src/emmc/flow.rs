//! Commands, data and tasks on their way through controller and card, and what both ways share:
//! resets, and the end of busy.

use flysch_wire::mmc::CardStatus;
use flysch_wire::mmc::command::CommandIndex;
use flysch_wire::mmc::cqhci::CQTDBR;
use flysch_wire::mmc::sdhci::{
    self as reg, Clock as ClockControl, Command, Control, Interrupts, auto, response as kind,
};

use super::Emmc;
use super::card::{Answer, Busy, Load, Phase};
use super::controller::{ENGINE, ENGINE_LENGTH};
use super::engine::Wrong;
use super::host::Sent;
use super::inject::{fault_in_command, fault_in_task};
use super::tasks::{Task, TaskRef};
use super::transfer::{Failed, List};

/// The register of the engine that is at `offset`, if there is one.
#[inline]
pub(super) fn engine_register(offset: u32) -> Option<u32> {
    let at = offset.wrapping_sub(ENGINE);
    (at < ENGINE_LENGTH).then_some(at)
}

impl Emmc {
    #[inline]
    pub(super) fn read_register(&mut self, offset: u32) -> u32 {
        if self.host.registers.is_gone() {
            return u32::MAX;
        }
        if let Some(at) = engine_register(offset) {
            return self.engine.read(at);
        }
        match offset {
            reg::BUFFER => {
                let (word, ends) = self.host.read_buffer(&mut self.device.backend, &mut self.clock);
                if ends {
                    self.end_data();
                }
                word
            }
            reg::PRESENT => self.host.present(&self.device).into_bits(),
            _ => self.host.registers.read(offset, self.engine.is_asserted()),
        }
    }

    #[inline]
    pub(super) fn write_register(&mut self, offset: u32, value: u32) {
        if self.host.registers.is_gone() {
            return;
        }
        if let Some(at) = engine_register(offset) {
            return self.write_engine(at, value);
        }
        match offset {
            reg::COMMAND => self.host.send(Command::from_bits(value), &mut self.clock),
            reg::BUFFER => {
                self.host.write_buffer(value, &mut self.device.backend, &mut self.clock);
            }
            reg::CONTROL => {
                let (power, reset) = self.host.registers.write_control(Control::from_bits(value));
                if power || reset && self.device.card.sd.is_none() {
                    // Power off, or RST_n: the card starts over. What its cache holds stays.
                    self.restart_card();
                }
            }
            reg::CLOCK => self.write_clock(ClockControl::from_bits(value)),
            _ => self.host.registers.write(offset, value),
        }
    }

    fn write_engine(&mut self, offset: u32, value: u32) {
        let backend = &mut self.device.backend;
        let goes_on = match offset {
            CQTDBR => {
                let is_powered = self.device.card.is_powered;
                if is_powered {
                    self.engine.ring(value, &self.memory, &mut self.host, &mut self.clock);
                }
                is_powered
            }
            _ => self.engine.write(offset, value, backend),
        };
        if goes_on {
            self.engine.pump(&mut self.host, backend, &mut self.clock);
        }
    }

    fn write_clock(&mut self, value: ClockControl) {
        self.host.write_clock(value, &mut self.clock);
        let (drives, now) = (self.host.registers.drives(), self.clock.nanos());
        self.device.card.signal.clock(drives, now);
        self.device.meter(drives.0, now);
        if value.reset_all() {
            self.reset_host();
        }
        if value.into_bits() & ClockControl::RESETS != 0 {
            self.host.reset_lines(value, &mut self.device.backend, &mut self.clock);
        }
    }

    /// Everything of the controller as after power-on. An eMMC device knows nothing of it; an SD
    /// card has its power from the controller's power control.
    pub(super) fn reset_host(&mut self) {
        if self.device.card.sd.is_some() {
            self.restart_card();
        }
        self.engine.reset(&mut self.device.backend);
        self.host.reset(&mut self.device.backend);
    }

    /// The card loses its power, or sees RST_n: what was written is safe, everything else is not.
    fn restart_card(&mut self) {
        self.host.stop_transfer(&mut self.device.backend);
        self.host.registers.set_detuned(false);
        let (runs, _) = self.host.registers.drives();
        self.device.restart(runs, self.clock.nanos());
    }

    /// A command to the device, whoever sends it.
    fn execute(&mut self, index: u8, argument: u32) -> Option<Answer> {
        let (runs, _) = self.host.registers.drives();
        self.device.execute((index, argument), runs, self.clock.now(), &mut self.faults)
    }

    /// A command has crossed the line.
    pub(super) fn command_arrives(&mut self, Sent { mode, argument }: Sent) {
        if self.faults.is_active() {
            if self.fault_of_power(mode.index().into()) {
                return self.host.silence();
            }
            let (card, now) = (&self.device.card, self.clock.now());
            if let Some(what) = fault_in_command(&mut self.faults, card, mode, now) {
                return self.host.registers.raise(what);
            }
        }
        let (registers, card) = (&self.host.registers, &self.device.card);
        let reaches =
            registers.hertz() <= card.clock_max() && card.signal.hears(registers.drives().1);
        if mode.data() && mode.auto() == auto::CMD23 && reaches {
            let argument = registers.argument2();
            self.execute(CommandIndex::SetBlockCount.into_bits(), argument);
        }
        let answer = if reaches { self.execute(mode.index(), argument) } else { None };
        match answer {
            Some(answer) => self.respond(mode, answer),
            None if mode.response() == kind::NONE => {
                self.host.registers.raise(Interrupts::new().with_command(true));
            }
            None => self.host.wait_for_response(&mut self.clock),
        }
    }

    fn respond(&mut self, mode: Command, answer: Answer) {
        self.host.respond(answer.response);
        if answer.busy == Busy::Interrupted {
            self.device.interrupt();
            self.not_busy();
        } else {
            self.become_busy(answer.busy);
        }
        if mode.index() == CommandIndex::StopTransmission.into_bits() {
            self.host.stop_transfer(&mut self.device.backend);
        }
        if mode.response() == kind::BUSY && !self.host.wait_for_busy(self.device.card.is_busy) {
            self.host.registers.raise(Interrupts::new().with_transfer(true));
        }
        match answer.phase {
            Some(phase) => {
                self.host.begin_data(mode, phase, &mut self.device, &mut self.clock);
            }
            None if mode.data() => self.host.wait_in_vain(&mut self.clock),
            None => {}
        }
    }

    /// The data phase is over: the transfer is complete once the device is not busy with it.
    pub(super) fn end_data(&mut self) {
        let Some(transfer) = self.host.end_data() else { return };
        let device = &mut self.device;
        device.card.end_data();
        let Phase { read, load, .. } = transfer.phase;
        if !read && let Load::Sectors { force, .. } = load {
            device.card.set_well(transfer.blocks);
            device.backend.forget_transfer();
            device.backend.arrived(transfer.bytes);
            device.backend.program(&mut self.clock);
            if force || !device.card.ext_csd.has_cache_on() {
                self.become_busy(Busy::Medium);
            }
        } else if !read {
            // Messages and firmware go to the medium at once.
            self.become_busy(Busy::For(1_000_000));
        }
        let now = self.clock.now();
        self.device.note_done(0, now.nanos());
        if !self.host.wait_for_busy(self.device.card.is_busy) {
            self.host.transfer_complete(&mut self.faults, now);
        }
    }

    /// The device is busy from now on.
    fn become_busy(&mut self, busy: Busy) {
        if self.device.become_busy(busy, &mut self.clock, &mut self.faults) {
            self.not_busy();
        }
    }

    /// The device is ready again.
    pub(super) fn not_busy(&mut self) {
        self.device.ready_again();
        if self.host.waited_for_busy() {
            self.host.transfer_complete(&mut self.faults, self.clock.now());
        }
        let (device, clock) = (&mut self.device, &mut self.clock);
        self.engine.end_direct(&mut self.host, device, clock, &mut self.faults);
    }

    /// A die may be done programming: who waited for room or for the medium goes on.
    pub(super) fn die_done(&mut self, die: u16) {
        let (device, clock) = (&mut self.device, &mut self.clock);
        if !device.die_done(clock, die) {
            return;
        }
        self.engine.admit(&mut self.host, &mut device.backend, clock);
        if device.backend.transfer_has_room() {
            self.host.schedule_data(&mut device.backend, clock);
        }
        self.engine.end_settled(device, clock, &mut self.faults);
        self.engine.pump(&mut self.host, &mut device.backend, clock);
        if device.backend.ends_busy() {
            self.not_busy();
        }
    }

    /// The device has a task.
    #[inline]
    pub(super) fn task_queued(&mut self, name: TaskRef) {
        if !self.fault_at_start(name) {
            self.engine.queued(name, &mut self.device, &mut self.clock, &mut self.faults);
        }
    }

    /// A task's data has crossed the bus.
    #[inline]
    pub(super) fn task_moved(&mut self, name: TaskRef) {
        let (task, list) = self.engine.moved(name);
        let moved = self.move_task(name, &task, list);
        let device = &mut self.device;
        if let Err(wrong) = moved {
            return self.engine.fail(name.number, wrong, &mut self.host, &mut device.backend);
        }
        self.engine.end_data(name, device, &mut self.clock, &mut self.faults);
        self.engine.pump(&mut self.host, &mut device.backend, &mut self.clock);
    }

    /// Moves the data of a task between the host's memory and the device.
    fn move_task(&mut self, name: TaskRef, task: &Task, list: List) -> Result<(), Wrong> {
        let (registers, device) = (&mut self.host.registers, &mut self.device);
        if !registers.agrees_with(&device.card) {
            return Err(Wrong::Data(Interrupts::new().with_data_crc(true)));
        }
        let (now, detail) = (self.clock.now(), u32::from(name.number));
        if self.faults.is_active()
            && let Some(what) = fault_in_task(&mut self.faults, registers, now, detail)
        {
            return Err(Wrong::Data(what));
        }
        let descriptor = task.descriptor();
        let offset = u64::from(descriptor.address()) * 512;
        let load = Load::Sectors { part: task.part, offset, force: false };
        let moved = device.transfer(&self.memory, (descriptor.read(), load), list, task.bytes());
        moved.map_err(|failed| match failed {
            Failed::List => Wrong::Data(Interrupts::new().with_adma(true)),
            Failed::Store => Wrong::Response(13, CardStatus::new().with_ecc_failed(true)),
        })
    }

    /// The direct command reaches the device.
    pub(super) fn direct_arrives(&mut self, name: TaskRef) {
        if self.fault_at_start(name) {
            return;
        }
        let (index, argument) = self.engine.direct();
        let Some(answer) = self.execute(index, argument) else {
            return self.engine.direct_unanswered(&mut self.host);
        };
        self.engine.direct_answered(answer.response);
        self.become_busy(answer.busy);
        if answer.busy == Busy::None || !self.device.card.is_busy {
            let (device, clock) = (&mut self.device, &mut self.clock);
            self.engine.end_direct(&mut self.host, device, clock, &mut self.faults);
        }
    }
}
