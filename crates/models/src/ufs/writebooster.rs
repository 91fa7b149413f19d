//! WriteBooster: an area of SLC that takes writes fast and is emptied to TLC later.

use flysch_wire::ufs::query::{AttributeId, WriteBoosterFlushStatus};

use super::config::{ALLOCATION_UNIT, UNITS_MAX};
use super::provision::Provision;

/// bAvailableWriteBoosterBufferSize at which the device asks for a flush, units of 10 %.
const FLUSH_NEEDED: u64 = 1;
/// Times an SLC block can be programmed and erased, for the lifetime estimate.
const CYCLES: u64 = 30_000;

/// One buffer.
#[derive(Clone, Copy, Debug, Default)]
struct Buffer {
    capacity: u64,
    used: u64,
    written: u64,
    enabled: bool,
    flush: bool,
    flush_in_hibernate: bool,
    /// A flush that was asked for has emptied the buffer, or was stopped before it could.
    ended: Option<WriteBoosterFlushStatus>,
}

/// One shared buffer, or one per unit.
#[derive(Debug)]
pub(super) struct WriteBooster {
    shared: bool,
    buffers: [Buffer; UNITS_MAX],
    /// Whether any buffer is on, and whether any is flushed in hibernate: what the fast path
    /// wants to know.
    any: bool,
    any_in_hibernate: bool,
}

impl WriteBooster {
    pub(super) fn new(provision: &Provision) -> Self {
        let shared = provision.header.b_write_booster_buffer_type == 1;
        let units = |lun: usize| match (shared, lun) {
            (true, 0) => provision.header.d_num_shared_write_booster_buffer_alloc_units,
            (true, _) => 0,
            (false, lun) => provision.units[lun].d_lu_num_write_booster_buffer_alloc_units,
        };
        let buffer =
            |lun| Buffer { capacity: u64::from(units(lun)) * ALLOCATION_UNIT, ..Buffer::default() };
        Self { shared, buffers: core::array::from_fn(buffer), any: false, any_in_hibernate: false }
    }

    pub(super) fn is_shared(&self) -> bool {
        self.shared
    }

    fn buffer(&mut self, unit: u8) -> &mut Buffer {
        let index = if self.shared { 0 } else { usize::from(unit) % UNITS_MAX };
        &mut self.buffers[index]
    }

    /// A reset clears the volatile flags; the data stays.
    pub(super) fn reset(&mut self) {
        for buffer in &mut self.buffers {
            buffer.enabled = false;
            buffer.flush = false;
            buffer.flush_in_hibernate = false;
        }
        self.any = false;
        self.any_in_hibernate = false;
    }

    pub(super) fn enable(&mut self, unit: u8, value: bool) {
        self.buffer(unit).enabled = value;
        self.any = self.buffers.iter().any(|buffer| buffer.enabled);
    }

    pub(super) fn flush(&mut self, unit: u8, value: bool) {
        let buffer = self.buffer(unit);
        buffer.ended = match value {
            false if buffer.flush && buffer.used > 0 => {
                Some(WriteBoosterFlushStatus::StoppedPrematurely)
            }
            true if buffer.used == 0 => Some(WriteBoosterFlushStatus::Completed),
            true => None,
            false => buffer.ended,
        };
        buffer.flush = value;
    }

    pub(super) fn flush_in_hibernate(&mut self, unit: u8, value: bool) {
        self.buffer(unit).flush_in_hibernate = value;
        self.any_in_hibernate = self.buffers.iter().any(|buffer| buffer.flush_in_hibernate);
    }

    /// Whether a write of `bytes` to `unit` goes to SLC; takes the room if so.
    #[inline]
    pub(super) fn takes(&mut self, unit: u8, bytes: u64) -> bool {
        if !self.any {
            return false;
        }
        let buffer = self.buffer(unit);
        if !buffer.enabled || buffer.used + bytes > buffer.capacity {
            return false;
        }
        buffer.used += bytes;
        buffer.written += bytes;
        true
    }

    /// Whether there is something to flush once the link hibernates.
    pub(super) fn waits_for_hibernate(&self) -> bool {
        self.any_in_hibernate && self.to_flush(true, 1).is_some()
    }

    /// Bytes of at most `limit` that should move to TLC now.
    pub(super) fn to_flush(&self, hibernated: bool, limit: u64) -> Option<(u8, u64)> {
        let wanted = |buffer: &Buffer| {
            buffer.used > 0 && (buffer.flush || hibernated && buffer.flush_in_hibernate)
        };
        let index = self.buffers.iter().position(wanted)?;
        Some((index as u8, self.buffers[index].used.min(limit)))
    }

    /// Takes bytes out of a buffer that a flush moves to TLC.
    pub(super) fn moved(&mut self, index: u8, bytes: u64) {
        let buffer = &mut self.buffers[usize::from(index)];
        buffer.used -= bytes;
        if buffer.used == 0 && buffer.flush {
            buffer.ended = Some(WriteBoosterFlushStatus::Completed);
        }
    }

    /// bAvailableWriteBoosterBufferSize.
    fn available(buffer: &Buffer) -> u64 {
        ((buffer.capacity - buffer.used) * 10).checked_div(buffer.capacity).unwrap_or(0)
    }

    /// WRITEBOOSTER_FLUSH_NEEDED.
    pub(super) fn needs_flush(&self) -> bool {
        self.buffers.iter().any(|b| b.capacity > 0 && Self::available(b) <= FLUSH_NEEDED)
    }

    pub(super) fn attribute(&mut self, id: AttributeId, unit: u8) -> u64 {
        let buffer = *self.buffer(unit);
        match id {
            AttributeId::AvailableWriteBoosterBufferSize => Self::available(&buffer),
            AttributeId::CurrentWriteBoosterBufferSize => buffer.capacity / ALLOCATION_UNIT,
            AttributeId::WriteBoosterBufferLifeTimeEst => {
                let life = buffer.capacity.saturating_mul(CYCLES);
                (buffer.written.saturating_mul(10)).checked_div(life).map_or(0, |n| n.min(10) + 1)
            }
            _ => {
                let idle = buffer.ended.unwrap_or(WriteBoosterFlushStatus::Idle);
                let status = match buffer.flush && buffer.used > 0 {
                    true => WriteBoosterFlushStatus::InProgress,
                    false => idle,
                };
                u64::from(status.into_bits())
            }
        }
    }
}
