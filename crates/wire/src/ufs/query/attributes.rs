//! Attributes (JESD220 14.3).

use super::{Access, Scope, Since, WRITE_BOOSTER_SINCE, WriteAccess, since};
use crate::code::code;
use AttributeId as Id;

code! {
    /// Identification number of an attribute.
    pub enum AttributeId: u8 {
        /// Active boot logical unit: 0 none, 1 A, 2 B.
        BootLunEn = 0x00 => "bBootLunEn",
        /// Longest HPB read.
        MaxDataSizeForHpbSingleCmd = 0x01 => "bMAX_DATA_SIZE_FOR_HPB_SINGLE_CMD",
        /// Power mode, [`CurrentPowerMode`](super::CurrentPowerMode).
        CurrentPowerMode = 0x02 => "bCurrentPowerMode",
        /// Supply current level in active mode, 0 to 15.
        ActiveIccLevel = 0x03 => "bActiveICCLevel",
        /// Out of order data transfer.
        OutOfOrderDataEn = 0x04 => "bOutOfOrderDataEn",
        /// Whether background operations are needed,
        /// [`BackgroundOpStatus`](super::BackgroundOpStatus).
        BackgroundOpStatus = 0x05 => "bBackgroundOpStatus",
        /// State of a purge, [`PurgeStatus`](super::PurgeStatus).
        PurgeStatus = 0x06 => "bPurgeStatus",
        /// Largest DATA IN, units of 512 bytes.
        MaxDataInSize = 0x07 => "bMaxDataInSize",
        /// Largest DATA OUT, units of 512 bytes.
        MaxDataOutSize = 0x08 => "bMaxDataOutSize",
        /// Physical memory to be released, in optimal write blocks.
        DynCapNeeded = 0x09 => "dDynCapNeeded",
        /// Reference clock, [`RefClkFreq`](super::RefClkFreq).
        RefClkFreq = 0x0A => "bRefClkFreq",
        /// 1: the configuration descriptor can no longer be written.
        ConfigDescrLock = 0x0B => "bConfigDescrLock",
        /// Maximum outstanding READY TO TRANSFER requests.
        MaxNumOfRtt = 0x0C => "bMaxNumOfRTT",
        /// Exception events that raise EVENT_ALERT, [`ExceptionEvents`](super::ExceptionEvents).
        ExceptionEventControl = 0x0D => "wExceptionEventControl",
        /// Pending exception events, [`ExceptionEvents`](super::ExceptionEvents).
        ExceptionEventStatus = 0x0E => "wExceptionEventStatus",
        /// Seconds since the base time defined by wPeriodicRTCUpdate.
        SecondsPassed = 0x0F => "dSecondsPassed",
        /// Configuration of a context.
        ContextConf = 0x10 => "wContextConf",
        /// Result of the last firmware update.
        DeviceFfuStatus = 0x14 => "bDeviceFFUStatus",
        /// Production state awareness.
        PsaState = 0x15 => "bPSAState",
        /// Amount of data to be loaded before soldering.
        PsaDataSize = 0x16 => "dPSADataSize",
        /// Time before the reference clock may stop, µs.
        RefClkGatingWaitTime = 0x17 => "bRefClkGatingWaitTime",
        /// Case temperature, [`temperature_celsius`](super::temperature_celsius).
        DeviceCaseRoughTemperature = 0x18 => "bDeviceCaseRoughTemperature",
        /// Upper boundary of the temperature, [`temperature_celsius`](super::temperature_celsius).
        DeviceTooHighTempBoundary = 0x19 => "bDeviceTooHighTempBoundary",
        /// Lower boundary of the temperature, [`temperature_celsius`](super::temperature_celsius).
        DeviceTooLowTempBoundary = 0x1A => "bDeviceTooLowTempBoundary",
        /// Cause of throttling.
        ThrottlingStatus = 0x1B => "bThrottlingStatus",
        /// State of a flush, [`WriteBoosterFlushStatus`](super::WriteBoosterFlushStatus).
        WriteBoosterBufferFlushStatus = 0x1C => "bWriteBoosterBufferFlushStatus",
        /// Available buffer, units of 10 %.
        AvailableWriteBoosterBufferSize = 0x1D => "bAvailableWriteBoosterBufferSize",
        /// Buffer life used, units of 10 %; 0x0B: exceeded.
        WriteBoosterBufferLifeTimeEst = 0x1E => "bWriteBoosterBufferLifeTimeEst",
        /// Current buffer size, allocation units.
        CurrentWriteBoosterBufferSize = 0x1F => "dCurrentWriteBoosterBufferSize",
        /// EXT_IID in use.
        ExtIidEn = 0x2A => "bEXTIIDEn",
        /// Size of the host hint cache.
        HostHintCacheSize = 0x2B => "wHostHintCacheSize",
        /// State of a refresh.
        RefreshStatus = 0x2C => "bRefreshStatus",
        /// Refresh frequency.
        RefreshFreq = 0x2D => "bRefreshFreq",
        /// Amount of one refresh.
        RefreshUnit = 0x2E => "bRefreshUnit",
        /// Refresh method.
        RefreshMethod = 0x2F => "bRefreshMethod",
        /// Nanoseconds since 1970-01-01.
        Timestamp = 0x30 => "qTimestamp",
        /// File based optimization: start and stop.
        FboControl = 0x31 => "bFBOControl",
        /// File based optimization: threshold for its execution.
        FboExecuteThreshold = 0x32 => "bFBOExecuteThreshold",
        /// File based optimization: state.
        FboProgressState = 0x33 => "bFBOProgressState",
        /// Device level exception; vendor specific.
        DeviceLevelExceptionId = 0x34 => "qDeviceLevelExceptionID",
        /// Host initiated defragmentation: 0 off, 1 analysis, 2 defragmentation.
        DefragOperation = 0x35 => "bDefragOperation",
        /// Fragmented data found, units of 4 KiB.
        HidAvailableSize = 0x36 => "dHIDAvailableSize",
        /// Data to defragment, units of 4 KiB.
        HidSize = 0x37 => "dHIDSize",
        /// Progress of the defragmentation, percent.
        HidProgressRatio = 0x38 => "bHIDProgressRatio",
        /// State of the defragmentation.
        HidState = 0x39 => "bHIDState",
        /// Resize that the device recommends, [`WriteBoosterResize`](super::WriteBoosterResize).
        WriteBoosterBufferResizeHint = 0x3C => "bWriteBoosterBufferResizeHint",
        /// Resize the buffer, [`WriteBoosterResize`](super::WriteBoosterResize).
        WriteBoosterBufferResizeEn = 0x3D => "bWriteBoosterBufferResizeEn",
        /// State of a resize,
        /// [`WriteBoosterResizeStatus`](super::WriteBoosterResizeStatus).
        WriteBoosterBufferResizeStatus = 0x3E => "bWriteBoosterBufferResizeStatus",
        /// What a flush leaves in the buffer,
        /// [`WriteBoosterPartialFlush`](super::WriteBoosterPartialFlush).
        WriteBoosterBufferPartialFlushMode = 0x3F => "bWriteBoosterBufferPartialFlushMode",
        /// Largest part of the buffer kept in FIFO mode, allocation units.
        MaxFifoSizeForWriteBoosterPartialFlushMode = 0x40
            => "dMaxFIFOSizeForWriteBoosterPartialFlushMode",
        /// Part of the buffer kept now, allocation units.
        CurrentFifoSizeForWriteBoosterPartialFlushMode = 0x41
            => "dCurrentFIFOSizeForWriteBoosterPartialFlushMode",
        /// Pinned buffer, allocation units.
        PinnedWriteBoosterBufferCurrentAllocUnits = 0x42
            => "dPinnedWriteBoosterBufferCurrentAllocUnits",
        /// Available pinned buffer, units of 10 %.
        PinnedWriteBoosterBufferAvailablePercentage = 0x43
            => "bPinnedWriteBoosterBufferAvailablePercentage",
        /// Cumulative data written to the pinned buffer, units of 10 MB.
        PinnedWriteBoosterCummulativeWrittenSize = 0x44
            => "dPinnedWriteBoosterCummulativeWrittenSize",
        /// Requested pinned buffer, allocation units.
        PinnedWriteBoosterBufferNumAllocUnits = 0x45 => "dPinnedWriteBoosterBufferNumAllocUnits",
        /// Smallest part of the buffer that is not pinned, allocation units.
        NonPinnedWriteBoosterBufferMinNumAllocUnits = 0x46
            => "dNonPinnedWriteBoosterBufferMinNumAllocUnits",
    }
}

