//! The data of a command or a task: ADMA2 descriptors, walked in the host's memory as they are
//! needed. The host may change them meanwhile: every one is read once.

use flysch_api::machine::{DmaRegion, GuestMemory, OutOfRange};
use flysch_wire::mmc::adma;

use crate::store::StoreError;

/// Most descriptors of one list: a list that points to itself would never end.
const DESCRIPTORS_MAX: u32 = 1 << 16;

/// A list of descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct List {
    pub(super) address: u64,
    /// Bytes of a descriptor: 8, 12 or 16.
    pub(super) stride: u8,
}

/// Why data did not get across.
#[derive(Debug)]
pub(super) enum Failed {
    /// A descriptor is wrong, or memory is not there: ADMA error.
    List,
    /// The medium.
    Store,
}

impl From<StoreError> for Failed {
    fn from(_: StoreError) -> Self {
        Self::Store
    }
}

impl From<OutOfRange> for Failed {
    fn from(_: OutOfRange) -> Self {
        Self::List
    }
}

impl List {
    /// Hands the ranges of the first `len` bytes to `one`: where they are in the data, the address,
    /// the length.
    fn walk(
        mut self,
        memory: &GuestMemory,
        len: u64,
        mut one: impl FnMut(u64, u64, usize) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let mut done = 0;
        for _ in 0..DESCRIPTORS_MAX {
            if done >= len {
                return Ok(());
            }
            let mut bytes = [0; 12];
            let read = if self.stride == 8 { 8 } else { 12 };
            memory.read(self.address, &mut bytes[..read])?;
            let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let low = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
            let high = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
            let address = u64::from(high) << 32 | u64::from(low);
            if word & adma::VALID == 0 {
                return Err(Failed::List);
            }
            match word & adma::ACT {
                adma::LINK => {
                    self.address = address;
                    continue;
                }
                adma::TRANSFER => {
                    let range = u64::from(adma::length(word)).min(len - done);
                    one(done, address, range as usize)?;
                    done += range;
                }
                _ => {}
            }
            if word & adma::END != 0 {
                break;
            }
            self.address = self.address.wrapping_add(self.stride.into());
        }
        if done >= len { Ok(()) } else { Err(Failed::List) }
    }

    /// Gives every piece of the data to `one`: where it is in the data, the memory, its length.
    pub(super) fn copy(
        self,
        (memory, to_host): (&GuestMemory, bool),
        len: u64,
        mut one: impl FnMut(u64, (&DmaRegion, usize), usize) -> Result<(), StoreError>,
    ) -> Result<(), Failed> {
        self.walk(memory, len, |done, address, len| {
            memory.pieces((address, len), to_host, |region, at, place| {
                one(done + place.start as u64, (region, at), place.len()).map_err(Failed::from)
            })
        })
    }

    /// Copies `data` to the host.
    pub(super) fn scatter(self, memory: &GuestMemory, data: &[u8]) -> Result<(), Failed> {
        self.walk(memory, data.len() as u64, |done, address, len| {
            Ok(memory.write(address, &data[done as usize..][..len])?)
        })
    }

    /// Fills `data` from the host.
    pub(super) fn gather(self, memory: &GuestMemory, data: &mut [u8]) -> Result<(), Failed> {
        let len = data.len() as u64;
        self.walk(memory, len, |done, address, len| {
            Ok(memory.read(address, &mut data[done as usize..][..len])?)
        })
    }
}
