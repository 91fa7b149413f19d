//! WriteBooster: an SLC area takes bursts of writes.
//!
//! With UFS 4.1 its buffer can be resized while the device runs: the device recommends, the host
//! decides when, and the device determines how much. A flush can leave a part of the buffer: what
//! was written last (FIFO), or what was written with GROUP NUMBER 18h (pinned).

use crate::UfsError;
use crate::channel::Run;
use crate::device_quirks::DeviceQuirk;
use crate::facts::UfsFacts;
use crate::management::Peer;
use crate::query::Query;
use flysch_api::machine::Machine;
use flysch_script::settled;
use flysch_wire::ufs::descriptor::{ExtendedWriteBooster, UnitDescriptor};
use flysch_wire::ufs::query::{
    AttributeId, FlagId, WRITE_BOOSTER_SINCE, WriteBoosterFlushStatus, WriteBoosterPartialFlush,
    WriteBoosterResize, WriteBoosterResizeStatus,
};

/// The state of WriteBooster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBoosterStatus {
    /// Whether new writes may go to the buffer.
    pub enabled: bool,
    /// Whether a flush was requested.
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

/// The state of a resize of the WriteBooster buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizeState {
    /// What the device recommends.
    pub hint: WriteBoosterResize,
    /// Whether one is in progress, or how the last one ended; a device reports an end once.
    pub status: WriteBoosterResizeStatus,
    /// Size of the buffer without its pinned part, allocation units.
    pub size_units: u32,
}

/// What a flush leaves in the WriteBooster buffer. Sizes are allocation units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartialFlush {
    /// Nothing.
    None,
    /// What was written last.
    Fifo {
        /// At most this much.
        units: u32,
    },
    /// What was written with GROUP NUMBER
    /// [`PINNED_GROUP`](flysch_wire::ufs::query::PINNED_GROUP).
    Pinned {
        /// The part of the buffer reserved for it.
        units: u32,
        /// The part that stays available for everything else for as long as possible.
        others_min: u32,
    },
}

/// The state of partial flush. Sizes are allocation units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialFlushState {
    /// What a flush leaves.
    pub mode: WriteBoosterPartialFlush,
    /// The most that FIFO mode keeps, and what it keeps of the buffer at its present size.
    pub fifo_max: u32,
    /// See [`fifo_max`](Self::fifo_max).
    pub fifo: u32,
    /// The pinned part as configured, and as it is.
    pub pinned_max: u32,
    /// See [`pinned_max`](Self::pinned_max).
    pub pinned: u32,
    /// Free space in the pinned part, percent, in steps of ten.
    pub pinned_available_percent: u8,
    /// Minimum for data that is not pinned.
    pub others_min: u32,
    /// Data ever written to the pinned part, units of 10 MB.
    pub pinned_written: u32,
    /// Whether pinned data is released, so that a flush takes it as well.
    pub unpinned: bool,
}

/// bWriteBoosterBufferLifeTimeEst: the lifetime is exceeded.
const LIFE_EXCEEDED: u64 = 0x0B;

/// The WriteBooster of a device, as its descriptors describe it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteBooster {
    /// Whether the device has it.
    present: bool,
    /// The index it is addressed with.
    index: u8,
    extended: ExtendedWriteBooster,
    /// Whether the buffer takes no user space.
    preserves_user_space: bool,
}

impl WriteBooster {
    /// A device that is too old for WriteBooster does not have it, whatever its descriptor says,
    /// unless it is known to (Linux applies the same rule).
    pub(crate) fn of(device: &UfsFacts) -> Self {
        let descriptor = &device.descriptor;
        let may = WRITE_BOOSTER_SINCE.is_in(descriptor.w_spec_version)
            || device.quirks.has(DeviceQuirk::EarlyWriteBooster);
        let present = device.extended_features().write_booster() && may;
        let extended = if present { descriptor.w_extended_write_booster_support } else { 0 };
        Self {
            present,
            index: Self::index_in(device),
            extended: ExtendedWriteBooster::from_bits(extended),
            preserves_user_space: descriptor.b_write_booster_buffer_preserve_user_space_en == 1,
        }
    }

    /// The unit that has the buffer if there is one for each unit, else 0.
    fn index_in(device: &UfsFacts) -> u8 {
        if device.descriptor.b_write_booster_buffer_type != 0 {
            return 0;
        }
        let has_buffer =
            |unit: &&UnitDescriptor| unit.d_lu_num_write_booster_buffer_alloc_units != 0;
        let units = device.units.iter().flatten();
        units.filter(has_buffer).map(|unit| unit.b_unit_index).next().unwrap_or(0)
    }

    fn check(&self) -> Result<(), UfsError> {
        if self.present { Ok(()) } else { Err(UfsError::Unsupported("WriteBooster")) }
    }

