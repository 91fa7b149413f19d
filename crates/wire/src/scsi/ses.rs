//! Pages of SCSI enclosure services (SES-3 clause 6), read by RECEIVE DIAGNOSTIC RESULTS and
//! written by SEND DIAGNOSTIC.
//!
//! The configuration page lists the types of elements and the number of elements of each. All other
//! pages list elements in that order: for each type an overall entry, then one entry for each of
//! its elements.

use super::text::Text;
use crate::bytes::{array, be16, be32, be64, put};
use crate::code::code;
use crate::error::WireError;

/// RECEIVE DIAGNOSTIC RESULTS.
pub const RECEIVE_DIAGNOSTIC_RESULTS: u8 = 0x1C;
/// SEND DIAGNOSTIC.
pub const SEND_DIAGNOSTIC: u8 = 0x1D;
/// Length of the header of every page, generation code included, bytes.
pub const HEADER_LENGTH: usize = 8;

code! {
    /// PAGE CODE of a diagnostic page.
    pub enum Page: u8 {
        /// List of the pages.
        Supported = 0x00 => "supported diagnostic pages",
        /// Types of elements.
        Configuration = 0x01 => "configuration",
        /// Status of elements; when written, their control.
        Status = 0x02 => "enclosure status",
        /// Names of elements.
        Descriptor = 0x07 => "element descriptor",
        /// Contents of device slots.
        Additional = 0x0A => "additional element status",
    }
}

code! {
    /// ELEMENT TYPE (SES-3 table 71), by the names in sesutil(8).
    pub enum ElementType: u8 {
        /// Not specified.
        Unspecified = 0x00 => "Unspecified",
        /// A device slot.
        DeviceSlot = 0x01 => "Device Slot",
        /// A power supply.
        PowerSupply = 0x02 => "Power Supply",
        /// A fan.
        Cooling = 0x03 => "Cooling",
        /// A temperature sensor.
        Temperature = 0x04 => "Temperature Sensors",
        /// A door.
        Door = 0x05 => "Door Lock",
        /// A beeper.
        Alarm = 0x06 => "Audible alarm",
        /// The electronics of enclosure services.
        Services = 0x07 => "Enclosure Services Controller Electronics",
        /// A display.
        Display = 0x0C => "Language",
        /// The enclosure.
        Enclosure = 0x0E => "Enclosure",
        /// A voltage sensor.
        Voltage = 0x12 => "Voltage Sensor",
        /// A current sensor.
        Current = 0x13 => "Current Sensor",
        /// A device slot in an array.
        ArrayDeviceSlot = 0x17 => "Array Device Slot",
        /// A SAS expander.
        SasExpander = 0x18 => "SAS Expander",
        /// A SAS connector.
        SasConnector = 0x19 => "SAS Connector",
    }
}

impl ElementType {
    /// Whether it is a slot for a device.
    pub const fn is_slot(self) -> bool {
        matches!(self, Self::DeviceSlot | Self::ArrayDeviceSlot)
    }
}

code! {
    /// ELEMENT STATUS CODE (SES-3 table 74), as sesutil(8) prints it.
    pub enum StatusCode: u8 {
        /// Status is not reported.
        Unsupported = 0 => "Unsupported",
        /// OK.
        Ok = 1 => "OK",
        /// Critical.
        Critical = 2 => "Critical",
        /// Not critical.
        Noncritical = 3 => "Noncritical",
        /// Beyond repair.
        Unrecoverable = 4 => "Unrecoverable",
        /// Not installed.
        NotInstalled = 5 => "Not Installed",
        /// Not known.
        NotKnown = 6 => "Unknown",
        /// Not available.
        NotAvailable = 7 => "Not Available",
        /// Access is not allowed.
        NoAccess = 8 => "No Access Allowed",
    }
}

/// Begins a page: byte 1 holds flags or a count, and `rest` is the number of bytes after the
/// generation code.
///
/// # Errors
/// [`WireError::Truncated`] if the length does not fit 16 bits: no page can be that long.
pub fn header(page: Page, flags: u8, generation: u32, rest: usize) -> Result<[u8; 8], WireError> {
    let length = u16::try_from(rest + 4).map_err(|_| truncated(rest, usize::from(u16::MAX)))?;
    let mut bytes = [0; HEADER_LENGTH];
    (bytes[0], bytes[1]) = (page.into_bits(), flags);
    put(&mut bytes, 2, length.to_be_bytes());
    put(&mut bytes, 4, generation.to_be_bytes());
    Ok(bytes)
}

