//! Physical erase blocks: reading and judging their headers.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::Cell;

use flysch_api::flash::{Corrected, Flash, FlashError, Kind};
use flysch_wire::ubi::{
    EC_HEADER_SIZE, EC_MAGIC, EcHeader, HeaderError, VID_HEADER_SIZE, VidHeader, crc32,
};

use crate::attach_error::AttachError;
use crate::locate::UbiImage;

/// Headers that end before this offset are read together whatever the page size, bytes.
const NEAR: usize = 512;
/// The patterns with which a suspect block is filled (Linux `torture_peb`).
pub(crate) const TORTURE_PATTERNS: [u8; 3] = [0xa5, 0x5a, 0x00];
/// Maximum number of bytes to read to get both headers.
const PAGE_MAX: usize = 4096;

/// Layout of each erase block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Offset of the volume identifier header from the start of the block, bytes.
    pub vid_header: u32,
    /// Offset of the data from the start of the block, bytes.
    pub data: u32,
}

/// What an erase block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Not a single bit was programmed, not even an erase counter.
    Erased,
    /// Only an erase counter.
    Free,
    /// The current content of a LEB.
    Used {
        /// Volume id.
        volume: u32,
        /// LEB.
        lnum: u32,
    },
    /// An older copy of a LEB, or a LEB of a volume that no longer exists: to be erased.
    Stale,
    /// A block of the fastmap.
    Fastmap,
    /// Marked bad.
    Bad,
    /// Not readable as a UBI block although something was programmed.
    Corrupt(HeaderError),
    /// Belongs to another image.
    Foreign,
}

/// What attaching learnt about an erase block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Number of erases; `None` if its header is lost.
    pub erase_counter: Option<u32>,
    /// What it holds.
    pub content: Content,
    /// Reading its headers corrected so many bits that the block should be moved.
    pub scrub: bool,
}

/// A block's headers as read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    pub(crate) ec: Result<EcHeader, HeaderError>,
    pub(crate) vid: Result<VidHeader, HeaderError>,
    pub(crate) bad: bool,
    pub(crate) scrub: bool,
}

/// Whether all bits are set: checked in chunks that a compiler turns into one comparison each.
pub(crate) fn is_blank(bytes: &[u8]) -> bool {
    bytes.chunks(64).all(|piece| piece.iter().fold(0xff, |all, byte| all & byte) == 0xff)
}

/// Reads an image's blocks.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'f, F: ?Sized> {
    pub(crate) flash: &'f F,
    pub(crate) image: UbiImage,
    /// The first block of which the flash did not give what was asked for, and its answer. What was
    /// concluded from such a read says nothing about the block: who acts on it looks here first.
    pub(crate) refused: Cell<Option<(u32, FlashError)>>,
}

impl<'f, F: Flash + ?Sized> Reader<'f, F> {
    pub(crate) fn new(flash: &'f F, image: UbiImage) -> Self {
        Self { flash, image, refused: Cell::new(None) }
    }

    /// Notes that the flash did not give something of a block.
    fn note<T>(&self, peb: u32, result: Result<T, FlashError>) -> Result<T, FlashError> {
        match result {
            // Beyond the end is what a truncated image lacks.
            Ok(_) | Err(FlashError::Uncorrectable { .. } | FlashError::OutOfRange) => {}
            Err(error) if self.refused.get().is_none() => self.refused.set(Some((peb, error))),
            Err(_) => {}
        }
        result
    }

    fn read(&self, peb: u32, offset: u32, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.note(peb, self.flash.read(self.start(peb) + u64::from(offset), buffer))
    }

    pub(crate) fn start(&self, peb: u32) -> u64 {
        self.image.start + u64::from(peb) * u64::from(self.image.peb_size)
    }

    pub(crate) fn is_bad(&self, peb: u32) -> bool {
        let block = self.flash.geometry().block_of(self.start(peb));
        self.note(peb, self.flash.is_bad(block)).unwrap_or(false)
    }

