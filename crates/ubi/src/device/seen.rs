//! Blocks that a fastmap maps, examined when they are first needed.
//!
//! The fastmap used to attach says where each LEB was when it was written. Since then the LEB may
//! have been discarded and its block erased; then the LEB is not mapped.

use flysch_api::flash::{self, FlashMut};
use flysch_wire::ubi::{HeaderError, VidHeader};

use super::UbiError;
use super::entries::UNMAPPED;
use super::lebs::Lebs;
use super::pebs::Pebs;
use super::wear::State;
use crate::blocks::Reader;

/// What a mapped block holds.
enum Held {
    Mapped,
    Nothing,
    SomethingElse,
}

impl<F: FlashMut> Pebs<F> {
    pub(super) fn reader(&self) -> Reader<'_, F> {
        Reader::new(&self.io.flash, self.io.shape.image)
    }

    /// As a scan judges it; the error is the flash's if it does not give what must be known. Where
    /// a header must say the same as that of a block just written to the LEB, it is compared with
    /// `expected`.
    fn look(&self, peb: u32, expected: &VidHeader) -> Result<Held, flash::FlashError> {
        let offsets = self.io.shape.offsets;
        let reader = self.reader();
        let headers = reader.headers(peb, offsets);
        let refused = || reader.refused.get().map_or(Ok(()), |(_, error)| Err(error));
        refused()?;
        if headers.bad {
            return Ok(Held::Nothing);
        }
        // A block without its erase counter is moved as well.
        if headers.scrub || headers.ec.is_err() {
            self.wear.flag(peb);
        }
        let key = |vid: &VidHeader| (vid.volume, vid.lnum, vid.kind, vid.data_pad);
        let held = match (headers.ec, headers.vid) {
            (Err(HeaderError::Erased), _) | (_, Err(HeaderError::Erased)) | (Err(_), Err(_)) => {
                Held::Nothing
            }
            (_, Ok(vid)) if key(&vid) == key(expected) => Held::Mapped,
            (_, Ok(_)) => Held::SomethingElse,
            (Ok(_), Err(_)) if reader.is_ruin(peb, offsets.data) => Held::Nothing,
            // Only the header is damaged: the map knows better.
            (Ok(_), Err(_)) => Held::Mapped,
        };
        refused().map(|()| held)
    }

    /// How often a block was erased; read from its header if it has not been examined yet.
    pub(super) fn known_erase_counter(&self, peb: u32) -> u32 {
        let known = self.wear.erase_counter(peb);
        if !self.wear.unseen.get(peb) {
            return known;
        }
        // What was erased since has one more.
        let header = self.reader().ec(peb).0.ok();
        header.map_or(known, |header| known.max(header.erase_counter as u32))
    }

    /// Whether a block that the fastmap lists has gone bad since.
    pub(super) fn went_bad(&self, peb: u32) -> Result<bool, flash::FlashError> {
        if self.wear.unseen.get(peb) { self.io.flash.is_bad(peb) } else { Ok(false) }
    }
}

impl<F: FlashMut> Lebs<F> {
    /// The block of a LEB; the error is that of reading its headers.
    pub(super) fn lookup(&self, volume: u32, lnum: u32) -> Result<Option<u32>, flash::FlashError> {
        let Some(peb) = self.volumes.peb(volume, lnum) else { return Ok(None) };
        let wear = &self.pebs.wear;
        if !wear.unseen.get(peb) {
            return Ok(Some(peb));
        }
        if wear.gone.get(peb) {
            return Ok(None);
        }
        let offset = self.pebs.reader().start(peb);
        let Ok(expected) = self.volumes.header(volume, lnum) else { return Ok(None) };
        match self.pebs.look(peb, &expected)? {
            Held::Mapped => {
                wear.unseen.clear(peb);
                Ok(Some(peb))
            }
            Held::Nothing => {
                wear.gone.set(peb);
                Ok(None)
            }
            Held::SomethingElse => {
                wear.wrong.set(peb);
                Err(flash::FlashError::Uncorrectable { offset })
            }
        }
    }

    /// Acts on the results of reads: blocks with bit errors, and mapped blocks that hold nothing.
    pub(super) fn collect_found(&mut self) {
        self.pebs.wear.collect_flagged();
        for peb in self.pebs.wear.gone.take() {
            let State::Used { volume, lnum } = self.pebs.wear.state(peb) else { continue };
            match self.volumes.slot(volume, lnum) {
                Some(slot) if *slot == peb => *slot = UNMAPPED,
                _ => {}
            }
            self.pebs.wear.give_up(peb, false);
        }
    }

    /// Discards a block to which a LEB is mapped but which holds nothing any more; `false` if it
    /// holds something.
    pub(super) fn drop_gone(&mut self, peb: u32) -> Result<bool, UbiError> {
        let State::Used { volume, lnum } = self.pebs.wear.state(peb) else { return Ok(false) };
        if !self.pebs.wear.unseen.get(peb) || !matches!(self.lookup(volume, lnum), Ok(None)) {
            return Ok(false);
        }
        self.swap(volume, lnum, UNMAPPED, false)?;
        Ok(true)
    }
}
