//! The scheduler in front of a disk that serves commands one by one, in the order it got them: the
//! worst case for whoever comes last.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flysch_api::block::{
    BlockDevice, BlockError, BlockGeometry, Completion, Operation, Refused, Request,
};
use flysch_api::data::{Data, SegmentLimits};
use flysch_api::machine::{DmaRegion, DmaSlice, Instant};
use flysch_api::trace::Passage;

use crate::iosched::{Class, Limit, Rules, Scheduler};

const DEPTH: u32 = 32;
const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// One server, first come, first served.
struct Slow {
    geometry: BlockGeometry,
    memory: DmaRegion,
    queue: VecDeque<(Request, Instant)>,
    busy_until: Instant,
    /// What it was given, in this order.
    got: Vec<Request>,
}

impl Slow {
    fn new() -> Self {
        let geometry = BlockGeometry {
            block_size: 4096,
            blocks: 1 << 20,
            transfer_max: 1 << 20,
            segments: SegmentLimits::NONE,
            queue_depth: DEPTH,
            can_delete: true,
            read_only: false,
            crypto: false,
        };
        Self {
            geometry,
            memory: DmaRegion::zeroed(4096, 0x1000),
            queue: VecDeque::new(),
            busy_until: Instant::START,
            got: Vec::new(),
        }
    }
}

impl BlockDevice for Slow {
    fn geometry(&self) -> &BlockGeometry {
        &self.geometry
    }

    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    fn submit(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        if self.queue.len() == DEPTH as usize {
            return Err(Refused::Full);
        }
        if request.offset == 7 << 20 {
            return Err(Refused::Invalid(BlockError::Unsupported));
        }
        let time = match request.operation {
            Operation::Read => 100 * US,
            Operation::Write | Operation::Flush => 500 * US,
            Operation::Delete => 3 * MS,
        };
        let done = self.busy_until.max(now).after_nanos(time);
        self.busy_until = done;
        self.queue.push_back((*request, done));
        self.got.push(*request);
        Ok(())
    }

    fn submit_ordered(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        self.submit(request, now)
    }

    fn ring(&mut self, _now: Instant) {}

    fn poll(&mut self, now: Instant) -> Option<Completion> {
        let &(request, done) = self.queue.front().filter(|(_, done)| *done <= now)?;
        self.queue.pop_front();
        let passage = Passage {
            accepted: request.accepted,
            issued: request.accepted,
            device_done: Some(done),
            seen: now,
        };
        Some(Completion { token: request.token, result: Ok(()), passage })
    }

    fn poll_at(&self) -> Option<Instant> {
        self.queue.front().map(|(_, done)| *done)
    }
}

fn request(operation: Operation, block: u64, blocks: u64, token: u64, now: Instant) -> Request {
    let has_data = matches!(operation, Operation::Read | Operation::Write);
    let len = if has_data { blocks as u32 * 4096 } else { 0 };
    Request {
        operation,
        force_unit_access: false,
        offset: block * 4096,
        length: blocks * 4096,
        data: Data::One(DmaSlice { address: 0x1000, len }),
        crypto: None,
        token,
        accepted: now,
    }
}

/// What a run of some milliseconds gave: latencies of reads, sorted, and how much else was done.
struct Outcome {
    reads: Vec<u64>,
    writes: u64,
    deletes: u64,
    /// Most deletes that were in the disk at once.
    deletes_max: u32,
}

impl Outcome {
    fn percentile(&self, percent: usize) -> u64 {
        self.reads[(self.reads.len() - 1) * percent / 100]
    }
}

