//! Multi-circular queues (UFSHCI 4.0): the queue configuration bank, one entry of [`STRIDE`] bytes
//! per queue from [`McqCap::bank_offset`] on, and the operation and run-time registers to which it
//! points.

use crate::code::code;
use bitfield_struct::bitfield;

/// Distance from one queue's entry to the next, bytes.
pub const STRIDE: u32 = 0x40;
/// Unit of [`McqCap::qcfgptr`](super::McqCap::qcfgptr), bytes.
pub const BANK_UNIT: u32 = 0x200;
/// Submission queue attribute, [`SqAttr`].
pub const SQATTR: u32 = 0x00;
/// Submission queue base, low half.
pub const SQLBA: u32 = 0x04;
/// Submission queue base, high half.
pub const SQUBA: u32 = 0x08;
/// Offset of this queue's SQHP block, bytes from the start of the register space.
pub const SQDAO: u32 = 0x0C;
/// Offset of this queue's SQIS block, bytes from the start of the register space.
pub const SQISAO: u32 = 0x10;
/// Submission queue configuration.
pub const SQCFG: u32 = 0x14;
/// Completion queue attribute, [`CqAttr`].
pub const CQATTR: u32 = 0x20;
/// Completion queue base, low half.
pub const CQLBA: u32 = 0x24;
/// Completion queue base, high half.
pub const CQUBA: u32 = 0x28;
/// Offset of this queue's CQHP block, bytes from the start of the register space.
pub const CQDAO: u32 = 0x2C;
/// Offset of this queue's CQIS block, bytes from the start of the register space.
pub const CQISAO: u32 = 0x30;
/// Completion queue configuration.
pub const CQCFG: u32 = 0x34;

// Submission queue operation and run-time block, relative to SQDAO.

/// Submission queue head, byte offset into the ring; advanced by the controller.
pub const SQHP: u32 = 0x00;
/// Submission queue tail, byte offset into the ring; advanced by the host: the doorbell.
pub const SQTP: u32 = 0x04;
/// Submission queue run-time command, [`SqRtc`].
pub const SQRTC: u32 = 0x08;
/// Submission queue clean-up target, [`SqCti`].
pub const SQCTI: u32 = 0x0C;
/// Submission queue run-time status, [`SqRts`].
pub const SQRTS: u32 = 0x10;

// Submission queue interrupt block, relative to SQISAO.

/// Submission queue interrupt status, write one to clear.
pub const SQIS: u32 = 0x00;
/// Submission queue interrupt enable.
pub const SQIE: u32 = 0x04;

// Completion queue operation and run-time block, relative to CQDAO.

/// Completion queue head, byte offset into the ring; advanced by the host.
pub const CQHP: u32 = 0x00;
/// Completion queue tail, byte offset into the ring; advanced by the controller.
pub const CQTP: u32 = 0x04;

// Completion queue interrupt block, relative to CQISAO.

/// Completion queue interrupt status, write one to clear, [`CqInterrupts`].
pub const CQIS: u32 = 0x00;
/// Completion queue interrupt enable, [`CqInterrupts`].
pub const CQIE: u32 = 0x04;
/// Completion queue interrupt aggregation,
/// [`InterruptAggregation`](super::InterruptAggregation).
pub const MCQIACR: u32 = 0x08;

/// MCQCAP, multi-circular queue capabilities.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct McqCap {
    /// MAXQ: queues of each kind minus one. Prefer [`queues`](Self::queues).
    pub maxq: u8,
    /// SP: strict priority between submission queues.
    pub sp: bool,
    /// RRP: round robin between submission queues.
    pub rrp: bool,
    /// EIS: EXT_IID is supported.
    pub eis: bool,
    #[bits(5)]
    __: u8,
    /// QCFGPTR: offset of the queue configuration bank, in units of 0x200 bytes.
    pub qcfgptr: u8,
    /// MIAG: interrupt aggregation groups.
    pub miag: u8,
}

impl McqCap {
    /// Submission (and completion) queues of the controller, 1..=256.
    #[inline]
    pub const fn queues(self) -> u32 {
        self.maxq() as u32 + 1
    }

    /// Offset of queue 0's configuration entry, bytes from the start of the register space.
    #[inline]
    pub const fn bank_offset(self) -> u32 {
        self.qcfgptr() as u32 * BANK_UNIT
    }

    /// Offset of a queue's configuration entry, bytes from the start of the register space.
    #[inline]
    pub const fn queue_offset(self, queue: u8) -> u32 {
        self.bank_offset() + queue as u32 * STRIDE
    }
}

