//! A device as the kernel's parameters.

use flysch_api::block::BlockGeometry;

use crate::uapi::{self, Parameters};

/// The kernel's unit of addresses and lengths, bytes.
pub(crate) const SECTOR: u64 = 512;
/// Logical block sizes that every kernel supports: a sector to a page.
const BLOCK_MIN: u32 = 512;
const BLOCK_MAX: u32 = 4096;
/// Longest range of a discard, sectors (2 GiB).
const DISCARD_MAX: u32 = 4 << 20;
/// Longest range of zeroes, sectors (64 MiB): they are written out.
const ZEROES_MAX: u32 = 128 << 10;

/// The requested properties of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its number; default: any free one.
    pub id: Option<u32>,
    /// Queues; the kernel accepts no more than it has processors.
    pub queues: u16,
    /// Requests of each queue.
    pub depth: u16,
    /// If this server is killed, the disk stays, and its requests wait for the next server with
    /// this number; if a previous one was killed, this one takes over.
    pub recover: bool,
}

impl Settings {
    /// Total requests in flight.
    pub(crate) fn tags(&self) -> usize {
        usize::from(self.queues) * usize::from(self.depth)
    }
}

/// A device as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Size in bytes; an incomplete last logical block is not visible.
    pub size: u64,
    /// Block size of the device: the physical block size. The logical block size is the same, but
    /// at least 512 and at most 4096; partial blocks are read, modified and written back.
    pub block_size: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether discards do anything.
    pub can_discard: bool,
    /// Other requested properties.
    pub settings: Settings,
}

impl Disk {
    /// A device with these properties.
    pub fn new(geometry: &BlockGeometry, settings: Settings) -> Self {
        Self {
            size: geometry.bytes(),
            block_size: geometry.block_size,
            read_only: geometry.read_only,
            can_discard: geometry.can_delete,
            settings,
        }
    }

    /// Bytes of a logical block.
    pub(crate) fn logical(&self) -> u32 {
        self.block_size.clamp(BLOCK_MIN, BLOCK_MAX)
    }

    /// Whole logical blocks, bytes.
    pub(crate) fn shown(&self) -> u64 {
        self.size / u64::from(self.logical()) * u64::from(self.logical())
    }

    /// The parameters, for requests of at most `buffer` bytes.
    pub(crate) fn parameters(&self, buffer: u32) -> Parameters {
        let logical = self.logical();
        let physical = self.block_size.max(logical);
        let shift = |bytes: u32| bytes.trailing_zeros() as u8;
        let parameters = Parameters {
            length: uapi::PARAMETERS,
            types: uapi::BASIC,
            attributes: uapi::VOLATILE_CACHE | uapi::FUA,
            logical_shift: shift(logical),
            physical_shift: shift(physical),
            io_opt_shift: shift(physical),
            io_min_shift: shift(physical),
            sectors_max: buffer / SECTOR as u32,
            sectors: self.shown() / SECTOR,
            ..Parameters::default()
        };
        match self.read_only {
            true => Parameters { attributes: uapi::READ_ONLY, ..parameters },
            false => Parameters {
                types: uapi::BASIC | uapi::DISCARD,
                discard_granularity: physical,
                discard_max: if self.can_discard { DISCARD_MAX } else { 0 },
                zeroes_max: ZEROES_MAX,
                discard_segments: 1,
                ..parameters
            },
        }
    }

    /// A range of sectors in bytes, if it is on the disk.
    pub(crate) fn range(&self, first: u64, sectors: u32) -> Option<(u64, u64)> {
        let (offset, length) = (first.checked_mul(SECTOR)?, u64::from(sectors) * SECTOR);
        let shown = self.shown();
        (length > 0 && offset <= shown && length <= shown - offset).then_some((offset, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Disk = Disk {
        size: 1 << 20,
        block_size: 4096,
        read_only: false,
        can_discard: true,
        settings: Settings { id: None, queues: 1, depth: 64, recover: false },
    };

    #[test]
    fn logical_blocks_are_what_a_kernel_takes() {
        let shifts = |block_size| {
            let parameters = Disk { block_size, ..DISK }.parameters(1 << 16);
            (parameters.logical_shift, parameters.physical_shift, parameters.discard_granularity)
        };
        assert_eq!(shifts(256), (9, 9, 512));
        assert_eq!(shifts(512), (9, 9, 512));
        assert_eq!(shifts(4096), (12, 12, 4096));
        assert_eq!(shifts(16384), (12, 14, 16384));
    }

    #[test]
    fn what_cannot_be_written_has_no_cache_and_no_discard() {
        let parameters = Disk { read_only: true, ..DISK }.parameters(1 << 16);
        assert_eq!((parameters.types, parameters.attributes), (uapi::BASIC, uapi::READ_ONLY));
        let parameters = Disk { can_discard: false, ..DISK }.parameters(1 << 16);
        assert_eq!((parameters.discard_max, parameters.zeroes_max), (0, ZEROES_MAX));
    }

    #[test]
    fn ranges_outside_are_none() {
        let disk = Disk { size: (1 << 20) + 512, ..DISK };
        assert_eq!(disk.range(2047, 1), Some(((1 << 20) - 512, 512)));
        for (first, sectors) in [(2048, 1), (2047, 2), (0, 0), (u64::MAX, 1), (1 << 55, u32::MAX)] {
            assert_eq!(disk.range(first, sectors), None, "{first} {sectors}");
        }
    }
}