/// One reader, one request at a time, against a flood of writes and deletes.
fn flood(rules: Rules) -> (Outcome, Scheduler<Slow>) {
    let mut disk = Scheduler::new(Slow::new(), rules, 3, 256);
    let mut outcome = Outcome { reads: Vec::new(), writes: 0, deletes: 0, deletes_max: 0 };
    let mut now = Instant::from_nanos(1);
    let end = Instant::from_nanos(2_000 * MS);
    let mut wanted = VecDeque::from_iter((0..100).map(|n| match n % 10 {
        0 => (Operation::Delete, 2_u16),
        _ => (Operation::Write, 1),
    }));
    wanted.push_back((Operation::Read, 0));
    while now < end {
        for (operation, consumer) in wanted.drain(..) {
            let token = operation as u64;
            disk.submit_for(consumer, &request(operation, 1, 1, token, now), now).unwrap();
        }
        disk.ring(now);
        let deletes = disk.statistics().class(Class::Delete).active;
        outcome.deletes_max = outcome.deletes_max.max(deletes);
        while let Some(done) = disk.poll(now) {
            assert_eq!(done.result, Ok(()));
            let since = (now - done.passage.accepted).as_nanos() as u64;
            if done.token == Operation::Read as u64 {
                outcome.reads.push(since);
                wanted.push_back((Operation::Read, 0));
            } else if done.token == Operation::Write as u64 {
                outcome.writes += 1;
                wanted.push_back((Operation::Write, 1));
            } else {
                outcome.deletes += 1;
                wanted.push_back((Operation::Delete, 2));
            }
        }
        if wanted.is_empty() {
            now = disk.poll_at().expect("something is owed").max(now.after_nanos(1));
        }
    }
    outcome.reads.sort_unstable();
    (outcome, disk)
}

#[test]
fn reads_keep_their_latency_in_a_flood() {
    let (without, _) = flood(Rules::NONE);
    let (with, disk) = flood(Rules { read_latency: 2 * MS, ..Rules::default() });
    // The queue is full of writes and deletes without it.
    assert!(without.percentile(99) > 20 * MS, "{}", without.percentile(99));
    // What is in the disk already cannot be taken back: a delete and a write.
    assert!(with.percentile(99) < 5 * MS, "{}", with.percentile(99));
    assert!(with.percentile(50) * 8 < without.percentile(50));
    assert!(with.writes > 500 && with.deletes > 20, "{} {}", with.writes, with.deletes);
    let statistics = disk.statistics();
    assert!(statistics.throttled > 0 && statistics.others_depth < DEPTH);
    let reads = statistics.class(Class::Read);
    assert_eq!(reads.done, with.reads.len() as u64);
    assert_eq!(reads.buckets.iter().sum::<u64>(), reads.done);
    assert_eq!(reads.bytes, reads.done * 4096);
    assert_eq!((with.deletes_max, without.deletes_max > 1), (1, true));
}

#[test]
fn without_reads_the_others_have_the_disk() {
    let rules = Rules { read_latency: MS, ..Rules::default() };
    let mut disk = Scheduler::new(Slow::new(), rules, 1, 64);
    let mut now = Instant::from_nanos(1);
    for token in 0..40 {
        disk.submit(&request(Operation::Write, 0, 1, token, now), now).unwrap();
    }
    disk.ring(now);
    assert_eq!(disk.device().queue.len(), DEPTH as usize);
    // Reads come, take too long, and make the room smaller.
    for token in 100..110 {
        disk.submit(&request(Operation::Read, 0, 1, token, now), now).unwrap();
    }
    let mut done = 0;
    while done < 50 {
        while disk.poll(now).is_some() {
            done += 1;
        }
        now = disk.poll_at().map_or(now, |at| at.max(now.after_nanos(1)));
    }
    assert!(disk.statistics().others_depth < DEPTH);
    // Long after the last read the room is all the disk has.
    now = now.after_nanos(100 * MS);
    for token in 0..40 {
        disk.submit(&request(Operation::Write, 0, 1, token, now), now).unwrap();
    }
    disk.ring(now);
    assert_eq!(disk.device().queue.len(), DEPTH as usize);
}

#[test]
fn consumers_share_by_bytes() {
    let mut disk = Scheduler::new(Slow::new(), Rules::NONE, 2, 512);
    let now = Instant::from_nanos(1);
    // One comes first, with requests of 128 KiB; the other's are of 4 KiB.
    for token in 0..64 {
        disk.submit_for(0, &request(Operation::Write, 0, 32, token, now), now).unwrap();
    }
    for token in 0..256 {
        disk.submit_for(1, &request(Operation::Write, 0, 1, 1000 + token, now), now).unwrap();
    }
    let mut clock = now;
    while disk.device().got.len() < 132 {
        disk.ring(clock);
        clock = disk.poll_at().unwrap();
        while disk.poll(clock).is_some() {}
    }
    let bytes = |large: bool| -> u64 {
        let got = disk.device().got.iter().filter(|r| (r.length > 4096) == large);
        got.map(|request| request.length).sum()
    };
    let (large, small) = (bytes(true), bytes(false));
    assert!(large.abs_diff(small) <= 256 << 10, "{large} {small}");
}

