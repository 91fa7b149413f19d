//! Replay protected memory block (JESD220 12.4): messages only. Keys and HMAC-SHA256 are left to
//! the caller.
//!
//! Normal mode carries 512-byte [`RpmbFrame`]s as data of SECURITY PROTOCOL IN and OUT; advanced
//! mode (UFS 4.0) carries an [`AdvancedRpmb`] in the extra header segment of COMMAND and
//! RESPONSE, and 4 KiB blocks as data. Big-endian.

use crate::bytes::{array, be16, be32, be64, put};
use crate::code::code;
use crate::error::WireError;
use bitfield_struct::bitfield;

/// SECURITY PROTOCOL SPECIFIC for region 0; the region number goes into the high byte.
pub const PROTOCOL_SPECIFIC: u16 = 0x0001;
/// Length of a key, bytes.
pub const KEY_LENGTH: usize = 32;
/// Length of a message authentication code, bytes.
pub const MAC_LENGTH: usize = 32;
/// Length of a nonce, bytes.
pub const NONCE_LENGTH: usize = 16;
/// Data of one frame, bytes: a block of the RPMB unit in normal mode.
pub const DATA_LENGTH: usize = 256;
/// Data of one block in advanced mode, bytes.
pub const ADVANCED_BLOCK_LENGTH: usize = 4096;
/// Size unit of a region, bytes.
pub const REGION_UNIT: u32 = 128 * 1024;

/// SECURITY PROTOCOL SPECIFIC for a region.
pub const fn protocol_specific(region: u8) -> u16 {
    (region as u16) << 8 | PROTOCOL_SPECIFIC
}

code! {
    /// Message type. A response is its request times 0x100.
    pub enum RpmbMessage: u16 {
        /// Program the key, once.
        KeyProgramming = 0x0001 => "Authentication Key programming request",
        /// Read the write counter.
        ReadCounter = 0x0002 => "Write Counter read request",
        /// Write data.
        DataWrite = 0x0003 => "Authenticated data write request",
        /// Read data.
        DataRead = 0x0004 => "Authenticated data read request",
        /// Read the result of a write.
        ResultRead = 0x0005 => "Result read request",
        /// Write the secure write protect configuration.
        SecureWriteProtectWrite = 0x0006
            => "Secure Write Protect Configuration Block write request",
        /// Read the secure write protect configuration.
        SecureWriteProtectRead = 0x0007 => "Secure Write Protect Configuration Block read request",
        /// Allow a purge.
        PurgeEnable = 0x0008 => "RPMB Purge enable request",
        /// Read the state of a purge.
        PurgeStatusRead = 0x0009 => "RPMB Purge status read request",
        /// Answer to [`KeyProgramming`](Self::KeyProgramming).
        KeyProgrammingResponse = 0x0100 => "Authentication Key programming response",
        /// Answer to [`ReadCounter`](Self::ReadCounter).
        ReadCounterResponse = 0x0200 => "Write Counter read response",
        /// Answer to [`DataWrite`](Self::DataWrite).
        DataWriteResponse = 0x0300 => "Authenticated data write response",
        /// Answer to [`DataRead`](Self::DataRead).
        DataReadResponse = 0x0400 => "Authenticated data read response",
        /// Answer to [`SecureWriteProtectWrite`](Self::SecureWriteProtectWrite).
        SecureWriteProtectWriteResponse = 0x0600
            => "Secure Write Protect Configuration Block write response",
        /// Answer to [`SecureWriteProtectRead`](Self::SecureWriteProtectRead).
        SecureWriteProtectReadResponse = 0x0700
            => "Secure Write Protect Configuration Block read response",
        /// Answer to [`PurgeEnable`](Self::PurgeEnable).
        PurgeEnableResponse = 0x0800 => "RPMB Purge enable response",
        /// Answer to [`PurgeStatusRead`](Self::PurgeStatusRead).
        PurgeStatusReadResponse = 0x0900 => "RPMB Purge status read response",
    }
}

