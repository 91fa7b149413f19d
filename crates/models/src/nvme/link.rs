//! The link: PCI Express, by generation and lanes.
//!
//! Theory. Data crosses the link in transaction layer packets of at most `payload` bytes, each with
//! a header and framing. The device sends memory writes with 64-bit addresses (a header of
//! 16 bytes); what it fetches comes in completions (12). Both have 8 bytes of framing: sequence
//! number, link CRC and two framing symbols up to generation 2, a token of four bytes and the link
//! CRC from generation 3 on. Lanes are coded 8b/10b up to generation 2 and 128b/130b from then on.
//! The profile's `link_efficiency_permille` accounts for acknowledgements, flow control credits and
//! skip ordered sets. A command also moves its own entries: that is a time per command on the
//! direction of its data. The two directions are independent.

use crate::media::Link as Times;
use crate::media::timing::Timing;

/// Framing of a packet, bytes.
const FRAME: u64 = 8;
/// Header of a memory write or read with a 64-bit address, bytes.
const HEAD: u64 = 16;
/// Header of a completion, bytes.
const COMPLETION_HEAD: u64 = 12;
/// What a command sends besides its data, bytes: the request for its entry, the completion entry,
/// the interrupt message.
const COMMAND_TO_HOST: u64 = (HEAD + FRAME) + (HEAD + FRAME + 16) + (HEAD + FRAME + 4);
/// What it fetches besides its data: its entry, and the two doorbells that it causes.
const COMMAND_TO_DEVICE: u64 = (COMPLETION_HEAD + FRAME + 64) + 2 * (HEAD + FRAME + 4);

/// A PCI Express link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Generation, 1 to 5.
    pub generation: u8,
    /// Lanes, 1 to 16.
    pub lanes: u8,
    /// Maximum payload of a packet, bytes, 128 to 4096.
    pub payload: u16,
}

impl Link {
    /// Bytes per millisecond in one direction, including framing and headers.
    pub const fn raw_bytes_per_ms(&self) -> u64 {
        let lane = match self.generation {
            1 => 250_000,
            2 => 500_000,
            3 => 984_615,
            4 => 1_969_231,
            _ => 3_938_462,
        };
        lane * self.lanes as u64
    }

    /// Maximum rate of data that the device sends, bytes per millisecond.
    pub const fn data_bytes_per_ms(&self) -> u64 {
        let payload = self.payload as u64;
        self.raw_bytes_per_ms() * payload / (payload + HEAD + FRAME)
    }

    /// The times of this link for a device with this timing.
    pub(crate) fn times(&self, timing: &Timing) -> Times {
        let useful = (self.raw_bytes_per_ms() * timing.link_efficiency_permille / 1000).max(1);
        let payload = u64::from(self.payload.max(1));
        let byte_ps = |head: u64| 1_000_000_000 * (payload + head + FRAME) / payload / useful;
        let command_ns = |bytes: u64| bytes * 1_000_000 / useful + timing.transfer_setup_ns;
        Times {
            setup_to_host_ns: command_ns(COMMAND_TO_HOST),
            setup_to_device_ns: command_ns(COMMAND_TO_DEVICE),
            to_host_ps: byte_ps(HEAD),
            to_device_ps: byte_ps(COMPLETION_HEAD),
        }
    }

    pub(super) fn check(&self) -> Result<(), (&'static str, u64, &'static str)> {
        if !(1..=5).contains(&self.generation) {
            return Err(("generation", self.generation.into(), "1 to 5"));
        }
        if !matches!(self.lanes, 1 | 2 | 4 | 8 | 16) {
            return Err(("lanes", self.lanes.into(), "1, 2, 4, 8 or 16"));
        }
        if !self.payload.is_power_of_two() || !(128..=4096).contains(&self.payload) {
            return Err(("payload", self.payload.into(), "a power of two from 128 to 4096"));
        }
        Ok(())
    }
}