/// CONFIG, global configuration (UFSHCI 4.0).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Config {
    /// QT: queue type, set for multi-circular queues.
    pub qt: bool,
    /// ESIE: event-specific interrupts are on.
    pub esie: bool,
    #[bits(30)]
    __: u32,
}

/// MCQCONFIG, multi-circular queue configuration (UFSHCI 4.0).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct McqConfig {
    /// AS: arbitration scheme.
    #[bits(2)]
    pub arbitration: u8,
    #[bits(6)]
    __: u8,
    /// MAC: maximum active commands, minus one.
    #[bits(9)]
    pub mac: u16,
    #[bits(15)]
    __: u16,
}

impl McqConfig {
    /// Configuration for this many active commands, at least one and at most 256.
    pub const fn with_active_commands(self, commands: u32) -> Self {
        let clamped = if commands == 0 {
            1
        } else if commands > 256 {
            256
        } else {
            commands
        };
        self.with_mac((clamped - 1) as u16)
    }

    /// Maximum active commands.
    pub const fn active_commands(self) -> u32 {
        self.mac() as u32 + 1
    }
}

/// SQATTR, submission queue attribute.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct SqAttr {
    /// SIZE: ring length in dwords minus one, see [`ring_size_field`].
    pub size: u16,
    /// CQID: the completion queue for its requests.
    pub cqid: u8,
    #[bits(4)]
    __: u8,
    /// SQPL: priority.
    #[bits(3)]
    pub sqpl: u8,
    /// SQEN: enabled.
    pub sqen: bool,
}

/// CQATTR, completion queue attribute.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CqAttr {
    /// SIZE: ring length in dwords minus one, see [`ring_size_field`].
    pub size: u16,
    #[bits(15)]
    __: u16,
    /// CQEN: enabled.
    pub cqen: bool,
}

/// SIZE of SQATTR and CQATTR for a ring of `entries` entries of 32 bytes: dwords minus one. `None`
/// for an empty ring or one too large for the field (more than 8192 entries).
pub const fn ring_size_field(entries: u32) -> Option<u16> {
    match entries {
        1..=8192 => Some((entries * 8 - 1) as u16),
        _ => None,
    }
}

/// The number of whole 32-byte entries for a SIZE field.
pub const fn ring_entries(size_field: u16) -> u32 {
    (size_field as u32 + 1) / 8
}

/// SQRTC, submission queue run-time command.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct SqRtc {
    /// STOP: stop fetching; clear to resume.
    pub stop: bool,
    /// ICU: initiate clean-up of the command in SQCTI.
    pub icu: bool,
    #[bits(30)]
    __: u32,
}

/// SQCTI, submission queue clean-up target: the nexus of one command.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct SqCti {
    /// Task tag.
    pub task_tag: u8,
    /// Logical unit.
    pub lun: u8,
    /// IID: initiator.
    #[bits(4)]
    pub iid: u8,
    /// EXT_IID: initiator, high part.
    #[bits(4)]
    pub ext_iid: u8,
    __: u8,
}

code! {
    /// SQRTS.RTC: how a clean-up ended. No public implementation names these codes.
    pub enum CleanUpResult: u8 {
        /// The command was removed.
        Success = 0 => "Success",
        /// The controller did not find the command.
        TaskNotFound = 1 => "Task not found",
        /// The queue was not stopped.
        NotStopped = 2 => "SQ not stopped",
        /// The queue is not enabled.
        NotEnabled = 3 => "SQ not enabled",
    }
}

/// SQRTS, submission queue run-time status.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct SqRts {
    /// STS: the queue is stopped.
    pub sts: bool,
    /// CUS: the clean-up is complete.
    pub cus: bool,
    #[bits(2)]
    __: u8,
    /// RTC: how the clean-up ended.
    #[bits(4)]
    pub rtc: CleanUpResult,
    #[bits(24)]
    __: u32,
}

/// CQCFG: completion queue configuration.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CqCfg {
    /// IAG: the interrupt aggregation group, whose MCQIACR applies.
    #[bits(5)]
    pub iag: u8,
    #[bits(3)]
    __: u8,
    /// IAGVLD: the queue belongs to that group.
    pub iagvld: bool,
    #[bits(23)]
    __: u32,
}

/// CQIS and CQIE: completion queue interrupt causes.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CqInterrupts {
    /// TEPS / TEPE: the tail moved.
    #[inline]
    pub teps: bool,
    #[bits(31)]
    __: u32,
}
