//! Vital product data pages 00, 80, 83, B0, B1 and B2 (SPC-6 7.7, SBC-4 6.6).

use super::inquiry::Peripheral;
use crate::bytes::{be16, be32, be64, put};
use crate::code::code;
use crate::error::WireError;

/// Length of the header of every page, bytes.
pub const HEADER_LENGTH: usize = 4;

code! {
    /// PAGE CODE.
    pub enum VpdPage: u8 {
        /// List of the supported pages.
        SupportedPages = 0x00 => "Supported VPD Pages",
        /// Serial number.
        UnitSerialNumber = 0x80 => "Unit Serial Number",
        /// Identifiers.
        DeviceIdentification = 0x83 => "Device Identification",
        /// Mode page policy.
        ModePagePolicy = 0x87 => "Mode Page Policy",
        /// Limits of commands.
        BlockLimits = 0xB0 => "Block Limits",
        /// Properties of the medium.
        BlockDeviceCharacteristics = 0xB1 => "Block Device Characteristics",
        /// Thin provisioning.
        LogicalBlockProvisioning = 0xB2 => "Logical Block Provisioning",
    }
}

/// Any page as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VpdView<'a> {
    bytes: &'a [u8],
}

impl<'a> VpdView<'a> {
    /// Checks the length once. Anything after PAGE LENGTH is cut off; parts of the page that were
    /// not read count as absent.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below four bytes.
    pub fn new(bytes: &'a [u8]) -> Result<Self, WireError> {
        WireError::check_len(bytes, HEADER_LENGTH)?;
        let end = HEADER_LENGTH + usize::from(be16(bytes, 2));
        Ok(Self { bytes: &bytes[..end.min(bytes.len())] })
    }

    /// PERIPHERAL QUALIFIER and DEVICE TYPE.
    pub fn peripheral(&self) -> Peripheral {
        Peripheral::from_bits(self.bytes[0])
    }

    /// PAGE CODE.
    pub fn page(&self) -> VpdPage {
        VpdPage::from_bits(self.bytes[1])
    }

    /// The bytes after the header that were read.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[HEADER_LENGTH..]
    }

    fn expect(bytes: &'a [u8], page: VpdPage, needed: usize) -> Result<&'a [u8], WireError> {
        let view = Self::new(bytes)?;
        if view.page() != page {
            return Err(WireError::WrongCode { expected: page.into_bits(), got: bytes[1] });
        }
        WireError::check_len(view.bytes, needed)?;
        Ok(view.bytes)
    }
}

/// Writes a page with this payload and returns its length; `None` if it does not fit.
pub fn emit_page(
    peripheral: Peripheral,
    page: VpdPage,
    payload: &[u8],
    bytes: &mut [u8],
) -> Option<usize> {
    let length = u16::try_from(payload.len()).ok()?;
    let out = bytes.get_mut(..HEADER_LENGTH + payload.len())?;
    out[0] = peripheral.into_bits();
    out[1] = page.into_bits();
    put(out, 2, length.to_be_bytes());
    out[HEADER_LENGTH..].copy_from_slice(payload);
    Some(out.len())
}

/// The pages listed in page 00.
///
/// # Errors
/// [`WireError::Truncated`] below four bytes, [`WireError::WrongCode`] if it is another page.
pub fn supported_pages(bytes: &[u8]) -> Result<impl Iterator<Item = VpdPage> + '_, WireError> {
    let page = VpdView::expect(bytes, VpdPage::SupportedPages, HEADER_LENGTH)?;
    Ok(page[HEADER_LENGTH..].iter().map(|code| VpdPage::from_bits(*code)))
}

/// The serial number in page 80, including its padding.
///
/// # Errors
/// [`WireError::Truncated`] below four bytes, [`WireError::WrongCode`] if it is another page.
pub fn serial_number(bytes: &[u8]) -> Result<&[u8], WireError> {
    Ok(&VpdView::expect(bytes, VpdPage::UnitSerialNumber, HEADER_LENGTH)?[HEADER_LENGTH..])
}

