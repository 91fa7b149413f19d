//! A raw dump of NAND: every page followed by its out-of-band bytes.

use alloc::vec;
use alloc::vec::Vec;

use flysch_api::flash::{Corrected, Error, Flash, Geometry, Kind, OobMode};

use crate::bbt::BadBlockTable;
use crate::{Ecc, OobLayout, Storage};

/// How the pages of a dump are built.
#[derive(Clone, Debug)]
pub struct PageFormat {
    /// Bytes of data in a page.
    pub page_size: u32,
    /// What stands where behind them.
    pub oob: OobLayout,
    /// How their bit errors are corrected.
    pub ecc: Ecc,
}

impl PageFormat {
    /// A page and its out-of-band bytes.
    fn stride(&self) -> usize {
        self.page_size as usize + self.oob.size
    }
}

/// Flash over a dump that holds out-of-band bytes.
#[derive(Clone, Debug)]
pub struct Dump<S> {
    storage: S,
    format: PageFormat,
    geometry: Geometry,
    table: Option<BadBlockTable>,
}

impl<S: Storage> Dump<S> {
    /// A dump with pages of `format` in erase blocks of `erase_size` bytes of data. Bytes behind
    /// the last whole page are ignored. A bad-block table is looked for in the last four blocks.
    ///
    /// # Errors
    /// [`Error::Misaligned`] when a block does not consist of whole pages or a page not of whole
    /// error-correction steps, [`Error::Unsupported`] when the codes do not fill their place.
    pub fn new(storage: S, format: PageFormat, erase_size: u32) -> Result<Self, Error> {
        let page = format.page_size;
        let step = format.ecc.step();
        if page == 0 || erase_size == 0 || !erase_size.is_multiple_of(page) {
            return Err(Error::Misaligned);
        }
        if step != 0 && !(page as usize).is_multiple_of(step) {
            return Err(Error::Misaligned);
        }
        let code = (page as usize).checked_div(step).unwrap_or(0) * format.ecc.code_len();
        if format.oob.ecc.iter().map(ExactSizeIterator::len).sum::<usize>() != code {
            return Err(Error::Unsupported);
        }
        let pages = storage.size() / format.stride() as u64;
        let strength = format.ecc.strength();
        let geometry = Geometry {
            kind: Kind::Nand,
            size: pages * u64::from(page),
            erase_size,
            write_size: page,
            sub_page_size: page,
            oob_size: format.oob.size as u32,
            oob_available: format.oob.free_len() as u32,
            ecc_strength: strength,
            bitflip_threshold: (3 * strength).div_ceil(4),
        };
        let mut dump = Self { storage, format, geometry, table: None };
        dump.table = BadBlockTable::find(&dump)?;
        Ok(dump)
    }

    /// How the pages are built.
    pub fn format(&self) -> &PageFormat {
        &self.format
    }

    /// The bad-block table found on the flash.
    pub fn bad_block_table(&self) -> Option<&BadBlockTable> {
        self.table.as_ref()
    }

    /// Reads page number `page` with its out-of-band bytes and corrects its data.
    fn read_page(&self, page: u64, buffer: &mut [u8]) -> Result<Corrected, Error> {
        let stride = self.format.stride();
        let buffer = &mut buffer[..stride];
        self.storage.read_at(page * stride as u64, buffer)?;
        if self.format.ecc.step() == 0 || buffer.iter().all(|&byte| byte == 0xFF) {
            return Ok(Corrected::NONE);
        }
        let (data, oob) = buffer.split_at_mut(self.format.page_size as usize);
        self.correct(page, data, oob)
    }

    fn correct(&self, page: u64, data: &mut [u8], oob: &[u8]) -> Result<Corrected, Error> {
        let ecc = &self.format.ecc;
        let (step, code_len) = (ecc.step(), ecc.code_len());
        let mut codes = vec![0; data.len() / step * code_len];
        OobLayout::gather(&self.format.oob.ecc, oob, &mut codes);
        let mut corrected = Corrected::NONE;
        let mut failed = None;
        for (index, (data, code)) in
            data.chunks_exact_mut(step).zip(codes.chunks_exact(code_len)).enumerate()
        {
            match ecc.correct(data, code) {
                Some(bits) => corrected += Corrected { bits, worst_step: bits },
                None => failed = failed.or(Some(index)),
            }
        }
        match failed {
            None => Ok(corrected),
            Some(index) => Err(Error::Uncorrectable {
                offset: page * u64::from(self.format.page_size) + (index * step) as u64,
            }),
        }
    }

    /// Whether the factory or a driver marked the block in the first, second or last page: the
    /// makers' three conventions.
    fn has_marker(&self, block: u32) -> Result<bool, Error> {
        let stride = self.format.stride() as u64;
        let per_block = u64::from(self.geometry.pages_per_block());
        let present = u64::from(self.geometry.block_len(block) / self.geometry.write_size);
        let first = u64::from(block) * per_block;
        for page in [0, 1, per_block - 1] {
            if page >= present {
                continue;
            }
            let marker = u64::from(self.format.page_size) + self.format.oob.bad_marker as u64;
            let mut byte = [0];
            self.storage.read_at((first + page) * stride + marker, &mut byte)?;
            // A marker with most bits set is a good one with bit errors.
            if byte[0].count_ones() < 5 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl<S: Storage> Flash for Dump<S> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, Error> {
        self.geometry.check(offset, buffer.len())?;
        let page_size = u64::from(self.format.page_size);
        let mut page: Vec<u8> = vec![0; self.format.stride()];
        let mut corrected = Corrected::NONE;
        let mut failed = Ok(());
        let mut at = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            match self.read_page(at / page_size, &mut page) {
                Ok(more) => corrected += more,
                Err(error @ Error::Uncorrectable { .. }) => failed = failed.and(Err(error)),
                Err(other) => return Err(other),
            }
            let inside = (at % page_size) as usize;
            let len = rest.len().min(page_size as usize - inside);
            let (now, later) = rest.split_at_mut(len);
            now.copy_from_slice(&page[inside..inside + len]);
            at += len as u64;
            rest = later;
        }
        failed.map(|()| corrected)
    }

    fn read_oob(&self, offset: u64, mode: OobMode, buffer: &mut [u8]) -> Result<Corrected, Error> {
        self.geometry.check(offset, 1)?;
        let page_size = u64::from(self.format.page_size);
        if !offset.is_multiple_of(page_size) {
            return Err(Error::Misaligned);
        }
        let layout = &self.format.oob;
        let available = if mode == OobMode::Auto { layout.free_len() } else { layout.size };
        if buffer.len() > available {
            return Err(Error::OutOfRange);
        }
        let at = offset / page_size * self.format.stride() as u64 + page_size;
        if mode == OobMode::Place {
            self.storage.read_at(at, buffer)?;
        } else {
            let mut oob = vec![0; layout.size];
            self.storage.read_at(at, &mut oob)?;
            OobLayout::gather(&layout.free, &oob, buffer);
        }
        Ok(Corrected::NONE)
    }

    fn is_bad(&self, block: u32) -> Result<bool, Error> {
        self.geometry.check_block(block)?;
        match &self.table {
            Some(table) => Ok(table.is_bad(block)),
            None => self.has_marker(block),
        }
    }
}

#[cfg(test)]
#[path = "dump_tests.rs"]
mod tests;
