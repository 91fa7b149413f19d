//! One seed, one world: a UFS stack from the workload to the media, faults included.
//!
//! The seed chooses the queue design, the number of lanes, the depth, what goes wrong how often,
//! and the workload. The clock is virtual, so a world that fails is replayed by its seed. Checked
//! throughout: every request ends exactly once; every read gives something the [`Oracle`] allows;
//! nothing a completed flush or forced write covered is ever lost.

use std::collections::BTreeMap;

use flysch_api::block::{Completion, Device, Operation, Refused, Request};
use flysch_api::data::Data;
use flysch_api::machine::{Clock, DmaRegion, DmaSlice, Instant, Machine, Wake};
use flysch_cam::{Disk, scan};
use flysch_models::faults::{Kind, Plan, Trigger};
use flysch_models::machine::{Inline, Mode};
use flysch_models::random::Random;
use flysch_models::ufs::{Config, Ufs as Model, UnitConfig};
use flysch_ufs::{Host, Options, Port, QueueMode};

use crate::oracle::{Oracle, WriteEnd, Wrong};

const BLOCK: u32 = 4096;
const BLOCKS: u64 = 1024;
/// Longest request: longer than the disk's transfer maximum, so that some are split.
const REQUEST_BLOCKS_MAX: u64 = 32;
const TRANSFER_MAX: u32 = 64 * 1024;
/// Virtual time after which a world hangs.
const PATIENCE_NANOS: u64 = 3_600_000_000_000;
const MEMORY_ADDRESS: u64 = 0x4000_0000;

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Decides everything that is not decided here.
    pub seed: u64,
    /// Requests to issue.
    pub requests: u64,
    /// What goes wrong; `None` lets the seed choose.
    pub plan: Option<Plan>,
    /// A mistake planted on purpose, to prove that it is found.
    pub mistake: Option<Mistake>,
}

/// A mistake of the stack under test, planted in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Flushes are reported done and never sent.
    SkippedFlush,
    /// One completion in a hundred is delivered twice.
    DoubleCompletion,
    /// One write in a hundred is reported done and never sent.
    LostWrite,
}

/// What happened in one world or in many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Worlds.
    pub worlds: u64,
    /// Requests that ended, by operation: read, write, flush, delete.
    pub requests: [u64; 4],
    /// Requests that ended with an error.
    pub failed: u64,
    /// Faults injected, by the order of [`Kind::ALL`].
    pub faults: [u64; Kind::ALL.len()],
    /// Commands the disks put to their ports, retries included.
    pub commands: u64,
    /// Bytes read and compared.
    pub compared: u64,
    /// Virtual time, nanoseconds.
    pub nanos: u64,
}

impl Totals {
    /// Adds another world.
    pub fn add(&mut self, other: &Self) {
        self.worlds += other.worlds;
        self.failed += other.failed;
        self.commands += other.commands;
        self.compared += other.compared;
        self.nanos += other.nanos;
        self.requests.iter_mut().zip(other.requests).for_each(|(a, b)| *a += b);
        self.faults.iter_mut().zip(other.faults).for_each(|(a, b)| *a += b);
    }
}

/// What must not happen.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// A read gave what cannot be there.
    #[error("data: {0}")]
    Data(Wrong),
    /// A completion for a request that is not in flight.
    #[error("a completion for request {0}, which is not in flight")]
    NotOwed(u64),
    /// Requests that never ended.
    #[error("{0} requests never ended")]
    NeverEnded(usize),
    /// A request failed though nothing went wrong.
    #[error("{operation} failed without a fault: {error}")]
    FailedWithoutFault {
        /// What was asked.
        operation: Operation,
        /// What was answered.
        error: flysch_api::block::Error,
    },
    /// The stack could not be set up.
    #[error("setting up: {0}")]
    SetUp(String),
}

/// Runs one world to its end.
///
/// # Errors
/// The first violation.
pub fn run(wish: &Wish) -> Result<Totals, Violation> {
    let mut world = World::new(wish)?;
    world.work(wish.requests)?;
    world.read_everything()?;
    Ok(world.totals())
}

