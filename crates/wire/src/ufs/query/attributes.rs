//! Attributes (JESD220 14.3).

use super::{Access, Scope, Since, WriteAccess};
use crate::code::code;

code! {
    /// Identification number of an attribute.
    pub enum AttributeId: u8 {
        /// Which boot logical unit is in force: 0 none, 1 A, 2 B.
        BootLunEn = 0x00 => "bBootLunEn",
        /// Longest HPB read.
        MaxDataSizeForHpbSingleCmd = 0x01 => "bMAX_DATA_SIZE_FOR_HPB_SINGLE_CMD",
        /// Power mode, [`CurrentPowerMode`](super::CurrentPowerMode).
        CurrentPowerMode = 0x02 => "bCurrentPowerMode",
        /// Supply current level in active mode, 0 to 15.
        ActiveIccLevel = 0x03 => "bActiveICCLevel",
        /// Out of order data transfer.
        OutOfOrderDataEn = 0x04 => "bOutOfOrderDataEn",
        /// Need for background operations, [`BackgroundOpStatus`](super::BackgroundOpStatus).
        BackgroundOpStatus = 0x05 => "bBackgroundOpStatus",
        /// State of a purge, [`PurgeStatus`](super::PurgeStatus).
        PurgeStatus = 0x06 => "bPurgeStatus",
        /// Largest DATA IN, units of 512 bytes.
        MaxDataInSize = 0x07 => "bMaxDataInSize",
        /// Largest DATA OUT, units of 512 bytes.
        MaxDataOutSize = 0x08 => "bMaxDataOutSize",
        /// Physical memory to be given back, optimal write blocks.
        DynCapNeeded = 0x09 => "dDynCapNeeded",
        /// Reference clock, [`RefClkFreq`](super::RefClkFreq).
        RefClkFreq = 0x0A => "bRefClkFreq",
        /// 1: the configuration descriptor cannot be written any more.
        ConfigDescrLock = 0x0B => "bConfigDescrLock",
        /// READY TO TRANSFER requests outstanding at once.
        MaxNumOfRtt = 0x0C => "bMaxNumOfRTT",
        /// Exception events that raise EVENT_ALERT, [`ExceptionEvents`](super::ExceptionEvents).
        ExceptionEventControl = 0x0D => "wExceptionEventControl",
        /// Exception events that wait, [`ExceptionEvents`](super::ExceptionEvents).
        ExceptionEventStatus = 0x0E => "wExceptionEventStatus",
        /// Seconds since the time wPeriodicRTCUpdate counts from.
        SecondsPassed = 0x0F => "dSecondsPassed",
        /// Configuration of a context.
        ContextConf = 0x10 => "wContextConf",
        /// How a firmware update ended.
        DeviceFfuStatus = 0x14 => "bDeviceFFUStatus",
        /// Production state awareness.
        PsaState = 0x15 => "bPSAState",
        /// Data to be loaded before soldering.
        PsaDataSize = 0x16 => "dPSADataSize",
        /// Time before the reference clock may stop, µs.
        RefClkGatingWaitTime = 0x17 => "bRefClkGatingWaitTime",
        /// Case temperature, [`temperature_celsius`](super::temperature_celsius).
        DeviceCaseRoughTemperature = 0x18 => "bDeviceCaseRoughTemperature",
        /// Where it is too hot, [`temperature_celsius`](super::temperature_celsius).
        DeviceTooHighTempBoundary = 0x19 => "bDeviceTooHighTempBoundary",
        /// Where it is too cold, [`temperature_celsius`](super::temperature_celsius).
        DeviceTooLowTempBoundary = 0x1A => "bDeviceTooLowTempBoundary",
        /// Why the device is slow.
        ThrottlingStatus = 0x1B => "bThrottlingStatus",
        /// State of a flush, [`WriteBoosterFlushStatus`](super::WriteBoosterFlushStatus).
        WriteBoosterBufferFlushStatus = 0x1C => "bWriteBoosterBufferFlushStatus",
        /// Buffer left, units of 10 %.
        AvailableWriteBoosterBufferSize = 0x1D => "bAvailableWriteBoosterBufferSize",
        /// Buffer life used, units of 10 %; 0x0B: exceeded.
        WriteBoosterBufferLifeTimeEst = 0x1E => "bWriteBoosterBufferLifeTimeEst",
        /// Buffer there is, allocation units.
        CurrentWriteBoosterBufferSize = 0x1F => "dCurrentWriteBoosterBufferSize",
        /// EXT_IID in use.
        ExtIidEn = 0x2A => "bEXTIIDEn",
        /// Host hint cache.
        HostHintCacheSize = 0x2B => "wHostHintCacheSize",
        /// State of a refresh.
        RefreshStatus = 0x2C => "bRefreshStatus",
        /// How often to refresh.
        RefreshFreq = 0x2D => "bRefreshFreq",
        /// How much to refresh at once.
        RefreshUnit = 0x2E => "bRefreshUnit",
        /// How to refresh.
        RefreshMethod = 0x2F => "bRefreshMethod",
        /// Nanoseconds since 1970-01-01.
        Timestamp = 0x30 => "qTimestamp",
        /// File based optimization: start and stop.
        FboControl = 0x31 => "bFBOControl",
        /// File based optimization: where it is worth it.
        FboExecuteThreshold = 0x32 => "bFBOExecuteThreshold",
        /// File based optimization: state.
        FboProgressState = 0x33 => "bFBOProgressState",
        /// Device level exception; the meaning is the vendor's.
        DeviceLevelExceptionId = 0x34 => "qDeviceLevelExceptionID",
        /// Host initiated defragmentation: 0 off, 1 analysis, 2 defragmentation.
        DefragOperation = 0x35 => "bDefragOperation",
        /// Fragmented data found, units of 4 KiB.
        HidAvailableSize = 0x36 => "dHIDAvailableSize",
        /// Data to defragment, units of 4 KiB.
        HidSize = 0x37 => "dHIDSize",
        /// Defragmentation done, percent.
        HidProgressRatio = 0x38 => "bHIDProgressRatio",
        /// State of the defragmentation.
        HidState = 0x39 => "bHIDState",
        /// What the device advises, [`WriteBoosterResize`](super::WriteBoosterResize).
        WriteBoosterBufferResizeHint = 0x3C => "bWriteBoosterBufferResizeHint",
        /// Resize the buffer, [`WriteBoosterResize`](super::WriteBoosterResize).
        WriteBoosterBufferResizeEn = 0x3D => "bWriteBoosterBufferResizeEn",
        /// State of a resize.
        WriteBoosterBufferResizeStatus = 0x3E => "bWriteBoosterBufferResizeStatus",
        /// 0 off, 1 first in first out, 2 pinned data stays.
        WriteBoosterBufferPartialFlushMode = 0x3F => "bWriteBoosterBufferPartialFlushMode",
        /// Most buffer kept in FIFO mode, allocation units.
        MaxFifoSizeForWriteBoosterPartialFlushMode = 0x40 => "dMaxFIFOSizeForWriteBoosterPartialFlushMode",
        /// Buffer kept now, allocation units.
        CurrentFifoSizeForWriteBoosterPartialFlushMode = 0x41 => "dCurrentFIFOSizeForWriteBoosterPartialFlushMode",
        /// Pinned buffer, allocation units.
        PinnedWriteBoosterBufferCurrentAllocUnits = 0x42 => "dPinnedWriteBoosterBufferCurrentAllocUnits",
        /// Pinned buffer left, percent.
        PinnedWriteBoosterBufferAvailablePercentage = 0x43 => "bPinnedWriteBoosterBufferAvailablePercentage",
        /// Data ever written to the pinned buffer.
        PinnedWriteBoosterCummulativeWrittenSize = 0x44 => "dPinnedWriteBoosterCummulativeWrittenSize",
        /// Pinned buffer wanted, allocation units.
        PinnedWriteBoosterBufferNumAllocUnits = 0x45 => "dPinnedWriteBoosterBufferNumAllocUnits",
        /// Least buffer that is not pinned, allocation units.
        NonPinnedWriteBoosterBufferMinNumAllocUnits = 0x46 => "dNonPinnedWriteBoosterBufferMinNumAllocUnits",
    }
}

