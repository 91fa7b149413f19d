//! Queued requests: the way of a lane through the graph.
//!
//! A graph does requests one at a time ([`Graph::io`](crate::Graph::io)); a way takes as many as
//! its disks do. Where requests go is asked of the classes once
//! ([`Graph::plan`](crate::Graph::plan)): partitions, labels and whatever else only moves them come
//! together into one sum, and what is left is where ways divide. A request is checked at the top
//! and takes its way by plain calls; on the way up only those act that have something to undo. With
//! one disk at the bottom its completion is passed on as it is.
//!
//! What is divided, or may have to be asked again, is a *job*, of which there is a fixed number:
//! nothing is allocated for a request. The token of a job's request says whose it is; tokens of the
//! caller travel as they are.
//!
//! A way is one lane's: it has no lock, and a lane of every disk. The graph belongs to somebody
//! else. What that one must know - that a component failed - is an [`Incident`]; changes that the
//! component missed are kept back until the others say so and the way was changed
//! ([`Way::change`]).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flysch_api::block::{Completion, Device, Error, Geometry, Operation, Refused, Request};
use flysch_api::machine::{DmaRegion, Instant};
use flysch_api::trace::Passage;

use crate::error;
use crate::object::{ConsumerId, ProviderId};

mod fan;
mod jobs;
mod plan;
mod shape;
mod steps;
#[cfg(test)]
mod tests;

use fan::Turn;
use jobs::{Job, Jobs, OWN, Stage};
pub use plan::Plan;
use plan::{Branch, To};

/// What the owner of the graph must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incident {
    /// A component did not do what the others did: it is left out from now on. Changes are not
    /// reported as done until [`Way::change`].
    Lost {
        /// The consumer that stands on it.
        consumer: ConsumerId,
        /// Why.
        error: Error,
    },
    /// Bytes that a component could not read were written to it as another one has them.
    Mended {
        /// The consumer that stands on it.
        consumer: ConsumerId,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
}

/// A lane of one disk.
#[derive(Debug)]
struct Lane<D> {
    disk: ProviderId,
    device: D,
    /// Something was submitted that no doorbell rang for.
    is_due: bool,
}

/// The way of one lane through the graph.
#[derive(Debug)]
pub struct Way<D> {
    geometry: Geometry,
    plan: Plan,
    lanes: Vec<Lane<D>>,
    jobs: Jobs,
    /// Callers' requests that ended and were not given back yet.
    done: VecDeque<Completion>,
    /// Jobs that ended and are requests of others, which do not know it yet.
    ended: VecDeque<Completion>,
    /// Changes that a component missed: done, and not to be told before the graph knows.
    kept: Vec<Completion>,
    incidents: VecDeque<Incident>,
    /// Callers' requests that were taken and not given back.
    in_flight: u32,
    /// Bytes of the provider.
    size: u64,
    is_paused: bool,
    /// It takes nothing, or no changes: a request needs a closer look.
    is_closed: bool,
    /// The lane that is asked first.
    turn: usize,
}

impl<D: Device> Way<D> {
    /// The way that `plan` says, with a lane of every disk. All lanes must take data from the same
    /// memory.
    ///
    /// # Errors
    /// That there is no lane of a disk; that its blocks do not divide the sectors.
    pub fn new(
        plan: Plan,
        lane: impl FnMut(ProviderId) -> Option<D>,
    ) -> Result<Self, error::Error> {
        let mut way = Self {
            geometry: shape::NOTHING,
            jobs: Jobs::new(0, 0),
            plan: Plan::default(),
            lanes: Vec::new(),
            done: VecDeque::new(),
            ended: VecDeque::new(),
            kept: Vec::new(),
            incidents: VecDeque::new(),
            in_flight: 0,
            size: 0,
            is_paused: false,
            is_closed: false,
            turn: 0,
        };
        way.change(plan, lane)?;
        Ok(way)
    }

