//! Zones (Zoned Namespace Command Set 1.1).

use super::layout::layout;
use crate::code::code;

/// Identifier of the command set (CSI).
pub const COMMAND_SET: u8 = 2;
/// Bytes before the descriptors of a report.
pub const REPORT_HEADER: usize = 64;

code! {
    /// ZS: the state of a zone (2.3).
    pub enum ZoneState: u8 {
        /// Nothing is written.
        Empty = 0x1 => "EMPTY",
        /// A write opened it.
        ImplicitlyOpened = 0x2 => "IMP_OPENED",
        /// The host opened it.
        ExplicitlyOpened = 0x3 => "EXP_OPENED",
        /// Partly written, and no resources are held for it.
        Closed = 0x4 => "CLOSED",
        /// It can be read but not written.
        ReadOnly = 0xD => "READONLY",
        /// Written to its end or finished.
        Full = 0xE => "FULL",
        /// Its data is lost.
        Offline = 0xF => "OFFLINE",
    }
}

code! {
    /// ZSA: action of zone management send (3.4.3).
    pub enum ZoneAction: u8 {
        /// Close.
        Close = 0x01 => "Close Zone",
        /// Finish.
        Finish = 0x02 => "Finish Zone",
        /// Open.
        Open = 0x03 => "Open Zone",
        /// Reset.
        Reset = 0x04 => "Reset Zone",
        /// Offline.
        Offline = 0x05 => "Offline Zone",
    }
}

/// Bit of CDW13 of zone management send: all zones.
pub const SELECT_ALL: u32 = 1 << 8;
/// Bit of CDW13 of zone management receive: the number of zones counts only those reported.
pub const PARTIAL_REPORT: u32 = 1 << 16;

layout! {
    /// A zone in a report (3.4.2.2.3).
    pub struct ZoneDescriptor[64] {
        /// ZT: 2 is sequential write required.
        zt: u8 = 0,
        /// ZS: the state in bits 7:4.
        zs: u8 = 1,
        /// ZA: attributes.
        za: u8 = 2,
        /// ZAI: information about the attributes.
        zai: u8 = 3,
        /// ZCAP: blocks that can be written.
        zcap: u64 = 8,
        /// ZSLBA: its first block.
        zslba: u64 = 16,
        /// WP: the next block to be written.
        wp: u64 = 24,
    }
}

impl ZoneDescriptor {
    /// ZT of the only defined type.
    pub const SEQUENTIAL: u8 = 2;

    /// The state.
    pub fn state(&self) -> ZoneState {
        ZoneState::from_bits(self.zs >> 4)
    }
}

layout! {
    /// Identify namespace of the zoned command set, CNS 05h.
    pub struct IdentifyZonedNamespace[4096] {
        /// ZOC: zone operation characteristics.
        zoc: u16 = 0,
        /// OZCS: bit 0, reads may cross zones.
        ozcs: u16 = 2,
        /// MAR: maximum active zones, minus one; all ones for no limit.
        mar: u32 = 4,
        /// MOR: maximum open zones, minus one.
        mor: u32 = 8,
        /// RRL: reset recommended limit, seconds.
        rrl: u32 = 12,
        /// FRL: finish recommended limit, seconds.
        frl: u32 = 16,
        /// LBAFE0 to LBAFE63: see [`IdentifyZonedNamespace::zone_blocks`].
        lbafe: [u8; 1024] = 2816,
    }
}

impl IdentifyZonedNamespace {
    /// ZSZE: blocks per zone in the LBA format with this number.
    pub fn zone_blocks(&self, format: u8) -> u64 {
        crate::bytes::le64(&self.lbafe, usize::from(format % 64) * 16)
    }

    /// Sets the blocks per zone in the LBA format with this number.
    pub fn set_zone_blocks(&mut self, format: u8, blocks: u64) {
        crate::bytes::put(&mut self.lbafe, usize::from(format % 64) * 16, blocks.to_le_bytes());
    }
}
