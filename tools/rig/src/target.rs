//! Targets: `KIND[@WHERE][,key=value...]`, parsed into values and refused with a reason.
//!
//! The kinds and their keys are one table, [`KINDS`]; parsing, error messages and the help of the
//! command are all made from it.

use core::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use flysch_bench::published::Origin;
use flysch_models::faults::{self as fault, Plan, PlanError};
use flysch_models::nvme::profile as nvme;
use flysch_models::software::Software;
use flysch_models::ufs::profile::{GALAXY_BOOK_S, OK3576, Profile};
use flysch_ufs::Aggregation;
use flysch_ufs::policy::Rules;

use crate::size;

mod crypto;
mod rules;

pub use crypto::CryptoTarget;

/// One kind of target.
#[derive(Debug)]
pub struct Kind {
    /// How it is written, without keys.
    pub name: &'static str,
    /// What it is.
    pub help: &'static str,
    /// The keys it takes.
    pub keys: &'static [Key],
}

/// One key of a kind.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What its value looks like.
    pub value: &'static str,
    /// What it does, and what holds without it.
    pub help: &'static str,
}

const fn key(name: &'static str, value: &'static str, help: &'static str) -> Key {
    Key { name, value, help }
}

/// Every kind of target.
pub const KINDS: [Kind; 6] = [
    Kind {
        name: "ufs",
        help: "a UFS device and its host controller, modelled in this process",
        keys: &[
            key(
                "profile",
                "galaxy-book-s|ok3576|generic|ufs40",
                "the device's timing (galaxy-book-s)",
            ),
            key("size", "BYTES", "size of each logical unit (4G, or the image's own)"),
            key("lus", "1..32", "number of logical units (1)"),
            key("lu", "0..31", "the logical unit that is the disk (0)"),
            key(
                "image",
                "FILE",
                "keep the disk's data in this file (memory); made if size is given",
            ),
            key("mcq", "1..31", "multi-circular queues, this many (single doorbell)"),
            key("esi", "on|off", "a vector for each queue, if there are queues (on)"),
            key(
                "aggregate",
                "COUNT:MICROSECONDS",
                "so many completions for one interrupt, or as many as there are by then (off)",
            ),
            key("gear", "1..5", "highest high-speed gear of the link (the profile's)"),
            key("wb", "on|off", "WriteBooster (off)"),
            key("scaling", "MICROSECONDS", "without I/O for so long the link is slow (never)"),
            key(
                "suspend",
                "MICROSECONDS",
                "without I/O for so long link and device are suspended (never)",
            ),
            key(
                "suspend-level",
                "hibernate|sleep",
                "the link alone, or the device as well (hibernate)",
            ),
            key("rpmb", "normal|advanced", "how the RPMB unit is spoken to (normal)"),
            key("rpmb-key", "FILE", "key that RPMB region 0 has been given, 32 bytes (none)"),
            key(
                "crypto",
                "aes-256-xts|aes-128-xts|off",
                "the controller encrypts the disk's data, numbered from its beginning (off)",
            ),
            key("crypto-key", "FILE", "its key, 64 or 32 bytes (a new random one each time)"),
            key(
                "data-unit",
                "512|1024|2048|4096|8192|16384|32768|65536",
                "bytes encrypted under one number (4096)",
            ),
            key("boot", "on|off", "units 1 and 2 are the boot units A and B (off)"),
            key("clock", "virtual|hybrid|real", "whose time: see docs/command.md (hybrid)"),
            key(
                "software",
                "none|freebsd|linux",
                "a published host whose software's time is spent as well (none)",
            ),
            key("faults", "KIND:WHEN[+KIND:WHEN...]", "faults to inject (none)"),
            key(
                "faults-from",
                "open|power",
                "since when they count: the disk is open, or power is on (open)",
            ),
            key("seed", "NUMBER", "seed of the faults and of the media's variation (1)"),
        ],
    },
    Kind {
        name: "nvme",
        help: "an NVMe controller and its namespaces, modelled in this process",
        keys: &[
            key("profile", "pm991a|m8pe|980pro|980", "the drive's timing and link (pm991a)"),
            key("size", "BYTES", "size of each namespace (4G, or the image's own)"),
            key("namespaces", "1..32", "number of namespaces (1)"),
            key("ns", "1..32", "the namespace that is the disk (1)"),
            key("block", "512|4096", "bytes per logical block (4096)"),
            key(
                "image",
                "FILE",
                "keep the disk's data in this file (memory); made if size is given",
            ),
            key("queues", "1..31", "I/O queue pairs, this many (1)"),
            key("vectors", "on|off", "a vector for each queue, else one line (on)"),
            key("sgl", "on|off", "commands take scatter gather lists (on)"),
            key("clock", "virtual|hybrid", "whose time: see docs/command.md (hybrid)"),
            key(
                "software",
                "none|linux-j721e",
                "a published host whose software's time is spent as well (none)",
            ),
            key("faults", "KIND:WHEN[+KIND:WHEN...]", "faults to inject (none)"),
            key(
                "faults-from",
                "open|power",
                "since when they count: the disk is open, or power is on (open)",
            ),
            key("seed", "NUMBER", "seed of the faults and of the media's variation (1)"),
        ],
    },
    Kind {
        name: "ufs@qemu",
        help: "QEMU's UFS device, in a QEMU started for it",
        keys: &[
            key("size", "BYTES", "size of the logical unit (1G, or the image's own)"),
            key("image", "FILE", "keep the disk's data in this raw file (a temporary one)"),
            key("mcq", "1..31", "multi-circular queues, this many (single doorbell)"),
            key("qemu", "PROGRAM", "the QEMU to start (FLYSCH_QEMU, else from the search path)"),
        ],
    },
    Kind {
        name: "nvme@qemu",
        help: "QEMU's NVMe device, in a QEMU started for it",
        keys: &[
            key("size", "BYTES", "size of the namespace (1G, or the image's own)"),
            key("image", "FILE", "keep the disk's data in this raw file (a temporary one)"),
            key("queues", "1..31", "I/O queue pairs, this many (1)"),
            key("block", "512|4096", "bytes per logical block (4096)"),
            key("qemu", "PROGRAM", "the QEMU to start (FLYSCH_QEMU, else from the search path)"),
        ],
    },
    Kind {
        name: "file:PATH",
        help: "a file as a disk, read and written as it is",
        keys: &[
            key("size", "BYTES", "make the file with this size if it does not exist"),
            key("block", "512|4096", "bytes per logical block (4096)"),
        ],
    },
    Kind {
        name: "null",
        help: "a disk that completes everything at once and moves no data",
        keys: &[key("size", "BYTES", "its size (1T)")],
    },
];

