//! Rate limits and think time: when the next request may be issued, and whether demanded rates are
//! reached.

use flysch_api::machine::Instant;

use super::Failure;
use super::company::Part;
use crate::random::{Random, mix};
use crate::statistics::{DirectionStatistics, Statistics};
use crate::workload::{Direction, Pace};

/// Before this much time has passed fio demands no rate, nanoseconds (`check_min_rate`).
const SETTLE_NANOS: u64 = 2_000_000_000;
/// fio's `rate_cycle`, milliseconds.
const CYCLE_MS: u64 = 1000;

/// Enforces a worker's limits.
#[derive(Debug)]
pub(super) struct Pacer {
    limits: Pace,
    start: Instant,
    bytes: [u64; 3],
    requests: [u64; 3],
    until_think: u64,
    /// The directions that the workload draws from; none if their order is given.
    drawn: [bool; 3],
    /// When a request of each direction is due.
    due: [Instant; 3],
    /// The end of the pause for thought.
    thinks_until: Instant,
    part: Option<Part>,
    /// Random arrivals: their current times, by direction.
    chance: Option<(Random, [Instant; 3])>,
    cycle: Cycle,
}

/// The cycle over which rates are demanded.
#[derive(Clone, Copy, Debug)]
struct Cycle {
    begin: Instant,
    /// Bytes and requests at its start.
    bytes: [u64; 3],
    requests: [u64; 3],
}

impl Cycle {
    /// One that begins now.
    fn new(statistics: &Statistics, begin: Instant) -> Self {
        let count = |of: fn(&DirectionStatistics) -> u64| {
            Direction::ALL.map(|it| statistics.directions[it.index()].as_deref().map_or(0, of))
        };
        Self { begin, bytes: count(|it| it.bytes), requests: count(|it| it.total.count()) }
    }
}

impl Pacer {
    /// That of a worker that draws its requests from the directions `drawn`, or from none because
    /// their order is given.
    pub(super) fn new(limits: Pace, drawn: [bool; 3], seed: u64) -> Self {
        let until_think = limits.think_requests.max(1);
        let start = Instant::START;
        let chance = limits.poisson.then(|| (Random::new(mix(seed ^ 0xFA57)), [start; 3]));
        let cycle = Cycle { begin: start, bytes: [0; 3], requests: [0; 3] };
        Self {
            limits,
            start,
            bytes: [0; 3],
            requests: [0; 3],
            until_think,
            drawn,
            due: [start; 3],
            thinks_until: start,
            part: None,
            chance,
            cycle,
        }
    }

    /// Its requests are its part of a flow.
    pub(super) fn share(&mut self, part: Part) {
        self.part = Some(part);
    }

    pub(super) fn start(&mut self, now: Instant) {
        (self.start, self.due, self.thinks_until) = (now, [now; 3], now);
        self.cycle.begin = now;
        if let Some((_, at)) = &mut self.chance {
            *at = [now; 3];
        }
        if let Some(part) = &mut self.part {
            part.enter();
        }
    }

    /// Nothing more is issued.
    pub(super) fn end(&mut self) {
        if let Some(part) = &mut self.part {
            part.leave();
        }
    }

    /// The time from which a request may be issued; `None` if that depends on other workers.
    pub(super) fn open_at(&self) -> Option<Instant> {
        // Who has a part in a flow and is not late waits for others.
        Some(self.next()).filter(|_| self.part.is_none() || !self.limits.is_free())
    }

    /// When one of the directions is due; where their order is given, when all are.
    fn next(&self) -> Instant {
        let all = self.drawn.iter().zip(self.due);
        let due = all.filter_map(|(drawn, due)| drawn.then_some(due)).min();
        due.or(self.due.into_iter().max()).unwrap_or(Instant::START).max(self.thinks_until)
    }

