//! The power modes of a device, and how deep a suspend goes.

/// The device's own power modes, set by START STOP UNIT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DevicePower {
    /// Accepts commands.
    #[default]
    Active,
    /// UFS-Sleep: VCC may be off.
    Sleep,
    /// UFS-PowerDown: all supplies may be off.
    PowerDown,
    /// UFS-DeepSleep: the lowest current that is possible with the supplies on. Only a reset of the
    /// device ends it: [`Operation::Reset`](crate::Operation::Reset) on a board with RST_n.
    DeepSleep,
}

impl DevicePower {
    /// POWER CONDITION of START STOP UNIT (JESD220 11.3.7).
    pub(crate) const fn condition(self) -> u8 {
        match self {
            Self::Active => 1,
            Self::Sleep => 2,
            Self::PowerDown => 3,
            Self::DeepSleep => 4,
        }
    }
}

/// The depth of a suspend that a command ends: those levels of Linux from which data can be read
/// again without a new bring-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SuspendLevel {
    /// The link hibernates, the device stays active (UFS_PM_LVL_1).
    #[default]
    Hibernate,
    /// The device is put to UFS-Sleep, then the link hibernates (UFS_PM_LVL_3). Waking takes an
    /// additional START STOP UNIT. A device that flushes its WriteBooster buffer or has background
    /// operations to do stays active, because it could not do them asleep.
    Sleep,
}