/// A stack to open.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// The UFS model.
    Ufs(UfsTarget),
    /// The NVMe model.
    Nvme(NvmeTarget),
    /// QEMU's UFS device.
    UfsQemu(QemuTarget),
    /// QEMU's NVMe device.
    NvmeQemu(NvmeQemuTarget),
    /// A file.
    File(FileTarget),
    /// Nothing at all.
    Null(NullTarget),
}

/// Settings of the UFS model; `None` leaves a choice to the profile.
#[derive(Clone, Debug, PartialEq)]
pub struct UfsTarget {
    /// The device's timing.
    pub profile: Profile,
    /// Bytes of each logical unit.
    pub size: Option<u64>,
    /// Number of logical units.
    pub lus: u8,
    /// The logical unit that is the disk.
    pub lu: u8,
    /// File that holds the disk's data.
    pub image: Option<PathBuf>,
    /// Queues in MCQ mode; `None` is the single doorbell.
    pub mcq: Option<u8>,
    /// Whether queues have vectors of their own.
    pub event_interrupts: bool,
    /// Completions that share an interrupt.
    pub aggregation: Option<Aggregation>,
    /// Highest gear.
    pub gear: Option<u8>,
    /// Whether WriteBooster is switched on after bring-up.
    pub write_booster: bool,
    /// What the driver does by itself in pauses.
    pub rules: Rules,
    /// Whether the RPMB unit speaks advanced mode.
    pub advanced_rpmb: bool,
    /// File with the key that RPMB region 0 has been given.
    pub rpmb_key: Option<PathBuf>,
    /// How the controller encrypts the disk's data.
    pub crypto: Option<CryptoTarget>,
    /// Whether units 1 and 2 are boot units.
    pub boot: bool,
    /// Whose time counts.
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

/// Settings of the NVMe model.
#[derive(Clone, Debug, PartialEq)]
pub struct NvmeTarget {
    /// The drive's timing and link.
    pub profile: nvme::Profile,
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

/// Since when a plan of faults counts its opportunities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FaultsFrom {
    /// The stack is open: all of it hits the workload.
    #[default]
    Open,
    /// Power is on: bring-up and scan are hit, too.
    Power,
}

impl FaultsFrom {
    fn named(name: &str) -> Option<Self> {
        match name {
            "open" => Some(Self::Open),
            "power" => Some(Self::Power),
            _ => None,
        }
    }
}

/// Whose time counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockKind {
    /// Discrete events; software costs nothing.
    Virtual,
    /// Software time is measured, device time comes from the model.
    #[default]
    Hybrid,
    /// The machine's clock; the model runs in a thread of its own.
    Real,
}

