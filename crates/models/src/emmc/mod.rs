//! An eMMC device, or an SD card, and its SD host controller with a command queueing engine.
//!
//! Theory. [`Emmc`] is one state machine with three inputs - register reads, register writes, the
//! passing of time - and three outputs: register values, DMA, interrupts. It has no clock: every
//! input carries `now`, and [`Emmc::next_event`] says when it next has something to do.
//!
//! Two ways lead to the card. A write of the command register puts one command onto the line
//! (`host`); when it has crossed, the card carries it out (`card`), and its data follows over the
//! data lines. A doorbell gives a task to the engine (`engine`, `tasks`), which sends it to the
//! card and gives the data lines to one task after the other as they become ready. Both share the
//! bus (`lines`): one command line, and data lines that carry one direction at a time, at the rate
//! that lines, clock and edges make. What lies behind them - firmware, NAND, write buffer - is the
//! shared media.
//!
//! [`Emmc`] itself passes a step on (`flow`): it knows which part has to hear of what another one
//! did - resets, the end of busy, room in the write buffer - and what takes the power (`inject`).
//! The state is in its parts: the host controller with its registers (`controller`), its command
//! and its transfer; the engine with its tasks; the device (`device`) with the card, its flash and
//! who waits for that (`backend`); the present and what will happen (`clock`). The card has its
//! partitions (`parts`), EXT_CSD (`ext_csd`), protected groups (`protection`), RPMB (`rpmb`) and
//! the voltage of its lines (`signal`) as objects, and what only SD cards have (`sd`).
//!
//! Data crosses only while host and card use the bus the same way: the same lines and edges, a
//! clock the card's timing allows, a sampling point where one is needed; else there are CRC
//! errors.
//!
//! Everything the host writes is hostile. A descriptor that makes no sense, an address outside
//! DMA memory, a command the state does not allow end in the status bit the specification has for
//! it; the work done for one event is bounded by the largest transfer.

mod backend;
mod card;
mod clock;
pub mod config;
mod controller;
mod device;
mod engine;
mod erase;
mod ext_csd;
mod flow;
mod host;
mod inject;
mod lines;
mod parts;
pub mod profile;
mod protection;
mod provision;
mod rpmb;
mod sd;
mod signal;
mod tasks;
mod transfer;

use alloc::string::String;

use flysch_api::machine::{GuestMemory, Instant};
use flysch_wire::mmc::cqhci;
use flysch_wire::mmc::sdhci::{self as reg, Command};

pub use config::{Config, ConfigError};
pub use controller::{ENGINE, WINDOW};

use crate::faults::{Injector, Plan};
use crate::machine::{Messages, MixedModel, Model};
pub use crate::media::cache::Loss;
use crate::media::energy::Energy;
#[cfg(feature = "std")]
use crate::store::FullFile;
use crate::store::Store;
use clock::{Clock, Event};
use device::Device;
use engine::Engine;
use flow::engine_register;
use host::Host;

