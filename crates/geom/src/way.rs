//! Queued requests: the way of a lane through the graph.
//!
//! A graph performs requests one at a time ([`Graph::io`](crate::Graph::io)); a way accepts as many
//! as its disks do. The classes are asked once where requests go ([`Plan::new`]): partitions,
//! labels and everything else that only shifts requests collapse into one offset, and what remains
//! are the places where the way divides. A request is checked at the top and passes down by plain
//! calls; on the way up, only the places that have something to undo are involved. With one disk at
//! the bottom, its completion is returned unchanged.
//!
//! A request that is divided, or may have to be retried, becomes a *job*. There is a fixed number
//! of jobs: nothing is allocated for a request. The token of a job's request identifies its job;
//! tokens of the caller are passed through. A job without incidents is created when the first disk
//! has accepted its request, and ends when that request comes back (`descend`); everything else
//! takes the long path of `steps`, out of line.
//!
//! A way belongs to one lane: it has no lock, and one lane of every disk. The graph belongs to
//! somebody else. What its owner must know - that a component failed - is reported as an
//! [`Incident`]; completions of changes that the component missed are held back until the other
//! components have recorded that and the way has been changed ([`Way::change`]).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flysch_api::block::{
    BlockDevice, BlockError, BlockGeometry, Completion, Operation, Refused, Request,
};
use flysch_api::machine::{DmaRegion, Instant};
use flysch_api::trace::Passage;

use crate::error;
use crate::object::{ConsumerId, ProviderId};
use crate::statistics::Traffic;

mod descend;
mod fan;
mod faults;
mod jobs;
mod lane;
mod mirror;
mod paths;
mod plan;
mod shape;
mod short;
mod steps;
#[cfg(test)]
mod tests;

use descend::{Risen, Up};
use jobs::{Jobs, NONE, OWN, Stage};
use lane::{Busy, Lane};
use plan::{Measured, TOP};
pub use plan::{Plan, Usage, Waits};
use short::Short;

/// What the owner of the graph must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incident {
    /// A component failed a request that the others completed: it is left out from now on. Changes
    /// are not reported as done until [`Way::change`]. Or a path failed: that is reported once, and
    /// nothing is held back.
    Lost {
        /// Its consumer.
        consumer: ConsumerId,
        /// Why.
        error: BlockError,
    },
    /// Bytes that a component could not read were rewritten from another one.
    Mended {
        /// Its consumer.
        consumer: ConsumerId,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
}

/// The way of one lane through the graph.
#[derive(Debug)]
pub struct Way<D> {
    /// The lane of a way that does not divide; otherwise it is one of [`lanes`](Self::lanes).
    one: Option<Lane<D>>,
    /// By operation: requests that end before this byte need no closer look. It is the provider's
    /// size, or 0.
    simple: [u64; 4],
    /// How simple requests go if they do not go to one lane.
    short: Short,
    /// Changes that took the short way to both halves of a mirror, and are not counted at the
    /// branches yet.
    both: Traffic,
    /// The lane that is polled first.
    turn: usize,
    busy: Busy,
    plan: Plan,
    lanes: Vec<Lane<D>>,
    jobs: Jobs,
    /// Requests that have ended but were not yet passed to the caller or to their jobs.
    ended: VecDeque<(Up, Completion)>,
    /// Changes that a component missed: done, but not reported before the graph knows.
    kept: Vec<Completion>,
    incidents: VecDeque<Incident>,
    geometry: BlockGeometry,
    is_paused: bool,
}

impl<D: BlockDevice> Way<D> {
    /// The way described by `plan`, with a lane of every disk. All lanes must take data from the
    /// same memory.
    ///
    /// # Errors
    /// If a disk has no lane, or if the sectors are not a multiple of its blocks.
    pub fn new(
        plan: Plan,
        lane: impl FnMut(ProviderId) -> Option<D>,
    ) -> Result<Self, error::GeomError> {
        let mut way = Self {
            one: None,
            simple: [0; 4],
            short: Short::No,
            both: Traffic::NONE,
            turn: 0,
            busy: Busy::default(),
            geometry: shape::NOTHING,
            jobs: Jobs::new(0, 0),
            plan: Plan::default(),
            lanes: Vec::new(),
            ended: VecDeque::new(),
            kept: Vec::new(),
            incidents: VecDeque::new(),
            is_paused: false,
        };
        way.change(plan, lane)?;
        Ok(way)
    }

