//! The configuration of the modelled device.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use flysch_wire::ufs::registers::Ver;

use crate::faults::Plan;
use crate::software::Software;
use crate::store::{LENGTH_MAX, Store, StoreError};
use crate::ufs::crypto::CRYPTO_SLOTS_MAX;
use crate::ufs::profile::{GALAXY_BOOK_S, Profile};

/// Maximum number of logical units.
pub const UNITS_MAX: usize = 32;
/// Maximum number of multi-circular queues.
pub const QUEUES_MAX: u32 = 32;
/// Maximum number of commands that the device holds at once.
pub const ACTIVE_COMMANDS_MAX: u32 = 256;
/// The unit of dNumAllocUnits and the other allocation counts, bytes.
pub const ALLOCATION_UNIT: u64 = 4 << 20;

/// Size of the smallest logical block, bytes: the unit of bMinAddrBlockSize.
pub const BLOCK_MIN: u32 = 512;
/// Size of the largest logical block, bytes.
pub const BLOCK_MAX: u32 = 1 << 20;
/// Size of the smallest logical block that JESD220 allows, bytes.
const BLOCK_STANDARD: u32 = 4096;

/// bLUWriteProtect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteProtect {
    /// Not protected.
    #[default]
    None,
    /// Protected while fPowerOnWPEn is set.
    PowerOn,
    /// Protected while fPermanentWPEn is set.
    Permanent,
}

/// bProvisioningType.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provisioning {
    /// UNMAP is refused.
    Full,
    /// Thin; unmapped blocks may read as anything (TPRZ = 0).
    Discard,
    /// Thin; unmapped blocks read as zero (TPRZ = 1).
    #[default]
    Erase,
}

/// One logical unit.
#[derive(Debug)]
pub struct UnitConfig {
    /// Its data; `None` for memory.
    pub store: Option<Store>,
    /// Capacity in bytes, a multiple of the block size.
    pub size: u64,
    /// Logical block size in bytes, a power of two from [`BLOCK_MIN`] to [`BLOCK_MAX`]. JESD220
    /// allows none below 4096: a device with a smaller one reports it in bMinAddrBlockSize, outside
    /// the standard.
    pub block_size: u32,
    /// bBootLunID: 0 for no boot unit, 1 for boot unit A, 2 for boot unit B.
    pub boot_id: u8,
    /// Write protection.
    pub write_protect: WriteProtect,
    /// Provisioning.
    pub provisioning: Provisioning,
    /// Its own WriteBooster buffer in bytes, used if the buffer is not shared.
    pub write_booster: u64,
    /// bLUQueueDepth: length of its own command queue; 0 to share the device's queue.
    pub queue_depth: u8,
}

impl UnitConfig {
    /// A plain unit in memory with 4096-byte blocks.
    pub fn memory(size: u64) -> Self {
        Self {
            store: None,
            size,
            block_size: BLOCK_STANDARD,
            boot_id: 0,
            write_protect: WriteProtect::None,
            provisioning: Provisioning::Erase,
            write_booster: 0,
            queue_depth: 0,
        }
    }
}

/// A device and its host controller.
#[derive(Debug)]
pub struct Config {
    /// Timing and link.
    pub profile: Profile,
    /// The published host whose software time is spent as well; `None` for the device alone.
    pub software: Option<Software>,
    /// Logical units; the index is the LUN. `None` is a LUN that does not exist.
    pub units: Vec<Option<UnitConfig>>,
    /// wSpecVersion of the device: 0x0310, 0x0400 or 0x0410.
    pub specification: u16,
    /// VER of the controller.
    pub host_version: Ver,
    /// Transfer request slots, 1 to 32.
    pub slots: u32,
    /// Task management slots, 1 to 8.
    pub task_slots: u32,
    /// Number of multi-circular queues, 0 for a controller without them.
    pub queues: u32,
    /// Whether the controller has event-specific interrupts, with a message for each queue.
    pub event_interrupts: bool,
    /// Whether the legacy single doorbell exists.
    pub legacy_doorbell: bool,
    /// Maximum number of active commands in multi-circular queue mode, 1 to 256; must equal `slots`
    /// if both designs exist, since CAP has one field for both.
    pub active_commands: u32,
    /// bQueueDepth: commands that the device queues; 0 for as many as the controller can send.
    pub queue_depth: u8,
    /// Shared WriteBooster buffer, bytes; 0 for none.
    pub write_booster: u64,
    /// Whether the buffer can be resized and flushed in part (UFS 4.1).
    pub extended_write_booster: bool,
    /// Number of key slots of the controller's crypto engine, at most [`CRYPTO_SLOTS_MAX`]; 0 for a
    /// controller without one.
    pub crypto_slots: u32,
    /// Whether the RPMB unit supports advanced mode (UFS 4.0).
    pub advanced_rpmb: bool,
    /// The key programmed into RPMB region 0.
    pub rpmb_key: Option<[u8; 32]>,
    /// Whether the device has the other optional services: firmware update and refresh.
    pub services: bool,
    /// Duration of fDeviceInit, nanoseconds.
    pub init_ns: u64,
    /// Maximum transfer of one command, bytes (MAXIMUM TRANSFER LENGTH).
    pub transfer_max: u32,
    /// Whether the device tracks what a power loss would destroy. This costs time per write.
    pub volatile_cache: bool,
    /// The faults to inject.
    pub faults: Plan,
    /// Seed of everything random.
    pub seed: u64,
    /// Serial number string.
    pub serial: String,
}