    /// Reads 64 header bytes. Bytes that cannot be read count as interrupted writes.
    fn header(&self, peb: u32, offset: u32) -> Result<([u8; EC_HEADER_SIZE], bool), HeaderError> {
        let mut bytes = [0; EC_HEADER_SIZE];
        match self.read(peb, offset, &mut bytes) {
            Ok(corrected) => Ok((bytes, corrected.needs_scrub(self.flash.geometry()))),
            // The header's own CRC judges what error correction could not repair.
            Err(FlashError::Uncorrectable { .. }) => Ok((bytes, true)),
            Err(_) => Err(HeaderError::Short),
        }
    }

    pub(crate) fn ec(&self, peb: u32) -> (Result<EcHeader, HeaderError>, bool) {
        match self.header(peb, 0) {
            Ok((bytes, scrub)) => (EcHeader::parse(&bytes), scrub),
            Err(error) => (Err(error), false),
        }
    }

    pub(crate) fn vid(&self, peb: u32, offsets: Offsets) -> (Result<VidHeader, HeaderError>, bool) {
        let (vid, scrub) = match self.header(peb, offsets.vid_header) {
            Ok((bytes, scrub)) => (VidHeader::parse(&bytes), scrub),
            Err(error) => (Err(error), false),
        };
        let leb_size = self.image.peb_size - offsets.data;
        (vid.and_then(|vid| vid.fits(leb_size).map(|()| vid)), scrub)
    }

    pub(crate) fn headers(&self, peb: u32, offsets: Offsets) -> Headers {
        if self.is_bad(peb) {
            let none = HeaderError::Short;
            return Headers { ec: Err(none), vid: Err(none), bad: true, scrub: false };
        }
        if let Some(headers) = self.headers_of_page(peb, offsets) {
            return headers;
        }
        let (ec, ec_scrub) = self.ec(peb);
        let (vid, vid_scrub) = self.vid(peb, offsets);
        Headers { ec, vid, bad: false, scrub: ec_scrub || vid_scrub }
    }

    /// Both headers with one read, if they are in one page that reads without errors.
    fn headers_of_page(&self, peb: u32, offsets: Offsets) -> Option<Headers> {
        let mut bytes = [0; PAGE_MAX];
        let page = (self.flash.geometry().write_size as usize).clamp(NEAR, PAGE_MAX);
        let at = offsets.vid_header as usize;
        let end = at.checked_add(VID_HEADER_SIZE).filter(|&end| end <= page)?;
        let corrected = self.flash.read(self.start(peb), &mut bytes[..end]).ok()?;
        let leb_size = self.image.peb_size - offsets.data;
        let vid = VidHeader::parse(&bytes[at..end]);
        Some(Headers {
            ec: EcHeader::parse(&bytes[..EC_HEADER_SIZE]),
            vid: vid.and_then(|vid| vid.fits(leb_size).map(|()| vid)),
            bad: false,
            scrub: corrected.needs_scrub(self.flash.geometry()),
        })
    }

    /// Fills `buffer` from the data area.
    pub(crate) fn data(&self, peb: u32, offsets: Offsets, buffer: &mut [u8]) -> bool {
        self.read(peb, offsets.data, buffer).is_ok()
    }

    /// The first `data_size` data bytes, if they match the checksum in the header.
    pub(crate) fn data_of_copy(
        &self,
        peb: u32,
        offsets: Offsets,
        vid: &VidHeader,
    ) -> Option<Vec<u8>> {
        let mut data = alloc::vec![0; vid.data_size as usize];
        let fits = self.data(peb, offsets, &mut data) && crc32(&data) == vid.data_crc;
        fits.then_some(data)
    }

    /// Whether everything from `offset` on is erased.
    pub(crate) fn is_erased(&self, peb: u32, offset: u32) -> bool {
        let mut chunk = [0; 2048];
        let end = self.start(peb) + u64::from(self.image.peb_size);
        let end = end.min(self.flash.geometry().size);
        let mut at = self.start(peb) + u64::from(offset);
        while at < end {
            let length = (end - at).min(chunk.len() as u64) as usize;
            let part = &mut chunk[..length];
            if self.note(peb, self.flash.read(at, part)).is_err() || !is_blank(part) {
                return false;
            }
            at += length as u64;
        }
        true
    }

