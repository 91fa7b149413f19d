//! An I/O scheduler in front of a disk, similar to CAM's: reads keep their latency while writes and
//! deletes run, consumers share a disk fairly, and each kind of request can be limited.
//!
//! Theory. A disk with a deep queue serves requests in its own order, and a flood of writes or
//! deletes fills that queue: a read then waits for all of it. The remedy is to admit less of the
//! flood. So requests wait here, each with its consumer and its class (read; write and flush;
//! delete), and are admitted by four rules:
//!
//! 1. a class is within its limits: how many are in the disk at once, how many and how many bytes a
//!    second ([`Limit`]);
//! 2. while reads are about, the number of writes and deletes in the disk has a limit, which is
//!    halved when reads take longer than the goal ([`Rules::read_latency`]) and rises by one while
//!    they do not: additive increase, multiplicative decrease;
//! 3. of the classes that may go, reads go first, but after [`Rules::read_bias`] of them one of
//!    another class, so that nothing starves; with a bias of 0 the oldest goes first;
//! 4. within a class the consumers take turns by bytes (deficit round robin).
//!
//! Pending requests have no order among each other, as on any block device. All memory is allocated
//! when the scheduler is created; a request takes an entry in a table.

use alloc::boxed::Box;
use alloc::vec::Vec;

use flysch_api::block::{
    BlockDevice, BlockError, BlockGeometry, Completion, Operation, Refused, Request,
};
use flysch_api::machine::{DmaRegion, Instant};
use flysch_api::trace::Passage;

/// No entry.
const NONE: u16 = u16::MAX;
/// Bytes a consumer may have admitted before it is another one's turn.
const QUANTUM: u64 = 128 << 10;
/// A request longer than this costs its consumer no more than this.
const COST_MAX: u64 = 16 * QUANTUM;
/// After a pause, a rate admits at once what it would admit in this time (CAM's quantum).
const BURST_NANOS: u64 = 5_000_000;
/// Most reads evaluated together before the limit of the other classes is changed.
const READS_LOOKED_AT: u32 = 16;
/// This long after the last read, the other classes have the disk to themselves, nanoseconds.
const READS_GONE_NANOS: u64 = 20_000_000;
/// Upper bounds of all latency buckets but the last, nanoseconds: 20 us, doubling.
pub const BUCKETS: [u64; 15] = {
    let mut bounds = [20_000; 15];
    let mut at = 1;
    while at < bounds.len() {
        bounds[at] = bounds[at - 1] * 2;
        at += 1;
    }
    bounds
};

/// How much of a class is admitted; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// Requests in the disk at once.
    pub depth: u32,
    /// Requests a second.
    pub per_second: u32,
    /// Bytes a second.
    pub bytes_per_second: u64,
}

/// The rules of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Reads admitted before one of the other classes is, while both wait; 0 keeps the order of
    /// arrival.
    pub read_bias: u32,
    /// Maximum latency that reads should have, nanoseconds; 0 for no goal.
    pub read_latency: u64,
    /// Limits of reads.
    pub read: Limit,
    /// Limits of writes and flushes.
    pub write: Limit,
    /// Limits of deletes.
    pub delete: Limit,
}

impl Rules {
    /// In order of arrival, without limits.
    pub const NONE: Self = {
        let none = Limit { depth: 0, per_second: 0, bytes_per_second: 0 };
        Self { read_bias: 0, read_latency: 0, read: none, write: none, delete: none }
    };
}

impl Default for Rules {
    /// CAM's bias of 100 reads, one delete at a time, no goal.
    fn default() -> Self {
        let delete = Limit { depth: 1, ..Limit::default() };
        Self { read_bias: 100, delete, ..Self::NONE }
    }
}

/// The class of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Reads.
    Read,
    /// Writes and flushes.
    Write,
    /// Deletes.
    Delete,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Delete];

    const fn of(operation: Operation) -> Self {
        match operation {
            Operation::Read => Self::Read,
            Operation::Write | Operation::Flush => Self::Write,
            Operation::Delete => Self::Delete,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
        }
    }
}

