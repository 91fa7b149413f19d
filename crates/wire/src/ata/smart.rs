//! SMART data. The attributes come from ACS-3 and earlier; ACS-4 7.45 defines only their frame.

use super::SECTOR;
use crate::WireError;
use crate::bytes::le16;

/// Maximum number of attributes.
pub const ATTRIBUTES_MAX: usize = 30;
/// Bytes per attribute.
const ATTRIBUTE: usize = 12;
/// Offset of the attributes.
const FIRST: usize = 2;
/// Offsets of the minutes that a short and an extended self-test take, and of the 16-bit minutes of
/// an extended self-test of 255 minutes or more.
const SHORT: usize = 372;
const EXTENDED: usize = 373;
const EXTENDED_LONG: usize = 375;

/// One attribute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attribute {
    /// Its number; 0 if the entry is empty.
    pub id: u8,
    /// Bit 0: a value below the threshold predicts an imminent failure.
    pub flags: u16,
    /// The normalised value, from 253 down to 1.
    pub value: u8,
    /// The lowest value so far.
    pub worst: u8,
    /// The raw value, vendor specific, 48 bits.
    pub raw: u64,
}

/// Numbers of attributes on which most vendors agree.
pub mod attribute {
    /// Reallocated sectors.
    pub const REALLOCATED: u8 = 5;
    /// Hours powered on.
    pub const POWER_ON_HOURS: u8 = 9;
    /// Power cycles.
    pub const POWER_CYCLES: u8 = 12;
    /// Unexpected power losses.
    pub const UNEXPECTED_POWER_LOSS: u8 = 174;
    /// Uncorrectable errors reported.
    pub const UNCORRECTABLE: u8 = 187;
    /// Temperature.
    pub const TEMPERATURE: u8 = 194;
    /// CRC errors of the link.
    pub const CRC_ERRORS: u8 = 199;
    /// Sectors written.
    pub const WRITTEN: u8 = 241;
    /// Sectors read.
    pub const READ: u8 = 242;
}

/// Data of SMART READ DATA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmartData {
    /// The attributes, empty ones included.
    pub attributes: [Attribute; ATTRIBUTES_MAX],
    /// State of off-line data collection.
    pub offline: u8,
    /// State of the last self-test: its result in bits 7:4, see [`self_test`]; for a running one,
    /// the remaining tenths in bits 3:0.
    pub self_test: u8,
    /// Seconds that off-line data collection takes.
    pub offline_seconds: u16,
    /// Supported off-line operations, see [`offline`].
    pub offline_capability: u8,
    /// SMART capabilities: bit 0, attributes are saved; bit 1, they are saved autonomously.
    pub capability: u16,
    /// Bit 0: errors are logged.
    pub error_logging: u8,
    /// Minutes of a short and of an extended self-test.
    pub minutes: [u16; 2],
}

impl Default for SmartData {
    fn default() -> Self {
        Self {
            attributes: [Attribute::default(); ATTRIBUTES_MAX],
            offline: 0,
            self_test: 0,
            offline_seconds: 0,
            offline_capability: 0,
            capability: 0,
            error_logging: 0,
            minutes: [0; 2],
        }
    }
}

/// Bits of [`SmartData::offline_capability`].
pub mod offline {
    /// EXECUTE starts data collection at once.
    pub const IMMEDIATE: u8 = 1 << 0;
    /// Short and extended self-tests.
    pub const SELF_TEST: u8 = 1 << 4;
}

/// Results of a self-test (ACS-3 7.48.6.6).
pub mod self_test {
    /// It succeeded, or there was none.
    pub const GOOD: u8 = 0;
    /// Aborted by the host.
    pub const ABORTED: u8 = 1;
    /// Interrupted by a reset.
    pub const INTERRUPTED: u8 = 2;
    /// A read failed.
    pub const READ_FAILURE: u8 = 7;
    /// It is running.
    pub const RUNS: u8 = 15;
}

