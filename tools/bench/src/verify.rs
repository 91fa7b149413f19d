//! Self-describing data: headers and checksums in everything that a verifying workload writes.
//!
//! Each unit (the verify interval) starts with a header in the layout of fio 3.33's `struct
//! verify_header`, determined by reading what fio wrote, so that either program can check the
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
//! | 40 | 0 to 64 | checksum of the rest of the unit |
//!
//! The offset identifies misplaced data, the seed identifies stale data (the number of an earlier
//! write can be recovered from it), and the payload, generated from the seed alone, shows which
//! bytes differ: a few bits, or all from a byte on as in a torn write.

pub(crate) mod versions;

use core::fmt;

use flysch_api::count::counted;
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
    /// The CRC-64 of Jones, reflected, register from 0.
    Crc64,
    /// CRC-16 (ARC).
    Crc16,
    /// CRC-7 (MMC), in the low bits.
    Crc7,
    /// xxHash, 32 bits, seed 1.
    XxHash,
    /// MD5.
    Md5,
    /// SHA-1, its five words little-endian.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
    /// SHA3-224.
    Sha3_224,
    /// SHA3-256.
    Sha3_256,
    /// SHA3-384.
    Sha3_384,
    /// SHA3-512.
    Sha3_512,
    /// None: only the header is checked, and the pattern if there is one.
    Meta,
    /// A header, followed by the pattern.
    PatternHeader,
    /// The pattern alone, which cannot reveal data of an earlier write or for another place.
    Pattern,
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
static CRC64: crc::Crc<u64> = crc::Crc::<u64>::new(&crc::CRC_64_REDIS);
static CRC16: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_ARC);
static CRC7: crc::Crc<u8> = crc::Crc::<u8>::new(&crc::CRC_7_MMC);

/// Longest checksum, bytes.
const SUM_MAX: usize = 64;

impl Method {
    /// All of them, with fio's names. `sha256` and `sha512` work only for our own data: what fio
    /// 3.33 stores for these is the end of the data, not a checksum of it.
    pub const NAMES: [(&'static str, Self); 18] = [
        ("crc32c", Self::Crc32c),
        ("crc32c-intel", Self::Crc32c),
        ("crc32", Self::Crc32),
        ("crc64", Self::Crc64),
        ("crc16", Self::Crc16),
        ("crc7", Self::Crc7),
        ("xxhash", Self::XxHash),
        ("md5", Self::Md5),
        ("sha1", Self::Sha1),
        ("sha256", Self::Sha256),
        ("sha512", Self::Sha512),
        ("sha3-224", Self::Sha3_224),
        ("sha3-256", Self::Sha3_256),
        ("sha3-384", Self::Sha3_384),
        ("sha3-512", Self::Sha3_512),
        ("meta", Self::Meta),
        ("pattern_hdr", Self::PatternHeader),
        ("pattern", Self::Pattern),
    ];

    /// The method fio calls `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|&(_, method)| method)
    }

    fn code(self) -> u16 {
        match self {
            Self::Meta => 1,
            Self::Md5 => 2,
            Self::Crc64 => 3,
            Self::Crc32 => 4,
            Self::Crc32c => 5,
            Self::Crc16 => 7,
            Self::Crc7 => 8,
            Self::Sha256 => 9,
            Self::Sha512 => 10,
            Self::Sha3_224 => 11,
            Self::Sha3_256 => 12,
            Self::Sha3_384 => 13,
            Self::Sha3_512 => 14,
            Self::XxHash => 15,
            Self::Sha1 => 16,
            Self::PatternHeader => 17,
            Self::Pattern => 18,
        }
    }

    fn from_code(code: u16) -> Option<Self> {
        // fio's second name of CRC-32C has a number of its own.
        let code = if code == 6 { 5 } else { code };
        Self::NAMES.into_iter().map(|(_, method)| method).find(|method| method.code() == code)
    }

    /// Bytes of the checksum.
    fn len(self) -> usize {
        match self {
            Self::Meta | Self::PatternHeader | Self::Pattern => 0,
            Self::Crc7 => 1,
            Self::Crc16 => 2,
            Self::Crc32c | Self::Crc32 | Self::XxHash => 4,
            Self::Crc64 => 8,
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha3_224 => 28,
            Self::Sha3_256 | Self::Sha256 => 32,
            Self::Sha3_384 => 48,
            Self::Sha3_512 | Self::Sha512 => 64,
        }
    }

