//! Several devices behind one port: which may issue commands when.
//!
//! Theory. Each device has a line of commands waiting for it: behind one that must be alone or,
//! where the HBA addresses one device at a time (command-based switching), for its turn. A turn
//! lasts until no command of its device is left in the HBA, and begins with everything that waits
//! for that device. If no other device is waiting, the turn simply continues; otherwise the devices
//! with commands take turns. A command that must be alone may take a long time, so it comes after
//! everything that waited before it, and no more commands are accepted until it is done.

use super::Lane;
use crate::slots::{Line, bits};
use crate::taskfile::Ways;
use flysch_api::machine::{Instant, Machine};
use flysch_wire::ata::multiplier::PORTS_MAX;
use flysch_wire::ata::registers::{Fbs, PX_CI, PX_FBS, PX_SACT};

/// Maximum number of devices behind a port.
pub(crate) const UNITS: usize = PORTS_MAX;
/// Value for an unknown device in PxFBS.
const UNKNOWN: u8 = u8::MAX;

/// How the HBA keeps the devices behind a port apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Switching {
    /// There is only one.
    #[default]
    Direct,
    /// It addresses one at a time (command-based switching).
    Command,
    /// By their FISes: all at once (FIS-based switching).
    Fis,
}

/// A device as the lane sees it.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) ways: Ways,
    /// Whether there is a device.
    pub(super) is_there: bool,
    /// Whether a queued command may go to the device without waiting.
    pub(super) express: bool,
    pub(super) line: Line,
}

impl Target {
    pub(super) const ABSENT: Self = Self {
        ways: Ways {
            ncq: false,
            lba48: false,
            dma: false,
            fua: false,
            queued_trim: false,
            packets: false,
        },
        is_there: false,
        express: false,
        line: Line::EMPTY,
    };
}

/// Whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Turns {
    pub(super) switching: Switching,
    /// The device whose commands may be in the HBA, if only one may have any.
    pub(super) turn: u8,
    /// PxFBS.DEV.
    named: u8,
}

impl<M: Machine> Lane<M> {
    /// Sets how the port's devices are kept apart.
    pub(crate) fn set_switching(&mut self, switching: Switching) {
        self.turns = Turns { switching, named: UNKNOWN, ..Turns::default() };
    }

    /// Whether the port has devices behind a multiplier.
    pub(super) fn is_multiplied(&self) -> bool {
        self.turns.switching != Switching::Direct
    }

    /// The device whose turn it is.
    pub(crate) fn turn(&self) -> u8 {
        self.turns.turn
    }

    /// Sets the forms of commands a device accepts; `None` if there is no device.
    pub(crate) fn set_ways(&mut self, unit: u8, ways: Option<Ways>) {
        if let Some(target) = self.targets.get_mut(usize::from(unit)) {
            (target.is_there, target.ways) = (ways.is_some(), ways.unwrap_or_default());
        }
    }

    pub(crate) fn ways(&self, unit: u8) -> Ways {
        self.targets.get(usize::from(unit)).map_or(Ways::default(), |target| target.ways)
    }

    /// Slots of a device's commands, in whatever state.
    pub(crate) fn of_unit(&self, unit: u8) -> u32 {
        let is_its = |slot: &usize| {
            let slot = &self.slots[*slot];
            slot.owed.is_some() && slot.unit == unit
        };
        (0..self.slots.len()).filter(is_its).fold(0, |mask, slot| mask | 1 << slot)
    }

    /// Updates which devices can take queued commands without waiting.
    #[cold]
    pub(super) fn refresh(&mut self) {
        let one_at_a_time = self.turns.switching == Switching::Command;
        let is_calm = self.waits | self.alone == 0;
        for unit in 0..UNITS {
            let busy = match self.turns.switching {
                Switching::Direct => self.alone,
                Switching::Command | Switching::Fis if self.alone == 0 => 0,
                Switching::Command | Switching::Fis => self.alone & self.of_unit(unit as u8),
            };
            let target = &mut self.targets[unit];
            let is_its_turn = !one_at_a_time || is_calm && usize::from(self.turns.turn) == unit;
            target.express = target.is_there
                && target.ways.ncq
                && target.line.is_empty()
                && busy == 0
                && is_its_turn;
        }
    }

    /// Puts a command at the end of its device's line, or at its front.
    pub(super) fn line_up(&mut self, slot: usize, at_front: bool) {
        self.waits |= 1 << slot;
        let line = &mut self.targets[usize::from(self.slots[slot].unit)].line;
        if at_front { line.push_front(slot) } else { line.push(slot) }
    }

