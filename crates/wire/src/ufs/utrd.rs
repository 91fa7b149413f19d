//! UTP transfer request descriptor (JESD223 6.1.1): one slot of the transfer request list and, with
//! the same 32 bytes, one entry of a submission queue. Little-endian.
//!
//! A driver fills a slot's descriptor once and then rewrites only what changes between commands:
//! [`UtrdHeader`] at [`HEADER_OFFSET`], [`UtrdStatus`] at [`STATUS_OFFSET`], [`UcdSpan`] of the
//! PRDT at [`PRDT_OFFSET`].

use crate::bytes::{le32, le64, put};
use crate::code::code;
use bitfield_struct::bitfield;

/// Length of a descriptor, bytes.
pub const LENGTH: usize = 32;
/// Offset of DW0, [`UtrdHeader`].
pub const HEADER_OFFSET: usize = 0;
/// Offset of DW1: data unit number, low half.
pub const DUN_LOW_OFFSET: usize = 4;
/// Offset of DW2, [`UtrdStatus`].
pub const STATUS_OFFSET: usize = 8;
/// Offset of DW3: data unit number, high half.
pub const DUN_HIGH_OFFSET: usize = 12;
/// Offset of DW4 and DW5: the address of the UTP command descriptor.
pub const UCD_OFFSET: usize = 16;
/// Offset of DW6: the [`UcdSpan`] of the response UPIU.
pub const RESPONSE_OFFSET: usize = 24;
/// Offset of DW7: the [`UcdSpan`] of the PRDT.
pub const PRDT_OFFSET: usize = 28;
/// Alignment of the UTP command descriptor, bytes.
pub const UCD_ALIGNMENT: u64 = 128;

code! {
    /// CT, command type.
    pub enum CommandType: u8 {
        /// UFSHCI 1.x: a SCSI command.
        Scsi = 0x0 => "SCSI",
        /// Any request to a UFS device (from UFSHCI 2.0 on).
        UfsStorage = 0x1 => "UFS Storage",
        /// UFSHCI 1.x: a device management function.
        DeviceManagement = 0x2 => "Device Management",
        /// A submission queue entry withdrawn by the host: the controller skips it.
        Nullified = 0xF => "Nullified",
    }
}

code! {
    /// DD, data direction.
    pub enum DataDirection: u8 {
        /// No data.
        None = 0 => "none",
        /// Host memory to device.
        ToDevice = 1 => "host to device",
        /// Device to host memory.
        FromDevice = 2 => "device to host",
    }
}

code! {
    /// OCS, overall command status of a transfer request (JESD223 6.1.1).
    pub enum Ocs: u8 {
        /// The device answered; the response UPIU holds its answer.
        Success = 0x00 => "SUCCESS",
        /// The UTRD or UCD is invalid.
        InvalidCommandTableAttributes = 0x01 => "INVALID_CMD_TABLE_ATTR",
        /// The PRDT is invalid.
        InvalidPrdtAttributes = 0x02 => "INVALID_PRDT_ATTR",
        /// The device transferred a different amount of data than the PRDT describes.
        MismatchDataBufferSize = 0x03 => "MISMATCH_DATA_BUF_SIZE",
        /// The response UPIU is longer than the space for it.
        MismatchResponseUpiuSize = 0x04 => "MISMATCH_RESP_UPIU_SIZE",
        /// The link to the device failed.
        PeerCommunicationFailure = 0x05 => "PEER_COMM_FAILURE",
        /// Aborted by clearing its slot.
        Aborted = 0x06 => "ABORTED",
        /// The host controller had a fatal error.
        FatalError = 0x07 => "FATAL_ERROR",
        /// The device had a fatal error.
        DeviceFatalError = 0x08 => "DEVICE_FATAL_ERROR",
        /// The crypto configuration is invalid.
        InvalidCryptoConfiguration = 0x09 => "INVALID_CRYPTO_CONFIG",
        /// The crypto engine failed.
        GeneralCryptoError = 0x0A => "GENERAL_CRYPTO_ERROR",
        /// Written by the host before it issues the request: not finished.
        Invalid = 0x0F => "INVALID_OCS_VALUE",
    }
}