type UfsMachine = Inline<Model>;

struct Pending {
    operation: Operation,
    lane: usize,
    place: usize,
    first: u64,
    count: u64,
    version: u32,
    forced: bool,
    /// Power losses before it was issued.
    losses: u64,
    vouched: Vec<(u64, u32)>,
}

struct Lane {
    disk: Disk<Port<UfsMachine>>,
    /// Buffers that are free, by number.
    free: Vec<usize>,
}

struct World {
    machine: UfsMachine,
    lanes: Vec<Lane>,
    data: DmaRegion,
    /// Where the lists of segments begin in the machine's memory.
    lists: usize,
    random: Random,
    oracle: Oracle,
    pending: BTreeMap<u64, Pending>,
    busy: Vec<bool>,
    next_token: u64,
    losses: u64,
    mistake: Option<Mistake>,
    has_faults: bool,
    requests: [u64; 4],
    failed: u64,
    compared: u64,
}

/// Room for the longest list of segments, bytes: a segment is 512 bytes at least.
const LIST: usize = BUFFER / 512 * flysch_api::data::ENTRY;
const BUFFER: usize = (REQUEST_BLOCKS_MAX * BLOCK as u64) as usize;

impl World {
    fn new(wish: &Wish) -> Result<Self, Violation> {
        let mut random = Random::new(wish.seed);
        let plan = wish.plan.clone().unwrap_or_else(|| some_plan(&mut random));
        let lanes = 1 + random.below(3) as u8;
        let depth = 1 + random.below(32) as u16;
        let mcq = random.below(2) == 1;
        let queue = if mcq { QueueMode::Mcq } else { QueueMode::Sdq };
        let options = Options { queue, lanes, depth, ..Options::default() };
        let driver_len = Host::<UfsMachine>::memory_len(&options) + 4096;
        let scratch_len = Disk::<Port<UfsMachine>>::scratch_bytes(256).max(scan::SCRATCH_BYTES);
        let buffers = usize::from(lanes) * usize::from(depth);
        let lists = buffers * BUFFER + driver_len + usize::from(lanes) * scratch_len;
        let total = lists + buffers * LIST;
        let memory = DmaRegion::zeroed(total.next_multiple_of(4096), MEMORY_ADDRESS);
        let config = Config {
            units: vec![Some(UnitConfig::memory(BLOCKS * u64::from(BLOCK)))],
            volatile_cache: true,
            faults: plan.clone(),
            seed: wish.seed,
            ..Config::default()
        };
        let set_up = |error: &dyn std::fmt::Display| Violation::SetUp(error.to_string());
        let model = Model::new(config, memory.clone()).map_err(|e| set_up(&e))?;
        let machine = Inline::new(model, memory.clone(), Default::default(), Mode::Virtual);
        let driver = memory.carve(buffers * BUFFER, driver_len);
        let mut host = Host::new(machine.clone(), driver, options).map_err(|e| set_up(&e))?;
        // A fault may hit bring-up itself; a user would try again.
        let mut tries = 0;
        while let Err(error) = host.bring_up(&machine) {
            tries += 1;
            if tries == 5 {
                return Err(set_up(&error));
            }
        }
        let mut shape = None;
        let mut open = Vec::new();
        for (number, mut port) in host.into_ports().into_iter().enumerate() {
            let start = buffers * BUFFER + driver_len + number * scratch_len;
            let scratch = memory.carve(start, scratch_len);
            let shape = match shape {
                Some(shape) => shape,
                None => *shape.insert(find(&mut port, &machine, &scratch)?),
            };
            let disk_options =
                flysch_cam::Options { transfer_max: TRANSFER_MAX, ..Default::default() };
            let disk = Disk::new(port, shape, scratch, &disk_options).map_err(|e| set_up(&e))?;
            // A lane may get less than it asked for, never more.
            let first = number * usize::from(depth);
            let room = disk.geometry().queue_depth.min(u32::from(depth)) as usize;
            open.push(Lane { disk, free: (first..first + room).collect() });
        }
        let losses = machine.with_model(|model| model.faults().power_cuts());
        Ok(Self {
            data: machine.memory().carve(0, buffers * BUFFER),
            lists,
            machine,
            lanes: open,
            random,
            oracle: Oracle::new(wish.seed as u32, BLOCKS, BLOCK),
            pending: BTreeMap::new(),
            busy: vec![false; BLOCKS as usize],
            next_token: 1,
            losses,
            mistake: wish.mistake,
            has_faults: !plan.is_empty(),
            requests: [0; 4],
            failed: 0,
            compared: 0,
        })
    }

