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
//! Everything the host writes is hostile. An address outside DMA memory, a header that is none, a
//! table too short for its command end in the interrupt or status the specification has for it, and
//! the list stands still until it is restarted; the work done for one event is bounded by the
//! largest transfer.

mod command;
pub mod config;
mod control;
mod controller;
mod device;
mod flow;
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
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::machine::{GuestMemory, Instant};
use flysch_wire::ata::registers::PORTS_MAX;

pub use config::{Attached, Config, ConfigError, DiskConfig, MultiplierConfig, Switching};
pub use link::Link;

use crate::events::Events;
use crate::faults::{Injector, Plan};
use crate::machine::{Messages, Model};
pub use crate::media::cache::Loss;
use crate::media::energy::Energy;
#[cfg(feature = "std")]
use crate::store::FullFile;
use controller::Registers;
use device::{Device, Home};
use list::{Seat, TaskRef};
use multiplier::Multiplier;
use port::Port;

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
    /// A die of a device may be done programming.
    Die(Seat, u16),
    /// The HBA has reset itself.
    HbaReset,
    /// The BIOS gives the HBA up.
    Bios,
    /// A message to the enclosure has been sent.
    Message,
    /// A link comes up.
    Link { port: u8, epoch: u32 },
    /// A device is ready after a reset.
    Signature { port: u8, epoch: u32 },
    /// The link of a multiplier's device port comes up.
    FanLink { port: u8, fan: u8, epoch: u32 },
    /// The device there is ready after a reset.
    FanSignature { port: u8, fan: u8, epoch: u32 },
    /// A device that was pulled off is put back.
    PlugIn(Seat),
    /// A sanitize operation ends.
    Sanitized { seat: Seat, number: u32 },
}

/// A modelled HBA with its devices.
#[derive(Debug)]
pub struct Ahci {
    memory: GuestMemory,
    registers: Registers,
    ports: Vec<Port>,
    /// The multiplier at each port.
    multipliers: Vec<Option<Multiplier>>,
    /// The device at each port, then those behind multipliers.
    devices: Vec<Option<Device>>,
    events: Events<Event>,
    faults: Injector,
    /// What losses of power did.
    lost: Loss,
    /// When the device finished, by port and slot.
    done: Vec<u64>,
    /// Completions without an interrupt because none is enabled.
    silent: u64,
    now: Instant,
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
        let (seed, cached) = (config.seed, config.volatile_cache);
        let mut seats = Seats { seed, cached, devices: Vec::new() };
        let (ports, multipliers) = seats.fill(config.ports);
        let devices = seats.devices;
        let mut this = Self {
            memory: memory.into(),
            registers,
            ports,
            multipliers,
            devices,
            events: Events::with_capacity(256),
            faults,
            lost: Loss::default(),
            done: vec![0; PORTS_MAX * PORTS_MAX],
            silent: 0,
            now: Instant::START,
        };
        this.power_on_ports();
        Ok(this)
    }

    /// The memory the HBA sees, to be mapped and unmapped at any time: what finds a range gone ends
    /// with a host bus error.
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

    /// The bus resets the HBA: its registers are as after power-on, and every link comes up anew.
    /// What the devices hold stays.
    pub fn reset(&mut self, now: Instant) {
        self.advance(now);
        self.registers.power_on();
        self.reset_ports();
        self.power_on_ports();
    }

    /// Ports there are.
    pub fn ports(&self) -> u8 {
        self.ports.len() as u8
    }

    /// When the next thing happens by itself.
    #[inline]
    pub fn next_event(&self) -> Option<Instant> {
        self.events.next()
    }

    /// The interrupt line.
    #[inline]
    pub fn line(&self) -> bool {
        self.registers.is_asserted()
    }

    /// When the device finished the command last ended in a slot.
    pub fn device_done(&self, port: u16, slot: u16) -> Option<Instant> {
        let at = usize::from(port) * PORTS_MAX + usize::from(slot);
        let nanos = *self.done.get(at).filter(|_| usize::from(slot) < PORTS_MAX)?;
        (nanos != 0).then_some(Instant::from_nanos(nanos))
    }

    /// What the device at `port` took from its supply until `now`, if there is one: where a
    /// multiplier is, the device at that port of it, `fan`. The multiplier itself is not metered.
    pub fn energy(&self, port: u8, fan: u8, now: Instant) -> Option<Energy> {
        let seat = match self.multiplier(port) {
            Some(_) => self.seat_behind(port, fan)?,
            None => port.into(),
        };
        Some(self.device(seat)?.media.energy(now.max(self.now).nanos()))
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
        let devices = self.devices.iter().flatten();
        devices.filter_map(|device| device.store.failure()).next().map(Into::into)
    }

    /// The files that had no room for the data of a device.
    #[cfg(feature = "std")]
    pub fn full_files(&self) -> impl Iterator<Item = FullFile> + '_ {
        self.devices.iter().flatten().filter_map(|device| device.store.full())
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
            Event::Die(seat, die) => self.die_done(seat, die),
            Event::HbaReset => self.hba_is_reset(),
            Event::Message => self.registers.message_sent(),
            Event::Bios => self.registers.bios_gives_up(),
            Event::Link { port, epoch } if self.is_current(port, epoch) => self.link_up(port),
            Event::Signature { port, epoch } if self.is_current(port, epoch) => {
                self.device_ready(port);
            }
            Event::FanLink { port, fan, epoch } if self.is_current_fan(port, fan, epoch) => {
                self.fan_up(port, fan);
            }
            Event::FanSignature { port, fan, epoch } if self.is_current_fan(port, fan, epoch) => {
                self.fan_ready(port, fan);
            }
            Event::PlugIn(seat) => self.put_back(seat),
            Event::Sanitized { seat, number } => self.sanitized(seat, number),
            // An event of a life of the link that a reset ended.
            Event::Link { .. } | Event::Signature { .. } => {}
            Event::FanLink { .. } | Event::FanSignature { .. } => {}
        }
    }

    fn is_current(&self, port: u8, epoch: u32) -> bool {
        self.ports.get(usize::from(port)).is_some_and(|port| port.epoch == epoch)
    }
}

