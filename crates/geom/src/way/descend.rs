//! How requests go down where the way divides, and how those without incidents come back.

use flysch_api::block::{BlockDevice, BlockError, Completion, Operation, Refused, Request};
use flysch_api::machine::Instant;

use super::Way;
use super::fan::{Kind, lowest};
use super::jobs::{Jobs, Stage, join, owner, token};
use super::lane::Lane;
use super::mirror::Mirror;
use super::paths::Paths;
use super::plan::{Edge, Plan, TOP};
use crate::class::mirror::is_components;
use crate::class::multipath::is_paths;

/// The result of making a request a job.
enum Begun {
    /// It is a job now.
    Taken,
    /// It is a job now, and has more to do.
    GoesOn(u32),
    /// It was not accepted.
    Refused(Refused),
    /// It needs a closer look: it becomes a job in this stage.
    Slowly(Stage),
}

/// Where a completion goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Up {
    /// To the caller.
    Out,
    /// To the job of which it is a part.
    Part,
}

/// The result of the completion of a part.
pub(super) enum Risen {
    /// It completes the caller's request.
    Ended(Completion),
    /// Others are outstanding.
    Waits,
    /// It completes a part of another job.
    Above(Completion),
    /// It needs a closer look.
    Slowly(Completion),
}

/// What a job needs to begin.
struct Below<'a, D> {
    edges: &'a mut [Edge],
    lanes: &'a mut [Lane<D>],
    jobs: &'a mut Jobs,
}

impl<'a, D: BlockDevice> Below<'a, D> {
    #[inline(always)]
    fn new(edges: &'a mut [Edge], lanes: &'a mut [Lane<D>], jobs: &'a mut Jobs) -> Self {
        Self { edges, lanes, jobs }
    }

    /// How much a branch has to do.
    #[inline(always)]
    fn load(&self, branch: u32, offset: u64) -> u64 {
        self.edges.get(branch as usize).map_or(u64::MAX, |edge| edge.load(self.lanes, offset))
    }
}

impl<D: BlockDevice> Way<D> {
    /// Sends a request down a branch, to `offset` there. The request is the caller's if the branch
    /// is the first one, otherwise a job's.
    #[inline(never)]
    pub(super) fn descend(
        &mut self,
        from: u32,
        (request, offset): (&Request, u64),
        level: u8,
        now: Instant,
    ) -> Result<(), Refused> {
        let edge = &mut self.plan.edges[from as usize];
        let base = if request.operation == Operation::Flush { 0 } else { edge.base };
        let (offset, fan) = (offset.wrapping_add(base), edge.fan);
        let Some(lane) = self.lanes.get_mut(edge.lane as usize) else {
            return self.divide(fan, (request, offset), (from, level), now);
        };
        lane.submit(&Request { offset, ..*request }, now)?;
        self.count(from, from, request);
        Ok(())
    }

    /// Sends a request on from a place where the way divides; it arrived there by the branch
    /// `from`.
    #[inline]
    pub(super) fn divide(
        &mut self,
        mut fan: u32,
        (request, mut offset): (&Request, u64),
        (from, level): (u32, u8),
        now: Instant,
    ) -> Result<(), Refused> {
        let stage = loop {
            let Plan { fans, edges, .. } = &mut self.plan;
            let Some(place) = fans.get_mut(fan as usize) else { return Err(Refused::Full) };
            let (member, there, room) = match &mut place.kind {
                Kind::Mirror(mirror) => {
                    let below = Below::new(&mut edges[..], &mut self.lanes, &mut self.jobs);
                    let numbers = (fan, place.first, level);
                    let begun = to_mirror(mirror, numbers, (request, offset), below, now);
                    match begun {
                        Begun::Taken if from == TOP => {
                            place.whole.count(request);
                            return Ok(());
                        }
                        Begun::Refused(refused) => return Err(refused),
                        Begun::Slowly(stage) => break stage,
                        Begun::Taken | Begun::GoesOn(_) => {}
                    }
                    let above = place.above;
                    self.count(from, above, request);
                    if let Begun::GoesOn(number) = begun {
                        self.go_on(number, now);
                    }
                    return Ok(());
                }
                Kind::Paths(paths) => {
                    let below = Below::new(&mut edges[..], &mut self.lanes, &mut self.jobs);
                    match by_path(paths, (fan, place.first, level), (request, offset), below, now) {
                        Begun::Refused(refused) => return Err(refused),
                        Begun::Slowly(stage) => break stage,
                        Begun::Taken | Begun::GoesOn(_) => {}
                    }
                    let above = place.above;
                    self.count(from, above, request);
                    return Ok(());
                }
                _ if request.operation == Operation::Flush => break place.to_each(),
                Kind::Stripe(stripe) => stripe.place(offset),
                Kind::Concat(concat) => concat.place(offset),
                Kind::Faults(chance) => match chance.stage(request.operation, now) {
                    None => (0, offset, u64::MAX),
                    Some(stage) => break stage,
                },
            };
            if request.length > room {
                break Stage::Pieces(0);
            }
            let number = place.first + member;
            let Some(edge) = edges.get_mut(number as usize) else { return Err(Refused::Full) };
            offset = there.wrapping_add(edge.base);
            let Some(lane) = self.lanes.get_mut(edge.lane as usize) else {
                fan = edge.fan;
                continue;
            };
            lane.submit(&Request { offset, ..*request }, now)?;
            if from == TOP {
                edge.whole.count(request);
            } else {
                self.count(from, number, request);
            }
            return Ok(());
        };
        self.slowly(fan, (request, offset), (stage, from, level), now)
    }

