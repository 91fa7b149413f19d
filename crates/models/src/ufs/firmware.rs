//! Firmware updates by the host: an image comes in parts, is checked when it is complete, and runs
//! after the next reset.
//!
//! The model's images have a header of 64 bytes: `FLYSCHFW`, the length of the whole image, its
//! product revision (4 characters), the product it is for (16, padded with blanks), and the SHA-256
//! of everything after the header. Numbers are big-endian.

use alloc::vec::Vec;
use core::str;

use flysch_wire::ufs::query::FfuStatus;
use sha2::{Digest, Sha256};

use super::descriptors::MODEL;

const MAGIC: &[u8; 8] = b"FLYSCHFW";
const HEAD: usize = 64;
/// The revision that runs in a new device.
const FIRST: [u8; 4] = *b"0001";

/// An image that changes a model to the product revision `revision`.
pub fn firmware_image(revision: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut image = Vec::with_capacity(HEAD + payload.len());
    image.extend_from_slice(MAGIC);
    image.extend_from_slice(&((HEAD + payload.len()) as u32).to_be_bytes());
    image.extend_from_slice(&revision);
    image.extend_from_slice(&product());
    image.extend_from_slice(&Sha256::digest(payload));
    image.extend_from_slice(payload);
    image
}

fn product() -> [u8; 16] {
    let mut product = [b' '; 16];
    product[..MODEL.len()].copy_from_slice(MODEL.as_bytes());
    product
}

/// The running firmware, and the progress of the next.
#[derive(Debug)]
pub(super) struct Firmware {
    runs: [u8; 4],
    received: Vec<u8>,
    /// Complete and checked; runs after a reset.
    next: Option<[u8; 4]>,
    status: FfuStatus,
}

impl Firmware {
    pub(super) fn new() -> Self {
        let status = FfuStatus::NoInformation;
        Self { runs: FIRST, received: Vec::new(), next: None, status }
    }

    /// Product revision.
    pub(super) fn revision(&self) -> &str {
        str::from_utf8(&self.runs).unwrap_or("????")
    }

    /// bDeviceFFUStatus.
    pub(super) fn status(&self) -> FfuStatus {
        self.status
    }

    /// Takes a part. Returns whether it starts where the previous one ended, or is the first.
    #[must_use]
    pub(super) fn take(&mut self, offset: u32, part: &[u8]) -> bool {
        if offset == 0 {
            *self = Self { runs: self.runs, ..Self::new() };
        }
        if offset as usize != self.received.len() {
            return false;
        }
        self.received.extend_from_slice(part);
        if self.next.is_none() && self.status == FfuStatus::NoInformation {
            self.look();
        }
        true
    }

    /// Examines the image, once it is as long as its header says.
    fn look(&mut self) {
        let Some(head) = self.received.first_chunk::<HEAD>() else { return };
        let length = u32::from_be_bytes([head[8], head[9], head[10], head[11]]) as usize;
        if &head[..8] != MAGIC || length < HEAD {
            self.status = FfuStatus::Corrupted;
            return;
        }
        // The last part may be padded.
        let Some(payload) = self.received.get(HEAD..length) else { return };
        let revision = [head[12], head[13], head[14], head[15]];
        let readable = revision.iter().all(u8::is_ascii_graphic);
        self.status = if head[16..32] != product() {
            FfuStatus::VersionMismatch
        } else if Sha256::digest(payload)[..] != head[32..] || !readable {
            FfuStatus::Corrupted
        } else {
            self.next = Some(revision);
            FfuStatus::Success
        };
    }

    /// The device starts afresh. Returns whether it runs a new revision.
    pub(super) fn start_over(&mut self) -> bool {
        let undecided = self.status == FfuStatus::NoInformation && !self.received.is_empty();
        if undecided {
            self.status = FfuStatus::Corrupted;
        }
        self.received = Vec::new();
        let next = self.next.take();
        self.runs = next.unwrap_or(self.runs);
        next.is_some()
    }

    /// Power is lost: an incomplete image is gone.
    pub(super) fn lose_power(&mut self) {
        if self.next.is_none() {
            self.received = Vec::new();
        }
    }
}