/// A modelled eMMC device with its controller.
#[derive(Debug)]
pub struct Emmc {
    memory: GuestMemory,
    host: Host,
    engine: Engine,
    device: Device,
    clock: Clock,
    faults: Injector,
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
            host: Host::new(&config),
            engine: Engine::new(&config),
            clock: Clock::with_capacity(256),
            faults: Injector::new(config.faults.clone(), config.seed),
            device: Device::new(&mut config),
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
        while let Some(event) = self.clock.take_due(now) {
            self.happen(event);
        }
        self.clock.pass(now);
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
        self.clock.next()
    }

    /// The interrupt line.
    #[inline]
    pub fn line(&self) -> bool {
        self.host.registers.is_asserted(self.engine.is_asserted())
    }

    /// Interrupts so far.
    pub fn interrupts(&self) -> u64 {
        self.host.interrupts() + self.engine.interrupts()
    }

    /// When the device finished the task of this number last; 0 is also a transfer of the host's
    /// own.
    pub fn device_done(&self, task: u16) -> Option<Instant> {
        self.device.done_at(task)
    }

    /// What the card took from its supply until `now`.
    pub fn energy(&self, now: Instant) -> Energy {
        self.device.energy(now.max(self.clock.now()))
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
        self.device.lost()
    }

    /// The device needs background operations, and says so in the next response (BKOPS_STATUS 2).
    pub fn need_bkops(&mut self) {
        self.device.card.ext_csd.set_urgent(true);
    }

    /// Why this machine could not keep or give the data of a partition, in words, if that happened.
    pub fn store_failure(&self) -> Option<String> {
        self.device.card.parts.stores().find_map(Store::failure).map(Into::into)
    }

    /// The files that had no room for the data of a partition.
    #[cfg(feature = "std")]
    pub fn full_files(&self) -> impl Iterator<Item = FullFile> + '_ {
        self.device.card.parts.stores().filter_map(Store::full)
    }

    fn happen(&mut self, event: Event) {
        let (backend, clock) = (&mut self.device.backend, &mut self.clock);
        let (host, engine, faults) = (&mut self.host, &mut self.engine, &mut self.faults);
        match event {
            Event::Queued(task) if engine.is_current(task) => self.task_queued(task),
            Event::Ready(task) if engine.is_current(task) => {
                engine.ready(task, host, backend, clock);
            }
            Event::Moved(task) if engine.is_current(task) => self.task_moved(task),
            Event::Late(task) => {
                engine.complete(task, &mut self.device, clock, faults);
                engine.pump(host, &mut self.device.backend, clock);
            }
            Event::Direct(task) if engine.is_current(task) => self.direct_arrives(task),
            Event::Die(die) => self.die_done(die),
            Event::NotBusy { serial } if self.device.is_busy_with(serial) => self.not_busy(),
            Event::Stable { epoch } if host.is_current(epoch) => {
                host.registers.stable();
                self.device.meter(host.registers.drives().0, clock.nanos());
            }
            Event::ResetDone { epoch } if host.is_current(epoch) => host.registers.reset_done(),
            Event::Silence { epoch } if host.is_current(epoch) => host.silence(),
            Event::Command { serial } => {
                if let Some(sent) = host.sent(serial) {
                    self.command_arrives(sent);
                }
            }
            Event::DataSilence { serial } if host.is_transfer(serial) => host.data_silence(),
            Event::Data { serial } if host.is_transfer(serial) => {
                let (device, now) = (&mut self.device, clock.now());
                let ends = host.data_arrives(&self.memory, device, faults, now);
                if ends {
                    self.end_data();
                }
            }
            Event::Block { serial } if host.is_transfer(serial) => {
                host.block_arrives(&mut self.device, faults, clock.now());
            }
            Event::BlockSent { serial } if host.is_transfer(serial) => {
                let ends = host.block_sent(&mut self.device, faults, clock.now());
                if ends {
                    self.end_data();
                }
            }
            // An event of what a reset or another command ended.
            _ => {}
        }
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
        self.engine.silent()
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
        if width == 8 {
            let low = u64::from(self.read_register(offset));
            return low | u64::from(self.read_register(offset + 4)) << 32;
        }
        let word = self.read_register(offset & !3) >> (8 * (offset & 3));
        u64::from(if width == 1 { word & 0xFF } else { word & 0xFFFF })
    }

    /// Neighbours in the dword stay as they are: bits that are cleared by writing one are not
    /// written, and a command goes with its own half.
    fn write_mixed(&mut self, offset: u32, width: u8, value: u64, now: Instant) {
        self.advance(now);
        if width == 8 {
            self.write_register(offset, value as u32);
            return self.write_register(offset + 4, (value >> 32) as u32);
        }
        let (at, shift) = (offset & !3, 8 * (offset & 3));
        let mask = if width == 1 { 0xFF_u32 } else { 0xFFFF } << shift;
        let value = (value as u32) << shift & mask;
        if at == reg::COMMAND && shift == 0 && width == 2 {
            let bits = self.host.registers.mode().into_bits() & !mask | value;
            return self.host.registers.set_mode(Command::from_bits(bits));
        }
        let orders = [cqhci::CQIS, cqhci::CQTCN, cqhci::CQTDBR];
        let alone = at == reg::STATUS || engine_register(at).is_some_and(|at| orders.contains(&at));
        let rest = if alone { 0 } else { self.read_register(at) & !mask };
        self.write_register(at, rest | value);
    }
}
