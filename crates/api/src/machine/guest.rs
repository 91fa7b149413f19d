//! A host's memory as the device side sees it: ranges that come and go while I/O runs.
//!
//! A model in the driver's own process sees one range. A model behind a virtual machine monitor
//! that speaks vfio-user sees thousands: RAM in pieces, windows that appear and vanish, and
//! whatever a virtual IOMMU maps for one transfer. So a model never keeps a pointer: it uses device
//! addresses, and each access looks up its range anew. Access to a range that was unmapped
//! meanwhile is a bus error, never a fault: the memory itself stays mapped in this process as long
//! as any [`DmaRegion`] of it lives.

use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;

use super::{DmaRegion, OutOfRange};

/// Maximum number of ranges (Linux VFIO: 65,535): a client cannot make the table grow without
/// bound.
pub const RANGES_MAX: usize = 65_535;

/// Why a range was not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// Some of its addresses are already mapped.
    Overlap,
    /// It is empty, or ends beyond the last address.
    Invalid,
    /// There are [`RANGES_MAX`] already.
    Full,
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overlap => "some of the range is mapped already",
            Self::Invalid => "the range is empty or ends beyond the last address",
            Self::Full => "there are too many ranges",
        })
    }
}

impl core::error::Error for MapError {}

#[derive(Clone, Debug)]
struct Range {
    region: DmaRegion,
    writable: bool,
}

impl Range {
    fn start(&self) -> u64 {
        self.region.address()
    }

    /// The last address; a mapped range is never empty, so it has one.
    fn last(&self) -> u64 {
        self.start() + (self.region.len() as u64 - 1)
    }
}

/// The ranges of device addresses that are currently mapped to memory.
#[derive(Clone, Debug, Default)]
pub struct GuestMemory {
    /// By address, without overlap.
    ranges: Vec<Range>,
    /// The range found last: most accesses hit it again.
    recent: Cell<usize>,
}

impl From<DmaRegion> for GuestMemory {
    /// Memory that consists of one range, permanently.
    fn from(region: DmaRegion) -> Self {
        let mut memory = Self::default();
        if !region.is_empty() {
            memory.ranges.push(Range { region, writable: true });
        }
        memory
    }
}

impl GuestMemory {
    /// Maps `region` at its own device address.
    ///
    /// # Errors
    /// [`MapError`]; then nothing has changed.
    pub fn map(&mut self, region: DmaRegion, writable: bool) -> Result<(), MapError> {
        let range = Range { region, writable };
        let length = range.region.len() as u64;
        if length == 0 || range.start().checked_add(length - 1).is_none() {
            return Err(MapError::Invalid);
        }
        if self.ranges.len() >= RANGES_MAX {
            return Err(MapError::Full);
        }
        let at = self.ranges.partition_point(|other| other.start() < range.start());
        let before = at.checked_sub(1).and_then(|at| self.ranges.get(at));
        let follows = self.ranges.get(at).is_some_and(|next| next.start() <= range.last());
        if follows || before.is_some_and(|before| before.last() >= range.start()) {
            return Err(MapError::Overlap);
        }
        self.ranges.insert(at, range);
        Ok(())
    }

    /// Unmaps every range that lies wholly inside the `length` bytes from `address`, and returns
    /// their number. It is not an error if nothing was mapped there: a monitor with a virtual IOMMU
    /// names powers of two up to the whole address space. A `length` of 0 reaches to the last
    /// address.
    pub fn unmap(&mut self, address: u64, length: u64) -> usize {
        let last = address.saturating_add(length.wrapping_sub(1));
        let first = self.ranges.partition_point(|range| range.start() < address);
        let inside = self.ranges[first..].partition_point(|range| range.last() <= last);
        self.ranges.drain(first..first + inside);
        self.recent.set(0);
        inside
    }

