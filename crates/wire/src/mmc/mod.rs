//! eMMC and SD cards behind an SD host controller: host registers, the command queueing engine, DMA
//! descriptors, commands, and the registers in which cards describe themselves.
//!
//! Section numbers are those of JESD84-B51 (eMMC 5.1), of the SD Host Controller Simplified
//! Specification 4.20 (`SDHCI`) and of JESD84-B51 annex B (`CQHCI`); SD cards follow the Physical
//! Layer Simplified Specification (`SD`). Registers and EXT_CSD are little-endian; CSD and CID are
//! numbers of 128 bits, SCR one of 64.

pub mod adma;
pub mod command;
pub mod cqhci;
mod csd;
pub mod ext_csd;
pub mod fields;
pub mod sd;
pub mod sdhci;
mod status;

/// Replay protected memory (6.6.22): the frames are those of UFS in normal mode.
pub mod rpmb {
    pub use crate::ufs::rpmb::{
        DATA_LENGTH, KEY_LENGTH, MAC_LENGTH, NONCE_LENGTH, REGION_UNIT, RpmbFrame, RpmbMessage,
        RpmbResult, RpmbStatus,
    };
}

pub use csd::{Cid, Csd};
pub use ext_csd::ExtCsd;
pub use status::{CardState, CardStatus};

/// Bytes per sector: the unit of addresses and of single blocks.
pub const SECTOR: u32 = 512;
/// Bytes per native sector of a large device (DATA_SECTOR_SIZE 1).
pub const NATIVE_SECTOR: u32 = 4096;

#[cfg(test)]
mod tests;
