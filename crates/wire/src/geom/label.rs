//! Metadata of the class LABEL (`glabel label`).

use super::{MAGIC_LEN, Name, begin_label, check_label, magic};
use crate::WireError;
use crate::bytes::{le64, put};

/// Magic of the label.
pub const MAGIC: [u8; MAGIC_LEN] = magic(b"GEOM::LABEL");
/// The version written. Versions 0 and 1 have no provider size.
pub const VERSION: u32 = 2;
/// Bytes in the metadata.
pub const LEN: usize = 44;

/// The metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The name after `label/`.
    pub label: Name<16>,
    /// Size of the labelled provider, bytes; `None` in versions before 2.
    pub provider_size: Option<u64>,
}

impl Label {
    /// Reads the metadata from the last sector of a provider.
    ///
    /// # Errors
    /// If it is not valid.
    pub fn parse(sector: &[u8]) -> Result<Self, WireError> {
        let version = check_label(sector, &MAGIC, 0..=VERSION, LEN)?;
        Ok(Self {
            label: Name::parse(sector, 20, "label")?,
            provider_size: (version >= 2).then(|| le64(sector, 36)),
        })
    }

    /// Fills `sector`, which must hold [`LEN`] bytes.
    pub fn emit(&self, sector: &mut [u8]) {
        begin_label(sector, &MAGIC, VERSION);
        put(sector, 20, Name::bytes(Some(self.label)));
        put(sector, 36, self.provider_size.unwrap_or(0).to_le_bytes());
    }
}
