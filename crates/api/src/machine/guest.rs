//! Memory of a host as the device side sees it: ranges that come and go while I/O runs.
//!
//! A model in the driver's own process sees one range. One that a virtual machine monitor uses
//! over vfio-user is told of thousands: RAM in pieces, windows that appear and vanish, whatever a
//! virtual IOMMU maps for one transfer. So a model never keeps a pointer: it names device
//! addresses, and each access finds its range anew. What was unmapped meanwhile is a bus error
//! then, never a fault: the memory itself stays mapped in this process as long as any
//! [`DmaRegion`] of it lives.

use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;

use super::{DmaRegion, OutOfRange};

/// Most ranges at once (Linux VFIO: 65,535): a client cannot make the table grow for ever.
pub const RANGES_MAX: usize = 65_535;

/// Why a range was not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// Some of its addresses are mapped already.
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

    /// The last address, which always is one.
    fn last(&self) -> u64 {
        self.start() + (self.region.len() as u64 - 1)
    }
}

/// The ranges of device addresses that are memory now.
#[derive(Clone, Debug, Default)]
pub struct GuestMemory {
    /// By address, without overlap.
    ranges: Vec<Range>,
    /// The range found last: most accesses find it again.
    recent: Cell<usize>,
}

impl From<DmaRegion> for GuestMemory {
    /// Memory that is one range and stays it.
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
    /// [`MapError`]; nothing has changed then.
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

    /// Unmaps every range that lies wholly inside `length` bytes from `address`; answers how many
    /// there were. Ranges never mapped are no mistake: a monitor with a virtual IOMMU names powers
    /// of two up to all there is. A `length` of 0 reaches the last address.
    pub fn unmap(&mut self, address: u64, length: u64) -> usize {
        let last = address.saturating_add(length.wrapping_sub(1));
        let first = self.ranges.partition_point(|range| range.start() < address);
        let inside = self.ranges[first..].partition_point(|range| range.last() <= last);
        self.ranges.drain(first..first + inside);
        self.recent.set(0);
        inside
    }

    /// Ranges that are mapped.
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// The region that holds `address`, with the offset of it there and the bytes from there to its
    /// end.
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

    /// Gives the pieces of `len` bytes at `address` to `each`: the region, the offset there, and
    /// the bytes of the piece by their place in the whole. Adjacent ranges are one to an access.
    ///
    /// # Errors
    /// [`OutOfRange`] if some of them are not memory, or may not be written though `writes` says
    /// so; pieces before that were given.
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

    /// Whether `len` bytes at `address` are memory.
    pub fn contains(&self, address: u64, len: usize) -> bool {
        self.pieces((address, len), false, |_, _, _| Ok::<_, OutOfRange>(())).is_ok()
    }

    /// Copies bytes at `address` out.
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

    /// Copies bytes in at `address`.
    ///
    /// # Errors
    /// [`OutOfRange`] if some of them are not memory that may be written.
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
    /// [`OutOfRange`] if it is not memory, or not aligned.
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
    /// [`OutOfRange`] if it is not memory that may be written, or not aligned.
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
