//! A UFS device and its host controller.
//!
//! Theory. [`Ufs`] is one state machine with three inputs - register reads, register writes, the
//! passing of time - and three outputs: register values, DMA, the interrupt line. It has no clock:
//! every input carries `now`, and [`Ufs::next_event`] says when it next has something to do.
//!
//! It consists of three parts: a controller (`controller`: registers and queues), a device
//! (`device`) and what is between them (`exchange`: link, commands, memory, time, faults). Neither
//! calls the other; `pair` passes the results of one on to the other.
//!
//! The path of a command through the files of this module: a doorbell (`sdq` or `mcq`) makes the
//! controller fetch a descriptor and its UPIU into a task (`task`); `flow` examines the UPIU and
//! decides at once *what* will happen (`scsi` for commands, `query` for queries); `media` decides
//! *when*, through one or two events; at the last of them data is copied (`transfer`), commands
//! that are neither reads nor writes are carried out (`control`), the answer is written and the
//! slot released. Reads take their data at that last moment, and writes are in the store from that
//! moment on: a command that is aborted earlier leaves no trace.
//!
//! Everything the host writes is hostile. An address outside DMA memory, a length that does not fit
//! or an invalid table ends the command with the overall command status that the specification
//! defines for it; the work for one event is bounded by the largest transfer.

mod agenda;
mod aggregation;
mod answer;
mod backend;
pub mod config;
mod control;
mod controller;
mod crypto;
mod descriptors;
mod device;
mod exceptions;
mod exchange;
mod firmware;
mod flow;
mod inject;
mod journal;
mod link;
mod lu;
mod mcq;
mod order;
mod pair;
mod parameters;
mod power;
pub mod profile;
mod protection;
mod provision;
mod query;
mod readiness;
mod registers;
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
#[cfg(feature = "std")]
use alloc::sync::Arc;

use flysch_api::machine::{GuestMemory, Instant};
use flysch_wire::ufs::query::CurrentPowerMode;

pub use config::{BLOCK_MAX, BLOCK_MIN, Config, ConfigError, UnitConfig};
pub use crypto::CRYPTO_SLOTS_MAX;
pub use firmware::firmware_image;
#[cfg(feature = "std")]
pub use threaded::Threaded;

use crate::faults::{Injector, Plan};
use crate::machine::{Messages, Model};
pub use crate::media::cache::Loss;
use crate::media::energy::Energy;
use crate::number::Number;
#[cfg(feature = "std")]
use crate::store::FullFile;
use crate::store::StoreError;
use controller::Controller;
use device::Device;
use exchange::Exchange;
#[cfg(feature = "std")]
use mcq::Queues;
use pair::Pair;

/// Transfer request slots of the single doorbell.
const SLOTS: usize = 32;

/// A modelled UFS device with its host controller.
#[derive(Debug)]
pub struct Ufs {
    pair: Pair,
}

impl Ufs {
    /// A device in its power-on state whose controller sees `memory`.
    ///
    /// # Errors
    /// If `config` is invalid.
    pub fn new(config: Config, memory: impl Into<GuestMemory>) -> Result<Self, ConfigError> {
        config.check()?;
        let exchange = Exchange::new(&config, memory.into());
        let controller = Controller::new(&config);
        Ok(Self { pair: Pair { exchange, controller, device: Device::new(config) } })
    }

    /// The memory that the controller sees, to be mapped and unmapped at any time: a transfer that
    /// no longer finds a range ends with a bus error or with the corresponding overall command
    /// status.
    pub fn memory_mut(&mut self) -> &mut GuestMemory {
        &mut self.pair.exchange.memory
    }

    /// Reads the register at `offset` (4-byte aligned) at `now`.
    pub fn read32(&mut self, offset: u32, now: Instant) -> u32 {
        self.advance(now);
        self.pair.read(offset)
    }

    /// Writes the register at `offset` (4-byte aligned) at `now`.
    pub fn write32(&mut self, offset: u32, value: u32, now: Instant) {
        self.advance(now);
        self.pair.write(offset, value);
    }

    /// Lets everything happen that is due by `now`. Time never goes backwards: an earlier `now` is
    /// the present.
    #[inline]
    pub fn advance(&mut self, now: Instant) {
        while let Some(event) = self.pair.exchange.agenda.take_due(now) {
            self.pair.happen(event);
        }
        self.pair.exchange.agenda.pass(now);
    }

    /// The bus resets the controller: its registers are as after power-on. The device notices when
    /// the link starts up again, and keeps its power.
    pub fn reset(&mut self, now: Instant) {
        self.advance(now);
        self.pair.exchange.crypto.clear();
        self.pair.reset_controller();
    }

    /// When the model next does something by itself.
    #[inline]
    pub fn next_event(&self) -> Option<Instant> {
        self.pair.exchange.agenda.next()
    }

    /// The interrupt line: level, active while an enabled cause is set.
    #[inline]
    pub fn interrupt(&self) -> bool {
        self.pair.controller.registers.interrupt()
    }

    /// Number of completions posted while the host had masked their interrupt.
    pub fn silent_completions(&self) -> u64 {
        self.pair.controller.registers.told.silent
    }

    /// Number of interrupts so far: activations of the line, and messages.
    pub fn interrupts(&self) -> u64 {
        self.pair.controller.registers.told.interrupts()
    }

