//! Pages that a power cut left between two states.
//!
//! Theory. If the programming of a page was interrupted, some of its cells read as either value,
//! differently each time: the page may read correctly now and not the next time, or the other way
//! round. Only the page that was programmed last in a block can be in that state, or the next one,
//! which still looks erased. So these pages are read more than once. If a page is not firm, that
//! was the last time it is read: the result stands in for it as long as the flash is mounted
//! ([`Medium::freeze`]). Its bytes are right where their checksums are, so the valid nodes of the
//! block are copied elsewhere, and then the block is erased, before anything else happens: the next
//! mount sees firm copies of what this one saw, and nothing that this one did not see.
//!
//! Cells may also read correctly for a while and wrongly from then on, which no read can detect. If
//! blocks are stamped ([`Stamp`]), it is known which was written last: its last page is treated as
//! not firm, however it reads. All other stamped blocks were written to their last page before
//! another one was started.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::flash::{Flash, FlashError, FlashGeometry, FlashMut};
use flysch_api::vfs::FsError;
use flysch_wire::jffs2::crc32;

use super::collector::{Collector, Purpose};
use super::copies::Ranks;
use super::medium::{Frozen, Medium};
use super::space::State;
use crate::found::BlockFound;
use crate::scan::{BYTES, last_page};
use crate::stamp::Stamp;

/// How often to read a page that may be the last one written, if it has any error or if there is no
/// error correction that would detect one.
const LOOKS: usize = 16;
/// How often, if error correction finds no error in it. If more cells than can be corrected, at
/// least five, are undecided, all of them read correctly this many times only once in a million.
const LOOKS_CLEAN: usize = 4;
/// The same for the last page of a full block, which is unlikely to be the interrupted one.
const LOOKS_FULL: usize = 2;
/// Zeros at the end of a block of NOR that indicate an interrupted erase.
const ZEROS_MIN: usize = 64;

/// What was found out about the pages that were written last.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// Blocks with pages that are not firm.
    pub(super) shaky: Vec<u32>,
    /// Blocks that may have been written last, one per mount; their last pages are frozen as well.
    pub(super) last: Vec<u32>,
    /// The lowest stamp number of these.
    pub(super) oldest: Option<u32>,
    /// The highest stamp number of all.
    pub(super) highest: u32,
    /// The stamp number of each block; 0 for one without.
    pub(super) ages: Vec<u32>,
}

impl Doubts {
    /// Judged by their stamps alone.
    fn of_stamps<F: Flash>(medium: &Medium<F>, found: &[BlockFound]) -> Self {
        let stamps = (0..).zip(found).filter_map(|(block, facts)| {
            let stamp = facts.stamp.or_else(|| stamp_before_summary(medium, block, facts));
            Some((block, stamp?))
        });
        let stamps: Vec<(u32, Stamp)> = stamps.collect();
        let mut ages = vec![0; found.len()];
        stamps.iter().for_each(|(block, stamp)| ages[*block as usize] = stamp.number);
        let Some((_, newest)) = stamps.iter().max_by_key(|(_, stamp)| stamp.number) else {
            return Self { ages, ..Self::default() };
        };
        let first = newest.suspect.min(newest.number);
        // Each mount leaves out a number (see `crate::stamp`).
        let numbers: BTreeSet<u32> = stamps.iter().map(|(_, stamp)| stamp.number).collect();
        let may_be_last = |stamp: &Stamp| {
            stamp.number >= first
                && !stamp.number.checked_add(1).is_some_and(|n| numbers.contains(&n))
        };
        let last = || stamps.iter().filter(|(_, stamp)| may_be_last(stamp));
        Self {
            shaky: vec![],
            last: last().map(|(block, _)| *block).collect(),
            oldest: last().map(|(_, stamp)| stamp.number).min(),
            highest: newest.number,
            ages,
        }
    }
}

/// The stamp of a block whose nodes were taken from its summary.
fn stamp_before_summary<F: Flash>(
    medium: &Medium<F>,
    block: u32,
    facts: &BlockFound,
) -> Option<Stamp> {
    let mut bytes = [0; Stamp::LEN];
    let at = medium.geometry().block_start(block) + u64::from(medium.marker_len());
    let is_read = facts.has_summary && medium.read(at, &mut bytes).is_ok();
    is_read.then(|| Stamp::parse(&bytes)).flatten()
}