/// The devices of a configuration, each on its seat.
struct Seats {
    seed: u64,
    cached: bool,
    devices: Vec<Option<Device>>,
}

impl Seats {
    /// Makes the ports, what multipliers are at them, and all devices.
    fn fill(&mut self, attached: Vec<Attached>) -> (Vec<Port>, Vec<Option<Multiplier>>) {
        let mut fans = Vec::new();
        for (port, attached) in (0..).zip(attached) {
            let fan = match attached {
                Attached::Multiplier(config) => {
                    self.devices.push(None);
                    Some(*config)
                }
                attached => {
                    self.put(attached, Home { port, fan: None });
                    None
                }
            };
            fans.push(fan);
        }
        let mut multiplier = |(port, config): (u8, Option<MultiplierConfig>)| {
            let mut config = config?;
            let ports = (0..).zip(core::mem::take(&mut config.ports));
            let seats =
                ports.map(|(fan, attached)| self.put(attached, Home { port, fan: Some(fan) }));
            Some(Multiplier::new(&config, seats.collect()))
        };
        let multipliers: Vec<_> = (0..).zip(fans).map(&mut multiplier).collect();
        let ports = multipliers.iter().map(|multiplier| Port::new(multiplier.is_some())).collect();
        (ports, multipliers)
    }

    /// The seat of a device, if there is one; what is at a port has a seat in any case.
    fn put(&mut self, attached: Attached, home: Home) -> Option<Seat> {
        let seat = self.devices.len() as Seat;
        let device = Device::new(attached, self.seed + u64::from(seat), self.cached);
        let is_there = device.is_some();
        self.devices.push(device.map(|mut device| {
            device.sits(home, seat);
            device
        }));
        is_there.then_some(seat)
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
        self.silent
    }

    #[inline]
    fn device_done(&self, queue: u16, slot: u16) -> Option<Instant> {
        Self::device_done(self, queue, slot)
    }
}

impl Messages for Ahci {}
