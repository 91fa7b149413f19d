//! A SATA host bus adapter and the devices at its ports.
//!
//! Theory. [`Ahci`] is one state machine with three inputs - register reads, register writes, the
//! passing of time - and three outputs: register values, DMA, the interrupt line. It has no clock:
//! every input carries `now`, and [`Ahci::next_event`] says when it next has something to do.
//!
//! One command, through the files of this module: a bit of PxCI (`controller`, `port`) makes it
//! fetch header and command FIS (`list`); `command` decides at once *what* will happen; the shared
//! media decides *when*, through one or two events (`flow`); at the last of them data is copied
//! (`transfer`), commands without data on the medium are carried out (`control`, `packet`), and the
//! FIS that ends the command is posted. Reads take their data at that moment, writes are in the
//! store from that moment on: a command that is dropped earlier leaves no trace.
//!
//! [`Ahci`] itself holds the thread of a command, the life of links, and faults. State that only
//! some of it needs is an object of its own: the host's side (`hba`: registers, lists, received
//! FISes), what is at the ports (`devices`), and of each device its flash (`backend`).
//!
//! Everything the host writes is hostile. An address outside DMA memory, a header that is none, a
//! table too short for its command end in the interrupt or status the specification has for it, and
//! the list stands still until it is restarted; the work done for one event is bounded by the
//! largest transfer.

mod backend;
mod clock;
mod command;
pub mod config;
mod control;
mod controller;
mod device;
mod devices;
mod flow;
mod hba;
mod inject;
pub mod link;
mod list;
mod logs;
mod microcode;
mod multiplier;
mod packet;
mod port;
pub mod profile;
mod security;
mod smart;
mod switching;
mod transfer;

use alloc::string::String;

use flysch_api::machine::{GuestMemory, Instant};

pub use config::{Attached, Config, ConfigError, DiskConfig, MultiplierConfig, Switching};
pub use link::Link;

use crate::faults::{Injector, Plan};
use crate::machine::{Messages, Model};
pub use crate::media::cache::Loss;
use crate::media::energy::Energy;
#[cfg(feature = "std")]
use crate::store::FullFile;
use clock::{Clock, Event};
use controller::Registers;
use devices::Devices;
use hba::Hba;
use list::Ports;
use port::Port;

/// A modelled HBA with its devices.
#[derive(Debug)]
pub struct Ahci {
    hba: Hba,
    devices: Devices,
    clock: Clock,
    faults: Injector,
    /// What losses of power did.
    lost: Loss,
}

impl Ahci {
    /// An HBA in its power-on state that sees `memory`.
    ///
    /// # Errors
    /// A value of `config` that makes no HBA.
    pub fn new(config: Config, memory: impl Into<GuestMemory>) -> Result<Self, ConfigError> {
        config.check()?;
        let registers = Registers::new(&config);
        let faults = Injector::new(config.faults.clone(), config.seed);
        let ports = 0..config.ports.len() as u8;
        let devices = Devices::new(config.ports, (config.seed, config.volatile_cache));
        let port = |port| Port::new(port, devices.multiplier(port).is_some());
        let ports = Ports::new(ports.map(port));
        let mut this = Self {
            hba: Hba::new(memory.into(), registers, ports),
            devices,
            clock: Clock::with_capacity(256),
            faults,
            lost: Loss::default(),
        };
        this.power_on_ports();
        Ok(this)
    }

    /// The memory the HBA sees, to be mapped and unmapped at any time: what finds a range gone ends
    /// with a host bus error.
    pub fn memory_mut(&mut self) -> &mut GuestMemory {
        &mut self.hba.memory
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

    /// The bus resets the HBA: its registers are as after power-on, and every link comes up anew.
    /// What the devices hold stays.
    pub fn reset(&mut self, now: Instant) {
        self.advance(now);
        self.hba.registers.power_on();
        self.reset_ports();
        self.power_on_ports();
    }

    /// Ports there are.
    pub fn ports(&self) -> u8 {
        self.hba.ports.count()
    }

    /// When the next thing happens by itself.
    #[inline]
    pub fn next_event(&self) -> Option<Instant> {
        self.clock.next()
    }

    /// The interrupt line.
    #[inline]
    pub fn line(&self) -> bool {
        self.hba.registers.is_asserted()
    }

    /// When the device finished the command last ended in a slot.
    pub fn device_done(&self, port: u16, slot: u16) -> Option<Instant> {
        self.hba.done_at(port, slot)
    }

    /// What the device at `port` took from its supply until `now`, if there is one: where a
    /// multiplier is, the device at that port of it, `fan`. The multiplier itself is not metered.
    pub fn energy(&self, port: u8, fan: u8, now: Instant) -> Option<Energy> {
        let seat = match self.devices.multiplier(port) {
            Some(_) => self.devices.seat_behind(port, fan)?,
            None => port.into(),
        };
        Some(self.devices.get(seat)?.backend.media.energy(now.max(self.clock.now()).nanos()))
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

    /// Why this machine could not keep or give the data of a device, in words, if that happened.
    pub fn store_failure(&self) -> Option<String> {
        self.devices.iter().find_map(|device| device.store.failure()).map(Into::into)
    }

    /// The files that had no room for the data of a device.
    #[cfg(feature = "std")]
    pub fn full_files(&self) -> impl Iterator<Item = FullFile> + '_ {
        self.devices.iter().filter_map(|device| device.store.full())
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Ready(task) => self.send_data(task),
            Event::Complete(task) => self.complete(task),
            Event::Arrived(task, len) => self.data_arrived(task, len),
            Event::Accepted(task) => self.accepted(task),
            Event::Die(seat, die) => self.die_done(seat, die),
            Event::HbaReset => self.hba_is_reset(),
            Event::Message => self.hba.registers.message_sent(),
            Event::Bios => self.hba.registers.bios_gives_up(),
            Event::Link { port, epoch } if self.hba.ports.is_current(port, epoch) => {
                self.link_up(port)
            }
            Event::Signature { port, epoch } if self.hba.ports.is_current(port, epoch) => {
                self.device_ready(port);
            }
            Event::FanLink { port, fan, epoch }
                if self.devices.is_current_fan(port, fan, epoch) =>
            {
                self.fan_up(port, fan);
            }
            Event::FanSignature { port, fan, epoch }
                if self.devices.is_current_fan(port, fan, epoch) =>
            {
                self.fan_ready(port, fan);
            }
            Event::PlugIn(seat) => self.put_back(seat),
            Event::Sanitized { seat, number } => {
                if let Some(device) = self.devices.get_mut(seat) {
                    device.sanitized(number);
                }
            }
            // An event of a life of the link that a reset ended.
            Event::Link { .. } | Event::Signature { .. } => {}
            Event::FanLink { .. } | Event::FanSignature { .. } => {}
        }
    }
}

impl Model for Ahci {
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
        self.hba.silent
    }

    #[inline]
    fn device_done(&self, queue: u16, slot: u16) -> Option<Instant> {
        Self::device_done(self, queue, slot)
    }
}

impl Messages for Ahci {}