    fn attribute<M: Machine>(&self, peer: &mut Peer<M>, id: AttributeId) -> Run<u64> {
        let query = Query::read_attribute(id).index(self.index);
        Ok(peer.checked_query(&query)?.fields.value32().into())
    }

    fn set_attribute<M: Machine>(
        &self,
        peer: &mut Peer<M>,
        id: AttributeId,
        value: u64,
    ) -> Run<()> {
        let query = Query::write_attribute(id, value).index(self.index);
        peer.checked_query(&query)?;
        Ok(())
    }

    fn flag<M: Machine>(&self, peer: &mut Peer<M>, id: FlagId) -> Run<bool> {
        let query = Query::read_flag(id).index(self.index);
        Ok(peer.checked_query(&query)?.fields.flag_value())
    }

    /// Sets or clears one of its flags.
    pub(crate) fn set_flag<M: Machine>(&self, peer: &mut Peer<M>, id: FlagId, on: bool) -> Run<()> {
        self.check()?;
        let query = if on { Query::set_flag(id) } else { Query::clear_flag(id) };
        peer.checked_query(&query.index(self.index))?;
        Ok(())
    }

    /// Whether a flush of the buffer runs; `false` also if the device does not say.
    pub(crate) fn is_flushing<M: Machine>(&self, peer: &mut Peer<M>) -> Run<bool> {
        if !self.present {
            return Ok(false);
        }
        let in_progress = WriteBoosterFlushStatus::InProgress.into_bits();
        let status = settled(self.attribute(peer, AttributeId::WriteBoosterBufferFlushStatus))?;
        Ok(status.is_ok_and(|status| status == u64::from(in_progress)))
    }

    /// Its present state.
    pub(crate) fn status<M: Machine>(&self, peer: &mut Peer<M>) -> Run<WriteBoosterStatus> {
        self.check()?;
        let life = self.attribute(peer, AttributeId::WriteBoosterBufferLifeTimeEst)?;
        let status = self.attribute(peer, AttributeId::WriteBoosterBufferFlushStatus)?;
        let available = self.attribute(peer, AttributeId::AvailableWriteBoosterBufferSize)?;
        let size = self.attribute(peer, AttributeId::CurrentWriteBoosterBufferSize)?;
        Ok(WriteBoosterStatus {
            enabled: self.flag(peer, FlagId::WriteBoosterEn)?,
            flushing: self.flag(peer, FlagId::WriteBoosterBufferFlushEn)?,
            flush_in_hibernate: self.flag(peer, FlagId::WriteBoosterBufferFlushDuringHibernate)?,
            flush_status: WriteBoosterFlushStatus::from_bits(status as u8),
            available_percent: (available.min(10) * 10) as u8,
            life_used_percent: (life < LIFE_EXCEEDED).then_some((life * 10).min(100) as u8),
            size_units: size as u32,
        })
    }

    /// Only a buffer that takes no user space, of a device that supports it, can be resized.
    fn check_resize(&self) -> Result<(), UfsError> {
        match self.extended.resize() && self.preserves_user_space {
            true => Ok(()),
            false => Err(UfsError::Unsupported("resizing the WriteBooster buffer")),
        }
    }

    /// Begins a resize.
    pub(crate) fn resize<M: Machine>(
        &self,
        peer: &mut Peer<M>,
        direction: WriteBoosterResize,
    ) -> Run<()> {
        self.check_resize()?;
        let value = u64::from(direction.into_bits());
        self.set_attribute(peer, AttributeId::WriteBoosterBufferResizeEn, value)
    }

    /// Begins the resize that the device recommends, if any.
    pub(crate) fn follow_hint<M: Machine>(&self, peer: &mut Peer<M>) -> Run<()> {
        self.check_resize()?;
        let hint = self.attribute(peer, AttributeId::WriteBoosterBufferResizeHint)?;
        match WriteBoosterResize::from_bits(hint as u8) {
            direction @ (WriteBoosterResize::Decrease | WriteBoosterResize::Increase) => {
                self.resize(peer, direction)
            }
            _ => Ok(()),
        }
    }

    /// The state of a resize, after waiting up to `wait_ms` for its end.
    pub(crate) fn resize_state<M: Machine>(
        &self,
        peer: &mut Peer<M>,
        wait_ms: u32,
    ) -> Run<ResizeState> {
        self.check_resize()?;
        let id = AttributeId::WriteBoosterBufferResizeStatus;
        let query = Query::read_attribute(id).index(self.index);
        let in_progress = WriteBoosterResizeStatus::InProgress.into_bits();
        let status = peer.poll_status(&query, in_progress, wait_ms)?;
        let hint = self.attribute(peer, AttributeId::WriteBoosterBufferResizeHint)?;
        let size = self.attribute(peer, AttributeId::CurrentWriteBoosterBufferSize)?;
        Ok(ResizeState {
            hint: WriteBoosterResize::from_bits(hint as u8),
            status: WriteBoosterResizeStatus::from_bits(status),
            size_units: size as u32,
        })
    }

