//! A multi-level chip used with one bit per cell: only the lower page of each pair.

use flysch_api::flash::{Corrected, Flash, FlashError, FlashGeometry, FlashMut, Kind, OobMode};

/// The lower pages of a chip with two bits per cell, as a flash (Linux: the partition flag
/// `slc-mode`, `MTD_SLC_ON_MLC_EMULATION`).
///
/// If programming the upper page of a pair is interrupted, the lower page is lost too, whatever it
/// held and whenever it was written. Neither UBI nor JFFS2 can cope with this, and both refuse such
/// chips. If the upper pages are not used, it cannot happen; the price is half of the capacity.
/// Data that was written to all pages before is not found in this mode.
///
/// The pairs are those that Linux assumes for all its paired chips (`mtd_pairing_dist3`): the lower
/// pages are 0, 1, 3, 5 and so on; the upper pages are 2, 4, 6 and so on, and the last.
///
/// A page of such a chip can be programmed only once: no free out-of-band bytes are offered, so
/// that JFFS2 writes no clean markers there.
#[derive(Clone, Debug)]
pub struct LowerPages<F> {
    flash: F,
    /// Pages per block of this flash.
    pages: u32,
    geometry: FlashGeometry,
}

impl<F: Flash> LowerPages<F> {
    /// The lower pages of `flash`.
    ///
    /// # Errors
    /// [`FlashError::Unsupported`] if it is not a multi-level NAND, or its blocks have no pairs.
    pub fn new(flash: F) -> Result<Self, FlashError> {
        let whole = *flash.geometry();
        let all = whole.pages_per_block();
        let is_paired = all >= 4 && all.is_multiple_of(2);
        if whole.kind != Kind::MlcNand || !is_paired {
            return Err(FlashError::Unsupported);
        }
        let pages = all / 2;
        let erase_size = pages * whole.write_size;
        let size = u64::from(erase_size) * u64::from(whole.blocks());
        let (kind, oob_available) = (Kind::Nand, 0);
        let geometry = FlashGeometry { kind, size, erase_size, oob_available, ..whole };
        Ok(Self { flash, pages, geometry })
    }

    /// The flash below.
    pub fn flash(&self) -> &F {
        &self.flash
    }

    /// Returns the flash below.
    pub fn into_flash(self) -> F {
        self.flash
    }

    /// The position of a byte on the flash below.
    fn below(&self, offset: u64) -> u64 {
        let unit = u64::from(self.geometry.write_size);
        let (page, inside) = (offset / unit, offset % unit);
        let (block, index) = (page / u64::from(self.pages), page % u64::from(self.pages));
        let lower = (2 * index).saturating_sub(1);
        block * u64::from(self.flash.geometry().erase_size) + lower * unit + inside
    }

    /// Translates an error at `below` of the flash below, in a page that begins at `at` here.
    fn translate(error: FlashError, below: u64, at: u64) -> FlashError {
        let here = |offset: u64| at + offset.saturating_sub(below);
        match error {
            FlashError::Uncorrectable { offset } => {
                FlashError::Uncorrectable { offset: here(offset) }
            }
            FlashError::ProgramFailed { offset } => {
                FlashError::ProgramFailed { offset: here(offset) }
            }
            other => other,
        }
    }

    /// Bytes from `offset` to the end of its page, at most `len`.
    fn in_page(&self, offset: u64, len: usize) -> usize {
        let unit = u64::from(self.geometry.write_size);
        ((unit - offset % unit) as usize).min(len)
    }
}

impl<F: Flash> Flash for LowerPages<F> {
    fn geometry(&self) -> &FlashGeometry {
        &self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.geometry.check(offset, buffer.len())?;
        let (mut corrected, mut failed) = (Corrected::NONE, None);
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let (page, behind) = rest.split_at_mut(self.in_page(at, rest.len()));
            let below = self.below(at);
            match self.flash.read(below, page) {
                Ok(found) => corrected += found,
                // The bytes are there all the same, and so are the pages behind.
                Err(error @ FlashError::Uncorrectable { .. }) => {
                    failed.get_or_insert(Self::translate(error, below, at));
                }
                Err(error) => return Err(error),
            }
            (at, rest) = (at + page.len() as u64, behind);
        }
        failed.map_or(Ok(corrected), Err)
    }

    fn read_oob(
        &self,
        offset: u64,
        mode: OobMode,
        buffer: &mut [u8],
    ) -> Result<Corrected, FlashError> {
        self.geometry.check(offset, 1)?;
        let below = self.below(offset);
        let read = self.flash.read_oob(below, mode, buffer);
        read.map_err(|error| Self::translate(error, below, offset))
    }

    fn is_bad(&self, block: u32) -> Result<bool, FlashError> {
        self.flash.is_bad(block)
    }
}

impl<F: FlashMut> FlashMut for LowerPages<F> {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.geometry.check(offset, data.len())?;
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let (page, behind) = rest.split_at(self.in_page(at, rest.len()));
            let below = self.below(at);
            let done = self.flash.program(below, page);
            done.map_err(|error| Self::translate(error, below, at))?;
            (at, rest) = (at + page.len() as u64, behind);
        }
        Ok(())
    }

    fn program_oob(&mut self, offset: u64, mode: OobMode, data: &[u8]) -> Result<(), FlashError> {
        self.geometry.check(offset, 1)?;
        let below = self.below(offset);
        let done = self.flash.program_oob(below, mode, data);
        done.map_err(|error| Self::translate(error, below, offset))
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        self.flash.erase(block)
    }

    fn mark_bad(&mut self, block: u32) -> Result<(), FlashError> {
        self.flash.mark_bad(block)
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        self.flash.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlashImage;

    #[test]
    fn the_lower_pages_are_those_that_linux_pairs() {
        let geometry =
            FlashGeometry { kind: Kind::MlcNand, ..FlashGeometry::nand(0, 16 * 512, 512, 512) };
        let image = FlashImage::new(alloc::vec![0xFF; 4 * 16 * 512], geometry);
        let mut lower = LowerPages::new(image).unwrap();
        assert_eq!((lower.geometry().kind, lower.geometry().erase_size), (Kind::Nand, 8 * 512));
        assert_eq!(lower.geometry().blocks(), 4);
        let pages: alloc::vec::Vec<u8> = (0..8 * 512).map(|at| (at / 512) as u8).collect();
        lower.program(8 * 512, &pages).unwrap();
        let mut found = [0; 1024];
        assert_eq!(lower.read(8 * 512 + 300, &mut found), Ok(Corrected::NONE));
        assert!(found[..212].iter().all(|&byte| byte == 0) && found[212..724] == [1; 512]);
        let whole = lower.into_flash();
        // nand_pairing_dist3: pages 0, 1, 3 ... 13 of 16.
        for (index, page) in [0_u64, 1, 3, 5, 7, 9, 11, 13].into_iter().enumerate() {
            let mut byte = [0xAA];
            let _none = whole.read((16 + page) * 512, &mut byte).unwrap();
            assert_eq!(byte, [index as u8], "page {page}");
        }
        let single =
            FlashImage::new(alloc::vec![0xFF; 8192], FlashGeometry::nand(0, 8192, 512, 512));
        assert!(LowerPages::new(single).is_err());
    }
}
