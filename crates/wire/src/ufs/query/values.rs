//! Meanings of attribute values (JESD220 14.3).

use crate::code::code;
use bitfield_struct::bitfield;

code! {
    /// bRefClkFreq.
    pub enum RefClkFreq: u8 {
        /// 19.2 MHz.
        Mhz19_2 = 0 => "19.2 MHz",
        /// 26 MHz.
        Mhz26 = 1 => "26 MHz",
        /// 38.4 MHz.
        Mhz38_4 = 2 => "38.4 MHz",
        /// 52 MHz; obsolete from UFS 3.0 on.
        Mhz52 = 3 => "52 MHz",
    }
}

code! {
    /// bCurrentPowerMode.
    pub enum CurrentPowerMode: u8 {
        /// Idle.
        Idle = 0x00 => "Idle",
        /// On the way to active.
        PreActive = 0x10 => "Pre-Active",
        /// Active.
        Active = 0x11 => "Active",
        /// On the way to sleep.
        PreSleep = 0x20 => "Pre-Sleep",
        /// UFS-Sleep.
        Sleep = 0x22 => "UFS-Sleep",
        /// On the way to power-down.
        PrePowerDown = 0x30 => "Pre-PowerDown",
        /// UFS-PowerDown.
        PowerDown = 0x33 => "UFS-PowerDown",
        /// On the way to deep sleep; value by analogy, seen in no implementation.
        PreDeepSleep = 0x40 => "Pre-DeepSleep",
        /// UFS-DeepSleep; value by analogy, since a device in it cannot be asked.
        DeepSleep = 0x44 => "UFS-DeepSleep",
    }
}

code! {
    /// bBackgroundOpStatus.
    pub enum BackgroundOpStatus: u8 {
        /// No operations needed.
        NotRequired = 0 => "not required",
        /// Needed, without an impact yet.
        NonCritical = 1 => "required, not critical",
        /// Needed, and performance suffers.
        PerformanceImpact = 2 => "required, performance impact",
        /// Critical: the device may refuse commands.
        Critical = 3 => "critical",
    }
}

code! {
    /// bPurgeStatus.
    pub enum PurgeStatus: u8 {
        /// No purge under way.
        Idle = 0 => "idle",
        /// Under way.
        InProgress = 1 => "in progress",
        /// Stopped by the host.
        StoppedPrematurely = 2 => "stopped prematurely",
        /// Done.
        Completed = 3 => "completed successfully",
        /// Rejected: a queue was not empty.
        QueueNotEmpty = 4 => "logical unit queue not empty",
        /// Failed.
        GeneralFailure = 5 => "general failure",
    }
}

code! {
    /// bRefreshStatus.
    pub enum RefreshStatus: u8 {
        /// No refresh under way.
        Idle = 0 => "idle",
        /// Under way.
        InProgress = 1 => "in progress",
        /// Stopped by the host.
        StoppedPrematurely = 2 => "stopped prematurely",
        /// Completed for the amount given by bRefreshUnit.
        Completed = 3 => "completed successfully",
        /// Rejected: a queue was not empty.
        QueueNotEmpty = 4 => "logical unit queue not empty",
        /// Failed.
        GeneralFailure = 5 => "general failure",
    }
}

code! {
    /// bRefreshMethod.
    pub enum RefreshMethod: u8 {
        /// Not set yet.
        NotDefined = 0 => "not defined",
        /// Everything is rewritten.
        Forced = 1 => "manual, forced",
        /// Only what needs it is rewritten.
        Selective = 2 => "manual, selective",
    }
}

code! {
    /// bRefreshUnit: how much one fRefreshEnable refreshes.
    pub enum RefreshUnit: u8 {
        /// The smallest amount the device can do.
        Minimum = 0 => "minimum",
        /// The whole device.
        Full = 1 => "100 %",
    }
}