    /// The mode of a partial flush, if the device supports it.
    fn partial_flush_mode(
        &self,
        flush: PartialFlush,
    ) -> Result<WriteBoosterPartialFlush, UfsError> {
        let (fifo, pinned) =
            (self.extended.fifo_partial_flush(), self.extended.pinned_partial_flush());
        let (can, mode) = match flush {
            PartialFlush::None => (fifo || pinned, WriteBoosterPartialFlush::None),
            PartialFlush::Fifo { .. } => (fifo, WriteBoosterPartialFlush::Fifo),
            PartialFlush::Pinned { .. } => {
                (pinned && self.preserves_user_space, WriteBoosterPartialFlush::Pinned)
            }
        };
        let what = "this partial flush of the WriteBooster buffer";
        if can { Ok(mode) } else { Err(UfsError::Unsupported(what)) }
    }

    /// Sets what a flush leaves: first the sizes, so that they are there when the mode is set.
    pub(crate) fn set_partial_flush<M: Machine>(
        &self,
        peer: &mut Peer<M>,
        flush: PartialFlush,
    ) -> Run<()> {
        let mode = self.partial_flush_mode(flush)?;
        match flush {
            PartialFlush::None => {}
            PartialFlush::Fifo { units } => {
                let id = AttributeId::MaxFifoSizeForWriteBoosterPartialFlushMode;
                self.set_attribute(peer, id, units.into())?;
            }
            PartialFlush::Pinned { units, others_min } => {
                // The sum of both is bounded: what was set before must not be in the way.
                let others = AttributeId::NonPinnedWriteBoosterBufferMinNumAllocUnits;
                self.set_attribute(peer, others, 0)?;
                let pinned = AttributeId::PinnedWriteBoosterBufferNumAllocUnits;
                self.set_attribute(peer, pinned, units.into())?;
                self.set_attribute(peer, others, others_min.into())?;
            }
        }
        // One for the device, whatever the buffers.
        let id = AttributeId::WriteBoosterBufferPartialFlushMode;
        peer.checked_query(&Query::write_attribute(id, mode.into_bits().into()))?;
        Ok(())
    }

    /// Releases pinned data, or no longer.
    pub(crate) fn unpin<M: Machine>(&self, peer: &mut Peer<M>, on: bool) -> Run<()> {
        if !self.extended.pinned_partial_flush() {
            return Err(UfsError::Unsupported("pinned WriteBooster data").into());
        }
        self.set_flag(peer, FlagId::UnpinEn, on)
    }

    /// The state of partial flush; what a device does not have is 0.
    pub(crate) fn partial_flush_state<M: Machine>(
        &self,
        peer: &mut Peer<M>,
    ) -> Run<PartialFlushState> {
        let (fifo, pinned) =
            (self.extended.fifo_partial_flush(), self.extended.pinned_partial_flush());
        if !fifo && !pinned {
            let what = "partial flush of the WriteBooster buffer";
            return Err(UfsError::Unsupported(what).into());
        }
        let mode = peer.read_attribute(AttributeId::WriteBoosterBufferPartialFlushMode)?;
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
            state.fifo_max = self.attribute(peer, id)? as u32;
            let id = AttributeId::CurrentFifoSizeForWriteBoosterPartialFlushMode;
            state.fifo = self.attribute(peer, id)? as u32;
        }
        if pinned {
            let id = AttributeId::PinnedWriteBoosterBufferNumAllocUnits;
            state.pinned_max = self.attribute(peer, id)? as u32;
            let id = AttributeId::NonPinnedWriteBoosterBufferMinNumAllocUnits;
            state.others_min = self.attribute(peer, id)? as u32;
            let id = AttributeId::PinnedWriteBoosterBufferCurrentAllocUnits;
            state.pinned = peer.read_attribute(id)?;
            let id = AttributeId::PinnedWriteBoosterBufferAvailablePercentage;
            state.pinned_available_percent = peer.read_attribute(id)?.min(10) as u8 * 10;
            let id = AttributeId::PinnedWriteBoosterCummulativeWrittenSize;
            state.pinned_written = peer.read_attribute(id)?;
            state.unpinned = self.flag(peer, FlagId::UnpinEn)?;
        }
        Ok(state)
    }

    /// At bring-up: switches it on or off if the caller wants that.
    pub(crate) fn initialise<M: Machine>(&self, peer: &mut Peer<M>) -> Run<()> {
        match peer.channel.options.write_booster {
            Some(on) if self.present => self.set_flag(peer, FlagId::WriteBoosterEn, on),
            _ => Ok(()),
        }
    }
}
