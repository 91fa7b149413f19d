//! Profiles: the parameters of a modelled eMMC device or SD card and of the bus to it.
//!
//! A profile holds mechanisms' parameters, never answers: throughput and latency come out of them.
//! `docs/emmc-model.md` says which published figure fixes which parameter, and what is assumed.

use crate::faults::Kind;
use crate::media::energy::{Charges, Consumption, Level};
use crate::media::timing::{Pause, Timing};

/// Which language a card speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// An eMMC device.
    Emmc,
    /// An SD card: SDSC up to 2 GiB, beyond that SDHC and SDXC.
    Sd {
        /// The access modes it has, a bit each (CMD6, group 1); those of UHS-I at 1.8 V.
        modes: u8,
    },
}

impl Dialect {
    /// What can go wrong with it.
    pub const fn faults(self) -> &'static [Kind] {
        match self {
            Self::Emmc => &Kind::EMMC,
            Self::Sd { .. } => &Kind::SD,
        }
    }
}

/// A device that can be modelled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Name in targets: `profile=NAME`.
    pub name: &'static str,
    /// What it is.
    pub description: &'static str,
    /// Timing of what is behind the bus.
    pub timing: Timing,
    /// What it is.
    pub dialect: Dialect,
    /// Bits 7:0 of DEVICE_TYPE: the timings of the bus it has. This and the next four are eMMC's.
    pub device_type: u8,
    /// Enhanced strobe.
    pub strobe: bool,
    /// Tasks it queues, 0 to 32; 0 for none.
    pub queue_depth: u8,
    /// Volatile cache, KiB; 0 for none.
    pub cache_kib: u32,
    /// EXT_CSD_REV, 5 to 8.
    pub revision: u8,
    /// Clocks between two blocks of a transfer, besides CRC and start bit.
    pub block_gap: u32,
    /// What it takes from its supply.
    pub energy: Consumption,
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const NEVER: Pause = Pause { every_bytes: 0, ns: 0 };

/// High speed to HS400 at 1.8 V.
const HS400_TYPES: u8 = 0x57;

/// States of an eMMC device, by the numbers [`level`] has for them. All assumed: the specification
/// has no more than power classes, and no measured figures were found.
const LEVELS: [Level; 4] = [
    Level { name: "clocked", microwatts: 60_000 },
    Level { name: "clock off", microwatts: 1_000 },
    Level { name: "sleep", microwatts: 300 },
    Level { name: "off", microwatts: 0 },
];

/// Numbers of a device's states.
pub(super) mod level {
    pub(in super::super) const CLOCKED: usize = 0;
    pub(in super::super) const STILL: usize = 1;
    pub(in super::super) const SLEEP: usize = 2;
    pub(in super::super) const OFF: usize = 3;
}

/// `docs/energy.md` says where these come from.
const ENERGY: Consumption = Consumption {
    levels: &LEVELS,
    charges: Charges {
        command_pj: 400_000,
        byte_pj: 800,
        read_pj: 3_800_000,
        program_pj: 150_000_000,
        program_slc_pj: 30_000_000,
        erase_pj: 200_000_000,
    },
};

/// An HS400 device as boards of TI carry it, without command queueing.
pub const HS400: Profile = Profile {
    name: "emmc-hs400",
    description: "eMMC 5.1, HS400, one command at a time (TI J7200 and AM62P boards)",
    timing: Timing {
        link_efficiency_permille: 1000,
        command_ns: 79_000,
        transfer_setup_ns: 0,
        firmware_ns: 5_000,
        firmware_jitter_ns: 4_000,
        lookup_ns: 0,
        channels: 1,
        dies_per_channel: 2,
        planes_per_die: 2,
        page_bytes: 16 * KIB as u32,
        read_ns: 38_000,
        program_ns: 1_980_000,
        program_slc_ns: 400_000,
        erase_ns: 5_000_000,
        block_bytes: 24 * MIB,
        channel_rate: 533,
        suspend_ns: 30_000,
        read_ahead_bytes: 512 * KIB,
        write_buffer_bytes: 2 * MIB,
        checkpoint: NEVER,
        patrol: NEVER,
    },
    dialect: Dialect::Emmc,
    device_type: HS400_TYPES,
    strobe: true,
    queue_depth: 0,
    cache_kib: 512,
    revision: 8,
    block_gap: 58,
    energy: ENERGY,
};

