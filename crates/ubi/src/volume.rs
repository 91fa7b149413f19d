//! Reading one volume.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use flysch_api::finding::{Finding, Place, Severity};
use flysch_api::flash::{self, Corrected, Flash, Kind};
use flysch_api::volume::{LebState, Volume, VolumeGeometry};
use flysch_wire::ubi::{HeaderError, VID_HEADER_SIZE, VidHeader, VolumeKind, crc32};

use crate::scan::Fresh;
use crate::{Offsets, UbiImage, VolumeInfo};

/// LEBs that a volume may have beyond the number of erase blocks, of which an image may lack those
/// at its end: 32 GiB of flash with blocks of 128 KiB.
const LEBS_MORE_MAX: u32 = 1 << 18;

/// A volume of an attached image.
///
/// It is a [`Volume`] for file systems that know LEBs, and a [`Flash`] whose erase blocks are the
/// LEBs for those that do not (Linux: gluebi).
#[derive(Clone, Debug)]
pub struct UbiVolume<F> {
    flash: F,
    image: UbiImage,
    offsets: Offsets,
    info: VolumeInfo,
    /// LEBs that can be read: those reserved, unless the table claims more than there can be.
    lebs: u32,
    geometry: flash::FlashGeometry,
    /// A block whose content was read while attaching and is not read again.
    fresh: Option<Arc<Fresh>>,
}

impl<F: Flash> UbiVolume<F> {
    pub(crate) fn new(
        flash: F,
        (image, offsets): (UbiImage, Offsets),
        info: &VolumeInfo,
        fresh: Option<Arc<Fresh>>,
    ) -> Self {
        // A damaged table may claim any number, and file systems go through all of them.
        let lebs = info.reserved_pebs.min(image.pebs.saturating_add(LEBS_MORE_MAX));
        let size = u64::from(info.leb_size) * u64::from(lebs);
        let below = flash.geometry();
        let geometry = flash::FlashGeometry {
            kind: Kind::UbiVolume,
            size: info.used_bytes.map_or(size, |used| used.min(size)),
            erase_size: info.leb_size,
            oob_size: 0,
            oob_available: 0,
            ..*below
        };
        Self { flash, image, offsets, info: info.clone(), lebs, geometry, fresh }
    }

    /// The volume's record in the volume table.
    pub fn info(&self) -> &VolumeInfo {
        &self.info
    }

    /// The erase block that holds a LEB.
    fn peb(&self, lnum: u32) -> Option<u32> {
        // Where no LEB is missing, LEB n is entry n.
        match self.info.map.get(lnum as usize) {
            Some(&(found, peb)) if found == lnum => Some(peb),
            _ => {
                let at = self.info.map.binary_search_by_key(&lnum, |entry| entry.0).ok()?;
                Some(self.info.map[at].1)
            }
        }
    }

    fn start(&self, peb: u32) -> u64 {
        self.image.start + u64::from(peb) * u64::from(self.image.peb_size)
    }

    /// The content of a LEB if it was read while attaching.
    fn fresh(&self, lnum: u32) -> Option<&[u8]> {
        let fresh = self.fresh.as_ref()?;
        (self.peb(lnum) == Some(fresh.peb)).then_some(&fresh.data[..])
    }

    fn locate(&self, lnum: u32, offset: u32) -> Option<u64> {
        Some(self.start(self.peb(lnum)?) + u64::from(self.offsets.data) + u64::from(offset))
    }

    /// Verifies what a static volume guarantees: every block exists, every checksum is right.
    ///
    /// A dynamic volume guarantees nothing and passes.
    pub fn verify(&self) -> Vec<Finding> {
        if self.info.kind == VolumeKind::Dynamic {
            return Vec::new();
        }
        let mut findings = Vec::new();
        let mut data = alloc::vec![0; self.info.leb_size as usize];
        for &(lnum, peb) in &self.info.map {
            if let Err(error) = self.verify_leb(peb, &mut data) {
                findings.push(Finding {
                    severity: Severity::Lost,
                    structure: "static volume data",
                    problem: error.to_string(),
                    place: Place { peb: Some(peb), leb: Some(lnum), offset: None },
                    inode: None,
                    path: None,
                });
            }
        }
        findings
    }

