//! UFS protocol information units (JESD220 10.5 to 10.7), exchanged between host and device.
//! Big-endian.
//!
//! Every UPIU starts with the 12-byte [`Header`] and has 20 bytes of its own; [`LENGTH`] bytes hold
//! everything except extra header segments and data. Each value keeps its header as it is on the
//! wire, so `parse` and `emit` preserve all of it.

mod command;
mod data;
mod query;
mod simple;
mod task;

pub use command::{
    COMMAND_CDB_OFFSET, COMMAND_EXPECTED_LENGTH_OFFSET, CommandFlags, CommandUpiu,
    RESPONSE_LENGTH_MAX, ResponseFlags, ResponseUpiu, SENSE_LENGTH_MAX, TaskAttribute,
};
pub use data::{DataIn, DataOut, DataUpiu, ReadyToTransfer};
pub use query::{QUERY_DATA_OFFSET, QueryFields, QueryRequest, QueryResponse};
pub use simple::{NopIn, NopOut, Reject};
pub use task::{ServiceResponse, TaskFunction, TaskRequest, TaskResponse};

use crate::bytes::{be16, put};
use crate::code::code;
use crate::error::WireError;
use bitfield_struct::bitfield;

/// Length of the header, bytes.
pub const HEADER_LENGTH: usize = 12;
/// Length of a UPIU without extra header segments and data, bytes.
pub const LENGTH: usize = 32;
/// Offset of [`Header::ehs_length`].
pub const EHS_LENGTH_OFFSET: usize = 8;
/// Unit of [`Header::ehs_length`], bytes.
pub const EHS_UNIT: usize = 32;

code! {
    /// Transaction code, bits 5:0 of byte 0 (JESD220 10.5).
    pub enum TransactionCode: u8 {
        /// Host: are you there?
        NopOut = 0x00 => "NOP OUT",
        /// Host: a SCSI command.
        Command = 0x01 => "COMMAND",
        /// Host: data.
        DataOut = 0x02 => "DATA OUT",
        /// Host: a task management function.
        TaskRequest = 0x04 => "TASK MANAGEMENT REQUEST",
        /// Host: descriptors, attributes, flags.
        QueryRequest = 0x16 => "QUERY REQUEST",
        /// Device: I am here.
        NopIn = 0x20 => "NOP IN",
        /// Device: the end of a command.
        Response = 0x21 => "RESPONSE",
        /// Device: data.
        DataIn = 0x22 => "DATA IN",
        /// Device: the end of a task management function.
        TaskResponse = 0x24 => "TASK MANAGEMENT RESPONSE",
        /// Device: send me data.
        ReadyToTransfer = 0x31 => "READY TO TRANSFER",
        /// Device: the answer to a query.
        QueryResponse = 0x36 => "QUERY RESPONSE",
        /// Device: I do not understand.
        Reject = 0x3F => "REJECT",
    }
}

/// Byte 0.
#[bitfield(u8)]
#[derive(PartialEq, Eq, Hash)]
pub struct TransactionType {
    /// Transaction code.
    #[bits(6)]
    #[inline]
    pub code: TransactionCode,
    /// DD: the data segment has an end-to-end CRC.
    #[inline]
    pub dd: bool,
    /// HD: the header segments have an end-to-end CRC.
    #[inline]
    pub hd: bool,
}

code! {
    /// Response, byte 6 of every UPIU from the device except a query response (JESD220 10.6).
    pub enum ResponseCode: u8 {
        /// The target executed the request, as far as the transport is concerned.
        TargetSuccess = 0x00 => "Target Success",
        /// The target failed.
        TargetFailure = 0x01 => "Target Failure",
    }
}

/// Byte 9 of every UPIU from the device (JESD220 10.6).
#[bitfield(u8)]
#[derive(PartialEq, Eq, Hash)]
pub struct DeviceInformation {
    /// EVENT_ALERT: an enabled exception event is pending, see wExceptionEventStatus.
    #[inline]
    pub event_alert: bool,
    #[bits(7)]
    __: u8,
}

