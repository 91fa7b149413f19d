//! The data of a request: one range of DMA memory, or a list of them.
//!
//! Theory. A list lies in DMA memory itself, as an array of [`DmaSlice`]s that its owner - whoever
//! made the request - filled before it submitted it. A request names it by address, so requests
//! and commands stay small values without lifetimes, and splitting one never copies a list: a part
//! of it is the same list with another beginning and length ([`Data::part`]).
//!
//! **Who owns it.** The list and the memory it names belong to the request's owner, who leaves both
//! alone until the completion came: the layers below read the list again when they try a command
//! again. A list that is changed meanwhile can spoil the owner's own data and nothing else, because
//! every reading is checked anew: what reaches the device was checked in the very step that
//! translated it ([`Walk`]).

mod walk;

pub use walk::{BadData, SEGMENTS_MAX, SegmentLimits, Walk};

use crate::machine::{DmaRegion, DmaSlice, OutOfRange};

/// Bytes of one entry of a list: the address, then the length, each 64 bits in the byte order of
/// the machine.
pub const ENTRY: usize = 16;
/// Alignment of a list in memory, bytes.
pub const ENTRY_ALIGNMENT: usize = 8;

/// Where the data of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// One range.
    One(DmaSlice),
    /// The bytes that a list of ranges names ([`Data::list`]), or a run of them ([`Data::part`]).
    List {
        /// Device address of the first entry.
        entries: u64,
        /// Entries from there to the end of the list.
        count: u32,
        /// Bytes of the first range that come before the run.
        skip: u32,
        /// Bytes of the run.
        len: u32,
    },
}

const _: () = assert!(size_of::<Data>() == 24);

/// [`Data::List`], being walked.
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

    /// Writes a list of `segments` at `offset` of `memory` and names all of it.
    ///
    /// # Errors
    /// [`OutOfRange`] if the list has no room there, is not aligned, or names 4 GiB or more.
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

    /// Bytes.
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

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The `len` bytes after the first `skip`: a part of one request for one command.
    ///
    /// # Errors
    /// [`BadData`] if there are not so many, or the list on the way there is no list.
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

    /// The ranges in order, as they stand: nothing is checked but that the list itself is in
    /// `memory` and holds enough. For the far side of a copy; who hands ranges to a device walks
    /// them ([`Walk`]).
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
    /// The range the run begins with, as far as the run goes.
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

/// Address and length of the entry at a device address.
#[inline]
fn read_entry(memory: &DmaRegion, at: u64) -> Result<(u64, u64), BadData> {
    // No cause: that it is outside is what is wrong with a list.
    let offset = memory.offset_of(at, ENTRY).map_err(|_| BadData::List)?;
    let [address, len] = memory.words(offset);
    Ok((address, len))
}

#[cfg(test)]
mod tests;
