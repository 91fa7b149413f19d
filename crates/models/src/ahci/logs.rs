//! Log pages and SMART data.

use alloc::vec::Vec;

use flysch_wire::ata::log::{self, DevSleepTiming, address, identify_page};
use flysch_wire::ata::smart::{Attribute, SmartData, attribute};
use flysch_wire::ata::{H2d, SECTOR};

use super::command::aborted;
use super::device::Device;
use super::list::Fail;

/// Most pages of one read.
const PAGES_MAX: u16 = 16;
/// Pages of the identify data log.
const IDENTIFY_PAGES: u16 = 9;
/// Every page of the identify data log but the first says which one it is.
const PAGE_VALID: u64 = 1 << 63;

impl Device {
    /// READ LOG EXT.
    pub(super) fn read_log(&mut self, fis: &H2d) -> Result<Vec<u8>, Fail> {
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
            data.extend_from_slice(&self.log_page(address, page));
        }
        Ok(data)
    }

    fn log_page(&mut self, address: u8, page: u16) -> [u8; SECTOR] {
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

    /// SMART READ DATA.
    pub(super) fn smart_data(&self) -> SmartData {
        let health = &self.health;
        let rows = [
            (attribute::REALLOCATED, 1, 0),
            (attribute::POWER_CYCLES, 0, health.power_cycles),
            (attribute::UNEXPECTED_POWER_LOSS, 0, health.unsafe_losses),
            (attribute::UNCORRECTABLE, 1, health.uncorrectable),
            (attribute::CRC_ERRORS, 0, health.crc_errors),
            (attribute::WRITTEN, 0, health.written_sectors),
            (attribute::READ, 0, health.read_sectors),
        ];
        let mut data = SmartData::default();
        for (to, (id, flags, raw)) in data.attributes.iter_mut().zip(rows) {
            *to = Attribute { id, flags, value: 100, worst: 100, raw };
        }
        data
    }
}

/// Pages of a log; 0 if there is none.
fn pages(address: u8) -> u16 {
    match address {
        address::DIRECTORY | address::NCQ_ERROR | address::NCQ_SEND_RECEIVE => 1,
        address::IDENTIFY => IDENTIFY_PAGES,
        _ => 0,
    }
}
