//! Frame information structures (SATA 10.5).

use crate::WireError;
use crate::bytes::{array, le16, le32};

/// Bytes in a register FIS, in either direction.
pub const REGISTER_LENGTH: usize = 20;
/// Dwords of a host to device register FIS.
pub const H2D_DWORDS: u8 = 5;
/// Bytes in a PIO setup FIS.
pub const PIO_SETUP_LENGTH: usize = 20;
/// Bytes in a set device bits FIS.
pub const SET_DEVICE_BITS_LENGTH: usize = 8;

/// FIS types (SATA 10.5.1).
pub mod kind {
    /// Register, host to device.
    pub const H2D: u8 = 0x27;
    /// Register, device to host.
    pub const D2H: u8 = 0x34;
    /// DMA activate.
    pub const DMA_ACTIVATE: u8 = 0x39;
    /// DMA setup.
    pub const DMA_SETUP: u8 = 0x41;
    /// Data.
    pub const DATA: u8 = 0x46;
    /// PIO setup.
    pub const PIO_SETUP: u8 = 0x5F;
    /// Set device bits.
    pub const SET_DEVICE_BITS: u8 = 0xA1;
}

/// Bit 7 of byte 1 of a host to device FIS: COMMAND is written rather than CONTROL.
const COMMAND: u8 = 1 << 7;
/// Bit 6 of byte 1 of a FIS from the device: it raises an interrupt.
const INTERRUPT: u8 = 1 << 6;
/// Bit 7 of byte 1 of a set device bits FIS: it is a notification.
const NOTIFICATION: u8 = 1 << 7;
/// CONTROL: software reset.
pub const SRST: u8 = 1 << 2;

/// A register FIS from host to device (SATA 10.5.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct H2d {
    /// C: COMMAND is written.
    pub is_command: bool,
    /// Port of a multiplier.
    pub pmp: u8,
    /// COMMAND.
    pub command: u8,
    /// FEATURES, 16 bits.
    pub features: u16,
    /// LBA, 48 bits.
    pub lba: u64,
    /// DEVICE.
    pub device: u8,
    /// COUNT, 16 bits.
    pub count: u16,
    /// ICC.
    pub icc: u8,
    /// CONTROL.
    pub control: u8,
    /// AUXILIARY.
    pub auxiliary: u32,
}

impl H2d {
    /// As it lies in memory: three words, the last with four zero bytes after the FIS.
    #[inline]
    pub const fn to_words(self) -> [u64; 3] {
        let flags = (self.is_command as u8) << 7 | self.pmp & 0xF;
        let low = kind::H2D as u64
            | (flags as u64) << 8
            | (self.command as u64) << 16
            | ((self.features & 0xFF) as u64) << 24
            | (self.lba & 0xFF_FFFF) << 32
            | (self.device as u64) << 56;
        let high = self.lba >> 24 & 0xFF_FFFF
            | ((self.features >> 8) as u64) << 24
            | (self.count as u64) << 32
            | (self.icc as u64) << 48
            | (self.control as u64) << 56;
        [low.to_le(), high.to_le(), (self.auxiliary as u64).to_le()]
    }

    /// Parses a FIS.
    ///
    /// # Errors
    /// Too few bytes, or a FIS of another type.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(bytes, REGISTER_LENGTH)?;
        if bytes[0] != kind::H2D {
            return Err(WireError::WrongCode { expected: kind::H2D, got: bytes[0] });
        }
        Ok(Self {
            is_command: bytes[1] & COMMAND != 0,
            pmp: bytes[1] & 0xF,
            command: bytes[2],
            features: u16::from_le_bytes([bytes[3], bytes[11]]),
            lba: lba(bytes),
            device: bytes[7],
            count: le16(bytes, 12),
            icc: bytes[14],
            control: bytes[15],
            auxiliary: le32(bytes, 16),
        })
    }
}

/// The 48 bits of LBA of a register FIS.
fn lba(bytes: &[u8]) -> u64 {
    u64::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[8], bytes[9], bytes[10], 0, 0])
}