    /// Whether a request may be issued at `now`.
    pub(super) fn is_open(&mut self, now: Instant) -> bool {
        self.next() <= now && self.part.as_mut().is_none_or(Part::may)
    }

    /// The direction of the request that is issued at `now`: the one drawn, unless that is early
    /// and the other is not (`rate_ddir` of fio).
    pub(super) fn direction(&self, drawn: Direction, now: Instant) -> Direction {
        let is_due = |direction: Direction| {
            self.drawn[direction.index()] && self.due[direction.index()] <= now
        };
        let other = if drawn == Direction::Read { Direction::Write } else { Direction::Read };
        if !is_due(drawn) && is_due(other) { other } else { drawn }
    }

    /// A request of `bytes` bytes was issued at `now`.
    pub(super) fn issued(&mut self, direction: Direction, bytes: u32, now: Instant) {
        let index = direction.index();
        self.bytes[index] += u64::from(bytes);
        self.requests[index] += 1;
        if let Some(part) = &mut self.part {
            part.take();
        }
        let rates = [self.limits.bytes_per_second[index], self.limits.requests_per_second[index]];
        let due = match &mut self.chance {
            Some((random, at)) => {
                // Gaps of a Poisson process: exponential, with the mean of the even ones.
                let gap = |each: u64, rate: u64| {
                    if rate == 0 { 0.0 } else { each as f64 * 1e9 / rate as f64 }
                };
                let mean = gap(bytes.into(), rates[0]).max(gap(1, rates[1]));
                let nanos = -(1.0 - random.fraction()).ln() * mean;
                at[index] = at[index].after_nanos(nanos as u64);
                at[index]
            }
            None => {
                let even = |done: u64, per_second: u64| {
                    let nanos = u128::from(done) * 1_000_000_000;
                    let nanos = nanos.checked_div(u128::from(per_second)).unwrap_or(0);
                    self.start.after_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
                };
                even(self.bytes[index], rates[0]).max(even(self.requests[index], rates[1]))
            }
        };
        self.due[index] = self.due[index].max(due);
        self.until_think -= 1;
        if self.until_think == 0 && self.limits.think_time_us > 0 {
            let pause = self.limits.think_time_us.saturating_mul(1000);
            self.thinks_until = self.thinks_until.max(now.after_nanos(pause));
        }
        if self.until_think == 0 {
            self.until_think = self.limits.think_requests.max(1);
        }
    }

    /// The demand that was missed in a cycle that has ended.
    pub(super) fn too_slow(&mut self, statistics: &Statistics, now: Instant) -> Option<Failure> {
        let cycle = match self.limits.cycle_ms {
            0 => CYCLE_MS,
            cycle => cycle,
        };
        let nanos = now.nanos_since(self.cycle.begin);
        if now.nanos_since(self.start) < SETTLE_NANOS {
            return None;
        }
        if self.cycle.begin == self.start {
            self.cycle = Cycle::new(statistics, now);
            return None;
        }
        if !self.limits.has_least() || nanos < cycle.saturating_mul(1_000_000) {
            return None;
        }
        let per_second =
            |count: u64| (u128::from(count) * 1_000_000_000 / u128::from(nanos.max(1))) as u64;
        let mut failure = None;
        for direction in Direction::ALL {
            let index = direction.index();
            let Some(done) = &statistics.directions[index] else { continue };
            // Behind a ramp everything is counted anew.
            let bytes = done.bytes.saturating_sub(self.cycle.bytes[index]);
            let requests = done.total.count().saturating_sub(self.cycle.requests[index]);
            let demands = [
                (per_second(bytes), self.limits.bytes_min[index], "bytes"),
                (per_second(requests), self.limits.requests_min[index], "requests"),
            ];
            for (rate, least, unit) in demands {
                if rate < least {
                    failure.get_or_insert(Failure::TooSlow { direction, rate, least, unit });
                }
            }
        }
        self.cycle = Cycle::new(statistics, now);
        failure
    }
}
