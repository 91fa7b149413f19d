//! Command descriptor blocks (SPC-6, SBC-4): those that UFS requires or allows (JESD220 11.3).
//!
//! A CDB is 16 bytes, zero padded, as carried by a COMMAND UPIU. [`Cdb::parse`] never fails: a
//! command without a name is [`Cdb::Unknown`]. `emit` writes reserved bits as zero.

mod layout;
mod parameters;

pub use parameters::{
    Buffer, BufferMode, ByteCheck, CacheRange, ModeSelect, ModeSense, PageControl, PowerCondition,
    Security, SelectReport, StartStop, Transfer, TransferFlags, Verify,
};

use crate::bytes::{be16, be32, put};
use crate::code::code;
use layout::{
    GROUP_MASK, bit, buffer, cache_10, cache_16, emit_buffer, emit_cache_10, emit_cache_16,
    emit_mode_sense, emit_security, emit_start_stop, emit_transfer_6, emit_verify, flag,
    mode_select, mode_sense, security, start_stop, transfer_6, transfer_10, transfer_10_bytes,
    transfer_16, transfer_16_bytes, verify,
};

/// Length of a CDB as transported, bytes.
pub const LENGTH: usize = 16;

code! {
    /// Operation code, byte 0.
    pub enum Opcode: u8 {
        /// TEST UNIT READY.
        TestUnitReady = 0x00 => "TEST UNIT READY",
        /// REQUEST SENSE.
        RequestSense = 0x03 => "REQUEST SENSE",
        /// FORMAT UNIT.
        FormatUnit = 0x04 => "FORMAT UNIT",
        /// READ(6).
        Read6 = 0x08 => "READ(6)",
        /// WRITE(6).
        Write6 = 0x0A => "WRITE(6)",
        /// INQUIRY.
        Inquiry = 0x12 => "INQUIRY",
        /// MODE SELECT(6).
        ModeSelect6 = 0x15 => "MODE SELECT(6)",
        /// MODE SENSE(6).
        ModeSense6 = 0x1A => "MODE SENSE(6)",
        /// START STOP UNIT.
        StartStopUnit = 0x1B => "START STOP UNIT",
        /// SEND DIAGNOSTIC.
        SendDiagnostic = 0x1D => "SEND DIAGNOSTIC",
        /// READ CAPACITY(10).
        ReadCapacity10 = 0x25 => "READ CAPACITY(10)",
        /// READ(10).
        Read10 = 0x28 => "READ(10)",
        /// WRITE(10).
        Write10 = 0x2A => "WRITE(10)",
        /// VERIFY(10).
        Verify10 = 0x2F => "VERIFY(10)",
        /// PRE-FETCH(10).
        PreFetch10 = 0x34 => "PRE-FETCH(10)",
        /// SYNCHRONIZE CACHE(10).
        SynchronizeCache10 = 0x35 => "SYNCHRONIZE CACHE(10)",
        /// WRITE BUFFER.
        WriteBuffer = 0x3B => "WRITE BUFFER",
        /// READ BUFFER.
        ReadBuffer = 0x3C => "READ BUFFER",
        /// UNMAP.
        Unmap = 0x42 => "UNMAP",
        /// MODE SELECT(10).
        ModeSelect10 = 0x55 => "MODE SELECT(10)",
        /// MODE SENSE(10).
        ModeSense10 = 0x5A => "MODE SENSE(10)",
        /// READ(16).
        Read16 = 0x88 => "READ(16)",
        /// WRITE(16).
        Write16 = 0x8A => "WRITE(16)",
        /// PRE-FETCH(16).
        PreFetch16 = 0x90 => "PRE-FETCH(16)",
        /// SYNCHRONIZE CACHE(16).
        SynchronizeCache16 = 0x91 => "SYNCHRONIZE CACHE(16)",
        /// SERVICE ACTION IN(16), of which UFS uses READ CAPACITY(16).
        ServiceActionIn16 = 0x9E => "SERVICE ACTION IN(16)",
        /// REPORT LUNS.
        ReportLuns = 0xA0 => "REPORT LUNS",
        /// SECURITY PROTOCOL IN.
        SecurityProtocolIn = 0xA2 => "SECURITY PROTOCOL IN",
        /// SECURITY PROTOCOL OUT.
        SecurityProtocolOut = 0xB5 => "SECURITY PROTOCOL OUT",
    }
}