    /// When the device finished the command last completed in `slot` of `queue`: in single
    /// doorbell mode queue 0 and the slot, in multi-circular queue mode the submission queue and
    /// the task tag.
    pub fn device_done(&self, queue: u16, slot: u16) -> Option<Instant> {
        device_done_in(&self.pair.controller.done, queue, slot)
    }

    /// The table behind [`device_done`](Self::device_done), for a host in another thread.
    #[cfg(feature = "std")]
    fn done_table(&self) -> Arc<[Number]> {
        Arc::clone(&self.pair.controller.done)
    }

    /// The energy that the device has taken until `now`.
    pub fn energy(&self, now: Instant) -> Energy {
        let now = now.nanos().max(self.pair.exchange.now());
        self.pair.device.backend.media.energy(now)
    }

    /// The faults injected so far.
    pub fn faults(&self) -> &Injector {
        &self.pair.exchange.faults
    }

    /// Replaces the fault plan, whose opportunities are counted from now on. Earlier faults stay
    /// counted.
    pub fn arm_faults(&mut self, plan: Plan) {
        self.pair.exchange.faults.arm(plan);
    }

    /// The total effect of power losses so far on writes that were reported done but not yet safe.
    pub fn lost(&self) -> Loss {
        self.pair.device.lost
    }

    /// The power mode of the device.
    pub fn power_mode(&self) -> CurrentPowerMode {
        self.pair.device.readiness.mode()
    }

    /// Bytes that were unmapped and not yet removed by a purge.
    pub fn stale_bytes(&self) -> u64 {
        self.pair.device.upkeep.stale_bytes()
    }

    /// Why this machine failed to store or return the data of a unit, in words, if it did.
    pub fn store_failure(&self) -> Option<String> {
        let units = self.pair.device.units.list.iter().flatten();
        units.filter_map(|unit| unit.store.failure()).next().map(Into::into)
    }

    /// The files that had no room for the data of a unit.
    #[cfg(feature = "std")]
    pub fn full_files(&self) -> impl Iterator<Item = FullFile> + '_ {
        self.pair.device.units.list.iter().flatten().filter_map(|unit| unit.store.full())
    }

    /// The link is lost: commands in the device are never answered.
    pub fn lose_link(&mut self) {
        self.pair.lose_link();
    }

    /// Power is lost: everything volatile is lost, unflushed writes may vanish or tear.
    ///
    /// The controller keeps its power; it sees the link go down. Nothing works until
    /// [`restore_power`](Self::restore_power) and a new link start-up.
    ///
    /// # Errors
    /// A backing file could not be put into the state the loss leaves.
    pub fn cut_power(&mut self) -> Result<Loss, StoreError> {
        self.pair.cut_power()
    }

    /// Power comes back after [`cut_power`](Self::cut_power): a new configuration descriptor takes
    /// effect now.
    pub fn restore_power(&mut self) {
        self.pair.restore_power();
    }

    /// RST_n: the device starts afresh and the link goes down; buffered writes survive.
    pub fn reset_hardware(&mut self) {
        self.pair.reset_hardware();
    }

    /// Ages the device: from now on it has `bytes` more garbage to collect in the background, as if
    /// that much had been written.
    pub fn owe_background_work(&mut self, bytes: u64) {
        let now = self.pair.exchange.now();
        self.pair.device.backend.background.wrote(bytes);
        self.pair.device.update_alert(now);
    }

    /// Sets the case temperature, °C: beyond the boundaries (85 and -25) exception events follow.
    pub fn set_temperature(&mut self, celsius: i16) {
        let now = self.pair.exchange.now();
        self.pair.device.set_temperature(celsius, now);
    }

    /// Whether user data needs the room of the WriteBooster buffer: the device then recommends a
    /// smaller one.
    pub fn want_space(&mut self, wants: bool) {
        let now = self.pair.exchange.now();
        self.pair.device.backend.write_booster.want_space(wants);
        self.pair.device.update_alert(now);
    }
}

/// The state mirrored by the threaded machine.
#[cfg(feature = "std")]
impl Ufs {
    fn uses_queues(&self) -> bool {
        self.pair.controller.registers.mode.qt()
    }

    fn queues(&self) -> &Queues {
        &self.pair.controller.queues
    }

    fn queues_mut(&mut self) -> &mut Queues {
        &mut self.pair.controller.queues
    }

    /// The queues whose completions raise messages, one bit each.
    fn messaging_queues(&self) -> u32 {
        let controller = &self.pair.controller;
        if controller.registers.mode.esie() { controller.queues.messaging() } else { 0 }
    }

    /// The host has moved the head of a completion queue and the tail of a submission queue.
    fn move_queue(&mut self, number: usize, cqhp: u32, sqtp: u32, now: Instant) {
        self.advance(now);
        let controller = &mut self.pair.controller;
        if number < controller.queues.len() && controller.registers.enabled {
            let moved = controller.queues.move_head(number, cqhp);
            self.pair.act(moved);
            let rung = self.pair.controller.queues.move_tail(number, sqtp);
            self.pair.act(rung);
        }
    }
}

/// [`Ufs::device_done`] in the table of a model.
fn device_done_in(done: &[Number], queue: u16, slot: u16) -> Option<Instant> {
    if slot > 0xFF {
        return None;
    }
    let nanos = done.get(usize::from(queue) << 8 | usize::from(slot))?.get();
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
        let controller = &self.pair.controller;
        if controller.registers.has_messages { controller.queues.len().max(1) as u16 } else { 1 }
    }

    #[inline]
    fn take_messages(&mut self) -> u64 {
        self.pair.controller.registers.told.take_messages()
    }
}