/// A register FIS from device to host (SATA 10.5.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct D2h {
    /// I: it raises an interrupt.
    pub interrupt: bool,
    /// STATUS.
    pub status: u8,
    /// ERROR.
    pub error: u8,
    /// LBA, 48 bits.
    pub lba: u64,
    /// DEVICE.
    pub device: u8,
    /// COUNT.
    pub count: u16,
}

impl D2h {
    /// Parses a FIS.
    ///
    /// # Errors
    /// Too few bytes, or a FIS of another type.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(bytes, REGISTER_LENGTH)?;
        if bytes[0] != kind::D2H {
            return Err(WireError::WrongCode { expected: kind::D2H, got: bytes[0] });
        }
        Ok(Self {
            interrupt: bytes[1] & INTERRUPT != 0,
            status: bytes[2],
            error: bytes[3],
            lba: lba(bytes),
            device: bytes[7],
            count: le16(bytes, 12),
        })
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; REGISTER_LENGTH] {
        let mut bytes = [0; REGISTER_LENGTH];
        bytes[0] = kind::D2H;
        bytes[1] = if self.interrupt { INTERRUPT } else { 0 };
        (bytes[2], bytes[3], bytes[7]) = (self.status, self.error, self.device);
        let lba = self.lba.to_le_bytes();
        bytes[4..7].copy_from_slice(&lba[..3]);
        bytes[8..11].copy_from_slice(&lba[3..6]);
        bytes[12..14].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }

    /// The signature it carries after a reset: LBA and COUNT, in the order of [`PX_SIG`].
    ///
    /// [`PX_SIG`]: super::registers::PX_SIG
    pub const fn signature(self) -> u32 {
        (self.lba as u32) << 8 | (self.count & 0xFF) as u32
    }
}

/// A PIO setup FIS (SATA 10.5.11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PioSetup {
    /// D: data from the device.
    pub to_host: bool,
    /// I: it raises an interrupt.
    pub interrupt: bool,
    /// STATUS before the data.
    pub status: u8,
    /// ERROR.
    pub error: u8,
    /// STATUS after the data.
    pub end_status: u8,
    /// Bytes to transfer.
    pub bytes: u16,
}

/// Bit 5 of byte 1: data from the device.
const TO_HOST: u8 = 1 << 5;

impl PioSetup {
    /// Its bytes; LBA and COUNT are zero.
    pub fn to_bytes(self) -> [u8; PIO_SETUP_LENGTH] {
        let mut bytes = [0; PIO_SETUP_LENGTH];
        bytes[0] = kind::PIO_SETUP;
        let interrupt = if self.interrupt { INTERRUPT } else { 0 };
        bytes[1] = interrupt | if self.to_host { TO_HOST } else { 0 };
        (bytes[2], bytes[3], bytes[15]) = (self.status, self.error, self.end_status);
        bytes[16..18].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    /// Parses a FIS.
    ///
    /// # Errors
    /// Too few bytes, or a FIS of another type.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(bytes, PIO_SETUP_LENGTH)?;
        if bytes[0] != kind::PIO_SETUP {
            return Err(WireError::WrongCode { expected: kind::PIO_SETUP, got: bytes[0] });
        }
        Ok(Self {
            to_host: bytes[1] & TO_HOST != 0,
            interrupt: bytes[1] & INTERRUPT != 0,
            status: bytes[2],
            error: bytes[3],
            end_status: bytes[15],
            bytes: u16::from_le_bytes(array(bytes, 16)),
        })
    }
}

/// A set device bits FIS (SATA 10.5.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetDeviceBits {
    /// I: it raises an interrupt.
    pub interrupt: bool,
    /// N: the sender asks for attention.
    pub notification: bool,
    /// STATUS without BSY and DRQ.
    pub status: u8,
    /// ERROR.
    pub error: u8,
    /// Tags of the commands that completed.
    pub ended: u32,
}

impl SetDeviceBits {
    /// Its bytes.
    pub fn to_bytes(self) -> [u8; SET_DEVICE_BITS_LENGTH] {
        let [a, b, c, d] = self.ended.to_le_bytes();
        let flags = if self.interrupt { INTERRUPT } else { 0 }
            | if self.notification { NOTIFICATION } else { 0 };
        [kind::SET_DEVICE_BITS, flags, self.status & 0x77, self.error, a, b, c, d]
    }
}
