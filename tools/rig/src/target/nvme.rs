use std::path::PathBuf;

use flysch_models::faults::{self as fault, Plan};
use flysch_models::nvme::profile::{LINUX_AM64X, LINUX_J721E, PM991A, Profile};
use flysch_models::software::Software;

use super::pairs::{Kind, Pairs, key, keys, not_real, on_off};
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
        key("size", "BYTES", "size of each namespace (4G, or the image's own)"),
        key("namespaces", "1..32", "number of namespaces (1)"),
        key("ns", "1..32", "the namespace that is the disk (1)"),
        key("block", "512|4096", "bytes per logical block (4096)"),
        keys::IMAGE,
        key("queues", "1..31", "I/O queue pairs, this many (1)"),
        key("vectors", "on|off", "a vector for each queue, else one line (on)"),
        key(
            "hmb",
            "BYTES|off",
            "host memory lent to a drive that asks for some, at most this (128M)",
        ),
        key("apst", "on|off", "the drive goes to its sleeping power states by itself (off)"),
        key("sgl", "on|off", "commands take scatter gather lists (on)"),
        keys::CLOCK,
        key(
            "software",
            "none|linux-j721e|linux-am64x",
            "a published host whose software's time is spent as well (none)",
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
        key("size", "BYTES", "size of the namespace (1G, or the image's own)"),
        keys::RAW_IMAGE,
        key("queues", "1..31", "I/O queue pairs, this many (1)"),
        key("block", "512|4096", "bytes per logical block (4096)"),
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
    /// Whether queues have vectors of their own.
    pub vectors: bool,
    /// Most host memory that is lent to the drive, bytes.
    pub host_memory: u32,
    /// Whether the drive changes its power state by itself.
    pub apst: bool,
    /// Whether commands take scatter gather lists.
    pub sgls: bool,
    /// Whose time counts: virtual or hybrid.
    pub clock: ClockKind,
    /// The published host whose software's time is spent as well.
    pub software: Option<Software>,
    /// What goes wrong.
    pub faults: Plan,
    /// Since when.
    pub faults_from: FaultsFrom,
    /// Seed of everything random.
    pub seed: u64,
}

/// Settings of QEMU's NVMe device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmeQemuTarget {
    /// Bytes of the namespace.
    pub size: Option<u64>,
    /// File that holds its data.
    pub image: Option<PathBuf>,
    /// I/O queue pairs.
    pub queues: u8,
    /// Bytes per logical block.
    pub block_size: u32,
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
            apst: false,
            sgls: true,
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
            apst: pairs.get("apst", on_off)?.unwrap_or(default.apst),
            sgls: pairs.get("sgl", on_off)?.unwrap_or(default.sgls),
            clock: pairs.get("clock", not_real)?.unwrap_or_default(),
            software: software.unwrap_or_default(),
            faults: pairs.faults(&fault::Kind::NVME)?,
            faults_from: pairs.faults_from()?,
            seed: pairs.seed()?,
        };
        if target.namespace > target.namespaces {
            return Err(ParseError::Value {
                key: "ns",
                given: target.namespace.to_string(),
                expected: match target.namespaces {
                    1 => "1, the only namespace; `namespaces=` makes more".into(),
                    n => format!("one of the {n} namespaces, 1..{n}"),
                },
            });
        }
        Ok(target)
    }
}

impl NvmeQemuTarget {
    pub(super) fn parse(rest: &str) -> Result<Self, ParseError> {
        let pairs = Pairs::parse(&QEMU, rest)?;
        Ok(Self {
            size: pairs.size()?,
            image: pairs.path("image")?,
            queues: pairs.within("queues", 1, 31)?.unwrap_or(1),
            block_size: pairs.block_size(4096)?,
            qemu: pairs.path("qemu")?,
        })
    }
}

/// Bytes of host memory; none for `off`.
fn host_memory(text: &str) -> Option<u32> {
    match text {
        "off" => Some(0),
        text => size::parse(text).and_then(|bytes| bytes.try_into().ok()),
    }
}
