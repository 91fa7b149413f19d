//! Arrays and mirrors with a disk that vanishes, returns stale, fails or hangs, until power fails
//! at some write: every request ends exactly once, nothing flushed is lost, no stale copy is ever
//! read.

use std::panic;

use flysch_random::XorShift64;

use super::*;
use flysch_wire::geom::mirror::Balance;

use crate::class::mirror::{self, MIRROR};

/// Sectors that are written repeatedly: some in each strip.
const SECTORS: u64 = 96;

fn content(version: u64) -> [u8; 512] {
    core::array::from_fn(|at| version.to_le_bytes()[at % 8])
}

/// The byte offset of a sector: the first 16 sectors of six strips.
fn byte_of(sector: u64) -> u64 {
    sector / 16 * (64 << 10) + sector % 16 * 512
}

#[derive(Default)]
struct Counts {
    dropped: u64,
    rebuilt: u64,
    cut: u64,
}

struct Trial {
    seed: u64,
    random: XorShift64,
    disks: Vec<Platter>,
    graph: Graph,
    /// MIRROR or RAID, and the provider on top.
    class: &'static dyn Class,
    top: &'static str,
    open: ConsumerId,
    /// The versions possible in each sector: from the one covered by a flush to the newest.
    versions: Vec<Vec<u64>>,
    newest: u64,
    victim: usize,
    is_harmed: bool,
    is_away: bool,
    counts: Counts,
}

impl Trial {
    /// An array of either format.
    fn new(seed: u64) -> Self {
        let mut random = XorShift64::new(seed);
        let count = if random.modulo(2) == 0 { 2 } else { 4 };
        let (format, size) = if random.modulo(3) == 0 { ("DDF", 65) } else { ("Intel", 5) };
        let disks = platters(count, size * MIB);
        let level = if count == 2 { "RAID1" } else { "RAID10" };
        let (mut graph, geom) = labelled_as(format, &disks, level, Some(MIB));
        if random.modulo(2) == 0 {
            // Copies that were made equal are both read: from here on the mark matters.
            rebuild(&mut graph, geom, MIB, &mut |_, _| {}).unwrap();
        }
        drop(graph);
        Self::over((seed, random), disks, (&RAID, "raid/r0"))
    }

    /// A mirror.
    fn mirror(seed: u64) -> Self {
        let mut random = XorShift64::new(seed);
        let disks = platters(2, MIB);
        let mut graph = graph_of(&disks);
        let under = under(&graph, disks.len());
        let balances = [Balance::Load, Balance::RoundRobin];
        let balance = balances[random.modulo(2) as usize];
        let options = mirror::MirrorOptions { balance, ..mirror::MirrorOptions::default() };
        mirror::label(&mut graph, "gm", &under, &options).unwrap();
        Self::over((seed, random), disks, (&MIRROR, "mirror/gm"))
    }

    fn over(
        (seed, mut random): (u64, XorShift64),
        disks: Vec<Platter>,
        (class, top): (&'static dyn Class, &'static str),
    ) -> Self {
        for disk in &disks {
            let mut content = disk.content.borrow_mut();
            content.durable = Some(content.sectors.clone());
        }
        let mut graph = graph_of(&disks);
        let open = open(&mut graph, top);
        Self {
            seed,
            victim: random.modulo(disks.len() as u64) as usize,
            random,
            disks,
            graph,
            class,
            top,
            open,
            versions: vec![vec![0]; SECTORS as usize],
            newest: 0,
            is_harmed: false,
            is_away: false,
            counts: Counts::default(),
        }
    }

    fn is_mirror(&self) -> bool {
        self.class.name() == MIRROR.name()
    }

    /// Rebuilds everything that needs it; for a mirror at most `pieces` pieces.
    fn rebuild(&mut self, graph: &mut Graph, pieces: u64) -> Result<usize, GeomError> {
        let geom = graph.objects().geoms_of(self.class.name()).next().unwrap().0;
        if !self.is_mirror() {
            return rebuild(graph, geom, MIB / 4, &mut |_, _| {});
        }
        let mut rebuilt = 0;
        for _ in 0..pieces {
            let Some((done, all)) = mirror::synchronize_piece(graph, geom, MIB / 8)? else { break };
            rebuilt += usize::from(done == all);
        }
        Ok(rebuilt)
    }

    fn is_dark(&self) -> bool {
        self.disks[0].power.get() == Some(0)
    }

    /// A fault of the one unlucky disk.
    fn harm(&mut self) {
        self.is_harmed = true;
        let kind = self.random.modulo(6);
        let sector = byte_of(self.random.modulo(SECTORS)) / 512;
        let mut content = self.disks[self.victim].content.borrow_mut();
        match kind {
            0 => content.broken = [Some(IoError::Gone); 3],
            1 => content.broken[1] = Some(BAD),
            2 => content.broken[2] = Some(BAD),
            3 => content.broken = [Some(IoError::TimedOut); 3],
            4 => {
                content.bad.extend(sector / 2..sector / 2 + 64);
                content.heals = self.random.modulo(2) == 0;
            }
            _ => {
                drop(content);
                self.is_away = true;
                let name = format!("d{}", self.victim);
                let provider = self.graph.provider(&name).unwrap();
                disk::remove(&mut self.graph, provider);
            }
        }
    }

