mod ends;
mod zoned;

use core::cell::Cell;
use core::ops::Range;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use flysch_api::block::{
    BlockDevice, BlockError, BlockGeometry, Cause, Completion, Operation, Refused, Request,
};
use flysch_api::data::SegmentLimits;
use flysch_api::machine::{Clock, DmaRegion, Instant, Wake};
use flysch_api::trace::Passage;

use super::*;
use crate::verify::Method;
use crate::workload::{
    BlockSize, Direction, Distribution, Ends, Flow, Mix, Order, Pace, Tolerance, Verify, Workload,
};

/// Virtual time, advanced only by waiting.
#[derive(Clone, Debug, Default)]
struct TestClock {
    now: Rc<Cell<u64>>,
    /// When the device under test completes something next.
    device: Rc<Cell<Option<u64>>>,
}

impl Clock for TestClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.now.get())
    }

    fn wait(&self, until: Option<Instant>) -> Wake {
        let until = until.map(Instant::nanos);
        let Some(next) = [until, self.device.get()].into_iter().flatten().min() else {
            return Wake::Idle;
        };
        self.now.set(self.now.get().max(next));
        if Some(next) == self.device.get() { Wake::Interrupt } else { Wake::Deadline }
    }
}

/// The errors of the test device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Requests beyond this offset fail.
    FailFrom(u64),
    /// The n-th write is acknowledged and not performed.
    LoseWrite(u64),
    /// The n-th write goes to the neighbouring block.
    Misplace(u64),
    /// Only the first half of the n-th write arrives.
    Tear(u64),
    /// The n-th request is never answered.
    Swallow(u64),
}

/// A disk in memory: one unit of work at a time, a fixed time for each.
struct TestDisk {
    geometry: BlockGeometry,
    memory: DmaRegion,
    clock: TestClock,
    service_nanos: u64,
    content: Vec<u8>,
    submitted: VecDeque<Request>,
    issued: VecDeque<(Request, Instant, Instant)>,
    free_at: Instant,
    fault: Fault,
    writes: u64,
    requests: u64,
    log: Vec<(Operation, u64, u64)>,
    /// When requests were accepted, in order.
    accepted: Vec<Instant>,
    deepest: usize,
    refuses_writes: bool,
}

impl TestDisk {
    fn new(bytes: usize, clock: &TestClock) -> Self {
        Self {
            geometry: BlockGeometry {
                block_size: 512,
                blocks: bytes as u64 / 512,
                transfer_max: 1 << 20,
                segments: SegmentLimits::NONE,
                queue_depth: 8,
                can_delete: true,
                read_only: false,
                crypto: false,
            },
            memory: DmaRegion::zeroed(4 << 20, 0x10_0000),
            clock: clock.clone(),
            service_nanos: 1000,
            content: vec![0; bytes],
            submitted: VecDeque::new(),
            issued: VecDeque::new(),
            free_at: Instant::START,
            fault: Fault::None,
            writes: 0,
            requests: 0,
            log: Vec::new(),
            accepted: Vec::new(),
            deepest: 0,
            refuses_writes: false,
        }
    }

    fn perform(&mut self, request: &Request) -> Result<(), BlockError> {
        self.log.push((request.operation, request.offset, request.length));
        let (start, length) = (request.offset as usize, request.length as usize);
        if let Fault::FailFrom(offset) = self.fault
            && request.offset + request.length > offset
        {
            return Err(BlockError::Medium(Cause::sense(3, 0x11, 0)));
        }
        match request.operation {
            Operation::Read => {
                self.copy(request, |memory, at, place| {
                    memory.write(at, &self.content[start + place.start..start + place.end]);
                });
            }
            Operation::Write => {
                self.writes += 1;
                let mut data = vec![0; length];
                self.copy(request, |memory, at, place| memory.read(at, &mut data[place]));
                let (start, length) = match self.fault {
                    Fault::LoseWrite(n) if n == self.writes => (start, 0),
                    Fault::Tear(n) if n == self.writes => (start, length / 2),
                    Fault::Misplace(n) if n == self.writes => (start + length, length),
                    _ => (start, length),
                };
                self.content[start..start + length].copy_from_slice(&data[..length]);
            }
            Operation::Flush | Operation::Delete => {}
        }
        Ok(())
    }

