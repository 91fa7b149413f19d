//! Mirrors with a failing component, until power fails: every request ends exactly once, nothing
//! flushed is lost, and no stale half is ever read.

use std::panic;

use super::*;

/// Sectors that are written repeatedly.
pub(super) const SECTORS: usize = 80;
/// Bytes of memory for the data of one request.
const SLOT: usize = 16384;

/// The possible contents of each sector: the versions from the one covered by a flush on.
pub(super) struct Versions {
    pub(super) newest: u64,
    pub(super) of: Vec<Vec<u64>>,
}

impl Versions {
    pub(super) fn new() -> Self {
        Self { newest: 0, of: vec![vec![0]; SECTORS] }
    }

    pub(super) fn content(version: u64) -> [u8; 512] {
        core::array::from_fn(|at| version.to_le_bytes()[at % 8])
    }

    pub(super) fn newest_in(&self, sector: usize) -> u64 {
        self.of[sector].last().copied().unwrap_or(0)
    }

    /// A flush has ended that began when this version was complete.
    pub(super) fn flushed(&mut self, sector: usize, version: u64) {
        let all = &mut self.of[sector];
        if let Some(at) = all.iter().position(|it| *it == version) {
            all.drain(..at);
        }
    }
}

/// A request in flight.
struct Sent {
    request: Request,
    slot: usize,
    /// For a flush: what was complete when it began.
    covers: Vec<(usize, u64)>,
}

impl Sent {
    fn sectors(&self) -> Range<usize> {
        let end = self.request.offset + self.request.length;
        self.request.offset as usize / 512..end as usize / 512
    }
}

/// One seed.
struct Trial {
    seed: u64,
    random: Random,
    bench: Bench,
    top: &'static str,
    open: ConsumerId,
    way: Way<Queue>,
    versions: Versions,
    sent: BTreeMap<u64, Sent>,
    done: BTreeMap<usize, u64>,
    has_lost: bool,
    /// Interval between the owner's checks for incidents.
    heeds: u64,
}

impl Trial {
    /// A mirror, a stripe of two, or an Intel array of the same kind.
    fn new(seed: u64) -> Self {
        let mut random = Random(XorShift64::new(seed));
        (0..4).for_each(|_| _ = random.below(2));
        let (is_striped, is_raid) = (random.below(3) == 0, random.below(2) == 0);
        let count = if is_striped { 4 } else { 2 };
        let layout = if is_raid { "RAID" } else { "" };
        let mut bench = bench_of(layout, count, (1 + random.below(8) as u32, seed));
        let balances = [Balance::Load, Balance::RoundRobin, Balance::Split, Balance::Prefer];
        let (under, balance) = (bench.under(), balances[random.below(4) as usize]);
        let top = match (is_raid, is_striped) {
            (true, _) => {
                a_raid(&mut bench.graph, if is_striped { "RAID10" } else { "RAID1" }, &under);
                if random.below(2) == 0 {
                    // Copies that were made equal are both read: from here on the mark matters.
                    let geom = bench.graph.objects().geoms_of("RAID").next().unwrap().0;
                    raid::rebuild(&mut bench.graph, geom, MIB, &mut |_, _| {}).unwrap();
                }
                "raid/r0"
            }
            (false, true) => {
                a_mirror(&mut bench.graph, "m0", &under[..2], balance);
                a_mirror(&mut bench.graph, "m1", &under[2..], balance);
                let both = ["mirror/m0", "mirror/m1"];
                let both = both.map(|name| bench.graph.provider(name).unwrap());
                a_stripe(&mut bench.graph, &both);
                "stripe/st"
            }
            (false, false) => {
                a_mirror(&mut bench.graph, "gm", &under, balance);
                "mirror/gm"
            }
        };
        let (open, way) = bench.way(top);
        for disk in bench.disks.values() {
            disk.0.borrow_mut().has_cache();
        }
        let versions = Versions::new();
        let (sent, done) = (BTreeMap::new(), BTreeMap::new());
        let (has_lost, heeds) = (false, if random.below(2) == 0 { 6 } else { 100 });
        Self { seed, random, bench, top, open, way, versions, sent, done, has_lost, heeds }
    }

    /// A fault of a disk.
    fn harm(&mut self) {
        let victim = self.random.below(self.bench.disks.len() as u64) as usize;
        let sector = self.random.below(SECTORS as u64) * 512;
        let mut content = self.bench.disk(victim);
        match self.random.below(4) {
            0 => content.is_gone = true,
            1 => content.bad.push((Operation::Write, sector)),
            2 => content.bad.push((Operation::Flush, sector)),
            _ => {
                content.bad.extend((0..8).map(|at| (Operation::Read, sector + at * 512)));
                content.heals = self.random.below(2) == 0;
            }
        }
    }

