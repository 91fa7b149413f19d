//! Moving LEBs to other blocks: wear levelling and scrubbing.

use flysch_api::flash::{self, FlashMut};
use flysch_wire::ubi::{VidHeader, VolumeKind, crc32};

use super::lebs::Lebs;
use super::wear::State;
use super::{ReadOnly, UbiError};

/// How a move ended.
enum Moved {
    Yes,
    /// The old block cannot be read; what the flash answers if it is not that the block is damaged.
    Unreadable(Option<flash::FlashError>),
    /// The new block cannot be written.
    BadTarget,
}

impl<F: FlashMut> Lebs<F> {
    /// Moves one LEB that needs it; `false` if none does or no block is free for it.
    pub(super) fn move_next(&mut self) -> Result<bool, UbiError> {
        let range = self.pebs.options.wear_threshold.saturating_mul(2);
        let unbalanced = || self.pebs.wear.unbalanced(self.pebs.options.wear_threshold);
        let Some(peb) = self.pebs.wear.next_scrub().or_else(unbalanced) else { return Ok(false) };
        if self.drop_gone(peb)? {
            return Ok(true);
        }
        let scrub = self.pebs.wear.is_scrub(peb);
        self.fill_move_pool()?;
        while self.pebs.wear.free_count() == 0 {
            if !self.pebs.erase_next()? {
                return Ok(false);
            }
        }
        let Some(target) = self.pebs.wear.take_worn(range) else { return Ok(false) };
        if !self.pebs.wear.pebs[target as usize].checked && !self.pebs.io.looks_erased(target) {
            self.pebs.wear.give_up(target, false);
            return Ok(true);
        }
        match self.move_leb(peb, target)? {
            Moved::Yes if scrub => self.pebs.statistics.scrubs += 1,
            Moved::Yes => self.pebs.statistics.moves += 1,
            // At once: it may be a whole copy, which must not outlive the next write to the LEB.
            Moved::BadTarget => self.pebs.erase_block(target, true)?,
            Moved::Unreadable(answer) => {
                self.pebs.wear.put_back(target);
                self.pebs.wear.set_unreadable(peb);
                self.check_unreadable(answer)?;
            }
        }
        Ok(true)
    }

    /// More unreadable blocks than this (10 %, at least 16) mean that the chip is failing.
    fn check_unreadable(&mut self, answer: Option<flash::FlashError>) -> Result<(), UbiError> {
        let blocks = self.pebs.wear.unreadable_count();
        if blocks > (self.pebs.account.blocks / 10).max(16) {
            let why = answer.unwrap_or(ReadOnly::Unreadable { blocks }.into());
            return Err(self.pebs.stop(why));
        }
        Ok(())
    }

    /// Moves the content of `peb` to any free block; `false` if that failed.
    pub(super) fn move_away(&mut self, peb: u32) -> Result<bool, UbiError> {
        if self.drop_gone(peb)? {
            return Ok(true);
        }
        match self.pebs.io.read_vid(peb) {
            Ok(Some(vid)) => self.move_known(peb, &vid),
            Ok(None) | Err(_) => Ok(false),
        }
    }

    /// [`move_away`](Self::move_away) for a block whose header is known.
    pub(super) fn move_known(&mut self, peb: u32, vid: &VidHeader) -> Result<bool, UbiError> {
        let target = self.allocate()?;
        match self.move_content(peb, vid, target)? {
            Moved::Yes => return Ok(true),
            Moved::BadTarget => self.pebs.erase_block(target, true)?,
            Moved::Unreadable(_) => self.pebs.wear.put_back(target),
        }
        Ok(false)
    }

    /// Copies the content of `peb` to the free block `target` and discards `peb`.
    fn move_leb(&mut self, peb: u32, target: u32) -> Result<Moved, UbiError> {
        match self.pebs.io.read_vid(peb) {
            Ok(Some(vid)) => self.move_content(peb, &vid, target),
            Ok(None) => Ok(Moved::Unreadable(None)),
            Err(error) => Ok(Moved::Unreadable(Some(error))),
        }
    }

    /// [`move_leb`](Self::move_leb) for a block whose header is `old`.
    fn move_content(&mut self, peb: u32, old: &VidHeader, target: u32) -> Result<Moved, UbiError> {
        let State::Used { volume, lnum } = self.pebs.wear.state(peb) else {
            return Ok(Moved::Unreadable(None));
        };
        if (old.volume, old.lnum) != (volume, lnum) {
            return Ok(Moved::Unreadable(None));
        }
        let leb_size = self.pebs.leb_size() - old.data_pad;
        let size = if old.kind == VolumeKind::Static { old.data_size } else { leb_size };
        let mut data = alloc::vec![0; size as usize];
        match self.pebs.io.read_data(peb, 0, &mut data) {
            Ok(_) => {}
            Err(flash::FlashError::Uncorrectable { .. }) => return Ok(Moved::Unreadable(None)),
            Err(error) => return Ok(Moved::Unreadable(Some(error))),
        }
        if old.kind == VolumeKind::Static && crc32(&data) != old.data_crc {
            // A copy would carry a checksum that makes the damage look right.
            return Ok(Moved::Unreadable(None));
        }
        let data = match old.kind {
            VolumeKind::Static => &data[..],
            VolumeKind::Dynamic => trimmed(&data, self.pebs.io.shape.write_size),
        };
        let copy = !data.is_empty();
        let (data_size, data_crc) = if copy { (data.len() as u32, crc32(data)) } else { (0, 0) };
        let sequence = self.pebs.next_sequence()?;
        let vid = VidHeader { copy, data_size, data_crc, sequence, ..*old };
        let written = self
            .pebs
            .io
            .write_vid(target, &vid)
            .and_then(|()| self.pebs.io.write_data(target, 0, data))
            .and_then(|()| self.pebs.io.reads_back(target, data));
        match written {
            Ok(true) => {}
            Ok(false) | Err(flash::FlashError::ProgramFailed { .. })
                if self.pebs.io.bad_allowed() =>
            {
                return Ok(Moved::BadTarget);
            }
            Ok(false) => {
                let error = flash::FlashError::ProgramFailed { offset: 0 };
                return Err(self.pebs.stop(error));
            }
            Err(error) => return Err(self.pebs.stop(error)),
        }
        // Not protected: what was moved is what nobody changes.
        self.pebs.wear.settle(target, volume, lnum);
        self.swap(volume, lnum, target, false)?;
        Ok(Moved::Yes)
    }
}

/// Data without the trailing 0xFF, in whole units: the rest is left erased, so that it can still be
/// written.
pub(super) fn trimmed(data: &[u8], unit: u32) -> &[u8] {
    let used = data.iter().rposition(|&byte| byte != 0xff).map_or(0, |last| last + 1);
    &data[..used.next_multiple_of(unit as usize).min(data.len())]
}
