//! A UFS device and its host controller.
//!
//! Theory. [`Ufs`] is one state machine with three inputs - register reads, register writes, the
//! passing of time - and three outputs: register values, DMA, the interrupt line. It has no clock:
//! every input carries `now`, and [`Ufs::next_event`] says when it next has something to do.
//!
//! One command, through the files of this module: a doorbell (`sdq` or `mcq`) makes the
//! controller fetch a descriptor and its UPIU into a task (`task`); `flow` looks at the UPIU
//! and decides at once *what* will happen (`scsi` for commands, `query` for queries);
//! `media` decides *when*, through one or two events; at the last of them data is copied
//! (`transfer`), the answer is written and the slot given back. Reads take their data at that
//! last moment, writes are in the store from that moment on: a command that is aborted earlier
//! leaves no trace.
//!
//! Everything the host writes is hostile. An address outside DMA memory, a length that does not
//! fit, a table that makes no sense ends the command with the overall command status the
//! specification has for it; the work done for one event is bounded by the largest transfer.

mod aggregation;
pub mod config;
mod controller;
mod crypto;
mod descriptors;
mod device;
mod firmware;
mod flow;
mod inject;
mod journal;
mod link;
mod lu;
mod mcq;
mod order;
mod parameters;
mod power;
pub mod profile;
mod protection;
mod provision;
mod query;
mod rpmb;
mod scsi;
mod scsi_data;
mod sdq;
mod security;
mod sense;
mod task;
#[cfg(feature = "std")]
mod threaded;
mod transfer;
mod uic;
mod upkeep;
mod writebooster;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use flysch_api::machine::{GuestMemory, Instant};
use flysch_wire::ufs::query::CurrentPowerMode;

pub use config::{Config, ConfigError, UnitConfig};
pub use crypto::CRYPTO_SLOTS_MAX;
pub use firmware::firmware_image;
#[cfg(feature = "std")]
pub use threaded::Threaded;

use crate::events::Events;
use crate::faults::{Injector, Plan};
use crate::machine::{Messages, Model};
use crate::media::Media;
pub use crate::media::cache::Loss;
use crate::media::energy::Energy;
use crate::software::Processor;
#[cfg(feature = "std")]
use crate::store::FullFile;
use controller::Registers;
use device::Device;
use link::Link;
use mcq::Queue;
use profile::Profile;
use task::{TaskRef, Tasks};

/// Transfer request slots of the single doorbell.
const SLOTS: usize = 32;
/// Longest data of a command that is neither a read nor a write, bytes.
const SCRATCH: usize = 64 << 10;

/// What will happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The firmware has a command and looks what it needs.
    Accepted(TaskRef),
    /// The first data of a read is ready to be sent.
    Ready(TaskRef),
    /// The data of a write, so many bytes, is in the write buffer.
    Arrived(TaskRef, u32),
    /// A command ends.
    Complete(TaskRef),
    /// A die may be done programming.
    Die(u16),
    /// HCE has come up.
    Enabled { epoch: u32 },
    /// HCE falls back, to come up again.
    Glitch { epoch: u32 },
    /// Power comes back.
    PowerBack,
    /// The UIC command under way ends.
    Uic { epoch: u32 },
    /// The power mode change or hibernate that a UIC command began ends.
    LinkChanged { epoch: u32 },
    /// A task management request ends.
    TaskManagement { epoch: u32, slot: u8 },
    /// Auto-hibern8 may set in.
    Idle,
    /// A WriteBooster buffer may have its new size.
    Resize,
    /// The interrupt aggregation timer of a completion queue, or of the single doorbell.
    Aggregation { epoch: u32, queue: Option<u8> },
}

/// A modelled UFS device with its host controller.
#[derive(Debug)]
pub struct Ufs {
    memory: GuestMemory,
    profile: Profile,
    seed: u64,
    registers: Registers,
    crypto: crypto::Engine,
    link: Link,
    queues: Vec<Queue>,
    /// The queue whose turn it is to be fetched from.
    turn: usize,
    tasks: Tasks,
    media: Media,
    /// The software of a published host, if it is to be spent.
    processor: Option<Processor>,
    device: Device,
    events: Events<Event>,
    faults: Injector,
    /// What losses of power did.
    lost: Loss,
    /// When the device finished, by slot (single doorbell) or by queue and task tag.
    done: Arc<[AtomicU64]>,
    scratch: Vec<u8>,
    /// An [`Event::Idle`] is on its way.
    idle_awaited: bool,
    /// Counts controller resets; an event of an earlier life is stale.
    epoch: u32,
    /// Counts completions posted to a host that has masked the interrupt.
    silent: u64,
    /// Messages sent and not yet taken, a bit for each vector, and how many there were.
    messages: u64,
    messages_sent: u64,
    now: Instant,
}

impl Ufs {
    /// A device in its power-on state whose controller sees `memory`.
    ///
    /// # Errors
    /// A value of `config` that makes no device.
    pub fn new(config: Config, memory: impl Into<GuestMemory>) -> Result<Self, ConfigError> {
        config.check()?;
        let tasks = SLOTS.max(config.active_commands as usize);
        let queues = config.queues as usize;
        Ok(Self {
            profile: config.profile,
            seed: config.seed,
            registers: Registers::new(&config),
            crypto: crypto::Engine::new(config.crypto_slots),
            link: Link::new(config.profile.gear_max, config.profile.lanes),
            queues: (0..queues).map(|_| Queue::default()).collect(),
            turn: 0,
            tasks: Tasks::new(tasks),
            media: Media::new(config.profile.timing, config.profile.energy, config.seed),
            processor: config.software.map(Processor::new),
            events: Events::with_capacity(2 * tasks + 64),
            faults: Injector::new(config.faults.clone(), config.seed),
            lost: Loss::default(),
            done: (0..SLOTS.max(queues << 8)).map(|_| AtomicU64::new(0)).collect(),
            scratch: vec![0; SCRATCH],
            idle_awaited: false,
            epoch: 0,
            silent: 0,
            messages: 0,
            messages_sent: 0,
            now: Instant::START,
            device: Device::new(config),
            memory: memory.into(),
        })
    }

