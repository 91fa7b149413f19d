use std::path::PathBuf;

use flysch_models::faults::{self as fault, Plan};
use flysch_models::nvme::CMB_MAX;
use flysch_models::nvme::profile::{LINUX_AM64X, LINUX_J721E, PM991A, Profile};
use flysch_models::software::Software;
use flysch_target::{Kind, key};

use super::pairs::{Pairs, keys, not_real, on_off};
use super::{ClockKind, FaultsFrom, ParseError};
use crate::size;

/// The model.
pub(super) const MODEL: Kind = Kind {
    name: "nvme",
    help: "an NVMe controller and its namespaces, modelled in this process",
    keys: &[
        key(
            "profile",
            "pm991a|m8pe|m8pe-x1|980pro|980|ok3576",
            "the drive's timing and link (pm991a)",
        ),
        key("size", "BYTES", "size of each namespace (4G, or that of the image)"),
        key("namespaces", "1..32", "number of namespaces (1)"),
        key("ns", "1..32", "the namespace that is the disk (1)"),
        key("block", "512|4096", "bytes per logical block (4096)"),
        keys::IMAGE,
        key("queues", "1..31", "number of I/O queue pairs (1)"),
        key("vectors", "on|off", "a vector for each queue; off: one line (on)"),
        key(
            "hmb",
            "BYTES|off",
            "host memory lent to a drive that asks for some, at most this (128M)",
        ),
        key("sgl", "on|off", "commands use scatter gather lists (on)"),
        key("dbbuf", "on|off", "doorbells are kept in memory (on)"),
        key("cmb", "BYTES|off", "controller memory for the submission queues, up to 16M (off)"),
        key("apst", "on|off", "the drive enters its deep power states by itself (off)"),
        key("zones", "BYTES|off", "namespaces are zoned, with zones of this size (off)"),
        keys::CLOCK,
        key(
            "software",
            "none|linux-j721e|linux-am64x",
            "adds the software time of a published host (none)",
        ),
        keys::FAULTS,
        keys::FAULTS_FROM,
        keys::SEED,
    ],
};

/// QEMU's device.
pub(super) const QEMU: Kind = Kind {
    name: "nvme@qemu",
    help: "QEMU's NVMe device, in a QEMU started for it",
    keys: &[
        key("size", "BYTES", "size of each namespace (1G, or that of the image)"),
        keys::RAW_IMAGE,
        key("namespaces", "1..32", "number of namespaces (1)"),
        key("ns", "1..32", "the namespace that is the disk (1)"),
        key("queues", "1..31", "number of I/O queue pairs (1)"),
        key("block", "512|4096", "bytes per logical block (4096)"),
        key("sgl", "on|off", "commands use scatter gather lists (on)"),
        key("dbbuf", "on|off", "doorbells are kept in memory (on)"),
        key("cmb", "0..64", "MiB of controller memory for the submission queues, 2^n (0)"),
        key("zones", "BYTES|off", "namespaces are zoned, with zones of this size (off)"),
        key("controllers", "1..2", "controllers of the subsystem; the driver uses the first (1)"),
        keys::PROGRAM,
    ],
};

/// Settings of the NVMe model.
#[derive(Clone, Debug, PartialEq)]
pub struct NvmeTarget {
    /// The drive's timing and link.
    pub profile: Profile,
    /// Bytes of each namespace.
    pub size: Option<u64>,
    /// Number of namespaces.
    pub namespaces: u8,
    /// The namespace that is the disk.
    pub namespace: u8,
    /// Bytes per logical block.
    pub block_size: u32,
    /// File that holds the disk's data.
    pub image: Option<PathBuf>,
    /// I/O queue pairs.
    pub queues: u8,
    /// Whether each queue has its own vector.
    pub vectors: bool,
    /// Maximum host memory lent to the drive, bytes.
    pub host_memory: u32,
    /// Whether commands use scatter gather lists.
    pub sgls: bool,
    /// Whether doorbells are kept in memory.
    pub shadow_doorbells: bool,
    /// Bytes of controller memory.
    pub controller_memory: u32,
    /// Whether the drive enters its deep power states by itself.
    pub power_saving: bool,
    /// Bytes of a zone; 0 for namespaces without zones.
    pub zone_bytes: u64,
    /// The clock: virtual or hybrid.
    pub clock: ClockKind,
    /// The published host whose software time is added.
    pub software: Option<Software>,
    /// The fault plan.
    pub faults: Plan,
    /// When its counts start.
    pub faults_from: FaultsFrom,
    /// Seed of everything random.
    pub seed: u64,
}

/// Settings of QEMU's NVMe device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmeQemuTarget {
    /// Bytes of each namespace.
    pub size: Option<u64>,
    /// File that holds the disk's data.
    pub image: Option<PathBuf>,
    /// Number of namespaces.
    pub namespaces: u8,
    /// The namespace that is the disk.
    pub namespace: u8,
    /// I/O queue pairs.
    pub queues: u8,
    /// Bytes per logical block.
    pub block_size: u32,
    /// Whether commands use scatter gather lists.
    pub sgls: bool,
    /// Whether doorbells are kept in memory.
    pub shadow_doorbells: bool,
    /// MiB of controller memory.
    pub memory_mib: u8,
    /// Bytes of a zone; 0 for namespaces without zones.
    pub zone_bytes: u64,
    /// Controllers of the subsystem.
    pub controllers: u8,
    /// The QEMU to start.
    pub qemu: Option<PathBuf>,
}

