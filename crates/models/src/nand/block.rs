//! One erase block: its cells and what was done to them.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::flash::{Cut, Tear, Torn, tear};

/// A page that an operation was cut in.
#[derive(Clone, Debug)]
pub(super) struct TornPage {
    /// The content that error correction would restore if it could.
    pub intended: Vec<u8>,
    /// A 1 for every cell that reads differently each time.
    pub unstable: Vec<u8>,
    /// Reads of the block since its erase from which on they do; until then they read as they are.
    pub shows_from: u32,
}

/// An erase block.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    /// All pages with their out-of-band bytes; empty while nothing is programmed.
    cells: Vec<u8>,
    /// How often each page was programmed since the erase; empty as well.
    programs: Vec<u8>,
    /// Pages that are torn.
    torn: BTreeMap<u32, TornPage>,
    /// One above the highest page programmed.
    pub next_page: u32,
    /// Erases so far.
    pub erases: u32,
    /// When the first page was programmed, nanoseconds of the chip's life.
    pub programmed_at: u64,
    /// Marked by the maker.
    pub is_factory_bad: bool,
}

/// Shape of a block in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// A page with its out-of-band bytes.
    pub stride: usize,
    /// Pages.
    pub pages: u32,
}

impl Block {
    fn range(shape: Shape, page: u32) -> core::ops::Range<usize> {
        let start = page as usize * shape.stride;
        start..start + shape.stride
    }

    /// The cells of a page; `None` when the block was never programmed since its erase.
    pub(super) fn page(&self, shape: Shape, page: u32) -> Option<&[u8]> {
        self.cells.get(Self::range(shape, page))
    }

    pub(super) fn torn(&self, page: u32) -> Option<&TornPage> {
        self.torn.get(&page)
    }

    pub(super) fn has_cells(&self) -> bool {
        !self.cells.is_empty()
    }

    /// How often `page` was programmed since the erase.
    pub(super) fn programs(&self, page: u32) -> u8 {
        self.programs.get(page as usize).copied().unwrap_or(0)
    }

    fn make_cells(&mut self, shape: Shape) {
        if self.cells.is_empty() {
            self.cells = vec![0xFF; shape.stride * shape.pages as usize];
            self.programs = vec![0; shape.pages as usize];
        }
    }

    /// Puts content there without an operation: an image is loaded.
    pub(super) fn load(&mut self, shape: Shape, page: u32, column: usize, bytes: &[u8]) {
        if bytes.iter().all(|&byte| byte == 0xFF) {
            return;
        }
        self.make_cells(shape);
        let start = Self::range(shape, page).start + column;
        self.cells[start..start + bytes.len()].copy_from_slice(bytes);
        self.programs[page as usize] = self.programs[page as usize].max(1);
        self.next_page = self.next_page.max(page + 1);
    }

    /// Clears bits of `page`. Cells that are programmed to 0 are no longer unstable; the others
    /// stay what they were.
    pub(super) fn program(&mut self, shape: Shape, page: u32, column: usize, bytes: &[u8]) {
        self.make_cells(shape);
        let start = Self::range(shape, page).start + column;
        let cells = &mut self.cells[start..start + bytes.len()];
        cells.iter_mut().zip(bytes).for_each(|(cell, byte)| *cell &= byte);
        if let Some(torn) = self.torn.get_mut(&page) {
            let place = column..column + bytes.len();
            torn.intended[place.clone()].iter_mut().zip(bytes).for_each(|(old, new)| *old &= new);
            torn.unstable[place].iter_mut().zip(bytes).for_each(|(old, new)| *old &= new);
        }
        self.count(page);
    }

    /// As [`program`](Self::program), with the power cut during it.
    pub(super) fn program_torn(
        &mut self,
        shape: Shape,
        (page, column): (u32, usize),
        bytes: &[u8],
        cut: &mut Cut,
    ) {
        if cut.how == Tear::Before {
            return;
        }
        self.make_cells(shape);
        let range = Self::range(shape, page);
        let old = self.cells[range.clone()].to_vec();
        let mut new = old.clone();
        let place = column..column + bytes.len();
        new[place].iter_mut().zip(bytes).for_each(|(cell, byte)| *cell &= byte);
        let torn = cut.tear(&old, &new);
        self.cells[range].copy_from_slice(&torn.cells);
        self.add_torn(page, torn, if cut.how == Tear::Early { old } else { new });
        self.count(page);
    }

    /// Notes that `page` is torn, if it is.
    fn add_torn(&mut self, page: u32, torn: Torn, intended: Vec<u8>) {
        let is_torn = torn.cells != intended || torn.unstable.iter().any(|&byte| byte != 0);
        match self.torn.get_mut(&page) {
            Some(before) => {
                before.intended = intended;
                before.shows_from = torn.shows_from;
                let more = torn.unstable.iter().zip(&torn.cells);
                before.unstable.iter_mut().zip(more).for_each(|(old, (new, cell))| {
                    *old = (*old & cell) | new;
                });
            }
            None if is_torn => {
                self.torn.insert(
                    page,
                    TornPage { intended, unstable: torn.unstable, shows_from: torn.shows_from },
                );
            }
            None => {}
        }
    }

    /// Charge of a pair of pages went astray while the upper one was programmed: cells of the
    /// lower `page` read as anything.
    pub(super) fn shake(&mut self, shape: Shape, page: u32, cut: &mut Cut) {
        if !self.has_cells() || matches!(cut.how, Tear::Before | Tear::After) {
            return;
        }
        let cells = self.cells[Self::range(shape, page)].to_vec();
        let inverted: Vec<u8> = cells.iter().map(|byte| !byte).collect();
        // Until late the lower page is lost; then few of its cells are still between two levels.
        let way = if cut.how == Tear::Late { Tear::Late } else { Tear::Half };
        let mut torn = tear(&mut cut.random, &inverted, &cells, way);
        torn.unstable.iter_mut().zip(&torn.cells).zip(&cells).for_each(|((shaky, new), old)| {
            *shaky |= new ^ old;
        });
        torn.cells.clone_from(&cells);
        self.add_torn(page, torn, cells);
    }

    fn count(&mut self, page: u32) {
        let count = &mut self.programs[page as usize];
        *count = count.saturating_add(1);
        self.next_page = self.next_page.max(page + 1);
    }

    /// Sets all bits.
    pub(super) fn erase(&mut self) {
        self.cells = Vec::new();
        self.programs = Vec::new();
        self.torn.clear();
        self.next_page = 0;
        self.erases = self.erases.saturating_add(1);
        self.programmed_at = 0;
    }

    /// As [`erase`](Self::erase), with the power cut during it.
    pub(super) fn erase_torn(&mut self, shape: Shape, cut: &mut Cut) {
        match cut.how {
            Tear::Before => return,
            Tear::After => return self.erase(),
            Tear::Early | Tear::Half | Tear::Late => self.erases = self.erases.saturating_add(1),
        }
        if !self.has_cells() {
            return;
        }
        let erased = vec![0xFF; shape.stride];
        for page in 0..shape.pages {
            let range = Self::range(shape, page);
            let old = self.cells[range.clone()].to_vec();
            let torn = cut.tear(&old, &erased);
            self.cells[range].copy_from_slice(&torn.cells);
            let is_erased = cut.how == Tear::Late || cut.looks_done();
            self.add_torn(page, torn, if is_erased { erased.clone() } else { old });
        }
    }
}
