//! A flash in memory that enforces the rules, fails where requested, and loses power.

use core::ops::Range;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

use flysch_api::flash::{Corrected, Flash, FlashError, FlashGeometry, FlashMut, Kind};

/// Linux's number for what a device cannot read.
pub(super) const EIO: i32 = 5;

/// How a cut leaves the operation that it hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Not started.
    Before,
    /// Half done; the rest of what was touched last is noise.
    Torn,
    /// Done, but not reported.
    After,
}

/// A page that reads differently each time.
#[derive(Clone)]
pub(super) struct Shaky {
    pub(super) start: u64,
    /// Number of reads so far.
    pub(super) looks: Cell<u32>,
    /// Whether it reads correctly that time.
    pub(super) is_good: fn(u32) -> bool,
}

#[derive(Clone)]
pub(super) struct Ram {
    geometry: FlashGeometry,
    pub(super) bytes: Vec<u8>,
    /// Sub-pages programmed since the erase (NAND).
    programmed: Vec<bool>,
    bad: BTreeSet<u32>,
    /// Erases that each block survives; after that, erasing it fails.
    pub(super) endurance: Vec<u32>,
    pub(super) erases: Vec<u32>,
    /// Programs into these blocks fail.
    pub(super) weak: BTreeSet<u32>,
    /// Reads from these blocks report many corrected bits, until they are erased.
    pub(super) flipping: BTreeSet<u32>,
    /// Reads from these blocks fail, until they are erased.
    pub(super) unreadable: BTreeSet<u32>,
    /// Bytes that the system does not give.
    pub(super) refused: Option<Range<u64>>,
    /// A page that was interrupted late, until its block is erased.
    pub(super) shaky: Option<Shaky>,
    /// Operations until power is lost.
    pub(super) left: Option<(u64, Cut)>,
    pub(super) operations: u64,
    /// Pages read.
    pub(super) pages_read: Cell<u64>,
    /// Cells may hold anything from the start: programming over that is not an error.
    pub(super) is_damaged: bool,
    dead: bool,
}

impl core::fmt::Debug for Ram {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Ram")
    }
}

impl Ram {
    pub(super) fn new(geometry: FlashGeometry) -> Self {
        let size = geometry.size as usize;
        let blocks = geometry.blocks() as usize;
        Self {
            bytes: vec![0xff; size],
            programmed: vec![false; size / geometry.sub_page_size as usize],
            bad: BTreeSet::new(),
            endurance: vec![u32::MAX; blocks],
            erases: vec![0; blocks],
            weak: BTreeSet::new(),
            flipping: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            refused: None,
            shaky: None,
            left: None,
            operations: 0,
            pages_read: Cell::new(0),
            is_damaged: false,
            dead: false,
            geometry,
        }
    }

    /// Small NAND: blocks of 8 pages of 512 bytes.
    pub(super) fn nand(blocks: u32) -> Self {
        let mut geometry = FlashGeometry::nand(u64::from(blocks) * 4096, 4096, 512, 512);
        geometry.ecc_strength = 4;
        geometry.bitflip_threshold = 3;
        Self::new(geometry)
    }

    /// NAND with sub-pages, so that both headers are in one page.
    pub(super) fn sub_paged(blocks: u32) -> Self {
        Self::new(FlashGeometry::nand(u64::from(blocks) * 8192, 8192, 1024, 256))
    }

    pub(super) fn nor(blocks: u32) -> Self {
        Self::new(FlashGeometry::nor(u64::from(blocks) * 4096, 4096))
    }

    /// The flash after power has returned.
    pub(super) fn revived(mut self) -> Self {
        self.dead = false;
        self.left = None;
        self
    }

    pub(super) fn mark_factory_bad(&mut self, block: u32) {
        self.bad.insert(block);
    }

    pub(super) fn bad_blocks(&self) -> usize {
        self.bad.len()
    }

    fn range(&self, block: u32) -> core::ops::Range<usize> {
        let start = (block * self.geometry.erase_size) as usize;
        start..start + self.geometry.erase_size as usize
    }

    /// Counts an operation; returns how it ends if power is lost during it.
    fn count(&mut self) -> Result<Option<Cut>, FlashError> {
        if self.dead {
            return Err(FlashError::PowerLost);
        }
        self.operations += 1;
        match &mut self.left {
            Some((0, cut)) => {
                self.dead = true;
                Ok(Some(*cut))
            }
            Some((left, _)) => {
                *left -= 1;
                Ok(None)
            }
            None => Ok(None),
        }
    }
}

