//! The short way: requests without incidents, where the way divides at most once.
//!
//! What most requests need is known when a way is made: they go to the only lane, to one lane of a
//! stripe, to one half of a mirror or to both. The code here does no more than that. Everything
//! else - requests that cross a stripe, failures, dropped halves, waiting for room, ways that
//! divide again - is done out of line (`descend`, `steps`) with the same jobs and lanes; when that
//! has ended, the short way is taken again ([`Way::shorten`]).
//!
//! Nothing here may pass the request's address to a function that is not inlined: otherwise the
//! compiler keeps all of it in memory, for every request. Nor may a mere copy be passed on, which
//! the compiler treats as the original: what is passed is a request with another offset.

use core::num::NonZeroU32;

use flysch_api::block::{BlockDevice, Completion, Operation, Refused, Request};
use flysch_api::machine::Instant;

use super::descend::Risen;
use super::fan::{Fan, Kind};
use super::jobs::{OWN, Stage, join, owner, token};
use super::lane::{Branch, Lane};
use super::{Plan, Way};
use crate::statistics::Traffic;

/// The kind of short way.
#[derive(Clone, Copy, Debug)]
pub(super) enum Short {
    /// None: each request is examined closely.
    No,
    /// To one lane of several, in turn.
    Turns(Turns),
    /// Reads to one of two halves, changes to both.
    Pair,
}

/// A stripe of up to 2^32 turns, each a power of two in size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    shift: u32,
    count: NonZeroU32,
    /// Size of a turn, bytes.
    size: u64,
}

impl Turns {
    /// Turns of `size` bytes over `count` lanes; `None` if it is not that simple.
    pub(super) fn new(bytes: u64, size: u64, count: u64) -> Option<Self> {
        let shift = size.is_power_of_two().then(|| size.trailing_zeros())?;
        u32::try_from(bytes >> shift).ok()?;
        let count = NonZeroU32::new(u32::try_from(count).ok()?)?;
        Some(Self { shift, count, size })
    }

    /// The lane that holds a range, and where on it; `None` if the range extends beyond its turn.
    #[inline(always)]
    fn place(&self, at: u64, length: u64) -> Option<(u32, u64)> {
        let turn = (at >> self.shift) as u32;
        let row = u64::from(turn / self.count);
        let inside = at & (self.size - 1);
        // Neither exceeds the size of the provider.
        let is_whole = inside + length <= self.size;
        is_whole.then_some((turn % self.count, row << self.shift | inside))
    }
}

impl Short {
    /// The short way of a plan, without incidents: each branch of its only division leads to a
    /// different lane.
    fn of(plan: &Plan) -> Self {
        let [Fan { first, count, kind, .. }] = &plan.fans[..] else { return Self::No };
        let below = plan.edges.iter().skip(*first as usize).take(*count as usize);
        let is_own = below.enumerate().all(|(member, edge)| edge.lane == member as u32);
        match kind {
            Kind::Stripe(stripe) if is_own => {
                stripe.turns(plan.size.0.saturating_add(plan.base)).map_or(Self::No, Self::Turns)
            }
            Kind::Mirror(mirror) if is_own && mirror.is_plain_pair() => Self::Pair,
            _ => Self::No,
        }
    }
}

impl<D: BlockDevice> Way<D> {
    /// An incident may have begun or ended: takes the short way or not. Everything that can change
    /// that ends with this.
    pub(super) fn shorten(&mut self) {
        let is_free = !self.is_paused && self.ended.is_empty() && self.jobs.stalled() == 0;
        self.short = if is_free { Short::of(&self.plan) } else { Short::No };
    }

    /// Tells the lanes the branches that lead to them.
    pub(super) fn know_branches(&mut self) {
        let Some(fan) = self.plan.fans.first() else { return };
        let below = self.plan.edges.iter().enumerate().skip(fan.first as usize);
        for ((branch, edge), lane) in below.zip(&mut self.lanes) {
            let tag = token(0, branch as u32);
            lane.branch = Branch { base: edge.base, tag, traffic: Traffic::NONE };
        }
    }

    /// Counts short-way traffic together with all other traffic.
    pub(super) fn count_short(&mut self) {
        let Plan { fans, edges, .. } = &mut self.plan;
        let Some(fan) = fans.first_mut() else { return };
        let both = core::mem::replace(&mut self.both, Traffic::NONE);
        fan.whole.add(&both);
        for (edge, lane) in edges.iter_mut().skip(fan.first as usize).zip(&mut self.lanes) {
            edge.parts.add(&both);
            edge.whole.add(&core::mem::replace(&mut lane.branch.traffic, Traffic::NONE));
        }
    }