code! {
    /// CODE SET of a designator.
    pub enum CodeSet: u8 {
        /// Binary.
        Binary = 1 => "binary",
        /// ASCII.
        Ascii = 2 => "ASCII",
        /// UTF-8.
        Utf8 = 3 => "UTF-8",
    }
}

code! {
    /// ASSOCIATION of a designator.
    pub enum Association: u8 {
        /// It identifies the logical unit.
        LogicalUnit = 0 => "logical unit",
        /// It identifies the port.
        TargetPort = 1 => "target port",
        /// It identifies the device.
        TargetDevice = 2 => "target device",
    }
}

code! {
    /// DESIGNATOR TYPE.
    pub enum DesignatorType: u8 {
        /// Vendor specific.
        VendorSpecific = 0 => "vendor specific",
        /// T10 vendor id followed by an identifier of the vendor.
        T10VendorId = 1 => "T10 vendor ID",
        /// EUI-64.
        Eui64 = 2 => "EUI-64",
        /// NAA.
        Naa = 3 => "NAA",
        /// Relative target port.
        RelativeTargetPort = 4 => "relative target port",
        /// SCSI name string.
        NameString = 8 => "SCSI name string",
    }
}

/// One designator of page 83.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Designator<'a> {
    /// CODE SET.
    pub code_set: CodeSet,
    /// ASSOCIATION.
    pub association: Association,
    /// DESIGNATOR TYPE.
    pub designator_type: DesignatorType,
    /// DESIGNATOR.
    pub identifier: &'a [u8],
}

impl Designator<'_> {
    /// Writes the designator and returns its length; `None` if it does not fit.
    pub fn emit(&self, bytes: &mut [u8]) -> Option<usize> {
        let length = u8::try_from(self.identifier.len()).ok()?;
        let out = bytes.get_mut(..4 + self.identifier.len())?;
        out[0] = self.code_set.into_bits() & 0xF;
        out[1] = (self.association.into_bits() & 3) << 4 | self.designator_type.into_bits() & 0xF;
        out[2] = 0;
        out[3] = length;
        out[4..].copy_from_slice(self.identifier);
        Some(out.len())
    }
}

/// The designators in page 83; a truncated one ends the list.
///
/// # Errors
/// [`WireError::Truncated`] below four bytes, [`WireError::WrongCode`] if it is another page.
pub fn designators(bytes: &[u8]) -> Result<impl Iterator<Item = Designator<'_>>, WireError> {
    let page = VpdView::expect(bytes, VpdPage::DeviceIdentification, HEADER_LENGTH)?;
    let mut rest = &page[HEADER_LENGTH..];
    Ok(core::iter::from_fn(move || {
        let (head, tail) = rest.split_at_checked(4)?;
        let (identifier, tail) = tail.split_at_checked(usize::from(head[3]))?;
        rest = tail;
        Some(Designator {
            code_set: CodeSet::from_bits(head[0] & 0xF),
            association: Association::from_bits(head[1] >> 4 & 3),
            designator_type: DesignatorType::from_bits(head[1] & 0xF),
            identifier,
        })
    }))
}

