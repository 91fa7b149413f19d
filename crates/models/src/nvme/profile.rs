//! Profiles: the parameters of a modelled drive and its link. The cost of the software in front of
//! it is not part of a profile: see [`software`](crate::software).
//!
//! A profile contains parameters of mechanisms, never results: throughput and latency follow from
//! them. `docs/nvme-model.md` explains which published figure determines which parameter, and what
//! is assumed.

use super::link::Link;
use crate::media::energy::{Charges, Consumption, Level};
use crate::media::timing::{Pause, Timing};
use crate::software::{Cost, Sleep, Software};

/// A power state: its power, and how long it takes to enter and leave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerState {
    /// Maximum power, milliwatts.
    pub milliwatts: u32,
    /// Whether it does no I/O.
    pub non_operational: bool,
    /// Entry latency, microseconds.
    pub entry_us: u32,
    /// Exit latency, microseconds.
    pub exit_us: u32,
}

/// The host memory that a drive without memory of its own wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMemory {
    /// HMPRE, bytes wanted.
    pub preferred: u32,
    /// HMMIN, bytes needed.
    pub minimum: u32,
    /// Additional time of a look-up without it, nanoseconds: the mapping is read from the flash.
    pub missing_ns: u64,
}

/// A drive that can be modelled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Name in targets: `profile=NAME`.
    pub name: &'static str,
    /// A description.
    pub description: &'static str,
    /// Its link.
    pub link: Link,
    /// Timing.
    pub timing: Timing,
    /// Number of bytes written in SLC mode before the rest goes to TLC; 0 for none.
    pub slc_bytes: u64,
    /// The host memory that it wants.
    pub host_memory: Option<HostMemory>,
    /// Its power states, from state 0 on; all operational ones come first.
    pub power: &'static [PowerState],
    /// Its power consumption; the levels are the power states, those of the operational ones
    /// without work.
    pub energy: Consumption,
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

const fn power(milliwatts: u32, non_operational: bool, entry_us: u32, exit_us: u32) -> PowerState {
    PowerState { milliwatts, non_operational, entry_us, exit_us }
}

/// The states that drives of this kind report: full power, two slower ones, two that sleep.
const STATES: [PowerState; 5] = [
    power(6_200, false, 0, 0),
    power(4_200, false, 0, 0),
    power(3_000, false, 0, 0),
    power(50, true, 2_000, 1_200),
    power(5, true, 500, 9_500),
];

/// A level for each power state. The last two are those that the 980 PRO reports in IDENTIFY
/// (AnandTech 16087); the first three, awake without work and without a sleeping link, are assumed.
const fn levels(awake: u32) -> [Level; 5] {
    [
        Level { name: "PS0", microwatts: awake },
        Level { name: "PS1", microwatts: awake * 9 / 10 },
        Level { name: "PS2", microwatts: awake * 8 / 10 },
        Level { name: "PS3", microwatts: 40_000 },
        Level { name: "PS4", microwatts: 5_000 },
    ]
}

const SMALL: [Level; 5] = levels(350_000);
const MIDDLING: [Level; 5] = levels(600_000);
const LARGE: [Level; 5] = levels(800_000);

/// A drive on one lane: assumed to be like the others per page and byte.
const ENERGY: Consumption = Consumption {
    levels: &SMALL,
    charges: Charges {
        command_pj: 1_000_000,
        byte_pj: 1_500,
        read_pj: 4_500_000,
        program_pj: 310_000_000,
        program_slc_pj: 30_000_000,
        erase_pj: 400_000_000,
    },
};

const NEVER: Pause = Pause { every_bytes: 0, ns: 0 };

/// Samsung PM991a, 256 GB, on the single generation 2 lane of a Raspberry Pi 5.
pub const PM991A: Profile = Profile {
    name: "pm991a",
    description: "Samsung PM991a 256 GB on one lane of PCIe 2 (Raspberry Pi 5)",
    link: Link { generation: 2, lanes: 1, payload: 256 },
    timing: Timing {
        link_efficiency_permille: 970,
        command_ns: 1_000,
        transfer_setup_ns: 0,
        firmware_ns: 13_000,
        firmware_jitter_ns: 2_000,
        lookup_ns: 0,
        channels: 2,
        dies_per_channel: 1,
        planes_per_die: 4,
        page_bytes: 16 * KIB as u32,
        read_ns: 45_000,
        program_ns: 1_240_000,
        program_slc_ns: 200_000,
        erase_ns: 5_000_000,
        block_bytes: 24 * MIB,
        channel_rate: 1_200,
        suspend_ns: 30_000,
        read_ahead_bytes: 512 * KIB,
        write_buffer_bytes: 4 * MIB,
        checkpoint: NEVER,
        patrol: NEVER,
    },
    slc_bytes: 0,
    host_memory: Some(HostMemory {
        preferred: 64 * MIB as u32,
        minimum: 8 * MIB as u32,
        missing_ns: 45_000,
    }),
    power: &STATES,
    energy: ENERGY,
};

/// Plextor M8Pe, 128 GB, on the two generation 3 lanes of a J721E board.
pub const M8PE: Profile = Profile {
    name: "m8pe",
    description: "Plextor M8Pe 128 GB on two lanes of PCIe 3 (TI J721E)",
    link: Link { generation: 3, lanes: 2, payload: 128 },
    timing: Timing {
        link_efficiency_permille: 920,
        command_ns: 1_500,
        firmware_ns: 15_000,
        firmware_jitter_ns: 10_000,
        channels: 4,
        dies_per_channel: 1,
        read_ns: 60_000,
        program_ns: 1_080_000,
        channel_rate: 533,
        write_buffer_bytes: 8 * MIB,
        read_ahead_bytes: 0,
        ..PM991A.timing
    },
    slc_bytes: 0,
    host_memory: None,
    power: &STATES,
    energy: Consumption {
        levels: &LARGE,
        charges: Charges { byte_pj: 1_200, read_pj: 6_000_000, ..ENERGY.charges },
    },
};

