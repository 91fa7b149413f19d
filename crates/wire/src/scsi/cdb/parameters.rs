//! The parameters of commands.

use crate::code::code;
use bitfield_struct::bitfield;

/// Byte 1 of READ and WRITE(10) and (16).
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct TransferFlags {
    #[bits(2)]
    __: u8,
    /// RARC: rebuild assist recovery control (READ only).
    #[inline]
    pub rarc: bool,
    /// FUA: force unit access, bypassing the cache.
    #[inline]
    pub fua: bool,
    /// DPO: not worth caching.
    #[inline]
    pub dpo: bool,
    /// RDPROTECT / WRPROTECT.
    #[bits(3)]
    #[inline]
    pub protect: u8,
}

/// A range to read, write, verify or fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// First logical block.
    pub lba: u64,
    /// Logical blocks.
    pub blocks: u32,
    /// Byte 1.
    pub flags: TransferFlags,
    /// GROUP NUMBER: context or system data tag of UFS (JESD220 13.4).
    pub group: u8,
}

impl Transfer {
    /// A plain transfer.
    #[inline]
    pub const fn new(lba: u64, blocks: u32) -> Self {
        const PLAIN: TransferFlags = TransferFlags::new();
        Self { lba, blocks, flags: PLAIN, group: 0 }
    }
}

/// A range for SYNCHRONIZE CACHE and PRE-FETCH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheRange {
    /// First logical block.
    pub lba: u64,
    /// Logical blocks; zero extends to the end.
    pub blocks: u32,
    /// IMMED: respond before completion.
    pub immed: bool,
    /// GROUP NUMBER.
    pub group: u8,
}

code! {
    /// BYTCHK of VERIFY.
    pub enum ByteCheck: u8 {
        /// The device checks the medium on its own.
        Medium = 0 => "no comparison",
        /// The device compares with the data sent.
        Compare = 1 => "comparison",
    }
}

/// VERIFY(10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verify {
    /// First logical block.
    pub lba: u32,
    /// Logical blocks.
    pub blocks: u16,
    /// DPO: not worth caching.
    pub dpo: bool,
    /// BYTCHK.
    pub bytchk: ByteCheck,
    /// GROUP NUMBER.
    pub group: u8,
}

code! {
    /// POWER CONDITION of START STOP UNIT to the UFS DEVICE unit (JESD220 7.4).
    pub enum PowerCondition: u8 {
        /// START and LOEJ are valid.
        StartValid = 0 => "START_VALID",
        /// Active.
        Active = 1 => "ACTIVE",
        /// UFS-Sleep.
        Sleep = 2 => "UFS-SLEEP",
        /// UFS-PowerDown.
        PowerDown = 3 => "UFS-POWERDOWN",
        /// UFS-DeepSleep.
        DeepSleep = 4 => "UFS-DEEPSLEEP",
    }
}

/// START STOP UNIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartStop {
    /// IMMED: respond before completion.
    pub immed: bool,
    /// POWER CONDITION.
    pub power_condition: PowerCondition,
    /// POWER CONDITION MODIFIER.
    pub modifier: u8,
    /// NO_FLUSH: the cache need not be written first.
    pub no_flush: bool,
    /// LOEJ.
    pub loej: bool,
    /// START.
    pub start: bool,
}

impl StartStop {
    /// Starts or stops a unit, and with `loej` loads or ejects its medium.
    pub const fn new(start: bool, loej: bool) -> Self {
        let power_condition = PowerCondition::StartValid;
        Self { immed: false, power_condition, modifier: 0, no_flush: false, loej, start }
    }
}

code! {
    /// PC of MODE SENSE: which values to return.
    pub enum PageControl: u8 {
        /// Current values.
        Current = 0 => "current",
        /// A mask of the bits that can be changed.
        Changeable = 1 => "changeable",
        /// Default values.
        Default = 2 => "default",
        /// Saved values.
        Saved = 3 => "saved",
    }
}

/// MODE SENSE(6) and (10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSense {
    /// PAGE CODE; 0x3F is all.
    pub page: u8,
    /// SUBPAGE CODE; 0xFF is all.
    pub subpage: u8,
    /// PC.
    pub control: PageControl,
    /// DBD: no block descriptors.
    pub dbd: bool,
    /// LLBAA: long block descriptors are accepted; not in MODE SENSE(6).
    pub llbaa: bool,
    /// ALLOCATION LENGTH; one byte in MODE SENSE(6).
    pub allocation_length: u16,
}

/// MODE SELECT(6) and (10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSelect {
    /// PF: the parameters are pages.
    pub pf: bool,
    /// SP: save the pages.
    pub sp: bool,
    /// PARAMETER LIST LENGTH; one byte in MODE SELECT(6).
    pub parameter_list_length: u16,
}

code! {
    /// MODE of READ BUFFER and WRITE BUFFER.
    pub enum BufferMode: u8 {
        /// Vendor specific.
        Vendor = 0x01 => "vendor specific",
        /// Data.
        Data = 0x02 => "data",
        /// READ BUFFER: descriptor.
        Descriptor = 0x03 => "descriptor",
        /// WRITE BUFFER: microcode with offsets, saved and activated later: field firmware update.
        DownloadDeferred = 0x0E => "download microcode with offsets, save, and defer activate",
        /// READ BUFFER: error history.
        ErrorHistory = 0x1C => "error history",
    }
}

/// READ BUFFER(10) and WRITE BUFFER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// MODE.
    pub mode: BufferMode,
    /// MODE SPECIFIC.
    pub mode_specific: u8,
    /// BUFFER ID.
    pub id: u8,
    /// BUFFER OFFSET, 24 bits.
    pub offset: u32,
    /// ALLOCATION LENGTH or PARAMETER LIST LENGTH, 24 bits.
    pub length: u32,
}

code! {
    /// SELECT REPORT of REPORT LUNS.
    pub enum SelectReport: u8 {
        /// Logical units, no well-known ones.
        LogicalUnits = 0x00 => "logical units",
        /// Well-known logical units only.
        WellKnown = 0x01 => "well known logical units",
        /// Both.
        All = 0x02 => "all",
    }
}

/// SECURITY PROTOCOL IN and OUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Security {
    /// SECURITY PROTOCOL, [`SECURITY_PROTOCOL_UFS`](super::SECURITY_PROTOCOL_UFS) for RPMB.
    pub protocol: u8,
    /// SECURITY PROTOCOL SPECIFIC: 0x0001, with the RPMB region in the high byte.
    pub specific: u16,
    /// INC_512: the length is in units of 512 bytes; UFS requires it to be clear.
    pub inc_512: bool,
    /// ALLOCATION LENGTH or TRANSFER LENGTH.
    pub length: u32,
}
