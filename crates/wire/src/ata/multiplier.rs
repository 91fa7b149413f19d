//! Port multipliers (SATA 16): their registers, and the two commands that read and write them.
//!
//! A multiplier has general registers (GSCR) and, for each device port, the status and control
//! registers of that port's link (PSCR). The host accesses both by commands to the control port.

use super::command::Opcode;
use super::fis::{D2h, H2d};

/// The port that addresses the multiplier itself.
pub const CONTROL_PORT: u8 = 15;
/// Maximum number of device ports.
pub const PORTS_MAX: usize = 15;

/// General registers (SATA 16.4.1).
pub mod gscr {
    /// Product: device id in the high half, vendor id in the low.
    pub const PRODUCT: u16 = 0;
    /// Revision: level in bits 15:8; bit 1 says specification 1.0, bit 2 1.1, bit 3 1.2.
    pub const REVISION: u16 = 1;
    /// Device ports, bits 3:0.
    pub const PORTS: u16 = 2;
    /// Device ports with an error that [`ERROR_ENABLE`] selects, a bit each.
    pub const ERROR: u16 = 32;
    /// Bits of PSCR SError that count as an error in [`ERROR`].
    pub const ERROR_ENABLE: u16 = 33;
    /// Supported features, see [`feature`](super::feature).
    pub const FEATURES: u16 = 64;
    /// Enabled features.
    pub const FEATURES_ENABLE: u16 = 96;
    /// Only on Silicon Image's 3726 and 3826: how links are used. Bit 0 answers a frame before it
    /// has arrived completely; Linux clears it.
    pub const SIL_POLICY: u16 = 129;
}

/// Registers of a device port's link (SATA 16.4.2).
pub mod pscr {
    /// SStatus.
    pub const STATUS: u16 = 0;
    /// SError, write one to clear.
    pub const ERROR: u16 = 1;
    /// SControl.
    pub const CONTROL: u16 = 2;
}

/// Bits of [`gscr::FEATURES`].
pub mod feature {
    /// Sends a notification when a bit of [`gscr::ERROR`](super::gscr::ERROR) is set.
    pub const NOTIFICATION: u32 = 1 << 3;
}

/// Bits of ERROR that a refused access sets in addition to ABRT.
pub mod error {
    /// There is no such port.
    pub const PORT: u8 = 1 << 0;
    /// There is no such register.
    pub const REGISTER: u8 = 1 << 1;
}

/// An access to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Number of the register.
    pub register: u16,
    /// Device port, or [`CONTROL_PORT`] for a general register.
    pub port: u8,
    /// The value to write; `None` reads.
    pub value: Option<u32>,
}

impl Access {
    /// Reads a register.
    pub const fn read(port: u8, register: u16) -> Self {
        Self { register, port, value: None }
    }

    /// Writes a register.
    pub const fn write(port: u8, register: u16, value: u32) -> Self {
        Self { register, port, value: Some(value) }
    }

    /// READ or WRITE PORT MULTIPLIER, to the control port.
    pub fn to_fis(self) -> H2d {
        let opcode = match self.value {
            None => Opcode::ReadMultiplier,
            Some(_) => Opcode::WriteMultiplier,
        };
        let value = self.value.unwrap_or(0);
        H2d {
            is_command: true,
            pmp: CONTROL_PORT,
            command: opcode.into_bits(),
            features: self.register,
            lba: u64::from(value >> 8),
            device: self.port,
            count: (value & 0xFF) as u16,
            ..H2d::default()
        }
    }

    /// The access that a command requests; `None` for any other command.
    pub fn of(fis: &H2d) -> Option<Self> {
        let value = u32::from(fis.count as u8) | ((fis.lba & 0xFF_FFFF) as u32) << 8;
        let value = match Opcode::from_bits(fis.command) {
            Opcode::ReadMultiplier => None,
            Opcode::WriteMultiplier => Some(value),
            _ => return None,
        };
        Some(Self { register: fis.features, port: fis.device & 0xF, value })
    }
}

/// The value returned by a read.
pub const fn value_of(fis: &D2h) -> u32 {
    (fis.count & 0xFF) as u32 | ((fis.lba & 0xFF_FFFF) as u32) << 8
}

/// LBA and COUNT with which a read returns `value`.
pub const fn registers_of(value: u32) -> (u64, u16) {
    ((value >> 8) as u64, (value & 0xFF) as u16)
}
