//! Requests that become several, or may have to be retried.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flysch_api::block::{BlockError, Operation, Request};
use flysch_api::data::Data;
use flysch_api::machine::Instant;
use flysch_api::trace::Passage;

/// Marks the tokens of requests that belong to a job; others are the caller's own.
pub(super) const OWN: u64 = 1 << 63;
const BRANCH_SHIFT: u32 = 32;
/// No job, no place.
pub(super) const NONE: u32 = u32::MAX;

/// The token of a job's request down a branch.
#[inline(always)]
pub(super) const fn token(job: u32, branch: u32) -> u64 {
    OWN | (branch as u64) << BRANCH_SHIFT | job as u64
}

/// The job and the branch of such a token.
#[inline(always)]
pub(super) const fn owner(token: u64) -> (u32, u32) {
    (token as u32, ((token & !OWN) >> BRANCH_SHIFT) as u32)
}

/// The progress of a job. Members are bits.
#[derive(Clone, Copy, Debug)]
#[repr(u8)] // The discriminant is read first.
pub(super) enum Stage {
    /// There is no such job.
    Free,
    /// A caller's request to one member, the first that was asked: at a lane.
    First,
    /// The same for a part of a job's request.
    Part,
    /// A caller's request, the same to each member: all were asked, and none has failed.
    All,
    /// It is chosen to fail.
    Fails(BlockError),
    /// It is chosen to wait until then.
    Waits(Instant),
    /// A range, piece by piece: the number of bytes sent so far.
    Pieces(u64),
    /// The same to each member.
    Each {
        /// Members still to be asked.
        left: u64,
        /// Members that failed.
        failed: u64,
        /// Members that were to be asked.
        all: u64,
    },
    /// A request to one member: a read of a mirror, or anything over one of several paths.
    Ask {
        /// Members that were asked.
        tried: u64,
        /// Of these, the ones gone for good; of paths, the last one.
        gone: u64,
        /// It was sent.
        is_sent: bool,
    },
    /// The data read from a member is written over what others could not read.
    Mend {
        /// The member that could read it.
        reader: u32,
        /// Members that could not and are still to be written.
        left: u64,
        /// It was read again while nobody else wrote.
        is_read: bool,
    },
    /// Nothing is left to do.
    Done,
}

/// A job in progress. The fields after the stage are as in [`FREE`](Self::FREE) until something
/// happens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// As received; its token identifies its owner.
    pub(super) request: Request,
    /// The place where its way divides; [`NONE`] if the job only carries a token that looks like
    /// ours.
    pub(super) fan: u32,
    /// Number of requests that have not come back.
    pub(super) pending: u32,
    /// The next one in the free list.
    next: u32,
    /// 0 for a caller's request, otherwise one more than that of the job of which it is a part.
    pub(super) level: u8,
    pub(super) stage: Stage,
    /// A component missed it: it is not reported before the graph knows.
    pub(super) is_kept: bool,
    pub(super) is_stalled: bool,
    /// When it began to wait for room.
    stalled: Option<Instant>,
    /// When a component first failed, so that others were asked.
    pub(super) retried: Option<Instant>,
    /// The passage of its requests, once one came back.
    pub(super) passage: Option<Passage>,
    /// The first failure.
    pub(super) result: Result<(), BlockError>,
    /// The first failure of a component, if others do the work instead.
    pub(super) failure: Option<BlockError>,
}

impl Job {
    const FREE: Self = Self {
        request: Request {
            operation: Operation::Flush,
            force_unit_access: false,
            offset: 0,
            length: 0,
            data: Data::NONE,
            crypto: None,
            token: 0,
            accepted: Instant::START,
        },
        fan: 0,
        pending: 1,
        next: NONE,
        level: 0,
        is_kept: false,
        is_stalled: false,
        stalled: None,
        retried: None,
        stage: Stage::Free,
        passage: None,
        result: Ok(()),
        failure: None,
    };

