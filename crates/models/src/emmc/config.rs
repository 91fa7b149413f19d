//! What controller and what device to model.

use alloc::vec::Vec;
use core::fmt;

use super::profile::{HS400_CMDQ, Profile};
use crate::faults::Plan;
use crate::store::{Store, StoreError};

/// Largest user area, bytes: what 32 bits of sectors address.
pub const SIZE_MAX: u64 = 1 << 41;
/// What boot partitions and the replay protected memory are multiples of, bytes.
pub const PARTITION_UNIT: u64 = 128 << 10;
/// Largest boot partition or replay protected memory, bytes.
pub const PARTITION_MAX: u64 = 255 * PARTITION_UNIT;

/// A controller and a device.
#[derive(Debug)]
pub struct Config {
    /// Timing and features of the device.
    pub profile: Profile,
    /// Data of the user area; `None` takes memory.
    pub store: Option<Store>,
    /// User area, bytes, a multiple of 512 KiB.
    pub size: u64,
    /// An eMMC device takes native sectors of 4 KiB only (DATA_SECTOR_SIZE 1): what it reads,
    /// writes and trims are whole numbers of eight sectors.
    pub native_sectors: bool,
    /// Each boot partition, bytes, a multiple of [`PARTITION_UNIT`].
    pub boot_size: u64,
    /// Replay protected memory, bytes, a multiple of [`PARTITION_UNIT`].
    pub rpmb_size: u64,
    /// General purpose partitions, bytes, multiples of 8 MiB (the write protect group); at most 4.
    pub general: Vec<u64>,
    /// The controller has a queueing engine.
    pub engine: bool,
    /// The engine takes direct commands.
    pub direct: bool,
    /// The controller has HS400 (bit 63 of its capabilities).
    pub hs400: bool,
    /// The controller has eight data lines, and HS200 and DDR52.
    pub fast: bool,
    /// Addresses of 64 bits, host version 3 (descriptors of 12 bytes).
    pub wide: bool,
    /// ADMA2.
    pub adma2: bool,
    /// Whether the model tracks what a power loss would destroy. Costs time per write.
    pub volatile_cache: bool,
    /// What goes wrong.
    pub faults: Plan,
    /// Seed of everything random.
    pub seed: u64,
    /// PSN of the CID.
    pub serial: u32,
}

impl Default for Config {
    /// A device of the first profile with 4 GiB, both boot partitions and 512 KiB of replay
    /// protected memory, behind a controller that has everything.
    fn default() -> Self {
        Self {
            profile: HS400_CMDQ,
            store: None,
            size: 4 << 30,
            native_sectors: false,
            boot_size: 4 << 20,
            rpmb_size: 512 << 10,
            general: Vec::new(),
            engine: true,
            direct: true,
            hs400: true,
            fast: true,
            wide: true,
            adma2: true,
            volatile_cache: false,
            faults: Plan::none(),
            seed: 1,
            serial: 0x0F1A_5C4E,
        }
    }
}

/// A configuration that makes no device.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value is out of range: the key, what it is, what it may be.
    Value(&'static str, u64, &'static str),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Value(key, is, may) = self;
        write!(f, "eMMC model: {key} is {is}; it must be {may}")
    }
}

impl core::error::Error for ConfigError {}

/// The write protect group, bytes: what general purpose partitions are multiples of.
pub(super) const GENERAL_UNIT: u64 = 8 << 20;

impl Config {
    /// Checks everything.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong = |key, is, may| Err(ConfigError::Value(key, is, may));
        if self.size == 0 || self.size > SIZE_MAX || !self.size.is_multiple_of(512 << 10) {
            return wrong("size", self.size, "a multiple of 512 KiB up to 2 TiB");
        }
        for (key, is) in [("boot_size", self.boot_size), ("rpmb_size", self.rpmb_size)] {
            if is > PARTITION_MAX || !is.is_multiple_of(PARTITION_UNIT) {
                return wrong(key, is, "a multiple of 128 KiB below 32 MiB");
            }
        }
        if self.general.len() > 4 {
            return wrong("general", self.general.len() as u64, "at most 4 partitions");
        }
        for &is in &self.general {
            if is == 0 || is > SIZE_MAX || !is.is_multiple_of(GENERAL_UNIT) {
                return wrong("general", is, "a multiple of 8 MiB");
            }
        }
        self.profile.check().map_err(|(key, is, may)| ConfigError::Value(key, is, may))
    }
}

impl From<StoreError> for ConfigError {
    /// A store that cannot take the partition.
    fn from(_: StoreError) -> Self {
        Self::Value("size", 0, "stored somewhere")
    }
}
