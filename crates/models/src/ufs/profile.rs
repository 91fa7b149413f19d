//! Profiles: the parameters of a modelled device, its link and its host controller. The cost of the
//! software in front of them is not part of a profile: see [`software`](crate::software).
//!
//! A profile contains parameters of mechanisms, never results: throughput and latency follow from
//! them. `docs/ufs-model.md` explains the value of each parameter and which published figure
//! determines it.

use super::config::ConfigError;
use crate::media::energy::{Charges, Consumption, Level};
pub use crate::media::timing::{Pause, READ_AHEAD_MAX_PAGES, Timing};

/// A device that can be modelled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Name in targets: `profile=NAME`.
    pub name: &'static str,
    /// A description.
    pub description: &'static str,
    /// Highest high-speed gear of the link.
    pub gear_max: u8,
    /// Connected lanes in each direction.
    pub lanes: u8,
    /// Timing.
    pub timing: Timing,
    /// Its power consumption.
    pub energy: Consumption,
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// The states of a UFS device, indexed by the numbers in [`level`]. All assumed: no data sheet with
/// such figures is public; UFS 3.1 is reported to take up to 100 mW when awake without work and
/// below 10 mW in its sleep states.
const LEVELS: [Level; 6] = [
    Level { name: "active", microwatts: 90_000 },
    Level { name: "hibern8", microwatts: 3_000 },
    Level { name: "sleep", microwatts: 900 },
    Level { name: "power-down", microwatts: 300 },
    Level { name: "deep sleep", microwatts: 150 },
    Level { name: "off", microwatts: 0 },
];

/// Numbers of a device's states.
pub(super) mod level {
    pub(in super::super) const ACTIVE: usize = 0;
    pub(in super::super) const HIBERNATE: usize = 1;
    pub(in super::super) const SLEEP: usize = 2;
    pub(in super::super) const POWER_DOWN: usize = 3;
    pub(in super::super) const DEEP_SLEEP: usize = 4;
    pub(in super::super) const OFF: usize = 5;
}

/// `docs/energy.md` gives the sources of these values.
const ENERGY: Consumption = Consumption {
    levels: &LEVELS,
    charges: Charges {
        command_pj: 400_000,
        byte_pj: 700,
        read_pj: 4_500_000,
        program_pj: 300_000_000,
        program_slc_pj: 30_000_000,
        erase_pj: 400_000_000,
    },
};

/// Samsung Galaxy Book S (Lakefield i5-L16G7): a UFS 4.0 part at HS-G4, two lanes, on a 3.1 host.
pub const GALAXY_BOOK_S: Profile = Profile {
    name: "galaxy-book-s",
    description: "UFS 4.0 part at HS-G4, two lanes, on the UFS 3.1 host of a Galaxy Book S",
    gear_max: 4,
    lanes: 2,
    timing: Timing {
        link_efficiency_permille: 670,
        command_ns: 2_000,
        transfer_setup_ns: 4_400,
        firmware_ns: 35_000,
        firmware_jitter_ns: 12_500,
        lookup_ns: 0,
        channels: 2,
        dies_per_channel: 2,
        planes_per_die: 4,
        page_bytes: 16 * KIB as u32,
        read_ns: 45_000,
        program_ns: 1_340_000,
        program_slc_ns: 140_000,
        erase_ns: 5_000_000,
        block_bytes: 24 * MIB,
        channel_rate: 1_200,
        suspend_ns: 30_000,
        read_ahead_bytes: 512 * KIB,
        write_buffer_bytes: 4 * MIB,
        checkpoint: Pause { every_bytes: 0, ns: 0 },
        patrol: Pause { every_bytes: 0, ns: 0 },
    },
    energy: ENERGY,
};

/// Forlinx OK3576-C (RK3576): HS-G3, two lanes, a small TLC part.
pub const OK3576: Profile = Profile {
    name: "ok3576",
    description: "UFS 2.x part at HS-G3, two lanes, on an RK3576 board (Forlinx OK3576-C)",
    gear_max: 3,
    lanes: 2,
    timing: Timing {
        channels: 2,
        dies_per_channel: 1,
        program_ns: 1_100_000,
        channel_rate: 800,
        checkpoint: Pause { every_bytes: 512 * MIB, ns: 30_000_000 },
        patrol: Pause { every_bytes: 512 * MIB, ns: 13_000_000 },
        ..GALAXY_BOOK_S.timing
    },
    energy: ENERGY,
};

/// An average part: UFS 3.1 at HS-G4, one lane, no peculiarities.
pub const GENERIC: Profile = Profile {
    name: "generic",
    description: "a UFS 3.1 part of no particular make at HS-G4, one lane",
    gear_max: 4,
    lanes: 1,
    timing: Timing {
        link_efficiency_permille: 850,
        transfer_setup_ns: 4_000,
        ..GALAXY_BOOK_S.timing
    },
    energy: ENERGY,
};

/// The class of UFS 4.0 parts sold with 4200 MB/s read and 2800 MB/s write: HS-G5, two lanes, fast
/// 176-layer flash (40 us tR, 160 MB/s programmed per die), a host that keeps up.
pub const UFS40: Profile = Profile {
    name: "ufs40",
    description: "UFS 4.0 part of the 4200/2800 MB/s class at HS-G5, two lanes",
    gear_max: 5,
    lanes: 2,
    timing: Timing {
        link_efficiency_permille: 920,
        command_ns: 1_500,
        transfer_setup_ns: 900,
        firmware_ns: 20_000,
        firmware_jitter_ns: 8_000,
        lookup_ns: 4_000,
        channels: 4,
        dies_per_channel: 4,
        read_ns: 40_000,
        program_ns: 1_100_000,
        program_slc_ns: 130_000,
        channel_rate: 1_600,
        read_ahead_bytes: 512 * KIB,
        write_buffer_bytes: 16 * MIB,
        ..GALAXY_BOOK_S.timing
    },
    energy: ENERGY,
};

impl Profile {
    /// Every profile; the first is the default.
    pub const ALL: [&'static Self; 4] = [&GALAXY_BOOK_S, &OK3576, &GENERIC, &UFS40];

    /// Checks whether a device can have these values.
    ///
    /// # Errors
    /// The first impossible value.
    pub fn check(&self) -> Result<(), ConfigError> {
        let ranges = [
            ("gear_max", u32::from(self.gear_max), 1..=5, "1 to 5"),
            ("lanes", u32::from(self.lanes), 1..=2, "1 or 2"),
        ];
        for (key, is, may, text) in ranges {
            if !may.contains(&is) {
                return Err(ConfigError::Value(key, u64::from(is), text));
            }
        }
        self.timing.check().map_err(|(key, is, may)| ConfigError::Value(key, is, may))?;
        Ok(())
    }

    /// The profile with this name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        Self::ALL.into_iter().find(|profile| profile.name == name)
    }
}
