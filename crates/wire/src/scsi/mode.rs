//! Mode parameters (SPC-6 7.5, SBC-4 6.5): header, block descriptors, pages 01, 08 and 0A.

use crate::bytes::{be16, put};
use crate::code::code;
use crate::error::WireError;
use bitfield_struct::bitfield;

code! {
    /// PAGE CODE.
    pub enum ModePage: u8 {
        /// Read-write error recovery.
        ReadWriteErrorRecovery = 0x01 => "Read-Write Error Recovery",
        /// Caching.
        Caching = 0x08 => "Caching",
        /// Control.
        Control = 0x0A => "Control",
        /// All pages, in MODE SENSE.
        All = 0x3F => "all pages",
    }
}

/// DEVICE-SPECIFIC PARAMETER of a block device.
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct DeviceSpecific {
    #[bits(4)]
    __: u8,
    /// DPOFUA: DPO and FUA are supported.
    pub dpofua: bool,
    #[bits(2)]
    __: u8,
    /// WP: write protected.
    pub wp: bool,
}

/// Mode parameter header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModeHeader {
    /// MODE DATA LENGTH: bytes that follow this field; zero in MODE SELECT.
    pub data_length: u16,
    /// MEDIUM TYPE.
    pub medium_type: u8,
    /// DEVICE-SPECIFIC PARAMETER.
    pub device_specific: DeviceSpecific,
    /// LONGLBA: long block descriptors; not in the six-byte header.
    pub long_lba: bool,
    /// BLOCK DESCRIPTOR LENGTH, bytes.
    pub block_descriptor_length: u16,
}

impl ModeHeader {
    /// Length of the header of MODE SENSE(6) and SELECT(6), bytes.
    pub const LENGTH_6: usize = 4;
    /// Length of the header of MODE SENSE(10) and SELECT(10), bytes.
    pub const LENGTH_10: usize = 8;

    /// Parses the header of MODE SENSE(6).
    pub fn parse_6(bytes: &[u8; Self::LENGTH_6]) -> Self {
        Self {
            data_length: bytes[0].into(),
            medium_type: bytes[1],
            device_specific: DeviceSpecific::from_bits(bytes[2]),
            long_lba: false,
            block_descriptor_length: bytes[3].into(),
        }
    }

    /// Writes the header of MODE SENSE(6); lengths are truncated to a byte.
    pub fn emit_6(&self, bytes: &mut [u8; Self::LENGTH_6]) {
        bytes[0] = self.data_length as u8;
        bytes[1] = self.medium_type;
        bytes[2] = self.device_specific.into_bits();
        bytes[3] = self.block_descriptor_length as u8;
    }

    /// Parses the header of MODE SENSE(10).
    pub fn parse_10(bytes: &[u8; Self::LENGTH_10]) -> Self {
        Self {
            data_length: be16(bytes, 0),
            medium_type: bytes[2],
            device_specific: DeviceSpecific::from_bits(bytes[3]),
            long_lba: bytes[4] & 1 != 0,
            block_descriptor_length: be16(bytes, 6),
        }
    }

    /// Writes the header of MODE SENSE(10).
    pub fn emit_10(&self, bytes: &mut [u8; Self::LENGTH_10]) {
        put(bytes, 0, self.data_length.to_be_bytes());
        bytes[2] = self.medium_type;
        bytes[3] = self.device_specific.into_bits();
        bytes[4] = u8::from(self.long_lba);
        bytes[5] = 0;
        put(bytes, 6, self.block_descriptor_length.to_be_bytes());
    }
}

/// Mode parameters as bytes: header, block descriptors, pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeView<'a> {
    /// The header.
    pub header: ModeHeader,
    descriptors: &'a [u8],
    pages: &'a [u8],
}

impl<'a> ModeView<'a> {
    /// Parses data of MODE SENSE(6). Anything after MODE DATA LENGTH is cut off.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the header or block descriptors are incomplete.
    pub fn sense_6(bytes: &'a [u8]) -> Result<Self, WireError> {
        let header = ModeHeader::parse_6(head(bytes)?);
        let end = bytes.len().min(1 + usize::from(header.data_length));
        Self::split(header, ModeHeader::LENGTH_6, &bytes[..end])
    }

    /// Parses data of MODE SENSE(10). Anything after MODE DATA LENGTH is cut off.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the header or block descriptors are incomplete.
    pub fn sense_10(bytes: &'a [u8]) -> Result<Self, WireError> {
        let header = ModeHeader::parse_10(head(bytes)?);
        let end = bytes.len().min(2 + usize::from(header.data_length));
        Self::split(header, ModeHeader::LENGTH_10, &bytes[..end])
    }

