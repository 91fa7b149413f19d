//! Reservations (8.19), by which hosts share a namespace.

use super::layout::layout;
use crate::code::code;

code! {
    /// RTYPE: type of reservation, which determines who may do what (figure 448).
    pub enum ReservationType: u8 {
        /// Only the holder writes.
        WriteExclusive = 1 => "Write Exclusive",
        /// Only the holder reads and writes.
        ExclusiveAccess = 2 => "Exclusive Access",
        /// Only registrants write.
        WriteExclusiveRegistrants = 3 => "Write Exclusive - Registrants Only",
        /// Only registrants read and write.
        ExclusiveAccessRegistrants = 4 => "Exclusive Access - Registrants Only",
        /// Only registrants write, and each of them is a holder.
        WriteExclusiveAll = 5 => "Write Exclusive - All Registrants",
        /// Only registrants read and write, and each of them is a holder.
        ExclusiveAccessAll = 6 => "Exclusive Access - All Registrants",
    }
}

impl ReservationType {
    /// Whether every registrant is a holder.
    pub const fn is_of_all(self) -> bool {
        matches!(self, Self::WriteExclusiveAll | Self::ExclusiveAccessAll)
    }

    /// Whether it also excludes reads by other hosts.
    pub const fn excludes_reads(self) -> bool {
        matches!(
            self,
            Self::ExclusiveAccess | Self::ExclusiveAccessRegistrants | Self::ExclusiveAccessAll
        )
    }
}

/// RREGA of reservation register.
pub mod register {
    /// Register a key.
    pub const REGISTER: u32 = 0;
    /// Remove the registration.
    pub const UNREGISTER: u32 = 1;
    /// Replace the key.
    pub const REPLACE: u32 = 2;
}

/// RACQA of reservation acquire.
pub mod acquire {
    /// Acquire.
    pub const ACQUIRE: u32 = 0;
    /// Take it from another host.
    pub const PREEMPT: u32 = 1;
    /// The same, and abort the other host's commands.
    pub const PREEMPT_AND_ABORT: u32 = 2;
}

/// RRELA of reservation release.
pub mod release {
    /// Release.
    pub const RELEASE: u32 = 0;
    /// Release, and remove all registrants.
    pub const CLEAR: u32 = 1;
}

/// IEKEY in CDW10 of all three: ignore the current key.
pub const IGNORE_KEY: u32 = 1 << 3;

/// Bits of RESCAP in identify namespace.
pub mod rescap {
    /// Reservations can persist through power loss.
    pub const PERSIST: u8 = 1 << 0;
    /// All six types.
    pub const ALL_TYPES: u8 = 0x3F << 1;
}

layout! {
    /// The header of a report (figure 455).
    pub struct ReservationStatus[24] {
        /// GEN: incremented on every change.
        generation: u32 = 0,
        /// RTYPE: 0 for none.
        rtype: u8 = 4,
        /// REGSTRNT: number of registrants.
        regctl: u16 = 5,
        /// PTPLS: reservations persist through power loss.
        ptpls: u8 = 9,
    }
}

/// Bytes before the registrants of an extended report.
pub const EXTENDED_HEADER: usize = 64;

layout! {
    /// A registrant with a host identifier of 64 bits.
    pub struct Registrant[24] {
        /// CNTLID.
        cntlid: u16 = 0,
        /// RCSTS: bit 0, holds the reservation.
        rcsts: u8 = 2,
        /// HOSTID.
        hostid: u64 = 8,
        /// RKEY.
        rkey: u64 = 16,
    }
}

layout! {
    /// A registrant with a host identifier of 128 bits.
    pub struct ExtendedRegistrant[64] {
        /// CNTLID.
        cntlid: u16 = 0,
        /// RCSTS: bit 0, holds the reservation.
        rcsts: u8 = 2,
        /// RKEY.
        rkey: u64 = 8,
        /// HOSTID.
        hostid: [u8; 16] = 16,
    }
}
