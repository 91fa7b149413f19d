//! The command queueing engine (CQHCI, JESD84-B51 annex B): registers, at offsets from the engine's
//! base in the host controller, and the descriptors of tasks.

use bitfield_struct::bitfield;

/// Version.
pub const CQVER: u32 = 0x00;
/// Capabilities.
pub const CQCAP: u32 = 0x04;
/// Configuration, [`Cqcfg`].
pub const CQCFG: u32 = 0x08;
/// Control, [`Cqctl`].
pub const CQCTL: u32 = 0x0C;
/// Interrupt status, [`Cqis`], write one to clear.
pub const CQIS: u32 = 0x10;
/// Interrupt status enable, [`Cqis`].
pub const CQISTE: u32 = 0x14;
/// Interrupt signal enable, [`Cqis`].
pub const CQISGE: u32 = 0x18;
/// Interrupt coalescing.
pub const CQIC: u32 = 0x1C;
/// Task descriptor list base, low.
pub const CQTDLBA: u32 = 0x20;
/// Task descriptor list base, high.
pub const CQTDLBAU: u32 = 0x24;
/// Doorbell: a bit for each task, write one to set.
pub const CQTDBR: u32 = 0x28;
/// Task completion notification: a bit for each task, write one to clear.
pub const CQTCN: u32 = 0x2C;
/// The queue status register as the device last sent it.
pub const CQDQS: u32 = 0x30;
/// Tasks that the device holds and has not completed.
pub const CQDPT: u32 = 0x34;
/// Task clear.
pub const CQTCLR: u32 = 0x38;
/// Send status configuration 1: timer 15:0, block counter 19:16.
pub const CQSSC1: u32 = 0x40;
/// Send status configuration 2: the card's relative address.
pub const CQSSC2: u32 = 0x44;
/// Response of the last direct command.
pub const CQCRDCT: u32 = 0x48;
/// The bits of a response that mean an error.
pub const CQRMEM: u32 = 0x50;
/// Task error information, [`Cqterri`].
pub const CQTERRI: u32 = 0x54;
/// Index of the last response.
pub const CQCRI: u32 = 0x58;
/// Content of the last response.
pub const CQCRA: u32 = 0x5C;

/// Reset value of [`CQRMEM`]: the bits that annex B lists as errors.
pub const RMEM_DEFAULT: u32 = 0xFDF9_A080;
/// Number of tasks.
pub const TASKS: u8 = 32;
/// The task number used for direct commands.
pub const DIRECT: u8 = 31;
/// Interrupt coalescing: enable.
pub const IC_ENABLE: u32 = 1 << 31;
/// Interrupt coalescing: this write sets the counter threshold.
pub const IC_THRESHOLD_WRITE: u32 = 1 << 15;
/// Interrupt coalescing: this write sets the timer value.
pub const IC_TIMER_WRITE: u32 = 1 << 7;
/// Interrupt coalescing: resets counter and timer.
pub const IC_RESET: u32 = 1 << 16;

/// CQCFG.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Cqcfg {
    /// Engine enabled.
    pub enable: bool,
    /// Inline encryption.
    pub crypto: bool,
    #[bits(6)]
    __: u8,
    /// Task descriptors have 128 bits.
    pub descriptors_128: bool,
    #[bits(3)]
    __: u8,
    /// Task 31 is used for direct commands.
    pub direct: bool,
    #[bits(19)]
    __: u32,
}

/// CQCTL.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Cqctl {
    /// Stops before the next task; reads as one once stopped.
    pub halt: bool,
    #[bits(7)]
    __: u8,
    /// Discards all tasks; only while halted.
    pub clear_all: bool,
    #[bits(23)]
    __: u32,
}

/// CQIS, CQISTE, CQISGE.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Cqis {
    /// HAC: halted.
    pub halted: bool,
    /// TCC: tasks completed.
    pub complete: bool,
    /// RED: a response with an error.
    pub response_error: bool,
    /// TCL: tasks were cleared.
    pub cleared: bool,
    /// GCE: a general crypto error.
    pub crypto_error: bool,
    /// ICCE: invalid crypto configuration.
    pub key_error: bool,
    #[bits(26)]
    __: u32,
}