/// Reads the last page of each block, and freezes those that are not firm or were written last.
pub(super) fn find<F: Flash>(medium: &mut Medium<F>, found: &[BlockFound]) -> Doubts {
    let mut doubts = Doubts::of_stamps(medium, found);
    let mut shaky = vec![];
    for (block, facts) in (0..).zip(found) {
        if facts.is_bad || facts.written <= medium.marker_len() {
            continue;
        }
        let (last, scanned) = match half_erased(medium, block, facts.written) {
            Some(page) => {
                shaky.push(block);
                (page, None)
            }
            None => (last(medium.geometry(), block, facts.written), facts.last),
        };
        let behind = behind(medium.geometry(), block, facts.written);
        let pages = [Some((last, scanned)), behind.map(|page| (page, None))];
        for ((at, len, looks), scanned) in pages.into_iter().flatten() {
            let Some((page, mut is_firm)) = look(medium, at, len, looks) else { continue };
            // What the scan saw was a look as well.
            is_firm &= scanned.is_none_or(|scanned| scanned == crc32(&page.bytes));
            if !is_firm {
                shaky.push(block);
            }
            if !is_firm || doubts.last.contains(&block) {
                medium.freeze(at, page);
            }
        }
    }
    shaky.dedup();
    doubts.shaky = shaky;
    doubts
}

/// The page that was written last: its position, its length, and how often to read it.
fn last(geometry: &FlashGeometry, block: u32, written: u32) -> (u64, u32, usize) {
    let page = last_page(geometry, block, written);
    let looks = if written >= geometry.block_len(block) { LOOKS_FULL } else { LOOKS_CLEAN };
    (geometry.block_start(block) + u64::from(page.start), page.end - page.start, looks)
}

/// On NOR a block is programmed to zeros from its end on before it is erased: where the zeros begin
/// in a block that ends with zeros, as no node does that is ever written.
fn half_erased<F: Flash>(flash: &F, block: u32, written: u32) -> Option<(u64, u32, usize)> {
    let geometry = flash.geometry();
    let (start, len) = (geometry.block_start(block), geometry.block_len(block));
    let window = BYTES.min(len);
    if geometry.write_size > 1 || written < len {
        return None;
    }
    let mut bytes = vec![0; window as usize];
    let mut at = len;
    while at > 0 {
        at = at.saturating_sub(window);
        let _corrected = flash.read(start + u64::from(at), &mut bytes).ok()?;
        let zeros = bytes.iter().rev().take_while(|&&byte| byte == 0).count();
        if at + window == len && zeros < ZEROS_MIN {
            return None;
        }
        if zeros < bytes.len() {
            break;
        }
    }
    Some((start + u64::from(at), window, LOOKS))
}

/// The next page, if writing it may have been started.
fn behind(geometry: &FlashGeometry, block: u32, written: u32) -> Option<(u64, u32, usize)> {
    let page = geometry.write_size;
    let start = written.next_multiple_of(page);
    let is_there = page > 1 && start < geometry.block_len(block);
    is_there.then(|| (geometry.block_start(block) + u64::from(start), page, LOOKS_CLEAN))
}

/// Reads a page until it is known whether it is firm. Returns the content to be used, and whether
/// the page is firm; `None` if nothing can be read at all.
fn look<F: Flash>(flash: &F, at: u64, len: u32, looks_clean: usize) -> Option<(Frozen, bool)> {
    let strength = flash.geometry().ecc_strength;
    let mut best: Option<Frozen> = None;
    let mut bytes = vec![0; len as usize];
    let (mut is_clean, mut is_firm) = (strength > 0, true);
    let mut look = 0;
    while look < if is_clean { looks_clean } else { LOOKS } {
        look += 1;
        let is_lost = match flash.read(at, &mut bytes) {
            Ok(corrected) => {
                is_clean &= corrected.bits == 0;
                // Steady errors are those of age. Half of what can be corrected is too much for
                // a page that was hardly ever read.
                is_firm &= strength == 0 || corrected.worst_step * 2 < strength.max(2);
                false
            }
            Err(FlashError::Uncorrectable { .. }) => {
                (is_clean, is_firm) = (false, false);
                true
            }
            Err(_) => return None,
        };
        match &best {
            Some(before) if !before.is_lost => is_firm &= before.bytes == bytes,
            Some(_) if is_lost => {}
            _ => best = Some(Frozen { bytes: bytes.clone(), is_lost }),
        }
    }
    best.map(|page| (page, is_firm))
}

