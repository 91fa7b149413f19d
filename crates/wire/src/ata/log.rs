//! General purpose logs (ACS 9): the queued error log and the identify data log.

use super::SECTOR;
use crate::WireError;
use crate::bytes::{le16, le32, le64};

/// Log addresses.
pub mod address {
    /// Directory: a word for each log with its number of pages.
    pub const DIRECTORY: u8 = 0x00;
    /// Extended comprehensive SMART errors.
    pub const EXTENDED_ERRORS: u8 = 0x03;
    /// Device statistics.
    pub const STATISTICS: u8 = 0x04;
    /// SMART errors, through SMART READ LOG.
    pub const ERRORS: u8 = 0x01;
    /// Self-tests, through SMART READ LOG.
    pub const SELF_TESTS: u8 = 0x06;
    /// Queued error.
    pub const NCQ_ERROR: u8 = 0x10;
    /// What NCQ NON-DATA can do.
    pub const NCQ_NON_DATA: u8 = 0x12;
    /// What SEND and RECEIVE FPDMA QUEUED can do.
    pub const NCQ_SEND_RECEIVE: u8 = 0x13;
    /// Identify data, in pages.
    pub const IDENTIFY: u8 = 0x30;
}

/// LBA of a log read: the log's address and the first page.
pub const fn lba(address: u8, page: u16) -> u64 {
    address as u64 | ((page & 0xFF) as u64) << 8 | ((page >> 8) as u64) << 32
}

/// The log's address and the first page, from the LBA of a log read.
pub const fn of_lba(lba: u64) -> (u8, u16) {
    (lba as u8, (lba >> 8 & 0xFF) as u16 | ((lba >> 32 & 0xFF) as u16) << 8)
}

/// The queued error log (ACS 9.12): which command failed and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NcqError {
    /// NQ: the failed command was not queued.
    pub not_queued: bool,
    /// Tag of the failed command.
    pub tag: u8,
    /// STATUS.
    pub status: u8,
    /// ERROR.
    pub error: u8,
    /// LBA.
    pub lba: u64,
    /// COUNT.
    pub count: u16,
    /// DEVICE.
    pub device: u8,
    /// Sense key, code and qualifier; zero if there are none.
    pub sense: [u8; 3],
}

const NOT_QUEUED: u8 = 1 << 7;

impl NcqError {
    /// Parses the page.
    ///
    /// # Errors
    /// Too few bytes, or a wrong checksum.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(bytes, SECTOR)?;
        if super::sum(&bytes[..SECTOR]) != 0 {
            return Err(WireError::BadField("checksum of the queued error log"));
        }
        Ok(Self {
            not_queued: bytes[0] & NOT_QUEUED != 0,
            tag: bytes[0] & 0x1F,
            status: bytes[2],
            error: bytes[3],
            lba: u64::from_le_bytes([
                bytes[4], bytes[5], bytes[6], bytes[8], bytes[9], bytes[10], 0, 0,
            ]),
            device: bytes[7],
            count: le16(bytes, 12),
            sense: [bytes[14], bytes[15], bytes[16]],
        })
    }

    /// The page.
    pub fn to_bytes(self) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        bytes[0] = if self.not_queued { NOT_QUEUED } else { 0 } | self.tag & 0x1F;
        (bytes[2], bytes[3], bytes[7]) = (self.status, self.error, self.device);
        let lba = self.lba.to_le_bytes();
        bytes[4..7].copy_from_slice(&lba[..3]);
        bytes[8..11].copy_from_slice(&lba[3..6]);
        bytes[12..14].copy_from_slice(&self.count.to_le_bytes());
        bytes[14..17].copy_from_slice(&self.sense);
        bytes[511] = 0_u8.wrapping_sub(super::sum(&bytes[..511]));
        bytes
    }
}

/// Pages of the identify data log (ACS 9.11).
pub mod identify_page {
    /// List of the pages.
    pub const LIST: u16 = 0x00;
    /// A copy of the IDENTIFY DEVICE data.
    pub const COPY: u16 = 0x01;
    /// Capacity.
    pub const CAPACITY: u16 = 0x02;
    /// Supported capabilities.
    pub const CAPABILITIES: u16 = 0x03;
    /// Serial ATA.
    pub const SERIAL_ATA: u16 = 0x08;
    /// Zoned devices.
    pub const ZONED: u16 = 0x09;
}

