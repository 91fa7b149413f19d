//! What attaching judged, made true on the flash before anything relies on it.
//!
//! A page that was cut late reads as either, each time anew: a copy that was whole may not be so at
//! the next attach, and one that was not may be. So each block is judged once, by attaching, and
//! then, before anything else is written and before [`UbiDevice::attach`](super::UbiDevice::attach)
//! returns:
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

use super::lebs::Lebs;
use super::wear::State;
use super::{BLOCK_TRIES, Error, ReadOnly};
use crate::blocks::Claim;
use crate::scan::{Evidence, Fresh};

impl<F: FlashMut> Lebs<F> {
    /// Does what the verdicts of attaching ask for.
    pub(super) fn execute(&mut self, evidence: &Evidence) -> Result<(), Error> {
        for &peb in &evidence.rejected {
            if self.pebs.wear.state(peb) != State::Waiting {
                continue;
            }
            // Erases what starts an unfinished fastmap, which may be this one.
            self.pebs.begin()?;
            if self.pebs.wear.state(peb) == State::Waiting {
                self.pebs.wear.unqueue(peb);
                self.pebs.erase_block(peb, false)?;
            }
        }
        if let Some(fresh) = &evidence.fresh {
            self.rewrite(fresh)?;
        }
        for Claim { peb, vid } in &evidence.announced {
            let held = State::Used { volume: vid.volume, lnum: vid.lnum };
            for _ in 0..=BLOCK_TRIES {
                if self.pebs.wear.state(*peb) != held {
                    break;
                }
                self.pebs.begin()?;
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
        if self.pebs.wear.state(fresh.peb) != (State::Used { volume, lnum }) {
            return Ok(());
        }
        self.pebs.begin()?;
        for _ in 0..=BLOCK_TRIES {
            // Never so: two blocks are reserved for changes and moves.
            let Some(peb) = self.pebs.spare_block(&fresh.older)? else { return Ok(()) };
            let vid = VidHeader { sequence: self.pebs.next_sequence(), ..fresh.vid };
            let written = self.pebs.io.write_vid(peb, &vid);
            match written.and_then(|()| self.pebs.io.write_data(peb, 0, &fresh.data)) {
                Ok(()) => {
                    self.pebs.wear.settle(peb, volume, lnum);
                    return self.swap(volume, lnum, peb, false);
                }
                Err(error) if self.pebs.is_block_failure(error) => {
                    self.pebs.erase_block(peb, true)?
                }
                Err(error) => return Err(self.pebs.stop(ReadOnly::Flash(error))),
            }
        }
        Err(self.pebs.stop(ReadOnly::NoGoodBlock))
    }
}