/// Page B0 (SBC-4 6.6). Zero as a maximum means that no limit is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockLimits {
    /// PERIPHERAL QUALIFIER and DEVICE TYPE.
    pub peripheral: Peripheral,
    /// WSNZ: WRITE SAME of zero blocks is refused.
    pub wsnz: bool,
    /// MAXIMUM COMPARE AND WRITE LENGTH, blocks.
    pub compare_and_write_max: u8,
    /// OPTIMAL TRANSFER LENGTH GRANULARITY, blocks.
    pub optimal_granularity: u16,
    /// MAXIMUM TRANSFER LENGTH, blocks.
    pub transfer_max: u32,
    /// OPTIMAL TRANSFER LENGTH, blocks.
    pub optimal_transfer: u32,
    /// MAXIMUM PREFETCH LENGTH, blocks.
    pub prefetch_max: u32,
    /// MAXIMUM UNMAP LBA COUNT; zero for no UNMAP, all ones for no limit.
    pub unmap_lba_max: u32,
    /// MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT; zero for no UNMAP, all ones for no limit.
    pub unmap_descriptors_max: u32,
    /// OPTIMAL UNMAP GRANULARITY, blocks.
    pub unmap_granularity: u32,
    /// UNMAP GRANULARITY ALIGNMENT, blocks, if UGAVALID.
    pub unmap_alignment: Option<u32>,
    /// MAXIMUM WRITE SAME LENGTH, blocks.
    pub write_same_max: u64,
}

impl BlockLimits {
    /// Length of the page, bytes.
    pub const LENGTH: usize = HEADER_LENGTH + 0x3C;
    /// Length up to SBC-2, without the UNMAP fields.
    const LENGTH_SHORT: usize = 16;

    /// Parses a page; fields missing from an old, shorter page are zero.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below 16 bytes, [`WireError::WrongCode`] if it is another page.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let page = VpdView::expect(bytes, VpdPage::BlockLimits, Self::LENGTH_SHORT)?;
        let mut b = [0; Self::LENGTH];
        let length = page.len().min(Self::LENGTH);
        b[..length].copy_from_slice(&page[..length]);
        let alignment = be32(&b, 32);
        Ok(Self {
            peripheral: Peripheral::from_bits(b[0]),
            wsnz: b[4] & 1 != 0,
            compare_and_write_max: b[5],
            optimal_granularity: be16(&b, 6),
            transfer_max: be32(&b, 8),
            optimal_transfer: be32(&b, 12),
            prefetch_max: be32(&b, 16),
            unmap_lba_max: be32(&b, 20),
            unmap_descriptors_max: be32(&b, 24),
            unmap_granularity: be32(&b, 28),
            unmap_alignment: if alignment >> 31 != 0 { Some(alignment << 1 >> 1) } else { None },
            write_same_max: be64(&b, 36),
        })
    }

    /// Writes the page, reserved fields as zero.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        emit_header(self.peripheral, VpdPage::BlockLimits, bytes);
        bytes[4] = u8::from(self.wsnz);
        bytes[5] = self.compare_and_write_max;
        put(bytes, 6, self.optimal_granularity.to_be_bytes());
        put(bytes, 8, self.transfer_max.to_be_bytes());
        put(bytes, 12, self.optimal_transfer.to_be_bytes());
        put(bytes, 16, self.prefetch_max.to_be_bytes());
        put(bytes, 20, self.unmap_lba_max.to_be_bytes());
        put(bytes, 24, self.unmap_descriptors_max.to_be_bytes());
        put(bytes, 28, self.unmap_granularity.to_be_bytes());
        if let Some(alignment) = self.unmap_alignment {
            put(bytes, 32, (alignment | 1 << 31).to_be_bytes());
        }
        put(bytes, 36, self.write_same_max.to_be_bytes());
    }
}

/// Zeroes the page and writes its first four bytes.
fn emit_header<const N: usize>(peripheral: Peripheral, page: VpdPage, bytes: &mut [u8; N]) {
    bytes.fill(0);
    bytes[0] = peripheral.into_bits();
    bytes[1] = page.into_bits();
    put(bytes, 2, ((N - HEADER_LENGTH) as u16).to_be_bytes());
}