    /// Parses the whole parameter list of MODE SELECT(6), in which MODE DATA LENGTH is reserved.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the header or block descriptors are incomplete.
    pub fn select_6(bytes: &'a [u8]) -> Result<Self, WireError> {
        Self::split(ModeHeader::parse_6(head(bytes)?), ModeHeader::LENGTH_6, bytes)
    }

    /// Parses the whole parameter list of MODE SELECT(10), in which MODE DATA LENGTH is reserved.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the header or block descriptors are incomplete.
    pub fn select_10(bytes: &'a [u8]) -> Result<Self, WireError> {
        Self::split(ModeHeader::parse_10(head(bytes)?), ModeHeader::LENGTH_10, bytes)
    }

    fn split(header: ModeHeader, start: usize, bytes: &'a [u8]) -> Result<Self, WireError> {
        let pages = start + usize::from(header.block_descriptor_length);
        WireError::check_len(bytes, pages)?;
        Ok(Self { header, descriptors: &bytes[start..pages], pages: &bytes[pages..] })
    }

    /// The block descriptors.
    pub fn block_descriptors(&self) -> &'a [u8] {
        self.descriptors
    }

    /// The pages; a truncated one ends the list.
    pub fn pages(&self) -> impl Iterator<Item = PageView<'a>> + use<'a> {
        let mut rest = self.pages;
        core::iter::from_fn(move || {
            let (page, tail) = PageView::take(rest)?;
            rest = tail;
            Some(page)
        })
    }

    /// The bytes after the last whole page; empty if the list is well formed.
    pub fn trailing(&self) -> &'a [u8] {
        let mut rest = self.pages;
        while let Some((_, tail)) = PageView::take(rest) {
            rest = tail;
        }
        rest
    }
}

fn head<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], WireError> {
    bytes.first_chunk().ok_or(WireError::Truncated { needed: N, got: bytes.len() })
}

/// A mode page as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageView<'a> {
    /// PAGE CODE.
    pub page: ModePage,
    /// SUBPAGE CODE, if SPF.
    pub subpage: Option<u8>,
    /// PS: the page can be saved.
    pub savable: bool,
    /// The whole page with its header.
    pub bytes: &'a [u8],
}

impl<'a> PageView<'a> {
    fn take(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let first = *bytes.first()?;
        let (subpage, length) = if first & 0x40 != 0 {
            (Some(*bytes.get(1)?), 4 + usize::from(be16(bytes.get(2..4)?, 0)))
        } else {
            (None, 2 + usize::from(*bytes.get(1)?))
        };
        let (bytes, tail) = bytes.split_at_checked(length)?;
        let page = ModePage::from_bits(first & 0x3F);
        Some((Self { page, subpage, savable: first & 0x80 != 0, bytes }, tail))
    }

    fn expect(&self, page: ModePage, needed: usize) -> Result<&'a [u8], WireError> {
        if self.page != page || self.subpage.is_some() {
            let got = self.page.into_bits();
            return Err(WireError::WrongCode { expected: page.into_bits(), got });
        }
        WireError::check_len(self.bytes, needed)?;
        Ok(self.bytes)
    }
}

fn page_header<const N: usize>(page: ModePage, savable: bool, bytes: &mut [u8; N]) {
    bytes.fill(0);
    bytes[0] = page.into_bits() | u8::from(savable) << 7;
    bytes[1] = (N - 2) as u8;
}

/// Byte 2 of the read-write error recovery page.
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct RecoveryFlags {
    /// DCR: disable correction.
    pub dcr: bool,
    /// DTE: disable transfer on error.
    pub dte: bool,
    /// PER: post error.
    pub per: bool,
    /// EER: enable early recovery.
    pub eer: bool,
    /// RC: read continuous.
    pub rc: bool,
    /// TB: transfer block.
    pub tb: bool,
    /// ARRE: automatic read reallocation enabled.
    pub arre: bool,
    /// AWRE: automatic write reallocation enabled.
    pub awre: bool,
}

/// Read-write error recovery page (SBC-4 6.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadWriteErrorRecovery {
    /// PS: the page can be saved.
    pub savable: bool,
    /// Byte 2.
    pub flags: RecoveryFlags,
    /// READ RETRY COUNT.
    pub read_retry_count: u8,
    /// WRITE RETRY COUNT.
    pub write_retry_count: u8,
    /// RECOVERY TIME LIMIT, ms.
    pub recovery_time_limit_ms: u16,
}

