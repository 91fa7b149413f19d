//! Detection of what an image holds and how it is laid out.
//!
//! Theory. Every format marks its structures with a magic number and a checksum, so a structure
//! that passes both is real, and its position tells the rest. First the storage: if structures
//! longer than a page pass only once a candidate's out-of-band bytes are removed from between the
//! pages, the image is a dump with that page size. Then the contents, from the front: UBI begins
//! with erase counter headers, one at the start of every block, so their spacing is the block size;
//! a bare UBIFS begins with its superblock; JFFS2 nodes never cross a block, and summaries and
//! clean markers stand at the ends of blocks. Between contents there may be anything (boot loaders,
//! kernels).

mod blocks;
mod pages;
mod tail;

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use flysch_api::flash::{Flash, FlashError, FlashGeometry};
use flysch_wire::jffs2::{self, ByteOrder};
use flysch_wire::ubi::{EC_HEADER_SIZE, EcHeader};
use flysch_wire::ubifs;

use self::blocks::Blocks;
use crate::{FlashImage, PageFormat, Scheme, Storage};

pub use pages::page_format;

/// Bytes from the start of a content that are examined to learn its block size.
const SAMPLE_MAX: u64 = 8 << 20;
/// Partitions start on multiples of this, bytes.
const PARTITION_ALIGNMENT: u64 = 16 << 10;
/// Bytes at the front that are searched at every position, for images that follow a header.
const PREFIX_MAX: u64 = 4 << 20;
/// Bytes read at once during a search.
const WINDOW: usize = 64 << 10;
/// Bytes needed to recognise the largest structure, a UBIFS superblock node.
const OVERLAP: usize = ubifs::SUPERBLOCK_NODE_SIZE;

/// A recognised format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// UBI: a device with volumes.
    Ubi {
        /// Offset of the volume identifier header in each block, bytes.
        vid_header_offset: u32,
        /// Offset of the data in each block, bytes.
        data_offset: u32,
    },
    /// UBIFS without UBI below.
    Ubifs {
        /// Size of the file system according to its superblock, bytes.
        size: u64,
        /// Size of a logical erase block, bytes.
        leb_size: u32,
    },
    /// JFFS2.
    Jffs2(ByteOrder),
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ubi { .. } => f.write_str("UBI"),
            Self::Ubifs { .. } => f.write_str("UBIFS"),
            Self::Jffs2(order) => write!(f, "JFFS2, {order}"),
        }
    }
}

/// A stretch of an image that holds one content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// What it holds.
    pub content: Content,
    /// Range in the image, bytes, not counting out-of-band bytes.
    pub range: Range<u64>,
    /// The geometry of the flash below it; `size` is that of the range.
    pub geometry: FlashGeometry,
    /// How the size of its erase blocks was determined.
    pub basis: Basis,
    /// A hint that the content contradicts.
    pub conflict: Option<Conflict>,
}

/// How a size was determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// A hint gave it.
    Named,
    /// The content of the image shows it.
    Seen,
    /// The image does not show it; a common size is assumed.
    Assumed,
}

/// A size given by a hint, and the size that the image shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Which size: "erase block", "page".
    pub what: &'static str,
    /// As the hint gives it, bytes.
    pub named: u32,
    /// What the image shows instead, in words.
    pub seen: Seen,
}

/// Evidence against a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The size is another one, bytes.
    Size(u32),
    /// A JFFS2 node crosses the end of such a block, at this byte of the image.
    NodeAcross(u64),
    /// UBI's data begins at this byte of a block, which is not the start of such a page.
    DataAt(u32),
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, named, seen } = self;
        match seen {
            Seen::Size(size) => {
                write!(f, "{what}s of {named} bytes: those in the image have {size}")
            }
            Seen::NodeAcross(at) => {
                write!(f, "{what}s of {named} bytes: a node lies across the end of one at {at}")
            }
            Seen::DataAt(at) => {
                write!(f, "{what}s of {named} bytes: UBI's data begins at byte {at} of each block")
            }
        }
    }
}

/// Sizes that the caller knows; one of 0 bytes is as good as none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Size of an erase block, bytes.
    pub erase_size: Option<u32>,
    /// Size of a page, bytes.
    pub page_size: Option<u32>,
    /// Out-of-band bytes of a page, stored between the pages of the image.
    pub oob_size: Option<u32>,
    /// The error-correction scheme of the codes in the out-of-band bytes, stored between the pages.
    pub ecc: Option<Scheme>,
}

impl Hints {
    /// The hints without sizes of 0 bytes.
    fn known(&self) -> Self {
        let known = |size: Option<u32>| size.filter(|&size| size > 0);
        Self { erase_size: known(self.erase_size), page_size: known(self.page_size), ..*self }
    }

    /// Whether the hints say that out-of-band bytes lie between the pages.
    pub fn name_oob(&self) -> bool {
        self.oob_size.is_some() || self.ecc.is_some()
    }
}

/// What was recognised at one position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hit {
    offset: u64,
    content: Content,
}