    /// Every range of a request's data: where it is in memory, and its offset in the data.
    fn copy(&self, request: &Request, mut copy: impl FnMut(&DmaRegion, usize, Range<usize>)) {
        let mut done = 0;
        for range in request.data.ranges(&self.memory) {
            let range = range.unwrap();
            let at = self.memory.offset_of(range.address, range.len as usize).unwrap();
            copy(&self.memory, at, done..done + range.len as usize);
            done += range.len as usize;
        }
    }

    fn schedule(&self) {
        self.clock.device.set(self.issued.front().map(|(_, _, done)| done.nanos()));
    }
}

impl BlockDevice for TestDisk {
    fn geometry(&self) -> &BlockGeometry {
        &self.geometry
    }

    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    fn submit(&mut self, request: &Request, _now: Instant) -> Result<(), Refused> {
        self.geometry.check(request).map_err(Refused::Invalid)?;
        if self.refuses_writes && request.operation == Operation::Write {
            return Err(Refused::Invalid(BlockError::WriteProtected));
        }
        if self.submitted.len() + self.issued.len() >= self.geometry.queue_depth as usize {
            return Err(Refused::Full);
        }
        self.accepted.push(request.accepted);
        self.submitted.push_back(*request);
        Ok(())
    }

    fn ring(&mut self, now: Instant) {
        while let Some(request) = self.submitted.pop_front() {
            self.requests += 1;
            if self.fault == Fault::Swallow(self.requests) {
                continue;
            }
            self.free_at = self.free_at.max(now).after_nanos(self.service_nanos);
            self.issued.push_back((request, now, self.free_at));
        }
        self.deepest = self.deepest.max(self.issued.len());
        self.schedule();
    }

    fn poll(&mut self, now: Instant) -> Option<Completion> {
        let &(request, issued, done) = self.issued.front()?;
        if done > now {
            return None;
        }
        self.issued.pop_front();
        self.schedule();
        let result = self.perform(&request);
        let accepted = request.accepted;
        let passage = Passage { accepted, issued, device_done: Some(done), seen: now };
        Some(Completion { token: request.token, result, passage })
    }

    fn poll_at(&self) -> Option<Instant> {
        None
    }
}

const RANDOM: Order =
    Order::Random { each_once: true, distribution: Distribution::Uniform, run: 1 };
const MIB: usize = 1 << 20;

fn job(mix: Mix, order: Order, depth: u32) -> Workload {
    Workload { mix, order, depth, ..Workload::default() }
}

fn verifying() -> Workload {
    let verify = Verify { method: Method::Crc32c, ..Verify::default() };
    let write = job(Mix::Only(Direction::Write), RANDOM, 4);
    Workload { verify: Some(verify), size: Some(MIB as u64), ..write }
}

fn play(disk: &mut [TestDisk], jobs: &[Workload]) -> Outcome {
    let clock = disk[0].clock.clone();
    let lanes = disk.len();
    let assign = |(i, job): (usize, &Workload)| Assignment::new(job.clone(), i % lanes);
    let assignments: Vec<_> = jobs.iter().enumerate().map(assign).collect();
    run(disk, &clock, &assignments, RunOptions { trace_records: 100_000, ..RunOptions::default() })
        .unwrap()
}

fn play_one(jobs: &[Workload], fault: Fault) -> (Outcome, TestDisk) {
    let mut disk = TestDisk::new(MIB + 8192, &TestClock::default());
    disk.fault = fault;
    let mut disks = [disk];
    let outcome = play(&mut disks, jobs);
    let [disk] = disks;
    (outcome, disk)
}

#[test]
fn ends_by_size_and_reads_each_block_once() {
    let read = Workload { size: Some(MIB as u64), ..job(Mix::Only(Direction::Read), RANDOM, 8) };
    let (outcome, disk) = play_one(&[read], Fault::None);
    let statistics = &outcome.workers[0].statistics;
    assert_eq!(statistics.requests(), 256);
    let mut offsets: Vec<u64> = disk.log.iter().map(|&(_, offset, _)| offset).collect();
    offsets.sort_unstable();
    assert_eq!(offsets, (0..256).map(|block| block * 4096).collect::<Vec<_>>());
    assert_eq!(disk.deepest, 8);
    // One at a time, 1 us each: the device is never idle, the queue is always full.
    assert_eq!(statistics.runtime_nanos, 256_000);
    let direction = statistics.direction(Direction::Read).unwrap();
    assert_eq!(direction.total.max(), 8_000);
    assert_eq!(direction.total.mean() as u64, (8_000 * 249 + 28_000) / 256);
}

