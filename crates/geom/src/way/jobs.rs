//! What becomes several requests, or may have to be asked again.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flysch_api::block::{Error, Request};
use flysch_api::trace::Passage;

/// Marks the tokens of requests that belong to a job; others are the caller's own.
pub(super) const OWN: u64 = 1 << 63;
const MEMBER_SHIFT: u32 = 32;

/// The token of a job's request to a member.
pub(super) const fn token(job: u32, member: u32) -> u64 {
    OWN | (member as u64) << MEMBER_SHIFT | job as u64
}

/// The job and the member of such a token.
pub(super) const fn owner(token: u64) -> (u32, u32) {
    (token as u32, ((token & !OWN) >> MEMBER_SHIFT) as u32)
}

/// How far a job is. Members are bits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// A range, piece by piece: so many bytes of it were sent.
    Pieces(u64),
    /// The same to each member.
    Each {
        /// Who is still to be asked.
        left: u64,
        /// Who failed.
        failed: u64,
        /// Who did it.
        good: u64,
    },
    /// A read of one member.
    Read {
        /// Who was asked.
        tried: u64,
        /// Of these, who is gone for good.
        gone: u64,
        /// It was sent.
        is_sent: bool,
    },
    /// What a member reads is written over what others could not.
    Mend {
        /// Who could read it.
        reader: u32,
        /// Who could not: still to be written.
        left: u64,
        /// It was read once more, while nobody else writes.
        is_read: bool,
    },
    /// Nothing is left to do.
    Done,
}

/// One that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// As it came; its token is whose it is.
    pub(super) request: Request,
    /// Where its way divides; `None` if it only carries a token that looks like ours.
    pub(super) fan: Option<u32>,
    /// 0 of a caller's request, else one more than that of the job that it is a part of.
    pub(super) level: u8,
    /// Requests that have not come back.
    pub(super) pending: u32,
    pub(super) stage: Stage,
    /// What failed first.
    pub(super) result: Result<(), Error>,
    /// The first failure of a component, if others do what it did not.
    pub(super) failure: Option<Error>,
    /// When its requests were on their way, once one came back.
    pub(super) passage: Option<Passage>,
    /// A component missed it: it is not told before the graph knows.
    pub(super) is_kept: bool,
    is_stalled: bool,
}

impl Job {
    pub(super) const fn new(fan: Option<u32>, request: Request, stage: Stage, level: u8) -> Self {
        Self {
            request,
            fan,
            level,
            pending: 0,
            stage,
            result: Ok(()),
            failure: None,
            passage: None,
            is_kept: false,
            is_stalled: false,
        }
    }

    pub(super) fn fail(&mut self, error: Error) {
        self.result = self.result.and(Err(error));
    }

    /// One of its requests came back.
    pub(super) fn passed(&mut self, other: Passage) {
        let all = self.passage.get_or_insert(other);
        all.issued = all.issued.min(other.issued);
        all.seen = all.seen.max(other.seen);
        all.device_done = all.device_done.zip(other.device_done).map(|(one, two)| one.max(two));
    }
}

/// A fixed number of jobs, and those of them that wait for room below.
#[derive(Debug)]
pub(super) struct Jobs {
    jobs: Vec<Option<Job>>,
    free: Vec<u32>,
    /// Those that the disks had no room for, the oldest first.
    stalled: VecDeque<u32>,
    depth: u8,
}

impl Jobs {
    /// Room for `count` jobs of callers, with parts that are jobs themselves, `depth` levels in
    /// all.
    pub(super) fn new(count: u32, depth: u8) -> Self {
        let count = count.saturating_mul(2) + u32::from(depth);
        Self {
            jobs: (0..count).map(|_| None).collect(),
            free: (0..count).rev().collect(),
            stalled: VecDeque::with_capacity(count as usize),
            depth,
        }
    }

    /// How many there can be.
    pub(super) const fn capacity(&self) -> usize {
        self.jobs.len()
    }

    /// Begins one. A place is left for every level below, so that one of those that wait can always
    /// go on.
    pub(super) fn take(&mut self, job: Job) -> Option<u32> {
        let below = usize::from(self.depth.saturating_sub(job.level.saturating_add(1)));
        if self.free.len() <= below {
            return None;
        }
        let number = self.free.pop()?;
        self.jobs[number as usize] = Some(job);
        Some(number)
    }

    pub(super) fn get(&mut self, number: u32) -> Option<&mut Job> {
        self.jobs.get_mut(number as usize)?.as_mut()
    }

    /// Ends one.
    pub(super) fn end(&mut self, number: u32) {
        let Some(place) = self.jobs.get_mut(number as usize) else { return };
        let Some(job) = place else { return };
        let is_stalled = job.is_stalled;
        *place = None;
        self.free.push(number);
        if is_stalled {
            self.stalled.retain(|&other| other != number);
        }
    }

    /// How many wait for room.
    pub(super) fn stalled(&self) -> usize {
        self.stalled.len()
    }

    /// One waits for room below.
    pub(super) fn stall(&mut self, number: u32) {
        if let Some(job) = self.get(number)
            && !job.is_stalled
        {
            job.is_stalled = true;
            self.stalled.push_back(number);
        }
    }

    /// The one that waits longest waits no more.
    pub(super) fn unstall(&mut self) -> Option<u32> {
        let number = self.stalled.pop_front()?;
        if let Some(job) = self.get(number) {
            job.is_stalled = false;
        }
        Some(number)
    }
}