/// The same with a queue of 32 tasks.
pub const HS400_CMDQ: Profile = Profile {
    name: "emmc-hs400-cmdq",
    description: "eMMC 5.1, HS400, command queueing",
    timing: Timing { command_ns: 88_000, ..HS400.timing },
    queue_depth: 32,
    ..HS400
};

/// The eMMC 5.x part that stands beside the UFS part of an RK3576 board in a claim without figures.
/// All of it is assumed: the flash is the one of the UFS profile `ok3576` (as many dies, as fast),
/// behind one eMMC bus and one command at a time, so that what differs is the way to it.
pub const OK3576: Profile = Profile {
    name: "ok3576",
    description: "eMMC 5.1, HS400, with the flash of the UFS part of an RK3576 board",
    timing: Timing {
        command_ns: 20_000,
        firmware_ns: 35_000,
        firmware_jitter_ns: 12_500,
        channels: 2,
        dies_per_channel: 1,
        planes_per_die: 4,
        read_ns: 45_000,
        program_ns: 1_100_000,
        program_slc_ns: 140_000,
        channel_rate: 800,
        write_buffer_bytes: 4 * MIB,
        checkpoint: Pause { every_bytes: 512 * MIB, ns: 30_000_000 },
        patrol: Pause { every_bytes: 512 * MIB, ns: 13_000_000 },
        ..HS400.timing
    },
    queue_depth: 0,
    energy: Consumption {
        charges: Charges { read_pj: 4_500_000, program_pj: 300_000_000, ..ENERGY.charges },
        ..ENERGY
    },
    ..HS400
};

/// An SD card with UHS-I. All of it is assumed but the bus: a package of one channel with two dies,
/// so that at SDR104 reads are the bus's and writes the flash's.
pub const SD_UHS: Profile = Profile {
    name: "sd-uhs",
    description: "SD card with UHS-I, SDR104 at 200 MHz on four lines",
    timing: Timing {
        command_ns: 180_000,
        firmware_jitter_ns: 40_000,
        program_slc_ns: 600_000,
        write_buffer_bytes: 512 * KIB,
        ..HS400.timing
    },
    dialect: Dialect::Sd { modes: 0x1F },
    device_type: 0,
    strobe: false,
    queue_depth: 0,
    cache_kib: 0,
    ..HS400
};

impl Profile {
    /// Every profile of eMMC devices; the first is the default.
    pub const ALL: [&'static Self; 3] = [&HS400_CMDQ, &HS400, &OK3576];
    /// Every profile of SD cards; the first is the default.
    pub const SD: [&'static Self; 1] = [&SD_UHS];

    /// Whether a device can be like this.
    ///
    /// # Errors
    /// The first value that is impossible: its name, what it is, what it may be.
    pub fn check(&self) -> Result<(), (&'static str, u64, &'static str)> {
        if self.queue_depth > 32 {
            return Err(("queue_depth", self.queue_depth.into(), "0 to 32"));
        }
        if !(5..=8).contains(&self.revision) {
            return Err(("revision", self.revision.into(), "5 to 8"));
        }
        self.timing.check()
    }

    /// The profile of this name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        Self::ALL.into_iter().find(|profile| profile.name == name)
    }

    /// The profile of an SD card of this name.
    pub fn sd_by_name(name: &str) -> Option<&'static Self> {
        Self::SD.into_iter().find(|profile| profile.name == name)
    }
}