impl Default for Config {
    /// The Galaxy Book S profile with one unit of 4 GiB, both queue designs, UFS 4.1.
    fn default() -> Self {
        Self {
            profile: GALAXY_BOOK_S,
            software: None,
            units: vec![Some(UnitConfig::memory(4 << 30))],
            specification: 0x0410,
            host_version: Ver::V4_1,
            slots: 32,
            task_slots: 8,
            queues: 8,
            event_interrupts: true,
            legacy_doorbell: true,
            active_commands: 32,
            queue_depth: 0,
            write_booster: 4 << 30,
            extended_write_booster: true,
            crypto_slots: CRYPTO_SLOTS_MAX,
            advanced_rpmb: false,
            rpmb_key: None,
            services: true,
            init_ns: 20_000_000,
            transfer_max: 64 << 20,
            volatile_cache: false,
            faults: Plan::none(),
            seed: 1,
            serial: "FLYSCH0000000001".to_string(),
        }
    }
}

/// Why a configuration is invalid.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value is out of range: the key, the value, and the permitted values.
    Value(&'static str, u64, &'static str),
    /// A logical unit has an invalid value: LUN, key, the value, and the permitted values.
    Unit(usize, &'static str, u64, &'static str),
    /// A backing store failed.
    Store(StoreError),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(key, is, may) => write!(f, "UFS model: {key} is {is}; it must be {may}"),
            Self::Unit(lun, key, is, may) => {
                write!(f, "UFS model: {key} of LU {lun} is {is}; it must be {may}")
            }
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            // The message is that of the store's error.
            Self::Store(error) => error.source(),
            _ => None,
        }
    }
}

impl From<StoreError> for ConfigError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Config {
    /// Size of the smallest logical block that the device addresses, bytes: the standard's, unless
    /// a unit has smaller ones.
    pub(super) fn block_min(&self) -> u32 {
        let units = self.units.iter().flatten();
        units.map(|unit| unit.block_size).fold(BLOCK_STANDARD, u32::min)
    }

    /// Checks everything that does not need the device.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), ConfigError> {
        let ranges: [(&str, u32, core::ops::RangeInclusive<u32>, &str); 6] = [
            ("slots", self.slots, 1..=32, "1 to 32"),
            ("task_slots", self.task_slots, 1..=8, "1 to 8"),
            ("queues", self.queues, 0..=QUEUES_MAX, "0 to 32"),
            ("active_commands", self.active_commands, 1..=ACTIVE_COMMANDS_MAX, "1 to 256"),
            ("crypto_slots", self.crypto_slots, 0..=CRYPTO_SLOTS_MAX, "0 to 16"),
            ("transfer_max", self.transfer_max, 4096..=1 << 30, "4096 to 1073741824"),
        ];
        for (key, is, may, text) in ranges {
            if !may.contains(&is) {
                return Err(ConfigError::Value(key, u64::from(is), text));
            }
        }
        self.profile.check()?;
        if !matches!(self.specification, 0x0310 | 0x0400 | 0x0410) {
            let is = u64::from(self.specification);
            return Err(ConfigError::Value("specification", is, "0x310, 0x400 or 0x410"));
        }
        if self.advanced_rpmb && self.specification < 0x0400 {
            return Err(ConfigError::Value("advanced_rpmb", 1, "0 before UFS 4.0"));
        }
        if !self.legacy_doorbell && self.queues == 0 {
            return Err(ConfigError::Value("queues", 0, "1 or more without the single doorbell"));
        }
        if self.legacy_doorbell && self.queues > 0 && self.active_commands != self.slots {
            let is = u64::from(self.active_commands);
            return Err(ConfigError::Value("active_commands", is, "equal to slots"));
        }
        if self.units.len() > UNITS_MAX {
            return Err(ConfigError::Value("units", self.units.len() as u64, "at most 32"));
        }
        self.units.iter().enumerate().try_for_each(|(lun, unit)| match unit {
            Some(unit) => unit.check(lun),
            None => Ok(()),
        })
    }
}

impl UnitConfig {
    fn check(&self, lun: usize) -> Result<(), ConfigError> {
        let block = self.block_size;
        if !block.is_power_of_two() || !(BLOCK_MIN..=BLOCK_MAX).contains(&block) {
            let may = "a power of two from 512 to 1048576";
            return Err(ConfigError::Unit(lun, "block_size", u64::from(block), may));
        }
        if self.size == 0 || self.size > LENGTH_MAX || !self.size.is_multiple_of(u64::from(block)) {
            let may = "a multiple of the block size from one block to 16 TiB";
            return Err(ConfigError::Unit(lun, "size", self.size, may));
        }
        if self.boot_id > 2 {
            return Err(ConfigError::Unit(lun, "boot_id", u64::from(self.boot_id), "0, 1 or 2"));
        }
        Ok(())
    }
}
