//! Features (5.27.1): their identifiers, and the bits of those that a driver uses.

use crate::code::code;
use bitfield_struct::bitfield;

code! {
    /// Feature identifiers.
    pub enum FeatureId: u8 {
        /// Arbitration.
        Arbitration = 0x01 => "Arbitration",
        /// Power management.
        PowerManagement = 0x02 => "Power Management",
        /// LBA range type.
        LbaRange = 0x03 => "LBA Range Type",
        /// Temperature threshold.
        Temperature = 0x04 => "Temperature Threshold",
        /// Error recovery.
        ErrorRecovery = 0x05 => "Error Recovery",
        /// Volatile write cache.
        WriteCache = 0x06 => "Volatile Write Cache",
        /// Number of queues.
        Queues = 0x07 => "Number of Queues",
        /// Interrupt coalescing.
        Coalescing = 0x08 => "Interrupt Coalescing",
        /// Interrupt vector configuration.
        VectorConfig = 0x09 => "Interrupt Vector Configuration",
        /// Write atomicity normal.
        Atomicity = 0x0A => "Write Atomicity Normal",
        /// Asynchronous event configuration.
        AsyncEvents = 0x0B => "Asynchronous Event Configuration",
        /// Autonomous power state transition.
        Apst = 0x0C => "Autonomous Power State Transition",
        /// Host memory buffer.
        HostMemory = 0x0D => "Host Memory Buffer",
        /// Timestamp.
        Timestamp = 0x0E => "Timestamp",
        /// Keep alive timer.
        KeepAlive = 0x0F => "Keep Alive Timer",
        /// Host controlled thermal management.
        Thermal = 0x10 => "Host Controlled Thermal Management",
        /// Host behaviour support.
        HostBehavior = 0x16 => "Host Behavior Support",
        /// Sanitize config.
        SanitizeConfig = 0x17 => "Sanitize Config",
        /// Flexible data placement.
        FlexiblePlacement = 0x1D => "Flexible Data Placement",
        /// Software progress marker.
        Progress = 0x80 => "Software Progress Marker",
        /// Host identifier.
        HostId = 0x81 => "Host Identifier",
        /// Namespace write protection.
        WriteProtect = 0x84 => "Namespace Write Protection Config",
    }
}

/// Bit of CDW10 of set features: saves the value across resets.
pub const SAVE: u32 = 1 << 31;

/// SEL of get features: the value requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Select {
    /// The current one.
    #[default]
    Current,
    /// The default.
    Default,
    /// The saved one.
    Saved,
    /// The supported capabilities: [`SupportedCapabilities`].
    Supported,
}

impl Select {
    /// The bits in CDW10.
    pub const fn into_bits(self) -> u32 {
        (self as u32) << 8
    }

    /// The selection with this SEL; `None` for a reserved number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Current),
            1 => Some(Self::Default),
            2 => Some(Self::Saved),
            3 => Some(Self::Supported),
            _ => None,
        }
    }
}

/// Bytes in the structure that get features returns for a feature; 0 for features whose value is
/// one dword, and for those this crate does not know. `wide` is EXHID of the host identifier.
pub const fn structure_bytes(id: FeatureId, wide: bool) -> usize {
    match id {
        FeatureId::LbaRange | FeatureId::HostMemory => 4096,
        FeatureId::Apst => APST_BYTES,
        FeatureId::Timestamp => 8,
        FeatureId::HostBehavior => 512,
        FeatureId::HostId => {
            if wide {
                16
            } else {
                8
            }
        }
        _ => 0,
    }
}

/// Result of [`Select::Supported`].
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct SupportedCapabilities {
    /// It can be saved.
    pub saveable: bool,
    /// It is per namespace.
    pub per_namespace: bool,
    /// It can be changed.
    pub changeable: bool,
    #[bits(29)]
    __: u32,
}

/// CDW11 and the result of [`FeatureId::Queues`].
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct QueueCounts {
    /// I/O submission queues minus one.
    pub submission: u16,
    /// I/O completion queues minus one.
    pub completion: u16,
}

/// CDW11 of [`FeatureId::AsyncEvents`].
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct AsyncEvents {
    /// SMART critical warnings.
    pub smart: u8,
    /// Namespace attributes changed.
    pub namespaces: bool,
    /// Firmware activation is about to start.
    pub firmware: bool,
    /// Telemetry.
    pub telemetry: bool,
    /// Asymmetric access changed.
    pub ana: bool,
    #[bits(20)]
    __: u32,
}

/// Bytes in the value of [`FeatureId::Apst`]: an [`ApstEntry`] for each of 32 power states.
pub const APST_BYTES: usize = 256;

/// The autonomous transition out of one power state (5.27.1.10).
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct ApstEntry {
    #[bits(3)]
    __: u8,
    /// ITPS: the target power state.
    #[bits(5)]
    pub itps: u8,
    /// ITPT: idle time before the transition, milliseconds; 0 is never.
    #[bits(24)]
    pub itpt: u32,
    #[bits(32)]
    __: u32,
}

/// Result of an asynchronous event request (5.2 of 1.4, figure 145).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct AsyncEventResult {
    /// Type: see [`event`].
    #[bits(3)]
    pub kind: u8,
    #[bits(5)]
    __: u8,
    /// The event within its type.
    pub info: u8,
    /// The log page that describes the event and must be read.
    pub log_page: u8,
    __: u8,
}

/// Types of [`AsyncEventResult`], and their events.
pub mod event {
    /// An error.
    pub const ERROR: u8 = 0;
    /// SMART or health.
    pub const SMART: u8 = 1;
    /// A notice.
    pub const NOTICE: u8 = 2;
    /// Notice: namespaces were added, removed or changed.
    pub const NAMESPACES_CHANGED: u8 = 0;
    /// Notice: firmware is about to be activated.
    pub const FIRMWARE: u8 = 1;
    /// Error: a write to a doorbell that does not exist.
    pub const INVALID_DOORBELL: u8 = 0;
    /// Error: a write of an invalid doorbell value.
    pub const INVALID_DOORBELL_VALUE: u8 = 1;
}
