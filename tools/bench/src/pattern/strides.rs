//! A region visited zone by zone.

use super::Walk;
use crate::workload::Strides;

/// The current zone.
#[derive(Debug)]
pub(super) struct Zones {
    strides: Strides,
    first: u64,
    end: u64,
    /// First byte of the zone.
    at: u64,
    /// Bytes still to be transferred in it.
    left: u64,
}

impl Zones {
    /// The zones of the `size` bytes at `first`.
    pub(super) fn new(strides: Strides, first: u64, size: u64) -> Self {
        let range = strides.range.min(size).max(1);
        let strides = Strides { range, ..strides };
        Self { strides, first, end: first + size, at: first, left: strides.size }
    }

    /// Bytes of a zone.
    pub(super) fn range(&self) -> u64 {
        self.strides.range
    }

    /// First byte of the zone for a request of `length` bytes; counts the request. The next zone
    /// starts when the bytes of this one are used up; the first follows the last.
    pub(super) fn enter(&mut self, length: u32, walk: &mut Walk) -> u64 {
        let here = self.at;
        self.left = self.left.saturating_sub(length.into());
        if self.left == 0 {
            self.left = self.strides.size;
            self.at = here.saturating_add(self.strides.range).saturating_add(self.strides.skip);
            if self.at.saturating_add(self.strides.range) > self.end {
                self.at = self.first;
            }
            if let Walk::Sequential { position, .. } = walk {
                *position = [0; 3];
            }
        }
        here
    }
}
