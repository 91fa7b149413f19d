//! Runs workloads on a block device and measures every request.
//!
//! One loop serves all workers: take every available completion, refill every worker's queue, ring
//! the doorbell once per lane, and wait on the clock if nothing happened. The loop is generic over
//! device and clock, so a request's path contains no indirect call, no allocation and no lock.
//!
//! The clock is read once per request on the way down (its `accepted`) and once on the way up (its
//! `delivered`, which is also the `seen` of the next completion), and twice per round.

pub(crate) mod buffers;
mod checking;
mod company;
mod dump;
mod failure;
mod iolog;
mod latency;
mod pace;
mod prepare;
mod replaying;
mod steady;
mod worker;
mod zoned;

use core::sync::atomic::{AtomicBool, Ordering};

use flysch_api::block::{self, BlockDevice};
use flysch_api::count::counted;
use flysch_api::machine::{Clock, Instant, Wake};

use crate::statistics::Statistics;
use crate::trace::ring::Ring;
use crate::verify::versions::Versions;
use crate::workload::{Direction, Workload};
use crate::zones::Zones;
use company::Company;
pub use failure::BAD_DATA;
pub use iolog::LogError;
use steady::Watch;
pub use steady::{Measured, SteadyState};
use worker::Worker;

/// One worker: its orders, and its lane.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The orders.
    pub workload: Workload,
    /// Index of its device among the lanes.
    pub lane: usize,
    /// Workers with the same number end together, if their workloads say so.
    pub group: u32,
    /// Indices of the assignments that must have ended before it begins.
    pub after: Vec<usize>,
}

impl Assignment {
    /// A worker on `lane` that is independent of others.
    pub fn new(workload: Workload, lane: usize) -> Self {
        Self { workload, lane, group: 0, after: Vec::new() }
    }
}

/// How to run.
#[derive(Default)]
pub struct RunOptions<'a> {
    /// Records kept by each lane's trace; 0 disables tracing.
    pub trace_records: usize,
    /// When this becomes true, the workers stop issuing and the run ends early, in good order.
    pub stop: Option<&'a AtomicBool>,
    /// Called now and then with the progress of the run.
    pub progress: Option<&'a mut dyn FnMut(&Progress)>,
    /// The zones of the disk, for workloads that want some; the outcome gives them back.
    pub zones: Option<Zones>,
}

impl core::fmt::Debug for RunOptions<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Options")
            .field("trace_records", &self.trace_records)
            .field("stop", &self.stop)
            .finish_non_exhaustive()
    }
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Fraction done, 0..=1: of the slowest worker, by bytes, requests or time.
    pub fraction: f64,
    /// Requests completed so far.
    pub requests: u64,
}

/// The results of a run.
#[derive(Debug)]
pub struct Outcome {
    /// One report per assignment, in order.
    pub workers: Vec<WorkerOutcome>,
    /// One trace per lane, if they were requested.
    pub traces: Vec<Ring>,
    /// A worker that has ended requires that nothing more starts ([`crate::workload::Ends::All`]).
    pub halts: bool,
    /// The zones as they are now.
    pub zones: Option<Zones>,
}

/// The results of one worker.
#[derive(Debug)]
pub struct WorkerOutcome {
    /// Its measurements.
    pub statistics: Statistics,
    /// Its verification, if it was to verify.
    pub verified: Option<Verified>,
    /// The failure that ended it, if one did.
    pub failure: Option<Failure>,
    /// The first failure, tolerated or not.
    pub first: Option<Failure>,
    /// Total failures, including tolerated ones.
    pub failures: u64,
    /// Requests finally kept in flight: the job's depth, or the depth found for its target latency.
    pub depth: u32,
    /// The result of looking for a steady state, if it was to look.
    pub steady: Option<SteadyState>,
    /// Zones that it reset.
    pub zone_resets: u64,
}

impl WorkerOutcome {
    /// That of a worker that was never started.
    pub fn of_nothing(workload: &Workload) -> Self {
        Self {
            statistics: Statistics::new(|direction| workload.uses(direction)),
            verified: None,
            failure: None,
            first: None,
            failures: 0,
            depth: workload.depth,
            steady: None,
            zone_resets: 0,
        }
    }
}

