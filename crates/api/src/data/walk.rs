use core::fmt;

use super::{Data, ENTRY};
use crate::machine::{DmaRegion, DmaSlice};

/// Upper limit of the segments of any port: the check keeps its state on the stack.
pub const SEGMENTS_MAX: usize = 256;

/// What a port requires of the ranges of a command's data.
///
/// | | count | length | alignment | boundary | inner |
/// |---|---|---|---|---|---|
/// | UFS, PRDT | the driver's choice | 256 KiB | 4 | none | 1 |
/// | NVMe, PRP | list pages | a page | 4 | a page | a page |
/// | SDHCI, ADMA2 | the driver's choice | 64 KiB | 4 | none | 1 |
/// | AHCI, PRD | the driver's choice | 4 MiB | 2 | none | 1 |
///
/// A range that is longer than `length` or crosses a `boundary` is not an error: it becomes several
/// segments, each of which counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLimits {
    /// Maximum number of segments of one command, 1 to 256.
    pub count: u16,
    /// Longest segment, bytes.
    pub length: u32,
    /// Required alignment of addresses and lengths, bytes; a power of two.
    pub alignment: u32,
    /// No segment crosses a multiple of this power of two, bytes; 0 if there is no boundary.
    pub boundary: u32,
    /// Alignment inside a list: where every range but the first must begin and every range but the
    /// last must end, bytes; a power of two, 1 for none.
    pub inner: u32,
}

impl SegmentLimits {
    /// No restrictions, for a device without a controller.
    pub const NONE: Self =
        Self { count: SEGMENTS_MAX as u16, length: u32::MAX, alignment: 1, boundary: 0, inner: 1 };

    /// How many of the first `len` bytes of `data` one command can move: as many as its segments
    /// hold, rounded down to a multiple of `block`.
    ///
    /// # Errors
    /// [`BadData::TooMany`] if that is none; otherwise what is wrong with the list.
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

    /// Checks that every range of `data` is aligned and in `memory`: all that can be checked before
    /// a request is split.
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

    /// Length of the first segment of the `len` bytes at `address`.
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
    /// Data for a command that moves none, or more than one command can move.
    Length,
    /// A range is outside the memory that data may lie in, or in the driver's own.
    Outside,
    /// Address or length of a range is not aligned.
    Misaligned,
    /// More segments than a command can have.
    TooMany,
    /// Two ranges of a list overlap.
    Overlap,
    /// A range of a list is empty.
    Empty,
    /// The list is outside DMA memory.
    List,
    /// The list names fewer bytes than requested.
    Short,
    /// It is not a whole number of data units of its key.
    DataUnit,
    /// Its key slot has no key, or has one for another size of data unit.
    Key,
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
            Self::DataUnit => "its data is no whole number of the data units it is encrypted in",
            Self::Key => "its key slot has no key, or one for data units of another size",
        })
    }
}

impl core::error::Error for BadData {}

/// Translates data into segments for a device, and checks it in the same step.
///
/// Data is plainly good if it is aligned, each range fits a segment, and all of it is in the part
/// of memory where data usually is; a few comparisons establish that. All other data takes the slow
/// path, which splits ranges and reports what is wrong.
#[derive(Clone, Debug)]
pub struct Walk {
    limits: SegmentLimits,
    /// The longest data of one command, bytes.
    longest: u32,
    memory: DmaRegion,
    /// Device addresses that data must avoid: their start and length.
    reserved: (u64, u64),
    plain: Plain,
}

/// The conditions for a plainly good range.
#[derive(Clone, Copy, Debug)]
struct Plain {
    /// The longest stretch of memory without reserved addresses: its start and length.
    start: u64,
    len: u64,
    /// Bits that must be clear in an offset from `start`, and in a length.
    mask: u64,
    /// Longest range that is one segment; 0 if the length alone does not decide that.
    one: u64,
    /// As `one`, for the ranges of a list.
    list: u64,
    /// Bits that must be clear where one range of a list ends and the next begins.
    inner: u64,
}

/// No plain address has this bit set: the sum of an address below it and a length cannot wrap.
const HIGH: u64 = 1 << 63;

impl Plain {
    fn new(limits: &SegmentLimits, longest: u32, memory: &DmaRegion, reserved: (u64, u64)) -> Self {
        let (first, end) = (memory.address(), memory.address() + memory.len() as u64);
        let before = (first, reserved.0.clamp(first, end));
        let after = (reserved.0.saturating_add(reserved.1).clamp(first, end), end);
        let length = |part: &(u64, u64)| part.1 - part.0;
        let (start, end) = if length(&before) > length(&after) { before } else { after };
        let alignment = u64::from(limits.alignment);
        let start = start.next_multiple_of(alignment);
        let len = end.saturating_sub(start);
        let one = if limits.boundary == 0 { limits.length.min(longest) } else { 0 };
        let one = u64::from(one).min(len);
        let list = if start + len <= HIGH { one } else { 0 };
        let inner = u64::from(limits.inner) - 1;
        Self { start, len, mask: alignment - 1, one, list, inner }
    }
}