/// What there is to know about an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeInfo {
    /// Its identification number; its name is [`AttributeId::name`].
    pub id: AttributeId,
    /// Bytes: 1, 2, 4 or 8.
    pub width: u8,
    /// How it can be accessed.
    pub access: Access,
    /// What the index names.
    pub scope: Scope,
    /// Since when it exists.
    pub since: Since,
}

impl AttributeInfo {
    /// The largest value the attribute can hold.
    pub const fn value_max(&self) -> u64 {
        u64::MAX >> (64 - 8 * self.width as u32)
    }
}

impl AttributeId {
    /// What there is to know about it; `None` for a number without a name.
    pub fn info(self) -> Option<&'static AttributeInfo> {
        ATTRIBUTES.iter().find(|info| info.id == self)
    }

    /// The attribute with this name, in any case.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|id| id.name().eq_ignore_ascii_case(name))
    }
}

const fn row(
    id: AttributeId,
    width: u8,
    access: Access,
    scope: Scope,
    since: Since,
) -> AttributeInfo {
    AttributeInfo { id, width, access, scope, since }
}

/// Every attribute that has a name.
#[rustfmt::skip]
pub const ATTRIBUTES: &[AttributeInfo] = &[
    row(AttributeId::BootLunEn, 1, Access::read_write(WriteAccess::Persistent), Scope::Device, Since::version(0x0100)),
    row(AttributeId::MaxDataSizeForHpbSingleCmd, 1, Access::READ, Scope::Device, Since::version(0x0310)),
    row(AttributeId::CurrentPowerMode, 1, Access::READ, Scope::Device, Since::version(0x0100)),
    row(AttributeId::ActiveIccLevel, 1, Access::read_write(WriteAccess::Volatile), Scope::Device, Since::version(0x0100)),
    row(AttributeId::OutOfOrderDataEn, 1, Access::read_write(WriteAccess::Once), Scope::Device, Since::version(0x0100)),
    row(AttributeId::BackgroundOpStatus, 1, Access::READ, Scope::Device, Since::version(0x0100)),
    row(AttributeId::PurgeStatus, 1, Access::READ, Scope::Device, Since::version(0x0100)),
    row(AttributeId::MaxDataInSize, 1, Access::read_write(WriteAccess::Persistent), Scope::Device, Since::version(0x0100)),
    row(AttributeId::MaxDataOutSize, 1, Access::read_write(WriteAccess::Persistent), Scope::Device, Since::version(0x0100)),
    row(AttributeId::DynCapNeeded, 4, Access::READ, Scope::LogicalUnit, Since::version(0x0100)),
    row(AttributeId::RefClkFreq, 1, Access::read_write(WriteAccess::Persistent), Scope::Device, Since::version(0x0100)),
    row(AttributeId::ConfigDescrLock, 1, Access::read_write(WriteAccess::Once), Scope::Device, Since::version(0x0100)),
    row(AttributeId::MaxNumOfRtt, 1, Access::read_write(WriteAccess::Persistent), Scope::Device, Since::version(0x0100)),
    row(AttributeId::ExceptionEventControl, 2, Access::read_write(WriteAccess::Volatile), Scope::Device, Since::version(0x0100)),
    row(AttributeId::ExceptionEventStatus, 2, Access::READ, Scope::Device, Since::version(0x0100)),
    row(AttributeId::SecondsPassed, 4, Access::write_only(WriteAccess::Volatile), Scope::Device, Since::version(0x0100)),
    row(AttributeId::ContextConf, 2, Access::read_write(WriteAccess::Volatile), Scope::Context, Since::version(0x0100)),
    row(AttributeId::DeviceFfuStatus, 1, Access::READ, Scope::Device, Since::version(0x0210)),
    row(AttributeId::PsaState, 1, Access::read_write(WriteAccess::Persistent), Scope::Device, Since::version(0x0210)),
    row(AttributeId::PsaDataSize, 4, Access::read_write(WriteAccess::Persistent), Scope::Device, Since::version(0x0210)),
    row(AttributeId::RefClkGatingWaitTime, 1, Access::READ, Scope::Device, Since::version(0x0300)),
    row(AttributeId::DeviceCaseRoughTemperature, 1, Access::READ, Scope::Device, Since::version(0x0300)),
    row(AttributeId::DeviceTooHighTempBoundary, 1, Access::READ, Scope::Device, Since::version(0x0300)),
    row(AttributeId::DeviceTooLowTempBoundary, 1, Access::READ, Scope::Device, Since::version(0x0300)),
    row(AttributeId::ThrottlingStatus, 1, Access::READ, Scope::Device, Since::version(0x0310)),
    row(AttributeId::WriteBoosterBufferFlushStatus, 1, Access::READ, Scope::DeviceOrLogicalUnit, Since::version_and_2_2(0x0310)),
    row(AttributeId::AvailableWriteBoosterBufferSize, 1, Access::READ, Scope::DeviceOrLogicalUnit, Since::version_and_2_2(0x0310)),
    row(AttributeId::WriteBoosterBufferLifeTimeEst, 1, Access::READ, Scope::DeviceOrLogicalUnit, Since::version_and_2_2(0x0310)),
    row(AttributeId::CurrentWriteBoosterBufferSize, 4, Access::READ, Scope::DeviceOrLogicalUnit, Since::version_and_2_2(0x0310)),
    row(AttributeId::ExtIidEn, 1, Access::read_write(WriteAccess::Once), Scope::Device, Since::version(0x0400)),
    row(AttributeId::HostHintCacheSize, 2, Access::read_write(WriteAccess::Persistent), Scope::Device, Since::version(0x0400)),
    row(AttributeId::RefreshStatus, 1, Access::READ, Scope::Device, Since::version(0x0300)),
    row(AttributeId::RefreshFreq, 1, Access::read_write(WriteAccess::Persistent), Scope::Device, Since::version(0x0300)),
    row(AttributeId::RefreshUnit, 1, Access::read_write(WriteAccess::Persistent), Scope::Device, Since::version(0x0300)),
    row(AttributeId::RefreshMethod, 1, Access::read_write(WriteAccess::Persistent), Scope::Device, Since::version(0x0300)),
    row(AttributeId::Timestamp, 8, Access::write_only(WriteAccess::Volatile), Scope::Device, Since::version(0x0400)),
    row(AttributeId::FboControl, 1, Access::write_only(WriteAccess::Volatile), Scope::Device, Since::version(0x0400)),
    row(AttributeId::FboExecuteThreshold, 1, Access::read_write(WriteAccess::Volatile), Scope::Device, Since::version(0x0400)),
    row(AttributeId::FboProgressState, 1, Access::READ, Scope::Device, Since::version(0x0400)),
    row(AttributeId::DeviceLevelExceptionId, 8, Access::READ, Scope::Device, Since::version(0x0410)),
    row(AttributeId::DefragOperation, 1, Access::read_write(WriteAccess::Volatile), Scope::Device, Since::version(0x0410)),
    row(AttributeId::HidAvailableSize, 4, Access::READ, Scope::Device, Since::version(0x0410)),
    row(AttributeId::HidSize, 4, Access::read_write(WriteAccess::Persistent), Scope::Device, Since::version(0x0410)),
    row(AttributeId::HidProgressRatio, 1, Access::READ, Scope::Device, Since::version(0x0410)),
    row(AttributeId::HidState, 1, Access::READ, Scope::Device, Since::version(0x0410)),
    row(AttributeId::WriteBoosterBufferResizeHint, 1, Access::READ, Scope::Device, Since::version(0x0410)),
    row(AttributeId::WriteBoosterBufferResizeEn, 1, Access::write_only(WriteAccess::Volatile), Scope::Device, Since::version(0x0410)),
    row(AttributeId::WriteBoosterBufferResizeStatus, 1, Access::READ, Scope::Device, Since::version(0x0410)),
    row(AttributeId::WriteBoosterBufferPartialFlushMode, 1, Access::read_write(WriteAccess::Persistent), Scope::Device, Since::version(0x0410)),
    row(AttributeId::MaxFifoSizeForWriteBoosterPartialFlushMode, 4, Access::read_write(WriteAccess::Persistent), Scope::Device, Since::version(0x0410)),
    row(AttributeId::CurrentFifoSizeForWriteBoosterPartialFlushMode, 4, Access::READ, Scope::Device, Since::version(0x0410)),
    row(AttributeId::PinnedWriteBoosterBufferCurrentAllocUnits, 4, Access::READ, Scope::Device, Since::version(0x0410)),
    row(AttributeId::PinnedWriteBoosterBufferAvailablePercentage, 1, Access::READ, Scope::Device, Since::version(0x0410)),
    row(AttributeId::PinnedWriteBoosterCummulativeWrittenSize, 4, Access::READ, Scope::Device, Since::version(0x0410)),
    row(AttributeId::PinnedWriteBoosterBufferNumAllocUnits, 4, Access::read_write(WriteAccess::Persistent), Scope::Device, Since::version(0x0410)),
    row(AttributeId::NonPinnedWriteBoosterBufferMinNumAllocUnits, 4, Access::read_write(WriteAccess::Persistent), Scope::Device, Since::version(0x0410)),
];
