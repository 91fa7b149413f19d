//! Logical unit numbers (SAM-6 4.7) and REPORT LUNS data (SPC-6).

use core::fmt;

use crate::bytes::{array, be32, put};
use crate::error::WireError;

/// Length of a logical unit number, bytes.
pub const LUN_LENGTH: usize = 8;
/// Length of the header of REPORT LUNS data, bytes.
pub const HEADER_LENGTH: usize = 8;

/// First byte of a well-known logical unit number: extended addressing, method 1.
const WELL_KNOWN: u8 = 0xC1;
/// Bit of UFS's one-byte form that marks a well-known logical unit (JESD220 10.6.2).
const WLUN_ID: u8 = 0x80;

/// A logical unit number as SCSI transports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogicalUnitNumber(pub [u8; LUN_LENGTH]);

impl LogicalUnitNumber {
    /// The number for UFS's one-byte form: 0..=127, or a well-known unit with bit 7 set (0xD0
    /// becomes C150h, 0xC4 C144h, 0xB0 C130h, 0x81 C101h).
    pub const fn from_ufs(lun: u8) -> Self {
        let first = if lun & WLUN_ID != 0 { WELL_KNOWN } else { 0 };
        Self([first, lun & !WLUN_ID, 0, 0, 0, 0, 0, 0])
    }

    /// UFS's one-byte form; `None` if there is none, for another addressing method or a number
    /// above 127. Flat space addressing of a small number is accepted.
    #[inline]
    pub const fn to_ufs(self) -> Option<u8> {
        // The usual case: peripheral device addressing, as one comparison.
        let bits = self.to_bits();
        if bits & !(0x7F << 48) == 0 {
            return Some((bits >> 48) as u8);
        }
        let [first, second, rest @ ..] = self.0;
        if !matches!(rest, [0, 0, 0, 0, 0, 0]) || second & WLUN_ID != 0 {
            return None;
        }
        match first {
            0x00 | 0x40 => Some(second),
            WELL_KNOWN => Some(second | WLUN_ID),
            _ => None,
        }
    }

    /// The eight bytes as one big-endian number.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        u64::from_be_bytes(self.0)
    }

    /// The number with these eight bytes, given as one big-endian number.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits.to_be_bytes())
    }

    /// Whether it is a well-known logical unit.
    pub const fn is_well_known(self) -> bool {
        self.0[0] == WELL_KNOWN
    }
}

/// Small numbers in decimal, everything else as its significant bytes in hexadecimal (`c144h` is
/// the RPMB unit of UFS).
impl fmt::Display for LogicalUnitNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.to_ufs()) {
            ([0 | 0x40, ..], Some(number)) => write!(f, "{number}"),
            ([a, b, 0, 0, 0, 0, 0, 0], _) => write!(f, "{:02x}{:02x}h", a, b),
            _ => write!(f, "{:016x}h", self.to_bits()),
        }
    }
}

/// The numbers in REPORT LUNS data that were read, and the length of the whole list in bytes, which
/// is longer if the allocation length was too short.
///
/// # Errors
/// [`WireError::Truncated`] below eight bytes.
pub fn parse(
    bytes: &[u8],
) -> Result<(impl Iterator<Item = LogicalUnitNumber> + '_, usize), WireError> {
    WireError::check_len(bytes, HEADER_LENGTH)?;
    let length = be32(bytes, 0) as usize;
    let list = &bytes[HEADER_LENGTH..];
    let list = &list[..list.len().min(length)];
    Ok((list.chunks_exact(LUN_LENGTH).map(|lun| LogicalUnitNumber(array(lun, 0))), length))
}

/// Writes as much of REPORT LUNS data as fits, and returns its whole length. LUN LIST LENGTH is
/// that of the whole list even if it is truncated (SPC-6).
pub fn emit(luns: impl Iterator<Item = LogicalUnitNumber>, bytes: &mut [u8]) -> usize {
    let mut at = HEADER_LENGTH;
    for lun in luns {
        emit_part(bytes, at, &lun.0);
        at += LUN_LENGTH;
    }
    let mut header = [0; HEADER_LENGTH];
    put(&mut header, 0, ((at - HEADER_LENGTH) as u32).to_be_bytes());
    emit_part(bytes, 0, &header);
    at
}

/// Writes as much of `part` at `at` as fits.
fn emit_part(bytes: &mut [u8], at: usize, part: &[u8]) {
    if let Some(out) = bytes.get_mut(at..) {
        let length = out.len().min(part.len());
        out[..length].copy_from_slice(&part[..length]);
    }
}
