//! One volume of a device, for writing LEBs.

use core::borrow::BorrowMut;
use core::marker::PhantomData;

use flysch_api::flash::{Corrected, FlashError, FlashMut};
use flysch_api::volume::{LebState, Volume, VolumeGeometry, VolumeMut};
use flysch_wire::ubi::VolumeKind;

use super::entries::Entry;
use super::{UbiDevice, UbiError};

/// A volume of a device, written through [`VolumeMut`]: `D` is `&mut UbiDevice<F>` for one of
/// several uses, or `UbiDevice<F>` for a mounted file system that has the device for itself.
#[derive(Debug)]
pub struct DeviceVolume<D, F> {
    device: D,
    id: u32,
    /// As it was opened.
    geometry: VolumeGeometry,
    flash: PhantomData<fn() -> F>,
}

impl<F: FlashMut> UbiDevice<F> {
    /// Volume `id`; it borrows the device.
    ///
    /// # Errors
    /// [`UbiError::NoVolume`], [`UbiError::UpdateUnfinished`].
    pub fn volume_mut(&mut self, id: u32) -> Result<DeviceVolume<&mut Self, F>, UbiError> {
        DeviceVolume::new(self, id)
    }

    /// Volume `id` and the device with it; see [`DeviceVolume::into_device`].
    ///
    /// # Errors
    /// As [`volume_mut`](Self::volume_mut); the device is lost with the error, so check with
    /// [`info`](Self::info) first.
    pub fn into_volume(self, id: u32) -> Result<DeviceVolume<Self, F>, UbiError> {
        DeviceVolume::new(self, id)
    }
}

impl<F: FlashMut, D: BorrowMut<UbiDevice<F>>> DeviceVolume<D, F> {
    fn new(device: D, id: u32) -> Result<Self, UbiError> {
        let inner: &UbiDevice<F> = device.borrow();
        let entry = inner.lebs.volumes.entry(id)?;
        let record = entry.record.ok_or(UbiError::NoVolume(id))?;
        if record.update_marker {
            return Err(UbiError::UpdateUnfinished(id));
        }
        let geometry = VolumeGeometry {
            leb_size: inner.leb_size() - entry.data_pad,
            lebs: record.reserved_pebs,
            write_size: Some(inner.write_size()),
        };
        Ok(Self { device, id, geometry, flash: PhantomData })
    }

    /// The volume's id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The device.
    pub fn device(&self) -> &UbiDevice<F> {
        self.device.borrow()
    }

    /// The device, for its background work.
    pub fn device_mut(&mut self) -> &mut UbiDevice<F> {
        self.device.borrow_mut()
    }

    /// Returns the device.
    pub fn into_device(self) -> D {
        self.device
    }

    /// The volume as it is now, if it has this range: [`device_mut`](Self::device_mut) may have
    /// changed it since it was opened.
    fn check(&self, lnum: u32, offset: u32, len: usize) -> Result<&Entry, FlashError> {
        let device = self.device();
        let entry = device.lebs.volumes.get(self.id).ok_or(FlashError::OutOfRange)?;
        let end = u64::from(offset) + len as u64;
        let leb_size = device.leb_size() - entry.data_pad;
        if lnum as usize >= entry.map.len() || end > u64::from(leb_size) {
            return Err(FlashError::OutOfRange);
        }
        Ok(entry)
    }

    fn check_write(&self, lnum: u32, offset: u32, len: usize) -> Result<(), FlashError> {
        let entry = self.check(lnum, offset, len)?;
        let unit = self.geometry.write_size.unwrap_or(1);
        if entry.kind == VolumeKind::Static {
            return Err(FlashError::WriteProtected);
        }
        if !offset.is_multiple_of(unit) || !len.is_multiple_of(unit as usize) {
            return Err(FlashError::Misaligned);
        }
        Ok(())
    }
}

impl<F: FlashMut, D: BorrowMut<UbiDevice<F>>> Volume for DeviceVolume<D, F> {
    fn geometry(&self) -> VolumeGeometry {
        self.geometry
    }

    fn state(&self, lnum: u32) -> LebState {
        match self.device().lebs.peb_of(self.id, lnum) {
            Some(peb) => LebState::Mapped(Some(peb)),
            None => LebState::Unmapped,
        }
    }

    fn read(&self, lnum: u32, offset: u32, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.check(lnum, offset, buffer.len())?;
        self.device().lebs.read_leb(self.id, lnum, offset, buffer)
    }

    fn point(&self, lnum: u32, offset: u32, len: usize) -> Option<&[u8]> {
        self.check(lnum, offset, len).ok()?;
        let device = self.device();
        let peb = device.lebs.lookup(self.id, lnum).ok()??;
        let at = u64::from(peb) * u64::from(device.image().peb_size);
        device.flash().point(at + u64::from(device.offsets().data) + u64::from(offset), len)
    }
}

impl<F: FlashMut, D: BorrowMut<UbiDevice<F>>> VolumeMut for DeviceVolume<D, F> {
    fn write(&mut self, lnum: u32, offset: u32, data: &[u8]) -> Result<(), FlashError> {
        self.check_write(lnum, offset, data.len())?;
        let id = self.id;
        Ok(self.device_mut().lebs.write_leb(id, lnum, offset, data)?)
    }

    fn change(&mut self, lnum: u32, data: &[u8]) -> Result<(), FlashError> {
        self.check_write(lnum, 0, data.len())?;
        let id = self.id;
        Ok(self.device_mut().lebs.change_leb(id, lnum, data)?)
    }

    fn unmap(&mut self, lnum: u32) -> Result<(), FlashError> {
        self.check_write(lnum, 0, 0)?;
        let id = self.id;
        Ok(self.device_mut().lebs.unmap_leb(id, lnum)?)
    }

    fn map(&mut self, lnum: u32) -> Result<(), FlashError> {
        self.check_write(lnum, 0, 0)?;
        let id = self.id;
        if self.device().lebs.lookup(id, lnum)?.is_some() {
            return Ok(());
        }
        Ok(self.device_mut().lebs.write_leb(id, lnum, 0, &[])?)
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        Ok(self.device_mut().sync()?)
    }
}