    /// Makes a request a job there, beginning with `stage`.
    #[inline(always)]
    fn slowly(
        &mut self,
        fan: u32,
        (request, offset): (&Request, u64),
        (stage, from, level): (Stage, u32, u8),
        now: Instant,
    ) -> Result<(), Refused> {
        if level == 0 {
            self.geometry.check(request).map_err(Refused::Invalid)?;
        }
        let above = self.plan.fans[fan as usize].above;
        self.begin_slowly(fan, Request { offset, ..*request }, (stage, level), now)?;
        self.count(from, above, request);
        Ok(())
    }

    /// The same for a part of a job there, which continues as if it had come from above.
    #[inline(never)]
    pub(super) fn divide_again(
        &mut self,
        fan: u32,
        request: &Request,
        level: u8,
        now: Instant,
    ) -> Result<(), Refused> {
        let from = self.plan.fans[fan as usize].above;
        // It was counted there: it is not another request.
        self.divide(fan, (request, request.offset), (from | AGAIN, level), now)
    }

    /// Counts a request that came down one branch and passed through others to a last one.
    #[inline(never)]
    fn count(&mut self, from: u32, last: u32, request: &Request) {
        if from == TOP {
            self.plan.edges[last as usize].whole.count(request);
            return;
        }
        let mut at = last;
        while at != from & !AGAIN {
            self.plan.edges[at as usize].parts.count(request);
            at = self.plan.edges[at as usize].above;
        }
        if from & AGAIN == 0 {
            self.plan.edges[at as usize].parts.count(request);
        }
    }

    /// Begins a job. From then on its request is accepted, whatever happens to it.
    #[cold]
    pub(super) fn begin_slowly(
        &mut self,
        fan: u32,
        request: Request,
        (stage, level): (Stage, u8),
        now: Instant,
    ) -> Result<(), Refused> {
        let number = self.jobs.next(level).ok_or(Refused::Full)?;
        self.jobs.begin(fan, (&request, request.offset), level, (stage, 0));
        self.go_on(number, now);
        Ok(())
    }

    /// A part came back.
    #[inline]
    pub(super) fn rise(&mut self, mut completion: Completion) -> Risen {
        if completion.result.is_err() {
            return Risen::Slowly(completion);
        }
        let (number, _) = owner(completion.token);
        let Some(job) = self.jobs.get(number) else { return Risen::Waits };
        match job.stage {
            Stage::First | Stage::Part => {}
            Stage::All => {
                if job.pending > 1 {
                    job.pending -= 1;
                    job.passed(&completion.passage);
                    return Risen::Waits;
                }
                match self.plan.mirror_mut(job.fan) {
                    Some(mirror) if mirror.lost == 0 => {}
                    _ => return Risen::Slowly(completion),
                }
                if let Some(other) = job.passage.take() {
                    join(&mut completion.passage, &other);
                }
            }
            _ => return Risen::Slowly(completion),
        }
        completion.token = job.request.token;
        let level = job.level;
        self.jobs.free(number);
        if level == 0 { Risen::Ended(completion) } else { Risen::Above(completion) }
    }
}

/// Marks a branch on which the request has already been counted.
const AGAIN: u32 = 1 << 31;

/// Begins a request to several paths.
#[inline(always)]
fn by_path<D: BlockDevice>(
    paths: &mut Paths,
    (fan, first, level): (u32, u32, u8),
    (request, offset): (&Request, u64),
    below: Below<'_, D>,
    now: Instant,
) -> Begun {
    let load = |member| below.load(first + member, 0) >> 1;
    let path = paths.choose(request.operation, load, 0);
    let chosen = (path.map(|path| first + path), is_paths as _);
    ask(chosen, (fan, first, level), (request, offset), below, now)
}

