//! Metadata of the class MULTIPATH (`gmultipath label`).

use super::{MAGIC_LEN, Name, magic};
use crate::WireError;
use crate::bytes::{array, le32, le64, put};

/// Magic of the label.
pub const MAGIC: [u8; MAGIC_LEN] = magic(b"GEOM::MULTIPATH");
/// The version written and read.
pub const VERSION: u32 = 1;
/// Bytes in the metadata.
pub const LEN: usize = 89;

crate::code::code! {
    /// Which paths take requests.
    pub enum Mode: u8 {
        /// One path takes all requests.
        ActivePassive = 0 => "Active/Passive",
        /// All paths take all requests.
        ActiveActive = 1 => "Active/Active",
        /// All paths read; one does everything else.
        ActiveRead = 2 => "Active/Read",
    }
}

/// The metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multipath {
    /// The same on every path to one disk.
    pub uuid: Name<40>,
    /// The name after `multipath/`.
    pub name: Name<16>,
    /// Bytes per sector.
    pub sector_size: u32,
    /// Size of the whole disk in bytes, this sector included.
    pub media_size: u64,
    /// Which paths take requests.
    pub mode: Mode,
}

impl Multipath {
    /// Reads the metadata from the last sector of a provider.
    ///
    /// # Errors
    /// If it is not valid.
    pub fn parse(sector: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(sector, LEN)?;
        if array::<MAGIC_LEN>(sector, 0) != MAGIC {
            return Err(WireError::BadField("magic"));
        }
        if le32(sector, 72) != VERSION {
            return Err(WireError::BadField("version"));
        }
        Ok(Self {
            uuid: Name::parse(sector, 16, "uuid")?,
            name: Name::parse(sector, 56, "name")?,
            sector_size: le32(sector, 76),
            media_size: le64(sector, 80),
            mode: Mode::from_bits(sector[88]),
        })
    }

    /// Fills `sector`, which must hold [`LEN`] bytes.
    pub fn emit(&self, sector: &mut [u8]) {
        sector.fill(0);
        put(sector, 0, MAGIC);
        put(sector, 16, Name::bytes(Some(self.uuid)));
        put(sector, 56, Name::bytes(Some(self.name)));
        put(sector, 72, VERSION.to_le_bytes());
        put(sector, 76, self.sector_size.to_le_bytes());
        put(sector, 80, self.media_size.to_le_bytes());
        sector[88] = self.mode.into_bits();
    }
}
