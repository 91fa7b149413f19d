//! WriteBooster: an SLC area takes bursts of writes.
//!
//! With UFS 4.1 its buffer is resized while the device runs: the device recommends, the host
//! decides when, and the device says how much. And a flush may leave a part of it: what was written
//! last (FIFO), or what was written with GROUP NUMBER 18h (pinned).

use crate::Error;
use crate::channel::Run;
use crate::control::Core;
use crate::device_quirks::DeviceQuirk;
use crate::query::Query;
use crate::time::MS;
use crate::upkeep::{LOOK_NANOS, LOOKS};
use flysch_api::machine::Machine;
use flysch_wire::ufs::descriptor::{ExtendedFeatures, ExtendedWriteBooster};
use flysch_wire::ufs::query::{
    AttributeId, FlagId, WRITE_BOOSTER_SINCE, WriteBoosterFlushStatus, WriteBoosterPartialFlush,
    WriteBoosterResize, WriteBoosterResizeStatus,
};

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

/// How a resize of the WriteBooster buffer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizeState {
    /// What the device recommends.
    pub hint: WriteBoosterResize,
    /// Whether one is under way, or how the last one ended; a device tells an end once.
    pub status: WriteBoosterResizeStatus,
    /// Size of the buffer, its pinned part left out, allocation units.
    pub size_units: u32,
}

/// What a flush leaves in the WriteBooster buffer. Sizes are allocation units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartialFlush {
    /// Nothing.
    None,
    /// What was written last.
    Fifo {
        /// At most so much.
        units: u32,
    },
    /// What was written with GROUP NUMBER
    /// [`PINNED_GROUP`](flysch_wire::ufs::query::PINNED_GROUP).
    Pinned {
        /// The part of the buffer that is for it.
        units: u32,
        /// The part that is left for everything else for as long as possible.
        others_min: u32,
    },
}

/// How partial flush stands. Sizes are allocation units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialFlushState {
    /// What a flush leaves.
    pub mode: WriteBoosterPartialFlush,
    /// Most that FIFO mode keeps, and what it keeps of the buffer as it is.
    pub fifo_max: u32,
    /// See [`fifo_max`](Self::fifo_max).
    pub fifo: u32,
    /// The pinned part as wanted, and as it is.
    pub pinned_max: u32,
    /// See [`pinned_max`](Self::pinned_max).
    pub pinned: u32,
    /// What is left of the pinned part, percent, in steps of ten.
    pub pinned_available_percent: u8,
    /// Least part for what is not pinned.
    pub others_min: u32,
    /// Data ever written to the pinned part, units of 10 MB.
    pub pinned_written: u32,
    /// Whether pinned data is released: a flush takes it, too.
    pub unpinned: bool,
}

/// bWriteBoosterBufferLifeTimeEst: the life time is exceeded.
const LIFE_EXCEEDED: u64 = 0x0B;