    /// Another request, if it does not overlap those in flight.
    fn submit(&mut self, token: u64) {
        let operation = match self.random.below(8) {
            0..5 => Operation::Write,
            5..7 => Operation::Read,
            _ => Operation::Flush,
        };
        let count = 1 + self.random.below(12);
        let first = self.random.below(SECTORS as u64 - count);
        let free = |slot: &usize| self.sent.values().all(|other| other.slot != *slot);
        let slot = (0..16).find(free).expect("there are more than requests");
        let mut request = request(operation, first * 512, count * 512, token);
        let mut covers = vec![];
        if operation == Operation::Flush {
            (request.offset, request.length) = (0, 0);
            covers.extend(self.done.iter().map(|(sector, version)| (*sector, *version)));
        } else {
            request.data = Data::One(self.bench.memory.slice(slot * SLOT, request.length as u32));
        }
        let mut one = Sent { request, slot, covers };
        let is_apart = |other: &Sent| {
            other.sectors().end <= one.sectors().start || one.sectors().end <= other.sectors().start
        };
        if !self.sent.values().all(is_apart) {
            return;
        }
        if operation == Operation::Write {
            one.request.force_unit_access = self.random.below(4) == 0;
            self.versions.newest += 1;
            for at in 0..count as usize {
                let content = Versions::content(self.versions.newest);
                self.bench.memory.write(slot * SLOT + at * 512, &content);
            }
        }
        match self.way.submit(&one.request, NOW) {
            Ok(()) if operation == Operation::Write => {
                one.sectors().for_each(|at| self.versions.of[at].push(self.versions.newest));
                self.sent.insert(token, one);
            }
            Ok(()) => _ = self.sent.insert(token, one),
            Err(Refused::Full) => assert!(!self.sent.is_empty(), "there is room for one"),
            Err(Refused::Invalid(error)) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn ended(&mut self, completion: &Completion) {
        let one = self.sent.remove(&completion.token).expect("each ends once");
        assert_eq!(completion.result, Ok(()), "seed {}: {:?}", self.seed, one.request);
        match one.request.operation {
            Operation::Read => {
                for (number, sector) in one.sectors().enumerate() {
                    let mut bytes = [0; 8];
                    self.bench.memory.read(one.slot * SLOT + number * 512, &mut bytes);
                    let newest = self.versions.newest_in(sector);
                    assert_eq!(bytes, newest.to_le_bytes(), "seed {}: {sector}", self.seed);
                }
            }
            Operation::Write => {
                for sector in one.sectors() {
                    let newest = self.versions.newest_in(sector);
                    self.done.insert(sector, newest);
                    if one.request.force_unit_access {
                        self.versions.flushed(sector, newest);
                    }
                }
            }
            _ => {
                for (sector, version) in one.covers {
                    self.versions.flushed(sector, version);
                }
            }
        }
    }

    fn until_the_power_goes(&mut self) {
        let (harmed, end) = (self.random.below(300), 100 + self.random.below(500));
        for step in 0..end {
            if step == harmed {
                self.harm();
            }
            if self.sent.len() < 12 && self.random.below(2) == 0 {
                self.submit(step);
            }
            if self.random.below(3) > 0 {
                self.way.ring(NOW);
            }
            let mut came: Vec<Completion> = self.way.poll(NOW).into_iter().collect();
            if self.random.below(self.heeds) == 0 {
                let before = self.bench.graph.record.messages().count();
                came.extend(self.bench.heed(self.open, &mut self.way));
                self.has_lost |= self.bench.graph.record.messages().count() > before;
            }
            came.iter().for_each(|completion| self.ended(completion));
        }
        for disk in self.bench.disks.values() {
            disk.0.borrow_mut().cut(&mut self.random);
        }
    }

    /// All disks are present again, including failed ones: in any order, and one late. But a
    /// dropped disk does not come alone, since nothing distinguishes it from a whole mirror then.
    fn after_the_cut(&mut self) {
        let seed = self.seed;
        let mut graph = Graph::new(&crate::all(), seed);
        let mut disks: Vec<(usize, &Disk)> = self.bench.disks.values().enumerate().collect();
        while !disks.is_empty() {
            let at = self.random.below(disks.len() as u64) as usize;
            let (number, disk) = disks.swap_remove(at);
            MD.insert(&mut graph, &format!("d{number}"), Box::new(disk.clone())).unwrap();
            if (!self.has_lost && self.random.below(2) == 0) || disks.is_empty() {
                graph.settle();
            }
        }
        let provider = graph.provider(self.top).unwrap_or_else(|it| panic!("seed {seed}: {it}"));
        let open = graph.open(provider, Access::ALONE).unwrap();
        let mut first = vec![];
        for _ in 0..4 {
            let mut shown = vec![];
            for (sector, versions) in self.versions.of.iter().enumerate() {
                let mut bytes = [0; 512];
                let offset = sector as u64 * 512;
                graph.io(open, Io::Read { offset, to: &mut bytes }).unwrap();
                let is_one = versions.iter().any(|it| bytes == Versions::content(*it));
                assert!(is_one, "seed {seed}: sector {sector} is none of {versions:?}");
                shown.push(bytes[..8].to_vec());
            }
            // One more read, so that copies read in turn are swapped.
            graph.io(open, Io::Read { offset: 0, to: &mut [0; 512] }).unwrap();
            if first.is_empty() {
                first = shown;
            } else {
                assert_eq!(shown, first, "seed {seed}: halves that differ are not both read");
            }
        }
    }
}

/// `FLYSCH_GEOM_SEEDS` sets the number of seeds instead of 100.
#[test]
fn mirrors_lose_nothing_that_was_flushed() {
    let count = std::env::var("FLYSCH_GEOM_SEEDS").ok().and_then(|count| count.parse().ok());
    let count = count.unwrap_or(100);
    let mut lost = 0;
    for seed in 1..=count {
        let mut trial = Trial::new(seed);
        trial.until_the_power_goes();
        trial.after_the_cut();
        lost += u64::from(trial.has_lost);
    }
    assert!(lost > count / 4, "{lost} components dropped out");
}
