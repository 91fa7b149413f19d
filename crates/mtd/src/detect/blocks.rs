//! The size of erase blocks.

use alloc::vec;
use alloc::vec::Vec;

use flysch_api::flash::{Error, Flash, Geometry, Kind};
use flysch_wire::jffs2::{Header, NodeType, SummaryTrailer, padded};
use flysch_wire::ubi::{EC_HEADER_SIZE, EcHeader};

use super::{Content, Hints, Hit, SAMPLE_MAX, read_some};

/// Smallest and largest erase block that is looked for, bytes.
const ERASE_SIZE_MIN: u64 = 4 << 10;
const ERASE_SIZE_MAX: u64 = 8 << 20;
/// What is assumed when an image is too small to tell.
const ERASE_SIZE_DEFAULT: u32 = 64 << 10;
/// So many block ends without a node across them are no accident.
const ENDS_MIN: usize = 8;

/// Where the first block of the content that shows with `hit` and ends at `end` starts, and the
/// shape of its flash.
pub(super) fn geometry<F: Flash>(
    flash: &F,
    hit: &Hit,
    end: u64,
    hints: &Hints,
) -> Result<(u64, Geometry), Error> {
    let below = *flash.geometry();
    let size = end - hit.offset;
    match hit.content {
        Content::Ubi { vid_header_offset, data_offset } => {
            let erase_size = match hints.erase_size {
                Some(size) => size,
                None => u32::try_from(ubi_spacing(flash, hit.offset)?).unwrap_or(u32::MAX),
            };
            let geometry = match below.oob_size {
                0 => ubi_geometry(size, erase_size, vid_header_offset, data_offset, hints),
                _ => Geometry { size, erase_size, ..below },
            };
            Ok((hit.offset, geometry))
        }
        Content::Ubifs { .. } => {
            let erase_size = hints.erase_size.unwrap_or(ERASE_SIZE_DEFAULT);
            let geometry = Geometry { kind: Kind::UbiVolume, ..Geometry::nor(size, erase_size) };
            Ok((hit.offset, geometry))
        }
        Content::Jffs2(order) => {
            let nodes = Nodes::sample(flash, hit.offset, end, order)?;
            let erase_size = hints.erase_size.unwrap_or_else(|| nodes.erase_size());
            let geometry = match (below.oob_size, hints.page_size) {
                (0, Some(page)) => Geometry::nand(size, erase_size, page, page),
                (0, None) => Geometry::nor(size, erase_size),
                _ => Geometry { size, erase_size, ..below },
            };
            Ok((nodes.first_block(u64::from(erase_size), hit.offset), geometry))
        }
    }
}

/// Page and sub-page as the offsets of UBI's headers betray them.
fn ubi_geometry(
    size: u64,
    erase_size: u32,
    vid_header_offset: u32,
    data_offset: u32,
    hints: &Hints,
) -> Geometry {
    let sub_page = if vid_header_offset.is_power_of_two() { vid_header_offset } else { 1 };
    if sub_page <= EC_HEADER_SIZE as u32 && hints.page_size.is_none() {
        return Geometry::nor(size, erase_size);
    }
    // The data begins at the first page behind the header: the page is at most that, and if there
    // are sub-pages it is more than one of them.
    let page = hints.page_size.unwrap_or_else(|| {
        let largest = 1 << data_offset.trailing_zeros().min(31);
        if data_offset == 2 * sub_page { sub_page } else { largest.max(sub_page) }
    });
    Geometry::nand(size, erase_size, page, sub_page.min(page))
}

/// The distance of erase counter headers from the first one at `start` on: the shortest that is
/// seen, for blocks may be missing their header, but none has two.
pub(super) fn ubi_spacing<F: Flash>(flash: &F, start: u64) -> Result<u64, Error> {
    let size = flash.geometry().size;
    let mut header = [0; EC_HEADER_SIZE];
    let is_header = |at: u64, header: &mut [u8]| -> Result<bool, Error> {
        let len = read_some(flash, at, header)?;
        Ok(EcHeader::parse(&header[..len]).is_ok())
    };
    // Headers lie at multiples of the spacing, a power of two: the smallest distance at which more
    // than one in four places has one is it. Data can hold a copy of a header by accident only.
    let mut spacing = ERASE_SIZE_MIN;
    while spacing <= ERASE_SIZE_MAX && start + spacing < size {
        let places = ((size - start - 1) / spacing).min(64);
        let mut odd = 0;
        for place in (1..=places).step_by(2) {
            odd += u64::from(is_header(start + place * spacing, &mut header)?);
        }
        if odd * 4 > places.div_ceil(2) {
            return Ok(spacing);
        }
        spacing *= 2;
    }
    // One header only: everything is one block, or the image was cut off.
    Ok((size - start).next_power_of_two().clamp(ERASE_SIZE_MIN, ERASE_SIZE_MAX))
}

