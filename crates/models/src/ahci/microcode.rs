//! Firmware, and how much of the disk can be reached.

use alloc::vec::Vec;

use flysch_wire::ata::command::{max_address, microcode};
use flysch_wire::ata::identify::padded;
use flysch_wire::ata::{H2d, Opcode};

use super::command::aborted;
use super::control::Given;
use super::device::Device;
use super::flow::Good;
use super::list::Fail;
use crate::nvme::revision_of;

/// Longest image, bytes.
const IMAGE_MAX: usize = 4 << 20;

/// What runs, and what has come of another image. An image is one of the NVMe model
/// ([`firmware_image`](crate::nvme::firmware_image)), zeros behind it.
#[derive(Debug, Default)]
pub(super) struct Microcode {
    running: Option<[u8; 8]>,
    /// A whole image that is not in force yet.
    kept: Option<[u8; 8]>,
    received: Vec<u8>,
}

impl Microcode {
    /// The revision that runs.
    pub(super) fn running(&self) -> [u8; 8] {
        self.running.unwrap_or_else(|| padded("1.0"))
    }

    /// A reset: an image that was kept is in force; parts of one are forgotten.
    pub(super) fn start_over(&mut self) {
        self.received = Vec::new();
        self.running = self.kept.take().or(self.running);
    }
}

/// Bytes that DOWNLOAD MICROCODE takes (ACS 7.7.3.2): COUNT 7:0 and LBA 7:0.
pub(super) fn bytes(fis: &H2d) -> usize {
    let blocks = usize::from(fis.count & 0xFF) | (fis.lba as usize & 0xFF) << 8;
    if fis.features & 0xFF == microcode::ACTIVATE { 0 } else { blocks * microcode::BLOCK }
}

impl Device {
    /// DOWNLOAD MICROCODE.
    pub(super) fn download(&mut self, fis: &H2d, part: &[u8]) -> Result<Given, Fail> {
        let state = &mut self.microcode;
        let told = |count| Ok((Good { count, ..Good::default() }, Vec::new()));
        let what = fis.features & 0xFF;
        if what == microcode::ACTIVATE {
            state.running = Some(state.kept.take().ok_or(aborted())?);
            return told(microcode::APPLIED);
        }
        let offset = (fis.lba >> 8 & 0xFFFF) as usize * microcode::BLOCK;
        let known = matches!(what, microcode::PARTS | microcode::DEFERRED);
        if !known || part.is_empty() || offset + part.len() > IMAGE_MAX {
            return Err(aborted());
        }
        // An image begins at its beginning, and its parts come in their order.
        if offset == 0 {
            state.received.clear();
        } else if offset != state.received.len() {
            return Err(aborted());
        }
        state.received.extend_from_slice(part);
        if !is_whole(&state.received) {
            return told(microcode::MORE);
        }
        let image = core::mem::take(&mut state.received);
        let revision = revision_of(&image).ok_or(aborted())?;
        match what {
            microcode::DEFERRED => {
                state.kept = Some(revision);
                told(microcode::SAVED)
            }
            _ => {
                (state.running, state.kept) = (Some(revision), None);
                told(microcode::APPLIED)
            }
        }
    }

    /// SET MAX ADDRESS EXT (ACS-2 7.66); whether it may be.
    pub(super) fn set_max(&mut self, fis: &H2d) -> bool {
        // The command right before it must have asked for the native max address.
        let asked = Opcode::from_bits(self.last[0]) == Opcode::ReadNativeMaxExt;
        asked && self.reach_to(fis.lba, fis.count & 1 != 0)
    }

    /// The last sector that can be reached, for good or until power comes anew.
    fn reach_to(&mut self, last: u64, for_good: bool) -> bool {
        last < self.native_sectors() && self.reach.set((last + 1) << self.shift, for_good)
    }

    /// ACCESSIBLE MAX ADDRESS CONFIGURATION (ACS 7.2).
    pub(super) fn max_address(&mut self, fis: &H2d) -> Result<Given, Fail> {
        let good = |lba| Ok((Good { lba, ..Good::default() }, Vec::new()));
        match fis.features {
            max_address::GET_NATIVE => good(self.native_sectors() - 1),
            max_address::SET if self.reach_to(fis.lba, true) => good(0),
            max_address::FREEZE => {
                self.reach.is_frozen = true;
                good(0)
            }
            _ => Err(aborted()),
        }
    }
}

/// How far a device can be reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    /// Bytes from the first on.
    pub(super) bytes: u64,
    /// What they are when power comes anew.
    kept: u64,
    /// It is not to be changed until power comes anew.
    is_frozen: bool,
}

impl Reach {
    pub(super) fn new(bytes: u64) -> Self {
        Self { bytes, kept: bytes, is_frozen: false }
    }

    /// Power came back.
    pub(super) fn power_on(&mut self) {
        (self.bytes, self.is_frozen) = (self.kept, false);
    }

    /// Sets it, for good or until power comes anew; whether it could be.
    fn set(&mut self, bytes: u64, for_good: bool) -> bool {
        if self.is_frozen {
            return false;
        }
        self.bytes = bytes;
        if for_good {
            self.kept = bytes;
        }
        true
    }
}

/// Whether as many bytes are there as the image's head says; what has no head is whole, and wrong.
fn is_whole(image: &[u8]) -> bool {
    match image.get(8..12) {
        Some(length) => {
            let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
            image.len() >= length as usize || length as usize > IMAGE_MAX
        }
        None => true,
    }
}