    /// Takes a command out of its line, if it is in one.
    pub(super) fn line_leave(&mut self, slot: usize) {
        if self.waits >> slot & 1 != 0 {
            self.waits &= !(1 << slot);
            self.targets[usize::from(self.slots[slot].unit)].line.remove(slot);
        }
    }

    /// Whether a command that must be alone in its device is running or waiting.
    pub(super) fn has_singles(&self) -> bool {
        self.alone != 0 || bits(self.waits).any(|slot| !self.slots[slot].is_queued)
    }

    /// Whether a queued command of a device may go to the HBA now; may give the turn to that
    /// device.
    pub(super) fn may_post(&mut self, unit: u8) -> bool {
        if self.turns.switching != Switching::Command {
            return true;
        }
        if self.waits != 0 {
            return false;
        }
        if self.queued | self.posted | self.alone == 0 {
            self.turns.turn = unit;
        }
        self.turns.turn == unit
    }

    /// Begins the turn of the next device in the round with something waiting; those whose next
    /// command is queued come first.
    fn begin_turn(&mut self) -> Option<usize> {
        if self.queued | self.posted | self.alone != 0 {
            return None;
        }
        let round = (1..=UNITS).map(|n| (usize::from(self.turns.turn) + n) % UNITS);
        let front = |unit: &usize| self.targets[*unit].line.front();
        let is_queued = |unit: &usize| front(unit).is_some_and(|slot| self.slots[slot].is_queued);
        let waiting = round.filter(|unit| front(unit).is_some());
        let next = waiting.clone().find(is_queued).or_else(|| waiting.clone().next())?;
        self.turns.turn = next as u8;
        Some(next)
    }

    /// Issues what may leave the lines.
    #[inline(never)]
    pub(crate) fn pump(&mut self, now: Instant) {
        if !self.running {
            return;
        }
        match self.turns.switching {
            Switching::Direct => self.pump_unit(0, now),
            Switching::Command => {
                if let Some(unit) = self.begin_turn() {
                    self.pump_unit(unit, now);
                }
            }
            Switching::Fis => (0..UNITS).for_each(|unit| self.pump_unit(unit, now)),
        }
        self.refresh();
        if self.posted != 0 {
            self.ring_posted(now);
        }
    }

    /// Takes commands from a device's line: queued ones while none is alone, and one that must be
    /// alone when nothing else is in the device. Order is preserved.
    fn pump_unit(&mut self, unit: usize, now: Instant) {
        if self.targets[unit].line.is_empty() {
            return;
        }
        let its = self.of_unit(unit as u8);
        while let Some(slot) = self.targets[unit].line.front() {
            if self.alone & its != 0 {
                return;
            }
            if !self.slots[slot].is_queued && (self.queued | self.posted) & its != 0 {
                return;
            }
            self.targets[unit].line.pop();
            self.waits &= !(1 << slot);
            if self.slots[slot].is_queued {
                self.posted |= 1 << slot;
            } else {
                return self.issue_alone(slot, now);
            }
        }
    }

    fn issue_alone(&mut self, slot: usize, now: Instant) {
        self.alone |= 1 << slot;
        self.slots[slot].issued = now;
        let look = now.after_nanos(self.watchdog_nanos).min(self.slots[slot].deadline);
        self.watch_at = if self.queued == 0 { look } else { self.watch_at.min(look) };
        self.name(self.slots[slot].unit);
        self.machine.write32(self.base + PX_CI, 1 << slot);
    }

    /// Tells an HBA with FIS-based switching whose commands are issued next.
    fn name(&mut self, unit: u8) {
        if self.turns.switching == Switching::Fis && self.turns.named != unit {
            self.turns.named = unit;
            let fbs = Fbs::new().with_en(true).with_dev(unit);
            self.machine.write32(self.base + PX_FBS, fbs.into_bits());
        }
    }

    /// Rings one doorbell for each device with commands in the batch.
    #[inline(never)]
    pub(super) fn ring_by_device(&mut self) {
        let mut left = self.posted;
        while left != 0 {
            let unit = self.slots[left.trailing_zeros() as usize].unit;
            let its = left & self.of_unit(unit);
            left &= !its;
            self.name(unit);
            self.machine.write32(self.base + PX_SACT, its);
            self.machine.write32(self.base + PX_CI, its);
        }
    }

    /// Forgets the device in PxFBS: the control path has changed it.
    pub(super) fn forget_name(&mut self) {
        self.turns.named = UNKNOWN;
    }
}
