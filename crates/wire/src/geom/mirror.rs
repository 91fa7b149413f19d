//! Metadata of the class MIRROR (`gmirror label`).

use md5::{Digest, Md5};

use super::{MAGIC_LEN, Name, begin_label, check_label, magic};
use crate::WireError;
use crate::bytes::{array, le32, le64, put};

/// Magic of the label.
pub const MAGIC: [u8; MAGIC_LEN] = magic(b"GEOM::MIRROR");
/// The version written. Versions 0 and 1 have no generation, versions before 3 no provider size.
pub const VERSION: u32 = 4;
/// Bytes in the metadata.
pub const LEN: usize = 135;

crate::code::code! {
    /// Which component a read goes to.
    pub enum Balance: u8 {
        /// The first active one.
        None = 0 => "none",
        /// Each in turn.
        RoundRobin = 1 => "round-robin",
        /// The one with the fewest requests and the nearest head.
        Load = 2 => "load",
        /// Long reads are split over all components.
        Split = 3 => "split",
        /// The one with the highest priority.
        Prefer = 4 => "prefer",
    }
}

/// Flags of the whole mirror.
pub mod flags {
    /// A stale component is not rebuilt automatically.
    pub const NO_AUTO_SYNC: u64 = 1;
    /// Nothing is rebuilt after an unclean stop.
    pub const NO_FAIL_SYNC: u64 = 2;
    /// The known flags.
    pub const MASK: u64 = 3;
}

/// Flags of one component.
pub mod disk_flags {
    /// Writes were in progress: after an unclean stop the components may differ.
    pub const DIRTY: u64 = 1;
    /// It is being rebuilt.
    pub const SYNCHRONIZING: u64 = 2;
    /// It is to be rebuilt even if nothing is rebuilt automatically.
    pub const FORCE_SYNC: u64 = 4;
    /// Removed by `deactivate`.
    pub const INACTIVE: u64 = 8;
    /// Only the provider whose name was recorded is this component.
    pub const HARDCODED: u64 = 0x10;
    /// It supports delete.
    pub const CAN_DELETE: u64 = 0x40;
    /// The flags allowed on the medium.
    pub const MASK: u64 = 0x7F;
}

/// The metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The name after `mirror/`.
    pub name: Name<16>,
    /// Distinguishes mirrors of the same name.
    pub id: u32,
    /// Distinguishes the components.
    pub disk_id: u32,
    /// Number of components.
    pub all: u8,
    /// Incremented when a component fails: one with a lower value stays out until it is inserted
    /// again.
    pub gen_id: u32,
    /// Incremented when the others are written without one component, which is then rebuilt.
    pub sync_id: u32,
    /// Priority of this component, for [`Balance::Prefer`] and for choosing the valid metadata.
    pub priority: u8,
    /// Bytes per piece, for [`Balance::Split`].
    pub slice: u32,
    /// How reads are distributed.
    pub balance: Balance,
    /// Size of the mirror, bytes.
    pub media_size: u64,
    /// Bytes per sector of the mirror.
    pub sector_size: u32,
    /// Bytes already rebuilt.
    pub sync_offset: u64,
    /// Flags of the mirror.
    pub flags: u64,
    /// Flags of the component.
    pub disk_flags: u64,
    /// The only provider that may be this component, if [`disk_flags::HARDCODED`].
    pub provider: Option<Name<16>>,
    /// Size of the labelled provider, bytes; 0 if the version has none.
    pub provider_size: u64,
}

impl Mirror {
    /// Reads the metadata from the last sector of a provider: versions 0 to 4.
    ///
    /// # Errors
    /// If it is not valid.
    pub fn parse(sector: &[u8]) -> Result<Self, WireError> {
        let version = check_label(sector, &MAGIC, 0..=VERSION, LEN)?;
        // Versions 0 and 1 have no generation: all later fields are 4 bytes earlier.
        let back = if version < 2 { 4 } else { 0 };
        let summed = if version < 3 { 111 - back } else { 119 };
        let sum: [u8; 16] = array(sector, summed);
        if sum != <[u8; 16]>::from(Md5::digest(&sector[..summed])) {
            return Err(WireError::BadField("hash"));
        }
        let le32 = |at: usize| le32(sector, at - back);
        let le64 = |at: usize| le64(sector, at - back);
        let this = Self {
            name: Name::parse(sector, 20, "name")?,
            id: u32::from_le_bytes(array(sector, 36)),
            disk_id: u32::from_le_bytes(array(sector, 40)),
            all: sector[44],
            gen_id: if version < 2 { 0 } else { le32(45) },
            sync_id: le32(49),
            priority: sector[53 - back],
            slice: le32(54),
            balance: Balance::from_bits(sector[58 - back]),
            media_size: le64(59),
            sector_size: le32(67),
            sync_offset: le64(71),
            flags: le64(79),
            disk_flags: le64(87),
            provider: Name::parse_optional(sector, 95 - back, "provider")?,
            provider_size: if version < 3 { 0 } else { le64(111) },
        };
        if this.all == 0 {
            return Err(WireError::BadField("number of disks"));
        }
        Ok(this)
    }

    /// Fills `sector`, which must hold [`LEN`] bytes, with the newest version.
    pub fn emit(&self, sector: &mut [u8]) {
        begin_label(sector, &MAGIC, VERSION);
        put(sector, 20, Name::bytes(Some(self.name)));
        put(sector, 36, self.id.to_le_bytes());
        put(sector, 40, self.disk_id.to_le_bytes());
        sector[44] = self.all;
        put(sector, 45, self.gen_id.to_le_bytes());
        put(sector, 49, self.sync_id.to_le_bytes());
        sector[53] = self.priority;
        put(sector, 54, self.slice.to_le_bytes());
        sector[58] = self.balance.into_bits();
        put(sector, 59, self.media_size.to_le_bytes());
        put(sector, 67, self.sector_size.to_le_bytes());
        put(sector, 71, self.sync_offset.to_le_bytes());
        put(sector, 79, self.flags.to_le_bytes());
        put(sector, 87, self.disk_flags.to_le_bytes());
        put(sector, 95, Name::bytes(self.provider));
        put(sector, 111, self.provider_size.to_le_bytes());
        let sum: [u8; 16] = Md5::digest(&sector[..119]).into();
        put(sector, 119, sum);
    }
}
