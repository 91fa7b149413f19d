//! The configuration of the modelled controller and its namespaces.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use flysch_wire::nvme::registers::Version;

use super::buffer::CMB_MAX;
use super::profile::{PM991A, Profile};
use crate::faults::Plan;
use crate::software::Software;
use crate::store::{LENGTH_MAX, Store, StoreError};

/// Maximum number of namespaces, and the highest namespace id (NN).
pub const NAMESPACES_MAX: usize = 32;
/// Maximum number of I/O queue pairs.
pub const QUEUES_MAX: u16 = 64;
/// Maximum number of interrupt vectors.
pub const VECTORS_MAX: u16 = 64;
/// Maximum number of entries of an I/O queue.
pub const ENTRIES_MAX: u32 = 1 << 16;
/// Maximum number of commands that the controller holds at once.
pub const COMMANDS_MAX: u16 = 4096;

/// One namespace.
#[derive(Debug)]
pub struct NamespaceConfig {
    /// Its data; `None` for memory.
    pub store: Option<Store>,
    /// Capacity in bytes, a multiple of 4096.
    pub size: u64,
    /// Size of a logical block, bytes: 512 or 4096.
    pub block_size: u32,
    /// Whether it is write protected at power-on (NSATTR bit 0).
    pub write_protected: bool,
    /// Its zones, if it uses the zoned command set. They are empty in a new model.
    pub zones: Option<ZoneConfig>,
}

/// The zones of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneConfig {
    /// Size of a zone, bytes: a multiple of 4096 that divides the size of the namespace; all of it
    /// can be written.
    pub size: u64,
    /// Maximum number of open zones; 0 for no limit.
    pub open_max: u32,
    /// Maximum number of active zones, not below that of open ones; 0 for no limit.
    pub active_max: u32,
}

/// Maximum number of zones in a namespace.
pub const ZONES_MAX: u64 = 1 << 16;

impl NamespaceConfig {
    /// A plain namespace in memory with 4096-byte blocks.
    pub fn memory(size: u64) -> Self {
        Self { store: None, size, block_size: 4096, write_protected: false, zones: None }
    }

    fn check(&self, id: usize) -> Result<(), ConfigError> {
        let wrong = |key, is, may| Err(ConfigError::Namespace(id, key, is, may));
        if !matches!(self.block_size, 512 | 4096) {
            return wrong("block_size", self.block_size.into(), "512 or 4096");
        }
        if self.size == 0 || self.size > LENGTH_MAX || !self.size.is_multiple_of(4096) {
            return wrong("size", self.size, "a multiple of 4096 from 4096 to 16 TiB");
        }
        let Some(zones) = self.zones else { return Ok(()) };
        let fits = zones.size > 0
            && zones.size.is_multiple_of(4096)
            && self.size.is_multiple_of(zones.size)
            && self.size / zones.size <= ZONES_MAX;
        if !fits {
            let may = "a multiple of 4096 that divides the size into at most 65536 zones";
            return wrong("zone size", zones.size, may);
        }
        if zones.active_max != 0 && (zones.open_max == 0 || zones.open_max > zones.active_max) {
            return wrong("open zones", zones.open_max.into(), "at most as many as active ones");
        }
        Ok(())
    }
}

/// A controller and its namespaces.
#[derive(Debug)]
pub struct Config {
    /// Timing and link.
    pub profile: Profile,
    /// The published host whose software time is spent as well; `None` for the device alone.
    pub software: Option<Software>,
    /// Namespaces; the first has id 1.
    pub namespaces: Vec<NamespaceConfig>,
    /// Capacity of the device, bytes; 0 for that of the namespaces, so that none can be created.
    pub capacity: u64,
    /// VS, 1.2 to 2.0.
    pub version: Version,
    /// I/O queue pairs, 1 to [`QUEUES_MAX`].
    pub queues: u16,
    /// Maximum number of entries of an I/O queue, 2 to [`ENTRIES_MAX`] (MQES plus one).
    pub entries: u32,
    /// DSTRD, 0 to 3.
    pub stride: u8,
    /// Interrupt vectors, 1 to [`VECTORS_MAX`]; with one there is only the line.
    pub vectors: u16,
    /// Number of commands that the controller holds at once, 32 to [`COMMANDS_MAX`].
    pub commands: u16,
    /// Maximum transfer of one command, bytes: a power of two from 4096 to 128 MiB (MDTS).
    pub transfer_max: u32,
    /// Whether I/O commands may use scatter gather lists.
    pub sgls: bool,
    /// Whether Doorbell Buffer Config is supported.
    pub shadow_doorbells: bool,
    /// Size of the controller memory buffer, bytes: a multiple of 4096 up to [`CMB_MAX`]; 0 for
    /// none. Requires version 1.4 or later.
    pub controller_memory: u32,
    /// Whether Identify supports namespace lists and identification descriptors; the first
    /// controllers supported only the controller and each namespace (CNS 0 and 1).
    pub lists: bool,
    /// CAP.NSSRS.
    pub subsystem_reset: bool,
    /// CRDT1 to CRDT3: how long a host should wait before it retries, in units of 100 ms.
    pub retry_delays: [u16; 3],
    /// Whether the model tracks what a power loss would destroy. This costs time per write.
    pub volatile_cache: bool,
    /// The faults to inject.
    pub faults: Plan,
    /// Seed of everything random.
    pub seed: u64,
    /// Serial number, at most 20 ASCII characters.
    pub serial: String,
}

