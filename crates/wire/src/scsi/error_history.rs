//! Error history (SPC-6 READ BUFFER mode 1Ch): buffers in which a device recorded its errors, and
//! buffer zero, their directory. The contents of the buffers are vendor specific.

use crate::bytes::{array, be16, be32, put};
use crate::error::WireError;

/// Buffer ID of the directory.
pub const DIRECTORY: u8 = 0x00;
/// Buffer IDs of error history.
pub const BUFFERS: core::ops::RangeInclusive<u8> = 0x10..=0xEF;
/// Length of the header of the directory, bytes.
pub const HEADER_LENGTH: usize = 32;
/// Length of an entry of the directory, bytes.
pub const ENTRY_LENGTH: usize = 8;
/// Maximum length of the directory, bytes: an entry for every possible buffer.
pub const DIRECTORY_LENGTH_MAX: usize = HEADER_LENGTH + 224 * ENTRY_LENGTH;

/// One buffer of error history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryBuffer {
    /// BUFFER ID.
    pub id: u8,
    /// MAXIMUM AVAILABLE LENGTH, bytes.
    pub length: u32,
}

/// The directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryView<'a> {
    bytes: &'a [u8],
}

impl<'a> DirectoryView<'a> {
    /// Reads the directory from the data of buffer zero.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the header or entries are missing, [`WireError::BadField`] if
    /// the length is not that of whole entries.
    pub fn new(bytes: &'a [u8]) -> Result<Self, WireError> {
        WireError::check_len(bytes, HEADER_LENGTH)?;
        let length = usize::from(be16(bytes, 30));
        if !length.is_multiple_of(ENTRY_LENGTH) {
            return Err(WireError::BadField("DIRECTORY LENGTH"));
        }
        WireError::check_len(bytes, HEADER_LENGTH + length)?;
        Ok(Self { bytes: &bytes[..HEADER_LENGTH + length] })
    }

    /// T10 VENDOR IDENTIFICATION.
    pub fn vendor(&self) -> [u8; 8] {
        array(self.bytes, 0)
    }

    /// VERSION of the buffers' contents, vendor specific.
    pub fn version(&self) -> u8 {
        self.bytes[8]
    }

    /// The buffers.
    pub fn buffers(&self) -> impl Iterator<Item = HistoryBuffer> + 'a {
        let entries = self.bytes[HEADER_LENGTH..].chunks_exact(ENTRY_LENGTH);
        entries.map(|entry| HistoryBuffer { id: entry[0], length: be32(entry, 4) })
    }
}

/// Writes a directory and returns its length; `None` if it does not fit.
pub fn emit_directory(
    vendor: [u8; 8],
    version: u8,
    buffers: &[HistoryBuffer],
    bytes: &mut [u8],
) -> Option<usize> {
    let length = buffers.len() * ENTRY_LENGTH;
    let out = bytes.get_mut(..HEADER_LENGTH + length)?;
    out.fill(0);
    put(out, 0, vendor);
    out[8] = version;
    put(out, 30, u16::try_from(length).ok()?.to_be_bytes());
    for (buffer, entry) in buffers.iter().zip(out[HEADER_LENGTH..].chunks_mut(ENTRY_LENGTH)) {
        entry[0] = buffer.id;
        put(entry, 4, buffer.length.to_be_bytes());
    }
    Some(HEADER_LENGTH + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_read_as_it_was_written() {
        let buffers =
            [HistoryBuffer { id: 0x10, length: 4096 }, HistoryBuffer { id: 0xEF, length: 1 << 20 }];
        let mut bytes = [0xFF; DIRECTORY_LENGTH_MAX];
        let length = emit_directory(*b"VENDOR  ", 3, &buffers, &mut bytes).expect("room");
        // As ufs-utils reads it: the length at byte 30, entries of eight bytes from byte 32 on.
        assert_eq!(bytes[30..40], [0, 16, 0x10, 0, 0, 0, 0, 0, 0x10, 0]);
        let view = DirectoryView::new(&bytes[..length]).expect("a directory");
        assert_eq!((view.vendor(), view.version()), (*b"VENDOR  ", 3));
        assert!(view.buffers().eq(buffers));
    }

    #[test]
    fn what_is_no_directory_is_told() {
        assert!(DirectoryView::new(&[0; 31]).is_err());
        let mut bytes = [0; 40];
        bytes[31] = 7;
        assert_eq!(DirectoryView::new(&bytes), Err(WireError::BadField("DIRECTORY LENGTH")));
        bytes[31] = 16;
        assert!(matches!(DirectoryView::new(&bytes), Err(WireError::Truncated { .. })));
    }
}
