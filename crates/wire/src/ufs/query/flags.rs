//! Flags (JESD220 14.2).

use super::{Access, Scope, Since, WriteAccess};
use crate::code::code;

code! {
    /// Identification number of a flag.
    pub enum FlagId: u8 {
        /// Set to start initialisation; the device clears it when done.
        DeviceInit = 0x01 => "fDeviceInit",
        /// Permanent write protection in force.
        PermanentWpEn = 0x02 => "fPermanentWPEn",
        /// Power-on write protection in force.
        PowerOnWpEn = 0x03 => "fPowerOnWPEn",
        /// Background operations allowed.
        BackgroundOpsEn = 0x04 => "fBackgroundOpsEn",
        /// Last longer, be slower.
        DeviceLifeSpanModeEn = 0x05 => "fDeviceLifeSpanModeEn",
        /// Purge.
        PurgeEnable = 0x06 => "fPurgeEnable",
        /// Refresh.
        RefreshEnable = 0x07 => "fRefreshEnable",
        /// Give physical memory back at the next power cycle.
        PhyResourceRemoval = 0x08 => "fPhyResourceRemoval",
        /// The device works on a real time clock update.
        BusyRtc = 0x09 => "fBusyRTC",
        /// No firmware update ever again.
        PermanentlyDisableFwUpdate = 0x0B => "fPermanentlyDisableFwUpdate",
        /// WriteBooster on.
        WriteBoosterEn = 0x0E => "fWriteBoosterEn",
        /// Flush the WriteBooster buffer.
        WriteBoosterBufferFlushEn = 0x0F => "fWriteBoosterBufferFlushEn",
        /// Flush the WriteBooster buffer while the link hibernates.
        WriteBoosterBufferFlushDuringHibernate = 0x10 => "fWriteBoosterBufferFlushDuringHibernate",
        /// Reset host performance booster.
        HpbReset = 0x11 => "fHPBReset",
        /// Host performance booster on.
        HpbEn = 0x12 => "fHPBEn",
        /// Unpin all data in the pinned WriteBooster buffer.
        UnpinEn = 0x13 => "fUnpinEn",
    }
}

/// What there is to know about a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagInfo {
    /// Its identification number; its name is [`FlagId::name`].
    pub id: FlagId,
    /// How it can be accessed.
    pub access: Access,
    /// What the index names.
    pub scope: Scope,
    /// Since when it exists.
    pub since: Since,
}

impl FlagId {
    /// What there is to know about it; `None` for a number without a name.
    pub fn info(self) -> Option<&'static FlagInfo> {
        FLAGS.iter().find(|info| info.id == self)
    }

    /// The flag with this name, in any case.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|id| id.name().eq_ignore_ascii_case(name))
    }
}

const fn row(id: FlagId, access: Access, scope: Scope, since: Since) -> FlagInfo {
    FlagInfo { id, access, scope, since }
}

/// Every flag that has a name.
#[rustfmt::skip]
pub const FLAGS: &[FlagInfo] = &[
    row(FlagId::DeviceInit, Access::read_write(WriteAccess::SetOnly), Scope::Device, Since::version(0x0100)),
    row(FlagId::PermanentWpEn, Access::read_write(WriteAccess::Once), Scope::Device, Since::version(0x0100)),
    row(FlagId::PowerOnWpEn, Access::read_write(WriteAccess::OncePerPowerOn), Scope::Device, Since::version(0x0100)),
    row(FlagId::BackgroundOpsEn, Access::read_write(WriteAccess::Volatile), Scope::Device, Since::version(0x0100)),
    row(FlagId::DeviceLifeSpanModeEn, Access::read_write(WriteAccess::Volatile), Scope::Device, Since::version(0x0200)),
    row(FlagId::PurgeEnable, Access::write_only(WriteAccess::Volatile), Scope::Device, Since::version(0x0100)),
    row(FlagId::RefreshEnable, Access::write_only(WriteAccess::Volatile), Scope::Device, Since::version(0x0300)),
    row(FlagId::PhyResourceRemoval, Access::read_write(WriteAccess::Persistent), Scope::Device, Since::version(0x0100)),
    row(FlagId::BusyRtc, Access::READ, Scope::Device, Since::version(0x0100)),
    row(FlagId::PermanentlyDisableFwUpdate, Access::read_write(WriteAccess::Once), Scope::Device, Since::version(0x0200)),
    row(FlagId::WriteBoosterEn, Access::read_write(WriteAccess::Volatile), Scope::DeviceOrLogicalUnit, Since::version_and_2_2(0x0310)),
    row(FlagId::WriteBoosterBufferFlushEn, Access::read_write(WriteAccess::Volatile), Scope::DeviceOrLogicalUnit, Since::version_and_2_2(0x0310)),
    row(FlagId::WriteBoosterBufferFlushDuringHibernate, Access::read_write(WriteAccess::Volatile), Scope::DeviceOrLogicalUnit, Since::version_and_2_2(0x0310)),
    row(FlagId::HpbReset, Access::read_write(WriteAccess::SetOnly), Scope::Device, Since::version(0x0310)),
    row(FlagId::HpbEn, Access::read_write(WriteAccess::Persistent), Scope::Device, Since::version(0x0310)),
    row(FlagId::UnpinEn, Access::read_write(WriteAccess::Volatile), Scope::Device, Since::version(0x0410)),
];