    /// The disk works again and returns; sometimes it is rebuilt.
    fn heal(&mut self) {
        {
            let mut content = self.disks[self.victim].content.borrow_mut();
            (content.broken, content.bad) = ([None; 3], vec![]);
        }
        let name = format!("d{}", self.victim);
        if self.is_away {
            let disk = self.disks[self.victim].clone();
            MD.insert(&mut self.graph, &name, Box::new(disk)).unwrap();
            self.is_away = false;
        } else if let Ok(provider) = self.graph.provider(&name) {
            // A dropped disk is tasted again on request.
            let _ = self.graph.retaste(provider);
        }
        self.graph.settle();
        self.is_harmed = false;
        if self.random.modulo(2) == 0 {
            let (mut graph, pieces) =
                (core::mem::replace(&mut self.graph, Graph::new(&[], 1)), self.random.modulo(12));
            let rebuilt = self.rebuild(&mut graph, pieces);
            self.graph = graph;
            match rebuilt {
                Ok(count) => self.counts.rebuilt += count as u64,
                Err(error) => assert!(self.is_dark(), "seed {}: {error}", self.seed),
            }
        }
    }

    fn request(&mut self) {
        let (first, count) = (self.random.modulo(SECTORS / 8) * 8, 1 + self.random.modulo(8));
        let (offset, length) = (byte_of(first), count as usize * 512);
        let range = first as usize..(first + count) as usize;
        match self.random.modulo(8) {
            0..4 => {
                self.newest += 1;
                let bytes = content(self.newest).repeat(count as usize);
                // Whether it succeeds or not, this version may be present from now on.
                self.versions[range.clone()].iter_mut().for_each(|all| all.push(self.newest));
                let done = self.graph.io(self.open, Io::Write { offset, from: &bytes });
                assert!(done.is_ok() || self.is_dark(), "seed {}: {done:?}", self.seed);
            }
            4..7 => {
                let mut bytes = vec![0; length];
                let done = self.graph.io(self.open, Io::Read { offset, to: &mut bytes });
                assert!(done.is_ok() || self.is_dark(), "seed {}: {done:?}", self.seed);
                if done.is_ok() {
                    for (sector, at) in bytes.chunks(512).zip(range) {
                        let newest = *self.versions[at].last().unwrap();
                        assert_eq!(sector, content(newest), "seed {}: sector {at}", self.seed);
                    }
                }
            }
            _ => {
                let done = self.graph.io(self.open, Io::Flush);
                assert!(done.is_ok() || self.is_dark(), "seed {}: {done:?}", self.seed);
                if done.is_ok() {
                    self.versions.iter_mut().for_each(|all| drop(all.drain(..all.len() - 1)));
                }
            }
        }
    }

    fn until_the_power_goes(&mut self) {
        if self.random.modulo(2) == 0 {
            // Some run long enough for a rebuild.
            let most = if self.random.modulo(3) == 0 { 12_000 } else { 1200 };
            self.disks[0].power.set(Some(self.random.modulo(most)));
        }
        for _ in 0..60 + self.random.modulo(200) {
            match (self.is_harmed, self.random.modulo(24)) {
                (false, 0) => self.harm(),
                (true, 0) => self.heal(),
                (_, 1) => {
                    // It is closed and opened again.
                    self.graph.shut(self.open);
                    self.graph.settle();
                    if !self.is_dark() {
                        self.open = open(&mut self.graph, self.top);
                    }
                }
                _ => self.request(),
            }
            if self.is_dark() {
                self.counts.cut += 1;
                break;
            }
        }
        let lines = self.graph.record.messages();
        let dropped = lines.filter(|it| it.contains("is gone") || it.contains("failed"));
        self.counts.dropped += dropped.count() as u64;
    }

    /// Power fails and returns: some of what was not flushed is there.
    fn cut(&mut self) {
        for disk in &self.disks {
            disk.power.set(None);
            let mut content = disk.content.borrow_mut();
            let mut sectors = content.durable.clone().unwrap();
            for (number, sector) in core::mem::take(&mut content.cache) {
                if self.random.modulo(2) == 0 {
                    sectors.insert(number, sector);
                }
            }
            content.durable = Some(sectors.clone());
            content.sectors = sectors;
            (content.broken, content.bad) = ([None; 3], vec![]);
        }
    }

    /// All copies hold one of the possible versions, and agree on which one, now and later.
    fn check(&mut self, graph: &mut Graph) {
        let seed = self.seed;
        let open = open(graph, self.top);
        let mut first: Vec<Vec<u8>> = vec![];
        for _ in 0..4 {
            let mut shown = vec![];
            for (sector, versions) in self.versions.iter().enumerate() {
                let mut bytes = [0; 512];
                let offset = byte_of(sector as u64);
                graph.io(open, Io::Read { offset, to: &mut bytes }).unwrap();
                let is_one = versions.iter().any(|it| bytes == content(*it));
                assert!(is_one, "seed {seed}: sector {sector} is none of {versions:?}");
                shown.push(bytes[..8].to_vec());
            }
            // One more read, so that copies read in turn are swapped.
            graph.io(open, Io::Read { offset: 0, to: &mut [0; 512] }).unwrap();
            if first.is_empty() {
                first = shown;
            } else {
                assert_eq!(shown, first, "seed {seed}: copies that differ are not both read");
            }
        }
        for (versions, shown) in self.versions.iter_mut().zip(first) {
            *versions = vec![u64::from_le_bytes(shown.try_into().unwrap())];
        }
        graph.shut(open);
        graph.settle();
    }

