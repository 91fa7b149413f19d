//! The lane of one disk, as part of a way.

use flysch_api::block::{BlockDevice, Completion, Refused, Request};
use flysch_api::machine::Instant;

use crate::object::ProviderId;
use crate::statistics::Traffic;

/// How much is in flight somewhere, and for how long anything has been: what devstat calls busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Busy {
    /// Requests that were accepted.
    pub(super) started: u64,
    /// Of these, how many ended.
    pub(super) ended: u64,
    /// Of these, how many failed.
    pub(super) failures: u64,
    /// Since when something has been in flight.
    since: Option<Instant>,
    /// Total nanoseconds of earlier periods with something in flight.
    nanos: u64,
}

impl Busy {
    /// Requests in flight.
    pub(super) const fn in_flight(&self) -> u64 {
        self.started.saturating_sub(self.ended)
    }

    /// Nanoseconds with something in flight, up to now. A period begins with a doorbell and ends
    /// when nothing more has come back.
    pub(super) fn nanos(&self, now: Option<Instant>) -> u64 {
        let since = now.zip(self.since).map_or(0, |(now, since)| now.nanos_since(since));
        self.nanos.saturating_add(since)
    }

    /// The doorbell rings.
    #[inline(always)]
    pub(super) fn rang(&mut self, now: Instant) {
        if self.since.is_none() && self.started != self.ended {
            self.since = Some(now);
        }
    }

    /// Nothing more has come back.
    #[inline(always)]
    pub(super) fn drained(&mut self, now: Instant) {
        if self.started == self.ended
            && let Some(since) = self.since.take()
        {
            self.nanos += now.nanos_since(since);
        }
    }
}

/// A lane of one disk.
#[derive(Debug)]
pub(super) struct Lane<D> {
    pub(super) disk: ProviderId,
    /// Requests that a doorbell rang for.
    rung: u64,
    pub(super) busy: Busy,
    /// The byte of the disk after the last one read for a mirror.
    pub(super) head: u64,
    pub(super) branch: Branch,
    pub(super) device: D,
}

/// What a lane knows about the only branch that leads to it, for requests that take the short way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Branch {
    /// Number of bytes added to the offset.
    pub(super) base: u64,
    /// What tokens of jobs contain besides the number of the job.
    pub(super) tag: u64,
    /// Traffic that is not counted at the branch yet.
    pub(super) traffic: Traffic,
}

impl Branch {
    pub(super) const NONE: Self = Self { base: 0, tag: 0, traffic: Traffic::NONE };
}

impl<D: BlockDevice> Lane<D> {
    pub(super) fn new(disk: ProviderId, device: D) -> Self {
        let (busy, branch) = (Busy::default(), Branch::NONE);
        Self { disk, rung: 0, busy, head: 0, branch, device }
    }

    /// From now on it counts for another plan. Nothing is in flight.
    pub(super) fn forget(&mut self) {
        (self.rung, self.busy) = (0, Busy::default());
        (self.head, self.branch) = (0, Branch::NONE);
    }

    /// The load: reads go to the lowest, among equals to the lane whose head is there.
    pub(super) fn load(&self, there: u64) -> u64 {
        self.busy.in_flight() << 1 | u64::from(self.head != there)
    }

    /// Whether it has less [to do](Self::load) than another one.
    #[inline(always)]
    pub(super) fn is_before(&self, there: u64, other: &Self, there_too: u64) -> bool {
        let busy = self.busy.started.wrapping_sub(self.busy.ended);
        let other_busy = other.busy.started.wrapping_sub(other.busy.ended);
        if busy != other_busy {
            return busy < other_busy;
        }
        self.head == there && other.head != there_too
    }

    #[inline(always)]
    pub(super) fn submit(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        self.device.submit(request, now)?;
        self.busy.started += 1;
        Ok(())
    }

    #[inline]
    pub(super) fn ring(&mut self, now: Instant) {
        if self.rung != self.busy.started {
            self.rung = self.busy.started;
            self.busy.rang(now);
            self.device.ring(now);
        }
    }

    #[inline(always)]
    pub(super) fn poll(&mut self, now: Instant) -> Option<Completion> {
        let completion = self.device.poll(now);
        match &completion {
            Some(completion) => {
                self.busy.ended += 1;
                if completion.result.is_err() {
                    self.busy.failures += 1;
                }
            }
            None => self.busy.drained(now),
        }
        completion
    }
}