    /// Switches to another plan. Lanes of disks that stay are kept, those of others are returned;
    /// `lane` opens new ones. Completions held back are now reported, and requests are accepted
    /// again. Returns the old plan, for [`Plan::account`], and the lanes.
    ///
    /// # Errors
    /// If it is not quiet; as for [`new`](Self::new). Nothing is changed then.
    pub fn change(
        &mut self,
        plan: Plan,
        mut lane: impl FnMut(ProviderId) -> Option<D>,
    ) -> Result<(Plan, Vec<(ProviderId, D)>), error::GeomError> {
        if !self.is_quiet() {
            let cause = "has requests under way; pause it and poll until it is quiet";
            return Err(error::GeomError::new(error::Kind::Busy, "the way", cause));
        }
        let mut opened = Vec::new();
        for &disk in plan.disks() {
            if self.all_lanes().all(|lane| lane.disk != disk) {
                let missing = || error::GeomError::not_found("disk", "with a lane");
                opened.push(Lane::new(disk, lane(disk).ok_or_else(missing)?));
            }
        }
        let all = || self.all_lanes().chain(&opened);
        let wanted = || plan.disks().iter().filter_map(|&it| all().find(|lane| lane.disk == it));
        let geometry = shape::of(&plan, wanted().map(|lane| lane.device.geometry()))?;
        // What a lane checks itself is left to it, unless it would be less strict.
        let is_same = |lane: &Lane<D>| lane.device.geometry().block_size == geometry.block_size;
        let is_simple = wanted().all(is_same);
        self.measure(None);
        // What was held back is still to be delivered.
        self.busy = Busy::default();
        self.busy.started = self.kept.len() as u64;
        self.lanes.extend(self.one.take());
        self.lanes.iter_mut().for_each(Lane::forget);
        self.lanes.append(&mut opened);
        for (at, &disk) in plan.disks().iter().enumerate() {
            let found = self.lanes.iter().position(|lane| lane.disk == disk);
            self.lanes.swap(at, found.expect("each has a lane"));
        }
        let given = self.lanes.drain(plan.disks().len()..);
        let given = given.map(|lane| (lane.disk, lane.device)).collect();
        let count = if plan.fans.is_empty() { 0 } else { geometry.queue_depth };
        self.jobs = Jobs::new(count, plan.depth + 1);
        self.ended.extend(self.kept.drain(..).map(|completion| (Up::Out, completion)));
        let is_direct = plan.is_direct() && self.ended.is_empty();
        self.one = if is_direct { self.lanes.pop() } else { None };
        if is_direct {
            // Everything the plan counted before has ended.
            self.busy.started = plan.direct.total();
            self.busy.ended = self.busy.started;
        }
        let most = self.jobs.capacity();
        self.ended.reserve(most);
        self.kept.reserve(most);
        self.incidents.reserve(plan.edges.len() + fan::MEMBERS_MAX);
        (self.geometry, self.turn, self.is_paused) = (geometry, 0, false);
        let size = if is_simple { geometry.bytes() } else { 0 };
        self.simple = [0; 4];
        self.simple[Operation::Read as usize] = size;
        self.simple[Operation::Write as usize] = if geometry.read_only { 0 } else { size };
        let old = core::mem::replace(&mut self.plan, plan);
        self.know_branches();
        self.shorten();
        Ok((old, given))
    }

    /// Records how busy everything was.
    fn measure(&mut self, now: Option<Instant>) {
        self.count_short();
        self.busy.started += self.began();
        let measured = |busy: &Busy| Measured {
            in_flight: busy.in_flight(),
            nanos: busy.nanos(now),
            failures: busy.failures,
        };
        let all = core::iter::once(&self.busy).chain(self.lanes.iter().map(|lane| &lane.busy));
        self.plan.measured = all.map(measured).collect();
    }

    /// The plan, with its traffic so far ([`Plan::usage`]). The totals are cumulative: add them to
    /// the graph's statistics ([`Plan::account`]) when the way ends or changes.
    pub fn plan(&mut self, now: Instant) -> &Plan {
        self.measure(Some(now));
        &self.plan
    }

    fn all_lanes(&self) -> impl Iterator<Item = &Lane<D>> {
        self.one.iter().chain(&self.lanes)
    }

    /// The oldest incident not yet reported.
    pub fn incident(&mut self) -> Option<Incident> {
        self.incidents.pop_front()
    }

