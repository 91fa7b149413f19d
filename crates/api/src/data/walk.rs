use core::fmt;

use super::{Data, ENTRY, read_entry};
use crate::machine::{DmaRegion, DmaSlice};

/// Most segments any port may say it takes: what is checked is checked on the stack.
pub const SEGMENTS_MAX: usize = 256;

/// What a port asks of the ranges a command's data is made of.
///
/// | | count | length | alignment | boundary | inner |
/// |---|---|---|---|---|---|
/// | UFS, PRDT | the driver's choice | 256 KiB | 4 | none | 1 |
/// | NVMe, PRP | list pages | a page | 4 | a page | a page |
/// | SDHCI, ADMA2 | the driver's choice | 64 KiB | 4 | none | 1 |
/// | AHCI, PRD | the driver's choice | 4 MiB | 2 | none | 1 |
///
/// A range that is longer than `length` or crosses a `boundary` is no mistake: it becomes several
/// segments, which count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLimits {
    /// Most segments of one command, 1 to 256.
    pub count: u16,
    /// Longest segment, bytes.
    pub length: u32,
    /// What addresses and lengths must be multiples of, bytes; a power of two.
    pub alignment: u32,
    /// A power of two whose multiples no segment crosses, bytes; 0 where none matters.
    pub boundary: u32,
    /// What every range of a list but the first must begin at a multiple of, and every one but the
    /// last end at, bytes; a power of two, 1 where it does not matter.
    pub inner: u32,
}

impl SegmentLimits {
    /// Any ranges at all, as a device without a controller takes them.
    pub const NONE: Self =
        Self { count: SEGMENTS_MAX as u16, length: u32::MAX, alignment: 1, boundary: 0, inner: 1 };

    /// How many of the first `len` bytes of `data` one command can move: as many as its segments
    /// hold, rounded down to a multiple of `block`.
    ///
    /// # Errors
    /// [`BadData::TooMany`] if that is none; what is wrong with the list.
    pub fn fit(
        &self,
        data: &Data,
        memory: &DmaRegion,
        len: u32,
        block: u32,
    ) -> Result<u32, BadData> {
        let mut left = self.count;
        let mut moved = 0;
        for range in data.part(memory, 0, len)?.ranges(memory) {
            let range = range?;
            let mut at = 0;
            while at < range.len && left > 0 {
                at += self.piece(range.address.wrapping_add(at.into()), range.len - at);
                left -= 1;
            }
            moved += at;
        }
        match moved / block * block {
            0 => Err(BadData::TooMany),
            bytes => Ok(bytes),
        }
    }

    /// Whether every range of `data` is aligned and in `memory`: what can be said of a request
    /// before it is split.
    ///
    /// # Errors
    /// What is wrong with the data.
    pub fn check(&self, data: &Data, memory: &DmaRegion) -> Result<(), BadData> {
        data.ranges(memory).try_for_each(|range| self.check_range(range?, memory))
    }

    #[inline]
    fn check_range(&self, range: DmaSlice, memory: &DmaRegion) -> Result<(), BadData> {
        let mask = u64::from(self.alignment) - 1;
        if (range.address | u64::from(range.len)) & mask != 0 {
            return Err(BadData::Misaligned);
        }
        match memory.offset_of(range.address, range.len as usize) {
            Ok(_) => Ok(()),
            Err(_) => Err(BadData::Outside),
        }
    }

    /// Length of the first segment of `len` bytes at `address`.
    #[inline]
    fn piece(&self, address: u64, len: u32) -> u32 {
        let longest = len.min(self.length);
        if self.boundary == 0 {
            return longest;
        }
        longest.min(self.boundary - (address as u32 & (self.boundary - 1)))
    }
}

/// What is wrong with the data of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadData {
    /// Bytes where the command moves none, or more than one command can move.
    Length,
    /// A range is outside the memory that data may lie in, or in the driver's own.
    Outside,
    /// Address or length of a range is not aligned.
    Misaligned,
    /// More segments than a command can have.
    TooMany,
    /// Two ranges of a list share bytes.
    Overlap,
    /// A range of a list has no bytes.
    Empty,
    /// The list is outside DMA memory.
    List,
    /// The list names fewer bytes than were asked for.
    Short,
}

impl fmt::Display for BadData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "its data is longer than one command can move",
            Self::Outside => "its data is not in the DMA memory that is for data",
            Self::Misaligned => "its data is not aligned as the host controller needs it",
            Self::TooMany => "its data has more segments than one command can have",
            Self::Overlap => "segments of its data overlap",
            Self::Empty => "a segment of its data is empty",
            Self::List => "its list of segments is not in DMA memory",
            Self::Short => "its list of segments names fewer bytes than it moves",
        })
    }
}

impl core::error::Error for BadData {}

/// Translates data into segments for a device, and checks it in the same step.
#[derive(Clone, Debug)]
pub struct Walk {
    limits: SegmentLimits,
    /// The longest data of one command, bytes.
    longest: u32,
    memory: DmaRegion,
    /// Device addresses that data must stay away from: where they begin, and how many.
    reserved: (u64, u64),
}