    /// Whether it need not wait any longer; then it begins.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        if let Stage::Waits(until) = self.stage {
            if now < until {
                return false;
            }
            self.stage = Stage::Pieces(0);
        }
        true
    }

    pub(super) fn fail(&mut self, error: BlockError) {
        self.result = self.result.and(Err(error));
    }

    /// It continues; returns when it began to wait, if it did.
    pub(super) fn goes_on(&mut self) -> Option<Instant> {
        self.stalled.take()
    }

    /// One of its requests came back.
    #[inline]
    pub(super) fn passed(&mut self, other: &Passage) {
        match &mut self.passage {
            Some(all) => join(all, other),
            none => *none = Some(*other),
        }
    }
}

/// Combines two passages that belong to one request.
#[inline]
pub(super) fn join(all: &mut Passage, other: &Passage) {
    all.issued = all.issued.min(other.issued);
    all.seen = all.seen.max(other.seen);
    all.device_done = all.device_done.zip(other.device_done).map(|(one, two)| one.max(two));
}

/// The place for the job of a caller's request that is sent to lanes at once, without incidents.
pub(super) struct Slot<'j> {
    pub(super) number: u32,
    pub(super) job: &'j mut Job,
    free: &'j mut u32,
}

impl Slot<'_> {
    /// Begins it, where the way divides first.
    #[inline(always)]
    pub(super) fn begin(self, (request, offset): (&Request, u64), (stage, pending): (Stage, u32)) {
        let job = self.job;
        *self.free = job.next;
        // A key is never copied: [`Job::FREE`] has none.
        job.request.operation = request.operation;
        job.request.force_unit_access = request.force_unit_access;
        job.request.offset = offset;
        job.request.length = request.length;
        job.request.data = request.data;
        job.request.token = request.token;
        job.request.accepted = request.accepted;
        // Division and level stay as they are: the first division, a caller's request.
        if pending != 1 {
            job.pending = pending;
        }
        job.stage = stage;
    }

    /// Ends it when its last request has come back; returns the caller's token.
    #[inline(always)]
    pub(super) fn end(self) -> u64 {
        self.job.stage = Stage::Free;
        self.job.next = *self.free;
        *self.free = self.number;
        self.job.request.token
    }
}

/// A fixed number of jobs, and which of them wait for room below.
#[derive(Debug)]
pub(super) struct Jobs {
    jobs: Vec<Job>,
    /// The first free one.
    free: u32,
    /// The first free one of the reserved ones after `common`, one for each level below the first,
    /// and the number of reserved ones that are free.
    reserve: u32,
    reserved: u32,
    common: u32,
    /// Jobs that the disks had no room for, oldest first.
    stalled: VecDeque<u32>,
}

impl Jobs {
    /// Room for `count` jobs of callers, whose parts are jobs themselves, with `depth` levels in
    /// all.
    pub(super) fn new(count: u32, depth: u8) -> Self {
        let reserved = u32::from(depth).saturating_sub(1);
        let count = count.saturating_mul(2) + u32::from(depth);
        let common = count - reserved;
        let is_last = |number| number + 1 == common || number + 1 == count;
        let next = |number| if is_last(number) { NONE } else { number + 1 };
        Self {
            jobs: (0..count).map(|number| Job { next: next(number), ..Job::FREE }).collect(),
            free: if common > 0 { 0 } else { NONE },
            reserve: if reserved > 0 { common } else { NONE },
            reserved,
            common,
            stalled: VecDeque::with_capacity(count as usize),
        }
    }

    /// The maximum number of jobs.
    pub(super) const fn capacity(&self) -> usize {
        self.jobs.len()
    }

    /// The one that would begin next. A place is reserved for every level below, so that one of the
    /// waiting jobs can always continue.
    #[inline]
    pub(super) fn next(&self, level: u8) -> Option<u32> {
        if self.free != NONE {
            return Some(self.free);
        }
        let deepest = self.jobs.len() as u32 - self.common;
        (self.reserved > deepest.saturating_sub(level.into())).then_some(self.reserve)
    }