/// Statistics of the requests of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStatistics {
    /// Requests that have ended.
    pub done: u64,
    /// Of these, requests that failed.
    pub errors: u64,
    /// Bytes of requests that succeeded.
    pub bytes: u64,
    /// Requests that wait here.
    pub queued: u32,
    /// The most that have waited at once.
    pub queued_max: u32,
    /// Requests in the disk.
    pub active: u32,
    /// Average time from submission to completion, nanoseconds; roughly over the last 512.
    pub latency: u64,
    /// Number of requests per latency bucket, see [`BUCKETS`]; the last bucket has no upper bound.
    pub buckets: [u64; BUCKETS.len() + 1],
}

/// Statistics of a scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// By class, in the order of [`Class::ALL`].
    pub classes: [ClassStatistics; 3],
    /// Writes and deletes that may be in the disk at once while there are reads.
    pub others_depth: u32,
    /// How often that number was reduced.
    pub throttled: u64,
}

impl Statistics {
    /// The statistics of one class.
    pub const fn class(&self, class: Class) -> &ClassStatistics {
        &self.classes[class as usize]
    }
}

/// An entry for a request: waiting, in the disk, or ended.
#[derive(Clone, Copy, Debug)]
struct Place {
    request: Request,
    since: Instant,
    /// Its number in the order of arrival.
    turn: u64,
    consumer: u16,
    next: u16,
    error: Option<BlockError>,
}

/// First in, first out.
#[derive(Clone, Copy, Debug)]
struct Fifo {
    first: u16,
    last: u16,
}

impl Fifo {
    const EMPTY: Self = Self { first: NONE, last: NONE };

    fn push(&mut self, places: &mut [Place], at: u16) {
        places[usize::from(at)].next = NONE;
        match self.last {
            NONE => self.first = at,
            last => places[usize::from(last)].next = at,
        }
        self.last = at;
    }

    fn pop(&mut self, places: &[Place]) -> Option<u16> {
        let at = self.first;
        let place = places.get(usize::from(at))?;
        self.first = place.next;
        if self.first == NONE {
            self.last = NONE;
        }
        Some(at)
    }
}

/// One consumer's requests of one class.
#[derive(Clone, Copy, Debug)]
struct Lineup {
    fifo: Fifo,
    /// Bytes it may have admitted before its turn ends.
    deficit: u64,
}

/// A class: its waiting requests, and how much of its limits is used.
#[derive(Debug)]
struct Lines {
    lineups: Box<[Lineup]>,
    /// Whose turn it is.
    cursor: usize,
    /// The time up to which its rates are used: requests and bytes.
    used_until: [Instant; 2],
}

/// A device behind a scheduler.
#[derive(Debug)]
pub struct Scheduler<D> {
    device: D,
    rules: Rules,
    geometry: BlockGeometry,
    places: Box<[Place]>,
    free: u16,
    lines: [Lines; 3],
    /// Requests that ended without reaching the disk.
    ended: Fifo,
    turns: u64,
    /// Reads admitted since one of the other classes was.
    reads_since: u32,
    /// Whether something was admitted for which the disk has not been rung.
    is_unrung: bool,
    /// When the last read arrived or ended.
    last_read: Option<Instant>,
    /// Reads evaluated since the limit of the other classes changed, and how many of them took too
    /// long.
    looked_at: (u32, u32),
    /// The disk has no room; it is tried again after the next completion.
    is_full: bool,
    statistics: Statistics,
}

const VACANT: Place = Place {
    request: Request {
        operation: Operation::Flush,
        force_unit_access: false,
        offset: 0,
        length: 0,
        data: flysch_api::data::Data::NONE,
        crypto: None,
        token: 0,
        accepted: Instant::START,
    },
    since: Instant::START,
    turn: 0,
    consumer: 0,
    next: NONE,
    error: None,
};

impl<D: BlockDevice> Scheduler<D> {
    /// A scheduler in front of `device`, for this many consumers and pending requests: at least one
    /// of each, and more requests than the device accepts, otherwise there is nothing to choose
    /// from.
    pub fn new(device: D, rules: Rules, consumers: u16, room: u16) -> Self {
        let (consumers, room) = (consumers.max(1), room.clamp(1, NONE - 1));
        let geometry = BlockGeometry { queue_depth: room.into(), ..*device.geometry() };
        let place = |at: u16| Place { next: if at + 1 == room { NONE } else { at + 1 }, ..VACANT };
        let lineups = || {
            let lineup = Lineup { fifo: Fifo::EMPTY, deficit: 0 };
            let lineups: Vec<Lineup> = (0..consumers).map(|_| lineup).collect();
            let used_until = [Instant::START; 2];
            Lines { lineups: lineups.into_boxed_slice(), cursor: 0, used_until }
        };
        let others_depth = device.geometry().queue_depth;
        Self {
            device,
            rules,
            geometry,
            places: (0..room).map(place).collect(),
            free: 0,
            lines: [lineups(), lineups(), lineups()],
            ended: Fifo::EMPTY,
            turns: 0,
            reads_since: 0,
            is_unrung: false,
            last_read: None,
            looked_at: (0, 0),
            is_full: false,
            statistics: Statistics { others_depth, ..Statistics::default() },
        }
    }

