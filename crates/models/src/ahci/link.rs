//! The link: Serial ATA by generation.
//!
//! Theory. A link is two pairs of wires, but a frame that goes one way is answered the other way
//! word by word - flow control, then R_OK -, so payload goes in one direction at a time. Symbols
//! are coded 8b/10b: 1.5, 3 and 6 Gb/s are 150, 300 and 600 MB/s. Data goes in FISes of at most
//! 8192 bytes, each with a header word and the frame around it: SOF, CRC, EOF, and the words of the
//! handshake X_RDY, R_RDY, WTRM, R_OK, which cross the cable one after the other (SATA 9.4). A
//! command also moves FISes of its own: its registers and their acknowledgement, then for queued
//! data a DMA setup and a set device bits.

use crate::media::Link as Times;
use crate::media::timing::Timing;

/// Most data of one FIS, bytes (SATA 10.5.12).
const DATA: u64 = 8192;
/// What surrounds the payload of a FIS: SOF, CRC, EOF.
const FRAME: u64 = 12;
/// Header of a data FIS.
const HEAD: u64 = 4;
/// Words of the handshake that nothing else overlaps, bytes: X_RDY, R_RDY, WTRM, R_IP, R_OK, SYNC,
/// twice each, because both ends see a primitive before they answer it.
const HANDSHAKE: u64 = 48;
/// FISes of a queued command besides its data: registers (20), their acknowledgement (20), DMA
/// setup (28), set device bits (8).
const COMMAND: u64 = 20 + 20 + 28 + 8 + 4 * (FRAME + HANDSHAKE);
/// A write also waits for its DMA activate (4).
const ACTIVATE: u64 = 4 + FRAME + HANDSHAKE;

/// A Serial ATA link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Fastest generation of the device, 1 to 3.
    pub generation: u8,
}

impl Link {
    /// Bytes in a millisecond, frames included, of a generation.
    pub const fn raw_bytes_per_ms(generation: u8) -> u64 {
        match generation {
            1 => 150_000,
            2 => 300_000,
            _ => 600_000,
        }
    }

    /// The times of a link that came up with `generation`, for a device that is timed like this.
    pub(crate) fn times(generation: u8, timing: &Timing) -> Times {
        let raw = Self::raw_bytes_per_ms(generation);
        let useful = (raw * timing.link_efficiency_permille / 1000).max(1);
        let fis = DATA + HEAD + FRAME + HANDSHAKE;
        let byte_ps = 1_000_000_000 * fis / DATA / useful;
        let command_ns = |bytes: u64| bytes * 1_000_000 / useful + timing.transfer_setup_ns;
        Times {
            setup_to_host_ns: command_ns(COMMAND),
            setup_to_device_ns: command_ns(COMMAND + ACTIVATE),
            to_host_ps: byte_ps,
            to_device_ps: byte_ps,
        }
    }

    /// How long a link of a multiplier, to a host it came up with at `generation`, is taken by a
    /// command and its data, nanoseconds: the multiplier passes frames on as they come, so that
    /// nothing but their number counts.
    pub(super) fn taken_ns(generation: u8, bytes: u64, to_device: bool) -> u64 {
        let raw = Self::raw_bytes_per_ms(generation);
        let fis = DATA + HEAD + FRAME + HANDSHAKE;
        let own = if to_device { COMMAND + ACTIVATE } else { COMMAND };
        (own + bytes * fis / DATA) * 1_000_000 / raw
    }

    pub(super) fn check(self) -> Result<(), (&'static str, u64, &'static str)> {
        match self.generation {
            1..=3 => Ok(()),
            other => Err(("generation", other.into(), "1 to 3")),
        }
    }
}
