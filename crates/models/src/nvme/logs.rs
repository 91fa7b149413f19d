//! Log pages, and what is counted for them.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::nvme::feature::event;
use flysch_wire::nvme::log::{
    CHANGED_LENGTH, EFFECTS_LENGTH, ERROR_ENTRY, ErrorEntry, RETAIN_EVENT, Smart,
};
use flysch_wire::nvme::{AdminOpcode, LogId, NvmOpcode, Sqe, Status, completion};

use super::Nvme;
use super::admin::ADMIN_COMMANDS;
use super::transfer::{Parts, scatter};

/// Entries of the error log (ELPE and one).
pub(super) const ERRORS_MAX: usize = 64;
/// Composite temperature from which a device warns, kelvin, and from which it is critical.
pub(super) const WARN_TEMPERATURE: u16 = 343;
pub(super) const CRITICAL_TEMPERATURE: u16 = 358;
/// Temperature of a device nobody has heated, kelvin.
const TEMPERATURE: u16 = 311;
/// Critical warning: beyond a temperature threshold.
pub(super) const TEMPERATURE_WARNS: u8 = 1 << 1;
/// Critical warning: the media is read only.
const SPARE_THRESHOLD: u8 = 10;
/// What data units count, bytes.
const DATA_UNIT: u64 = 512_000;
/// Longest log page, bytes: what a host asks for beyond it is zeros.
const LOG_MAX: u64 = 64 << 10;

/// What the device has been through.
#[derive(Debug)]
pub(super) struct Health {
    pub(super) warning: u8,
    pub(super) temperature: u16,
    bytes_read: u64,
    bytes_written: u64,
    reads: u64,
    writes: u64,
    pub(super) power_cycles: u64,
    pub(super) unsafe_shutdowns: u64,
    pub(super) media_errors: u64,
    /// It was shut down and not enabled since.
    pub(super) is_clean: bool,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            warning: 0,
            temperature: TEMPERATURE,
            bytes_read: 0,
            bytes_written: 0,
            reads: 0,
            writes: 0,
            power_cycles: 1,
            unsafe_shutdowns: 0,
            media_errors: 0,
            is_clean: true,
        }
    }
}

impl Health {
    #[inline]
    pub(super) fn read(&mut self, len: u32) {
        self.reads += 1;
        self.bytes_read += u64::from(len);
    }

    #[inline]
    pub(super) fn wrote(&mut self, len: u32) {
        self.writes += 1;
        self.bytes_written += u64::from(len);
    }
}

/// Commands that failed, youngest first.
#[derive(Debug, Default)]
pub(super) struct ErrorLog {
    entries: VecDeque<ErrorEntry>,
    count: u64,
}

impl ErrorLog {
    /// A failure: queue and command id, status field, block and namespace.
    pub(super) fn note(&mut self, (sq, cid): (u16, u16), status: u16, (lba, nsid): (u64, u32)) {
        self.count += 1;
        self.entries.truncate(ERRORS_MAX - 1);
        let location = u16::MAX;
        let status = status << 1;
        let entry = ErrorEntry {
            count: self.count,
            sq,
            cid,
            status,
            location,
            lba,
            nsid,
            ..ErrorEntry::default()
        };
        self.entries.push_front(entry);
    }

    fn page(&self) -> Vec<u8> {
        let mut page = vec![0; ERRORS_MAX * ERROR_ENTRY];
        for (place, entry) in page.chunks_exact_mut(ERROR_ENTRY).zip(&self.entries) {
            place.copy_from_slice(&entry.to_bytes());
        }
        page
    }
}

impl Nvme {
    /// A command failed: the error log says more, and the status field tells so.
    #[cold]
    pub(super) fn note_failure(&mut self, index: u16, status: u16) -> u16 {
        let task = self.tasks.get(index);
        let command = &task.command;
        let lba = if task.queue == 0 { 0 } else { command.slba() };
        let (of, about) = ((task.queue, command.cid), (lba, command.nsid));
        self.device.errors.note(of, status, about);
        completion::MORE
    }

    /// Get log page.
    pub(super) fn get_log_page(&mut self, command: &Sqe) -> Result<u32, Status> {
        let [cdw10, cdw11, low, high, ..] = command.cdw10;
        let dwords = u64::from(cdw10 >> 16 | cdw11 << 16) + 1;
        let (offset, len) = (u64::from(low) | u64::from(high) << 32, dwords * 4);
        let id = LogId::from_bits(cdw10 as u8);
        let page = self.log_page(id)?;
        if offset % 4 != 0 || offset > page.len() as u64 || len > LOG_MAX {
            return Err(Status::InvalidField);
        }
        let mut data = vec![0; len as usize];
        let rest = &page[offset as usize..];
        let there = rest.len().min(data.len());
        data[..there].copy_from_slice(&rest[..there]);
        let sizes = (self.registers.page, len);
        scatter(Parts::new(&self.memory, command, sizes, true), &data)?;
        if cdw10 & RETAIN_EVENT == 0 {
            if id == LogId::ChangedNamespaces {
                self.device.changed.clear();
            }
            self.log_was_read(id.into_bits());
        }
        Ok(0)
    }

