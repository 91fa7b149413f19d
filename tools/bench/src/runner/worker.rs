//! One worker: keeps its queue full, counts completions.

mod issue;
mod take;

use flysch_api::block::{Operation, Request};
use flysch_api::data::Data;
use flysch_api::machine::{DmaRegion, Instant};

use super::buffers;
use super::checking::Checker;
use super::company::Part;
use super::iolog::Log;
use super::latency::Limits;
use super::pace::Pacer;
use super::prepare::{Region, last_with_gaps, once};
use super::replaying::Replaying;
use super::steady::SteadyState;
use super::zoned::Zoning;
use super::{Assignment, Failure, RunError, Shared, WorkerOutcome};
use crate::pattern::{Pattern, Step};
use crate::statistics::Statistics;
use crate::workload::{Direction, Fill, Mix, Order, Workload};
use crate::zones::Zones;

/// A token is the worker's number above the slot's.
const SLOT_BITS: u32 = 16;
/// Interval of the bandwidth and rate samples, as fio's `bwavgtime`.
const SAMPLE_NANOS: u64 = 500_000_000;

/// The worker a completion belongs to.
#[inline]
pub(super) fn of_token(token: u64) -> usize {
    (token >> SLOT_BITS) as usize
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The workload itself.
    Data(Direction),
    /// Making writes durable.
    Flush,
    /// Reading back written data.
    Check,
    /// Making a zone empty.
    Reset,
}

/// One slot of the worker's queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Room for the longest request's data.
    data: Data,
    offset: u64,
    length: u32,
    purpose: Purpose,
    /// A read has come since the data was filled in.
    is_stale: bool,
}

impl Slot {
    pub(super) fn new(data: Data) -> Self {
        Self { data, offset: 0, length: 0, purpose: Purpose::Flush, is_stale: false }
    }

    /// Takes a request of the workload.
    #[inline]
    fn take(&mut self, step: Step) {
        (self.offset, self.length) = (step.offset, step.length);
        self.purpose = Purpose::Data(step.direction);
        self.is_stale |= step.direction == Direction::Read;
    }

    /// Fills in the data of `job` again, those of its slot `number`, for all writes up to its next
    /// read. Stamps come in their place in a worker that verifies.
    #[cold]
    fn fill_again(
        &mut self,
        (job, number): (&Workload, u16),
        memory: &DmaRegion,
        scratch: &mut [u8],
    ) {
        self.is_stale = false;
        if job.verify.is_none() {
            let content = &mut scratch[..job.block_size[Direction::Write.index()].max() as usize];
            buffers::fill(job, number.into(), content);
            buffers::write(memory, &self.data, content);
        }
    }
}

/// A request that is prepared but could not be issued yet.
#[derive(Clone, Copy, Debug)]
struct Held {
    slot: u16,
    /// When the device was first asked to accept it; `None` while it waits for an overlapping
    /// write.
    accepted: Option<Instant>,
    /// Whether it is where it is to be: in a zone, if there are zones.
    is_placed: bool,
}

/// The total work of a worker.
#[derive(Clone, Copy, Debug)]
struct Goal {
    /// Bytes; without limit the greatest number.
    bytes: u64,
    /// Requests; without limit the greatest number.
    requests: u64,
}

impl Goal {
    /// That of `job` in `region`, by fio's rules: each loop is one pass over the region, or over
    /// `io_size` of it if that is smaller, and each has `number_ios` requests; a trim and its write
    /// are two passes; `io_size` is reached whatever the loops, and time takes precedence over all
    /// of these.
    fn of(job: &Workload, region: Region) -> Self {
        if job.replay.is_some() {
            return Self { bytes: 0, requests: 0 };
        }
        let passes = u64::from(job.loops.max(1)) * if job.mix == Mix::TrimWrite { 2 } else { 1 };
        // The region may be more than the size, because a last request is not cut short.
        let size = job.size.map_or(region.size, |size| size.min(region.size));
        let whole = own_io_size(job).unwrap_or(size);
        let bytes = match with_gaps(job, region) {
            // An io_size is reached whatever the gaps.
            Some(pass) => {
                let least = own_io_size(job).unwrap_or(0);
                whole.min(pass).saturating_mul(passes).max(least)
            }
            None => whole.min(size).saturating_mul(passes).max(whole),
        };
        let bytes = reached(job, region, bytes);
        let requests = job.requests_max.map(|count| count.saturating_mul(passes));
        let unlimited = job.time_based || (requests.is_some() && job.io_size.is_none());
        Self {
            bytes: if unlimited { u64::MAX } else { bytes },
            requests: requests.filter(|_| !job.time_based).unwrap_or(u64::MAX),
        }
    }