/// Settings of QEMU's UFS device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QemuTarget {
    /// Bytes of the logical unit.
    pub size: Option<u64>,
    /// File that holds its data.
    pub image: Option<PathBuf>,
    /// Queues in MCQ mode; `None` is the single doorbell.
    pub mcq: Option<u8>,
    /// The QEMU to start.
    pub qemu: Option<PathBuf>,
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

/// A file as a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileTarget {
    /// Its path.
    pub path: PathBuf,
    /// Size to make it with.
    pub size: Option<u64>,
    /// Bytes per logical block.
    pub block_size: u32,
}

/// A disk without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NullTarget {
    /// Its size in bytes.
    pub size: u64,
}

impl Target {
    /// Where figures of the device were published that it is a model of.
    pub fn origin(&self) -> Option<Origin> {
        match self {
            Self::Ufs(ufs) if ufs.profile == GALAXY_BOOK_S => Some(Origin::GalaxyBookS),
            Self::Ufs(ufs) if ufs.profile == OK3576 => Some(Origin::Ok3576),
            _ => None,
        }
    }

    /// Whether it is a modelled UFS device alone, without a published host's software.
    pub fn is_bare(&self) -> bool {
        matches!(self, Self::Ufs(ufs) if ufs.software.is_none())
    }
}

impl Default for UfsTarget {
    fn default() -> Self {
        Self {
            profile: GALAXY_BOOK_S,
            size: None,
            lus: 1,
            lu: 0,
            image: None,
            mcq: None,
            event_interrupts: true,
            aggregation: None,
            gear: None,
            write_booster: false,
            rules: Rules::default(),
            advanced_rpmb: false,
            rpmb_key: None,
            crypto: None,
            boot: false,
            clock: ClockKind::default(),
            software: None,
            faults: Plan::none(),
            faults_from: FaultsFrom::default(),
            seed: 1,
        }
    }
}

impl Default for NvmeTarget {
    fn default() -> Self {
        Self {
            profile: nvme::PM991A,
            size: None,
            namespaces: 1,
            namespace: 1,
            block_size: 4096,
            image: None,
            queues: 1,
            vectors: true,
            sgls: true,
            clock: ClockKind::default(),
            software: None,
            faults: Plan::none(),
            faults_from: FaultsFrom::default(),
            seed: 1,
        }
    }
}

/// Why a text is not a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// No such kind.
    Kind {
        /// What was written.
        given: String,
    },
    /// The kind has no such key.
    Key {
        /// The kind's name.
        kind: &'static str,
        /// What was written.
        given: String,
    },
    /// The key cannot have this value.
    Value {
        /// The key.
        key: &'static str,
        /// What was written.
        given: String,
        /// What it may be.
        expected: String,
    },
    /// The fault plan cannot be read.
    Faults {
        /// What was written.
        given: String,
        /// What is wrong with it.
        cause: PlanError,
    },
    /// A key stands there twice.
    Twice {
        /// The key.
        key: &'static str,
    },
    /// A piece is not `key=value`.
    NotAPair {
        /// What was written.
        given: String,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind { given } => {
                let kinds = KINDS.each_ref().map(|kind| kind.name);
                let plain = kinds.map(|name| name.split(':').next().unwrap_or(name));
                write!(f, "unknown target `{given}`{}", did_you_mean(given, &plain))?;
                write!(f, "; targets are {}", kinds.join(", "))
            }
            Self::Key { kind, given } => {
                let keys: Vec<&str> = keys_of(kind).iter().map(|key| key.name).collect();
                write!(f, "target `{kind}` has no key `{given}`{}", did_you_mean(given, &keys))?;
                write!(f, "; its keys are {}", keys.join(", "))
            }
            Self::Value { key, given, expected } => {
                let words: Vec<&str> = expected.split('|').collect();
                let hint =
                    if words.len() > 1 { did_you_mean(given, &words) } else { String::new() };
                write!(f, "`{key}={given}`: the value must be {expected}{hint}")
            }
            Self::Faults { given, cause } => write!(f, "`faults={given}`: {cause}"),
            Self::Twice { key } => write!(f, "key `{key}` is given twice"),
            Self::NotAPair { given } => {
                write!(f, "`{given}` is not `key=value`; write a target as KIND[,key=value...]")
            }
        }
    }
}

