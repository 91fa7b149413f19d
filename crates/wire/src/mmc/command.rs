//! Commands of the bus (6.10) and their arguments.

use crate::code::code;
use bitfield_struct::bitfield;

code! {
    /// Command indices (6.10.4). SD cards give some of them other meanings, see [`sd`](super::sd).
    pub enum CommandIndex: u8 {
        /// CMD0.
        GoIdleState = 0 => "GO_IDLE_STATE",
        /// CMD1.
        SendOpCond = 1 => "SEND_OP_COND",
        /// CMD2.
        AllSendCid = 2 => "ALL_SEND_CID",
        /// CMD3.
        SetRelativeAddr = 3 => "SET_RELATIVE_ADDR",
        /// CMD5.
        SleepAwake = 5 => "SLEEP_AWAKE",
        /// CMD6.
        Switch = 6 => "SWITCH",
        /// CMD7.
        SelectCard = 7 => "SELECT/DESELECT_CARD",
        /// CMD8.
        SendExtCsd = 8 => "SEND_EXT_CSD",
        /// CMD9.
        SendCsd = 9 => "SEND_CSD",
        /// CMD10.
        SendCid = 10 => "SEND_CID",
        /// CMD11, SD: switch to 1.8 V signalling.
        VoltageSwitch = 11 => "VOLTAGE_SWITCH",
        /// CMD12.
        StopTransmission = 12 => "STOP_TRANSMISSION",
        /// CMD13.
        SendStatus = 13 => "SEND_STATUS",
        /// CMD16.
        SetBlocklen = 16 => "SET_BLOCKLEN",
        /// CMD17.
        ReadSingleBlock = 17 => "READ_SINGLE_BLOCK",
        /// CMD18.
        ReadMultipleBlock = 18 => "READ_MULTIPLE_BLOCK",
        /// CMD19, SD: tuning block.
        SdSendTuningBlock = 19 => "SEND_TUNING_BLOCK (SD)",
        /// CMD21.
        SendTuningBlock = 21 => "SEND_TUNING_BLOCK",
        /// CMD23.
        SetBlockCount = 23 => "SET_BLOCK_COUNT",
        /// CMD24.
        WriteBlock = 24 => "WRITE_BLOCK",
        /// CMD25.
        WriteMultipleBlock = 25 => "WRITE_MULTIPLE_BLOCK",
        /// CMD28.
        SetWriteProt = 28 => "SET_WRITE_PROT",
        /// CMD29.
        ClrWriteProt = 29 => "CLR_WRITE_PROT",
        /// CMD30.
        SendWriteProt = 30 => "SEND_WRITE_PROT",
        /// CMD31.
        SendWriteProtType = 31 => "SEND_WRITE_PROT_TYPE",
        /// CMD32, SD.
        SdEraseStart = 32 => "ERASE_WR_BLK_START",
        /// CMD33, SD.
        SdEraseEnd = 33 => "ERASE_WR_BLK_END",
        /// CMD35.
        EraseGroupStart = 35 => "ERASE_GROUP_START",
        /// CMD36.
        EraseGroupEnd = 36 => "ERASE_GROUP_END",
        /// CMD38.
        Erase = 38 => "ERASE",
        /// CMD44.
        QueuedTaskParams = 44 => "QUEUED_TASK_PARAMS",
        /// CMD45.
        QueuedTaskAddress = 45 => "QUEUED_TASK_ADDRESS",
        /// CMD46.
        ExecuteReadTask = 46 => "EXECUTE_READ_TASK",
        /// CMD47.
        ExecuteWriteTask = 47 => "EXECUTE_WRITE_TASK",
        /// CMD48.
        CmdqTaskMgmt = 48 => "CMDQ_TASK_MGMT",
        /// CMD55.
        AppCmd = 55 => "APP_CMD",
    }
}

