//! Faults: where the fault plan meets HBA, link and device.

use flysch_api::machine::Instant;
use flysch_wire::ata::registers::{error, interrupt, serror, status};
use flysch_wire::ata::{H2d, log};

use super::Ahci;
use super::clock::Event;
use super::command::unreadable;
use super::device::{Device, Home};
use super::flow::detail;
use super::list::{Fail, Seat, State, Task, Work};
use super::port::READY;
use crate::faults::{Injector, Kind};
use crate::media::cache::Loss;
use crate::store::StoreError;

/// How late a late command is, at least and at most, nanoseconds.
const LATE_MIN_NS: u64 = 1_000_000;
const LATE_MAX_NS: u64 = 400_000_000;
/// How long a device that was pulled off stays away, nanoseconds, at most.
const AWAY_NS: u64 = 60_000_000;

/// How much later than it would a command ends, if a fault makes it late, nanoseconds.
pub(super) fn lateness(faults: &mut Injector, task: &mut Task, of: (Instant, u32)) -> Option<u64> {
    if core::mem::replace(&mut task.late, true) {
        return None;
    }
    let late = faults.fires(Kind::Late, of.0, of.1);
    late.then(|| LATE_MIN_NS + faults.choose(Kind::Late, LATE_MAX_NS - LATE_MIN_NS))
}

/// How a good end is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Told,
    /// Without an interrupt.
    Silent,
    Never,
}

impl Ending {
    /// What faults make of a good end.
    pub(super) fn with_faults(faults: &mut Injector, (now, detail): (Instant, u32)) -> Self {
        if !faults.is_active() {
            return Self::Told;
        }
        if faults.fires(Kind::StuckDoorbell, now, detail) {
            return Self::Never;
        }
        match faults.fires(Kind::LostInterrupt, now, detail) {
            true => Self::Silent,
            false => Self::Told,
        }
    }
}

impl Device {
    /// What a fault makes of a command instead of what it asks for.
    pub(super) fn work_with_faults(
        &self,
        faults: &mut Injector,
        work: Work,
        (now, detail): (Instant, u32),
    ) -> Work {
        let (offset, len) = match work {
            Work::Read { offset, len } | Work::Write { offset, len, .. } => (offset, len),
            _ => return work,
        };
        if faults.fires(Kind::Transient, now, detail) {
            // The data was damaged on the way, or the device does not say why.
            let error = match faults.choose(Kind::Transient, 2) {
                0 => error::ICRC | error::ABRT,
                _ => error::ABRT,
            };
            return Work::Fail(Fail { status: READY | status::ERR, error, lba: 0 });
        }
        let (first, blocks) = (offset >> self.shift, u64::from(len) >> self.shift);
        match faults.bad_block(first..first + blocks, now, detail) {
            Some(lba) => Work::Fail(unreadable(lba)),
            None if faults.fires(Kind::Medium, now, detail) => {
                Work::Fail(unreadable(first + faults.choose(Kind::Medium, blocks)))
            }
            None => work,
        }
    }

    /// Whether the queued error log cannot be read this time.
    pub(super) fn loses_log(&mut self, fis: &H2d, faults: &mut Injector, now: Instant) -> bool {
        let is_error_log = log::of_lba(fis.lba).0 == log::address::NCQ_ERROR;
        let fails = is_error_log && faults.fires(Kind::NoLog, now, self.backend.seat.into());
        if fails {
            // It has been asked for, and that is what the device waited for.
            self.ncq_error = None;
        }
        fails
    }
}

impl Ahci {
    /// A command has reached the device: whether a fault keeps it from starting.
    pub(super) fn fault_at_start(&mut self, port: u8, slot: u8) -> bool {
        let (now, detail) = (self.clock.now(), detail(port, slot));
        let (seat, pmp) =
            (self.hba.ports[port].task(slot).seat, self.hba.ports[port].task(slot).pmp);
        if self.faults.fires(Kind::Unplugged, now, detail) {
            self.unplug();
            return true;
        }
        if self.faults.fires(Kind::PowerLoss, now, detail) {
            // A store that fails here has failed every write before: the host knows.
            let _ = self.lose_power(seat);
            self.find_link(seat);
            return true;
        }
        if self.faults.fires(Kind::Detached, now, detail) {
            self.take_away(seat);
            let away = 1 + self.faults.choose(Kind::Detached, AWAY_NS);
            self.clock.after(away, Event::PlugIn(seat));
            return true;
        }
        if self.faults.fires(Kind::LinkLoss, now, detail) {
            self.lose_link(seat);
            return true;
        }
        if self.faults.fires(Kind::Interface, now, detail) {
            if let Some(device) = self.devices.get_mut(seat) {
                device.health.crc_errors += 1;
            }
            self.hba.ports[port].serr |= serror::CRC | serror::HANDSHAKE;
            self.swallow(seat);
            self.hba.halt_device(port, pmp, interrupt::IFS);
            return true;
        }
        if self.faults.fires(Kind::HostBus, now, detail) {
            // The HBA does nothing more for anybody at the port.
            for seat in self.devices.seats(port).into_iter().flatten() {
                self.swallow(seat);
            }
            self.hba.halt(port, interrupt::HBDS);
            return true;
        }
        if self.faults.fires(Kind::Stall, now, detail) {
            self.swallow(seat);
            return true;
        }
        let swallowed = self.faults.fires(Kind::Timeout, now, detail);
        if swallowed {
            self.hba.ports[port].task_mut(slot).state = State::Swallowed;
        }
        swallowed
    }

