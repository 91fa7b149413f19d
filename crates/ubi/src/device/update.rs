//! Replaces the whole content of a volume.

use alloc::vec::Vec;

use flysch_api::flash::FlashMut;
use flysch_wire::ubi::VolumeKind;

use super::{UbiDevice, UbiError, moving};

/// An update of a volume that was started: [`write`](Self::write) all bytes, then call
/// [`finish`](Self::finish). If it is dropped or cut before that, the volume is unusable until it
/// is updated again.
#[derive(Debug)]
pub struct Update<'d, F> {
    device: &'d mut UbiDevice<F>,
    id: u32,
    kind: VolumeKind,
    leb_size: u32,
    bytes: u64,
    received: u64,
    /// Number of LEBs written.
    lebs: u32,
    buffer: Vec<u8>,
}

impl<F: FlashMut> UbiDevice<F> {
    /// Starts to replace the whole content of a volume by `bytes` bytes; the old content is lost.
    ///
    /// # Errors
    /// [`UbiError::NoVolume`], [`UbiError::NoSpace`] if they do not fit, with nothing done;
    /// [`UbiError::ReadOnly`].
    pub fn update(&mut self, id: u32, bytes: u64) -> Result<Update<'_, F>, UbiError> {
        let info = self.info(id).ok_or(UbiError::NoVolume(id))?;
        let lebs = bytes.div_ceil(u64::from(info.leb_size));
        if lebs > u64::from(info.reserved_pebs) {
            let wanted = u32::try_from(lebs).unwrap_or(u32::MAX);
            return Err(UbiError::NoSpace { wanted, available: info.reserved_pebs });
        }
        self.lebs.pebs.begin()?;
        self.mark_update(id, true)?;
        for lnum in 0..info.reserved_pebs {
            self.lebs.unmap_leb(id, lnum)?;
        }
        let (kind, leb_size) = (info.kind, info.leb_size);
        let buffer = Vec::with_capacity(leb_size as usize);
        Ok(Update { device: self, id, kind, leb_size, bytes, received: 0, lebs: 0, buffer })
    }

    fn mark_update(&mut self, id: u32, marker: bool) -> Result<(), UbiError> {
        let mut records = self.lebs.volumes.table_records();
        let record = records.get_mut(&id).ok_or(UbiError::NoVolume(id))?;
        if record.update_marker != marker {
            record.update_marker = marker;
            self.lebs.write_table(&records)?;
            self.lebs.volumes.set_records(&records);
        }
        Ok(())
    }
}

impl<F: FlashMut> Update<'_, F> {
    /// Writes the next bytes, any number.
    ///
    /// # Errors
    /// [`UbiError::Invalid`] if there are more than announced; [`UbiError::ReadOnly`].
    pub fn write(&mut self, mut data: &[u8]) -> Result<(), UbiError> {
        if data.len() as u64 > self.bytes - self.received {
            return Err(UbiError::Invalid("more bytes than the update was started for"));
        }
        self.received += data.len() as u64;
        while !data.is_empty() {
            let room = self.leb_size as usize - self.buffer.len();
            let (part, rest) = data.split_at(room.min(data.len()));
            self.buffer.extend_from_slice(part);
            data = rest;
            if self.buffer.len() == self.leb_size as usize
                || self.received == self.bytes && data.is_empty()
            {
                self.write_leb()?;
            }
        }
        Ok(())
    }

    fn write_leb(&mut self) -> Result<(), UbiError> {
        let lnum = self.lebs;
        match self.kind {
            VolumeKind::Static => {
                let used = self.bytes.div_ceil(u64::from(self.leb_size)) as u32;
                self.device.lebs.write_static(self.id, lnum, used, &self.buffer)?;
            }
            VolumeKind::Dynamic => {
                let unit = self.device.write_size();
                let padded = self.buffer.len().next_multiple_of(unit as usize);
                self.buffer.resize(padded, 0xff);
                let data = moving::trimmed(&self.buffer, unit);
                if !data.is_empty() {
                    self.device.lebs.write_leb(self.id, lnum, 0, data)?;
                }
            }
        }
        self.lebs += 1;
        self.buffer.clear();
        Ok(())
    }

    /// Ends the update: from now on the volume holds the new content.
    ///
    /// # Errors
    /// [`UbiError::Invalid`] if bytes are missing; [`UbiError::ReadOnly`]. The volume then stays
    /// unusable.
    pub fn finish(self) -> Result<(), UbiError> {
        if self.received != self.bytes {
            return Err(UbiError::Invalid("fewer bytes than the update was started for"));
        }
        // The old content must not be able to come back.
        self.device.lebs.pebs.drain()?;
        if let Some(entry) = self.device.lebs.volumes.get_mut(self.id) {
            entry.used_bytes = if self.kind == VolumeKind::Static { self.bytes } else { 0 };
        }
        self.device.mark_update(self.id, false)
    }
}
