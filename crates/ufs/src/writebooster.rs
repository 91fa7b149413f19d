//! WriteBooster: an SLC area takes bursts of writes.

use crate::Error;
use crate::control::{Core, Run};
use crate::query::Query;
use flysch_api::machine::Machine;
use flysch_wire::ufs::descriptor::ExtendedFeatures;
use flysch_wire::ufs::query::{AttributeId, FlagId, WriteBoosterFlushStatus};

/// How WriteBooster stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBoosterStatus {
    /// Whether new writes may go to the buffer.
    pub enabled: bool,
    /// Whether a flush was asked for.
    pub flushing: bool,
    /// Whether the buffer is flushed while the link hibernates.
    pub flush_in_hibernate: bool,
    /// State of the flush.
    pub flush_status: WriteBoosterFlushStatus,
    /// Buffer left, percent.
    pub available_percent: u8,
    /// Buffer life used, percent, in steps of ten; `None` once it is exceeded.
    pub life_used_percent: Option<u8>,
    /// Size of the buffer, allocation units.
    pub size_units: u32,
}

/// bWriteBoosterBufferLifeTimeEst: the life time is exceeded.
const LIFE_EXCEEDED: u64 = 0x0B;

impl<M: Machine> Core<M> {
    pub(crate) fn has_write_booster(&self) -> bool {
        let features = self.device.descriptor.d_extended_ufs_features_support;
        ExtendedFeatures::from_bits(features).write_booster()
    }

    /// The index WriteBooster is asked with: the unit that has the buffer if there is one per
    /// unit, else 0.
    fn booster_index(&self) -> u8 {
        if self.device.descriptor.b_write_booster_buffer_type != 0 {
            return 0;
        }
        let has_buffer = |unit: &&flysch_wire::ufs::descriptor::UnitDescriptor| {
            unit.d_lu_num_write_booster_buffer_alloc_units != 0
        };
        let units = self.device.units.iter().flatten();
        units.filter(has_buffer).map(|unit| unit.b_unit_index).next().unwrap_or(0)
    }

    fn booster_attribute(&mut self, id: AttributeId) -> Run<u64> {
        let query = Query::read_attribute(id).index(self.booster_index());
        Ok(self.checked_query(&query)?.fields.value32().into())
    }

    fn booster_flag(&mut self, id: FlagId) -> Run<bool> {
        let query = Query::read_flag(id).index(self.booster_index());
        Ok(self.checked_query(&query)?.fields.flag_value())
    }

    pub(crate) fn write_booster_flag(&mut self, id: FlagId, on: bool) -> Run<()> {
        if !self.has_write_booster() {
            return Err(Error::Unsupported("WriteBooster").into());
        }
        let query = if on { Query::set_flag(id) } else { Query::clear_flag(id) };
        self.checked_query(&query.index(self.booster_index()))?;
        Ok(())
    }

    pub(crate) fn write_booster_status(&mut self) -> Run<WriteBoosterStatus> {
        if !self.has_write_booster() {
            return Err(Error::Unsupported("WriteBooster").into());
        }
        let life = self.booster_attribute(AttributeId::WriteBoosterBufferLifeTimeEst)?;
        let status = self.booster_attribute(AttributeId::WriteBoosterBufferFlushStatus)?;
        let available = self.booster_attribute(AttributeId::AvailableWriteBoosterBufferSize)?;
        let size = self.booster_attribute(AttributeId::CurrentWriteBoosterBufferSize)?;
        Ok(WriteBoosterStatus {
            enabled: self.booster_flag(FlagId::WriteBoosterEn)?,
            flushing: self.booster_flag(FlagId::WriteBoosterBufferFlushEn)?,
            flush_in_hibernate: self
                .booster_flag(FlagId::WriteBoosterBufferFlushDuringHibernate)?,
            flush_status: WriteBoosterFlushStatus::from_bits(status as u8),
            available_percent: (available.min(10) * 10) as u8,
            life_used_percent: (life < LIFE_EXCEEDED).then_some((life * 10).min(100) as u8),
            size_units: size as u32,
        })
    }

    /// At bring-up: what the options want.
    pub(crate) fn initial_write_booster(&mut self) -> Run<()> {
        match self.options.write_booster {
            Some(on) if self.has_write_booster() => {
                self.write_booster_flag(FlagId::WriteBoosterEn, on)
            }
            _ => Ok(()),
        }
    }
}
