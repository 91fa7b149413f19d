//! NAND flash chips.
//!
//! [`NandChip`] behaves as the cells do: programming only clears bits, erasing takes a whole block,
//! pages have an order and a limited number of programs, cells wear out, lose charge and disturb
//! each other, and an interrupted operation leaves what [`Tear`] describes. Use against the rules
//! has the effect it has on a real chip, and is recorded as a [`Violation`].
//!
//! It implements [`api::flash::Pages`](flysch_api::flash::Pages) without error correction, and
//! [`api::flash::Flash`](flysch_api::flash::Flash): with the error correction on the die if
//! [`Config::corrects`] is set, otherwise without any.
//!
//! The chip keeps its own time: every call adds its duration to [`NandChip::busy_ns`], where the
//! owner of a clock can read it; [`NandChip::wait`] lets time pass, for cells that lose charge.

mod block;
mod bus;
#[cfg(feature = "std")]
mod file;
mod physics;
mod profile;

#[cfg(feature = "std")]
pub use file::FileError;
pub use profile::{EccNeed, PROFILES, Pairing, Profile, Timing};

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use flysch_api::flash::{FlashError, FlashGeometry};

use self::block::{Block, Shape};
use self::physics::History;
use crate::flash::{Act, Aftermath, Operation, Power, Tear, Tearing, Violation, Violations};
use crate::number::Number;
use crate::random::Random;

/// The configuration of a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Decides bad blocks, bit errors, lifetimes and the results of cuts.
    pub seed: u64,
    /// Number of blocks that are bad from the start; never block 0, which manufacturers guarantee.
    pub factory_bad: u32,
    /// Whether cells wear out, lose charge and disturb each other.
    pub wears: bool,
    /// Whether the die corrects errors itself, as strongly as its profile demands.
    pub corrects: bool,
    /// Number of reads of a block since its erase that harm it as much as all its erases, on a chip
    /// that wears; 0: as many as its cells withstand. A small number makes reads disturb soon.
    pub disturbing_reads: u32,
    /// How the cells of an interrupted operation behave afterwards.
    pub aftermath: Aftermath,
}

impl Default for Config {
    /// A chip that wears, without bad blocks and without error correction of its own.
    fn default() -> Self {
        Self {
            seed: 1,
            factory_bad: 0,
            wears: true,
            corrects: false,
            disturbing_reads: 0,
            aftermath: Aftermath::default(),
        }
    }
}

/// Operations on a chip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages read, whole or in part.
    pub reads: u64,
    /// Programs begun.
    pub programs: u64,
    /// Erases begun.
    pub erases: u64,
}

/// A NAND chip.
#[derive(Debug)]
pub struct NandChip {
    profile: Profile,
    config: Config,
    geometry: FlashGeometry,
    blocks: Vec<Arc<Block>>,
    /// Reads of each block since its erase.
    reads: Vec<AtomicU32>,
    power: Power,
    random: Random,
    busy_ns: Number,
    waited_ns: u64,
    page_reads: Number,
    counts: Counts,
    violations: Violations,
    #[cfg(feature = "std")]
    file: Option<file::Backing>,
}

impl Clone for NandChip {
    /// A second world, at the cost of one reference count per block. It is only in memory, even if
    /// this one is stored in a file.
    fn clone(&self) -> Self {
        let reads = self.reads.iter().map(|n| AtomicU32::new(n.load(Ordering::Relaxed)));
        Self {
            profile: self.profile.clone(),
            config: self.config,
            geometry: self.geometry,
            blocks: self.blocks.clone(),
            reads: reads.collect(),
            power: self.power.clone(),
            random: self.random.clone(),
            busy_ns: self.busy_ns.clone(),
            waited_ns: self.waited_ns,
            page_reads: self.page_reads.clone(),
            counts: self.counts,
            violations: self.violations.clone(),
            #[cfg(feature = "std")]
            file: None,
        }
    }
}

/// Adds to a counter. A chip has one bus, so there is no concurrent access; if there were, only a
/// count would be lost.
fn add(count: &Number, more: u64) -> u64 {
    let before = count.get();
    count.set(before.wrapping_add(more));
    before
}

