//! Descriptors (JESD220 14.1): properties, capabilities and configuration of a device. Big-endian.
//!
//! Descriptors are shorter on devices of an older specification and longer on those of a newer one.
//! bLength is trusted as far as bytes were read, fields beyond it are zero, and [`Field::set`]
//! leaves unnamed bytes alone. Field names are those of the specification in Rust's spelling:
//! `dNumAllocUnits` is `d_num_alloc_units`.

mod configuration;
mod device;
mod field;
mod geometry;
mod small;
mod string;
mod unit;

pub use configuration::{
    ConfigurationHeader, ConfigurationLayout, ConfigurationUnit, ConfigurationView,
    UNITS_PER_CONFIGURATION,
};
pub use device::{
    DEVICE_LENGTH_3_0, DeviceDescriptor, ExtendedFeatures, ExtendedWriteBooster, ManufacturerId,
    SecureRemovalType, UfsFeatures,
};
pub use field::Field;
pub use geometry::{GEOMETRY_LENGTH_3_0, GEOMETRY_LENGTH_4_0, GeometryDescriptor};
pub use small::{
    CurrentUnit, FboDescriptor, HEALTH_LENGTH_2_1, HealthDescriptor, IccLevel,
    InterconnectDescriptor, PowerDescriptor, PreEolInfo,
};
pub use string::{STRING_LENGTH_MAX, StringDescriptor};
pub use unit::{
    BootLunId, LuWriteProtect, MemoryType, ProvisioningType, RpmbUnitDescriptor, UnitDescriptor,
};

use super::query::DescriptorId;
use super::upiu::Wlun;
use crate::error::WireError;

/// Maximum length of a descriptor, bytes: bLength is one byte.
pub const LENGTH_MAX: usize = 255;

/// Any descriptor as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorView<'a> {
    bytes: &'a [u8],
}

impl<'a> DescriptorView<'a> {
    /// Checks the two bytes at the start of every descriptor. Anything after bLength bytes is cut
    /// off; if fewer were read, the rest is absent, see [`is_complete`](Self::is_complete).
    ///
    /// # Errors
    /// [`WireError::Truncated`] below two bytes, [`WireError::BadField`] if bLength is below two.
    pub fn new(bytes: &'a [u8]) -> Result<Self, WireError> {
        WireError::check_len(bytes, 2)?;
        let length = usize::from(bytes[0]);
        if length < 2 {
            return Err(WireError::BadField("bLength"));
        }
        Ok(Self { bytes: &bytes[..length.min(bytes.len())] })
    }

    /// Type of the descriptor.
    pub fn id(&self) -> DescriptorId {
        DescriptorId::from_bits(self.bytes[1])
    }

    /// Length according to the descriptor.
    pub fn length(&self) -> usize {
        usize::from(self.bytes[0])
    }

    /// Whether the whole descriptor was read.
    pub fn is_complete(&self) -> bool {
        self.bytes.len() == self.length()
    }

    /// The bytes that were read.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    fn expect(&self, id: DescriptorId) -> Result<(), WireError> {
        if self.id() != id {
            return Err(WireError::WrongCode { expected: id.into_bits(), got: self.bytes[1] });
        }
        Ok(())
    }

    /// The fields of `table` that the descriptor has, with their bytes.
    pub fn fields(
        &self,
        table: &'static [Field],
    ) -> impl Iterator<Item = (&'static Field, &'a [u8])> + 'a {
        let bytes = self.bytes;
        table.iter().filter_map(move |field| Some((field, field.bytes(bytes)?)))
    }
}

/// The fields of a descriptor; the index distinguishes the RPMB unit from the others. Each unit of
/// a configuration descriptor has [`ConfigurationUnit::FIELDS`]. Empty for a string and for a
/// descriptor without a name.
pub fn fields_of(id: DescriptorId, index: u8) -> &'static [Field] {
    match id {
        DescriptorId::Device => DeviceDescriptor::FIELDS,
        DescriptorId::Configuration => ConfigurationHeader::FIELDS,
        DescriptorId::Unit if index == Wlun::Rpmb.into_bits() => RpmbUnitDescriptor::FIELDS,
        DescriptorId::Unit => UnitDescriptor::FIELDS,
        DescriptorId::Interconnect => InterconnectDescriptor::FIELDS,
        DescriptorId::Geometry => GeometryDescriptor::FIELDS,
        DescriptorId::Power => PowerDescriptor::FIELDS,
        DescriptorId::Health => HealthDescriptor::FIELDS,
        DescriptorId::Fbo => FboDescriptor::FIELDS,
        DescriptorId::String | DescriptorId::Unknown(_) => &[],
    }
}

#[cfg(test)]
mod tests;
