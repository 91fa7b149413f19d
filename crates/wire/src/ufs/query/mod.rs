//! Queries: opcodes, functions, results (JESD220 10.7.8, 10.7.9), and the parameters they access:
//! [descriptors](DescriptorId), [attributes](AttributeId), [flags](FlagId), each with its kinds of
//! access and the wSpecVersion that introduced it.
//!
//! Some devices have been seen to hang when asked for an attribute of a newer specification, so a
//! driver checks [`Since::is_in`] first. Where sources differ on the version, the later one is
//! used.

mod attributes;
mod flags;
mod values;

pub use attributes::{ATTRIBUTES, AttributeId, AttributeInfo};
pub use flags::{FLAGS, FlagId, FlagInfo};
pub use values::{
    BackgroundOpStatus, CurrentPowerMode, ExceptionEvents, FfuStatus, PINNED_GROUP, PurgeStatus,
    RefClkFreq, RefreshMethod, RefreshStatus, RefreshUnit, WriteBoosterFlushStatus,
    WriteBoosterPartialFlush, WriteBoosterResize, WriteBoosterResizeStatus, temperature_celsius,
};

use crate::code::code;

code! {
    /// Query opcode.
    #[derive(Default)]
    pub enum QueryOpcode: u8 {
        /// Nothing.
        #[default]
        Nop = 0x0 => "NOP",
        /// Read a descriptor.
        ReadDescriptor = 0x1 => "READ DESCRIPTOR",
        /// Write a descriptor.
        WriteDescriptor = 0x2 => "WRITE DESCRIPTOR",
        /// Read an attribute.
        ReadAttribute = 0x3 => "READ ATTRIBUTE",
        /// Write an attribute.
        WriteAttribute = 0x4 => "WRITE ATTRIBUTE",
        /// Read a flag.
        ReadFlag = 0x5 => "READ FLAG",
        /// Set a flag.
        SetFlag = 0x6 => "SET FLAG",
        /// Clear a flag.
        ClearFlag = 0x7 => "CLEAR FLAG",
        /// Toggle a flag.
        ToggleFlag = 0x8 => "TOGGLE FLAG",
        /// UFS 5.0: read several parameters at once.
        ReadAggregated = 0x9 => "READ AGGREGATED",
    }
}

impl QueryOpcode {
    /// The query function for the opcode.
    pub const fn function(self) -> QueryFunction {
        match self {
            Self::WriteDescriptor
            | Self::WriteAttribute
            | Self::SetFlag
            | Self::ClearFlag
            | Self::ToggleFlag => QueryFunction::StandardWriteRequest,
            _ => QueryFunction::StandardReadRequest,
        }
    }
}

code! {
    /// Query function, byte 5 of the request.
    pub enum QueryFunction: u8 {
        /// Standard read request.
        StandardReadRequest = 0x01 => "STANDARD READ REQUEST",
        /// Standard write request.
        StandardWriteRequest = 0x81 => "STANDARD WRITE REQUEST",
    }
}

code! {
    /// Query response code, byte 6 of the response.
    pub enum QueryResult: u8 {
        /// Done.
        Success = 0x00 => "Success",
        /// The parameter cannot be read.
        ParameterNotReadable = 0xF6 => "Parameter not readable",
        /// The parameter cannot be written, or not at this time.
        ParameterNotWriteable = 0xF7 => "Parameter not writeable",
        /// The parameter can be written only once and already has been.
        ParameterAlreadyWritten = 0xF8 => "Parameter already written",
        /// Invalid length.
        InvalidLength = 0xF9 => "Invalid LENGTH",
        /// Invalid value.
        InvalidValue = 0xFA => "Invalid value",
        /// Invalid selector.
        InvalidSelector = 0xFB => "Invalid SELECTOR",
        /// Invalid index.
        InvalidIndex = 0xFC => "Invalid INDEX",
        /// Invalid identification number.
        InvalidIdn = 0xFD => "Invalid IDN",
        /// Invalid opcode.
        InvalidOpcode = 0xFE => "Invalid OPCODE",
        /// General failure.
        GeneralFailure = 0xFF => "General failure",
    }
}