impl NandChip {
    /// A chip as it leaves the factory.
    pub fn new(profile: Profile, config: Config) -> Self {
        let mut geometry = profile.geometry();
        if config.corrects {
            geometry.ecc_strength = profile.ecc.strength;
            geometry.bitflip_threshold = (3 * profile.ecc.strength).div_ceil(4);
        }
        let count = profile.blocks as usize;
        let mut chip = Self {
            blocks: vec![Arc::default(); count],
            reads: (0..count).map(|_| AtomicU32::new(0)).collect(),
            power: Power::default(),
            random: Random::new(config.seed),
            busy_ns: Number::default(),
            waited_ns: 0,
            page_reads: Number::default(),
            counts: Counts::default(),
            violations: Violations::default(),
            #[cfg(feature = "std")]
            file: None,
            profile,
            config,
            geometry,
        };
        chip.make_bad_blocks();
        chip
    }

    fn make_bad_blocks(&mut self) {
        let blocks = self.profile.blocks;
        let wanted = self.config.factory_bad.min(blocks.saturating_sub(1));
        let (shape, column) = (self.shape(), self.marker_column());
        let mut made = 0;
        while made < wanted {
            let number = 1 + self.random.below(u64::from(blocks) - 1) as usize;
            let block = Arc::make_mut(&mut self.blocks[number]);
            if !block.is_factory_bad {
                block.is_factory_bad = true;
                block.load(shape, 0, column, &[0]);
                made += 1;
            }
        }
    }

    /// Its profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Its configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Its power supply, with the number of operations so far.
    pub fn power(&self) -> &Power {
        &self.power
    }

    /// Its power supply, to plan cuts and failures and to switch it on again.
    pub fn power_mut(&mut self) -> &mut Power {
        &mut self.power
    }

    /// Sets another seed from now on: the results of power cuts, the unstable and weak cells and
    /// the lifetimes of blocks change.
    pub fn reseed(&mut self, seed: u64) {
        self.config.seed = seed;
        self.random = Random::new(seed);
    }

