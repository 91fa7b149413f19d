//! LEBs written, changed and given up.

use alloc::vec::Vec;

use flysch_api::flash::{self, Corrected, FlashMut};
use flysch_wire::ubi::{VidHeader, VolumeKind, crc32};

use super::{BLOCK_TRIES, Device, Error, ReadOnly, UNMAPPED};

impl<F: FlashMut> Device<F> {
    /// The block of a LEB.
    pub(super) fn peb_of(&self, volume: u32, lnum: u32) -> Option<u32> {
        self.lookup(volume, lnum).ok().flatten()
    }

    /// A header for a LEB, without sequence number.
    pub(super) fn header(&self, volume: u32, lnum: u32) -> Result<VidHeader, Error> {
        let entry = self.entry(volume)?;
        Ok(VidHeader {
            kind: entry.kind,
            copy: false,
            compatibility: entry.compatibility,
            volume,
            lnum,
            data_size: 0,
            used_ebs: 0,
            data_pad: entry.data_pad,
            data_crc: 0,
            sequence: 0,
        })
    }

    /// A header that is only valid with this data.
    pub(super) fn header_of_copy(
        &self,
        volume: u32,
        lnum: u32,
        data: &[u8],
    ) -> Result<VidHeader, Error> {
        let plain = self.header(volume, lnum)?;
        Ok(VidHeader { copy: true, data_size: data.len() as u32, data_crc: crc32(data), ..plain })
    }

    pub(super) fn read_leb(
        &self,
        volume: u32,
        lnum: u32,
        offset: u32,
        buffer: &mut [u8],
    ) -> Result<Corrected, flash::Error> {
        let Some(peb) = self.lookup(volume, lnum)? else {
            buffer.fill(0xff);
            return Ok(Corrected::NONE);
        };
        let corrected = self.io.read_data(peb, offset, buffer)?;
        if corrected.needs_scrub(self.io.flash.geometry()) {
            self.wear.flag(peb);
        }
        Ok(corrected)
    }

    /// Writes to a LEB, mapping it if need be. The range was checked.
    pub(super) fn write_leb(
        &mut self,
        volume: u32,
        lnum: u32,
        offset: u32,
        data: &[u8],
    ) -> Result<(), Error> {
        self.begin()?;
        self.pay()?;
        let Some(peb) = self.lookup(volume, lnum)? else {
            let vid = self.header(volume, lnum)?;
            let peb = self.place(vid, offset, data)?;
            return self.assign(volume, lnum, peb, false);
        };
        match self.io.write_data(peb, offset, data) {
            Ok(()) => Ok(()),
            Err(error) if self.is_block_failure(error) => {
                self.recover_write(volume, lnum, offset, data)
            }
            Err(error) => Err(self.stop(ReadOnly::Flash(error))),
        }
    }

    /// Whether another block may do better.
    pub(super) fn is_block_failure(&self, error: flash::Error) -> bool {
        matches!(error, flash::Error::ProgramFailed { .. }) && self.io.bad_allowed()
    }

    /// After a failed write: what the LEB held before `offset` and the data go to another block,
    /// as one copy.
    fn recover_write(
        &mut self,
        volume: u32,
        lnum: u32,
        offset: u32,
        data: &[u8],
    ) -> Result<(), Error> {
        let mut whole: Vec<u8> = alloc::vec![0; offset as usize];
        if let Err(error) = self.read_leb(volume, lnum, 0, &mut whole) {
            return Err(self.stop(ReadOnly::Flash(error)));
        }
        whole.extend_from_slice(data);
        let vid = self.header_of_copy(volume, lnum, &whole)?;
        let peb = self.place(vid, 0, &whole)?;
        self.statistics.recovered_writes += 1;
        self.assign(volume, lnum, peb, true)
    }

    /// Writes a header and data into a free block, another one if that fails.
    pub(super) fn place(
        &mut self,
        mut vid: VidHeader,
        offset: u32,
        data: &[u8],
    ) -> Result<u32, Error> {
        for _ in 0..=BLOCK_TRIES {
            let peb = self.allocate()?;
            vid.sequence = self.next_sequence();
            let written = self.io.write_vid(peb, &vid);
            match written.and_then(|()| self.io.write_data(peb, offset, data)) {
                Ok(()) => return Ok(peb),
                Err(error) if self.is_block_failure(error) => {
                    self.statistics.recovered_writes += 1;
                    self.wear.give_up(peb, true);
                }
                Err(error) => return Err(self.stop(ReadOnly::Flash(error))),
            }
        }
        Err(self.stop(ReadOnly::NoGoodBlock))
    }

    /// Maps a LEB to a block just written and gives up the one it had.
    pub(super) fn assign(
        &mut self,
        volume: u32,
        lnum: u32,
        peb: u32,
        torture_old: bool,
    ) -> Result<(), Error> {
        self.wear.occupy(peb, volume, lnum);
        self.swap(volume, lnum, peb, torture_old)
    }

    pub(super) fn swap(
        &mut self,
        volume: u32,
        lnum: u32,
        peb: u32,
        torture_old: bool,
    ) -> Result<(), Error> {
        self.maps.changed = true;
        let entry = self.volumes.get_mut(&volume).ok_or(Error::NoVolume(volume))?;
        let slot = &mut entry.map[lnum as usize];
        let old = core::mem::replace(slot, peb);
        if old != UNMAPPED {
            self.wear.give_up(old, torture_old);
        }
        Ok(())
    }

    /// Replaces a LEB's content atomically. The length was checked.
    pub(super) fn change_leb(&mut self, volume: u32, lnum: u32, data: &[u8]) -> Result<(), Error> {
        self.begin()?;
        self.pay()?;
        // An unfinished copy is only told by the older one that still counts. One is made first
        // where there is none.
        if !data.is_empty() && self.peb_of(volume, lnum).is_none() {
            let empty = self.header(volume, lnum)?;
            let peb = self.place(empty, 0, &[])?;
            self.assign(volume, lnum, peb, false)?;
        }
        // A newer header without the copy flag is an empty LEB from the moment it is whole.
        let vid = match data {
            [] => self.header(volume, lnum)?,
            _ => self.header_of_copy(volume, lnum, data)?,
        };
        let peb = self.place(vid, 0, data)?;
        self.assign(volume, lnum, peb, false)
    }

    /// Gives up a LEB's content.
    pub(super) fn unmap_leb(&mut self, volume: u32, lnum: u32) -> Result<(), Error> {
        let mapped = self.entry(volume)?.map.get(lnum as usize);
        if mapped.is_none_or(|peb| *peb == UNMAPPED) {
            return match self.read_only {
                Some(why) => Err(Error::ReadOnly(why)),
                None => Ok(()),
            };
        }
        self.begin()?;
        self.swap(volume, lnum, UNMAPPED, false)
    }

    /// Writes one LEB of a static volume, which has `used_ebs` in all.
    pub(super) fn write_static(
        &mut self,
        volume: u32,
        lnum: u32,
        used_ebs: u32,
        data: &[u8],
    ) -> Result<(), Error> {
        self.begin()?;
        self.pay()?;
        let plain = self.header(volume, lnum)?;
        debug_assert_eq!(plain.kind, VolumeKind::Static);
        let data_size = data.len() as u32;
        let vid = VidHeader { data_size, used_ebs, data_crc: crc32(data), ..plain };
        let peb = self.place(vid, 0, data)?;
        self.assign(volume, lnum, peb, false)
    }
}