code! {
    /// Identification number of a descriptor, the same as its bDescriptorType (JESD220 14.1.4).
    pub enum DescriptorId: u8 {
        /// The device.
        Device = 0x00 => "Device",
        /// Provisioning of the device; the only descriptor that can be written.
        Configuration = 0x01 => "Configuration",
        /// A logical unit; the index is its number.
        Unit = 0x02 => "Unit",
        /// The link.
        Interconnect = 0x04 => "Interconnect",
        /// Text; the device descriptor holds the index.
        String = 0x05 => "String",
        /// Sizes and limits of the device.
        Geometry = 0x07 => "Geometry",
        /// Supply currents.
        Power = 0x08 => "Power Parameters",
        /// Wear.
        Health = 0x09 => "Device Health",
        /// File based optimization.
        Fbo = 0x0A => "File Based Optimization",
    }
}

impl DescriptorId {
    /// Versions that have the descriptor; `None` for a number without a name.
    pub const fn since(self) -> Option<Since> {
        match self {
            Self::Health => Some(Since::version(0x0210)),
            Self::Fbo => Some(Since::version(0x0400)),
            Self::Unknown(_) => None,
            _ => Some(Since::version(0x0100)),
        }
    }

    /// Whether the descriptor can be written at all.
    pub const fn is_writable(self) -> bool {
        matches!(self, Self::Configuration)
    }
}

/// The versions that have a feature: from a wSpecVersion on (0x0310 for 3.1), and possibly the side
/// branch 2.2, which got WriteBooster together with 3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// The first version of the main line that has it.
    pub version: u16,
    /// Whether 2.2 has it too although that version is lower.
    pub also_2_2: bool,
}

impl Since {
    /// From a version of the main line on.
    pub const fn version(version: u16) -> Self {
        Self { version, also_2_2: false }
    }

    /// From a version of the main line on, and in 2.2.
    pub const fn version_and_2_2(version: u16) -> Self {
        Self { version, also_2_2: true }
    }

    /// Whether a device of this wSpecVersion has it.
    pub const fn is_in(self, spec_version: u16) -> bool {
        spec_version >= self.version || (self.also_2_2 && spec_version == 0x0220)
    }
}

/// Versions that have WriteBooster.
pub const WRITE_BOOSTER_SINCE: Since = Since::version_and_2_2(0x0310);

// Short forms for the tables of attributes and flags.
const fn since(version: u16) -> Since {
    Since::version(version)
}

impl core::fmt::Display for Since {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:x}.{:x}", self.version >> 8, self.version >> 4 & 0xF)
    }
}

/// How an attribute or flag can be written (JESD220 14.2, 14.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAccess {
    /// Not at all.
    No,
    /// Until the next power cycle or reset.
    Volatile,
    /// Permanently, any number of times.
    Persistent,
    /// Once in the life of the device.
    Once,
    /// Once until a power cycle or hardware reset, which undoes it.
    OncePerPowerOn,
    /// It can be set; only the device clears it.
    SetOnly,
}

/// How an attribute or flag can be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Whether it can be read.
    pub read: bool,
    /// How it can be written.
    pub write: WriteAccess,
}

impl Access {
    /// Read only.
    pub const READ: Self = Self { read: true, write: WriteAccess::No };

    /// Readable, and writable as given.
    pub const fn read_write(write: WriteAccess) -> Self {
        Self { read: true, write }
    }

    /// Not readable, writable as given.
    pub const fn write_only(write: WriteAccess) -> Self {
        Self { read: false, write }
    }

    /// Whether it can be written at all.
    pub const fn is_writable(self) -> bool {
        !matches!(self.write, WriteAccess::No)
    }
}

impl core::fmt::Display for Access {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let write = match self.write {
            WriteAccess::No => return f.write_str("read only"),
            WriteAccess::Volatile => "volatile",
            WriteAccess::Persistent => "persistent",
            WriteAccess::Once => "write once",
            WriteAccess::OncePerPowerOn => "power on reset",
            WriteAccess::SetOnly => "set only",
        };
        f.write_str(if self.read { "read / " } else { "write only / " })?;
        f.write_str(write)
    }
}

/// What the index of an attribute or flag query selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Nothing: the device has one.
    Device,
    /// A logical unit: each has one.
    LogicalUnit,
    /// A logical unit if each has its own WriteBooster buffer, else nothing.
    DeviceOrLogicalUnit,
    /// A logical unit; the selector selects one of its contexts (1..=15).
    Context,
}

#[cfg(test)]
mod tests;