    /// Accepts no more requests. [`change`](Self::change) accepts them again.
    pub fn pause(&mut self) {
        (self.is_paused, self.simple) = (true, [0; 4]);
        self.shorten();
    }

    /// Whether nothing is in flight, except completions held back.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let started = self.busy.started + self.began();
        started == self.busy.ended + self.kept.len() as u64
    }

    /// Requests to the only lane that do not count as started yet: so far they are counted only as
    /// traffic.
    fn began(&self) -> u64 {
        if self.one.is_some() { self.plan.direct.total() - self.busy.started } else { 0 }
    }

    /// Ends the way: returns its plan, with its traffic, and the lanes.
    pub fn into_parts(mut self) -> (Plan, Vec<(ProviderId, D)>) {
        self.measure(None);
        let lanes = self.one.into_iter().chain(self.lanes);
        (self.plan, lanes.map(|lane| (lane.disk, lane.device)).collect())
    }

    /// A request that is not simple, or that comes while not all are accepted. Its offset has
    /// already been adjusted according to the plan.
    #[cold]
    fn submit_closely(&mut self, mut request: Request, now: Instant) -> Result<(), Refused> {
        request.offset = request.offset.wrapping_sub(self.plan.base);
        if self.is_paused {
            return Err(Refused::Full);
        }
        self.geometry.check(&request).map_err(Refused::Invalid)?;
        if let Some(lane) = &mut self.one {
            let base = if request.operation == Operation::Flush { 0 } else { self.plan.base };
            request.offset += base;
            lane.device.submit(&request, now)?;
            self.plan.direct.count(&request);
            return Ok(());
        }
        if request.token & OWN != 0 {
            // It would be taken for one of ours.
            self.begin_slowly(NONE, request, (Stage::Pieces(0), 0), now)?;
        } else {
            self.descend(TOP, (&request, request.offset), 0, now)?;
        }
        self.busy.started += 1;
        self.shorten();
        Ok(())
    }

    /// A simple request to a way that divides and is not short. Its offset has already been
    /// adjusted.
    #[inline(never)]
    fn submit_divided(&mut self, mut request: Request, now: Instant) -> Result<(), Refused> {
        if request.token & OWN != 0 {
            return self.submit_closely(request, now);
        }
        let there = request.offset;
        request.offset = there.wrapping_sub(self.plan.base);
        self.divide(0, (&request, there), (TOP, 0), now)?;
        self.busy.started += 1;
        Ok(())
    }

    /// The next completion of any lane.
    #[inline(always)]
    fn poll_lanes(&mut self, now: Instant) -> Option<Completion> {
        for _ in 0..self.lanes.len() {
            let lane = &mut self.lanes[self.turn];
            if let Some(completion) = lane.poll(now) {
                return Some(completion);
            }
            self.turn += 1;
            if self.turn == self.lanes.len() {
                self.turn = 0;
            }
        }
        None
    }

    /// The next completion for the caller, if the way divides and is not short.
    #[inline(never)]
    fn poll_divided(&mut self, now: Instant) -> Option<Completion> {
        if self.ended.is_empty() {
            while let Some(lane) = self.lanes.get_mut(self.turn)
                && let Some(completion) = lane.poll(now)
            {
                if completion.token & OWN == 0 {
                    return self.deliver(completion);
                }
                match self.rise(completion) {
                    Risen::Ended(completion) => return self.deliver(completion),
                    Risen::Waits => {}
                    Risen::Above(part) => return self.poll_closely((Some(part), None), now),
                    Risen::Slowly(part) => return self.poll_closely((None, Some(part)), now),
                }
            }
        }
        self.poll_closely((None, None), now)
    }

    /// The same, for anything that can come, after a part or a completion that needs attention.
    #[inline(never)]
    fn poll_closely(
        &mut self,
        (part, ill): (Option<Completion>, Option<Completion>),
        now: Instant,
    ) -> Option<Completion> {
        let completion = self.poll_everything((part, ill), now);
        self.shorten();
        if !matches!(self.short, Short::No) {
            // Nobody else rings the doorbells for what was sent here.
            self.ring(now);
        }
        match completion {
            Some(completion) => self.deliver(completion),
            None => self.drained(now),
        }
    }

    /// Nothing more has come back. Out of line: then the counters need not be at hand.
    #[inline(never)]
    fn drained(&mut self, now: Instant) -> Option<Completion> {
        self.busy.drained(now);
        None
    }

    fn poll_everything(
        &mut self,
        (part, ill): (Option<Completion>, Option<Completion>),
        now: Instant,
    ) -> Option<Completion> {
        if let Some(ill) = ill {
            self.came_back(&ill, now);
        }
        let mut next = part.map(|part| (Up::Part, part));
        loop {
            let up = |it: &Completion| if it.token & OWN == 0 { Up::Out } else { Up::Part };
            let known = next.take().or_else(|| self.ended.pop_front());
            match known.or_else(|| self.poll_lanes(now).map(|it| (up(&it), it))) {
                Some((Up::Out, completion)) => return Some(completion),
                Some((Up::Part, part)) => match self.rise(part) {
                    Risen::Ended(completion) => return Some(completion),
                    Risen::Waits => {}
                    Risen::Above(part) => next = Some((Up::Part, part)),
                    Risen::Slowly(part) => self.came_back(&part, now),
                },
                None if self.unstall(now) => {}
                None => return None,
            }
        }
    }

    /// The lanes have nothing more: requests that found no room below are retried, and the
    /// doorbells ring. Returns whether that ended anything.
    #[inline(never)]
    fn unstall(&mut self, now: Instant) -> bool {
        for _ in 0..self.jobs.stalled() {
            let Some(number) = self.jobs.unstall() else { break };
            self.go_on(number, now);
        }
        self.ring(now);
        !self.ended.is_empty()
    }

    fn tell(&mut self, incident: Incident) {
        // Losses are never omitted: there are fewer of them than branches.
        let is_loss = matches!(incident, Incident::Lost { .. });
        if is_loss || self.incidents.len() < fan::MEMBERS_MAX {
            self.incidents.push_back(incident);
        }
    }
}

