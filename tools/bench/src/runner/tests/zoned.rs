//! Workers on a disk with zones, whose rules are judged by what reached it, in order.

use super::*;
use crate::workload::ZonedMode;
use crate::zones::{Zone, Zones};

const ZONE: u64 = 64 << 10;
const CAPACITY: u64 = 48 << 10;
const COUNT: usize = MIB / ZONE as usize;

/// Zones of the disk, each with so many bytes written.
fn zones(written: u64, open_max: u32) -> Zones {
    let zone = Zone { capacity: CAPACITY, written, is_usable: true };
    Zones::reported((MIB as u64, 512), ZONE, &[zone; COUNT], open_max).unwrap()
}

/// What a zoned disk lets be done, from zones with so much written; answers the zones that were
/// reset and the most that were open at once.
fn judge(log: &[(Operation, u64, u64)], written: u64, reads_beyond: bool) -> (usize, usize) {
    let mut pointers = [written; COUNT];
    let (mut resets, mut most) = (0, 0);
    for &(operation, offset, length) in log {
        let (zone, at) = ((offset / ZONE) as usize, offset % ZONE);
        match operation {
            Operation::Write => {
                assert_eq!(at, pointers[zone], "not at the write pointer of zone {zone}");
                pointers[zone] += length;
                assert!(pointers[zone] <= CAPACITY, "beyond the capacity of zone {zone}");
            }
            Operation::Read => {
                assert!(reads_beyond || at + length <= pointers[zone], "nothing was written there");
            }
            Operation::Delete => {
                assert_eq!((at, length), (0, ZONE), "no whole zone");
                pointers[zone] = 0;
                resets += 1;
            }
            Operation::Flush => {}
        }
        let is_open = |pointer: &&u64| **pointer > 0 && **pointer < CAPACITY;
        most = most.max(pointers.iter().filter(is_open).count());
    }
    (resets, most)
}

fn on_zones(jobs: &[Workload], zones: Zones, fault: Fault) -> (Outcome, TestDisk) {
    let clock = TestClock::default();
    let mut disks = [TestDisk::new(MIB, &clock)];
    disks[0].fault = fault;
    let assignments: Vec<_> = jobs.iter().map(|job| Assignment::new(job.clone(), 0)).collect();
    let options = RunOptions { zones: Some(zones), ..RunOptions::default() };
    let outcome = run(&mut disks, &clock, &assignments, options).unwrap();
    let [disk] = disks;
    (outcome, disk)
}

fn zoned(mix: Mix, order: Order, depth: u32) -> Workload {
    Workload { zones: Some(ZonedMode::default()), ..job(mix, order, depth) }
}

const WRITE: Mix = Mix::Only(Direction::Write);
const READ: Mix = Mix::Only(Direction::Read);
const SEQUENTIAL: Order = Order::Sequential { gap: 0 };

fn count(outcome: &Outcome, worker: usize, direction: Direction) -> u64 {
    assert_eq!(outcome.workers[worker].failure, None);
    outcome.workers[worker].statistics.direction(direction).map_or(0, |it| it.total.count())
}

#[test]
fn a_pass_fills_each_zone_to_its_capacity() {
    for depth in [1, 4] {
        let (outcome, disk) =
            on_zones(&[zoned(WRITE, SEQUENTIAL, depth)], zones(0, 0), Fault::None);
        assert_eq!(count(&outcome, 0, Direction::Write), COUNT as u64 * CAPACITY / 4096);
        assert_eq!(judge(&disk.log, 0, false).0, 0);
        // From where it was written on; and zones that are full are reset.
        let full = [(4096, 0, 11), (CAPACITY, COUNT, 12)];
        for (written, resets, writes) in full {
            let job = zoned(WRITE, SEQUENTIAL, depth);
            let (outcome, disk) = on_zones(&[job], zones(written, 0), Fault::None);
            assert_eq!(count(&outcome, 0, Direction::Write), COUNT as u64 * writes);
            assert_eq!(judge(&disk.log, written, false).0, resets);
            assert_eq!(outcome.workers[0].zone_resets, resets as u64);
        }
    }
}