    fn log_page(&self, id: LogId) -> Result<Vec<u8>, Status> {
        Ok(match id {
            LogId::Supported => supported(),
            LogId::Errors => self.device.errors.page(),
            LogId::Smart => self.smart().to_bytes().to_vec(),
            LogId::Firmware => self.device.firmware.page(),
            LogId::ChangedNamespaces => {
                let mut page = vec![0; CHANGED_LENGTH];
                let mut changed = self.device.changed.clone();
                changed.sort_unstable();
                for (place, id) in page.chunks_exact_mut(4).zip(changed) {
                    place.copy_from_slice(&id.to_le_bytes());
                }
                page
            }
            LogId::Effects => effects(self.device.has_zones),
            LogId::Sanitize => self.device.sanitized.page(&self.device.upkeep, self.clock.nanos()),
            _ => return Err(Status::LogPage),
        })
    }

    fn smart(&self) -> Smart {
        let health = &self.device.health;
        let units = |bytes: u64| u128::from(bytes.div_ceil(DATA_UNIT));
        Smart {
            critical_warning: health.warning,
            temperature: health.temperature,
            spare: 100,
            spare_threshold: SPARE_THRESHOLD,
            units_read: units(health.bytes_read),
            units_written: units(health.bytes_written),
            reads: health.reads.into(),
            writes: health.writes.into(),
            busy_minutes: 0,
            power_cycles: health.power_cycles.into(),
            power_on_hours: u128::from(self.clock.nanos() / 3_600_000_000_000),
            unsafe_shutdowns: health.unsafe_shutdowns.into(),
            media_errors: health.media_errors.into(),
            error_entries: self.device.errors.count.into(),
            ..Smart::default()
        }
    }

    /// Sets the composite temperature, kelvin: beyond the thresholds an event follows.
    pub fn set_temperature(&mut self, kelvin: u16) {
        self.device.health.temperature = kelvin;
        self.look_at_health();
    }

    /// Tells of a temperature beyond its thresholds, once until it is back between them.
    pub(super) fn look_at_health(&mut self) {
        let (over, under) = self.device.features.thresholds;
        let health = &mut self.device.health;
        let beyond = health.temperature >= over || health.temperature <= under;
        let was = health.warning & TEMPERATURE_WARNS != 0;
        health.warning &= !TEMPERATURE_WARNS;
        if beyond {
            health.warning |= TEMPERATURE_WARNS;
        }
        let is_wanted = self.device.features.async_events() & u32::from(TEMPERATURE_WARNS) != 0;
        if beyond && !was && is_wanted {
            /// Temperature threshold.
            const THRESHOLD: u8 = 1;
            self.tell(event::SMART, THRESHOLD, LogId::Smart);
        }
    }
}

/// The log pages there are: four bytes each, bit 0 for supported.
fn supported() -> Vec<u8> {
    const PAGES: [LogId; 8] = [
        LogId::Supported,
        LogId::Errors,
        LogId::Smart,
        LogId::Firmware,
        LogId::ChangedNamespaces,
        LogId::Effects,
        LogId::Sanitize,
        LogId::Supported,
    ];
    let mut page = vec![0; 1024];
    PAGES.iter().for_each(|id| page[usize::from(id.into_bits()) * 4] = 1);
    page
}

/// Commands and their effects.
fn effects(has_zones: bool) -> Vec<u8> {
    /// CSUPP, LBCC, NCC, NIC, CCC.
    const SUPPORTED: u32 = 1;
    const CHANGES_DATA: u32 = 1 << 1;
    const CHANGES_NAMESPACE: u32 = 1 << 2;
    const CHANGES_INVENTORY: u32 = 1 << 3;
    const CHANGES_CONTROLLER: u32 = 1 << 4;
    /// CSE: nothing else to the namespace, nothing else at all meanwhile.
    const ALONE_IN_NAMESPACE: u32 = 1 << 16;
    const ALONE: u32 = 2 << 16;
    let mut page = vec![0; EFFECTS_LENGTH];
    let mut put = |at: usize, effects: u32| {
        page[at * 4..][..4].copy_from_slice(&effects.to_le_bytes());
    };
    for opcode in ADMIN_COMMANDS {
        let more = match opcode {
            AdminOpcode::FormatNvm => CHANGES_DATA | CHANGES_NAMESPACE | ALONE_IN_NAMESPACE,
            AdminOpcode::Sanitize => CHANGES_DATA | ALONE,
            AdminOpcode::NamespaceManagement | AdminOpcode::NamespaceAttachment => {
                CHANGES_INVENTORY
            }
            AdminOpcode::FirmwareCommit => CHANGES_CONTROLLER,
            _ => 0,
        };
        put(usize::from(opcode.into_bits()), SUPPORTED | more);
    }
    let io = [
        (NvmOpcode::Flush, 0),
        (NvmOpcode::Write, CHANGES_DATA),
        (NvmOpcode::Read, 0),
        (NvmOpcode::WriteUncorrectable, CHANGES_DATA),
        (NvmOpcode::Compare, 0),
        (NvmOpcode::WriteZeroes, CHANGES_DATA),
        (NvmOpcode::DatasetManagement, CHANGES_DATA),
        (NvmOpcode::Verify, 0),
        (NvmOpcode::ReservationRegister, 0),
        (NvmOpcode::ReservationReport, 0),
        (NvmOpcode::ReservationAcquire, 0),
        (NvmOpcode::ReservationRelease, 0),
        (NvmOpcode::Copy, CHANGES_DATA),
    ];
    let zoned = [
        (NvmOpcode::ZoneSend, CHANGES_DATA),
        (NvmOpcode::ZoneReceive, 0),
        (NvmOpcode::ZoneAppend, CHANGES_DATA),
    ];
    let io = io.into_iter().chain(zoned.into_iter().filter(|_| has_zones));
    for (opcode, more) in io {
        put(256 + usize::from(opcode.into_bits()), SUPPORTED | more);
    }
    page
}
