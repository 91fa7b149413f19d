//! The next steps of jobs.

use flysch_api::block::{BlockDevice, BlockError, Completion, Operation, Refused, Request};
use flysch_api::machine::Instant;
use flysch_api::trace::Passage;

use super::descend::Up;
use super::fan::{Kind, lowest};
use super::jobs::{Job, NONE, Stage, owner, token};
use super::plan::{Plan, TOP};
use super::{Incident, Way, nowhere};
use crate::class::mirror::is_components;
use crate::class::multipath::is_paths;

/// The next step of a job.
enum Next {
    /// Sends this to a member or, without one, to where the way divides, as if it came from above.
    Send { member: Option<u32>, request: Request },
    /// Waits for what it sent.
    Wait,
    /// Waits for others.
    Stall,
    /// It has ended.
    End,
}

impl<D: BlockDevice> Way<D> {
    /// Does everything that a job can do now.
    #[inline(never)]
    pub(super) fn go_on(&mut self, number: u32, now: Instant) {
        loop {
            let Some(job) = self.jobs.get(number) else { return };
            let (before, fan, level) = ((job.stage, job.pending), job.fan, job.level + 1);
            match self.next(number, now) {
                Next::Send { member, request } => {
                    self.pending(number, 1);
                    let place = (&request, request.offset);
                    let sent = match member {
                        _ if fan == NONE => self.descend(TOP, place, level, now),
                        Some(member) => {
                            let branch = self.plan.fans[fan as usize].first + member;
                            self.descend(branch, place, level, now)
                        }
                        None => self.divide_again(fan, &request, level, now),
                    };
                    match sent {
                        Ok(()) => self.sent((number, member), now),
                        Err(Refused::Full) => {
                            if let Some(job) = self.jobs.get(number) {
                                (job.stage, job.pending) = before;
                            }
                            self.jobs.stall(number, now);
                            return;
                        }
                        Err(Refused::Invalid(error)) => {
                            self.sent((number, member), now);
                            self.pending(number, -1);
                            self.answered((number, member.unwrap_or(0)), Err(error), now);
                        }
                    }
                }
                Next::Wait => return,
                Next::Stall => {
                    self.jobs.stall(number, now);
                    return;
                }
                Next::End => {
                    self.end(number, now);
                    return;
                }
            }
        }
    }

    /// Notes that a member has something to do.
    fn sent(&mut self, (number, member): (u32, Option<u32>), now: Instant) {
        let Some(job) = self.jobs.get(number) else { return };
        if let (Some(since), Some(fan)) = (job.goes_on(), self.plan.fans.get_mut(job.fan as usize))
        {
            fan.waits.stalls += 1;
            fan.waits.stalled_nanos += now.nanos_since(since);
        }
        if let (Some(member), Stage::Ask { .. }) = (member, job.stage) {
            let branch = self.plan.fans[job.fan as usize].first + member;
            let edge = &mut self.plan.edges[branch as usize];
            let behind = job.request.offset + job.request.length;
            match self.lanes.get_mut(edge.lane as usize) {
                Some(lane) => lane.head = behind.wrapping_add(edge.base),
                None => (edge.busy, edge.head) = (edge.busy + 1, behind),
            }
        }
    }

    fn pending(&mut self, number: u32, change: i32) {
        if let Some(job) = self.jobs.get(number) {
            job.pending = job.pending.wrapping_add_signed(change);
        }
    }

    /// A request of a job came back.
    #[inline(never)]
    pub(super) fn came_back(&mut self, completion: &Completion, now: Instant) {
        let (number, branch) = owner(completion.token);
        let Some(job) = self.jobs.get(number) else { return };
        let first = self.plan.fans.get(job.fan as usize).map_or(0, |fan| fan.first);
        let member = branch.saturating_sub(first);
        match (job.stage, self.plan.mirror_mut(job.fan)) {
            (Stage::First | Stage::Part, _) => {
                job.stage = Stage::Ask { tried: 1 << member, gone: 0, is_sent: true };
            }
            (Stage::All, Some(mirror)) => {
                job.stage = Stage::Each { left: 0, failed: 0, all: mirror.there() };
            }
            _ => {}
        }
        job.passed(&completion.passage);
        job.pending = job.pending.saturating_sub(1);
        self.answered((number, member), completion.result, now);
        self.go_on(number, now);
    }

