//! Relations between workers: who waits for whom, who ends with whom, who shares.

use core::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use flysch_api::machine::Instant;

use super::Assignment;
use super::worker::Worker;
use crate::workload::{Ends, Flow};

/// Who has ended so far, and the consequences.
pub(super) struct Company<'a> {
    assignments: &'a [Assignment],
    ended: Vec<bool>,
    /// A worker that has ended requires that nothing more starts.
    pub(super) halts: bool,
}

impl<'a> Company<'a> {
    pub(super) fn new(assignments: &'a [Assignment]) -> Self {
        Self { assignments, ended: vec![false; assignments.len()], halts: false }
    }

    /// Starts workers that wait for nobody.
    pub(super) fn start(&self, workers: &mut [Worker<'_>], now: Instant) {
        for (worker, assignment) in workers.iter_mut().zip(self.assignments) {
            if assignment.after.is_empty() {
                worker.start(now);
            }
        }
    }

    /// Some worker has ended: ends those that end with it, starts those that waited for it.
    #[cold]
    pub(super) fn settle(&mut self, workers: &mut [Worker<'_>], now: Instant) {
        for index in 0..workers.len() {
            if self.ended[index] || !workers[index].is_done() {
                continue;
            }
            self.ended[index] = true;
            let worker = &workers[index];
            let job = worker.job;
            let ends = if worker.has_failed() { job.ends_failed } else { job.ends };
            self.halts |= ends == Ends::All;
            let group = self.assignments[index].group;
            for (other, assignment) in workers.iter_mut().zip(self.assignments) {
                match ends {
                    Ends::Alone => {}
                    Ends::Group if assignment.group != group => {}
                    Ends::Group | Ends::Stage | Ends::All => other.stop(),
                }
            }
        }
        for (worker, assignment) in workers.iter_mut().zip(self.assignments) {
            let is_over = |&other: &usize| self.ended.get(other).copied().unwrap_or(true);
            if worker.is_waiting() && assignment.after.iter().all(is_over) {
                worker.start(now);
            }
        }
    }
}

/// The total usage of the workers of one flow.
#[derive(Debug, Default)]
struct Shares {
    /// Weights of the running workers.
    weights: Cell<u64>,
    taken: Cell<u64>,
    /// Rises when a worker comes or goes: all counts start again.
    round: Cell<u32>,
}

/// The flows of a run.
#[derive(Default)]
pub(super) struct Flows(BTreeMap<u32, Rc<Shares>>);

impl Flows {
    /// A worker's share in its flow.
    pub(super) fn part(&mut self, flow: Flow) -> Part {
        let shares = self.0.entry(flow.id).or_default().clone();
        Part { shares, weight: flow.weight.into(), taken: 0, round: 0, is_in: false }
    }
}

/// A worker's usage in its flow.
#[derive(Debug)]
pub(super) struct Part {
    shares: Rc<Shares>,
    weight: u64,
    taken: u64,
    round: u32,
    is_in: bool,
}

impl Part {
    fn change(&mut self, is_in: bool) {
        if self.is_in == is_in {
            return;
        }
        self.is_in = is_in;
        let Shares { weights, taken, round } = &*self.shares;
        let others = weights.get();
        weights.set(if is_in { others + self.weight } else { others - self.weight });
        taken.set(0);
        round.set(round.get().wrapping_add(1));
    }

    /// The worker starts.
    pub(super) fn enter(&mut self) {
        self.change(true);
    }

    /// The worker issues nothing more.
    pub(super) fn leave(&mut self) {
        self.change(false);
    }

    /// Whether the worker may issue a request. One worker of each flow always may, because they
    /// cannot all exceed their shares.
    pub(super) fn may(&mut self) -> bool {
        let Shares { weights, taken, round } = &*self.shares;
        if self.round != round.get() {
            (self.round, self.taken) = (round.get(), 0);
        }
        let own = u128::from(self.taken) * u128::from(weights.get());
        own <= u128::from(taken.get()) * u128::from(self.weight)
    }

    /// A request was issued.
    pub(super) fn take(&mut self) {
        self.taken += 1;
        self.shares.taken.set(self.shares.taken.get() + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_flow_are_as_their_weights() {
        let mut flows = Flows::default();
        let weights = [1, 3, 4];
        let mut parts = weights.map(|weight| flows.part(Flow { id: 7, weight }));
        let mut counts = [0_u32; 3];
        parts.iter_mut().for_each(Part::enter);
        for _ in 0..800 {
            let at = parts.iter_mut().position(Part::may).expect("one always may");
            parts[at].take();
            counts[at] += 1;
        }
        assert_eq!(counts, [100, 300, 400]);
        // Who has left is waited for no more.
        parts[1].leave();
        let mut counts = [0_u32; 3];
        for _ in 0..500 {
            let at = [0, 2].into_iter().find(|&at| parts[at].may()).expect("one always may");
            parts[at].take();
            counts[at] += 1;
        }
        assert_eq!(counts, [100, 0, 400]);
    }
}
