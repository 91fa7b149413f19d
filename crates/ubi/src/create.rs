//! Making UBI images as ubinize does: physical erase blocks, ready to be written to flash.
//!
//! [`Maker`] knows the volumes and produces the blocks one by one: first the two of the layout
//! volume, then those of each volume's image. The same input gives the same bytes; with the same
//! image sequence number they are identical to those of ubinize.

mod error;
#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::vec::Vec;

use flysch_wire::ubi::{
    Compatibility, EC_HEADER_SIZE, ERASE_COUNTER_MAX, EcHeader, LAYOUT_VOLUME, LAYOUT_VOLUME_LEBS,
    RECORD_SIZE, VID_HEADER_SIZE, VidHeader, VolumeFlags, VolumeKind, VolumeRecord, crc32,
    records_max,
};

pub use error::PlanError;

use crate::Offsets;

/// Largest physical erase block that ubinize accepts, bytes.
const PEB_SIZE_MAX: u32 = 2 << 20;
/// Blocks that UBI reserves for itself besides the layout volume: one for wear levelling, one for
/// atomic changes.
const OWN_PEBS: u32 = 2;
/// Blocks reserved to replace bad ones, per 1024 of the chip (Linux's default).
const BAD_RESERVE: u64 = 20;

/// The flash and the headers' fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageOptions {
    /// Size of a physical erase block, bytes (`-p`).
    pub peb_size: u32,
    /// Smallest unit of writing, bytes (`-m`); 1 on NOR.
    pub min_io_size: u32,
    /// Smallest unit of writing headers (`-s`).
    pub sub_page_size: Option<u32>,
    /// Offset of volume identifier headers (`-O`).
    pub vid_header_offset: Option<u32>,
    /// Erase counter of each block (`-e`).
    pub erase_counter: u64,
    /// Image sequence number (`-Q`).
    pub image_sequence: u32,
}

impl ImageOptions {
    /// Layout of each erase block.
    ///
    /// # Errors
    /// [`PlanError`] says which size is wrong and which would be valid.
    pub fn offsets(&self) -> Result<Offsets, PlanError> {
        let (peb, unit) = (self.peb_size, self.min_io_size);
        let sub_page = self.sub_page_size.unwrap_or(unit);
        if peb == 0 || peb > PEB_SIZE_MAX {
            return Err(PlanError::PebSize(peb));
        }
        for (what, size) in [("minimum I/O unit", unit), ("sub-page", sub_page)] {
            if !size.is_power_of_two() {
                return Err(PlanError::NoPowerOfTwo(what, size));
            }
        }
        if sub_page > unit {
            return Err(PlanError::SubPage(sub_page, unit));
        }
        if !peb.is_multiple_of(unit) {
            return Err(PlanError::PebMultiple(peb, unit));
        }
        if self.erase_counter > ERASE_COUNTER_MAX {
            return Err(PlanError::EraseCounter(self.erase_counter));
        }
        let header = EC_HEADER_SIZE as u32;
        let vid_header = self.vid_header_offset.unwrap_or(header.next_multiple_of(sub_page));
        let vid_end = vid_header.checked_add(VID_HEADER_SIZE as u32);
        let data = vid_end.and_then(|end| end.checked_next_multiple_of(unit));
        match data {
            Some(data) if vid_header >= header && vid_header.is_multiple_of(8) && data < peb => {
                Ok(Offsets { vid_header, data })
            }
            _ => Err(PlanError::VidHeader(vid_header)),
        }
    }

    /// Size of a logical erase block, bytes.
    ///
    /// # Errors
    /// As [`offsets`](Self::offsets).
    pub fn leb_size(&self) -> Result<u32, PlanError> {
        Ok(self.peb_size - self.offsets()?.data)
    }
}

/// Number of LEBs available to volumes on a chip of `pebs` erase blocks, without the layout volume,
/// UBI's own blocks and the reserve for bad blocks (20 of 1024).
pub fn lebs_on_chip(pebs: u32) -> u32 {
    let reserve = (u64::from(pebs) * BAD_RESERVE).div_ceil(1024) as u32;
    pebs.saturating_sub(LAYOUT_VOLUME_LEBS + OWN_PEBS + reserve)
}

/// A volume to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumePlan {
    /// Its id: 0 to 127.
    pub id: u32,
    /// Its name: 1 to 127 bytes.
    pub name: String,
    /// Its kind.
    pub kind: VolumeKind,
    /// Its size, bytes; rounded up to whole LEBs.
    pub size: u64,
    /// Length of its image, bytes; 0 if it has none.
    pub image_size: u64,
    /// The LEB size is rounded down to a multiple of this, bytes.
    pub alignment: u32,
    /// Flags.
    pub flags: VolumeFlags,
}

