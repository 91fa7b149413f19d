//! NAND with error correction: over a raw chip, or over a dump that holds every page followed by
//! its out-of-band bytes.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use flysch_api::flash::{
    Corrected, Flash, FlashError, FlashGeometry, Kind, OobMode, Pages, PagesMut,
};

use crate::bbt::{BadBlockTable, BlockState};
use crate::{Bch, Ecc, OobLayout, Storage, StorageMut};

mod write;

/// Pages of at most this many bytes have their bad-block marker elsewhere.
const SMALL_PAGE: u32 = 512;

/// Why a page format is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageFormatError {
    /// No code corrects this many bits in this many bytes.
    NoCode {
        /// Bits.
        bits: u32,
        /// Bytes.
        step: u32,
    },
    /// The bytes of the code do not fit into the out-of-band bytes.
    NoRoom {
        /// Bytes of the code of a page.
        code: usize,
        /// Out-of-band bytes of a page.
        oob_size: usize,
    },
}

impl fmt::Display for PageFormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCode { bits, step } => {
                write!(f, "no BCH code corrects {bits} bits in {step} bytes here")
            }
            Self::NoRoom { code, oob_size } => write!(
                f,
                "{code} bytes of error correction do not fit into {oob_size} bytes out of band"
            ),
        }
    }
}

impl core::error::Error for PageFormatError {}

/// The page format of a dump.
#[derive(Clone, Debug)]
pub struct PageFormat {
    /// Bytes of data in a page.
    pub page_size: u32,
    /// Layout of the out-of-band bytes behind the data.
    pub oob: OobLayout,
    /// How bit errors are corrected.
    pub ecc: Ecc,
}

impl PageFormat {
    /// Pages as Linux lays them out with software error correction: no bits corrected, one bit in
    /// each 256 bytes (Hamming), or `strength` bits in each `step` bytes, at least 512 (BCH).
    ///
    /// # Errors
    /// If there is no such code, or the out-of-band bytes have no room for it.
    pub fn in_software(
        page_size: u32,
        oob_size: usize,
        step: u32,
        strength: u32,
    ) -> Result<Self, PageFormatError> {
        let ecc = match strength {
            0 => Ecc::None,
            1 => Ecc::Hamming { step: 256, smart_media: false },
            bits => {
                let step = step.max(512);
                let field = if step > 512 { 14 } else { 13 };
                let code = Bch::new(field, bits, step as usize);
                Ecc::Bch(code.ok_or(PageFormatError::NoCode { bits, step })?)
            }
        };
        let code = (page_size as usize).checked_div(ecc.step()).unwrap_or(0) * ecc.code_len();
        let layout = match &ecc {
            Ecc::Hamming { .. } => OobLayout::hamming(oob_size, code),
            _ if page_size <= SMALL_PAGE => OobLayout::small_at_end(oob_size, code),
            _ => OobLayout::at_end(oob_size, code),
        };
        let oob = layout.ok_or(PageFormatError::NoRoom { code, oob_size })?;
        Ok(Self { page_size, oob, ecc })
    }

    /// A page and its out-of-band bytes.
    pub(crate) fn stride(&self) -> usize {
        self.page_size as usize + self.oob.size
    }
}

/// The bytes of a storage as the pages of a chip.
#[derive(Clone, Debug)]
pub struct DumpPages<S> {
    storage: S,
    /// Bytes of a page including its out-of-band bytes.
    stride: usize,
    pages_per_block: u32,
}

impl<S: Storage> DumpPages<S> {
    fn at(&self, page: u64, column: usize, len: usize) -> Result<u64, FlashError> {
        if page >= self.pages() || column.checked_add(len).is_none_or(|end| end > self.stride) {
            return Err(FlashError::OutOfRange);
        }
        Ok(page * self.stride as u64 + column as u64)
    }

    /// The storage that holds the pages.
    pub fn storage(&self) -> &S {
        &self.storage
    }
}

impl<S: Storage> Pages for DumpPages<S> {
    fn pages(&self) -> u64 {
        self.storage.size() / self.stride as u64
    }

    fn read_page(&self, page: u64, column: usize, buffer: &mut [u8]) -> Result<(), FlashError> {
        self.storage.read_at(self.at(page, column, buffer.len())?, buffer)
    }

