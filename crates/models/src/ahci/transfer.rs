//! The data of a command: physical region descriptors, walked in the host's memory as they are
//! needed. The host may change them meanwhile: every entry is read once.

use flysch_api::machine::{DmaRegion, GuestMemory, OutOfRange};
use flysch_wire::ata::Prd;
use flysch_wire::ata::list::{PRD, PRDT};

use super::list::{Fail, Task};
use crate::store::StoreError;

/// Why a copy failed.
#[derive(Debug)]
pub(super) enum Failed {
    /// The device tells an error.
    Told(Fail),
    /// The host's memory is not there: HBDS.
    Memory,
    /// The table names fewer bytes than the command moves: OFS.
    Overflow,
    /// The medium.
    Store,
    /// What the device stands on has no room.
    Full,
}

impl From<Fail> for Failed {
    fn from(fail: Fail) -> Self {
        Self::Told(fail)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        if error.is_full() { Self::Full } else { Self::Store }
    }
}

impl From<OutOfRange> for Failed {
    fn from(_: OutOfRange) -> Self {
        Self::Memory
    }
}

/// The parts of the first `len` bytes of a command's data: address, where in the data, length.
pub(super) struct Parts<'a> {
    memory: &'a GuestMemory,
    table: u64,
    entries: u16,
    next: u16,
    done: u64,
    len: u64,
}

impl<'a> Parts<'a> {
    pub(super) fn new(memory: &'a GuestMemory, task: &Task, len: u64) -> Self {
        Self { memory, table: task.table, entries: task.flags.prdtl(), next: 0, done: 0, len }
    }
}

impl Iterator for Parts<'_> {
    type Item = Result<(u64, u64, usize), Failed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.done >= self.len {
            return None;
        }
        if self.next >= self.entries {
            self.done = self.len;
            return Some(Err(Failed::Overflow));
        }
        let mut bytes = [0; PRD];
        let at = self.table + PRDT as u64 + u64::from(self.next) * PRD as u64;
        if self.memory.read(at, &mut bytes).is_err() {
            self.done = self.len;
            return Some(Err(Failed::Memory));
        }
        let (words, _) = bytes.as_chunks::<8>();
        let prd = Prd::from_words([words[0], words[1]].map(u64::from_ne_bytes));
        // Bit 0 of address and count do not exist (AHCI 4.2.3.3).
        let (address, room) = (prd.address & !1, u64::from(prd.bytes.next_multiple_of(2)));
        let (done, len) = (self.done, room.min(self.len - self.done));
        self.next += 1;
        self.done += len;
        Some(Ok((address, done, len as usize)))
    }
}

/// Gives every piece of a command's data to `one`: where it is in the data, the memory, its length.
pub(super) fn copy(
    parts: Parts<'_>,
    to_host: bool,
    mut one: impl FnMut(u64, (&DmaRegion, usize), usize) -> Result<(), StoreError>,
) -> Result<(), Failed> {
    let memory = parts.memory;
    for part in parts {
        let (address, done, len) = part?;
        memory.pieces((address, len), to_host, |region, at, place| {
            one(done + place.start as u64, (region, at), place.len()).map_err(Failed::from)
        })?;
    }
    Ok(())
}

/// Copies `data` into a command's buffer, as far as that goes; answers how much.
pub(super) fn give(memory: &GuestMemory, task: &Task, data: &[u8]) -> Result<u32, Failed> {
    let mut moved = 0;
    for part in Parts::new(memory, task, data.len() as u64) {
        match part {
            Ok((address, done, len)) => {
                memory.write(address, &data[done as usize..][..len])?;
                moved += len as u32;
            }
            Err(Failed::Overflow) => break,
            Err(failed) => return Err(failed),
        }
    }
    Ok(moved)
}

/// Fills `data` from a command's buffer.
pub(super) fn gather(parts: Parts<'_>, data: &mut [u8]) -> Result<(), Failed> {
    let memory = parts.memory;
    for part in parts {
        let (address, done, len) = part?;
        memory.read(address, &mut data[done as usize..][..len])?;
    }
    Ok(())
}
