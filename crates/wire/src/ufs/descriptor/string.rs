//! String descriptor (JESD220 14.1.4): text in UTF-16, big-endian.

use super::{DescriptorView, WireError};
use crate::bytes::put;
use crate::ufs::query::DescriptorId;
use core::fmt;

/// Maximum length of a string descriptor, bytes.
pub const STRING_LENGTH_MAX: usize = 0xFE;

/// A string descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StringDescriptor<'a> {
    units: &'a [u8],
}

impl<'a> StringDescriptor<'a> {
    /// Parses the text of a descriptor. An odd last byte is ignored.
    ///
    /// # Errors
    /// As for every descriptor: too short, of another type, or with an impossible length.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let view = DescriptorView::new(bytes)?;
        view.expect(DescriptorId::String)?;
        let units = &view.as_bytes()[2..];
        Ok(Self { units: &units[..units.len() & !1] })
    }

    /// The characters; what is not valid UTF-16 becomes the replacement character.
    pub fn chars(&self) -> impl Iterator<Item = char> + 'a {
        let units = self.units.chunks_exact(2).map(|unit| u16::from_be_bytes([unit[0], unit[1]]));
        char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// The bytes of the text, for identifiers that are not text.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.units
    }

    /// Writes a string descriptor and returns its length. `None` if the text does not fit into a
    /// descriptor or into `bytes`.
    pub fn emit(text: &str, bytes: &mut [u8]) -> Option<usize> {
        let length = 2 + 2 * text.encode_utf16().count();
        if length > STRING_LENGTH_MAX || length > bytes.len() {
            return None;
        }
        bytes[0] = length as u8;
        bytes[1] = DescriptorId::String.into_bits();
        for (n, unit) in text.encode_utf16().enumerate() {
            put(bytes, 2 + 2 * n, unit.to_be_bytes());
        }
        Some(length)
    }
}

/// The text without the spaces and zeros that vendors pad with, and without control characters.
impl fmt::Display for StringDescriptor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let padding = |c: &char| *c == ' ' || *c == '\0';
        let last = self.chars().enumerate().filter(|(_, c)| !padding(c)).map(|(n, _)| n).last();
        for c in self.chars().take(last.map_or(0, |n| n + 1)).skip_while(padding) {
            fmt::Write::write_char(f, if c.is_control() { '?' } else { c })?;
        }
        Ok(())
    }
}