#[test]
fn random_writes_go_to_write_pointers_and_reset_what_is_full() {
    let job = Workload { loops: 5, ..zoned(WRITE, RANDOM, 8) };
    let other = Workload { seed: 7, ..job.clone() };
    let (outcome, disk) = on_zones(&[job, other], zones(8192, 0), Fault::None);
    assert_eq!(count(&outcome, 0, Direction::Write), 5 * MIB as u64 / 4096);
    let (resets, _) = judge(&disk.log, 8192, false);
    assert!(resets > 50, "{resets}");
    let told: u64 = outcome.workers.iter().map(|worker| worker.zone_resets).sum();
    assert_eq!(told, resets as u64);
}

#[test]
fn no_more_zones_are_open_than_may_be() {
    for (disk_max, mode, limit) in [
        (3, ZonedMode::default(), 3),
        (0, ZonedMode { open_max: 2, ..ZonedMode::default() }, 2),
        (4, ZonedMode { open_max: 4, job_open_max: 1, ..ZonedMode::default() }, 2),
        (2, ZonedMode { open_max: 5, ignore_limits: true, ..ZonedMode::default() }, 5),
    ] {
        let job = Workload { zones: Some(mode), ..zoned(WRITE, RANDOM, 4) };
        let other = Workload { seed: 5, ..job.clone() };
        let (outcome, disk) = on_zones(&[job, other], zones(0, disk_max), Fault::None);
        assert_eq!(count(&outcome, 1, Direction::Write), MIB as u64 / 4096);
        let (_, most) = judge(&disk.log, 0, false);
        assert_eq!(most, limit, "{mode:?}");
    }
}

#[test]
fn only_what_was_written_is_read() {
    for order in [RANDOM, SEQUENTIAL] {
        let (outcome, disk) =
            on_zones(&[zoned(READ, order.clone(), 4)], zones(12_288, 0), Fault::None);
        judge(&disk.log, 12_288, false);
        let reads = if order == SEQUENTIAL { COUNT as u64 * 3 } else { MIB as u64 / 4096 };
        assert_eq!(count(&outcome, 0, Direction::Read), reads);
        let (outcome, _) = on_zones(&[zoned(READ, order.clone(), 4)], zones(0, 0), Fault::None);
        assert_eq!(count(&outcome, 0, Direction::Read), 0, "there is nothing");
        let mode = ZonedMode { read_beyond_wp: true, ..ZonedMode::default() };
        let beyond = Workload { zones: Some(mode), ..zoned(READ, order, 4) };
        let (outcome, disk) = on_zones(&[beyond], zones(0, 0), Fault::None);
        judge(&disk.log, 0, true);
        assert_eq!(count(&outcome, 0, Direction::Read), MIB as u64 / 4096);
    }
    let both = zoned(Mix::ReadWrite { read_percent: 50 }, RANDOM, 4);
    let (outcome, disk) = on_zones(&[both], zones(4096, 0), Fault::None);
    judge(&disk.log, 4096, false);
    let done = count(&outcome, 0, Direction::Read) + count(&outcome, 0, Direction::Write);
    assert_eq!(done, MIB as u64 / 4096);
}

#[test]
fn trims_reset_zones_that_hold_something() {
    let sizes = [const { BlockSize::Fixed(ZONE as u32) }; 3];
    let trim = Mix::Only(Direction::Trim);
    let job = Workload { block_size: sizes, ..zoned(trim, RANDOM, 2) };
    let (outcome, disk) = on_zones(std::slice::from_ref(&job), zones(4096, 0), Fault::None);
    assert_eq!(count(&outcome, 0, Direction::Trim), COUNT as u64);
    let mut trimmed: Vec<u64> = disk.log.iter().map(|it| it.1 / ZONE).collect();
    trimmed.sort_unstable();
    assert_eq!(trimmed, (0..COUNT as u64).collect::<Vec<_>>(), "each was reset once");
    assert_eq!(judge(&disk.log, 4096, false).0, COUNT);
    // Beside a writer: all keep the rules.
    let runtime = Some(Duration::from_millis(2));
    let trims = Workload { time_based: true, runtime, ..job };
    let writes = Workload { time_based: true, runtime, ..zoned(WRITE, RANDOM, 4) };
    let (outcome, disk) = on_zones(&[writes, trims], zones(0, 0), Fault::None);
    assert!(count(&outcome, 0, Direction::Write) > 500 && judge(&disk.log, 0, false).0 > 50);
}

