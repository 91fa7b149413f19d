//! Pages that a power cut left between two states.
//!
//! A page whose programming was cut late may read well now and not the next time: some of its cells
//! read as either. So what was written last in a block is looked at more than once, and if it is
//! not firm, what counts in that block is copied out before anything else happens.

use alloc::vec;
use alloc::vec::Vec;

use flysch_api::flash::{Error as FlashError, Flash, FlashMut};

use super::Jffs2Mut;
use super::space::State;
use crate::found::BlockFound;

/// How often a page is read that may be the last one written.
const LOOKS: usize = 4;
/// Bytes looked at where there are no pages: more than any write buffer has.
const BYTES: u32 = 1024;

/// Blocks whose last page does not read firmly.
pub(super) fn blocks<F: Flash>(flash: &F, found: &[BlockFound]) -> Vec<u32> {
    let facts = (0..).zip(found).filter(|(_, facts)| !facts.is_bad && facts.end > 0);
    facts.filter(|(block, facts)| is_shaky(flash, *block, facts.end)).map(|(n, _)| n).collect()
}

fn is_shaky<F: Flash>(flash: &F, block: u32, end: u32) -> bool {
    let geometry = flash.geometry();
    let page = if geometry.write_size > 1 { geometry.write_size } else { BYTES };
    let start = (end - 1) / page * page;
    let len = page.min(geometry.block_len(block).saturating_sub(start));
    let at = geometry.block_start(block) + u64::from(start);
    // A full block takes no more, and its last page was hardly the one that was cut: on worn flash
    // a bit error means nothing there.
    let is_full = end >= geometry.block_len(block);
    let mut first = vec![0; len as usize];
    let mut again = vec![0; len as usize];
    for look in 0..if is_full { 1 } else { LOOKS } {
        let bytes = if look == 0 { &mut first } else { &mut again };
        match flash.read(at, bytes) {
            Ok(corrected) if is_full => return corrected.needs_scrub(geometry),
            Ok(corrected) if corrected.bits > 0 => return true,
            Ok(_) => {}
            Err(FlashError::Uncorrectable { .. }) => return true,
            Err(_) => return false,
        }
        if look > 0 && first != again {
            return true;
        }
    }
    false
}

impl<F: FlashMut> Jffs2Mut<F> {
    /// Copies what counts out of these blocks. Without room for it they stay as they are, and the
    /// next mount tries again.
    pub(super) fn leave(&mut self, shaky: &[u32]) {
        let is_used = |number: &&u32| {
            self.blocks.blocks.get(**number as usize).is_some_and(|b| b.state == State::Closed)
        };
        let used: Vec<u32> = shaky.iter().filter(is_used).copied().collect();
        if used.is_empty() {
            return;
        }
        self.settle_all();
        for number in used {
            self.collected = Some(number);
            while self.collected == Some(number) {
                if self.collect().is_err() {
                    self.collected = None;
                    return;
                }
            }
        }
        // What was copied is on the flash before anybody relies on it.
        let _ = self.flush();
    }
}
