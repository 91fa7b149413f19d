//! Mistakes planted between the stack and the chip, to prove that they are detected.

use std::collections::HashMap;

use flysch_api::flash::{Corrected, Flash, FlashError, FlashGeometry};

use super::probe::Probe;

/// Volume number of the anchor of a fastmap.
const FASTMAP_ANCHOR: u32 = 0x7FFF_F000;
/// Size of the UBI headers, bytes.
const HEADER_LEN: usize = 64;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mistake {
    /// Every program is held back until another block is accessed: the wrong order.
    Reordered,
    /// Requests to make data durable are reported done and not passed on, as if the workload had
    /// left them out.
    SkippedSync,
    /// One erase in three is reported done without being done.
    SkippedErase,
    /// Data that a recovery copies is read again for the copy, and not judged again: the verdict
    /// comes from one read of the page, the copy from another.
    SecondLook,
    /// Data that a recovery copies is used in its old place, and copied only at a sync or when it
    /// is erased.
    LateMove,
    /// The last program stays in a buffer, even across a sync, until there is another.
    LostTail,
    /// The block of a void fastmap is erased only when it is needed again.
    OldFastmap,
}

impl Mistake {
    /// All of them, with their names.
    pub const ALL: [(&str, Self); 7] = [
        ("reordered", Self::Reordered),
        ("skipped-sync", Self::SkippedSync),
        ("skipped-erase", Self::SkippedErase),
        ("second-look", Self::SecondLook),
        ("late-move", Self::LateMove),
        ("lost-tail", Self::LostTail),
        ("old-fastmap", Self::OldFastmap),
    ];

    /// Whether it is made during recovery from a cut, not while the workload runs.
    pub fn is_of_recovery(self) -> bool {
        matches!(self, Self::SecondLook | Self::LateMove)
    }
}

impl std::str::FromStr for Mistake {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, mistake)| mistake).ok_or_else(|| {
            let names = Self::ALL.map(|(name, _)| name);
            format!("there is no mistake '{text}'; there are {}", names.join(", "))
        })
    }
}

/// A program that was reported done but not yet done.
#[derive(Clone, Debug)]
struct Held {
    offset: u64,
    data: Vec<u8>,
}

impl Held {
    /// Applies it to the result of a read at `offset`.
    fn show(&self, offset: u64, buffer: &mut [u8]) {
        let start = self.offset.saturating_sub(offset) as usize;
        let skip = offset.saturating_sub(self.offset) as usize;
        let bytes = self.data.iter().skip(skip);
        buffer.iter_mut().skip(start).zip(bytes).for_each(|(cell, byte)| *cell &= byte);
    }
}

/// A page that was copied only nominally.
#[derive(Clone, Copy, Debug)]
struct Move {
    from: u64,
    to: u64,
}

/// A block that was reported erased but is not, and what was programmed since.
#[derive(Clone, Debug)]
struct Stale {
    block: u32,
    programs: Vec<Held>,
}

/// The state of the mistakes.
#[derive(Debug, Default)]
pub(super) struct Planted {
    held: Option<Held>,
    erases: u64,
    /// Whole pages that were read, and their places.
    seen: HashMap<Vec<u8>, u64>,
    moves: Vec<Move>,
    stale: Option<Stale>,
}

/// The whole pages in `len` bytes at `offset`: their offsets and positions in the bytes.
fn pages(geometry: &FlashGeometry, offset: u64, len: usize) -> Vec<(u64, usize)> {
    let page = u64::from(geometry.write_size.max(256));
    let first = offset.next_multiple_of(page);
    let end = offset + len as u64;
    let starts = (first..end).step_by(page as usize).filter(|start| start + page <= end);
    starts.map(|start| (start, (start - offset) as usize)).collect()
}