    /// Bytes before the payload.
    fn head(self) -> usize {
        if self == Self::Pattern { 0 } else { HEADER_LEN + self.len() }
    }

    /// The shortest unit that it can work on: header, checksum and at least a byte of payload.
    pub fn unit_min(self) -> u32 {
        (self.head() + 1) as u32
    }

    /// Whether it requires a pattern.
    pub fn needs_pattern(self) -> bool {
        matches!(self, Self::Pattern | Self::PatternHeader)
    }

    /// Checksum of `payload`; the first [`len`](Self::len) bytes count.
    fn checksum(self, payload: &[u8]) -> [u8; SUM_MAX] {
        let mut sum = [0; SUM_MAX];
        let mut put = |bytes: &[u8]| sum[..bytes.len()].copy_from_slice(bytes);
        match self {
            Self::Meta | Self::PatternHeader | Self::Pattern => {}
            Self::Md5 => put(&md5::Md5::digest(payload)),
            Self::Crc32c => put(&crc32c_raw(payload).to_le_bytes()),
            Self::Crc32 => put(&CRC32.checksum(payload).to_le_bytes()),
            Self::Crc64 => put(&CRC64.checksum(payload).to_le_bytes()),
            Self::Crc16 => put(&CRC16.checksum(payload).to_le_bytes()),
            Self::Crc7 => put(&[CRC7.checksum(payload)]),
            Self::XxHash => put(&xxhash_rust::xxh32::xxh32(payload, 1).to_le_bytes()),
            Self::Sha1 => {
                put(&sha1::Sha1::digest(payload));
                sum[..20].chunks_exact_mut(4).for_each(<[u8]>::reverse);
            }
            Self::Sha256 => put(&sha2::Sha256::digest(payload)),
            Self::Sha512 => put(&sha2::Sha512::digest(payload)),
            Self::Sha3_224 => put(&sha3::Sha3_224::digest(payload)),
            Self::Sha3_256 => put(&sha3::Sha3_256::digest(payload)),
            Self::Sha3_384 => put(&sha3::Sha3_384::digest(payload)),
            Self::Sha3_512 => put(&sha3::Sha3_512::digest(payload)),
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

/// Bytes repeated from the start of each request on, instead of random ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    bytes: [u8; Self::MAX],
    len: u16,
    /// Where the offset of the request on the device is stored, 8 bytes little-endian; as many of
    /// them as count.
    places: ([u16; Self::OFFSETS_MAX], u8),
}

impl Pattern {
    /// Longest pattern, bytes.
    pub const MAX: usize = 512;
    /// Most offsets in a pattern.
    pub const OFFSETS_MAX: usize = 8;

    /// A pattern of these bytes; `None` for an empty one, or too many bytes.
    pub fn new(text: &[u8]) -> Option<Self> {
        Self::with_offsets(text, &[])
    }

    /// The same, with the request's offset on the device (8 bytes, little-endian) at each of
    /// `places`; `None` also if one does not lie within the pattern, or there are too many.
    pub fn with_offsets(text: &[u8], places: &[usize]) -> Option<Self> {
        let mut bytes = [0; Self::MAX];
        bytes.get_mut(..text.len()).filter(|to| !to.is_empty())?.copy_from_slice(text);
        if places.iter().any(|&place| place + 8 > text.len()) {
            return None;
        }
        let mut all = [0; Self::OFFSETS_MAX];
        let used = all.get_mut(..places.len())?;
        used.iter_mut().zip(places).for_each(|(to, place)| *to = *place as u16);
        Some(Self { bytes, len: text.len() as u16, places: (all, places.len() as u8) })
    }

    /// Fills the bytes from byte `at` on of the request at offset `request`.
    fn fill(&self, bytes: &mut [u8], at: u64, request: u64) {
        let mut pattern = self.bytes;
        let (places, count) = &self.places;
        for place in places[..usize::from(*count)].iter().map(|place| usize::from(*place)) {
            pattern[place..place + 8].copy_from_slice(&request.to_le_bytes());
        }
        let pattern = &pattern[..self.len.into()];
        let pattern = pattern.iter().cycle().skip((at % pattern.len() as u64) as usize);
        bytes.iter_mut().zip(pattern).for_each(|(to, from)| *to = *from);
    }
}

/// Where a unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its offset on the device, bytes.
    pub offset: u64,
    /// The offset of the request to which it belongs.
    pub request: u64,
}

impl Place {
    /// Byte `byte` of the unit, within the request.
    fn at(self, byte: usize) -> u64 {
        self.offset - self.request + byte as u64
    }
}

impl From<u64> for Place {
    /// A request of one unit.
    fn from(offset: u64) -> Self {
        Self { offset, request: offset }
    }
}

/// How the content of units is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// The checksum.
    pub method: Method,
    /// The pattern of the payload; random bytes without one.
    pub pattern: Option<Pattern>,
    /// Offset of header and checksum in a unit, exchanged with the bytes there; 0: at the start.
    pub header_at: u32,
}