impl Flash for Ram {
    fn geometry(&self) -> &FlashGeometry {
        &self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.geometry.check(offset, buffer.len())?;
        let page = u64::from(self.geometry.write_size.max(512));
        let pages = (offset + buffer.len() as u64).div_ceil(page) - offset / page;
        self.pages_read.set(self.pages_read.get() + pages);
        buffer.copy_from_slice(&self.bytes[offset as usize..][..buffer.len()]);
        let end = offset + buffer.len() as u64;
        if self.refused.as_ref().is_some_and(|it| it.start < end && offset < it.end) {
            buffer.fill(0);
            return Err(FlashError::Os(EIO));
        }
        let block = self.geometry.block_of(offset);
        if self.unreadable.contains(&block) {
            return Err(FlashError::Uncorrectable { offset });
        }
        if let Some(Shaky { start, looks, is_good }) = &self.shaky
            && (offset..offset + buffer.len() as u64).contains(start)
            && !is_good(looks.replace(looks.get() + 1))
        {
            buffer[(start - offset) as usize] ^= 0x10;
            return Err(FlashError::Uncorrectable { offset: *start });
        }
        Ok(match self.flipping.contains(&block) {
            true => Corrected { bits: 3, worst_step: 3 },
            false => Corrected::NONE,
        })
    }

    fn is_bad(&self, block: u32) -> Result<bool, FlashError> {
        self.geometry.check_block(block)?;
        Ok(self.bad.contains(&block))
    }
}

impl FlashMut for Ram {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.geometry.check(offset, data.len())?;
        let unit = self.geometry.sub_page_size as usize;
        let at = offset as usize;
        if !at.is_multiple_of(unit) || !data.len().is_multiple_of(unit) {
            return Err(FlashError::Misaligned);
        }
        let block = self.geometry.block_of(offset);
        assert!(!self.bad.contains(&block), "a bad block is programmed");
        assert!(at + data.len() <= self.range(block).end, "across a block's end");
        let cut = self.count()?;
        if cut == Some(Cut::Before) {
            return Err(FlashError::PowerLost);
        }
        let nand = self.geometry.kind == Kind::Nand;
        let done = if cut == Some(Cut::Torn) { data.len().div_ceil(2) } else { data.len() };
        if nand {
            let (first, last) = (at / unit, (at + data.len()) / unit);
            let block_end = self.range(block).end / unit;
            assert!(
                self.programmed[first..block_end].iter().all(|done| !done),
                "a page is programmed twice or out of order at {offset:#x}"
            );
            self.programmed[first..last].fill(true);
        }
        for (cell, byte) in self.bytes[at..at + done].iter_mut().zip(data) {
            let is_allowed = nand || self.is_damaged;
            assert!(
                is_allowed || *cell & byte == *byte,
                "bits are set without an erase at {offset:#x}"
            );
            *cell &= byte;
        }
        if cut == Some(Cut::Torn) {
            self.bytes[at + done - 1] &= 0x5a;
        }
        if cut.is_some() {
            return Err(FlashError::PowerLost);
        }
        if self.weak.contains(&block) {
            self.bytes[at] &= 0x81;
            return Err(FlashError::ProgramFailed { offset });
        }
        Ok(())
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        self.geometry.check_block(block)?;
        assert!(!self.bad.contains(&block), "a bad block is erased");
        let cut = self.count()?;
        if cut == Some(Cut::Before) {
            return Err(FlashError::PowerLost);
        }
        let range = self.range(block);
        let index = block as usize;
        if self.erases[index] >= self.endurance[index] {
            return Err(FlashError::EraseFailed { block });
        }
        self.erases[index] += 1;
        let middle = (range.start + range.end) / 2;
        let (from, to) = match cut {
            // NAND from the start, NOR from the end: each where it hurts.
            Some(Cut::Torn) if self.geometry.kind == Kind::Nand => (range.start, middle),
            Some(Cut::Torn) => (range.start + 192, range.end),
            _ => (range.start, range.end),
        };
        self.bytes[from..to].fill(0xff);
        if cut.is_some() {
            return Err(FlashError::PowerLost);
        }
        let unit = self.geometry.sub_page_size as usize;
        self.programmed[range.start / unit..range.end / unit].fill(false);
        self.flipping.remove(&block);
        self.unreadable.remove(&block);
        let geometry = self.geometry;
        self.shaky.take_if(|shaky| geometry.block_of(shaky.start) == block);
        Ok(())
    }

    fn mark_bad(&mut self, block: u32) -> Result<(), FlashError> {
        if self.geometry.kind != Kind::Nand {
            return Err(FlashError::Unsupported);
        }
        self.count()?;
        self.bad.insert(block);
        Ok(())
    }
}
