//! The GUID partition table (UEFI 2.10, chapter 5.3).

use core::fmt;
use core::str::FromStr;

use crate::WireError;
use crate::bytes::{array, le32, le64, put};

/// Signature of a header.
pub const SIGNATURE: [u8; 8] = *b"EFI PART";
/// The revision written.
pub const REVISION: u32 = 0x0001_0000;
/// Bytes in a header.
pub const HEADER_LEN: usize = 92;
/// Bytes in an entry as written; entries of other lengths can be read.
pub const ENTRY_LEN: usize = 128;
/// Minimum number of entries written.
pub const ENTRIES: u32 = 128;
/// Maximum number of entries read or written: a table of 512 KiB. A header may name 2^32.
pub const ENTRIES_MAX: u32 = 4096;
/// Maximum bytes of an entry that is read.
pub const ENTRY_LEN_MAX: u32 = 4096;
/// UTF-16 units of a partition's name.
pub const NAME_LEN: usize = 36;

/// Bits of an entry's attributes that have a name.
pub mod attributes {
    /// A PC without UEFI boots from this partition.
    pub const LEGACY_BOOT: u64 = 1 << 2;
    /// FreeBSD: booting was tried once and failed.
    pub const BOOT_FAILED: u64 = 1 << 57;
    /// FreeBSD: boot from it once.
    pub const BOOT_ONCE: u64 = 1 << 58;
    /// FreeBSD: boot from it.
    pub const BOOT_ME: u64 = 1 << 59;
}

/// A GUID in its byte order on disk: the first three fields little endian.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub [u8; 16]);

/// Index of the stored byte for each byte of the text.
const TEXT_ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];

impl Guid {
    /// All zeros: no partition.
    pub const ZERO: Self = Self([0; 16]);

    /// Parses a text such as `c12a7328-f81f-11d2-ba4b-00a0c93ec93b`, for constants.
    ///
    /// # Panics
    /// If the text is not a GUID.
    #[must_use]
    pub const fn constant(text: &str) -> Self {
        match Self::parse_text(text.as_bytes()) {
            Some(guid) => guid,
            None => panic!("no GUID"),
        }
    }

    const fn parse_text(text: &[u8]) -> Option<Self> {
        if text.len() != 36 {
            return None;
        }
        let mut out = [0; 16];
        let (mut at, mut digit) = (0, 0);
        while at < 36 {
            if matches!(at, 8 | 13 | 18 | 23) {
                if text[at] != b'-' {
                    return None;
                }
            } else {
                let value = match text[at] {
                    byte @ b'0'..=b'9' => byte - b'0',
                    byte @ b'a'..=b'f' => byte - b'a' + 10,
                    byte @ b'A'..=b'F' => byte - b'A' + 10,
                    _ => return None,
                };
                let place = TEXT_ORDER[digit / 2];
                out[place] = out[place] << 4 | value;
                digit += 1;
            }
            at += 1;
        }
        Some(Self(out))
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, place) in TEXT_ORDER.into_iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{:02x}", self.0[place])?;
        }
        Ok(())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Guid {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        Self::parse_text(text.as_bytes()).ok_or(WireError::BadField("GUID"))
    }
}

/// Why a header cannot be used, in FreeBSD's order of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFault {
    /// There is none.
    Missing,
    /// Its checksum or its size is wrong.
    Corrupt(&'static str),
    /// Its checksum is right, but its contents are impossible.
    Invalid(&'static str),
}

impl fmt::Display for HeaderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("no header"),
            Self::Corrupt(what) => write!(f, "a corrupt header ({what})"),
            Self::Invalid(what) => write!(f, "an impossible header ({what})"),
        }
    }
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Sector of this header.
    pub own_lba: u64,
    /// Sector of the other header.
    pub alternate_lba: u64,
    /// First sector for partitions.
    pub first_usable: u64,
    /// Last sector for partitions.
    pub last_usable: u64,
    /// GUID of the disk.
    pub disk: Guid,
    /// First sector of the table.
    pub table_lba: u64,
    /// Number of entries.
    pub entries: u32,
    /// Bytes in an entry.
    pub entry_len: u32,
    /// CRC-32 of the table.
    pub table_crc: u32,
}

