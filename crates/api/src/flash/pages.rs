//! NAND below its error correction: what a chip's bus shows.

use super::FlashError;

/// Pages with their out-of-band bytes behind the data, as they are in the cells, including bit
/// errors: a raw chip, or a dump of one.
///
/// Columns count from the first byte of data through the last out-of-band byte.
pub trait Pages {
    /// Number of pages.
    fn pages(&self) -> u64;

    /// Fills `buffer` from page `page`, beginning at `column`.
    ///
    /// # Errors
    /// [`FlashError::OutOfRange`]; [`FlashError::PowerLost`]; [`FlashError::Os`].
    fn read_page(&self, page: u64, column: usize, buffer: &mut [u8]) -> Result<(), FlashError>;

    /// Fills both buffers from page `page`, each beginning at its own column: data and their
    /// error-correction codes. A chip fetches the page from its cells only once (random data
    /// output).
    ///
    /// # Errors
    /// As [`read_page`](Self::read_page).
    fn read_page_parts(&self, page: u64, parts: [(usize, &mut [u8]); 2]) -> Result<(), FlashError> {
        parts.into_iter().try_for_each(|(column, buffer)| self.read_page(page, column, buffer))
    }
}

/// Pages that can be programmed, and erased by blocks.
pub trait PagesMut: Pages {
    /// Programs `bytes` into page `page`, beginning at `column`, in one operation of the chip.
    /// Programming only clears bits; 0xFF leaves a cell as it is.
    ///
    /// # Errors
    /// [`FlashError::OutOfRange`] with nothing done; [`FlashError::ProgramFailed`],
    /// [`FlashError::PowerLost`], [`FlashError::Os`] with the page in any state.
    fn program_page(&mut self, page: u64, column: usize, bytes: &[u8]) -> Result<(), FlashError>;

    /// Sets every bit of the pages of erase block `block`, including the out-of-band bytes.
    ///
    /// # Errors
    /// [`FlashError::OutOfRange`] with nothing done; [`FlashError::EraseFailed`],
    /// [`FlashError::PowerLost`], [`FlashError::Os`] with the block in any state.
    fn erase_pages(&mut self, block: u32) -> Result<(), FlashError>;

    /// As [`FlashMut::sync`](super::FlashMut::sync).
    ///
    /// # Errors
    /// [`FlashError::Os`].
    fn sync_pages(&mut self) -> Result<(), FlashError> {
        Ok(())
    }
}

impl<P: Pages + ?Sized> Pages for &P {
    fn pages(&self) -> u64 {
        (**self).pages()
    }
    fn read_page(&self, page: u64, column: usize, buffer: &mut [u8]) -> Result<(), FlashError> {
        (**self).read_page(page, column, buffer)
    }
    fn read_page_parts(&self, page: u64, parts: [(usize, &mut [u8]); 2]) -> Result<(), FlashError> {
        (**self).read_page_parts(page, parts)
    }
}

impl<P: Pages + ?Sized> Pages for &mut P {
    fn pages(&self) -> u64 {
        (**self).pages()
    }
    fn read_page(&self, page: u64, column: usize, buffer: &mut [u8]) -> Result<(), FlashError> {
        (**self).read_page(page, column, buffer)
    }
    fn read_page_parts(&self, page: u64, parts: [(usize, &mut [u8]); 2]) -> Result<(), FlashError> {
        (**self).read_page_parts(page, parts)
    }
}

impl<P: PagesMut + ?Sized> PagesMut for &mut P {
    fn program_page(&mut self, page: u64, column: usize, bytes: &[u8]) -> Result<(), FlashError> {
        (**self).program_page(page, column, bytes)
    }
    fn erase_pages(&mut self, block: u32) -> Result<(), FlashError> {
        (**self).erase_pages(block)
    }
    fn sync_pages(&mut self) -> Result<(), FlashError> {
        (**self).sync_pages()
    }
}