#[test]
fn zones_are_reset_now_and_then_beyond_the_threshold() {
    let resets = |threshold, frequency| {
        let mode = ZonedMode {
            reset_threshold: threshold,
            reset_frequency: frequency,
            ..ZonedMode::default()
        };
        let io_size = Some(4 * MIB as u64);
        let job = Workload { zones: Some(mode), io_size, ..zoned(WRITE, RANDOM, 1) };
        let (outcome, disk) = on_zones(&[job], zones(0, 0), Fault::None);
        assert_eq!(count(&outcome, 0, Direction::Write), 1024);
        judge(&disk.log, 0, false).0
    };
    let few = resets(1.0, 0.0);
    let many = resets(0.3, 0.125);
    assert!(many > few + 30, "{many} resets beyond a threshold, {few} without");
}

#[test]
fn what_was_written_is_verified_and_never_reset() {
    let verify = Some(Verify { method: Method::Crc32c, ..Verify::default() });
    for order in [RANDOM, SEQUENTIAL] {
        for written in [0, 8192, CAPACITY] {
            let job = Workload { verify, ..zoned(WRITE, order.clone(), 4) };
            let (outcome, disk) = on_zones(&[job], zones(written, 0), Fault::None);
            // What was there before is no use; what is written now stays until it was read.
            let resets = if written > 0 { COUNT } else { 0 };
            assert_eq!(judge(&disk.log, written, false).0, resets);
            let writes = count(&outcome, 0, Direction::Write);
            assert_eq!(writes, COUNT as u64 * CAPACITY / 4096);
            let verified = outcome.workers[0].verified.clone().unwrap();
            assert_eq!((verified.bytes, verified.mismatches), (writes * 4096, 0));
        }
    }
    let job = Workload { verify, ..zoned(WRITE, RANDOM, 4) };
    let (outcome, _) = on_zones(&[job], zones(0, 0), Fault::Tear(3));
    assert_eq!(outcome.workers[0].verified.clone().unwrap().mismatches, 1);
}

#[test]
fn a_zone_whose_write_failed_is_reset_first_and_left_alone_if_that_fails() {
    let tolerance = Tolerance { write: true, ..Tolerance::default() };
    let job = Workload { loops: 2, tolerance, ..zoned(WRITE, SEQUENTIAL, 1) };
    let (outcome, disk) = on_zones(&[job], zones(0, 0), Fault::FailFrom(MIB as u64 - ZONE + 8192));
    assert_eq!(outcome.workers[0].failure, None);
    // The third write of the last zone fails, and so does its reset in the next pass.
    assert_eq!(outcome.workers[0].failures, 2);
    let last = disk.log.iter().filter(|it| it.1 >= MIB as u64 - ZONE).map(|it| it.0);
    let (write, reset) = (Operation::Write, Operation::Delete);
    assert_eq!(last.collect::<Vec<_>>(), [write, write, write, reset]);
}

#[test]
fn what_does_not_fit_zones_is_refused() {
    let refused = |job: Workload, zones: Option<Zones>| {
        let clock = TestClock::default();
        let options = RunOptions { zones, ..RunOptions::default() };
        let jobs = [Assignment::new(job, 0)];
        run(&mut [TestDisk::new(MIB, &clock)], &clock, &jobs, options).unwrap_err().to_string()
    };
    let write = || zoned(WRITE, SEQUENTIAL, 1);
    assert!(refused(write(), None).contains("no zones"));
    let small = Workload { offset: 512, size: Some(ZONE), ..write() };
    assert!(refused(small, Some(zones(0, 0))).contains("one whole zone"));
    let long = Workload { block_size: [const { BlockSize::Fixed(64 << 10) }; 3], ..write() };
    assert!(refused(long, Some(zones(0, 0))).contains("longer than what can be written"));
    let trim = zoned(Mix::Only(Direction::Trim), RANDOM, 1);
    assert!(refused(trim, Some(zones(0, 0))).contains("must be the zonesize"));
    let open = ZonedMode { open_max: 4, ..ZonedMode::default() };
    let open = Workload { zones: Some(open), ..write() };
    assert!(refused(open, Some(zones(0, 3))).contains("more zones than the disk can have open"));
    let own = ZonedMode { job_open_max: 1, ..ZonedMode::default() };
    let own = Workload { zones: Some(own), ..write() };
    assert!(refused(own, Some(zones(0, 0))).contains("needs max_open_zones"));
}