    /// One access: a system call costs more than reading the bytes in between.
    fn read_page_parts(&self, page: u64, parts: [(usize, &mut [u8]); 2]) -> Result<(), FlashError> {
        let ends = parts.each_ref().map(|(column, part)| column.checked_add(part.len()));
        let [Some(one), Some(other)] = ends else { return Err(FlashError::OutOfRange) };
        let first = parts[0].0.min(parts[1].0);
        let at = self.at(page, first, one.max(other) - first)?;
        let mut span = vec![0; one.max(other) - first];
        self.storage.read_at(at, &mut span)?;
        for (column, part) in parts {
            part.copy_from_slice(&span[column - first..column - first + part.len()]);
        }
        Ok(())
    }
}

impl<S: StorageMut> PagesMut for DumpPages<S> {
    fn program_page(&mut self, page: u64, column: usize, bytes: &[u8]) -> Result<(), FlashError> {
        let at = self.at(page, column, bytes.len())?;
        let mut cells = vec![0; bytes.len()];
        self.storage.read_at(at, &mut cells)?;
        cells.iter_mut().zip(bytes).for_each(|(cell, byte)| *cell &= byte);
        self.storage.write_at(at, &cells)
    }

    fn erase_pages(&mut self, block: u32) -> Result<(), FlashError> {
        let first = u64::from(block) * u64::from(self.pages_per_block);
        let count = self.pages().saturating_sub(first).min(u64::from(self.pages_per_block));
        let at = self.at(first, 0, 0)?;
        self.storage.write_at(at, &vec![0xFF; self.stride * count as usize])
    }

    fn sync_pages(&mut self) -> Result<(), FlashError> {
        self.storage.sync()
    }
}

/// Flash over a dump that holds out-of-band bytes.
pub type Dump<S> = Nand<DumpPages<S>>;

/// Flash over the pages of a NAND chip, with error correction in software.
#[derive(Clone, Debug)]
pub struct Nand<P> {
    pages: P,
    format: PageFormat,
    geometry: FlashGeometry,
    table: Option<BadBlockTable>,
}

impl<S: Storage> Nand<DumpPages<S>> {
    /// A dump with pages of `format` in erase blocks of `erase_size` bytes of data. Bytes after the
    /// last whole page are ignored. The last four blocks are searched for a bad-block table.
    ///
    /// # Errors
    /// [`FlashError::Misaligned`] if a block does not consist of whole pages or a page of whole
    /// error-correction steps, [`FlashError::Unsupported`] if the codes do not fill their place.
    pub fn new(storage: S, format: PageFormat, erase_size: u32) -> Result<Self, FlashError> {
        let pages_per_block = erase_size.checked_div(format.page_size).unwrap_or(0);
        let pages = DumpPages { storage, stride: format.stride(), pages_per_block };
        Self::open(pages, format, Kind::Nand, erase_size)
    }
}

impl<P: Pages> Nand<P> {
    /// A chip of `kind` with pages of `format` in erase blocks of `erase_size` bytes of data. The
    /// last four blocks are searched for a bad-block table; if there is none, the markers of all
    /// blocks are read.
    ///
    /// # Errors
    /// As [`new`](Self::new); if the chip cannot be read.
    pub fn over(
        pages: P,
        format: PageFormat,
        kind: Kind,
        erase_size: u32,
    ) -> Result<Self, FlashError> {
        let mut nand = Self::open(pages, format, kind, erase_size)?;
        if nand.table.is_none() {
            nand.table = Some(nand.table_from_markers()?);
        }
        Ok(nand)
    }

    fn open(pages: P, format: PageFormat, kind: Kind, erase_size: u32) -> Result<Self, FlashError> {
        let page = format.page_size;
        let step = format.ecc.step();
        if page == 0 || erase_size == 0 || !erase_size.is_multiple_of(page) {
            return Err(FlashError::Misaligned);
        }
        if step != 0 && !(page as usize).is_multiple_of(step) {
            return Err(FlashError::Misaligned);
        }
        let steps = (page as usize).checked_div(step).unwrap_or(0);
        let code = steps * format.ecc.code_len();
        if format.oob.ecc.iter().map(ExactSizeIterator::len).sum::<usize>() != code {
            return Err(FlashError::Unsupported);
        }
        let strength = format.ecc.strength();
        let geometry = FlashGeometry {
            kind,
            size: pages.pages().checked_mul(u64::from(page)).ok_or(FlashError::OutOfRange)?,
            erase_size,
            write_size: page,
            sub_page_size: page / sub_pages(kind, steps),
            oob_size: format.oob.size as u32,
            oob_available: format.oob.free_len() as u32,
            ecc_strength: strength,
            bitflip_threshold: (3 * strength).div_ceil(4),
        };
        let mut nand = Self { pages, format, geometry, table: None };
        nand.table = BadBlockTable::find(&nand)?;
        Ok(nand)
    }

