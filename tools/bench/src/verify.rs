//! Data that says what it is: headers and checksums in everything a verifying workload writes.
//!
//! Each unit (the verify interval) starts with a header in the layout of fio 3.33's
//! `struct verify_header`, found out by reading what that fio wrote, so either program checks the
//! other's data. All numbers are little-endian.
//!
//! | byte | bytes | what |
//! |--:|--:|---|
//! | 0 | 2 | 0xACCA |
//! | 2 | 2 | checksum method |
//! | 4 | 4 | length of the unit |
//! | 8 | 8 | seed of the payload: run seed and sequence number of the write, mixed one-to-one |
//! | 16 | 8 | byte offset on the device |
//! | 24 | 4, 4 | time of the write: seconds, nanoseconds |
//! | 32 | 2 | worker, from 1 |
//! | 34 | 2 | sequence number of the write, low half word |
//! | 36 | 4 | CRC-32C of bytes 0..36, not inverted at the end |
//! | 40 | 4 or 16 | checksum of the rest of the unit |
//!
//! The offset tells misplaced data, the seed tells stale data (an earlier write's number comes
//! back out of it), and the payload, made from the seed alone, tells which bytes differ: a few
//! bits, or all from a byte on as in a torn write.

pub(crate) mod versions;

use core::fmt;

use flysch_api::machine::Instant;
use md5::Digest;

use crate::random::{Random, mix};

/// Bytes before the checksum.
const HEADER_LEN: usize = 40;
const MAGIC: u16 = 0xACCA;

/// The checksum over a unit's payload. Names and code points are fio's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// CRC-32C (Castagnoli), register not inverted at the end.
    Crc32c,
    /// The CRC-32 polynomial, most significant bit first, register from 0.
    Crc32,
    /// xxHash, 32 bits, seed 1.
    XxHash,
    /// MD5.
    Md5,
}

/// CRC-32 as fio computes it.
const CRC32_FIO: crc::Algorithm<u32> = crc::Algorithm {
    width: 32,
    poly: 0x04c1_1db7,
    init: 0,
    refin: false,
    refout: false,
    xorout: 0,
    check: 0x89a1_897f,
    residue: 0,
};
static CRC32: crc::Crc<u32> = crc::Crc::<u32>::new(&CRC32_FIO);

impl Method {
    /// All of them, by fio's name.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("crc32c", Self::Crc32c),
        ("crc32c-intel", Self::Crc32c),
        ("crc32", Self::Crc32),
        ("xxhash", Self::XxHash),
        ("md5", Self::Md5),
    ];

    /// The method fio calls `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|&(_, method)| method)
    }

    fn code(self) -> u16 {
        match self {
            Self::Md5 => 2,
            Self::Crc32 => 4,
            Self::Crc32c => 5,
            Self::XxHash => 15,
        }
    }

    fn from_code(code: u16) -> Option<Self> {
        match code {
            2 => Some(Self::Md5),
            4 => Some(Self::Crc32),
            5 | 6 => Some(Self::Crc32c),
            15 => Some(Self::XxHash),
            _ => None,
        }
    }

    /// Bytes of the checksum.
    fn len(self) -> usize {
        if self == Self::Md5 { 16 } else { 4 }
    }

    /// The shortest unit it can work on: header, checksum and something to check.
    pub fn unit_min(self) -> u32 {
        (HEADER_LEN + self.len() + 8) as u32
    }

    /// Checksum of `payload`; the first [`len`](Self::len) bytes count.
    fn checksum(self, payload: &[u8]) -> [u8; 16] {
        let mut sum = [0; 16];
        match self {
            Self::Md5 => sum.copy_from_slice(&md5::Md5::digest(payload)),
            Self::Crc32c => sum[..4].copy_from_slice(&crc32c_raw(payload).to_le_bytes()),
            Self::Crc32 => sum[..4].copy_from_slice(&CRC32.checksum(payload).to_le_bytes()),
            Self::XxHash => {
                let hash = xxhash_rust::xxh32::xxh32(payload, 1);
                sum[..4].copy_from_slice(&hash.to_le_bytes());
            }
        }
        sum
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, method)| method == self).map(|(name, _)| *name);
        f.write_str(name.unwrap_or("?"))
    }
}

/// CRC-32C without the inversion at the end.
fn crc32c_raw(bytes: &[u8]) -> u32 {
    !crc32c::crc32c(bytes)
}

/// Which write of a run a unit belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Seed of the run.
    pub run_seed: u64,
    /// Number of the write within the run, from 1.
    pub sequence: u64,
    /// The worker that wrote it, from 0.
    pub worker: u16,
}