impl Default for NvmeTarget {
    fn default() -> Self {
        Self {
            profile: PM991A,
            size: None,
            namespaces: 1,
            namespace: 1,
            block_size: 4096,
            image: None,
            queues: 1,
            vectors: true,
            host_memory: 128 << 20,
            sgls: true,
            shadow_doorbells: true,
            controller_memory: 0,
            power_saving: false,
            zone_bytes: 0,
            clock: ClockKind::default(),
            software: None,
            faults: Plan::none(),
            faults_from: FaultsFrom::default(),
            seed: 1,
        }
    }
}

impl NvmeTarget {
    pub(super) fn parse(rest: &str) -> Result<Self, ParseError> {
        let pairs = Pairs::parse(&MODEL, rest)?;
        let default = Self::default();
        let software = pairs.get("software", |name| match name {
            "none" => Some(None),
            name => {
                let known = [LINUX_J721E, LINUX_AM64X].into_iter();
                known.map(Some).find(|known| known.is_some_and(|known| known.name == name))
            }
        })?;
        let profile = |name: &str| Profile::by_name(name).copied();
        let target = Self {
            profile: pairs.get("profile", profile)?.unwrap_or(default.profile),
            size: pairs.size()?,
            namespaces: pairs.within("namespaces", 1, 32)?.unwrap_or(default.namespaces),
            namespace: pairs.within("ns", 1, 32)?.unwrap_or(default.namespace),
            block_size: pairs.block_size(4096)?,
            image: pairs.path("image")?,
            queues: pairs.within("queues", 1, 31)?.unwrap_or(default.queues),
            vectors: pairs.get("vectors", on_off)?.unwrap_or(default.vectors),
            host_memory: pairs.get("hmb", host_memory)?.unwrap_or(default.host_memory),
            sgls: pairs.get("sgl", on_off)?.unwrap_or(default.sgls),
            shadow_doorbells: pairs.get("dbbuf", on_off)?.unwrap_or(default.shadow_doorbells),
            controller_memory: pairs.get("cmb", controller_memory)?.unwrap_or_default(),
            power_saving: pairs.get("apst", on_off)?.unwrap_or(default.power_saving),
            zone_bytes: pairs.get("zones", zone_bytes)?.unwrap_or_default(),
            clock: pairs.get("clock", not_real)?.unwrap_or_default(),
            software: software.unwrap_or_default(),
            faults: pairs.faults(&fault::Kind::NVME)?,
            faults_from: pairs.faults_from()?,
            seed: pairs.seed()?,
        };
        check_namespace(target.namespace, target.namespaces)?;
        Ok(target)
    }
}

impl NvmeQemuTarget {
    pub(super) fn parse(rest: &str) -> Result<Self, ParseError> {
        let pairs = Pairs::parse(&QEMU, rest)?;
        let target = Self {
            size: pairs.size()?,
            image: pairs.path("image")?,
            namespaces: pairs.within("namespaces", 1, 32)?.unwrap_or(1),
            namespace: pairs.within("ns", 1, 32)?.unwrap_or(1),
            queues: pairs.within("queues", 1, 31)?.unwrap_or(1),
            block_size: pairs.block_size(4096)?,
            sgls: pairs.get("sgl", on_off)?.unwrap_or(true),
            shadow_doorbells: pairs.get("dbbuf", on_off)?.unwrap_or(true),
            memory_mib: pairs.within("cmb", 0, 64)?.unwrap_or(0),
            zone_bytes: pairs.get("zones", zone_bytes)?.unwrap_or_default(),
            controllers: pairs.within("controllers", 1, 2)?.unwrap_or(1),
            qemu: pairs.path("qemu")?,
        };
        check_namespace(target.namespace, target.namespaces)?;
        Ok(target)
    }
}

/// Checks that the disk is one of the existing namespaces.
fn check_namespace(wanted: u8, there: u8) -> Result<(), ParseError> {
    if wanted <= there {
        return Ok(());
    }
    Err(ParseError::value(
        "ns",
        wanted,
        match there {
            1 => "1, the only namespace; `namespaces=` makes more".to_string(),
            n => format!("one of the {n} namespaces, 1..{n}"),
        },
    ))
}

/// Bytes of controller memory; none for `off`.
fn controller_memory(text: &str) -> Option<u32> {
    host_memory(text).filter(|bytes| bytes.is_multiple_of(4096) && *bytes <= CMB_MAX)
}

/// Bytes of a zone; none for `off`.
fn zone_bytes(text: &str) -> Option<u64> {
    match text {
        "off" => Some(0),
        text => size::parse(text).filter(|bytes| *bytes > 0 && bytes.is_multiple_of(4096)),
    }
}

/// Bytes of host memory; none for `off`.
fn host_memory(text: &str) -> Option<u32> {
    match text {
        "off" => Some(0),
        text => size::parse(text).and_then(|bytes| bytes.try_into().ok()),
    }
}
