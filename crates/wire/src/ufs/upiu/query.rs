//! QUERY REQUEST and RESPONSE (JESD220 10.7.8, 10.7.9).

use super::{Header, LENGTH, TransactionCode};
use crate::bytes::{be64, put};
use crate::error::WireError;
use crate::ufs::query::{QueryFunction, QueryOpcode, QueryResult};

/// Offset of the descriptor in a query that carries one.
pub const QUERY_DATA_OFFSET: usize = LENGTH;

/// Bytes 12 to 27: the transaction specific fields, common to request and response.
///
/// The meaning of bytes 16 to 23 depends on the opcode: a descriptor's length, an attribute's 32 or
/// 64 bits, a flag. They are kept as one number, with a getter for each meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryFields {
    /// Byte 12: the operation.
    pub opcode: QueryOpcode,
    /// Byte 13: identification number of the descriptor, attribute or flag.
    pub idn: u8,
    /// Byte 14: index.
    pub index: u8,
    /// Byte 15: selector.
    pub selector: u8,
    /// Bytes 16 to 23, big-endian.
    pub operand: u64,
}

impl QueryFields {
    const fn of(opcode: QueryOpcode, idn: u8, index: u8, selector: u8) -> Self {
        Self { opcode, idn, index, selector, operand: 0 }
    }

    /// Read up to `length` bytes of a descriptor.
    pub const fn read_descriptor(idn: u8, index: u8, selector: u8, length: u16) -> Self {
        Self::of(QueryOpcode::ReadDescriptor, idn, index, selector).with_length(length)
    }

    /// Write a descriptor of `length` bytes, which are in the data segment.
    pub const fn write_descriptor(idn: u8, index: u8, selector: u8, length: u16) -> Self {
        Self::of(QueryOpcode::WriteDescriptor, idn, index, selector).with_length(length)
    }

    /// Read an attribute.
    pub const fn read_attribute(idn: u8, index: u8, selector: u8) -> Self {
        Self::of(QueryOpcode::ReadAttribute, idn, index, selector)
    }

    /// Write an attribute; the value is right-aligned whatever its width.
    pub const fn write_attribute(idn: u8, index: u8, selector: u8, value: u64) -> Self {
        let mut fields = Self::of(QueryOpcode::WriteAttribute, idn, index, selector);
        fields.operand = value;
        fields
    }

    /// Read, set, clear or toggle a flag.
    pub const fn flag(opcode: QueryOpcode, idn: u8, index: u8, selector: u8) -> Self {
        Self::of(opcode, idn, index, selector)
    }

    /// Bytes 18 and 19: length of the descriptor.
    #[inline]
    pub const fn length(&self) -> u16 {
        (self.operand >> 32) as u16
    }

    /// The same fields with another descriptor length.
    #[must_use]
    pub const fn with_length(mut self, length: u16) -> Self {
        self.operand = self.operand & !(0xFFFF << 32) | (length as u64) << 32;
        self
    }

    /// Bytes 20 to 23: value of an attribute of at most 32 bits.
    #[inline]
    pub const fn value32(&self) -> u32 {
        self.operand as u32
    }

    /// Bytes 16 to 23: value of a 64-bit attribute.
    #[inline]
    pub const fn value64(&self) -> u64 {
        self.operand
    }

    /// Byte 23: value of a flag.
    #[inline]
    pub const fn flag_value(&self) -> bool {
        self.operand as u8 & 1 != 0
    }

    fn parse(bytes: &[u8; LENGTH]) -> Self {
        Self {
            opcode: QueryOpcode::from_bits(bytes[12]),
            idn: bytes[13],
            index: bytes[14],
            selector: bytes[15],
            operand: be64(bytes, 16),
        }
    }

    fn emit(&self, bytes: &mut [u8; LENGTH]) {
        put(bytes, 12, [self.opcode.into_bits(), self.idn, self.index, self.selector]);
        put(bytes, 16, self.operand.to_be_bytes());
        put(bytes, 24, [0; 8]);
    }
}

/// QUERY REQUEST, without its data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryRequest {
    /// The header; byte 5 is the [`QueryFunction`].
    pub header: Header,
    /// The query.
    pub fields: QueryFields,
}

impl QueryRequest {
    /// A standard query. The function follows from the opcode; a descriptor write announces its
    /// data segment.
    pub const fn new(task_tag: u8, fields: QueryFields) -> Self {
        let mut header = Header::new(TransactionCode::QueryRequest, 0, task_tag);
        header.function = fields.opcode.function().into_bits();
        if matches!(fields.opcode, QueryOpcode::WriteDescriptor) {
            header.data_segment_length = fields.length();
        }
        Self { header, fields }
    }

    /// Parses a QUERY REQUEST.
    ///
    /// # Errors
    /// [`WireError::WrongCode`] for a UPIU of another type.
    pub fn parse(bytes: &[u8; LENGTH]) -> Result<Self, WireError> {
        let header = Header::parse(bytes).expect(TransactionCode::QueryRequest)?;
        Ok(Self::after(header, bytes))
    }

    pub(super) fn after(header: Header, bytes: &[u8; LENGTH]) -> Self {
        Self { header, fields: QueryFields::parse(bytes) }
    }

    /// Writes the UPIU, reserved fields as zero.
    pub fn emit(&self, bytes: &mut [u8; LENGTH]) {
        self.header.emit(bytes);
        self.fields.emit(bytes);
    }

    /// The function.
    pub const fn function(&self) -> QueryFunction {
        QueryFunction::from_bits(self.header.function)
    }
}

/// QUERY RESPONSE, without its data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryResponse {
    /// The header; byte 6 is the [`QueryResult`].
    pub header: Header,
    /// The query and its answer.
    pub fields: QueryFields,
}

impl QueryResponse {
    /// The response to `request`. `data_segment_length` is set for a descriptor read.
    pub const fn new(request: &QueryRequest, result: QueryResult, fields: QueryFields) -> Self {
        let mut header = Header::new(
            TransactionCode::QueryResponse,
            request.header.lun,
            request.header.task_tag,
        );
        header.iid = request.header.iid;
        header.function = request.header.function;
        header.response = result.into_bits();
        if matches!(fields.opcode, QueryOpcode::ReadDescriptor)
            && matches!(result, QueryResult::Success)
        {
            header.data_segment_length = fields.length();
        }
        Self { header, fields }
    }

    /// Parses a QUERY RESPONSE.
    ///
    /// # Errors
    /// [`WireError::WrongCode`] for a UPIU of another type.
    pub fn parse(bytes: &[u8; LENGTH]) -> Result<Self, WireError> {
        let header = Header::parse(bytes).expect(TransactionCode::QueryResponse)?;
        Ok(Self::after(header, bytes))
    }

    pub(super) fn after(header: Header, bytes: &[u8; LENGTH]) -> Self {
        Self { header, fields: QueryFields::parse(bytes) }
    }

    /// Writes the UPIU, reserved fields as zero.
    pub fn emit(&self, bytes: &mut [u8; LENGTH]) {
        self.header.emit(bytes);
        self.fields.emit(bytes);
    }

    /// Result of the query.
    pub const fn result(&self) -> QueryResult {
        QueryResult::from_bits(self.header.response)
    }
}