    /// What is left when the first of several passes is over that end with a flush each, and the
    /// bytes of a pass; 0 if there is only one, or no flush.
    fn passes(self, job: &Workload) -> (u64, u64) {
        let loops = u64::from(job.loops.max(1));
        let flushes = job.flush_at_end && job.writes() && self.bytes < u64::MAX;
        let pass = if flushes { self.bytes / loops } else { 0 };
        (pass * (loops - 1), pass)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waits for its start delay.
    Delayed,
    /// Issues requests.
    Running,
    /// Waits for requests in flight, to continue with another queue depth.
    Settling,
    /// Reads back some of its writes, then continues.
    Catching,
    /// Waits for the last ones.
    Draining,
    /// The flush after the last write.
    LastFlush,
    /// Reads back its writes.
    Checking,
    /// Nothing more to do.
    Done,
}

/// The `io_size` of a job, if it is another than its size.
fn own_io_size(job: &Workload) -> Option<u64> {
    job.io_size.filter(|&bytes| Some(bytes) != job.size)
}

/// As much of `bytes` as is reached: the last request goes beyond them, but where each block comes
/// once, a rest that is shorter than a request begins no further pass, as in fio.
fn reached(job: &Workload, region: Region, bytes: u64) -> u64 {
    let Some(block) = once(job).filter(|_| job.strides.is_none()) else { return bytes };
    let pass = (region.size - region.size % block).max(block);
    let rest = bytes % pass;
    if bytes > pass && rest < u64::from(job.block_max()) { bytes - rest } else { bytes }
}

/// Bytes that a pass with gaps transfers, if the region is traversed once.
fn with_gaps(job: &Workload, region: Region) -> Option<u64> {
    let (place, length, gap) = last_with_gaps(job, region.size)?;
    (!region.begins_anew).then(|| (place / (length + gap) + 1) * length)
}

/// Passes after which a sequence ends, where it is not known before how many bytes those are: with
/// gaps, several directions or lengths; without, several lengths, of which none may fit in the end.
fn open_passes(job: &Workload, region: Region) -> Option<u32> {
    let Order::Sequential { gap } = job.order else { return None };
    let by_bytes = job.time_based || own_io_size(job).is_some();
    if by_bytes || job.strides.is_some() || job.zones.is_some() {
        return None;
    }
    let is_open = match gap {
        0 => matches!(job.mix, Mix::Only(_)) && job.block_min() != job.block_max(),
        gap => gap > 0 && last_with_gaps(job, region.size).is_none(),
    };
    is_open.then_some(job.loops.max(1))
}

impl Phase {
    /// Whether the workload itself is still to come or in progress.
    fn is_before_the_end(self) -> bool {
        matches!(self, Self::Delayed | Self::Running | Self::Settling | Self::Catching)
    }
}

/// Flushes between writes.
#[derive(Clone, Copy, Debug, Default)]
struct Flushing {
    /// Writes since the last flush.
    writes: u32,
    /// The next request is a flush, once everything before it has completed.
    wanted: bool,
    in_flight: bool,
    /// There was one.
    has_been: bool,
}

impl Flushing {
    /// Counts a write; after this many of them there is a flush.
    #[inline]
    fn count(&mut self, flush_every: u32) {
        self.writes += 1;
        self.wanted |= self.writes == flush_every;
    }
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
    /// Slots not in use now: the queue is shorter than the job's `iodepth`.
    parked: Vec<u16>,
    /// Slots in use: all but those.
    depth: usize,
    held: Option<Held>,
    /// Whether a request needs more than its slot: pace, checksums, fresh content, a log.
    is_special: bool,
    /// Whether a completed request only has to be counted.
    is_plain: bool,
    phase: Phase,
    bytes_left: u64,
    /// A pass is over, and flushed, when no more than this is left; and bytes of a pass.
    pass: (u64, u64),
    requests_left: u64,
    flushing: Flushing,
    pacer: Option<Box<Pacer>>,
    checker: Option<Box<Checker>>,
    limits: Option<Box<Limits>>,
    replaying: Option<Box<Replaying>>,
    log: Option<Box<Log>>,
    zoning: Option<Box<Zoning>>,
    statistics: Statistics,
    completed: u32,
    ramp_end: Option<Instant>,
    began: Option<Instant>,
    measured_from: Instant,
    ends_at: Instant,
    sample_at: Instant,
    last: Instant,
    failure: Option<Failure>,
    first: Option<Failure>,
    failures: u64,
}
impl<'a> Worker<'a> {
    pub(super) fn new(
        id: u16,
        assignment: &'a Assignment,
        region: Region,
        slots: Box<[Slot]>,
        lane_slot: u16,
    ) -> Self {
        let job = &assignment.workload;
        let goal = Goal::of(job, region);
        let mut this = Self {
            lane: assignment.lane,
            job,
            region,
            id,
            lane_slot,
            pattern: Pattern::new(job, (region.offset, region.size), region.end),
            free: (0..slots.len() as u16).rev().collect(),
            parked: Vec::with_capacity(slots.len()),
            depth: slots.len(),
            slots,
            held: None,
            is_special: job.fill == Fill::Refill,
            is_plain: true,
            phase: Phase::Delayed,
            bytes_left: goal.bytes,
            pass: goal.passes(job),
            requests_left: goal.requests,
            flushing: Flushing::default(),
            pacer: None,
            checker: None,
            limits: None,
            replaying: job.replay.clone().map(|replay| Box::new(Replaying::new(replay))),
            log: None,
            zoning: None,
            statistics: Statistics::new(|direction| job.uses(direction) || job.verify.is_some()),
            completed: 0,
            ramp_end: None,
            began: None,
            measured_from: Instant::NEVER,
            ends_at: Instant::NEVER,
            sample_at: Instant::NEVER,
            last: Instant::START,
            failure: None,
            first: None,
            failures: 0,
        };
        if let Some(passes) = open_passes(job, region) {
            this.pattern.end_after(passes);
        }
        if !job.pace.is_free() {
            this.pacer();
        }
        if !job.latency.is_free() {
            let limits = Limits::new(&job.latency, job.depth);
            this.set_depth(limits.depth());
            (this.limits, this.is_plain) = (Some(Box::new(limits)), false);
        }
        this
    }