#[test]
fn limits_hold() {
    let limit = |write| {
        let rules = Rules { write, ..Rules::NONE };
        let mut disk = Scheduler::new(Slow::new(), rules, 1, 512);
        let mut now = Instant::from_nanos(1);
        let end = now.after_nanos(1_000 * MS);
        let (mut done, mut most, mut owed) = (0, 0, 0);
        while now < end {
            while owed < 100 {
                disk.submit(&request(Operation::Write, 0, 2, owed, now), now).unwrap();
                owed += 1;
            }
            disk.ring(now);
            most = most.max(disk.statistics().class(Class::Write).active);
            while disk.poll(now).is_some() {
                (done, owed) = (done + 1, owed - 1);
            }
            now = disk.poll_at().expect("it says when").max(now.after_nanos(1));
        }
        (done, most)
    };
    // 500 us each: 2000 a second.
    let (free, most) = limit(Limit::default());
    assert!((1990..=2000).contains(&free) && most == DEPTH, "{free} {most}");
    let (done, most) = limit(Limit { depth: 3, ..Limit::default() });
    assert!(done >= 1990 && most == 3, "{done} {most}");
    let (done, _) = limit(Limit { per_second: 400, ..Limit::default() });
    assert!((398..=404).contains(&done), "{done}");
    let (done, _) = limit(Limit { bytes_per_second: 100 * 8192, ..Limit::default() });
    assert!((99..=103).contains(&done), "{done}");
}

#[test]
fn the_bias_gives_reads_their_turns_and_starves_nobody() {
    let rules = Rules { read_bias: 3, ..Rules::NONE };
    let mut disk = Scheduler::new(Slow::new(), rules, 1, 64);
    let now = Instant::from_nanos(1);
    for token in 0..12 {
        disk.submit(&request(Operation::Write, 0, 1, token, now), now).unwrap();
        disk.submit(&request(Operation::Read, 0, 1, token, now), now).unwrap();
    }
    disk.ring(now);
    let order: Vec<bool> =
        disk.device().got.iter().map(|r| r.operation == Operation::Read).collect();
    assert_eq!(order[..8], [true, true, true, false, true, true, true, false]);
    assert_eq!(order.len(), 24);
}

#[test]
fn what_the_disk_refuses_ends_with_its_error() {
    let mut disk = Scheduler::new(Slow::new(), Rules::default(), 1, 4);
    let now = Instant::from_nanos(1);
    let odd = request(Operation::Read, (7 << 20) / 4096, 1, 5, now);
    disk.submit(&odd, now).unwrap();
    disk.ring(now);
    let done = disk.poll(now).unwrap();
    assert_eq!((done.token, done.result), (5, Err(BlockError::Unsupported)));
    assert_eq!(disk.poll(now), None);
    let beyond = request(Operation::Read, 1 << 20, 1, 6, now);
    assert_eq!(disk.submit(&beyond, now), Err(Refused::Invalid(BlockError::OutOfRange)));
    for token in 0..4 {
        disk.submit(&request(Operation::Read, 0, 1, token, now), now).unwrap();
    }
    let more = request(Operation::Read, 0, 1, 9, now);
    assert_eq!(disk.submit(&more, now), Err(Refused::Full));
    // Ordered requests wait until nothing does.
    assert_eq!(disk.submit_ordered(&more, now), Err(Refused::Full));
    disk.ring(now);
    let then = now.after_nanos(MS);
    assert_eq!(core::iter::from_fn(|| disk.poll(then)).count(), 4);
    disk.submit_ordered(&more, then).unwrap();
    let end = then.after_nanos(MS);
    assert_eq!(disk.poll(end).map(|done| done.token), Some(9));
    assert_eq!(disk.statistics().class(Class::Read).active, 0);
}
