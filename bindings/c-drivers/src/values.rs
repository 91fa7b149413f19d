//! Plain structures passed between C and the drivers.

use core::ffi::{c_char, c_int, c_void};

use crate::error::Status;

/// A time that never comes: no deadline.
pub const NEVER: u64 = u64::MAX;

/// Why waiting ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The controller raised its interrupt, or the reason is unknown.
    Interrupt = 0,
    /// The requested time has come.
    Deadline = 1,
}

/// The machine around one controller. Everything pointed to, and the functions, must stay unchanged
/// until flysch_close. All functions are called on the thread and stack of the library's caller.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Board {
    /// Passed to every function below.
    pub context: *mut c_void,
    /// Reads the 32-bit register at `offset` bytes in the controller's window. A read outside the
    /// window returns 0xFFFFFFFF. Includes the barrier that a read of a device register needs
    /// before later loads (`readl`).
    pub read32: Option<unsafe extern "C" fn(context: *mut c_void, offset: u32) -> u32>,
    /// Writes that register, after all earlier stores (`writel`). A write outside the window does
    /// nothing.
    pub write32: Option<unsafe extern "C" fn(context: *mut c_void, offset: u32, value: u32)>,
    /// Nanoseconds of a monotonic clock.
    pub now: Option<unsafe extern "C" fn(context: *mut c_void) -> u64>,
    /// Waits for the controller's interrupt or until the given time, FLYSCH_NEVER for none. May
    /// return early; a board that cannot sleep returns FLYSCH_WAKE_INTERRUPT at once.
    pub wait: Option<unsafe extern "C" fn(context: *mut c_void, until: u64) -> c_int>,
    /// If caches are not coherent: writes what was stored to these bytes back to memory (clean).
    /// NULL if they are.
    pub sync_for_device: Option<unsafe extern "C" fn(context: *mut c_void, address: u64, len: u32)>,
    /// The same for the other direction (invalidate).
    pub sync_for_cpu: Option<unsafe extern "C" fn(context: *mut c_void, address: u64, len: u32)>,
    /// DMA memory for the driver and for data: contiguous, zeroed, aligned to 4096 bytes, used by
    /// nobody else. flysch_dma_needed returns how much the driver needs.
    pub memory: *mut c_void,
    /// Bytes of DMA memory.
    pub memory_len: usize,
    /// The address by which the controller accesses its first byte (behind an IOMMU: the IOVA).
    pub memory_address: u64,
    /// The controller's PCI vendor and device id, 0 if it is not on PCI: they select entries of the
    /// quirk table.
    pub vendor: u16,
    /// See vendor.
    pub device: u16,
}

/// Events of the UFS controller, link or device: see flysch_platform.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A step of bring-up; `name` is its name.
    Step = 0,
    /// DME_LINKSTARTUP.
    LinkStartup = 1,
    /// The link changes its speed; `value` is the gear, plus 0x100 in high speed.
    PowerMode = 2,
    /// DME_HIBERNATE_ENTER.
    HibernateEnter = 3,
    /// DME_HIBERNATE_EXIT.
    HibernateExit = 4,
    /// START STOP UNIT; `value` is 1 active, 2 sleep, 3 power-down, 4 deep sleep (the command's
    /// POWER CONDITION).
    DevicePower = 5,
    /// The controller is being stopped for good.
    Shutdown = 6,
    /// An event of a later version of the library.
    Other = 7,
}

/// State of the controller's clocks.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clocks {
    /// Off: after shutdown, and while the link hibernates on command.
    Off = 0,
    /// On: before anything else is done.
    On = 1,
    /// Slower, after the link has become slow: HS-G1 or less.
    Slow = 2,
    /// Faster, before the link becomes faster than that.
    Fast = 3,
}

/// One DME_SET or DME_PEER_SET.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DmeSetting {
    /// The attribute's number.
    pub attribute: u16,
    /// GenSelectorIndex: a transmit lane, 4 + a receive lane, or 0.
    pub selector: u16,
    /// Whether it belongs to the peer, the device.
    pub peer: bool,
    /// Its value.
    pub value: u32,
}

