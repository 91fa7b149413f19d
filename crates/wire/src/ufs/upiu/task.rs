//! TASK MANAGEMENT REQUEST and RESPONSE (JESD220 10.7.6, 10.7.7).

use super::{Header, LENGTH, ResponseCode, TransactionCode};
use crate::bytes::{be32, put};
use crate::code::code;
use crate::error::WireError;

code! {
    /// Task management function, byte 5 of the request.
    pub enum TaskFunction: u8 {
        /// Abort one command.
        AbortTask = 0x01 => "Abort Task",
        /// Abort all commands of this initiator in a logical unit.
        AbortTaskSet = 0x02 => "Abort Task Set",
        /// Abort all commands in a logical unit.
        ClearTaskSet = 0x04 => "Clear Task Set",
        /// Reset a logical unit.
        LogicalUnitReset = 0x08 => "Logical Unit Reset",
        /// Asks whether a command is in the device.
        QueryTask = 0x80 => "Query Task",
        /// Asks whether any command of this initiator is in the logical unit.
        QueryTaskSet = 0x81 => "Query Task Set",
    }
}

code! {
    /// Service response, output parameter 1 of the response.
    pub enum ServiceResponse: u8 {
        /// Complete; for the query functions: no such command.
        FunctionComplete = 0x00 => "Task Management Function Complete",
        /// The device does not support the function.
        FunctionNotSupported = 0x04 => "Task Management Function Not Supported",
        /// The function failed.
        FunctionFailed = 0x05 => "Task Management Function Failed",
        /// For the query functions: the command is in the device.
        FunctionSucceeded = 0x08 => "Task Management Function Succeeded",
        /// No such logical unit.
        IncorrectLogicalUnitNumber = 0x09 => "Incorrect Logical Unit Number",
    }
}

/// TASK MANAGEMENT REQUEST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRequest {
    /// The header; byte 5 is the [`TaskFunction`]. Its task tag identifies this request, not the
    /// command it concerns.
    pub header: Header,
    /// Input parameter 1: the logical unit.
    pub lun: u8,
    /// Input parameter 2: the task tag of the command it concerns.
    pub task_tag: u8,
    /// Input parameter 3: the initiator.
    pub iid: u8,
}

impl TaskRequest {
    /// A request concerning the command with `task_tag` in `lun`; `request_tag` identifies the
    /// request.
    pub const fn new(request_tag: u8, function: TaskFunction, lun: u8, task_tag: u8) -> Self {
        let mut header = Header::new(TransactionCode::TaskRequest, lun, request_tag);
        header.function = function.into_bits();
        Self { header, lun, task_tag, iid: 0 }
    }

    /// Parses a TASK MANAGEMENT REQUEST.
    ///
    /// # Errors
    /// [`WireError::WrongCode`] for a UPIU of another type.
    pub fn parse(bytes: &[u8; LENGTH]) -> Result<Self, WireError> {
        let header = Header::parse(bytes).expect(TransactionCode::TaskRequest)?;
        Ok(Self::after(header, bytes))
    }

    pub(super) fn after(header: Header, bytes: &[u8; LENGTH]) -> Self {
        Self { header, lun: bytes[15], task_tag: bytes[19], iid: bytes[23] }
    }

    /// Writes the UPIU, reserved fields as zero.
    pub fn emit(&self, bytes: &mut [u8; LENGTH]) {
        self.header.emit(bytes);
        put(bytes, 12, u32::from(self.lun).to_be_bytes());
        put(bytes, 16, u32::from(self.task_tag).to_be_bytes());
        put(bytes, 20, u32::from(self.iid).to_be_bytes());
        put(bytes, 24, [0; 8]);
    }

    /// The function.
    pub const fn function(&self) -> TaskFunction {
        TaskFunction::from_bits(self.header.function)
    }
}

/// TASK MANAGEMENT RESPONSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskResponse {
    /// The header.
    pub header: Header,
    /// Output parameter 1: the service response.
    pub service_response: ServiceResponse,
    /// Output parameter 2; additional response information in QUERY TASK SET.
    pub output_parameter_2: u32,
}

impl TaskResponse {
    /// The response to the request identified by `request_tag`.
    pub const fn new(request_tag: u8, lun: u8, service_response: ServiceResponse) -> Self {
        let mut header = Header::new(TransactionCode::TaskResponse, lun, request_tag);
        header.response = ResponseCode::TargetSuccess.into_bits();
        Self { header, service_response, output_parameter_2: 0 }
    }

    /// Parses a TASK MANAGEMENT RESPONSE.
    ///
    /// # Errors
    /// [`WireError::WrongCode`] for a UPIU of another type.
    pub fn parse(bytes: &[u8; LENGTH]) -> Result<Self, WireError> {
        let header = Header::parse(bytes).expect(TransactionCode::TaskResponse)?;
        Ok(Self::after(header, bytes))
    }

    pub(super) fn after(header: Header, bytes: &[u8; LENGTH]) -> Self {
        Self {
            header,
            service_response: ServiceResponse::from_bits(bytes[15]),
            output_parameter_2: be32(bytes, 16),
        }
    }

    /// Writes the UPIU, reserved fields as zero.
    pub fn emit(&self, bytes: &mut [u8; LENGTH]) {
        self.header.emit(bytes);
        put(bytes, 12, u32::from(self.service_response.into_bits()).to_be_bytes());
        put(bytes, 16, self.output_parameter_2.to_be_bytes());
        put(bytes, 20, [0; 12]);
    }
}