impl ReadWriteErrorRecovery {
    /// Length of the page, bytes.
    pub const LENGTH: usize = 12;

    /// Parses a page.
    ///
    /// # Errors
    /// [`WireError::WrongCode`] if it is another page, [`WireError::Truncated`] if it is too short.
    pub fn parse(page: &PageView<'_>) -> Result<Self, WireError> {
        let b = page.expect(ModePage::ReadWriteErrorRecovery, Self::LENGTH)?;
        Ok(Self {
            savable: page.savable,
            flags: RecoveryFlags::from_bits(b[2]),
            read_retry_count: b[3],
            write_retry_count: b[8],
            recovery_time_limit_ms: be16(b, 10),
        })
    }

    /// Writes the page, reserved fields as zero.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        page_header(ModePage::ReadWriteErrorRecovery, self.savable, bytes);
        bytes[2] = self.flags.into_bits();
        bytes[3] = self.read_retry_count;
        bytes[8] = self.write_retry_count;
        put(bytes, 10, self.recovery_time_limit_ms.to_be_bytes());
    }
}

/// Byte 2 of the caching page.
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct CachingFlags {
    /// RCD: read cache disabled.
    pub rcd: bool,
    /// MF: multiplication factor.
    pub mf: bool,
    /// WCE: write cache enabled.
    pub wce: bool,
    /// SIZE.
    pub size: bool,
    /// DISC.
    pub disc: bool,
    /// CAP.
    pub cap: bool,
    /// ABPF.
    pub abpf: bool,
    /// IC.
    pub ic: bool,
}

/// Caching page (SBC-4 6.5), the fields UFS uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caching {
    /// PS: the page can be saved.
    pub savable: bool,
    /// Byte 2.
    pub flags: CachingFlags,
}

impl Caching {
    /// Length of the page, bytes.
    pub const LENGTH: usize = 20;

    /// Parses a page.
    ///
    /// # Errors
    /// [`WireError::WrongCode`] if it is another page, [`WireError::Truncated`] if it is too short.
    pub fn parse(page: &PageView<'_>) -> Result<Self, WireError> {
        let b = page.expect(ModePage::Caching, 3)?;
        Ok(Self { savable: page.savable, flags: CachingFlags::from_bits(b[2]) })
    }

    /// Writes the page, all other fields as zero.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        page_header(ModePage::Caching, self.savable, bytes);
        bytes[2] = self.flags.into_bits();
    }
}

/// Control page (SPC-6 7.5), the fields UFS uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// PS: the page can be saved.
    pub savable: bool,
    /// TST: task set type.
    pub tst: u8,
    /// D_SENSE: sense data comes in descriptor format.
    pub d_sense: bool,
    /// QUEUE ALGORITHM MODIFIER: 1 is unrestricted reordering.
    pub queue_algorithm_modifier: u8,
    /// QERR: effect of a CHECK CONDITION on other commands.
    pub qerr: u8,
    /// SWP: software write protect.
    pub swp: bool,
    /// BUSY TIMEOUT PERIOD, units of 100 ms.
    pub busy_timeout_period: u16,
    /// EXTENDED SELF-TEST COMPLETION TIME, s.
    pub extended_self_test_s: u16,
}

impl Control {
    /// Length of the page, bytes.
    pub const LENGTH: usize = 12;

    /// Parses a page.
    ///
    /// # Errors
    /// [`WireError::WrongCode`] if it is another page, [`WireError::Truncated`] if it is too short.
    pub fn parse(page: &PageView<'_>) -> Result<Self, WireError> {
        let b = page.expect(ModePage::Control, Self::LENGTH)?;
        Ok(Self {
            savable: page.savable,
            tst: b[2] >> 5,
            d_sense: b[2] & 0x04 != 0,
            queue_algorithm_modifier: b[3] >> 4,
            qerr: b[3] >> 1 & 3,
            swp: b[4] & 0x08 != 0,
            busy_timeout_period: be16(b, 8),
            extended_self_test_s: be16(b, 10),
        })
    }

    /// Writes the page, all other fields as zero.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        page_header(ModePage::Control, self.savable, bytes);
        bytes[2] = self.tst << 5 | u8::from(self.d_sense) << 2;
        bytes[3] = self.queue_algorithm_modifier << 4 | (self.qerr & 3) << 1;
        bytes[4] = u8::from(self.swp) << 3;
        put(bytes, 8, self.busy_timeout_period.to_be_bytes());
        put(bytes, 10, self.extended_self_test_s.to_be_bytes());
    }
}