    /// Makes a bad-block table from the markers; it is not kept on the flash.
    fn table_from_markers(&self) -> Result<BadBlockTable, FlashError> {
        let mut table = BadBlockTable::good(self.geometry.blocks());
        for block in 0..self.geometry.blocks() {
            if self.has_marker(block)? {
                table.set(block, BlockState::Factory);
            }
        }
        Ok(table)
    }

    /// The page format.
    pub fn format(&self) -> &PageFormat {
        &self.format
    }

    /// The chip or dump below.
    pub fn pages(&self) -> &P {
        &self.pages
    }

    /// The chip or dump below, for everything except reading and writing: its power, its clock.
    pub fn pages_mut(&mut self) -> &mut P {
        &mut self.pages
    }

    /// Returns the chip or dump below.
    pub fn into_pages(self) -> P {
        self.pages
    }

    /// The bad-block table found on the flash, or made from its markers.
    pub fn bad_block_table(&self) -> Option<&BadBlockTable> {
        self.table.as_ref()
    }

    /// Reads a part of page `page`: the error-correction steps that contain it, and their codes.
    fn read_part(
        &self,
        page: u64,
        inside: usize,
        part: &mut [u8],
    ) -> Result<Corrected, FlashError> {
        let (step, code_len) = (self.format.ecc.step(), self.format.ecc.code_len());
        if step == 0 {
            return self.pages.read_page(page, inside, part).map(|()| Corrected::NONE);
        }
        let steps = inside / step..(inside + part.len()).div_ceil(step);
        let first = steps.start * step;
        let codes = steps.start * code_len..steps.end * code_len;
        let place = OobLayout::span(&self.format.oob.ecc, &codes);
        let mut oob: Vec<u8> = vec![0; place.len()];
        let column = self.format.page_size as usize + place.start;
        let mut whole = Vec::new();
        let is_whole = inside == first && part.len() == steps.len() * step;
        let data = match is_whole {
            true => &mut *part,
            false => {
                whole.resize(steps.len() * step, 0);
                &mut whole[..]
            }
        };
        self.pages.read_page_parts(page, [(first, &mut *data), (column, &mut oob)])?;
        let corrected = self.correct((page, steps), data, (&oob, place.start));
        if !is_whole {
            part.copy_from_slice(&whole[inside - first..inside - first + part.len()]);
        }
        corrected
    }

    /// Corrects `data`, the given steps of a page, using the out-of-band bytes `oob`, which begin
    /// at byte `oob_at` of all out-of-band bytes.
    fn correct(
        &self,
        (page, steps): (u64, Range<usize>),
        data: &mut [u8],
        (oob, oob_at): (&[u8], usize),
    ) -> Result<Corrected, FlashError> {
        let ecc = &self.format.ecc;
        let (step, code_len) = (ecc.step(), ecc.code_len());
        if is_erased(oob) && is_erased(data) {
            return Ok(Corrected::NONE);
        }
        let mut codes = Vec::with_capacity(steps.len() * code_len);
        let wanted = steps.start * code_len..steps.end * code_len;
        for place in OobLayout::places(&self.format.oob.ecc, &wanted) {
            codes.extend_from_slice(&oob[place.start - oob_at..place.end - oob_at]);
        }
        let mut corrected = Corrected::NONE;
        let mut failed: Option<usize> = None;
        ecc.correct_all(data, &codes, |at, bits| match bits {
            Some(bits) => corrected += Corrected { bits, worst_step: bits },
            None => failed = Some(failed.map_or(at, |first| first.min(at))),
        });
        let failed = failed.map(|at| steps.start + at);
        match failed {
            None => Ok(corrected),
            Some(index) => Err(FlashError::Uncorrectable {
                offset: page * u64::from(self.format.page_size) + (index * step) as u64,
            }),
        }
    }

    fn marker_column(&self) -> Option<usize> {
        Some(self.format.page_size as usize + self.format.oob.bad_marker?)
    }

