//! The chip as seen on its bus, and as flash with or without error correction on the die.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering;

use flysch_api::flash::{
    Corrected, Flash, FlashError, FlashGeometry, FlashMut, OobMode, Pages, PagesMut,
};

use super::NandChip;
use super::physics::{self, History};
use crate::random::Random;

/// Command and address cycles of an operation: two commands, five bytes of address.
pub(super) const CYCLES: u64 = 7;
/// Cycles of another column in the page just fetched: two commands, two bytes of address.
const CHANGE_CYCLES: u64 = 4;

/// A page fetched from its cells.
struct Fetched {
    place: usize,
    page: u32,
    /// The number of the read.
    count: u64,
    history: History,
}

impl NandChip {
    /// Fetches a page from its cells: counts the read, takes its time, and returns the history of
    /// the page. `parts` are the columns and lengths to be output.
    fn fetch(&self, number: u64, parts: &[(usize, usize)]) -> Result<Fetched, FlashError> {
        let (place, page) = self.place(number)?;
        let stride = self.shape().stride;
        for (column, len) in parts {
            let end = column.checked_add(*len).filter(|&end| end <= stride);
            end.ok_or(FlashError::OutOfRange)?;
        }
        self.power.check()?;
        let timing = &self.profile.timing;
        let bytes: usize = parts.iter().map(|part| part.1).sum();
        let cycles = CYCLES + CHANGE_CYCLES * parts.len().saturating_sub(1) as u64 + bytes as u64;
        self.take_time(timing.read_ns + timing.cycle_ns * cycles);
        let count = super::add(&self.page_reads, 1);
        let history = self.history(place);
        self.reads[place].store(history.reads.wrapping_add(1), Ordering::Relaxed);
        Ok(Fetched { place, page, count, history })
    }

    /// Fetches a page and outputs parts of it with their errors.
    fn sense_parts(
        &self,
        number: u64,
        parts: &mut [(usize, &mut [u8]); 2],
    ) -> Result<(), FlashError> {
        let lens = [(parts[0].0, parts[0].1.len()), (parts[1].0, parts[1].1.len())];
        let fetched = self.fetch(number, &lens)?;
        for (column, buffer) in parts {
            self.put_out(&fetched, *column, buffer);
        }
        Ok(())
    }

    fn sense(&self, number: u64, column: usize, buffer: &mut [u8]) -> Result<(), FlashError> {
        let fetched = self.fetch(number, &[(column, buffer.len())])?;
        self.put_out(&fetched, column, buffer);
        Ok(())
    }

    /// Outputs one part of a fetched page.
    fn put_out(&self, fetched: &Fetched, column: usize, buffer: &mut [u8]) {
        self.put_out_cells(fetched, column, buffer);
        let end = column + buffer.len();
        self.wrong_cells(fetched, |cell| {
            if (column..end).contains(&(cell / 8)) {
                buffer[cell / 8 - column] ^= 1 << (cell % 8);
            }
        });
    }

    /// Outputs the cells as they are, except unstable ones, which read as anything.
    fn put_out_cells(&self, fetched: &Fetched, column: usize, buffer: &mut [u8]) {
        let Fetched { place, page, count, history } = *fetched;
        let end = column + buffer.len();
        let block = &self.blocks[place];
        match block.page(page) {
            Some(cells) => buffer.copy_from_slice(&cells[column..end]),
            None => buffer.fill(0xFF),
        }
        let shown = block
            .torn(page)
            .filter(|torn| self.config.aftermath.unstable && history.reads >= torn.shows_from);
        if let Some(torn) = shown {
            let mut noise = Random::new(self.life(place, page, 0) ^ count.rotate_left(32));
            for (byte, unstable) in buffer.iter_mut().zip(&torn.unstable[column..end]) {
                if *unstable != 0 {
                    *byte ^= unstable & noise.bits() as u8;
                }
            }
        }
    }

    /// Calls `flip` with the cells of a fetched page that read wrong because of age; a cell passed
    /// twice is correct again.
    fn wrong_cells(&self, fetched: &Fetched, flip: impl FnMut(usize)) {
        if !self.config.wears {
            return;
        }
        let Fetched { place, page, history, .. } = *fetched;
        let bits = self.shape().stride * 8;
        let mean = physics::mean_errors(&self.profile, self.config.disturbing_reads, history, bits);
        physics::wrong_cells(self.life(place, page, history.erases), mean, bits, flip);
    }

