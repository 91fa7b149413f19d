use std::path::PathBuf;

use flysch_emmc::Timing;
use flysch_models::emmc::profile::{HS400_CMDQ, Profile, SD_UHS};
use flysch_models::faults::{self as fault, Plan};
use flysch_target::{Kind, key};

use flysch_wire::mmc::SECTOR;
use flysch_wire::mmc::ext_csd::partition::GP1;

use super::pairs::{Pairs, keys, not_real, on_off};
use super::{ClockKind, FaultsFrom, ParseError};

/// The model.
pub(super) const MODEL: Kind = Kind {
    name: "emmc",
    help: "an eMMC device and its SD host controller, modelled in this process",
    keys: &[
        key(
            "profile",
            "emmc-hs400-cmdq|emmc-hs400|ok3576",
            "the device's timing and features (emmc-hs400-cmdq)",
        ),
        key("size", "BYTES", "size of the user area (4G, or that of the image)"),
        key("block", "512|4096", "bytes per block: 4096 is a device with native sectors (512)"),
        key("image", "FILE", "keep the user area in this file (memory); created if size is given"),
        key("partition", PARTITIONS, "the partition that is the disk (user)"),
        key("gp", "BYTES", "size of a first general purpose partition, a multiple of 8M (none)"),
        key("timing", TIMINGS, "the fastest bus timing to try (hs400es)"),
        key("queue", "on|off", "command queueing, if the device supports it (on)"),
        key("dma", "on|off", "data by ADMA2; off: through the buffer port (on)"),
        key("lanes", "1..8", "maximum number of lanes that share the tasks (1)"),
        keys::CLOCK,
        keys::FAULTS,
        keys::FAULTS_FROM,
        keys::SEED,
    ],
};

/// QEMU's eMMC device.
pub(super) const QEMU: Kind = Kind {
    name: "emmc@qemu",
    help: "QEMU's eMMC device (QEMU 11), in a QEMU started for it",
    keys: &[
        key("size", "BYTES", "size of the user area, a power of two (1G, or that of the image)"),
        key(
            "image",
            "FILE",
            "keep the whole device in this raw file: boot partitions, RPMB, user (a temporary one)",
        ),
        key("boot", "BYTES", "size of each boot partition, a multiple of 128K (1M)"),
        key("rpmb", "BYTES", "size of the replay protected memory, likewise (128K)"),
        key("partition", "user|boot0|boot1", "the partition that is the disk (user)"),
        key("dma", "on|off", "data by ADMA2; off: through the buffer port (on)"),
        keys::PROGRAM,
    ],
};

/// QEMU's SD card.
pub(super) const SD: Kind = Kind {
    name: "sd@qemu",
    help: "QEMU's SD card, in a QEMU started for it",
    keys: &[
        key("size", "BYTES", "size of the card, a power of two (1G, or that of the image)"),
        key("image", "FILE", "keep its data in this raw file (a temporary one)"),
        key("dma", "on|off", "data by ADMA2; off: through the buffer port (on)"),
        keys::PROGRAM,
    ],
};

/// The same model with an SD card.
pub(super) const SD_MODEL: Kind = Kind {
    name: "sd",
    help: "an SD card and its SD host controller, modelled in this process",
    keys: &[
        key("profile", "sd-uhs", "the card's timing and features (sd-uhs)"),
        key(
            "size",
            "BYTES",
            "size of the card (4G, or that of the image); up to 2G it has no UHS-I",
        ),
        key("block", "512|4096", "bytes per block of the disk, one or eight sectors (512)"),
        keys::IMAGE,
        key("timing", SD_TIMINGS, "the fastest bus timing to try (sdr104)"),
        key("dma", "on|off", "data by ADMA2; off: through the buffer port (on)"),
        keys::CLOCK,
        keys::FAULTS,
        keys::FAULTS_FROM,
        keys::SEED,
    ],
};

pub(super) const SD_TIMINGS: &str = "legacy|high-speed|ddr50|sdr50|sdr104";
pub(super) const TIMINGS: &str = "legacy|high-speed|ddr52|hs200|hs400|hs400es";
const PARTITIONS: &str = "user|boot0|boot1|gp1";
const KIB: u64 = 1 << 10;

/// Settings of the eMMC model, with an eMMC device or an SD card.
#[derive(Clone, Debug, PartialEq)]
pub struct EmmcTarget {
    /// The device's timing and features.
    pub profile: Profile,
    /// Bytes of the user area.
    pub size: Option<u64>,
    /// Bytes of a block: 512, or 4096, which are native sectors of an eMMC device and eight sectors
    /// of a card.
    pub block_size: u32,
    /// File that holds it.
    pub image: Option<PathBuf>,
    /// PARTITION_ACCESS of the disk.
    pub partition: u8,
    /// Bytes of a general purpose partition.
    pub general: Option<u64>,
    /// The fastest timing to try.
    pub timing: Timing,
    /// Command queueing.
    pub queue: bool,
    /// Data by DMA.
    pub dma: bool,
    /// Maximum number of lanes.
    pub lanes: u8,
    /// The clock: virtual or hybrid.
    pub clock: ClockKind,
    /// The fault plan.
    pub faults: Plan,
    /// When its counts start.
    pub faults_from: FaultsFrom,
    /// Seed of everything random.
    pub seed: u64,
}

/// Settings of QEMU's cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardQemuTarget {
    /// The kind of card.
    pub kind: CardKind,
    /// Bytes of the user area.
    pub size: Option<u64>,
    /// File that holds the device.
    pub image: Option<PathBuf>,
    /// PARTITION_ACCESS of the disk.
    pub partition: u8,
    /// Data by DMA.
    pub dma: bool,
    /// The QEMU to start.
    pub qemu: Option<PathBuf>,
}