impl<F: FlashMut> Collector<F> {
    /// Copies the valid nodes out of these blocks and erases them. If there is no room, they stay
    /// as they are, and the next mount tries again.
    pub(super) fn leave(&mut self, shaky: &[u32], ranks: &Ranks) {
        if shaky.is_empty() {
            self.log_mut().stamps.oldest = None;
            return;
        }
        self.settle_all();
        self.trust_copies(ranks);
        // First what counts in the frozen pages, and nothing with nodes in it is erased before that
        // is on the flash: what it replaced, or was copied from, may be in a block left before.
        if shaky.iter().any(|number| self.copy_frozen(*number).is_err())
            || self.nodes_mut().flush().is_err()
        {
            return;
        }
        let patience = self.log().activity.collected + self.log().blocks.blocks.len() as u64;
        for at in 0..shaky.len() {
            if self.clear(&shaky[at..], patience).is_err() {
                return;
            }
        }
        // What was copied is on the flash before anybody relies on it.
        if self.nodes_mut().flush().is_err() {
            return;
        }
        let is_left = |number: &u32| shaky.contains(number);
        let left: Vec<u32> = self.log().blocks.erasable.iter().copied().filter(is_left).collect();
        for number in left {
            self.log_mut().blocks.erasable.retain(|other| *other != number);
            if self.nodes_mut().erase(number).is_err() {
                return;
            }
        }
        let stays = |number: &u32| self.log().blocks.blocks[*number as usize].unreadable.is_some();
        let is_any_kept = shaky.iter().any(stays);
        if self.nodes_mut().prove().is_ok() && !is_any_kept {
            self.log_mut().stamps.oldest = None;
        }
    }

    /// Collects other blocks if the remaining blocks may not suffice for the valid nodes of these.
    /// A block in which programming failed meanwhile holds little, and comes first.
    pub(super) fn gather(&mut self, shaky: &[u32], patience: u64) -> Result<(), FsError> {
        loop {
            let blocks = shaky.iter().map(|number| &self.log().blocks.blocks[*number as usize]);
            let closed = blocks.filter(|it| it.state == State::Closed && it.unreadable.is_none());
            let counts: u32 = closed.map(|block| block.used).sum();
            let rest = counts.saturating_sub(self.log().room_left(0).unwrap_or(0));
            let needed = rest.div_ceil(self.log().blocks.geometry.erase_size);
            let failures =
                if self.log().activity.program_failures > 0 { self.reserves.removal } else { 0 };
            let wanted = needed.max(failures);
            let goes_on = self.log().blocks.available() < wanted
                && self.is_worth_collecting(wanted, Purpose::Removal)
                && self.log().activity.collected < patience;
            if !goes_on || !self.collect()? {
                return Ok(());
            }
        }
    }

    /// Copies the valid nodes of the first of these blocks and erases it. Nodes are copied as they
    /// are, and none is rewritten from several: if power is lost, what was written so far is
    /// useless, and the next mount can erase it (see `super::copies`).
    pub(super) fn clear(&mut self, shaky: &[u32], patience: u64) -> Result<(), FsError> {
        let Some(&number) = shaky.first() else { return Ok(()) };
        loop {
            // Each time: a block in which programming failed a moment ago is one less.
            self.gather(shaky, patience)?;
            let block = &self.log().blocks.blocks[number as usize];
            if block.state != State::Closed || block.unreadable.is_some() {
                break;
            }
            let Some(raw) = block.raws.iter().find(|raw| !raw.is_dead).copied() else { break };
            self.copy_out(self.log().blocks.address(number, raw.at), &raw)?;
        }
        self.nodes_mut().flush()?;
        self.nodes_mut().erase_all()
    }

    /// Appends the valid nodes in the frozen pages of a block to what was written last: in the
    /// current block or, if no other block can be written, at the block's own end.
    pub(super) fn copy_frozen(&mut self, number: u32) -> Result<(), FsError> {
        let start = self.log().blocks.geometry.block_start(number);
        let block = &self.log().blocks.blocks[number as usize];
        let touched = block.raws.iter().filter(|raw| {
            !raw.is_dead && self.log().medium.is_frozen(start + u64::from(raw.at), raw.len as usize)
        });
        for raw in touched.copied().collect::<Vec<_>>() {
            self.copy_out(self.log().blocks.address(number, raw.at), &raw)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
