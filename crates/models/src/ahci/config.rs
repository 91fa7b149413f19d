//! What HBA and what devices to model.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use flysch_wire::ata::multiplier::PORTS_MAX as PMP_PORTS_MAX;
use flysch_wire::ata::registers::PORTS_MAX;

use super::profile::{Profile, SATA_SSD};
use crate::faults::Plan;
use crate::store::{LENGTH_MAX, Store};

/// What is at a port.
#[derive(Debug)]
pub enum Attached {
    /// Nothing.
    Nothing,
    /// A disk.
    Disk(Box<DiskConfig>),
    /// A packet device: a CD drive with this disc.
    Cd(Store, u64),
    /// A port multiplier, and what is at its device ports.
    Multiplier(Box<MultiplierConfig>),
}

impl Attached {
    /// A disk.
    pub fn disk(config: DiskConfig) -> Self {
        Self::Disk(Box::new(config))
    }

    /// A port multiplier.
    pub fn multiplier(config: MultiplierConfig) -> Self {
        Self::Multiplier(Box::new(config))
    }

    fn check(&self, port: usize) -> Result<(), ConfigError> {
        match self {
            Self::Disk(disk) => disk.check(port),
            Self::Cd(_, size) if *size == 0 || !size.is_multiple_of(2048) => {
                Err(ConfigError::Port(port, "size", *size, "a multiple of 2048"))
            }
            Self::Multiplier(multiplier) => multiplier.check(port),
            Self::Cd(..) | Self::Nothing => Ok(()),
        }
    }
}

/// A port multiplier.
#[derive(Debug)]
pub struct MultiplierConfig {
    /// GSCR 0: device id in the high half, vendor id in the low.
    pub product: u32,
    /// GSCR 1.
    pub revision: u32,
    /// Fastest generation of its links, 1 to 3.
    pub generation: u8,
    /// What is at each device port, 1 to 15 of them; no multipliers.
    pub ports: Vec<Attached>,
}

impl MultiplierConfig {
    /// Device ports of [`sil3726`](Self::sil3726).
    pub const SIL3726_PORTS: usize = 5;

    /// With the names and the links of Silicon Image's 3726, which has five ports.
    pub const fn sil3726(ports: Vec<Attached>) -> Self {
        Self { product: 0x3726_1095, revision: 0x1706, generation: 2, ports }
    }

    /// With names that are nobody's: what drivers know of real ones does not apply to it.
    pub const fn of_nobody(ports: Vec<Attached>) -> Self {
        Self { product: 0x0F2B_1B36, revision: 0x010E, generation: 3, ports }
    }

    fn check(&self, port: usize) -> Result<(), ConfigError> {
        let wrong = |key, is, may| Err(ConfigError::Port(port, key, is, may));
        if !(1..=PMP_PORTS_MAX).contains(&self.ports.len()) {
            return wrong("device ports", self.ports.len() as u64, "1 to 15");
        }
        if !(1..=3).contains(&self.generation) {
            return wrong("generation", self.generation.into(), "1 to 3");
        }
        self.ports.iter().try_for_each(|attached| match attached {
            Attached::Multiplier(_) => wrong("multiplier", 1, "no multiplier behind another"),
            attached => attached.check(port),
        })
    }
}

/// What an HBA can do with port multipliers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switching {
    /// Nothing: it finds the first device.
    #[default]
    No,
    /// Command-based switching: one device at a time has commands.
    Command,
    /// FIS-based switching, too.
    Fis,
}

/// A disk.
#[derive(Debug)]
pub struct DiskConfig {
    /// Timing and link.
    pub profile: Profile,
    /// Its data; `None` takes memory.
    pub store: Option<Store>,
    /// Capacity in bytes, a multiple of 4096.
    pub size: u64,
    /// Bytes of a logical sector, 512 or 4096.
    pub sector_bytes: u32,
    /// Commands it queues, 1 to 32; 0 leaves NCQ out.
    pub queue_depth: u8,
    /// 48-bit addresses. Without them there is no NCQ, and 128 GiB at most.
    pub lba48: bool,
    /// Trims can be queued (SEND FPDMA).
    pub queued_trim: bool,
    /// Device sleep.
    pub device_sleep: bool,
    /// It is locked with this password when power comes.
    pub password: Option<[u8; 32]>,
    /// Serial number, at most 20 ASCII characters.
    pub serial: String,
    /// Model, at most 40 ASCII characters.
    pub model: String,
}

