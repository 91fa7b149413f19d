//! Long work that a device does on request: purge (JESD220 12.2.4) and refresh (13.4.15).
//!
//! Both begin with a flag and need empty queues; their state is an attribute, and a device reports
//! an end only once. While they run, the device may answer commands with NOT READY, or late.

use crate::channel::Run;
use crate::facts::UfsFacts;
use crate::management::Peer;
use crate::query::Query;
use crate::{Cause, UfsError};
use flysch_api::machine::Machine;
use flysch_wire::ufs::descriptor::HealthDescriptor;
use flysch_wire::ufs::query::{
    AttributeId, DescriptorId, FlagId, QueryResult, RefreshMethod, RefreshStatus, RefreshUnit,
};

/// The state of a refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefreshState {
    /// Whether one is in progress, and how the last one ended.
    pub status: RefreshStatus,
    /// How much of the device was refreshed in the present round, units of 0.001 %.
    pub progress: u32,
    /// Rounds completed.
    pub total_count: u32,
    /// Method.
    pub method: RefreshMethod,
    /// How much is refreshed at once.
    pub unit: RefreshUnit,
    /// bRefreshFreq: how often the vendor recommends a whole round, in months; 0 is unspecified.
    pub frequency: u8,
}

/// Long work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upkeep {
    /// Of all data that was unmapped, in all logical units.
    Purge,
    /// Of the memory's content.
    Refresh,
}

/// "In progress" in both status attributes.
const IN_PROGRESS: u8 = 1;

impl Upkeep {
    fn name(self) -> &'static str {
        match self {
            Self::Purge => "purge",
            Self::Refresh => "refresh",
        }
    }

    fn flag(self) -> FlagId {
        match self {
            Self::Purge => FlagId::PurgeEnable,
            Self::Refresh => FlagId::RefreshEnable,
        }
    }

    fn attribute(self) -> AttributeId {
        match self {
            Self::Purge => AttributeId::PurgeStatus,
            Self::Refresh => AttributeId::RefreshStatus,
        }
    }

    /// Purge has no feature bit: a device without it rejects the flag.
    fn check(self, device: &UfsFacts) -> Result<(), UfsError> {
        let features = (device.features(), device.extended_features());
        match self {
            Self::Refresh if !features.0.refresh() && !features.1.refresh() => {
                Err(UfsError::Unsupported(self.name()))
            }
            _ => Ok(()),
        }
    }

    /// Begins while no command is in flight.
    pub(crate) fn begin<M: Machine>(self, peer: &mut Peer<M>) -> Run<()> {
        self.check(&peer.device)?;
        peer.channel.quiesce()?;
        let version = peer.device.descriptor.w_spec_version;
        let fields = Query::set_flag(self.flag()).check(version);
        let done = match fields {
            Ok(fields) => peer.query(fields)?.map(|_| ()).map_err(UfsError::from),
            Err(error) => Err(error),
        };
        peer.channel.order(0);
        match done {
            Err(UfsError::Failed(Cause::Query(
                QueryResult::InvalidIdn | QueryResult::ParameterNotWriteable,
            ))) => Err(UfsError::Unsupported(self.name()).into()),
            done => Ok(done?),
        }
    }

    /// Stops.
    pub(crate) fn stop<M: Machine>(self, peer: &mut Peer<M>) -> Run<()> {
        self.check(&peer.device)?;
        peer.checked_query(&Query::clear_flag(self.flag()))?;
        Ok(())
    }

    /// The status attribute, after waiting up to `wait_ms` for the end.
    pub(crate) fn status<M: Machine>(self, peer: &mut Peer<M>, wait_ms: u32) -> Run<u8> {
        self.check(&peer.device)?;
        peer.poll_status(&Query::read_attribute(self.attribute()), IN_PROGRESS, wait_ms)
    }
}

impl<M: Machine> Peer<M> {
    /// Begins a refresh of this kind.
    pub(crate) fn start_refresh(&mut self, method: RefreshMethod, unit: RefreshUnit) -> Run<()> {
        Upkeep::Refresh.check(&self.device)?;
        let method = u64::from(method.into_bits());
        self.checked_query(&Query::write_attribute(AttributeId::RefreshMethod, method))?;
        let unit = u64::from(unit.into_bits());
        self.checked_query(&Query::write_attribute(AttributeId::RefreshUnit, unit))?;
        Upkeep::Refresh.begin(self)
    }
}

impl RefreshState {
    /// The state of a refresh, after waiting up to `wait_ms` for its end.
    pub(crate) fn read<M: Machine>(peer: &mut Peer<M>, wait_ms: u32) -> Run<Self> {
        let status = Upkeep::Refresh.status(peer, wait_ms)?;
        let reply = peer.checked_query(&Query::read_descriptor(DescriptorId::Health))?;
        let health = HealthDescriptor::parse(reply.bytes())
            .map_err(|why| UfsError::Descriptor("health", Some(why)))?;
        let method = peer.read_attribute(AttributeId::RefreshMethod)? as u8;
        let unit = peer.read_attribute(AttributeId::RefreshUnit)? as u8;
        Ok(Self {
            status: RefreshStatus::from_bits(status),
            progress: health.d_refresh_progress,
            total_count: health.d_refresh_total_count,
            method: RefreshMethod::from_bits(method),
            unit: RefreshUnit::from_bits(unit),
            frequency: peer.read_attribute(AttributeId::RefreshFreq)? as u8,
        })
    }
}
