//! SMART data (ACS-3 and before name the attributes; ACS-4 7.45 only the frame).

use super::SECTOR;
use crate::Error;
use crate::bytes::le16;

/// Most attributes.
pub const ATTRIBUTES_MAX: usize = 30;
/// Bytes of one.
const ATTRIBUTE: usize = 12;
/// Where they begin.
const FIRST: usize = 2;

/// One attribute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attribute {
    /// What it is; 0 is none.
    pub id: u8,
    /// Bit 0: falling below the threshold means that the device fails soon.
    pub flags: u16,
    /// The value, from 253 down to 1.
    pub value: u8,
    /// The lowest it has been.
    pub worst: u8,
    /// What the vendor makes of it, 48 bits.
    pub raw: u64,
}

/// Numbers of attributes most vendors agree on.
pub mod attribute {
    /// Sectors that were moved.
    pub const REALLOCATED: u8 = 5;
    /// Hours with power.
    pub const POWER_ON_HOURS: u8 = 9;
    /// Times power came.
    pub const POWER_CYCLES: u8 = 12;
    /// Times power went without warning.
    pub const UNEXPECTED_POWER_LOSS: u8 = 174;
    /// Uncorrectable errors that were reported.
    pub const UNCORRECTABLE: u8 = 187;
    /// Temperature.
    pub const TEMPERATURE: u8 = 194;
    /// CRC errors of the link.
    pub const CRC_ERRORS: u8 = 199;
    /// Sectors written.
    pub const WRITTEN: u8 = 241;
    /// Sectors read.
    pub const READ: u8 = 242;
}

/// What SMART READ DATA gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmartData {
    /// The attributes, those that are none among them.
    pub attributes: [Attribute; ATTRIBUTES_MAX],
    /// State of the last self-test.
    pub self_test: u8,
}

impl Default for SmartData {
    fn default() -> Self {
        Self { attributes: [Attribute::default(); ATTRIBUTES_MAX], self_test: 0 }
    }
}

impl SmartData {
    /// What the page says.
    ///
    /// # Errors
    /// Too few bytes, or a checksum that is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        Error::check_len(bytes, SECTOR)?;
        if super::sum(&bytes[..SECTOR]) != 0 {
            return Err(Error::BadField("checksum of SMART data"));
        }
        let mut data = Self { self_test: bytes[363], ..Self::default() };
        for (n, attribute) in data.attributes.iter_mut().enumerate() {
            let at = FIRST + n * ATTRIBUTE;
            let raw = &bytes[at + 5..at + 11];
            *attribute = Attribute {
                id: bytes[at],
                flags: le16(bytes, at + 1),
                value: bytes[at + 3],
                worst: bytes[at + 4],
                raw: raw.iter().rev().fold(0, |raw, byte| raw << 8 | u64::from(*byte)),
            };
        }
        Ok(data)
    }

    /// The page.
    pub fn to_bytes(&self) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        bytes[0] = 1;
        for (n, attribute) in self.attributes.iter().enumerate() {
            let at = FIRST + n * ATTRIBUTE;
            bytes[at] = attribute.id;
            bytes[at + 1..at + 3].copy_from_slice(&attribute.flags.to_le_bytes());
            (bytes[at + 3], bytes[at + 4]) = (attribute.value, attribute.worst);
            bytes[at + 5..at + 11].copy_from_slice(&attribute.raw.to_le_bytes()[..6]);
        }
        bytes[363] = self.self_test;
        bytes[511] = 0_u8.wrapping_sub(super::sum(&bytes[..511]));
        bytes
    }

    /// The attribute of this number.
    pub fn get(&self, id: u8) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| id != 0 && attribute.id == id)
    }
}