    fn pacer(&mut self) -> &mut Pacer {
        self.is_special = true;
        let job = self.job;
        let drawn = || match (&job.replay, job.mix) {
            (Some(_), _) | (None, Mix::TrimWrite) => [false; 3],
            (None, Mix::ReadWrite { read_percent: 0 }) => [false, true, false],
            (None, Mix::ReadWrite { read_percent: 100 }) => [true, false, false],
            (None, mix) => Direction::ALL.map(|direction| mix.uses(direction)),
        };
        self.pacer.get_or_insert_with(|| Box::new(Pacer::new(job.pace, drawn(), job.seed)))
    }

    /// Its requests are its part of a flow.
    pub(super) fn share(&mut self, part: Part) {
        self.pacer().share(part);
    }

    pub(super) fn set_checker(&mut self, checker: Checker) {
        (self.checker, self.is_special, self.is_plain) = (Some(Box::new(checker)), true, false);
    }

    /// From now on its requests are written to `log`.
    pub(super) fn write_log(&mut self, log: Log) {
        (self.log, self.is_special) = (Some(Box::new(log)), true);
    }

    /// From now on its requests go by zones, if its job says so.
    pub(super) fn use_zones(&mut self, zones: Option<&Zones>) {
        let Some(zones) = zones else { return };
        let Some(zoning) = Zoning::new(self.job, self.id, self.region, zones) else { return };
        (self.zoning, self.is_special, self.is_plain) = (Some(Box::new(zoning)), true, false);
    }

