//! An NVMe controller and its namespaces.
//!
//! Theory. [`Nvme`] is one state machine with three inputs - register reads, register writes, the
//! passing of time - and three outputs: register values, DMA, interrupts. It has no clock: every
//! input carries `now`, and [`Nvme::next_event`] says when it next has something to do.
//!
//! The path of a command through the files of this module: a doorbell (`queue`) makes the
//! controller fetch entries into tasks (`task`); `flow` has it decided at once *what* will happen
//! (`device`); the shared media decides *when*, through one or two events; at the last of them data
//! is copied (`transfer`), admin commands are carried out (`admin`), and the completion is posted.
//! Reads take their data at that last moment, and writes are in the store from that moment on: a
//! command that is aborted earlier leaves no trace.
//!
//! [`Nvme`] itself follows each command and handles what concerns all parts: resets, faults, fatal
//! controller errors. State that only one part needs is an object of its own: the queues (`queue`),
//! the flash and its write buffer (`backend`), pending events (`events`), the registers
//! (`controller`), and behind them the device with its namespaces (`device`, `spaces`), features,
//! logs, firmware and long operations.
//!
//! Everything the host writes is hostile. An address outside DMA memory, an invalid doorbell or an
//! invalid list ends in the status or event that the specification defines for it; queues that the
//! controller cannot reach end in CSTS.CFS; the work for one event is bounded by the largest
//! transfer.

mod admin;
mod backend;
mod buffer;
mod clock;
pub mod config;
mod controller;
mod copy;
mod device;
mod events;
mod features;
mod firmware;
mod flow;
mod identify;
mod inject;
mod link;
mod logs;
mod namespace;
mod power;
pub mod profile;
mod queue;
mod reservation;
mod ring;
mod spaces;
mod task;
mod transfer;
mod upkeep;
mod zone;

use alloc::string::String;

use flysch_api::machine::{GuestMemory, Instant};

pub use buffer::{CMB_MAX, CMB_OFFSET};
pub use config::{Config, ConfigError, NamespaceConfig, ZoneConfig};
pub use firmware::firmware_image;
pub(crate) use firmware::revision_of;
pub use identify::VENDOR;
pub use link::Link;

use crate::faults::{Injector, Plan};
use crate::machine::{Messages, Model};
pub use crate::media::cache::Loss;
use crate::media::energy::Energy;
use crate::software::Processor;
#[cfg(feature = "std")]
use crate::store::FullFile;
use backend::Backend;
use clock::{Clock, Event};
use controller::Registers;
use device::Device;
use queue::Queues;
use ring::Finished;
use task::Tasks;

/// A modelled NVMe controller with its namespaces.
#[derive(Debug)]
pub struct Nvme {
    memory: GuestMemory,
    registers: Registers,
    queues: Queues,
    tasks: Tasks,
    backend: Backend,
    /// The software of a published host, if its time is to be spent.
    processor: Option<Processor>,
    device: Device,
    clock: Clock,
    faults: Injector,
    /// The total effect of power losses.
    lost: Loss,
    finished: Finished,
    /// Copies in progress.
    copies: copy::Copies,
    /// Controller memory that the host can access.
    buffer: buffer::Buffer,
    /// Events and the requests that wait for them.
    told: events::Told,
}

impl Nvme {
    /// A controller in its power-on state that sees `memory`.
    ///
    /// # Errors
    /// If `config` is invalid.
    pub fn new(config: Config, memory: impl Into<GuestMemory>) -> Result<Self, ConfigError> {
        config.check()?;
        let commands = usize::from(config.commands);
        Ok(Self {
            registers: Registers::new(&config),
            queues: Queues::new(&config),
            tasks: Tasks::new(commands),
            backend: Backend::new(&config),
            processor: config.software.map(Processor::new),
            clock: Clock::with_capacity(2 * commands + 64),
            faults: Injector::new(config.faults.clone(), config.seed),
            lost: Loss::default(),
            finished: Finished::new(config.queues),
            copies: copy::Copies::default(),
            buffer: buffer::Buffer::new(config.controller_memory),
            told: events::Told::default(),
            device: Device::new(config),
            memory: memory.into(),
        })
    }

    /// Size of the controller memory buffer, bytes; it is at [`CMB_OFFSET`] of the registers.
    pub fn controller_memory(&self) -> u32 {
        self.buffer.bytes()
    }

    /// The memory that the controller sees, to be mapped and unmapped at any time: a transfer that
    /// no longer finds a range ends with a data transfer error, a queue that is gone with CSTS.CFS.
    pub fn memory_mut(&mut self) -> &mut GuestMemory {
        &mut self.memory
    }

