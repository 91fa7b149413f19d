//! One worker: keeps its queue full, counts what comes back.

use flysch_api::block::{Completion, Device, Operation, Refused, Request};
use flysch_api::data::Data;
use flysch_api::machine::{Clock, DmaRegion, Instant};
use flysch_api::trace::{Record, Stamps};

use super::buffers;
use super::checking::{self, Checker};
use super::company::Flows;
use super::pace::Pacer;
use super::{Assignment, DEPTH_MAX, Error, Failure, Shared, WORKERS_MAX, WorkerOutcome};
use crate::pattern::{Pattern, Step};
use crate::random::mix;
use crate::statistics::{Statistics, batch_level};
use crate::workload::{Direction, Fill, Mix, Workload};

/// A token is the worker's number above the slot's.
const SLOT_BITS: u32 = 16;
/// Interval of the bandwidth and rate samples, as fio's `bwavgtime`.
const SAMPLE_NANOS: u64 = 500_000_000;

/// The worker a completion belongs to.
#[inline]
pub(super) fn of_token(token: u64) -> usize {
    (token >> SLOT_BITS) as usize
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The workload itself.
    Data(Direction),
    /// Making writes durable.
    Flush,
    /// Reading back what was written.
    Check,
}

/// One place in the worker's queue.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Room for the longest request's data.
    data: Data,
    offset: u64,
    length: u32,
    purpose: Purpose,
}

impl Slot {
    fn new(data: Data) -> Self {
        Self { data, offset: 0, length: 0, purpose: Purpose::Flush }
    }
}

/// A request that is made but could not be issued yet.
#[derive(Clone, Copy, Debug)]
struct Held {
    slot: u16,
    /// When the device was first asked to take it; `None` while it waits for an overlapping write.
    accepted: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waits for its start delay.
    Delayed,
    /// Issues requests.
    Running,
    /// Waits for the last ones.
    Draining,
    /// The flush after the last write.
    LastFlush,
    /// Reads back what it wrote.
    Checking,
    /// Nothing more to do.
    Done,
}

/// Flushes between writes.
#[derive(Clone, Copy, Debug, Default)]
struct Flushing {
    /// Writes since the last flush.
    writes: u32,
    /// The next request is a flush, once everything before it came back.
    wanted: bool,
    in_flight: bool,
}

/// What a worker did with its free slots.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Refilled {
    /// Requests the device took.
    pub(super) submitted: u32,
    /// Requests it will never take.
    pub(super) refused: u32,
}

/// The state of one worker.
pub(super) struct Worker<'a> {
    pub(super) lane: usize,
    pub(super) job: &'a Workload,
    pub(super) region: Region,
    pub(super) id: u16,
    /// Number of its first slot among the slots of the lane.
    lane_slot: u16,
    pattern: Pattern,
    slots: Box<[Slot]>,
    free: Vec<u16>,
    held: Option<Held>,
    phase: Phase,
    bytes_left: u64,
    requests_left: u64,
    flushing: Flushing,
    pacer: Option<Box<Pacer>>,
    checker: Option<Box<Checker>>,
    statistics: Statistics,
    completed: u32,
    ramp_end: Option<Instant>,
    measured_from: Instant,
    ends_at: Instant,
    sample_at: Instant,
    last: Instant,
    failure: Option<Failure>,
    first: Option<Failure>,
    failures: u64,
}