/// A volume, and the numbers derived from its options.
#[derive(Clone, Debug)]
struct Planned {
    volume: VolumePlan,
    record: VolumeRecord,
    usable: u32,
    used_lebs: u32,
}

/// Makes the blocks of an image.
#[derive(Clone, Debug)]
pub struct Maker {
    options: ImageOptions,
    offsets: Offsets,
    leb_size: u32,
    volumes: Vec<Planned>,
}

impl Maker {
    /// Starts an image.
    ///
    /// # Errors
    /// As [`ImageOptions::offsets`].
    pub fn new(options: ImageOptions) -> Result<Self, PlanError> {
        let (offsets, leb_size) = (options.offsets()?, options.leb_size()?);
        if records_max(leb_size) == 0 {
            return Err(PlanError::NoTable(leb_size));
        }
        Ok(Self { options, offsets, leb_size, volumes: Vec::new() })
    }

    /// Size of a logical erase block, bytes.
    pub fn leb_size(&self) -> u32 {
        self.leb_size
    }

    /// Layout of each erase block.
    pub fn offsets(&self) -> Offsets {
        self.offsets
    }

    /// Adds a volume.
    ///
    /// # Errors
    /// [`PlanError`] says what is wrong with it.
    pub fn add(&mut self, volume: VolumePlan) -> Result<(), PlanError> {
        let VolumePlan { id, ref name, alignment, .. } = volume;
        let most = records_max(self.leb_size);
        if id >= most {
            return Err(PlanError::IdTooHigh(id, most));
        }
        if let Some(other) = self.volumes.iter().find(|other| other.volume.id == id) {
            return Err(PlanError::IdTaken(id, other.volume.name.clone()));
        }
        if self.volumes.iter().any(|other| other.volume.name == *name) {
            return Err(PlanError::NameTaken(name.clone()));
        }
        if alignment == 0 || alignment > self.leb_size {
            return Err(PlanError::Alignment(alignment, self.leb_size));
        }
        self.check_flags(&volume)?;
        let data_pad = self.leb_size % alignment;
        let usable = self.leb_size - data_pad;
        if volume.image_size > volume.size {
            return Err(PlanError::Content(volume.image_size, volume.size));
        }
        let lebs = |bytes: u64| {
            u32::try_from(bytes.div_ceil(usable.into()))
                .ok()
                .filter(|&lebs| lebs <= i32::MAX as u32)
        };
        let too_large = || PlanError::TooLarge(volume.size);
        let reserved_pebs = lebs(volume.size).ok_or_else(too_large)?;
        let used_lebs = lebs(volume.image_size).ok_or_else(too_large)?;
        if reserved_pebs == 0 {
            return Err(PlanError::Empty);
        }
        if volume.kind == VolumeKind::Static && used_lebs == 0 {
            return Err(PlanError::StaticWithoutContent);
        }
        let mut record = VolumeRecord::new(name.as_bytes(), reserved_pebs)
            .ok_or_else(|| PlanError::Name(name.clone()))?;
        (record.alignment, record.data_pad) = (alignment, data_pad);
        (record.kind, record.flags) = (volume.kind, volume.flags);
        self.volumes.push(Planned { volume, record, usable, used_lebs });
        Ok(())
    }

    fn check_flags(&self, volume: &VolumePlan) -> Result<(), PlanError> {
        let is_static = volume.kind == VolumeKind::Static;
        if volume.flags.contains(VolumeFlags::SKIP_CRC_CHECK) && !is_static {
            return Err(PlanError::SkipCheckOfDynamic);
        }
        if volume.flags.contains(VolumeFlags::AUTORESIZE) {
            if is_static {
                return Err(PlanError::AutoresizeOfStatic);
            }
            let grows = |other: &&Planned| other.volume.flags.contains(VolumeFlags::AUTORESIZE);
            if let Some(other) = self.volumes.iter().find(grows) {
                return Err(PlanError::AutoresizeTwice(other.volume.name.clone()));
            }
        }
        Ok(())
    }

    /// Number of erase blocks of the image.
    pub fn blocks(&self) -> u64 {
        let used = self.volumes.iter().map(|planned| u64::from(planned.used_lebs));
        u64::from(LAYOUT_VOLUME_LEBS) + used.sum::<u64>()
    }

    /// Number of LEBs that all volumes together require.
    pub fn reserved(&self) -> u64 {
        self.volumes.iter().map(|planned| u64::from(planned.record.reserved_pebs)).sum()
    }

