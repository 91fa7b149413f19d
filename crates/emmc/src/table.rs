//! Lists of transfer descriptors in the driver's memory: what describes a command's data to ADMA2,
//! the queueing engine and the buffer port.

use flysch_api::machine::{DmaRegion, DmaSlice};
use flysch_wire::mmc::adma;

/// The format of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Bytes of a descriptor.
    pub(crate) stride: usize,
}

impl Format {
    /// Addresses of 32 bits.
    pub(crate) const NARROW: Self = Self { stride: adma::LENGTH_32 };
    /// Addresses of 64 bits without padding.
    pub(crate) const SHORT: Self = Self { stride: adma::LENGTH_96 };
    /// Addresses of 64 bits.
    pub(crate) const WIDE: Self = Self { stride: adma::LENGTH_128 };

    /// Writes descriptor `n` of the list at `at`; `range` is at most 64 KiB.
    pub(crate) fn put(self, list: &DmaRegion, at: usize, n: usize, range: DmaSlice) {
        let at = at + n * self.stride;
        list.store32(at, adma::transfer(range.len, 0).to_le());
        list.store32(at + 4, (range.address as u32).to_le());
        if self.stride > adma::LENGTH_32 {
            list.store32(at + 8, ((range.address >> 32) as u32).to_le());
        }
        if self.stride > adma::LENGTH_96 {
            list.store32(at + 12, 0);
        }
    }

    /// Marks descriptor `n` as the last one.
    pub(crate) fn end(self, list: &DmaRegion, at: usize, n: usize) {
        let at = at + n * self.stride;
        list.store32(at, list.load32(at) | adma::END.to_le());
    }

    /// The content of descriptor `n`.
    pub(crate) fn get(self, list: &DmaRegion, at: usize, n: usize) -> DmaSlice {
        let at = at + n * self.stride;
        let high = match self.stride {
            adma::LENGTH_32 => 0,
            _ => u64::from(u32::from_le(list.load32(at + 8))),
        };
        let low = u64::from(u32::from_le(list.load32(at + 4)));
        let len = adma::length(u32::from_le(list.load32(at)));
        DmaSlice { address: high << 32 | low, len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_gives_back_what_was_put() {
        let list = DmaRegion::zeroed(4096, 0);
        for format in [Format::NARROW, Format::SHORT, Format::WIDE] {
            let high = if format == Format::NARROW { 0 } else { 0x12 << 32 };
            let one = DmaSlice { address: high | 0x8000_1000, len: 1 << 16 };
            let two = DmaSlice { address: high | 0x8001_0000, len: 512 };
            format.put(&list, 64, 0, one);
            format.put(&list, 64, 1, two);
            format.end(&list, 64, 1);
            assert_eq!((format.get(&list, 64, 0), format.get(&list, 64, 1)), (one, two));
            assert_eq!(list.load32(64) & adma::END, 0);
            assert_eq!(list.load32(64 + format.stride), 512 << 16 | 0x23);
        }
    }
}