/// The contents of `flash` that are recognised, from the front.
///
/// The block size of `flash` need not be known yet.
///
/// # Errors
/// If the flash cannot be read; bit errors are not an error here.
pub fn regions<F: Flash>(flash: &F, hints: &Hints) -> Result<Vec<Region>, FlashError> {
    let (size, hints) = (flash.geometry().size, &hints.known());
    let mut regions: Vec<Region> = vec![];
    let mut at = 0;
    while let Some(hit) = next_hit(flash, at)? {
        let end = region_end(flash, &hit, hints)?;
        let Blocks { start, geometry, basis, conflict } =
            blocks::geometry(flash, &hit, end, hints)?;
        // A damaged start of the first block belongs to it, as long as nothing else ends there.
        let mut start = start.max(at).min(hit.offset);
        // Linux writes JFFS2 in any order of blocks: erased ones at the front belong to it.
        let is_jffs2 = matches!(hit.content, Content::Jffs2(_));
        if is_jffs2 && at == 0 && is_erased_up_to(flash, start, geometry.erase_size)? {
            start = 0;
        }
        let end = tail::end(flash, &hit, start..end, geometry.erase_size)?;
        let geometry = FlashGeometry { size: end - start, ..geometry };
        let (content, range) = (hit.content, start..end);
        regions.push(Region { content, range, geometry, basis, conflict });
        at = end;
        if at >= size {
            break;
        }
    }
    Ok(regions)
}

/// Whether everything before `end` consists of whole erased blocks.
fn is_erased_up_to<F: Flash>(flash: &F, end: u64, erase_size: u32) -> Result<bool, FlashError> {
    if !end.is_multiple_of(u64::from(erase_size)) {
        return Ok(false);
    }
    let mut window = vec![0; WINDOW];
    let mut at = 0;
    while at < end {
        let len = read_some(flash, at, &mut window)?.min((end - at) as usize);
        if window[..len].iter().any(|&byte| byte != 0xFF) {
            return Ok(false);
        }
        at += WINDOW as u64;
    }
    Ok(true)
}

/// Recognises the structure at the start of `bytes`.
fn recognise(bytes: &[u8]) -> Option<Content> {
    match bytes.first_chunk::<4>()? {
        b"UBI#" => {
            let header = EcHeader::parse(bytes.get(..EC_HEADER_SIZE)?).ok()?;
            Some(Content::Ubi {
                vid_header_offset: header.vid_header_offset,
                data_offset: header.data_offset,
            })
        }
        [0x31, 0x18, 0x10, 0x06] => recognise_ubifs(bytes),
        [0x85, 0x19, ..] => recognise_jffs2(bytes, ByteOrder::Little),
        [0x19, 0x85, ..] => recognise_jffs2(bytes, ByteOrder::Big),
        _ => None,
    }
}

fn recognise_ubifs(bytes: &[u8]) -> Option<Content> {
    let (header, _) = ubifs::Header::check(bytes).ok()?;
    let format = ubifs::BranchFormat::default();
    match ubifs::Node::parse(bytes, format).ok()?.1 {
        ubifs::Node::Superblock(superblock) if header.kind == ubifs::NodeKind::Superblock => {
            let ubifs::Superblock { leb_size, leb_count, .. } = superblock;
            // Blocks of 0 bytes cannot be counted. Whoever mounts it checks all the rest, and says
            // what is wrong.
            let sizes = ubifs::LEB_SIZE_MIN..=ubifs::LEB_SIZE_MAX;
            let is_possible = sizes.contains(&leb_size) && leb_count > 0;
            let size = u64::from(leb_count) * u64::from(leb_size);
            is_possible.then_some(Content::Ubifs { size, leb_size })
        }
        _ => None,
    }
}

/// A clean marker alone is accepted too: an empty file system may hold nothing else.
fn recognise_jffs2(bytes: &[u8], order: ByteOrder) -> Option<Content> {
    let header = jffs2::Header::parse(bytes, order).ok()?;
    let good = match header.node_type.as_accurate() {
        jffs2::NodeType::INODE => jffs2::Inode::parse(bytes, order).is_ok(),
        jffs2::NodeType::DIRENT => jffs2::Dirent::parse(bytes, order).is_ok(),
        jffs2::NodeType::XATTR => jffs2::Xattr::parse(bytes, order).is_ok(),
        jffs2::NodeType::XREF => jffs2::Xref::parse(bytes, order).is_ok(),
        jffs2::NodeType::CLEANMARKER | jffs2::NodeType::PADDING => true,
        _ => false,
    };
    good.then_some(Content::Jffs2(order))
}

/// Reads `window` at `offset`, as far as the flash goes; bit errors are ignored.
fn read_some<F: Flash>(flash: &F, offset: u64, window: &mut [u8]) -> Result<usize, FlashError> {
    let left = flash.geometry().size.saturating_sub(offset);
    let len = usize::try_from(left).unwrap_or(usize::MAX).min(window.len());
    match flash.read(offset, &mut window[..len]) {
        Ok(_) | Err(FlashError::Uncorrectable { .. }) => Ok(len),
        Err(other) => Err(other),
    }
}