    /// Whether a block begins with one of the patterns with which suspect blocks are filled: it was
    /// given up, and power was lost while it was tested or marked bad.
    pub(crate) fn is_trial(&self, peb: u32) -> bool {
        let mut header = [0; EC_HEADER_SIZE];
        let read = self.read(peb, 0, &mut header);
        let is_one = TORTURE_PATTERNS.iter().any(|byte| header == [*byte; EC_HEADER_SIZE]);
        read.is_ok() && is_one
    }

    /// Whether the erase of a block was announced, as UBI does on NOR: its erase counter header is
    /// correct except that the magic number, or some bits of it, are cleared.
    pub(crate) fn is_announced(&self, peb: u32) -> bool {
        let Ok((mut header, _)) = self.header(peb, 0) else { return false };
        let (magic, _) = header.split_at_mut(size_of_val(&EC_MAGIC));
        let found = magic.iter().fold(0, |word, &byte| word << 8 | u32::from(byte));
        magic.copy_from_slice(&EC_MAGIC.to_be_bytes());
        let is_nor = self.flash.geometry().kind == Kind::Nor;
        let is_cleared = found == 0 || (is_nor && found & EC_MAGIC == found);
        is_cleared && EcHeader::parse(&header).is_ok()
    }

    /// Whether the data of a block without a valid header looks like the result of a power cut:
    /// erased, or beyond error correction.
    pub(crate) fn is_ruin(&self, peb: u32, offset: u32) -> bool {
        let mut data = alloc::vec![0; (self.image.peb_size - offset) as usize];
        match self.read(peb, offset, &mut data) {
            Err(FlashError::Uncorrectable { .. }) => true,
            Err(_) => false,
            Ok(_) => is_blank(&data),
        }
    }

    /// The offsets on which most of the first `blocks` blocks agree, and their image sequence
    /// number; `enough` readable headers suffice.
    pub(crate) fn vote(&self, blocks: u32, enough: u32) -> Result<(Offsets, u32), AttachError> {
        let mut votes = Votes::default();
        for peb in 0..self.image.pebs.min(blocks) {
            if let (Ok(ec), _) = self.ec(peb) {
                votes.add(&ec);
                if votes.count == enough {
                    break;
                }
            }
        }
        match (votes.result(self.image.peb_size), self.refused.get()) {
            (Err(AttachError::NoHeaders), Some((_, error))) => Err(AttachError::Flash(error)),
            (result, _) => result,
        }
    }
}

/// What erase counter headers say about the device as a whole.
#[derive(Debug, Default)]
pub(crate) struct Votes {
    offsets: BTreeMap<(u32, u32), u32>,
    sequences: BTreeMap<u32, u32>,
    count: u32,
}

impl Votes {
    pub(crate) fn add(&mut self, ec: &EcHeader) {
        *self.offsets.entry((ec.vid_header_offset, ec.data_offset)).or_default() += 1;
        *self.sequences.entry(ec.image_sequence).or_default() += 1;
        self.count += 1;
    }

    /// What most of them say.
    pub(crate) fn result(&self, peb_size: u32) -> Result<(Offsets, u32), AttachError> {
        let offsets = self.offsets.iter().max_by_key(|vote| *vote.1).map(|vote| *vote.0);
        // Blocks with 0 belong to whatever image they are in.
        let known = self.sequences.iter().filter(|vote| *vote.0 != 0);
        let sequence = known.max_by_key(|vote| *vote.1).map(|vote| *vote.0);
        let (vid_header, data) = offsets.ok_or(AttachError::NoHeaders)?;
        if data >= peb_size {
            return Err(AttachError::Offsets { data, peb_size });
        }
        Ok((Offsets { vid_header, data }, sequence.unwrap_or(0)))
    }
}

/// A block that claims to hold a LEB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) peb: u32,
    pub(crate) vid: VidHeader,
}

/// The claims to one LEB, newest first; claims with equal numbers in the order of the flash.
pub(crate) type Claims = BTreeMap<(u32, u32), Vec<Claim>>;
