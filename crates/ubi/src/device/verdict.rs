//! Makes the verdicts of attaching true on the flash before anything relies on them.
//!
//! A page that was interrupted late may read as complete or not, differently each time: a copy that
//! was intact may not be so at the next attach, and the other way round. So attaching judges each
//! block once. Then, before anything else is written and before
//! [`UbiDevice::attach`](super::UbiDevice::attach) returns:
//!
//! 1. blocks that were judged not to be a copy of a LEB are erased, so that they never become one;
//! 2. the LEB that was written last is written again from the content that was read then, while
//!    the blocks with its older content still exist;
//! 3. LEBs are moved out of blocks whose erase was announced (NOR): the header that identifies
//!    them may also have been about to be invalidated.
//!
//! A cut in between leaves the earlier state, to be judged anew by an attach; nobody has seen the
//! result of the previous one yet.

use flysch_api::flash::FlashMut;
use flysch_wire::ubi::VidHeader;

use super::lebs::Lebs;
use super::wear::State;
use super::{BLOCK_TRIES, ReadOnly, UbiError};
use crate::blocks::Claim;
use crate::scan::{Evidence, Fresh};

impl<F: FlashMut> Lebs<F> {
    /// Carries out the verdicts of attaching.
    pub(super) fn execute(&mut self, evidence: &Evidence) -> Result<(), UbiError> {
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

    /// Writes a LEB again from the content that was read.
    fn rewrite(&mut self, fresh: &Fresh) -> Result<(), UbiError> {
        let (volume, lnum) = (fresh.vid.volume, fresh.vid.lnum);
        if self.pebs.wear.state(fresh.peb) != (State::Used { volume, lnum }) {
            return Ok(());
        }
        self.pebs.begin()?;
        let older = fresh.older.iter().copied().collect();
        for _ in 0..=BLOCK_TRIES {
            // Never so: two blocks are reserved for changes and moves.
            let Some(peb) = self.pebs.spare_block(&older)? else { return Ok(()) };
            let vid = VidHeader { sequence: self.pebs.next_sequence()?, ..fresh.vid };
            let written = self.pebs.io.write_vid(peb, &vid);
            match written.and_then(|()| self.pebs.io.write_data(peb, 0, &fresh.data)) {
                Ok(()) => {
                    self.pebs.wear.settle(peb, volume, lnum);
                    return self.swap(volume, lnum, peb, false);
                }
                Err(error) if self.pebs.is_block_failure(error) => {
                    self.pebs.erase_block(peb, true)?
                }
                Err(error) => return Err(self.pebs.stop(error)),
            }
        }
        Err(self.pebs.stop(ReadOnly::NoGoodBlock))
    }
}
