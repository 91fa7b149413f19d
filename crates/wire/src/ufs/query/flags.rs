//! Flags (JESD220 14.2).

use super::{Access, Scope, Since, WRITE_BOOSTER_SINCE, WriteAccess, since};
use crate::code::code;
use FlagId as Id;

code! {
    /// Identification number of a flag.
    pub enum FlagId: u8 {
        /// Set to start initialisation; the device clears it when done.
        DeviceInit = 0x01 => "fDeviceInit",
        /// Permanent write protection is active.
        PermanentWpEn = 0x02 => "fPermanentWPEn",
        /// Power-on write protection is active.
        PowerOnWpEn = 0x03 => "fPowerOnWPEn",
        /// Background operations allowed.
        BackgroundOpsEn = 0x04 => "fBackgroundOpsEn",
        /// Longer life at lower performance.
        DeviceLifeSpanModeEn = 0x05 => "fDeviceLifeSpanModeEn",
        /// Purge.
        PurgeEnable = 0x06 => "fPurgeEnable",
        /// Refresh.
        RefreshEnable = 0x07 => "fRefreshEnable",
        /// Release physical memory at the next power cycle.
        PhyResourceRemoval = 0x08 => "fPhyResourceRemoval",
        /// The device is processing a real-time clock update.
        BusyRtc = 0x09 => "fBusyRTC",
        /// Firmware updates are permanently disabled.
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

/// Properties of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagInfo {
    /// Its identification number; its name is [`FlagId::name`].
    pub id: FlagId,
    /// How it can be accessed.
    pub access: Access,
    /// What the index selects.
    pub scope: Scope,
    /// Versions of the specification that have it.
    pub since: Since,
}

impl FlagId {
    /// Its properties; `None` for a number without a name.
    pub fn info(self) -> Option<&'static FlagInfo> {
        FLAGS.iter().find(|info| info.id == self)
    }

    /// The flag with this name, ignoring case.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|id| id.name().eq_ignore_ascii_case(name))
    }
}

const fn row(id: FlagId, access: Access, scope: Scope, since: Since) -> FlagInfo {
    FlagInfo { id, access, scope, since }
}

const READ: Access = Access::READ;
const RW_ONCE: Access = Access::read_write(WriteAccess::Once);
const RW_PERSISTENT: Access = Access::read_write(WriteAccess::Persistent);
const RW_POWER_ON: Access = Access::read_write(WriteAccess::OncePerPowerOn);
const RW_SET_ONLY: Access = Access::read_write(WriteAccess::SetOnly);
const RW_VOLATILE: Access = Access::read_write(WriteAccess::Volatile);
const WO_VOLATILE: Access = Access::write_only(WriteAccess::Volatile);
const DEVICE: Scope = Scope::Device;
const EITHER: Scope = Scope::DeviceOrLogicalUnit;

/// Every flag that has a name.
#[rustfmt::skip]
pub const FLAGS: &[FlagInfo] = &[
    row(Id::DeviceInit, RW_SET_ONLY, DEVICE, since(0x0100)),
    row(Id::PermanentWpEn, RW_ONCE, DEVICE, since(0x0100)),
    row(Id::PowerOnWpEn, RW_POWER_ON, DEVICE, since(0x0100)),
    row(Id::BackgroundOpsEn, RW_VOLATILE, DEVICE, since(0x0100)),
    row(Id::DeviceLifeSpanModeEn, RW_VOLATILE, DEVICE, since(0x0200)),
    row(Id::PurgeEnable, WO_VOLATILE, DEVICE, since(0x0100)),
    row(Id::RefreshEnable, WO_VOLATILE, DEVICE, since(0x0300)),
    row(Id::PhyResourceRemoval, RW_PERSISTENT, DEVICE, since(0x0100)),
    row(Id::BusyRtc, READ, DEVICE, since(0x0100)),
    row(Id::PermanentlyDisableFwUpdate, RW_ONCE, DEVICE, since(0x0200)),
    row(Id::WriteBoosterEn, RW_VOLATILE, EITHER, WRITE_BOOSTER_SINCE),
    row(Id::WriteBoosterBufferFlushEn, RW_VOLATILE, EITHER, WRITE_BOOSTER_SINCE),
    row(Id::WriteBoosterBufferFlushDuringHibernate, RW_VOLATILE, EITHER, WRITE_BOOSTER_SINCE),
    row(Id::HpbReset, RW_SET_ONLY, DEVICE, since(0x0310)),
    row(Id::HpbEn, RW_PERSISTENT, DEVICE, since(0x0310)),
    row(Id::UnpinEn, RW_VOLATILE, EITHER, since(0x0410)),
];