    /// Whether the factory or a driver marked the block in the first, second or last page: the
    /// three conventions of manufacturers.
    fn has_marker(&self, block: u32) -> Result<bool, FlashError> {
        let Some(column) = self.marker_column() else { return Ok(false) };
        let per_block = u64::from(self.geometry.pages_per_block());
        let present = u64::from(self.geometry.block_len(block) / self.geometry.write_size);
        let first = u64::from(block) * per_block;
        for page in [0, 1, per_block - 1] {
            if page >= present {
                continue;
            }
            let mut byte = [0];
            self.pages.read_page(first + page, column, &mut byte)?;
            // A marker with most bits set is a good one with bit errors.
            if byte[0].count_ones() < 5 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The page at `offset`, after a check that its first `len` out-of-band bytes exist.
    fn page_of_oob(&self, offset: u64, mode: OobMode, len: usize) -> Result<u64, FlashError> {
        self.geometry.check(offset, 1)?;
        let page_size = u64::from(self.format.page_size);
        if !offset.is_multiple_of(page_size) {
            return Err(FlashError::Misaligned);
        }
        let layout = &self.format.oob;
        let available = if mode == OobMode::Auto { layout.free_len() } else { layout.size };
        if len > available { Err(FlashError::OutOfRange) } else { Ok(offset / page_size) }
    }

    /// Fills in the codes for the data in `bytes`, a page with its out-of-band bytes.
    ///
    /// In all schemes the code of an erased step consists of erased cells, so a step that is
    /// programmed later finds the place of its code free.
    fn encode(&self, bytes: &mut [u8]) {
        let ecc = &self.format.ecc;
        let (data, oob) = bytes.split_at_mut(self.format.page_size as usize);
        let (step, code_len) = (ecc.step(), ecc.code_len());
        if step == 0 || is_erased(data) {
            return;
        }
        let mut codes = vec![0xFF; data.len() / step * code_len];
        ecc.compute_all(data, &mut codes);
        OobLayout::scatter(&self.format.oob.ecc, &codes, oob);
    }
}

/// Whether all bits are set: checked in chunks that a compiler turns into one comparison each.
fn is_erased(bytes: &[u8]) -> bool {
    bytes.chunks(64).all(|piece| piece.iter().fold(0xFF, |all, byte| all & byte) == 0xFF)
}

/// Number of parts of a page that can be programmed separately: Linux allows this for single-level
/// cells with two or more steps of error correction.
fn sub_pages(kind: Kind, steps: usize) -> u32 {
    match (kind, steps) {
        (Kind::Nand, 2) => 2,
        (Kind::Nand, 4 | 8 | 16) => 4,
        _ => 1,
    }
}

impl<P: Pages> Flash for Nand<P> {
    fn geometry(&self) -> &FlashGeometry {
        &self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.geometry.check(offset, buffer.len())?;
        let page_size = u64::from(self.format.page_size);
        let mut corrected = Corrected::NONE;
        let mut failed = Ok(());
        let mut at = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            let inside = (at % page_size) as usize;
            let len = rest.len().min(page_size as usize - inside);
            let (now, later) = rest.split_at_mut(len);
            match self.read_part(at / page_size, inside, now) {
                Ok(more) => corrected += more,
                Err(error @ FlashError::Uncorrectable { .. }) => failed = failed.and(Err(error)),
                Err(other) => return Err(other),
            }
            at += len as u64;
            rest = later;
        }
        failed.map(|()| corrected)
    }

    fn read_oob(
        &self,
        offset: u64,
        mode: OobMode,
        buffer: &mut [u8],
    ) -> Result<Corrected, FlashError> {
        let page = self.page_of_oob(offset, mode, buffer.len())?;
        let layout = &self.format.oob;
        let column = self.format.page_size as usize;
        if mode == OobMode::Place {
            self.pages.read_page(page, column, buffer)?;
        } else {
            let mut oob = vec![0; layout.size];
            self.pages.read_page(page, column, &mut oob)?;
            OobLayout::gather(&layout.free, &oob, buffer);
        }
        Ok(Corrected::NONE)
    }

    fn is_bad(&self, block: u32) -> Result<bool, FlashError> {
        self.geometry.check_block(block)?;
        match &self.table {
            Some(table) => Ok(table.is_bad(block)),
            None => self.has_marker(block),
        }
    }
}

#[cfg(test)]
#[path = "dump_tests.rs"]
pub(crate) mod tests;
