//! Definitions specific to SD cards (SD 4.7, 5.6, 4.3.10).

use crate::bytes::be16;

/// CMD3: the card publishes its relative address.
pub const SEND_RELATIVE_ADDR: u8 = 3;
/// CMD8: interface condition.
pub const SEND_IF_COND: u8 = 8;
/// Argument of CMD8: 2.7 to 3.6 V and a check pattern that the card echoes.
pub const IF_COND: u32 = 0x1AA;
/// ACMD6: bus width.
pub const SET_BUS_WIDTH: u8 = 6;
/// Argument of ACMD6: four lines.
pub const FOUR_LINES: u32 = 2;
/// ACMD13: the SD status, 64 bytes.
pub const SD_STATUS: u8 = 13;
/// ACMD41: operating conditions.
pub const SD_SEND_OP_COND: u8 = 41;
/// ACMD51: SCR, 8 bytes.
pub const SEND_SCR: u8 = 51;
/// ACMD41: the host supports high capacity cards.
pub const HCS: u32 = 1 << 30;
/// ACMD41: the host requests 1.8 V signalling, or the card accepts it.
pub const S18: u32 = 1 << 24;
/// ACMD41: maximum performance power.
pub const XPC: u32 = 1 << 28;
/// ACMD41: 2.7 to 3.6 V.
pub const VOLTAGES: u32 = 0x00FF_8000;
/// ACMD22: number of sectors of the last write that were written without error, 4 bytes.
pub const SEND_NUM_WR_BLOCKS: u8 = 22;
/// ACMD23: a hint of how many sectors the next write will have.
pub const SET_WR_BLK_ERASE_COUNT: u8 = 23;
/// ACMD42: pull-up of DAT3 on or off.
pub const SET_CLR_CARD_DETECT: u8 = 42;
/// Bytes in a tuning block (CMD19).
pub const TUNING_BLOCK: u16 = 64;
/// CMD6 queries or switches functions and returns a status of this many bytes.
pub const SWITCH_STATUS: usize = 64;
/// CMD6: switches; if clear, only queries.
pub const SWITCH_SET: u32 = 1 << 31;
/// CMD6: leaves all function groups unchanged.
pub const SWITCH_KEEP: u32 = 0x00FF_FFFF;
/// CMD6 has four groups of functions with four bits each, the first in the lowest bits, and two
/// reserved ones. This value leaves a group unchanged; in a status it says that the request cannot
/// be met.
pub const SWITCH_NONE: u8 = 0xF;
/// Function of group 1, access mode: high speed, SDR25 (0 is default speed, SDR12).
pub const HIGH_SPEED: u8 = 1;
/// Access mode SDR50: 100 MHz, at 1.8 V like the modes below.
pub const SDR50: u8 = 2;
/// Access mode SDR104: 208 MHz.
pub const SDR104: u8 = 3;
/// Access mode DDR50: 50 MHz, data on both edges.
pub const DDR50: u8 = 4;

/// Argument of CMD6 that selects `function` of group 1.
pub const fn access_mode(set: bool, function: u8) -> u32 {
    let keep = SWITCH_KEEP & !0xF | function as u32;
    if set { keep | SWITCH_SET } else { keep }
}

/// The functions of group 1 that the card supports, from a switch status.
pub fn access_modes(status: &[u8; SWITCH_STATUS]) -> u16 {
    be16(status, 12)
}

/// The selected function of group 1, from a switch status; 0xF if the switch was not possible.
pub fn access_mode_of(status: &[u8; SWITCH_STATUS]) -> u8 {
    status[16] & 0xF
}

/// The card's report on a switch (4.3.10.4): the functions that each group supports, and the one
/// that is or would be selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchStatus {
    /// Maximum current of these functions, mA.
    pub current: u16,
    /// Supported functions of groups 1 to 6, a bit each.
    pub functions: [u16; 6],
    /// The function of each group, or [`SWITCH_NONE`].
    pub chosen: [u8; 6],
}

impl SwitchStatus {
    /// The bytes, with data structure version 0.
    pub fn emit(&self) -> [u8; SWITCH_STATUS] {
        let mut bytes = [0; SWITCH_STATUS];
        bytes[..2].copy_from_slice(&self.current.to_be_bytes());
        for (group, functions) in self.functions.iter().enumerate() {
            bytes[12 - 2 * group..][..2].copy_from_slice(&functions.to_be_bytes());
        }
        for (group, chosen) in self.chosen.iter().enumerate() {
            bytes[16 - group / 2] |= (chosen & 0xF) << (4 * (group % 2));
        }
        bytes
    }
}

/// The part of the SD status (4.10.2) that is used here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SdStatus {
    /// DAT_BUS_WIDTH: four lines.
    pub four_lines: bool,
    /// SPEED_CLASS: 0 to 4 are classes 0, 2, 4, 6 and 10.
    pub speed_class: u8,
    /// AU_SIZE: 1 is 16 KiB, each step doubles it, up to 9.
    pub allocation_unit: u8,
    /// ERASE_SIZE: allocation units erased within ERASE_TIMEOUT.
    pub erase_units: u16,
    /// ERASE_TIMEOUT, seconds.
    pub erase_seconds: u8,
    /// UHS_SPEED_GRADE.
    pub uhs_grade: u8,
}

impl SdStatus {
    /// Length in bytes.
    pub const LENGTH: usize = 64;

    /// The bytes.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[0] = u8::from(self.four_lines) << 7;
        bytes[8] = self.speed_class;
        bytes[10] = self.allocation_unit << 4;
        bytes[11..13].copy_from_slice(&self.erase_units.to_be_bytes());
        bytes[13] = self.erase_seconds << 2;
        bytes[14] = self.uhs_grade << 4;
        bytes
    }
}

/// SD configuration register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scr {
    /// SD_SPEC: 2 from version 2.00 on.
    pub version: u8,
    /// SD_SPEC3: version 3.0x, which has UHS-I.
    pub third: bool,
    /// DATA_STAT_AFTER_ERASE: what erased blocks read as, 0 or 1.
    pub erased_ones: bool,
    /// SD_BUS_WIDTHS: four lines.
    pub four_lines: bool,
    /// CMD23.
    pub block_count: bool,
}

impl Scr {
    /// Length in bytes.
    pub const LENGTH: usize = 8;

    /// The register in these bytes.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        Self {
            version: bytes[0] & 0xF,
            third: bytes[2] & 0x80 != 0,
            erased_ones: bytes[1] & 0x80 != 0,
            four_lines: bytes[1] & 4 != 0,
            block_count: bytes[3] & 2 != 0,
        }
    }

    /// The bytes.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[0] = self.version;
        bytes[1] = u8::from(self.erased_ones) << 7 | 1 | u8::from(self.four_lines) << 2;
        bytes[2] = u8::from(self.third) << 7;
        bytes[3] = u8::from(self.block_count) << 1;
        bytes
    }
}
