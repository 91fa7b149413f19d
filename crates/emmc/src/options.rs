use crate::device::Timing;
use crate::quirks::{CardQuirks, HostQuirks};

/// How long the driver waits for things. What the card itself says about its times comes on top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// A command of the control path, ms (Linux: 10 s).
    pub command_ms: u32,
    /// A card to power up after CMD1, ms (1 s in the specification).
    pub power_up_ms: u32,
    /// Busy after a CMD6 where the card tells no time, ms (Linux: 500 ms).
    pub switch_ms: u32,
    /// The cache to be emptied, ms (Linux: 30 s).
    pub flush_ms: u32,
    /// Sanitize, ms (Linux: 240 s).
    pub sanitize_ms: u32,
    /// Background operations, ms (Linux: 120 s).
    pub bkops_ms: u32,
    /// The queueing engine to halt, ms (Linux: 500 ms).
    pub halt_ms: u32,
    /// Commands in flight to end before an operation that needs the bus, ms.
    pub quiet_ms: u32,
    /// How often a lane with commands in flight looks for errors and overdue commands, ms.
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
    /// Where both have it.
    #[default]
    Auto,
    /// One command at a time.
    Off,
    /// Bring-up fails without.
    Required,
}

/// What the caller wants of the driver. `Options::default()` suits one thread and any card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Lanes, each a [`Port`](crate::Port) with tasks of its own; more than one needs command
    /// queueing.
    pub lanes: u16,
    /// Commands each lane holds, 1 to [`DEPTH_MAX`](Self::DEPTH_MAX). With command queueing the
    /// lanes share the tasks there are; without, the rest waits in the driver.
    pub depth: u16,
    /// Whether completions interrupt. Without, the caller polls.
    pub interrupts: bool,
    /// Longest data transfer of one command, bytes; at most
    /// [`TRANSFER_MAX`](Self::TRANSFER_MAX).
    pub transfer_max: u32,
    /// Whether data goes by DMA where the controller has it (ADMA2); else by the buffer port.
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
    /// AUTO_EN), if it has them. `None` leaves it.
    pub auto_bkops: Option<bool>,
    /// The controller's base clock where its capabilities tell none, MHz.
    pub base_mhz: u8,
    /// What is known better than the table of controllers.
    pub host_quirks: HostQuirks,
    /// What is known better than the table of cards.
    pub card_quirks: CardQuirks,
    /// How long to wait for things.
    pub timeouts: Timeouts,
}

impl Options {
    /// Most one command can transfer, bytes.
    pub const TRANSFER_MAX: u32 = 4 << 20;
    /// Most commands of one lane.
    pub const DEPTH_MAX: u16 = 31;
}

impl Default for Options {
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
