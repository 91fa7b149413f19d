//! A volume that notices what must not happen.

use std::cell::Cell;
use std::vec;

use flysch_api::flash::{Corrected, FlashError};
use flysch_api::volume::{LebState, Volume, VolumeGeometry, VolumeMut};

use super::builder::{Image, LEB_SIZE, Memory};

/// Linux's number for what a device cannot read.
pub(super) const EIO: i32 = 5;

/// LEBs that may be looked at only so often, and perhaps not be changed.
#[derive(Clone, Debug)]
pub(super) struct Guarded {
    pub(super) memory: Memory,
    /// How often a place may still be looked at, whether its bytes are then read or come from a
    /// cache.
    pub(super) looks: Cell<u32>,
    pub(super) may_change: bool,
    /// A LEB that the system does not give.
    pub(super) refused: Cell<Option<u32>>,
}

impl Guarded {
    pub(super) fn new(image: &Image, looks: u32, may_change: bool) -> Self {
        let (memory, refused) = (image.volume.clone(), Cell::new(None));
        Self { memory, looks: Cell::new(looks), may_change, refused }
    }

    fn look(&self) {
        let left = self.looks.get().checked_sub(1);
        self.looks.set(left.expect("more looks at the volume than any walk needs"));
    }

    fn leb(&mut self, lnum: u32) -> &mut [u8] {
        assert!(self.may_change, "LEB {lnum} is changed");
        &mut self.memory.lebs[lnum as usize]
    }
}

impl Volume for Guarded {
    fn geometry(&self) -> VolumeGeometry {
        self.memory.geometry()
    }

    fn state(&self, lnum: u32) -> LebState {
        self.memory.state(lnum)
    }

    fn read(&self, lnum: u32, offset: u32, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.look();
        if self.refused.get() == Some(lnum) {
            return Err(FlashError::Os(EIO));
        }
        self.memory.read(lnum, offset, buffer)
    }

    fn point(&self, _lnum: u32, _offset: u32, _len: usize) -> Option<&[u8]> {
        self.look();
        None
    }
}

impl VolumeMut for Guarded {
    fn write(&mut self, lnum: u32, offset: u32, data: &[u8]) -> Result<(), FlashError> {
        let out = &mut self.leb(lnum)[offset as usize..][..data.len()];
        assert!(out.iter().all(|&byte| byte == 0xff), "LEB {lnum} offset {offset} twice");
        out.copy_from_slice(data);
        Ok(())
    }

    fn change(&mut self, lnum: u32, data: &[u8]) -> Result<(), FlashError> {
        self.unmap(lnum)?;
        self.write(lnum, 0, data)
    }

    fn unmap(&mut self, lnum: u32) -> Result<(), FlashError> {
        self.leb(lnum).copy_from_slice(&vec![0xff; LEB_SIZE as usize]);
        Ok(())
    }

    fn map(&mut self, lnum: u32) -> Result<(), FlashError> {
        self.unmap(lnum)
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        Ok(())
    }
}
