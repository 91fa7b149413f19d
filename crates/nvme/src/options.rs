use crate::quirks::Quirks;

/// Time limits of the driver. The times the controller itself specifies for getting ready (CAP.TO,
/// CRTO) and for shutdown (RTD3E) are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For an admin command without its own time limit, ms (Linux: 60 s).
    pub admin_ms: u32,
    /// For an aborted command to complete, ms; then the controller is reset.
    pub abort_ms: u32,
    /// For shutdown, ms, at least (Linux: 5 s).
    pub shutdown_ms: u32,
    /// Interval at which a lane with commands in flight looks for errors and overdue commands, ms.
    pub watchdog_ms: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { admin_ms: 60_000, abort_ms: 1_000, shutdown_ms: 5_000, watchdog_ms: 50 }
    }
}

/// Options of the driver. `Options::default()` suits one thread and any controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmeOptions {
    /// Number of lanes, each a [`Port`](crate::Port) with its own queue pair; at least 1.
    pub lanes: u16,
    /// Commands in flight per lane, 1 to [`DEPTH_MAX`](Self::DEPTH_MAX); less if the controller's
    /// queues are shorter.
    pub depth: u16,
    /// Whether completions raise interrupts. If not, the caller polls.
    pub interrupts: bool,
    /// Longest data transfer of one command, bytes; at most [`TRANSFER_MAX`](Self::TRANSFER_MAX),
    /// less if the controller requires it (MDTS).
    pub transfer_max: u32,
    /// Whether lists of ranges are passed to the controller as scatter gather lists, if it supports
    /// them; otherwise ranges inside a list must be whole pages.
    pub sgls: bool,
    /// Whether to switch the volatile write cache on or off at bring-up. `None` leaves it
    /// unchanged.
    pub write_cache: Option<bool>,
    /// Bytes of the driver's memory to lend to a controller that requests some (HMPRE): a drive
    /// without its own memory keeps its tables there and is slower without it. 0 lends none;
    /// rounded down to pages. It is included in [`Host::memory_len`](crate::Host::memory_len).
    pub host_memory: u32,
    /// Whether doorbells are kept in memory if the controller supports it (doorbell buffer config):
    /// a register is then written only when the controller asks for it. Emulated controllers
    /// support this, because each register write interrupts them.
    pub shadow_doorbells: bool,
    /// Whether submission queues are placed in the controller's memory, if it offers some for them
    /// and the machine can reach it: the controller then need not fetch entries over the link.
    pub controller_memory: bool,
    /// Whether the controller may enter non-operational power states by itself (APST), if it can:
    /// the shallow ones after 100 ms without work, the deep ones after 2 s.
    pub power_saving: bool,
    /// Deviations of the controller in addition to those in the table of controllers.
    pub quirks: Quirks,
    /// Time limits.
    pub timeouts: Timeouts,
}

impl NvmeOptions {
    /// Maximum transfer of one command, bytes: a list of pages that itself fits one page.
    pub const TRANSFER_MAX: u32 = 2 << 20;
    /// Maximum number of commands of one lane: ten bits of the command id.
    pub const DEPTH_MAX: u16 = 1023;
}

impl Default for NvmeOptions {
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
