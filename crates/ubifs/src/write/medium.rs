//! The flash under a file system that is being written.
//!
//! Every byte written passes through here or through the write buffers in [`buffered`]. A failed
//! change returns an error of the file system, and nothing is written after it: what followed would
//! refer to something that does not exist.
//!
//! [`buffered`]: super::buffered

use alloc::vec::Vec;
use core::ops::Range;

use flysch_api::flash;
use flysch_api::vfs::FsError;
use flysch_api::volume::{LebState, Volume, VolumeMut};
use flysch_wire::ubifs::{MASTER_LEB, NODE_ALIGNMENT};

use super::buffered::{Buffered, pad};
use crate::access::{Access, Fault, Scratch};
use crate::location::Location;
use crate::store::Store;

/// How many times a place is read to see whether it reads the same each time.
const LOOKS: usize = 4;
/// The same without error correction, which would reveal unstable cells.
const LOOKS_UNCORRECTED: usize = 16;
/// Fewest bytes to check when looking for a write.
const LOOK_MIN: u32 = 64;

impl<V: VolumeMut> Access<Buffered<V>> {
    /// Fails once the flash has refused a change.
    pub(super) fn writable(&self) -> Result<(), FsError> {
        if self.volume.refused { Err(FsError::ReadOnly) } else { Ok(()) }
    }

    /// Stops all writing.
    pub(super) fn give_up(&mut self) {
        self.volume.refused = true;
    }

    /// Turns a refusal of the flash into an error, and stops all writing.
    fn refused(&mut self, lnum: u32, offset: u32, error: flash::FlashError) -> FsError {
        self.give_up();
        match error {
            flash::FlashError::WriteProtected => FsError::ReadOnly,
            source => FsError::Medium { place: self.place(lnum, offset), source },
        }
    }

    /// The sequence number of the next node.
    pub(super) fn next_sequence(&mut self) -> u64 {
        self.volume.sequence += 1;
        self.volume.sequence
    }

    pub(super) fn write_leb(
        &mut self,
        lnum: u32,
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), FsError> {
        let written = self.volume.flash_mut().write(lnum, offset, bytes);
        written.map_err(|error| self.refused(lnum, offset, error))
    }

    pub(super) fn change_leb(&mut self, lnum: u32, bytes: &[u8]) -> Result<(), FsError> {
        self.let_go(lnum);
        let changed = self.volume.flash_mut().change(lnum, bytes);
        changed.map_err(|error| self.refused(lnum, 0, error))
    }

    pub(super) fn unmap_leb(&mut self, lnum: u32) -> Result<(), FsError> {
        self.let_go(lnum);
        let unmapped = self.volume.flash_mut().unmap(lnum);
        unmapped.map_err(|error| self.refused(lnum, 0, error))
    }

    /// Unmaps a LEB if it is mapped.
    pub(super) fn clear_leb(&mut self, lnum: u32) -> Result<(), FsError> {
        if self.is_mapped(lnum) { self.unmap_leb(lnum) } else { Ok(()) }
    }

    pub(super) fn map_leb(&mut self, lnum: u32) -> Result<(), FsError> {
        let mapped = self.volume.flash_mut().map(lnum);
        mapped.map_err(|error| self.refused(lnum, 0, error))
    }

    pub(super) fn is_mapped(&self, lnum: u32) -> bool {
        self.volume.state(lnum) != LebState::Unmapped
    }

    /// Completes pending operations; see [`VolumeMut::sync`].
    pub(super) fn sync_volume(&mut self) -> Result<(), FsError> {
        let synced = self.volume.flash_mut().sync();
        synced.map_err(|error| self.refused(MASTER_LEB, 0, error))
    }

    /// Appends whole nodes to a journal head with room for them; returns where they begin.
    pub(super) fn append(&mut self, head: usize, bytes: &[u8]) -> Result<Location, FsError> {
        let (lnum, offset) = self.volume.end_of(head);
        let appended = self.volume.append(head, bytes);
        appended.map_err(|error| self.refused(lnum, offset, error))?;
        Ok(Location { lnum, offset, length: bytes.len() as u32 })
    }

    /// Writes a journal head's buffered data to the flash; returns the LEB and its new end.
    pub(super) fn sync_head(&mut self, head: usize) -> Result<Option<(u32, u32)>, FsError> {
        let (lnum, offset) = self.volume.end_of(head);
        let synced = self.volume.sync_head(head);
        synced.map_err(|error| self.refused(lnum, offset, error))
    }

    /// The whole content of a LEB.
    pub(super) fn whole_leb(&self, lnum: u32) -> Result<Vec<u8>, FsError> {
        let mut scratch = Scratch::new();
        let fault = |cause| Fault { structure: "LEB", place: self.place(lnum, 0), cause };
        Ok(self.leb(lnum, &mut scratch).map_err(fault)?.into())
    }

    /// Whether a LEB is erased from `offset` on.
    pub(super) fn is_erased(&self, lnum: u32, offset: u32, leb_size: u32) -> bool {
        let at = Location { lnum, offset, length: leb_size - offset };
        // One that cannot be read is as good as one that is not erased: it is rewritten.
        self.reads_erased(at, &mut Scratch::new()).unwrap_or(false)
    }

    /// Whether nothing was written to a LEB from `offset` on. A LEB is written from front to back:
    /// a write that began there shows in the first unit, and one that filled the LEB in the last.
    pub(super) fn is_untouched(
        &self,
        lnum: u32,
        offset: u32,
        (leb_size, unit): (u32, u32),
    ) -> Result<bool, FsError> {
        let length = unit.max(LOOK_MIN).min(leb_size - offset);
        let mut scratch = Scratch::new();
        let places = [offset, leb_size - length].map(|offset| Location { lnum, offset, length });
        for at in places {
            if !self.reads_erased(at, &mut scratch)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a place reads the same each time and needs no correction. One where a write was cut
    /// short does not, even if the write seems not to have begun.
    pub(super) fn is_firm(&self, lnum: u32, place: Range<u32>, unit: u32) -> bool {
        let flash = self.volume.flash();
        let read = |bytes: &mut [u8]| flash.read(lnum, place.start, bytes);
        let mut first = alloc::vec![0; place.len()];
        let mut again = first.clone();
        let Ok(corrected) = read(&mut first) else { return false };
        let looks = match flash.point(lnum, place.start, 1) {
            // The volume lies in memory.
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

    fn reads_erased(&self, at: Location, scratch: &mut Scratch) -> Result<bool, FsError> {
        let place = self.place(at.lnum, at.offset);
        let fault = |cause| Fault { structure: "LEB", place, cause };
        let bytes = self.bytes(at, scratch).map_err(fault)?;
        Ok(bytes.iter().all(|&byte| byte == 0xff))
    }
}

impl<V: VolumeMut> Store<Buffered<V>> {
    /// LEB size, bytes.
    pub(super) fn leb_size(&self) -> u32 {
        self.layout.leb_size
    }

    /// Write unit, bytes.
    pub(super) fn unit(&self) -> u32 {
        self.superblock.min_io_size.max(NODE_ALIGNMENT)
    }

    /// Keeps a LEB's content up to `end`, padded; returns the new end.
    pub(super) fn cut_leb(&mut self, lnum: u32, end: u32) -> Result<u32, FsError> {
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