    /// Begins the next one.
    #[inline]
    pub(super) fn begin(
        &mut self,
        fan: u32,
        (request, offset): (&Request, u64),
        level: u8,
        (stage, pending): (Stage, u32),
    ) {
        let number = if self.free == NONE { self.reserve } else { self.free };
        let Some(job) = self.jobs.get_mut(number as usize) else { return };
        if number < self.common {
            self.free = job.next;
        } else {
            self.reserve = job.next;
            self.reserved -= 1;
        }
        job.request = Request { offset, ..*request };
        (job.fan, job.pending, job.level, job.stage) = (fan, pending, level, stage);
    }

    /// The next one for a caller's request, if there is one.
    #[inline(always)]
    pub(super) fn slot(&mut self) -> Option<Slot<'_>> {
        let number = self.free;
        let job = self.jobs.get_mut(number as usize)?;
        Some(Slot { number, job, free: &mut self.free })
    }

    /// The same for the job that ends.
    #[inline(always)]
    pub(super) fn taken(&mut self, number: u32) -> Option<Slot<'_>> {
        let job = self.jobs.get_mut(number as usize)?;
        Some(Slot { number, job, free: &mut self.free })
    }

    /// Whether it is a repair while changes of the same members are in flight.
    pub(super) fn is_held_up(&self, number: u32) -> bool {
        let Some(Job { fan, stage: Stage::Mend { .. }, .. }) = self.jobs.get(number as usize)
        else {
            return false;
        };
        let is_change = |stage| matches!(stage, Stage::All | Stage::Each { .. });
        self.jobs.iter().any(|job| job.fan == *fan && is_change(job.stage))
    }

    #[inline(always)]
    pub(super) fn get(&mut self, number: u32) -> Option<&mut Job> {
        let job = self.jobs.get_mut(number as usize)?;
        if matches!(job.stage, Stage::Free) { None } else { Some(job) }
    }

    /// Ends one without incidents.
    #[inline]
    pub(super) fn free(&mut self, number: u32) {
        let Some(job) = self.jobs.get_mut(number as usize) else { return };
        job.stage = Stage::Free;
        (job.fan, job.pending, job.level) = (Job::FREE.fan, Job::FREE.pending, Job::FREE.level);
        if number < self.common {
            job.next = self.free;
            self.free = number;
        } else {
            job.next = self.reserve;
            self.reserve = number;
            self.reserved += 1;
        }
    }

    /// Ends one.
    pub(super) fn end(&mut self, number: u32) {
        let Some(job) = self.jobs.get_mut(number as usize) else { return };
        let is_stalled = job.is_stalled;
        (job.is_kept, job.is_stalled) = (false, false);
        (job.stalled, job.retried) = (None, None);
        (job.result, job.failure, job.passage) = (Ok(()), None, None);
        self.free(number);
        if is_stalled {
            self.stalled.retain(|&other| other != number);
        }
    }

    /// The earliest time for which a job waits.
    pub(super) fn waits(&self) -> Option<Instant> {
        let stage = |number: &u32| self.jobs.get(*number as usize).map(|job| job.stage);
        let until =
            |number| if let Some(Stage::Waits(it)) = stage(number) { Some(it) } else { None };
        self.stalled.iter().filter_map(until).min()
    }

    /// Number of jobs that wait for room.
    pub(super) fn stalled(&self) -> usize {
        self.stalled.len()
    }

    /// A job waits for room below.
    pub(super) fn stall(&mut self, number: u32, now: Instant) {
        if let Some(job) = self.get(number)
            && !job.is_stalled
        {
            job.is_stalled = true;
            job.stalled.get_or_insert(now);
            self.stalled.push_back(number);
        }
    }

    /// Takes the job that has waited longest off the list.
    pub(super) fn unstall(&mut self) -> Option<u32> {
        let number = self.stalled.pop_front()?;
        if let Some(job) = self.get(number) {
            job.is_stalled = false;
        }
        Some(number)
    }
}
