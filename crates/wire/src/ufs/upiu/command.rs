//! COMMAND and RESPONSE (JESD220 10.7.1, 10.7.2).

use super::{DeviceInformation, Header, LENGTH, TransactionCode};
use crate::bytes::{array, be16, be32, put};
use crate::code::code;
use crate::error::WireError;
use bitfield_struct::bitfield;

/// Offset of the expected data transfer length in a COMMAND.
pub const COMMAND_EXPECTED_LENGTH_OFFSET: usize = 12;
/// Offset of the CDB in a COMMAND.
pub const COMMAND_CDB_OFFSET: usize = 16;
/// Maximum bytes of sense data in a RESPONSE.
pub const SENSE_LENGTH_MAX: usize = 18;
/// Length of a RESPONSE with sense data and without extra header segments, bytes.
pub const RESPONSE_LENGTH_MAX: usize = LENGTH + 2 + SENSE_LENGTH_MAX;

code! {
    /// ATTR, task attribute.
    pub enum TaskAttribute: u8 {
        /// The device chooses the order.
        Simple = 0 => "SIMPLE",
        /// After all earlier commands, before all later ones.
        Ordered = 1 => "ORDERED",
        /// Before all waiting commands.
        HeadOfQueue = 2 => "HEAD OF QUEUE",
        /// ACA; UFS devices do not support it.
        Aca = 3 => "ACA",
    }
}

/// Byte 1 of a COMMAND.
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct CommandFlags {
    /// ATTR: ordering relative to other commands.
    #[bits(2)]
    #[inline]
    pub attr: TaskAttribute,
    /// CP: command priority.
    #[inline]
    pub cp: bool,
    #[bits(2)]
    __: u8,
    /// W: the command sends data to the device.
    #[inline]
    pub w: bool,
    /// R: the command reads data from the device.
    #[inline]
    pub r: bool,
    __: bool,
}

/// Byte 1 of a RESPONSE.
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct ResponseFlags {
    #[bits(4)]
    __: u8,
    /// D: the data segments sent do not add up to what was requested.
    #[inline]
    pub d: bool,
    /// U: fewer bytes were transferred than expected; the residual count is how many remained.
    #[inline]
    pub u: bool,
    /// O: more bytes would have been transferred than expected; the residual count is how many.
    #[inline]
    pub o: bool,
    __: bool,
}

/// COMMAND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandUpiu {
    /// The header; flags as [`CommandFlags`].
    pub header: Header,
    /// Bytes that the host expects to transfer.
    pub expected_data_transfer_length: u32,
    /// The command descriptor block, zero padded.
    pub cdb: [u8; 16],
}

impl CommandUpiu {
    /// A SCSI command.
    #[inline]
    pub const fn new(lun: u8, task_tag: u8, flags: CommandFlags, cdb: [u8; 16]) -> Self {
        let mut header = Header::new(TransactionCode::Command, lun, task_tag);
        header.flags = flags.into_bits();
        Self { header, expected_data_transfer_length: 0, cdb }
    }

    /// Parses a COMMAND.
    ///
    /// # Errors
    /// [`WireError::WrongCode`] for a UPIU of another type.
    #[inline]
    pub fn parse(bytes: &[u8; LENGTH]) -> Result<Self, WireError> {
        let header = Header::parse(bytes).expect(TransactionCode::Command)?;
        Ok(Self::after(header, bytes))
    }

    #[inline]
    pub(super) fn after(header: Header, bytes: &[u8; LENGTH]) -> Self {
        Self {
            header,
            expected_data_transfer_length: be32(bytes, COMMAND_EXPECTED_LENGTH_OFFSET),
            cdb: array(bytes, COMMAND_CDB_OFFSET),
        }
    }

    /// Writes the UPIU.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8; LENGTH]) {
        self.header.emit(bytes);
        put(
            bytes,
            COMMAND_EXPECTED_LENGTH_OFFSET,
            self.expected_data_transfer_length.to_be_bytes(),
        );
        put(bytes, COMMAND_CDB_OFFSET, self.cdb);
    }

    /// The first four bytes of a COMMAND as one word in this machine's byte order: the whole part
    /// of the header that changes between the SCSI commands of a slot.
    #[inline]
    pub const fn first_word(lun: u8, task_tag: u8, flags: CommandFlags) -> u32 {
        const COMMAND: u8 = TransactionCode::Command.into_bits();
        u32::from_ne_bytes([COMMAND, flags.into_bits(), lun, task_tag])
    }

    /// The expected data transfer length as one word in this machine's byte order, to be stored at
    /// [`COMMAND_EXPECTED_LENGTH_OFFSET`].
    #[inline]
    pub const fn expected_length_word(length: u32) -> u32 {
        length.to_be()
    }

    /// A CDB as two words in this machine's byte order, to be stored at [`COMMAND_CDB_OFFSET`] and
    /// eight bytes after it.
    #[inline]
    pub const fn cdb_words(cdb: &[u8; 16]) -> [u64; 2] {
        let c = cdb;
        [
            u64::from_ne_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]),
            u64::from_ne_bytes([c[8], c[9], c[10], c[11], c[12], c[13], c[14], c[15]]),
        ]
    }

    /// A COMMAND with this expected length as four words which, stored one after the other in the
    /// byte order of this machine, give the same bytes as [`emit`](Self::emit).
    #[inline]
    pub const fn words(
        lun: u8,
        task_tag: u8,
        flags: CommandFlags,
        length: u32,
        cdb: &[u8; 16],
    ) -> [u64; 4] {
        let [first, second] = Self::cdb_words(cdb);
        let head = pair_of(Self::first_word(lun, task_tag, flags), 0);
        [head, pair_of(0, Self::expected_length_word(length)), first, second]
    }

    /// The flags.
    #[inline]
    pub const fn flags(&self) -> CommandFlags {
        CommandFlags::from_bits(self.header.flags)
    }
}

