//! Memory: how much a process uses, and LEBs stored in it.

use std::fs;

use flysch_api::flash::{Corrected, FlashError};
use flysch_api::volume::{LebState, Volume, VolumeGeometry, VolumeMut};

/// The peak resident memory of this process, as counted by Linux.
#[derive(Clone, Copy, Debug)]
pub struct Peak {
    _private: (),
}

impl Peak {
    /// `None` if Linux does not permit a reset of the count.
    pub fn new() -> Option<Self> {
        let peak = Self { _private: () };
        fs::write("/proc/self/clear_refs", b"5").ok()?;
        (peak.end() > 0).then_some(peak)
    }

    /// Resets the count; returns the bytes resident now.
    pub(super) fn begin(&self) -> u64 {
        // It has worked before.
        let _ = fs::write("/proc/self/clear_refs", b"5");
        field("VmRSS:")
    }

    /// The peak since then, bytes.
    pub(super) fn end(&self) -> u64 {
        field("VmHWM:")
    }
}

fn field(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

/// LEBs in memory.
#[derive(Clone, Debug)]
pub(super) struct Lebs {
    geometry: VolumeGeometry,
    lebs: Vec<Option<Vec<u8>>>,
}

impl Lebs {
    /// The contents of `volume`, and eight more LEBs.
    pub(super) fn copy(volume: &dyn Volume, unit: u32) -> Self {
        let found = volume.geometry();
        let read = |lnum| {
            let mut bytes = vec![0; found.leb_size as usize];
            let is_mapped = volume.state(lnum) != LebState::Unmapped;
            (is_mapped && volume.read(lnum, 0, &mut bytes).is_ok()).then_some(bytes)
        };
        let lebs: Vec<_> = (0..found.lebs).map(read).chain((0..8).map(|_| None)).collect();
        let geometry = VolumeGeometry { lebs: lebs.len() as u32, write_size: Some(unit), ..found };
        Self { geometry, lebs }
    }

    fn leb(&mut self, lnum: u32) -> Result<&mut Option<Vec<u8>>, FlashError> {
        self.lebs.get_mut(lnum as usize).ok_or(FlashError::OutOfRange)
    }
}

impl Volume for Lebs {
    fn geometry(&self) -> VolumeGeometry {
        self.geometry
    }

    fn state(&self, lnum: u32) -> LebState {
        match self.lebs.get(lnum as usize) {
            Some(Some(_)) => LebState::Mapped(None),
            _ => LebState::Unmapped,
        }
    }

    fn read(&self, lnum: u32, offset: u32, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        let leb = self.lebs.get(lnum as usize).ok_or(FlashError::OutOfRange)?;
        let range = offset as usize..offset as usize + buffer.len();
        match leb {
            Some(bytes) => buffer.copy_from_slice(bytes.get(range).ok_or(FlashError::OutOfRange)?),
            None => buffer.fill(0xFF),
        }
        Ok(Corrected::NONE)
    }
}

impl VolumeMut for Lebs {
    /// Data already there may be damage: the result has the clear bits of both.
    fn write(&mut self, lnum: u32, offset: u32, data: &[u8]) -> Result<(), FlashError> {
        let size = self.geometry.leb_size as usize;
        let leb = self.leb(lnum)?.get_or_insert_with(|| vec![0xFF; size]);
        let range = offset as usize..offset as usize + data.len();
        let cells = leb.get_mut(range).ok_or(FlashError::OutOfRange)?;
        cells.iter_mut().zip(data).for_each(|(cell, byte)| *cell &= byte);
        Ok(())
    }

    fn change(&mut self, lnum: u32, data: &[u8]) -> Result<(), FlashError> {
        let mut bytes = data.to_vec();
        bytes.resize(self.geometry.leb_size as usize, 0xFF);
        *self.leb(lnum)? = Some(bytes);
        Ok(())
    }

    fn unmap(&mut self, lnum: u32) -> Result<(), FlashError> {
        *self.leb(lnum)? = None;
        Ok(())
    }

    fn map(&mut self, lnum: u32) -> Result<(), FlashError> {
        *self.leb(lnum)? = Some(vec![0xFF; self.geometry.leb_size as usize]);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        Ok(())
    }
}
