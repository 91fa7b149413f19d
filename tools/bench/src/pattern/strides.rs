//! A region visited zone by zone.

use crate::workload::Strides;

/// The current zone.
#[derive(Debug)]
pub(super) struct Zones {
    strides: Strides,
    first: u64,
    /// End of the device: as in fio zones go on behind the region, which is only how much is
    /// transferred.
    end: u64,
    /// A zone with less than this before the end of the device is left out.
    least: u64,
    /// First byte of the zone.
    at: u64,
    /// Bytes still to be transferred in it.
    left: u64,
}

impl Zones {
    /// The zones from `first` on, of a region of `size` bytes there, on a device that ends at
    /// `end`, for requests of at least `least` bytes.
    pub(super) fn new(
        strides: Strides,
        (first, size): (u64, u64),
        (end, least): (u64, u32),
    ) -> Self {
        let range = strides.range.min(size).max(1);
        // The gaps are as wide as they were: the next zone is where the job says.
        let skip = strides.skip.saturating_add(strides.range - range);
        let strides = Strides { range, skip, ..strides };
        Self { strides, first, end, least: least.into(), at: first, left: strides.size }
    }

    /// Bytes of the zone: the device may end within it.
    pub(super) fn range(&self) -> u64 {
        self.strides.range.min(self.end - self.at)
    }

    /// First byte of the zone.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Whether `bytes` from `place` in the zone on are on the device.
    pub(super) fn holds(&self, place: u64, bytes: u32) -> bool {
        place + u64::from(bytes) <= self.end - self.at
    }

    /// Whether the next request is in another zone; goes there if so.
    pub(super) fn moves(&mut self) -> bool {
        if self.left > 0 {
            return false;
        }
        self.left = self.strides.size;
        let next = self.at.saturating_add(self.strides.range).saturating_add(self.strides.skip);
        self.at = if next.saturating_add(self.least) > self.end { self.first } else { next };
        true
    }

    /// Whether the zone was transferred a whole number of times: fio begins it anew then.
    pub(super) fn is_round(&self) -> bool {
        (self.strides.size - self.left).is_multiple_of(self.strides.range)
    }

    /// Goes to the first zone.
    pub(super) fn rewind(&mut self) {
        (self.at, self.left) = (self.first, self.strides.size);
    }

    /// A request of `length` bytes goes to the zone.
    pub(super) fn count(&mut self, length: u32) {
        self.left = self.left.saturating_sub(length.into());
    }
}