/// The part of the device a worker uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// Checks every assignment against its lane and gives each worker its buffers.
pub(super) fn prepare<'a, D: Device>(
    lanes: &[D],
    assignments: &'a [Assignment],
) -> Result<Vec<Worker<'a>>, Error> {
    let mut workers: Vec<Worker<'a>> = Vec::with_capacity(assignments.len());
    // Lanes of one device may share their memory: buffers are dealt out per memory, not per lane.
    let mut used: Vec<(u64, u64)> = Vec::new();
    let mut flows = Flows::default();
    for (id, assignment) in assignments.iter().enumerate() {
        let job = &assignment.workload;
        let invalid = |what| Err(Error::Invalid { job: job.name.clone(), what });
        let Some(lane) = lanes.get(assignment.lane) else {
            return invalid("its lane does not exist");
        };
        if id >= WORKERS_MAX {
            return invalid("too many workers in one run");
        }
        if !(1..=DEPTH_MAX).contains(&job.depth) {
            return invalid("iodepth must be 1 to 32768");
        }
        let region = Region::of(job, lane)?;
        let address = lane.memory().address();
        let at = match used.iter().position(|&(known, _)| known == address) {
            Some(at) => at,
            None => {
                used.push((address, 0));
                used.len() - 1
            }
        };
        let slots = buffers::deal(job, lane.memory(), &mut used[at].1)?;
        let slots = slots.into_iter().map(Slot::new).collect::<Box<[_]>>();
        let before = workers.iter().filter(|w| w.lane == assignment.lane);
        let lane_slot = before.map(|w| w.slots.len() as u16).fold(0, u16::wrapping_add);
        let mut worker = Worker::new(id as u16, assignment, region, slots, lane_slot);
        if let Some(flow) = job.flow.filter(|flow| flow.weight > 0) {
            let part = flows.part(flow);
            let pacer = || Box::new(Pacer::new(job.pace, job.seed));
            worker.pacer.get_or_insert_with(pacer).share(part);
        }
        workers.push(worker);
    }
    Ok(workers)
}

impl Region {
    /// The region of `job` on `lane`, if the job fits there.
    fn of<D: Device>(job: &Workload, lane: &D) -> Result<Self, Error> {
        let geometry = lane.geometry();
        let name = || job.name.clone();
        let block_size = geometry.block_size;
        let offset = [("offset", job.offset)];
        let align = job.align.map(|align| ("blockalign", u64::from(align)));
        let sizes = job.sizes_used().flat_map(|size| match size {
            crate::workload::BlockSize::Split(parts) => {
                parts.iter().map(|&(bytes, _)| ("block size", u64::from(bytes))).collect()
            }
            other => {
                vec![("block size", u64::from(other.min())), ("block size", u64::from(other.max()))]
            }
        });
        for (what, value) in offset.into_iter().chain(align).chain(sizes) {
            if value % u64::from(block_size) != 0 || (value == 0 && what != "offset") {
                return Err(Error::Misaligned { job: name(), what, value, block_size });
            }
        }
        let device = geometry.bytes();
        let size = job.size.unwrap_or(device.saturating_sub(job.offset));
        if job.offset >= device || size > device - job.offset {
            return Err(Error::BeyondDevice { job: name(), offset: job.offset, size, device });
        }
        let block = job.block_max().max(job.align.unwrap_or(0));
        if size < u64::from(block) {
            return Err(Error::TooSmall { job: name(), size, block });
        }
        if geometry.read_only && job.writes() {
            return Err(Error::ReadOnly { job: name() });
        }
        if !geometry.can_delete && job.mix.uses(Direction::Trim) {
            return Err(Error::CannotTrim { job: name() });
        }
        Ok(Self { offset: job.offset, size })
    }
}

impl<'a> Worker<'a> {
    fn new(
        id: u16,
        assignment: &'a Assignment,
        region: Region,
        slots: Box<[Slot]>,
        lane_slot: u16,
    ) -> Self {
        let job = &assignment.workload;
        let passes = u64::from(job.loops.max(1)) * if job.mix == Mix::TrimWrite { 2 } else { 1 };
        let unlimited = job.time_based || (job.requests_max.is_some() && job.io_size.is_none());
        let bytes = job.io_size.unwrap_or(region.size).saturating_mul(passes);
        Self {
            lane: assignment.lane,
            job,
            region,
            id,
            lane_slot,
            pattern: Pattern::new(job, region.offset, region.size),
            free: (0..slots.len() as u16).rev().collect(),
            slots,
            held: None,
            phase: Phase::Delayed,
            bytes_left: if unlimited { u64::MAX } else { bytes },
            // In fio each of the loops has so many.
            requests_left: job
                .requests_max
                .map_or(u64::MAX, |count| count.saturating_mul(job.loops.max(1).into())),
            flushing: Flushing::default(),
            pacer: (!job.pace.is_free()).then(|| Box::new(Pacer::new(job.pace, job.seed))),
            checker: None,
            statistics: Statistics::new(|direction| {
                job.mix.uses(direction) || job.verify.is_some()
            }),
            completed: 0,
            ramp_end: None,
            measured_from: Instant::NEVER,
            ends_at: Instant::NEVER,
            sample_at: Instant::NEVER,
            last: Instant::START,
            failure: None,
            first: None,
            failures: 0,
        }
    }

