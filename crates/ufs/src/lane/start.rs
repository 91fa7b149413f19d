//! How a command gets into a slot: the hot path down, and what may prevent it.

use super::Lane;
use crate::descriptors::Regions;
use crate::shared::order;
use crate::slots::Phase;
use crate::time::MS;
use flysch_api::command::{Command, Declined, Direction, NotStarted, Scsi};
use flysch_api::data::Data;
use flysch_api::machine::{Instant, Machine};
use flysch_orders::Order;
use flysch_wire::scsi::luns::LogicalUnitNumber;

impl<M: Machine> Lane<M> {
    /// Accepts a command. One that nothing prevents is written here, every other [out of
    /// line](Self::start_other). Orders of the host that the lane has obeyed prevent it through the
    /// [reserve](Self::reserve); [`ring`](Self::ring) sees newer orders.
    #[inline(always)]
    pub(crate) fn start(&mut self, command: Command<Scsi>, now: Instant) -> Result<(), Declined> {
        if self.free.len() > self.reserve
            && command.crypto.is_none()
            && command.direction != Direction::None
            && let Some(lun) = LogicalUnitNumber::from_bits(command.unit).to_ufs()
            && let Some(slot) = self.free.pop()
        {
            if let Some(range) = self.descriptors.plain(&command.data) {
                self.post((slot, lun), command, Regions::Plain(range));
                return Ok(());
            }
            return match self.write_regions(slot, lun, command.data, command.direction) {
                Ok(regions) => {
                    self.post((slot, lun), command, regions);
                    Ok(())
                }
                Err(why) => Err(Declined { why, token: command.token }),
            };
        }
        // Built anew, so that only a command that takes this path has to be in memory.
        let Command { unit, payload, direction, data, crypto, ordering, deadline, token } = command;
        let command = Command { unit, payload, direction, data, crypto, ordering, deadline, token };
        self.start_other(command, now)
    }

    /// Cold, although commands with a key take this path: that makes the compiler lay out
    /// [`start`](Self::start) for the others.
    #[cold]
    #[inline(never)]
    fn start_other(&mut self, command: Command<Scsi>, now: Instant) -> Result<(), Declined> {
        match self.prepare(&command, now) {
            Ok((slot, lun, regions)) => {
                self.post((slot, lun), command, regions);
                Ok(())
            }
            Err(why) => {
                self.rest();
                Err(Declined { why, token: command.token })
            }
        }
    }

    /// Writes any data as physical regions of a slot's command; gives the slot back if that is not
    /// possible.
    #[inline(never)]
    fn write_regions(
        &mut self,
        slot: usize,
        lun: u8,
        data: Data,
        direction: Direction,
    ) -> Result<Regions, NotStarted> {
        match self.descriptors.write_regions(&self.machine, slot, &data, direction) {
            Ok(count) => {
                self.sync_outgoing(&data);
                Ok(Regions::Written(count))
            }
            Err(bad) => {
                self.free.push(slot);
                if self.share.bounds_units() {
                    self.share.leave(lun);
                }
                Err(NotStarted::BadData(bad))
            }
        }
    }

    /// Makes the ranges of valid data visible to the device.
    #[inline]
    fn sync_outgoing(&self, data: &Data) {
        if !M::COHERENT {
            for range in data.ranges(&self.data).flatten() {
                self.machine.sync_for_device(range);
            }
        }
    }

    /// A slot for a command, its logical unit, and its physical regions.
    fn prepare(
        &mut self,
        command: &Command<Scsi>,
        now: Instant,
    ) -> Result<(usize, u8, Regions), NotStarted> {
        if self.shared.orders.order() != self.obeyed {
            self.wake(now);
        }
        if let Some(context) = &command.crypto {
            self.shared.keys.check(context, command.data.len())?;
        }
        if self.free.len() <= self.reserve {
            self.admit(command.unit, now)?;
        }
        let lun = LogicalUnitNumber::from_bits(command.unit).to_ufs();
        let lun = lun.ok_or(NotStarted::Unsupported)?;
        let slot = self.free.pop().ok_or(NotStarted::Full)?;
        let regions = match self.descriptors.plain(&command.data) {
            Some(range) if command.direction != Direction::None => Regions::Plain(range),
            _ => self.write_regions(slot, lun, command.data, command.direction)?,
        };
        Ok((slot, lun, regions))
    }

    /// Writes a command into its slot and posts it.
    #[inline(always)]
    fn post(&mut self, (slot, lun): (usize, u8), command: Command<Scsi>, regions: Regions) {
        let place = &mut self.slots[slot];
        let at = (slot, place.tag, lun);
        let entry = self.descriptors.write(&self.machine, at, &command, regions);
        place.lun = lun;
        place.abort = false;
        place.expected = command.data.len();
        place.deadline = command.deadline;
        if !M::COHERENT && command.direction == Direction::FromDevice {
            place.incoming = command.data;
        }
        place.phase = Phase::Started(command.token);
        self.queue.post(slot, entry, &self.machine);
        self.started.push(slot);
        self.in_flight += 1;
    }

    /// Whether a command for `unit` may start in spite of [`reserve`](Self::reserve); counts it for
    /// its unit where commands are counted. A parked lane leaves the parked state, and a
    /// hibernating link is asked to wake.
    #[cold]
    pub(crate) fn admit(&mut self, unit: u64, now: Instant) -> Result<(), NotStarted> {
        if self.parked {
            self.wake(now);
        }
        if self.obeyed.has(Order::GONE) {
            return Err(NotStarted::Gone);
        }
        if !self.obeyed.runs() && !self.waits {
            self.waits = true;
            self.watch_at = now.after_nanos(MS);
            if self.obeyed.has(order::ASLEEP) {
                self.shared.ask_to_wake();
            }
        }
        let has_slot = self.obeyed.runs() && self.free.len() > self.kept_back();
        let Some(lun) = LogicalUnitNumber::from_bits(unit).to_ufs() else {
            return Err(NotStarted::Unsupported);
        };
        let counted = self.share.bounds_units();
        if has_slot && (!counted || self.share.enter(lun, &self.shared.bounds)) {
            if self.waits {
                self.forget_declined();
            }
            Ok(())
        } else {
            Err(NotStarted::Full)
        }
    }
}