/// Two 32-bit words, in the order of their addresses, as one in this machine's byte order.
#[inline]
const fn pair_of(first: u32, second: u32) -> u64 {
    let (first, second) = (first.to_le() as u64, second.to_le() as u64);
    (first | second << 32).to_le()
}

/// RESPONSE, without its sense data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseUpiu {
    /// The header; flags as [`ResponseFlags`], byte 7 the SCSI status.
    pub header: Header,
    /// Bytes not transferred (flag U), or that would have been transferred beyond those expected
    /// (flag O).
    pub residual_transfer_count: u32,
}

impl ResponseUpiu {
    /// The response of a device that executed the command, with this SCSI status.
    #[inline]
    pub const fn new(lun: u8, task_tag: u8, status: u8) -> Self {
        let mut header = Header::new(TransactionCode::Response, lun, task_tag);
        header.status = status;
        Self { header, residual_transfer_count: 0 }
    }

    /// Parses a RESPONSE.
    ///
    /// # Errors
    /// [`WireError::WrongCode`] for a UPIU of another type.
    #[inline]
    pub fn parse(bytes: &[u8; LENGTH]) -> Result<Self, WireError> {
        let header = Header::parse(bytes).expect(TransactionCode::Response)?;
        Ok(Self::after(header, bytes))
    }

    #[inline]
    pub(super) fn after(header: Header, bytes: &[u8; LENGTH]) -> Self {
        Self { header, residual_transfer_count: be32(bytes, 12) }
    }

    /// Whether a UPIU that begins with these words, in the byte order of this machine, is the
    /// response to the command with this tag and reports full success: target success, SCSI status
    /// GOOD, nothing missing, and no event to handle.
    #[inline]
    pub const fn is_plainly_good(words: [u64; 2], task_tag: u8) -> bool {
        const RESPONSE: u8 = TransactionCode::Response.into_bits();
        const EVENT: u8 = DeviceInformation::new().with_event_alert(true).into_bits();
        const HEAD: u64 = u64::from_ne_bytes([0xFF, 0, 0, 0xFF, 0, 0, 0xFF, 0xFF]);
        const REST: u64 = u64::from_ne_bytes([0, EVENT, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]);
        let head = u64::from_ne_bytes([RESPONSE, 0, 0, task_tag, 0, 0, 0, 0]);
        words[0] & HEAD == head && words[1] & REST == 0
    }

    /// Writes the UPIU, reserved fields as zero.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8; LENGTH]) {
        self.header.emit(bytes);
        put(bytes, 12, self.residual_transfer_count.to_be_bytes());
        put(bytes, 16, [0; 16]);
    }

    /// The flags.
    #[inline]
    pub const fn flags(&self) -> ResponseFlags {
        ResponseFlags::from_bits(self.header.flags)
    }

    /// The sense data of the RESPONSE that `bytes` starts with; empty if there is none.
    ///
    /// The length is taken from the sense length field and limited to the bytes present. Of the
    /// data segment length only "not zero" is used, because QEMU 10.0 swaps its bytes.
    pub fn sense<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        if self.header.data_segment_length == 0 {
            return &[];
        }
        let segment = bytes.get(self.header.data_offset()..).unwrap_or(&[]);
        let Some((length, sense)) = segment.split_at_checked(2) else { return &[] };
        let length = usize::from(be16(length, 0)).min(SENSE_LENGTH_MAX).min(sense.len());
        &sense[..length]
    }

    /// Writes the UPIU with sense data (truncated to [`SENSE_LENGTH_MAX`]) and sets the data
    /// segment length. Returns the length of the UPIU, padded to a dword; without sense data there
    /// is no data segment.
    pub fn emit_with_sense(&self, sense: &[u8], bytes: &mut [u8; RESPONSE_LENGTH_MAX]) -> usize {
        let sense = &sense[..sense.len().min(SENSE_LENGTH_MAX)];
        let mut unit = *self;
        let segment = if sense.is_empty() { 0 } else { 2 + sense.len() };
        unit.header.data_segment_length = segment as u16;
        let mut fixed = [0; LENGTH];
        unit.emit(&mut fixed);
        bytes.fill(0);
        put(bytes, 0, fixed);
        if segment != 0 {
            put(bytes, LENGTH, (sense.len() as u16).to_be_bytes());
            bytes[LENGTH + 2..][..sense.len()].copy_from_slice(sense);
        }
        LENGTH + segment.next_multiple_of(4)
    }
}
