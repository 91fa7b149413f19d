//! Submission queue entries (3.3.3.1) and their opcodes.

use crate::code::code;
use bitfield_struct::bitfield;

/// Length of an entry, bytes.
pub const LENGTH: usize = 64;
/// Words of 64 bits in an entry.
pub const WORDS: usize = LENGTH / 8;

code! {
    /// Admin commands (5).
    pub enum AdminOpcode: u8 {
        /// Delete I/O submission queue.
        DeleteSq = 0x00 => "Delete I/O Submission Queue",
        /// Create I/O submission queue.
        CreateSq = 0x01 => "Create I/O Submission Queue",
        /// Get log page.
        GetLogPage = 0x02 => "Get Log Page",
        /// Delete I/O completion queue.
        DeleteCq = 0x04 => "Delete I/O Completion Queue",
        /// Create I/O completion queue.
        CreateCq = 0x05 => "Create I/O Completion Queue",
        /// Identify.
        Identify = 0x06 => "Identify",
        /// Abort.
        Abort = 0x08 => "Abort",
        /// Set features.
        SetFeatures = 0x09 => "Set Features",
        /// Get features.
        GetFeatures = 0x0A => "Get Features",
        /// Asynchronous event request.
        AsyncEvent = 0x0C => "Asynchronous Event Request",
        /// Namespace management.
        NamespaceManagement = 0x0D => "Namespace Management",
        /// Firmware commit.
        FirmwareCommit = 0x10 => "Firmware Commit",
        /// Firmware image download.
        FirmwareDownload = 0x11 => "Firmware Image Download",
        /// Device self-test.
        SelfTest = 0x14 => "Device Self-test",
        /// Namespace attachment.
        NamespaceAttachment = 0x15 => "Namespace Attachment",
        /// Keep alive.
        KeepAlive = 0x18 => "Keep Alive",
        /// Directive send.
        DirectiveSend = 0x19 => "Directive Send",
        /// Directive receive.
        DirectiveReceive = 0x1A => "Directive Receive",
        /// Doorbell buffer config.
        DoorbellBufferConfig = 0x7C => "Doorbell Buffer Config",
        /// Format NVM.
        FormatNvm = 0x80 => "Format NVM",
        /// Security send.
        SecuritySend = 0x81 => "Security Send",
        /// Security receive.
        SecurityReceive = 0x82 => "Security Receive",
        /// Sanitize.
        Sanitize = 0x84 => "Sanitize",
        /// Get LBA status.
        GetLbaStatus = 0x86 => "Get LBA Status",
    }
}

code! {
    /// Commands of the NVM and zoned command sets.
    pub enum NvmOpcode: u8 {
        /// Flush.
        Flush = 0x00 => "Flush",
        /// Write.
        Write = 0x01 => "Write",
        /// Read.
        Read = 0x02 => "Read",
        /// Write uncorrectable.
        WriteUncorrectable = 0x04 => "Write Uncorrectable",
        /// Compare.
        Compare = 0x05 => "Compare",
        /// Write zeroes.
        WriteZeroes = 0x08 => "Write Zeroes",
        /// Dataset management: deallocate.
        DatasetManagement = 0x09 => "Dataset Management",
        /// Verify.
        Verify = 0x0C => "Verify",
        /// Reservation register.
        ReservationRegister = 0x0D => "Reservation Register",
        /// Reservation report.
        ReservationReport = 0x0E => "Reservation Report",
        /// Reservation acquire.
        ReservationAcquire = 0x11 => "Reservation Acquire",
        /// Reservation release.
        ReservationRelease = 0x15 => "Reservation Release",
        /// Copy.
        Copy = 0x19 => "Copy",
        /// Zone management send.
        ZoneSend = 0x79 => "Zone Management Send",
        /// Zone management receive.
        ZoneReceive = 0x7A => "Zone Management Receive",
        /// Zone append.
        ZoneAppend = 0x7D => "Zone Append",
    }
}

/// A submission queue entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sqe {
    /// OPC.
    pub opcode: u8,
    /// FUSE and PSDT.
    pub flags: SqeFlags,
    /// CID.
    pub cid: u16,
    /// NSID.
    pub nsid: u32,
    /// CDW2 and CDW3.
    pub cdw2: [u32; 2],
    /// MPTR.
    pub metadata: u64,
    /// DPTR: PRP1 and PRP2, or one SGL descriptor.
    pub data: [u64; 2],
    /// CDW10 to CDW15.
    pub cdw10: [u32; 6],
}

/// Bits 15:8 of DW0.
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct SqeFlags {
    /// FUSE: 0 for a normal command, 1 for the first and 2 for the second of a fused pair.
    #[bits(2)]
    pub fuse: u8,
    #[bits(4)]
    __: u8,
    /// PSDT: 0 for PRPs, 1 for an SGL with contiguous metadata, 2 for SGLs of both.
    #[bits(2)]
    pub psdt: u8,
}

/// Combines two dwords into a word.
#[inline(always)]
const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