    /// Issues `requests` random requests and takes every completion.
    fn work(&mut self, requests: u64) -> Result<(), Violation> {
        let mut left = requests;
        let start = self.machine.now();
        while left > 0 || !self.pending.is_empty() {
            for lane in 0..self.lanes.len() {
                while left > 0 && self.submit_one(lane)? {
                    left -= 1;
                }
                let now = self.machine.now();
                self.lanes[lane].disk.ring(now);
            }
            let mut progress = false;
            for lane in 0..self.lanes.len() {
                let now = self.machine.now();
                while let Some(completion) = self.lanes[lane].disk.poll(now) {
                    progress = true;
                    self.take(&completion)?;
                    if self.mistake == Some(Mistake::DoubleCompletion)
                        && self.random.below(100) == 0
                    {
                        self.take(&completion)?;
                    }
                }
            }
            let hung = self.machine.now().nanos_since(start) > PATIENCE_NANOS;
            if hung || (!progress && !self.wait()) {
                return Err(Violation::NeverEnded(self.pending.len()));
            }
        }
        Ok(())
    }

    /// Lets time pass; `false` if nothing can ever happen again.
    fn wait(&self) -> bool {
        let next = self.lanes.iter().filter_map(|lane| lane.disk.poll_at()).min();
        // A deadline that is not in the future still has to let time pass.
        let next = next.map(|at| at.max(self.machine.now().after_nanos(1)));
        self.machine.wait(next) != Wake::Idle
    }

    /// Reads the whole device back in the end.
    fn read_everything(&mut self) -> Result<(), Violation> {
        for first in (0..BLOCKS).step_by(REQUEST_BLOCKS_MAX as usize) {
            // A read may be hit by a fault; what is on the device must come out in the end.
            for attempt in 0.. {
                let failed = self.failed;
                let place = self.lanes[0].free.pop().expect("nothing is in flight");
                self.issue((0, place), (Operation::Read, false), (first, REQUEST_BLOCKS_MAX))?;
                self.work(0)?;
                if self.failed == failed {
                    break;
                }
                if attempt == 20 {
                    return Err(Violation::SetUp(format!("block {first} cannot be read back")));
                }
            }
        }
        Ok(())
    }

    fn submit_one(&mut self, lane: usize) -> Result<bool, Violation> {
        let Some(place) = self.lanes[lane].free.pop() else { return Ok(false) };
        let (operation, forced) = match self.random.below(100) {
            0..=44 => (Operation::Read, false),
            45..=84 => (Operation::Write, false),
            85..=89 => (Operation::Write, true),
            90..=94 => (Operation::Delete, false),
            _ => (Operation::Flush, false),
        };
        let range = match operation {
            Operation::Flush => Some((0, 0)),
            _ => self.free_range(),
        };
        let Some(range) = range else {
            self.lanes[lane].free.push(place);
            return Ok(false);
        };
        self.issue((lane, place), (operation, forced), range)
    }

    /// A random range that no request in flight touches: two writes to one block at once would
    /// leave open which comes last.
    fn free_range(&mut self) -> Option<(u64, u64)> {
        for _ in 0..8 {
            let count = 1 + self.random.below(REQUEST_BLOCKS_MAX);
            let first = self.random.below(BLOCKS - count + 1);
            if !self.busy[first as usize..(first + count) as usize].contains(&true) {
                return Some((first, count));
            }
        }
        None
    }