    /// Lets everything happen that is due by `now`. Time never goes backwards: an earlier `now` is
    /// the present.
    #[inline]
    pub fn advance(&mut self, now: Instant) {
        while let Some(event) = self.clock.take_due(now) {
            self.happen(event);
        }
        self.clock.pass(now);
    }

    /// The bus resets the controller: its registers are as after power-on. The contents of the
    /// namespaces and of the write buffer stay.
    pub fn reset(&mut self, now: Instant) {
        self.advance(now);
        self.reset_controller();
        self.registers.power_on();
        self.buffer.power_on(&mut self.memory);
    }

    /// When the model next does something by itself.
    #[inline]
    pub fn next_event(&self) -> Option<Instant> {
        self.clock.next()
    }

    /// The interrupt line: level, active while queues with interrupts hold completions.
    #[inline]
    pub fn line(&self) -> bool {
        self.queues.is_asserted() && !self.registers.is_line_masked()
    }

    /// Takes a vector that was raised since the last call; each is returned once.
    pub fn take_vector(&mut self) -> Option<u16> {
        self.queues.interrupts.take_vector()
    }

    /// Number of completions posted to queues without interrupts.
    pub fn silent_completions(&self) -> u64 {
        self.queues.interrupts.silent
    }

    /// Number of interrupts so far.
    pub fn interrupts(&self) -> u64 {
        self.queues.interrupts.raised
    }

    /// When the device finished the command last completed in `queue` whose id has `slot` in its
    /// low ten bits.
    pub fn device_done(&self, queue: u16, slot: u16) -> Option<Instant> {
        self.finished.at(queue, slot)
    }

    /// The energy that the drive has taken until `now`.
    pub fn energy(&self, now: Instant) -> Energy {
        let now = now.max(self.clock.now()).nanos();
        let mut media = self.backend.media.clone_meter();
        self.device.power.gone_to(self.device.features.apst(), now, |level, from, to| {
            media.slept(level, from, to);
        });
        media.read(now)
    }

    /// The faults injected so far.
    pub fn faults(&self) -> &Injector {
        &self.faults
    }

    /// Replaces the fault plan, whose opportunities are counted from now on. Earlier faults stay
    /// counted.
    pub fn arm_faults(&mut self, plan: Plan) {
        self.faults.arm(plan);
    }

    /// Sets the composite temperature, kelvin; beyond the thresholds an event follows.
    pub fn set_temperature(&mut self, kelvin: u16) {
        self.device.health.temperature = kelvin;
        self.look_at_health();
    }

    /// The total effect of power losses so far on writes that were reported done but not yet safe.
    pub fn lost(&self) -> Loss {
        self.lost
    }

    /// Why this machine failed to store or return the data of a namespace, in words, if it did.
    pub fn store_failure(&self) -> Option<String> {
        self.device.spaces.iter().find_map(|space| space.store.failure()).map(Into::into)
    }

    /// The files that had no room for the data of a namespace.
    #[cfg(feature = "std")]
    pub fn full_files(&self) -> impl Iterator<Item = FullFile> + '_ {
        self.device.spaces.iter().filter_map(|space| space.store.full())
    }

    fn happen(&mut self, event: Event) {
        let life = self.registers.epoch;
        match event {
            Event::Ready(task) => self.send_data(task),
            Event::Complete(task) => self.complete(task),
            Event::Arrived(task, len) => self.data_arrived(task, len),
            Event::Accepted(task) => self.accepted(task),
            Event::Die(die) => self.die_done(die),
            Event::Upkeep { number } => self.upkeep_done(number),
            Event::Follows { epoch, ready } if epoch == life => {
                self.registers.follow(ready);
                self.device.health.is_clean &= !ready;
            }
            Event::ShutDown { epoch } if epoch == life => self.shut_down(),
            Event::Activated { epoch } if epoch == life => self.firmware_runs(),
            // An event of an earlier controller life, which a reset has ended.
            _ => {}
        }
    }
}

impl Model for Nvme {
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

    /// With more than one vector messages are sent, and the line is not used.
    #[inline]
    fn interrupt(&self) -> bool {
        self.queues.vectors == 1 && self.line()
    }

    #[inline]
    fn silent_completions(&self) -> u64 {
        Self::silent_completions(self)
    }

    #[inline]
    fn device_done(&self, queue: u16, slot: u16) -> Option<Instant> {
        Self::device_done(self, queue, slot)
    }
}

impl Messages for Nvme {
    fn vectors(&self) -> u16 {
        self.queues.vectors
    }

    #[inline]
    fn take_messages(&mut self) -> u64 {
        match self.queues.vectors {
            1 => 0,
            _ => self.queues.interrupts.take_all(),
        }
    }
}
