use crate::quirks::Quirks;
use flysch_wire::ata::registers::PORTS_MAX;

/// How long the driver waits for things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// HBA reset, ms (AHCI 10.4.3).
    pub hba_reset_ms: u32,
    /// PxCMD.CR to follow PxCMD.ST, ms (AHCI 10.1.2).
    pub stop_ms: u32,
    /// A device to show on the link after COMRESET, ms: without any it is absent.
    pub detect_ms: u32,
    /// The link to come up once there is a device, ms.
    pub link_ms: u32,
    /// A device to get ready after a reset, spin-up included, ms (Linux: 10 s, then 35 s).
    pub ready_ms: u32,
    /// The same after another COMRESET of a recovery, ms: what takes long, spinning up, has had its
    /// time. A device that stays busy is so given up after 40 s and not after three times 30
    /// (Linux: 10, 10, 35 and 5 s).
    pub ready_again_ms: u32,
    /// After COMRESET of a port that may have a multiplier, ms: one whose first device port is
    /// empty says nothing by itself, so it is asked then (Linux: 5 s).
    pub multiplier_ms: u32,
    /// A command of the driver's own, ms (Linux: 5 s, identify up to 30 s).
    pub command_ms: u32,
    /// READ LOG EXT of the queued error log, ms (Linux: 15 s; FreeBSD: 1 s).
    pub log_ms: u32,
    /// FLUSH CACHE and STANDBY IMMEDIATE, ms (Linux: up to 30 s).
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

/// How deep the link may sleep by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkPower {
    /// Never: it is always active, and hot plug is noticed at once.
    #[default]
    Active,
    /// Partial, asked for by the HBA (ALPM) and the device (DIPM).
    Partial,
    /// Slumber.
    Slumber,
    /// Slumber, then device sleep (DevSleep).
    DevSleep,
}

/// What the caller wants of the driver. `Options::default()` suits any HBA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Ports to use, a bit each; those the HBA does not implement are left out.
    pub ports: u32,
    /// Commands in flight per port, 1 to 32; less if HBA or device take fewer.
    pub depth: u8,
    /// Whether commands are queued in the device (NCQ) where it takes that.
    pub queued: bool,
    /// Whether completions interrupt. Without, the caller polls.
    pub interrupts: bool,
    /// Longest data transfer of one command, bytes; at most
    /// [`TRANSFER_MAX`](Self::TRANSFER_MAX).
    pub transfer_max: u32,
    /// Whether to switch the volatile write cache on or off at bring-up. `None` leaves it.
    pub write_cache: Option<bool>,
    /// Whether commands of several devices behind a port multiplier are on their way at once
    /// (FIS-based switching), where the HBA can that. Without, one device at a time has commands.
    pub fis_switching: bool,
    /// How deep the link may sleep by itself, as far as HBA and device can.
    pub link_power: LinkPower,
    /// Fastest link, 1 to 3 (1.5, 3, 6 Gb/s); 0 is what both sides can.
    pub speed: u8,
    /// What is known better than the tables: deviations of HBA or devices besides.
    pub quirks: Quirks,
    /// How long to wait for things.
    pub timeouts: Timeouts,
}

impl Options {
    /// Most one command can transfer, bytes: 65536 sectors of 512.
    pub const TRANSFER_MAX: u32 = 32 << 20;
    /// Most commands of one port.
    pub const DEPTH_MAX: u8 = PORTS_MAX as u8;
}

impl Default for Options {
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
