//! NOR flash chips.
//!
//! Bytes are programmed one by one, up to a write buffer at once, and again to clear more bits; a
//! block is erased whole, after the chip has programmed all of it to zero, from the end backwards.
//! An interrupted program ends at some byte of the buffer, which may have any value; an interrupted
//! erase leaves zeros, a mixture, or a block that looks erased.

mod profile;

pub use profile::{PROFILES, Profile, Timing};

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use flysch_api::flash::{Corrected, Flash, FlashError, FlashGeometry, FlashMut};

use crate::flash::{
    Act, Aftermath, Operation, Power, Tear, Tearing, Torn, Violation, Violations, tear,
};
use crate::number::Number;
use crate::random::Random;

/// An erase block.
#[derive(Clone, Debug, Default)]
struct Block {
    /// Empty if nothing is programmed.
    cells: Vec<u8>,
    /// A 1 for every cell that reads differently each time; empty if there is none.
    unstable: Vec<u8>,
    /// Number of reads of the chip from which on they are unstable.
    shows_from: u32,
    erases: u32,
}

impl Block {
    fn make_cells(&mut self, len: usize) {
        if self.cells.is_empty() {
            self.cells = vec![0xFF; len];
        }
    }

    fn program(&mut self, at: usize, bytes: &[u8]) {
        let range = at..at + bytes.len();
        if let Some(unstable) = self.unstable.get_mut(range.clone()) {
            unstable.iter_mut().zip(bytes).for_each(|(cell, byte)| *cell &= byte);
        }
        self.cells[range].iter_mut().zip(bytes).for_each(|(cell, byte)| *cell &= byte);
    }

    /// Programs the bytes up to some place, and the one there by half.
    fn program_torn(&mut self, at: usize, bytes: &[u8], cut: &mut Tearing) {
        let len = bytes.len() as u64;
        if cut.looks_done() {
            let range = at..at + bytes.len();
            let old = self.cells[range.clone()].to_vec();
            let new: Vec<u8> = old.iter().zip(bytes).map(|(old, new)| old & new).collect();
            return self.take(range, &cut.tear(&old, &new));
        }
        let done = match cut.how {
            Tear::Before => return,
            Tear::After => return self.program(at, bytes),
            Tear::Early => 0,
            Tear::Half => cut.random.below(len),
            Tear::Late => len - 1,
        } as usize;
        self.program(at, &bytes[..done]);
        let place = at + done;
        let old = [self.cells[place]];
        let new = [old[0] & bytes[done]];
        self.take(place..place + 1, &tear(&mut cut.random, &old, &new, Tear::Half));
    }

    /// Records that cells are torn.
    fn take(&mut self, range: Range<usize>, torn: &Torn) {
        self.cells[range.clone()].copy_from_slice(&torn.cells);
        self.make_unstable();
        self.unstable[range].iter_mut().zip(&torn.unstable).for_each(|(old, new)| *old |= new);
        self.shows_from = torn.shows_from;
    }

    fn make_unstable(&mut self) {
        if self.unstable.is_empty() {
            self.unstable = vec![0; self.cells.len()];
        }
    }

    /// The block after all bits have been set.
    #[must_use]
    fn erased(&self) -> Self {
        Self { erases: self.erases.saturating_add(1), ..Self::default() }
    }

    fn erase_torn(&mut self, len: usize, cut: &mut Tearing) {
        match cut.how {
            Tear::Before => return,
            Tear::After => return *self = self.erased(),
            Tear::Early | Tear::Half | Tear::Late => self.erases = self.erases.saturating_add(1),
        }
        self.make_cells(len);
        self.make_unstable();
        if cut.how == Tear::Early {
            let start = cut.random.below(len as u64) as usize;
            self.cells[start..].fill(0);
            self.unstable[start..].fill(0);
            return;
        }
        let torn = cut.tear(&vec![0; len], &vec![0xFF; len]);
        (self.cells, self.unstable, self.shows_from) = (torn.cells, torn.unstable, torn.shows_from);
    }
}

/// A NOR chip.
#[derive(Debug)]
pub struct NorChip {
    profile: Profile,
    geometry: FlashGeometry,
    blocks: Vec<Arc<Block>>,
    seed: u64,
    aftermath: Aftermath,
    power: Power,
    busy_ns: Number,
    reads: Number,
    violations: Violations,
}