    /// The device behind it.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The statistics.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Changes the rules.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
        self.statistics.others_depth = self.device.geometry().queue_depth;
        self.looked_at = (0, 0);
    }

    /// As [`BlockDevice::submit`], for one of the consumers; a number beyond the last means the
    /// last one.
    ///
    /// # Errors
    /// As [`BlockDevice::submit`].
    pub fn submit_for(
        &mut self,
        consumer: u16,
        request: &Request,
        now: Instant,
    ) -> Result<(), Refused> {
        self.geometry.check(request).map_err(Refused::Invalid)?;
        let at = self.free;
        let Some(place) = self.places.get_mut(usize::from(at)) else { return Err(Refused::Full) };
        self.free = place.next;
        let class = Class::of(request.operation);
        let lines = &mut self.lines[class as usize];
        let consumer = consumer.min(lines.lineups.len() as u16 - 1);
        let turn = self.turns;
        self.turns += 1;
        *place = Place { request: *request, since: now, turn, consumer, next: NONE, error: None };
        lines.lineups[usize::from(consumer)].fifo.push(&mut self.places, at);
        let statistics = &mut self.statistics.classes[class as usize];
        statistics.queued += 1;
        statistics.queued_max = statistics.queued_max.max(statistics.queued);
        if class == Class::Read {
            self.last_read = Some(now);
        }
        Ok(())
    }

    fn limit(&self, class: Class) -> &Limit {
        match class {
            Class::Read => &self.rules.read,
            Class::Write => &self.rules.write,
            Class::Delete => &self.rules.delete,
        }
    }

    /// Whether reads wait, are in the disk, or were there a moment ago.
    fn reads_are_about(&self, now: Instant) -> bool {
        let reads = &self.statistics.classes[Class::Read as usize];
        let recent = |last: Instant| now < last.after_nanos(READS_GONE_NANOS);
        reads.queued + reads.active > 0 || self.last_read.is_some_and(recent)
    }

    /// When a waiting class may be admitted: now, later, or (`None`) when something else has ended.
    fn when(&self, class: Class, now: Instant) -> Option<Instant> {
        let Statistics { classes, others_depth, .. } = &self.statistics;
        let statistics = &classes[class as usize];
        let limit = self.limit(class);
        if limit.depth != 0 && statistics.active >= limit.depth {
            return None;
        }
        if class != Class::Read && self.rules.read_latency != 0 && self.reads_are_about(now) {
            let others =
                classes[Class::Write as usize].active + classes[Class::Delete as usize].active;
            if others >= *others_depth {
                return None;
            }
        }
        let [requests, bytes] = self.lines[class as usize].used_until;
        let rate = |used: Instant, is_limited: bool| match is_limited {
            true => Instant::from_nanos(used.nanos().saturating_sub(BURST_NANOS)),
            false => Instant::START,
        };
        let at =
            rate(requests, limit.per_second != 0).max(rate(bytes, limit.bytes_per_second != 0));
        Some(at.max(now))
    }

    /// The oldest request of a class.
    fn oldest(&self, class: Class) -> u64 {
        let lineups = self.lines[class as usize].lineups.iter();
        let turn =
            |lineup: &Lineup| self.places.get(usize::from(lineup.fifo.first)).map(|p| p.turn);
        lineups.filter_map(turn).min().unwrap_or(u64::MAX)
    }

    /// The class that is next.
    fn choose(&self, now: Instant) -> Option<Class> {
        let may = |class: &Class| {
            self.statistics.classes[*class as usize].queued > 0
                && self.when(*class, now).is_some_and(|at| at <= now)
        };
        let mut open = Class::ALL.into_iter().filter(may);
        let first = open.next()?;
        let Some(second) = open.next() else { return Some(first) };
        let third = open.next();
        let oldest = |one: Class, other: Class| {
            if self.oldest(one) <= self.oldest(other) { one } else { other }
        };
        if self.rules.read_bias == 0 || first != Class::Read {
            let other = oldest(first, second);
            return Some(third.map_or(other, |third| oldest(other, third)));
        }
        if self.reads_since < self.rules.read_bias {
            return Some(Class::Read);
        }
        Some(third.map_or(second, |third| oldest(second, third)))
    }

    /// The next request of a class: the consumers take turns.
    fn take(&mut self, class: Class) -> Option<u16> {
        let lines = &mut self.lines[class as usize];
        let count = lines.lineups.len();
        if lines.lineups.iter().all(|lineup| lineup.fifo.first == NONE) {
            return None;
        }
        loop {
            let lineup = &mut lines.lineups[lines.cursor];
            if let Some(place) = self.places.get(usize::from(lineup.fifo.first)) {
                let cost = cost(&place.request);
                if lineup.deficit >= cost {
                    lineup.deficit -= cost;
                    return lineup.fifo.pop(&self.places);
                }
                lineup.deficit += QUANTUM;
            } else {
                // A consumer with nothing to do saves nothing up.
                lineup.deficit = 0;
            }
            lines.cursor = (lines.cursor + 1) % count;
        }
    }

    /// Puts back a request that was taken and not admitted.
    fn put_back(&mut self, class: Class, at: u16) {
        let place = &mut self.places[usize::from(at)];
        let lineup = &mut self.lines[class as usize].lineups[usize::from(place.consumer)];
        lineup.deficit += cost(&place.request);
        place.next = lineup.fifo.first;
        lineup.fifo.first = at;
        if lineup.fifo.last == NONE {
            lineup.fifo.last = at;
        }
    }

    /// Admits all requests that the rules allow.
    fn dispatch(&mut self, now: Instant) {
        while !self.is_full {
            let Some(class) = self.choose(now) else { return };
            let Some(at) = self.take(class) else { return };
            let request = Request { token: at.into(), ..self.places[usize::from(at)].request };
            match self.device.submit(&request, now) {
                Ok(()) => {
                    self.is_unrung = true;
                    self.charge(class, &request, now);
                }
                Err(Refused::Full) => {
                    self.put_back(class, at);
                    self.is_full = true;
                }
                Err(Refused::Invalid(error)) => {
                    self.places[usize::from(at)].error = Some(error);
                    self.statistics.classes[class as usize].queued -= 1;
                    self.ended.push(&mut self.places, at);
                }
            }
        }
    }

    fn charge(&mut self, class: Class, request: &Request, now: Instant) {
        let statistics = &mut self.statistics.classes[class as usize];
        (statistics.queued, statistics.active) = (statistics.queued - 1, statistics.active + 1);
        self.reads_since = match class {
            Class::Read => self.reads_since.saturating_add(1),
            Class::Write | Class::Delete => 0,
        };
        let Limit { per_second, bytes_per_second, .. } = *self.limit(class);
        let time = |amount: u64, rate: u64| match rate {
            0 => 0,
            rate => (u128::from(amount) * 1_000_000_000 / u128::from(rate)) as u64,
        };
        let [requests, bytes] = &mut self.lines[class as usize].used_until;
        *requests = (*requests).max(now).after_nanos(time(1, per_second.into()));
        *bytes = (*bytes).max(now).after_nanos(time(request.length, bytes_per_second));
    }

    /// Evaluates the latency of a read.
    fn look_at(&mut self, latency: u64) {
        let goal = self.rules.read_latency;
        if goal == 0 {
            return;
        }
        let (looked_at, late) = &mut self.looked_at;
        *looked_at += 1;
        *late += u32::from(latency > goal);
        // One late read of a few may be chance; two are too many.
        let is_late = *late >= 2;
        if !is_late && *looked_at < READS_LOOKED_AT {
            return;
        }
        self.looked_at = (0, 0);
        let depth = &mut self.statistics.others_depth;
        if is_late {
            *depth = (*depth / 2).max(1);
            self.statistics.throttled += 1;
        } else {
            *depth = (*depth + 1).min(self.device.geometry().queue_depth);
        }
    }

    /// Frees an entry; returns the completion as its owner expects it.
    fn end(
        &mut self,
        at: u16,
        result: Result<(), BlockError>,
        passage: Passage,
        now: Instant,
    ) -> Completion {
        let Place { request, since, .. } = self.places[usize::from(at)];
        let class = Class::of(request.operation);
        let latency = (now - since).as_nanos() as u64;
        let statistics = &mut self.statistics.classes[class as usize];
        statistics.done += 1;
        match result {
            Ok(()) => statistics.bytes += request.length,
            Err(_) => statistics.errors += 1,
        }
        statistics.latency = match statistics.done {
            1 => latency,
            _ => (statistics.latency * 511 + latency) / 512,
        };
        let bucket = BUCKETS.partition_point(|bound| *bound < latency);
        statistics.buckets[bucket] += 1;
        if class == Class::Read {
            self.last_read = Some(now);
            self.look_at(latency);
        }
        self.places[usize::from(at)].next = self.free;
        self.free = at;
        Completion { token: request.token, result, passage }
    }
}

