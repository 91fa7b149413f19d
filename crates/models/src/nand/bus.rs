//! The chip as its bus shows it, and as flash with or without error correction on the die.

use alloc::sync::Arc;
use alloc::vec;
use core::sync::atomic::Ordering;

use flysch_api::flash::{Corrected, Error, Flash, FlashMut, Geometry, OobMode, Pages, PagesMut};

use super::NandChip;
use super::physics::{self, History};
use crate::random::Random;

/// Command and address cycles of an operation: two commands, five bytes of address.
pub(super) const CYCLES: u64 = 7;
/// Those of another column in the page just fetched: two commands, two bytes of address.
const CHANGE_CYCLES: u64 = 4;

impl NandChip {
    /// Fetches a page from its cells, and puts out parts of it with their errors.
    fn sense_parts(&self, number: u64, parts: &mut [(usize, &mut [u8])]) -> Result<(), Error> {
        let (place, page) = self.place(number)?;
        let stride = self.shape().stride;
        for (column, buffer) in &*parts {
            let end = column.checked_add(buffer.len()).filter(|&end| end <= stride);
            end.ok_or(Error::OutOfRange)?;
        }
        self.power.check()?;
        let timing = &self.profile.timing;
        let bytes: usize = parts.iter().map(|part| part.1.len()).sum();
        let cycles = CYCLES + CHANGE_CYCLES * parts.len().saturating_sub(1) as u64 + bytes as u64;
        self.take_time(timing.read_ns + timing.cycle_ns * cycles);
        let count = self.page_reads.fetch_add(1, Ordering::Relaxed);
        let history = self.history(place);
        self.reads[place].fetch_add(1, Ordering::Relaxed);
        for (column, buffer) in parts {
            self.put_out((place, page), *column, buffer, (count, history));
        }
        Ok(())
    }

    /// One part of a page that was fetched with the read number `count`.
    fn put_out(
        &self,
        (place, page): (usize, u32),
        column: usize,
        buffer: &mut [u8],
        (count, history): (u64, History),
    ) {
        let shape = self.shape();
        let end = column + buffer.len();
        let block = &self.blocks[place];
        match block.page(shape, page) {
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
        if self.config.wears {
            let bits = shape.stride * 8;
            let mean =
                physics::mean_errors(&self.profile, self.config.disturbing_reads, history, bits);
            let seed = self.life(place, page, history.erases);
            physics::wrong_cells(seed, mean, bits, |cell| {
                if (column..end).contains(&(cell / 8)) {
                    buffer[cell / 8 - column] ^= 1 << (cell % 8);
                }
            });
        }
    }

    fn sense(&self, number: u64, column: usize, buffer: &mut [u8]) -> Result<(), Error> {
        self.sense_parts(number, &mut [(column, buffer)])
    }

    /// Reads data of one page through the error correction on the die.
    fn read_corrected(
        &self,
        number: u64,
        column: usize,
        buffer: &mut [u8],
    ) -> Result<Corrected, Error> {
        let step = self.profile.ecc.step as usize;
        let first = column / step * step;
        let end = (column + buffer.len()).next_multiple_of(step);
        let mut sensed = vec![0; end - first];
        self.sense(number, first, &mut sensed)?;
        let (place, page) = self.place(number)?;
        let block = &self.blocks[place];
        let part = column - first..column - first + buffer.len();
        if !self.config.wears && block.torn(page).is_none() {
            // Nothing can be wrong in it.
            buffer.copy_from_slice(&sensed[part]);
            return Ok(Corrected::NONE);
        }
        let erased = [0xFF; 64];
        let intended = match block.torn(page) {
            Some(torn) => Some(&torn.intended[..]),
            None => block.page(self.shape(), page),
        };
        let mut corrected = Corrected::NONE;
        let mut failed = Ok(());
        for (index, sensed) in sensed.chunks_mut(step).enumerate() {
            let at = first + index * step;
            if intended.is_some_and(|intended| intended[at..at + sensed.len()] == *sensed) {
                continue;
            }
            let chunks = sensed.chunks(erased.len()).enumerate();
            let bits: u32 = chunks
                .map(|(n, sensed)| {
                    let start = at + n * erased.len();
                    let right = intended.map_or(&erased[..sensed.len()], |intended| {
                        &intended[start..start + sensed.len()]
                    });
                    sensed.iter().zip(right).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>()
                })
                .sum();
            if bits > self.profile.ecc.strength {
                let offset = number * u64::from(self.profile.page_size) + at as u64;
                failed = failed.and(Err(Error::Uncorrectable { offset }));
                continue;
            }
            corrected += Corrected { bits, worst_step: bits };
            match intended {
                Some(intended) => sensed.copy_from_slice(&intended[at..at + sensed.len()]),
                None => sensed.fill(0xFF),
            }
        }
        buffer.copy_from_slice(&sensed[part]);
        failed.map(|()| corrected)
    }

    /// The page whose first `len` out-of-band bytes are meant.
    fn page_of_oob(&self, offset: u64, mode: OobMode, len: usize) -> Result<u64, Error> {
        self.geometry.check(offset, 1)?;
        let page_size = u64::from(self.profile.page_size);
        if !offset.is_multiple_of(page_size) {
            return Err(Error::Misaligned);
        }
        let available = match mode {
            OobMode::Place => self.profile.oob_size,
            OobMode::Auto => self.geometry.oob_available,
        };
        if len > available as usize { Err(Error::OutOfRange) } else { Ok(offset / page_size) }
    }
}

impl Pages for NandChip {
    fn pages(&self) -> u64 {
        self.blocks.len() as u64 * u64::from(self.profile.pages_per_block)
    }