    /// Checks that the volumes fit a chip of `pebs` erase blocks.
    ///
    /// # Errors
    /// [`PlanError::Chip`].
    pub fn check_chip(&self, pebs: u32) -> Result<(), PlanError> {
        let (asked, room) = (self.reserved(), lebs_on_chip(pebs));
        if asked <= room.into() {
            return Ok(());
        }
        Err(PlanError::Chip { asked, room, pebs })
    }

    /// Number of data bytes in each block of a volume's image except the last.
    ///
    /// # Panics
    /// If there is no volume `index`.
    pub fn usable(&self, index: usize) -> u32 {
        self.volumes[index].usable
    }

    /// Number of LEBs of volume number `index`.
    ///
    /// # Panics
    /// If there is no volume `index`.
    pub fn lebs(&self, index: usize) -> u32 {
        self.volumes[index].record.reserved_pebs
    }

    /// Makes block `lnum` (0 or 1) of the layout volume in `out`, whose length becomes that of a
    /// block.
    pub fn layout_block(&self, lnum: u32, out: &mut Vec<u8>) {
        let header = VidHeader {
            kind: VolumeKind::Dynamic,
            copy: false,
            compatibility: Compatibility::Reject,
            volume: LAYOUT_VOLUME,
            lnum,
            data_size: 0,
            used_ebs: 0,
            data_pad: 0,
            data_crc: 0,
            sequence: 0,
        };
        let mut table = Vec::with_capacity(RECORD_SIZE * records_max(self.leb_size) as usize);
        for id in 0..records_max(self.leb_size) {
            let planned = self.volumes.iter().find(|planned| planned.volume.id == id);
            let record = planned.map_or_else(VolumeRecord::emit_empty, |it| it.record.emit());
            table.extend_from_slice(&record);
        }
        self.emit(&header, &table, out);
    }

    /// Makes block `lnum` of the image of volume number `index`, counted in the order they were
    /// added, in `out`, whose length becomes that of a block. `data` is [`usable`](Self::usable)
    /// bytes long, in the last block less.
    ///
    /// # Panics
    /// If there is no volume `index`, or `data` is too long.
    pub fn block(&self, index: usize, lnum: u32, data: &[u8], out: &mut Vec<u8>) {
        let copy = |place: &mut [u8]| {
            place.copy_from_slice(data);
            Ok::<_, core::convert::Infallible>(())
        };
        let Ok(()) = self.fill_block((index, lnum), data.len(), out, copy);
    }

    /// As [`block`](Self::block), with `length` bytes of data that `read` puts in place: a caller
    /// that reads them from a file need not copy them.
    ///
    /// # Errors
    /// Those of `read`.
    ///
    /// # Panics
    /// If there is no volume `index`, or `length` is above [`usable`](Self::usable).
    pub fn fill_block<E>(
        &self,
        (index, lnum): (usize, u32),
        length: usize,
        out: &mut Vec<u8>,
        read: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let planned = &self.volumes[index];
        assert!(length <= planned.usable as usize, "{length} bytes of data");
        out.resize(self.options.peb_size as usize, 0xff);
        let (headers, rest) = out.split_at_mut(self.offsets.data as usize);
        let (data, behind) = rest.split_at_mut(length);
        read(data)?;
        behind.fill(0xff);
        let is_static = planned.volume.kind == VolumeKind::Static;
        let header = VidHeader {
            kind: planned.volume.kind,
            copy: false,
            compatibility: Compatibility::None,
            volume: planned.volume.id,
            lnum,
            data_size: if is_static { length as u32 } else { 0 },
            used_ebs: if is_static { planned.used_lebs } else { 0 },
            data_pad: planned.record.data_pad,
            data_crc: if is_static { crc32(data) } else { 0 },
            sequence: 0,
        };
        self.emit_headers(&header, headers);
        Ok(())
    }

    /// Both headers, in the space before the data.
    fn emit_headers(&self, header: &VidHeader, out: &mut [u8]) {
        let ec = EcHeader {
            erase_counter: self.options.erase_counter,
            vid_header_offset: self.offsets.vid_header,
            data_offset: self.offsets.data,
            image_sequence: self.options.image_sequence,
        };
        out.fill(0xff);
        out[..EC_HEADER_SIZE].copy_from_slice(&ec.emit());
        let at = self.offsets.vid_header as usize;
        out[at..at + VID_HEADER_SIZE].copy_from_slice(&header.emit());
    }

    fn emit(&self, header: &VidHeader, data: &[u8], out: &mut Vec<u8>) {
        out.clear();
        out.resize(self.options.peb_size as usize, 0xff);
        let (headers, rest) = out.split_at_mut(self.offsets.data as usize);
        self.emit_headers(header, headers);
        rest[..data.len()].copy_from_slice(data);
    }
}
