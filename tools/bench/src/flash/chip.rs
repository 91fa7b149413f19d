//! The chips below a stack, and the flash that MTD makes of them.

use std::rc::Rc;

use flysch_api::flash::{Corrected, Flash, FlashError, FlashGeometry, FlashMut, OobMode};
use flysch_models::nand::NandChip;
use flysch_models::nor::NorChip;
use flysch_mtd::Nand;

use super::buffer::PageBuffer;
use super::meter::{Meter, MeteredChip};

/// A chip, whose clones are worlds of their own.
#[derive(Clone, Debug)]
pub enum Chip {
    /// Pages, blocks, error correction in software.
    Nand(NandChip),
    /// Bytes and blocks.
    Nor(NorChip),
}

/// A NOR chip whose time and operations are counted.
#[derive(Debug)]
pub struct MeteredNor {
    chip: NorChip,
    meter: Rc<Meter>,
}

impl MeteredNor {
    /// Counts what `chip` does.
    pub fn new(chip: NorChip, meter: &Rc<Meter>) -> Self {
        Self { chip, meter: Rc::clone(meter) }
    }

    fn change<T>(&mut self, operation: impl FnOnce(&mut NorChip) -> T) -> (T, u64) {
        let Self { chip, meter } = self;
        let before = chip.busy_ns();
        let result = meter.at_the_chip(|| operation(chip));
        (result, chip.busy_ns() - before)
    }
}

impl Flash for MeteredNor {
    fn geometry(&self) -> &FlashGeometry {
        self.chip.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        let before = self.chip.busy_ns();
        let result = self.meter.at_the_chip(|| self.chip.read(offset, buffer));
        self.meter.count(self.chip.busy_ns() - before, |operations| operations.reads += 1);
        result
    }
}

impl FlashMut for MeteredNor {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        let (result, took) = self.change(|chip| chip.program(offset, data));
        let buffers = took / self.chip.profile().timing.program_ns;
        self.meter.count(took, |operations| operations.programs += buffers);
        result
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        let (result, took) = self.change(|chip| chip.erase(block));
        self.meter.count(took, |operations| operations.erases += 1);
        result
    }
}

/// What MTD makes of a chip.
#[derive(Debug)]
pub enum ChipFlash {
    /// NAND with error correction.
    Nand(Box<PageBuffer<Nand<MeteredChip>>>),
    /// NOR without further layers.
    Nor(Box<MeteredNor>),
}

impl ChipFlash {
    /// A copy of the chip.
    pub fn chip(&self) -> Chip {
        match self {
            Self::Nand(flash) => Chip::Nand(flash.flash().pages().chip().clone()),
            Self::Nor(flash) => Chip::Nor(flash.chip.clone()),
        }
    }

    fn flash(&self) -> &dyn Flash {
        match self {
            Self::Nand(flash) => &**flash,
            Self::Nor(flash) => &**flash,
        }
    }

    fn flash_mut(&mut self) -> &mut dyn FlashMut {
        match self {
            Self::Nand(flash) => &mut **flash,
            Self::Nor(flash) => &mut **flash,
        }
    }
}

impl Flash for ChipFlash {
    fn geometry(&self) -> &FlashGeometry {
        self.flash().geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.flash().read(offset, buffer)
    }

    fn read_oob(
        &self,
        offset: u64,
        mode: OobMode,
        buffer: &mut [u8],
    ) -> Result<Corrected, FlashError> {
        self.flash().read_oob(offset, mode, buffer)
    }

    fn is_bad(&self, block: u32) -> Result<bool, FlashError> {
        self.flash().is_bad(block)
    }
}

impl FlashMut for ChipFlash {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.flash_mut().program(offset, data)
    }

    fn program_oob(&mut self, offset: u64, mode: OobMode, data: &[u8]) -> Result<(), FlashError> {
        self.flash_mut().program_oob(offset, mode, data)
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        self.flash_mut().erase(block)
    }

    fn mark_bad(&mut self, block: u32) -> Result<(), FlashError> {
        self.flash_mut().mark_bad(block)
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        self.flash_mut().sync()
    }
}