impl Walk {
    /// For data of at most `longest` bytes in `memory`, outside `reserved`, the driver's own
    /// memory.
    ///
    /// # Panics
    /// If the limits contradict each other: they are constants of the driver.
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
        let plain = Plain::new(&limits, longest, memory, reserved);
        Self { limits, longest, memory: memory.clone(), reserved, plain }
    }

    /// Passes every segment of `data` to `place` in order, with its number, and returns the number
    /// of segments. Data that is not plainly good may be passed a second time, starting again with
    /// the first segment. Until this returns, nothing guarantees that the segments passed are
    /// valid, or in memory at all.
    ///
    /// # Errors
    /// What is wrong with the data.
    #[inline(always)]
    pub fn run(&self, data: &Data, mut place: impl FnMut(u32, DmaSlice)) -> Result<u32, BadData> {
        let plain = match *data {
            Data::One(_) => self.one(data).map(|range| {
                place(0, range);
                1
            }),
            Data::List { entries, count, skip, len } if self.plain.inner == 0 => {
                self.plain_list::<false>((entries, count, skip, len), &mut place)
            }
            Data::List { entries, count, skip, len } => {
                self.plain_list::<true>((entries, count, skip, len), &mut place)
            }
        };
        match plain {
            Some(count) => Ok(count),
            None => self.run_any(data, &mut place),
        }
    }

    /// The single segment of `data`, if it is plainly good and only one: the common case, for a
    /// driver that has a faster path for it than [`run`](Self::run).
    #[inline(always)]
    pub fn one(&self, data: &Data) -> Option<DmaSlice> {
        let Data::One(range) = *data else { return None };
        let Plain { start, len, mask, one, .. } = self.plain;
        let (at, bytes) = (range.address.wrapping_sub(start), u64::from(range.len));
        // `one` is not above `len`, so the subtraction is behind its condition.
        let plain = bytes.wrapping_sub(1) < one && at <= len - bytes && (at | bytes) & mask == 0;
        plain.then_some(range)
    }

    /// A list of plainly good ranges that do not overlap; `None` if it is anything else. `PAGES` if
    /// the alignment inside the list matters.
    #[inline(always)]
    fn plain_list<const PAGES: bool>(
        &self,
        (entries, count, mut skip, mut left): (u64, u32, u32, u32),
        place: &mut impl FnMut(u32, DmaSlice),
    ) -> Option<u32> {
        let Plain { start, len, mask, list, inner, .. } = self.plain;
        if count > self.limits.count.into() || left > self.longest {
            return None;
        }
        let offset = usize::try_from(entries.wrapping_sub(self.memory.address())).ok()?;
        let mut entries = self.memory.blocks::<ENTRY>(offset, count as usize)?;
        let (mut n, mut end, mut bits, mut joints) = (0, start, 0, 0);
        while left > 0 {
            let [address, whole] = entries.next()?.get::<0, 2>();
            let address = address.wrapping_add(skip.into());
            let bytes = whole.wrapping_sub(skip.into());
            // Ranges that ascend from the start of memory do not overlap, and if the last ends in
            // memory, all do.
            if bytes.wrapping_sub(1) >= list || address < end {
                return None;
            }
            if PAGES && n > 0 {
                joints |= end | address;
            }
            let take = (bytes as u32).min(left);
            bits |= address | u64::from(take);
            end = address.wrapping_add(take.into());
            place(n, DmaSlice { address, len: take });
            (skip, n) = (0, n + 1);
            left -= take;
        }
        let is_plain = bits & (mask | HIGH) == 0 && end <= start + len;
        (is_plain && (!PAGES || joints & inner == 0)).then_some(n)
    }

    /// The slow path for any data: checks each condition by itself, and splits ranges.
    #[cold]
    #[inline(never)]
    fn run_any(&self, data: &Data, place: &mut impl FnMut(u32, DmaSlice)) -> Result<u32, BadData> {
        if data.len() > self.longest {
            return Err(BadData::Length);
        }
        self.check(data)?;
        let mut n = 0;
        for range in data.ranges(&self.memory) {
            let mut range = range?;
            while range.len > 0 {
                if n >= u32::from(self.limits.count) {
                    return Err(BadData::TooMany);
                }
                let len = self.limits.piece(range.address, range.len);
                place(n, DmaSlice { address: range.address, len });
                n += 1;
                range.address += u64::from(len);
                range.len -= len;
            }
        }
        Ok(n)
    }

    /// Whether any of the `len` bytes at `address` is reserved.
    fn is_reserved(&self, address: u64, len: u64) -> bool {
        let (start, reserved) = self.reserved;
        address.wrapping_sub(start) < reserved
            || (start.wrapping_sub(address) < len && reserved > 0)
    }

    /// Checks everything except the number of segments.
    fn check(&self, data: &Data) -> Result<(), BadData> {
        let mut sorted = [DmaSlice::EMPTY; SEGMENTS_MAX];
        let mut count = 0;
        let inner = u64::from(self.limits.inner) - 1;
        let mut before: Option<DmaSlice> = None;
        for range in data.ranges(&self.memory) {
            let range = range?;
            let place = sorted.get_mut(count).ok_or(BadData::TooMany)?;
            self.limits.check_range(range, &self.memory)?;
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