impl Clone for NorChip {
    /// A second world, at the cost of one reference count per block.
    fn clone(&self) -> Self {
        Self {
            profile: self.profile.clone(),
            geometry: self.geometry,
            blocks: self.blocks.clone(),
            seed: self.seed,
            aftermath: self.aftermath,
            power: self.power.clone(),
            busy_ns: self.busy_ns.clone(),
            reads: self.reads.clone(),
            violations: self.violations.clone(),
        }
    }
}

impl NorChip {
    /// A chip as it leaves the factory; `seed` decides the results of cuts and the lifetimes of
    /// blocks.
    pub fn new(profile: Profile, seed: u64) -> Self {
        Self {
            geometry: profile.geometry(),
            blocks: vec![Arc::default(); profile.blocks as usize],
            seed,
            aftermath: Aftermath::default(),
            power: Power::default(),
            busy_ns: Number::default(),
            reads: Number::default(),
            violations: Violations::default(),
            profile,
        }
    }

    /// How torn cells behave once power is back.
    pub fn aftermath(&self) -> Aftermath {
        self.aftermath
    }

    /// The same chip with this behaviour of torn cells.
    #[must_use]
    pub fn with_aftermath(mut self, aftermath: Aftermath) -> Self {
        self.aftermath = aftermath;
        self
    }

    /// Its profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Its power supply, with the number of operations so far.
    pub fn power(&self) -> &Power {
        &self.power
    }

    /// Its power supply, to plan cuts and failures and to switch it on again.
    pub fn power_mut(&mut self) -> &mut Power {
        &mut self.power
    }

    /// Sets another seed from now on: the results of power cuts, the unstable cells and the
    /// lifetimes of blocks change.
    pub fn reseed(&mut self, seed: u64) {
        self.seed = seed;
    }

