//! Creating, resizing, renaming and removing volumes, each a change of the volume table.

use alloc::string::String;
use alloc::vec::Vec;

use flysch_api::flash::FlashMut;
use flysch_wire::ubi::{
    Compatibility, RECORD_SIZE, VolumeFlags, VolumeKind, VolumeRecord, records_max,
};

use super::entries::{Entry, Records, UNMAPPED};
use super::{UbiDevice, UbiError};

/// A volume to be created.
#[derive(Clone, Copy, Debug)]
pub struct NewVolume<'n> {
    /// Its id, 0 to 127; `None` for the lowest free one.
    pub id: Option<u32>,
    /// Its name, 1 to 127 bytes without NUL.
    pub name: &'n [u8],
    /// Kind.
    pub kind: VolumeKind,
    /// Size in LEBs, at least 1.
    pub lebs: u32,
    /// The LEB size becomes a multiple of this: 1, or a multiple of the write size.
    pub alignment: u32,
    /// Static volumes: checksums are not verified when the volume is opened.
    pub skip_crc_check: bool,
}

impl<'n> NewVolume<'n> {
    /// A dynamic volume of `lebs` whole LEBs.
    pub fn dynamic(name: &'n [u8], lebs: u32) -> Self {
        let kind = VolumeKind::Dynamic;
        Self { id: None, name, kind, lebs, alignment: 1, skip_crc_check: false }
    }

    /// A static volume of `lebs` whole LEBs.
    pub fn fixed(name: &'n [u8], lebs: u32) -> Self {
        Self { kind: VolumeKind::Static, ..Self::dynamic(name, lebs) }
    }
}

impl<F: FlashMut> UbiDevice<F> {
    /// Creates a volume and returns its id.
    ///
    /// # Errors
    /// [`UbiError::NameTaken`], [`UbiError::IdTaken`], [`UbiError::TooManyVolumes`],
    /// [`UbiError::NoSpace`], [`UbiError::Invalid`], with nothing done; [`UbiError::ReadOnly`].
    pub fn create(&mut self, new: &NewVolume<'_>) -> Result<u32, UbiError> {
        let id = self.id_for(new.id)?;
        let record = self.record_of(new)?;
        if self.find(new.name).is_some() {
            return Err(name_taken(new.name));
        }
        self.lebs.pebs.check_available(new.lebs)?;
        self.lebs.pebs.begin()?;
        // Blocks of a volume that had this id before must be gone.
        self.lebs.pebs.drain()?;
        let mut records = self.lebs.volumes.table_records();
        records.insert(id, record);
        self.lebs.write_reserving(new.lebs, &records)?;
        let entry = Entry {
            record: Some(record),
            kind: record.kind,
            data_pad: record.data_pad,
            compatibility: Compatibility::None,
            used_bytes: 0,
            map: alloc::vec![UNMAPPED; record.reserved_pebs as usize],
        };
        self.lebs.volumes.insert(id, entry);
        self.lebs.volumes_changed()?;
        Ok(id)
    }

    fn id_for(&self, wanted: Option<u32>) -> Result<u32, UbiError> {
        let ids = records_max(self.leb_size());
        match wanted {
            Some(id) if id >= ids => Err(UbiError::TooManyVolumes),
            Some(id) if self.lebs.volumes.get(id).is_some() => Err(UbiError::IdTaken(id)),
            Some(id) => Ok(id),
            None => {
                let mut free = (0..ids).filter(|id| self.lebs.volumes.get(*id).is_none());
                free.next().ok_or(UbiError::TooManyVolumes)
            }
        }
    }

    fn record_of(&self, new: &NewVolume<'_>) -> Result<VolumeRecord, UbiError> {
        let mut record = VolumeRecord::new(new.name, new.lebs).ok_or(BAD_NAME)?;
        if new.lebs == 0 {
            return Err(UbiError::Invalid("a volume must have at least one LEB"));
        }
        let unit = self.write_size();
        if new.alignment == 0
            || new.alignment > self.leb_size()
            || new.alignment != 1 && !new.alignment.is_multiple_of(unit)
        {
            return Err(UbiError::Invalid(
                "the alignment must be 1 or a multiple of the write size",
            ));
        }
        if new.skip_crc_check && new.kind == VolumeKind::Dynamic {
            return Err(UbiError::Invalid("only static volumes have checksums to skip"));
        }
        record.kind = new.kind;
        record.alignment = new.alignment;
        record.data_pad = self.leb_size() % new.alignment;
        if record.data_pad >= self.leb_size() / 2 {
            return Err(UbiError::Invalid("the alignment leaves half of each LEB unused"));
        }
        if new.skip_crc_check {
            record.flags = VolumeFlags::SKIP_CRC_CHECK;
        }
        Ok(record)
    }

    /// Removes a volume and its content.
    ///
    /// # Errors
    /// [`UbiError::NoVolume`], [`UbiError::ReadOnly`].
    pub fn remove(&mut self, id: u32) -> Result<(), UbiError> {
        let mut records = self.lebs.volumes.table_records();
        records.remove(&id).ok_or(UbiError::NoVolume(id))?;
        self.lebs.pebs.begin()?;
        self.lebs.write_table(&records)?;
        self.drop_volume(id);
        self.lebs.volumes_changed()
    }