/// The bytes of a page after its generation code, and the code itself.
fn body(bytes: &[u8], page: Page) -> Result<(&[u8], u32), WireError> {
    WireError::check_len(bytes, HEADER_LENGTH)?;
    if bytes[0] != page.into_bits() {
        return Err(WireError::WrongCode { expected: page.into_bits(), got: bytes[0] });
    }
    let end = usize::from(be16(bytes, 2)) + 4;
    let body = bytes.get(HEADER_LENGTH..end).ok_or(truncated(end, bytes.len()))?;
    Ok((body, be32(bytes, 4)))
}

const fn truncated(needed: usize, got: usize) -> WireError {
    WireError::Truncated { needed, got }
}

/// Identification of an enclosure (SES-3 6.1.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnclosureDescriptor {
    /// SUBENCLOSURE IDENTIFIER; 0 is the primary one.
    pub subenclosure: u8,
    /// Number of its element types.
    pub types: u8,
    /// ENCLOSURE LOGICAL IDENTIFIER.
    pub identifier: u64,
    /// ENCLOSURE VENDOR IDENTIFICATION.
    pub vendor: Text<8>,
    /// PRODUCT IDENTIFICATION.
    pub product: Text<16>,
    /// PRODUCT REVISION LEVEL.
    pub revision: Text<4>,
}

impl EnclosureDescriptor {
    /// Length without vendor specific bytes.
    pub const LENGTH: usize = 40;

    fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(bytes, Self::LENGTH)?;
        Ok(Self {
            subenclosure: bytes[1],
            types: bytes[2],
            identifier: be64(bytes, 4),
            vendor: Text(array(bytes, 12)),
            product: Text(array(bytes, 20)),
            revision: Text(array(bytes, 36)),
        })
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        // Enclosure services process 1 of 1.
        (bytes[0], bytes[1], bytes[2]) = (0x11, self.subenclosure, self.types);
        bytes[3] = (Self::LENGTH - 4) as u8;
        put(&mut bytes, 4, self.identifier.to_be_bytes());
        put(&mut bytes, 12, self.vendor.0);
        put(&mut bytes, 20, self.product.0);
        put(&mut bytes, 36, self.revision.0);
        bytes
    }
}

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeDescriptor<'a> {
    /// The element type.
    pub element: ElementType,
    /// Maximum number of elements of this type.
    pub possible: u8,
    /// The subenclosure that holds them.
    pub subenclosure: u8,
    /// Text that describes the type.
    pub text: &'a [u8],
}

impl TypeDescriptor<'_> {
    /// Its type descriptor header; the texts follow all of the headers.
    pub fn header(&self) -> [u8; 4] {
        let text = self.text.len().min(usize::from(u8::MAX)) as u8;
        [self.element.into_bits(), self.possible, self.subenclosure, text]
    }
}

/// The configuration page.
#[derive(Clone, Copy, Debug)]
pub struct Configuration<'a> {
    /// Incremented when the configuration changes; other pages must carry the same value.
    pub generation: u32,
    /// The primary enclosure.
    pub enclosure: EnclosureDescriptor,
    headers: &'a [u8],
    texts: &'a [u8],
}