/// The verification by a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Whether anything was to be checked.
    pub checked: bool,
    /// Bytes that are correct.
    pub bytes: u64,
    /// Units that are wrong.
    pub mismatches: u64,
    /// The first of those, in words.
    pub first: Vec<String>,
    /// Files to which those were written (`verify_dump`), or why not.
    pub dumped: Vec<String>,
    /// Time the read-back phase took, nanoseconds.
    pub nanos: u64,
}

/// A request that ended a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The device failed it.
    #[error("{operation} of {length} bytes at offset {offset}: {error}")]
    Request {
        /// The operation.
        operation: block::Operation,
        /// Offset, bytes.
        offset: u64,
        /// Length, bytes.
        length: u32,
        /// The device's error.
        error: block::BlockError,
    },
    /// It was slower than demanded over a whole cycle.
    #[error(
        "{direction}s ran at {rate} {unit} per second for a whole rate_cycle, but {least} were \
         required"
    )]
    TooSlow {
        /// The kind of requests.
        direction: Direction,
        /// The rate reached.
        rate: u64,
        /// The rate demanded.
        least: u64,
        /// The unit: bytes or requests.
        unit: &'static str,
    },
    /// It took longer than allowed.
    #[error(
        "{operation} of {length} bytes at offset {offset} took {nanos} ns; max_latency or \
         latency_target allows {limit} ns"
    )]
    TooLong {
        /// The operation.
        operation: block::Operation,
        /// Offset, bytes.
        offset: u64,
        /// Length, bytes.
        length: u32,
        /// How long it took, from acceptance to delivery.
        nanos: u64,
        /// How long it may take.
        limit: u64,
    },
    /// It did not return what was written.
    #[error("verify of the block at offset {offset}: {mismatch}{}", at_device(*offset, mismatch))]
    Verify {
        /// First byte of the unit.
        offset: u64,
        /// The error in it.
        mismatch: crate::verify::Mismatch,
    },
}

/// The offset on the device of the first wrong byte.
fn at_device(offset: u64, mismatch: &crate::verify::Mismatch) -> String {
    let first = mismatch.first_byte();
    first.map_or_else(String::new, |first| format!(" (offset {})", offset + first as u64))
}

/// Why a run cannot start, or cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A request length or offset does not fit the device's blocks.
    #[error(
        "{job}: {what} {value} is not a multiple of the device's block size {block_size}; \
         take one that is, or a device with smaller blocks: blocks are not read, changed and \
         written back"
    )]
    Misaligned {
        /// The job.
        job: String,
        /// The value that does not fit.
        what: &'static str,
        /// Its size in bytes.
        value: u64,
        /// Bytes per block of the device.
        block_size: u32,
    },
    /// The region is not on the device.
    #[error(
        "{job}: offset {offset} and size {size} end beyond the device ({device} bytes); \
         make the size smaller or the device larger"
    )]
    BeyondDevice {
        /// The job.
        job: String,
        /// First byte.
        offset: u64,
        /// Bytes.
        size: u64,
        /// Bytes of the device.
        device: u64,
    },
    /// Not one request fits into the region.
    #[error("{job}: a region of {size} bytes is too small for a request of {block} bytes")]
    TooSmall {
        /// The job.
        job: String,
        /// Bytes in the region.
        size: u64,
        /// Longest request.
        block: u32,
    },
    /// The device cannot be written.
    #[error("{job} writes, but the device is read-only")]
    ReadOnly {
        /// The job.
        job: String,
    },
    /// The device cannot trim.
    #[error("{job} trims, but the device cannot")]
    CannotTrim {
        /// The job.
        job: String,
    },
    /// The device's buffer memory is too small.
    #[error(
        "{job}: {needed} bytes of buffers do not fit the device's {memory} bytes of DMA \
         memory; lower iodepth, bs or numjobs"
    )]
    Memory {
        /// The job.
        job: String,
        /// Bytes needed by all workers up to this one.
        needed: u64,
        /// Available bytes.
        memory: u64,
    },
    /// A value is out of range.
    #[error("{job}: {what}")]
    Invalid {
        /// The job.
        job: String,
        /// The error.
        what: &'static str,
    },
    /// A request of a replayed log does not fit the device.
    #[error("{job}: request {number} of its log, {length} bytes at offset {offset}, {what}")]
    Replay {
        /// The job.
        job: String,
        /// The number of the log's request, from 1.
        number: usize,
        /// Its offset, bytes.
        offset: u64,
        /// Its length, bytes.
        length: u32,
        /// The error, and the remedy.
        what: &'static str,
    },
    /// A log of requests cannot be written.
    #[error("{job}: write_iolog: {cause}")]
    Log {
        /// The job.
        job: String,
        /// The error.
        #[source]
        cause: LogError,
    },
    /// Requests are in flight, but the device has gone quiet for good.
    #[error(
        "the device went idle with {} unanswered: a completion was lost",
        counted(*in_flight, "request", "requests")
    )]
    Stalled {
        /// Requests without an answer.
        in_flight: u32,
    },
}