    /// Total time of its operations, nanoseconds.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns.get()
    }

    /// Number of erases of block `block` so far; 0 if it does not exist.
    pub fn erase_count(&self, block: u32) -> u32 {
        self.blocks.get(block as usize).map_or(0, |block| block.erases)
    }

    /// Whether an operation was interrupted or failed in block `block` since its last complete
    /// erase.
    pub fn is_torn(&self, block: u32) -> bool {
        self.blocks.get(block as usize).is_some_and(|block| !block.unstable.is_empty())
    }

    /// Ages block `block` as `erases` erases would.
    pub fn wear_out(&mut self, block: u32, erases: u32) {
        if let Some(block) = self.blocks.get_mut(block as usize) {
            let block = Arc::make_mut(block);
            block.erases = block.erases.saturating_add(erases);
        }
    }

    /// The first violations of its rules: cells that should have become 1 without an erase.
    pub fn violations(&self) -> &[Violation] {
        self.violations.as_slice()
    }

    /// The content of its cells.
    pub fn image(&self) -> Vec<u8> {
        let len = self.profile.block_size as usize;
        let mut bytes = Vec::with_capacity(self.blocks.len() * len);
        for block in &self.blocks {
            match block.cells.is_empty() {
                true => bytes.resize(bytes.len() + len, 0xFF),
                false => bytes.extend_from_slice(&block.cells),
            }
        }
        bytes
    }

    /// Loads an image into its cells, as a programmer in the factory would.
    ///
    /// # Errors
    /// [`FlashError::OutOfRange`] if it is longer than the chip.
    pub fn load(&mut self, image: &[u8]) -> Result<(), FlashError> {
        self.geometry.check(0, image.len())?;
        let len = self.profile.block_size as usize;
        for (block, bytes) in self.blocks.iter_mut().zip(image.chunks(len)) {
            let block = Arc::make_mut(block);
            block.make_cells(len);
            block.cells[..bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn take_time(&self, ns: u64) {
        self.busy_ns.add(ns);
    }

    /// The block of byte `offset`, and the offset within it.
    fn place(&self, offset: u64) -> (usize, usize) {
        let len = u64::from(self.profile.block_size);
        ((offset / len) as usize, (offset % len) as usize)
    }

    /// The limit is between the guaranteed number of erases and twice that.
    fn is_worn(&self, place: usize) -> bool {
        let endurance = u64::from(self.profile.endurance);
        let life = endurance + Random::new(self.seed ^ place as u64).below(endurance + 1);
        u64::from(self.blocks[place].erases) >= life
    }

    /// The result if `operation`, the last one begun, is torn or fails.
    fn cut(&self, operation: Operation, act: Act) -> Tearing {
        let (how, aftermath) = match operation {
            Operation::Torn(how) => (how, self.aftermath),
            _ => (Tear::Half, Aftermath { fades: false, ..self.aftermath }),
        };
        let reads = u32::try_from(self.reads.get()).unwrap_or(u32::MAX);
        Tearing::new((self.seed, self.power.operations()), (how, act), aftermath, reads)
    }

    /// One operation: bytes of one write buffer.
    fn program_buffer(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlashError> {
        let operation = self.power.begin()?;
        let mut cut = self.cut(operation, Act::Program);
        self.take_time(self.profile.timing.program_ns);
        let (place, at) = self.place(offset);
        let block = Arc::make_mut(&mut self.blocks[place]);
        block.make_cells(self.profile.block_size as usize);
        let old = &block.cells[at..at + bytes.len()];
        if old.iter().zip(bytes).any(|(old, new)| *new != 0xFF && old & new != *new) {
            self.violations.add(Violation::NotErased { offset });
        }
        match operation {
            Operation::Done => {
                block.program(at, bytes);
                Ok(())
            }
            Operation::Fails => {
                block.program_torn(at, bytes, &mut cut);
                Err(FlashError::ProgramFailed { offset })
            }
            Operation::Torn(_) => {
                block.program_torn(at, bytes, &mut cut);
                Err(FlashError::PowerLost)
            }
        }
    }
}

impl Flash for NorChip {
    fn geometry(&self) -> &FlashGeometry {
        &self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.geometry.check(offset, buffer.len())?;
        self.power.check()?;
        let timing = &self.profile.timing;
        self.take_time(timing.access_ns + timing.byte_ns * buffer.len() as u64);
        let count = self.reads.add(1);
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let (place, inside) = self.place(at);
            let len = rest.len().min(self.profile.block_size as usize - inside);
            let (now, later) = rest.split_at_mut(len);
            let block = &self.blocks[place];
            match block.cells.get(inside..inside + len) {
                Some(cells) => now.copy_from_slice(cells),
                None => now.fill(0xFF),
            }
            let shown = self.aftermath.unstable && count >= u64::from(block.shows_from);
            if let Some(unstable) = block.unstable.get(inside..inside + len).filter(|_| shown) {
                let mut noise = Random::new(self.seed ^ count.rotate_left(32));
                for (byte, unstable) in now.iter_mut().zip(unstable).filter(|pair| *pair.1 != 0) {
                    *byte ^= unstable & noise.bits() as u8;
                }
            }
            at += len as u64;
            rest = later;
        }
        Ok(Corrected::NONE)
    }
}

impl FlashMut for NorChip {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.geometry.check(offset, data.len())?;
        let buffer = u64::from(self.profile.buffer_size);
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let room = (buffer - at % buffer) as usize;
            let (now, later) = rest.split_at(rest.len().min(room));
            self.program_buffer(at, now)?;
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        self.geometry.check_block(block)?;
        let operation = self.power.begin()?;
        let mut cut = self.cut(operation, Act::Erase);
        self.take_time(self.profile.timing.erase_ns);
        let place = block as usize;
        let len = self.profile.block_size as usize;
        let is_worn = self.is_worn(place);
        let cells = &mut self.blocks[place];
        match operation {
            Operation::Done if !is_worn => {
                *cells = Arc::new(cells.erased());
                Ok(())
            }
            Operation::Done | Operation::Fails => {
                Arc::make_mut(cells).erase_torn(len, &mut cut);
                Err(FlashError::EraseFailed { block })
            }
            Operation::Torn(_) => {
                Arc::make_mut(cells).erase_torn(len, &mut cut);
                Err(FlashError::PowerLost)
            }
        }
    }
}

#[cfg(test)]
mod tests;