impl<M: Machine> Core<M> {
    /// Whether the device has it: one that is old enough to know nothing of it does not, whatever
    /// it says, unless it is known to (Linux asks the same).
    pub(crate) fn has_write_booster(&self) -> bool {
        let device = &self.device;
        let features =
            ExtendedFeatures::from_bits(device.descriptor.d_extended_ufs_features_support);
        let may = WRITE_BOOSTER_SINCE.is_in(device.descriptor.w_spec_version)
            || device.quirks.has(DeviceQuirk::EarlyWriteBooster);
        features.write_booster() && may
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

    pub(crate) fn booster_attribute(&mut self, id: AttributeId) -> Run<u64> {
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

    fn extended_booster(&self) -> ExtendedWriteBooster {
        let bits = self.device.descriptor.w_extended_write_booster_support;
        ExtendedWriteBooster::from_bits(if self.has_write_booster() { bits } else { 0 })
    }

    fn preserves_user_space(&self) -> bool {
        self.device.descriptor.b_write_booster_buffer_preserve_user_space_en == 1
    }

    fn set_booster_attribute(&mut self, id: AttributeId, value: u64) -> Run<()> {
        let query = Query::write_attribute(id, value).index(self.booster_index());
        self.checked_query(&query)?;
        Ok(())
    }

    /// An attribute that the device has one of.
    fn device_attribute(&mut self, id: AttributeId) -> Run<u32> {
        Ok(self.checked_query(&Query::read_attribute(id))?.fields.value32())
    }

    /// A buffer that takes no user space, of a device that resizes it: others refuse.
    fn check_resize(&self) -> Result<(), Error> {
        match self.extended_booster().resize() && self.preserves_user_space() {
            true => Ok(()),
            false => Err(Error::Unsupported("resizing the WriteBooster buffer")),
        }
    }

    /// Begins a resize.
    pub(crate) fn resize_write_booster(&mut self, direction: WriteBoosterResize) -> Run<()> {
        self.check_resize()?;
        let value = u64::from(direction.into_bits());
        self.set_booster_attribute(AttributeId::WriteBoosterBufferResizeEn, value)
    }

    /// Begins the resize that the device recommends, if it does.
    pub(crate) fn follow_resize_hint(&mut self) -> Run<()> {
        self.check_resize()?;
        let hint = self.booster_attribute(AttributeId::WriteBoosterBufferResizeHint)?;
        match WriteBoosterResize::from_bits(hint as u8) {
            direction @ (WriteBoosterResize::Decrease | WriteBoosterResize::Increase) => {
                self.resize_write_booster(direction)
            }
            _ => Ok(()),
        }
    }

    /// How a resize stands, waiting up to `wait_ms` for its end.
    pub(crate) fn resize_state(&mut self, wait_ms: u32) -> Run<ResizeState> {
        self.check_resize()?;
        let looks = u32::try_from(u64::from(wait_ms) * MS / LOOK_NANOS).unwrap_or(LOOKS);
        let in_progress = WriteBoosterResizeStatus::InProgress.into_bits().into();
        let id = AttributeId::WriteBoosterBufferResizeStatus;
        let mut status = self.booster_attribute(id)?;
        for _ in 0..looks.min(LOOKS) {
            if status != in_progress {
                break;
            }
            self.channel.sleep(LOOK_NANOS)?;
            status = self.booster_attribute(id)?;
        }
        let hint = self.booster_attribute(AttributeId::WriteBoosterBufferResizeHint)?;
        let size = self.booster_attribute(AttributeId::CurrentWriteBoosterBufferSize)?;
        Ok(ResizeState {
            hint: WriteBoosterResize::from_bits(hint as u8),
            status: WriteBoosterResizeStatus::from_bits(status as u8),
            size_units: size as u32,
        })
    }

    /// Says what a flush leaves: sizes first, so that the mode finds them.
    pub(crate) fn set_partial_flush(&mut self, flush: PartialFlush) -> Run<()> {
        const WHAT: Error = Error::Unsupported("this partial flush of the WriteBooster buffer");
        let can = self.extended_booster();
        let (can, mode) = match flush {
            PartialFlush::None => {
                let any = can.fifo_partial_flush() || can.pinned_partial_flush();
                (any, WriteBoosterPartialFlush::None)
            }
            PartialFlush::Fifo { .. } => (can.fifo_partial_flush(), WriteBoosterPartialFlush::Fifo),
            PartialFlush::Pinned { .. } => {
                let can = can.pinned_partial_flush() && self.preserves_user_space();
                (can, WriteBoosterPartialFlush::Pinned)
            }
        };
        if !can {
            return Err(WHAT.into());
        }
        match flush {
            PartialFlush::None => {}
            PartialFlush::Fifo { units } => {
                let id = AttributeId::MaxFifoSizeForWriteBoosterPartialFlushMode;
                self.set_booster_attribute(id, units.into())?;
            }
            PartialFlush::Pinned { units, others_min } => {
                // The sum of both is bounded: what was set before must not be in the way.
                let others = AttributeId::NonPinnedWriteBoosterBufferMinNumAllocUnits;
                self.set_booster_attribute(others, 0)?;
                let pinned = AttributeId::PinnedWriteBoosterBufferNumAllocUnits;
                self.set_booster_attribute(pinned, units.into())?;
                self.set_booster_attribute(others, others_min.into())?;
            }
        }
        // One for the device, whatever the buffers.
        let id = AttributeId::WriteBoosterBufferPartialFlushMode;
        self.checked_query(&Query::write_attribute(id, mode.into_bits().into()))?;
        Ok(())
    }

    /// Releases pinned data, or no longer.
    pub(crate) fn unpin(&mut self, on: bool) -> Run<()> {
        if !self.extended_booster().pinned_partial_flush() {
            return Err(Error::Unsupported("pinned WriteBooster data").into());
        }
        self.write_booster_flag(FlagId::UnpinEn, on)
    }

    /// How partial flush stands; what a device does not have is 0.
    pub(crate) fn partial_flush_state(&mut self) -> Run<PartialFlushState> {
        let can = self.extended_booster();
        let (fifo, pinned) = (can.fifo_partial_flush(), can.pinned_partial_flush());
        if !fifo && !pinned {
            let what = "partial flush of the WriteBooster buffer";
            return Err(Error::Unsupported(what).into());
        }
        let mode = self.device_attribute(AttributeId::WriteBoosterBufferPartialFlushMode)?;
        let mut state = PartialFlushState {
            mode: WriteBoosterPartialFlush::from_bits(mode as u8),
            fifo_max: 0,
            fifo: 0,
            pinned_max: 0,
            pinned: 0,
            pinned_available_percent: 0,
            others_min: 0,
            pinned_written: 0,
            unpinned: false,
        };
        if fifo {
            let id = AttributeId::MaxFifoSizeForWriteBoosterPartialFlushMode;
            state.fifo_max = self.booster_attribute(id)? as u32;
            let id = AttributeId::CurrentFifoSizeForWriteBoosterPartialFlushMode;
            state.fifo = self.booster_attribute(id)? as u32;
        }
        if pinned {
            let id = AttributeId::PinnedWriteBoosterBufferNumAllocUnits;
            state.pinned_max = self.booster_attribute(id)? as u32;
            let id = AttributeId::NonPinnedWriteBoosterBufferMinNumAllocUnits;
            state.others_min = self.booster_attribute(id)? as u32;
            let id = AttributeId::PinnedWriteBoosterBufferCurrentAllocUnits;
            state.pinned = self.device_attribute(id)?;
            let id = AttributeId::PinnedWriteBoosterBufferAvailablePercentage;
            state.pinned_available_percent = self.device_attribute(id)?.min(10) as u8 * 10;
            let id = AttributeId::PinnedWriteBoosterCummulativeWrittenSize;
            state.pinned_written = self.device_attribute(id)?;
            state.unpinned = self.booster_flag(FlagId::UnpinEn)?;
        }
        Ok(state)
    }

    /// At bring-up: what the options want.
    pub(crate) fn initial_write_booster(&mut self) -> Run<()> {
        match self.channel.options.write_booster {
            Some(on) if self.has_write_booster() => {
                self.write_booster_flag(FlagId::WriteBoosterEn, on)
            }
            _ => Ok(()),
        }
    }
}