/// Most workers in one run.
pub const WORKERS_MAX: usize = (1 << 15) - 1;
/// Deepest queue of one worker.
pub const DEPTH_MAX: u32 = 1 << 15;
/// Rounds between checks of the stop flag and calls of the progress function.
const ROUNDS_PER_LOOK: u32 = 256;

/// The state shared by all workers of a run.
struct Shared {
    versions: Option<Versions>,
    /// One request's data, while it is stamped or checked.
    scratch: Vec<u8>,
    /// Some worker still writes: read-back waits, so that every block is checked once, against its
    /// last write.
    writing: bool,
    /// The worker to be refilled first: if a queue is too short for all, each gets its share.
    turn: usize,
    /// Zones that some worker uses.
    zones: Option<Zones>,
}

/// Runs `assignments` on `lanes` until all are done.
///
/// # Errors
/// [`RunError`] when a workload does not fit the device, or the device loses requests. Failed
/// requests are not an error here: they are in each worker's outcome.
pub fn run<D: BlockDevice, C: Clock>(
    lanes: &mut [D],
    clock: &C,
    assignments: &[Assignment],
    mut options: RunOptions<'_>,
) -> Result<Outcome, RunError> {
    let zones = options.zones.take();
    let mut workers = prepare::prepare(lanes, assignments, zones.as_ref())?;
    let mut shared = checking::shared(&mut workers, zones.as_ref())?;
    shared.zones = zones;
    workers.iter().for_each(|worker| worker.spoil_zones(&mut shared));
    let mut traces: Vec<Option<Ring>> = lanes
        .iter()
        .map(|_| (options.trace_records > 0).then(|| Ring::new(options.trace_records)))
        .collect();
    let start = clock.now();
    let mut company = Company::new(assignments);
    let mut watch = Watch::new(assignments);
    company.start(&mut workers, start);
    let (mut rounds, mut over): (u32, usize) = (0, 0);
    loop {
        let mut round = Round::default();
        if shared.versions.is_some() {
            shared.writing = workers.iter().any(Worker::is_writing);
        }
        for ((index, lane), trace) in lanes.iter_mut().enumerate().zip(&mut traces) {
            round.busy |= collect(lane, clock, &mut workers, &mut shared, trace);
            round.join(refill(lane, index, clock, &mut workers, &mut shared));
        }
        let done = workers.iter().filter(|worker| worker.is_done()).count();
        if done != over {
            over = done;
            company.settle(&mut workers, clock.now());
        }
        if done == workers.len() {
            break;
        }
        if let Some(watch) = &mut watch
            && clock.now() >= watch.due
        {
            watch.look(&mut workers, clock.now());
        }
        if !round.busy {
            let steady = watch.as_ref().and_then(Watch::wake_at);
            wait(lanes, clock, &workers, (round, steady))?;
        }
        rounds = rounds.wrapping_add(1);
        shared.turn = if shared.turn + 1 < workers.len() { shared.turn + 1 } else { 0 };
        if rounds.is_multiple_of(ROUNDS_PER_LOOK) {
            look_around(clock.now(), &mut workers, &mut options);
        }
    }
    let traces = traces.into_iter().flatten().collect();
    let state = |worker| watch.as_ref().and_then(|watch| watch.state(worker));
    let finished = workers.into_iter().enumerate();
    let workers = finished.map(|(at, worker)| worker.finish(state(at)));
    let workers = workers.collect::<Result<_, RunError>>()?;
    Ok(Outcome { workers, traces, halts: company.halts, zones: shared.zones })
}

