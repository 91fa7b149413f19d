//! Whether workers have reached a steady state: measurements at regular intervals, of which the
//! last few are judged.

use flysch_api::machine::Instant;

use super::Assignment;
use super::worker::Worker;
use crate::workload::{Steady, SteadyMeasure};

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// The result of looking for a steady state.
#[derive(Clone, Debug, PartialEq)]
pub struct SteadyState {
    /// The criterion.
    pub wanted: Steady,
    /// Whether it was reached.
    pub attained: bool,
    /// The value last compared with the limit: a distance or a slope, or either in percent.
    pub criterion: f64,
    /// The greatest distance from the mean; 0 if slopes are judged.
    pub deviation: f64,
    /// The slope of the regression line, per measurement; 0 if distances are judged.
    pub slope: f64,
    /// The measurements of the window, oldest first; fewer if it was never full.
    pub measured: Vec<Measured>,
}

/// One measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Requests per second.
    pub iops: u64,
    /// Bytes per second.
    pub bandwidth: u64,
    /// Mean completion latency, nanoseconds.
    pub latency: u64,
}

impl SteadyState {
    fn new(wanted: Steady) -> Self {
        let measured = Vec::with_capacity(wanted.measurements());
        Self { wanted, attained: false, criterion: 0.0, deviation: 0.0, slope: 0.0, measured }
    }

    /// Mean of the measurements in the window, divided by the number that it would hold.
    pub fn mean(&self, of: impl Fn(&Measured) -> u64) -> u64 {
        let sum: u64 = self.measured.iter().map(of).sum();
        sum / self.wanted.measurements() as u64
    }

    /// Adds a measurement. Returns whether the state is steady now.
    fn take(&mut self, measured: Measured) -> bool {
        let length = self.wanted.measurements();
        if self.measured.len() == length {
            self.measured.remove(0);
        }
        self.measured.push(measured);
        if self.measured.len() < length {
            return false;
        }
        let measure = self.wanted.measure;
        let values = self.measured.iter().map(|measured| match measure {
            SteadyMeasure::Iops => measured.iops as f64,
            SteadyMeasure::Bandwidth => measured.bandwidth as f64,
            SteadyMeasure::Latency => measured.latency as f64,
        });
        let mean = values.clone().sum::<f64>() / length as f64;
        let found = if self.wanted.slope {
            self.slope = slope(values);
            self.slope
        } else {
            self.deviation = values.map(|value| (value - mean).abs()).fold(0.0, f64::max);
            self.deviation
        };
        self.criterion = match self.wanted.percent {
            // Nothing was done at all, which is as steady as can be but no state.
            true if mean == 0.0 => f64::INFINITY,
            true => 100.0 * found / mean,
            false => found,
        };
        self.attained = self.criterion.abs() < self.wanted.limit;
        self.attained
    }
}

/// The slope of the least-squares line through values at distances of one; 0 for one value.
fn slope(values: impl ExactSizeIterator<Item = f64> + Clone) -> f64 {
    let count = values.len() as f64;
    let mean = values.clone().sum::<f64>() / count;
    let middle = (count - 1.0) / 2.0;
    let (mut above, mut below) = (0.0, 0.0);
    for (at, value) in values.enumerate() {
        let x = at as f64 - middle;
        above += x * (value - mean);
        below += x * x;
    }
    if below == 0.0 { 0.0 } else { above / below }
}

/// What workers had done at the last check.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    requests: u64,
    bytes: u64,
    latency_nanos: u64,
}

impl Done {
    fn of(worker: &Worker<'_>) -> Self {
        worker.statistics().used().fold(Self::default(), |sum, (_, direction)| Self {
            requests: sum.requests + direction.requests(),
            bytes: sum.bytes + direction.bytes,
            latency_nanos: sum.latency_nanos.wrapping_add(direction.response.sum()),
        })
    }

    /// What has been done since; after a ramp, counting starts again.
    fn since(self, before: Self) -> Self {
        if self.requests < before.requests {
            return self;
        }
        Self {
            requests: self.requests - before.requests,
            bytes: self.bytes.saturating_sub(before.bytes),
            latency_nanos: self.latency_nanos.wrapping_sub(before.latency_nanos),
        }
    }
}

/// Workers that are judged together.
#[derive(Debug)]
struct Party {
    workers: Vec<usize>,
    state: SteadyState,
    done: Vec<Done>,
    /// When the first of them started.
    began: Option<Instant>,
    /// The start of the current measurement; `None` before the first.
    since: Option<Instant>,
    next: Instant,
}

