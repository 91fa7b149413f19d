//! One seed, one world: a whole stack from the workload to the media, faults included.
//!
//! The seed chooses the queue design, the number of lanes, the depth, the kinds and rates of
//! faults, the number of units, whether lanes rest, and the workload; the stack is the caller's
//! choice. The clock is virtual, so a failing world is replayed by its seed. Checked throughout:
//! every command ends exactly once at the port, and every request above it; no more of them fail
//! than the faults explain; every read returns something that the [`Oracle`] allows; nothing
//! covered by a completed flush or forced write is ever lost.

use std::collections::BTreeMap;

use flysch_api::block::{self, BlockDevice, Completion, Operation, Refused, Request};
use flysch_api::data::Data;
use flysch_api::machine::{Clock, DmaRegion, DmaSlice, Instant, Machine as _, Wake};
use flysch_cam::Disk;
use flysch_models::faults::{Kind, Plan, Trigger};
use flysch_models::random::Random;

use crate::oracle::{Oracle, WriteEnd};
use crate::stack::{
    Ahci, Apart, BLOCK, Choice, Emmc, Machine, Nvme, On, Opened, Pmp, Sd, Setting, Stack, Ufs,
    set_up,
};
use crate::violation::Violation;
use crate::witness::{Outcomes, PortMistake, Witness};

/// Number of blocks of each unit.
const BLOCKS: u64 = 512;
/// Maximum request length: more than the disk's transfer maximum, so that some are split.
const REQUEST_BLOCKS_MAX: u64 = 32;
const TRANSFER_MAX: u32 = 64 * 1024;
/// Number of requests in a lane's shift.
const SHIFT: u64 = 100;
/// Virtual time without a completed request after which a world counts as hung: several deadlines
/// of 60 s, with their retries and resets.
const PATIENCE_NANOS: u64 = 1_800_000_000_000;
const MEMORY_ADDRESS: u64 = 0x4000_0000;

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The stack of the world.
    pub on: On,
    /// Determines everything not specified here.
    pub seed: u64,
    /// Number of requests to issue.
    pub requests: u64,
    /// Block size in bytes, 512 or 4096: requests are whole numbers of blocks, and the disks use
    /// it. `None` is 4096, with an eMMC device or a card that has sectors of 512 bytes.
    pub block: Option<u32>,
    /// The faults; `None` to let the seed choose.
    pub plan: Option<Plan>,
    /// A mistake planted on purpose, to prove that it is detected.
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
    /// Two pieces of one list in ten are swapped.
    SwappedSegments,
    /// A mistake of the driver.
    Port(PortMistake),
}

impl Mistake {
    /// The mistake, if it is one of the driver.
    fn of_port(self) -> Option<PortMistake> {
        match self {
            Self::Port(mistake) => Some(mistake),
            _ => None,
        }
    }
}

/// The results of one world or of many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Number of worlds.
    pub worlds: u64,
    /// Completed requests, by operation: read, write, flush, delete.
    pub requests: [u64; 4],
    /// Requests that ended with an error.
    pub failed: u64,
    /// Faults injected, in the order of [`Kind::ALL`].
    pub faults: [u64; Kind::ALL.len()],
    /// The outcomes of the commands that the disks sent to their ports, including retries.
    pub outcomes: Outcomes,
    /// Number of bytes read and compared.
    pub compared: u64,
    /// Virtual time, nanoseconds.
    pub nanos: u64,
}

impl Default for Totals {
    /// No results.
    fn default() -> Self {
        Self {
            worlds: 0,
            requests: [0; 4],
            failed: 0,
            faults: [0; Kind::ALL.len()],
            outcomes: Outcomes::default(),
            compared: 0,
            nanos: 0,
        }
    }
}

impl Totals {
    /// Adds another world.
    pub fn add(&mut self, other: &Self) {
        self.worlds += other.worlds;
        self.failed += other.failed;
        self.outcomes.add(&other.outcomes);
        self.compared += other.compared;
        self.nanos += other.nanos;
        self.requests.iter_mut().zip(other.requests).for_each(|(a, b)| *a += b);
        self.faults.iter_mut().zip(other.faults).for_each(|(a, b)| *a += b);
    }
}