    fn verify_leb(&self, peb: u32, data: &mut [u8]) -> Result<(), LebError> {
        let mut header = [0; VID_HEADER_SIZE];
        let start = self.start(peb);
        let _ = self.flash.read(start + u64::from(self.offsets.vid_header), &mut header)?;
        let vid = VidHeader::parse(&header)?;
        let data = data.get_mut(..vid.data_size as usize).ok_or(LebError::DataSize)?;
        let _ = self.flash.read(start + u64::from(self.offsets.data), data)?;
        match crc32(data) {
            computed if computed == vid.data_crc => Ok(()),
            computed => Err(LebError::Crc { stored: vid.data_crc, computed }),
        }
    }
}

/// What is wrong with a LEB of a static volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LebError {
    Flash(flash::FlashError),
    Header(HeaderError),
    /// More bytes than a LEB has.
    DataSize,
    Crc {
        stored: u32,
        computed: u32,
    },
}

impl From<flash::FlashError> for LebError {
    fn from(error: flash::FlashError) -> Self {
        Self::Flash(error)
    }
}

impl From<HeaderError> for LebError {
    fn from(error: HeaderError) -> Self {
        Self::Header(error)
    }
}

impl fmt::Display for LebError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flash(error) => error.fmt(f),
            Self::Header(error) => error.fmt(f),
            Self::DataSize => f.write_str("data_size is too large"),
            Self::Crc { stored, computed } => {
                write!(f, "bad CRC: {stored:#010x} stored, {computed:#010x} computed")
            }
        }
    }
}

impl<F: Flash> Volume for UbiVolume<F> {
    fn geometry(&self) -> VolumeGeometry {
        VolumeGeometry { leb_size: self.info.leb_size, lebs: self.lebs, write_size: None }
    }

    fn state(&self, lnum: u32) -> LebState {
        self.peb(lnum).map_or(LebState::Unmapped, |peb| LebState::Mapped(Some(peb)))
    }

    fn read(
        &self,
        lnum: u32,
        offset: u32,
        buffer: &mut [u8],
    ) -> Result<Corrected, flash::FlashError> {
        let end = u64::from(offset) + buffer.len() as u64;
        if lnum >= self.lebs || end > u64::from(self.info.leb_size) {
            return Err(flash::FlashError::OutOfRange);
        }
        if let Some(data) = self.fresh(lnum) {
            let known = data.get(offset as usize..).unwrap_or_default();
            let (there, behind) = buffer.split_at_mut(known.len().min(buffer.len()));
            there.copy_from_slice(&known[..there.len()]);
            behind.fill(0xff);
            return Ok(Corrected::NONE);
        }
        // A block that the image's end cuts short is served as far as it is there.
        let at = self.locate(lnum, offset);
        let size = self.flash.geometry().size;
        let there = at.map_or(0, |at| size.saturating_sub(at).min(buffer.len() as u64));
        let (there, missing) = buffer.split_at_mut(there as usize);
        missing.fill(0xff);
        match at {
            Some(at) if !there.is_empty() => self.flash.read(at, there),
            _ => Ok(Corrected::NONE),
        }
    }

    fn point(&self, lnum: u32, offset: u32, len: usize) -> Option<&[u8]> {
        if u64::from(offset) + len as u64 > u64::from(self.info.leb_size) {
            return None;
        }
        if let Some(data) = self.fresh(lnum) {
            return data.get(offset as usize..)?.get(..len);
        }
        self.flash.point(self.locate(lnum, offset)?, len)
    }
}

impl<F: Flash> Flash for UbiVolume<F> {
    fn geometry(&self) -> &flash::FlashGeometry {
        &self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, flash::FlashError> {
        self.geometry.check(offset, buffer.len())?;
        let (mut corrected, mut failed) = (Corrected::NONE, None);
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let lnum = self.geometry.block_of(at);
            let inside = (at % u64::from(self.info.leb_size)) as u32;
            let length = rest.len().min((self.info.leb_size - inside) as usize);
            let (part, behind) = rest.split_at_mut(length);
            match Volume::read(self, lnum, inside, part) {
                Ok(found) => corrected += found,
                // The bytes are there all the same, and so are those behind them. The offset is
                // one of this volume, not of the flash below.
                Err(flash::FlashError::Uncorrectable { .. }) => {
                    failed.get_or_insert(flash::FlashError::Uncorrectable { offset: at });
                }
                Err(error) => return Err(error),
            }
            (at, rest) = (at + length as u64, behind);
        }
        failed.map_or(Ok(corrected), Err)
    }

    fn point(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let inside = (offset % u64::from(self.info.leb_size)) as u32;
        Volume::point(self, self.geometry.block_of(offset), inside, len)
    }
}