impl Version {
    fn payload_seed(&self) -> u64 {
        mix(self.run_seed.wrapping_add(self.sequence))
    }
}

/// Makes `unit` the content of the `unit.len()` bytes at `offset`.
pub fn stamp(unit: &mut [u8], method: Method, offset: u64, version: &Version, now: Instant) {
    let payload_at = HEADER_LEN + method.len();
    let seed = version.payload_seed();
    fill(&mut unit[payload_at..], seed);
    let checksum = method.checksum(&unit[payload_at..]);
    unit[HEADER_LEN..payload_at].copy_from_slice(&checksum[..method.len()]);
    let length = unit.len() as u32;
    let mut put = |at: usize, bytes: &[u8]| unit[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &MAGIC.to_le_bytes());
    put(2, &method.code().to_le_bytes());
    put(4, &length.to_le_bytes());
    put(8, &seed.to_le_bytes());
    put(16, &offset.to_le_bytes());
    put(24, &((now.nanos() / 1_000_000_000) as u32).to_le_bytes());
    put(28, &((now.nanos() % 1_000_000_000) as u32).to_le_bytes());
    put(32, &(version.worker + 1).to_le_bytes());
    put(34, &(version.sequence as u16).to_le_bytes());
    let crc = crc32c_raw(&unit[..36]);
    unit[36..HEADER_LEN].copy_from_slice(&crc.to_le_bytes());
}

/// Fills `bytes` with the random bytes that belong to `seed`.
pub(crate) fn fill(bytes: &mut [u8], seed: u64) {
    let mut random = Random::new(seed);
    let mut words = bytes.chunks_exact_mut(8);
    for word in &mut words {
        word.copy_from_slice(&random.bits().to_le_bytes());
    }
    let rest = words.into_remainder();
    let len = rest.len();
    rest.copy_from_slice(&random.bits().to_le_bytes()[..len]);
}

/// How a unit differs from what should be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// There is no header: never written, or overwritten with something else.
    NoHeader {
        /// What stands in its place.
        found: u16,
    },
    /// There is a header, but its own checksum is wrong.
    HeaderDamaged,
    /// The unit has another length or checksum method.
    OtherLayout {
        /// Length in the header, bytes.
        length: u32,
        /// Method code in the header.
        method: u16,
    },
    /// This is the data of another place.
    Misplaced {
        /// The offset it was written for.
        offset: u64,
    },
    /// This is an earlier write of the same run: the last one was lost.
    Stale {
        /// The write found.
        found: u64,
        /// The write that should be there.
        expected: u64,
    },
    /// This was written by another run.
    OtherRun,
    /// The unit is as written but for some bits.
    Flipped {
        /// First byte of the unit that differs.
        first: usize,
        /// Last byte that differs.
        last: usize,
        /// Bits that differ.
        bits: u32,
    },
    /// The header is right, but a run of the payload's bytes is something else.
    Torn {
        /// First byte of the unit that differs.
        first: usize,
        /// Last byte that differs.
        last: usize,
    },
    /// The payload does not fit its checksum.
    Checksum,
}

impl Mismatch {
    /// The first byte of the unit that is wrong, where that can be told.
    pub fn first_byte(&self) -> Option<usize> {
        match self {
            Self::Flipped { first, .. } | Self::Torn { first, .. } => Some(*first),
            _ => None,
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHeader { found } => {
                write!(f, "no verify header ({found:#06x} where 0xacca should be)")
            }
            Self::HeaderDamaged => f.write_str("the verify header is damaged"),
            Self::OtherLayout { length, method } => {
                write!(f, "written with another verify layout (length {length}, method {method})")
            }
            Self::Misplaced { offset } => write!(f, "misplaced: this was written for {offset}"),
            Self::Stale { found, expected } => {
                write!(f, "stale: write {found} is there, write {expected} is lost")
            }
            Self::OtherRun => f.write_str("stale: written by an earlier run"),
            Self::Flipped { first, bits: 1, .. } => write!(f, "1 bit is flipped, in byte {first}"),
            Self::Flipped { first, last, bits } if first == last => {
                write!(f, "{bits} bits are flipped, in byte {first}")
            }
            Self::Flipped { first, last, bits } => {
                write!(f, "{bits} bits are flipped, in bytes {first} to {last}")
            }
            Self::Torn { first, last } => {
                write!(f, "torn: bytes {first} to {last} are not what was written")
            }
            Self::Checksum => f.write_str("the data does not fit its checksum"),
        }
    }
}

