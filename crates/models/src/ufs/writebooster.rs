//! WriteBooster: an SLC area that takes writes fast and is emptied to TLC later.
//!
//! From UFS 4.1 on the host can have the buffer shrunk or grown while the device runs, and can
//! specify what a flush leaves in it: the data written last (FIFO), or the data marked by the host
//! (pinned). Where JESD220 leaves the choice to the device: a resize is an eighth of the configured
//! size and takes 20 ms, starting when no command is in the device; the buffer is never smaller
//! than a quarter, nor than its contents. The settings of partial flush are lost when the device is
//! configured anew.

use flysch_wire::ufs::query::{
    AttributeId, QueryResult, WriteBoosterFlushStatus, WriteBoosterPartialFlush as Mode,
    WriteBoosterResize, WriteBoosterResizeStatus,
};

use super::config::{ALLOCATION_UNIT, UNITS_MAX};
use super::provision::Provision;

/// bAvailableWriteBoosterBufferSize at which the device asks for a flush, in units of 10 %.
const FLUSH_NEEDED: u64 = 1;
/// Number of program and erase cycles of an SLC block, for the lifetime estimate.
const CYCLES: u64 = 30_000;
/// Duration of a resize, nanoseconds, and the interval at which the queues are checked again for
/// being empty.
const RESIZE_NS: u64 = 20_000_000;
/// Fractions of the configured size: one resize, the smallest buffer.
const STEP_PART: u64 = 8;
const LEAST_PART: u64 = 4;
/// Unit of dPinnedWriteBoosterCummulativeWrittenSize, bytes.
const WRITTEN_UNIT: u64 = 10_000_000;

/// One buffer. Sizes are bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Buffer {
    /// Configured size, which a resize never exceeds.
    configured: u64,
    /// Current size, including the pinned part.
    capacity: u64,
    /// Contents, except pinned data.
    used: u64,
    /// Pinned data in it.
    pinned: u64,
    written: u64,
    pinned_written: u64,
    enabled: bool,
    flush: bool,
    flush_in_hibernate: bool,
    /// fUnpinEn: nothing is pinned.
    unpin: bool,
    /// A write found no room since the last resize; a pinned write found none since data was
    /// unpinned.
    missed: bool,
    pinned_missed: bool,
    /// How a requested flush ended: it has emptied the buffer, or was stopped before it could.
    ended: Option<WriteBoosterFlushStatus>,
    /// The resize in progress and its end; how the last one ended.
    resize: Option<(WriteBoosterResize, u64)>,
    resized: Option<WriteBoosterResizeStatus>,
    /// Set by the host: the maximum that FIFO keeps, the pinned part, the minimum besides it.
    fifo_max: u64,
    pinned_max: u64,
    others_min: u64,
}

impl Buffer {
    fn new(configured: u64) -> Self {
        Self { configured, capacity: configured, ..Self::default() }
    }

    /// Size of the part for pinned data.
    fn pinned_capacity(&self, mode: Mode) -> u64 {
        match mode {
            Mode::Pinned => self.pinned_max.min(self.capacity.saturating_sub(self.others_min)),
            _ => 0,
        }
    }

    /// Size of the rest.
    fn other_capacity(&self, mode: Mode) -> u64 {
        self.capacity - self.pinned_capacity(mode)
    }

    /// The amount that a flush in FIFO mode keeps: less than the buffer.
    fn fifo(&self, mode: Mode) -> u64 {
        match mode {
            Mode::Fifo => self.fifo_max.min(self.capacity.saturating_sub(ALLOCATION_UNIT)),
            _ => 0,
        }
    }

    /// The amount that a flush would move.
    fn flushable(&self, mode: Mode) -> u64 {
        self.used.saturating_sub(self.fifo(mode))
    }

    /// bAvailableWriteBoosterBufferSize.
    fn available(&self, mode: Mode) -> u64 {
        tenths(self.used, self.other_capacity(mode))
    }

    /// Pinned data that does not fit the pinned part, or all of it if nothing may be pinned,
    /// becomes ordinary data.
    fn release(&mut self, mode: Mode) {
        let keeps = if self.unpin { 0 } else { self.pinned_capacity(mode) };
        let gone = self.pinned.saturating_sub(keeps);
        self.pinned -= gone;
        self.used += gone;
        self.pinned_missed &= gone == 0;
    }

    /// The size after a resize; `None` if it is not possible.
    fn resized_to(&self, direction: WriteBoosterResize) -> Option<u64> {
        let part =
            |of: u64| (self.configured / of).next_multiple_of(ALLOCATION_UNIT).max(ALLOCATION_UNIT);
        let least = part(LEAST_PART).max(self.used + self.pinned);
        let next = match direction {
            WriteBoosterResize::Decrease => self.capacity.checked_sub(part(STEP_PART))?,
            _ => (self.capacity + part(STEP_PART)).min(self.configured),
        };
        (next >= least && next != self.capacity).then_some(next)
    }
}