    /// Total time of its operations, nanoseconds.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns.get()
    }

    /// Lets time pass without operations.
    pub fn wait(&mut self, ns: u64) {
        self.waited_ns = self.waited_ns.saturating_add(ns);
    }

    /// Operations so far.
    pub fn counts(&self) -> Counts {
        Counts { reads: self.page_reads.get(), ..self.counts }
    }

    /// Number of erases of block `block` so far; 0 if it does not exist.
    pub fn erase_count(&self, block: u32) -> u32 {
        self.blocks.get(block as usize).map_or(0, |block| block.erases)
    }

    /// Whether an operation was interrupted or failed in block `block` since its last complete
    /// erase.
    pub fn is_torn(&self, block: u32) -> bool {
        self.blocks.get(block as usize).is_some_and(|block| block.is_torn())
    }

    /// Ages block `block` as `erases` erases would.
    pub fn wear_out(&mut self, block: u32, erases: u32) {
        if let Some(block) = self.blocks.get_mut(block as usize) {
            let block = Arc::make_mut(block);
            block.erases = block.erases.saturating_add(erases);
        }
    }

    /// The first violations of its rules.
    pub fn violations(&self) -> &[Violation] {
        self.violations.as_slice()
    }

    /// The content of its cells, without bit errors: an image with or without out-of-band bytes.
    pub fn image(&self, with_oob: bool) -> Vec<u8> {
        let shape = self.shape();
        let len = if with_oob { shape.stride } else { self.profile.page_size as usize };
        let pages = self.blocks.len() * shape.pages as usize;
        let mut bytes = Vec::with_capacity(pages * len);
        for block in &self.blocks {
            for page in 0..shape.pages {
                match block.page(page) {
                    Some(cells) => bytes.extend_from_slice(&cells[..len]),
                    None => bytes.resize(bytes.len() + len, 0xFF),
                }
            }
        }
        bytes
    }

    /// Loads an image into its cells, as a programmer in the factory would; bytes of 0xFF stay
    /// erased, and bad blocks stay bad.
    ///
    /// # Errors
    /// [`FlashError::OutOfRange`] if it is longer than the chip.
    pub fn load(&mut self, image: &[u8], with_oob: bool) -> Result<(), FlashError> {
        let shape = self.shape();
        let len = if with_oob { shape.stride } else { self.profile.page_size as usize };
        let per_block = len * shape.pages as usize;
        if image.len().div_ceil(per_block) > self.blocks.len() {
            return Err(FlashError::OutOfRange);
        }
        for (block, bytes) in self.blocks.iter_mut().zip(image.chunks(per_block)) {
            if block.is_factory_bad {
                continue;
            }
            let block = Arc::make_mut(block);
            for (page, bytes) in (0..).zip(bytes.chunks(len)) {
                block.load(shape, page, 0, bytes);
            }
        }
        Ok(())
    }

    fn shape(&self) -> Shape {
        Shape {
            stride: (self.profile.page_size + self.profile.oob_size) as usize,
            pages: self.profile.pages_per_block,
        }
    }

    fn marker_column(&self) -> usize {
        (self.profile.page_size + self.profile.marker()) as usize
    }

    /// Time of the chip's life.
    fn now(&self) -> u64 {
        self.busy_ns().saturating_add(self.waited_ns)
    }

    fn take_time(&self, ns: u64) {
        add(&self.busy_ns, ns);
    }

    /// The block of page number `page`, and the page within it.
    fn place(&self, page: u64) -> Result<(usize, u32), FlashError> {
        let per_block = u64::from(self.profile.pages_per_block);
        let block = usize::try_from(page / per_block).map_err(|_| FlashError::OutOfRange)?;
        if block >= self.blocks.len() {
            return Err(FlashError::OutOfRange);
        }
        Ok((block, (page % per_block) as u32))
    }

    /// A number for one life of a page, which decides which of its cells are weak.
    fn life(&self, block: usize, page: u32, erases: u32) -> u64 {
        let place = (block as u64) << 32 | u64::from(page);
        self.config.seed ^ place.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (u64::from(erases) << 24)
    }

    fn history(&self, number: usize) -> History {
        let block = &self.blocks[number];
        let age_ns = match block.has_cells() {
            true => self.now().saturating_sub(block.programmed_at),
            false => 0,
        };
        let reads = self.reads[number].load(Ordering::Relaxed);
        History { erases: block.erases, reads, age_ns }
    }

    /// Records in what way programming `bytes` at `column` of a page violates the rules.
    fn judge(&mut self, number: u64, column: usize, bytes: &[u8]) {
        let Ok((block, page)) = self.place(number) else { return };
        let cells = &self.blocks[block];
        let is_marker = bytes == [0] && column == self.marker_column();
        if is_marker {
            return;
        }
        if cells.is_factory_bad {
            self.violations.add(Violation::FactoryBad { block: block as u32 });
        }
        if self.profile.is_sequential && page + 1 < cells.next_page {
            self.violations.add(Violation::OutOfOrder { page: number });
        }
        if cells.programs(page) >= self.profile.programs_per_page {
            self.violations.add(Violation::TooManyPrograms { page: number });
        }
        let old = cells.page(page).map(|cells| &cells[column..column + bytes.len()]);
        // Without an early exit, so that the compiler makes few comparisons of it.
        let rises = |old: &[u8]| {
            let pairs = old.iter().zip(bytes);
            pairs.fold(0, |all, (old, new)| all | if *new == 0xFF { 0 } else { new & !old }) != 0
        };
        if old.is_some_and(rises) {
            let offset = number * u64::from(self.profile.page_size) + column as u64;
            self.violations.add(Violation::NotErased { offset });
        }
    }

    /// Number of erases that a block still withstands; 0 if it is worn out.
    fn life_left(&self, number: usize) -> u32 {
        if !self.config.wears {
            return u32::MAX;
        }
        let seed = self.life(number, u32::MAX, 0);
        physics::lifetime(&self.profile, seed).saturating_sub(self.blocks[number].erases)
    }

    /// Whether a program fails: occasionally in the last hundredth of a block's life.
    fn program_fails(&mut self, number: usize) -> bool {
        self.life_left(number) <= self.profile.endurance / 100
            && self.random.chance(physics::PROGRAM_FAILURES)
    }

    /// The result if `operation`, the last one begun, is torn or fails.
    fn cut(&self, place: usize, operation: Operation, act: Act) -> Tearing {
        let how = match (operation, act) {
            (Operation::Torn(how), _) => how,
            (_, Act::Program) => Tear::Half,
            (_, Act::Erase) => Tear::Early,
        };
        let torn = matches!(operation, Operation::Torn(_));
        let aftermath =
            Aftermath { fades: torn && self.config.aftermath.fades, ..self.config.aftermath };
        let reads = self.reads[place].load(Ordering::Relaxed);
        Tearing::new((self.config.seed, self.power.operations()), (how, act), aftermath, reads)
    }

    fn program_cells(
        &mut self,
        number: u64,
        column: usize,
        bytes: &[u8],
    ) -> Result<(), FlashError> {
        let (place, page) = self.place(number)?;
        let shape = self.shape();
        if column.checked_add(bytes.len()).is_none_or(|end| end > shape.stride) {
            return Err(FlashError::OutOfRange);
        }
        let mut operation = self.power.begin()?;
        if operation == Operation::Done && self.program_fails(place) {
            operation = Operation::Fails;
        }
        let mut cut = self.cut(place, operation, Act::Program);
        self.judge(number, column, bytes);
        self.counts.programs += 1;
        let lower = self.profile.pairing.lower_of(page, shape.pages);
        let timing = &self.profile.timing;
        let program_ns = if lower.is_some() { timing.program_upper_ns } else { timing.program_ns };
        self.take_time(program_ns + timing.cycle_ns * (bus::CYCLES + bytes.len() as u64));
        let now = self.now();
        let block = Arc::make_mut(&mut self.blocks[place]);
        if !block.has_cells() {
            block.programmed_at = now;
        }
        let failed = FlashError::ProgramFailed {
            offset: number * u64::from(self.profile.page_size)
                + (column as u64).min(u64::from(self.profile.page_size) - 1),
        };
        let result = match operation {
            Operation::Done => {
                block.program(shape, page, column, bytes);
                Ok(())
            }
            Operation::Fails => {
                block.program_torn(shape, (page, column), bytes, &mut cut);
                Err(failed)
            }
            Operation::Torn(_) => {
                block.program_torn(shape, (page, column), bytes, &mut cut);
                if let Some(lower) = lower {
                    block.shake(shape, lower, &mut cut);
                }
                Err(FlashError::PowerLost)
            }
        };
        self.keep(place, page)?;
        result
    }

    fn erase_cells(&mut self, number: u32) -> Result<(), FlashError> {
        let place = number as usize;
        if place >= self.blocks.len() {
            return Err(FlashError::OutOfRange);
        }
        let operation = self.power.begin()?;
        let mut cut = self.cut(place, operation, Act::Erase);
        self.counts.erases += 1;
        self.take_time(self.profile.timing.erase_ns + self.profile.timing.cycle_ns * bus::CYCLES);
        if self.blocks[place].is_factory_bad {
            self.violations.add(Violation::FactoryBad { block: number });
            return Err(FlashError::EraseFailed { block: number });
        }
        let is_worn = self.life_left(place) == 0;
        let shape = self.shape();
        let block = &mut self.blocks[place];
        let result = match operation {
            Operation::Done if !is_worn => {
                *block = Arc::new(block.erased());
                self.reads[place].store(0, Ordering::Relaxed);
                Ok(())
            }
            Operation::Done | Operation::Fails => {
                Arc::make_mut(block).erase_torn(shape, &mut cut);
                Err(FlashError::EraseFailed { block: number })
            }
            Operation::Torn(_) => {
                Arc::make_mut(block).erase_torn(shape, &mut cut);
                Err(FlashError::PowerLost)
            }
        };
        (0..shape.pages).try_for_each(|page| self.keep(place, page))?;
        result
    }

    /// Writes a page through to the file, if there is one.
    #[cfg(feature = "std")]
    fn keep(&self, place: usize, page: u32) -> Result<(), FlashError> {
        match &self.file {
            Some(file) => file.keep(&self.blocks[place], self.shape(), (place, page)),
            None => Ok(()),
        }
    }

    #[cfg(not(feature = "std"))]
    fn keep(&self, _place: usize, _page: u32) -> Result<(), FlashError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