    /// Forgets a volume that is no longer in the table.
    fn drop_volume(&mut self, id: u32) {
        let Some(entry) = self.lebs.volumes.remove(id) else { return };
        for &peb in entry.map.iter().filter(|peb| **peb != UNMAPPED) {
            self.lebs.pebs.wear.give_up(peb, false);
        }
        self.lebs.pebs.give_back(entry.map.len() as u32);
    }

    /// Changes a volume's size; LEBs after the new end are lost.
    ///
    /// # Errors
    /// [`UbiError::NoVolume`], [`UbiError::NoSpace`], [`UbiError::Invalid`] for zero LEBs or if the
    /// content of a static volume would be truncated, with nothing done; [`UbiError::ReadOnly`].
    pub fn resize(&mut self, id: u32, lebs: u32) -> Result<(), UbiError> {
        let mut records = self.lebs.volumes.table_records();
        let record = records.get_mut(&id).ok_or(UbiError::NoVolume(id))?;
        let old = record.reserved_pebs;
        let entry = self.lebs.volumes.entry(id)?;
        let usable = u64::from(self.leb_size() - entry.data_pad);
        let used = entry.used_bytes.div_ceil(usable);
        if lebs == 0 || record.kind == VolumeKind::Static && u64::from(lebs) < used {
            return Err(UbiError::Invalid("the new size is too small for the volume's content"));
        }
        let more = lebs.saturating_sub(old);
        self.lebs.pebs.check_available(more)?;
        if lebs == old {
            return Ok(());
        }
        record.reserved_pebs = lebs;
        self.lebs.pebs.begin()?;
        if more > 0 {
            // Blocks from before an earlier shrinking must be gone.
            self.lebs.pebs.drain()?;
        }
        self.lebs.write_reserving(more, &records)?;
        self.lebs.volumes.set_records(&records);
        for lnum in lebs..old {
            self.lebs.unmap_leb(id, lnum)?;
        }
        if let Some(entry) = self.lebs.volumes.get_mut(id) {
            entry.map.resize(lebs as usize, UNMAPPED);
        }
        self.lebs.pebs.give_back(old.saturating_sub(lebs));
        self.lebs.volumes_changed()
    }

    /// Renames volumes, all at one instant. If a volume is not itself renamed and its name is given
    /// to another one, it is removed in the same step, as `ubirename` does: a new root file system
    /// takes the place of the old one.
    ///
    /// # Errors
    /// [`UbiError::NoVolume`], [`UbiError::NameTaken`] if two would have the same name,
    /// [`UbiError::Invalid`], with nothing done; [`UbiError::ReadOnly`].
    pub fn rename(&mut self, names: &[(u32, &[u8])]) -> Result<(), UbiError> {
        let mut records = self.lebs.volumes.table_records();
        let mut replaced: Vec<u32> = Vec::new();
        for (at, &(id, name)) in names.iter().enumerate() {
            let before = &names[..at];
            if before.iter().any(|other| other.0 == id) {
                return Err(UbiError::Invalid("a volume is renamed twice"));
            }
            if before.iter().any(|other| other.1 == name) {
                return Err(name_taken(name));
            }
            let old = *records.get(&id).ok_or(UbiError::NoVolume(id))?;
            let mut new = VolumeRecord::new(name, old.reserved_pebs).ok_or(BAD_NAME)?;
            new.alignment = old.alignment;
            new.data_pad = old.data_pad;
            new.kind = old.kind;
            new.update_marker = old.update_marker;
            new.flags = old.flags;
            records.insert(id, new);
            let owner = self.find(name).filter(|owner| !names.iter().any(|n| n.0 == *owner));
            replaced.extend(owner);
        }
        for id in &replaced {
            records.remove(id);
        }
        self.lebs.pebs.begin()?;
        self.lebs.write_table(&records)?;
        for id in replaced {
            self.drop_volume(id);
        }
        self.lebs.volumes.set_records(&records);
        self.lebs.volumes_changed()
    }
}

/// A copy of the volume table with these records, for these sizes of LEBs and units.
pub(super) fn table_bytes(records: &Records, leb_size: u32, write_size: u32) -> Vec<u8> {
    let count = records_max(leb_size);
    let mut bytes = Vec::with_capacity(count as usize * RECORD_SIZE);
    for id in 0..count {
        let record = records.get(&id);
        bytes.extend(record.map_or_else(VolumeRecord::emit_empty, VolumeRecord::emit));
    }
    bytes.resize(bytes.len().next_multiple_of(write_size as usize), 0);
    bytes
}

const BAD_NAME: UbiError =
    UbiError::Invalid("a volume's name must have 1 to 127 bytes, none of them NUL");

fn name_taken(name: &[u8]) -> UbiError {
    UbiError::NameTaken(String::from_utf8_lossy(name).into_owned())
}
