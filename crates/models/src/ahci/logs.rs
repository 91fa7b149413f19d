//! Log pages.

use alloc::vec::Vec;

use flysch_wire::ata::log::{self, DevSleepTiming, STATISTICS, address, identify_page};
use flysch_wire::ata::{H2d, SECTOR};

use super::command::aborted;
use super::device::{Device, Health};
use super::list::Fail;
use super::smart::hours;

/// Most pages of one read.
const PAGES_MAX: u16 = 16;
/// Pages of the identify data log.
const IDENTIFY_PAGES: u16 = 9;
/// Pages of the device statistics log.
const STATISTICS_PAGES: u16 = 8;
/// Every page of the identify data log but the first says which one it is.
const PAGE_VALID: u64 = 1 << 63;

impl Device {
    /// READ LOG EXT.
    pub(super) fn read_log(&mut self, fis: &H2d, now: u64) -> Result<Vec<u8>, Fail> {
        let (address, first) = log::of_lba(fis.lba);
        if fis.count == 0 || fis.count > PAGES_MAX {
            return Err(aborted());
        }
        let pages = pages(address);
        if u32::from(first) + u32::from(fis.count) > u32::from(pages) {
            return Err(aborted());
        }
        let mut data = Vec::with_capacity(usize::from(fis.count) * SECTOR);
        for page in first..first + fis.count {
            data.extend_from_slice(&self.log_page(address, page, now));
        }
        Ok(data)
    }

    fn log_page(&mut self, address: u8, page: u16, now: u64) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        match address {
            address::DIRECTORY => {
                bytes[0] = 1;
                for other in 1..=255_u8 {
                    bytes[2 * usize::from(other)] = pages(other) as u8;
                }
            }
            address::NCQ_ERROR => return self.ncq_error.take().unwrap_or_default().to_bytes(),
            address::NCQ_SEND_RECEIVE if self.queues_trim() => {
                // SEND does DATA SET MANAGEMENT, and that trims.
                bytes[0] = 1;
                bytes[4] = 1;
            }
            address::IDENTIFY => return self.identify_page(page),
            address::STATISTICS => return self.health.statistics_page(page, now),
            _ => {}
        }
        bytes
    }

    fn identify_page(&self, page: u16) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        let head = PAGE_VALID | u64::from(page) << 16 | 1;
        bytes[..8].copy_from_slice(&head.to_le_bytes());
        match page {
            identify_page::LIST => {
                bytes[8] = 4;
                for (n, known) in [
                    identify_page::LIST,
                    identify_page::COPY,
                    identify_page::CAPACITY,
                    identify_page::SERIAL_ATA,
                ]
                .into_iter()
                .enumerate()
                {
                    bytes[9 + n] = known as u8;
                }
            }
            identify_page::COPY => return self.identify().to_bytes(),
            identify_page::CAPACITY => {
                let capacity = PAGE_VALID | self.sectors();
                bytes[8..16].copy_from_slice(&capacity.to_le_bytes());
            }
            identify_page::SERIAL_ATA if self.can_sleep() => {
                DevSleepTiming::default().put(&mut bytes);
            }
            _ => {}
        }
        bytes
    }
}

impl Health {
    /// A page of the device statistics log: what is counted, and page 0, which pages there are.
    fn statistics_page(&self, page: u16, now: u64) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        bytes[..8].copy_from_slice(&(u64::from(page) << 16 | 1).to_le_bytes());
        let counted = [
            (1, 8, self.power_cycles),
            (1, 16, hours(now)),
            (1, 24, self.written_sectors),
            (1, 32, self.writes),
            (1, 40, self.read_sectors),
            (1, 48, self.reads),
            (4, 8, self.uncorrectable),
            (6, 8, self.resets),
            (6, 24, self.crc_errors),
        ];
        let has = |page| page == 0 || counted.iter().any(|(of, ..)| *of == page);
        if page == 0 {
            let pages = (0..STATISTICS_PAGES as u8).filter(|page| has(*page));
            for (to, page) in bytes[9..].iter_mut().zip(pages.clone()) {
                *to = page;
            }
            bytes[8] = pages.count() as u8;
        }
        for (_, at, value) in counted.into_iter().filter(|(of, ..)| u16::from(*of) == page) {
            let known = STATISTICS.iter().find(|known| (known.page, known.at) == (page as u8, at));
            let bits = known.map_or(32, |known| 8 * u32::from(known.bytes));
            let value = log::STATISTIC_VALID | value & (u64::MAX >> (64 - bits));
            bytes[at.into()..usize::from(at) + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }
}

/// Pages of a log; 0 if there is none.
fn pages(address: u8) -> u16 {
    match address {
        address::DIRECTORY | address::NCQ_ERROR | address::NCQ_SEND_RECEIVE => 1,
        address::IDENTIFY => IDENTIFY_PAGES,
        address::STATISTICS => STATISTICS_PAGES,
        _ => 0,
    }
}