code! {
    /// bDeviceFFUStatus: result of the last firmware update.
    pub enum FfuStatus: u8 {
        /// There was no update, or its result is still open.
        NoInformation = 0x00 => "no information",
        /// Done.
        Success = 0x01 => "successful microcode update",
        /// The image is corrupted or incomplete.
        Corrupted = 0x02 => "microcode corruption error",
        /// Internal error of the device.
        InternalError = 0x03 => "internal error",
        /// The image is not for this device.
        VersionMismatch = 0x04 => "microcode version mismatch",
        /// Any other error.
        GeneralError = 0xFF => "general error",
    }
}

code! {
    /// bWriteBoosterBufferFlushStatus.
    pub enum WriteBoosterFlushStatus: u8 {
        /// No flush under way: none requested, or the buffer is empty.
        Idle = 0 => "idle",
        /// Under way.
        InProgress = 1 => "in progress",
        /// Stopped by the host.
        StoppedPrematurely = 2 => "stopped prematurely",
        /// Done.
        Completed = 3 => "completed successfully",
        /// Failed.
        GeneralFailure = 4 => "general failure",
    }
}

code! {
    /// bWriteBoosterBufferResizeHint and bWriteBoosterBufferResizeEn.
    pub enum WriteBoosterResize: u8 {
        /// As a hint: keep the size; as a command: do nothing.
        Keep = 0 => "keep",
        /// Make it smaller.
        Decrease = 1 => "decrease",
        /// Make it larger.
        Increase = 2 => "increase",
    }
}

code! {
    /// bWriteBoosterBufferResizeStatus. Reading the result of a resize clears it.
    pub enum WriteBoosterResizeStatus: u8 {
        /// No resize was requested.
        Idle = 0 => "idle",
        /// Under way.
        InProgress = 1 => "in progress",
        /// Done: dCurrentWriteBoosterBufferSize is the new size.
        Completed = 2 => "completed successfully",
        /// Failed; the size is unchanged.
        GeneralFailure = 3 => "general failure",
    }
}

code! {
    /// bWriteBoosterBufferPartialFlushMode.
    pub enum WriteBoosterPartialFlush: u8 {
        /// A flush empties the buffer.
        None = 0 => "none",
        /// The data written last stays.
        Fifo = 1 => "fifo",
        /// Data written with GROUP NUMBER [`PINNED_GROUP`] stays.
        Pinned = 2 => "pinned",
    }
}

/// GROUP NUMBER of a WRITE whose data should stay in the pinned WriteBooster buffer.
pub const PINNED_GROUP: u8 = 0x18;

/// wExceptionEventControl and wExceptionEventStatus.
#[bitfield(u16)]
#[derive(PartialEq, Eq)]
pub struct ExceptionEvents {
    /// DYNCAP_NEEDED: the device needs physical memory to be released.
    pub dyncap_needed: bool,
    /// SYSPOOL_EXHAUSTED: no resources left for system data tags.
    pub syspool_exhausted: bool,
    /// URGENT_BKOPS: background operations are needed.
    pub urgent_bkops: bool,
    /// TOO_HIGH_TEMP.
    pub too_high_temp: bool,
    /// TOO_LOW_TEMP.
    pub too_low_temp: bool,
    /// WRITEBOOSTER_FLUSH_NEEDED.
    pub writebooster_flush_needed: bool,
    /// PERFORMANCE_THROTTLING.
    pub performance_throttling: bool,
    /// DEVICE_LEVEL_EXCEPTION_OCCURRED.
    pub device_level_exception: bool,
    /// WRITEBOOSTER_RESIZE_HINT; UFS 4.1.
    pub writebooster_resize_hint: bool,
    /// HEALTH_CRITICAL.
    pub health_critical: bool,
    /// PINNED_WRITEBOOSTER_FULL; UFS 4.1.
    pub pinned_writebooster_full: bool,
    #[bits(5)]
    __: u8,
}

/// Temperature of bDeviceCaseRoughTemperature and the two boundaries, °C; `None` if the device does
/// not report it. The attribute is 80 above the temperature and valid from 1 to 250.
pub const fn temperature_celsius(value: u8) -> Option<i16> {
    match value {
        1..=250 => Some(value as i16 - 80),
        _ => None,
    }
}