    fn read_page(&self, page: u64, column: usize, buffer: &mut [u8]) -> Result<(), Error> {
        self.sense(page, column, buffer)
    }

    fn read_page_parts(&self, page: u64, mut parts: [(usize, &mut [u8]); 2]) -> Result<(), Error> {
        self.sense_parts(page, &mut parts)
    }
}

impl PagesMut for NandChip {
    fn program_page(&mut self, page: u64, column: usize, bytes: &[u8]) -> Result<(), Error> {
        self.program_cells(page, column, bytes)
    }

    fn erase_pages(&mut self, block: u32) -> Result<(), Error> {
        self.erase_cells(block)
    }

    fn sync_pages(&mut self) -> Result<(), Error> {
        self.sync()
    }
}

impl Flash for NandChip {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, Error> {
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
                    Err(error @ Error::Uncorrectable { .. }) => failed = failed.and(Err(error)),
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

    fn read_oob(&self, offset: u64, mode: OobMode, buffer: &mut [u8]) -> Result<Corrected, Error> {
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

    /// By the marker of the first page.
    fn is_bad(&self, block: u32) -> Result<bool, Error> {
        self.geometry.check_block(block)?;
        let page = u64::from(block) * u64::from(self.profile.pages_per_block);
        let mut marker = [0];
        self.sense(page, self.marker_column(), &mut marker)?;
        Ok(marker[0].count_ones() < 5)
    }
}

impl FlashMut for NandChip {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.geometry.check(offset, data.len())?;
        let unit = u64::from(self.geometry.sub_page_size);
        if !offset.is_multiple_of(unit) || !(data.len() as u64).is_multiple_of(unit) {
            return Err(Error::Misaligned);
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

    fn program_oob(&mut self, offset: u64, mode: OobMode, data: &[u8]) -> Result<(), Error> {
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

    fn erase(&mut self, block: u32) -> Result<(), Error> {
        self.geometry.check_block(block)?;
        if self.is_bad(block)? {
            return Err(Error::BadBlock { block });
        }
        self.erase_cells(block)
    }

    /// Clears the marker of the first page.
    fn mark_bad(&mut self, block: u32) -> Result<(), Error> {
        self.geometry.check_block(block)?;
        let page = u64::from(block) * u64::from(self.profile.pages_per_block);
        self.program_page(page, self.marker_column(), &[0])
    }

    #[cfg(feature = "std")]
    fn sync(&mut self) -> Result<(), Error> {
        self.file.as_ref().map_or(Ok(()), super::file::Backing::sync)
    }
}

impl NandChip {
    /// The chip's memory of `block` is its own: no other world shares it. For tests of how worlds
    /// are forked.
    pub fn is_alone(&self, block: u32) -> bool {
        self.blocks.get(block as usize).is_some_and(|block| Arc::strong_count(block) == 1)
    }
}
