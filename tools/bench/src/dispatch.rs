//! How requests get from their users to the disks: by calls, or over queues and threads.
//!
//! A. Motin's experiment with FreeBSD's GEOM and CAM of 2013: 16 disks on 4 controllers, each disk
//! with two paths, a stripe over all of them, reads of 512 bytes. Before, a request went over
//! queues from its caller to a thread for the way down (`g_down`), to the controller, whose lock
//! everybody took, and through a thread for the way up (`g_up`) back. After, the caller goes all
//! the way by calls. Here both variants use the same disks and the same [`Way`] through the block
//! layer.

mod channel;
mod disks;
mod queued;

use std::fmt;
use std::time::Duration;

use flysch_api::block::{BlockDevice, Completion, Operation, Request};
use flysch_api::data::Data;
use flysch_api::machine::{DmaRegion, Instant};
use flysch_geom::class::disk::{MD, Memory};
use flysch_geom::class::{multipath, part, stripe};
use flysch_geom::{Access, Graph, Plan, ProviderId, Way, all};

use crate::null::Null;
use disks::{Bus, Lane};
use queued::Queued;

/// Disks, and their controllers.
pub const DISKS: usize = 16;
/// Controllers.
pub const CONTROLLERS: usize = 4;
/// Bytes of a request.
const BYTES: u64 = 512;
/// Bytes of a stripe: neighbouring requests fall on different disks.
const STRIPE: u32 = 4096;

/// How requests are dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// By calls, all the way.
    Direct,
    /// Over queues, with a thread for each direction and each controller.
    Queued,
}

impl fmt::Display for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Queued => "queued",
        })
    }
}

/// The parameters of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// How requests are dispatched.
    pub dispatch: Dispatch,
    /// Requests in flight at a time.
    pub depth: u32,
    /// Total number of requests.
    pub count: u64,
    /// How long a disk works on a request; it does one at a time.
    pub service: Duration,
}

/// The result.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Processor time of all threads: the duration on a single processor.
    pub time: Duration,
    /// Requests that ended, each once.
    pub ended: u64,
    /// Requests and completions that one thread handed to another.
    pub handed: u64,
    /// How often the threads were switched to and from.
    pub switches: u64,
}

impl Outcome {
    /// Nanoseconds of a request.
    pub fn nanos(&self) -> f64 {
        self.time.as_nanos() as f64 / self.ended.max(1) as f64
    }

    /// Thousands of requests per second of one processor.
    pub fn kiops(&self) -> f64 {
        1e6 / self.nanos()
    }

    /// Context switches per request.
    pub fn switches_each(&self) -> f64 {
        self.switches as f64 / self.ended.max(1) as f64
    }
}

/// A stripe over disks of two paths each, and the disk at the end of each path.
fn build(graph: &mut Graph) -> (String, Vec<(ProviderId, usize)>) {
    let mut paths = Vec::new();
    let mut whole = Vec::new();
    for disk in 0..DISKS {
        let name = |path| format!("da{}", disk * 2 + path);
        let over = [0, 1].map(|path| {
            let memory = Box::new(Memory::new(1 << 20));
            MD.insert(graph, &name(path), memory).expect("a disk")
        });
        paths.extend(over.map(|path| (path, disk)));
        let mode = flysch_wire::geom::multipath::Mode::ActiveActive;
        multipath::create(graph, &format!("m{disk}"), &over, (mode, false)).expect("two paths");
        whole.push(graph.provider(&format!("multipath/m{disk}")).expect("it is there"));
    }
    let options = stripe::StripeOptions { stripe_size: STRIPE, ..stripe::StripeOptions::default() };
    stripe::create(graph, "st", &whole, &options).expect("a stripe");
    ("stripe/st".into(), paths)
}

/// The way through the block layer to the disks of a bus.
fn way(bus: &Bus) -> Way<Lane> {
    let mut graph = Graph::new(&all(), 1);
    let (name, paths) = build(&mut graph);
    let provider = graph.provider(&name).expect("it is there");
    let open = graph.open(provider, Access::READ).expect("nobody has it");
    let plan = Plan::new(&mut graph, open).expect("all classes say where requests go");
    let lane = |wanted: ProviderId| {
        let at = paths.iter().position(|(path, _)| *path == wanted)?;
        Some(bus.lane(at, paths[at].1))
    };
    Way::new(plan, lane).expect("lanes")
}

fn read(number: u64, memory: &DmaRegion, bytes: u64, accepted: Instant) -> Request {
    // One after the other over all disks, and no two on the same page.
    let offset = number * u64::from(STRIPE) % bytes;
    Request {
        operation: Operation::Read,
        force_unit_access: false,
        offset,
        length: BYTES,
        data: Data::One(memory.slice(0, BYTES as u32)),
        crypto: None,
        token: number,
        accepted,
    }
}

/// Runs it.
///
/// # Panics
/// If a request fails or does not end exactly once: nothing can go wrong on these disks.
pub fn run(experiment: &Experiment) -> Outcome {
    let bus = Bus::new(experiment.service);
    let way = way(&bus);
    let before = switches();
    let start = spent();
    let (switched, handed) = match experiment.dispatch {
        Dispatch::Direct => {
            direct(&bus, way, experiment);
            (switches(), 0)
        }
        Dispatch::Queued => {
            let mut queued = Queued::start(&bus, way);
            over_queues(&bus, &mut queued, experiment);
            // Those of threads that have ended are not told any more.
            (switches(), queued.stop())
        }
    };
    let (time, switches) = (spent() - start, switched.saturating_sub(before));
    Outcome { time, ended: experiment.count, handed, switches }
}