impl RpmbMessage {
    /// The response to a request; for a response, itself. RESULT READ has no response of its own:
    /// it is answered with that of the message whose result it reads.
    pub const fn response(self) -> Self {
        match self.into_bits() {
            request @ 0x0001..=0x0009 => Self::from_bits(request << 8),
            other => Self::from_bits(other),
        }
    }
}

code! {
    /// Result of a request, low byte of the field without its top bit.
    pub enum RpmbStatus: u8 {
        /// Done.
        Ok = 0x00 => "Operation OK",
        /// Failed.
        GeneralFailure = 0x01 => "General failure",
        /// The MAC does not match.
        AuthenticationFailure = 0x02 => "Authentication failure",
        /// The write counter does not match.
        CounterFailure = 0x03 => "Counter failure",
        /// The address is out of range.
        AddressFailure = 0x04 => "Address failure",
        /// The write failed.
        WriteFailure = 0x05 => "Write failure",
        /// The read failed.
        ReadFailure = 0x06 => "Read failure",
        /// There is no key yet.
        KeyNotProgrammed = 0x07 => "Authentication Key not yet programmed",
        /// The secure write protect configuration cannot be accessed.
        SecureWriteProtectAccessFailure = 0x08
            => "Secure Write Protect Configuration Block access failure",
        /// The secure write protect configuration is invalid.
        InvalidSecureWriteProtectParameter = 0x09
            => "Invalid Secure Write Protect Block Configuration parameter",
        /// Secure write protection does not apply to this unit.
        SecureWriteProtectNotApplicable = 0x0A => "Secure Write Protection not applicable",
        /// The device does not support the message (from UFS 4.0 on).
        UnsupportedRequest = 0x0B => "Unsupported Request Type",
        /// A purge of the RPMB is under way (from UFS 4.0 on).
        PurgeInProgress = 0x0C => "Rejected, RPMB purge operation in progress",
    }
}

/// Result of a request.
#[bitfield(u16)]
#[derive(PartialEq, Eq)]
pub struct RpmbResult {
    /// The status.
    #[bits(7)]
    pub status: RpmbStatus,
    /// The write counter has expired: no more writes are possible.
    pub counter_expired: bool,
    __: u8,
}

/// A frame of normal mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpmbFrame {
    /// Authentication key or MAC.
    pub key_mac: [u8; MAC_LENGTH],
    /// Data.
    pub data: [u8; DATA_LENGTH],
    /// Nonce.
    pub nonce: [u8; NONCE_LENGTH],
    /// Write counter.
    pub write_counter: u32,
    /// Address, blocks of 256 bytes.
    pub address: u16,
    /// Blocks.
    pub block_count: u16,
    /// Result.
    pub result: RpmbResult,
    /// Message type.
    pub message: RpmbMessage,
}

impl RpmbFrame {
    /// Length of a frame, bytes.
    pub const LENGTH: usize = 512;
    /// Offset of the key or MAC; stuff bytes come before it.
    pub const MAC_OFFSET: usize = 196;
    /// Offset of the part covered by the MAC, which extends to the end of the frame.
    pub const AUTHENTICATED_OFFSET: usize = 228;
    /// Length of the part covered by the MAC, bytes.
    pub const AUTHENTICATED_LENGTH: usize = Self::LENGTH - Self::AUTHENTICATED_OFFSET;

    /// An empty frame of this type.
    pub const fn new(message: RpmbMessage) -> Self {
        Self {
            key_mac: [0; MAC_LENGTH],
            data: [0; DATA_LENGTH],
            nonce: [0; NONCE_LENGTH],
            write_counter: 0,
            address: 0,
            block_count: 0,
            result: RpmbResult::new(),
            message,
        }
    }