/// CMD0 with this argument puts the card into pre-idle: a software reset of everything.
pub const GO_PRE_IDLE: u32 = 0xF0F0_F0F0;
/// OCR of CMD1: the card is powered up.
pub const OCR_POWERED_UP: u32 = 1 << 31;
/// OCR of CMD1: sectors are addressed, not bytes.
pub const OCR_SECTOR_MODE: u32 = 1 << 30;
/// OCR of CMD1: the voltage windows.
pub const OCR_VOLTAGES: u32 = 0x00FF_8080;
/// CMD5: set to sleep, clear to wake up.
pub const SLEEP: u32 = 1 << 15;
/// CMD12 and CMD13: high priority interrupt (6.6.23).
pub const HPI: u32 = 1;
/// CMD13: the queue status register instead of the device status (6.6.39.4).
pub const SEND_QUEUE_STATUS: u32 = 1 << 15;
/// CMD48: discard every task.
pub const DISCARD_QUEUE: u32 = 1;
/// CMD48: discard one task, its number in bits 20:16.
pub const DISCARD_TASK: u32 = 2;
/// Bytes in the tuning block, on a bus of four and of eight lines.
pub const TUNING_BLOCK: [u16; 2] = [64, 128];

/// A relative card address at the position where commands expect it.
pub const fn rca(address: u16) -> u32 {
    (address as u32) << 16
}

/// CMD6 (6.10.4): how it changes a byte of EXT_CSD.
pub mod access {
    /// Selects a command set.
    pub const COMMAND_SET: u8 = 0;
    /// Sets the bits that are set in the value.
    pub const SET_BITS: u8 = 1;
    /// Clears the bits that are set in the value.
    pub const CLEAR_BITS: u8 = 2;
    /// Writes the value to the byte.
    pub const WRITE_BYTE: u8 = 3;
}

/// Argument of CMD6.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct SwitchArgument {
    /// Cmd Set; 1 when a byte is written.
    #[bits(3)]
    pub set: u8,
    #[bits(5)]
    __: u8,
    /// The value.
    pub value: u8,
    /// The byte of EXT_CSD.
    pub index: u8,
    /// One of [`access`].
    #[bits(2)]
    pub access: u8,
    #[bits(6)]
    __: u8,
}

impl SwitchArgument {
    /// Writes `value` to byte `index`.
    pub const fn write(index: u8, value: u8) -> Self {
        Self::new().with_access(access::WRITE_BYTE).with_index(index).with_value(value).with_set(1)
    }
}

/// Argument of CMD23 (6.10.4).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct BlockCount {
    /// Number of blocks.
    pub blocks: u16,
    #[bits(8)]
    __: u8,
    /// Forced programming: bypasses the volatile cache.
    pub forced: bool,
    /// Context.
    #[bits(4)]
    pub context: u8,
    /// The data belongs to the data tag unit.
    pub tag: bool,
    /// Packed command.
    pub packed: bool,
    /// Reliable write.
    pub reliable: bool,
}

/// Argument of CMD44 (6.6.39.2).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct TaskParams {
    /// Number of blocks.
    pub blocks: u16,
    /// Task.
    #[bits(5)]
    pub task: u8,
    #[bits(2)]
    __: u8,
    /// Executed before other tasks.
    pub priority: bool,
    /// Forced programming.
    pub forced: bool,
    /// Context.
    #[bits(4)]
    pub context: u8,
    /// Data tag.
    pub tag: bool,
    /// Read.
    pub read: bool,
    /// Reliable write.
    pub reliable: bool,
}

/// Arguments of CMD38 (6.10.4).
pub mod erase {
    /// Whole erase groups.
    pub const ERASE: u32 = 0;
    /// Sectors, which then read as ERASED_MEM_CONT says.
    pub const TRIM: u32 = 1;
    /// Sectors, whose content is then unspecified.
    pub const DISCARD: u32 = 3;
    /// Whole erase groups and every copy of their data.
    pub const SECURE_ERASE: u32 = 1 << 31;
    /// Marks sectors for a secure purge.
    pub const SECURE_TRIM_1: u32 = 1 << 31 | 1;
    /// Purges the marked sectors.
    pub const SECURE_TRIM_2: u32 = 1 << 31 | 1 << 15;
}
