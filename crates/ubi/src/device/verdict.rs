//! What attaching judged, made true on the flash before anything relies on it.
//!
//! A page that was cut late reads as either, each time anew: a copy that was whole may not be so at
//! the next attach, and one that was not may be. So each block is judged once, by attaching, and
//! then, before anything else is written and before [`Device::attach`] returns:
//!
//! 1. blocks that were judged to be no copy of a LEB are erased, so that they never become one;
//! 2. the LEB that was written last is written again, from what was read of it then, while the
//!    blocks with its older content are still there;
//! 3. LEBs are moved out of blocks whose erase was announced (NOR): the header that says which they
//!    are may have been about to be spoilt, too.
//!
//! A cut in between leaves what was there before, to be judged anew by an attach that nobody has
//! heard the answer of yet.

use flysch_api::flash::FlashMut;
use flysch_wire::ubi::VidHeader;

use super::{BLOCK_TRIES, Device, Error, ReadOnly, State};
use crate::attach::{Evidence, Fresh};
use crate::blocks::Claim;

impl<F: FlashMut> Device<F> {
    /// Does what the verdicts of attaching ask for.
    pub(super) fn execute(&mut self, evidence: &Evidence) -> Result<(), Error> {
        for &peb in &evidence.rejected {
            if self.wear.state(peb) != State::Waiting {
                continue;
            }
            // Erases what starts an unfinished fastmap, which may be this one.
            self.begin()?;
            if self.wear.state(peb) == State::Waiting {
                self.wear.unqueue(peb);
                self.erase_block(peb, false)?;
            }
        }
        if let Some(fresh) = &evidence.fresh {
            self.rewrite(fresh)?;
        }
        for Claim { peb, vid } in &evidence.announced {
            let held = State::Used { volume: vid.volume, lnum: vid.lnum };
            for _ in 0..=BLOCK_TRIES {
                if self.wear.state(*peb) != held {
                    break;
                }
                self.begin()?;
                if self.move_known(*peb, vid)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Writes a LEB again from what was read of it.
    fn rewrite(&mut self, fresh: &Fresh) -> Result<(), Error> {
        let (volume, lnum) = (fresh.vid.volume, fresh.vid.lnum);
        if self.wear.state(fresh.peb) != (State::Used { volume, lnum }) {
            return Ok(());
        }
        self.begin()?;
        for _ in 0..=BLOCK_TRIES {
            // Never so: two blocks are reserved for changes and moves.
            let Some(peb) = self.spare_block(&fresh.older)? else { return Ok(()) };
            let vid = VidHeader { sequence: self.next_sequence(), ..fresh.vid };
            let written = self.io.write_vid(peb, &vid);
            match written.and_then(|()| self.io.write_data(peb, 0, &fresh.data)) {
                Ok(()) => {
                    self.wear.settle(peb, volume, lnum);
                    return self.swap(volume, lnum, peb, false);
                }
                Err(error) if self.is_block_failure(error) => self.erase_block(peb, true)?,
                Err(error) => return Err(self.stop(ReadOnly::Flash(error))),
            }
        }
        Err(self.stop(ReadOnly::NoGoodBlock))
    }

    /// A free block; where there is none, the first that waits for its erase and is not in `older`.
    fn spare_block(&mut self, older: &[u32]) -> Result<Option<u32>, Error> {
        loop {
            let range = self.options.wear_threshold.saturating_mul(2);
            if let Some(peb) = self.wear.take().or_else(|| self.wear.take_worn(range)) {
                if self.wear.pebs[peb as usize].checked || self.io.looks_erased(peb) {
                    return Ok(Some(peb));
                }
                self.wear.give_up(peb, false);
                continue;
            }
            // What is erased now is in no pool.
            self.void_fastmap()?;
            if self.wear.free_count() > 0 {
                continue;
            }
            let waiting = self.wear.queue.iter().map(|waiting| waiting.peb);
            let Some(peb) = { waiting }.find(|peb| !older.contains(peb)) else { return Ok(None) };
            self.wear.unqueue(peb);
            self.erase_block(peb, false)?;
        }
    }
}
