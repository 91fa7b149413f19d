//! Physical erase blocks: reading and judging their headers.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use flysch_api::flash::Flash;
use flysch_wire::ubi::{EC_HEADER_SIZE, EcHeader, HeaderError, VidHeader, crc32};

use crate::{AttachError, Image};

/// Where in each erase block things lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Volume identifier header, bytes from the start of the block.
    pub vid_header: u32,
    /// Data, bytes from the start of the block.
    pub data: u32,
}

/// What an erase block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Not one bit was programmed: not even an erase counter.
    Erased,
    /// An erase counter and nothing else.
    Free,
    /// The LEB that its volume reads.
    Used {
        /// Volume id.
        volume: u32,
        /// LEB.
        lnum: u32,
    },
    /// An older copy of a LEB, or one of a volume that is no more: to be erased.
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

/// What attaching learnt about one erase block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Times erased; `None` if its header is lost.
    pub erase_counter: Option<u32>,
    /// What it holds.
    pub content: Content,
    /// Reading its headers corrected so many bits that it should be moved.
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

/// Reads an image's blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'f, F: ?Sized> {
    pub(crate) flash: &'f F,
    pub(crate) image: Image,
}

impl<F: Flash + ?Sized> Reader<'_, F> {
    pub(crate) fn start(&self, peb: u32) -> u64 {
        self.image.start + u64::from(peb) * u64::from(self.image.peb_size)
    }

    fn is_bad(&self, peb: u32) -> bool {
        let block = self.flash.geometry().block_of(self.start(peb));
        self.flash.is_bad(block).unwrap_or(false)
    }

    /// Reads 64 header bytes. What cannot be read counts as cut off.
    fn header(&self, peb: u32, offset: u32) -> Result<([u8; EC_HEADER_SIZE], bool), HeaderError> {
        let mut bytes = [0; EC_HEADER_SIZE];
        match self.flash.read(self.start(peb) + u64::from(offset), &mut bytes) {
            Ok(corrected) => Ok((bytes, corrected.needs_scrub(self.flash.geometry()))),
            // The header's own CRC judges what error correction could not repair.
            Err(flysch_api::flash::Error::Uncorrectable { .. }) => Ok((bytes, true)),
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
        let (ec, ec_scrub) = self.ec(peb);
        let (vid, vid_scrub) = self.vid(peb, offsets);
        Headers { ec, vid, bad: false, scrub: ec_scrub || vid_scrub }
    }

    /// Fills `buffer` from the data area.
    pub(crate) fn data(&self, peb: u32, offsets: Offsets, buffer: &mut [u8]) -> bool {
        self.flash.read(self.start(peb) + u64::from(offsets.data), buffer).is_ok()
    }

    /// Whether the first `data_size` data bytes fit the checksum in the header.
    pub(crate) fn data_fits(&self, peb: u32, offsets: Offsets, vid: &VidHeader) -> bool {
        let mut data = alloc::vec![0; vid.data_size as usize];
        self.data(peb, offsets, &mut data) && crc32(&data) == vid.data_crc
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
            if self.flash.read(at, part).is_err() || part.iter().any(|&byte| byte != 0xff) {
                return false;
            }
            at += length as u64;
        }
        true
    }

    /// Whether the data of a block without a good header is what a power cut leaves: erased, or
    /// beyond error correction.
    pub(crate) fn is_ruin(&self, peb: u32, offset: u32) -> bool {
        let mut data = alloc::vec![0; (self.image.peb_size - offset) as usize];
        match self.flash.read(self.start(peb) + u64::from(offset), &mut data) {
            Err(flysch_api::flash::Error::Uncorrectable { .. }) => true,
            Err(_) => false,
            Ok(_) => data.iter().all(|&byte| byte == 0xff),
        }
    }

    /// The offsets that most of the first `voters` blocks agree on, and the image sequence number
    /// they carry.
    pub(crate) fn vote(&self, voters: u32) -> Result<(Offsets, u32), AttachError> {
        let mut votes = BTreeMap::new();
        let mut sequences = BTreeMap::new();
        for peb in 0..self.image.pebs.min(voters) {
            if let (Ok(ec), _) = self.ec(peb) {
                *votes.entry((ec.vid_header_offset, ec.data_offset)).or_insert(0_u32) += 1;
                *sequences.entry(ec.image_sequence).or_insert(0_u32) += 1;
            }
        }
        let most = |votes: &BTreeMap<_, u32>| votes.iter().max_by_key(|vote| *vote.1).map(|v| *v.0);
        let sequence = sequences.iter().max_by_key(|vote| *vote.1).map(|vote| *vote.0);
        let (vid_header, data) = most(&votes).ok_or(AttachError::NoHeaders)?;
        if data >= self.image.peb_size {
            return Err(AttachError::Offsets { data, peb_size: self.image.peb_size });
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

/// The claims to one LEB, newest first; with equal numbers the first on the flash first.
pub(crate) type Claims = BTreeMap<(u32, u32), Vec<Claim>>;