/// What a request costs its consumer.
fn cost(request: &Request) -> u64 {
    match request.operation {
        Operation::Read | Operation::Write => request.length.clamp(1, COST_MAX),
        // These move no data.
        Operation::Flush | Operation::Delete => QUANTUM / 8,
    }
}

impl<D: BlockDevice> BlockDevice for Scheduler<D> {
    fn geometry(&self) -> &BlockGeometry {
        &self.geometry
    }

    fn memory(&self) -> &DmaRegion {
        self.device.memory()
    }

    fn submit(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        self.submit_for(0, request, now)
    }

    /// An ordered request must not wait here: it is refused as [`Refused::Full`] until all waiting
    /// requests are in the disk.
    fn submit_ordered(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        if self.statistics.classes.iter().any(|class| class.queued > 0) {
            return Err(Refused::Full);
        }
        let at = self.free;
        let Some(&place) = self.places.get(usize::from(at)) else { return Err(Refused::Full) };
        self.device.submit_ordered(&Request { token: at.into(), ..*request }, now)?;
        self.free = place.next;
        let class = Class::of(request.operation);
        let request = *request;
        self.places[usize::from(at)] = Place { request, since: now, turn: self.turns, ..VACANT };
        self.statistics.classes[class as usize].queued += 1;
        self.charge(class, &request, now);
        self.is_unrung = true;
        Ok(())
    }