/// Processor time of this process.
fn spent() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Keeps this many requests in flight and checks that each ends once.
struct Ledger {
    open: Vec<bool>,
    begun: u64,
    ended: u64,
}

impl Ledger {
    fn new(count: u64) -> Self {
        Self { open: vec![false; count as usize], begun: 0, ended: 0 }
    }

    fn begin(&mut self) {
        self.open[self.begun as usize] = true;
        self.begun += 1;
    }

    fn end(&mut self, completion: &Completion) {
        assert!(completion.result.is_ok(), "nothing can go wrong");
        let place = self.open.get_mut(completion.token as usize).expect("one of ours");
        assert!(core::mem::replace(place, false), "each ends once");
        self.ended += 1;
    }
}

fn direct(bus: &Bus, mut way: Way<Lane>, experiment: &Experiment) {
    let mut ledger = Ledger::new(experiment.count);
    let bytes = way.geometry().bytes();
    let memory = way.memory().clone();
    while ledger.ended < experiment.count {
        let now = bus.now();
        let most = experiment.count.min(ledger.ended + u64::from(experiment.depth));
        while ledger.begun < most {
            if way.submit(&read(ledger.begun, &memory, bytes, now), now).is_err() {
                break;
            }
            ledger.begin();
        }
        way.ring(now);
        while let Some(completion) = way.poll(now) {
            ledger.end(&completion);
        }
    }
}

fn over_queues(bus: &Bus, queued: &mut Queued, experiment: &Experiment) {
    let mut ledger = Ledger::new(experiment.count);
    let (bytes, memory) = (queued.bytes(), queued.memory());
    while ledger.ended < experiment.count {
        let most = experiment.count.min(ledger.ended + u64::from(experiment.depth));
        while ledger.begun < most {
            queued.submit(read(ledger.begun, &memory, bytes, bus.now()));
            ledger.begin();
        }
        for completion in queued.wait() {
            ledger.end(&completion);
        }
    }
}

/// Requests per second of one thread through a partition on a device that does nothing.
pub fn part_on_null(count: u64) -> Outcome {
    let mut graph = Graph::new(&all(), 1);
    let bytes = 4 << 20;
    let disk = MD.insert(&mut graph, "md0", Box::new(Memory::new(bytes))).expect("a disk");
    graph.settle();
    let flags = part::Flags::default();
    let table = part::create(&mut graph, disk, (part::Scheme::Gpt, None), flags).expect("a table");
    let (start, size, alignment, index, label) = (None, None, None, None, None);
    let data = part::Add { kind: "linux-data".into(), start, size, alignment, index, label };
    part::add(&mut graph, table, &data, flags).expect("a partition");
    let provider = graph.provider("md0p1").expect("it is there");
    let open = graph.open(provider, Access::READ).expect("nobody has it");
    let plan = Plan::new(&mut graph, open).expect("PART says where requests go");
    let mut way = Way::new(plan, |_| Some(Null::new(bytes as u64, 32, 4096))).expect("a lane");
    let memory = way.memory().clone();
    let (now, mut begun, mut ended) = (Instant::START, 0, 0);
    let (before, start) = (switches(), spent());
    while ended < count {
        while begun < count && begun - ended < 32 {
            way.submit(&read(begun, &memory, 1 << 20, now), now).expect("room");
            begun += 1;
        }
        way.ring(now);
        while let Some(completion) = way.poll(now) {
            assert!(completion.result.is_ok(), "nothing can go wrong");
            ended += 1;
        }
    }
    let time = spent() - start;
    Outcome { time, ended, handed: 0, switches: switches().saturating_sub(before) }
}

/// How often threads of this process gave up and regained the processor, as Linux counts it; 0 if
/// it does not.
fn switches() -> u64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let of = |status: String| -> u64 {
        let counts = status.lines().filter(|line| line.contains("voluntary_ctxt_switches"));
        counts.filter_map(|line| line.rsplit('\t').next()?.parse::<u64>().ok()).sum()
    };
    let statuses = tasks.flatten().map(|task| task.path().join("status"));
    statuses.filter_map(|path| std::fs::read_to_string(path).ok()).map(of).sum()
}

/// The header of the table.
const HEADING: &str = "| requests in flight | queued, thousand/s | direct, thousand/s | ratio \
                       | switches each, queued | ns of one |";

/// The experiment, at several depths, as a table.
pub fn table(count: u64, service: Duration) -> String {
    use fmt::Write;
    let mut text = format!("{HEADING}\n|--:|--:|--:|--:|--:|--:|\n");
    for depth in [1, 16, 128, 512] {
        let count = if depth == 1 { count / 20 } else { count };
        let of = |dispatch| run(&Experiment { dispatch, depth, count, service });
        let (queued, direct) = (of(Dispatch::Queued), of(Dispatch::Direct));
        let cost = (queued.nanos() - direct.nanos()) / queued.switches_each().max(1e-9);
        let _ = writeln!(
            text,
            "| {depth} | {:.0} | {:.0} | {:.1} | {:.2} | {cost:.0} |",
            queued.kiops(),
            direct.kiops(),
            queued.nanos() / direct.nanos(),
            queued.switches_each(),
        );
    }
    text
}

#[cfg(test)]
mod tests;
