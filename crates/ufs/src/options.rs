use crate::device_quirks::DeviceQuirks;
use crate::quirks::{Correction, Quirks};
use flysch_wire::ufs::registers::InterruptAggregation;
use flysch_wire::ufs::uic::HsSeries;

/// The queue design to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueMode {
    /// MCQ if the controller has it, else SDQ.
    #[default]
    Auto,
    /// The single doorbell of UFS 3.1 and earlier, up to 32 slots.
    Sdq,
    /// The multi-circular queues of UFS 4.0, one queue pair per lane.
    Mcq,
}

/// The fastest link that the driver may set up. The limits of device and host apply as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLimits {
    /// Highest high-speed gear, 1..=5; 0 leaves the link in the low speed in which it starts.
    pub gear: u8,
    /// Maximum number of lanes per direction, 1 or 2.
    pub lanes: u8,
    /// Rate series.
    pub series: HsSeries,
}

impl Default for LinkLimits {
    fn default() -> Self {
        Self { gear: 5, lanes: 2, series: HsSeries::B }
    }
}

/// Interrupt aggregation: one interrupt for several completions, at the cost of their latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aggregation {
    /// Completions after which the interrupt is raised, 1..=31.
    pub completions: u8,
    /// How long the first of them waits for the others at most, µs, 40..=10200, in units of 40.
    pub timeout_us: u16,
}

impl Aggregation {
    /// Whether a controller supports these values.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        (1..=31).contains(&self.completions) && (40..=10_200).contains(&self.timeout_us)
    }

    /// The value for UTRIACR or MCQIACR, at the beginning and after every interrupt.
    pub(crate) fn control(&self) -> InterruptAggregation {
        let units = u32::from(self.timeout_us).div_ceil(InterruptAggregation::TIMEOUT_UNIT_US);
        InterruptAggregation::new()
            .with_iaen(true)
            .with_iapwen(true)
            .with_ctr(true)
            .with_iacth(self.completions)
            .with_iatoval(units as u8)
    }
}

/// How long the driver waits. The defaults are those of the drivers in the field (Linux ufshcd
/// unless noted otherwise).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until HCE shows what was written to it, ms.
    pub enable_ms: u32,
    /// From writing HCE to reading it for the first time, µs (Linux: 1000).
    pub enable_settle_us: u32,
    /// One UIC command, ms.
    pub uic_ms: u32,
    /// One NOP OUT; it is sent up to ten times, ms.
    pub nop_ms: u32,
    /// One query, ms.
    pub query_ms: u32,
    /// Until fDeviceInit clears, ms.
    pub device_init_ms: u32,
    /// One task management request, ms.
    pub task_ms: u32,
    /// Until a slot is cleared by UTRLCLR or by MCQ clean-up, ms.
    pub clear_ms: u32,
    /// START STOP UNIT, ms.
    pub start_stop_ms: u32,
    /// One command of RPMB, error history or the boot unit, ms (Linux, advanced RPMB: 3000).
    pub service_ms: u32,
    /// How often a lane with commands in flight checks for errors and overdue commands, ms.
    pub watchdog_ms: u32,
    /// How long a lane with an overdue command waits for a host that nobody polls. Then it switches
    /// the controller off, and every command of every lane ends with
    /// [`Gone`](flysch_api::command::Ended::Gone), ms.
    pub host_ms: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            enable_ms: 50,
            enable_settle_us: 1000,
            uic_ms: 500,
            nop_ms: 50,
            query_ms: 1500,
            device_init_ms: 1500,
            task_ms: 100,
            clear_ms: 1000,
            start_stop_ms: 10_000,
            service_ms: 3_000,
            watchdog_ms: 50,
            host_ms: 30_000,
        }
    }
}

/// What the caller wants from the driver. `Options::default()` suits one thread and any controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UfsOptions {
    /// Queue design.
    pub queue: QueueMode,
    /// Lanes, each a [`Port`](crate::Port) of its own: queue pairs in MCQ, disjoint slot ranges in
    /// SDQ. At least 1.
    pub lanes: u8,
    /// Whether the host has a lane of its own - one slot of the doorbell, or a queue pair - and can
    /// be separated from the ports: [`Host::split`](crate::Host::split). Otherwise it shares the
    /// first lane.
    pub apart: bool,
    /// Commands in flight per lane, 1..=255. SDQ divides the controller's slots among the lanes, so
    /// a lane may get fewer.
    pub depth: u16,
    /// Whether completions raise the interrupt line. Otherwise the caller polls, or calls
    /// [`Port::arm`](crate::Port::arm) before it waits.
    pub interrupts: bool,
    /// Whether each queue pair raises a vector of its own (event-specific interrupts), where
    /// controller and machine support that: then each lane waits for
    /// [`Port::vector`](crate::Port::vector) and does not disturb others. Otherwise all share the
    /// line.
    pub event_interrupts: bool,
    /// Whether several completions share an interrupt. Not used if the controller does not support
    /// it. With the single doorbell, which has one counter, for one lane only.
    pub aggregation: Option<Aggregation>,
    /// Longest data transfer of one command, bytes; at most [`TRANSFER_MAX`](Self::TRANSFER_MAX).
    pub transfer_max: u32,
    /// The fastest link that is wanted.
    pub link: LinkLimits,
    /// Reference clock to set in the device (bRefClkFreq: 0 19.2, 1 26, 2 38.4, 3 52 MHz).
    /// `None` leaves it to the [`Platform`](crate::Platform).
    pub reference_clock: Option<u8>,
    /// Idle time after which the link hibernates by itself, µs. `None` leaves it off.
    pub auto_hibern8_us: Option<u32>,
    /// Whether to switch WriteBooster on or off at bring-up. `None` leaves it as it is.
    pub write_booster: Option<bool>,
    /// Exception events to enable (bits of wExceptionEventControl). The driver itself acts on
    /// urgent background operations (bit 2) and on a WriteBooster buffer to be flushed (bit 5), and
    /// reads the temperature when it is too high or too low (bits 3 and 4); all are kept for the
    /// caller: [`Host::take_events`](crate::Host::take_events).
    pub exception_events: u16,
    /// Corrections of the table of controllers.
    pub quirks: Correction<Quirks>,
    /// Corrections of the table of devices.
    pub device_quirks: Correction<DeviceQuirks>,
    /// Time limits.
    pub timeouts: Timeouts,
}

impl UfsOptions {
    /// Maximum transfer of one command, bytes: eight physical region entries of 256 KiB.
    pub const TRANSFER_MAX: u32 = 8 * 256 * 1024;
}

impl Default for UfsOptions {
    fn default() -> Self {
        Self {
            queue: QueueMode::Auto,
            lanes: 1,
            apart: false,
            depth: 32,
            interrupts: true,
            event_interrupts: true,
            aggregation: None,
            transfer_max: 1024 * 1024,
            link: LinkLimits::default(),
            reference_clock: None,
            auto_hibern8_us: None,
            write_booster: None,
            exception_events: 1 << 2,
            quirks: Correction::default(),
            device_quirks: Correction::default(),
            timeouts: Timeouts::default(),
        }
    }
}
