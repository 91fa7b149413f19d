//! Profiles: the parameters of a modelled SATA device and of its link.
//!
//! A profile holds mechanisms' parameters, never answers: throughput and latency come out of them.
//! `docs/ahci-model.md` says which published figure fixes which parameter, and what is assumed.

use super::link::Link;
use crate::media::energy::{Charges, Consumption, Level};
use crate::media::timing::{Pause, Timing};

/// A SATA device that can be modelled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Name in targets: `profile=NAME`.
    pub name: &'static str,
    /// What it is.
    pub description: &'static str,
    /// Its link.
    pub link: Link,
    /// Timing.
    pub timing: Timing,
    /// Bytes that are written in SLC mode before the rest goes to TLC; 0 for none.
    pub slc_bytes: u64,
    /// From COMRESET to the signature, nanoseconds.
    pub ready_ns: u64,
    /// To leave partial, slumber and device sleep, nanoseconds.
    pub wake_ns: [u64; 3],
    /// What it takes from its supply.
    pub energy: Consumption,
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
const NEVER: Pause = Pause { every_bytes: 0, ns: 0 };

/// States of a SATA device, by the numbers [`level`] has for them. Awake: Tom's Hardware's
/// measurement of the 850 Pro, which has the controller of the 850 EVO 1 TB. Slumber and device
/// sleep: assumed, of the class of the vendors' claims; partial: assumed.
const LEVELS: [Level; 5] = [
    Level { name: "active", microwatts: 280_000 },
    Level { name: "partial", microwatts: 180_000 },
    Level { name: "slumber", microwatts: 50_000 },
    Level { name: "devsleep", microwatts: 5_000 },
    Level { name: "standby", microwatts: 50_000 },
];

/// Numbers of a device's states.
pub(super) mod level {
    pub(in super::super) const ACTIVE: usize = 0;
    pub(in super::super) const PARTIAL: usize = 1;
    pub(in super::super) const SLUMBER: usize = 2;
    pub(in super::super) const DEVSLEEP: usize = 3;
    pub(in super::super) const STANDBY: usize = 4;
}

/// Writes of the 850 EVO 1 TB take 3.09 W in its SLC area and 4.03 W beyond it (ComputerBase);
/// `docs/energy.md` says how that divides.
const ENERGY: Consumption = Consumption {
    levels: &LEVELS,
    charges: Charges {
        command_pj: 2_000_000,
        byte_pj: 3_300,
        read_pj: 6_000_000,
        program_pj: 330_000_000,
        program_slc_pj: 60_000_000,
        erase_pj: 400_000_000,
    },
};

/// A 6 Gb/s drive of TLC flash with an SLC area: 540 and 520 MB/s, 98 and 90 thousand operations of
/// 4 KiB as its maker claims; 534 and 515 MB/s, 80 and 67 thousand as others measured its class.
pub const SATA_SSD: Profile = Profile {
    name: "sata-ssd",
    description: "SATA drive of the class of the Samsung 850 EVO 1 TB",
    link: Link { generation: 3 },
    timing: Timing {
        link_efficiency_permille: 925,
        command_ns: 1_500,
        transfer_setup_ns: 3_400,
        firmware_ns: 8_600,
        firmware_jitter_ns: 2_000,
        lookup_ns: 4_000,
        channels: 8,
        dies_per_channel: 2,
        planes_per_die: 2,
        page_bytes: 16 * KIB as u32,
        read_ns: 60_000,
        program_ns: 1_300_000,
        program_slc_ns: 400_000,
        erase_ns: 5_000_000,
        block_bytes: 24 * MIB,
        channel_rate: 400,
        suspend_ns: 30_000,
        read_ahead_bytes: 512 * KIB,
        write_buffer_bytes: 8 * MIB,
        checkpoint: NEVER,
        patrol: NEVER,
    },
    slc_bytes: 12 * GIB,
    ready_ns: 20_000_000,
    wake_ns: [10_000, 10_000_000, 20_000_000],
    energy: ENERGY,
};

/// The same drive behind a link of 3 Gb/s.
pub const SATA2_SSD: Profile = Profile {
    name: "sata2-ssd",
    description: "the same drive behind a link of 3 Gb/s",
    link: Link { generation: 2 },
    ..SATA_SSD
};

impl Profile {
    /// Every profile; the first is the default.
    pub const ALL: [&'static Self; 2] = [&SATA_SSD, &SATA2_SSD];

    /// Whether a device can be like this.
    ///
    /// # Errors
    /// The first value that is impossible: its name, what it is, what it may be.
    pub fn check(&self) -> Result<(), (&'static str, u64, &'static str)> {
        self.link.check()?;
        self.timing.check()
    }

    /// The profile of this name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        Self::ALL.into_iter().find(|profile| profile.name == name)
    }
}