impl From<Method> for Form {
    fn from(method: Method) -> Self {
        Self { method, pattern: None, header_at: 0 }
    }
}

impl Form {
    /// Fills `payload`, which starts at byte `at` of the unit at `place`.
    fn fill(&self, payload: &mut [u8], (at, place): (usize, Place), seed: u64) {
        match &self.pattern {
            Some(pattern) => pattern.fill(payload, place.at(at), place.request),
            None => fill(payload, seed),
        }
    }

    /// Whether what is in a unit of `unit` bytes depends on its place in the request.
    pub(crate) fn runs_on(&self, unit: u32) -> bool {
        let varies = |it: &Pattern| it.places.1 > 0 || !unit.is_multiple_of(it.len.into());
        self.pattern.as_ref().is_some_and(varies)
    }

    /// Whether the payload is compared with the pattern.
    fn compares(&self) -> bool {
        match self.method {
            Method::Pattern | Method::PatternHeader => true,
            Method::Meta => self.pattern.is_some(),
            _ => false,
        }
    }

    /// Whether the header fits into units of `unit` bytes.
    pub(crate) fn fits(&self, unit: u64) -> bool {
        let (head, at) = (self.method.head() as u64, u64::from(self.header_at));
        at == 0 || head == 0 || (at >= head && at + head <= unit)
    }

    /// Exchanges header and checksum, at the start of `unit`, with the bytes at `header_at`: this
    /// gives the form on the device; and back again, the form that [`check`] expects.
    pub(crate) fn move_header(&self, unit: &mut [u8]) {
        let (head, at) = (self.method.head(), self.header_at as usize);
        if at > 0 && head > 0 {
            let (first, rest) = unit.split_at_mut(at);
            first[..head].swap_with_slice(&mut rest[..head]);
        }
    }
}

/// CRC-32C without the inversion at the end.
fn crc32c_raw(bytes: &[u8]) -> u32 {
    !crc32c::crc32c(bytes)
}

/// The write of a run to which a unit belongs.
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

/// Makes `unit` the content of the `unit.len()` bytes at `place`.
pub fn stamp(
    unit: &mut [u8],
    form: &Form,
    place: impl Into<Place>,
    version: &Version,
    now: Instant,
) {
    let (method, place) = (form.method, place.into());
    let payload_at = method.head();
    let seed = version.payload_seed();
    form.fill(&mut unit[payload_at..], (payload_at, place), seed);
    if method == Method::Pattern {
        return;
    }
    let checksum = method.checksum(&unit[payload_at..]);
    unit[HEADER_LEN..payload_at].copy_from_slice(&checksum[..method.len()]);
    let length = unit.len() as u32;
    let mut put = |at: usize, bytes: &[u8]| unit[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &MAGIC.to_le_bytes());
    put(2, &method.code().to_le_bytes());
    put(4, &length.to_le_bytes());
    put(8, &seed.to_le_bytes());
    put(16, &place.offset.to_le_bytes());
    put(24, &((now.nanos() / 1_000_000_000) as u32).to_le_bytes());
    put(28, &((now.nanos() % 1_000_000_000) as u32).to_le_bytes());
    put(32, &(version.worker + 1).to_le_bytes());
    put(34, &(version.sequence as u16).to_le_bytes());
    let crc = crc32c_raw(&unit[..36]);
    unit[36..HEADER_LEN].copy_from_slice(&crc.to_le_bytes());
    form.move_header(unit);
}

