use std::path::PathBuf;

use flysch_models::faults::{self as fault, Plan};
use flysch_models::software::Software;
use flysch_models::ufs::profile::{GALAXY_BOOK_S, Profile};
use flysch_target::{Kind, key};
use flysch_ufs::Aggregation;
use flysch_ufs::policy::Rules;

use super::pairs::{Pairs, keys, on_off};
use super::{ClockKind, FaultsFrom, ParseError};

mod crypto;
mod rules;

pub use crypto::CryptoTarget;

/// The model.
pub(super) const MODEL: Kind = Kind {
    name: "ufs",
    help: "a UFS device and its host controller, modelled in this process",
    keys: &[
        key("profile", "galaxy-book-s|ok3576|generic|ufs40", "the device's timing (galaxy-book-s)"),
        key("size", "BYTES", "size of each logical unit (4G, or that of the image)"),
        key(
            "block",
            "512|4096",
            "bytes per logical block; the standard has none below 4096 (4096)",
        ),
        key("lus", "1..32", "number of logical units (1)"),
        key("lu", "0..31", "the logical unit that is the disk (0)"),
        keys::IMAGE,
        key("mcq", "1..31", "number of multi-circular queues (single doorbell)"),
        key("esi", "on|off", "a vector for each queue, if there are queues (on)"),
        key(
            "aggregate",
            "COUNT:MICROSECONDS",
            "this many completions for one interrupt, or as many as there are by then (off)",
        ),
        key("gear", "1..5", "highest high-speed gear of the link (the profile's)"),
        key("wb", "on|off", "WriteBooster (off)"),
        key(
            "auto-hibern8",
            "MICROSECONDS",
            "after this long without a command the link hibernates by itself (never)",
        ),
        key("scaling", "MICROSECONDS", "idle time after which the link slows down (never)"),
        key(
            "suspend",
            "MICROSECONDS",
            "idle time after which link and device are suspended (never)",
        ),
        key(
            "suspend-level",
            "hibernate|sleep",
            "suspend only the link, or also the device (hibernate)",
        ),
        key("rpmb", "normal|advanced", "the protocol of the RPMB unit (normal)"),
        key("rpmb-key", "FILE", "the key programmed into RPMB region 0, 32 bytes (none)"),
        key(
            "crypto",
            "aes-256-xts|aes-128-xts|off",
            "the controller encrypts the disk's data, numbered from its beginning (off)",
        ),
        key("crypto-key", "FILE", "its key, 64 or 32 bytes (a new random one each time)"),
        key(
            "data-unit",
            "512|1024|2048|4096|8192|16384|32768|65536",
            "bytes encrypted under one number (a block)",
        ),
        key("boot", "on|off", "units 1 and 2 are the boot units A and B (off)"),
        key("clock", "virtual|hybrid|real", "the clock: see docs/command.md (hybrid)"),
        key("software", "none|freebsd|linux", "adds the software time of a published host (none)"),
        keys::FAULTS,
        keys::FAULTS_FROM,
        keys::SEED,
    ],
};

/// QEMU's device.
pub(super) const QEMU: Kind = Kind {
    name: "ufs@qemu",
    help: "QEMU's UFS device, in a QEMU started for it",
    keys: &[
        key("size", "BYTES", "size of the logical unit (1G, or that of the image)"),
        keys::RAW_IMAGE,
        key("mcq", "1..31", "number of multi-circular queues (single doorbell)"),
        keys::PROGRAM,
    ],
};

/// Settings of the UFS model; `None` means the profile's value.
#[derive(Clone, Debug, PartialEq)]
pub struct UfsTarget {
    /// The device's timing.
    pub profile: Profile,
    /// Bytes of each logical unit.
    pub size: Option<u64>,
    /// Bytes of a logical block: 4096, or 512 as no part in the standard has.
    pub block_size: u32,
    /// Number of logical units.
    pub lus: u8,
    /// The logical unit that is the disk.
    pub lu: u8,
    /// File that holds the disk's data.
    pub image: Option<PathBuf>,
    /// Queues in MCQ mode; `None` is the single doorbell.
    pub mcq: Option<u8>,
    /// Whether each queue has its own vector.
    pub event_interrupts: bool,
    /// Completions that share an interrupt.
    pub aggregation: Option<Aggregation>,
    /// Highest gear.
    pub gear: Option<u8>,
    /// Whether WriteBooster is switched on after bring-up.
    pub write_booster: bool,
    /// Idle time after which the link hibernates automatically, microseconds.
    pub auto_hibern8_us: Option<u32>,
    /// The driver's automatic actions in pauses.
    pub rules: Rules,
    /// Whether the RPMB unit uses advanced mode.
    pub advanced_rpmb: bool,
    /// File with the key programmed into RPMB region 0.
    pub rpmb_key: Option<PathBuf>,
    /// How the controller encrypts the disk's data.
    pub crypto: Option<CryptoTarget>,
    /// Whether units 1 and 2 are boot units.
    pub boot: bool,
    /// The clock.
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

impl Default for UfsTarget {
    fn default() -> Self {
        Self {
            profile: GALAXY_BOOK_S,
            size: None,
            block_size: 4096,
            lus: 1,
            lu: 0,
            image: None,
            mcq: None,
            event_interrupts: true,
            aggregation: None,
            gear: None,
            write_booster: false,
            auto_hibern8_us: None,
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

impl UfsTarget {
    pub(super) fn parse(rest: &str) -> Result<Self, ParseError> {
        let pairs = Pairs::parse(&MODEL, rest)?;
        let default = Self::default();
        let block_size = pairs.block_size(default.block_size)?;
        let target = Self {
            block_size,
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
            auto_hibern8_us: pairs.get("auto-hibern8", hibern8)?,
            rules: pairs.rules()?,
            advanced_rpmb: pairs.get("rpmb", rpmb_mode)?.unwrap_or(default.advanced_rpmb),
            rpmb_key: pairs.path("rpmb-key")?,
            crypto: pairs.crypto(block_size)?,
            boot: pairs.get("boot", on_off)?.unwrap_or(default.boot),
            clock: pairs.get("clock", ClockKind::named)?.unwrap_or_default(),
            software: pairs.get("software", software)?.unwrap_or_default(),
            faults: pairs.faults(&fault::Kind::UFS)?,
            faults_from: pairs.faults_from()?,
            seed: pairs.seed()?,
        };
        if target.lu >= target.lus {
            return Err(ParseError::value(
                "lu",
                target.lu,
                match target.lus {
                    1 => "0, the only logical unit; `lus=` makes more".to_string(),
                    n => format!("one of the {n} logical units, 0..{}", n - 1),
                },
            ));
        }
        Ok(target)
    }
}

impl QemuTarget {
    pub(super) fn parse(rest: &str) -> Result<Self, ParseError> {
        let pairs = Pairs::parse(&QEMU, rest)?;
        Ok(Self {
            size: pairs.size()?,
            image: pairs.path("image")?,
            mcq: pairs.within("mcq", 1, 31)?,
            qemu: pairs.path("qemu")?,
        })
    }
}

fn profile(name: &str) -> Option<Profile> {
    Profile::ALL.into_iter().find(|profile| profile.name == name).copied()
}

/// The range of AHIT: 1 us to 102.3 s.
fn hibern8(text: &str) -> Option<u32> {
    text.parse().ok().filter(|us| (1..=102_300_000).contains(us))
}

/// `COUNT:MICROSECONDS`, within the limits of the registers.
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

fn rpmb_mode(text: &str) -> Option<bool> {
    match text {
        "advanced" => Some(true),
        "normal" => Some(false),
        _ => None,
    }
}