/// The first 12 bytes of every UPIU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Byte 0: type of the UPIU.
    pub transaction: TransactionType,
    /// Byte 1: flags, see [`CommandFlags`] and [`ResponseFlags`].
    pub flags: u8,
    /// Byte 2: logical unit; bit 7 marks a well-known one, see [`Wlun`].
    pub lun: u8,
    /// Byte 3: task tag.
    pub task_tag: u8,
    /// Byte 4, high half: initiator.
    pub iid: u8,
    /// Byte 4, low half: command set, 0 for SCSI.
    pub command_set: u8,
    /// Byte 5: query or task management function; in other UPIUs EXT_IID in the high half.
    pub function: u8,
    /// Byte 6: [`ResponseCode`] or, in a query response, the query result.
    pub response: u8,
    /// Byte 7: SCSI status in a RESPONSE.
    pub status: u8,
    /// Byte 8: length of the extra header segments, in [`EHS_UNIT`]s.
    pub ehs_length: u8,
    /// Byte 9: device information.
    pub device_information: DeviceInformation,
    /// Bytes 10 and 11: length of the data segment without padding, bytes.
    pub data_segment_length: u16,
}

impl Header {
    /// A header with only the type of UPIU set.
    #[inline]
    pub const fn new(code: TransactionCode, lun: u8, task_tag: u8) -> Self {
        const NO_INFORMATION: DeviceInformation = DeviceInformation::new();
        Self {
            transaction: TransactionType::from_bits(code.into_bits() & 0x3F),
            flags: 0,
            lun,
            task_tag,
            iid: 0,
            command_set: 0,
            function: 0,
            response: 0,
            status: 0,
            ehs_length: 0,
            device_information: NO_INFORMATION,
            data_segment_length: 0,
        }
    }

    /// Reads the header of a UPIU.
    #[inline]
    pub fn parse<const N: usize>(bytes: &[u8; N]) -> Self {
        const { assert!(N >= HEADER_LENGTH) };
        Self {
            transaction: TransactionType::from_bits(bytes[0]),
            flags: bytes[1],
            lun: bytes[2],
            task_tag: bytes[3],
            iid: bytes[4] >> 4,
            command_set: bytes[4] & 0xF,
            function: bytes[5],
            response: bytes[6],
            status: bytes[7],
            ehs_length: bytes[EHS_LENGTH_OFFSET],
            device_information: DeviceInformation::from_bits(bytes[9]),
            data_segment_length: be16(bytes, 10),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit<const N: usize>(&self, bytes: &mut [u8; N]) {
        const { assert!(N >= HEADER_LENGTH) };
        bytes[0] = self.transaction.into_bits();
        bytes[1] = self.flags;
        bytes[2] = self.lun;
        bytes[3] = self.task_tag;
        bytes[4] = self.iid << 4 | self.command_set & 0xF;
        bytes[5] = self.function;
        bytes[6] = self.response;
        bytes[7] = self.status;
        bytes[EHS_LENGTH_OFFSET] = self.ehs_length;
        bytes[9] = self.device_information.into_bits();
        put(bytes, 10, self.data_segment_length.to_be_bytes());
    }

    /// Type of the UPIU.
    #[inline]
    pub const fn code(&self) -> TransactionCode {
        self.transaction.code()
    }

    /// `Ok` if it is of the expected type.
    #[inline]
    pub(crate) fn expect(self, code: TransactionCode) -> Result<Self, WireError> {
        if self.code() != code {
            let got = self.code().into_bits();
            return Err(WireError::WrongCode { expected: code.into_bits(), got });
        }
        Ok(self)
    }

    /// Byte 6 of a UPIU from the device, except in a query response.
    #[inline]
    pub const fn response_code(&self) -> ResponseCode {
        ResponseCode::from_bits(self.response)
    }

    /// Offset of the data segment, bytes from the start of the UPIU.
    #[inline]
    pub const fn data_offset(&self) -> usize {
        let header_crc = if self.transaction.hd() { 4 } else { 0 };
        LENGTH + self.ehs_length as usize * EHS_UNIT + header_crc
    }

    /// The extra header segments of the UPIU at the start of `bytes`.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the header announces more than `bytes` holds.
    pub fn extra_header_segments<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], WireError> {
        let end = LENGTH + usize::from(self.ehs_length) * EHS_UNIT;
        bytes.get(LENGTH..end).ok_or(WireError::Truncated { needed: end, got: bytes.len() })
    }

    /// The data segment of the UPIU at the start of `bytes`, without padding.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the header announces more than `bytes` holds.
    pub fn data_segment<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], WireError> {
        let start = self.data_offset();
        let end = start + usize::from(self.data_segment_length);
        bytes.get(start..end).ok_or(WireError::Truncated { needed: end, got: bytes.len() })
    }