/// Runs one world to its end.
///
/// # Errors
/// The first violation.
pub fn run(wish: &Wish) -> Result<Totals, Violation> {
    match wish.on {
        On::Ufs => run_on::<Ufs>(wish),
        On::Nvme => run_on::<Nvme>(wish),
        On::Ahci => run_on::<Ahci>(wish),
        On::Pmp => run_on::<Pmp>(wish),
        On::Emmc => run_on::<Emmc>(wish),
        On::Sd => run_on::<Sd>(wish),
    }
}

fn run_on<S: Stack>(wish: &Wish) -> Result<Totals, Violation> {
    let mut world = World::<S>::new(wish)?;
    world.work(wish.requests)?;
    if !world.is_gone() {
        world.read_everything()?;
    }
    world.judge_ports()?;
    Ok(world.totals())
}

struct Pending {
    operation: Operation,
    lane: usize,
    place: usize,
    first: u64,
    count: u64,
    version: u32,
    forced: bool,
    /// Number of power losses before it was issued.
    losses: u64,
    vouched: Vec<(u64, u32)>,
}

struct Lane<S: Stack> {
    disk: Disk<Witness<S::Port>>,
    /// First block of its unit in the oracle's numbers.
    base: u64,
    /// Buffers that are free, by number.
    free: Vec<usize>,
}

struct World<S: Stack> {
    machine: Machine<S>,
    host: Option<Box<dyn Apart>>,
    lanes: Vec<Lane<S>>,
    data: DmaRegion,
    /// Offset of the lists of segments in the machine's memory.
    lists: usize,
    random: Random,
    oracle: Oracle,
    /// Block size, bytes.
    block: u32,
    pending: BTreeMap<u64, Pending>,
    busy: Vec<bool>,
    next_token: u64,
    losses: u64,
    mistake: Option<Mistake>,
    has_faults: bool,
    /// Maximum number of commands in flight, all lanes together.
    slots: u64,
    choice: Choice,
    /// Lanes work in shifts and are not polled while they have nothing in flight.
    is_lazy: bool,
    requests: [u64; 4],
    failed: u64,
    /// The error of the last failed request.
    last_error: Option<block::BlockError>,
    compared: u64,
}

/// Room for the longest list of segments, bytes: a segment has at least 512 bytes.
const LIST: usize = BUFFER / 512 * flysch_api::data::ENTRY;
const BUFFER: usize = (REQUEST_BLOCKS_MAX * BLOCK as u64) as usize;

impl<S: Stack> World<S> {
    fn new(wish: &Wish) -> Result<Self, Violation> {
        let mut random = Random::new(wish.seed);
        let block = wish.block.unwrap_or(BLOCK);
        let plan = wish.plan.clone().unwrap_or_else(|| some_plan(&mut random, wish.on.kinds()));
        let choice = S::choose(&mut random);
        let Choice { lanes, depth, units, .. } = choice;
        let (driver_len, scratch_len) = S::needs(choice);
        // The driver aligns its parts, whatever its start.
        let (driver_len, scratch_len) = (driver_len + 4096, scratch_len.next_multiple_of(64));
        let buffers = usize::from(lanes) * usize::from(depth);
        let scratch_at = buffers * BUFFER + driver_len;
        let lists = scratch_at + usize::from(lanes) * scratch_len;
        let total = lists + buffers * LIST;
        let memory = DmaRegion::zeroed(total.next_multiple_of(4096), MEMORY_ADDRESS);
        let Opened { machine, host, ports, units: shapes } = S::open(&Setting {
            choice,
            plan: &plan,
            seed: wish.seed,
            unit_bytes: BLOCKS * u64::from(BLOCK),
            chosen_block: wish.block,
            memory: &memory,
            driver: memory.carve(buffers * BUFFER, driver_len),
            scratch: memory.carve(scratch_at, scratch_len),
        })?;
        let mut open = Vec::new();
        for (number, port) in ports.into_iter().enumerate() {
            let scratch = memory.carve(scratch_at + number * scratch_len, scratch_len);
            let unit = number % usize::from(units);
            let mistake = wish.mistake.and_then(Mistake::of_port);
            let port = Witness::new(port, mistake, S::OTHER_UNIT);
            let disk_options =
                flysch_cam::DiskOptions { transfer_max: TRANSFER_MAX, ..Default::default() };
            let disk =
                Disk::new(port, shapes[unit], scratch, &disk_options).map_err(|e| set_up(&e))?;
            // A lane may get less than it requested, never more.
            let first = number * usize::from(depth);
            let room = disk.geometry().queue_depth.min(u32::from(depth)) as usize;
            let base = unit as u64 * BLOCKS;
            open.push(Lane { disk, base, free: (first..first + room).collect() });
        }
        let losses = machine.with_model(|model| S::injector(model).power_cuts());
        Ok(Self {
            data: machine.memory().carve(0, buffers * BUFFER),
            lists,
            machine,
            host,
            lanes: open,
            random,
            oracle: Oracle::new(wish.seed as u32, u64::from(units) * BLOCKS, block),
            block,
            pending: BTreeMap::new(),
            busy: vec![false; usize::from(units) * BLOCKS as usize],
            next_token: 1,
            losses,
            mistake: wish.mistake,
            has_faults: !plan.is_empty(),
            slots: buffers as u64,
            choice,
            is_lazy: wish.seed % 2 == 1,
            requests: [0; 4],
            failed: 0,
            last_error: None,
            compared: 0,
        })
    }

