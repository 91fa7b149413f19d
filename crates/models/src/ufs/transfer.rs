//! Data between DMA memory and the device, through the PRDT of a command.

use flysch_api::machine::DmaRegion;
use flysch_wire::ufs::prdt::{self, PrdtEntry};
use flysch_wire::ufs::utrd::Ocs;

use super::task::Task;

/// A part of a command's data: where it is in DMA memory, where in the data, how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) at: usize,
    pub(super) done: u64,
    pub(super) len: usize,
}

/// The parts of the first `len` bytes of a command's data buffer.
pub(super) struct Parts<'a> {
    memory: &'a DmaRegion,
    /// Where the next entry is in DMA memory, and how many are left.
    entry_at: u64,
    entries: u16,
    done: u64,
    len: u64,
}

impl<'a> Parts<'a> {
    /// Walks the PRDT of `task`.
    #[inline]
    pub(super) fn new(memory: &'a DmaRegion, task: &Task, len: u64) -> Self {
        let entry_at = task.ucd_at as u64 + task.prdt.offset_bytes() as u64;
        Self { memory, entry_at, entries: task.prdt.length(), done: 0, len }
    }

    fn entry(&mut self) -> Result<(usize, usize), Ocs> {
        if self.entries == 0 {
            return Err(Ocs::MismatchDataBufferSize);
        }
        let address = self.memory.address() + self.entry_at;
        let at = self.memory.offset_of(address, prdt::LENGTH);
        let at = at.map_err(|_| Ocs::InvalidPrdtAttributes)?;
        let mut bytes = [0; prdt::LENGTH];
        self.memory.read(at, &mut bytes);
        self.entries -= 1;
        self.entry_at += prdt::LENGTH as u64;
        let entry = PrdtEntry::parse(&bytes);
        let len = (self.len - self.done).min(u64::from(entry.length)) as usize;
        match self.memory.offset_of(entry.address, len) {
            Ok(at) if entry.is_aligned() => Ok((at, len)),
            _ => Err(Ocs::InvalidPrdtAttributes),
        }
    }
}

impl Iterator for Parts<'_> {
    type Item = Result<Part, Ocs>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.done >= self.len {
            return None;
        }
        match self.entry() {
            Ok((at, len)) => {
                let part = Part { at, done: self.done, len };
                self.done += len as u64;
                Some(Ok(part))
            }
            Err(ocs) => {
                self.done = self.len;
                Some(Err(ocs))
            }
        }
    }
}

/// Copies `data` into the buffer of `task`.
pub(super) fn scatter(memory: &DmaRegion, task: &Task, data: &[u8]) -> Result<(), Ocs> {
    for part in Parts::new(memory, task, data.len() as u64) {
        let part = part?;
        memory.write(part.at, &data[part.done as usize..][..part.len]);
    }
    Ok(())
}

/// Fills `data` from the buffer of `task`.
pub(super) fn gather(memory: &DmaRegion, task: &Task, data: &mut [u8]) -> Result<(), Ocs> {
    for part in Parts::new(memory, task, data.len() as u64) {
        let part = part?;
        memory.read(part.at, &mut data[part.done as usize..][..part.len]);
    }
    Ok(())
}