#[test]
fn ends_by_requests_bytes_and_time() {
    let base = job(Mix::Only(Direction::Read), Order::Sequential { gap: 0 }, 2);
    let count = Workload { requests_max: Some(1000), ..base.clone() };
    assert_eq!(play_one(&[count], Fault::None).0.workers[0].statistics.requests(), 1000);
    let bytes = Workload { io_size: Some(40_960), ..base.clone() };
    assert_eq!(play_one(&[bytes], Fault::None).0.workers[0].statistics.requests(), 10);
    let loops = Workload { size: Some(8192), loops: 3, ..base.clone() };
    assert_eq!(play_one(&[loops], Fault::None).0.workers[0].statistics.requests(), 6);
    let runtime = Some(Duration::from_micros(100));
    let short = Workload { runtime, ..base.clone() };
    let timed = Workload { runtime, time_based: true, size: Some(4096), ..base };
    for job in [short, timed] {
        let requests = play_one(&[job], Fault::None).0.workers[0].statistics.requests();
        assert!((100..=102).contains(&requests), "{requests}");
    }
}

#[test]
fn the_ramp_is_not_measured() {
    let ramp_time = Duration::from_micros(500);
    let runtime = Some(Duration::from_micros(100));
    let base = job(Mix::Only(Direction::Read), RANDOM, 1);
    let job = Workload { ramp_time, runtime, time_based: true, ..base };
    let (outcome, disk) = play_one(&[job], Fault::None);
    let requests = outcome.workers[0].statistics.requests();
    assert!((99..=101).contains(&requests), "{requests}");
    assert!((600..=602).contains(&disk.log.len()), "{}", disk.log.len());
}

#[test]
fn rates_and_think_time_are_kept() {
    let base = job(Mix::Only(Direction::Read), RANDOM, 4);
    let requests_per_second = [10_000, 0, 0];
    let pace = Pace { requests_per_second, ..Pace::default() };
    let slow = Workload { pace, requests_max: Some(101), ..base.clone() };
    let nanos = play_one(&[slow], Fault::None).0.workers[0].statistics.runtime_nanos;
    assert_eq!(nanos, 100 * 100_000 + 1000);
    let pace = Pace { bytes_per_second: [4096 * 1000, 0, 0], ..Pace::default() };
    let slow = Workload { pace, requests_max: Some(11), ..base.clone() };
    let nanos = play_one(&[slow], Fault::None).0.workers[0].statistics.runtime_nanos;
    assert_eq!(nanos, 10 * 1_000_000 + 1000);
    let pace = Pace { think_time_us: 50, think_requests: 10, ..Pace::default() };
    let slow = Workload { pace, requests_max: Some(21), depth: 1, ..base };
    let nanos = play_one(&[slow], Fault::None).0.workers[0].statistics.runtime_nanos;
    // The pause begins when the tenth request is issued, so one service time lies inside it.
    assert_eq!(nanos, 2 * (9 * 1000 + 50_000) + 1000);
}

#[test]
fn flushes_come_after_the_writes_they_cover() {
    let write = job(Mix::Only(Direction::Write), Order::Sequential { gap: 0 }, 4);
    let job = Workload { flush_every: 8, flush_at_end: true, requests_max: Some(20), ..write };
    let (outcome, disk) = play_one(&[job], Fault::None);
    let flushes: Vec<usize> = disk
        .log
        .iter()
        .enumerate()
        .filter(|(_, (operation, ..))| *operation == Operation::Flush)
        .map(|(index, _)| index)
        .collect();
    assert_eq!(flushes, [8, 17, 22]);
    assert_eq!(outcome.workers[0].statistics.flush.count(), 3);
}

