//! A volume in memory that can lose power at any operation.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use flysch_api::flash::{Corrected, FlashError};
use flysch_api::volume::{LebState, Volume, VolumeGeometry, VolumeMut};
use flysch_random::SplitMix64;

/// LEBs in memory, subject to the rules of flash.
#[derive(Clone, Debug)]
pub(super) struct Ram {
    leb_size: u32,
    unit: u32,
    lebs: Vec<Option<Leb>>,
    /// Content that was given up and may come back.
    ghosts: BTreeMap<u32, Leb>,
    /// Operations until power is lost.
    pub(super) cut_in: Option<u64>,
    dead: bool,
    random: SplitMix64,
    /// Bytes programmed.
    pub(super) written: u64,
    /// Operations done.
    pub(super) operations: u64,
    /// Reads of places that were written.
    pub(super) reads: Cell<u64>,
}

#[derive(Clone, Debug)]
struct Leb {
    bytes: Vec<u8>,
    end: usize,
}

impl Ram {
    pub(super) fn new(leb_size: u32, lebs: u32, unit: u32) -> Self {
        Self {
            leb_size,
            unit,
            lebs: vec![None; lebs as usize],
            ghosts: BTreeMap::new(),
            cut_in: None,
            dead: false,
            random: SplitMix64::new(1),
            written: 0,
            operations: 0,
            reads: Cell::new(0),
        }
    }

    /// Whether these bytes are stored anywhere.
    pub(super) fn find(&self, bytes: &[u8]) -> bool {
        let holds = |leb: &Leb| leb.bytes.windows(bytes.len()).any(|window| window == bytes);
        self.lebs.iter().flatten().any(holds)
    }

    pub(super) fn grow(&mut self, lebs: u32) {
        self.lebs.resize(lebs as usize, None);
    }

    fn next(&mut self) -> u64 {
        self.random.bits()
    }

    /// Restores power: content that was given up but not for good may reappear.
    pub(super) fn power_up(&mut self, seed: u64) {
        self.random = SplitMix64::new(seed);
        self.dead = false;
        self.cut_in = None;
        for (lnum, ghost) in std::mem::take(&mut self.ghosts) {
            if self.lebs[lnum as usize].is_none() && self.next().is_multiple_of(2) {
                self.lebs[lnum as usize] = Some(ghost);
            }
        }
    }

    /// Whether power is lost now.
    fn step(&mut self) -> Result<bool, FlashError> {
        if self.dead {
            return Err(FlashError::PowerLost);
        }
        self.operations += 1;
        if let Some(left) = &mut self.cut_in {
            if *left == 0 {
                self.dead = true;
                return Ok(true);
            }
            *left -= 1;
        }
        Ok(false)
    }

    fn check(&self, lnum: u32, offset: u32, len: usize) -> Result<(), FlashError> {
        let inside =
            (lnum as usize) < self.lebs.len() && offset as usize + len <= self.leb_size as usize;
        if !inside {
            return Err(FlashError::OutOfRange);
        }
        let aligned = offset.is_multiple_of(self.unit) && len.is_multiple_of(self.unit as usize);
        if aligned { Ok(()) } else { Err(FlashError::Misaligned) }
    }
}

impl Volume for Ram {
    fn geometry(&self) -> VolumeGeometry {
        let (leb_size, lebs) = (self.leb_size, self.lebs.len() as u32);
        VolumeGeometry { leb_size, lebs, write_size: Some(self.unit) }
    }

    fn state(&self, lnum: u32) -> LebState {
        match self.lebs.get(lnum as usize) {
            Some(Some(_)) => LebState::Mapped(None),
            _ => LebState::Unmapped,
        }
    }

    fn read(&self, lnum: u32, offset: u32, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.check(lnum, 0, 0)?;
        match &self.lebs[lnum as usize] {
            Some(leb) => {
                self.reads.set(self.reads.get() + 1);
                buffer.copy_from_slice(&leb.bytes[offset as usize..][..buffer.len()]);
            }
            None => buffer.fill(0xff),
        }
        Ok(Corrected::NONE)
    }
}

impl VolumeMut for Ram {
    fn write(&mut self, lnum: u32, offset: u32, data: &[u8]) -> Result<(), FlashError> {
        self.check(lnum, offset, data.len())?;
        let cut = self.step()?;
        let unit = self.unit.max(64) as usize;
        let units = data.len().div_ceil(unit) as u64;
        let (torn, keep) = (self.next() % units.max(1), self.next());
        self.ghosts.remove(&lnum);
        let empty = || Leb { bytes: vec![0xff; self.leb_size as usize], end: 0 };
        let leb = self.lebs[lnum as usize].get_or_insert_with(empty);
        let start = offset as usize;
        assert!(start >= leb.end, "LEB {lnum} is written at {start}, it was up to {}", leb.end);
        leb.end = start + data.len();
        if !cut {
            leb.bytes[start..leb.end].copy_from_slice(data);
            self.written += data.len() as u64;
            return Ok(());
        }
        let whole = torn as usize * unit;
        leb.bytes[start..start + whole].copy_from_slice(&data[..whole]);
        let rest = &data[whole..];
        let part = keep as usize % (rest.len().min(unit) + 1);
        leb.bytes[start + whole..][..part].copy_from_slice(&rest[..part]);
        Err(FlashError::PowerLost)
    }

    fn change(&mut self, lnum: u32, data: &[u8]) -> Result<(), FlashError> {
        self.check(lnum, 0, data.len())?;
        if self.step()? {
            return Err(FlashError::PowerLost);
        }
        self.ghosts.remove(&lnum);
        let mut bytes = vec![0xff; self.leb_size as usize];
        bytes[..data.len()].copy_from_slice(data);
        self.lebs[lnum as usize] = Some(Leb { bytes, end: data.len() });
        self.written += data.len() as u64;
        Ok(())
    }

    fn unmap(&mut self, lnum: u32) -> Result<(), FlashError> {
        self.check(lnum, 0, 0)?;
        if self.step()? {
            return Err(FlashError::PowerLost);
        }
        if let Some(leb) = self.lebs[lnum as usize].take() {
            self.ghosts.insert(lnum, leb);
        }
        Ok(())
    }

    fn map(&mut self, lnum: u32) -> Result<(), FlashError> {
        self.check(lnum, 0, 0)?;
        if self.step()? {
            return Err(FlashError::PowerLost);
        }
        assert!(self.lebs[lnum as usize].is_none(), "LEB {lnum} is mapped already");
        self.ghosts.remove(&lnum);
        let bytes = vec![0xff; self.leb_size as usize];
        self.lebs[lnum as usize] = Some(Leb { bytes, end: 0 });
        Ok(())
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        if self.step()? {
            return Err(FlashError::PowerLost);
        }
        self.ghosts.clear();
        Ok(())
    }
}