impl<'a> Configuration<'a> {
    /// Parses the page.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if it is shorter than its length field says.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (mut rest, generation) = body(bytes, Page::Configuration)?;
        let (mut types, mut primary) = (0, None);
        for _ in 0..=bytes[1] {
            let descriptor = EnclosureDescriptor::parse(rest)?;
            types += usize::from(descriptor.types);
            let length = usize::from(rest[3]) + 4;
            rest = rest.get(length..).ok_or(truncated(length, rest.len()))?;
            primary.get_or_insert(descriptor);
        }
        let headers = rest.get(..types * 4).ok_or(truncated(types * 4, rest.len()))?;
        let texts = &rest[types * 4..];
        let enclosure = primary.ok_or(truncated(EnclosureDescriptor::LENGTH, 0))?;
        Ok(Self { generation, enclosure, headers, texts })
    }

    /// The types of elements; a truncated text is empty.
    pub fn types(&self) -> impl Iterator<Item = TypeDescriptor<'a>> + use<'a> {
        let mut texts = self.texts;
        self.headers.as_chunks::<4>().0.iter().map(move |header| {
            let [element, possible, subenclosure, length] = *header;
            let (text, rest) = texts.split_at_checked(length.into()).unwrap_or_default();
            texts = rest;
            let element = ElementType::from_bits(element);
            TypeDescriptor { element, possible, subenclosure, text }
        })
    }
}

/// The status page.
#[derive(Clone, Copy, Debug)]
pub struct StatusView<'a> {
    /// Generation of the configuration.
    pub generation: u32,
    /// INVOP 4, INFO 3, NON-CRIT 2, CRIT 1, UNRECOV 0.
    pub flags: u8,
    entries: &'a [[u8; 4]],
}

impl<'a> StatusView<'a> {
    /// Parses the page.
    ///
    /// # Errors
    /// As [`Configuration::parse`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (rest, generation) = body(bytes, Page::Status)?;
        Ok(Self { generation, flags: bytes[1], entries: rest.as_chunks().0 })
    }

    /// The four bytes of each entry, overall entries included.
    pub fn entries(&self) -> &'a [[u8; 4]] {
        self.entries
    }
}

/// The texts of the element descriptor page, those of overall entries included.
///
/// # Errors
/// As [`Configuration::parse`].
pub fn descriptors(bytes: &[u8]) -> Result<impl Iterator<Item = &[u8]>, WireError> {
    let (mut rest, _) = body(bytes, Page::Descriptor)?;
    Ok(core::iter::from_fn(move || {
        let length = usize::from(be16(rest.get(..4)?, 2));
        let text = rest.get(4..4 + length)?;
        rest = &rest[4 + length..];
        Some(text)
    }))
}

/// Contents of a slot as described by SAS (SES-3 6.1.13.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SasSlot {
    /// ELEMENT INDEX: overall entries are not counted.
    pub element: u8,
    /// DEVICE SLOT NUMBER.
    pub slot: u8,
    /// SAS address of the device's port; `None` if the slot is empty.
    pub address: Option<u64>,
}

impl SasSlot {
    /// Length with one phy, bytes.
    pub const LENGTH: usize = 36;

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        // EIP and the protocol identifier of SAS; INVALID if the slot is empty.
        bytes[0] = 0x16 | if self.address.is_some() { 0 } else { 0x80 };
        bytes[1] = (Self::LENGTH - 2) as u8;
        (bytes[3], bytes[4], bytes[7]) = (self.element, 1, self.slot);
        // An end device that is an SSP target.
        (bytes[8], bytes[11]) = (0x10, 0x08);
        put(&mut bytes, 20, self.address.unwrap_or(0).to_be_bytes());
        bytes
    }
}

/// The slots that the additional element status page describes for SAS.
///
/// # Errors
/// As [`Configuration::parse`].
pub fn slots(bytes: &[u8]) -> Result<impl Iterator<Item = SasSlot> + '_, WireError> {
    /// SAS, a value of PROTOCOL IDENTIFIER.
    const SAS: u8 = 6;
    let (mut rest, _) = body(bytes, Page::Additional)?;
    let next = core::iter::from_fn(move || {
        let length = usize::from(*rest.get(1)?) + 2;
        let (one, after) = rest.split_at_checked(length)?;
        rest = after;
        Some(one)
    });
    Ok(next.filter_map(|one| {
        let has_index = one[0] & 0x10 != 0;
        let is_device = one.get(5)? >> 6 == 0;
        if one[0] & 0xF != SAS || !has_index || !is_device {
            return None;
        }
        let is_valid = one[0] & 0x80 == 0 && one[4] > 0 && one.len() >= SasSlot::LENGTH;
        let address = is_valid.then(|| be64(one, 20));
        Some(SasSlot { element: one[3], slot: *one.get(7)?, address })
    }))
}

#[cfg(test)]
mod tests;
