//! Firmware: an image comes in parts, is checked when it is committed, and runs after a reset or at
//! once.
//!
//! The model's images have a header of 64 bytes: `FLYSCHFW`, the length of the whole image
//! (4 bytes, little-endian), four zeros, its revision (8 characters), eight zeros, and the SHA-256
//! of everything after the header.

use alloc::vec::Vec;

use flysch_wire::nvme::log::FirmwareSlots;
use flysch_wire::nvme::{Sqe, Status};
use sha2::{Digest, Sha256};

use super::transfer::Request;

const MAGIC: &[u8; 8] = b"FLYSCHFW";
const HEAD: usize = 64;
/// The revision that runs in a new device.
const FIRST: [u8; 8] = *b"1.0     ";
/// Number of firmware slots.
pub(super) const SLOTS: usize = 3;
/// Maximum length of an image, bytes.
const IMAGE_MAX: usize = 4 << 20;
/// How long firmware takes to start, nanoseconds.
pub(super) const ACTIVATION_NS: u64 = 500_000_000;

/// An image that changes a model to firmware revision `revision`.
pub fn firmware_image(revision: [u8; 8], payload: &[u8]) -> Vec<u8> {
    let mut image = Vec::with_capacity(HEAD + payload.len());
    image.extend_from_slice(MAGIC);
    image.extend_from_slice(&((HEAD + payload.len()) as u32).to_le_bytes());
    image.extend_from_slice(&[0; 4]);
    image.extend_from_slice(&revision);
    image.extend_from_slice(&[0; 8]);
    image.extend_from_slice(&Sha256::digest(payload));
    image.extend_from_slice(payload);
    image
}

/// The revision of an image; `None` if the image is invalid.
pub(crate) fn revision_of(image: &[u8]) -> Option<[u8; 8]> {
    let head = image.first_chunk::<HEAD>()?;
    let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
    let payload = image.get(HEAD..length)?;
    let revision = *head[16..24].first_chunk::<8>()?;
    let readable = revision.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    let good = &head[..8] == MAGIC && readable && Sha256::digest(payload)[..] == head[32..];
    good.then_some(revision)
}

/// The slots, the running firmware, and the progress of the next image.
#[derive(Debug)]
pub(super) struct Firmware {
    slots: [Option<[u8; 8]>; SLOTS],
    /// The slot that runs, and the one that will run after a reset.
    active: usize,
    next: Option<usize>,
    received: Vec<u8>,
}

impl Firmware {
    pub(super) fn new() -> Self {
        let slots = [Some(FIRST), None, None];
        Self { slots, active: 0, next: None, received: Vec::new() }
    }

    /// The running revision.
    pub(super) fn running(&self) -> [u8; 8] {
        self.slots[self.active].unwrap_or(FIRST)
    }

    /// The firmware slot log page.
    pub(super) fn page(&self) -> Vec<u8> {
        let number = |slot: usize| slot as u8 + 1;
        let mut page = FirmwareSlots {
            active: number(self.active) | self.next.map_or(0, number) << 4,
            ..FirmwareSlots::default()
        };
        for (place, slot) in page.revisions.chunks_exact_mut(8).zip(self.slots) {
            place.copy_from_slice(&slot.unwrap_or_default());
        }
        page.to_bytes().to_vec()
    }

    /// A reset. Returns whether another slot runs now.
    pub(super) fn start_over(&mut self) -> bool {
        self.received = Vec::new();
        match self.next.take() {
            Some(next) => core::mem::replace(&mut self.active, next) != next,
            None => false,
        }
    }

    /// Firmware Image Download: takes a part.
    pub(super) fn download(&mut self, request: &Request<'_>) -> Result<(), Status> {
        let [dwords, offset, ..] = request.command.cdw10;
        let (len, offset) = ((dwords as usize + 1) * 4, offset as usize * 4);
        let fits = offset + len <= IMAGE_MAX && len <= request.longest as usize;
        if !fits || offset > self.received.len() {
            return Err(Status::InvalidField);
        }
        self.received.resize(self.received.len().max(offset + len), 0);
        request.take(&mut self.received[offset..][..len])
    }

    /// Firmware Commit: returns whether the firmware starts at once.
    pub(super) fn commit(&mut self, command: &Sqe) -> Result<bool, Status> {
        let (slot, action) = ((command.cdw10[0] & 7) as usize, command.cdw10[0] >> 3 & 7);
        let free = self.slots.iter().position(Option::is_none);
        let slot = match slot {
            0 => free.unwrap_or((self.active + 1) % SLOTS),
            slot if slot <= SLOTS => slot - 1,
            _ => return Err(Status::FirmwareSlot),
        };
        if matches!(action, 0 | 1 | 3) && !self.received.is_empty() {
            let revision = revision_of(&self.received).ok_or(Status::FirmwareImage)?;
            self.received = Vec::new();
            self.slots[slot] = Some(revision);
        } else if matches!(action, 0 | 1) {
            return Err(Status::FirmwareImage);
        }
        if action != 0 && self.slots[slot].is_none() {
            return Err(Status::FirmwareImage);
        }
        match action {
            0 => {}
            1..=3 => self.next = Some(slot),
            _ => return Err(Status::InvalidField),
        }
        Ok(action == 3)
    }
}

#[cfg(test)]
mod tests {
    use flysch_api::machine::{DmaRegion, GuestMemory};

    use super::*;

    const BASE: u64 = 0x1000;
    const PART: usize = 128;

    #[test]
    fn an_image_comes_in_parts_and_runs_after_a_reset() {
        let memory = DmaRegion::zeroed(4096, BASE);
        memory.write(0, &firmware_image(*b"2.0     ", &[7; 2 * PART - HEAD]));
        let memory = GuestMemory::from(memory);
        let mut firmware = Firmware::new();
        let download = |firmware: &mut Firmware, part: usize| {
            let offset = part * PART;
            let mut command = Sqe { data: [BASE + offset as u64, 0], ..Sqe::default() };
            (command.cdw10[0], command.cdw10[1]) = (PART as u32 / 4 - 1, offset as u32 / 4);
            firmware.download(&Request::new(&command, &memory, (4096, 4096)))
        };
        let mut commit = Sqe::default();
        commit.cdw10[0] = 1 << 3 | 2;
        assert_eq!(download(&mut firmware, 1), Err(Status::InvalidField), "the first is missing");
        assert_eq!(download(&mut firmware, 0), Ok(()));
        assert_eq!(firmware.commit(&commit), Err(Status::FirmwareImage), "half of it");
        assert_eq!(download(&mut firmware, 1), Ok(()));
        assert_eq!(firmware.commit(&commit), Ok(false));
        assert_eq!(firmware.running(), FIRST);
        assert!(firmware.start_over());
        assert_eq!(firmware.running(), *b"2.0     ");
        assert!(!firmware.start_over());
    }
}
