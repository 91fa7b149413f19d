//! Ends by latency and by steady states; read-back during a run; logs.

use super::*;
use crate::iolog::{self, Entry, ReadOptions, Replay};
use crate::workload::{LatencyLimits, LatencyTarget, LogTo, Steady, SteadyMeasure};

fn reads(depth: u32) -> Workload {
    job(Mix::Only(Direction::Read), Order::Sequential { gap: 0 }, depth)
}

#[test]
fn a_request_that_takes_too_long_ends_its_worker() {
    // The disk works on one at a time: the fourth of four takes 4 us.
    for (depth, fails) in [(3, false), (4, true)] {
        let latency = LatencyLimits { max_nanos: [3_500, 0, 0], target: None };
        let (outcome, _) = play_one(&[Workload { latency, ..reads(depth) }], Fault::None);
        let failure = outcome.workers[0].failure;
        assert_eq!(failure.is_some(), fails, "{failure:?}");
        let Some(failure) = failure else { continue };
        assert_eq!((failure.errno(), outcome.workers[0].failures > 0), (110, true));
        assert!(failure.to_string().contains("took 4000 ns; max_latency"), "{failure}");
    }
}

#[test]
fn the_depth_is_found_at_which_requests_are_fast_enough() {
    let found = |nanos, percentile, depth| {
        let target = LatencyTarget { nanos, window_nanos: 100_000, percentile, goes_on: false };
        let latency = LatencyLimits { target: Some(target), ..LatencyLimits::default() };
        let job = Workload { latency, time_based: true, ..reads(depth) };
        let (outcome, disk) = play_one(&[job], Fault::None);
        let worker = &outcome.workers[0];
        assert_eq!(worker.failure, None);
        (worker.depth, worker.statistics.direction(Direction::Read).unwrap().total.max(), disk)
    };
    for percentile in [99.0, 100.0] {
        let (depth, max, disk) = found(5_500, percentile, 8);
        // Only the last try is measured; the one with 8 was too deep.
        assert_eq!((depth, max, disk.deepest), (5, 5_000, 8));
    }
    assert_eq!(found(20_000, 99.0, 8).0, 8);
    assert_eq!(found(1_500, 99.0, 8).0, 1);
}

#[test]
fn a_target_that_one_request_alone_misses_is_a_failure() {
    let target =
        LatencyTarget { nanos: 500, window_nanos: 10_000, percentile: 100.0, goes_on: false };
    let latency = LatencyLimits { target: Some(target), ..LatencyLimits::default() };
    let (outcome, _) = play_one(&[Workload { latency, ..reads(8) }], Fault::None);
    assert_eq!(outcome.workers[0].failure.map(|failure| failure.errno()), Some(110));
}

#[test]
fn a_steady_state_ends_those_that_are_judged_together() {
    let steady = Steady {
        measure: SteadyMeasure::Iops,
        slope: false,
        limit: 1.0,
        percent: true,
        window_seconds: 4,
        ramp_seconds: 2,
        interval_seconds: 1,
    };
    let one = Workload {
        steady: Some(steady),
        steady_together: true,
        time_based: true,
        runtime: Some(Duration::from_secs(60)),
        pace: Pace { requests_per_second: [100, 0, 0], ..Pace::default() },
        ..reads(1)
    };
    let (outcome, _) = play_one(&[one.clone(), one.clone()], Fault::None);
    for worker in &outcome.workers {
        let state = worker.steady.as_ref().unwrap();
        assert!(state.attained && state.criterion < 1.0, "{state:?}");
        // Both together.
        assert!((199..=201).contains(&state.mean(|measured| measured.iops)), "{state:?}");
        assert_eq!(state.measured.len(), 4);
        let seconds = worker.statistics.runtime_nanos as f64 / 1e9;
        assert!((5.9..6.2).contains(&seconds), "2 s of ramp, then 4 measurements: {seconds}");
    }
    // Never within a limit of nothing.
    let never = Steady { limit: 0.0, ..steady };
    let job =
        Workload { steady: Some(never), runtime: Some(Duration::from_secs(10)), ..one.clone() };
    let (outcome, _) = play_one(&[job], Fault::None);
    let state = outcome.workers[0].steady.as_ref().unwrap();
    assert!(!state.attained && state.measured.len() == 4);
    assert!(outcome.workers[0].statistics.runtime_nanos > 9_900_000_000);
}

#[test]
fn what_was_written_is_read_back_in_the_midst_and_once() {
    let base = verifying();
    let verify = base.verify.map(|verify| Verify { backlog: 4, ..verify });
    let job = Workload { verify, requests_max: Some(20), depth: 1, ..base };
    let (outcome, disk) = play_one(std::slice::from_ref(&job), Fault::None);
    let verified = outcome.workers[0].verified.as_ref().unwrap();
    assert_eq!((verified.bytes, verified.mismatches), (20 * 4096, 0));
    let order: Vec<Operation> = disk.log.iter().map(|&(operation, ..)| operation).collect();
    let round = [[Operation::Write; 4], [Operation::Read; 4]].concat();
    assert_eq!(order, round.repeat(5));
    let [writes, reads] = [Operation::Write, Operation::Read].map(|wanted| {
        let same = disk.log.iter().filter(move |(operation, ..)| *operation == wanted);
        same.map(|&(_, offset, _)| offset).collect::<Vec<_>>()
    });
    assert_eq!(writes, reads, "the oldest first");
    // Fewer at a time: the rest at the end.
    let verify = job.verify.map(|verify| Verify { backlog_batch: 1, ..verify });
    let (outcome, disk) = play_one(&[Workload { verify, ..job.clone() }], Fault::None);
    assert_eq!(outcome.workers[0].verified.as_ref().unwrap().bytes, 20 * 4096);
    assert_eq!(disk.log[4].0, Operation::Read);
    assert_eq!(disk.log[5].0, Operation::Write);
    // What is lost is found at once, and said once.
    let verify = job.verify.map(|verify| Verify { fatal: true, ..verify });
    let job = Workload { verify, ..job };
    let (outcome, disk) = play_one(&[job], Fault::LoseWrite(3));
    assert_eq!(outcome.workers[0].verified.as_ref().unwrap().mismatches, 1);
    assert!(disk.log.len() <= 9, "{}", disk.log.len());
}