/// DW0.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct UtrdHeader {
    /// CCI: crypto configuration index.
    #[inline]
    pub cci: u8,
    /// EHSL: extra header segments in the request UPIU, in units of 32 bytes.
    #[inline]
    pub ehsl: u8,
    #[bits(7)]
    __: u8,
    /// CE: crypto enable.
    #[inline]
    pub ce: bool,
    /// I: raise UTRCS when this request finishes.
    #[inline]
    pub i: bool,
    /// DD: data direction.
    #[bits(2)]
    #[inline]
    pub dd: DataDirection,
    __: bool,
    /// CT: command type.
    #[bits(4)]
    #[inline]
    pub ct: CommandType,
}

/// DW2.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct UtrdStatus {
    /// OCS: overall command status. In MCQ mode it is in the completion queue entry instead.
    #[bits(8)]
    #[inline]
    pub ocs: Ocs,
    /// CDS: common data size.
    #[inline]
    pub cds: u8,
    /// LDBC: last data byte count.
    #[inline]
    pub ldbc: u16,
}

impl UtrdStatus {
    /// The status that a host writes before it issues the request.
    pub const PENDING: Self = Self::new().with_ocs(Ocs::Invalid);
}

/// DW6 and DW7: the position of a part of the UTP command descriptor.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct UcdSpan {
    /// Length: of the response UPIU in dwords, of the PRDT in entries (in bytes on controllers
    /// with that quirk).
    #[inline]
    pub length: u16,
    /// Offset from the start of the UTP command descriptor, in dwords.
    #[inline]
    pub offset: u16,
}

impl UcdSpan {
    /// The offset in bytes.
    #[inline]
    pub const fn offset_bytes(self) -> usize {
        self.offset() as usize * 4
    }

    /// The length of a response UPIU in bytes.
    #[inline]
    pub const fn response_bytes(self) -> usize {
        self.length() as usize * 4
    }
}

/// A descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Utrd {
    /// DW0.
    pub header: UtrdHeader,
    /// Data unit number for inline encryption (DW1 and DW3).
    pub dun: u64,
    /// DW2.
    pub status: UtrdStatus,
    /// Address of the UTP command descriptor, aligned to [`UCD_ALIGNMENT`] (DW4 and DW5).
    pub ucd_base: u64,
    /// Position of the response UPIU (DW6).
    pub response: UcdSpan,
    /// Position of the PRDT (DW7).
    pub prdt: UcdSpan,
}

impl Utrd {
    /// Parses a descriptor. Reserved bits of the words are preserved, and so are the low bits of
    /// the address, which a reader masks with [`UCD_ALIGNMENT`].
    #[inline]
    pub fn parse(bytes: &[u8; LENGTH]) -> Self {
        Self {
            header: UtrdHeader::from_bits(le32(bytes, HEADER_OFFSET)),
            dun: u64::from(le32(bytes, DUN_HIGH_OFFSET)) << 32
                | u64::from(le32(bytes, DUN_LOW_OFFSET)),
            status: UtrdStatus::from_bits(le32(bytes, STATUS_OFFSET)),
            ucd_base: le64(bytes, UCD_OFFSET),
            response: UcdSpan::from_bits(le32(bytes, RESPONSE_OFFSET)),
            prdt: UcdSpan::from_bits(le32(bytes, PRDT_OFFSET)),
        }
    }

    /// Writes the descriptor.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8; LENGTH]) {
        put(bytes, HEADER_OFFSET, self.header.into_bits().to_le_bytes());
        put(bytes, DUN_LOW_OFFSET, (self.dun as u32).to_le_bytes());
        put(bytes, STATUS_OFFSET, self.status.into_bits().to_le_bytes());
        put(bytes, DUN_HIGH_OFFSET, ((self.dun >> 32) as u32).to_le_bytes());
        put(bytes, UCD_OFFSET, self.ucd_base.to_le_bytes());
        put(bytes, RESPONSE_OFFSET, self.response.into_bits().to_le_bytes());
        put(bytes, PRDT_OFFSET, self.prdt.into_bits().to_le_bytes());
    }

    /// The descriptor as four words which, stored one after the other in the byte order of this
    /// machine, give the same bytes as [`emit`](Self::emit).
    #[inline]
    pub const fn to_words(&self) -> [u64; 4] {
        [
            pair_of(self.header.into_bits(), self.dun as u32),
            pair_of(self.status.into_bits(), (self.dun >> 32) as u32),
            self.ucd_base.to_le(),
            pair_of(self.response.into_bits(), self.prdt.into_bits()),
        ]
    }
}

/// Two dwords, in the order of their addresses, as one word in this machine's byte order.
#[inline]
const fn pair_of(first: u32, second: u32) -> u64 {
    ((first as u64) | (second as u64) << 32).to_le()
}