/// Which of QEMU's cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardKind {
    /// `emmc`.
    Emmc {
        /// Bytes of each boot partition.
        boot: u64,
        /// Bytes of the replay protected memory.
        rpmb: u64,
    },
    /// `sd-card`.
    Sd,
}

pub(super) fn partition(name: &str) -> Option<u8> {
    use flysch_wire::mmc::ext_csd::partition as access;
    Some(match name {
        "user" => access::USER,
        "boot0" => access::BOOT0,
        "boot1" => access::BOOT1,
        "gp1" => access::GP1,
        "gp2" => access::GP1 + 1,
        "gp3" => access::GP1 + 2,
        "gp4" => access::GP1 + 3,
        _ => return None,
    })
}

pub(super) fn emmc_timing(name: &str) -> Option<Timing> {
    Timing::by_name(name).filter(|timing| !timing.is_uhs())
}

pub(super) fn sd_timing(name: &str) -> Option<Timing> {
    Timing::by_name(name).filter(|timing| timing.is_uhs() || *timing <= Timing::HighSpeed)
}

impl Default for EmmcTarget {
    fn default() -> Self {
        Self {
            profile: HS400_CMDQ,
            size: None,
            block_size: SECTOR,
            image: None,
            partition: 0,
            general: None,
            timing: Timing::Hs400Es,
            queue: true,
            dma: true,
            lanes: 1,
            clock: ClockKind::default(),
            faults: Plan::none(),
            faults_from: FaultsFrom::default(),
            seed: 1,
        }
    }
}

impl EmmcTarget {
    pub(super) fn parse(rest: &str) -> Result<Self, ParseError> {
        let pairs = Pairs::parse(&MODEL, rest)?;
        let default = Self::default();
        let profile = |name: &str| Profile::by_name(name).copied();
        let known = |name: &str| partition(name).filter(|&access| access <= GP1);
        let target = Self {
            profile: pairs.get("profile", profile)?.unwrap_or(default.profile),
            size: pairs.size()?,
            block_size: pairs.block_size(default.block_size)?,
            image: pairs.path("image")?,
            partition: pairs.get("partition", known)?.unwrap_or_default(),
            general: pairs.get("gp", crate::size::parse)?,
            timing: pairs.get("timing", emmc_timing)?.unwrap_or(default.timing),
            queue: pairs.get("queue", on_off)?.unwrap_or(default.queue),
            dma: pairs.get("dma", on_off)?.unwrap_or(default.dma),
            lanes: pairs.within("lanes", 1, 8)?.unwrap_or(default.lanes),
            clock: pairs.get("clock", not_real)?.unwrap_or_default(),
            faults: pairs.faults(&fault::Kind::EMMC)?,
            faults_from: pairs.faults_from()?,
            seed: pairs.seed()?,
        };
        let queues = target.queue && target.dma && target.profile.queue_depth != 0;
        if target.lanes > 1 && !queues {
            return Err(ParseError::value("lanes", target.lanes, "1: more need command queueing"));
        }
        if target.partition == GP1 && target.general.is_none() {
            return Err(ParseError::value(
                "partition",
                "gp1",
                "user, boot0 or boot1; `gp=` makes a general purpose partition",
            ));
        }
        Ok(target)
    }
}

impl EmmcTarget {
    /// An SD card: no partitions, no queue.
    pub(super) fn parse_sd(rest: &str) -> Result<Self, ParseError> {
        let pairs = Pairs::parse(&SD_MODEL, rest)?;
        let profile = |name: &str| Profile::sd_by_name(name).copied();
        let profile = pairs.get("profile", profile)?.unwrap_or(SD_UHS);
        Ok(Self {
            profile,
            size: pairs.size()?,
            block_size: pairs.block_size(SECTOR)?,
            image: pairs.path("image")?,
            timing: pairs.get("timing", sd_timing)?.unwrap_or(Timing::Sdr104),
            queue: false,
            dma: pairs.get("dma", on_off)?.unwrap_or(true),
            clock: pairs.get("clock", not_real)?.unwrap_or_default(),
            faults: pairs.faults(profile.dialect.faults())?,
            faults_from: pairs.faults_from()?,
            seed: pairs.seed()?,
            ..Self::default()
        })
    }
}

impl CardQemuTarget {
    pub(super) fn parse_emmc(rest: &str) -> Result<Self, ParseError> {
        let pairs = Pairs::parse(&QEMU, rest)?;
        let bytes = |text: &str| crate::size::parse(text);
        let boot = pairs.get("boot", bytes)?.unwrap_or(1024 * KIB);
        let rpmb = pairs.get("rpmb", bytes)?.unwrap_or(128 * KIB);
        let known = |name: &str| partition(name).filter(|&access| access < GP1);
        let chosen = pairs.get("partition", known)?.unwrap_or_default();
        if chosen != 0 && boot == 0 {
            return Err(ParseError::value(
                "partition",
                format!("boot{}", chosen - 1),
                "user: there is no boot partition (`boot=` makes them)",
            ));
        }
        Ok(Self {
            kind: CardKind::Emmc { boot, rpmb },
            size: pairs.size()?,
            image: pairs.path("image")?,
            partition: chosen,
            dma: pairs.get("dma", on_off)?.unwrap_or(true),
            qemu: pairs.path("qemu")?,
        })
    }

    pub(super) fn parse_sd(rest: &str) -> Result<Self, ParseError> {
        let pairs = Pairs::parse(&SD, rest)?;
        Ok(Self {
            kind: CardKind::Sd,
            size: pairs.size()?,
            image: pairs.path("image")?,
            partition: 0,
            dma: pairs.get("dma", on_off)?.unwrap_or(true),
            qemu: pairs.path("qemu")?,
        })
    }
}
