//! An eMMC device, or an SD card, and its SD host controller with a command queueing engine.
//!
//! Theory. [`Emmc`] is one state machine with three inputs - register reads, register writes, the
//! passing of time - and three outputs: register values, DMA, interrupts. It has no clock: every
//! input carries `now`, and [`Emmc::next_event`] says when it next has something to do.
//!
//! Two ways lead to the device. A write of the command register puts one command onto the line;
//! when it has crossed, the device (`card`) carries it out, and its data follows over the data
//! lines (`flow`). A doorbell gives a task to the engine (`engine`), which sends it to the device
//! and gives the data lines to one task after the other as they become ready. Both share the bus:
//! one command line, and data lines that carry one direction at a time, at the rate that lines,
//! clock and edges make. What lies behind them - firmware, NAND, write buffer - is the shared
//! media.
//!
//! Data crosses only while host and card use the bus the same way: the same lines and edges, a
//! clock the card's timing allows, a sampling point where one is needed; else there are CRC
//! errors.
//!
//! Everything the host writes is hostile. A descriptor that makes no sense, an address outside
//! DMA memory, a command the state does not allow end in the status bit the specification has for
//! it; the work done for one event is bounded by the largest transfer.

mod card;
pub mod config;
mod controller;
mod engine;
mod erase;
mod ext_csd;
mod flow;
mod inject;
pub mod profile;
mod provision;
mod rpmb;
mod sd;
mod transfer;

use alloc::string::String;
use alloc::vec::Vec;

use flysch_api::machine::{GuestMemory, Instant};

pub use config::{Config, ConfigError};
pub use controller::{ENGINE, WINDOW};

use crate::events::Events;
use crate::faults::{Injector, Plan};
use crate::machine::{Messages, MixedModel, Model};
use crate::media::Media;
use crate::media::cache::Cache;
pub use crate::media::cache::Loss;
use crate::media::energy::Energy;
#[cfg(feature = "std")]
use crate::store::FullFile;
use card::Card;
use controller::Registers;
use engine::{Engine, TaskRef};
use flow::{Sent, Transfer};
use profile::Dialect;

/// What will happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The clock is stable.
    Stable { epoch: u32 },
    /// A reset of the controller is done.
    ResetDone { epoch: u32 },
    /// A command has crossed the line.
    Command { epoch: u32, serial: u32 },
    /// No response came.
    Silence { epoch: u32 },
    /// Data was announced and did not come.
    DataSilence { epoch: u32, serial: u32 },
    /// The data of a DMA transfer has crossed the bus.
    Data { epoch: u32, serial: u32 },
    /// A block for the buffer port has crossed the bus.
    Block { epoch: u32, serial: u32 },
    /// A block from the buffer port has.
    BlockSent { epoch: u32, serial: u32 },
    /// The device is no longer busy.
    NotBusy { serial: u32 },
    /// The device has a task.
    Queued(TaskRef),
    /// A task is ready for the data lines.
    Ready(TaskRef),
    /// Its data has crossed the bus.
    Moved(TaskRef),
    /// A task ends late.
    Late(TaskRef),
    /// The direct command has crossed the line.
    Direct(TaskRef),
    /// A die may be done programming.
    Die(u16),
}

/// A modelled eMMC device with its controller.
#[derive(Debug)]
pub struct Emmc {
    memory: GuestMemory,
    profile: profile::Profile,
    has_engine: bool,
    seed: u64,
    registers: Registers,
    engine: Engine,
    card: Card,
    media: Media,
    cache: Cache,
    events: Events<Event>,
    faults: Injector,
    /// What losses of power did.
    lost: Loss,
    /// When the device finished a task, by its number; the first also a transfer of the host's own.
    done: [u64; 32],
    /// The command on the line, and the transfer under way.
    command: Option<Sent>,
    transfer: Option<Transfer>,
    /// The block in the buffer port, and how much of it was read.
    buffer: Vec<u8>,
    buffer_at: usize,
    /// From when on the command line and the data lines are free.
    command_free: u64,
    data_free: u64,
    /// Numbers of the command on the line, of the transfer, and of what the device is busy with:
    /// events of earlier ones are stale.
    command_serial: u32,
    serial: u32,
    busy_serial: u32,
    /// What must be on the medium before the device is ready again.
    busy_mark: Option<u64>,
    /// The transfer complete interrupt waits for the end of busy.
    waits_busy: bool,
    /// The engine halts when what is on the bus is done.
    halting: bool,
    /// The sampling point was lost.
    detuned: bool,
    /// Counts resets of the controller; an event of an earlier life is stale.
    epoch: u32,
    /// Counts completions that raised no interrupt.
    silent: u64,
    interrupts: u64,
    now: Instant,
}