/// The first recognised structure at or after `from`: at any position near the front of the image
/// or near `from`, further on only where partitions start.
fn next_hit<F: Flash>(flash: &F, from: u64) -> Result<Option<Hit>, FlashError> {
    let size = flash.geometry().size;
    let mut window = vec![0; WINDOW + OVERLAP];
    let mut at = from;
    while at < size && at - from < PREFIX_MAX {
        let len = read_some(flash, at, &mut window)?;
        for start in (0..len.min(WINDOW)).step_by(jffs2::ALIGNMENT) {
            if let Some(content) = recognise(&window[start..len]) {
                return Ok(Some(Hit { offset: at + start as u64, content }));
            }
        }
        at += WINDOW as u64;
    }
    next_aligned_hit(flash, at, None)
}

/// The first recognised structure at the start of a partition, at or after `from`. JFFS2 does not
/// mark its start, so everything between two such places is searched for it, unless the search is
/// `inside` a JFFS2, whose own structures do not count.
fn next_aligned_hit<F: Flash>(
    flash: &F,
    from: u64,
    inside: Option<Content>,
) -> Result<Option<Hit>, FlashError> {
    let size = flash.geometry().size;
    let need = if inside.is_some() { OVERLAP } else { PARTITION_ALIGNMENT as usize + OVERLAP };
    let mut window = vec![0; need];
    let mut at = from.next_multiple_of(PARTITION_ALIGNMENT);
    while at < size {
        let ends = if inside.is_some() { 4 } else { window.len() };
        let mut len = read_some(flash, at, &mut window[..ends])?;
        if inside.is_some() && matches!(&window[..len], b"UBI#" | [0x31, 0x18, 0x10, 0x06]) {
            len = read_some(flash, at, &mut window)?;
        }
        let positions = if inside.is_some() { 1 } else { PARTITION_ALIGNMENT as usize };
        for start in (0..len.min(positions)).step_by(jffs2::ALIGNMENT) {
            match recognise(&window[start..len]) {
                Some(Content::Jffs2(_)) if inside.is_some() => {}
                Some(content) => return Ok(Some(Hit { offset: at + start as u64, content })),
                None => {}
            }
        }
        at += PARTITION_ALIGNMENT;
    }
    Ok(None)
}

/// Where the content that starts with `hit` ends.
fn region_end<F: Flash>(flash: &F, hit: &Hit, hints: &Hints) -> Result<u64, FlashError> {
    let size = flash.geometry().size;
    match hit.content {
        Content::Ubifs { size: len, .. } => Ok(hit.offset.saturating_add(len.max(1)).min(size)),
        Content::Jffs2(_) => {
            let next = next_aligned_hit(flash, hit.offset + 1, Some(hit.content))?;
            Ok(next.map_or(size, |next| next.offset))
        }
        Content::Ubi { .. } => {
            let spacing = match hints.erase_size {
                Some(size) => Some(u64::from(size)),
                None => blocks::ubi_spacing(flash, hit.offset)?,
            };
            // One header alone does not say where its block ends.
            spacing.map_or(Ok(size), |spacing| ubi_end(flash, hit.offset, spacing))
        }
    }
}

/// UBI ends where something else starts outside its blocks.
fn ubi_end<F: Flash>(flash: &F, start: u64, spacing: u64) -> Result<u64, FlashError> {
    let size = flash.geometry().size;
    let mut window = vec![0; OVERLAP];
    let mut end = start + spacing;
    let mut at = end;
    while at < size {
        let len = read_some(flash, at, &mut window[..EC_HEADER_SIZE])?;
        match recognise(&window[..len]) {
            Some(Content::Ubi { .. }) => end = at + spacing,
            Some(Content::Jffs2(_)) => break,
            _ if window.starts_with(&[0x31, 0x18, 0x10, 0x06]) => {
                let len = read_some(flash, at, &mut window)?;
                if recognise(&window[..len]).is_some() {
                    break;
                }
            }
            _ => {}
        }
        at += spacing;
    }
    // Blocks without a header behind the last good one may be damaged or erased: they belong to it.
    Ok(if at >= size { size } else { at.min(size).max(end.min(size)) })
}

/// Opens the image in `storage` as one flash whose contents have not been examined, with its page
/// format if it is a dump, and the regions in it.
///
/// # Errors
/// If the storage cannot be read.
pub fn plain_regions<S: Storage>(storage: S, hints: &Hints) -> Result<Vec<Region>, FlashError> {
    regions(&FlashImage::new(storage, FlashGeometry::nor(0, 1 << 16)), hints)
}

/// Everything that was detected in an image.
#[derive(Clone, Debug)]
pub struct Detected {
    /// The page format, if the image contains out-of-band bytes.
    pub page_format: Option<PageFormat>,
    /// The contents.
    pub regions: Vec<Region>,
}

#[cfg(test)]
mod tests;
