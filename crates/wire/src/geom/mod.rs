//! On-disk metadata of the block layer: partition tables, and the last-sector labels of GEOM.
//!
//! Layouts and checks are those of FreeBSD (`sys/geom`), of the UEFI specification for GPT, and of
//! the partition tables of PCs. Every GEOM label is little endian and packed, and lies in the last
//! sector of its provider, padded with zeros.

pub mod cache;
pub mod concat;
pub mod ddf;
pub mod disklabel;
pub mod disklabel64;
pub mod gpt;
pub mod imsm;
pub mod jmicron;
pub mod label;
pub mod mbr;
pub mod mirror;
pub mod multipath;
pub mod nvidia;
pub mod promise;
pub mod sii;
pub mod stripe;
#[cfg(test)]
mod tests;
pub mod volume;

use core::fmt;

use crate::WireError;
use crate::bytes::array;

/// Bytes in the magic at the front of every GEOM label.
pub const MAGIC_LEN: usize = 16;

/// A name in a field of `N` bytes, padded with zeros. Never empty, never with control characters;
/// the last byte is the terminator.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name<const N: usize>([u8; N]);

impl<const N: usize> Name<N> {
    /// The name `text`, if it is valid: 1 to `N - 1` bytes without control characters.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let mut bytes = [0; N];
        let fits = (1..N).contains(&text.len()) && !text.chars().any(char::is_control);
        bytes.get_mut(..text.len()).filter(|_| fits)?.copy_from_slice(text.as_bytes());
        Some(Self(bytes))
    }

    /// Reads the field at `at`, which must lie within `bytes`.
    fn parse(bytes: &[u8], at: usize, field: &'static str) -> Result<Self, WireError> {
        text(&bytes[at..at + N]).and_then(Self::new).ok_or(WireError::BadField(field))
    }

    /// Reads a field that may be empty.
    fn parse_optional(
        bytes: &[u8],
        at: usize,
        field: &'static str,
    ) -> Result<Option<Self>, WireError> {
        match bytes[at] {
            0 => Ok(None),
            _ => Self::parse(bytes, at, field).map(Some),
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        text(&self.0).unwrap_or_default()
    }

    fn bytes(name: Option<Self>) -> [u8; N] {
        name.map_or([0; N], |name| name.0)
    }
}

impl<const N: usize> fmt::Debug for Name<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl<const N: usize> fmt::Display for Name<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text before the first zero byte, if it is UTF-8.
#[must_use]
pub fn text(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    core::str::from_utf8(&field[..end]).ok()
}

/// Checks the magic and version of a label: first the length of the sector, then the magic.
fn check_label(
    sector: &[u8],
    magic: &[u8; MAGIC_LEN],
    versions: core::ops::RangeInclusive<u32>,
    needed: usize,
) -> Result<u32, WireError> {
    WireError::check_len(sector, needed)?;
    if array::<MAGIC_LEN>(sector, 0) != *magic {
        return Err(WireError::BadField("magic"));
    }
    let version = u32::from_le_bytes(array(sector, MAGIC_LEN));
    if !versions.contains(&version) {
        return Err(WireError::BadField("version"));
    }
    Ok(version)
}

/// The magic `name`, padded.
const fn magic(name: &[u8]) -> [u8; MAGIC_LEN] {
    let mut out = [0; MAGIC_LEN];
    let mut at = 0;
    while at < name.len() {
        out[at] = name[at];
        at += 1;
    }
    out
}

/// Begins a label in `sector`: zeros, magic, version.
fn begin_label(sector: &mut [u8], magic: &[u8; MAGIC_LEN], version: u32) {
    sector.fill(0);
    crate::bytes::put(sector, 0, *magic);
    crate::bytes::put(sector, MAGIC_LEN, version.to_le_bytes());
}

/// The class whose label starts with these bytes, if GEOM has it. Includes classes that only
/// FreeBSD implements, so that their labels are not overwritten unnoticed.
#[must_use]
pub fn class_of_magic(sector: &[u8]) -> Option<&'static str> {
    const CLASSES: [&str; 12] = [
        "MULTIPATH",
        "MIRROR",
        "STRIPE",
        "CONCAT",
        "LABEL",
        "RAID3",
        "ELI",
        "JOURNAL",
        "VIRSTOR",
        "CACHE",
        "SHSEC",
        "UNION",
    ];
    let name = text(sector.get(..MAGIC_LEN)?)?.strip_prefix("GEOM::")?;
    CLASSES.into_iter().find(|class| *class == name)
}