    /// The memory the controller sees, to be mapped and unmapped at any time: a transfer that
    /// finds a range gone ends with a bus error or with the overall status that says so.
    pub fn memory_mut(&mut self) -> &mut GuestMemory {
        &mut self.memory
    }

    /// Reads the register at `offset` (4-byte aligned) at `now`.
    pub fn read32(&mut self, offset: u32, now: Instant) -> u32 {
        self.advance(now);
        self.read_register(offset)
    }

    /// Writes the register at `offset` (4-byte aligned) at `now`.
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

    /// The bus resets the controller: its registers are as after power-on. The device notices when
    /// the link starts up again, and keeps its power.
    pub fn reset(&mut self, now: Instant) {
        self.advance(now);
        self.crypto.clear();
        self.reset_controller();
    }

    /// When the next thing happens by itself.
    #[inline]
    pub fn next_event(&self) -> Option<Instant> {
        self.events.next()
    }

    /// The interrupt line: level, active while an enabled cause is set.
    #[inline]
    pub fn interrupt(&self) -> bool {
        self.registers.interrupt()
    }

    /// How many completions were posted whose interrupt the host has masked.
    pub fn silent_completions(&self) -> u64 {
        self.silent
    }

    /// Interrupts so far: how often the line went up, and messages.
    pub fn interrupts(&self) -> u64 {
        self.registers.raised + self.messages_sent
    }

    /// When the device finished the command last completed in `slot` of `queue`: in single
    /// doorbell mode queue 0 and the slot, in multi-circular queue mode the submission queue and
    /// the task tag.
    pub fn device_done(&self, queue: u16, slot: u16) -> Option<Instant> {
        device_done_in(&self.done, queue, slot)
    }

    /// The table behind [`device_done`](Self::device_done), for a host in another thread.
    #[cfg(feature = "std")]
    fn done_table(&self) -> Arc<[AtomicU64]> {
        Arc::clone(&self.done)
    }

    /// What the device took from its supply until `now`.
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

    /// The power mode of the device.
    pub fn power_mode(&self) -> CurrentPowerMode {
        self.device.power.mode()
    }

    /// Bytes that were unmapped and that no purge has removed yet.
    pub fn stale_bytes(&self) -> u64 {
        self.device.upkeep.stale_bytes()
    }

    /// Why this machine could not keep or give the data of a unit, in words, if that happened.
    pub fn store_failure(&self) -> Option<String> {
        let units = self.device.units.iter().flatten();
        units.filter_map(|unit| unit.store.failure()).next().map(Into::into)
    }

    /// The files that had no room for the data of a unit.
    #[cfg(feature = "std")]
    pub fn full_files(&self) -> impl Iterator<Item = FullFile> + '_ {
        self.device.units.iter().flatten().filter_map(|unit| unit.store.full())
    }

    fn at(&mut self, nanos: u64, event: Event) {
        self.events.push(Instant::from_nanos(nanos), event);
    }

    fn after(&mut self, nanos: u64, event: Event) {
        self.events.push(self.now.after_nanos(nanos), event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Ready(task) => self.send_data(task),
            Event::Complete(task) => self.complete(task),
            Event::Arrived(task, len) => self.data_arrived(task, len),
            Event::Accepted(task) => self.accepted(task),
            Event::Die(die) => self.die_done(die),
            Event::Idle => self.idle(),
            Event::Resize => self.resize_booster(),
            Event::PowerBack => self.restore_power(),
            Event::Enabled { epoch } if epoch == self.epoch => self.enabled(),
            Event::Glitch { epoch } if epoch == self.epoch => self.glitch(),
            Event::Uic { epoch } if epoch == self.epoch => self.finish_uic(),
            Event::LinkChanged { epoch } if epoch == self.epoch => self.link_changed(),
            Event::TaskManagement { epoch, slot } if epoch == self.epoch => {
                self.manage_tasks(slot);
            }
            Event::Aggregation { epoch, queue } if epoch == self.epoch => {
                self.aggregation_expired(queue);
            }
            // An event of a controller life that a reset ended.
            _ => {}
        }
    }
}

/// [`Ufs::device_done`] in the table of a model.
fn device_done_in(done: &[AtomicU64], queue: u16, slot: u16) -> Option<Instant> {
    if slot > 0xFF {
        return None;
    }
    let nanos = done.get(usize::from(queue) << 8 | usize::from(slot))?.load(Ordering::Relaxed);
    (nanos != 0).then_some(Instant::from_nanos(nanos))
}

impl Model for Ufs {
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
        Self::interrupt(self)
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

impl Messages for Ufs {
    fn vectors(&self) -> u16 {
        if self.registers.has_messages { self.queues.len().max(1) as u16 } else { 1 }
    }

    #[inline]
    fn take_messages(&mut self) -> u64 {
        core::mem::take(&mut self.messages)
    }
}
