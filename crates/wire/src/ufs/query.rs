//! Query function: opcodes, functions, results (JESD220 10.7.8, 10.7.9).

use crate::code::code;

code! {
    /// Query opcode.
    #[derive(Default)]
    pub enum QueryOpcode: u8 {
        /// Nothing.
        #[default]
        Nop = 0x0 => "NOP",
        /// Read a descriptor.
        ReadDescriptor = 0x1 => "READ DESCRIPTOR",
        /// Write a descriptor.
        WriteDescriptor = 0x2 => "WRITE DESCRIPTOR",
        /// Read an attribute.
        ReadAttribute = 0x3 => "READ ATTRIBUTE",
        /// Write an attribute.
        WriteAttribute = 0x4 => "WRITE ATTRIBUTE",
        /// Read a flag.
        ReadFlag = 0x5 => "READ FLAG",
        /// Set a flag.
        SetFlag = 0x6 => "SET FLAG",
        /// Clear a flag.
        ClearFlag = 0x7 => "CLEAR FLAG",
        /// Toggle a flag.
        ToggleFlag = 0x8 => "TOGGLE FLAG",
        /// UFS 5.0: read several at once.
        ReadAggregated = 0x9 => "READ AGGREGATED",
    }
}

impl QueryOpcode {
    /// The query function that goes with the opcode.
    pub const fn function(self) -> QueryFunction {
        match self {
            Self::WriteDescriptor
            | Self::WriteAttribute
            | Self::SetFlag
            | Self::ClearFlag
            | Self::ToggleFlag => QueryFunction::StandardWriteRequest,
            _ => QueryFunction::StandardReadRequest,
        }
    }
}

code! {
    /// Query function, byte 5 of the request.
    pub enum QueryFunction: u8 {
        /// Standard read request.
        StandardReadRequest = 0x01 => "STANDARD READ REQUEST",
        /// Standard write request.
        StandardWriteRequest = 0x81 => "STANDARD WRITE REQUEST",
    }
}

code! {
    /// Query response code, byte 6 of the response.
    pub enum QueryResult: u8 {
        /// Done.
        Success = 0x00 => "Success",
        /// The parameter cannot be read.
        ParameterNotReadable = 0xF6 => "Parameter not readable",
        /// The parameter cannot be written, or not now.
        ParameterNotWriteable = 0xF7 => "Parameter not writeable",
        /// The parameter can be written once and was.
        ParameterAlreadyWritten = 0xF8 => "Parameter already written",
        /// Invalid length.
        InvalidLength = 0xF9 => "Invalid LENGTH",
        /// Invalid value.
        InvalidValue = 0xFA => "Invalid value",
        /// Invalid selector.
        InvalidSelector = 0xFB => "Invalid SELECTOR",
        /// Invalid index.
        InvalidIndex = 0xFC => "Invalid INDEX",
        /// Invalid identification number.
        InvalidIdn = 0xFD => "Invalid IDN",
        /// Invalid opcode.
        InvalidOpcode = 0xFE => "Invalid OPCODE",
        /// General failure.
        GeneralFailure = 0xFF => "General failure",
    }
}