    /// Parses a frame.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        Self {
            key_mac: array(bytes, Self::MAC_OFFSET),
            data: array(bytes, Self::AUTHENTICATED_OFFSET),
            nonce: array(bytes, 484),
            write_counter: be32(bytes, 500),
            address: be16(bytes, 504),
            block_count: be16(bytes, 506),
            result: RpmbResult::from_bits(be16(bytes, 508)),
            message: RpmbMessage::from_bits(be16(bytes, 510)),
        }
    }

    /// Writes the frame, stuff bytes as zero.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        bytes[..Self::MAC_OFFSET].fill(0);
        put(bytes, Self::MAC_OFFSET, self.key_mac);
        put(bytes, Self::AUTHENTICATED_OFFSET, self.data);
        put(bytes, 484, self.nonce);
        put(bytes, 500, self.write_counter.to_be_bytes());
        put(bytes, 504, self.address.to_be_bytes());
        put(bytes, 506, self.block_count.to_be_bytes());
        put(bytes, 508, self.result.into_bits().to_be_bytes());
        put(bytes, 510, self.message.into_bits().to_be_bytes());
    }

    /// The part of a frame that the MAC covers. The MAC of several frames covers these parts one
    /// after the other, and is stored in the last frame.
    pub fn authenticated(bytes: &[u8; Self::LENGTH]) -> &[u8; Self::AUTHENTICATED_LENGTH] {
        bytes.last_chunk().unwrap_or(&[0; Self::AUTHENTICATED_LENGTH])
    }
}

/// The message of advanced mode: an extra header segment of 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvancedRpmb {
    /// Message type.
    pub message: RpmbMessage,
    /// Nonce.
    pub nonce: [u8; NONCE_LENGTH],
    /// Write counter.
    pub write_counter: u32,
    /// Address, blocks of 4 KiB; the logical unit in secure write protect messages.
    pub address_lun: u16,
    /// Blocks of 4 KiB.
    pub block_count: u16,
    /// Result.
    pub result: RpmbResult,
    /// Authentication key or MAC.
    pub key_mac: [u8; MAC_LENGTH],
}

impl AdvancedRpmb {
    /// Length of the segment, bytes.
    pub const LENGTH: usize = 64;
    /// bLength: length of the segment in units of 32 bytes, also given in the header of the UPIU.
    pub const EHS_LENGTH: u8 = 2;
    /// bEHSType of RPMB.
    pub const EHS_TYPE: u8 = 1;
    /// The fields the MAC covers.
    const META: core::ops::Range<usize> = 4..32;

    /// An empty message of this type.
    pub const fn new(message: RpmbMessage) -> Self {
        Self {
            message,
            nonce: [0; NONCE_LENGTH],
            write_counter: 0,
            address_lun: 0,
            block_count: 0,
            result: RpmbResult::new(),
            key_mac: [0; MAC_LENGTH],
        }
    }

    /// Parses a segment.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below 64 bytes, [`WireError::BadField`] if bLength is another
    /// length, [`WireError::WrongCode`] if it is another kind of segment.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(bytes, Self::LENGTH)?;
        if bytes[0] != Self::EHS_LENGTH {
            return Err(WireError::BadField("bLength"));
        }
        if bytes[1] != Self::EHS_TYPE {
            return Err(WireError::WrongCode { expected: Self::EHS_TYPE, got: bytes[1] });
        }
        Ok(Self {
            message: RpmbMessage::from_bits(be16(bytes, 4)),
            nonce: array(bytes, 6),
            write_counter: be32(bytes, 22),
            address_lun: be16(bytes, 26),
            block_count: be16(bytes, 28),
            result: RpmbResult::from_bits(be16(bytes, 30)),
            key_mac: array(bytes, 32),
        })
    }

    /// Writes the segment, wEHSSubType as zero.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        put(bytes, 0, [Self::EHS_LENGTH, Self::EHS_TYPE, 0, 0]);
        put(bytes, 4, self.message.into_bits().to_be_bytes());
        put(bytes, 6, self.nonce);
        put(bytes, 22, self.write_counter.to_be_bytes());
        put(bytes, 26, self.address_lun.to_be_bytes());
        put(bytes, 28, self.block_count.to_be_bytes());
        put(bytes, 30, self.result.into_bits().to_be_bytes());
        put(bytes, 32, self.key_mac);
    }

    /// The part of a segment that the MAC covers: its fields except the MAC itself, and four zero
    /// bytes. The data of the command comes before it.
    pub fn authenticated(bytes: &[u8; Self::LENGTH]) -> [u8; 32] {
        let mut covered = [0; 32];
        covered[..28].copy_from_slice(&bytes[Self::META]);
        covered
    }
}