/// What the board around a UFS controller does and provides. Any function may be NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Platform {
    /// Passed to every function below.
    pub context: *mut c_void,
    /// Called before (`after` is false) and after each event. Returns the microseconds that the
    /// driver must wait before it goes on, or a negative number if the event has failed.
    pub notice: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            event: Event,
            name: *const c_char,
            value: u32,
            after: bool,
        ) -> c_int,
    >,
    /// The `n`-th attribute to set at that moment; called with ascending `n` until it returns
    /// false.
    pub setting: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            event: Event,
            after: bool,
            n: u32,
            setting: *mut DmeSetting,
        ) -> bool,
    >,
    /// Drives RST_n of the device: true holds it in reset. Returns whether there is such a line.
    pub device_reset: Option<unsafe extern "C" fn(context: *mut c_void, hold: bool) -> bool>,
    /// Switches or scales the controller's clocks and supplies.
    pub clocks: Option<unsafe extern "C" fn(context: *mut c_void, clocks: Clocks)>,
    /// bRefClkFreq: 0 19.2, 1 26, 2 38.4, 3 52 MHz; a negative number keeps the device's value.
    pub reference_clock: c_int,
}

/// Queue design of UFS.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Multi-circular queues if the controller has them.
    Auto = 0,
    /// Single doorbell.
    Sdq = 1,
    /// Multi-circular queues; fails without them.
    Mcq = 2,
}

/// Options of the driver; flysch_default_options fills them in.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Most disks in use at once: each has a queue, or a part of the doorbell's slots.
    pub disks: u8,
    /// UFS: an enum flysch_queue.
    pub queue: u8,
    /// Commands in flight per disk, 1 to 255.
    pub depth: u16,
    /// Whether completions raise the interrupt; if clear, the caller polls.
    pub interrupts: bool,
    /// Longest transfer of one command, bytes; longer requests are split.
    pub transfer_max: u32,
}

/// A logical unit of UFS or a namespace of NVMe.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// Its LUN or namespace id.
    pub number: u64,
    /// Bytes per logical block.
    pub block_size: u32,
    /// Logical blocks.
    pub blocks: u64,
    /// Whether it rejects writes.
    pub write_protected: bool,
    /// Whether FLYSCH_OPERATION_DELETE is supported.
    pub can_delete: bool,
    /// Vendor, product and revision, or model and firmware; terminated by a zero.
    pub name: [c_char; 64],
}

/// Operation of a request.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Device to memory.
    Read = 0,
    /// Memory to device.
    Write = 1,
    /// All writes completed before are on the medium when this completes.
    Flush = 2,
    /// The content of the range is no longer needed.
    Delete = 3,
}

/// One request to a disk; copied when it is submitted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Returned in the completion.
    pub token: u64,
    /// An enum flysch_operation.
    pub operation: u8,
    /// Write: the data is on the medium, not only in a cache, at completion.
    pub force_unit_access: bool,
    /// First byte on the disk; a multiple of the block size. 0 for FLYSCH_OPERATION_FLUSH.
    pub offset: u64,
    /// Bytes; a multiple of the block size. 0 for FLYSCH_OPERATION_FLUSH.
    pub length: u64,
    /// Read and write: address of the data, within DMA memory; it must stay valid until completion.
    pub data: *mut c_void,
}

/// Completion of a request.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// Token of the request.
    pub token: u64,
    /// Number of the disk, as returned by flysch_attach.
    pub disk: u32,
    /// FLYSCH_STATUS_OK, or the reason of the failure.
    pub status: Status,
    /// When it was submitted, when the doorbell rang, when its completion was seen: the board's
    /// time.
    pub accepted: u64,
    /// See accepted.
    pub issued: u64,
    /// See accepted.
    pub seen: u64,
}