impl Opcode {
    /// Length of the CDB according to its group code, bytes; 16 for groups that do not define it.
    pub const fn cdb_length(self) -> usize {
        match self.into_bits() >> 5 {
            0 => 6,
            1 | 2 => 10,
            5 => 12,
            _ => 16,
        }
    }
}

/// Service action of READ CAPACITY(16).
pub const READ_CAPACITY_16: u8 = 0x10;
/// Security protocol of RPMB (JESD220 12.4).
pub const SECURITY_PROTOCOL_UFS: u8 = 0xEC;
/// Security protocol that lists the protocols (SPC-6).
pub const SECURITY_PROTOCOL_INFORMATION: u8 = 0x00;

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cdb {
    /// TEST UNIT READY.
    TestUnitReady,
    /// REQUEST SENSE.
    RequestSense {
        /// DESC: in descriptor format.
        desc: bool,
        /// ALLOCATION LENGTH.
        allocation_length: u8,
    },
    /// FORMAT UNIT.
    FormatUnit {
        /// Byte 1: FMTPINFO, LONGLIST, FMTDATA, CMPLST, DEFECT LIST FORMAT.
        parameters: u8,
    },
    /// READ(6): at most 256 blocks, 21-bit address.
    Read6(Transfer),
    /// WRITE(6): at most 256 blocks, 21-bit address.
    Write6(Transfer),
    /// INQUIRY.
    Inquiry {
        /// EVPD and PAGE CODE: the vital product data page, or standard data.
        page: Option<u8>,
        /// ALLOCATION LENGTH.
        allocation_length: u16,
    },
    /// MODE SELECT(6).
    ModeSelect6(ModeSelect),
    /// MODE SENSE(6).
    ModeSense6(ModeSense),
    /// START STOP UNIT.
    StartStopUnit(StartStop),
    /// SEND DIAGNOSTIC.
    SendDiagnostic {
        /// Byte 1: SELF-TEST CODE, PF, SELFTEST, DEVOFFL, UNITOFFL.
        parameters: u8,
        /// PARAMETER LIST LENGTH.
        parameter_list_length: u16,
    },
    /// READ CAPACITY(10).
    ReadCapacity10,
    /// READ(10).
    Read10(Transfer),
    /// WRITE(10).
    Write10(Transfer),
    /// VERIFY(10).
    Verify10(Verify),
    /// PRE-FETCH(10).
    PreFetch10(CacheRange),
    /// SYNCHRONIZE CACHE(10).
    SynchronizeCache10(CacheRange),
    /// WRITE BUFFER.
    WriteBuffer(Buffer),
    /// READ BUFFER.
    ReadBuffer(Buffer),
    /// UNMAP.
    Unmap {
        /// ANCHOR.
        anchor: bool,
        /// GROUP NUMBER.
        group: u8,
        /// PARAMETER LIST LENGTH.
        parameter_list_length: u16,
    },
    /// MODE SELECT(10).
    ModeSelect10(ModeSelect),
    /// MODE SENSE(10).
    ModeSense10(ModeSense),
    /// READ(16).
    Read16(Transfer),
    /// WRITE(16).
    Write16(Transfer),
    /// PRE-FETCH(16).
    PreFetch16(CacheRange),
    /// SYNCHRONIZE CACHE(16).
    SynchronizeCache16(CacheRange),
    /// READ CAPACITY(16).
    ReadCapacity16 {
        /// ALLOCATION LENGTH.
        allocation_length: u32,
    },
    /// REPORT LUNS.
    ReportLuns {
        /// SELECT REPORT.
        select: SelectReport,
        /// ALLOCATION LENGTH.
        allocation_length: u32,
    },
    /// SECURITY PROTOCOL IN.
    SecurityProtocolIn(Security),
    /// SECURITY PROTOCOL OUT.
    SecurityProtocolOut(Security),
    /// A command without a name here.
    Unknown([u8; LENGTH]),
}

impl Cdb {
    /// Parses a CDB.
    #[inline]
    pub fn parse(c: &[u8; LENGTH]) -> Self {
        // Numbers, not names: the path of every I/O must not pay for the table of all names.
        const READ_10: u8 = Opcode::Read10.into_bits();
        const WRITE_10: u8 = Opcode::Write10.into_bits();
        const READ_16: u8 = Opcode::Read16.into_bits();
        const WRITE_16: u8 = Opcode::Write16.into_bits();
        match c[0] {
            READ_10 => Self::Read10(transfer_10(c)),
            WRITE_10 => Self::Write10(transfer_10(c)),
            READ_16 => Self::Read16(transfer_16(c)),
            WRITE_16 => Self::Write16(transfer_16(c)),
            rare => Self::parse_rare(Opcode::from_bits(rare), c),
        }
    }