impl Probe {
    /// Reads as a stack with that mistake does.
    pub(super) fn read_wrongly(
        &self,
        offset: u64,
        buffer: &mut [u8],
        result: Result<Corrected, FlashError>,
    ) -> Result<Corrected, FlashError> {
        let geometry = *self.geometry();
        let page = geometry.write_size.max(256) as usize;
        let state = &mut *self.state();
        let (chip, planted) = (&state.chip, &mut state.planted);
        if let Some(held) = &planted.held {
            held.show(offset, buffer);
        }
        if let Some(stale) = &planted.stale
            && stale.block == geometry.block_of(offset)
        {
            buffer.fill(0xFF);
            stale.programs.iter().for_each(|held| held.show(offset, buffer));
            return Ok(Corrected::NONE);
        }
        for moved in &planted.moves {
            let (end, len) = (offset + buffer.len() as u64, page as u64);
            if moved.to < end && offset < moved.to + len {
                let (start, stop) = (offset.max(moved.to), end.min(moved.to + len));
                let part = &mut buffer[(start - offset) as usize..(stop - offset) as usize];
                let _corrected = chip.read(moved.from + (start - moved.to), part)?;
            }
        }
        let copies = matches!(self.mistake(), Some(Mistake::SecondLook | Mistake::LateMove));
        if copies && result.is_ok() {
            for (at, place) in pages(&geometry, offset, buffer.len()) {
                let content = &buffer[place..place + page];
                if content.iter().any(|byte| *byte != content[0]) {
                    planted.seen.insert(content.to_vec(), at);
                }
            }
        }
        result
    }

    /// Performs the program that was held back.
    fn let_go(&self) -> Result<(), FlashError> {
        let held = self.state().planted.held.take();
        match held {
            Some(Held { offset, data }) => self.program_rightly(offset, &data),
            None => Ok(()),
        }
    }

    fn held_block(&self) -> Option<u32> {
        let geometry = *self.geometry();
        self.state().planted.held.as_ref().map(|held| geometry.block_of(held.offset))
    }

    /// Programs, or does not, depending on the mistake.
    pub(super) fn program_wrongly(&self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        match self.mistake() {
            Some(Mistake::Reordered) => match self.held_block() {
                Some(block) if block != self.geometry().block_of(offset) => {
                    self.program_rightly(offset, data)?;
                    self.let_go()
                }
                _ => self.hold(offset, data),
            },
            Some(Mistake::LostTail) => self.hold(offset, data),
            Some(Mistake::SecondLook | Mistake::LateMove) => self.copy(offset, data),
            Some(Mistake::OldFastmap) => self.program_stale(offset, data),
            _ => self.program_rightly(offset, data),
        }
    }

    fn hold(&self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.let_go()?;
        self.state().planted.held = Some(Held { offset, data: data.to_vec() });
        Ok(())
    }

    /// Programs data, pages of which may have been read from elsewhere.
    fn copy(&self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        let geometry = *self.geometry();
        let page = geometry.write_size.max(256) as usize;
        let mut data = data.to_vec();
        let mut own = vec![];
        for (at, place) in pages(&geometry, offset, data.len()) {
            let state = &mut *self.state();
            let content = &mut data[place..place + page];
            let from = state.planted.seen.get(&*content).copied();
            let from = from.filter(|from| geometry.block_of(*from) != geometry.block_of(at));
            match (from, self.mistake()) {
                (Some(from), Some(Mistake::LateMove)) => {
                    state.planted.moves.push(Move { from, to: at });
                }
                (Some(from), _) => drop(state.chip.read(from, content)),
                (None, _) => own.push((at, place)),
            }
        }
        let is_whole =
            self.mistake() == Some(Mistake::SecondLook) || !data.len().is_multiple_of(page);
        if is_whole || !offset.is_multiple_of(page as u64) {
            return self.program_rightly(offset, &data);
        }
        if !own.is_empty() {
            // Pages must be programmed upwards: lower ones in the block are copied now.
            self.do_moves(|moved| geometry.block_of(moved.to) == geometry.block_of(offset))?;
        }
        own.into_iter()
            .try_for_each(|(at, place)| self.program_rightly(at, &data[place..place + page]))
    }