    /// A member answered.
    fn answered(
        &mut self,
        (number, member): (u32, u32),
        result: Result<(), BlockError>,
        now: Instant,
    ) {
        let Some(job) = self.jobs.get(number) else { return };
        let Plan { fans, edges, .. } = &mut self.plan;
        let fan = fans.get_mut(job.fan as usize);
        let first = fan.as_ref().map_or(0, |fan| fan.first);
        let kind = fan.map(|fan| &mut fan.kind);
        let is_its = |error| match &kind {
            Some(Kind::Mirror(_)) => is_components(error),
            Some(Kind::Paths(_)) => is_paths(error),
            _ => false,
        };
        match result {
            // Not the component's fault: the others would answer the same.
            Err(error) if !is_its(error) => job.fail(error),
            Err(error) => {
                job.failure.get_or_insert(error);
                job.retried.get_or_insert(now);
            }
            Ok(()) => {}
        }
        if let Stage::Ask { is_sent, .. } = &mut job.stage {
            let edge = &mut edges[(first + member) as usize];
            edge.busy -= u32::from(edge.lane == NONE);
            *is_sent = false;
        }
        let bit = 1 << member;
        match (&mut job.stage, kind) {
            (Stage::Each { failed, .. }, Some(Kind::Mirror(_))) if result.is_err() => {
                *failed |= bit;
            }
            (Stage::Ask { gone, .. }, Some(Kind::Mirror(_))) => {
                *gone |= if result == Err(BlockError::Gone) { bit } else { 0 };
                if result.is_ok() {
                    self.was_read(number, member);
                }
            }
            (stage @ Stage::Ask { .. }, Some(Kind::Paths(_))) if result.is_ok() => {
                *stage = Stage::Done;
            }
            (Stage::Ask { tried, gone, .. }, Some(Kind::Paths(paths))) if job.result.is_ok() => {
                *gone = bit;
                let consumer = paths.fault(member, *tried);
                if let (Some(consumer), Err(error)) = (consumer, result) {
                    self.tell(Incident::Lost { consumer, error });
                }
            }
            (Stage::Mend { .. }, _) => self.was_mended(number, member, result),
            // A part that is a mirror's request, which has handled its failures itself.
            (Stage::Pieces(_), Some(Kind::Mirror(_))) => {
                if let Err(error) = result {
                    job.fail(error);
                }
            }
            _ => {}
        }
    }

    /// A member could read: those asked before are repaired or dropped.
    fn was_read(&mut self, number: u32, reader: u32) {
        let writes = self.plan.writes;
        let Some(job) = self.jobs.get(number) else { return };
        let Some(mirror) = self.plan.mirror_mut(job.fan) else { return };
        let Stage::Ask { tried, gone, .. } = job.stage else { return };
        let left = tried & !(1 << reader) & !gone & mirror.readable();
        job.stage = Stage::Done;
        if left != 0 && writes {
            mirror.mending += 1;
            job.stage = Stage::Mend { reader, left, is_read: false };
        }
        self.lose(number, gone, BlockError::Gone);
    }

