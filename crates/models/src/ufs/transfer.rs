//! Data transfer between DMA memory and the device, through the PRDT of a command.

use flysch_api::machine::GuestMemory;
use flysch_wire::ufs::prdt::{self, PrdtEntry};
use flysch_wire::ufs::utrd::Ocs;

use super::task::Task;

/// A part of a command's data: its device address, its offset in the data, its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) address: u64,
    pub(super) done: u64,
    pub(super) len: usize,
}

/// The parts of the first `len` bytes of a command's data buffer.
pub(super) struct Parts<'a> {
    pub(super) memory: &'a GuestMemory,
    /// Device address of the next entry, and the number of entries left.
    entry_at: u64,
    entries: u16,
    done: u64,
    len: u64,
}

impl<'a> Parts<'a> {
    /// Walks the PRDT of `task`.
    #[inline]
    pub(super) fn new(memory: &'a GuestMemory, task: &Task, len: u64) -> Self {
        let entry_at = task.ucd.wrapping_add(task.prdt.offset_bytes() as u64);
        Self { memory, entry_at, entries: task.prdt.length(), done: 0, len }
    }

    fn entry(&mut self) -> Result<(u64, usize), Ocs> {
        if self.entries == 0 {
            return Err(Ocs::MismatchDataBufferSize);
        }
        let mut bytes = [0; prdt::LENGTH];
        let read = self.memory.read(self.entry_at, &mut bytes);
        read.map_err(|_| Ocs::InvalidPrdtAttributes)?;
        self.entries -= 1;
        self.entry_at = self.entry_at.wrapping_add(prdt::LENGTH as u64);
        let entry = PrdtEntry::parse(&bytes);
        let len = (self.len - self.done).min(u64::from(entry.length)) as usize;
        if entry.is_aligned() && self.memory.contains(entry.address, len) {
            Ok((entry.address, len))
        } else {
            Err(Ocs::InvalidPrdtAttributes)
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
            Ok((address, len)) => {
                let part = Part { address, done: self.done, len };
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
pub(super) fn scatter(memory: &GuestMemory, task: &Task, data: &[u8]) -> Result<(), Ocs> {
    for part in Parts::new(memory, task, data.len() as u64) {
        let part = part?;
        let written = memory.write(part.address, &data[part.done as usize..][..part.len]);
        written.map_err(|_| Ocs::InvalidPrdtAttributes)?;
    }
    Ok(())
}

/// Fills `data` from the buffer of `task`.
pub(super) fn gather(memory: &GuestMemory, task: &Task, data: &mut [u8]) -> Result<(), Ocs> {
    for part in Parts::new(memory, task, data.len() as u64) {
        let part = part?;
        let read = memory.read(part.address, &mut data[part.done as usize..][..part.len]);
        read.map_err(|_| Ocs::InvalidPrdtAttributes)?;
    }
    Ok(())
}
