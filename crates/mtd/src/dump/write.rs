//! Programming, erasing and marking blocks bad, with error correction.

use alloc::vec;

use flysch_api::flash::{Flash, FlashError, FlashMut, OobMode, PagesMut};

use super::Nand;
use crate::OobLayout;
use crate::bbt::{BadBlockTable, BlockState};

impl<P: PagesMut> Nand<P> {
    /// From now on keeps a bad-block table in the last four blocks, as Linux does with
    /// `NAND_BBT_USE_FLASH`: a table and its mirror, made from the markers if there is none yet.
    /// Existing content of these blocks is lost.
    ///
    /// # Errors
    /// As [`FlashMut::erase`] and [`FlashMut::program`]; [`FlashError::Unsupported`] if there is no
    /// good block for it.
    pub fn keep_table(&mut self) -> Result<(), FlashError> {
        let mut table = match self.table.take() {
            Some(table) => table,
            None => self.table_from_markers()?,
        };
        table.reserve();
        let stored = self.store_table(&mut table);
        self.table = Some(table);
        stored
    }

    /// Writes the table and then its mirror, each into its current block or into a free one of the
    /// last four; while one is written the other stays intact.
    fn store_table(&mut self, table: &mut BadBlockTable) -> Result<(), FlashError> {
        table.version = table.version.wrapping_add(1);
        let homes = table.homes(self)?;
        let mut done = Err(FlashError::Unsupported);
        let mut taken = None;
        for (copy, candidates) in homes.iter().enumerate() {
            for &block in candidates.iter().filter(|&&block| Some(block) != taken) {
                match self.store_copy(table, copy, block) {
                    Ok(()) => {
                        (taken, done) = (Some(block), Ok(()));
                        table.block = block;
                        break;
                    }
                    Err(FlashError::EraseFailed { .. } | FlashError::ProgramFailed { .. }) => {
                        table.set(block, BlockState::Worn);
                    }
                    Err(other) => return Err(other),
                }
            }
        }
        done
    }

    fn store_copy(
        &mut self,
        table: &BadBlockTable,
        copy: usize,
        block: u32,
    ) -> Result<(), FlashError> {
        self.pages.erase_pages(block)?;
        let page_size = self.format.page_size as usize;
        let first = u64::from(block) * u64::from(self.geometry.pages_per_block());
        let room = self.format.oob.is_free_of_codes(BadBlockTable::OOB_PLACE);
        let content = table.emit(copy, !room);
        for (index, data) in content.chunks(page_size).enumerate() {
            let mut bytes = vec![0xFF; self.format.stride()];
            bytes[..data.len()].copy_from_slice(data);
            self.encode(&mut bytes);
            if index == 0 && room {
                let place = page_size + BadBlockTable::OOB_PLACE.start;
                let header = table.header(copy);
                bytes[place..place + header.len()].copy_from_slice(&header);
            }
            self.pages.program_page(first + index as u64, 0, &bytes)?;
        }
        Ok(())
    }
}

impl<P: PagesMut> FlashMut for Nand<P> {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.geometry.check(offset, data.len())?;
        let unit = u64::from(self.geometry.sub_page_size);
        if !offset.is_multiple_of(unit) || !(data.len() as u64).is_multiple_of(unit) {
            return Err(FlashError::Misaligned);
        }
        let page_size = u64::from(self.format.page_size);
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let inside = (at % page_size) as usize;
            let (now, later) = rest.split_at(rest.len().min(page_size as usize - inside));
            let mut bytes = vec![0xFF; self.format.stride()];
            bytes[inside..inside + now.len()].copy_from_slice(now);
            self.encode(&mut bytes);
            self.pages.program_page(at / page_size, 0, &bytes)?;
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    fn program_oob(&mut self, offset: u64, mode: OobMode, data: &[u8]) -> Result<(), FlashError> {
        let page = self.page_of_oob(offset, mode, data.len())?;
        let layout = &self.format.oob;
        let mut oob = vec![0xFF; layout.size];
        match mode {
            OobMode::Place => oob[..data.len()].copy_from_slice(data),
            OobMode::Auto => OobLayout::scatter(&layout.free, data, &mut oob),
        }
        self.pages.program_page(page, self.format.page_size as usize, &oob)
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        if self.is_bad(block)? {
            return Err(FlashError::BadBlock { block });
        }
        self.pages.erase_pages(block)
    }

    /// As in Linux: the block is erased if it still can be, then its marker is cleared, then the
    /// table is written if one is kept. Either of marker and table suffices.
    fn mark_bad(&mut self, block: u32) -> Result<(), FlashError> {
        if self.is_bad(block)? {
            return Ok(());
        }
        let column = self.marker_column().ok_or(FlashError::Unsupported)?;
        if self.pages.erase_pages(block) == Err(FlashError::PowerLost) {
            return Err(FlashError::PowerLost);
        }
        let first = u64::from(block) * u64::from(self.geometry.pages_per_block());
        let marked = self.pages.program_page(first, column, &[0]);
        let Some(mut table) = self.table.take() else { return marked };
        table.set(block, BlockState::Worn);
        let stored = if table.is_kept() { self.store_table(&mut table) } else { marked };
        self.table = Some(table);
        match stored {
            Err(FlashError::PowerLost) => stored,
            _ => stored.or(marked),
        }
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        self.pages.sync_pages()
    }
}

#[cfg(test)]
mod tests;
