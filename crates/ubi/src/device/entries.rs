//! The volumes of a device: the record of each in the table, and the block of each LEB.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use flysch_api::flash::FlashError;
use flysch_wire::ubi::fastmap::{FastmapVolume, MapHeader};
use flysch_wire::ubi::{Compatibility, LAYOUT_VOLUME, VidHeader, VolumeKind, VolumeRecord, crc32};

use super::UbiError;
use super::wear::{State, Wear};

/// A LEB without a block.
pub(super) const UNMAPPED: u32 = u32::MAX;

/// The records of the volume table, by id.
pub(super) type Records = BTreeMap<u32, VolumeRecord>;

/// One volume, or the layout volume.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// As in the volume table; the layout volume has none.
    pub(super) record: Option<VolumeRecord>,
    pub(super) kind: VolumeKind,
    pub(super) data_pad: u32,
    pub(super) compatibility: Compatibility,
    /// Static volumes: length of the content, bytes.
    pub(super) used_bytes: u64,
    /// The block of each LEB.
    pub(super) map: Vec<u32>,
}

impl Entry {
    /// The layout volume without blocks.
    pub(super) fn layout() -> Self {
        Self {
            record: None,
            kind: VolumeKind::Dynamic,
            data_pad: 0,
            compatibility: Compatibility::Reject,
            used_bytes: 0,
            map: alloc::vec![UNMAPPED; flysch_wire::ubi::LAYOUT_VOLUME_LEBS as usize],
        }
    }
}

/// All volumes, including the layout volume.
#[derive(Debug)]
pub(super) struct Volumes {
    entries: BTreeMap<u32, Entry>,
}

impl Volumes {
    pub(super) fn new(entries: BTreeMap<u32, Entry>) -> Self {
        Self { entries }
    }

    /// The block to which a LEB is mapped.
    pub(super) fn peb(&self, volume: u32, lnum: u32) -> Option<u32> {
        let mapped = self.get(volume)?.map.get(lnum as usize);
        mapped.copied().filter(|peb| *peb != UNMAPPED)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// By id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.entries.iter().map(|(&id, entry)| (id, entry))
    }

    pub(super) fn get(&self, id: u32) -> Option<&Entry> {
        self.entries.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Entry> {
        self.entries.get_mut(&id)
    }

    pub(super) fn insert(&mut self, id: u32, entry: Entry) {
        self.entries.insert(id, entry);
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<Entry> {
        self.entries.remove(&id)
    }

    pub(super) fn entry(&self, id: u32) -> Result<&Entry, UbiError> {
        self.entries.get(&id).ok_or(UbiError::NoVolume(id))
    }

    /// Id of the volume of this name.
    pub(super) fn find(&self, name: &[u8]) -> Option<u32> {
        let mut all = self.entries.iter();
        let found = all.find(|(_, entry)| entry.record.is_some_and(|r| r.name() == name));
        found.map(|(&id, _)| id)
    }

    /// A header for a LEB, without sequence number; fails if the volume has no such LEB, whose
    /// block would be in no map.
    pub(super) fn header(&self, volume: u32, lnum: u32) -> Result<VidHeader, UbiError> {
        let entry = self.entry(volume)?;
        if lnum as usize >= entry.map.len() {
            return Err(UbiError::Flash(FlashError::OutOfRange));
        }
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

    /// A header that is valid only with this data.
    pub(super) fn header_of_copy(
        &self,
        volume: u32,
        lnum: u32,
        data: &[u8],
    ) -> Result<VidHeader, UbiError> {
        let plain = self.header(volume, lnum)?;
        Ok(VidHeader { copy: true, data_size: data.len() as u32, data_crc: crc32(data), ..plain })
    }

    pub(super) fn table_records(&self) -> BTreeMap<u32, VolumeRecord> {
        let volumes = self.entries.iter().filter(|(id, _)| **id != LAYOUT_VOLUME);
        volumes.filter_map(|(&id, entry)| Some((id, entry.record?))).collect()
    }

    /// Takes over what was written to the table.
    pub(super) fn set_records(&mut self, records: &Records) {
        for (id, record) in records {
            if let Some(entry) = self.entries.get_mut(id) {
                entry.record = Some(*record);
            }
        }
    }

    /// The index of a LEB in its volume's map.
    pub(super) fn slot(&mut self, volume: u32, lnum: u32) -> Option<&mut u32> {
        self.entries.get_mut(&volume)?.map.get_mut(lnum as usize)
    }

    /// Maps a LEB to another block, or to none; returns the previous one.
    pub(super) fn remap(
        &mut self,
        volume: u32,
        lnum: u32,
        peb: u32,
    ) -> Result<Option<u32>, UbiError> {
        let slot = self.slot(volume, lnum).ok_or(UbiError::NoVolume(volume))?;
        let old = core::mem::replace(slot, peb);
        Ok((old != UNMAPPED).then_some(old))
    }

    /// Enters the used blocks into the maps; discards those that are not in any.
    pub(super) fn map_blocks(&mut self, wear: &mut Wear) {
        for peb in 0..wear.pebs.len() as u32 {
            let State::Used { volume, lnum } = wear.state(peb) else { continue };
            match self.slot(volume, lnum) {
                Some(slot) => *slot = peb,
                None => wear.give_up(peb, false),
            }
        }
    }

    /// The volumes as a fastmap lists them, for LEBs of this size.
    pub(super) fn append_maps(&self, leb_size: u32, bytes: &mut Vec<u8>) {
        for (&id, entry) in &self.entries {
            let usable = leb_size - entry.data_pad;
            // Dynamic volumes are used to their end.
            let used = match entry.kind {
                VolumeKind::Static => entry.used_bytes,
                VolumeKind::Dynamic => u64::from(usable) * entry.map.len() as u64,
            };
            let last = (used % u64::from(usable)) as u32;
            let volume = FastmapVolume {
                volume: id,
                kind: entry.kind,
                data_pad: entry.data_pad,
                used_ebs: used.div_ceil(u64::from(usable)) as u32,
                last_eb_bytes: if last == 0 && used > 0 { usable } else { last },
            };
            bytes.extend_from_slice(&volume.emit());
            let reserved_pebs = entry.map.len() as u32;
            bytes.extend_from_slice(&MapHeader { reserved_pebs }.emit());
            for peb in &entry.map {
                bytes.extend_from_slice(&peb.to_be_bytes());
            }
        }
    }
}