impl SmartData {
    /// Parses the page.
    ///
    /// # Errors
    /// Too few bytes, or a wrong checksum.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(bytes, SECTOR)?;
        if super::sum(&bytes[..SECTOR]) != 0 {
            return Err(WireError::BadField("checksum of SMART data"));
        }
        let minutes = match bytes[EXTENDED] {
            u8::MAX => le16(bytes, EXTENDED_LONG),
            minutes => minutes.into(),
        };
        let mut data = Self {
            offline: bytes[362],
            self_test: bytes[363],
            offline_seconds: le16(bytes, 364),
            offline_capability: bytes[367],
            capability: le16(bytes, 368),
            error_logging: bytes[370],
            minutes: [bytes[SHORT].into(), minutes],
            ..Self::default()
        };
        for (n, attribute) in data.attributes.iter_mut().enumerate() {
            let at = FIRST + n * ATTRIBUTE;
            let raw = &bytes[at + 5..at + 11];
            *attribute = Attribute {
                id: bytes[at],
                flags: le16(bytes, at + 1),
                value: bytes[at + 3],
                worst: bytes[at + 4],
                raw: raw.iter().rev().fold(0, |raw, byte| raw << 8 | u64::from(*byte)),
            };
        }
        Ok(data)
    }

    /// The page.
    pub fn to_bytes(&self) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        bytes[0] = 1;
        for (n, attribute) in self.attributes.iter().enumerate() {
            let at = FIRST + n * ATTRIBUTE;
            bytes[at] = attribute.id;
            bytes[at + 1..at + 3].copy_from_slice(&attribute.flags.to_le_bytes());
            (bytes[at + 3], bytes[at + 4]) = (attribute.value, attribute.worst);
            bytes[at + 5..at + 11].copy_from_slice(&attribute.raw.to_le_bytes()[..6]);
        }
        (bytes[362], bytes[363]) = (self.offline, self.self_test);
        bytes[364..366].copy_from_slice(&self.offline_seconds.to_le_bytes());
        bytes[367] = self.offline_capability;
        bytes[368..370].copy_from_slice(&self.capability.to_le_bytes());
        bytes[370] = self.error_logging;
        bytes[SHORT] = self.minutes[0].min(u8::MAX.into()) as u8;
        bytes[EXTENDED] = self.minutes[1].min(u8::MAX.into()) as u8;
        if bytes[EXTENDED] == u8::MAX {
            bytes[EXTENDED_LONG..EXTENDED_LONG + 2].copy_from_slice(&self.minutes[1].to_le_bytes());
        }
        bytes[511] = 0_u8.wrapping_sub(super::sum(&bytes[..511]));
        bytes
    }

    /// The attribute with this number.
    pub fn get(&self, id: u8) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| id != 0 && attribute.id == id)
    }
}

/// The thresholds in a page of SMART READ THRESHOLDS: attribute number and lowest good value.
pub fn thresholds(page: &[u8]) -> impl Iterator<Item = (u8, u8)> + '_ {
    let rows = page.get(FIRST..FIRST + ATTRIBUTES_MAX * ATTRIBUTE).unwrap_or_default();
    rows.chunks_exact(ATTRIBUTE).filter(|row| row[0] != 0).map(|row| (row[0], row[1]))
}

/// Maximum number of self-tests in the log.
pub const SELF_TESTS_MAX: usize = 21;
/// Bytes per entry.
const SELF_TEST: usize = 24;
/// Offset of the index of the newest entry, counted from 1; 0 if there is none.
const NEWEST: usize = 508;

/// One self-test in the log (ACS-3 A.15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SelfTest {
    /// The test requested: LBA 7:0 of EXECUTE.
    pub kind: u8,
    /// As [`SmartData::self_test`].
    pub status: u8,
    /// Power-on hours when it ended.
    pub hours: u16,
    /// LBA of the first failure, if it failed.
    pub lba: u32,
}

/// The self-tests in a page of the log, the newest first.
///
/// # Errors
/// Too few bytes, or a wrong checksum.
pub fn self_tests(page: &[u8]) -> Result<impl Iterator<Item = SelfTest> + '_, WireError> {
    WireError::check_len(page, SECTOR)?;
    if super::sum(&page[..SECTOR]) != 0 {
        return Err(WireError::BadField("checksum of the self-test log"));
    }
    let newest = usize::from(page[NEWEST]).min(SELF_TESTS_MAX);
    let rows = (0..if newest == 0 { 0 } else { SELF_TESTS_MAX }).map(move |back| {
        let at = FIRST + (newest - 1 + SELF_TESTS_MAX - back) % SELF_TESTS_MAX * SELF_TEST;
        let row = &page[at..at + SELF_TEST];
        SelfTest {
            kind: row[0],
            status: row[1],
            hours: le16(row, 2),
            lba: u32::from_le_bytes([row[5], row[6], row[7], row[8]]),
        }
    });
    // An entry that was never written has no kind and no hours.
    Ok(rows.take_while(|test| *test != SelfTest::default()))
}

/// A page of the log with these self-tests, the newest first.
pub fn self_test_page(newest_first: &[SelfTest]) -> [u8; SECTOR] {
    let mut page = [0; SECTOR];
    page[0] = 1;
    let count = newest_first.len().min(SELF_TESTS_MAX);
    for (test, number) in newest_first[..count].iter().zip((0..count).rev()) {
        let at = FIRST + number * SELF_TEST;
        (page[at], page[at + 1]) = (test.kind, test.status);
        page[at + 2..at + 4].copy_from_slice(&test.hours.to_le_bytes());
        page[at + 5..at + 9].copy_from_slice(&test.lba.to_le_bytes());
    }
    page[NEWEST] = count as u8;
    page[SECTOR - 1] = 0_u8.wrapping_sub(super::sum(&page[..SECTOR - 1]));
    page
}