    /// Goes another way from now on. Lanes of disks that stay are kept, those of others given back;
    /// `lane` opens new ones. What was kept back is told now, and requests are taken again. Returns
    /// the old plan, for [`Graph::account`](crate::Graph::account), and the lanes.
    ///
    /// # Errors
    /// That it is not quiet; as [`new`](Self::new). Nothing has changed then.
    pub fn change(
        &mut self,
        plan: Plan,
        mut lane: impl FnMut(ProviderId) -> Option<D>,
    ) -> Result<(Plan, Vec<(ProviderId, D)>), error::Error> {
        if !self.is_quiet() {
            let cause = "has requests under way; pause it and poll until it is quiet";
            return Err(error::Error::new(error::Kind::Busy, "the way", cause));
        }
        let mut opened = Vec::new();
        for &disk in plan.disks() {
            if self.lanes.iter().all(|lane| lane.disk != disk) {
                let missing = || error::Error::not_found("disk", "with a lane");
                opened.push(Lane { disk, device: lane(disk).ok_or_else(missing)?, is_due: false });
            }
        }
        let all = || self.lanes.iter().chain(&opened);
        let wanted = plan.disks().iter().filter_map(|&it| all().find(|lane| lane.disk == it));
        let geometry = shape::of(&plan, wanted.map(|lane| lane.device.geometry()))?;
        self.lanes.append(&mut opened);
        for (at, &disk) in plan.disks().iter().enumerate() {
            let found = self.lanes.iter().position(|lane| lane.disk == disk);
            self.lanes.swap(at, found.expect("each has a lane"));
        }
        let given = self.lanes.drain(plan.disks().len()..);
        let given = given.map(|lane| (lane.disk, lane.device)).collect();
        let count = if plan.fans.is_empty() { 0 } else { geometry.queue_depth };
        self.jobs = Jobs::new(count, plan.depth + 1);
        self.done.extend(self.kept.drain(..));
        let most = self.jobs.capacity();
        self.done.reserve(most);
        self.ended.reserve(most);
        self.kept.reserve(most);
        self.incidents.reserve(2 * fan::MEMBERS_MAX);
        (self.geometry, self.turn, self.is_paused) = (geometry, 0, false);
        (self.size, self.is_closed) = (geometry.bytes(), geometry.read_only);
        Ok((core::mem::replace(&mut self.plan, plan), given))
    }

    /// The oldest thing that happened and was not told yet.
    pub fn incident(&mut self) -> Option<Incident> {
        self.incidents.pop_front()
    }

    /// Takes no more requests. [`change`](Self::change) takes them again.
    pub fn pause(&mut self) {
        (self.is_paused, self.is_closed) = (true, true);
    }

    /// Why a request is not taken while not all are.
    #[cold]
    fn refuse(&self, request: &Request) -> Result<(), Refused> {
        if self.is_paused {
            return Err(Refused::Full);
        }
        self.geometry.check(request).map_err(Refused::Invalid)
    }