    /// Bytes in the whole UPIU: header segments, data padded to a dword, and CRCs.
    #[inline]
    pub const fn unit_length(&self) -> usize {
        let data_crc = if self.transaction.dd() { 4 } else { 0 };
        self.data_offset() + (self.data_segment_length as usize).next_multiple_of(4) + data_crc
    }
}

code! {
    /// Well-known logical units in the one-byte form of the LUN field (JESD220 10.8.5).
    pub enum Wlun: u8 {
        /// Lists the logical units.
        ReportLuns = 0x81 => "REPORT LUNS",
        /// The active boot logical unit.
        Boot = 0xB0 => "BOOT",
        /// Replay protected memory.
        Rpmb = 0xC4 => "RPMB",
        /// The device itself: power, firmware, format.
        UfsDevice = 0xD0 => "UFS DEVICE",
    }
}

/// Any UPIU, without its extra header segments and data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upiu {
    /// NOP OUT.
    NopOut(NopOut),
    /// COMMAND.
    Command(CommandUpiu),
    /// DATA OUT.
    DataOut(DataOut),
    /// TASK MANAGEMENT REQUEST.
    TaskRequest(TaskRequest),
    /// QUERY REQUEST.
    QueryRequest(QueryRequest),
    /// NOP IN.
    NopIn(NopIn),
    /// RESPONSE.
    Response(ResponseUpiu),
    /// DATA IN.
    DataIn(DataIn),
    /// TASK MANAGEMENT RESPONSE.
    TaskResponse(TaskResponse),
    /// READY TO TRANSFER.
    ReadyToTransfer(ReadyToTransfer),
    /// QUERY RESPONSE.
    QueryResponse(QueryResponse),
    /// REJECT.
    Reject(Reject),
    /// A UPIU with a transaction code this crate has no name for: its header.
    Unknown(Header),
}

impl Upiu {
    /// Parses a UPIU of any type.
    pub fn parse(bytes: &[u8; LENGTH]) -> Self {
        let header = Header::parse(bytes);
        match header.code() {
            TransactionCode::NopOut => Self::NopOut(NopOut { header }),
            TransactionCode::Command => Self::Command(CommandUpiu::after(header, bytes)),
            TransactionCode::DataOut => Self::DataOut(DataUpiu::after(header, bytes)),
            TransactionCode::TaskRequest => Self::TaskRequest(TaskRequest::after(header, bytes)),
            TransactionCode::QueryRequest => Self::QueryRequest(QueryRequest::after(header, bytes)),
            TransactionCode::NopIn => Self::NopIn(NopIn { header }),
            TransactionCode::Response => Self::Response(ResponseUpiu::after(header, bytes)),
            TransactionCode::DataIn => Self::DataIn(DataUpiu::after(header, bytes)),
            TransactionCode::TaskResponse => Self::TaskResponse(TaskResponse::after(header, bytes)),
            TransactionCode::ReadyToTransfer => {
                Self::ReadyToTransfer(DataUpiu::after(header, bytes))
            }
            TransactionCode::QueryResponse => {
                Self::QueryResponse(QueryResponse::after(header, bytes))
            }
            TransactionCode::Reject => Self::Reject(Reject::after(header, bytes)),
            TransactionCode::Unknown(_) => Self::Unknown(header),
        }
    }

    /// Writes the UPIU, reserved fields as zero.
    pub fn emit(&self, bytes: &mut [u8; LENGTH]) {
        match self {
            Self::NopOut(unit) => unit.emit(bytes),
            Self::Command(unit) => unit.emit(bytes),
            Self::DataOut(unit) | Self::DataIn(unit) | Self::ReadyToTransfer(unit) => {
                unit.emit(bytes);
            }
            Self::TaskRequest(unit) => unit.emit(bytes),
            Self::QueryRequest(unit) => unit.emit(bytes),
            Self::NopIn(unit) => unit.emit(bytes),
            Self::Response(unit) => unit.emit(bytes),
            Self::TaskResponse(unit) => unit.emit(bytes),
            Self::QueryResponse(unit) => unit.emit(bytes),
            Self::Reject(unit) => unit.emit(bytes),
            Self::Unknown(header) => {
                bytes.fill(0);
                header.emit(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests;