    /// What is in its zones counts no more, if it writes what will be checked.
    pub(super) fn spoil_zones(&self, shared: &mut Shared) {
        let writes = self.zoning.is_some() && self.job.verify.is_some() && self.job.writes();
        let Some(zones) = shared.zones.as_mut().filter(|_| writes) else { return };
        let range = zones.range(self.region.offset, self.region.size);
        zones.states[range].iter_mut().for_each(|state| state.is_stale = true);
    }

    /// Slots in its queue.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Sets the depth of the queue, as far as slots are free.
    fn set_depth(&mut self, depth: Option<u32>) {
        let Some(depth) = depth.map(|depth| depth as usize) else { return };
        while self.depth > depth
            && let Some(slot) = self.free.pop()
        {
            self.parked.push(slot);
            self.depth -= 1;
        }
        while self.depth < depth
            && let Some(slot) = self.parked.pop()
        {
            self.free.push(slot);
            self.depth += 1;
        }
    }

    /// Starts, after its start delay.
    pub(super) fn start(&mut self, now: Instant) {
        self.measured_from = now + self.job.start_delay;
        if self.measured_from == now {
            self.begin(now);
        }
    }

    fn begin(&mut self, now: Instant) {
        self.phase = Phase::Running;
        self.began = Some(now);
        if let Some(replaying) = &mut self.replaying {
            replaying.begin(now);
        }
        if let Some(log) = &mut self.log {
            log.begin(now);
        }
        if let Some(limits) = &mut self.limits {
            limits.begin(now);
        }
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

    /// Whether it has not been told to start yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.phase == Phase::Delayed && self.measured_from == Instant::NEVER
    }

    /// When it started, if it has.
    pub(super) fn began(&self) -> Option<Instant> {
        self.began
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

    /// Requests in flight.
    #[inline]
    pub(super) fn in_flight(&self) -> u32 {
        (self.depth - self.free.len()) as u32 - u32::from(self.held.is_some())
    }

    /// Issues nothing new from now on.
    pub(super) fn stop(&mut self) {
        if self.phase.is_before_the_end() {
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
        // being written, or its zone.
        let is_zoned = self.zoning.is_some();
        let is_owed = |held: &mut Held| held.accepted.is_some() || (is_zoned && held.is_placed);
        if let Some(held) = self.held.take_if(|held| !is_owed(held)) {
            self.free.push(held.slot);
        }
    }

    /// The completed fraction of its work, 0..=1.
    pub(super) fn fraction(&self, now: Instant) -> f64 {
        let part = |done: u64, all: u64| if all == 0 { 1.0 } else { done as f64 / all as f64 };
        if !self.phase.is_before_the_end() {
            return 1.0;
        }
        let mut fraction = self.replaying.as_ref().map_or(0.0, |replaying| replaying.fraction());
        if let Some(runtime) = self.job.runtime {
            fraction = part(now.nanos_since(self.measured_from), runtime.as_nanos() as u64);
        }
        let goal = Goal::of(self.job, self.region);
        for (left, all) in [(self.bytes_left, goal.bytes), (self.requests_left, goal.requests)] {
            if all != u64::MAX && self.replaying.is_none() {
                fraction = fraction.max(1.0 - part(left, all));
            }
        }
        fraction.clamp(0.0, 1.0)
    }

    /// When this worker has to be checked even if the device does nothing.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        match self.phase {
            Phase::Delayed => Some(self.measured_from).filter(|&begin| begin != Instant::NEVER),
            Phase::Running => {
                let open_at = self.pacer.as_ref().and_then(|pacer| pacer.open_at());
                let due = self.replaying.as_ref().and_then(|replaying| replaying.due());
                let issues = !self.free.is_empty() && self.held.is_none();
                let [open_at, due] = [open_at, due].map(|at| at.filter(|_| issues));
                let ends_at = Some(self.ends_at).filter(|&end| end != Instant::NEVER);
                [open_at, due, ends_at, self.ramp_end].into_iter().flatten().min()
            }
            _ => None,
        }
    }