    /// Reads data of one page through the error correction on the die.
    fn read_corrected(
        &self,
        number: u64,
        column: usize,
        buffer: &mut [u8],
    ) -> Result<Corrected, FlashError> {
        let step = self.profile.ecc.step as usize;
        let first = column / step * step;
        let end = (column + buffer.len()).next_multiple_of(step);
        let fetched = self.fetch(number, &[(first, end - first)])?;
        match self.blocks[fetched.place].torn(fetched.page) {
            Some(torn) => {
                let intended = &torn.intended[first..end];
                self.correct_torn((number, &fetched), (first, intended), (column, buffer))
            }
            None => {
                self.put_out_cells(&fetched, column, buffer);
                self.correct_aged((number, &fetched), first..end, (column, buffer))
            }
        }
    }

    /// Corrects `buffer`, part of the steps at `span` of a page that is not torn, in which only
    /// aged cells can be wrong.
    fn correct_aged(
        &self,
        (number, fetched): (u64, &Fetched),
        span: Range<usize>,
        (column, buffer): (usize, &mut [u8]),
    ) -> Result<Corrected, FlashError> {
        let mut wrong: Vec<usize> = Vec::new();
        self.wrong_cells(fetched, |cell| {
            if span.contains(&(cell / 8)) {
                match wrong.iter().position(|known| *known == cell) {
                    Some(known) => drop(wrong.swap_remove(known)),
                    None => wrong.push(cell),
                }
            }
        });
        let mut corrected = Corrected::NONE;
        let mut failed = Ok(());
        let step = self.profile.ecc.step as usize;
        wrong.sort_unstable();
        for wrong in wrong.chunk_by(|one, other| one / 8 / step == other / 8 / step) {
            let bits = wrong.len() as u32;
            if bits <= self.profile.ecc.strength {
                corrected += Corrected { bits, worst_step: bits };
                continue;
            }
            for cell in wrong {
                let byte = (cell / 8).checked_sub(column).and_then(|at| buffer.get_mut(at));
                byte.into_iter().for_each(|byte| *byte ^= 1 << (cell % 8));
            }
            let at = wrong[0] / 8 / step * step;
            let offset = number * u64::from(self.profile.page_size) + at as u64;
            failed = failed.and(Err(FlashError::Uncorrectable { offset }));
        }
        failed.map(|()| corrected)
    }

    /// Corrects the steps from column `first` on of a torn page whose content was `intended`, and
    /// of which `buffer` is wanted.
    fn correct_torn(
        &self,
        (number, fetched): (u64, &Fetched),
        (first, intended): (usize, &[u8]),
        (column, buffer): (usize, &mut [u8]),
    ) -> Result<Corrected, FlashError> {
        let mut sensed = vec![0; intended.len()];
        self.put_out(fetched, first, &mut sensed);
        let mut corrected = Corrected::NONE;
        let mut failed = Ok(());
        let step = self.profile.ecc.step as usize;
        let steps = sensed.chunks_mut(step).zip(intended.chunks(step)).enumerate();
        for (index, (sensed, intended)) in steps {
            if intended == sensed {
                continue;
            }
            let pairs = sensed.chunks(64).zip(intended.chunks(64));
            let in_piece = |(one, other): (&[u8], &[u8])| -> u32 {
                one.iter().zip(other).map(|(a, b)| (a ^ b).count_ones()).sum()
            };
            let bits: u32 = pairs.map(in_piece).sum();
            if bits > self.profile.ecc.strength {
                let at = (first + index * step) as u64;
                let offset = number * u64::from(self.profile.page_size) + at;
                failed = failed.and(Err(FlashError::Uncorrectable { offset }));
                continue;
            }
            corrected += Corrected { bits, worst_step: bits };
            sensed.copy_from_slice(intended);
        }
        buffer.copy_from_slice(&sensed[column - first..][..buffer.len()]);
        failed.map(|()| corrected)
    }

    /// The page whose first `len` out-of-band bytes are addressed.
    fn page_of_oob(&self, offset: u64, mode: OobMode, len: usize) -> Result<u64, FlashError> {
        self.geometry.check(offset, 1)?;
        let page_size = u64::from(self.profile.page_size);
        if !offset.is_multiple_of(page_size) {
            return Err(FlashError::Misaligned);
        }
        let available = match mode {
            OobMode::Place => self.profile.oob_size,
            OobMode::Auto => self.geometry.oob_available,
        };
        if len > available as usize { Err(FlashError::OutOfRange) } else { Ok(offset / page_size) }
    }
}

impl Pages for NandChip {
    fn pages(&self) -> u64 {
        self.blocks.len() as u64 * u64::from(self.profile.pages_per_block)
    }