impl<D: BlockDevice> BlockDevice for Way<D> {
    fn geometry(&self) -> &BlockGeometry {
        &self.geometry
    }

    /// The memory of the first lane: it is the same for all.
    fn memory(&self) -> &DmaRegion {
        self.one.as_ref().unwrap_or_else(|| &self.lanes[0]).device.memory()
    }

    /// What the lanes check themselves - the data, their capabilities - is left to them.
    #[inline]
    fn submit(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        let Request { operation, offset, length, .. } = *request;
        let last = offset.wrapping_add(length).wrapping_sub(1);
        if last < offset || last >= self.simple[operation as usize] {
            // A new request, because one whose address is not shared need not be in memory. For a
            // mere copy the compiler might pass the address of this one.
            let offset = offset.wrapping_add(self.plan.base);
            return self.submit_closely(Request { offset, ..*request }, now);
        }
        let there = offset.wrapping_add(self.plan.base);
        if let Some(lane) = &mut self.one {
            lane.device.submit(&Request { offset: there, ..*request }, now)?;
            self.plan.direct.count(request);
            return Ok(());
        }
        if request.crypto.is_some() {
            return self.submit_closely(Request { offset: there, ..*request }, now);
        }
        match self.short {
            Short::Turns(turns) => self.submit_to_turn(turns, (request, there), now),
            Short::Pair => self.submit_to_pair((request, there), now),
            Short::No => self.submit_divided(Request { offset: there, ..*request }, now),
        }
    }

    #[inline]
    fn ring(&mut self, now: Instant) {
        self.busy.started += self.began();
        self.busy.rang(now);
        if let Some(lane) = &mut self.one {
            return lane.device.ring(now);
        }
        for lane in &mut self.lanes {
            lane.ring(now);
        }
    }

    #[inline]
    fn poll(&mut self, now: Instant) -> Option<Completion> {
        if let Some(lane) = &mut self.one {
            return match lane.device.poll(now) {
                Some(completion) => self.deliver(completion),
                None => self.drained(now),
            };
        }
        match self.short {
            Short::No => self.poll_divided(now),
            Short::Turns(_) | Short::Pair => self.poll_short(now),
        }
    }

    fn poll_at(&self) -> Option<Instant> {
        self.all_lanes().filter_map(|lane| lane.device.poll_at()).chain(self.jobs.waits()).min()
    }
}

/// The passage of a request that never reached a disk.
const fn nowhere(accepted: Instant) -> Passage {
    Passage { accepted, issued: accepted, device_done: None, seen: accepted }
}