/// Device sleep timing, from the Serial ATA page of the identify data log (SATA 13.7.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevSleepTiming {
    /// DETO: time to leave device sleep, ms.
    pub exit_ms: u8,
    /// MDAT: shortest assertion of the signal, ms.
    pub assert_ms: u8,
}

impl Default for DevSleepTiming {
    /// The timing of a device that gives none (SATA 13.7.11): 20 ms and 10 ms.
    fn default() -> Self {
        Self { exit_ms: 20, assert_ms: 10 }
    }
}

/// Offset of the device sleep timing in the page.
const DEVSLEEP: usize = 48;
/// The qword is valid.
const QWORD_VALID: u64 = 1 << 63;

impl DevSleepTiming {
    /// Parses the page; a value that it does not give takes its default.
    pub fn parse(page: &[u8]) -> Self {
        if page.len() < DEVSLEEP + 8 || le64(page, DEVSLEEP) & QWORD_VALID == 0 {
            return Self::default();
        }
        let (exit_ms, assert_ms) = (page[DEVSLEEP + 1], page[DEVSLEEP] & 0x1F);
        let none = Self::default();
        Self {
            exit_ms: if exit_ms == 0 { none.exit_ms } else { exit_ms },
            assert_ms: if assert_ms == 0 { none.assert_ms } else { assert_ms },
        }
    }

    /// Writes the timing into the page.
    pub fn put(self, page: &mut [u8; SECTOR]) {
        let value = QWORD_VALID | u64::from(self.exit_ms) << 8 | u64::from(self.assert_ms);
        page[DEVSLEEP..DEVSLEEP + 8].copy_from_slice(&value.to_le_bytes());
    }
}

/// Whether the send and receive log lists trim for SEND FPDMA QUEUED.
pub fn sends_trim(page: &[u8]) -> bool {
    page.len() >= 8 && le32(page, 0) & 1 != 0 && le32(page, 4) & 1 != 0
}

/// One statistic of the device statistics log (ACS 9.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistic {
    /// The page that holds it.
    pub page: u8,
    /// Offset of its eight bytes in the page.
    pub at: u16,
    /// Bytes in the value.
    pub bytes: u8,
    /// Its name.
    pub name: &'static str,
}

const fn statistic(page: u8, at: u16, bytes: u8, name: &'static str) -> Statistic {
    Statistic { page, at, bytes, name }
}

/// The statistics with a name here.
pub static STATISTICS: [Statistic; 16] = [
    statistic(1, 8, 4, "Lifetime Power-On Resets"),
    statistic(1, 16, 4, "Power-on Hours"),
    statistic(1, 24, 6, "Logical Sectors Written"),
    statistic(1, 32, 6, "Number of Write Commands"),
    statistic(1, 40, 6, "Logical Sectors Read"),
    statistic(1, 48, 6, "Number of Read Commands"),
    statistic(4, 8, 4, "Number of Reported Uncorrectable Errors"),
    statistic(4, 16, 4, "Resets Between Cmd Acceptance and Completion"),
    statistic(5, 8, 1, "Current Temperature"),
    statistic(5, 32, 1, "Highest Temperature"),
    statistic(5, 40, 1, "Lowest Temperature"),
    statistic(5, 88, 1, "Specified Maximum Operating Temperature"),
    statistic(6, 8, 4, "Number of Hardware Resets"),
    statistic(6, 16, 4, "Number of ASR Events"),
    statistic(6, 24, 4, "Number of Interface CRC Errors"),
    statistic(7, 8, 1, "Percentage Used Endurance Indicator"),
];

/// The statistic is supported and its value is valid.
pub const STATISTIC_VALID: u64 = 3 << 62;

impl Statistic {
    /// Its value, read from its page; `None` if the device does not have it.
    pub fn of(&self, page: &[u8]) -> Option<u64> {
        let at = usize::from(self.at);
        let value = le64(page.get(at..at + 8)?, 0);
        let is_there = value & STATISTIC_VALID == STATISTIC_VALID;
        is_there.then_some(value & (u64::MAX >> (64 - 8 * u32::from(self.bytes))))
    }
}
