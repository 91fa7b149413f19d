//! Standard INQUIRY data (SPC-6 6.7.2; JESD220 11.3.7).

use super::text::Text;
use crate::bytes::array;
use crate::code::code;
use crate::error::WireError;
use bitfield_struct::bitfield;

/// Length of the standard INQUIRY data that UFS sends, bytes.
pub const LENGTH: usize = 36;

code! {
    /// PERIPHERAL DEVICE TYPE.
    pub enum DeviceType: u8 {
        /// Direct access block device.
        Block = 0x00 => "direct access block device",
        /// Host managed zoned block device.
        Zoned = 0x14 => "host managed zoned block device",
        /// Well-known logical unit.
        WellKnown = 0x1E => "well known logical unit",
        /// No device.
        None = 0x1F => "no device type",
    }
}

code! {
    /// PERIPHERAL QUALIFIER.
    pub enum Qualifier: u8 {
        /// A device is connected to the unit.
        Connected = 0 => "connected",
        /// The unit is supported, but no device is connected to it.
        NotConnected = 1 => "not connected",
        /// The unit is not supported.
        NotSupported = 3 => "not supported",
    }
}

/// Byte 0.
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct Peripheral {
    /// PERIPHERAL DEVICE TYPE.
    #[bits(5)]
    pub device_type: DeviceType,
    /// PERIPHERAL QUALIFIER.
    #[bits(3)]
    pub qualifier: Qualifier,
}

/// Standard INQUIRY data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InquiryData {
    /// PERIPHERAL QUALIFIER and DEVICE TYPE.
    pub peripheral: Peripheral,
    /// RMB: the medium can be removed.
    pub removable: bool,
    /// VERSION: 6 is SPC-4, as UFS requires.
    pub version: u8,
    /// RESPONSE DATA FORMAT: 2.
    pub response_data_format: u8,
    /// ADDITIONAL LENGTH: 31 for 36 bytes.
    pub additional_length: u8,
    /// CMDQUE: command queuing is supported.
    pub command_queuing: bool,
    /// T10 VENDOR IDENTIFICATION.
    pub vendor: Text<8>,
    /// PRODUCT IDENTIFICATION.
    pub product: Text<16>,
    /// PRODUCT REVISION LEVEL.
    pub revision: Text<4>,
}

impl InquiryData {
    /// INQUIRY data of a UFS logical unit (JESD220 11.3.7).
    pub const fn ufs(
        device_type: DeviceType,
        vendor: Text<8>,
        product: Text<16>,
        revision: Text<4>,
    ) -> Self {
        Self {
            peripheral: Peripheral::new().with_device_type(device_type),
            removable: false,
            version: 6,
            response_data_format: 2,
            additional_length: (LENGTH - 5) as u8,
            command_queuing: true,
            vendor,
            product,
            revision,
        }
    }

    /// Parses INQUIRY data; anything after 36 bytes is ignored.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below 36 bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(bytes, LENGTH)?;
        Ok(Self {
            peripheral: Peripheral::from_bits(bytes[0]),
            removable: bytes[1] & 0x80 != 0,
            version: bytes[2],
            response_data_format: bytes[3] & 0xF,
            additional_length: bytes[4],
            command_queuing: bytes[7] & 0x02 != 0,
            vendor: Text(array(bytes, 8)),
            product: Text(array(bytes, 16)),
            revision: Text(array(bytes, 32)),
        })
    }

    /// Writes the data, reserved fields as zero.
    pub fn emit(&self, bytes: &mut [u8; LENGTH]) {
        bytes.fill(0);
        bytes[0] = self.peripheral.into_bits();
        bytes[1] = if self.removable { 0x80 } else { 0 };
        bytes[2] = self.version;
        bytes[3] = self.response_data_format & 0xF;
        bytes[4] = self.additional_length;
        bytes[7] = if self.command_queuing { 0x02 } else { 0 };
        bytes[8..16].copy_from_slice(&self.vendor.0);
        bytes[16..32].copy_from_slice(&self.product.0);
        bytes[32..36].copy_from_slice(&self.revision.0);
    }
}