/// CQTERRI.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Cqterri {
    /// Index of the command whose response had an error.
    #[bits(6)]
    pub command: u8,
    #[bits(2)]
    __: u8,
    /// Its task.
    #[bits(5)]
    pub command_task: u8,
    #[bits(2)]
    __: u8,
    /// The preceding fields are valid.
    pub command_valid: bool,
    /// Index of the command whose data had an error.
    #[bits(6)]
    pub data_command: u8,
    #[bits(2)]
    __: u8,
    /// Its task.
    #[bits(5)]
    pub data_task: u8,
    #[bits(2)]
    __: u8,
    /// The preceding fields are valid.
    pub data_valid: bool,
}

/// Act of a descriptor, bits 5:3.
pub mod act {
    /// Nothing.
    pub const NOP: u8 = 0;
    /// Transfers data.
    pub const TRANSFER: u8 = 4;
    /// A task.
    pub const TASK: u8 = 5;
    /// The address points to a list of transfers.
    pub const LINK: u8 = 6;
}

/// The low 64 bits of a task descriptor; in a 128-bit descriptor the high ones are for encryption.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Task {
    /// Valid.
    pub valid: bool,
    /// Always set.
    pub end: bool,
    /// Completion raises the interrupt at once; if clear, it may be coalesced.
    pub interrupt: bool,
    /// [`act::TASK`].
    #[bits(3)]
    pub act: u8,
    /// Forced programming.
    pub forced: bool,
    /// Context.
    #[bits(4)]
    pub context: u8,
    /// Data tag.
    pub tag: bool,
    /// Data from the device.
    pub read: bool,
    /// Priority.
    pub priority: bool,
    /// QBAR: starts after all earlier tasks have completed and completes before later ones start.
    pub barrier: bool,
    /// Reliable write.
    pub reliable: bool,
    /// Number of blocks.
    pub blocks: u16,
    /// First block.
    pub address: u32,
}

/// The low word of a direct command's descriptor; the high word is its argument.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Direct {
    /// Valid.
    pub valid: bool,
    /// Always set.
    pub end: bool,
    /// Completion raises the interrupt.
    pub interrupt: bool,
    /// [`act::TASK`].
    #[bits(3)]
    pub act: u8,
    #[bits(8)]
    __: u8,
    /// QBAR.
    pub barrier: bool,
    __: bool,
    /// Command index.
    #[bits(6)]
    pub command: u8,
    /// The command may be sent while data is being transferred.
    pub with_data: bool,
    /// 0 none, 2 without busy, 3 with busy.
    #[bits(2)]
    pub response: u8,
    #[bits(7)]
    __: u8,
}

/// Response type of a direct command: none.
pub const RESPONSE_NONE: u8 = 0;
/// Response type of a direct command: R1, R4, R5.
pub const RESPONSE_48: u8 = 2;
/// Response type of a direct command: R1b.
pub const RESPONSE_BUSY: u8 = 3;

/// The first word of a transfer or link descriptor.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Transfer {
    /// Valid.
    pub valid: bool,
    /// This is the last descriptor.
    pub end: bool,
    /// Interrupt.
    pub interrupt: bool,
    /// [`act::TRANSFER`] or [`act::LINK`].
    #[bits(3)]
    pub act: u8,
    #[bits(10)]
    __: u16,
    /// Bytes; 0 is 64 KiB.
    pub length: u16,
}

impl Transfer {
    /// Transfers `len` bytes, at most 64 KiB.
    #[inline]
    pub const fn of(len: u32, end: bool) -> Self {
        Self::new().with_valid(true).with_end(end).with_act(act::TRANSFER).with_length(len as u16)
    }

    /// Points to a list of transfers.
    #[inline]
    pub const fn link() -> Self {
        Self::new().with_valid(true).with_act(act::LINK)
    }
}