#[test]
fn headers_may_stand_elsewhere_in_their_units() {
    let base = verifying();
    let verify = base.verify.map(|verify| Verify { header_at: 100, ..verify });
    let job = Workload { verify, ..base };
    let (outcome, disk) = play_one(std::slice::from_ref(&job), Fault::None);
    assert_eq!(outcome.workers[0].verified.as_ref().unwrap().bytes, MIB as u64);
    assert_eq!(disk.content[100..102], 0xacca_u16.to_le_bytes());
    assert_ne!(disk.content[..2], 0xacca_u16.to_le_bytes());
    let verify = job.verify.map(|verify| Verify { header_at: 20, ..verify });
    let clock = TestClock::default();
    let mut disks = [TestDisk::new(MIB, &clock)];
    let assignments = [Assignment::new(Workload { verify, ..job }, 0)];
    let error = run(&mut disks, &clock, &assignments, RunOptions::default()).unwrap_err();
    assert!(error.to_string().contains("verify_offset"), "{error}");
}

#[test]
fn a_log_is_replayed_in_its_order_and_time() {
    let entry = |at_micros: u64, operation, offset, length| {
        let at_nanos = at_micros * 1000;
        Entry { at_nanos, operation, offset, length }
    };
    let entries = vec![
        entry(0, Operation::Write, 8192, 4096),
        entry(50, Operation::Read, 8192, 512),
        entry(50, Operation::Flush, 0, 0),
        entry(200, Operation::Delete, 0, 65_536),
        entry(200, Operation::Write, 4096, 1024),
    ];
    let expected: Vec<_> = entries
        .iter()
        .map(|entry| (entry.operation, entry.offset, u64::from(entry.length)))
        .collect();
    let replay = Replay::new(entries);
    let block_size = [512, 4096, 65_536].map(BlockSize::Fixed);
    let job = Workload { replay: Some(replay.into()), block_size, depth: 4, ..reads(4) };
    let (outcome, disk) = play_one(std::slice::from_ref(&job), Fault::None);
    assert_eq!(disk.log, expected);
    let micros: Vec<u64> = disk.accepted.iter().map(|at| at.nanos() / 1000).collect();
    // The flush waits for what is in flight.
    assert_eq!(micros, [0, 50, 51, 200, 200]);
    let statistics = &outcome.workers[0].statistics;
    let counts = Direction::ALL.map(|d| statistics.direction(d).map_or(0, |d| d.requests()));
    assert_eq!((counts, statistics.flush.count()), ([1, 2, 1], 1));
    // What does not fit the disk is told before anything is done.
    for (offset, length, word) in
        [(1 << 30, 512, "ends beyond"), (100, 512, "begin at a block"), (0, 100, "whole blocks")]
    {
        let replay = Replay::new(vec![entry(0, Operation::Read, offset, length)]);
        let job = Workload { replay: Some(replay.into()), ..job.clone() };
        let clock = TestClock::default();
        let mut disks = [TestDisk::new(MIB, &clock)];
        let assignments = [Assignment::new(job, 0)];
        let error = run(&mut disks, &clock, &assignments, RunOptions::default()).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("request 1 of its log") && error.contains(word), "{error}");
    }
}

#[test]
fn what_is_written_to_a_log_is_what_was_done_and_can_be_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mix = Mix::ReadWrite { read_percent: 50 };
    let log = Some(LogTo { path: path.clone(), disk: "disk".into() });
    let first = Workload { log, requests_max: Some(50), flush_every: 5, ..job(mix, RANDOM, 4) };
    let (_, disk) = play_one(&[first], Fault::None);
    let replay = iolog::read(&path, &ReadOptions::default()).unwrap();
    assert_eq!((replay.disks, replay.odd, replay.skipped), (1, 0, 0));
    let logged: Vec<_> = replay
        .entries
        .iter()
        .map(|entry| (entry.operation, entry.offset, u64::from(entry.length)))
        .collect();
    assert_eq!(logged, disk.log);
    let again = Workload { replay: Some(replay.into()), ..job(mix, RANDOM, 4) };
    assert_eq!(play_one(&[again], Fault::None).1.log, disk.log);
    // A folder that is not there.
    let log = Some(LogTo { path: folder.path().join("no/log"), disk: "disk".into() });
    let clock = TestClock::default();
    let mut disks = [TestDisk::new(MIB, &clock)];
    let assignments = [Assignment::new(Workload { log, ..reads(1) }, 0)];
    let error = run(&mut disks, &clock, &assignments, RunOptions::default()).unwrap_err();
    assert!(matches!(error, RunError::Log { .. }), "{error}");
}
