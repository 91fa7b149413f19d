//! The chips that are cut: a model, with or without error correction in software above it.

use flysch_api::flash::{Corrected, Flash, FlashError, FlashGeometry, FlashMut, OobMode};
use flysch_models::flash::{Power, Violation};
use flysch_models::nand::NandChip;
use flysch_models::nor::NorChip;
use flysch_mtd::Nand;

/// A chip model whose power can be cut.
#[derive(Clone, Debug)]
pub enum Chip {
    /// NAND that corrects errors itself.
    Nand(NandChip),
    /// NAND with error correction in software.
    Corrected(Box<Nand<NandChip>>),
    /// NOR.
    Nor(NorChip),
}

macro_rules! each {
    ($self:ident, $chip:ident => $does:expr) => {
        match $self {
            Self::Nand($chip) => $does,
            Self::Corrected($chip) => $does,
            Self::Nor($chip) => $does,
        }
    };
}

impl Chip {
    /// The NAND chip in it.
    fn cells(&self) -> Option<&NandChip> {
        match self {
            Self::Nand(chip) => Some(chip),
            Self::Corrected(nand) => Some(nand.pages()),
            Self::Nor(_) => None,
        }
    }

    fn cells_mut(&mut self) -> Option<&mut NandChip> {
        match self {
            Self::Nand(chip) => Some(chip),
            Self::Corrected(nand) => Some(nand.pages_mut()),
            Self::Nor(_) => None,
        }
    }

    /// Its power supply.
    pub fn power(&self) -> &Power {
        match self {
            Self::Nor(chip) => chip.power(),
            Self::Nand(chip) => chip.power(),
            Self::Corrected(nand) => nand.pages().power(),
        }
    }

    /// Its power supply, to be cut.
    pub fn power_mut(&mut self) -> &mut Power {
        match self {
            Self::Nor(chip) => chip.power_mut(),
            Self::Nand(chip) => chip.power_mut(),
            Self::Corrected(nand) => nand.pages_mut().power_mut(),
        }
    }

    /// The chip's rules that were violated.
    pub fn violations(&self) -> &[Violation] {
        match (self, self.cells()) {
            (Self::Nor(chip), _) => chip.violations(),
            (_, cells) => cells.map_or(&[], NandChip::violations),
        }
    }

    /// Whether an operation was cut in block `block` since its last complete erase.
    pub fn is_torn(&self, block: u32) -> bool {
        match (self, self.cells()) {
            (Self::Nor(chip), _) => chip.is_torn(block),
            (_, cells) => cells.is_some_and(|chip| chip.is_torn(block)),
        }
    }

    /// Lets time pass in which charge leaks from the cells; no effect on NOR, which does not age
    /// this way.
    pub fn wait(&mut self, ns: u64) {
        if let Some(cells) = self.cells_mut() {
            cells.wait(ns);
        }
    }

    /// Ages every block as `erases` erases would.
    pub fn wear_out(&mut self, erases: u32) {
        for block in 0..self.geometry().blocks() {
            if let Some(cells) = self.cells_mut() {
                cells.wear_out(block, erases);
            }
        }
    }

    /// Maximum number of bytes that one operation programs, never across a multiple of it.
    pub fn program_size(&self) -> u32 {
        match self {
            Self::Nor(chip) => chip.profile().buffer_size,
            Self::Nand(_) | Self::Corrected(_) => self.geometry().write_size,
        }
    }

    /// Number of programs and erases so far.
    pub fn operations(&self) -> u64 {
        self.power().operations()
    }
}

impl Flash for Chip {
    fn geometry(&self) -> &FlashGeometry {
        each!(self, chip => chip.geometry())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        each!(self, chip => chip.read(offset, buffer))
    }

    fn read_oob(
        &self,
        offset: u64,
        mode: OobMode,
        buffer: &mut [u8],
    ) -> Result<Corrected, FlashError> {
        each!(self, chip => chip.read_oob(offset, mode, buffer))
    }

    fn is_bad(&self, block: u32) -> Result<bool, FlashError> {
        each!(self, chip => chip.is_bad(block))
    }
}

impl FlashMut for Chip {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        each!(self, chip => chip.program(offset, data))
    }

    fn program_oob(&mut self, offset: u64, mode: OobMode, data: &[u8]) -> Result<(), FlashError> {
        each!(self, chip => chip.program_oob(offset, mode, data))
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        each!(self, chip => chip.erase(block))
    }

    fn mark_bad(&mut self, block: u32) -> Result<(), FlashError> {
        each!(self, chip => chip.mark_bad(block))
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        each!(self, chip => chip.sync())
    }
}