    /// The number of mapped ranges.
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// The region that contains `address`, the offset of `address` in it, and the number of bytes
    /// from there to its end.
    #[inline]
    fn find(&self, address: u64, writes: bool) -> Option<(&DmaRegion, usize, usize)> {
        let recent = self.ranges.get(self.recent.get());
        let range = match recent.filter(|range| range.region.offset_of(address, 1).is_ok()) {
            Some(range) => range,
            None => self.search(address)?,
        };
        let offset = (address - range.start()) as usize;
        let allowed = range.writable || !writes;
        allowed.then(|| (&range.region, offset, range.region.len() - offset))
    }

    #[cold]
    fn search(&self, address: u64) -> Option<&Range> {
        let at = self.ranges.partition_point(|range| range.start() <= address).checked_sub(1)?;
        let range = self.ranges.get(at).filter(|range| range.last() >= address)?;
        self.recent.set(at);
        Some(range)
    }

    /// Passes the pieces of the `len` bytes at `address` to `each`: the region, the offset in it,
    /// and the bytes of the piece as a range of the whole. An access may span adjacent ranges.
    ///
    /// # Errors
    /// [`OutOfRange`] if some of the bytes are not memory, or are not writable and `writes` is set;
    /// the pieces before them have been passed.
    #[inline]
    pub fn pieces<E: From<OutOfRange>>(
        &self,
        (address, len): (u64, usize),
        writes: bool,
        mut each: impl FnMut(&DmaRegion, usize, core::ops::Range<usize>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut done = 0;
        while done < len {
            let at = address.checked_add(done as u64);
            let Some((region, offset, room)) = at.and_then(|at| self.find(at, writes)) else {
                return Err(OutOfRange { address, len }.into());
            };
            let next = len.min(done + room);
            each(region, offset, done..next)?;
            done = next;
        }
        Ok(())
    }

    /// Whether all `len` bytes at `address` are memory.
    pub fn contains(&self, address: u64, len: usize) -> bool {
        self.pieces((address, len), false, |_, _, _| Ok::<_, OutOfRange>(())).is_ok()
    }

    /// Copies the bytes at `address` into a buffer.
    ///
    /// # Errors
    /// [`OutOfRange`] if some of them are not memory.
    #[inline]
    pub fn read(&self, address: u64, to: &mut [u8]) -> Result<(), OutOfRange> {
        self.pieces((address, to.len()), false, |region, offset, place| {
            region.read(offset, &mut to[place]);
            Ok(())
        })
    }

    /// Copies a buffer to the bytes at `address`.
    ///
    /// # Errors
    /// [`OutOfRange`] if some of them are not writable memory.
    #[inline]
    pub fn write(&self, address: u64, from: &[u8]) -> Result<(), OutOfRange> {
        self.pieces((address, from.len()), true, |region, offset, place| {
            region.write(offset, &from[place]);
            Ok(())
        })
    }

    /// Reads the native-endian 32-bit word at `address` (4-byte aligned) in one access; stores made
    /// before it are visible afterwards (acquire).
    ///
    /// # Errors
    /// [`OutOfRange`] if it is not memory or not aligned.
    #[inline]
    pub fn load32(&self, address: u64) -> Result<u32, OutOfRange> {
        match self.find(address, false) {
            Some((region, offset, 4..)) if offset.is_multiple_of(4) => Ok(region.load32(offset)),
            _ => Err(OutOfRange { address, len: 4 }),
        }
    }

    /// Writes the native-endian 32-bit word at `address` (4-byte aligned) in one access, after all
    /// earlier stores (release).
    ///
    /// # Errors
    /// [`OutOfRange`] if it is not writable memory or not aligned.
    #[inline]
    pub fn store32(&self, address: u64, value: u32) -> Result<(), OutOfRange> {
        match self.find(address, true) {
            Some((region, offset, 4..)) if offset.is_multiple_of(4) => {
                region.store32(offset, value);
                Ok(())
            }
            _ => Err(OutOfRange { address, len: 4 }),
        }
    }
}

#[cfg(test)]
mod tests;
