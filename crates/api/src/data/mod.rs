//! The data of a request: one range of DMA memory, or a list of them.
//!
//! Theory. A list lies in DMA memory itself, as an array of [`DmaSlice`]s that its owner (whoever
//! made the request) filled in before submitting it. A request names it by address, so requests and
//! commands stay small values without lifetimes. Splitting a request never copies a list: a part of
//! a list is the same list with another beginning and length ([`Data::part`]).
//!
//! **Who owns it.** The list and the memory it names belong to the owner of the request, who must
//! not touch either until the completion is delivered: the layers below read the list again when
//! they retry a command. A list that is changed meanwhile can spoil only the owner's own data,
//! because every read is checked anew: what reaches the device was checked in the very step that
//! translated it ([`Walk`]).

mod walk;

pub use walk::{BadData, SEGMENTS_MAX, SegmentLimits, Walk};

use crate::machine::{DmaRegion, DmaSlice, OutOfRange};

/// Bytes of one entry of a list: the address, then the length, each 64 bits in native byte order.
pub const ENTRY: usize = 16;
/// Alignment of a list in memory, bytes.
pub const ENTRY_ALIGNMENT: usize = 8;

/// Where the data of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// One range.
    One(DmaSlice),
    /// The bytes named by a list of ranges ([`Data::list`]), or a run of them ([`Data::part`]).
    List {
        /// Device address of the first entry.
        entries: u64,
        /// Number of entries from there to the end of the list.
        count: u32,
        /// Bytes of the first range that precede the run.
        skip: u32,
        /// Length of the run, bytes.
        len: u32,
    },
}

const _: () = assert!(size_of::<Data>() == 24);

/// [`Data::List`], while it is walked.
#[derive(Clone, Copy, Debug)]
struct ListPart {
    entries: u64,
    count: u32,
    skip: u32,
    len: u32,
}

impl From<DmaSlice> for Data {
    #[inline]
    fn from(range: DmaSlice) -> Self {
        Self::One(range)
    }
}

impl Data {
    /// No data.
    pub const NONE: Self = Self::One(DmaSlice::EMPTY);

    /// Writes a list of `segments` at `offset` of `memory`, and names the whole list.
    ///
    /// # Errors
    /// [`OutOfRange`] if the list does not fit there, is not aligned, or names 4 GiB or more.
    pub fn list(
        memory: &DmaRegion,
        offset: usize,
        segments: &[DmaSlice],
    ) -> Result<Self, OutOfRange> {
        let entries = memory.address().wrapping_add(offset as u64);
        let bytes = segments.len().saturating_mul(ENTRY);
        let bad = OutOfRange { address: entries, len: bytes };
        memory.offset_of(entries, bytes)?;
        let total: u64 = segments.iter().map(|segment| u64::from(segment.len)).sum();
        let (Ok(len), Ok(count)) = (u32::try_from(total), u32::try_from(segments.len())) else {
            return Err(bad);
        };
        if !offset.is_multiple_of(ENTRY_ALIGNMENT) {
            return Err(bad);
        }
        for (n, segment) in segments.iter().enumerate() {
            memory.store64(offset + n * ENTRY, segment.address);
            memory.store64(offset + n * ENTRY + 8, segment.len.into());
        }
        Ok(Self::List { entries, count, skip: 0, len })
    }

    /// Length, bytes.
    #[inline]
    pub const fn len(&self) -> u32 {
        match self {
            Self::One(range) => range.len,
            Self::List { len, .. } => *len,
        }
    }

    /// The first `len` bytes, or all if there are fewer.
    #[inline]
    pub const fn shortened(mut self, first: u32) -> Self {
        match &mut self {
            Self::One(DmaSlice { len, .. }) | Self::List { len, .. } => {
                if first < *len {
                    *len = first;
                }
            }
        }
        self
    }

    /// Whether it is empty.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The `len` bytes after the first `skip`: a part of one request for one command.
    ///
    /// # Errors
    /// [`BadData`] if there are fewer bytes, or if the list is not valid up to there.
    pub fn part(&self, memory: &DmaRegion, skip: u32, len: u32) -> Result<Self, BadData> {
        if skip > self.len() || len > self.len() - skip {
            return Err(BadData::Short);
        }
        let mut part = match *self {
            Self::One(range) => {
                return Ok(Self::One(DmaSlice { address: range.address + u64::from(skip), len }));
            }
            Self::List { entries, count, skip, .. } => ListPart { entries, count, skip, len },
        };
        let mut left = skip;
        while left > 0 {
            let segment = part.first(memory)?;
            if left < segment.len {
                part.skip += left;
                break;
            }
            left -= segment.len;
            part.advance()?;
        }
        let ListPart { entries, count, skip, len } = part;
        Ok(Self::List { entries, count, skip, len })
    }

    /// The ranges in order, unchecked, except that the list itself is in `memory` and holds enough.
    /// For the far side of a copy; to hand ranges to a device, walk them ([`Walk`]).
    pub fn ranges<'a>(&self, memory: &'a DmaRegion) -> Ranges<'a> {
        Ranges { memory, rest: *self }
    }
}

/// The ranges of a [`Data`].
#[derive(Clone, Debug)]
pub struct Ranges<'a> {
    memory: &'a DmaRegion,
    rest: Data,
}

impl Iterator for Ranges<'_> {
    type Item = Result<DmaSlice, BadData>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let rest = core::mem::replace(&mut self.rest, Data::NONE);
        let mut part = match rest {
            Data::One(range) => return Some(Ok(range)),
            Data::List { entries, count, skip, len } => ListPart { entries, count, skip, len },
        };
        let first = part.take_first(self.memory);
        if first.is_ok() {
            let ListPart { entries, count, skip, len } = part;
            self.rest = Data::List { entries, count, skip, len };
        }
        Some(first)
    }
}

impl ListPart {
    /// The first range of the run, cut to the length of the run.
    fn first(&self, memory: &DmaRegion) -> Result<DmaSlice, BadData> {
        if self.count == 0 {
            return Err(BadData::Short);
        }
        let (address, len) = read_entry(memory, self.entries)?;
        // A length beyond 32 bits is cut: the run is shorter than that.
        let rest = len.checked_sub(u64::from(self.skip)).ok_or(BadData::Short)?;
        if rest == 0 {
            return Err(BadData::Empty);
        }
        Ok(DmaSlice {
            address: address.wrapping_add(u64::from(self.skip)),
            len: rest.min(u64::from(u32::MAX)) as u32,
        })
    }

    fn advance(&mut self) -> Result<(), BadData> {
        self.count = self.count.checked_sub(1).ok_or(BadData::Short)?;
        self.entries = self.entries.wrapping_add(ENTRY as u64);
        self.skip = 0;
        Ok(())
    }

    fn take_first(&mut self, memory: &DmaRegion) -> Result<DmaSlice, BadData> {
        let mut first = self.first(memory)?;
        first.len = first.len.min(self.len);
        self.len -= first.len;
        self.advance()?;
        Ok(first)
    }
}

/// Address and length of the entry at this device address.
#[inline]
fn read_entry(memory: &DmaRegion, at: u64) -> Result<(u64, u64), BadData> {
    // No cause: that it is outside is what is wrong with a list.
    let offset = memory.offset_of(at, ENTRY).map_err(|_| BadData::List)?;
    let [address, len] = memory.words(offset);
    Ok((address, len))
}

#[cfg(test)]
mod tests;