/// Properties of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeInfo {
    /// Its identification number; its name is [`AttributeId::name`].
    pub id: AttributeId,
    /// Bytes: 1, 2, 4 or 8.
    pub width: u8,
    /// How it can be accessed.
    pub access: Access,
    /// What the index selects.
    pub scope: Scope,
    /// Versions of the specification that have it.
    pub since: Since,
}

impl AttributeInfo {
    /// The largest value the attribute can hold.
    pub const fn value_max(&self) -> u64 {
        u64::MAX >> (64 - 8 * self.width as u32)
    }
}

impl AttributeId {
    /// Its properties; `None` for a number without a name.
    pub fn info(self) -> Option<&'static AttributeInfo> {
        ATTRIBUTES.iter().find(|info| info.id == self)
    }

    /// The attribute with this name, ignoring case.
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

const READ: Access = Access::READ;
const RW_ONCE: Access = Access::read_write(WriteAccess::Once);
const RW_PERSISTENT: Access = Access::read_write(WriteAccess::Persistent);
const RW_VOLATILE: Access = Access::read_write(WriteAccess::Volatile);
const WO_VOLATILE: Access = Access::write_only(WriteAccess::Volatile);
const DEVICE: Scope = Scope::Device;
const UNIT: Scope = Scope::LogicalUnit;
const EITHER: Scope = Scope::DeviceOrLogicalUnit;
const CONTEXT: Scope = Scope::Context;