impl Party {
    fn is_over(&self, workers: &[Worker<'_>]) -> bool {
        self.state.attained || self.workers.iter().all(|&at| workers[at].is_done())
    }

    /// Takes the measurement that is due. Returns whether the state is steady.
    fn measure(&mut self, workers: &[Worker<'_>], now: Instant) -> bool {
        let Some(since) = self.since.replace(now) else {
            self.done = self.workers.iter().map(|&at| Done::of(&workers[at])).collect();
            return false;
        };
        let nanos = u128::from(now.nanos_since(since).max(1));
        let mut sum = Done::default();
        for (&at, before) in self.workers.iter().zip(&mut self.done) {
            let done = Done::of(&workers[at]);
            let more = done.since(*before);
            sum.requests += more.requests;
            sum.bytes += more.bytes;
            sum.latency_nanos += more.latency_nanos;
            *before = done;
        }
        let per_second = |count: u64| (u128::from(count) * u128::from(SECOND) / nanos) as u64;
        self.state.take(Measured {
            iops: per_second(sum.requests),
            bandwidth: per_second(sum.bytes),
            latency: sum.latency_nanos.checked_div(sum.requests).unwrap_or(0),
        })
    }
}

/// All parties of a run.
#[derive(Debug)]
pub(super) struct Watch {
    parties: Vec<Party>,
    /// When to [look](Self::look) next.
    pub(super) due: Instant,
}

impl Watch {
    /// The workers to watch; `None` for nobody.
    pub(super) fn new(assignments: &[Assignment]) -> Option<Self> {
        let mut parties: Vec<(Option<u32>, Party)> = Vec::new();
        for (index, assignment) in assignments.iter().enumerate() {
            let Some(steady) = assignment.workload.steady else { continue };
            let group = assignment.workload.steady_together.then_some(assignment.group);
            let mine = parties.iter_mut().find(|(other, _)| group.is_some() && *other == group);
            match mine {
                Some((_, party)) => party.workers.push(index),
                None => {
                    let state = SteadyState::new(steady);
                    let workers = vec![index];
                    let next = Instant::NEVER;
                    let (done, began, since) = (Vec::new(), None, None);
                    let party = Party { workers, state, done, began, since, next };
                    parties.push((group, party));
                }
            }
        }
        let parties: Vec<Party> = parties.into_iter().map(|(_, party)| party).collect();
        (!parties.is_empty()).then_some(Self { parties, due: Instant::START })
    }

    /// When to wake up; `None` if that depends on workers.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let next = self.parties.iter().map(|party| party.next).min();
        next.filter(|&next| next != Instant::NEVER)
    }

    /// Checks those that are due, and ends those that are steady.
    #[cold]
    pub(super) fn look(&mut self, workers: &mut [Worker<'_>], now: Instant) {
        let mut all_began = true;
        for party in &mut self.parties {
            let wanted = party.state.wanted;
            if party.began.is_none() {
                let first = party.workers.iter().filter_map(|&at| workers[at].began()).min();
                party.began = first;
                let ramp = wanted.ramp_seconds.saturating_mul(SECOND);
                party.next = first.map_or(Instant::NEVER, |first| first.after_nanos(ramp));
                all_began &= first.is_some();
            }
            if party.next == Instant::NEVER || now < party.next {
                continue;
            }
            if party.is_over(workers) {
                party.next = Instant::NEVER;
                continue;
            }
            let steady = party.measure(workers, now);
            party.next = now.after_nanos(wanted.interval_seconds.saturating_mul(SECOND));
            if steady {
                party.next = Instant::NEVER;
                party.workers.iter().for_each(|&at| workers[at].stop());
            }
        }
        let next = self.parties.iter().map(|party| party.next).min();
        // Who has not begun is asked again in the next round.
        self.due = if all_began { next.unwrap_or(Instant::NEVER) } else { now };
    }

    /// The result for worker number `worker`.
    pub(super) fn state(&self, worker: usize) -> Option<SteadyState> {
        let party = self.parties.iter().find(|party| party.workers.contains(&worker))?;
        Some(party.state.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(measure: SteadyMeasure, slope: bool, limit: f64, percent: bool) -> Steady {
        let (window_seconds, ramp_seconds, interval_seconds) = (4, 0, 1);
        Steady { measure, slope, limit, percent, window_seconds, ramp_seconds, interval_seconds }
    }

    /// The number of these values after which the state is steady.
    fn after(wanted: Steady, values: &[u64]) -> Option<usize> {
        let mut state = SteadyState::new(wanted);
        let mut measured =
            values.iter().map(|&it| Measured { iops: it, bandwidth: it, latency: it });
        measured.position(|measured| state.take(measured)).map(|at| at + 1)
    }

    #[test]
    fn a_full_window_near_its_mean_is_steady() {
        let of = |limit, percent| steady(SteadyMeasure::Iops, false, limit, percent);
        let values = [1000, 100, 104, 96, 100, 100, 100];
        assert_eq!(after(of(5.0, false), &values), Some(5));
        assert_eq!(after(of(4.0, true), &values), Some(7));
        assert_eq!(after(of(4.1, true), &values), Some(5));
        assert_eq!(after(of(0.0, true), &[5; 9]), None);
        // Nothing done is no steady state.
        assert_eq!(after(of(5.0, true), &[0; 9]), None);
    }

    #[test]
    fn a_level_line_is_steady_though_values_are_far_apart() {
        let of = |limit, percent| steady(SteadyMeasure::Bandwidth, true, limit, percent);
        // The slopes are -22, -6, -10, -1.
        assert_eq!(after(of(1.5, false), &[100, 50, 100, 10, 60, 50, 10]), Some(7));
        assert_eq!(after(of(1.0, false), &[10, 20, 30, 40, 50, 60]), None);
        assert_eq!(after(of(40.1, true), &[40, 30, 20, 10]), Some(4));
        let up = [10.0, 20.0, 30.0, 40.0];
        assert_eq!(slope(up.iter().copied()), 10.0);
        assert_eq!(slope([7.0].iter().copied()), 0.0);
    }
}