    fn parse_rare(opcode: Opcode, c: &[u8; LENGTH]) -> Self {
        match opcode {
            Opcode::TestUnitReady => Self::TestUnitReady,
            Opcode::RequestSense => {
                Self::RequestSense { desc: bit(c[1], 0), allocation_length: c[4] }
            }
            Opcode::FormatUnit => Self::FormatUnit { parameters: c[1] },
            Opcode::Read6 => Self::Read6(transfer_6(c)),
            Opcode::Write6 => Self::Write6(transfer_6(c)),
            Opcode::Inquiry => {
                let page = if bit(c[1], 0) { Some(c[2]) } else { None };
                Self::Inquiry { page, allocation_length: be16(c, 3) }
            }
            Opcode::ModeSelect6 => Self::ModeSelect6(mode_select(c, c[4].into())),
            Opcode::ModeSense6 => Self::ModeSense6(mode_sense(c, false, c[4].into())),
            Opcode::StartStopUnit => Self::StartStopUnit(start_stop(c)),
            Opcode::SendDiagnostic => {
                Self::SendDiagnostic { parameters: c[1], parameter_list_length: be16(c, 3) }
            }
            Opcode::ReadCapacity10 => Self::ReadCapacity10,
            Opcode::Verify10 => Self::Verify10(verify(c)),
            Opcode::PreFetch10 => Self::PreFetch10(cache_10(c)),
            Opcode::SynchronizeCache10 => Self::SynchronizeCache10(cache_10(c)),
            Opcode::WriteBuffer => Self::WriteBuffer(buffer(c)),
            Opcode::ReadBuffer => Self::ReadBuffer(buffer(c)),
            Opcode::Unmap => Self::Unmap {
                anchor: bit(c[1], 0),
                group: c[6] & GROUP_MASK,
                parameter_list_length: be16(c, 7),
            },
            Opcode::ModeSelect10 => Self::ModeSelect10(mode_select(c, be16(c, 7))),
            Opcode::ModeSense10 => Self::ModeSense10(mode_sense(c, bit(c[1], 4), be16(c, 7))),
            Opcode::PreFetch16 => Self::PreFetch16(cache_16(c)),
            Opcode::SynchronizeCache16 => Self::SynchronizeCache16(cache_16(c)),
            Opcode::ServiceActionIn16 if c[1] & 0x1F == READ_CAPACITY_16 => {
                Self::ReadCapacity16 { allocation_length: be32(c, 10) }
            }
            Opcode::ReportLuns => Self::ReportLuns {
                select: SelectReport::from_bits(c[2]),
                allocation_length: be32(c, 6),
            },
            Opcode::SecurityProtocolIn => Self::SecurityProtocolIn(security(c)),
            Opcode::SecurityProtocolOut => Self::SecurityProtocolOut(security(c)),
            _ => Self::Unknown(*c),
        }
    }

    /// The CDB. Numbers too large for their field are truncated, so the caller must choose a long
    /// enough form of the command.
    // Left to itself, the compiler inlines this into a disk's request start or not depending on how
    // it divides the crate: a difference of 25 instructions per request.
    #[inline(always)]
    pub fn to_bytes(&self) -> [u8; LENGTH] {
        let opcode = self.opcode().into_bits();
        match self {
            Self::Read10(t) | Self::Write10(t) => transfer_10_bytes(opcode, t),
            Self::Read16(t) | Self::Write16(t) => transfer_16_bytes(opcode, t),
            rare => rare.rare_bytes(),
        }
    }

    /// Writes the CDB, see [`to_bytes`](Self::to_bytes).
    #[inline]
    pub fn emit(&self, c: &mut [u8; LENGTH]) {
        *c = self.to_bytes();
    }

    fn rare_bytes(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        self.emit_rare(&mut bytes);
        bytes
    }

