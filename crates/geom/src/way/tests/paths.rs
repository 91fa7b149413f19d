//! A disk whose paths break and recover while requests are in flight: no request fails while a path
//! lives, and nothing flushed is lost.

use std::panic;

use super::seeds::{SECTORS, Versions};
use super::*;

/// Bytes of memory for the data of one request.
const SLOT: usize = 16384;

struct Sent {
    request: Request,
    slot: usize,
    version: u64,
}

struct Trial {
    seed: u64,
    random: Random,
    bench: Bench,
    open: ConsumerId,
    way: Way<Queue>,
    versions: Versions,
    sent: BTreeMap<u64, Sent>,
    /// The path that stays alive until nothing is in flight.
    survivor: usize,
    told: u64,
    requests: u64,
}

impl Trial {
    fn new(seed: u64) -> Self {
        let mut random = Random(XorShift64::new(seed));
        (0..4).for_each(|_| _ = random.below(2));
        let count = 2 + random.below(3) as usize;
        let mut bench = Bench::paths(count, (1 + random.below(8) as u32, seed));
        let (under, mode) = (bench.under(), Mode::ALL[random.below(3) as usize]);
        multipath::label(&mut bench.graph, "mp", &under, (mode, false)).unwrap();
        let (open, way) = bench.way("multipath/mp");
        bench.disk(0).has_cache();
        let (versions, survivor) = (Versions::new(), random.below(count as u64) as usize);
        let sent = BTreeMap::new();
        Self { seed, random, bench, open, way, versions, sent, survivor, told: 0, requests: 0 }
    }

    fn path(&self, number: usize) -> &Cell<Option<BlockError>> {
        &self.bench.disks.values().nth(number).unwrap().1
    }

    /// A path breaks or recovers; when nothing is in flight, another one is chosen to stay alive.
    fn harm(&mut self) {
        let count = self.bench.disks.len() as u64;
        let number = self.random.below(count) as usize;
        if self.sent.is_empty() && self.random.below(2) == 0 {
            self.path(number).set(None);
            self.survivor = number;
        } else if number != self.survivor {
            let errors = [BlockError::Gone, BlockError::TimedOut, BlockError::Reset, BAD];
            let error = errors[self.random.below(4) as usize];
            let is_broken = self.random.below(3) > 0;
            self.path(number).set(is_broken.then_some(error));
        }
    }