#[test]
fn workers_share_lanes_and_lanes_keep_their_workers() {
    let clock = TestClock::default();
    let mut disks = [TestDisk::new(MIB, &clock), TestDisk::new(MIB, &clock)];
    // A lane's queue is smaller than what its workers want: requests wait, none is lost.
    let jobs = vec![job(Mix::Only(Direction::Read), RANDOM, 6); 4];
    let outcome = play(&mut disks, &jobs);
    for worker in &outcome.workers {
        assert_eq!((worker.statistics.requests(), worker.failures), (256, 0));
        // And none waits much longer than its fair turn, 12 requests of 1 us.
        let longest = worker.statistics.direction(Direction::Read).unwrap().total.max();
        assert!(longest < 30_000, "{longest}");
    }
    assert_eq!(disks.each_ref().map(|disk| disk.log.len()), [512, 512]);
    assert_eq!(outcome.traces.iter().map(Ring::len).sum::<usize>(), 1024);
    assert!(outcome.traces[1].iter().all(|record| record.lane == 1 && record.slot < 12));
}

/// The last request of a sequence may be shorter than a unit: all before it is read back.
#[test]
fn what_is_shorter_than_a_unit_is_left_out() {
    for order in [Order::Sequential { gap: 512 }, Order::Sequential { gap: -8192 }] {
        let mut job = Workload { order, depth: 4, ..verifying() };
        (job.offset, job.size) = (1024, Some(250 << 10));
        job.block_size = [(); 3].map(|()| BlockSize::Range { min: 4096, max: 16_384 });
        let (outcome, _) = play_one(&[job], Fault::None);
        let worker = &outcome.workers[0];
        let verified = worker.verified.as_ref().unwrap();
        assert_eq!((worker.failure, verified.mismatches), (None, 0), "{:?}", verified.first);
        assert!(verified.bytes > 64 << 10, "{}", verified.bytes);
    }
}

/// What a read left in a buffer is not written: the writes write what they wrote at first.
#[test]
fn writes_between_reads_write_what_they_should() {
    use crate::workload::Fill;
    let mix = Mix::ReadWrite { read_percent: 50 };
    for fill in [Fill::Pattern(vec![0xaa]), Fill::Zero, Fill::Random] {
        for log in [false, true] {
            let mut job = Workload { fill: fill.clone(), ..job(mix, RANDOM, 4) };
            if log {
                // Its requests take the longer way.
                job.pace.requests_per_second = [u64::from(u32::MAX); 3];
            }
            let job = Workload { size: Some(MIB as u64), ..job };
            let clock = TestClock::default();
            let mut disks = [TestDisk::new(MIB, &clock)];
            disks[0].content.fill(0x55);
            play(&mut disks, std::slice::from_ref(&job));
            let disk = &disks[0];
            let writes = disk.log.iter().filter(|(operation, ..)| *operation == Operation::Write);
            let mut first = vec![[0; 4096]; 4];
            for (slot, content) in first.iter_mut().enumerate() {
                crate::runner::buffers::fill(&job, slot as u64, content);
            }
            let mut count = 0;
            for &(_, offset, _) in writes {
                let written = &disk.content[offset as usize..][..4096];
                assert!(first.iter().any(|content| content == written), "{fill:?} at {offset}");
                count += 1;
            }
            assert!(count > 64, "{count}");
        }
    }
}

/// Whatever is at places that are no multiples of the units, and is partly written over, the rest
/// is read back.
#[test]
fn units_that_overlap_are_read_back_as_far_as_they_are_whole() {
    let pattern = crate::verify::Pattern::with_offsets(&[0x11; 12], &[2]);
    for (method, pattern) in [(Method::Crc32c, None), (Method::Pattern, pattern)] {
        for (interval, backlog) in [(None, 0), (Some(4096), 0), (Some(4096), 3)] {
            let mut job = Workload { loops: 2, depth: 4, align: [Some(512); 3], ..verifying() };
            job.block_size = [16_384; 3].map(BlockSize::Fixed);
            job.verify =
                job.verify.map(|verify| Verify { method, pattern, interval, backlog, ..verify });
            let (outcome, disk) = play_one(std::slice::from_ref(&job), Fault::None);
            let worker = &outcome.workers[0];
            assert_eq!(worker.failure, None, "{method} {interval:?} {backlog}");
            let read = worker.verified.as_ref().unwrap().bytes;
            assert!(read >= MIB as u64 / 8, "{method} {interval:?}: {read}");
            // A write that was lost is found if nothing came over it.
            let last = (1..=disk.writes).rev().find(|&number| {
                let (outcome, _) = play_one(std::slice::from_ref(&job), Fault::LoseWrite(number));
                outcome.workers[0].verified.as_ref().unwrap().mismatches > 0
            });
            assert_eq!(last, Some(disk.writes), "{method} {interval:?}");
        }
    }
}