    pub(super) fn set_checker(&mut self, checker: Checker) {
        self.checker = Some(Box::new(checker));
    }

    /// Begins, after its start delay.
    pub(super) fn start(&mut self, now: Instant) {
        self.measured_from = now + self.job.start_delay;
        if self.measured_from == now {
            self.begin(now);
        }
    }

    fn begin(&mut self, now: Instant) {
        self.phase = Phase::Running;
        self.ramp_end = (!self.job.ramp_time.is_zero()).then(|| now + self.job.ramp_time);
        if let Some(pacer) = &mut self.pacer {
            pacer.start(now);
        }
        self.measure_from(now);
    }

    fn measure_from(&mut self, now: Instant) {
        (self.measured_from, self.last) = (now, now);
        self.sample_at = now.after_nanos(SAMPLE_NANOS);
        let runtime = self.job.runtime.filter(|_| self.ramp_end.is_none());
        self.ends_at = runtime.map_or(Instant::NEVER, |runtime| now + runtime);
    }

    pub(super) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Whether nobody has told it to begin.
    pub(super) fn is_waiting(&self) -> bool {
        self.phase == Phase::Delayed && self.measured_from == Instant::NEVER
    }

    /// Whether a failure ended it, or will.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Whether it may still write.
    pub(super) fn is_writing(&self) -> bool {
        self.job.writes() && !matches!(self.phase, Phase::Checking | Phase::Done)
    }

    pub(super) fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Requests the device has.
    #[inline]
    pub(super) fn in_flight(&self) -> u32 {
        (self.slots.len() - self.free.len()) as u32 - u32::from(self.held.is_some())
    }

    /// Issues nothing new from now on.
    pub(super) fn stop(&mut self) {
        if matches!(self.phase, Phase::Delayed | Phase::Running) {
            self.drain();
        } else if let (Phase::Checking, Some(checker)) = (self.phase, &mut self.checker) {
            checker.stop();
        }
    }

    fn drain(&mut self) {
        self.phase = Phase::Draining;
        if let Some(pacer) = &mut self.pacer {
            pacer.end();
        }
        // What the device was asked to take already is still owed to it: its blocks are marked as
        // being written.
        if let Some(held) = self.held.take_if(|held| held.accepted.is_none()) {
            self.free.push(held.slot);
        }
    }

    /// The part of its work that is done, 0..=1.
    pub(super) fn fraction(&self, now: Instant) -> f64 {
        let part = |done: u64, all: u64| if all == 0 { 1.0 } else { done as f64 / all as f64 };
        if !matches!(self.phase, Phase::Delayed | Phase::Running) {
            return 1.0;
        }
        let mut fraction: f64 = 0.0;
        if let Some(runtime) = self.job.runtime {
            fraction = part(now.nanos_since(self.measured_from), runtime.as_nanos() as u64);
        }
        if self.bytes_left != u64::MAX {
            let all = self.job.io_size.unwrap_or(self.region.size).max(1);
            fraction = fraction.max(1.0 - part(self.bytes_left, all).min(1.0));
        }
        if let Some(all) = self.job.requests_max {
            let all = all.saturating_mul(self.job.loops.max(1).into());
            fraction = fraction.max(1.0 - part(self.requests_left, all));
        }
        fraction.clamp(0.0, 1.0)
    }