/// Takes every completion of `lane`. Returns whether there was one.
#[inline]
fn collect<D: BlockDevice, C: Clock>(
    lane: &mut D,
    clock: &C,
    workers: &mut [Worker<'_>],
    shared: &mut Shared,
    trace: &mut Option<Ring>,
) -> bool {
    let mut now = clock.now();
    let mut any = false;
    while let Some(completion) = lane.poll(now) {
        now = clock.now();
        let worker = &mut workers[worker::of_token(completion.token)];
        let record = worker.complete(&completion, now, lane.memory(), shared);
        if let Some(ring) = trace {
            ring.push(record);
        }
        any = true;
    }
    any
}

/// What happened in a round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Something happened: poll again before waiting.
    busy: bool,
    /// The device refused a request for good; its worker continues with the next one.
    refused: bool,
}

impl Round {
    #[inline]
    fn join(&mut self, other: Self) {
        self.busy |= other.busy;
        self.refused |= other.refused;
    }
}

/// Lets every worker of lane `index` issue what it may.
#[inline]
fn refill<D: BlockDevice, C: Clock>(
    lane: &mut D,
    index: usize,
    clock: &C,
    workers: &mut [Worker<'_>],
    shared: &mut Shared,
) -> Round {
    let (mut round, mut submitted) = (Round::default(), 0);
    let now = clock.now();
    let (later, first) = workers.split_at_mut(shared.turn);
    for worker in first.iter_mut().chain(later).filter(|worker| worker.lane == index) {
        round.busy |= worker.advance(now);
        let done = worker.refill(lane, clock, shared);
        submitted += done.submitted;
        round.refused |= done.refused > 0;
    }
    if submitted > 0 {
        lane.ring(clock.now());
        round.busy = true;
    }
    round
}

/// Nothing to do: waits for the device or for the next relevant instant.
#[cold]
fn wait<D: BlockDevice, C: Clock>(
    lanes: &[D],
    clock: &C,
    workers: &[Worker<'_>],
    (round, steady): (Round, Option<Instant>),
) -> Result<(), RunError> {
    if workers.iter().any(Worker::moves_on) {
        return Ok(());
    }
    let device = lanes.iter().filter_map(BlockDevice::poll_at).min();
    let ours = workers.iter().filter_map(Worker::wake_at).min();
    let until = [device, ours, steady].into_iter().flatten().min();
    match clock.wait(until) {
        Wake::Idle if until.is_none() && !round.refused => {
            let in_flight = workers.iter().map(Worker::in_flight).sum();
            Err(RunError::Stalled { in_flight })
        }
        Wake::Idle | Wake::Deadline | Wake::Interrupt => Ok(()),
    }
}

#[cold]
fn look_around(now: Instant, workers: &mut [Worker<'_>], options: &mut RunOptions<'_>) {
    if options.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
        workers.iter_mut().for_each(Worker::stop);
    }
    if let Some(progress) = &mut options.progress {
        let fraction = workers.iter().map(|worker| worker.fraction(now)).fold(1.0, f64::min);
        let requests = workers.iter().map(|worker| worker.statistics().requests()).sum();
        progress(&Progress { fraction, requests });
    }
}

/// The direction for which an operation counts.
fn direction_of(operation: block::Operation) -> Option<Direction> {
    match operation {
        block::Operation::Read => Some(Direction::Read),
        block::Operation::Write => Some(Direction::Write),
        block::Operation::Delete => Some(Direction::Trim),
        block::Operation::Flush => None,
    }
}

#[cfg(test)]
mod tests;