    /// All disks are present again, in any order. A dropped disk does not come alone.
    fn after_the_cut(&mut self) {
        self.cut();
        let mut graph = Graph::new(&crate::all(), self.seed);
        let mut order: Vec<usize> = (0..self.disks.len()).collect();
        while !order.is_empty() {
            let at = self.random.modulo(order.len() as u64) as usize;
            let number = order.swap_remove(at);
            let disk = Box::new(self.disks[number].clone());
            MD.insert(&mut graph, &format!("d{number}"), disk).unwrap();
        }
        graph.settle();
        self.check(&mut graph);
        // Members that were half rebuilt are written, too.
        let before = core::mem::replace(&mut self.graph, graph);
        (self.open, _) = (open(&mut self.graph, self.top), before);
        (0..self.random.modulo(12)).for_each(|_| self.request());
        self.graph.shut(self.open);
        self.graph.settle();
        let before = Graph::new(&[], 1);
        let mut graph = core::mem::replace(&mut self.graph, before);
        self.give_back(&mut graph);
        let rebuilt = self.rebuild(&mut graph, u64::MAX);
        self.counts.rebuilt +=
            rebuilt.unwrap_or_else(|it| panic!("seed {}: {it}", self.seed)) as u64;
        self.check(&mut graph);
        self.check_whole(&graph);
    }

    /// Everything is in order again: all copies are equal.
    fn check_whole(&self, graph: &Graph) {
        let top = graph.provider(self.top).unwrap();
        let (object, word) = match self.is_mirror() {
            true => (Object::Geom(graph[top].geom), "COMPLETE"),
            false => (Object::Provider(top), "OPTIMAL"),
        };
        let state = self.class.config(graph, object);
        assert!(state.contains(&("State", word.into())), "seed {}: {state:?}", self.seed);
        let size = graph[top].media_size.min(MIB);
        for pair in self.disks.chunks(2) {
            for sector in 0..size / 512 {
                assert_eq!(pair[0].sector(sector), pair[1].sector(sector), "seed {}", self.seed);
            }
        }
    }

    /// A failed disk stays out until it is removed and inserted again.
    fn give_back(&self, graph: &mut Graph) {
        let geom = graph.objects().geoms_of(self.class.name()).next().unwrap().0;
        if self.is_mirror() {
            for number in 0..self.disks.len() {
                let disk = graph.provider(&format!("d{number}")).unwrap();
                let mut all = graph[disk].consumers.iter();
                if all.all(|&consumer| graph[consumer].geom != geom) {
                    mirror::forget(graph, geom).unwrap();
                    mirror::insert(graph, geom, &[disk], (0, false, true)).unwrap();
                }
            }
            return;
        }
        for &consumer in &graph[geom].consumers.clone() {
            let config = RAID.config(graph, Object::Consumer(consumer));
            if config.iter().any(|(_, value)| value.starts_with("FAILED")) {
                let name = name_of(graph, Some(consumer));
                remove(graph, geom, &[&name]).unwrap();
                let provider = graph.provider(&name).unwrap();
                insert(graph, geom, &[provider], false).unwrap();
            }
        }
    }
}

fn open(graph: &mut Graph, top: &str) -> ConsumerId {
    let provider = graph.provider(top).unwrap_or_else(|error| {
        let lines: Vec<_> = graph.record.messages().collect();
        panic!("{error}:\n{}", lines.join("\n"));
    });
    graph.open(provider, Access::ALONE).unwrap()
}

/// `FLYSCH_GEOM_SEEDS` sets the number of seeds instead of 100.
fn many(new: fn(u64) -> Trial) {
    let count = std::env::var("FLYSCH_GEOM_SEEDS").ok().and_then(|count| count.parse().ok());
    let count = count.unwrap_or(100);
    let mut all = Counts::default();
    for seed in 1..=count {
        let mut trial = new(seed);
        trial.until_the_power_goes();
        trial.after_the_cut();
        all.dropped += trial.counts.dropped;
        all.rebuilt += trial.counts.rebuilt;
        all.cut += trial.counts.cut;
    }
    assert!(all.dropped > count / 2, "{} disks dropped out", all.dropped);
    assert!(all.rebuilt > count / 2, "{} members were rebuilt", all.rebuilt);
    assert!(all.cut > count / 8, "the power went {} times", all.cut);
}

#[test]
fn arrays_lose_nothing_that_was_flushed() {
    many(Trial::new);
}

#[test]
fn mirrors_lose_nothing_that_was_flushed() {
    many(Trial::mirror);
}
