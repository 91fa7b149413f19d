//! The size of erase blocks.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use flysch_api::flash::{Flash, FlashError, FlashGeometry, Kind};
use flysch_wire::jffs2::{Header, NodeType, SummaryTrailer, padded};
use flysch_wire::ubi::{EC_HEADER_SIZE, EcHeader};

use super::{Basis, Conflict, Content, Hints, Hit, SAMPLE_MAX, Seen, WINDOW, read_some};

/// Smallest and largest erase block to look for, bytes.
const ERASE_SIZE_MIN: u64 = 4 << 10;
const ERASE_SIZE_MAX: u64 = 8 << 20;
/// The minimum for UBI, which can fit its headers and some data into very small blocks.
const UBI_BLOCK_MIN: u64 = 512;
/// Assumed if an image is too small to tell.
const ERASE_SIZE_DEFAULT: u32 = 64 << 10;
/// This many block ends without a node across them cannot be a coincidence.
const ENDS_MIN: usize = 8;

/// The erase blocks of a stretch of content.
pub(super) struct Blocks {
    /// Where the first block starts.
    pub(super) start: u64,
    /// The geometry of the flash.
    pub(super) geometry: FlashGeometry,
    /// How their size was determined.
    pub(super) basis: Basis,
    /// Evidence against the hints.
    pub(super) conflict: Option<Conflict>,
}

/// The erase blocks of the content that was recognised by `hit` and ends at `end`.
pub(super) fn geometry<F: Flash>(
    flash: &F,
    hit: &Hit,
    end: u64,
    hints: &Hints,
) -> Result<Blocks, FlashError> {
    match hit.content {
        Content::Ubi { vid_header_offset, data_offset } => {
            ubi_blocks(flash, hit, end, hints, (vid_header_offset, data_offset))
        }
        Content::Ubifs { leb_size, .. } => {
            let (erase_size, basis, conflict) = size(hints, Some(leb_size));
            let size = end - hit.offset;
            let geometry =
                FlashGeometry { kind: Kind::UbiVolume, ..FlashGeometry::nor(size, erase_size) };
            Ok(Blocks { start: hit.offset, geometry, basis, conflict })
        }
        Content::Jffs2(order) => {
            let nodes = Nodes::sample(flash, hit.offset, end, order)?;
            Ok(jffs2_blocks(&nodes, flash.geometry(), hit, end, hints))
        }
    }
}

/// Determines the block size from the hint and from the content.
fn size(hints: &Hints, seen: Option<u32>) -> (u32, Basis, Option<Conflict>) {
    match (hints.erase_size, seen) {
        (Some(named), Some(seen)) if named != seen => {
            let conflict = Conflict { what: "erase block", named, seen: Seen::Size(seen) };
            (named, Basis::Named, Some(conflict))
        }
        (Some(named), _) => (named, Basis::Named, None),
        (None, Some(seen)) => (seen, Basis::Seen, None),
        (None, None) => (ERASE_SIZE_DEFAULT, Basis::Assumed, None),
    }
}

fn ubi_blocks<F: Flash>(
    flash: &F,
    hit: &Hit,
    end: u64,
    hints: &Hints,
    (vid_header_offset, data_offset): (u32, u32),
) -> Result<Blocks, FlashError> {
    let below = *flash.geometry();
    let bytes = end - hit.offset;
    let spacing = ubi_spacing(flash, hit.offset)?.and_then(|size| u32::try_from(size).ok());
    let (erase_size, basis, mut conflict) = size(hints, spacing);
    let geometry = match below.oob_size {
        0 => ubi_geometry(bytes, erase_size, vid_header_offset, data_offset, hints),
        _ => FlashGeometry { size: bytes, erase_size, ..below },
    };
    // Where out-of-band bytes are, they show the page.
    if let Some(named) = hints.page_size.filter(|&named| named != 0)
        && below.oob_size == 0
        && !data_offset.is_multiple_of(named)
    {
        let seen = Seen::DataAt(data_offset);
        conflict = conflict.or(Some(Conflict { what: "page", named, seen }));
    }
    Ok(Blocks { start: hit.offset, geometry, basis, conflict })
}