    /// Whether it enters its next phase without any completion.
    pub(super) fn moves_on(&self) -> bool {
        let checker = self.checker.as_ref();
        let is_ready = match self.phase {
            Phase::Settling | Phase::Draining => true,
            Phase::Catching => checker.is_none_or(|checker| checker.has_caught_up()),
            Phase::Checking => checker.is_none_or(|checker| checker.is_at_end()),
            _ => false,
        };
        is_ready && self.in_flight() == 0 && self.held.is_none()
    }

    /// Enters the next phase when it is time. Returns whether anything changed.
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
                self.requests_left = Goal::of(self.job, self.region).requests;
                self.measure_from(now);
            }
            Phase::Running if now >= self.ends_at => {
                // A slow job has run all the time, not only to its last completion.
                self.last = self.last.max(self.ends_at);
                self.drain();
            }
            Phase::Running if now >= self.sample_at => {
                let late = now.nanos_since(self.sample_at);
                self.statistics.sample(SAMPLE_NANOS + late);
                self.sample_at = now.after_nanos(SAMPLE_NANOS);
                let slow = self.pacer.as_mut().and_then(|p| p.too_slow(&self.statistics, now));
                let Some(failure) = slow else { return false };
                self.fail(failure, false);
            }
            Phase::Settling if self.in_flight() == 0 && self.held.is_none() => self.settle(now),
            Phase::Catching if self.in_flight() == 0 && self.held.is_none() => {
                let caught = self.checker.as_ref().is_none_or(|checker| checker.has_caught_up());
                if !caught {
                    return false;
                }
                self.phase = Phase::Running;
            }
            Phase::Draining if self.in_flight() == 0 && self.held.is_none() => {
                self.statistics.runtime_nanos = self.last.nanos_since(self.measured_from);
                self.flushing.wanted = true;
                let flush = self.job.flush_at_end && self.job.writes() && self.failure.is_none();
                // One flush is enough for what was written last.
                let flush = flush && (self.flushing.writes > 0 || !self.flushing.has_been);
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

    /// Continues with the depth determined by its search.
    fn settle(&mut self, now: Instant) {
        self.phase = Phase::Running;
        let Some(limits) = &mut self.limits else { return };
        limits.begin(now);
        let (depth, is_last) = (limits.depth(), limits.takes_last());
        self.set_depth(depth);
        if is_last {
            self.statistics.clear();
            self.measure_from(now);
        }
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

    pub(super) fn finish(self, steady: Option<SteadyState>) -> Result<WorkerOutcome, RunError> {
        if let Some(log) = self.log {
            let failed = |cause| RunError::Log { job: self.job.name.clone(), cause };
            log.finish().map_err(failed)?;
        }
        Ok(WorkerOutcome {
            statistics: self.statistics,
            verified: self.checker.and_then(|checker| checker.finish()),
            failure: self.failure,
            first: self.first,
            failures: self.failures,
            depth: self.depth as u32,
            steady,
            zone_resets: self.zoning.map_or(0, |zoning| zoning.resets()),
        })
    }
}

#[inline]
fn operation_of(purpose: Purpose) -> Operation {
    match purpose {
        Purpose::Data(Direction::Read) | Purpose::Check => Operation::Read,
        Purpose::Data(Direction::Write) => Operation::Write,
        Purpose::Data(Direction::Trim) | Purpose::Reset => Operation::Delete,
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