impl Emmc {
    /// A controller in its power-on state that sees `memory`.
    ///
    /// # Errors
    /// A value of `config` that makes no device.
    pub fn new(mut config: Config, memory: impl Into<GuestMemory>) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            memory: memory.into(),
            profile: config.profile,
            has_engine: config.engine && config.profile.dialect == Dialect::Emmc,
            seed: config.seed,
            registers: Registers::new(&config),
            engine: Engine::new(config.direct),
            media: Media::new(config.profile.timing, config.profile.energy, config.seed),
            cache: Cache::new(config.volatile_cache),
            events: Events::with_capacity(256),
            faults: Injector::new(config.faults.clone(), config.seed),
            card: Card::new(&mut config),
            lost: Loss::default(),
            done: [0; 32],
            command: None,
            transfer: None,
            buffer: Vec::with_capacity(4096),
            buffer_at: 0,
            command_free: 0,
            data_free: 0,
            command_serial: 0,
            serial: 0,
            busy_serial: 0,
            busy_mark: None,
            waits_busy: false,
            halting: false,
            detuned: false,
            epoch: 0,
            silent: 0,
            interrupts: 0,
            now: Instant::START,
        })
    }

    /// The memory the controller sees, to be mapped and unmapped at any time: a transfer that
    /// finds a range gone ends with an ADMA error.
    pub fn memory_mut(&mut self) -> &mut GuestMemory {
        &mut self.memory
    }

    /// Reads the register at `offset` (4-byte aligned) at `now`.
    pub fn read32(&mut self, offset: u32, now: Instant) -> u32 {
        self.advance(now);
        self.read_register(offset)
    }

    /// Writes the register at `offset` (4-byte aligned) at `now`.
    #[inline]
    pub fn write32(&mut self, offset: u32, value: u32, now: Instant) {
        self.advance(now);
        self.write_register(offset, value);
    }

    /// Lets everything happen that is due until `now`. Time never goes back: an earlier `now` is
    /// the present.
    #[inline]
    pub fn advance(&mut self, now: Instant) {
        while let Some((at, event)) = self.events.pop_due(now) {
            self.now = self.now.max(at);
            self.happen(event);
        }
        self.now = self.now.max(now);
    }

    /// The bus resets the controller: its registers are as after power-on. The card keeps its
    /// power.
    pub fn reset(&mut self, now: Instant) {
        self.advance(now);
        self.reset_host();
    }

    /// When the next thing happens by itself.
    #[inline]
    pub fn next_event(&self) -> Option<Instant> {
        self.events.next()
    }

    /// The interrupt line.
    #[inline]
    pub fn line(&self) -> bool {
        self.is_asserted()
    }

    /// Interrupts so far.
    pub fn interrupts(&self) -> u64 {
        self.interrupts
    }

    /// When the device finished the task of this number last; 0 is also a transfer of the host's
    /// own.
    pub fn device_done(&self, task: u16) -> Option<Instant> {
        let nanos = *self.done.get(usize::from(task))?;
        (nanos != 0).then_some(Instant::from_nanos(nanos))
    }

    /// What the card took from its supply until `now`.
    pub fn energy(&self, now: Instant) -> Energy {
        self.media.energy(now.max(self.now).nanos())
    }

    /// What went wrong so far.
    pub fn faults(&self) -> &Injector {
        &self.faults
    }

    /// From now on `plan` says what goes wrong, its opportunities counted from now. What went wrong
    /// before stays counted.
    pub fn arm_faults(&mut self, plan: Plan) {
        self.faults.arm(plan);
    }

    /// What all losses of power so far did to writes that were reported done and not yet safe.
    pub fn lost(&self) -> Loss {
        self.lost
    }

    /// The device needs background operations, and says so in the next response (BKOPS_STATUS 2).
    pub fn need_bkops(&mut self) {
        self.card.set_urgent();
    }

    /// Why this machine could not keep or give the data of a partition, in words, if that happened.
    pub fn store_failure(&self) -> Option<String> {
        let parts = self.card.parts.0.iter().flatten();
        parts.filter_map(|part| part.store.failure()).next().map(Into::into)
    }

    /// The files that had no room for the data of a partition.
    #[cfg(feature = "std")]
    pub fn full_files(&self) -> impl Iterator<Item = FullFile> + '_ {
        self.card.parts.0.iter().flatten().filter_map(|part| part.store.full())
    }

    fn at(&mut self, nanos: u64, event: Event) {
        self.events.push(Instant::from_nanos(nanos), event);
    }

    fn after(&mut self, nanos: u64, event: Event) {
        self.events.push(self.now.after_nanos(nanos), event);
    }

    /// Everything of the controller as after power-on. An eMMC device knows nothing of it; an SD
    /// card has its power from the controller's power control.
    fn reset_host(&mut self) {
        if self.card.sd.is_some() {
            self.restart_card();
        }
        self.epoch = self.epoch.wrapping_add(1);
        self.drop_tasks();
        self.engine.reset();
        self.stop_transfer();
        self.command = None;
        self.halting = false;
        self.registers.power_on();
    }

    /// The card loses its power, or sees RST_n: what was written is safe, everything else is not.
    fn restart_card(&mut self) {
        self.stop_transfer();
        self.busy_mark = None;
        self.busy_serial = self.busy_serial.wrapping_add(1);
        self.detuned = false;
        self.card.take_firmware();
        self.card.take_partitions();
        self.card.power_on(self.now.nanos());
        self.meter_state();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Queued(task) => self.task_queued(task),
            Event::Ready(task) => self.task_ready(task),
            Event::Moved(task) => self.task_moved(task),
            Event::Late(task) => {
                self.complete(task);
                self.pump();
            }
            Event::Direct(task) => self.direct_arrives(task),
            Event::Die(die) => self.die_done(die),
            Event::NotBusy { serial } if serial == self.busy_serial => self.not_busy(),
            Event::Stable { epoch } if epoch == self.epoch => self.stable(),
            Event::ResetDone { epoch } if epoch == self.epoch => self.reset_done(),
            Event::Silence { epoch } if epoch == self.epoch => self.silence(),
            Event::Command { epoch, serial } if self.is_command(epoch, serial) => {
                self.command_arrives();
            }
            Event::DataSilence { epoch, serial } if self.is_transfer(epoch, serial) => {
                self.data_silence();
            }
            Event::Data { epoch, serial } if self.is_transfer(epoch, serial) => {
                self.data_arrives();
            }
            Event::Block { epoch, serial } if self.is_transfer(epoch, serial) => {
                self.block_arrives();
            }
            Event::BlockSent { epoch, serial } if self.is_transfer(epoch, serial) => {
                self.block_sent();
            }
            // An event of what a reset or another command ended.
            _ => {}
        }
    }

    fn is_command(&self, epoch: u32, serial: u32) -> bool {
        (epoch, serial) == (self.epoch, self.command_serial)
    }

    fn is_transfer(&self, epoch: u32, serial: u32) -> bool {
        (epoch, serial) == (self.epoch, self.serial)
    }
}

impl Model for Emmc {
    #[inline]
    fn read32(&mut self, offset: u32, now: Instant) -> u32 {
        Self::read32(self, offset, now)
    }

    #[inline]
    fn write32(&mut self, offset: u32, value: u32, now: Instant) {
        Self::write32(self, offset, value, now);
    }

    #[inline]
    fn advance(&mut self, now: Instant) {
        Self::advance(self, now);
    }

    #[inline]
    fn next_event(&self) -> Option<Instant> {
        Self::next_event(self)
    }

    #[inline]
    fn interrupt(&self) -> bool {
        self.line()
    }

    #[inline]
    fn silent_completions(&self) -> u64 {
        self.silent
    }

    #[inline]
    fn device_done(&self, _: u16, slot: u16) -> Option<Instant> {
        Self::device_done(self, slot)
    }
}

impl Messages for Emmc {}

impl MixedModel for Emmc {
    fn read_mixed(&mut self, offset: u32, width: u8, now: Instant) -> u64 {
        self.advance(now);
        self.read_mixed_register(offset, width)
    }

    fn write_mixed(&mut self, offset: u32, width: u8, value: u64, now: Instant) {
        self.advance(now);
        self.write_mixed_register(offset, width, value);
    }
}