/// The free part of `capacity`, in units of 10 %.
fn tenths(used: u64, capacity: u64) -> u64 {
    (capacity.saturating_sub(used) * 10).checked_div(capacity).unwrap_or(0)
}

/// One shared buffer, or one per unit.
#[derive(Debug)]
pub(super) struct WriteBooster {
    shared: bool,
    /// It does not reduce the user capacity.
    preserves_space: bool,
    /// It can be resized and flushed in part.
    extended: bool,
    buffers: [Buffer; UNITS_MAX],
    /// What a flush keeps.
    mode: Mode,
    /// The device needs room for user data.
    wants_space: bool,
    /// Whether any buffer is on, and whether any is flushed in hibernate, for the fast path.
    any: bool,
    any_in_hibernate: bool,
}

impl WriteBooster {
    pub(super) fn new(provision: &Provision, extended: bool) -> Self {
        let header = &provision.header;
        let shared = header.b_write_booster_buffer_type == 1;
        let units = |lun: usize| match (shared, lun) {
            (true, 0) => header.d_num_shared_write_booster_buffer_alloc_units,
            (true, _) => 0,
            (false, lun) => provision.units[lun].d_lu_num_write_booster_buffer_alloc_units,
        };
        let buffer = |lun| Buffer::new(u64::from(units(lun)) * ALLOCATION_UNIT);
        Self {
            shared,
            preserves_space: header.b_write_booster_buffer_preserve_user_space_en == 1,
            extended,
            buffers: core::array::from_fn(buffer),
            mode: Mode::None,
            wants_space: false,
            any: false,
            any_in_hibernate: false,
        }
    }

    pub(super) fn is_shared(&self) -> bool {
        self.shared
    }

    /// Whether it can be resized and flushed in part.
    pub(super) fn is_extended(&self) -> bool {
        self.extended
    }

    /// Whether data can be pinned, for the fast path.
    #[inline]
    pub(super) fn pins(&self) -> bool {
        self.mode == Mode::Pinned
    }

    fn buffer(&mut self, unit: u8) -> &mut Buffer {
        let index = if self.shared { 0 } else { usize::from(unit) % UNITS_MAX };
        &mut self.buffers[index]
    }

    /// A reset clears the volatile flags and ends a resize; the data stays.
    pub(super) fn reset(&mut self) {
        for buffer in &mut self.buffers {
            buffer.enabled = false;
            buffer.flush = false;
            buffer.flush_in_hibernate = false;
            buffer.unpin = false;
            buffer.resize = None;
            buffer.resized = None;
        }
        self.any = false;
        self.any_in_hibernate = false;
    }

    pub(super) fn enable(&mut self, unit: u8, value: bool) {
        self.buffer(unit).enabled = value;
        self.any = self.buffers.iter().any(|buffer| buffer.enabled);
    }

    pub(super) fn flush(&mut self, unit: u8, value: bool) {
        let mode = self.mode;
        let buffer = self.buffer(unit);
        buffer.ended = match value {
            false if buffer.flush && buffer.flushable(mode) > 0 => {
                Some(WriteBoosterFlushStatus::StoppedPrematurely)
            }
            true if buffer.flushable(mode) == 0 => Some(WriteBoosterFlushStatus::Completed),
            true => None,
            false => buffer.ended,
        };
        buffer.flush = value;
    }

    pub(super) fn flush_in_hibernate(&mut self, unit: u8, value: bool) {
        self.buffer(unit).flush_in_hibernate = value;
        self.any_in_hibernate = self.buffers.iter().any(|buffer| buffer.flush_in_hibernate);
    }

    /// fUnpinEn.
    pub(super) fn unpin(&mut self, unit: u8, value: bool) {
        let mode = self.mode;
        let buffer = self.buffer(unit);
        buffer.unpin = value;
        buffer.release(mode);
    }