    fn issue(
        &mut self,
        (lane, place): (usize, usize),
        (operation, forced): (Operation, bool),
        (first, count): (u64, u64),
    ) -> Result<bool, Violation> {
        let bytes = (count * u64::from(BLOCK)) as usize;
        let has_data = matches!(operation, Operation::Read | Operation::Write);
        let version = match operation {
            Operation::Write => {
                let mut content = vec![0; bytes];
                let version = self.oracle.begin_write(first, &mut content);
                self.data.write(place * BUFFER, &content);
                version
            }
            Operation::Delete => self.oracle.begin_delete(first, count),
            Operation::Read | Operation::Flush => 0,
        };
        self.busy[first as usize..(first + count) as usize].fill(true);
        let token = self.next_token;
        self.next_token += 1;
        let now = self.machine.now();
        let data = self.data_of(place, bytes as u32);
        let request = Request {
            operation,
            force_unit_access: forced,
            offset: first * u64::from(BLOCK),
            length: bytes as u64,
            data: if has_data { data } else { Data::NONE },
            token,
            accepted: now,
        };
        // First: a flush vouches for nothing that a loss before it may have taken.
        let losses = self.notice_losses();
        let vouched = match operation {
            Operation::Flush => self.oracle.before_flush(),
            _ => Vec::new(),
        };
        let pending =
            Pending { operation, lane, place, first, count, version, forced, losses, vouched };
        self.pending.insert(token, pending);
        let skipped = match self.mistake {
            Some(Mistake::SkippedFlush) => operation == Operation::Flush,
            Some(Mistake::LostWrite) => {
                operation == Operation::Write && self.random.below(100) == 0
            }
            Some(Mistake::DoubleCompletion) | None => false,
        };
        if skipped {
            let passage = Default::default();
            self.take(&Completion { token, result: Ok(()), passage })?;
            return Ok(true);
        }
        match self.lanes[lane].disk.submit(&request, now) {
            Ok(()) => Ok(true),
            Err(Refused::Full) => {
                self.forget(token);
                Ok(false)
            }
            Err(Refused::Invalid(error)) => {
                let passage = Default::default();
                self.take(&Completion { token, result: Err(error), passage })?;
                Ok(true)
            }
        }
    }

    /// A request's data, in one piece or, every other time, as a list: of whole blocks, pieces
    /// that no block ends with, or more segments than a command has. The bytes lie as in one
    /// piece, so that comparing them needs no list.
    fn data_of(&mut self, place: usize, bytes: u32) -> Data {
        let whole = self.data.slice(place * BUFFER, bytes);
        if bytes == 0 || self.random.below(2) == 0 {
            return Data::One(whole);
        }
        let piece = [4096, 3332, 512, 64 * 1024 + 4][self.random.below(4) as usize];
        let ranges: Vec<DmaSlice> = (0..bytes.div_ceil(piece))
            .map(|n| DmaSlice {
                address: whole.address + u64::from(n * piece),
                len: piece.min(bytes - n * piece),
            })
            .collect();
        let at = self.lists + place * LIST;
        Data::list(self.machine.memory(), at, &ranges).expect("room for the list")
    }

    /// A request that was never taken: its write did not happen.
    fn forget(&mut self, token: u64) {
        if let Some(pending) = self.pending.remove(&token) {
            self.release(&pending);
        }
    }

    fn release(&mut self, pending: &Pending) {
        let range = pending.first as usize..(pending.first + pending.count) as usize;
        self.busy[range].fill(false);
        self.lanes[pending.lane].free.push(pending.place);
    }

    fn present_losses(&self) -> u64 {
        self.machine.with_model(|model| model.faults().power_cuts())
    }

    /// Power may have gone and come back since the last look: what nobody vouches for is unsure.
    fn notice_losses(&mut self) -> u64 {
        let losses = self.present_losses();
        if losses != self.losses {
            self.losses = losses;
            self.oracle.power_lost();
        }
        losses
    }

