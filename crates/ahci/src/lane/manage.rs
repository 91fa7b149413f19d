//! Commands of a port when something goes wrong, and the start of its list.

use super::{Lane, Trouble, UNITS};
use crate::slots::bits;
use crate::taskfile::unqueued;
use flysch_api::command::{AtaStatus, Direction, Ended, Outcome};
use flysch_api::machine::{Instant, Machine};
use flysch_wire::ata::list::{HEADER, HeaderFlags};
use flysch_wire::ata::registers::{PX_CI, PX_IS, PX_SACT};
use flysch_wire::ata::{H2d, Header};

/// What the watchdog found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// PxIS.
    pub(crate) interrupts: u32,
    /// Whether a command in the device is past its deadline.
    pub(crate) overdue: bool,
}

impl<M: Machine> Lane<M> {
    /// Prepares the list to run: every header refers to its table, and the devices have no
    /// commands.
    pub(crate) fn set_up(&mut self) {
        for slot in 0..self.slots.len() {
            let table = self.table_address + self.table_of_slot(slot);
            let [low, table] = Header { table, ..Header::default() }.to_words();
            // Commands waiting in line keep their headers.
            let low = if self.slots[slot].owed.is_some() { self.low(slot) } else { low };
            self.list.get(slot).put::<0, 2>([low, table]);
        }
        self.machine.sync_for_device(self.list.region().span(0, self.list.region().len()));
    }

    /// Limits the commands in flight.
    pub(crate) fn set_depth(&mut self, depth: usize) {
        self.depth = depth;
    }

    fn table_of_slot(&self, slot: usize) -> u64 {
        (slot * crate::layout::TABLE) as u64
    }

    fn low(&self, slot: usize) -> u64 {
        self.list.region().load64(slot * HEADER)
    }

    /// Allows commands to be started and issued from now on.
    pub(crate) fn open(&mut self, now: Instant) {
        self.capacity = self.depth;
        self.running = true;
        self.forget_name();
        self.watch_at = now.after_nanos(self.watchdog_nanos);
        self.pump(now);
        self.ring(now);
    }

    /// Stops starting and issuing commands; registers are left alone.
    pub(crate) fn close(&mut self) {
        self.capacity = 0;
        self.running = false;
        // Written, but not yet issued to the device.
        for slot in bits(core::mem::take(&mut self.posted)) {
            self.line_up(slot, false);
        }
        self.refresh();
    }

    /// Stops starting commands; those in the device may end.
    pub(crate) fn drain(&mut self) {
        self.capacity = 0;
    }

    /// Whether nothing is in the device or waiting for it.
    pub(crate) fn is_idle(&self) -> bool {
        self.queued | self.posted | self.alone | self.batch | self.waits == 0
    }

    /// Slots of the queued commands that the devices have, and of those that are alone.
    pub(crate) fn issued(&self) -> (u32, u32) {
        (self.queued, self.alone)
    }

    /// Looks for errors and for commands past their deadline. Those still waiting end here.
    pub(crate) fn watch(&mut self, now: Instant) -> Found {
        let mut found = Found::default();
        let mut next = now.after_nanos(self.watchdog_nanos);
        for slot in bits(self.queued | self.alone) {
            let deadline = self.slots[slot].deadline;
            found.overdue |= deadline <= now;
            next = next.min(deadline);
        }
        for slot in bits(self.waits) {
            let deadline = self.slots[slot].deadline;
            if deadline <= now {
                let ended = self.why(slot, Ended::TimedOut, now);
                self.end(slot, ended, Trouble::default());
            } else {
                next = next.min(deadline);
            }
        }
        self.watch_at = next;
        found.interrupts = self.interrupts_now();
        found
    }

    /// PxIS.
    pub(crate) fn interrupts_now(&self) -> u32 {
        self.machine.read32(self.base + PX_IS)
    }

    /// Takes commands that have succeeded although something else went wrong: tags no longer
    /// active, and a command that was alone and is no longer issued.
    pub(crate) fn take_in(&mut self, now: Instant) {
        let (active, issued) =
            (self.machine.read32(self.base + PX_SACT), self.machine.read32(self.base + PX_CI));
        let done = self.queued & !(active | issued) | self.alone & !issued;
        self.queued &= !done;
        self.batch |= done;
        while self.batch != 0 {
            let slot = self.batch.trailing_zeros() as usize;
            self.batch &= self.batch - 1;
            if let Some(outcome) = self.settle(slot, now) {
                self.keep(outcome);
            }
        }
    }

