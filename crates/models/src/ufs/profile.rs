//! Profiles: the parameters of a modelled device, its link and its host controller. What the
//! software in front of them takes is no part of a profile: see [`software`](super::software).
//!
//! A profile holds mechanisms' parameters, never answers: throughput and latency come out of them.
//! `docs/ufs-model.md` says why each parameter has its value and which published figure fixes it.

use super::config::ConfigError;

/// Work of the flash translation layer that stops the array for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// Once per so many bytes; 0 never.
    pub every_bytes: u64,
    /// For how long, nanoseconds.
    pub ns: u64,
}

/// Timing parameters. Times are nanoseconds, sizes bytes, rates bytes per microsecond (MB/s).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Share of the raw lane rate that carries data, per mille: what UniPro framing and flow
    /// control, UPIU headers and the host's DMA leave of it.
    pub link_efficiency_permille: u64,
    /// Serial stage shared by all commands: fetch, decode, queue.
    pub command_ns: u64,
    /// Per command on the lane direction its data takes: DMA set-up, RTT or first DATA IN,
    /// RESPONSE, interrupt.
    pub transfer_setup_ns: u64,
    /// Firmware latency of a command; does not occupy anything.
    pub firmware_ns: u64,
    /// Spread of the firmware latency: uniform from 0 to this, added.
    pub firmware_jitter_ns: u64,
    /// Logical-to-physical look-up of a read that no read-ahead covered.
    pub lookup_ns: u64,
    /// NAND channels.
    pub channels: u32,
    /// Dies on each channel.
    pub dies_per_channel: u32,
    /// Planes in each die, read independently, programmed together.
    pub planes_per_die: u32,
    /// Page size.
    pub page_bytes: u32,
    /// Cell array to page register (tR).
    pub read_ns: u64,
    /// One-shot program of three pages on every plane of a die, TLC (tPROG).
    pub program_ns: u64,
    /// Program of one page on every plane of a die, SLC mode.
    pub program_slc_ns: u64,
    /// Erase (tBERS).
    pub erase_ns: u64,
    /// Bytes in an erase block of one plane, TLC.
    pub block_bytes: u64,
    /// Rate of one channel.
    pub channel_rate: u64,
    /// What a read adds when its die is programming: the suspend.
    pub suspend_ns: u64,
    /// How far a sequential stream is read ahead; at most [`READ_AHEAD_MAX_PAGES`] pages.
    pub read_ahead_bytes: u64,
    /// Write buffer.
    pub write_buffer_bytes: u64,
    /// Mapping check-points and foreground collection, by bytes programmed.
    pub checkpoint: Pause,
    /// Read-disturb patrol, by bytes read from the array.
    pub patrol: Pause,
}

/// Most pages a stream may be read ahead.
pub const READ_AHEAD_MAX_PAGES: u64 = 64;

/// A device that can be modelled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Name in targets: `profile=NAME`.
    pub name: &'static str,
    /// What it is.
    pub description: &'static str,
    /// Highest high-speed gear of the link.
    pub gear_max: u8,
    /// Connected lanes in each direction.
    pub lanes: u8,
    /// Timing.
    pub timing: Timing,
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

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
};

/// A middling part: UFS 3.1 at HS-G4, one lane, no peculiarities.
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
};

/// The class of UFS 4.0 parts sold with 4200 MB/s read and 2800 MB/s written: HS-G5, two lanes,
/// fast 176-layer flash (40 us tR, 160 MB/s programmed per die), a host that keeps up.
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
};

impl Profile {
    /// Every profile; the first is the default.
    pub const ALL: [&'static Self; 4] = [&GALAXY_BOOK_S, &OK3576, &GENERIC, &UFS40];

    /// Whether a device can be timed like this.
    ///
    /// # Errors
    /// The first value that is impossible.
    pub fn check(&self) -> Result<(), ConfigError> {
        let t = &self.timing;
        let ranges = [
            ("gear_max", u32::from(self.gear_max), 1..=5, "1 to 5"),
            ("lanes", u32::from(self.lanes), 1..=2, "1 or 2"),
            ("channels", t.channels, 1..=64, "1 to 64"),
            ("dies_per_channel", t.dies_per_channel, 1..=64, "1 to 64"),
            ("planes_per_die", t.planes_per_die, 1..=16, "1 to 16"),
            ("page_bytes", t.page_bytes, 4096..=1 << 20, "a power of two from 4096 to 1048576"),
        ];
        for (key, is, may, text) in ranges {
            if !may.contains(&is) || key == "page_bytes" && !is.is_power_of_two() {
                return Err(ConfigError::Value(key, u64::from(is), text));
            }
        }
        Ok(())
    }

    /// The profile of this name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        Self::ALL.into_iter().find(|profile| profile.name == name)
    }
}
