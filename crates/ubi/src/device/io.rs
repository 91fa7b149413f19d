//! Physical erase blocks: writing headers and data, erasing and torturing blocks.
//!
//! NAND: the erase counter header, the identifier header and the data are each programmed once, in
//! this order, in units that the flash can program separately. NOR: an erase takes long and may be
//! interrupted anywhere, so the magic words of both headers are cleared first; what remains after
//! an interruption is then neither a valid block nor an empty one.

use alloc::vec;
use alloc::vec::Vec;

use flysch_api::flash::{Corrected, FlashError, FlashMut, Kind};
use flysch_wire::ubi::{EcHeader, VidHeader};

use crate::blocks::{TORTURE_PATTERNS, is_blank};
use crate::{Offsets, UbiImage};

/// How often a read, a write or an erase is retried (`UBI_IO_RETRIES`).
pub(crate) const RETRIES: u32 = 3;
/// How often a pattern that did not read back correctly is retried.
const TORTURE_REPEATS: u32 = 1;

/// Sizes and offsets in every block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) image: UbiImage,
    pub(crate) offsets: Offsets,
    /// Programming unit, bytes.
    pub(crate) write_size: u32,
    /// Unit in which headers are programmed, bytes.
    pub(crate) header_unit: u32,
}

impl Shape {
    /// Size of a logical erase block without alignment, bytes.
    pub(crate) fn leb_size(&self) -> u32 {
        self.image.peb_size - self.offsets.data
    }
}

/// The flash and the layout of its blocks.
#[derive(Debug)]
pub(crate) struct Io<F> {
    pub(crate) flash: F,
    pub(crate) shape: Shape,
}

impl<F: FlashMut> Io<F> {
    fn at(&self, peb: u32, offset: u32) -> u64 {
        u64::from(peb) * u64::from(self.shape.image.peb_size) + u64::from(offset)
    }

    /// Whether blocks can be marked bad.
    pub(crate) fn bad_allowed(&self) -> bool {
        self.flash.geometry().kind.is_nand()
    }

    /// A header in as many units as it needs, placed at the unit that contains its offset.
    fn program_header(&mut self, peb: u32, offset: u32, header: &[u8]) -> Result<(), FlashError> {
        let unit = self.shape.header_unit;
        let start = offset - offset % unit;
        let inside = (offset - start) as usize;
        let size = (inside + header.len()).next_multiple_of(unit as usize);
        let mut bytes = vec![0; size];
        bytes[inside..inside + header.len()].copy_from_slice(header);
        self.flash.program(self.at(peb, start), &bytes)
    }

    pub(crate) fn write_ec(&mut self, peb: u32, erase_counter: u32) -> Result<(), FlashError> {
        let header = EcHeader {
            erase_counter: u64::from(erase_counter),
            vid_header_offset: self.shape.offsets.vid_header,
            data_offset: self.shape.offsets.data,
            image_sequence: self.shape.image.image_sequence,
        };
        self.program_header(peb, 0, &header.emit())
    }

    pub(crate) fn write_vid(&mut self, peb: u32, vid: &VidHeader) -> Result<(), FlashError> {
        self.program_header(peb, self.shape.offsets.vid_header, &vid.emit())
    }

    /// Programs data; the last unit is padded with 0xFF.
    pub(crate) fn write_data(
        &mut self,
        peb: u32,
        offset: u32,
        data: &[u8],
    ) -> Result<(), FlashError> {
        if data.is_empty() {
            return Ok(());
        }
        let at = self.at(peb, self.shape.offsets.data + offset);
        let unit = self.shape.write_size as usize;
        let whole = data.len() - data.len() % unit;
        if whole > 0 {
            self.flash.program(at, &data[..whole])?;
        }
        if whole < data.len() {
            let mut last = vec![0xff; unit];
            last[..data.len() - whole].copy_from_slice(&data[whole..]);
            self.flash.program(at + whole as u64, &last)?;
        }
        Ok(())
    }

    /// Reads any part of a block; reads with bit errors are retried.
    pub(crate) fn read(
        &self,
        peb: u32,
        offset: u32,
        buffer: &mut [u8],
    ) -> Result<Corrected, FlashError> {
        let mut tries = 0;
        loop {
            match self.flash.read(self.at(peb, offset), buffer) {
                Err(FlashError::Uncorrectable { .. }) if tries < RETRIES => tries += 1,
                result => return result,
            }
        }
    }

    pub(crate) fn read_data(
        &self,
        peb: u32,
        offset: u32,
        buffer: &mut [u8],
    ) -> Result<Corrected, FlashError> {
        self.read(peb, self.shape.offsets.data + offset, buffer)
    }

