use crate::quirks::Quirks;
use flysch_wire::ata::registers::PORTS_MAX;

/// How long the driver waits for things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// HBA reset, ms (AHCI 10.4.3).
    pub hba_reset_ms: u32,
    /// For PxCMD.CR to follow PxCMD.ST, ms (AHCI 10.1.2).
    pub stop_ms: u32,
    /// For a device to appear on the link after COMRESET, ms; after that it counts as absent.
    pub detect_ms: u32,
    /// For the link to come up once there is a device, ms.
    pub link_ms: u32,
    /// For a device to become ready after a reset, including spin-up, ms (Linux: 10 s, then 35 s).
    pub ready_ms: u32,
    /// The same after another COMRESET of a recovery, ms: slow parts such as spin-up have had their
    /// time. So a device that stays busy is given up after 40 s instead of three times 30 (Linux:
    /// 10, 10, 35 and 5 s).
    pub ready_again_ms: u32,
    /// After COMRESET of a port that may have a multiplier, ms: one whose first device port is
    /// empty stays silent, so it is then called (Linux: 5 s).
    pub multiplier_ms: u32,
    /// For one of the driver's own commands, ms (Linux: 5 s, identify up to 30 s).
    pub command_ms: u32,
    /// For READ LOG EXT of the queued error log, ms (Linux: 15 s; FreeBSD: 1 s).
    pub log_ms: u32,
    /// For FLUSH CACHE and STANDBY IMMEDIATE, ms (Linux: up to 30 s).
    pub flush_ms: u32,
    /// How often a port with commands in flight looks for errors and overdue commands, ms.
    pub watchdog_ms: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            hba_reset_ms: 1_000,
            stop_ms: 500,
            detect_ms: 100,
            link_ms: 2_000,
            ready_ms: 30_000,
            ready_again_ms: 5_000,
            multiplier_ms: 5_000,
            command_ms: 10_000,
            log_ms: 5_000,
            flush_ms: 30_000,
            watchdog_ms: 50,
        }
    }
}

/// The deepest power state that the link may enter on its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkPower {
    /// Never: it is always active, and hot plug is noticed immediately.
    #[default]
    Active,
    /// Partial, requested by the HBA (ALPM) and the device (DIPM).
    Partial,
    /// Slumber.
    Slumber,
    /// Slumber, then device sleep (DevSleep).
    DevSleep,
}

/// The caller's choices. `AhciOptions::default()` suits any HBA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AhciOptions {
    /// Ports to use, a bit each; those the HBA does not implement are ignored.
    pub ports: u32,
    /// Commands in flight per port, 1 to 32; fewer if HBA or device support fewer.
    pub depth: u8,
    /// Whether commands are queued in the device (NCQ) if it supports that.
    pub queued: bool,
    /// Whether completions interrupt. Otherwise the caller polls.
    pub interrupts: bool,
    /// Longest data transfer of one command, bytes; at most
    /// [`TRANSFER_MAX`](Self::TRANSFER_MAX).
    pub transfer_max: u32,
    /// Whether to switch the volatile write cache on or off at bring-up. `None` leaves it as it is.
    pub write_cache: Option<bool>,
    /// Whether several devices behind a port multiplier may have commands in flight at once
    /// (FIS-based switching), if the HBA can do that. Otherwise only one device at a time has
    /// commands.
    pub fis_switching: bool,
    /// The deepest power state that the link may enter on its own, if HBA and device support it.
    pub link_power: LinkPower,
    /// Fastest link speed, 1 to 3 (1.5, 3, 6 Gb/s); 0: the fastest that both sides support.
    pub speed: u8,
    /// Deviations of the HBA or its devices that are not in the tables.
    pub quirks: Quirks,
    /// How long to wait for things.
    pub timeouts: Timeouts,
}

impl AhciOptions {
    /// Most bytes in one command: 65536 sectors of 512.
    pub const TRANSFER_MAX: u32 = 32 << 20;
    /// Most commands in flight per port.
    pub const DEPTH_MAX: u8 = PORTS_MAX as u8;
}

impl Default for AhciOptions {
    fn default() -> Self {
        Self {
            ports: u32::MAX,
            depth: Self::DEPTH_MAX,
            queued: true,
            interrupts: true,
            transfer_max: 1 << 20,
            write_cache: None,
            fis_switching: true,
            link_power: LinkPower::Active,
            speed: 0,
            quirks: Quirks::NONE,
            timeouts: Timeouts::default(),
        }
    }
}
