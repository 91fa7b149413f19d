//! A lane as the command layer sees it.

use crate::host::Host;
use crate::lane::Lane;
use alloc::boxed::Box;
use alloc::vec::Vec;
use flysch_api::command::{self, Command, Declined, Failure, Limits, Mmc, Outcome};
use flysch_api::machine::{DmaRegion, Instant, Machine};

/// One lane of an eMMC or SD host: commands in, outcomes out.
///
/// It carries CMD17, CMD18, CMD24 and CMD25 with whole sectors, addressed by sector regardless of
/// the card, and with the bits of CMD23 in
/// [`set_block_count`](command::MmcCommand::set_block_count), except for packed commands; CMD38
/// with eight bytes of data to the device, first and last sector as little-endian words, in place
/// of CMD35 and CMD36; and commands without data that have R1 or R1b. The unit is the selected
/// partition; any other is declined.
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

impl<M: Machine> Host<M> {
    /// The ports, one per lane; the first carries the host.
    pub fn into_ports(mut self) -> Vec<Port<M>> {
        let others = core::mem::take(&mut self.others);
        let first = Port { inner: Inner::Host(Box::new(self)) };
        let other = |lane| Port { inner: Inner::Lane(lane) };
        core::iter::once(first).chain(others.into_iter().map(other)).collect()
    }
}

impl<M: Machine> Port<M> {
    /// The host, if this port carries it.
    pub fn host(&self) -> Option<&Host<M>> {
        match &self.inner {
            Inner::Host(host) => Some(host),
            Inner::Lane(_) => None,
        }
    }

    /// The host, if this port carries it: operations, errors.
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
    type Protocol = Mmc;

    fn limits(&self) -> &Limits {
        self.lane_ref().limits()
    }

    fn memory(&self) -> &DmaRegion {
        self.lane_ref().memory()
    }

    #[inline(always)]
    fn start(&mut self, command: Command<Mmc>, now: Instant) -> Result<(), Declined> {
        self.lane_mut().start(command, now)
    }

    #[inline]
    fn ring(&mut self, now: Instant) {
        match &mut self.inner {
            Inner::Host(host) => host.ring_lane(now),
            Inner::Lane(lane) => lane.ring(now),
        }
    }

    #[inline(always)]
    fn poll(&mut self, now: Instant) -> Option<Outcome> {
        match &mut self.inner {
            Inner::Host(host) => host.poll_lane(now),
            Inner::Lane(lane) => lane.poll(now),
        }
    }

    fn failure(&self) -> Failure<Mmc> {
        self.lane_ref().failure()
    }

    fn poll_at(&self) -> Option<Instant> {
        match &self.inner {
            Inner::Host(host) => host.poll_at(),
            Inner::Lane(lane) => lane.poll_at(),
        }
    }
}
