//! NOP OUT, NOP IN and REJECT (JESD220 10.7.10 to 10.7.12).

use super::{Header, LENGTH, ResponseCode, TransactionCode};
use crate::bytes::put;
use crate::error::WireError;

/// NOP OUT: asks the device whether it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopOut {
    /// The header.
    pub header: Header,
}

impl NopOut {
    /// A NOP OUT.
    pub const fn new(task_tag: u8) -> Self {
        Self { header: Header::new(TransactionCode::NopOut, 0, task_tag) }
    }

    /// Parses a NOP OUT.
    ///
    /// # Errors
    /// [`WireError::WrongCode`] for a UPIU of another type.
    pub fn parse(bytes: &[u8; LENGTH]) -> Result<Self, WireError> {
        Ok(Self { header: Header::parse(bytes).expect(TransactionCode::NopOut)? })
    }

    /// Writes the UPIU, reserved fields as zero.
    pub fn emit(&self, bytes: &mut [u8; LENGTH]) {
        bytes.fill(0);
        self.header.emit(bytes);
    }
}

/// NOP IN: the device is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopIn {
    /// The header.
    pub header: Header,
}

impl NopIn {
    /// The answer to a NOP OUT.
    pub const fn new(task_tag: u8) -> Self {
        Self { header: Header::new(TransactionCode::NopIn, 0, task_tag) }
    }

    /// Parses a NOP IN.
    ///
    /// # Errors
    /// [`WireError::WrongCode`] for a UPIU of another type.
    pub fn parse(bytes: &[u8; LENGTH]) -> Result<Self, WireError> {
        Ok(Self { header: Header::parse(bytes).expect(TransactionCode::NopIn)? })
    }

    /// Writes the UPIU, reserved fields as zero.
    pub fn emit(&self, bytes: &mut [u8; LENGTH]) {
        bytes.fill(0);
        self.header.emit(bytes);
    }
}

/// REJECT: the device does not understand a UPIU. No public implementation reads one, so the
/// positions of the two status bytes are unconfirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The header; task tag and logical unit are those of the rejected UPIU, if it had them.
    pub header: Header,
    /// Byte 12: error of the basic header. The codes are device specific.
    pub basic_header_status: u8,
    /// Byte 14: bit 0 header CRC error, bit 1 data CRC error.
    pub e2e_status: u8,
}

impl Reject {
    /// A rejection of the UPIU with this header.
    pub const fn new(lun: u8, task_tag: u8, basic_header_status: u8) -> Self {
        let mut header = Header::new(TransactionCode::Reject, lun, task_tag);
        header.response = ResponseCode::TargetFailure.into_bits();
        Self { header, basic_header_status, e2e_status: 0 }
    }

    /// Parses a REJECT.
    ///
    /// # Errors
    /// [`WireError::WrongCode`] for a UPIU of another type.
    pub fn parse(bytes: &[u8; LENGTH]) -> Result<Self, WireError> {
        let header = Header::parse(bytes).expect(TransactionCode::Reject)?;
        Ok(Self::after(header, bytes))
    }

    pub(super) fn after(header: Header, bytes: &[u8; LENGTH]) -> Self {
        Self { header, basic_header_status: bytes[12], e2e_status: bytes[14] }
    }

    /// Writes the UPIU, reserved fields as zero.
    pub fn emit(&self, bytes: &mut [u8; LENGTH]) {
        self.header.emit(bytes);
        put(bytes, 12, [0; 20]);
        bytes[12] = self.basic_header_status;
        bytes[14] = self.e2e_status;
    }
}
