//! What is at the ports: devices, and multipliers with devices behind them.

use alloc::vec::Vec;

use flysch_wire::ata::multiplier::{CONTROL_PORT, PORTS_MAX};

use super::clock::{Clock, Event};
use super::config::{Attached, MultiplierConfig};
use super::device::{Device, Home, PowerMode};
use super::link::Link;
use super::list::{MULTIPLIER, NOBODY, Seat, TaskRef};
use super::multiplier::{Fan, Move, Multiplier};

/// The devices, each on its seat, and the multipliers.
#[derive(Debug, Default)]
pub(super) struct Devices {
    /// The multiplier at each port.
    multipliers: Vec<Option<Multiplier>>,
    /// The device at each port, then those behind multipliers.
    devices: Vec<Option<Device>>,
}

impl Devices {
    /// What is `attached` to each port: with write buffers that lose what is not safe if they are
    /// `cached`, and with chance from `seed`.
    pub(super) fn new(attached: Vec<Attached>, (seed, cached): (u64, bool)) -> Self {
        let mut this = Self::default();
        let mut fans = Vec::new();
        for (port, attached) in (0..).zip(attached) {
            let fan = match attached {
                Attached::Multiplier(config) => {
                    this.devices.push(None);
                    Some(*config)
                }
                attached => {
                    this.put(attached, Home { port, fan: None }, (seed, cached));
                    None
                }
            };
            fans.push(fan);
        }
        let mut multiplier = |(port, config): (u8, Option<MultiplierConfig>)| {
            let mut config = config?;
            let ports = (0..).zip(core::mem::take(&mut config.ports));
            let seats = ports.map(|(fan, attached)| {
                this.put(attached, Home { port, fan: Some(fan) }, (seed, cached))
            });
            Some(Multiplier::new(&config, seats.collect()))
        };
        let multipliers = (0..).zip(fans).map(&mut multiplier).collect();
        Self { multipliers, ..this }
    }

    /// The seat of a device, if there is one; what is at a port has a seat in any case.
    fn put(&mut self, attached: Attached, home: Home, of: (u64, bool)) -> Option<Seat> {
        let seat = self.devices.len() as Seat;
        let device = Device::new(attached, of.0 + u64::from(seat), of.1);
        let is_there = device.is_some();
        self.devices.push(device.map(|mut device| {
            device.sits(home, seat);
            device
        }));
        is_there.then_some(seat)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().flatten()
    }

    #[inline]
    pub(super) fn get(&self, seat: Seat) -> Option<&Device> {
        self.devices.get(usize::from(seat))?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, seat: Seat) -> Option<&mut Device> {
        self.devices.get_mut(usize::from(seat))?.as_mut()
    }

    /// Where a device is.
    pub(super) fn home(&self, seat: Seat) -> Option<Home> {
        self.get(seat).map(|device| device.home)
    }

    /// Whether a command finds a device that listens.
    #[inline]
    pub(super) fn listens(&self, seat: Seat) -> bool {
        self.get(seat).is_some_and(|d| d.is_there() && d.power != PowerMode::Sleep)
    }

    pub(super) fn multiplier(&self, port: u8) -> Option<&Multiplier> {
        self.multipliers.get(usize::from(port))?.as_ref()
    }

    pub(super) fn multiplier_mut(&mut self, port: u8) -> Option<&mut Multiplier> {
        self.multipliers.get_mut(usize::from(port))?.as_mut()
    }

    /// A device port of a multiplier.
    pub(super) fn fan_mut(&mut self, port: u8, fan: u8) -> Option<&mut Fan> {
        self.multiplier_mut(port)?.fans.get_mut(usize::from(fan))
    }

    /// Whether an event of a device port's link is of the life it has now.
    pub(super) fn is_current_fan(&self, port: u8, fan: u8, epoch: u32) -> bool {
        let fan = self.multiplier(port).and_then(|m| m.fans.get(usize::from(fan)));
        fan.is_some_and(|fan| fan.epoch == epoch)
    }

    /// The devices at a port, or behind the multiplier there.
    pub(super) fn seats(&self, port: u8) -> [Option<Seat>; PORTS_MAX] {
        let mut seats = [None; PORTS_MAX];
        match self.multiplier(port) {
            Some(multiplier) => {
                let fans = multiplier.fans.iter();
                seats.iter_mut().zip(fans).for_each(|(seat, fan)| *seat = fan.seat);
            }
            None => seats[0] = Some(port.into()),
        }
        seats
    }

    /// The device at a device port of a multiplier.
    pub(super) fn seat_behind(&self, port: u8, fan: u8) -> Option<Seat> {
        self.multiplier(port)?.fans.get(usize::from(fan))?.seat
    }

    /// The device a command goes to by its port of a multiplier.
    #[inline]
    pub(super) fn reached(&self, port: u8, pmp: u8) -> Seat {
        match self.multiplier(port) {
            None => port.into(),
            Some(_) if pmp == CONTROL_PORT => MULTIPLIER,
            Some(multiplier) => multiplier.reached(pmp).unwrap_or(NOBODY),
        }
    }

    /// Nothing waits any more in what is at a port.
    pub(super) fn forget_waits(&mut self, port: u8) {
        for seat in self.seats(port).into_iter().flatten() {
            if let Some(device) = self.get_mut(seat) {
                device.backend.clear();
            }
        }
    }

    /// The link of a port is gone, and with it what was on its way.
    pub(super) fn link_down(&mut self, port: u8, now: u64) {
        if let Some(multiplier) = self.multiplier_mut(port) {
            multiplier.link_down();
        }
        for seat in self.seats(port).into_iter().flatten() {
            if let Some(device) = self.get_mut(seat) {
                device.link_is_reset(now);
            }
        }
    }

    /// The data of a write goes into the write buffer, when there is room: whether it does now.
    pub(super) fn enter(&mut self, clock: &mut Clock, name: TaskRef, len: u32) -> bool {
        let Some(device) = self.get_mut(name.seat) else { return true };
        let has_room = device.backend.enter(name, len);
        if has_room {
            self.fill(clock, name, len);
        }
        has_room
    }

    /// Lets waiting writes send their data as far as there is room.
    pub(super) fn admit(&mut self, clock: &mut Clock, seat: Seat) {
        while let Some((name, len)) = self.get_mut(seat).and_then(|at| at.backend.admit()) {
            self.fill(clock, name, len);
        }
    }

    /// Data for which there is room is on its way.
    fn fill(&mut self, clock: &mut Clock, name: TaskRef, len: u32) {
        let (now, bytes) = (clock.nanos(), u64::from(len));
        let Some(device) = self.get_mut(name.seat) else { return };
        let (home, mut end) = (device.home, device.backend.media.receive(now, bytes));
        if home.fan.is_some() {
            end = self.share_link(home.port, (now, end), Move { bytes, to_device: true });
        }
        clock.at(end, Event::Arrived(name, len));
    }

    /// The data of a command of a device behind the multiplier at `port`, from `from` on and over
    /// its own link until `end`, goes over the link to the host, too, which it shares: when it is
    /// through.
    pub(super) fn share_link(&mut self, port: u8, (from, end): (u64, u64), of: Move) -> u64 {
        let Some(multiplier) = self.multiplier_mut(port) else { return end };
        let start = multiplier.taken_until.max(from);
        let takes = Link::taken_ns(multiplier.speed, of.bytes, of.to_device);
        multiplier.taken_until = start + takes;
        end.max(multiplier.taken_until)
    }
}