impl Default for Config {
    /// The first profile with one namespace of 4 GiB and eight queue pairs.
    fn default() -> Self {
        Self {
            profile: PM991A,
            software: None,
            namespaces: vec![NamespaceConfig::memory(4 << 30)],
            capacity: 0,
            version: Version::of(2, 0),
            queues: 8,
            entries: 1024,
            stride: 0,
            vectors: 9,
            commands: 1024,
            transfer_max: 2 << 20,
            sgls: true,
            shadow_doorbells: true,
            controller_memory: 0,
            lists: true,
            subsystem_reset: true,
            retry_delays: [1, 5, 10],
            volatile_cache: false,
            faults: Plan::none(),
            seed: 1,
            serial: "FLYSCHNVME0000000001".to_string(),
        }
    }
}

/// Why a configuration is invalid.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value is out of range: the key, the value, and the permitted values.
    Value(&'static str, u64, &'static str),
    /// A namespace has an invalid value: id, key, the value, and the permitted values.
    Namespace(usize, &'static str, u64, &'static str),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(key, is, may) => write!(f, "NVMe model: {key} is {is}; it must be {may}"),
            Self::Namespace(id, key, is, may) => {
                write!(f, "NVMe model: {key} of namespace {id} is {is}; it must be {may}")
            }
        }
    }
}

impl core::error::Error for ConfigError {}

impl Config {
    /// Checks everything.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), ConfigError> {
        let ranges: [(&'static str, u32, core::ops::RangeInclusive<u32>, &'static str); 6] = [
            ("queues", self.queues.into(), 1..=QUEUES_MAX.into(), "1 to 64"),
            ("entries", self.entries, 2..=ENTRIES_MAX, "2 to 65536"),
            ("stride", self.stride.into(), 0..=3, "0 to 3"),
            ("vectors", self.vectors.into(), 1..=VECTORS_MAX.into(), "1 to 64"),
            ("commands", self.commands.into(), 32..=COMMANDS_MAX.into(), "32 to 4096"),
            ("transfer_max", self.transfer_max, 4096..=128 << 20, TRANSFERS),
        ];
        for (key, is, may, text) in ranges {
            if !may.contains(&is) {
                return Err(ConfigError::Value(key, is.into(), text));
            }
        }
        if !self.transfer_max.is_power_of_two() {
            return Err(ConfigError::Value("transfer_max", self.transfer_max.into(), TRANSFERS));
        }
        if !self.version.is_at_least(1, 2) || self.version.is_at_least(2, 1) {
            let is = u64::from(self.version.into_bits());
            return Err(ConfigError::Value("version", is, "1.2 to 2.0"));
        }
        let buffer = self.controller_memory;
        if buffer > CMB_MAX || !buffer.is_multiple_of(4096) {
            return Err(ConfigError::Value("controller_memory", buffer.into(), BUFFERS));
        }
        if buffer > 0 && !self.version.is_at_least(1, 4) {
            return Err(ConfigError::Value("controller_memory", buffer.into(), "0 before 1.4"));
        }
        self.profile.check().map_err(|(key, is, may)| ConfigError::Value(key, is, may))?;
        if self.namespaces.len() > NAMESPACES_MAX {
            let is = self.namespaces.len() as u64;
            return Err(ConfigError::Value("namespaces", is, "at most 32"));
        }
        let taken: u64 = self.namespaces.iter().map(|space| space.size).sum();
        if self.capacity != 0 && self.capacity < taken {
            return Err(ConfigError::Value("capacity", self.capacity, "as much as the namespaces"));
        }
        (1..).zip(&self.namespaces).try_for_each(|(id, space)| space.check(id))
    }
}

const BUFFERS: &str = "a multiple of 4096 up to 16777216";
const TRANSFERS: &str = "a power of two from 4096 to 134217728";

impl From<StoreError> for ConfigError {
    /// The store cannot hold the namespace.
    fn from(_: StoreError) -> Self {
        Self::Value("namespaces", 0, "stored somewhere")
    }
}