    /// A request to a stripe, whose offset has been adjusted already.
    #[inline(always)]
    pub(super) fn submit_to_turn(
        &mut self,
        turns: Turns,
        (request, offset): (&Request, u64),
        now: Instant,
    ) -> Result<(), Refused> {
        let place = turns.place(offset, request.length).filter(|_| request.token & OWN == 0);
        let Some((member, there)) = place else {
            return self.submit_closely(Request { offset, ..*request }, now);
        };
        let Some(lane) = self.lanes.get_mut(member as usize) else { return Err(Refused::Full) };
        let there = there.wrapping_add(lane.branch.base);
        lane.submit(&Request { offset: there, ..*request }, now)?;
        lane.branch.traffic.count(request);
        self.busy.started += 1;
        Ok(())
    }

    /// A request to a mirror of two halves, whose offset has been adjusted already.
    #[inline(always)]
    pub(super) fn submit_to_pair(
        &mut self,
        (request, offset): (&Request, u64),
        now: Instant,
    ) -> Result<(), Refused> {
        let [one, other] = &mut self.lanes[..] else { return Err(Refused::Full) };
        let Some(slot) = self.jobs.slot() else { return Err(Refused::Full) };
        let number = u64::from(slot.number);
        let to = |lane: &Lane<D>, offset| Request {
            token: lane.branch.tag | number,
            offset,
            ..*request
        };
        let there = (offset.wrapping_add(one.branch.base), offset.wrapping_add(other.branch.base));
        if request.operation == Operation::Read {
            let is_other = other.is_before(there.1, one, there.0);
            let (lane, there) = if is_other { (other, there.1) } else { (one, there.0) };
            if lane.submit(&to(lane, there), now).is_err() {
                return self.submit_closely(Request { offset, ..*request }, now);
            }
            lane.head = there.wrapping_add(request.length);
            lane.branch.traffic.count(request);
            slot.begin((request, offset), (Stage::First, 1));
        } else {
            if one.submit(&to(one, there.0), now).is_err() {
                return self.submit_closely(Request { offset, ..*request }, now);
            }
            let is_whole = other.submit(&to(other, there.1), now).is_ok();
            self.both.count(request);
            if is_whole {
                slot.begin((request, offset), (Stage::All, 2));
            } else {
                // The failure occurs again below, and is handled there.
                slot.begin((request, offset), (Stage::Each { left: 2, failed: 0, all: 3 }, 1));
                self.go_on_closely(number as u32, now);
            }
        }
        self.busy.started += 1;
        Ok(())
    }

    /// A job that began the short way continues.
    #[cold]
    fn go_on_closely(&mut self, number: u32, now: Instant) {
        self.go_on(number, now);
        self.shorten();
    }

    /// The next completion for the caller, the short way.
    #[inline(always)]
    pub(super) fn poll_short(&mut self, now: Instant) -> Option<Completion> {
        while let Some(lane) = self.lanes.get_mut(self.turn)
            && let Some(mut completion) = lane.poll(now)
        {
            if completion.token & OWN != 0 {
                let Some(slot) = self.jobs.taken(owner(completion.token).0) else { continue };
                if completion.result.is_err() {
                    return self.poll_closely((None, Some(completion)), now);
                }
                match slot.job.stage {
                    Stage::First => {}
                    Stage::All if slot.job.pending > 1 => {
                        slot.job.pending = 1;
                        slot.job.passage = Some(completion.passage);
                        continue;
                    }
                    Stage::All => {
                        if let Some(other) = slot.job.passage.take() {
                            join(&mut completion.passage, &other);
                        }
                    }
                    _ => return self.poll_closely((None, Some(completion)), now),
                }
                completion.token = slot.end();
            }
            return self.deliver(completion);
        }
        self.poll_others(now)
    }

    /// The same when the lane whose turn it was has nothing more.
    #[inline(never)]
    fn poll_others(&mut self, now: Instant) -> Option<Completion> {
        for _ in 1..self.lanes.len() {
            self.turn += 1;
            if self.turn >= self.lanes.len() {
                self.turn = 0;
            }
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
        self.drained(now)
    }

    /// A request of the caller has ended.
    #[inline(always)]
    pub(super) fn deliver(&mut self, completion: Completion) -> Option<Completion> {
        self.busy.ended += 1;
        if completion.result.is_err() {
            self.busy.failures += 1;
        }
        Some(completion)
    }
}