    /// Nothing the device has is answered any more.
    pub(super) fn swallow(&mut self, seat: Seat) {
        let Some(device) = self.devices.get_mut(seat) else { return };
        device.backend.clear();
        let port = device.home.port;
        let tasks = self.hba.ports[port].tasks.iter_mut();
        let active = tasks.filter(|task| task.state == State::Active && task.seat == seat);
        active.for_each(|task| task.state = State::Swallowed);
    }

    /// PhyRdy of a device goes and comes back by itself: everything on its way is lost.
    fn lose_link(&mut self, seat: Seat) {
        self.drop_link(seat);
        self.find_link(seat);
    }

    /// The link of a device goes.
    fn drop_link(&mut self, seat: Seat) {
        match self.devices.home(seat) {
            Some(Home { port, fan: Some(fan) }) => self.fan_lost(port, fan),
            Some(Home { port, fan: None }) => self.link_lost(port),
            None => {}
        }
    }

    /// The link of a device comes, if nothing keeps it from that.
    fn find_link(&mut self, seat: Seat) {
        match self.devices.home(seat) {
            Some(Home { port, fan: Some(fan) }) => self.begin_fan(port, fan),
            Some(Home { port, fan: None }) => self.begin_link(port),
            None => {}
        }
    }

    /// PhyRdy of a port goes.
    fn link_lost(&mut self, port: u8) {
        self.link_down(port);
        self.hba.ports[port].serr |= serror::PHYRDY;
        self.hba.raise(port, 0);
    }

    /// A device is pulled off its link; what it had not made safe may be lost.
    fn take_away(&mut self, seat: Seat) {
        // The host knows of a store that fails.
        let _ = self.lose_power(seat);
        if let Some(device) = self.devices.get_mut(seat) {
            device.is_detached = true;
        }
    }

    /// And put back.
    pub(super) fn put_back(&mut self, seat: Seat) {
        if let Some(device) = self.devices.get_mut(seat) {
            device.is_detached = false;
        }
        self.find_link(seat);
    }

    /// What is at a port is pulled off: a device, or a multiplier with the power of its devices.
    pub fn pull_off(&mut self, port: u8) {
        if self.devices.multiplier(port).is_none() {
            return self.take_away(port.into());
        }
        // The host knows of a store that fails.
        let _ = self.cut_power(port);
        if let Some(multiplier) = self.devices.multiplier_mut(port) {
            multiplier.is_detached = true;
        }
    }

    /// What is at a port is put back.
    pub fn plug_in(&mut self, port: u8) {
        match self.devices.multiplier_mut(port) {
            None => self.put_back(port.into()),
            Some(multiplier) => {
                multiplier.is_detached = false;
                self.restore_power(port);
            }
        }
    }

    /// The device at a device port of a multiplier is pulled off; nothing happens if there is none.
    pub fn pull_off_behind(&mut self, port: u8, fan: u8) {
        if let Some(seat) = self.devices.seat_behind(port, fan) {
            self.take_away(seat);
        }
    }

    /// The device of a device port of a multiplier is put back.
    pub fn plug_in_behind(&mut self, port: u8, fan: u8) {
        if let Some(seat) = self.devices.seat_behind(port, fan) {
            self.put_back(seat);
        }
    }

    /// Power of what is at a port goes away: everything volatile is lost, unflushed writes may
    /// vanish or tear, and links are down.
    ///
    /// # Errors
    /// A backing file could not be put into the state the loss leaves.
    pub fn cut_power(&mut self, port: u8) -> Result<Loss, StoreError> {
        let mut all = Loss::default();
        for seat in self.devices.seats(port).into_iter().flatten() {
            let loss = self.lose_power(seat)?;
            all.survived += loss.survived;
            all.vanished += loss.vanished;
            all.torn += loss.torn;
        }
        if self.devices.multiplier(port).is_some() {
            self.link_lost(port);
        }
        Ok(all)
    }

    /// Power of a device goes away.
    fn lose_power(&mut self, seat: Seat) -> Result<Loss, StoreError> {
        self.drop_link(seat);
        let is_event_of_it = |event: &Event| match *event {
            Event::Die(of, _) => of == seat,
            Event::Accepted(name) | Event::Ready(name) | Event::Complete(name) => name.seat == seat,
            Event::Arrived(name, _) => name.seat == seat,
            _ => false,
        };
        self.clock.retain(|event| !is_event_of_it(event));
        let now = self.clock.nanos();
        let Some(device) = self.devices.get_mut(seat) else {
            return Ok(Loss::default());
        };
        device.health.unsafe_losses += 1;
        let mut cache = core::mem::take(&mut device.cache);
        let loss = cache.lose(device, &mut self.faults);
        device.cache = cache;
        device.power_on(now);
        let loss = loss?;
        self.lost.survived += loss.survived;
        self.lost.vanished += loss.vanished;
        self.lost.torn += loss.torn;
        Ok(loss)
    }

    /// Power of what is at a port comes back after [`cut_power`](Self::cut_power).
    pub fn restore_power(&mut self, port: u8) {
        self.begin_link(port);
    }

    /// The HBA is pulled out of its slot: its registers read as ones from now on. Its devices lose
    /// power with it.
    pub fn unplug(&mut self) {
        for port in 0..self.hba.ports.count() {
            // The host knows of a store that fails.
            let _ = self.cut_power(port);
        }
        self.hba.registers.is_unplugged = true;
    }

    /// It is put back, and has power; devices that are at their ports start afresh.
    pub fn plug(&mut self) {
        self.hba.registers.is_unplugged = false;
        self.hba.registers.power_on();
        self.reset_ports();
        self.power_on_ports();
    }
}
