//! Ports: a lane, or the host with its lane, as the command layer sees it.

use crate::UfsError;
use crate::host::Host;
use crate::lane::Lane;
use crate::slots::renewed;
use alloc::boxed::Box;
use alloc::vec::Vec;
use flysch_api::command::{self, Command, Declined, Failure, Limits, Outcome, Scsi};
use flysch_api::machine::{DmaRegion, Instant, Machine};

/// One lane of a UFS host: commands in, outcomes out.
///
/// The first port of a host carries the [`Host`] itself, so that polling it also drives
/// recovery. Every port that has commands in flight must be polled at
/// [`poll_at`](command::Port::poll_at) at the latest.
#[derive(Debug)]
pub struct Port<M: Machine> {
    inner: Inner<M>,
}

#[derive(Debug)]
enum Inner<M: Machine> {
    Host(Box<Host<M>>),
    Lane(Box<Lane<M>>),
}

impl<M: Machine> Port<M> {
    pub(crate) fn of_host(host: Host<M>) -> Self {
        Self { inner: Inner::Host(Box::new(host)) }
    }

    pub(crate) fn of_lane(lane: Box<Lane<M>>) -> Self {
        Self { inner: Inner::Lane(lane) }
    }

    /// The host, if this port carries it.
    pub fn host(&self) -> Option<&Host<M>> {
        match &self.inner {
            Inner::Host(host) => Some(host),
            Inner::Lane(_) => None,
        }
    }

    /// The host, if this port carries it: queries, power, errors.
    pub fn host_mut(&mut self) -> Option<&mut Host<M>> {
        match &mut self.inner {
            Inner::Host(host) => Some(host),
            Inner::Lane(_) => None,
        }
    }

    /// Ends a command of this port before its deadline; its outcome will be
    /// [`Ended::Aborted`](command::Ended::Aborted) unless it completes before that. `false` if no
    /// such command is in flight.
    pub fn abort(&mut self, token: u32) -> bool {
        self.lane_mut().abort(token)
    }

    /// The interrupt vector that this port's completions raise, once the host is up: 0, the line,
    /// if queues have no vectors of their own. [`Machine::on_vector`] waits for it alone. The line,
    /// which signals errors, belongs to the first port or to the host.
    pub fn vector(&self) -> u16 {
        let lane = self.lane_ref();
        if lane.word().starts().signals.messages { lane.index as u16 } else { 0 }
    }

    /// Polled mode: lets completions raise the interrupt. `true` means that nothing has ended
    /// since, so waiting for the interrupt cannot miss anything; `false` means that the caller must
    /// poll first.
    ///
    /// It is masked again by the next poll that finds something. If several lanes share the line, a
    /// lane may clear the status that another is about to wait for, so each waits no longer than
    /// until [`poll_at`](command::Port::poll_at), which then is at most 1 ms away.
    pub fn arm(&mut self) -> bool {
        self.lane_mut().arm()
    }

    /// The number of the lane.
    pub fn lane_index(&self) -> u16 {
        self.lane_ref().index as u16
    }

    #[inline]
    fn lane_mut(&mut self) -> &mut Lane<M> {
        match &mut self.inner {
            Inner::Host(host) => host.lane_mut(),
            Inner::Lane(lane) => lane,
        }
    }

    #[inline]
    fn lane_ref(&self) -> &Lane<M> {
        match &self.inner {
            Inner::Host(host) => host.lane(),
            Inner::Lane(lane) => lane,
        }
    }
}

impl<M: Machine> command::Port for Port<M> {
    type Protocol = Scsi;

    fn limits(&self) -> &Limits {
        &self.lane_ref().limits
    }

    fn memory(&self) -> &DmaRegion {
        &self.lane_ref().data
    }

    #[inline(always)]
    fn start(&mut self, command: Command<Scsi>, now: Instant) -> Result<(), Declined> {
        self.lane_mut().start(command, now)
    }

    #[inline]
    fn ring(&mut self, now: Instant) {
        self.lane_mut().ring(now);
    }

    #[inline(always)]
    fn poll(&mut self, now: Instant) -> Option<Outcome> {
        match &mut self.inner {
            Inner::Host(host) => host.poll_lane(now),
            // Built anew, so that only an outcome that takes this path has to be in memory.
            Inner::Lane(lane) => lane.poll(now).map(renewed),
        }
    }

    fn failure(&self) -> Failure<Scsi> {
        self.lane_ref().trouble.failure()
    }

    fn poll_at(&self) -> Option<Instant> {
        match &self.inner {
            Inner::Host(host) => host.poll_at(),
            Inner::Lane(lane) => lane.poll_at(),
        }
    }
}

impl<M: Machine> Host<M> {
    /// Separates the host from its ports, if [`UfsOptions::apart`](crate::UfsOptions::apart) gave
    /// it a lane of its own: each may go to a thread of its own. The host must be polled at
    /// [`poll_at`](Self::poll_at) for deadlines, recovery and a link that has to wake; once it is
    /// dropped, every port is gone.
    ///
    /// # Errors
    /// [`UfsError::Options`] if the host shares the first lane.
    pub fn split(mut self) -> Result<(Self, Vec<Port<M>>), UfsError> {
        if !self.is_apart() {
            return Err(UfsError::Options("the host has no lane of its own: set `apart`"));
        }
        let lanes = self.take_lanes();
        Ok((self, lanes.into_iter().map(Port::of_lane).collect()))
    }

    /// The ports, one per lane; the first carries the host.
    ///
    /// # Panics
    /// If the host has a lane of its own: see [`split`](Self::split).
    pub fn into_ports(mut self) -> Vec<Port<M>> {
        assert!(!self.is_apart(), "a host apart is split from its ports");
        let others = self.take_lanes();
        let first = Port::of_host(self);
        core::iter::once(first).chain(others.into_iter().map(Port::of_lane)).collect()
    }
}
