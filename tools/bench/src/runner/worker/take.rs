//! What a worker does with completions: counts them, checks data, handles failures.

use flysch_api::block::{Completion, Operation};
use flysch_api::machine::{DmaRegion, Instant};
use flysch_api::trace::{Record, Stamps};

use super::{Phase, Purpose, Shared, Slot, Worker, operation_of};
use crate::runner::latency::Verdict;
use crate::runner::{Failure, buffers, direction_of};
use crate::workload::{Direction, Ends};

impl Worker<'_> {
    /// Takes a completion: counts it, frees its slot.
    #[inline]
    pub(in crate::runner) fn complete(
        &mut self,
        completion: &Completion,
        now: Instant,
        memory: &DmaRegion,
        shared: &mut Shared,
    ) -> Record {
        let stamps = completion.passage.delivered(now);
        let index = completion.token as u16;
        let slot = self.slots[usize::from(index)];
        self.free.push(index);
        self.completed += 1;
        self.last = now;
        let record = Record {
            stamps,
            offset: slot.offset,
            length: slot.length,
            slot: self.lane_slot.wrapping_add(index),
            lane: self.lane as u8,
            operation: operation_of(slot.purpose),
            failed: completion.result.is_err(),
        };
        let plain = self.is_plain && completion.result.is_ok();
        match slot.purpose {
            Purpose::Data(direction) if plain => {
                if let Some(statistics) = &mut self.statistics.directions[direction.index()] {
                    statistics.record(&stamps, slot.length);
                }
            }
            _ => self.complete_other(&slot, (completion.result, &stamps), memory, shared),
        }
        record
    }

    /// Takes a special completion: a flush, a failure, or data to be checked.
    #[cold]
    fn complete_other(
        &mut self,
        slot: &Slot,
        (result, stamps): (Result<(), flysch_api::block::BlockError>, &Stamps),
        memory: &DmaRegion,
        shared: &mut Shared,
    ) {
        let range = (slot.offset, slot.length);
        self.end_in_zone(slot, result.is_ok(), shared);
        let wrote = matches!(
            slot.purpose,
            Purpose::Data(Direction::Write | Direction::Trim) | Purpose::Reset
        );
        if let (true, Some(checker)) = (wrote, &self.checker) {
            let keep = slot.purpose == Purpose::Data(Direction::Write) && result.is_ok();
            checker.after_write(shared, range, keep);
        }
        if slot.purpose == Purpose::Flush {
            self.flushing.in_flight = false;
        }
        if let Err(error) = result {
            return self.fail_request(slot, error);
        }
        match slot.purpose {
            Purpose::Flush => self.statistics.flush.record(stamps.total_nanos()),
            Purpose::Check => self.check(slot, memory, shared),
            Purpose::Reset => {}
            Purpose::Data(direction) => {
                if let Some(statistics) = &mut self.statistics.directions[direction.index()] {
                    statistics.record(stamps, slot.length);
                }
                let reads = self.checker.as_ref().is_some_and(|checker| checker.checks_reads());
                if direction == Direction::Read && reads {
                    self.check(slot, memory, shared);
                }
                self.judge(slot, direction, stamps.total_nanos());
            }
        }
    }

    /// A request has ended: what it changed of a zone is so now, or not.
    fn end_in_zone(&mut self, slot: &Slot, is_good: bool, shared: &mut Shared) {
        let (Some(zoning), Some(zones)) = (&mut self.zoning, &mut shared.zones) else { return };
        match slot.purpose {
            Purpose::Data(Direction::Write) => zoning.ended(zones, true, (slot.offset, is_good)),
            Purpose::Data(Direction::Trim) | Purpose::Reset => {
                zoning.ended(zones, false, (slot.offset, is_good));
            }
            _ => {}
        }
    }

    /// Checks the latency of a request against the limits.
    fn judge(&mut self, slot: &Slot, direction: Direction, nanos: u64) {
        let judges = self.phase == Phase::Running && self.ramp_end.is_none();
        let Some(limits) = self.limits.as_mut().filter(|_| judges) else { return };
        match limits.judge(direction.index(), nanos, self.last) {
            Verdict::GoOn => {}
            Verdict::Deeper => {
                let depth = limits.depth();
                self.set_depth(depth);
            }
            Verdict::Settle => self.phase = Phase::Settling,
            Verdict::Found => self.drain(),
            Verdict::TooLong(limit) => {
                let (offset, length) = (slot.offset, slot.length);
                let operation = operation_of(slot.purpose);
                self.fail(Failure::TooLong { operation, offset, length, nanos, limit }, false);
            }
        }
    }

    fn check(&mut self, slot: &Slot, memory: &DmaRegion, shared: &mut Shared) {
        let Some(checker) = &mut self.checker else { return };
        buffers::read(memory, &slot.data, &mut shared.scratch[..slot.length as usize]);
        let read_back = slot.purpose == Purpose::Check;
        if let Some(failure) = checker.check(shared, (slot.offset, slot.length), read_back) {
            let list = &self.job.ignored[2];
            let tolerated = match list.is_empty() {
                true => self.job.tolerance.verify,
                false => list.contains(&failure.errno()),
            };
            self.fail(failure, tolerated);
        }
    }

    /// The device refused the request in `slot`: it was never in flight.
    #[cold]
    pub(super) fn refused(
        &mut self,
        slot: u16,
        error: flysch_api::block::BlockError,
        shared: &mut Shared,
    ) {
        self.free.push(slot);
        let slot = self.slots[usize::from(slot)];
        self.end_in_zone(&slot, false, shared);
        if let Some(checker) = &self.checker {
            checker.after_write(shared, (slot.offset, slot.length), false);
        }
        self.flushing.in_flight &= slot.purpose != Purpose::Flush;
        self.fail_request(&slot, error);
    }

    fn fail_request(&mut self, slot: &Slot, error: flysch_api::block::BlockError) {
        let operation = operation_of(slot.purpose);
        if let Some(direction) = direction_of(operation)
            && let Some(statistics) = &mut self.statistics.directions[direction.index()]
        {
            statistics.failed += 1;
        }
        let (offset, length) = (slot.offset, slot.length);
        let (list, tolerated) = match operation {
            Operation::Read => (0, self.job.tolerance.read),
            _ => (1, self.job.tolerance.write),
        };
        let failure = Failure::Request { operation, offset, length, error };
        // A list of errors stands in place of what is tolerated else.
        let list = &self.job.ignored[list];
        let tolerated = if list.is_empty() { tolerated } else { list.contains(&failure.errno()) };
        self.fail(failure, tolerated);
    }

    /// Counts a failure; unless it is tolerated, the worker ends.
    pub(super) fn fail(&mut self, failure: Failure, tolerated: bool) {
        self.failures += 1;
        self.first.get_or_insert(failure);
        if tolerated {
            return;
        }
        let verify_goes_on = matches!(failure, Failure::Verify { .. })
            && !self.job.verify.is_some_and(|verify| verify.fatal)
            && self.job.ends_failed == Ends::Alone;
        self.failure.get_or_insert(failure);
        if !verify_goes_on {
            self.stop();
        }
    }
}