    /// Stores an outcome to be fetched; it is owed until then.
    fn keep(&mut self, outcome: Outcome) {
        self.ended.push_back((outcome, self.trouble));
        self.in_flight += 1;
    }

    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The next stored outcome.
    pub(crate) fn take_ended(&mut self) -> Option<Outcome> {
        let (outcome, trouble) = self.ended.pop_front()?;
        self.trouble = trouble;
        self.in_flight -= 1;
        Some(outcome)
    }

    /// Ends a command that the device no longer has, or never had.
    pub(crate) fn end(&mut self, slot: usize, ended: Ended, mut trouble: Trouble) {
        let bit = 1 << slot;
        self.queued &= !bit;
        self.alone &= !bit;
        self.posted &= !bit;
        self.batch &= !bit;
        self.line_leave(slot);
        let place = &mut self.slots[slot];
        let Some(token) = place.owed.take() else { return };
        if ended != Ended::Good && trouble.residual == 0 {
            trouble.residual = place.expected;
        }
        let issued = place.issued;
        if !M::COHERENT {
            self.sync_incoming(slot);
        }
        self.free |= bit;
        self.in_flight -= 1;
        self.trouble = trouble;
        self.keep(Outcome { issued, device_done: None, token, ended });
    }

    /// Ends a command that failed, with the status from the device.
    pub(crate) fn end_answered(&mut self, slot: usize, status: AtaStatus) {
        self.end(slot, Ended::Answered, Trouble { status, ..Trouble::default() });
    }

    /// Why a command that did not complete ends: unless the device is gone, its owner's request and
    /// its deadline take precedence.
    fn why(&self, slot: usize, cause: Ended, now: Instant) -> Ended {
        let place = &self.slots[slot];
        if matches!(cause, Ended::Gone | Ended::NoUnit) {
            cause
        } else if place.abort {
            Ended::Aborted
        } else if place.deadline <= now {
            Ended::TimedOut
        } else {
            cause
        }
    }

    /// Ends all issued commands in these slots, whose devices no longer have them. `code` is PxIS
    /// if the HBA is the reason.
    pub(crate) fn end_issued(&mut self, of: u32, (cause, code): (Ended, u32), now: Instant) {
        for slot in bits((self.queued | self.alone) & of) {
            let ended = self.why(slot, cause, now);
            self.end(slot, ended, Trouble { code, ..Trouble::default() });
        }
    }

    /// Ends everything, including what waits in line.
    pub(crate) fn end_all(&mut self, cause: Ended, now: Instant) {
        self.end_issued(u32::MAX, (cause, 0), now);
        (0..UNITS as u8).for_each(|unit| self.end_waiting(unit, cause, now));
    }

    /// Ends everything that waits for a device.
    pub(crate) fn end_waiting(&mut self, unit: u8, cause: Ended, now: Instant) {
        while let Some(slot) = self.targets[usize::from(unit)].line.front() {
            let ended = self.why(slot, cause, now);
            self.end(slot, ended, Trouble::default());
        }
    }

    /// Moves unfinished queued commands of a device, of which an unknown one failed, to the front
    /// of its line as unqueued commands: each then reports for itself. Those without an unqueued
    /// form end as if by a reset.
    pub(crate) fn isolate(&mut self, unit: u8, now: Instant) {
        let ways = self.ways(unit);
        let mut mask = self.queued & self.of_unit(unit);
        while mask != 0 {
            // The last one first, because the front of the line is built backwards.
            let slot = 31 - mask.leading_zeros() as usize;
            mask &= !(1 << slot);
            let header = HeaderFlags::from_bits(u64::from_le(self.low(slot)) as u32);
            let mut bytes = [0; flysch_wire::ata::fis::REGISTER_LENGTH];
            self.tables.region().read(slot * crate::layout::TABLE, &mut bytes);
            let fis = H2d::parse(&bytes).ok().and_then(|fis| unqueued(&fis, ways));
            match fis {
                Some(fis) => {
                    let direction = match header.write() {
                        true => Direction::ToDevice,
                        false => Direction::FromDevice,
                    };
                    self.put(slot, fis, (direction, header.prdtl()), false);
                    self.queued &= !(1 << slot);
                    self.slots[slot].is_queued = false;
                    self.line_up(slot, true);
                }
                None => {
                    let ended = self.why(slot, Ended::Reset, now);
                    self.end(slot, ended, Trouble::default());
                }
            }
        }
    }

    pub(crate) fn abort(&mut self, token: u32) -> bool {
        let owed = |place: &&mut crate::slots::Slot| {
            place.owed.as_ref().is_some_and(|owed| owed.number() == token)
        };
        match self.slots.iter_mut().find(owed) {
            Some(place) => {
                place.abort = true;
                place.deadline = Instant::START;
                self.watch_at = Instant::START;
                true
            }
            None => false,
        }
    }
}
