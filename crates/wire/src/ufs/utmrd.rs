//! UTP task management request descriptor (JESD223 6.2.1): one slot of the task management request
//! list, which contains both UPIUs. Little-endian except for the UPIUs.

use super::upiu;
use crate::bytes::{array, le32, put};
use crate::code::code;
use bitfield_struct::bitfield;

/// Length of a descriptor, bytes.
pub const LENGTH: usize = 80;
/// Offset of DW0, [`UtmrdHeader`].
pub const HEADER_OFFSET: usize = 0;
/// Offset of DW2, whose low byte is the overall command status.
pub const STATUS_OFFSET: usize = 8;
/// Offset of the request UPIU.
pub const REQUEST_OFFSET: usize = 16;
/// Offset of the response UPIU.
pub const RESPONSE_OFFSET: usize = 48;

code! {
    /// OCS, overall command status of a task management request (JESD223 6.2.1).
    pub enum TaskOcs: u8 {
        /// The device answered; the response UPIU holds its answer.
        Success = 0x0 => "SUCCESS",
        /// The descriptor is invalid.
        InvalidAttributes = 0x1 => "INVALID_TASK_MANAGEMENT_FUNCTION_ATTRIBUTES",
        /// The request UPIU has the wrong size.
        MismatchRequestSize = 0x2 => "MISMATCH_TASK_MANAGEMENT_REQUEST_SIZE",
        /// The response UPIU has the wrong size.
        MismatchResponseSize = 0x3 => "MISMATCH_TASK_MANAGEMENT_RESPONSE_SIZE",
        /// The link to the device failed.
        PeerCommunicationFailure = 0x4 => "PEER_COMMUNICATION_FAILURE",
        /// Aborted by clearing its slot.
        Aborted = 0x5 => "ABORTED",
        /// The host controller had a fatal error.
        FatalError = 0x6 => "FATAL_ERROR",
        /// The device had a fatal error.
        DeviceFatalError = 0x7 => "DEVICE_FATAL_ERROR",
        /// Written by the host before it issues the request: not finished.
        Invalid = 0xF => "INVALID_OCS_VALUE",
    }
}

/// DW0.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct UtmrdHeader {
    #[bits(24)]
    __: u32,
    /// I: raise UTMRCS when this request finishes.
    pub i: bool,
    #[bits(7)]
    __: u8,
}

/// A descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utmrd {
    /// DW0.
    pub header: UtmrdHeader,
    /// Overall command status.
    pub ocs: TaskOcs,
    /// The request UPIU.
    pub request: [u8; upiu::LENGTH],
    /// The response UPIU.
    pub response: [u8; upiu::LENGTH],
}

impl Utmrd {
    /// Parses a descriptor.
    pub fn parse(bytes: &[u8; LENGTH]) -> Self {
        Self {
            header: UtmrdHeader::from_bits(le32(bytes, HEADER_OFFSET)),
            ocs: TaskOcs::from_bits(bytes[STATUS_OFFSET]),
            request: array(bytes, REQUEST_OFFSET),
            response: array(bytes, RESPONSE_OFFSET),
        }
    }

    /// Writes the descriptor, reserved fields as zero.
    pub fn emit(&self, bytes: &mut [u8; LENGTH]) {
        bytes[..REQUEST_OFFSET].fill(0);
        put(bytes, HEADER_OFFSET, self.header.into_bits().to_le_bytes());
        bytes[STATUS_OFFSET] = self.ocs.into_bits();
        put(bytes, REQUEST_OFFSET, self.request);
        put(bytes, RESPONSE_OFFSET, self.response);
    }
}