impl std::error::Error for ParseError {}

/// ", did you mean `x`?" for the nearest of `known`, if one is near; else nothing.
pub fn did_you_mean(given: &str, known: &[&str]) -> String {
    let score = |name: &str| strsim::damerau_levenshtein(given, name);
    let nearest = known.iter().min_by_key(|name| score(name));
    match nearest.filter(|name| score(name) <= 1 + name.len() / 3) {
        Some(name) => format!(", did you mean `{name}`?"),
        None => String::new(),
    }
}

impl FromStr for Target {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (kind, rest) = text.split_at(text.find(&[':', ','][..]).unwrap_or(text.len()));
        match kind {
            "ufs" => Ok(Self::Ufs(UfsTarget::parse(&Pairs::parse("ufs", rest)?)?)),
            "nvme" => Ok(Self::Nvme(NvmeTarget::parse(&Pairs::parse("nvme", rest)?)?)),
            "ufs@qemu" => Ok(Self::UfsQemu(QemuTarget::parse(&Pairs::parse("ufs@qemu", rest)?)?)),
            "nvme@qemu" => {
                Ok(Self::NvmeQemu(NvmeQemuTarget::parse(&Pairs::parse("nvme@qemu", rest)?)?))
            }
            "null" => Ok(Self::Null(NullTarget::parse(&Pairs::parse("null", rest)?)?)),
            "file" if rest.starts_with(':') => {
                let rest = &rest[1..];
                let (path, rest) = rest.split_at(end_of_path(rest));
                Ok(Self::File(FileTarget::parse(path, &Pairs::parse("file:PATH", rest)?)?))
            }
            "file" => Err(ParseError::NotAPair { given: text.into() }),
            _ => Err(ParseError::Kind { given: kind.into() }),
        }
    }
}

/// Where the path of a `file:` target ends: at a comma that begins a known key, so that paths may
/// hold commas.
fn end_of_path(text: &str) -> usize {
    let begins_key = |at: &usize| {
        let after = &text[at + 1..];
        let name = after.split('=').next().unwrap_or(after);
        after.contains('=') && !name.contains(['/', ',']) && !name.is_empty()
    };
    text.match_indices(',').map(|(at, _)| at).find(begins_key).unwrap_or(text.len())
}

fn keys_of(kind: &str) -> &'static [Key] {
    KINDS.iter().find(|k| k.name == kind).map_or(&[], |k| k.keys)
}

/// The `key=value` pairs of a target, each known to its kind and given once.
struct Pairs<'a> {
    pairs: Vec<(&'static Key, &'a str)>,
}

