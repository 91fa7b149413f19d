//! What C and the drivers hand each other: plain structures.

use core::ffi::{c_char, c_int, c_void};

use crate::error::Status;

/// A time that never comes: no deadline.
pub const NEVER: u64 = u64::MAX;

/// Why waiting came back.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The controller raised its interrupt, or nobody knows.
    Interrupt = 0,
    /// The time asked for has come.
    Deadline = 1,
}

/// The machine around one controller. Whatever is pointed to, and the functions, stay as they are
/// until flysch_close. All functions are called by whoever calls the library, on his stack.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Board {
    /// Handed to every function below.
    pub context: *mut c_void,
    /// Reads the 32-bit register `offset` bytes into the controller's window. A read outside it
    /// gives 0xFFFFFFFF. With the barrier a read of a device register needs before loads (`readl`).
    pub read32: Option<unsafe extern "C" fn(context: *mut c_void, offset: u32) -> u32>,
    /// Writes that register, after all earlier stores (`writel`). A write outside does nothing.
    pub write32: Option<unsafe extern "C" fn(context: *mut c_void, offset: u32, value: u32)>,
    /// Nanoseconds by a clock that never goes back.
    pub now: Option<unsafe extern "C" fn(context: *mut c_void) -> u64>,
    /// Waits for the controller's interrupt or until that time, FLYSCH_NEVER being none. May come
    /// back early; who cannot sleep returns FLYSCH_WAKE_INTERRUPT at once.
    pub wait: Option<unsafe extern "C" fn(context: *mut c_void, until: u64) -> c_int>,
    /// Where caches do not watch the bus: what was stored to these bytes goes to memory (clean).
    /// NULL where they do.
    pub sync_for_device: Option<unsafe extern "C" fn(context: *mut c_void, address: u64, len: u32)>,
    /// The same in the other direction (invalidate).
    pub sync_for_cpu: Option<unsafe extern "C" fn(context: *mut c_void, address: u64, len: u32)>,
    /// DMA memory for the driver and for data: contiguous, zeroed, aligned to 4096 bytes, used by
    /// nobody else. flysch_dma_needed tells how much the driver takes.
    pub memory: *mut c_void,
    /// Bytes of it.
    pub memory_len: usize,
    /// The address by which the controller reaches its first byte (behind an IOMMU: the IOVA).
    pub memory_address: u64,
    /// The controller's PCI vendor and device id, 0 where it is not on PCI: the table of known
    /// deviations goes by them.
    pub vendor: u16,
    /// See vendor.
    pub device: u16,
}

/// What happens to controller, link or device of UFS: see flysch_platform.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A step of bring-up; `name` is its name.
    Step = 0,
    /// DME_LINKSTARTUP.
    LinkStartup = 1,
    /// The link changes its speed; `value` is the gear, with 0x100 added in high speed.
    PowerMode = 2,
    /// DME_HIBERNATE_ENTER.
    HibernateEnter = 3,
    /// DME_HIBERNATE_EXIT.
    HibernateExit = 4,
    /// START STOP UNIT; `value` is 1 active, 2 sleep, 3 power-down, 4 deep sleep (the command's
    /// POWER CONDITION).
    DevicePower = 5,
    /// The controller is switched off for good.
    Shutdown = 6,
    /// Of a later version of the library.
    Other = 7,
}

/// What the controller's clocks shall do.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clocks {
    /// Off: after shutdown, and while the link hibernates on command.
    Off = 0,
    /// On: before anything else is done.
    On = 1,
    /// Slower, after the link got slow: HS-G1 or less.
    Slow = 2,
    /// Faster, before the link gets faster than that.
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
    /// Whether it is the device's end of the link.
    pub peer: bool,
    /// Its value.
    pub value: u32,
}

/// What the board around a UFS controller does and has to be told. Any function may be NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Platform {
    /// Handed to every function below.
    pub context: *mut c_void,
    /// Told before (`after` false) and after each event. Answers the microseconds the driver shall
    /// wait before it goes on, or a number below zero: then the event has failed.
    pub notice: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            event: Event,
            name: *const c_char,
            value: u32,
            after: bool,
        ) -> c_int,
    >,
    /// The `n`-th attribute to set at that moment, with rising `n` until it answers false.
    pub setting: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            event: Event,
            after: bool,
            n: u32,
            setting: *mut DmeSetting,
        ) -> bool,
    >,
    /// Drives RST_n of the device: true holds it in reset. Answers whether there is such a line.
    pub device_reset: Option<unsafe extern "C" fn(context: *mut c_void, hold: bool) -> bool>,
    /// Switches or scales the controller's clocks and supplies.
    pub clocks: Option<unsafe extern "C" fn(context: *mut c_void, clocks: Clocks)>,
    /// bRefClkFreq: 0 19.2, 1 26, 2 38.4, 3 52 MHz; below zero leaves what the device has.
    pub reference_clock: c_int,
}

/// Which queue design of UFS.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Multi-circular queues where the controller has them.
    Auto = 0,
    /// The single doorbell.
    Sdq = 1,
    /// Multi-circular queues, or failure.
    Mcq = 2,
}

/// What is wanted of the driver; flysch_default_options fills it in.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Disks that can be used at once: each has a queue, or a part of the doorbell's slots.
    pub disks: u8,
    /// UFS: an enum flysch_queue.
    pub queue: u8,
    /// Commands in flight per disk, 1 to 255.
    pub depth: u16,
    /// Whether completions raise the interrupt; without, the caller polls.
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
    /// Whether it refuses writes.
    pub write_protected: bool,
    /// Whether flysch_delete works.
    pub can_delete: bool,
    /// Vendor, product and revision, or model and firmware; ended by a zero.
    pub name: [c_char; 64],
}

/// What to do.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Device to memory.
    Read = 0,
    /// Memory to device.
    Write = 1,
    /// Everything written and completed before is on the medium when this completes.
    Flush = 2,
    /// The content of the range is no longer needed.
    Delete = 3,
}

/// One wish to a disk; copied by whoever takes it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Comes back in the completion.
    pub token: u64,
    /// An enum flysch_operation.
    pub operation: u8,
    /// Write: on the medium, not only in a cache, when it completes.
    pub force_unit_access: bool,
    /// First byte on the disk; a multiple of the block size. 0 for FLYSCH_FLUSH.
    pub offset: u64,
    /// Bytes; a multiple of the block size. 0 for FLYSCH_FLUSH.
    pub length: u64,
    /// Read and write: where the data is, within DMA memory; it stays there until the completion.
    pub data: *mut c_void,
}

/// What became of a request.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// The request's.
    pub token: u64,
    /// The disk's, as flysch_attach gave it.
    pub disk: u32,
    /// FLYSCH_OK, or why not.
    pub status: Status,
    /// When it was submitted, when the doorbell rang, when its end was seen: the board's time.
    pub accepted: u64,
    /// See accepted.
    pub issued: u64,
    /// See accepted.
    pub seen: u64,
}
