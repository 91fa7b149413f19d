//! What a worker issues: the next request, and the work to be done on it first.

use flysch_api::block::{BlockDevice, Operation, Refused, Request};
use flysch_api::machine::{Clock, DmaRegion};

use super::{Flushing, Held, Phase, Purpose, SLOT_BITS, Shared, Worker, operation_of, request_of};
use crate::pattern::Step;
use crate::random::mix;
use crate::runner::zoned::Choice;
use crate::runner::{buffers, checking};
use crate::statistics::batch_level;
use crate::workload::{Direction, Fill};

/// What a worker did with its free slots.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::runner) struct Refilled {
    /// Requests accepted by the device.
    pub(in crate::runner) submitted: u32,
    /// Requests that it will never accept.
    pub(in crate::runner) refused: u32,
}

impl Worker<'_> {
    /// Issues the requests that may be issued now.
    #[inline]
    pub(in crate::runner) fn refill<D: BlockDevice, C: Clock>(
        &mut self,
        lane: &mut D,
        clock: &C,
        shared: &mut Shared,
    ) -> Refilled {
        let mut done = Refilled::default();
        // Bounded: a device that refuses everything must not keep the others waiting.
        for _ in 0..self.slots.len() {
            let Some(held) = self.next(lane, clock, shared) else { break };
            let now = clock.now();
            let slot = &self.slots[usize::from(held.slot)];
            let request = request_of(slot, self.token(held.slot), held.accepted.unwrap_or(now));
            let request = Request { force_unit_access: self.job.force_unit_access, ..request };
            match lane.submit(&request, now) {
                Ok(()) => {
                    done.submitted += 1;
                    let in_flight = self.in_flight();
                    self.statistics.at_depth(in_flight);
                }
                Err(Refused::Full) => {
                    self.held = Some(Held { accepted: Some(request.accepted), ..held });
                    break;
                }
                Err(Refused::Invalid(error)) => {
                    done.refused += 1;
                    self.refused(held.slot, error, shared);
                }
            }
        }
        if done.submitted > 0 {
            self.statistics.submit_batches[batch_level(done.submitted)] += 1;
        }
        if self.completed > 0 {
            self.statistics.complete_batches[batch_level(self.completed)] += 1;
            self.completed = 0;
        }
        done
    }

    #[inline]
    fn token(&self, slot: u16) -> u64 {
        u64::from(self.id) << SLOT_BITS | u64::from(slot)
    }

    /// The next request to issue, taken from the free list and prepared.
    #[inline]
    fn next<D: BlockDevice, C: Clock>(
        &mut self,
        lane: &D,
        clock: &C,
        shared: &mut Shared,
    ) -> Option<Held> {
        if self.held.is_some() {
            return self.next_held(lane.memory(), clock, shared);
        }
        let &slot = self.free.last()?;
        if self.phase != Phase::Running || self.flushing.wanted || self.flushing.in_flight {
            return self.next_other(slot, clock, shared);
        }
        if self.bytes_left == 0 || self.requests_left == 0 {
            return self.next_logged(slot, lane.memory(), clock, shared);
        }
        if let Some(pacer) = &mut self.pacer
            && !pacer.is_open(clock.now())
        {
            return None;
        }
        let step = match &self.pacer {
            None => self.pattern.step(),
            Some(pacer) => self.pattern.step_or(|drawn| pacer.direction(drawn, clock.now())),
        };
        if step.length == 0 {
            self.drain();
            return None;
        }
        self.bytes_left = self.bytes_left.saturating_sub(u64::from(step.length));
        self.requests_left -= 1;
        if self.bytes_left <= self.pass.0 && self.bytes_left > 0 {
            self.end_pass();
        }
        self.free.pop();
        self.slots[usize::from(slot)].take(step);
        let held = Held { slot, accepted: None, is_placed: false };
        if self.is_special {
            self.held = Some(held);
            return self.make_special(step, lane.memory(), clock, shared);
        }
        if step.direction == Direction::Write {
            self.flushing.count(self.job.flush_every);
            let place = &mut self.slots[usize::from(slot)];
            if place.is_stale {
                place.fill_again((self.job, slot), lane.memory(), &mut shared.scratch);
            }
        }
        Some(held)
    }

    /// The next request of the replayed log, if it is due; without a log, and after its end,
    /// nothing more comes.
    #[cold]
    fn next_logged<C: Clock>(
        &mut self,
        slot: u16,
        memory: &DmaRegion,
        clock: &C,
        shared: &mut Shared,
    ) -> Option<Held> {
        let due = self.replaying.as_ref().and_then(|replaying| replaying.due());
        let Some(due) = due else {
            self.drain();
            return None;
        };
        let now = clock.now();
        if due > now || self.pacer.as_mut().is_some_and(|pacer| !pacer.is_open(now)) {
            return None;
        }
        let entry = self.replaying.as_mut()?.take()?;
        let direction = match entry.operation {
            Operation::Read => Direction::Read,
            Operation::Write => Direction::Write,
            Operation::Delete => Direction::Trim,
            Operation::Flush => {
                self.flushing.wanted = true;
                return self.next_other(slot, clock, shared);
            }
        };
        self.free.pop();
        let step = Step { direction, offset: entry.offset, length: entry.length };
        self.slots[usize::from(slot)].take(step);
        self.held = Some(Held { slot, accepted: None, is_placed: false });
        self.make_special(step, memory, clock, shared)
    }

    /// With the next request a pass is over that ends with a flush.
    #[cold]
    fn end_pass(&mut self) {
        self.pass.0 = self.pass.0.saturating_sub(self.pass.1.max(1));
        self.flushing.wanted = true;
    }

    /// Prepares a request that needs more than its slot.
    #[cold]
    fn make_special<C: Clock>(
        &mut self,
        mut step: Step,
        memory: &DmaRegion,
        clock: &C,
        shared: &mut Shared,
    ) -> Option<Held> {
        let held = self.held?;
        let place = &mut self.slots[usize::from(held.slot)];
        if self.job.verify.is_some_and(|verify| verify.only) {
            step.direction = Direction::Read;
            place.purpose = Purpose::Data(Direction::Read);
        }
        if let Some(pacer) = &mut self.pacer {
            pacer.issued(step.direction, step.length, clock.now());
        }
        if self.job.fill == Fill::Refill && step.direction == Direction::Write {
            let content = &mut shared.scratch[..step.length as usize];
            checking::fill_buffer(&Fill::Refill, content, mix(step.offset ^ clock.now().nanos()));
            buffers::write(memory, &place.data, content);
        } else if step.direction == Direction::Write && place.is_stale {
            place.fill_again((self.job, held.slot), memory, &mut shared.scratch);
        }
        if self.zoning.is_none() {
            self.note(step, held.slot, clock);
        }
        self.next_held(memory, clock, shared)
    }

    /// A request is where it is to be: counts it towards what follows from it.
    fn note<C: Clock>(&mut self, step: Step, slot: u16, clock: &C) {
        if step.direction == Direction::Write {
            self.flushing.count(self.job.flush_every);
            let range = (step.offset, step.length);
            if self.checker.as_mut().is_some_and(|checker| checker.is_far_behind(range)) {
                self.phase = Phase::Catching;
            }
        }
        self.write_to_log(slot, clock);
    }

    /// The request that could not be issued before, if it can be issued now.
    #[cold]
    fn next_held<C: Clock>(
        &mut self,
        memory: &DmaRegion,
        clock: &C,
        shared: &mut Shared,
    ) -> Option<Held> {
        let held = self.held?;
        if self.zoning.is_some() && !held.is_placed {
            self.place_in_zone(held, clock, shared)?;
        }
        let slot = &self.slots[usize::from(held.slot)];
        let changes = matches!(slot.purpose, Purpose::Data(Direction::Write | Direction::Trim));
        if held.accepted.is_none() && changes && self.checker.is_some() {
            let (offset, length) = (slot.offset, slot.length);
            let checker = self.checker.as_ref()?;
            if checking::is_busy(shared, offset, length) {
                return None;
            }
            let is_write = slot.purpose == Purpose::Data(Direction::Write);
            let range = (offset, length);
            if checker.before_write(shared, range, is_write, clock.now()) {
                buffers::write(memory, &slot.data, &shared.scratch[..length as usize]);
            }
        }
        self.held.take()
    }

    /// Puts a request where zones let it be, or a reset in its place. None if it has to wait, or is
    /// none.
    fn place_in_zone<C: Clock>(
        &mut self,
        held: Held,
        clock: &C,
        shared: &mut Shared,
    ) -> Option<()> {
        let (zoning, zones) = (self.zoning.as_mut()?, shared.zones.as_mut()?);
        let place = &mut self.slots[usize::from(held.slot)];
        let Purpose::Data(direction) = place.purpose else { return Some(()) };
        let step = Step { direction, offset: place.offset, length: place.length };
        match zoning.choose(zones, step) {
            Choice::Go(step) => {
                // What it is shorter is still to be done.
                let left = u64::from(place.length.saturating_sub(step.length));
                self.bytes_left = self.bytes_left.saturating_add(left);
                (place.offset, place.length) = (step.offset, step.length);
                self.note(step, held.slot, clock);
            }
            Choice::Reset((offset, length)) => {
                self.bytes_left = self.bytes_left.saturating_add(place.length.into());
                self.requests_left = self.requests_left.saturating_add(1);
                (place.offset, place.length, place.purpose) = (offset, length, Purpose::Reset);
                self.write_to_log(held.slot, clock);
            }
            Choice::Wait => return None,
            Choice::End => {
                self.drain();
                return None;
            }
        }
        self.held = Some(Held { is_placed: true, ..held });
        Some(())
    }

    /// Flushes and read-back: everything that is not the workload itself.
    #[cold]
    fn next_other<C: Clock>(&mut self, slot: u16, clock: &C, shared: &Shared) -> Option<Held> {
        let is_over = self.bytes_left == 0 || self.requests_left == 0;
        if self.phase == Phase::Running && is_over && self.replaying.is_none() {
            // As in fio no flush is owed to the last write, unless the job ends with one.
            self.flushing.wanted = false;
            self.drain();
            return None;
        }
        let flush = matches!(self.phase, Phase::Running | Phase::LastFlush);
        let is_empty = self.free.len() == self.depth;
        let place = &mut self.slots[usize::from(slot)];
        if flush && self.flushing.wanted && is_empty {
            (place.offset, place.length, place.purpose) = (0, 0, Purpose::Flush);
            let has_been = true;
            self.flushing = Flushing { writes: 0, wanted: false, in_flight: true, has_been };
        } else if matches!(self.phase, Phase::Checking | Phase::Catching) {
            let checker = self.checker.as_mut()?;
            let (offset, length) = match self.phase {
                Phase::Catching => checker.next_behind(shared)?,
                _ => checker.next_range(shared, place.data.len())?,
            };
            (place.offset, place.length, place.purpose) = (offset, length, Purpose::Check);
        } else {
            return None;
        }
        self.free.pop();
        self.write_to_log(slot, clock);
        Some(Held { slot, accepted: None, is_placed: true })
    }

    /// Writes the request in `slot` to the log of this worker, if there is one.
    fn write_to_log<C: Clock>(&mut self, slot: u16, clock: &C) {
        let Some(log) = &mut self.log else { return };
        let slot = &self.slots[usize::from(slot)];
        let operation = operation_of(slot.purpose);
        log.request(operation, (slot.offset, slot.length), clock.now());
    }
}