/// Page B1 (SBC-4 6.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockDeviceCharacteristics {
    /// PERIPHERAL QUALIFIER and DEVICE TYPE.
    pub peripheral: Peripheral,
    /// MEDIUM ROTATION RATE: 0 not reported, 1 does not rotate, else revolutions per minute.
    pub rotation_rate: u16,
    /// PRODUCT TYPE: 0 not reported.
    pub product_type: u8,
    /// NOMINAL FORM FACTOR.
    pub form_factor: u8,
    /// ZONED.
    pub zoned: u8,
    /// FUAB: FUA may be ignored with a non-volatile cache.
    pub fuab: bool,
    /// VBULS: VERIFY of unmapped blocks succeeds.
    pub vbuls: bool,
}

impl BlockDeviceCharacteristics {
    /// Length of the page, bytes.
    pub const LENGTH: usize = HEADER_LENGTH + 0x3C;
    /// PRODUCT TYPE "Universal Flash Storage Card", the only one for UFS.
    pub const PRODUCT_UFS: u8 = 7;

    /// Parses a page.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below nine bytes, [`WireError::WrongCode`] if it is another page.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let b = VpdView::expect(bytes, VpdPage::BlockDeviceCharacteristics, 9)?;
        Ok(Self {
            peripheral: Peripheral::from_bits(b[0]),
            rotation_rate: be16(b, 4),
            product_type: b[6],
            form_factor: b[7] & 0xF,
            zoned: b[8] >> 4 & 3,
            fuab: b[8] & 2 != 0,
            vbuls: b[8] & 1 != 0,
        })
    }

    /// Writes the page, reserved fields as zero.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        emit_header(self.peripheral, VpdPage::BlockDeviceCharacteristics, bytes);
        put(bytes, 4, self.rotation_rate.to_be_bytes());
        bytes[6] = self.product_type;
        bytes[7] = self.form_factor & 0xF;
        bytes[8] = (self.zoned & 3) << 4 | u8::from(self.fuab) << 1 | u8::from(self.vbuls);
    }
}

/// Page B2 (SBC-4 6.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogicalBlockProvisioning {
    /// PERIPHERAL QUALIFIER and DEVICE TYPE.
    pub peripheral: Peripheral,
    /// THRESHOLD EXPONENT.
    pub threshold_exponent: u8,
    /// LBPU: UNMAP is supported.
    pub lbpu: bool,
    /// LBPWS: WRITE SAME(16) can unmap.
    pub lbpws: bool,
    /// LBPWS10: WRITE SAME(10) can unmap.
    pub lbpws10: bool,
    /// LBPRZ, three bits: 1 unmapped blocks read as zero.
    pub lbprz: u8,
    /// ANC_SUP: anchored blocks are supported.
    pub anchor: bool,
    /// PROVISIONING TYPE: 0 not reported, 1 resource, 2 thin.
    pub provisioning_type: u8,
}

impl LogicalBlockProvisioning {
    /// Length of the page without provisioning group descriptor, bytes.
    pub const LENGTH: usize = HEADER_LENGTH + 4;

    /// Parses a page.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below eight bytes, [`WireError::WrongCode`] if it is another page.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let b = VpdView::expect(bytes, VpdPage::LogicalBlockProvisioning, Self::LENGTH)?;
        Ok(Self {
            peripheral: Peripheral::from_bits(b[0]),
            threshold_exponent: b[4],
            lbpu: b[5] & 0x80 != 0,
            lbpws: b[5] & 0x40 != 0,
            lbpws10: b[5] & 0x20 != 0,
            lbprz: b[5] >> 2 & 7,
            anchor: b[5] & 2 != 0,
            provisioning_type: b[6] & 7,
        })
    }

    /// Writes the page, reserved fields as zero.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        emit_header(self.peripheral, VpdPage::LogicalBlockProvisioning, bytes);
        bytes[4] = self.threshold_exponent;
        bytes[5] = u8::from(self.lbpu) << 7
            | u8::from(self.lbpws) << 6
            | u8::from(self.lbpws10) << 5
            | (self.lbprz & 7) << 2
            | u8::from(self.anchor) << 1;
        bytes[6] = self.provisioning_type & 7;
    }
}
