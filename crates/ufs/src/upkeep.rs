//! Long work that a device does on request: purge (JESD220 12.2.4) and refresh (13.4.15).
//!
//! Both begin with a flag and want every queue to be empty; how they stand is an attribute, and
//! a device that has ended says so once. While they run the device answers commands with NOT
//! READY or late, as it likes.

use crate::channel::Run;
use crate::control::Core;
use crate::query::Query;
use crate::time::MS;
use crate::{Cause, Error};
use flysch_api::machine::Machine;
use flysch_wire::ufs::descriptor::{ExtendedFeatures, HealthDescriptor, UfsFeatures};
use flysch_wire::ufs::query::{
    AttributeId, DescriptorId, FlagId, PurgeStatus, QueryResult, RefreshMethod, RefreshStatus,
    RefreshUnit,
};

/// How a refresh stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefreshState {
    /// Whether one runs, and how the last one ended.
    pub status: RefreshStatus,
    /// How much of the device was refreshed in the present round, units of 0.001 %.
    pub progress: u32,
    /// Rounds completed.
    pub total_count: u32,
    /// How.
    pub method: RefreshMethod,
    /// How much at once.
    pub unit: RefreshUnit,
    /// bRefreshFreq: how often the vendor wants a whole round, in months; 0 is not said.
    pub frequency: u8,
}

/// Time between two looks at something that runs, nanoseconds.
pub(crate) const LOOK_NANOS: u64 = 50 * MS;
/// Most looks of one operation: a page of answers stays short.
pub(crate) const LOOKS: u32 = 40;

impl<M: Machine> Core<M> {
    /// Begins or stops a purge: of all data that was unmapped, in all logical units.
    pub(crate) fn purge(&mut self, on: bool) -> Run<()> {
        self.begin_or_stop(FlagId::PurgeEnable, on)
    }

    /// How a purge stands, waiting up to `wait_ms` for its end.
    pub(crate) fn purge_status(&mut self, wait_ms: u32) -> Run<PurgeStatus> {
        let bits = self.status_of(AttributeId::PurgeStatus, wait_ms)?;
        Ok(PurgeStatus::from_bits(bits))
    }

    fn can_refresh(&self) -> bool {
        let device = &self.device.descriptor;
        UfsFeatures::from_bits(device.b_ufs_features_support).refresh()
            || ExtendedFeatures::from_bits(device.d_extended_ufs_features_support).refresh()
    }

    /// Begins a refresh.
    pub(crate) fn start_refresh(&mut self, method: RefreshMethod, unit: RefreshUnit) -> Run<()> {
        if !self.can_refresh() {
            return Err(Error::Unsupported("refresh").into());
        }
        let method = u64::from(method.into_bits());
        self.checked_query(&Query::write_attribute(AttributeId::RefreshMethod, method))?;
        let unit = u64::from(unit.into_bits());
        self.checked_query(&Query::write_attribute(AttributeId::RefreshUnit, unit))?;
        self.begin_or_stop(FlagId::RefreshEnable, true)
    }

    /// Stops a refresh.
    pub(crate) fn stop_refresh(&mut self) -> Run<()> {
        if !self.can_refresh() {
            return Err(Error::Unsupported("refresh").into());
        }
        self.begin_or_stop(FlagId::RefreshEnable, false)
    }

    /// How a refresh stands, waiting up to `wait_ms` for its end.
    pub(crate) fn refresh_state(&mut self, wait_ms: u32) -> Run<RefreshState> {
        if !self.can_refresh() {
            return Err(Error::Unsupported("refresh").into());
        }
        let status = self.status_of(AttributeId::RefreshStatus, wait_ms)?;
        let reply = self.checked_query(&Query::read_descriptor(DescriptorId::Health))?;
        let health = HealthDescriptor::parse(reply.bytes())
            .map_err(|why| Error::Descriptor("health", Some(why)))?;
        let [method, unit, frequency] =
            [AttributeId::RefreshMethod, AttributeId::RefreshUnit, AttributeId::RefreshFreq];
        Ok(RefreshState {
            status: RefreshStatus::from_bits(status),
            progress: health.d_refresh_progress,
            total_count: health.d_refresh_total_count,
            method: RefreshMethod::from_bits(self.byte_of(method)?),
            unit: RefreshUnit::from_bits(self.byte_of(unit)?),
            frequency: self.byte_of(frequency)?,
        })
    }

    /// Sets the flag while no command is in flight, or clears it.
    fn begin_or_stop(&mut self, flag: FlagId, on: bool) -> Run<()> {
        let what = if flag == FlagId::PurgeEnable { "purge" } else { "refresh" };
        if !on {
            self.checked_query(&Query::clear_flag(flag))?;
            return Ok(());
        }
        self.channel.quiesce()?;
        let version = self.device.descriptor.w_spec_version;
        let fields = Query::set_flag(flag).check(version);
        let done = match fields {
            Ok(fields) => self.query(fields)?.map(|_| ()).map_err(Error::from),
            Err(error) => Err(error),
        };
        self.channel.order(0);
        match done {
            // Purge has no feature bit: who does not have it does not know the flag.
            Err(Error::Failed(Cause::Query(
                QueryResult::InvalidIdn | QueryResult::ParameterNotWriteable,
            ))) => Err(Error::Unsupported(what).into()),
            done => Ok(done?),
        }
    }

    #[track_caller]
    fn byte_of(&mut self, id: AttributeId) -> Run<u8> {
        Ok(self.checked_query(&Query::read_attribute(id))?.fields.value32() as u8)
    }

    /// A status attribute, which has 1 for "in progress".
    fn status_of(&mut self, id: AttributeId, wait_ms: u32) -> Run<u8> {
        const IN_PROGRESS: u8 = 1;
        let looks = u32::try_from(u64::from(wait_ms) * MS / LOOK_NANOS).unwrap_or(LOOKS);
        for _ in 0..looks.min(LOOKS) {
            let status = self.byte_of(id)?;
            if status != IN_PROGRESS {
                return Ok(status);
            }
            self.channel.sleep(LOOK_NANOS)?;
        }
        self.byte_of(id)
    }
}
