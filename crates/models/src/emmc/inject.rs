//! Faults: where the fault plan meets the bus, the engine and the device.

use core::ops::Range;

use flysch_api::machine::Instant;
use flysch_wire::mmc::cqhci::DIRECT;
use flysch_wire::mmc::sdhci::{Command, Interrupts};
use flysch_wire::mmc::{CardState, CardStatus};

use super::Emmc;
use super::card::{Card, Load};
use super::clock::Event;
use super::controller::Registers;
use super::host::Transfer;
use super::tasks::{Task, TaskRef};
use crate::faults::{Injector, Kind};
use crate::media::cache::Loss;
use crate::store::StoreError;

/// How late a late command is, at least and at most, nanoseconds.
const LATE_MIN_NS: u64 = 1_000_000;
const LATE_MAX_NS: u64 = 400_000_000;

/// How a task ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Now.
    Now,
    /// So many nanoseconds from now.
    Late(u64),
    /// Never.
    Never,
}

impl Ending {
    /// That of a task that is about to end.
    pub(super) fn with_faults(
        faults: &mut Injector,
        task: &mut Task,
        now: Instant,
        detail: u32,
    ) -> Self {
        if faults.fires(Kind::StuckDoorbell, now, detail) {
            return Self::Never;
        }
        let was_late = core::mem::replace(&mut task.is_late, true);
        if was_late || !faults.fires(Kind::Late, now, detail) {
            return Self::Now;
        }
        Self::Late(LATE_MIN_NS + faults.choose(Kind::Late, LATE_MAX_NS - LATE_MIN_NS))
    }
}

/// What a fault does to data of the host's own command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoilt {
    /// It is spoilt on the bus.
    Bus(Interrupts),
    /// The device does not send or accept it.
    Device(CardStatus),
    /// Nothing is heard of it any more.
    Silent,
}

/// What of data on the bus goes wrong.
pub(super) fn fault_on_bus(
    faults: &mut Injector,
    bus: &mut Registers,
    now: Instant,
    detail: u32,
) -> Option<Interrupts> {
    let crc = faults.fires(Kind::BusCrc, now, detail);
    let lost = !crc && bus.needs_tuning() && faults.fires(Kind::TuningLoss, now, detail);
    if lost {
        bus.set_detuned(true);
    }
    (crc || lost).then(|| Interrupts::new().with_data_crc(true))
}

/// What a task's data on the bus ends with, if a fault spoils it.
pub(super) fn fault_in_task(
    faults: &mut Injector,
    bus: &mut Registers,
    now: Instant,
    detail: u32,
) -> Option<Interrupts> {
    fault_on_bus(faults, bus, now, detail).or_else(|| {
        let fails = faults.fires(Kind::TaskError, now, detail);
        fails.then(|| Interrupts::new().with_data_timeout(true))
    })
}

/// What the device says of sectors that a fault makes unreadable, or of a fault of its own.
pub(super) fn fault_of_medium(
    faults: &mut Injector,
    sectors: Range<u64>,
    now: Instant,
    detail: u32,
) -> Option<CardStatus> {
    let none = CardStatus::new();
    let bad = faults.bad_block(sectors, now, detail).is_some();
    if bad || faults.fires(Kind::Medium, now, detail) {
        return Some(none.with_ecc_failed(true));
    }
    faults.fires(Kind::Transient, now, detail).then(|| none.with_error(true))
}

/// Data of the host's own command is on the bus: what a fault does to it.
pub(super) fn fault_in_data(
    faults: &mut Injector,
    bus: &mut Registers,
    transfer: &Transfer,
    now: Instant,
) -> Option<Spoilt> {
    if let Some(what) = fault_on_bus(faults, bus, now, 0) {
        return Some(Spoilt::Bus(what));
    }
    let Load::Sectors { offset, .. } = transfer.phase.load else { return None };
    let first = offset / 512;
    let sectors = first..first + u64::from(transfer.blocks);
    if let Some(error) = fault_of_medium(faults, sectors, now, 0) {
        return Some(Spoilt::Device(error));
    }
    faults.fires(Kind::Stall, now, 0).then_some(Spoilt::Silent)
}

/// A command of the host's own has crossed the line: what of it a fault makes of it.
pub(super) fn fault_in_command(
    faults: &mut Injector,
    card: &Card,
    mode: Command,
    now: Instant,
) -> Option<Interrupts> {
    // Identification is left alone: what it would show is a card that is not there.
    if card.state != CardState::Transfer {
        return None;
    }
    let (none, detail) = (Interrupts::new(), u32::from(mode.index()));
    if faults.fires(Kind::Timeout, now, detail) {
        return Some(none.with_command_timeout(true));
    }
    let spoilt = !mode.data() && faults.fires(Kind::BusCrc, now, detail);
    spoilt.then(|| none.with_command_crc(true))
}

impl Emmc {
    /// What takes the device away altogether; whether it did.
    pub(super) fn fault_of_power(&mut self, detail: u32) -> bool {
        let now = self.clock.now();
        if self.faults.fires(Kind::Unplugged, now, detail) {
            self.unplug();
            return true;
        }
        if self.faults.fires(Kind::PowerGone, now, detail) {
            // The host of a store that fails here has seen every access fail before.
            let _ = self.cut_power();
            return true;
        }
        if self.faults.fires(Kind::PowerLoss, now, detail) {
            let _ = self.cut_power();
            self.restore_power();
            return true;
        }
        false
    }

    /// A task has reached the device: whether a fault keeps it from starting.
    pub(super) fn fault_at_start(&mut self, name: TaskRef) -> bool {
        let (now, detail) = (self.clock.now(), u32::from(name.number));
        if !self.faults.is_active() {
            return false;
        }
        if self.fault_of_power(detail) {
            return true;
        }
        if self.faults.fires(Kind::Stall, now, detail) {
            self.engine.swallow_all(&mut self.device.backend);
            return true;
        }
        let never = self.faults.fires(Kind::Timeout, now, detail);
        if never {
            self.device.card.tasks |= 1 << name.number & !(1 << DIRECT);
            self.engine.swallow(name.number, &mut self.device.backend);
        }
        never
    }

    /// Power of the device goes away: everything volatile is lost, unflushed writes may vanish.
    /// The controller keeps its power. Nothing answers until
    /// [`restore_power`](Self::restore_power).
    ///
    /// # Errors
    /// A backing file could not be put into the state the loss leaves.
    pub fn cut_power(&mut self) -> Result<Loss, StoreError> {
        self.engine.swallow_all(&mut self.device.backend);
        self.host.stop_transfer(&mut self.device.backend);
        self.host.registers.set_detuned(false);
        self.clock.retain(|event| !matches!(event, Event::Die(_)));
        self.device.cut_power(self.clock.nanos(), &mut self.faults)
    }

    /// Power comes back after [`cut_power`](Self::cut_power): the card is idle.
    pub fn restore_power(&mut self) {
        let (runs, _) = self.host.registers.drives();
        self.device.restore_power(runs, self.clock.nanos());
    }

    /// The controller is pulled out: its registers read as ones from now on.
    pub fn unplug(&mut self) {
        let _ = self.cut_power();
        self.host.registers.set_gone(true);
    }

    /// It is put back, and has power.
    pub fn plug(&mut self) {
        self.host.registers.set_gone(false);
        self.engine.reset(&mut self.device.backend);
        self.restore_power();
    }
}