/// The expected contents of `unit` at `place`, whose header is at its start, in the form on the
/// device: the content of that version, or otherwise of the seed in its own header; `None` if there
/// is no valid header.
pub(crate) fn expected(
    unit: &[u8],
    form: &Form,
    place: Place,
    version: Option<&Version>,
) -> Option<Vec<u8>> {
    let head = form.method.head();
    let has_header = head > 0 && unit.starts_with(&MAGIC.to_le_bytes());
    let of_header = || {
        let seed = unit.get(8..16).filter(|_| has_header)?;
        Some(u64::from_le_bytes(seed.try_into().ok()?))
    };
    let seed = version.map(Version::payload_seed).or_else(of_header);
    let seed = seed.or((head == 0).then_some(0))?;
    let mut right = unit.to_vec();
    form.fill(&mut right[head..], (head, place), seed);
    let checksum = form.method.checksum(&right[head..]);
    if head > 0 {
        right[HEADER_LEN..head].copy_from_slice(&checksum[..form.method.len()]);
        form.move_header(&mut right);
    }
    Some(right)
}

/// Fills `bytes` with the random bytes for `seed`.
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

/// How a unit differs from what is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// There is no header: never written, or overwritten with something else.
    NoHeader {
        /// What is there instead.
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
    /// The data belongs to another place.
    Misplaced {
        /// The offset it was written for.
        offset: u64,
    },
    /// It is an earlier write of the same run: the last one was lost.
    Stale {
        /// The write found.
        found: u64,
        /// The write expected.
        expected: u64,
    },
    /// It was written by another run.
    OtherRun,
    /// The unit is as written except for some bits.
    Flipped {
        /// First byte of the unit that differs.
        first: usize,
        /// Last byte that differs.
        last: usize,
        /// Bits that differ.
        bits: u32,
    },
    /// The header is right, but a run of the payload's bytes is wrong.
    Torn {
        /// First byte of the unit that differs.
        first: usize,
        /// Last byte that differs.
        last: usize,
    },
    /// The payload does not match its checksum.
    Checksum,
}

impl Mismatch {
    /// The first wrong byte of the unit, if it can be determined.
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
            Self::Flipped { first, last, bits } => {
                counted(*bits, "bit is flipped", "bits are flipped").fmt(f)?;
                match first == last {
                    true => write!(f, ", in byte {first}"),
                    false => write!(f, ", in bytes {first} to {last}"),
                }
            }
            Self::Torn { first, last } => {
                write!(f, "torn: bytes {first} to {last} are not what was written")
            }
            Self::Checksum => f.write_str("the data does not fit its checksum or pattern"),
        }
    }
}

/// Checks that `unit`, with its header at its start, is the content of `place`. With `expected` it
/// must be that version; without, any version whose checksum matches. A method without checksum
/// takes the header of any method.
///
/// # Errors
/// How it differs.
pub fn check(
    unit: &[u8],
    form: &Form,
    place: impl Into<Place>,
    expected: Option<&Version>,
) -> Result<(), Mismatch> {
    let (method, place) = (form.method, place.into());
    if method == Method::Pattern {
        return same(unit, form, (0, place), 0);
    }
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
    let is_ours = method.len() == 0 || Method::from_code(code) == Some(method);
    if length as usize != unit.len() || !is_ours {
        return Err(Mismatch::OtherLayout { length, method: code });
    }
    if u64_at(16) != place.offset {
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
    let payload_at = method.head();
    if form.compares() {
        return same(&unit[payload_at..], form, (payload_at, place), seed);
    }
    let checksum = method.checksum(&unit[payload_at..]);
    if unit[HEADER_LEN..payload_at] == checksum[..method.len()] {
        return Ok(());
    }
    let mut written = vec![0; unit.len() - HEADER_LEN];
    form.fill(&mut written[method.len()..], (payload_at, place), seed);
    // The checksum of what was written, not of what is there.
    let right = method.checksum(&written[method.len()..]);
    written[..method.len()].copy_from_slice(&right[..method.len()]);
    Err(difference(&unit[HEADER_LEN..], &written, HEADER_LEN))
}

/// Checks that `payload`, which starts at byte `at` of the unit at `place`, has the contents to be
/// filled in there.
fn same(
    payload: &[u8],
    form: &Form,
    (at, place): (usize, Place),
    seed: u64,
) -> Result<(), Mismatch> {
    let mut written = vec![0; payload.len()];
    form.fill(&mut written, (at, place), seed);
    if payload == written { Ok(()) } else { Err(difference(payload, &written, at)) }
}

/// The byte with the single flipped bit that invalidates `header`.
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

/// How the bytes `read` from byte `at` of a unit on differ from those `written`.
fn difference(read: &[u8], written: &[u8], at: usize) -> Mismatch {
    /// The number of bytes that all differ by chance.
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