/// Bit of bRPMBRegionEnable: the unit uses advanced mode.
pub const ADVANCED_MODE: u8 = 1 << 4;

code! {
    /// WPT: how the flag of a secure write protect area behaves.
    pub enum WriteProtectType: u8 {
        /// The flag survives power cycles.
        NonVolatile = 0 => "NV-type",
        /// The flag is cleared by a power cycle.
        Power = 1 => "P-type",
        /// The flag is set by a power cycle.
        NonVolatileAfterPower = 2 => "NV-AWP-type",
    }
}

/// One area of a secure write protect configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecureWriteProtectEntry {
    /// WPT: type of protection.
    pub protect_type: WriteProtectType,
    /// WPF: protected now.
    pub protected: bool,
    /// First logical block.
    pub lba: u64,
    /// Logical blocks; zero is the whole unit.
    pub blocks: u32,
}

impl SecureWriteProtectEntry {
    /// Length of an entry, bytes.
    pub const LENGTH: usize = 16;

    /// Parses an entry.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        Self {
            protect_type: WriteProtectType::from_bits(bytes[0] >> 1 & 3),
            protected: bytes[0] & 1 != 0,
            lba: be64(bytes, 4),
            blocks: be32(bytes, 12),
        }
    }

    /// Writes the entry, reserved fields as zero.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        put(bytes, 0, [0; 4]);
        bytes[0] = (self.protect_type.into_bits() & 3) << 1 | u8::from(self.protected);
        put(bytes, 4, self.lba.to_be_bytes());
        put(bytes, 12, self.blocks.to_be_bytes());
    }
}

/// Secure write protect configuration block: the data of messages 6 and 7 (JESD220 12.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecureWriteProtectView<'a> {
    bytes: &'a [u8; DATA_LENGTH],
}

impl<'a> SecureWriteProtectView<'a> {
    /// Maximum number of areas of one logical unit.
    pub const ENTRIES_MAX: usize = 4;
    const ENTRIES_OFFSET: usize = 16;

    /// Reads the block from the data of a frame.
    ///
    /// # Errors
    /// [`WireError::BadField`] if DATA LENGTH is not that of zero to four whole entries.
    pub fn new(bytes: &'a [u8; DATA_LENGTH]) -> Result<Self, WireError> {
        let length = usize::from(bytes[1]);
        let entry = SecureWriteProtectEntry::LENGTH;
        if !length.is_multiple_of(entry) || length > Self::ENTRIES_MAX * entry {
            return Err(WireError::BadField("DATA LENGTH"));
        }
        Ok(Self { bytes })
    }

    /// The logical unit.
    pub fn lun(&self) -> u8 {
        self.bytes[0]
    }

    /// The areas.
    pub fn entries(&self) -> impl Iterator<Item = SecureWriteProtectEntry> + 'a {
        let entries = &self.bytes[Self::ENTRIES_OFFSET..][..usize::from(self.bytes[1])];
        let entries = entries.chunks_exact(SecureWriteProtectEntry::LENGTH);
        entries.map(|entry| SecureWriteProtectEntry::parse(&array(entry, 0)))
    }

    /// Writes a block. If there are more than four areas, writes nothing and returns `false`.
    #[must_use]
    pub fn emit(
        lun: u8,
        entries: &[SecureWriteProtectEntry],
        bytes: &mut [u8; DATA_LENGTH],
    ) -> bool {
        if entries.len() > Self::ENTRIES_MAX {
            return false;
        }
        bytes.fill(0);
        bytes[0] = lun;
        bytes[1] = (entries.len() * SecureWriteProtectEntry::LENGTH) as u8;
        for (n, entry) in entries.iter().enumerate() {
            let mut out = [0; SecureWriteProtectEntry::LENGTH];
            entry.emit(&mut out);
            put(bytes, Self::ENTRIES_OFFSET + n * SecureWriteProtectEntry::LENGTH, out);
        }
        true
    }
}

#[cfg(test)]
mod tests;