/// Samsung 980 PRO, 1 TB: four generation 4 lanes, DRAM.
pub const SAMSUNG_980_PRO: Profile = Profile {
    name: "980pro",
    description: "Samsung 980 PRO 1 TB on four lanes of PCIe 4",
    link: Link { generation: 4, lanes: 4, payload: 256 },
    timing: Timing {
        link_efficiency_permille: 970,
        command_ns: 950,
        firmware_ns: 13_500,
        firmware_jitter_ns: 2_000,
        channels: 8,
        dies_per_channel: 2,
        read_ns: 25_000,
        program_ns: 700_000,
        program_slc_ns: 208_000,
        channel_rate: 1_200,
        write_buffer_bytes: 64 * MIB,
        read_ahead_bytes: 512 * KIB,
        ..PM991A.timing
    },
    slc_bytes: 100 * GIB,
    host_memory: None,
    power: &STATES,
    energy: Consumption {
        levels: &LARGE,
        charges: Charges { byte_pj: 620, read_pj: 2_500_000, ..ENERGY.charges },
    },
};

/// Samsung 980, 1 TB: four generation 3 lanes, no DRAM.
pub const SAMSUNG_980: Profile = Profile {
    name: "980",
    description: "Samsung 980 1 TB, without DRAM, on four lanes of PCIe 3",
    link: Link { generation: 3, lanes: 4, payload: 256 },
    timing: Timing {
        command_ns: 1_950,
        firmware_ns: 15_000,
        channels: 4,
        dies_per_channel: 2,
        read_ns: 35_000,
        program_slc_ns: 172_000,
        write_buffer_bytes: 8 * MIB,
        ..SAMSUNG_980_PRO.timing
    },
    slc_bytes: 100 * GIB,
    host_memory: Some(HostMemory {
        preferred: 64 * MIB as u32,
        minimum: 16 * MIB as u32,
        missing_ns: 45_000,
    }),
    power: &STATES,
    energy: Consumption {
        levels: &MIDDLING,
        charges: Charges {
            byte_pj: 900,
            read_pj: 3_500_000,
            program_slc_pj: 25_000_000,
            ..ENERGY.charges
        },
    },
};

/// The same drive on the single generation 2 lane of an AM64x board.
pub const M8PE_X1: Profile = Profile {
    name: "m8pe-x1",
    description: "Plextor M8Pe 128 GB on one lane of PCIe 2 (TI AM64x)",
    link: Link { generation: 2, lanes: 1, payload: 128 },
    ..M8PE
};

/// The flash and firmware of the UFS profile `ok3576` on one generation 2 lane: not a part that is
/// sold, and all of it assumed. It complements the UFS and eMMC profiles of that name, so that only
/// the path to the flash differs.
pub const OK3576: Profile = Profile {
    name: "ok3576",
    description: "the flash of the UFS part of an RK3576 board on one lane of PCIe 2",
    link: Link { generation: 2, lanes: 1, payload: 256 },
    timing: Timing {
        command_ns: 2_000,
        firmware_ns: 35_000,
        firmware_jitter_ns: 12_500,
        channels: 2,
        dies_per_channel: 1,
        program_ns: 1_100_000,
        program_slc_ns: 140_000,
        channel_rate: 800,
        checkpoint: Pause { every_bytes: 512 * MIB, ns: 30_000_000 },
        patrol: Pause { every_bytes: 512 * MIB, ns: 13_000_000 },
        ..PM991A.timing
    },
    slc_bytes: 0,
    host_memory: None,
    power: &STATES,
    energy: ENERGY,
};

/// Linux on the two Cortex-A53 of an AM64x. The published processor load is 36 to 43 us for a read
/// of 4 KiB and 51 to 58 us for a write; within these ranges the value for reads is fitted, and
/// that for writes is the middle.
pub const LINUX_AM64X: Software = Software {
    name: "linux-am64x",
    description: "Linux on a TI AM64x",
    read: Cost { submit_ns: 26_000, complete_ns: 15_600 },
    write: Cost { submit_ns: 34_000, complete_ns: 20_500 },
    sleep: LINUX_J721E.sleep,
};

/// Linux on the two Cortex-A72 of a J721E: one job occupies one of them.
pub const LINUX_J721E: Software = Software {
    name: "linux-j721e",
    description: "Linux on a TI J721E",
    read: Cost { submit_ns: 14_000, complete_ns: 8_400 },
    write: Cost { submit_ns: 14_000, complete_ns: 8_400 },
    sleep: Sleep { after_ns: u64::MAX, exit_ns: 0, exit_permille: 0 },
};

impl Profile {
    /// Every profile; the first is the default.
    pub const ALL: [&'static Self; 6] =
        [&PM991A, &M8PE, &M8PE_X1, &SAMSUNG_980_PRO, &SAMSUNG_980, &OK3576];

    /// Checks whether a drive can have these values.
    ///
    /// # Errors
    /// The first impossible value: its name, the value, and the permitted values.
    pub fn check(&self) -> Result<(), (&'static str, u64, &'static str)> {
        self.link.check()?;
        if self.power.is_empty() || self.power.len() > 32 {
            return Err(("power", self.power.len() as u64, "1 to 32 states"));
        }
        self.timing.check()
    }

    /// The profile with this name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        Self::ALL.into_iter().find(|profile| profile.name == name)
    }
}