fn jffs2_blocks(
    nodes: &Nodes,
    below: &FlashGeometry,
    hit: &Hit,
    end: u64,
    hints: &Hints,
) -> Blocks {
    let bytes = end - hit.offset;
    let (erase_size, basis, mut conflict) = size(hints, nodes.erase_size());
    if basis == Basis::Named {
        // Larger blocks than the smallest that will do are possible, where no summary proves it.
        let across = nodes.across(u64::from(erase_size), hit.offset);
        let seen = match (nodes.proven, across) {
            (Some(_), _) => conflict.map(|conflict| conflict.seen),
            (None, across) => across.map(Seen::NodeAcross),
        };
        conflict = seen.map(|seen| Conflict { what: "erase block", named: erase_size, seen });
    }
    let geometry = match (below.oob_size, hints.page_size) {
        (0, Some(page)) => FlashGeometry::nand(bytes, erase_size, page, page),
        (0, None) => FlashGeometry::nor(bytes, erase_size),
        _ => FlashGeometry { size: bytes, erase_size, ..*below },
    };
    let start = nodes.first_block(u64::from(erase_size), hit.offset);
    Blocks { start, geometry, basis, conflict }
}

/// Page and sub-page size, derived from the offsets of UBI's headers.
fn ubi_geometry(
    size: u64,
    erase_size: u32,
    vid_header_offset: u32,
    data_offset: u32,
    hints: &Hints,
) -> FlashGeometry {
    let sub_page = if vid_header_offset.is_power_of_two() { vid_header_offset } else { 1 };
    if sub_page <= EC_HEADER_SIZE as u32 && hints.page_size.is_none() {
        return FlashGeometry::nor(size, erase_size);
    }
    // The data begins at the first page behind the header: the page is at most that, and if there
    // are sub-pages it is more than one of them.
    let page = hints.page_size.unwrap_or_else(|| {
        let largest = 1 << data_offset.trailing_zeros().min(31);
        if data_offset == 2 * sub_page { sub_page } else { largest.max(sub_page) }
    });
    FlashGeometry::nand(size, erase_size, page, sub_page.min(page))
}

/// The distance between erase counter headers, from the first one at `start` on. The shortest
/// distance seen is right: blocks may lack a header, but none has two. `None` if there is only one.
pub(super) fn ubi_spacing<F: Flash>(flash: &F, start: u64) -> Result<Option<u64>, FlashError> {
    let size = flash.geometry().size;
    let mut header = [0; EC_HEADER_SIZE];
    let is_header = |at: u64, header: &mut [u8]| -> Result<bool, FlashError> {
        let len = read_some(flash, at, header)?;
        Ok(EcHeader::parse(&header[..len]).is_ok())
    };
    // Headers lie at multiples of the spacing, a power of two: the smallest distance at which more
    // than one in four places has one is it. Data can hold a copy of a header by accident only.
    let mut spacing = UBI_BLOCK_MIN;
    while spacing <= ERASE_SIZE_MAX && start + spacing < size {
        let places = ((size - start - 1) / spacing).min(64);
        let mut odd = 0;
        for place in (1..=places).step_by(2) {
            odd += u64::from(is_header(start + place * spacing, &mut header)?);
        }
        if odd * 4 > places.div_ceil(2) {
            return Ok(Some(spacing));
        }
        spacing *= 2;
    }
    most_frequent_distance(flash, start)
}