impl Sqe {
    /// The entry as 64-bit words, as they lie in memory.
    #[inline(always)]
    pub const fn to_words(&self) -> [u64; WORDS] {
        let dw0 =
            self.opcode as u32 | (self.flags.into_bits() as u32) << 8 | (self.cid as u32) << 16;
        let c = &self.cdw10;
        [
            pair(dw0, self.nsid).to_le(),
            pair(self.cdw2[0], self.cdw2[1]).to_le(),
            self.metadata.to_le(),
            self.data[0].to_le(),
            self.data[1].to_le(),
            pair(c[0], c[1]).to_le(),
            pair(c[2], c[3]).to_le(),
            pair(c[4], c[5]).to_le(),
        ]
    }

    /// Reads the entry from these words of memory.
    #[inline]
    pub const fn from_words(words: [u64; WORDS]) -> Self {
        const fn low(word: u64) -> u32 {
            u64::from_le(word) as u32
        }
        const fn high(word: u64) -> u32 {
            (u64::from_le(word) >> 32) as u32
        }
        let dw0 = low(words[0]);
        Self {
            opcode: dw0 as u8,
            flags: SqeFlags::from_bits((dw0 >> 8) as u8),
            cid: (dw0 >> 16) as u16,
            nsid: high(words[0]),
            cdw2: [low(words[1]), high(words[1])],
            metadata: u64::from_le(words[2]),
            data: [u64::from_le(words[3]), u64::from_le(words[4])],
            cdw10: [
                low(words[5]),
                high(words[5]),
                low(words[6]),
                high(words[6]),
                low(words[7]),
                high(words[7]),
            ],
        }
    }

    /// SLBA of a command that addresses blocks.
    #[inline]
    pub const fn slba(&self) -> u64 {
        pair(self.cdw10[0], self.cdw10[1])
    }
}

/// CDW12 of read, write, compare, write zeroes and verify (NVM command set 3.2).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct TransferFlags {
    /// NLB: blocks minus one.
    #[inline]
    pub nlb: u16,
    #[bits(9)]
    __: u16,
    /// DEAC: write zeroes may deallocate.
    pub deac: bool,
    /// PRINFO: protection information.
    #[bits(4)]
    pub prinfo: u8,
    /// FUA: force unit access.
    #[inline]
    pub fua: bool,
    /// LR: limited retry.
    pub lr: bool,
}

/// Maximum blocks of one transfer: [`TransferFlags::nlb`] counts from zero.
pub const BLOCKS_MAX: u32 = 1 << 16;

/// A range of dataset management (NVM command set 3.2.3.1), 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DsmRange {
    /// Context attributes.
    pub attributes: u32,
    /// Length, blocks.
    pub blocks: u32,
    /// First block.
    pub slba: u64,
}

/// Length of a [`DsmRange`], bytes.
pub const DSM_RANGE: usize = 16;
/// Maximum ranges of one command.
pub const DSM_RANGES_MAX: usize = 256;
/// CDW11 of dataset management: deallocate.
pub const DSM_DEALLOCATE: u32 = 1 << 2;

impl DsmRange {
    /// The range as bytes.
    pub fn to_bytes(self) -> [u8; DSM_RANGE] {
        let mut bytes = [0; DSM_RANGE];
        bytes[0..4].copy_from_slice(&self.attributes.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.slba.to_le_bytes());
        bytes
    }

    /// Parses a range.
    pub fn parse(bytes: &[u8; DSM_RANGE]) -> Self {
        use crate::bytes::{le32, le64};
        Self { attributes: le32(bytes, 0), blocks: le32(bytes, 4), slba: le64(bytes, 8) }
    }
}

crate::nvme::layout::layout! {
    /// A source range of copy, descriptor format 0 (NVM command set 3.2.2).
    pub struct CopySource[32] {
        /// SLBA: first block.
        slba: u64 = 8,
        /// NLB: blocks minus one.
        nlb: u16 = 16,
    }
}

/// CDW12 of copy.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CopyFlags {
    /// NR: sources minus one.
    pub nr: u8,
    /// DESFMT: format of the descriptors.
    #[bits(4)]
    pub desfmt: u8,
    /// PRINFOR: protection information of the data read.
    #[bits(4)]
    pub prinfor: u8,
    #[bits(14)]
    __: u16,
    /// FUA.
    pub fua: bool,
    /// LR: limited retry.
    pub lr: bool,
}

/// CDW11 of create I/O completion queue (5.2.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CreateCqFlags {
    /// PC: physically contiguous.
    pub pc: bool,
    /// IEN: completions raise interrupts.
    pub ien: bool,
    #[bits(14)]
    __: u16,
    /// IV: interrupt vector.
    pub iv: u16,
}

/// CDW11 of create I/O submission queue (5.2.2).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CreateSqFlags {
    /// PC: physically contiguous.
    pub pc: bool,
    /// QPRIO: priority.
    #[bits(2)]
    pub qprio: u8,
    #[bits(13)]
    __: u16,
    /// CQID: the completion queue of its commands.
    pub cqid: u16,
}

/// CDW10 of the commands that create a queue: its identifier, and its entries minus one.
pub const fn queue_and_size(queue: u16, entries: u16) -> u32 {
    queue as u32 | (entries.wrapping_sub(1) as u32) << 16
}