/// What the front of a JFFS2 says about its blocks.
struct Nodes {
    /// Start and end of each node, from the start of the flash.
    extents: Vec<(u64, u64)>,
    clean_markers: Vec<u64>,
    /// Block size that a summary proves.
    proven: Option<u64>,
}

impl Nodes {
    fn sample<F: Flash>(
        flash: &F,
        start: u64,
        end: u64,
        order: flysch_wire::jffs2::ByteOrder,
    ) -> Result<Self, Error> {
        let len = usize::try_from((end - start).min(SAMPLE_MAX)).unwrap_or(0);
        let mut bytes = vec![0; len];
        let len = read_some(flash, start, &mut bytes)?;
        let bytes = &bytes[..len];
        let mut nodes = Self { extents: vec![], clean_markers: vec![], proven: None };
        let mut at = 0;
        while at + Header::LEN <= len {
            let Ok(header) = Header::parse(&bytes[at..], order) else {
                at += 4;
                continue;
            };
            let next = at as u64 + padded(header.total_len.max(Header::LEN as u32));
            match header.node_type {
                NodeType::CLEANMARKER => nodes.clean_markers.push(start + at as u64),
                NodeType::SUMMARY if next <= len as u64 => {
                    let tail = &bytes[next as usize - SummaryTrailer::LEN..next as usize];
                    let trailer = SummaryTrailer::parse(tail, order);
                    let block = trailer.map(|t| u64::from(t.offset) + next - at as u64);
                    nodes.proven = block.filter(|size| size.is_multiple_of(1024));
                }
                _ => {}
            }
            if nodes.proven.is_some() {
                break;
            }
            nodes.extents.push((start + at as u64, start + next));
            at = usize::try_from(next).unwrap_or(len);
        }
        Ok(nodes)
    }

    fn erase_size(&self) -> u32 {
        let size = self.proven.or_else(|| self.by_clean_markers()).or_else(|| self.by_extents());
        size.and_then(|size| u32::try_from(size).ok()).unwrap_or(ERASE_SIZE_DEFAULT)
    }

    /// Clean markers stand at the start of blocks, though not of every one.
    fn by_clean_markers(&self) -> Option<u64> {
        let first = *self.clean_markers.first()?;
        let spacing = self.clean_markers[1..].iter().fold(0, |sum, at| gcd(sum, at - first));
        (ERASE_SIZE_MIN..=ERASE_SIZE_MAX).contains(&spacing).then_some(spacing)
    }

    /// Whether a node lies across an end of blocks of `size` bytes, of which one starts at `base`.
    fn are_crossing(&self, size: u64, base: u64) -> bool {
        self.extents.iter().any(|&(from, to)| {
            (from + size - base % size) / size != (to - 1 + size - base % size) / size
        })
    }

    /// Where the first block starts: blocks start at multiples of their size, except behind a
    /// header of some other length.
    fn first_block(&self, size: u64, hit: u64) -> u64 {
        if self.are_crossing(size, 0) { hit } else { hit - hit % size }
    }

    /// The smallest block size that no node crosses.
    fn by_extents(&self) -> Option<u64> {
        let start = self.extents.first()?.0;
        let end = self.extents.last()?.1;
        let mut size = ERASE_SIZE_MIN;
        while size <= ERASE_SIZE_MAX {
            if !self.are_crossing(size, 0) || !self.are_crossing(size, start) {
                let ends = ((end - start) / size) as usize;
                let default = u64::from(ERASE_SIZE_DEFAULT);
                return Some(if ends >= ENDS_MIN { size } else { size.max(default) });
            }
            size *= 2;
        }
        None
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