    /// Performs pending copies, reading each page again.
    fn do_moves(&self, which: impl Fn(&Move) -> bool) -> Result<(), FlashError> {
        let all = std::mem::take(&mut self.state().planted.moves);
        let (now, later): (Vec<Move>, Vec<Move>) = all.into_iter().partition(which);
        self.state().planted.moves = later;
        for Move { from, to } in now {
            let mut content = vec![0; self.geometry().write_size.max(256) as usize];
            let _ = self.state().chip.read(from, &mut content);
            self.program_rightly(to, &content)?;
        }
        Ok(())
    }

    /// Erases, or does not, depending on the mistake.
    pub(super) fn erase_wrongly(&self, block: u32) -> Result<(), FlashError> {
        let geometry = *self.geometry();
        match self.mistake() {
            Some(Mistake::SkippedErase) => {
                let state = &mut *self.state();
                state.planted.erases += 1;
                if state.planted.erases.is_multiple_of(3) {
                    return Ok(());
                }
            }
            Some(Mistake::OldFastmap) => {
                let is_stale = |stale: &Stale| stale.block == block;
                if self.is_anchor(block)
                    || self.state().planted.stale.as_ref().is_some_and(is_stale)
                {
                    self.end_stale(Some(block))?;
                    self.state().planted.stale = Some(Stale { block, programs: vec![] });
                    return Ok(());
                }
            }
            Some(Mistake::LateMove) => {
                self.state().planted.moves.retain(|moved| geometry.block_of(moved.to) != block);
                self.do_moves(|moved| geometry.block_of(moved.from) == block)?;
            }
            _ => {}
        }
        if self.held_block() == Some(block) || self.mistake() == Some(Mistake::LostTail) {
            self.let_go()?;
        }
        self.erase_rightly(block)?;
        self.let_go()
    }

    /// Syncs, or does not, depending on the mistake.
    pub(super) fn sync_wrongly(&self) -> Result<(), FlashError> {
        if self.mistake() != Some(Mistake::LostTail) {
            self.let_go()?;
        }
        self.do_moves(|_| true)
    }

    /// Whether a fastmap begins in the block.
    fn is_anchor(&self, block: u32) -> bool {
        let start = u64::from(block) * u64::from(self.geometry().erase_size);
        let state = self.state();
        let header = |at: u64, magic: &[u8]| {
            let mut bytes = [0; HEADER_LEN];
            let read = state.chip.read(at, &mut bytes);
            read.ok().and(bytes.starts_with(magic).then_some(bytes))
        };
        let number = |bytes: &[u8], at: usize| {
            bytes[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
        };
        let Some(first) = header(start, b"UBI#") else { return false };
        let second = header(start + u64::from(number(&first, 16)), b"UBI!");
        second.is_some_and(|second| number(&second, 8) == FASTMAP_ANCHOR)
    }

    fn program_stale(&self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        let block = self.geometry().block_of(offset);
        let is_held = {
            let state = &mut *self.state();
            match &mut state.planted.stale {
                // An erase counter header: the block is not needed yet.
                Some(stale) if stale.block == block && stale.programs.is_empty() => {
                    stale.programs.push(Held { offset, data: data.to_vec() });
                    true
                }
                _ => false,
            }
        };
        if is_held {
            return Ok(());
        }
        if self.state().planted.stale.as_ref().is_some_and(|stale| stale.block == block) {
            self.end_stale(None)?;
        }
        self.program_rightly(offset, data)
    }

    /// Performs the outstanding erase of the stale block, unless it is `but`.
    fn end_stale(&self, but: Option<u32>) -> Result<(), FlashError> {
        let stale = self.state().planted.stale.take();
        let Some(Stale { block, programs }) = stale.filter(|stale| Some(stale.block) != but) else {
            return Ok(());
        };
        self.erase_rightly(block)?;
        programs.iter().try_for_each(|held| self.program_rightly(held.offset, &held.data))
    }
}
