//! One erase block: its cells and its history.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::iter::repeat_n;

use crate::flash::{Tear, Tearing, Torn, tear};

/// A page in which an operation was interrupted.
#[derive(Clone, Debug)]
pub(super) struct TornPage {
    /// The content that error correction would restore if it could.
    pub intended: Vec<u8>,
    /// A 1 for every cell that reads differently each time.
    pub unstable: Vec<u8>,
    /// Number of reads of the block since its erase from which on they are unstable; until then
    /// they read as they are stored.
    pub shows_from: u32,
}

/// An erase block. Clones share its pages until one of them is programmed.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    /// Pages with their out-of-band bytes, `None` for a page not programmed since the erase; empty
    /// if no page was.
    pages: Vec<Option<Arc<[u8]>>>,
    /// Number of programs of each page since the erase; also empty then.
    programs: Vec<u8>,
    /// The torn pages.
    torn: BTreeMap<u32, Arc<TornPage>>,
    /// One above the highest programmed page.
    pub next_page: u32,
    /// Number of erases so far.
    pub erases: u32,
    /// When the first page was programmed, in nanoseconds of the chip's life.
    pub programmed_at: u64,
    /// Marked bad by the manufacturer.
    pub is_factory_bad: bool,
}

/// The shape of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Size of a page with its out-of-band bytes.
    pub stride: usize,
    /// Number of pages.
    pub pages: u32,
}

impl Block {
    /// The cells of a page; `None` if it was not programmed since the erase.
    pub(super) fn page(&self, page: u32) -> Option<&[u8]> {
        self.pages.get(page as usize)?.as_deref()
    }

    pub(super) fn torn(&self, page: u32) -> Option<&TornPage> {
        self.torn.get(&page).map(|torn| &**torn)
    }

    /// Whether any page is torn.
    pub(super) fn is_torn(&self) -> bool {
        !self.torn.is_empty()
    }

    /// Whether any page was programmed since the erase.
    pub(super) fn has_cells(&self) -> bool {
        !self.pages.is_empty()
    }

    /// Number of programs of `page` since the erase.
    pub(super) fn programs(&self, page: u32) -> u8 {
        self.programs.get(page as usize).copied().unwrap_or(0)
    }

    /// The cells of a page, mutable.
    fn page_mut(&mut self, shape: Shape, page: u32) -> &mut [u8] {
        if self.pages.is_empty() {
            self.pages = vec![None; shape.pages as usize];
            self.programs = vec![0; shape.pages as usize];
        }
        let cells = &mut self.pages[page as usize];
        Arc::make_mut(cells.get_or_insert_with(|| repeat_n(0xFF, shape.stride).collect()))
    }

    /// What a page holds.
    fn content(&self, shape: Shape, page: u32) -> Vec<u8> {
        self.page(page).map_or_else(|| vec![0xFF; shape.stride], <[u8]>::to_vec)
    }

    /// Sets content without an operation, to load an image.
    pub(super) fn load(&mut self, shape: Shape, page: u32, column: usize, bytes: &[u8]) {
        if bytes.iter().all(|&byte| byte == 0xFF) {
            return;
        }
        self.page_mut(shape, page)[column..column + bytes.len()].copy_from_slice(bytes);
        self.programs[page as usize] = self.programs[page as usize].max(1);
        self.next_page = self.next_page.max(page + 1);
    }

    /// Clears bits of `page`. Cells that are programmed to 0 are no longer unstable; the others
    /// stay as they were.
    pub(super) fn program(&mut self, shape: Shape, page: u32, column: usize, bytes: &[u8]) {
        let place = column..column + bytes.len();
        let cells = &mut self.page_mut(shape, page)[place.clone()];
        cells.iter_mut().zip(bytes).for_each(|(cell, byte)| *cell &= byte);
        if let Some(torn) = self.torn.get_mut(&page) {
            let torn = Arc::make_mut(torn);
            torn.intended[place.clone()].iter_mut().zip(bytes).for_each(|(old, new)| *old &= new);
            torn.unstable[place].iter_mut().zip(bytes).for_each(|(old, new)| *old &= new);
        }
        self.count(page);
    }

    /// As [`program`](Self::program), with power failing during it.
    pub(super) fn program_torn(
        &mut self,
        shape: Shape,
        (page, column): (u32, usize),
        bytes: &[u8],
        cut: &mut Tearing,
    ) {
        if cut.how == Tear::Before {
            return;
        }
        let old = self.content(shape, page);
        let mut new = old.clone();
        let place = column..column + bytes.len();
        new[place].iter_mut().zip(bytes).for_each(|(cell, byte)| *cell &= byte);
        let torn = cut.tear(&old, &new);
        self.page_mut(shape, page).copy_from_slice(&torn.cells);
        self.add_torn(page, torn, if cut.how == Tear::Early { old } else { new });
        self.count(page);
    }

    /// Records that `page` is torn, if it is.
    fn add_torn(&mut self, page: u32, torn: Torn, intended: Vec<u8>) {
        let is_torn = torn.cells != intended || torn.unstable.iter().any(|&byte| byte != 0);
        match self.torn.get_mut(&page) {
            Some(before) => {
                let before = Arc::make_mut(before);
                before.intended = intended;
                before.shows_from = torn.shows_from;
                let more = torn.unstable.iter().zip(&torn.cells);
                before.unstable.iter_mut().zip(more).for_each(|(old, (new, cell))| {
                    *old = (*old & cell) | new;
                });
            }
            None if is_torn => {
                let Torn { unstable, shows_from, .. } = torn;
                self.torn.insert(page, Arc::new(TornPage { intended, unstable, shows_from }));
            }
            None => {}
        }
    }

    /// Disturbs the lower `page` of a pair, because power failed while the upper one was
    /// programmed: cells become unstable.
    pub(super) fn shake(&mut self, shape: Shape, page: u32, cut: &mut Tearing) {
        if !self.has_cells() || matches!(cut.how, Tear::Before | Tear::After) {
            return;
        }
        let cells = self.content(shape, page);
        let inverted: Vec<u8> = cells.iter().map(|byte| !byte).collect();
        // Unless cut late, the lower page is lost; if cut late, only few of its cells are between
        // two levels.
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

    /// The block after all bits have been set.
    #[must_use]
    pub(super) fn erased(&self) -> Self {
        let erases = self.erases.saturating_add(1);
        Self { erases, is_factory_bad: self.is_factory_bad, ..Self::default() }
    }

    /// As [`erased`](Self::erased), with power failing during it.
    pub(super) fn erase_torn(&mut self, shape: Shape, cut: &mut Tearing) {
        match cut.how {
            Tear::Before => return,
            Tear::After => return *self = self.erased(),
            Tear::Early | Tear::Half | Tear::Late => self.erases = self.erases.saturating_add(1),
        }
        if !self.has_cells() {
            return;
        }
        let erased = vec![0xFF; shape.stride];
        for page in 0..shape.pages {
            let old = self.content(shape, page);
            let torn = cut.tear(&old, &erased);
            if self.page(page).is_some() {
                self.page_mut(shape, page).copy_from_slice(&torn.cells);
            }
            let is_erased = cut.how == Tear::Late || cut.looks_done();
            self.add_torn(page, torn, if is_erased { erased.clone() } else { old });
        }
    }
}
