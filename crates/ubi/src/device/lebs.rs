//! Reading, writing, changing and discarding LEBs, and taking blocks for them.

use alloc::vec::Vec;

use flysch_api::flash::{self, Corrected, FlashMut};
use flysch_wire::ubi::{LAYOUT_VOLUME, VidHeader, VolumeKind, crc32};

use super::entries::{Records, UNMAPPED, Volumes};
use super::pebs::Pebs;
use super::volumes::table_bytes;
use super::{BLOCK_TRIES, FREE_LOW, ReadOnly, UbiError};

/// The LEBs of the volumes and the blocks that hold them.
#[derive(Debug)]
pub(super) struct Lebs<F> {
    pub(super) pebs: Pebs<F>,
    pub(super) volumes: Volumes,
}

impl<F: FlashMut> Lebs<F> {
    /// The block of a LEB; if it cannot be examined now, the one that is known from the map.
    pub(super) fn peb_of(&self, volume: u32, lnum: u32) -> Option<u32> {
        self.lookup(volume, lnum).unwrap_or_else(|_| self.volumes.peb(volume, lnum))
    }

    pub(super) fn read_leb(
        &self,
        volume: u32,
        lnum: u32,
        offset: u32,
        buffer: &mut [u8],
    ) -> Result<Corrected, flash::FlashError> {
        let Some(peb) = self.lookup(volume, lnum)? else {
            buffer.fill(0xff);
            return Ok(Corrected::NONE);
        };
        let corrected = self.pebs.io.read_data(peb, offset, buffer)?;
        if corrected.needs_scrub(self.pebs.io.flash.geometry()) {
            self.pebs.wear.flag(peb);
        }
        Ok(corrected)
    }

    /// Writes to a LEB and maps it if necessary. The range has been checked.
    pub(super) fn write_leb(
        &mut self,
        volume: u32,
        lnum: u32,
        offset: u32,
        data: &[u8],
    ) -> Result<(), UbiError> {
        self.pebs.begin()?;
        self.pay()?;
        let Some(peb) = self.lookup(volume, lnum)? else {
            let vid = self.volumes.header(volume, lnum)?;
            let peb = self.place(vid, offset, data)?;
            return self.assign(volume, lnum, peb, false);
        };
        match self.pebs.io.write_data(peb, offset, data) {
            Ok(()) => Ok(()),
            Err(error) if self.pebs.is_block_failure(error) => {
                self.recover_write(volume, lnum, offset, data)
            }
            Err(error) => Err(self.pebs.stop(error)),
        }
    }

    /// After a failed write: writes the content of the LEB before `offset` and the data to another
    /// block, as one copy.
    fn recover_write(
        &mut self,
        volume: u32,
        lnum: u32,
        offset: u32,
        data: &[u8],
    ) -> Result<(), UbiError> {
        let mut whole: Vec<u8> = alloc::vec![0; offset as usize];
        if let Err(error) = self.read_leb(volume, lnum, 0, &mut whole) {
            return Err(self.pebs.stop(error));
        }
        whole.extend_from_slice(data);
        let vid = self.volumes.header_of_copy(volume, lnum, &whole)?;
        let peb = self.place(vid, 0, &whole)?;
        self.pebs.statistics.recovered_writes += 1;
        self.assign(volume, lnum, peb, true)
    }

    /// Writes a header and data into a free block; if that fails, into another one.
    pub(super) fn place(
        &mut self,
        mut vid: VidHeader,
        offset: u32,
        data: &[u8],
    ) -> Result<u32, UbiError> {
        for _ in 0..=BLOCK_TRIES {
            let peb = self.allocate()?;
            vid.sequence = self.pebs.next_sequence()?;
            let written = self.pebs.io.write_vid(peb, &vid);
            match written.and_then(|()| self.pebs.io.write_data(peb, offset, data)) {
                Ok(()) => return Ok(peb),
                Err(error) if self.pebs.is_block_failure(error) => {
                    self.pebs.statistics.recovered_writes += 1;
                    self.pebs.wear.give_up(peb, true);
                }
                Err(error) => return Err(self.pebs.stop(error)),
            }
        }
        Err(self.pebs.stop(ReadOnly::NoGoodBlock))
    }