    /// Issues `requests` random requests and takes every completion.
    fn work(&mut self, requests: u64) -> Result<(), Violation> {
        let mut left = requests;
        let mut moved = self.machine.now();
        let rest_nanos = self.choice.rest_nanos();
        while left > 0 || !self.pending.is_empty() {
            // Occasionally no requests are issued until all are done, and for a while longer.
            let is_pause = rest_nanos.is_some() && left % 64 == 1;
            if let (Some(nanos), true) = (rest_nanos, is_pause && self.pending.is_empty()) {
                self.rest(nanos);
            }
            let is_pause = is_pause && !self.pending.is_empty();
            for lane in 0..self.lanes.len() {
                while left > 0 && !is_pause && self.works(lane, left) && self.submit_one(lane)? {
                    left -= 1;
                    if rest_nanos.is_some() && left % 64 == 1 {
                        break;
                    }
                }
                let now = self.machine.now();
                self.lanes[lane].disk.ring(now);
            }
            let mut progress = false;
            if let Some(host) = &mut self.host {
                host.poll(self.machine.now());
            }
            for lane in 0..self.lanes.len() {
                let now = self.machine.now();
                // A lane with nothing in flight need not be polled, unless it carries the host.
                let rests = self.is_lazy && (lane > 0 || self.host.is_some());
                if rests && self.pending.values().all(|pending| pending.lane != lane) {
                    continue;
                }
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
            if progress || self.pending.is_empty() {
                moved = self.machine.now();
            }
            let hung = self.machine.now().nanos_since(moved) > PATIENCE_NANOS;
            if let Some(wrong) = self.lanes.iter().find_map(|lane| lane.disk.port().wrong(false)) {
                return Err(wrong.into());
            }
            if hung || (!progress && !self.pending.is_empty() && !self.wait()) {
                return Err(Violation::NeverEnded(self.pending.len()));
            }
        }
        Ok(())
    }

    /// Whether a lane takes requests now. Lazy lanes work in shifts, and sleep through the
    /// incidents of the others.
    fn works(&self, lane: usize, left: u64) -> bool {
        !self.is_lazy || left / SHIFT % self.lanes.len() as u64 == lane as u64
    }

    /// Whether the device has gone for good: from then on requests end with errors.
    fn is_gone(&self) -> bool {
        let gone = [Kind::PowerGone, Kind::Unplugged];
        self.faults().into_iter().any(|(kind, count)| count > 0 && gone.contains(&kind))
    }

    /// With nothing in flight no port owes an outcome, and no more commands have failed than the
    /// injected faults can explain.
    fn judge_ports(&self) -> Result<(), Violation> {
        for lane in &self.lanes {
            lane.disk.port().wrong(true).map_or(Ok(()), Err)?;
        }
        let outcomes = self.outcomes();
        let (bad, explained) = (outcomes.answered + outcomes.driver, self.explained());
        let is_explained = self.is_gone() || (bad <= explained && outcomes.gone == 0);
        if is_explained {
            return Ok(());
        }
        Err(Violation::MoreThanFaults { bad, explained, faults: self.told() })
    }

    /// The faults that happened, in words.
    fn told(&self) -> String {
        let told = self.faults().into_iter().filter(|(_, count)| *count > 0);
        let told: Vec<String> = told.map(|(kind, count)| format!("{kind} {count}")).collect();
        told.join(", ")
    }

    /// Every kind of fault and how often it was injected.
    fn faults(&self) -> [(Kind, u64); Kind::ALL.len()] {
        self.machine.with_model(|model| {
            let injector = S::injector(model);
            Kind::ALL.map(|kind| (kind, injector.count(kind)))
        })
    }

    /// The maximum number of commands that the injected faults can have caused to fail. A fault of
    /// one command ends that command, unless it ends [more](Stack::fails_alone) in this stack. All
    /// others can lead to a reset - some overall statuses are fatal errors, and so is a line reset
    /// after which the speed is not restored - which ends what is in flight; each unit then has a
    /// unit attention for the first command of each lane.
    fn explained(&self) -> u64 {
        let attentions = u64::from(self.choice.units) * (1 + self.lanes.len() as u64);
        let of_kind = |(kind, count): (Kind, u64)| match kind {
            Kind::LostInterrupt | Kind::Late | Kind::EnableGlitch => 0,
            Kind::Medium | Kind::Transient | Kind::ShortRead if S::fails_alone(self.choice) => {
                count
            }
            kind => count * (S::rounds(kind) * self.slots + attentions),
        };
        // Those left pending by the scan.
        attentions + self.faults().into_iter().map(of_kind).sum::<u64>()
    }

    /// Lets the link fall asleep: nothing is in flight and no requests come for a while.
    fn rest(&self, nanos: u64) {
        let until = self.machine.now().after_nanos(nanos);
        while self.machine.now() < until {
            if self.machine.wait(Some(until)) == Wake::Interrupt {
                return;
            }
        }
    }

    /// Lets time pass; `false` if nothing can ever happen again.
    fn wait(&self) -> bool {
        let lanes = self.lanes.iter().filter_map(|lane| lane.disk.poll_at());
        let next = lanes.chain(self.host.as_ref().and_then(|host| host.poll_at())).min();
        // A deadline that is not in the future must still let time pass.
        let next = next.map(|at| at.max(self.machine.now().after_nanos(1)));
        self.machine.wait(next) != Wake::Idle
    }

    /// Reads the whole device back at the end.
    fn read_everything(&mut self) -> Result<(), Violation> {
        let all = (0..self.lanes.len().min(self.choice.units.into())).flat_map(|lane| {
            (0..BLOCKS).step_by(REQUEST_BLOCKS_MAX as usize).map(move |at| (lane, at))
        });
        for (lane, at) in all {
            let first = self.lanes[lane].base + at;
            // A read may be hit by a fault; eventually it must return what is on the device.
            for attempt in 0.. {
                let before = self.failed;
                let place = self.lanes[lane].free.pop().expect("nothing is in flight");
                self.issue((lane, place), (Operation::Read, false), (first, REQUEST_BLOCKS_MAX))?;
                self.work(0)?;
                let Some(error) = self.last_error.filter(|_| self.failed != before) else { break };
                if self.is_gone() {
                    return Ok(());
                }
                if attempt == 20 {
                    return Err(match error {
                        block::BlockError::Gone => Violation::GivenUp { faults: self.told() },
                        error => Violation::Unreadable { block: first, error },
                    });
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
            _ => self.free_range(self.lanes[lane].base),
        };
        let Some(range) = range else {
            self.lanes[lane].free.push(place);
            return Ok(false);
        };
        self.issue((lane, place), (operation, forced), range)
    }

    /// A random range that no request in flight touches: two concurrent writes to one block would
    /// leave open which comes last.
    fn free_range(&mut self, base: u64) -> Option<(u64, u64)> {
        for _ in 0..8 {
            let count = 1 + self.random.below(REQUEST_BLOCKS_MAX);
            let first = base + self.random.below(BLOCKS - count + 1);
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
        let bytes = (count * u64::from(self.block)) as usize;
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
            offset: first % BLOCKS * u64::from(self.block),
            length: bytes as u64,
            data: if has_data { data } else { Data::NONE },
            crypto: None,
            token,
            accepted: now,
        };
        // First: a flush covers nothing that an earlier power loss may have taken.
        let losses = self.notice_losses();
        let vouched = match operation {
            Operation::Flush => self.vouched_by(lane),
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
            _ => false,
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

    /// What a flush of this lane's unit covers if it starts now.
    fn vouched_by(&self, lane: usize) -> Vec<(u64, u32)> {
        let base = self.lanes[lane].base;
        let mut vouched = self.oracle.before_flush();
        vouched.retain(|(block, _)| (base..base + BLOCKS).contains(block));
        vouched
    }

    /// A request's data, in one piece or, every other time, as a list of pieces that the stack
    /// supports ([`Stack::pieces`]). The bytes are arranged as in one piece, so that no list is
    /// needed to compare them.
    fn data_of(&mut self, place: usize, bytes: u32) -> Data {
        let whole = self.data.slice(place * BUFFER, bytes);
        if bytes == 0 || self.random.below(2) == 0 {
            return Data::One(whole);
        }
        let piece = S::pieces(self.choice)[self.random.below(4) as usize];
        let mut ranges: Vec<DmaSlice> = (0..bytes.div_ceil(piece))
            .map(|n| DmaSlice {
                address: whole.address + u64::from(n * piece),
                len: piece.min(bytes - n * piece),
            })
            .collect();
        let swaps = self.mistake == Some(Mistake::SwappedSegments) && self.random.below(10) == 0;
        if swaps && ranges.len() > 2 {
            ranges.swap(0, 1);
        }
        let at = self.lists + place * LIST;
        Data::list(self.machine.memory(), at, &ranges).expect("room for the list")
    }

    /// Forgets a request that was never accepted: its write did not happen.
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
        self.machine.with_model(|model| S::injector(model).power_cuts())
    }

    /// Power may have failed and returned since the last check: what is not durable is uncertain.
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
            self.last_error = Some(error);
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
        let mut content = vec![0; (pending.count * u64::from(self.block)) as usize];
        self.data.read(pending.place * BUFFER, &mut content);
        self.compared += content.len() as u64;
        self.oracle.check(pending.first, &content).map_err(Violation::Data)
    }

    fn outcomes(&self) -> Outcomes {
        let mut all = Outcomes::default();
        self.lanes.iter().for_each(|lane| all.add(&lane.disk.port().outcomes()));
        all
    }

    fn totals(&self) -> Totals {
        let faults = self.faults().map(|(_, count)| count);
        Totals {
            worlds: 1,
            requests: self.requests,
            failed: self.failed,
            faults,
            outcomes: self.outcomes(),
            compared: self.compared,
            nanos: self.machine.now().nanos_since(Instant::START),
        }
    }
}

/// One to four kinds of faults, each from rare to frequent. Permanent ones occur once.
fn some_plan(random: &mut Random, kinds: &[Kind]) -> Plan {
    let mut plan = Plan::none();
    for _ in 0..1 + random.below(4) {
        let kind = kinds[random.below(kinds.len() as u64) as usize];
        let often = match kind {
            // Each of these costs a recovery of the whole controller.
            Kind::Fatal | Kind::LinkLoss | Kind::PowerLoss | Kind::Uic | Kind::Stall => 300,
            Kind::Interface | Kind::HostBus | Kind::Detached => 300,
            Kind::PowerLate => 600,
            // They have few opportunities: resets, and commands that wake a link.
            Kind::EnableGlitch | Kind::AutoHibern8 | Kind::ReadyStuck => 2,
            Kind::NoLog => 2,
            Kind::ListStuck | Kind::Deaf => 30,
            // Opportunities are flushes.
            Kind::SwitchError | Kind::BusyStuck => 5,
            _ => 50,
        };
        let trigger = match random.below(2) {
            _ if matches!(kind, Kind::PowerGone | Kind::Unplugged) => {
                Trigger::Nth(500 + random.below(20_000))
            }
            0 => Trigger::Probability(1.0 / (often + random.below(20 * often)) as f64),
            _ => Trigger::Every(often + random.below(20 * often)),
        };
        plan = plan.with(kind, trigger);
    }
    // These need something that resets the controller, or a failing device.
    let needs = [
        (Kind::EnableGlitch, Kind::Fatal, 500),
        (Kind::ReadyStuck, Kind::Fatal, 500),
        (Kind::Deaf, Kind::LinkLoss, 150),
        (Kind::ListStuck, Kind::Transient, 60),
        (Kind::NoLog, Kind::Transient, 60),
    ];
    for (kind, other, every) in needs {
        if plan.trigger(kind) != Trigger::Never {
            plan = plan.with(other, Trigger::Every(every));
        }
    }
    plan
}
