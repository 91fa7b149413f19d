//! Layout of the out-of-band bytes of a page (Linux `mtd_ooblayout_ops`).
#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some with one")]

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Positions in the out-of-band bytes of one page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OobLayout {
    /// Number of out-of-band bytes of a page.
    pub size: usize,
    /// The bad-block marker: 0xFF in a good block. `None` if no byte is one: all blocks are good,
    /// and none can be marked.
    pub bad_marker: Option<usize>,
    /// Codes of all steps, in step order.
    pub ecc: Vec<Range<usize>>,
    /// Bytes left to the file systems, in order.
    pub free: Vec<Range<usize>>,
}

impl OobLayout {
    /// The layout of small pages (256 or 512 bytes) with 8 or 16 out-of-band bytes. `None` if the
    /// code does not have the length that these layouts provide for.
    pub fn small_page(size: usize, ecc_len: usize) -> Option<Self> {
        let (ecc, free) = match (size, ecc_len) {
            (8, 3) => (vec![0..3], vec![3..5, 6..8]),
            (16, 6) => (vec![0..4, 6..8], vec![8..16]),
            (16, 3) => (vec![0..3], vec![8..16]),
            (8 | 16, 0) => (vec![], vec![0..5, 6..size]),
            _ => return None,
        };
        Some(Self { size, bad_marker: Some(5), ecc, free })
    }

    /// The layout of large pages whose code starts at `ecc_at`. `None` if it does not fit after the
    /// bad-block marker.
    pub fn large_page(size: usize, ecc_at: usize, ecc_len: usize) -> Option<Self> {
        let end = ecc_at.checked_add(ecc_len)?;
        if ecc_at < 2 || end > size {
            return None;
        }
        let mut layout = Self { size, bad_marker: Some(0), ecc: vec![], free: vec![] };
        if ecc_len != 0 {
            layout.ecc.push(ecc_at..end);
        }
        layout.free.extend([2..ecc_at, end..size].into_iter().filter(|range| !range.is_empty()));
        Some(layout)
    }

    /// The layout that Linux uses for Hamming codes: from byte 40 of 64, from byte 80 of 128; small
    /// pages have their own.
    pub fn hamming(size: usize, ecc_len: usize) -> Option<Self> {
        match size {
            8 | 16 => Self::small_page(size, ecc_len),
            64 => Self::large_page(size, 40, ecc_len),
            128 => Self::large_page(size, 80, ecc_len),
            _ => Self::at_end(size, ecc_len),
        }
    }

    /// The layout that Linux uses for all other codes: the code at the end.
    pub fn at_end(size: usize, ecc_len: usize) -> Option<Self> {
        Self::large_page(size, size.checked_sub(ecc_len)?, ecc_len)
    }

    /// The code at the end of the out-of-band bytes of small pages, whose bad-block marker is byte
    /// 5. `None` if the code would overlap it. (Linux leaves such a layout to the controller's
    /// driver.)
    pub fn small_at_end(size: usize, ecc_len: usize) -> Option<Self> {
        const MARKER: usize = 5;
        let start = size.checked_sub(ecc_len).filter(|&start| start > MARKER)?;
        let free = vec![0..MARKER];
        let mut layout = Self { size, bad_marker: Some(MARKER), ecc: vec![], free };
        if ecc_len != 0 {
            layout.ecc.push(start..size);
        }
        layout.free.extend([MARKER + 1..start].into_iter().filter(|range| !range.is_empty()));
        Some(layout)
    }

    /// Number of bytes left to the file systems.
    pub fn free_len(&self) -> usize {
        self.free.iter().map(Range::len).sum()
    }

    /// Whether `place` exists and holds neither codes nor the bad-block marker.
    pub(crate) fn is_free_of_codes(&self, place: Range<usize>) -> bool {
        let is_outside =
            |range: &Range<usize>| range.end <= place.start || place.end <= range.start;
        place.end <= self.size
            && self.bad_marker.is_none_or(|marker| !place.contains(&marker))
            && self.ecc.iter().all(is_outside)
    }

    /// The places of the bytes `wanted` of those at `ranges`, counted as if they were contiguous.
    pub(crate) fn places<'r>(
        ranges: &'r [Range<usize>],
        wanted: &Range<usize>,
    ) -> impl Iterator<Item = Range<usize>> + use<'r> {
        let Range { start, end } = *wanted;
        let mut before = 0;
        ranges.iter().filter_map(move |range| {
            let (from, to) = (start.saturating_sub(before), end.saturating_sub(before));
            before += range.len();
            let part = range.start + from..range.start + to.min(range.len());
            (!part.is_empty()).then_some(part)
        })
    }

    /// The out-of-band bytes from the first to the last of [`places`](Self::places).
    pub(crate) fn span(ranges: &[Range<usize>], wanted: &Range<usize>) -> Range<usize> {
        let join = |one: Range<usize>, other: Range<usize>| {
            one.start.min(other.start)..one.end.max(other.end)
        };
        Self::places(ranges, wanted).reduce(join).unwrap_or(0..0)
    }

    /// Copies the bytes at `ranges` of `oob` to `out`, as if they were contiguous.
    pub(crate) fn gather(ranges: &[Range<usize>], oob: &[u8], out: &mut [u8]) {
        let bytes = ranges.iter().flat_map(|range| &oob[range.clone()]);
        for (to, from) in out.iter_mut().zip(bytes) {
            *to = *from;
        }
    }

    /// Copies `bytes`, as if they were contiguous, to `ranges` of `oob`.
    pub(crate) fn scatter(ranges: &[Range<usize>], bytes: &[u8], oob: &mut [u8]) {
        let places = ranges.iter().flat_map(Clone::clone);
        for (place, byte) in places.zip(bytes) {
            oob[place] = *byte;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_linux() {
        let large = OobLayout::hamming(64, 24).unwrap();
        assert_eq!((&large.ecc[..], &large.free[..]), (&[40..64][..], &[2..40][..]));
        let larger = OobLayout::hamming(128, 48).unwrap();
        assert_eq!((&larger.ecc[..], &larger.free[..]), (&[80..128][..], &[2..80][..]));
        let small = OobLayout::hamming(16, 6).unwrap();
        assert_eq!((small.bad_marker, &small.ecc[..]), (Some(5), &[0..4, 6..8][..]));
        let bch = OobLayout::at_end(64, 28).unwrap();
        assert_eq!((&bch.ecc[..], bch.free_len()), (&[36..64][..], 34));
        let tight = OobLayout::small_at_end(16, 7).unwrap();
        assert_eq!((tight.bad_marker, &tight.ecc[..]), (Some(5), &[9..16][..]));
        assert_eq!((&tight.free[..], tight.free_len()), (&[0..5, 6..9][..], 8));
        assert_eq!(OobLayout::small_at_end(16, 13), None, "the bad-block marker needs its place");
        assert_eq!(OobLayout::at_end(16, 28), None);
        assert_eq!(OobLayout::at_end(64, 63), None, "the bad-block marker needs its place");
    }
}
