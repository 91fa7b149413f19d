//! The label of `GEOM::CACHE`, version 1.

use super::{Name, begin_label, check_label, magic};
use crate::WireError;
use crate::bytes::{le32, le64, put};

/// Magic of the label.
pub const MAGIC: [u8; 16] = magic(b"GEOM::CACHE");
/// Version of the label.
pub const VERSION: u32 = 1;
/// Bytes in the label.
pub const LEN: usize = 52;

/// The metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// The name after `cache/`.
    pub name: Name<16>,
    /// Bytes per block.
    pub block_size: u32,
    /// Maximum number of blocks kept in the cache.
    pub size: u32,
    /// Size of the labelled provider, bytes.
    pub provider_size: u64,
}

impl Cache {
    /// Reads the label from the last sector of a provider.
    ///
    /// # Errors
    /// If it is not a valid label.
    pub fn parse(sector: &[u8]) -> Result<Self, WireError> {
        check_label(sector, &MAGIC, VERSION..=VERSION, LEN)?;
        Ok(Self {
            name: Name::parse(sector, 20, "name")?,
            block_size: le32(sector, 36),
            size: le32(sector, 40),
            provider_size: le64(sector, 44),
        })
    }

    /// Fills `sector`, which must hold [`LEN`] bytes.
    pub fn emit(&self, sector: &mut [u8]) {
        begin_label(sector, &MAGIC, VERSION);
        put(sector, 20, Name::bytes(Some(self.name)));
        put(sector, 36, self.block_size.to_le_bytes());
        put(sector, 40, self.size.to_le_bytes());
        put(sector, 44, self.provider_size.to_le_bytes());
    }
}