    fn ring(&mut self, now: Instant) {
        self.dispatch(now);
        self.is_unrung = false;
        self.device.ring(now);
    }

    fn poll(&mut self, now: Instant) -> Option<Completion> {
        loop {
            if let Some(done) = self.device.poll(now) {
                let at = done.token as u16;
                // A token that the device was not given ends nothing.
                let Some(place) = self.places.get(usize::from(at)) else { continue };
                let class = Class::of(place.request.operation);
                let active = &mut self.statistics.classes[class as usize].active;
                *active = active.saturating_sub(1);
                self.is_full = false;
                return Some(self.end(at, done.result, done.passage, now));
            }
            if let Some(at) = self.ended.pop(&self.places) {
                let place = &self.places[usize::from(at)];
                let error = place.error.unwrap_or(BlockError::Unsupported);
                let passage = Passage {
                    accepted: place.request.accepted,
                    issued: now,
                    device_done: None,
                    seen: now,
                };
                return Some(self.end(at, Err(error), passage, now));
            }
            self.is_full = false;
            self.dispatch(now);
            if self.is_unrung {
                self.is_unrung = false;
                self.device.ring(now);
            }
            if self.ended.first == NONE {
                return None;
            }
        }
    }

    fn poll_at(&self) -> Option<Instant> {
        if self.ended.first != NONE {
            return Some(Instant::START);
        }
        let waits = |class: &Class| self.statistics.classes[*class as usize].queued > 0;
        let waiting = Class::ALL.into_iter().filter(waits);
        let now = Instant::START;
        let rates = waiting.clone().filter_map(|class| self.when(class, now));
        // What only a rate holds back goes when it allows; the rest, after the next completion.
        let rates = rates.filter(|at| *at > now).min();
        // Writes and deletes held back for reads may go once there have been no reads for a while.
        let reads = self.statistics.classes[Class::Read as usize];
        let is_last = reads.queued + reads.active == 0;
        let others = waiting.filter(|class| *class != Class::Read).count() > 0;
        let gone = self.last_read.filter(|_| is_last && others && self.rules.read_latency != 0);
        let gone = gone.map(|last| last.after_nanos(READS_GONE_NANOS));
        [self.device.poll_at(), rates, gone].into_iter().flatten().min()
    }
}