/// Every attribute that has a name.
#[rustfmt::skip]
pub const ATTRIBUTES: &[AttributeInfo] = &[
    row(Id::BootLunEn, 1, RW_PERSISTENT, DEVICE, since(0x0100)),
    row(Id::MaxDataSizeForHpbSingleCmd, 1, READ, DEVICE, since(0x0310)),
    row(Id::CurrentPowerMode, 1, READ, DEVICE, since(0x0100)),
    row(Id::ActiveIccLevel, 1, RW_VOLATILE, DEVICE, since(0x0100)),
    row(Id::OutOfOrderDataEn, 1, RW_ONCE, DEVICE, since(0x0100)),
    row(Id::BackgroundOpStatus, 1, READ, DEVICE, since(0x0100)),
    row(Id::PurgeStatus, 1, READ, DEVICE, since(0x0100)),
    row(Id::MaxDataInSize, 1, RW_PERSISTENT, DEVICE, since(0x0100)),
    row(Id::MaxDataOutSize, 1, RW_PERSISTENT, DEVICE, since(0x0100)),
    row(Id::DynCapNeeded, 4, READ, UNIT, since(0x0100)),
    row(Id::RefClkFreq, 1, RW_PERSISTENT, DEVICE, since(0x0100)),
    row(Id::ConfigDescrLock, 1, RW_ONCE, DEVICE, since(0x0100)),
    row(Id::MaxNumOfRtt, 1, RW_PERSISTENT, DEVICE, since(0x0100)),
    row(Id::ExceptionEventControl, 2, RW_VOLATILE, DEVICE, since(0x0100)),
    row(Id::ExceptionEventStatus, 2, READ, DEVICE, since(0x0100)),
    row(Id::SecondsPassed, 4, WO_VOLATILE, DEVICE, since(0x0100)),
    row(Id::ContextConf, 2, RW_VOLATILE, CONTEXT, since(0x0100)),
    row(Id::DeviceFfuStatus, 1, READ, DEVICE, since(0x0210)),
    row(Id::PsaState, 1, RW_PERSISTENT, DEVICE, since(0x0210)),
    row(Id::PsaDataSize, 4, RW_PERSISTENT, DEVICE, since(0x0210)),
    row(Id::RefClkGatingWaitTime, 1, READ, DEVICE, since(0x0300)),
    row(Id::DeviceCaseRoughTemperature, 1, READ, DEVICE, since(0x0300)),
    row(Id::DeviceTooHighTempBoundary, 1, READ, DEVICE, since(0x0300)),
    row(Id::DeviceTooLowTempBoundary, 1, READ, DEVICE, since(0x0300)),
    row(Id::ThrottlingStatus, 1, READ, DEVICE, since(0x0310)),
    row(Id::WriteBoosterBufferFlushStatus, 1, READ, EITHER, WRITE_BOOSTER_SINCE),
    row(Id::AvailableWriteBoosterBufferSize, 1, READ, EITHER, WRITE_BOOSTER_SINCE),
    row(Id::WriteBoosterBufferLifeTimeEst, 1, READ, EITHER, WRITE_BOOSTER_SINCE),
    row(Id::CurrentWriteBoosterBufferSize, 4, READ, EITHER, WRITE_BOOSTER_SINCE),
    row(Id::ExtIidEn, 1, RW_ONCE, DEVICE, since(0x0400)),
    row(Id::HostHintCacheSize, 2, RW_PERSISTENT, DEVICE, since(0x0400)),
    row(Id::RefreshStatus, 1, READ, DEVICE, since(0x0300)),
    row(Id::RefreshFreq, 1, RW_PERSISTENT, DEVICE, since(0x0300)),
    row(Id::RefreshUnit, 1, RW_PERSISTENT, DEVICE, since(0x0300)),
    row(Id::RefreshMethod, 1, RW_PERSISTENT, DEVICE, since(0x0300)),
    row(Id::Timestamp, 8, WO_VOLATILE, DEVICE, since(0x0400)),
    row(Id::FboControl, 1, WO_VOLATILE, DEVICE, since(0x0400)),
    row(Id::FboExecuteThreshold, 1, RW_VOLATILE, DEVICE, since(0x0400)),
    row(Id::FboProgressState, 1, READ, DEVICE, since(0x0400)),
    row(Id::DeviceLevelExceptionId, 8, READ, DEVICE, since(0x0410)),
    row(Id::DefragOperation, 1, RW_VOLATILE, DEVICE, since(0x0410)),
    row(Id::HidAvailableSize, 4, READ, DEVICE, since(0x0410)),
    row(Id::HidSize, 4, RW_PERSISTENT, DEVICE, since(0x0410)),
    row(Id::HidProgressRatio, 1, READ, DEVICE, since(0x0410)),
    row(Id::HidState, 1, READ, DEVICE, since(0x0410)),
    row(Id::WriteBoosterBufferResizeHint, 1, READ, EITHER, since(0x0410)),
    row(Id::WriteBoosterBufferResizeEn, 1, WO_VOLATILE, EITHER, since(0x0410)),
    row(Id::WriteBoosterBufferResizeStatus, 1, READ, EITHER, since(0x0410)),
    row(Id::WriteBoosterBufferPartialFlushMode, 1, RW_PERSISTENT, DEVICE, since(0x0410)),
    row(Id::MaxFifoSizeForWriteBoosterPartialFlushMode, 4, RW_PERSISTENT, EITHER, since(0x0410)),
    row(Id::CurrentFifoSizeForWriteBoosterPartialFlushMode, 4, READ, EITHER, since(0x0410)),
    row(Id::PinnedWriteBoosterBufferCurrentAllocUnits, 4, READ, DEVICE, since(0x0410)),
    row(Id::PinnedWriteBoosterBufferAvailablePercentage, 1, READ, DEVICE, since(0x0410)),
    row(Id::PinnedWriteBoosterCummulativeWrittenSize, 4, READ, DEVICE, since(0x0410)),
    row(Id::PinnedWriteBoosterBufferNumAllocUnits, 4, RW_PERSISTENT, EITHER, since(0x0410)),
    row(Id::NonPinnedWriteBoosterBufferMinNumAllocUnits, 4, RW_PERSISTENT, EITHER, since(0x0410)),
];