    /// The answer of the good member when it is read again, or of one that is repaired.
    fn was_mended(&mut self, number: u32, member: u32, result: Result<(), BlockError>) {
        let Some(job) = self.jobs.get(number) else { return };
        let Some(mirror) = self.plan.mirror_mut(job.fan) else { return };
        let Stage::Mend { reader, left, is_read } = &mut job.stage else { return };
        match (*is_read, result) {
            (false, Ok(())) => *is_read = true,
            // It could read a moment ago: members that have not been asked yet are asked.
            (false, Err(error)) => {
                let gone = if error == BlockError::Gone { 1 << *reader } else { 0 };
                let tried = *left | 1 << *reader;
                job.stage = Stage::Ask { tried, gone, is_sent: false };
                mirror.mending -= 1;
            }
            (true, Ok(())) => {
                let (offset, length) = (job.request.offset, job.request.length);
                if let Some(consumer) = mirror.consumer(member) {
                    self.tell(Incident::Mended { consumer, offset, length });
                }
            }
            (true, Err(error)) => {
                // The requested data has been read nevertheless.
                job.result = Ok(());
                self.lose(number, 1 << member, error);
            }
        }
    }

    /// Drops members of the mirror of a job, unless no other is left.
    fn lose(&mut self, number: u32, members: u64, error: BlockError) {
        let Some(fan) = self.jobs.get(number).map(|job| job.fan) else { return };
        let mut rest = members;
        while let Some(member) = lowest(rest) {
            rest &= rest - 1;
            let mirror = self.plan.mirror_mut(fan);
            if let Some(consumer) = mirror.and_then(|mirror| mirror.lose(member)) {
                self.tell(Incident::Lost { consumer, error });
            }
        }
    }

    fn next(&mut self, number: u32, now: Instant) -> Next {
        let is_written = self.jobs.is_held_up(number);
        let Some(job) = self.jobs.get(number) else { return Next::Wait };
        let (pending, request) = (job.pending, job.request);
        let at_the_end = if pending > 0 { Next::Wait } else { Next::End };
        let first = self.plan.fans.get(job.fan as usize).map_or(0, |fan| fan.first);
        let to = |member: u32| Request { token: token(number, first + member), ..request };
        let send = |member: u32, request: Request| Next::Send { member: Some(member), request };
        let Plan { fans, edges, .. } = &mut self.plan;
        let mut kind = fans.get_mut(job.fan as usize).map(|fan| &mut fan.kind);
        let load = |it: u32, offset| edges[(first + it) as usize].load(&self.lanes, offset);
        if !job.is_due(now) {
            return Next::Stall;
        }
        match &mut job.stage {
            Stage::Fails(error) => {
                job.result = Err(*error);
                Next::End
            }
            Stage::Free | Stage::First | Stage::Part | Stage::All => at_the_end,
            Stage::Waits(_) | Stage::Done => at_the_end,
            Stage::Pieces(_) => match self.piece(number) {
                Some((member, request)) => Next::Send { member, request },
                None => at_the_end,
            },
            Stage::Each { left, .. } => match lowest(*left) {
                Some(member) if job.result.is_ok() => {
                    *left &= *left - 1;
                    send(member, to(member))
                }
                _ => at_the_end,
            },
            Stage::Ask { is_sent: true, .. } => Next::Wait,
            Stage::Ask { .. } if job.result.is_err() => Next::End,
            Stage::Ask { tried, gone, is_sent } => {
                let (found, none) = match &mut kind {
                    Some(Kind::Mirror(mirror)) => {
                        (mirror.reader(|it| load(it, request.offset), *tried), BlockError::Gone)
                    }
                    Some(Kind::Paths(paths)) => {
                        let load = |member| load(member, 0) >> 1;
                        let asked = (*tried, *gone);
                        (paths.choose_again(request.operation, load, asked), paths.none())
                    }
                    _ => return Next::End,
                };
                let Some(member) = found else {
                    // The last copy is never dropped.
                    job.fail(job.failure.unwrap_or(none));
                    return Next::End;
                };
                *tried |= 1 << member;
                *is_sent = true;
                send(member, to(member))
            }
            Stage::Mend { reader, left, is_read } => {
                match lowest(*left) {
                    _ if pending > 0 => Next::Wait,
                    None => Next::End,
                    // It waits until nobody else writes, so that it writes the current data.
                    Some(_) if is_written => Next::Stall,
                    Some(_) if !*is_read => send(*reader, to(*reader)),
                    Some(member) => {
                        *left &= *left - 1;
                        send(member, Request { operation: Operation::Write, ..to(member) })
                    }
                }
            }
        }
    }