impl Header {
    /// Reads the header in `sector`, which was read at `lba` of a disk whose last sector is
    /// `last_lba`.
    ///
    /// # Errors
    /// Why the header cannot be used.
    pub fn parse(sector: &[u8], lba: u64, last_lba: u64) -> Result<Self, HeaderFault> {
        use HeaderFault::{Corrupt, Invalid, Missing};
        if sector.get(..8) != Some(&SIGNATURE[..]) {
            return Err(Missing);
        }
        if sector.len() < HEADER_LEN {
            return Err(Corrupt("it is cut off"));
        }
        let len = le32(sector, 12) as usize;
        if len < HEADER_LEN || len > sector.len() {
            return Err(Corrupt("its size"));
        }
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&sector[..16]);
        hasher.update(&[0; 4]);
        hasher.update(&sector[20..len]);
        if hasher.finalize() != le32(sector, 16) {
            return Err(Corrupt("its checksum"));
        }
        let this = Self {
            own_lba: le64(sector, 24),
            alternate_lba: le64(sector, 32),
            first_usable: le64(sector, 40),
            last_usable: le64(sector, 48),
            disk: Guid(array(sector, 56)),
            table_lba: le64(sector, 72),
            entries: le32(sector, 80),
            entry_len: le32(sector, 84),
            table_crc: le32(sector, 88),
        };
        if le32(sector, 8) < REVISION {
            return Err(Invalid("its revision"));
        }
        this.check(lba, last_lba, sector.len() as u64).map_err(Invalid)?;
        Ok(this)
    }

    fn check(&self, lba: u64, last_lba: u64, sector: u64) -> Result<(), &'static str> {
        if self.own_lba != lba {
            return Err("it belongs elsewhere");
        }
        if self.alternate_lba == lba || self.alternate_lba > last_lba {
            return Err("the place of the other header");
        }
        let (first, last) = (self.first_usable, self.last_usable);
        if first < 2 || first >= last_lba || last < first || last >= last_lba {
            return Err("the usable sectors");
        }
        if self.entries == 0 || self.entries > ENTRIES_MAX {
            return Err("the number of entries");
        }
        let sizes = ENTRY_LEN as u32..=ENTRY_LEN_MAX;
        if !sizes.contains(&self.entry_len) || !self.entry_len.is_multiple_of(8) {
            return Err("the size of an entry");
        }
        let sectors = self.table_len().div_ceil(sector);
        let end = self.table_lba.checked_add(sectors).ok_or("the place of the table")?;
        let inside = self.table_lba <= last && end > first;
        if self.table_lba < 2 || inside || end > last_lba {
            return Err("the place of the table");
        }
        Ok(())
    }

    /// Bytes in the table.
    #[must_use]
    pub const fn table_len(&self) -> u64 {
        self.entries as u64 * self.entry_len as u64
    }

    /// Fills `sector`, which must hold [`HEADER_LEN`] bytes.
    pub fn emit(&self, sector: &mut [u8]) {
        sector.fill(0);
        put(sector, 0, SIGNATURE);
        put(sector, 8, REVISION.to_le_bytes());
        put(sector, 12, (HEADER_LEN as u32).to_le_bytes());
        put(sector, 24, self.own_lba.to_le_bytes());
        put(sector, 32, self.alternate_lba.to_le_bytes());
        put(sector, 40, self.first_usable.to_le_bytes());
        put(sector, 48, self.last_usable.to_le_bytes());
        put(sector, 56, self.disk.0);
        put(sector, 72, self.table_lba.to_le_bytes());
        put(sector, 80, self.entries.to_le_bytes());
        put(sector, 84, self.entry_len.to_le_bytes());
        put(sector, 88, self.table_crc.to_le_bytes());
        let crc = crc32fast::hash(&sector[..HEADER_LEN]);
        put(sector, 16, crc.to_le_bytes());
    }
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Type of the partition; [`Guid::ZERO`] if the entry is empty.
    pub kind: Guid,
    /// GUID of the partition.
    pub unique: Guid,
    /// First sector.
    pub start: u64,
    /// Last sector.
    pub end: u64,
    /// Bits of [`attributes`] and others.
    pub attributes: u64,
    /// Its name, UTF-16, padded with zeros.
    pub name: [u16; NAME_LEN],
}

impl Entry {
    /// Reads an entry.
    ///
    /// # Errors
    /// If `bytes` is too short.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(bytes, ENTRY_LEN)?;
        let mut name = [0; NAME_LEN];
        for (at, unit) in name.iter_mut().enumerate() {
            *unit = u16::from_le_bytes(array(bytes, 56 + 2 * at));
        }
        Ok(Self {
            kind: Guid(array(bytes, 0)),
            unique: Guid(array(bytes, 16)),
            start: le64(bytes, 32),
            end: le64(bytes, 40),
            attributes: le64(bytes, 48),
            name,
        })
    }

    /// Fills `bytes`, which must hold [`ENTRY_LEN`] bytes.
    pub fn emit(&self, bytes: &mut [u8]) {
        put(bytes, 0, self.kind.0);
        put(bytes, 16, self.unique.0);
        put(bytes, 32, self.start.to_le_bytes());
        put(bytes, 40, self.end.to_le_bytes());
        put(bytes, 48, self.attributes.to_le_bytes());
        for (at, unit) in self.name.iter().enumerate() {
            put(bytes, 56 + 2 * at, unit.to_le_bytes());
        }
    }

    /// The characters of its name; an invalid one becomes U+FFFD.
    pub fn name(&self) -> impl Iterator<Item = char> + '_ {
        let units = self.name.iter().copied().take_while(|&unit| unit != 0);
        char::decode_utf16(units).map(|char| char.unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// `text` as a name, if it fits.
    #[must_use]
    pub fn encode_name(text: &str) -> Option<[u16; NAME_LEN]> {
        let mut out = [0; NAME_LEN];
        for (at, unit) in text.encode_utf16().enumerate() {
            *out.get_mut(at)? = unit;
        }
        Some(out)
    }
}