    fn emit_rare(&self, c: &mut [u8; LENGTH]) {
        c[0] = self.opcode().into_bits();
        match *self {
            Self::TestUnitReady | Self::ReadCapacity10 => {}
            Self::RequestSense { desc, allocation_length } => {
                c[1] = flag(desc, 0);
                c[4] = allocation_length;
            }
            Self::FormatUnit { parameters } => c[1] = parameters,
            Self::Read6(t) | Self::Write6(t) => emit_transfer_6(&t, c),
            Self::Inquiry { page, allocation_length } => {
                c[1] = flag(page.is_some(), 0);
                c[2] = page.unwrap_or(0);
                put(c, 3, allocation_length.to_be_bytes());
            }
            Self::ModeSelect6(m) => {
                c[1] = flag(m.pf, 4) | flag(m.sp, 0);
                c[4] = m.parameter_list_length as u8;
            }
            Self::ModeSense6(m) => {
                emit_mode_sense(&m, c);
                c[4] = m.allocation_length as u8;
            }
            Self::StartStopUnit(s) => emit_start_stop(&s, c),
            Self::SendDiagnostic { parameters, parameter_list_length } => {
                c[1] = parameters;
                put(c, 3, parameter_list_length.to_be_bytes());
            }
            Self::Verify10(v) => emit_verify(&v, c),
            Self::PreFetch10(r) | Self::SynchronizeCache10(r) => emit_cache_10(&r, c),
            Self::WriteBuffer(b) | Self::ReadBuffer(b) => emit_buffer(&b, c),
            Self::Unmap { anchor, group, parameter_list_length } => {
                c[1] = flag(anchor, 0);
                c[6] = group & GROUP_MASK;
                put(c, 7, parameter_list_length.to_be_bytes());
            }
            Self::ModeSelect10(m) => {
                c[1] = flag(m.pf, 4) | flag(m.sp, 0);
                put(c, 7, m.parameter_list_length.to_be_bytes());
            }
            Self::ModeSense10(m) => {
                emit_mode_sense(&m, c);
                c[1] |= flag(m.llbaa, 4);
                put(c, 7, m.allocation_length.to_be_bytes());
            }
            Self::PreFetch16(r) | Self::SynchronizeCache16(r) => emit_cache_16(&r, c),
            Self::ReadCapacity16 { allocation_length } => {
                c[1] = READ_CAPACITY_16;
                put(c, 10, allocation_length.to_be_bytes());
            }
            Self::ReportLuns { select, allocation_length } => {
                c[2] = select.into_bits();
                put(c, 6, allocation_length.to_be_bytes());
            }
            Self::SecurityProtocolIn(s) | Self::SecurityProtocolOut(s) => emit_security(&s, c),
            Self::Unknown(bytes) => *c = bytes,
            Self::Read10(t) | Self::Write10(t) => *c = transfer_10_bytes(c[0], &t),
            Self::Read16(t) | Self::Write16(t) => *c = transfer_16_bytes(c[0], &t),
        }
    }

    /// Byte 0.
    #[inline]
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::TestUnitReady => Opcode::TestUnitReady,
            Self::RequestSense { .. } => Opcode::RequestSense,
            Self::FormatUnit { .. } => Opcode::FormatUnit,
            Self::Read6(_) => Opcode::Read6,
            Self::Write6(_) => Opcode::Write6,
            Self::Inquiry { .. } => Opcode::Inquiry,
            Self::ModeSelect6(_) => Opcode::ModeSelect6,
            Self::ModeSense6(_) => Opcode::ModeSense6,
            Self::StartStopUnit(_) => Opcode::StartStopUnit,
            Self::SendDiagnostic { .. } => Opcode::SendDiagnostic,
            Self::ReadCapacity10 => Opcode::ReadCapacity10,
            Self::Read10(_) => Opcode::Read10,
            Self::Write10(_) => Opcode::Write10,
            Self::Verify10(_) => Opcode::Verify10,
            Self::PreFetch10(_) => Opcode::PreFetch10,
            Self::SynchronizeCache10(_) => Opcode::SynchronizeCache10,
            Self::WriteBuffer(_) => Opcode::WriteBuffer,
            Self::ReadBuffer(_) => Opcode::ReadBuffer,
            Self::Unmap { .. } => Opcode::Unmap,
            Self::ModeSelect10(_) => Opcode::ModeSelect10,
            Self::ModeSense10(_) => Opcode::ModeSense10,
            Self::Read16(_) => Opcode::Read16,
            Self::Write16(_) => Opcode::Write16,
            Self::PreFetch16(_) => Opcode::PreFetch16,
            Self::SynchronizeCache16(_) => Opcode::SynchronizeCache16,
            Self::ReadCapacity16 { .. } => Opcode::ServiceActionIn16,
            Self::ReportLuns { .. } => Opcode::ReportLuns,
            Self::SecurityProtocolIn(_) => Opcode::SecurityProtocolIn,
            Self::SecurityProtocolOut(_) => Opcode::SecurityProtocolOut,
            Self::Unknown(bytes) => Opcode::from_bits(bytes[0]),
        }
    }
}