    /// The next piece of a job's request, and its member; `None` after the last one, or when one
    /// has failed.
    fn piece(&mut self, number: u32) -> Option<(Option<u32>, Request)> {
        let job = self.jobs.get(number)?;
        let Stage::Pieces(sent) = &mut job.stage else { return None };
        let (request, done) = (job.request, *sent);
        if job.fan == NONE {
            // The whole of it, once.
            *sent = 1;
            return (done == 0).then(|| (None, Request { token: token(number, 0), ..request }));
        }
        if done >= request.length || job.result.is_err() {
            return None;
        }
        let piece =
            self.plan.fans[job.fan as usize].piece(request.offset + done, request.length - done);
        *sent += piece.length;
        let first = self.plan.fans[job.fan as usize].first;
        let token = token(number, first + piece.member.unwrap_or(0));
        let (offset, length) = (piece.offset, piece.length);
        let mut part = Request { token, offset, length, ..request };
        if matches!(request.operation, Operation::Read | Operation::Write) {
            let memory = self.lanes[0].device.memory();
            match request.data.part(memory, done as u32, length as u32) {
                Ok(data) => part.data = data,
                Err(bad) => {
                    job.fail(BlockError::BadData(bad));
                    return None;
                }
            }
        }
        Some((piece.member, part))
    }

    /// A job has ended: its owner is told.
    fn end(&mut self, number: u32, now: Instant) {
        self.settle(number);
        let Some(job) = self.jobs.get(number) else { return };
        if let (Some(since), Some(fan)) = (job.retried, self.plan.fans.get_mut(job.fan as usize)) {
            fan.waits.retries += 1;
            fan.waits.retried_nanos += now.nanos_since(since);
        }
        let (token, accepted, result) = (job.request.token, job.request.accepted, job.result);
        let passage = job.passage.unwrap_or_else(|| nowhere(accepted));
        let passage = Passage { accepted, ..passage };
        self.conclude(number, Completion { token, result, passage });
    }

    /// A job is over, with this result.
    #[inline(never)]
    pub(super) fn conclude(&mut self, number: u32, completion: Completion) {
        let Some(job) = self.jobs.get(number) else { return };
        let Job { is_kept, level, .. } = *job;
        self.jobs.end(number);
        if level > 0 {
            if let Some(above) = self.jobs.get(owner(completion.token).0) {
                above.is_kept |= is_kept;
            }
            self.ended.push_back((Up::Part, completion));
        } else if is_kept && completion.result.is_ok() {
            self.kept.push(completion);
        } else {
            self.ended.push_back((Up::Out, completion));
        }
    }

    /// Combines the answers of its members into one result.
    fn settle(&mut self, number: u32) {
        let Some(job) = self.jobs.get(number) else { return };
        let Some(mirror) = self.plan.mirror_mut(job.fan) else { return };
        match job.stage {
            Stage::Each { failed, all, .. } => {
                let good = all & !failed;
                if job.result.is_err() {
                    return;
                }
                let error = job.failure.unwrap_or(BlockError::Gone);
                // Members dropped meanwhile do not count.
                if good & mirror.readable() == 0 {
                    job.fail(error);
                    return;
                }
                self.lose(number, failed, error);
                if let Some(job) = self.jobs.get(number) {
                    let mirror = self.plan.mirror_mut(job.fan);
                    job.is_kept |= mirror.is_some_and(|mirror| mirror.lost != 0);
                }
            }
            Stage::Mend { .. } => mirror.mending -= 1,
            _ => {}
        }
    }
}
