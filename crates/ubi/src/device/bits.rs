//! One bit for each block, which reads may set through `&self`.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
pub(crate) struct Bits {
    words: Vec<AtomicU32>,
}

impl Bits {
    pub(crate) fn new(blocks: u32) -> Self {
        Self { words: (0..blocks.div_ceil(32)).map(|_| AtomicU32::new(0)).collect() }
    }

    fn word(&self, peb: u32) -> Option<&AtomicU32> {
        self.words.get(peb as usize / 32)
    }

    pub(crate) fn set(&self, peb: u32) {
        if let Some(word) = self.word(peb) {
            word.fetch_or(1 << (peb % 32), Ordering::Relaxed);
        }
    }

    pub(crate) fn clear(&self, peb: u32) {
        if let Some(word) = self.word(peb) {
            word.fetch_and(!(1 << (peb % 32)), Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self, peb: u32) -> bool {
        self.word(peb).is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (peb % 32) != 0)
    }

    /// The first block whose bit is set.
    pub(crate) fn first(&self) -> Option<u32> {
        let words =
            (0..).zip(&self.words).map(|(index, word)| (index, word.load(Ordering::Relaxed)));
        let found = words.into_iter().find(|(_, bits)| *bits != 0);
        found.map(|(index, bits)| index * 32 + bits.trailing_zeros())
    }

    /// All blocks whose bits are set; clears the bits.
    pub(crate) fn take(&mut self) -> Vec<u32> {
        let mut found = Vec::new();
        for (index, word) in (0..).zip(&mut self.words) {
            let mut bits = core::mem::take(word.get_mut());
            while bits != 0 {
                found.push(index * 32 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
        found
    }
}