impl<'a> Pairs<'a> {
    fn parse(kind: &'static str, rest: &'a str) -> Result<Self, ParseError> {
        let mut pairs: Vec<(&'static Key, &str)> = Vec::new();
        if let Some(odd) = rest.strip_prefix(':') {
            return Err(ParseError::NotAPair { given: odd.into() });
        }
        for piece in rest.split(',').skip(1) {
            let Some((name, value)) = piece.split_once('=') else {
                return Err(ParseError::NotAPair { given: piece.into() });
            };
            let key = keys_of(kind)
                .iter()
                .find(|key| key.name == name)
                .ok_or_else(|| ParseError::Key { kind, given: name.into() })?;
            if pairs.iter().any(|(known, _)| known.name == name) {
                return Err(ParseError::Twice { key: key.name });
            }
            pairs.push((key, value));
        }
        Ok(Self { pairs })
    }

    /// The value of `name` as `read` understands it; what it does not is an error that says what
    /// the key's value must be.
    fn get<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ParseError> {
        let Some((key, value)) = self.pairs.iter().find(|(key, _)| key.name == name) else {
            return Ok(None);
        };
        let refuse = || {
            let expected = match key.value {
                "BYTES" => "a size such as 512M, 4G or 1048576, a multiple of 4096".into(),
                "FILE" | "PROGRAM" => "a path".into(),
                "NUMBER" => "a number".into(),
                "MICROSECONDS" => "a number of microseconds, at least 1, such as 2000".into(),
                "COUNT:MICROSECONDS" => {
                    "1 to 31 completions and 40 to 10200 microseconds, such as 8:400".into()
                }
                other => other.into(),
            };
            ParseError::Value { key: key.name, given: (*value).into(), expected }
        };
        read(value).map(Some).ok_or_else(refuse)
    }

    fn size(&self) -> Result<Option<u64>, ParseError> {
        let whole = |bytes: &u64| *bytes > 0 && bytes.is_multiple_of(4096);
        self.get("size", |text| size::parse(text).filter(whole))
    }

    /// The model's own text form with `+` for `,`.
    fn faults(&self, kinds: &'static [fault::Kind]) -> Result<Plan, ParseError> {
        let Some(text) = self.get("faults", |text| Some(text.to_owned()))? else {
            return Ok(Plan::none());
        };
        Plan::parse(&text.replace('+', ","), kinds)
            .map_err(|error| ParseError::Faults { given: text.clone(), cause: error })
    }

    fn path(&self, name: &str) -> Result<Option<PathBuf>, ParseError> {
        self.get(name, |text| (!text.is_empty()).then(|| PathBuf::from(text)))
    }

    fn within(&self, name: &str, low: u8, high: u8) -> Result<Option<u8>, ParseError> {
        self.get(name, |text| text.parse().ok().filter(|n| (low..=high).contains(n)))
    }

    fn block_size(&self) -> Result<u32, ParseError> {
        let read = |text: &str| size::parse(text).filter(|n| matches!(n, 512 | 4096));
        Ok(self.get("block", read)?.map_or(4096, |bytes| bytes as u32))
    }
}

impl UfsTarget {
    fn parse(pairs: &Pairs<'_>) -> Result<Self, ParseError> {
        let default = Self::default();
        let target = Self {
            profile: pairs.get("profile", profile)?.unwrap_or(default.profile),
            size: pairs.size()?,
            lus: pairs.within("lus", 1, 32)?.unwrap_or(default.lus),
            lu: pairs.within("lu", 0, 31)?.unwrap_or(default.lu),
            image: pairs.path("image")?,
            mcq: pairs.within("mcq", 1, 31)?,
            event_interrupts: pairs.get("esi", on_off)?.unwrap_or(default.event_interrupts),
            aggregation: pairs.get("aggregate", aggregation)?,
            gear: pairs.within("gear", 1, 5)?,
            write_booster: pairs.get("wb", on_off)?.unwrap_or(default.write_booster),
            rules: pairs.rules()?,
            advanced_rpmb: pairs.get("rpmb", rpmb_mode)?.unwrap_or(default.advanced_rpmb),
            rpmb_key: pairs.path("rpmb-key")?,
            crypto: pairs.crypto()?,
            boot: pairs.get("boot", on_off)?.unwrap_or(default.boot),
            clock: pairs.get("clock", ClockKind::named)?.unwrap_or_default(),
            software: pairs.get("software", software)?.unwrap_or_default(),
            faults: pairs.faults(&fault::Kind::UFS)?,
            faults_from: pairs.get("faults-from", FaultsFrom::named)?.unwrap_or_default(),
            seed: pairs.get("seed", |text| text.parse().ok())?.unwrap_or(default.seed),
        };
        if target.lu >= target.lus {
            return Err(ParseError::Value {
                key: "lu",
                given: target.lu.to_string(),
                expected: match target.lus {
                    1 => "0, the only logical unit; `lus=` makes more".into(),
                    n => format!("one of the {n} logical units, 0..{}", n - 1),
                },
            });
        }
        Ok(target)
    }
}

impl NvmeTarget {
    fn parse(pairs: &Pairs<'_>) -> Result<Self, ParseError> {
        let default = Self::default();
        let software = pairs.get("software", |name| match name {
            "none" => Some(None),
            name => (name == nvme::LINUX_J721E.name).then_some(Some(nvme::LINUX_J721E)),
        })?;
        let profile = |name: &str| nvme::Profile::by_name(name).copied();
        let target = Self {
            profile: pairs.get("profile", profile)?.unwrap_or(default.profile),
            size: pairs.size()?,
            namespaces: pairs.within("namespaces", 1, 32)?.unwrap_or(default.namespaces),
            namespace: pairs.within("ns", 1, 32)?.unwrap_or(default.namespace),
            block_size: pairs.block_size()?,
            image: pairs.path("image")?,
            queues: pairs.within("queues", 1, 31)?.unwrap_or(default.queues),
            vectors: pairs.get("vectors", on_off)?.unwrap_or(default.vectors),
            sgls: pairs.get("sgl", on_off)?.unwrap_or(default.sgls),
            clock: pairs.get("clock", not_real)?.unwrap_or_default(),
            software: software.unwrap_or_default(),
            faults: pairs.faults(&fault::Kind::NVME)?,
            faults_from: pairs.get("faults-from", FaultsFrom::named)?.unwrap_or_default(),
            seed: pairs.get("seed", |text| text.parse().ok())?.unwrap_or(default.seed),
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

impl QemuTarget {
    fn parse(pairs: &Pairs<'_>) -> Result<Self, ParseError> {
        Ok(Self {
            size: pairs.size()?,
            image: pairs.path("image")?,
            mcq: pairs.within("mcq", 1, 31)?,
            qemu: pairs.path("qemu")?,
        })
    }
}

impl NvmeQemuTarget {
    fn parse(pairs: &Pairs<'_>) -> Result<Self, ParseError> {
        Ok(Self {
            size: pairs.size()?,
            image: pairs.path("image")?,
            queues: pairs.within("queues", 1, 31)?.unwrap_or(1),
            block_size: pairs.block_size()?,
            qemu: pairs.path("qemu")?,
        })
    }
}

impl FileTarget {
    fn parse(path: &str, pairs: &Pairs<'_>) -> Result<Self, ParseError> {
        if path.is_empty() {
            return Err(ParseError::NotAPair { given: "file:".into() });
        }
        Ok(Self { path: path.into(), size: pairs.size()?, block_size: pairs.block_size()? })
    }
}

impl NullTarget {
    fn parse(pairs: &Pairs<'_>) -> Result<Self, ParseError> {
        Ok(Self { size: pairs.size()?.unwrap_or(1 << 40) })
    }
}

fn profile(name: &str) -> Option<Profile> {
    Profile::ALL.into_iter().find(|profile| profile.name == name).copied()
}

/// `COUNT:MICROSECONDS`, in the bounds of the registers.
fn aggregation(text: &str) -> Option<Aggregation> {
    let (completions, timeout_us) = text.split_once(':')?;
    let aggregation = Aggregation {
        completions: completions.parse().ok()?,
        timeout_us: timeout_us.parse().ok()?,
    };
    aggregation.is_valid().then_some(aggregation)
}

/// The software of this name; `None` within for `none`.
fn software(name: &str) -> Option<Option<Software>> {
    match name {
        "none" => Some(None),
        _ => Software::by_name(name).map(|software| Some(*software)),
    }
}

impl ClockKind {
    fn named(text: &str) -> Option<Self> {
        match text {
            "virtual" => Some(Self::Virtual),
            "hybrid" => Some(Self::Hybrid),
            "real" | "threaded" => Some(Self::Real),
            _ => None,
        }
    }
}

/// A clock that needs no thread.
fn not_real(text: &str) -> Option<ClockKind> {
    ClockKind::named(text).filter(|clock| *clock != ClockKind::Real)
}

fn rpmb_mode(text: &str) -> Option<bool> {
    match text {
        "advanced" => Some(true),
        "normal" => Some(false),
        _ => None,
    }
}

fn on_off(text: &str) -> Option<bool> {
    match text {
        "on" | "1" | "true" | "yes" => Some(true),
        "off" | "0" | "false" | "no" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
