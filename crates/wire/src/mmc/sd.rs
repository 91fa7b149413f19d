//! What SD cards have of their own (SD 4.7, 5.6, 4.3.10).

use crate::bytes::be16;

/// CMD3: gives the card's relative address.
pub const SEND_RELATIVE_ADDR: u8 = 3;
/// CMD8: interface condition.
pub const SEND_IF_COND: u8 = 8;
/// Argument of CMD8: 2.7 to 3.6 V and a pattern that comes back.
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
/// ACMD41: the host has high capacity.
pub const HCS: u32 = 1 << 30;
/// ACMD41: the host asks for 1.8 V signalling, and the card grants it.
pub const S18: u32 = 1 << 24;
/// ACMD41: full power.
pub const XPC: u32 = 1 << 28;
/// ACMD41: 2.7 to 3.6 V.
pub const VOLTAGES: u32 = 0x00FF_8000;
/// CMD6: asks or sets functions; the status has 64 bytes.
pub const SWITCH_STATUS: usize = 64;
/// CMD6: sets, else only asks.
pub const SWITCH_SET: u32 = 1 << 31;
/// CMD6: leaves all function groups alone.
pub const SWITCH_KEEP: u32 = 0x00FF_FFFF;
/// Function of group 1, access mode: high speed, SDR25.
pub const HIGH_SPEED: u8 = 1;

/// Argument of CMD6 that chooses `function` of group 1.
pub const fn access_mode(set: bool, function: u8) -> u32 {
    let keep = SWITCH_KEEP & !0xF | function as u32;
    if set { keep | SWITCH_SET } else { keep }
}

/// Functions of group 1 that the card has, of a switch status.
pub fn access_modes(status: &[u8; SWITCH_STATUS]) -> u16 {
    be16(status, 12)
}

/// The function of group 1 that is in force, of a switch status; 0xF if it could not be.
pub fn access_mode_of(status: &[u8; SWITCH_STATUS]) -> u8 {
    status[16] & 0xF
}

/// SD configuration register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scr {
    /// SD_SPEC: 2 from version 2.00 on.
    pub version: u8,
    /// DATA_STAT_AFTER_ERASE: what erased blocks read as, 0 or 1.
    pub erased_ones: bool,
    /// SD_BUS_WIDTHS: four lines.
    pub four_lines: bool,
    /// CMD23.
    pub block_count: bool,
}

impl Scr {
    /// Bytes.
    pub const LENGTH: usize = 8;

    /// The register in these bytes.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        Self {
            version: bytes[0] & 0xF,
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
        bytes[3] = u8::from(self.block_count) << 1;
        bytes
    }
}