/// Begins a request to a mirror: a read on the half chosen for it, a change on all of them.
#[inline(always)]
fn to_mirror<D: BlockDevice>(
    mirror: &mut Mirror,
    (fan, first, level): (u32, u32, u8),
    (request, offset): (&Request, u64),
    below: Below<'_, D>,
    now: Instant,
) -> Begun {
    let numbers = (fan, first, level);
    if request.operation != Operation::Read {
        return change(mirror, numbers, (request, offset), below, now);
    }
    if request.length > mirror.slice {
        return Begun::Slowly(Stage::Pieces(0));
    }
    let reader = mirror.reader(|member| below.load(first + member, offset), 0);
    let branch = reader.map(|member| first + member);
    ask((branch, is_components as _), numbers, (request, offset), below, now)
}

/// A request to one member, down this branch: it becomes a job when the member has accepted it.
/// `is_its` tells whether an error is the member's fault.
#[inline(always)]
fn ask<D: BlockDevice>(
    (branch, is_its): (Option<u32>, fn(BlockError) -> bool),
    (fan, _, level): (u32, u32, u8),
    (request, offset): (&Request, u64),
    below: Below<'_, D>,
    now: Instant,
) -> Begun {
    const CLOSELY: Begun = Begun::Slowly(Stage::Ask { tried: 0, gone: 0, is_sent: false });
    let Some(number) = below.jobs.next(level) else { return Begun::Refused(Refused::Full) };
    let Some(branch) = branch else { return CLOSELY };
    let Some(edge) = below.edges.get_mut(branch as usize) else { return CLOSELY };
    let Some(lane) = below.lanes.get_mut(edge.lane as usize) else { return CLOSELY };
    let is_flush = request.operation == Operation::Flush;
    let there = if is_flush { 0 } else { offset.wrapping_add(edge.base) };
    let own = Request { token: token(number, branch), offset: there, ..*request };
    match lane.submit(&own, now) {
        Ok(()) => {
            edge.parts.count(request);
            lane.head = there.wrapping_add(request.length);
            let stage = if level == 0 { Stage::First } else { Stage::Part };
            below.jobs.begin(fan, (request, offset), level, (stage, 1));
            Begun::Taken
        }
        Err(Refused::Invalid(error)) if is_its(error) => CLOSELY,
        Err(refused) => Begun::Refused(refused),
    }
}

/// A change of a mirror, or a flush: the same to each member.
#[inline(always)]
fn change<D: BlockDevice>(
    mirror: &mut Mirror,
    (fan, first, level): (u32, u32, u8),
    (request, offset): (&Request, u64),
    below: Below<'_, D>,
    now: Instant,
) -> Begun {
    let is_flush = request.operation == Operation::Flush;
    if mirror.mending > 0 && !is_flush {
        return Begun::Refused(Refused::Full);
    }
    let Some(number) = below.jobs.next(level) else { return Begun::Refused(Refused::Full) };
    let all = mirror.there();
    let (mut left, mut pending) = (all, 0);
    while let Some(member) = lowest(left) {
        let branch = first + member;
        let Some(edge) = below.edges.get_mut(branch as usize) else { break };
        let Some(lane) = below.lanes.get_mut(edge.lane as usize) else { break };
        let there = if is_flush { 0 } else { offset.wrapping_add(edge.base) };
        let own = Request { token: token(number, branch), offset: there, ..*request };
        match lane.submit(&own, now) {
            Ok(()) => edge.parts.count(request),
            Err(refused) if pending == 0 && !is_members(refused) => {
                return Begun::Refused(refused);
            }
            // The failure occurs again below, and is handled there.
            Err(_) => break,
        }
        left &= left - 1;
        pending += 1;
    }
    if pending == 0 {
        return Begun::Slowly(Stage::Each { left, failed: 0, all });
    }
    let is_plain = left == 0 && level == 0;
    let stage = if is_plain { Stage::All } else { Stage::Each { left, failed: 0, all } };
    below.jobs.begin(fan, (request, offset), level, (stage, pending));
    if left == 0 { Begun::Taken } else { Begun::GoesOn(number) }
}

/// Whether a refusal is the member's fault.
fn is_members(refused: Refused) -> bool {
    matches!(refused, Refused::Invalid(error) if is_components(error))
}