/// Checks that `unit` is the content of `offset`. With `expected` it must be that version;
/// without, any version whose checksum fits.
///
/// # Errors
/// How it differs.
pub fn check(
    unit: &[u8],
    method: Method,
    offset: u64,
    expected: Option<&Version>,
) -> Result<(), Mismatch> {
    let u16_at = |at: usize| u16::from_le_bytes([unit[at], unit[at + 1]]);
    let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    let is_header = |header: &[u8; HEADER_LEN]| {
        header.starts_with(&MAGIC.to_le_bytes())
            && header.ends_with(&crc32c_raw(&header[..36]).to_le_bytes())
    };
    let header: &[u8; HEADER_LEN] = unit.first_chunk().ok_or(Mismatch::HeaderDamaged)?;
    if !is_header(header) {
        let may_be_one = (u16_at(0) ^ MAGIC).count_ones() <= 1;
        let flipped = may_be_one.then(|| flipped_bit(header, is_header)).flatten();
        return Err(match (flipped, u16_at(0)) {
            (Some(first), _) => Mismatch::Flipped { first, last: first, bits: 1 },
            (None, MAGIC) => Mismatch::HeaderDamaged,
            (None, found) => Mismatch::NoHeader { found },
        });
    }
    let (length, code, seed) = (u32_at(4), u16_at(2), u64_at(8));
    if length as usize != unit.len() || Method::from_code(code) != Some(method) {
        return Err(Mismatch::OtherLayout { length, method: code });
    }
    if u64_at(16) != offset {
        return Err(Mismatch::Misplaced { offset: u64_at(16) });
    }
    if let Some(version) = expected
        && seed != version.payload_seed()
    {
        let found = unmix(seed).wrapping_sub(version.run_seed);
        let is_earlier = found > 0 && found < version.sequence;
        let expected = version.sequence;
        return Err(if is_earlier {
            Mismatch::Stale { found, expected }
        } else {
            Mismatch::OtherRun
        });
    }
    let payload_at = HEADER_LEN + method.len();
    let checksum = method.checksum(&unit[payload_at..]);
    if unit[HEADER_LEN..payload_at] == checksum[..method.len()] {
        return Ok(());
    }
    let mut written = vec![0; unit.len() - HEADER_LEN];
    fill(&mut written[method.len()..], seed);
    // The checksum of what was written, not of what is there.
    let right = method.checksum(&written[method.len()..]);
    written[..method.len()].copy_from_slice(&right[..method.len()]);
    Err(difference(&unit[HEADER_LEN..], &written, HEADER_LEN))
}

/// The byte with the one flipped bit that keeps `header` from being one.
fn flipped_bit(
    header: &[u8; HEADER_LEN],
    is_header: impl Fn(&[u8; HEADER_LEN]) -> bool,
) -> Option<usize> {
    let mut header = *header;
    let bit = (0..HEADER_LEN * 8).find(|bit| {
        let mask = 1 << (bit % 8);
        header[bit / 8] ^= mask;
        let is_right = is_header(&header);
        header[bit / 8] ^= mask;
        is_right
    });
    bit.map(|bit| bit / 8)
}

/// How what was `read` at byte `at` of a unit differs from what was `written`.
fn difference(read: &[u8], written: &[u8], at: usize) -> Mismatch {
    /// Bytes that by chance are all different.
    const CHANCE: usize = 8;
    let differ =
        || read.iter().zip(written).enumerate().filter(|(_, (read, written))| read != written);
    let (count, bits) = differ().fold((0, 0), |(count, bits), (_, (read, written))| {
        (count + 1, bits + (read ^ written).count_ones())
    });
    let mut places = differ().map(|(place, _)| at + place);
    let Some(first) = places.next() else { return Mismatch::Checksum };
    let last = places.next_back().unwrap_or(first);
    let length = last + 1 - first;
    match () {
        // All of it is something else: another program's, or nothing that could be compared.
        () if count * 2 > read.len() && first <= at + 16 => Mismatch::Checksum,
        () if length > CHANCE && count * 2 > length => Mismatch::Torn { first, last },
        () => Mismatch::Flipped { first, last, bits },
    }
}

/// The inverse of [`mix`].
fn unmix(value: u64) -> u64 {
    let value = (value ^ (value >> 31) ^ (value >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    let value = (value ^ (value >> 27) ^ (value >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    value ^ (value >> 30) ^ (value >> 60)
}

#[cfg(test)]
mod tests;