    /// The header of a block's LEB; `None` if it has none that is good.
    pub(crate) fn read_vid(&self, peb: u32) -> Result<Option<VidHeader>, FlashError> {
        let mut bytes = [0; flysch_wire::ubi::VID_HEADER_SIZE];
        match self.read(peb, self.shape.offsets.vid_header, &mut bytes) {
            Ok(_) => {}
            Err(FlashError::Uncorrectable { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
        let vid = VidHeader::parse(&bytes).ok();
        Ok(vid.filter(|vid| vid.fits(self.shape.leb_size()).is_ok()))
    }

    /// Whether the data reads back correctly, and with too few bit errors to need scrubbing. The
    /// error is one that says nothing about the block.
    pub(crate) fn reads_back(&self, peb: u32, data: &[u8]) -> Result<bool, FlashError> {
        let mut found = vec![0; data.len()];
        Ok(self.is_clean(self.read_data(peb, 0, &mut found))? && found == data)
    }

    /// Whether a read met too few bit errors to need scrubbing.
    fn is_clean(&self, read: Result<Corrected, FlashError>) -> Result<bool, FlashError> {
        match read {
            Ok(corrected) => Ok(!corrected.needs_scrub(self.flash.geometry())),
            Err(FlashError::Uncorrectable { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the place of the second header and the first and last unit of the data read as
    /// erased without a corrected bit; an interrupted operation leaves a block in another state.
    pub(crate) fn looks_erased(&self, peb: u32) -> bool {
        let Shape { image, offsets, write_size, header_unit } = self.shape;
        let size = write_size.clamp(64, self.shape.leb_size());
        let header = offsets.vid_header - offsets.vid_header % header_unit;
        let mut unit = vec![0; size.max(header_unit) as usize];
        let places = [(header, header_unit), (offsets.data, size), (image.peb_size - size, size)];
        places.into_iter().all(|(offset, len)| {
            let unit = &mut unit[..len as usize];
            let read = self.read(peb, offset, unit);
            read.is_ok_and(|it| it.bits == 0) && is_blank(unit)
        })
    }

    /// Erases a block, after a thorough test if `torture` is set, and writes its erase counter.
    pub(crate) fn erase(
        &mut self,
        peb: u32,
        erase_counter: u32,
        torture: bool,
    ) -> Result<(), FlashError> {
        if self.flash.geometry().kind == Kind::Nor {
            match self.spoil_headers(peb) {
                // It is erased in any case.
                Ok(()) | Err(FlashError::ProgramFailed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if torture {
            self.torture(peb)?;
        }
        self.erase_only(peb)?;
        self.write_ec(peb, erase_counter)
    }

    pub(crate) fn erase_only(&mut self, peb: u32) -> Result<(), FlashError> {
        let mut tries = 0;
        loop {
            match self.flash.erase(peb) {
                Err(FlashError::EraseFailed { .. }) if tries < RETRIES => tries += 1,
                result => return result,
            }
        }
    }

    /// Marks a block bad; if programming the marker fails, it is retried.
    pub(crate) fn mark_bad(&mut self, peb: u32) -> Result<(), FlashError> {
        let mut tries = 0;
        loop {
            match self.flash.mark_bad(peb) {
                Err(FlashError::ProgramFailed { .. }) if tries < RETRIES => tries += 1,
                result => return result,
            }
        }
    }

    /// Clears the first word of each header that might still be taken for a valid one.
    fn spoil_headers(&mut self, peb: u32) -> Result<(), FlashError> {
        let unit = self.shape.header_unit.max(4);
        for offset in [0, self.shape.offsets.vid_header] {
            let mut word = [0; 4];
            let _ = self.read(peb, offset, &mut word)?;
            if word.iter().any(|&byte| byte != 0xff && byte != 0) {
                let start = offset - offset % unit;
                self.flash.program(self.at(peb, start), &vec![0; unit as usize])?;
            }
        }
        Ok(())
    }

    fn torture(&mut self, peb: u32) -> Result<(), FlashError> {
        let size = self.shape.image.peb_size as usize;
        let mut found: Vec<u8> = vec![0; size];
        for pattern in TORTURE_PATTERNS {
            // A cell that is broken shows again, others had their day: with codes that correct one
            // bit every error counts as many, and half of all blocks would go.
            let mut tries = 0;
            while !self.bears(peb, pattern, &mut found)? {
                tries += 1;
                if tries > TORTURE_REPEATS {
                    return Err(FlashError::EraseFailed { block: peb });
                }
            }
        }
        Ok(())
    }

    /// Whether a block, erased and then filled with `pattern`, reads back correctly both times.
    fn bears(&mut self, peb: u32, pattern: u8, found: &mut [u8]) -> Result<bool, FlashError> {
        self.erase_only(peb)?;
        if !self.holds(peb, 0xff, found)? {
            return Ok(false);
        }
        self.flash.program(self.at(peb, 0), &vec![pattern; found.len()])?;
        self.holds(peb, pattern, found)
    }

    /// Whether a whole block reads as `pattern`, with too few bit errors to need scrubbing.
    fn holds(&self, peb: u32, pattern: u8, found: &mut [u8]) -> Result<bool, FlashError> {
        let read = self.flash.read(self.at(peb, 0), found);
        Ok(self.is_clean(read)? && found.iter().all(|&byte| byte == pattern))
    }
}