    /// When this worker wants to be looked at even if the device does nothing.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        match self.phase {
            Phase::Delayed => Some(self.measured_from).filter(|&begin| begin != Instant::NEVER),
            Phase::Running => {
                let open_at = self.pacer.as_ref().and_then(|pacer| pacer.open_at());
                let open_at = open_at.filter(|_| !self.free.is_empty() && self.held.is_none());
                let ends_at = Some(self.ends_at).filter(|&end| end != Instant::NEVER);
                [open_at, ends_at, self.ramp_end].into_iter().flatten().min()
            }
            _ => None,
        }
    }

    /// Moves on to the next phase when it is time. Whether anything changed.
    #[inline]
    pub(super) fn advance(&mut self, now: Instant) -> bool {
        let calm = self.phase == Phase::Running && now < self.ends_at && now < self.sample_at;
        if calm && self.ramp_end.is_none_or(|end| now < end) {
            return false;
        }
        self.change_phase(now)
    }

    #[cold]
    fn change_phase(&mut self, now: Instant) -> bool {
        match self.phase {
            Phase::Delayed if now >= self.measured_from => self.begin(now),
            Phase::Running if self.ramp_end.is_some_and(|end| now >= end) => {
                self.ramp_end = None;
                self.statistics.clear();
                self.measure_from(now);
            }
            Phase::Running if now >= self.ends_at => self.drain(),
            Phase::Running if now >= self.sample_at => {
                let late = now.nanos_since(self.sample_at);
                self.statistics.sample(SAMPLE_NANOS + late);
                self.sample_at = now.after_nanos(SAMPLE_NANOS);
                let slow = self.pacer.as_mut().and_then(|p| p.too_slow(&self.statistics, now));
                let Some(failure) = slow else { return false };
                self.fail(failure, false);
            }
            Phase::Draining if self.in_flight() == 0 && self.held.is_none() => {
                self.statistics.runtime_nanos = self.last.nanos_since(self.measured_from);
                self.flushing.wanted = true;
                let flush = self.job.flush_at_end && self.job.writes() && self.failure.is_none();
                self.phase = if flush { Phase::LastFlush } else { self.check_or_end(now) };
            }
            Phase::LastFlush if !self.flushing.wanted && self.in_flight() == 0 => {
                self.statistics.runtime_nanos = self.last.nanos_since(self.measured_from);
                self.phase = self.check_or_end(now);
            }
            Phase::Checking if self.in_flight() == 0 && self.held.is_none() => {
                let Some(checker) = &mut self.checker else { return false };
                if !checker.is_at_end() {
                    return false;
                }
                checker.end(now);
                self.phase = Phase::Done;
            }
            _ => return false,
        }
        true
    }

    fn check_or_end(&mut self, now: Instant) -> Phase {
        match &mut self.checker {
            Some(checker) if self.failure.is_none() => {
                if checker.begin(now) {
                    Phase::Checking
                } else {
                    Phase::Done
                }
            }
            _ => Phase::Done,
        }
    }

    /// Issues what may be issued now.
    #[inline]
    pub(super) fn refill<D: Device, C: Clock>(
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

    /// The next request to issue, taken off the free list and made.
    #[inline]
    fn next<D: Device, C: Clock>(
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
            return self.next_other(slot, shared);
        }
        if self.bytes_left == 0 || self.requests_left == 0 {
            self.drain();
            return None;
        }
        if let Some(pacer) = &mut self.pacer
            && !pacer.is_open(clock.now())
        {
            return None;
        }
        let step = self.pattern.step();
        self.bytes_left = self.bytes_left.saturating_sub(u64::from(step.length));
        self.requests_left -= 1;
        self.free.pop();
        let place = &mut self.slots[usize::from(slot)];
        (place.offset, place.length) = (step.offset, step.length);
        place.purpose = Purpose::Data(step.direction);
        let held = Held { slot, accepted: None };
        if self.is_special() {
            self.held = Some(held);
            return self.make_special(step, lane.memory(), clock, shared);
        }
        if step.direction == Direction::Write {
            self.count_write();
        }
        Some(held)
    }

    /// Whether a request needs more than its place: pace, checksums, fresh content.
    #[inline]
    fn is_special(&self) -> bool {
        self.pacer.is_some() || self.checker.is_some() || self.job.fill == Fill::Refill
    }

    /// Counts a write towards the next flush.
    #[inline]
    fn count_write(&mut self) {
        self.flushing.writes += 1;
        if self.flushing.writes == self.job.flush_every {
            self.flushing.wanted = true;
        }
    }

    /// Finishes a request that needs more than its place.
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
        }
        if step.direction == Direction::Write {
            self.count_write();
        }
        self.next_held(memory, clock, shared)
    }

    /// The request that could not be issued before, if it can be now.
    #[cold]
    fn next_held<C: Clock>(
        &mut self,
        memory: &DmaRegion,
        clock: &C,
        shared: &mut Shared,
    ) -> Option<Held> {
        let held = self.held?;
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

    /// Flushes and read-back: everything that is not the workload itself.
    #[cold]
    fn next_other(&mut self, slot: u16, shared: &Shared) -> Option<Held> {
        let flush = matches!(self.phase, Phase::Running | Phase::LastFlush);
        let is_empty = self.free.len() == self.slots.len();
        let place = &mut self.slots[usize::from(slot)];
        if flush && self.flushing.wanted && is_empty {
            (place.offset, place.length, place.purpose) = (0, 0, Purpose::Flush);
            self.flushing = Flushing { writes: 0, wanted: false, in_flight: true };
        } else if self.phase == Phase::Checking {
            let checker = self.checker.as_mut()?;
            let (offset, length) = checker.next_range(shared, place.data.len())?;
            (place.offset, place.length, place.purpose) = (offset, length, Purpose::Check);
        } else {
            return None;
        }
        self.free.pop();
        Some(Held { slot, accepted: None })
    }

    /// Takes a completion: counts it, frees its slot.
    #[inline]
    pub(super) fn complete(
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
        let plain = self.checker.is_none() && completion.result.is_ok();
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

    /// Takes a completion that is not plain: flush, failure, or data to be checked.
    #[cold]
    fn complete_other(
        &mut self,
        slot: &Slot,
        (result, stamps): (Result<(), flysch_api::block::Error>, &Stamps),
        memory: &DmaRegion,
        shared: &mut Shared,
    ) {
        let range = (slot.offset, slot.length);
        let wrote = matches!(slot.purpose, Purpose::Data(Direction::Write | Direction::Trim));
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
            Purpose::Data(direction) => {
                if let Some(statistics) = &mut self.statistics.directions[direction.index()] {
                    statistics.record(stamps, slot.length);
                }
                let reads = self.checker.as_ref().is_some_and(|checker| checker.checks_reads());
                if direction == Direction::Read && reads {
                    self.check(slot, memory, shared);
                }
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

    /// The device refused the request in `slot`: it never was in flight.
    #[cold]
    fn refused(&mut self, slot: u16, error: flysch_api::block::Error, shared: &mut Shared) {
        self.free.push(slot);
        let slot = self.slots[usize::from(slot)];
        if let Some(checker) = &self.checker {
            checker.after_write(shared, (slot.offset, slot.length), false);
        }
        self.flushing.in_flight &= slot.purpose != Purpose::Flush;
        self.fail_request(&slot, error);
    }

    fn fail_request(&mut self, slot: &Slot, error: flysch_api::block::Error) {
        let operation = operation_of(slot.purpose);
        if let Some(direction) = super::direction_of(operation)
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

    /// Counts a failure; unless it is tolerated the worker ends.
    fn fail(&mut self, failure: Failure, tolerated: bool) {
        self.failures += 1;
        self.first.get_or_insert(failure);
        if tolerated {
            return;
        }
        let verify_goes_on = matches!(failure, Failure::Verify { .. })
            && !self.job.verify.is_some_and(|verify| verify.fatal);
        self.failure.get_or_insert(failure);
        if !verify_goes_on {
            self.stop();
        }
    }

    pub(super) fn finish(self) -> WorkerOutcome {
        WorkerOutcome {
            statistics: self.statistics,
            verified: self.checker.and_then(|checker| checker.finish()),
            failure: self.failure,
            first: self.first,
            failures: self.failures,
        }
    }
}

#[inline]
fn operation_of(purpose: Purpose) -> Operation {
    match purpose {
        Purpose::Data(Direction::Read) | Purpose::Check => Operation::Read,
        Purpose::Data(Direction::Write) => Operation::Write,
        Purpose::Data(Direction::Trim) => Operation::Delete,
        Purpose::Flush => Operation::Flush,
    }
}

#[inline]
fn request_of(slot: &Slot, token: u64, accepted: Instant) -> Request {
    let operation = operation_of(slot.purpose);
    let data = match operation {
        Operation::Read | Operation::Write => slot.data.shortened(slot.length),
        Operation::Flush | Operation::Delete => Data::NONE,
    };
    Request {
        operation,
        force_unit_access: false,
        offset: slot.offset,
        length: u64::from(slot.length),
        data,
        crypto: None,
        token,
        accepted,
    }
}