impl DiskConfig {
    /// A plain disk in memory with sectors of 512 bytes.
    pub fn memory(size: u64) -> Self {
        Self {
            profile: SATA_SSD,
            store: None,
            size,
            sector_bytes: 512,
            queue_depth: 32,
            lba48: true,
            queued_trim: true,
            device_sleep: true,
            password: None,
            serial: "FLYSCHSATA0000000001".to_string(),
            model: "FLYSCH SATA".to_string(),
        }
    }

    fn check(&self, port: usize) -> Result<(), ConfigError> {
        let wrong = |key, is, may| Err(ConfigError::Port(port, key, is, may));
        if !matches!(self.sector_bytes, 512 | 4096) {
            return wrong("sector_bytes", self.sector_bytes.into(), "512 or 4096");
        }
        let most = if self.lba48 { LENGTH_MAX } else { u64::from(self.sector_bytes) << 28 };
        if self.size == 0 || self.size > most || !self.size.is_multiple_of(4096) {
            return wrong("size", self.size, "a multiple of 4096 that the addresses reach");
        }
        if self.queue_depth > 32 {
            return wrong("queue_depth", self.queue_depth.into(), "0 to 32");
        }
        self.profile.check().or_else(|(key, is, may)| wrong(key, is, may))
    }
}

/// An HBA and what is at its ports.
#[derive(Debug)]
pub struct Config {
    /// What is at each port, 1 to 32 of them.
    pub ports: Vec<Attached>,
    /// Command slots of a port, 1 to 32.
    pub slots: u8,
    /// CAP.S64A: addresses of 64 bits.
    pub wide: bool,
    /// CAP.SSS: devices spin up when they are told.
    pub staggered: bool,
    /// CAP.SCLO: command list override.
    pub override_list: bool,
    /// What it can do with port multipliers: CAP.SPM, CAP.FBSS.
    pub switching: Switching,
    /// The BIOS owns the HBA when power comes.
    pub bios: bool,
    /// Whether the model tracks what a power loss would destroy. Costs time per write.
    pub volatile_cache: bool,
    /// What goes wrong.
    pub faults: Plan,
    /// Seed of everything random.
    pub seed: u64,
}

impl Default for Config {
    /// One port with a disk of 4 GiB.
    fn default() -> Self {
        Self {
            ports: vec![Attached::disk(DiskConfig::memory(4 << 30))],
            slots: 32,
            wide: true,
            staggered: false,
            override_list: true,
            switching: Switching::No,
            bios: false,
            volatile_cache: false,
            faults: Plan::none(),
            seed: 1,
        }
    }
}

/// A configuration that makes no HBA.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value is out of range: the key, what it is, what it may be.
    Value(&'static str, u64, &'static str),
    /// A device has a wrong value: port, key, what it is, what it may be.
    Port(usize, &'static str, u64, &'static str),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(key, is, may) => write!(f, "AHCI model: {key} is {is}; it must be {may}"),
            Self::Port(port, key, is, may) => {
                write!(f, "AHCI model: {key} at port {port} is {is}; it must be {may}")
            }
        }
    }
}

impl core::error::Error for ConfigError {}

impl Config {
    /// Checks everything.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.ports.is_empty() || self.ports.len() > PORTS_MAX {
            return Err(ConfigError::Value("ports", self.ports.len() as u64, "1 to 32"));
        }
        if !(1..=32).contains(&self.slots) {
            return Err(ConfigError::Value("slots", self.slots.into(), "1 to 32"));
        }
        self.ports.iter().enumerate().try_for_each(|(port, attached)| attached.check(port))
    }
}
