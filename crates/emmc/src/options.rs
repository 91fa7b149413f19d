use crate::device::Timing;
use crate::quirks::{CardQuirks, HostQuirks};

/// How long the driver waits. Times that the card itself specifies apply as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// A command of the control path, ms (Linux: 10 s).
    pub command_ms: u32,
    /// Until a card has powered up after CMD1, ms (1 s in the specification).
    pub power_up_ms: u32,
    /// How long a card may be busy after a CMD6 for which it specifies no time, ms (Linux: 500 ms).
    pub switch_ms: u32,
    /// Until the cache is empty, ms (Linux: 30 s).
    pub flush_ms: u32,
    /// Sanitize, ms (Linux: 240 s).
    pub sanitize_ms: u32,
    /// Background operations, ms (Linux: 120 s).
    pub bkops_ms: u32,
    /// Until the queueing engine halts, ms (Linux: 500 ms).
    pub halt_ms: u32,
    /// Until the commands in flight have ended before an operation that needs the bus, ms.
    pub quiet_ms: u32,
    /// How often a lane with commands in flight checks for errors and overdue commands, ms.
    pub watchdog_ms: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            command_ms: 1_000,
            power_up_ms: 1_000,
            switch_ms: 500,
            flush_ms: 30_000,
            sanitize_ms: 240_000,
            bkops_ms: 120_000,
            halt_ms: 500,
            quiet_ms: 10_000,
            watchdog_ms: 50,
        }
    }
}

/// Whether commands are queued in the card (CMDQ) by the controller's engine (CQHCI).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queueing {
    /// If both support it.
    #[default]
    Auto,
    /// One command at a time.
    Off,
    /// Bring-up fails without it.
    Required,
}

/// What the caller wants from the driver. `Options::default()` suits one thread and any card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmmcOptions {
    /// Lanes, each a [`Port`](crate::Port) with tasks of its own; more than one needs command
    /// queueing.
    pub lanes: u16,
    /// Commands that each lane holds, 1 to [`DEPTH_MAX`](Self::DEPTH_MAX). With command queueing
    /// the lanes share the available tasks; without it, commands wait in the driver.
    pub depth: u16,
    /// Whether completions raise interrupts. Otherwise the caller polls.
    pub interrupts: bool,
    /// Longest data transfer of one command, bytes; at most
    /// [`TRANSFER_MAX`](Self::TRANSFER_MAX).
    pub transfer_max: u32,
    /// Whether data is moved by DMA if the controller has it (ADMA2); otherwise through the buffer
    /// port.
    pub dma: bool,
    /// Command queueing.
    pub queueing: Queueing,
    /// The partition whose blocks the lanes read and write (PARTITION_ACCESS).
    pub partition: u8,
    /// The fastest timing of the bus that is tried.
    pub timing: Timing,
    /// Whether the card's volatile cache is switched on, if it has one.
    pub cache: bool,
    /// Whether background operations that the card starts by itself are switched on (BKOPS_EN,
    /// AUTO_EN), if it has them. `None` leaves them as they are.
    pub auto_bkops: Option<bool>,
    /// The controller's base clock if its capabilities do not specify it, MHz.
    pub base_mhz: u8,
    /// Corrections of the table of controllers.
    pub host_quirks: HostQuirks,
    /// Corrections of the table of cards.
    pub card_quirks: CardQuirks,
    /// Time limits.
    pub timeouts: Timeouts,
}

impl EmmcOptions {
    /// Maximum transfer of one command, bytes.
    pub const TRANSFER_MAX: u32 = 4 << 20;
    /// Maximum number of commands of one lane.
    pub const DEPTH_MAX: u16 = 31;
}

impl Default for EmmcOptions {
    fn default() -> Self {
        Self {
            lanes: 1,
            depth: Self::DEPTH_MAX,
            interrupts: true,
            transfer_max: 512 << 10,
            dma: true,
            queueing: Queueing::Auto,
            partition: 0,
            timing: Timing::Hs400Es,
            cache: true,
            auto_bkops: None,
            base_mhz: 0,
            host_quirks: HostQuirks::NONE,
            card_quirks: CardQuirks::NONE,
            timeouts: Timeouts::default(),
        }
    }
}
