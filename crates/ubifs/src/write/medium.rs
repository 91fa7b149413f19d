//! The flash under a file system that is written.
//!
//! Every byte that reaches it goes through here or through the write buffers in [`buffered`].
//! Whoever gets an error from a change gets it as the file system's, and nothing is written after
//! it: what follows a failed change would stand for something that is not there.
//!
//! [`buffered`]: super::buffered

use alloc::vec::Vec;
use core::ops::Range;

use flysch_api::flash;
use flysch_api::vfs::Error;
use flysch_api::volume::{LebState, Volume, VolumeMut};
use flysch_wire::ubifs::{MASTER_LEB, NODE_ALIGNMENT};

use super::buffered::{Buffered, pad};
use crate::access::{Access, Fault, Scratch};
use crate::location::Location;
use crate::store::Store;

/// How often a place is read to tell whether it reads the same each time.
const LOOKS: usize = 4;
/// How often without error correction, which would tell of cells that read as either.
const LOOKS_UNCORRECTED: usize = 16;
/// Fewest bytes that tell whether something was written.
const LOOK_MIN: u32 = 64;

impl<V: VolumeMut> Access<Buffered<V>> {
    /// Refuses once the flash refused.
    pub(super) fn writable(&self) -> Result<(), Error> {
        if self.volume.refused { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Writes nothing any more.
    pub(super) fn give_up(&mut self) {
        self.volume.refused = true;
    }

    /// What a refusal of the flash means; nothing is written after it.
    fn refused(&mut self, lnum: u32, offset: u32, error: flash::Error) -> Error {
        self.give_up();
        match error {
            flash::Error::WriteProtected => Error::ReadOnly,
            _ => Error::Medium(self.place(lnum, offset)),
        }
    }

    /// The sequence number of the next node.
    pub(super) fn next_sequence(&mut self) -> u64 {
        self.volume.sequence += 1;
        self.volume.sequence
    }

    pub(super) fn write_leb(&mut self, lnum: u32, offset: u32, bytes: &[u8]) -> Result<(), Error> {
        let written = self.volume.flash_mut().write(lnum, offset, bytes);
        written.map_err(|error| self.refused(lnum, offset, error))
    }

    pub(super) fn change_leb(&mut self, lnum: u32, bytes: &[u8]) -> Result<(), Error> {
        self.let_go(lnum);
        let changed = self.volume.flash_mut().change(lnum, bytes);
        changed.map_err(|error| self.refused(lnum, 0, error))
    }

    pub(super) fn unmap_leb(&mut self, lnum: u32) -> Result<(), Error> {
        self.let_go(lnum);
        let unmapped = self.volume.flash_mut().unmap(lnum);
        unmapped.map_err(|error| self.refused(lnum, 0, error))
    }

    /// Unmaps a LEB unless it is unmapped.
    pub(super) fn clear_leb(&mut self, lnum: u32) -> Result<(), Error> {
        if self.is_mapped(lnum) { self.unmap_leb(lnum) } else { Ok(()) }
    }

    pub(super) fn map_leb(&mut self, lnum: u32) -> Result<(), Error> {
        let mapped = self.volume.flash_mut().map(lnum);
        mapped.map_err(|error| self.refused(lnum, 0, error))
    }

    pub(super) fn is_mapped(&self, lnum: u32) -> bool {
        self.volume.state(lnum) != LebState::Unmapped
    }

    /// Ends what is pending; see [`VolumeMut::sync`].
    pub(super) fn sync_volume(&mut self) -> Result<(), Error> {
        let synced = self.volume.flash_mut().sync();
        synced.map_err(|error| self.refused(MASTER_LEB, 0, error))
    }

    /// Appends whole nodes to a journal head that has room; tells where they begin.
    pub(super) fn append(&mut self, head: usize, bytes: &[u8]) -> Result<Location, Error> {
        let (lnum, offset) = self.volume.end_of(head);
        let appended = self.volume.append(head, bytes);
        appended.map_err(|error| self.refused(lnum, offset, error))?;
        Ok(Location { lnum, offset, length: bytes.len() as u32 })
    }

    /// Puts what a journal head holds back on the flash; tells the LEB and where it ends now.
    pub(super) fn sync_head(&mut self, head: usize) -> Result<Option<(u32, u32)>, Error> {
        let (lnum, offset) = self.volume.end_of(head);
        let synced = self.volume.sync_head(head);
        synced.map_err(|error| self.refused(lnum, offset, error))
    }

    /// What a LEB holds, all of it.
    pub(super) fn whole_leb(&self, lnum: u32) -> Result<Vec<u8>, Error> {
        let mut scratch = Scratch::new();
        let fault = |cause| Fault { structure: "LEB", place: self.place(lnum, 0), cause };
        Ok(self.leb(lnum, &mut scratch).map_err(fault)?.into())
    }

    /// Whether a LEB is erased from `offset` on.
    pub(super) fn is_erased(&self, lnum: u32, offset: u32, leb_size: u32) -> bool {
        let at = Location { lnum, offset, length: leb_size - offset };
        self.reads_erased(at, &mut Scratch::new())
    }

    /// Whether nothing was written to a LEB behind `offset`. A LEB is written from front to back:
    /// what was begun there shows in the first unit, and what filled it in the last.
    pub(super) fn is_untouched(
        &self,
        lnum: u32,
        offset: u32,
        (leb_size, unit): (u32, u32),
    ) -> bool {
        let length = unit.max(LOOK_MIN).min(leb_size - offset);
        let mut scratch = Scratch::new();
        let places = [offset, leb_size - length].map(|offset| Location { lnum, offset, length });
        places.into_iter().all(|at| self.reads_erased(at, &mut scratch))
    }

    /// Whether a place reads the same each time, with hardly a bit to correct: a write that was cut
    /// short, or not even begun as it seems, does not.
    pub(super) fn is_firm(&self, lnum: u32, place: Range<u32>, unit: u32) -> bool {
        let flash = self.volume.flash();
        let read = |bytes: &mut [u8]| flash.read(lnum, place.start, bytes);
        let mut first = alloc::vec![0; place.len()];
        let mut again = first.clone();
        let Ok(corrected) = read(&mut first) else { return false };
        let looks = match flash.point(lnum, place.start, 1) {
            // Memory.
            Some(_) => 1,
            None if unit > NODE_ALIGNMENT => LOOKS,
            None => LOOKS_UNCORRECTED,
        };
        let mut is_clean = corrected.bits == 0;
        for _ in 1..looks {
            is_clean &= read(&mut again).is_ok_and(|it| it.bits == 0) && first == again;
        }
        is_clean
    }

    fn reads_erased(&self, at: Location, scratch: &mut Scratch) -> bool {
        let bytes = self.bytes(at, scratch);
        bytes.is_ok_and(|bytes| bytes.iter().all(|&byte| byte == 0xff))
    }
}

impl<V: VolumeMut> Store<Buffered<V>> {
    /// Bytes of a LEB.
    pub(super) fn leb_size(&self) -> u32 {
        self.layout.leb_size
    }

    /// Unit of writing, bytes.
    pub(super) fn unit(&self) -> u32 {
        self.superblock.min_io_size.max(NODE_ALIGNMENT)
    }

    /// Keeps a LEB up to `end`, padded; tells where it ends then.
    pub(super) fn cut_leb(&mut self, lnum: u32, end: u32) -> Result<u32, Error> {
        if end == 0 {
            self.access.clear_leb(lnum)?;
            self.access.map_leb(lnum)?;
            return Ok(0);
        }
        let mut content = self.access.whole_leb(lnum)?;
        content.truncate(end as usize);
        pad(&mut content, self.unit() as usize);
        self.access.change_leb(lnum, &content)?;
        Ok(content.len() as u32)
    }
}