impl Walk {
    /// For data of at most `longest` bytes in `memory`, except where the driver's own memory
    /// `reserved` is.
    ///
    /// # Panics
    /// If the limits contradict themselves: they are a driver's own constants.
    pub fn new(
        limits: SegmentLimits,
        longest: u32,
        memory: &DmaRegion,
        reserved: &DmaRegion,
    ) -> Self {
        let SegmentLimits { count, length, alignment, boundary, inner } = limits;
        assert!((1..=SEGMENTS_MAX as u16).contains(&count) && length > 0);
        assert!(alignment.is_power_of_two() && inner.is_power_of_two());
        assert!(boundary == 0 || boundary.is_power_of_two());
        assert!(length % alignment == 0 || length == u32::MAX);
        let reserved = (reserved.address(), reserved.len() as u64);
        Self { limits, longest, memory: memory.clone(), reserved }
    }

    /// Hands every segment of `data` to `place` in order, with its number; answers how many there
    /// are. On an error what was placed so far is not to be used.
    ///
    /// # Errors
    /// What is wrong with the data.
    #[inline]
    pub fn run(&self, data: &Data, mut place: impl FnMut(u32, DmaSlice)) -> Result<u32, BadData> {
        if data.len() > self.longest {
            return Err(BadData::Length);
        }
        match *data {
            Data::One(range) if range.len == 0 => Ok(0),
            Data::One(range) => {
                self.limits.check_range(range, &self.memory)?;
                if self.is_reserved(range.address, u64::from(range.len)) {
                    return Err(BadData::Outside);
                }
                self.cut(0, range, &mut place)
            }
            Data::List { entries, count, skip, len } => {
                self.run_list(data, (entries, count, skip, len), &mut place)
            }
        }
    }

    /// Whether some of `len` bytes at `address` are reserved.
    #[inline]
    fn is_reserved(&self, address: u64, len: u64) -> bool {
        let (start, reserved) = self.reserved;
        address.wrapping_sub(start) < reserved
            || (start.wrapping_sub(address) < len && reserved > 0)
    }

    /// Places a range as segment `n` and following; answers the number after.
    #[inline]
    fn cut(
        &self,
        mut n: u32,
        mut range: DmaSlice,
        place: &mut impl FnMut(u32, DmaSlice),
    ) -> Result<u32, BadData> {
        loop {
            if n >= u32::from(self.limits.count) {
                return Err(BadData::TooMany);
            }
            let len = self.limits.piece(range.address, range.len);
            place(n, DmaSlice { address: range.address, len });
            n += 1;
            if len == range.len {
                return Ok(n);
            }
            range.address += u64::from(len);
            range.len -= len;
        }
    }

    /// Lists whose ranges ascend, as most do, cannot overlap: nothing but a comparison each.
    #[inline]
    fn run_list(
        &self,
        data: &Data,
        (mut entries, count, mut skip, mut left): (u64, u32, u32, u32),
        place: &mut impl FnMut(u32, DmaSlice),
    ) -> Result<u32, BadData> {
        let (mut n, mut ranges) = (0, 0);
        let (mut first, mut end, mut ascends) = (u64::MAX, 0, true);
        while left > 0 {
            if ranges == count {
                return Err(BadData::Short);
            }
            let (address, len) = read_entry(&self.memory, entries)?;
            if len <= u64::from(skip) {
                return Err(BadData::Empty);
            }
            let range = DmaSlice {
                address: address.wrapping_add(u64::from(skip)),
                len: (len - u64::from(skip)).min(u64::from(left)) as u32,
            };
            self.limits.check_range(range, &self.memory)?;
            ascends &= range.address >= end;
            first = first.min(range.address);
            end = range.address + u64::from(range.len);
            n = self.cut(n, range, place)?;
            (skip, ranges) = (0, ranges + 1);
            left -= range.len;
            entries = entries.wrapping_add(ENTRY as u64);
        }
        let plain = ascends && self.limits.inner == 1;
        if plain && (n == 0 || !self.is_reserved(first, end - first)) {
            return Ok(n);
        }
        self.check_thoroughly(data).map(|()| n)
    }

    /// What a comparison with the range before cannot tell.
    #[cold]
    fn check_thoroughly(&self, data: &Data) -> Result<(), BadData> {
        let mut sorted = [DmaSlice::EMPTY; SEGMENTS_MAX];
        let mut count = 0;
        let inner = u64::from(self.limits.inner) - 1;
        let mut before: Option<DmaSlice> = None;
        for range in data.ranges(&self.memory) {
            let range = range?;
            let place = sorted.get_mut(count).ok_or(BadData::TooMany)?;
            if self.is_reserved(range.address, u64::from(range.len)) {
                return Err(BadData::Outside);
            }
            if let Some(before) = before
                && ((before.address + u64::from(before.len)) | range.address) & inner != 0
            {
                return Err(BadData::Misaligned);
            }
            (*place, before) = (range, Some(range));
            count += 1;
        }
        let sorted = &mut sorted[..count];
        sorted.sort_unstable_by_key(|range| range.address);
        let overlaps =
            |pair: &[DmaSlice]| pair[0].address + u64::from(pair[0].len) > pair[1].address;
        if sorted.windows(2).any(overlaps) { Err(BadData::Overlap) } else { Ok(()) }
    }
}