/// Buffers of different requests never overlap: each write arrives as it was filled.
#[test]
fn refilled_buffers_all_differ() {
    let write = job(Mix::Only(Direction::Write), RANDOM, 8);
    let job = Workload { fill: crate::workload::Fill::Refill, size: Some(MIB as u64), ..write };
    let (_, disk) = play_one(&[job], Fault::None);
    let mut blocks: Vec<&[u8]> = disk.content[..MIB].chunks(4096).collect();
    blocks.sort_unstable();
    assert!(blocks.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn everything_written_is_verified_overwrites_too() {
    for method in [Method::Crc32c, Method::Crc32, Method::XxHash, Method::Md5] {
        let mut job = verifying();
        job.verify = job.verify.map(|verify| Verify { method, ..verify });
        let (outcome, _) = play_one(&[job.clone()], Fault::None);
        let verified = outcome.workers[0].verified.as_ref().unwrap();
        assert_eq!((verified.bytes, verified.mismatches), (MIB as u64, 0));
        // Written three times over, in another order each time, with other sizes.
        job.loops = 3;
        job.block_size[1] = BlockSize::Range { min: 4096, max: 32_768 };
        let (outcome, disk) = play_one(&[job], Fault::None);
        let verified = outcome.workers[0].verified.as_ref().unwrap();
        assert_eq!((verified.bytes, verified.mismatches), (MIB as u64, 0), "{:?}", verified.first);
        assert!(disk.writes > 100 && outcome.workers[0].failure.is_none());
    }
}

#[test]
fn workers_over_the_same_blocks_verify_each_others_last_writes() {
    let jobs = [
        Workload { seed: 1, loops: 2, ..verifying() },
        Workload { seed: 2, loops: 2, ..verifying() },
        Workload { seed: 3, verify: None, loops: 1, ..verifying() },
    ];
    let (outcome, _) = play_one(&jobs, Fault::None);
    let verified: Vec<_> = outcome.workers.iter().filter_map(|w| w.verified.as_ref()).collect();
    assert!(verified.iter().all(|v| v.mismatches == 0 && v.bytes > 0), "{verified:?}");
    assert!(verified.iter().map(|v| v.bytes).sum::<u64>() <= MIB as u64);
    // Without the one that does not verify every block has a last writer, however late it ends.
    let jobs = [verifying(), Workload { seed: 2, loops: 3, depth: 1, ..verifying() }];
    let (outcome, _) = play_one(&jobs, Fault::None);
    let bytes = outcome.workers.iter().filter_map(|w| w.verified.as_ref()).map(|v| v.bytes);
    assert_eq!(bytes.sum::<u64>(), MIB as u64);
}

#[test]
fn lost_misplaced_and_torn_writes_are_told_apart() {
    // Two passes: the lost write of the second leaves the data of the first.
    for (fault, word, units) in [
        (Fault::LoseWrite(400), "stale: write", 1),
        (Fault::LoseWrite(100), "no verify header", 1),
        (Fault::Tear(400), "torn: bytes ", 1),
        (Fault::Misplace(512), "misplaced: this was written for", 2),
    ] {
        let loops = if fault == Fault::LoseWrite(100) { 1 } else { 2 };
        let (outcome, _) = play_one(&[Workload { loops, ..verifying() }], fault);
        let worker = &outcome.workers[0];
        let verified = worker.verified.as_ref().unwrap();
        assert!(verified.mismatches >= units, "{fault:?}");
        assert!(verified.first.iter().any(|told| told.contains(word)), "{:?}", verified.first);
        assert_eq!(verified.bytes + verified.mismatches * 4096, MIB as u64);
        assert!(matches!(worker.failure, Some(Failure::Verify { .. })));
    }
}

#[test]
fn verify_fatal_stops_at_the_first_mismatch() {
    let mut job = verifying();
    job.verify = job.verify.map(|verify| Verify { fatal: true, ..verify });
    let (outcome, _) = play_one(&[job], Fault::LoseWrite(1));
    let verified = outcome.workers[0].verified.as_ref().unwrap();
    assert!(verified.bytes < MIB as u64 && verified.mismatches == 1);
}

#[test]
fn an_earlier_runs_data_can_be_checked_by_reading() {
    let clock = TestClock::default();
    let mut disks = [TestDisk::new(MIB, &clock)];
    play(&mut disks, &[verifying()]);
    let read = Workload { mix: Mix::Only(Direction::Read), seed: 99, ..verifying() };
    let mut only = verifying();
    only.verify = only.verify.map(|verify| Verify { only: true, ..verify });
    for job in [read.clone(), only] {
        let outcome = play(&mut disks, &[job]);
        let verified = outcome.workers[0].verified.as_ref().unwrap();
        assert_eq!((verified.bytes, verified.mismatches), (MIB as u64, 0));
    }
    disks[0].content[70_000] ^= 1;
    let outcome = play(&mut disks, &[read]);
    assert_eq!(outcome.workers[0].verified.as_ref().unwrap().mismatches, 1);
}

#[test]
fn a_failure_ends_the_worker_unless_it_is_tolerated() {
    let read = job(Mix::Only(Direction::Read), Order::Sequential { gap: 0 }, 4);
    let read = Workload { size: Some(MIB as u64), ..read };
    let (outcome, disk) = play_one(std::slice::from_ref(&read), Fault::FailFrom(65_536));
    let failure = outcome.workers[0].failure.unwrap().to_string();
    assert_eq!(failure, "read of 4096 bytes at offset 65536: medium error (sense 3/11/00)");
    assert!(disk.log.len() < 32);
    let tolerance = Tolerance { read: true, ..Tolerance::default() };
    let (outcome, disk) = play_one(&[Workload { tolerance, ..read }], Fault::FailFrom(65_536));
    assert_eq!((outcome.workers[0].failure, outcome.workers[0].failures), (None, 240));
    assert_eq!((disk.log.len(), outcome.workers[0].statistics.requests()), (256, 16));
}

/// The queue is full when the first worker fails: the request that it could not issue must not
/// remain marked as being written, or the other workers would wait for it for ever.
#[test]
fn a_worker_that_ends_leaves_nothing_marked_as_in_flight() {
    let fatal = |mut job: Workload| {
        job.verify = job.verify.map(|verify| Verify { fatal: true, ..verify });
        job
    };
    let jobs: Vec<Workload> = (0..4)
        .map(|seed| fatal(Workload { seed, depth: 6, loops: 2, size: Some(65_536), ..verifying() }))
        .collect();
    for failing in [8192, 32_768, 61_440] {
        let (outcome, _) = play_one(&jobs, Fault::FailFrom(failing));
        assert!(outcome.workers.iter().any(|worker| worker.failure.is_some()));
    }
}

#[test]
fn a_device_that_refuses_everything_does_not_hold_the_run() {
    let tolerance = Tolerance { write: true, ..Tolerance::default() };
    let runtime = Some(Duration::from_micros(50));
    let base = job(Mix::Only(Direction::Write), RANDOM, 4);
    let refused = Workload { tolerance, runtime, time_based: true, ..base };
    let read = Workload { requests_max: Some(200), ..job(Mix::Only(Direction::Read), RANDOM, 2) };
    let clock = TestClock::default();
    let mut disk = TestDisk::new(MIB, &clock);
    disk.refuses_writes = true;
    let outcome = play(&mut [disk], &[refused, read]);
    assert!(outcome.workers[0].failures > 0);
    assert_eq!(outcome.workers[1].statistics.requests(), 200);
}

#[test]
fn a_lost_completion_is_an_error_not_a_hang() {
    let clock = TestClock::default();
    let mut disk = TestDisk::new(MIB, &clock);
    disk.fault = Fault::Swallow(20);
    let workload = job(Mix::Only(Direction::Read), RANDOM, 4);
    let result = run(&mut [disk], &clock, &[Assignment::new(workload, 0)], RunOptions::default());
    assert_eq!(result.unwrap_err(), RunError::Stalled { in_flight: 1 });
}

#[test]
fn the_stop_flag_ends_a_run_in_order() {
    let clock = TestClock::default();
    let mut disks = [TestDisk::new(MIB, &clock)];
    let base = job(Mix::Only(Direction::Read), RANDOM, 4);
    let workload = Workload { requests_max: Some(u64::MAX), ..base };
    let stop = AtomicBool::new(false);
    let mut looks = 0;
    let mut progress = |progress: &Progress| {
        assert!(progress.fraction <= 1.0);
        looks += 1;
        stop.store(looks == 3, Ordering::Relaxed);
    };
    let options =
        RunOptions { stop: Some(&stop), progress: Some(&mut progress), ..RunOptions::default() };
    let outcome = run(&mut disks, &clock, &[Assignment::new(workload, 0)], options).unwrap();
    assert!(outcome.workers[0].statistics.requests() > 500);
    assert!(disks[0].issued.is_empty() && disks[0].submitted.is_empty());
}

#[test]
fn what_does_not_fit_is_refused_before_the_first_request() {
    let clock = TestClock::default();
    let base = job(Mix::Only(Direction::Write), RANDOM, 1);
    let fixed = |bytes| [BlockSize::Fixed(bytes), BlockSize::Fixed(bytes), BlockSize::Fixed(bytes)];
    let cases = [
        (Workload { size: Some(2 << 20), ..base.clone() }, "end beyond the device (1048576 bytes)"),
        (Workload { offset: 1 << 20, ..base.clone() }, "end beyond the device"),
        (Workload { block_size: fixed(1000), ..base.clone() }, "block size 1000 is not a multiple"),
        (Workload { block_size: fixed(0), ..base.clone() }, "block size 0 is not a multiple"),
        (Workload { offset: 100, ..base.clone() }, "offset 100 is not a multiple"),
        (Workload { size: Some(512), ..base.clone() }, "too small for a request of 4096"),
        (Workload { depth: 2000, ..base.clone() }, "DMA memory; lower iodepth"),
        (Workload { depth: 0, ..base.clone() }, "iodepth must be"),
    ];
    for (workload, words) in cases {
        let mut disks = [TestDisk::new(MIB, &clock)];
        let assignment = [Assignment::new(workload, 0)];
        let error = run(&mut disks, &clock, &assignment, RunOptions::default()).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(disks[0].log.is_empty());
    }
    let mut disks = [TestDisk::new(MIB, &clock)];
    disks[0].geometry.read_only = true;
    let assignment = [Assignment::new(base, 0)];
    let error = run(&mut disks, &clock, &assignment, RunOptions::default()).unwrap_err();
    assert_eq!(error, RunError::ReadOnly { job: "job".into() });
}

/// Plays related jobs, each in its group and after others.
fn play_together(jobs: &[(Workload, u32, &[usize])]) -> Outcome {
    let mut disks = [TestDisk::new(MIB + 8192, &TestClock::default())];
    let clock = disks[0].clock.clone();
    let assign = |(workload, group, after): &(Workload, u32, &[usize])| Assignment {
        group: *group,
        after: after.to_vec(),
        ..Assignment::new(workload.clone(), 0)
    };
    let assignments: Vec<_> = jobs.iter().map(assign).collect();
    run(&mut disks, &clock, &assignments, RunOptions::default()).unwrap()
}

#[test]
fn who_asks_for_it_ends_the_others() {
    let read = job(Mix::Only(Direction::Read), RANDOM, 1);
    let short = |ends| Workload { requests_max: Some(10), ends, ..read.clone() };
    let long = || Workload { size: Some(MIB as u64), loops: 2, ..read.clone() };
    let counts = |ends| {
        let outcome = play_together(&[(short(ends), 0, &[]), (long(), 0, &[]), (long(), 1, &[])]);
        let counts = outcome.workers.iter().map(|worker| worker.statistics.requests());
        (counts.collect::<Vec<_>>(), outcome.halts)
    };
    let (seen, halts) = counts(Ends::Group);
    assert!(seen[0] == 10 && seen[1] < 40 && seen[2] == 512 && !halts, "{seen:?}");
    let (seen, halts) = counts(Ends::Stage);
    assert!(seen[1] < 40 && seen[2] < 40 && !halts, "{seen:?}");
    let (seen, halts) = counts(Ends::All);
    assert!(seen[1] < 40 && seen[2] < 40 && halts, "{seen:?}");
}

#[test]
fn who_waits_begins_when_the_others_have_ended() {
    let read = job(Mix::Only(Direction::Read), RANDOM, 1);
    let some = |count| Workload { requests_max: Some(count), ..read.clone() };
    let outcome = play_together(&[(some(100), 0, &[]), (some(50), 0, &[]), (some(10), 0, &[0, 1])]);
    let times: Vec<u64> =
        outcome.workers.iter().map(|worker| worker.statistics.runtime_nanos).collect();
    // One request takes the device a microsecond: the last job has it for itself.
    assert_eq!((times[2], outcome.workers[2].statistics.requests()), (10_000, 10), "{times:?}");
}

#[test]
fn a_flow_is_shared_by_weight() {
    let read = job(Mix::Only(Direction::Read), RANDOM, 4);
    let part = |weight| Workload {
        flow: Some(Flow { id: 3, weight }),
        time_based: true,
        runtime: Some(Duration::from_millis(9)),
        ..read.clone()
    };
    let outcome = play_together(&[(part(1), 0, &[]), (part(8), 0, &[])]);
    let counts: Vec<u64> = outcome.workers.iter().map(|w| w.statistics.requests()).collect();
    assert!(counts[1].abs_diff(counts[0] * 8) <= 16 && counts[0] > 900, "{counts:?}");
}

#[test]
fn chance_arrivals_have_the_mean_and_the_spread_of_a_poisson_process() {
    let pace = Pace { requests_per_second: [100_000, 0, 0], poisson: true, ..Pace::default() };
    let read = job(Mix::Only(Direction::Read), RANDOM, 32);
    let read = Workload { pace, requests_max: Some(5000), ..read };
    let (outcome, disk) = play_one(&[read], Fault::None);
    let gaps: Vec<f64> =
        disk.accepted.windows(2).map(|pair| pair[1].nanos_since(pair[0]) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    assert!((mean - 10_000.0).abs() < 500.0, "{mean}");
    // The spread of exponential gaps is their mean.
    assert!((variance.sqrt() / mean - 1.0).abs() < 0.1, "{} of {mean}", variance.sqrt());
    assert_eq!(outcome.workers[0].statistics.requests(), 5000);
}

#[test]
fn who_is_too_slow_fails() {
    // One request at a time takes a microsecond, so a million in a second, 4 KB each.
    let run = |bytes, requests| {
        let pace =
            Pace { bytes_min: [bytes, 0, 0], requests_min: [requests, 0, 0], ..Pace::default() };
        // Nothing is demanded of the first two seconds.
        let runtime = Some(Duration::from_millis(3600));
        let pace = Pace { requests_per_second: [1000, 0, 0], ..pace };
        let read = job(Mix::Only(Direction::Read), RANDOM, 1);
        let (outcome, _) =
            play_one(&[Workload { pace, time_based: true, runtime, ..read }], Fault::None);
        outcome.workers[0].failure
    };
    assert_eq!(run(4_000_000, 990), None);
    assert!(matches!(run(0, 1100), Some(Failure::TooSlow { least: 1100, unit: "requests", .. })));
    let failure = run(5_000_000, 0).expect("it is too slow");
    let text = failure.to_string();
    assert!(
        text.starts_with("reads ran at 40") && text.ends_with(", but 5000000 were required"),
        "{text}"
    );
}

#[test]
fn each_loop_has_its_number_of_requests() {
    let read = job(Mix::Only(Direction::Read), RANDOM, 4);
    let (outcome, _) =
        play_one(&[Workload { requests_max: Some(30), loops: 3, ..read }], Fault::None);
    assert_eq!(outcome.workers[0].statistics.requests(), 90);
}