/// The most common distance between headers near `start`: for blocks whose size is not a power of
/// two, and if most blocks are erased.
fn most_frequent_distance<F: Flash>(flash: &F, start: u64) -> Result<Option<u64>, FlashError> {
    let end = flash.geometry().size.min(start.saturating_add(2 * ERASE_SIZE_MAX + 1));
    let mut window = vec![0; WINDOW + EC_HEADER_SIZE];
    let mut first: Option<EcHeader> = None;
    let mut last = start;
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    let mut at = start;
    while at < end {
        let len = read_some(flash, at, &mut window)?;
        for inside in (0..len.min(WINDOW)).step_by(UBI_BLOCK_MIN as usize) {
            let Ok(header) = EcHeader::parse(&window[inside..len]) else { continue };
            let here = at + inside as u64;
            // An image inside a volume has headers, too: of another sequence.
            let first = *first.get_or_insert(header);
            if here > last && header.image_sequence == first.image_sequence {
                *counts.entry(here - last).or_insert(0) += 1;
                last = here;
            }
        }
        at += WINDOW as u64;
    }
    // Of equally frequent ones the smallest: the others may be its multiples.
    let most = counts.into_iter().max_by_key(|&(distance, count)| (count, Reverse(distance)));
    Ok(most.map(|(distance, _)| distance))
}

/// What the beginning of a JFFS2 says about its blocks.
struct Nodes {
    /// Start and end of each node, from the start of the flash.
    extents: Vec<(u64, u64)>,
    clean_markers: Vec<u64>,
    /// Block size proven by a summary.
    proven: Option<u64>,
}

impl Nodes {
    fn sample<F: Flash>(
        flash: &F,
        start: u64,
        end: u64,
        order: flysch_wire::jffs2::ByteOrder,
    ) -> Result<Self, FlashError> {
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

    /// `None` if the nodes do not decide it.
    fn erase_size(&self) -> Option<u32> {
        let size = self.proven.or_else(|| self.by_clean_markers()).or_else(|| self.by_extents());
        size.and_then(|size| u32::try_from(size).ok())
    }

    /// Clean markers stand at the start of blocks, but not of every block.
    fn by_clean_markers(&self) -> Option<u64> {
        let first = *self.clean_markers.first()?;
        let spacing = self.clean_markers[1..].iter().fold(0, |sum, at| gcd(sum, at - first));
        (ERASE_SIZE_MIN..=ERASE_SIZE_MAX).contains(&spacing).then_some(spacing)
    }

    /// Whether a node crosses the end of a block, for blocks of `size` bytes of which one starts at
    /// `base`.
    fn are_crossing(&self, size: u64, base: u64) -> bool {
        self.extents.iter().any(|&(from, to)| {
            (from + size - base % size) / size != (to - 1 + size - base % size) / size
        })
    }

    /// Where a node crosses the end of a block of `size` bytes, wherever the first block starts.
    fn across(&self, size: u64, hit: u64) -> Option<u64> {
        if size == 0 || !self.are_crossing(size, 0) || !self.are_crossing(size, hit) {
            return None;
        }
        let crossing = self.extents.iter().find(|(from, to)| from / size != (to - 1) / size);
        crossing.map(|&(from, _)| from)
    }

    /// Where the first block starts: blocks start at multiples of their size, unless they follow a
    /// header of some other length.
    fn first_block(&self, size: u64, hit: u64) -> u64 {
        if self.are_crossing(size, 0) { hit } else { hit - hit % size }
    }

    /// The smallest block size that no node crosses, if enough block ends confirm it.
    fn by_extents(&self) -> Option<u64> {
        let start = self.extents.first()?.0;
        let end = self.extents.last()?.1;
        let mut size = ERASE_SIZE_MIN;
        while size <= ERASE_SIZE_MAX {
            if !self.are_crossing(size, 0) || !self.are_crossing(size, start) {
                let ends = ((end - start) / size) as usize;
                // A larger one than the usual is at least that.
                let is_seen = ends >= ENDS_MIN || size > u64::from(ERASE_SIZE_DEFAULT);
                return is_seen.then_some(size);
            }
            size *= 2;
        }
        None
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