    fn submit(&mut self, token: u64) {
        let operation = match self.random.below(8) {
            0..4 => Operation::Write,
            4..7 => Operation::Read,
            _ => Operation::Flush,
        };
        let count = 1 + self.random.below(8);
        let first = self.random.below(SECTORS as u64 - count);
        let mut one = request(operation, first * 512, count * 512, token);
        let free = |slot: &usize| self.sent.values().all(|other| other.slot != *slot);
        let slot = (0..16).find(free).unwrap();
        if operation == Operation::Flush {
            // Alone, so that it covers exactly what was done.
            if !self.sent.is_empty() {
                return;
            }
            (one.offset, one.length) = (0, 0);
        } else {
            one.data = Data::One(self.bench.memory.slice(slot * SLOT, one.length as u32));
        }
        let is_apart = |other: &Request| {
            other.offset + other.length <= one.offset || one.offset + one.length <= other.offset
        };
        let is_flushed = |other: &Sent| other.request.operation == Operation::Flush;
        if !self.sent.values().all(|other| is_apart(&other.request) && !is_flushed(other)) {
            return;
        }
        let version = self.versions.newest + 1;
        if operation == Operation::Write {
            for at in 0..count as usize {
                self.bench.memory.write(slot * SLOT + at * 512, &Versions::content(version));
            }
        }
        match self.way.submit(&one, NOW) {
            Ok(()) => {
                if operation == Operation::Write {
                    self.versions.newest = version;
                    let sectors = first as usize..(first + count) as usize;
                    sectors.for_each(|at| self.versions.of[at].push(version));
                }
                self.requests += 1;
                self.sent.insert(token, Sent { request: one, slot, version });
            }
            Err(Refused::Full) => assert!(!self.sent.is_empty(), "there is room for one"),
            Err(Refused::Invalid(error)) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn ended(&mut self, completion: &Completion) {
        let one = self.sent.remove(&completion.token).expect("each ends once");
        assert_eq!(completion.result, Ok(()), "seed {}: {:?}", self.seed, one.request);
        let first = one.request.offset as usize / 512;
        let sectors = first..first + one.request.length as usize / 512;
        match one.request.operation {
            Operation::Read => {
                for (number, sector) in sectors.enumerate() {
                    let mut bytes = [0; 8];
                    self.bench.memory.read(one.slot * SLOT + number * 512, &mut bytes);
                    let newest = self.versions.newest_in(sector);
                    assert_eq!(bytes, newest.to_le_bytes(), "seed {}: {sector}", self.seed);
                }
            }
            Operation::Flush => {
                for sector in 0..SECTORS {
                    let newest = self.versions.newest_in(sector);
                    self.versions.flushed(sector, newest);
                }
            }
            _ => assert!(one.version > 0),
        }
    }

    fn run(&mut self) {
        for step in 0..300 + self.random.below(300) {
            if self.random.below(12) == 0 {
                self.harm();
            }
            if self.sent.len() < 12 && self.random.below(2) == 0 {
                self.submit(step);
            }
            if self.random.below(3) > 0 {
                self.way.ring(NOW);
            }
            let mut came: Vec<Completion> = self.way.poll(NOW).into_iter().collect();
            if self.random.below(8) == 0 {
                let before = self.bench.graph.record.messages().count();
                came.extend(self.bench.heed(self.open, &mut self.way));
                self.told += u64::from(self.bench.graph.record.messages().count() > before);
            }
            came.iter().for_each(|completion| self.ended(completion));
        }
        for _ in 0..10_000 {
            self.way.ring(NOW);
            let came = self.way.poll(NOW);
            came.iter().for_each(|completion| self.ended(completion));
        }
        assert!(self.sent.is_empty() && self.way.is_quiet(), "seed {}: all end", self.seed);
        let mut content = self.bench.disks.values().next().unwrap().0.borrow_mut();
        content.cut(&mut self.random);
        for (sector, versions) in self.versions.of.iter().enumerate() {
            let bytes = &content.bytes[sector * 512..][..512];
            let is_one = versions.iter().any(|it| bytes == Versions::content(*it));
            assert!(is_one, "seed {}: sector {sector} is none of {versions:?}", self.seed);
        }
    }
}

/// `FLYSCH_GEOM_SEEDS` sets the number of seeds instead of 100.
#[test]
fn no_request_fails_while_a_path_lives() {
    let count = std::env::var("FLYSCH_GEOM_SEEDS").ok().and_then(|count| count.parse().ok());
    let count = count.unwrap_or(100);
    let (mut told, mut requests) = (0, 0);
    for seed in 1..=count {
        let mut trial = Trial::new(seed);
        trial.run();
        (told, requests) = (told + trial.told, requests + trial.requests);
    }
    assert!(told > count, "{told} incidents");
    assert!(requests > count * 50, "{requests} requests");
}

#[test]
fn without_a_path_requests_fail_and_with_one_they_go_on() {
    for mode in Mode::ALL {
        let mut bench = Bench::paths(2, (4, 7));
        let under = bench.under();
        multipath::label(&mut bench.graph, "mp", &under, (*mode, false)).unwrap();
        let (_, mut way) = bench.way("multipath/mp");
        let all: Vec<Disk> = bench.disks.values().cloned().collect();
        all.iter().for_each(|disk| disk.1.set(Some(BlockError::TimedOut)));
        for token in 0..3 {
            way.submit(&request(Operation::Read, 0, 512, token), NOW).unwrap();
            assert_eq!(wait(&mut way, 1)[0].result, Err(BlockError::TimedOut), "{mode:?}");
        }
        let told = core::iter::from_fn(|| way.incident()).count();
        assert_eq!(told, 2, "{mode:?}: each path is told of once");
        all[0].1.set(None);
        way.submit(&request(Operation::Write, 0, 512, 9), NOW).unwrap();
        assert_eq!(wait(&mut way, 1)[0].result, Ok(()), "{mode:?}");
        // A request that is itself at fault is not retried.
        let reads = bench.disk(0).counts.get("read").copied();
        way.submit(&request(Operation::Read, 0, 512, 9), NOW).unwrap();
        wait(&mut way, 1);
        assert_ne!(bench.disk(0).counts.get("read").copied(), reads);
    }
}

#[test]
fn a_nop_fails_and_delays_requests_of_ways() {
    let mut bench = Bench::new(1, 8, 5);
    let under = bench.under();
    let slow = nop::NopOptions { read_delays: 100, delay_millis: 3, ..nop::NopOptions::default() };
    let options = nop::NopOptions { write_failures: 100, fail_only: Some(2), ..slow };
    nop::create(&mut bench.graph, under[0], options).unwrap();
    let (_, mut way) = bench.way("d0.nop");
    for (token, result) in [Err(BAD), Err(BAD), Ok(())].into_iter().enumerate() {
        way.submit(&request(Operation::Write, 0, 512, token as u64), NOW).unwrap();
        assert_eq!(wait(&mut way, 1)[0].result, result);
    }
    way.submit(&request(Operation::Read, 512, 1024, 7), NOW).unwrap();
    way.ring(NOW);
    let at = NOW.after_nanos(3_000_000);
    for _ in 0..100 {
        assert_eq!(way.poll(NOW.after_nanos(2_999_999)), None);
    }
    assert_eq!(way.poll_at(), Some(at));
    let came = (0..100).find_map(|_| way.poll(at)).expect("it waited long enough");
    assert_eq!((came.token, came.result, way.poll_at()), (7, Ok(()), None));
}