    /// Maps a LEB to a block just written, and discards its previous block.
    pub(super) fn assign(
        &mut self,
        volume: u32,
        lnum: u32,
        peb: u32,
        torture_old: bool,
    ) -> Result<(), UbiError> {
        self.pebs.wear.occupy(peb, volume, lnum);
        self.swap(volume, lnum, peb, torture_old)
    }

    pub(super) fn swap(
        &mut self,
        volume: u32,
        lnum: u32,
        peb: u32,
        torture_old: bool,
    ) -> Result<(), UbiError> {
        self.pebs.maps.changed = true;
        if let Some(old) = self.volumes.remap(volume, lnum, peb)? {
            self.pebs.wear.give_up(old, torture_old);
        }
        Ok(())
    }

    /// Replaces a LEB's content atomically. The length has been checked.
    pub(super) fn change_leb(
        &mut self,
        volume: u32,
        lnum: u32,
        data: &[u8],
    ) -> Result<(), UbiError> {
        self.pebs.begin()?;
        self.pay()?;
        // An unfinished copy is only told by the older one that still counts. One is made first
        // where there is none.
        if !data.is_empty() && self.peb_of(volume, lnum).is_none() {
            let empty = self.volumes.header(volume, lnum)?;
            let peb = self.place(empty, 0, &[])?;
            self.assign(volume, lnum, peb, false)?;
        }
        // A newer header without the copy flag is an empty LEB from the moment it is whole.
        let vid = match data {
            [] => self.volumes.header(volume, lnum)?,
            _ => self.volumes.header_of_copy(volume, lnum, data)?,
        };
        let peb = self.place(vid, 0, data)?;
        self.assign(volume, lnum, peb, false)
    }

    /// Discards a LEB's content.
    pub(super) fn unmap_leb(&mut self, volume: u32, lnum: u32) -> Result<(), UbiError> {
        let mapped = self.volumes.entry(volume)?.map.get(lnum as usize);
        if mapped.is_none_or(|peb| *peb == UNMAPPED) {
            return match self.pebs.read_only {
                Some(why) => Err(UbiError::ReadOnly(why)),
                None => Ok(()),
            };
        }
        self.pebs.begin()?;
        self.swap(volume, lnum, UNMAPPED, false)
    }

    /// Writes one LEB of a static volume that has `used_ebs` LEBs in all.
    pub(super) fn write_static(
        &mut self,
        volume: u32,
        lnum: u32,
        used_ebs: u32,
        data: &[u8],
    ) -> Result<(), UbiError> {
        self.pebs.begin()?;
        self.pay()?;
        let plain = self.volumes.header(volume, lnum)?;
        debug_assert_eq!(plain.kind, VolumeKind::Static);
        let data_size = data.len() as u32;
        let vid = VidHeader { data_size, used_ebs, data_crc: crc32(data), ..plain };
        let peb = self.place(vid, 0, data)?;
        self.assign(volume, lnum, peb, false)
    }

    /// Does up to `budget` pieces of background work, each one erase or one move of a LEB, erases
    /// first. Returns `true` if there is more to do.
    ///
    /// # Errors
    /// [`UbiError::ReadOnly`] if the device is read-only, or became read-only.
    pub(super) fn work(&mut self, budget: u32) -> Result<bool, UbiError> {
        for _ in 0..budget {
            if !self.has_work() {
                return Ok(false);
            }
            self.pebs.begin()?;
            if !self.pebs.erase_next()? && !self.move_next()? {
                return Ok(false);
            }
        }
        Ok(self.has_work())
    }

    pub(super) fn has_work(&mut self) -> bool {
        self.collect_found();
        self.pebs.wear.waiting_count() > 0
            || self.pebs.wear.scrub_count() > 0
            || self.pebs.wear.unbalanced(self.pebs.options.wear_threshold).is_some()
    }

