//! READ CAPACITY data (SBC-4).

use crate::bytes::{be16, be32, be64, put};
use crate::error::WireError;

/// Data of READ CAPACITY(10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity10 {
    /// RETURNED LOGICAL BLOCK ADDRESS: the last block; all ones refers to READ CAPACITY(16).
    pub last_lba: u32,
    /// LOGICAL BLOCK LENGTH IN BYTES.
    pub block_length: u32,
}

impl Capacity10 {
    /// Length of the data, bytes.
    pub const LENGTH: usize = 8;

    /// Parses the data.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        Self { last_lba: be32(bytes, 0), block_length: be32(bytes, 4) }
    }

    /// Writes the data.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        put(bytes, 0, self.last_lba.to_be_bytes());
        put(bytes, 4, self.block_length.to_be_bytes());
    }
}

/// Data of READ CAPACITY(16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity16 {
    /// RETURNED LOGICAL BLOCK ADDRESS: the last block.
    pub last_lba: u64,
    /// LOGICAL BLOCK LENGTH IN BYTES.
    pub block_length: u32,
    /// P_TYPE, if PROT_EN: protection information.
    pub protection: Option<u8>,
    /// P_I_EXPONENT.
    pub protection_interval_exponent: u8,
    /// LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT.
    pub physical_block_exponent: u8,
    /// LBPME (TPE in UFS): thin provisioning is on.
    pub lbpme: bool,
    /// LBPRZ (TPRZ in UFS): unmapped blocks read as zero.
    pub lbprz: bool,
    /// LOWEST ALIGNED LOGICAL BLOCK ADDRESS, 14 bits.
    pub lowest_aligned_lba: u16,
}

impl Capacity16 {
    /// Length of the data, bytes.
    pub const LENGTH: usize = 32;
    /// Minimum length that can be parsed.
    const LENGTH_SHORT: usize = 16;

    /// Parses the data.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below 16 bytes; the 16 after them are reserved.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(bytes, Self::LENGTH_SHORT)?;
        let provisioning = be16(bytes, 14);
        Ok(Self {
            last_lba: be64(bytes, 0),
            block_length: be32(bytes, 8),
            protection: if bytes[12] & 1 != 0 { Some(bytes[12] >> 1 & 7) } else { None },
            protection_interval_exponent: bytes[13] >> 4,
            physical_block_exponent: bytes[13] & 0xF,
            lbpme: provisioning & 0x8000 != 0,
            lbprz: provisioning & 0x4000 != 0,
            lowest_aligned_lba: provisioning & 0x3FFF,
        })
    }

    /// Writes the data, reserved fields as zero.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        bytes.fill(0);
        put(bytes, 0, self.last_lba.to_be_bytes());
        put(bytes, 8, self.block_length.to_be_bytes());
        bytes[12] = self.protection.map_or(0, |kind| (kind & 7) << 1 | 1);
        bytes[13] = self.protection_interval_exponent << 4 | self.physical_block_exponent & 0xF;
        let provisioning = u16::from(self.lbpme) << 15
            | u16::from(self.lbprz) << 14
            | self.lowest_aligned_lba & 0x3FFF;
        put(bytes, 14, provisioning.to_be_bytes());
    }
}
