//! Metadata of the class STRIPE (`gstripe label`).

use super::{MAGIC_LEN, Name, begin_label, check_label, magic};
use crate::WireError;
use crate::bytes::{le16, le32, le64, put};

/// Magic of the label.
pub const MAGIC: [u8; MAGIC_LEN] = magic(b"GEOM::STRIPE");
/// The version written and read.
pub const VERSION: u32 = 3;
/// Bytes in the metadata.
pub const LEN: usize = 72;

/// The metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// The name after `stripe/`.
    pub name: Name<16>,
    /// Distinguishes stripes of the same name.
    pub id: u32,
    /// Position of this component, from 0.
    pub number: u16,
    /// Number of components.
    pub all: u16,
    /// Consecutive bytes on one component, a power of two.
    pub stripe_size: u32,
    /// The only provider that may be this component, if one was recorded.
    pub provider: Option<Name<16>>,
    /// Size of the labelled provider, bytes.
    pub provider_size: u64,
}

impl Stripe {
    /// Reads the metadata from the last sector of a provider.
    ///
    /// # Errors
    /// If it is not valid.
    pub fn parse(sector: &[u8]) -> Result<Self, WireError> {
        check_label(sector, &MAGIC, VERSION..=VERSION, LEN)?;
        let this = Self {
            name: Name::parse(sector, 20, "name")?,
            id: le32(sector, 36),
            number: le16(sector, 40),
            all: le16(sector, 42),
            stripe_size: le32(sector, 44),
            provider: Name::parse_optional(sector, 48, "provider")?,
            provider_size: le64(sector, 64),
        };
        if this.all == 0 || this.number >= this.all {
            return Err(WireError::BadField("number of disks"));
        }
        if !this.stripe_size.is_power_of_two() {
            return Err(WireError::BadField("stripesize"));
        }
        Ok(this)
    }

    /// Fills `sector`, which must hold [`LEN`] bytes.
    pub fn emit(&self, sector: &mut [u8]) {
        begin_label(sector, &MAGIC, VERSION);
        put(sector, 20, Name::bytes(Some(self.name)));
        put(sector, 36, self.id.to_le_bytes());
        put(sector, 40, self.number.to_le_bytes());
        put(sector, 42, self.all.to_le_bytes());
        put(sector, 44, self.stripe_size.to_le_bytes());
        put(sector, 48, Name::bytes(self.provider));
        put(sector, 64, self.provider_size.to_le_bytes());
    }
}
