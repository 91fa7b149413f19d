use crate::quirks::Quirks;

/// How long the driver waits for things. What the controller itself says about its time to get
/// ready (CAP.TO, CRTO) and to shut down (RTD3E) comes on top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// An admin command that names no time of its own, ms (Linux: 60 s).
    pub admin_ms: u32,
    /// An aborted command to come back, ms; then the controller is reset.
    pub abort_ms: u32,
    /// Shutdown, ms, at least (Linux: 5 s).
    pub shutdown_ms: u32,
    /// How often a lane with commands in flight looks for errors and overdue commands, ms.
    pub watchdog_ms: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { admin_ms: 60_000, abort_ms: 1_000, shutdown_ms: 5_000, watchdog_ms: 50 }
    }
}

/// What the caller wants of the driver. `Options::default()` suits one thread and any controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Lanes, each a [`Port`](crate::Port) and a queue pair of its own; at least 1.
    pub lanes: u16,
    /// Commands in flight per lane, 1 to [`DEPTH_MAX`](Self::DEPTH_MAX); less if the controller's
    /// queues are shorter.
    pub depth: u16,
    /// Whether completions interrupt. Without, the caller polls.
    pub interrupts: bool,
    /// Longest data transfer of one command, bytes; at most
    /// [`TRANSFER_MAX`](Self::TRANSFER_MAX), less if the controller says so (MDTS).
    pub transfer_max: u32,
    /// Whether lists of ranges go to the controller as scatter gather lists, where it takes them;
    /// else ranges inside a list must be whole pages.
    pub sgls: bool,
    /// Whether to switch the volatile write cache on or off at bring-up. `None` leaves it.
    pub write_cache: Option<bool>,
    /// Bytes of the driver's memory to lend to a controller that asks for some (HMPRE): a drive
    /// without memory of its own keeps its tables there and is slower without. 0 lends none;
    /// rounded down to pages. It counts in [`Host::memory_len`](crate::Host::memory_len).
    pub host_memory: u32,
    /// Whether doorbells are kept in memory where the controller looks at them there (doorbell
    /// buffer config): a register is written only when it asks for that. Controllers that are
    /// programs have it, because each write of a register interrupts them.
    pub shadow_doorbells: bool,
    /// Whether submission queues lie in the controller's memory, where it has some for them and
    /// the machine reaches it: it then need not fetch entries over the link.
    pub controller_memory: bool,
    /// Whether the controller may go to power states without I/O by itself (APST), where it can:
    /// the shallow ones after 100 ms without work, the deep ones after 2 s.
    pub power_saving: bool,
    /// What is known better than the table of controllers: deviations it has besides.
    pub quirks: Quirks,
    /// How long to wait for things.
    pub timeouts: Timeouts,
}

impl Options {
    /// Most one command can transfer, bytes: a list of pages that is itself one page.
    pub const TRANSFER_MAX: u32 = 2 << 20;
    /// Most commands of one lane: ten bits of the command id.
    pub const DEPTH_MAX: u16 = 1023;
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lanes: 1,
            depth: 128,
            interrupts: true,
            transfer_max: 1 << 20,
            sgls: true,
            write_cache: None,
            host_memory: 0,
            shadow_doorbells: true,
            controller_memory: true,
            power_saving: false,
            quirks: Quirks::NONE,
            timeouts: Timeouts::default(),
        }
    }
}