    fn read_page(&self, page: u64, column: usize, buffer: &mut [u8]) -> Result<(), FlashError> {
        self.sense(page, column, buffer)
    }

    fn read_page_parts(
        &self,
        page: u64,
        mut parts: [(usize, &mut [u8]); 2],
    ) -> Result<(), FlashError> {
        self.sense_parts(page, &mut parts)
    }
}

impl PagesMut for NandChip {
    fn program_page(&mut self, page: u64, column: usize, bytes: &[u8]) -> Result<(), FlashError> {
        self.program_cells(page, column, bytes)
    }

    fn erase_pages(&mut self, block: u32) -> Result<(), FlashError> {
        self.erase_cells(block)
    }

    fn sync_pages(&mut self) -> Result<(), FlashError> {
        self.sync()
    }
}

impl Flash for NandChip {
    fn geometry(&self) -> &FlashGeometry {
        &self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.geometry.check(offset, buffer.len())?;
        let page_size = u64::from(self.profile.page_size);
        let mut corrected = Corrected::NONE;
        let mut failed = Ok(());
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let column = (at % page_size) as usize;
            let len = rest.len().min(page_size as usize - column);
            let (now, later) = rest.split_at_mut(len);
            if self.config.corrects {
                match self.read_corrected(at / page_size, column, now) {
                    Ok(more) => corrected += more,
                    Err(error @ FlashError::Uncorrectable { .. }) => {
                        failed = failed.and(Err(error))
                    }
                    Err(other) => return Err(other),
                }
            } else {
                self.sense(at / page_size, column, now)?;
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
        let start = self.profile.page_size as usize;
        if mode == OobMode::Place {
            self.sense(page, start, buffer)?;
            return Ok(Corrected::NONE);
        }
        let mut oob = vec![0; self.profile.oob_size as usize];
        self.sense(page, start, &mut oob)?;
        let free = self.profile.free_oob().into_iter().flatten();
        buffer.iter_mut().zip(free).for_each(|(byte, at)| *byte = oob[at as usize]);
        Ok(Corrected::NONE)
    }

    /// Determined by the marker of the first page.
    fn is_bad(&self, block: u32) -> Result<bool, FlashError> {
        self.geometry.check_block(block)?;
        let page = u64::from(block) * u64::from(self.profile.pages_per_block);
        let mut marker = [0];
        self.sense(page, self.marker_column(), &mut marker)?;
        Ok(marker[0].count_ones() < 5)
    }
}

impl FlashMut for NandChip {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.geometry.check(offset, data.len())?;
        let unit = u64::from(self.geometry.sub_page_size);
        if !offset.is_multiple_of(unit) || !(data.len() as u64).is_multiple_of(unit) {
            return Err(FlashError::Misaligned);
        }
        let page_size = u64::from(self.profile.page_size);
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let column = (at % page_size) as usize;
            let (now, later) = rest.split_at(rest.len().min(page_size as usize - column));
            self.program_page(at / page_size, column, now)?;
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    fn program_oob(&mut self, offset: u64, mode: OobMode, data: &[u8]) -> Result<(), FlashError> {
        let page = self.page_of_oob(offset, mode, data.len())?;
        let start = self.profile.page_size as usize;
        if mode == OobMode::Place {
            return self.program_page(page, start, data);
        }
        let mut oob = vec![0xFF; self.profile.oob_size as usize];
        let free = self.profile.free_oob().into_iter().flatten();
        data.iter().zip(free).for_each(|(byte, at)| oob[at as usize] = *byte);
        self.program_page(page, start, &oob)
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        self.geometry.check_block(block)?;
        if self.is_bad(block)? {
            return Err(FlashError::BadBlock { block });
        }
        self.erase_cells(block)
    }

    /// Clears the marker of the first page.
    fn mark_bad(&mut self, block: u32) -> Result<(), FlashError> {
        self.geometry.check_block(block)?;
        let page = u64::from(block) * u64::from(self.profile.pages_per_block);
        self.program_page(page, self.marker_column(), &[0])
    }

    #[cfg(feature = "std")]
    fn sync(&mut self) -> Result<(), FlashError> {
        self.file.as_ref().map_or(Ok(()), super::file::Backing::sync)
    }
}

impl NandChip {
    /// Whether the chip's memory for `block` is not shared with another world. For tests of how
    /// worlds are forked.
    pub fn is_alone(&self, block: u32) -> bool {
        self.blocks.get(block as usize).is_some_and(|block| Arc::strong_count(block) == 1)
    }
}