    fn take(&mut self, completion: &Completion) -> Result<(), Violation> {
        let losses = self.notice_losses();
        let token = completion.token;
        let pending = self.pending.remove(&token).ok_or(Violation::NotOwed(token))?;
        let Pending { operation, first, count, version, .. } = pending;
        self.requests[operation as usize] += 1;
        if let Err(error) = completion.result {
            self.failed += 1;
            if !self.has_faults {
                return Err(Violation::FailedWithoutFault { operation, error });
            }
        }
        let done = completion.result.is_ok();
        let undisturbed = done && losses == pending.losses;
        match operation {
            Operation::Read if done => self.compare(&pending)?,
            Operation::Write | Operation::Delete => {
                let end = match (undisturbed, pending.forced) {
                    (false, _) => WriteEnd::Unknown,
                    (true, false) => WriteEnd::Done,
                    (true, true) => WriteEnd::Durable,
                };
                self.oracle.end_write(first, count, version, end);
            }
            Operation::Flush if undisturbed => self.oracle.flushed(&pending.vouched),
            Operation::Read | Operation::Flush => {}
        }
        self.release(&pending);
        Ok(())
    }

    fn compare(&mut self, pending: &Pending) -> Result<(), Violation> {
        let mut content = vec![0; (pending.count * u64::from(BLOCK)) as usize];
        self.data.read(pending.place * BUFFER, &mut content);
        self.compared += content.len() as u64;
        self.oracle.check(pending.first, &content).map_err(Violation::Data)
    }

    fn totals(&self) -> Totals {
        let faults =
            self.machine.with_model(|model| Kind::ALL.map(|kind| model.faults().count(kind)));
        Totals {
            worlds: 1,
            requests: self.requests,
            failed: self.failed,
            faults,
            commands: self.lanes.iter().map(|lane| lane.disk.statistics().commands).sum(),
            compared: self.compared,
            nanos: self.machine.now().nanos_since(Instant::START),
        }
    }
}

/// Whether worlds have this kind of fault: power that stays away, or away again during each try of
/// bring-up, ends them, and for a glitch of HCE
/// or a link that hibernates by itself they have no opportunity.
pub fn is_of_worlds(kind: Kind) -> bool {
    let ends_them = matches!(kind, Kind::PowerGone | Kind::PowerLate);
    !ends_them && !matches!(kind, Kind::EnableGlitch | Kind::AutoHibern8)
}

/// One to four kinds of fault, each from rare to frequent.
fn some_plan(random: &mut Random) -> Plan {
    let mut plan = Plan::none();
    for _ in 0..1 + random.below(4) {
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|&kind| is_of_worlds(kind)).collect();
        let kind = kinds[random.below(kinds.len() as u64) as usize];
        let often = match kind {
            // Each of these costs a recovery of the whole controller.
            Kind::Fatal | Kind::LinkLoss | Kind::PowerLoss | Kind::Uic => 300,
            _ => 50,
        };
        let trigger = match random.below(2) {
            0 => Trigger::Probability(1.0 / (often + random.below(20 * often)) as f64),
            _ => Trigger::Every(often + random.below(20 * often)),
        };
        plan = plan.with(kind, trigger);
    }
    plan
}

fn find(
    port: &mut Port<UfsMachine>,
    machine: &UfsMachine,
    scratch: &DmaRegion,
) -> Result<flysch_cam::Shape, Violation> {
    let set_up = |error: &dyn std::fmt::Display| Violation::SetUp(error.to_string());
    for attempt in 0.. {
        let found = flysch_cam::scan::scan(port, machine, scratch).and_then(|units| {
            units.first().ok_or(flysch_cam::Error::NotADisk { unit: 0 })?.shape()
        });
        match found {
            Ok(shape) => return Ok(shape),
            Err(error) if attempt == 5 => return Err(set_up(&error)),
            Err(_) => {}
        }
    }
    unreachable!("the loop ends by returning")
}
