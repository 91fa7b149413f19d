//! A disk whose paths break, recover, vanish and are operated on: no request fails while a path
//! lives, every request ends exactly once, and the disk holds what was written.

use flysch_random::SplitMix64;

use super::*;

const SECTORS: u64 = 64;
const SIZE: usize = (SECTORS as usize + 1) * 512;
const PATHS: usize = 4;

/// The result of one seed.
#[derive(Default)]
struct Counts {
    requests: u64,
    failed: u64,
    failovers: u64,
}

struct Trial {
    seed: u64,
    random: SplitMix64,
    graph: Graph,
    disk: Rc<RefCell<Shared>>,
    /// The paths that are plugged in, by number.
    over: [Option<Over>; PATHS],
    versions: Vec<u64>,
    counts: Counts,
}

impl Trial {
    fn new(seed: u64) -> Self {
        let random = SplitMix64::new(seed);
        let disk = Rc::new(RefCell::new(Shared { bytes: vec![0; SIZE], left: None }));
        let mut this = Self {
            seed,
            random,
            graph: Graph::new(&all(), seed),
            disk,
            over: [const { None }; PATHS],
            versions: vec![0; SECTORS as usize],
            counts: Counts::default(),
        };
        (0..PATHS).for_each(|number| this.plug(number));
        let under: Vec<ProviderId> =
            (0..PATHS).map(|n| this.graph.provider(&format!("da{n}")).unwrap()).collect();
        let mode = Mode::ALL[this.random.modulo(3) as usize];
        label(&mut this.graph, "test", &under, (mode, false)).unwrap();
        this
    }

    fn plug(&mut self, number: usize) {
        let over = Over::new(&self.disk);
        self.over[number] = Some(over.clone());
        MD.insert(&mut self.graph, &format!("da{number}"), Box::new(over)).unwrap();
        self.graph.settle();
    }

    fn geom(&self) -> Option<GeomId> {
        self.graph.geom("MULTIPATH", "test").ok()
    }

    fn lives(&self, number: usize) -> bool {
        self.over[number].as_ref().is_some_and(|over| over.broken.borrow().is_none())
    }

    /// Something happens to a path.
    fn harm(&mut self) {
        let number = self.random.modulo(PATHS as u64) as usize;
        let name = format!("da{number}");
        let Some(over) = self.over[number].clone() else { return self.plug(number) };
        let errors =
            [IoError::Gone, IoError::TimedOut, IoError::Reset, IoError::Medium(Cause::None)];
        let error = errors[self.random.modulo(4) as usize];
        match self.random.modulo(8) {
            0..3 => *over.broken.borrow_mut() = Some(error),
            3..5 => *over.broken.borrow_mut() = None,
            5 => {
                // The last path would take the geom along, which another test covers.
                if self.over.iter().flatten().count() > 1 {
                    self.over[number] = None;
                    let provider = self.graph.provider(&name).unwrap();
                    disk::remove(&mut self.graph, provider);
                }
            }
            verb => {
                let Some(geom) = self.geom() else { return };
                // A path that came back broken was not tasted: it is not a path yet.
                let _ = match verb {
                    6 if self.random.modulo(2) == 0 => rotate(&mut self.graph, geom),
                    6 => prefer(&mut self.graph, geom, &name),
                    _ if self.random.modulo(2) == 0 => fail(&mut self.graph, geom, &name),
                    _ => restore(&mut self.graph, geom, &name),
                };
            }
        }
    }

    fn request(&mut self, open: ConsumerId, step: u64) {
        let (first, count) = (self.random.modulo(SECTORS - 8), 1 + self.random.modulo(8));
        let range = first as usize..(first + count) as usize;
        let offset = first * 512;
        self.counts.requests += 1;
        let mut bytes = vec![0; count as usize * 512];
        let done = match self.random.modulo(5) {
            0 => self.graph.io(open, Io::Flush),
            1 | 2 => {
                bytes.fill(step as u8);
                bytes.chunks_mut(512).for_each(|s| s[..8].copy_from_slice(&step.to_le_bytes()));
                let done = self.graph.io(open, Io::Write { offset, from: &bytes });
                if done.is_ok() {
                    self.versions[range].fill(step);
                }
                done
            }
            _ => {
                let done = self.graph.io(open, Io::Read { offset, to: &mut bytes });
                if done.is_ok() {
                    for (sector, version) in bytes.chunks(512).zip(&self.versions[range]) {
                        assert_eq!(sector[..8], version.to_le_bytes(), "seed {}", self.seed);
                    }
                }
                done
            }
        };
        let lives = (0..PATHS).any(|number| self.lives(number));
        self.counts.failed += u64::from(done.is_err());
        assert_eq!(done.is_ok(), lives, "seed {} step {step}: {done:?}", self.seed);
    }

    fn run(&mut self) {
        let whole = self.graph.provider("multipath/test").unwrap();
        let open = self.graph.open(whole, Access::ALONE).unwrap();
        for step in 1..200 {
            if self.random.modulo(3) == 0 {
                self.harm();
            }
            self.request(open, step);
            let geom = self.geom().unwrap();
            let state = self.graph.state::<State>(geom).unwrap();
            assert!(state.good() > 0, "seed {}: one can always be asked", self.seed);
            let is_path = |path: &Path| Some(path.consumer) == state.active && !path.failed;
            assert!(state.paths.iter().any(is_path), "seed {}: one is active", self.seed);
        }
        self.graph.shut(open);
        let is_fault = |line: &&str| line.contains("marked FAIL") && !line.contains("by request");
        self.counts.failovers += self.graph.record.messages().filter(is_fault).count() as u64;
        for (sector, version) in self.disk.borrow().bytes.chunks(512).zip(&self.versions) {
            assert_eq!(sector[..8], version.to_le_bytes(), "seed {}", self.seed);
        }
    }
}

/// `FLYSCH_GEOM_SEEDS` sets the number of seeds instead of 100.
#[test]
fn no_request_fails_while_a_path_lives() {
    let count = std::env::var("FLYSCH_GEOM_SEEDS").ok().and_then(|count| count.parse().ok());
    let mut all = Counts::default();
    for seed in 1..=count.unwrap_or(100) {
        let mut trial = Trial::new(seed);
        trial.run();
        all.requests += trial.counts.requests;
        all.failed += trial.counts.failed;
        all.failovers += trial.counts.failovers;
    }
    assert!(all.failovers * 20 > all.requests, "{} failovers", all.failovers);
    assert!(all.failed * 200 > all.requests, "{} had no path", all.failed);
}