    /// Whether nothing is under way but what is kept back.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.in_flight as usize == self.kept.len()
    }

    /// Ends the way: its plan, with what went it, and the lanes.
    pub fn into_parts(self) -> (Plan, Vec<(ProviderId, D)>) {
        let lanes = self.lanes.into_iter().map(|lane| (lane.disk, lane.device));
        (self.plan, lanes.collect())
    }

    /// Sends a request down a branch, to `offset` there.
    fn descend(
        &mut self,
        branch: Branch,
        (request, offset): (&Request, u64),
        level: u8,
        now: Instant,
    ) -> Result<(), Refused> {
        let edge = self.plan.edge_mut(branch);
        let base = if request.operation == Operation::Flush { 0 } else { edge.base };
        let offset = offset.wrapping_add(base);
        match edge.to {
            To::Lane(lane) => {
                let lane = &mut self.lanes[lane as usize];
                lane.device.submit(&Request { offset, ..*request }, now)?;
                lane.is_due = true;
                edge.traffic.count(request);
            }
            To::Fan(fan) => {
                self.divide(fan, (request, offset), level, now)?;
                self.plan.edge_mut(branch).traffic.count(request);
            }
        }
        Ok(())
    }

    /// Sends a request on where the way divides.
    fn divide(
        &mut self,
        fan: u32,
        (request, offset): (&Request, u64),
        level: u8,
        now: Instant,
    ) -> Result<(), Refused> {
        let place = (request.operation, offset, request.length);
        match self.plan.fans[fan as usize].turn(place) {
            Turn::One(member, offset) => {
                self.descend(Branch::of(fan, member), (request, offset), level, now)
            }
            Turn::Job(stage) => {
                let request = Request { offset, ..*request };
                self.begin(Job::new(Some(fan), request, stage, level), now)
            }
            Turn::Later => Err(Refused::Full),
        }
    }

    /// Begins a job. From then on its request is taken, whatever becomes of it.
    fn begin(&mut self, job: Job, now: Instant) -> Result<(), Refused> {
        let number = self.jobs.take(job).ok_or(Refused::Full)?;
        if let Stage::Each { .. } = job.stage
            && let Some(mirror) = self.plan.mirror_mut(job.fan)
        {
            mirror.writing += 1;
        }
        self.go_on(number, now);
        Ok(())
    }

    /// A caller's request, where the way divides.
    fn submit_divided(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        self.geometry.check(request).map_err(Refused::Invalid)?;
        if request.token & OWN != 0 {
            // It would be taken for one of ours.
            return self.begin(Job::new(None, *request, Stage::Pieces(0), 0), now);
        }
        self.descend(Branch::TOP, (request, request.offset), 0, now)
    }

    /// The next completion of any lane.
    #[inline]
    fn poll_lanes(&mut self, now: Instant) -> Option<Completion> {
        for _ in 0..self.lanes.len() {
            if let Some(completion) = self.lanes[self.turn].device.poll(now) {
                return Some(completion);
            }
            self.turn += 1;
            if self.turn == self.lanes.len() {
                self.turn = 0;
            }
        }
        None
    }

    /// The next completion for the caller, where the way divides.
    fn poll_divided(&mut self, now: Instant) -> Option<Completion> {
        loop {
            if let Some(completion) = self.done.pop_front() {
                return Some(completion);
            }
            match self.ended.pop_front().or_else(|| self.poll_lanes(now)) {
                Some(completion) if completion.token & OWN == 0 => return Some(completion),
                Some(completion) => self.came_back(&completion, now),
                None if self.jobs.stalled() > 0 && self.unstall(now) => {}
                None => {
                    self.ring(now);
                    return None;
                }
            }
        }
    }

    /// Those that had no room below try again. Tells whether anything has ended by that.
    fn unstall(&mut self, now: Instant) -> bool {
        for _ in 0..self.jobs.stalled() {
            let Some(number) = self.jobs.unstall() else { break };
            self.go_on(number, now);
        }
        !self.done.is_empty() || !self.ended.is_empty()
    }

    fn tell(&mut self, incident: Incident) {
        // Losses are never left out: there are fewer than members.
        let is_loss = matches!(incident, Incident::Lost { .. });
        if is_loss || self.incidents.len() < fan::MEMBERS_MAX {
            self.incidents.push_back(incident);
        }
    }
}

impl<D: Device> Device for Way<D> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// That of the first lane: all have the same.
    fn memory(&self) -> &DmaRegion {
        self.lanes[0].device.memory()
    }

    /// What the lanes check themselves - the data, what they can do - is left to them.
    #[inline]
    fn submit(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        let mask = u64::from(self.geometry.block_size) - 1;
        if (request.offset | request.length) & mask != 0 {
            return Err(Refused::Invalid(Error::Misaligned));
        }
        if request.offset > self.size || request.length > self.size - request.offset {
            return Err(Refused::Invalid(Error::OutOfRange));
        }
        if self.is_closed {
            self.refuse(request)?;
        }
        let top = &mut self.plan.top;
        if let To::Lane(lane) = top.to {
            let base = if request.operation == Operation::Flush { 0 } else { top.base };
            let lane = &mut self.lanes[lane as usize];
            lane.device.submit(&Request { offset: request.offset + base, ..*request }, now)?;
            lane.is_due = true;
            top.traffic.count(request);
        } else {
            self.submit_divided(request, now)?;
        }
        self.in_flight += 1;
        Ok(())
    }

    #[inline]
    fn ring(&mut self, now: Instant) {
        for lane in &mut self.lanes {
            if lane.is_due {
                lane.is_due = false;
                lane.device.ring(now);
            }
        }
    }

    #[inline]
    fn poll(&mut self, now: Instant) -> Option<Completion> {
        let completion = match self.plan.top.to {
            To::Lane(lane) if self.done.is_empty() => self.lanes[lane as usize].device.poll(now)?,
            _ => self.poll_divided(now)?,
        };
        self.in_flight -= 1;
        self.plan.top.traffic.failures += u64::from(completion.result.is_err());
        Some(completion)
    }

    fn poll_at(&self) -> Option<Instant> {
        self.lanes.iter().filter_map(|lane| lane.device.poll_at()).min()
    }
}

/// A request that never came to a disk.
const fn nowhere(accepted: Instant) -> Passage {
    Passage { accepted, issued: accepted, device_done: None, seen: accepted }
}