    /// The share of overdue work that each writing call does.
    pub(super) fn pay(&mut self) -> Result<(), UbiError> {
        self.collect_found();
        if self.pebs.wear.free_count() <= FREE_LOW + self.pebs.account.blocks / 64
            || self.pebs.wants_free()
        {
            self.pebs.erase_next()?;
        }
        self.level_anchor()?;
        if self.pebs.wear.scrub_count() > 0
            || self.pebs.wear.unbalanced(self.pebs.options.wear_threshold).is_some()
        {
            // One block for the move, one for the call itself.
            while self.pebs.wear.free_count() < 2 && self.pebs.erase_next()? {}
            if self.pebs.wear.free_count() >= 2 {
                self.move_next()?;
            }
        }
        Ok(())
    }

    /// Erases every discarded block, and makes everything durable.
    ///
    /// # Errors
    /// [`UbiError::ReadOnly`] or [`UbiError::Flash`].
    pub(super) fn sync(&mut self) -> Result<(), UbiError> {
        self.collect_found();
        if self.pebs.wear.waiting_count() > 0 {
            self.pebs.begin()?;
            self.pebs.drain()?;
        }
        self.pebs.io.flash.sync().map_err(UbiError::Flash)
    }

    /// Finishes all pending work and writes the fastmap, if the device has one. The device may be
    /// used again afterwards.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub(super) fn close(&mut self) -> Result<(), UbiError> {
        if self.pebs.read_only.is_none() {
            self.sync()?;
            let is_old = self.pebs.maps.changed || self.pebs.maps.current.is_empty();
            if self.pebs.options.fastmap && is_old {
                self.pebs.begin()?;
                self.write_fastmap()?;
            }
        }
        self.pebs.io.flash.sync().map_err(UbiError::Flash)
    }

    /// Takes a free block; erases queued blocks until there is one.
    pub(super) fn allocate(&mut self) -> Result<u32, UbiError> {
        loop {
            self.fill_user_pool()?;
            while let Some(peb) = self.pebs.wear.take() {
                if self.pebs.wear.pebs[peb as usize].checked || self.pebs.io.looks_erased(peb) {
                    return Ok(peb);
                }
                self.pebs.wear.give_up(peb, false);
            }
            if !self.pebs.erase_next()? {
                if self.pebs.wear.pools.is_some() {
                    self.pebs.void_fastmap()?;
                    continue;
                }
                return Err(self.pebs.stop(ReadOnly::NoGoodBlock));
            }
        }
    }

    /// Writes both copies of the table, and erases the queued blocks: if the newer table were
    /// damaged, an older copy would become valid again and undo the change.
    pub(super) fn write_table(&mut self, records: &Records) -> Result<(), UbiError> {
        let bytes = table_bytes(records, self.pebs.leb_size(), self.pebs.write_size());
        self.change_leb(LAYOUT_VOLUME, 0, &bytes)?;
        self.change_leb(LAYOUT_VOLUME, 1, &bytes)?;
        self.pebs.drain()
    }

    /// [`write_table`](Self::write_table) with records that reserve `blocks` more than before. They
    /// are handed out first, so that a block that goes bad meanwhile is not replaced by one that
    /// the table promises to a volume: such a table would be refused at the next attach.
    pub(super) fn write_reserving(
        &mut self,
        blocks: u32,
        records: &Records,
    ) -> Result<(), UbiError> {
        self.pebs.hand_out(blocks)?;
        let written = self.write_table(records);
        if written.is_err() {
            self.pebs.give_back(blocks);
        }
        written
    }

    /// The LEBs of a volume that was being updated have been discarded, whatever a fastmap says;
    /// nobody will ask for them before the next update.
    pub(super) fn look_at_updates(&mut self) {
        let updated = self
            .volumes
            .iter()
            .filter(|(_, entry)| entry.record.is_some_and(|record| record.update_marker));
        for (id, entry) in updated {
            for lnum in 0..entry.map.len() as u32 {
                let _held = self.lookup(id, lnum);
            }
        }
    }
}