    /// Whether a write of `bytes` to `unit` goes to SLC; if so, takes the room. `pinned`: the data
    /// is to stay there.
    #[inline]
    pub(super) fn takes(&mut self, unit: u8, bytes: u64, pinned: bool) -> bool {
        if !self.any {
            return false;
        }
        let mode = self.mode;
        let buffer = self.buffer(unit);
        if !buffer.enabled {
            return false;
        }
        if pinned && !buffer.unpin {
            if buffer.pinned + bytes <= buffer.pinned_capacity(mode) {
                buffer.pinned += bytes;
                buffer.pinned_written += bytes;
                buffer.written += bytes;
                return true;
            }
            buffer.pinned_missed |= buffer.pinned_capacity(mode) > 0;
        }
        if buffer.used + bytes > buffer.other_capacity(mode) {
            buffer.missed = true;
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

    /// The number of bytes, at most `limit`, that should move to TLC now, and their buffer.
    pub(super) fn to_flush(&self, hibernated: bool, limit: u64) -> Option<(u8, u64)> {
        let wanted = |buffer: &Buffer| {
            buffer.flushable(self.mode) > 0
                && (buffer.flush || hibernated && buffer.flush_in_hibernate)
        };
        let index = self.buffers.iter().position(wanted)?;
        Some((index as u8, self.buffers[index].flushable(self.mode).min(limit)))
    }

    /// Removes bytes from a buffer that a flush moves to TLC.
    pub(super) fn moved(&mut self, index: u8, bytes: u64) {
        let mode = self.mode;
        let buffer = &mut self.buffers[usize::from(index)];
        buffer.used -= bytes;
        if buffer.flushable(mode) == 0 && buffer.flush {
            buffer.ended = Some(WriteBoosterFlushStatus::Completed);
        }
    }

    /// WRITEBOOSTER_FLUSH_NEEDED: little room is left, and a flush would help.
    pub(super) fn needs_flush(&self) -> bool {
        let mode = self.mode;
        let full = |b: &Buffer| b.available(mode) <= FLUSH_NEEDED && b.flushable(mode) > 0;
        self.buffers.iter().any(|buffer| buffer.capacity > 0 && full(buffer))
    }

    /// PINNED_WRITEBOOSTER_FULL.
    pub(super) fn is_pinned_full(&self) -> bool {
        self.pins() && self.buffers.iter().any(|buffer| buffer.pinned_missed)
    }

    /// The device needs room for user data, or has enough of it.
    pub(super) fn want_space(&mut self, wants: bool) {
        self.wants_space = wants;
    }

    /// bWriteBoosterBufferResizeHint: smaller while user data needs the room; larger after writes
    /// found no room in a buffer below its configured size.
    fn hint(&self, buffer: &Buffer) -> WriteBoosterResize {
        let can = |direction| buffer.resized_to(direction).is_some();
        if !self.extended || !self.preserves_space || buffer.resize.is_some() {
            WriteBoosterResize::Keep
        } else if self.wants_space && can(WriteBoosterResize::Decrease) {
            WriteBoosterResize::Decrease
        } else if !self.wants_space && buffer.missed && can(WriteBoosterResize::Increase) {
            WriteBoosterResize::Increase
        } else {
            WriteBoosterResize::Keep
        }
    }

    /// WRITEBOOSTER_RESIZE_HINT.
    pub(super) fn hints(&self) -> bool {
        self.buffers.iter().any(|buffer| self.hint(buffer) != WriteBoosterResize::Keep)
    }

    /// Writes an attribute of resize or partial flush.
    pub(super) fn set(
        &mut self,
        id: AttributeId,
        unit: u8,
        value: u64,
        now: u64,
    ) -> Result<(), QueryResult> {
        let preserves = self.preserves_space;
        let bytes = value * ALLOCATION_UNIT;
        let buffer = self.buffer(unit);
        let fits = |sum: u64| if sum <= buffer.configured { Ok(()) } else { Err(()) };
        match id {
            AttributeId::WriteBoosterBufferResizeEn if !preserves => {
                return Err(QueryResult::GeneralFailure);
            }
            AttributeId::WriteBoosterBufferResizeEn => {
                let direction = WriteBoosterResize::from_bits(value as u8);
                if buffer.resize.is_none() && direction != WriteBoosterResize::Keep {
                    buffer.resize = Some((direction, now + RESIZE_NS));
                    buffer.missed = false;
                }
            }
            AttributeId::WriteBoosterBufferPartialFlushMode => {
                let mode = Mode::from_bits(value as u8);
                if mode == Mode::Pinned && !preserves {
                    return Err(QueryResult::GeneralFailure);
                }
                self.mode = mode;
            }
            AttributeId::MaxFifoSizeForWriteBoosterPartialFlushMode => {
                fits(bytes).map_err(|()| QueryResult::InvalidValue)?;
                buffer.fifo_max = bytes;
            }
            AttributeId::PinnedWriteBoosterBufferNumAllocUnits => {
                fits(bytes + buffer.others_min).map_err(|()| QueryResult::InvalidValue)?;
                buffer.pinned_max = bytes;
            }
            AttributeId::NonPinnedWriteBoosterBufferMinNumAllocUnits => {
                fits(bytes + buffer.pinned_max).map_err(|()| QueryResult::InvalidValue)?;
                buffer.others_min = bytes;
            }
            _ => {}
        }
        let mode = self.mode;
        self.buffers.iter_mut().for_each(|buffer| buffer.release(mode));
        Ok(())
    }

    /// When a requested resize is to be checked.
    pub(super) fn resize_at(&self) -> Option<u64> {
        self.buffers.iter().filter_map(|buffer| buffer.resize).map(|(_, until)| until).min()
    }

    /// Ends the resizes whose time has come, or postpones them while commands are in the device.
    pub(super) fn resize(&mut self, now: u64, busy: bool) {
        let mode = self.mode;
        for buffer in &mut self.buffers {
            let Some((direction, until)) = buffer.resize.filter(|&(_, until)| until <= now) else {
                continue;
            };
            if busy {
                buffer.resize = Some((direction, until.max(now) + RESIZE_NS));
                continue;
            }
            buffer.resize = None;
            buffer.resized = Some(match buffer.resized_to(direction) {
                Some(size) => {
                    buffer.capacity = size;
                    WriteBoosterResizeStatus::Completed
                }
                None => WriteBoosterResizeStatus::GeneralFailure,
            });
            buffer.release(mode);
        }
    }

    /// bWriteBoosterBufferResizeStatus, which reports an end once.
    fn take_resize_status(&mut self, unit: u8) -> WriteBoosterResizeStatus {
        let buffer = self.buffer(unit);
        match buffer.resize {
            Some(_) => WriteBoosterResizeStatus::InProgress,
            None => buffer.resized.take().unwrap_or(WriteBoosterResizeStatus::Idle),
        }
    }

    /// The pinned parts of all buffers: size, contents, total ever written.
    fn pinned(&self) -> (u64, u64, u64) {
        let mode = self.mode;
        self.buffers.iter().fold((0, 0, 0), |(size, used, written), buffer| {
            let more = buffer.pinned_capacity(mode);
            (size + more, used + buffer.pinned, written + buffer.pinned_written)
        })
    }

    /// An attribute as a query reads it.
    pub(super) fn attribute(&mut self, id: AttributeId, unit: u8) -> u64 {
        let (buffer, mode) = (*self.buffer(unit), self.mode);
        match id {
            AttributeId::AvailableWriteBoosterBufferSize => buffer.available(mode),
            AttributeId::CurrentWriteBoosterBufferSize => {
                buffer.other_capacity(mode) / ALLOCATION_UNIT
            }
            AttributeId::WriteBoosterBufferLifeTimeEst => {
                let life = buffer.configured.saturating_mul(CYCLES);
                (buffer.written.saturating_mul(10)).checked_div(life).map_or(0, |n| n.min(10) + 1)
            }
            AttributeId::WriteBoosterBufferResizeHint => u64::from(self.hint(&buffer).into_bits()),
            AttributeId::WriteBoosterBufferResizeStatus => {
                u64::from(self.take_resize_status(unit).into_bits())
            }
            AttributeId::WriteBoosterBufferPartialFlushMode => u64::from(mode.into_bits()),
            AttributeId::MaxFifoSizeForWriteBoosterPartialFlushMode => {
                buffer.fifo_max / ALLOCATION_UNIT
            }
            AttributeId::CurrentFifoSizeForWriteBoosterPartialFlushMode => {
                buffer.fifo(mode) / ALLOCATION_UNIT
            }
            AttributeId::PinnedWriteBoosterBufferCurrentAllocUnits => {
                self.pinned().0 / ALLOCATION_UNIT
            }
            AttributeId::PinnedWriteBoosterBufferAvailablePercentage => {
                let (size, used, _) = self.pinned();
                tenths(used, size)
            }
            AttributeId::PinnedWriteBoosterCummulativeWrittenSize => {
                (self.pinned().2 / WRITTEN_UNIT).min(u64::from(u32::MAX))
            }
            AttributeId::PinnedWriteBoosterBufferNumAllocUnits => {
                buffer.pinned_max / ALLOCATION_UNIT
            }
            AttributeId::NonPinnedWriteBoosterBufferMinNumAllocUnits => {
                buffer.others_min / ALLOCATION_UNIT
            }
            _ => {
                let idle = buffer.ended.unwrap_or(WriteBoosterFlushStatus::Idle);
                let status = match buffer.flush && buffer.flushable(mode) > 0 {
                    true => WriteBoosterFlushStatus::InProgress,
                    false => idle,
                };
                u64::from(status.into_bits())
            }
        }
    }
}

/// Whether the attribute belongs to WriteBooster, and whether to the additions of UFS 4.1.
pub(super) fn is_booster(id: AttributeId) -> (bool, bool) {
    let bits = id.into_bits();
    let more = AttributeId::WriteBoosterBufferResizeHint.into_bits()
        ..=AttributeId::NonPinnedWriteBoosterBufferMinNumAllocUnits.into_bits();
    let first = AttributeId::WriteBoosterBufferFlushStatus.into_bits()
        ..=AttributeId::CurrentWriteBoosterBufferSize.into_bits();
    (first.contains(&bits) || more.contains(&bits), more.contains(&bits))
}
