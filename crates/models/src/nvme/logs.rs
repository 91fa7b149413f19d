//! Log pages, and the counters behind them.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::nvme::log::{
    CHANGED_LENGTH, EFFECTS_LENGTH, ERROR_ENTRY, ErrorEntry, RETAIN_EVENT, Smart,
};
use flysch_wire::nvme::{AdminOpcode, LogId, NvmOpcode, Sqe, Status, completion};

use super::admin::ADMIN_COMMANDS;
use super::device::Device;
use super::transfer::Request;

/// Number of entries of the error log (ELPE plus one).
pub(super) const ERRORS_MAX: usize = 64;
/// Composite temperature at which a device warns, kelvin, and at which it is critical.
pub(super) const WARN_TEMPERATURE: u16 = 343;
pub(super) const CRITICAL_TEMPERATURE: u16 = 358;
/// Temperature of a device that nobody has heated, kelvin.
const TEMPERATURE: u16 = 311;
/// Critical warning: beyond a temperature threshold.
pub(super) const TEMPERATURE_WARNS: u8 = 1 << 1;
/// Percentage of spare blocks below which a device warns.
const SPARE_THRESHOLD: u8 = 10;
/// Size of a data unit, bytes.
const DATA_UNIT: u64 = 512_000;
/// Maximum length of a log read, bytes; what a host reads beyond the end of a page is zeros.
const LOG_MAX: u64 = 64 << 10;

/// The history of the device.
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
    /// It was shut down and has not been enabled since.
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

    /// The SMART log at `now`; `errors` is the number of errors logged so far.
    fn smart(&self, errors: u64, now: u64) -> Smart {
        let units = |bytes: u64| u128::from(bytes.div_ceil(DATA_UNIT));
        Smart {
            critical_warning: self.warning,
            temperature: self.temperature,
            spare: 100,
            spare_threshold: SPARE_THRESHOLD,
            units_read: units(self.bytes_read),
            units_written: units(self.bytes_written),
            reads: self.reads.into(),
            writes: self.writes.into(),
            busy_minutes: 0,
            power_cycles: self.power_cycles.into(),
            power_on_hours: u128::from(now / 3_600_000_000_000),
            unsafe_shutdowns: self.unsafe_shutdowns.into(),
            media_errors: self.media_errors.into(),
            error_entries: errors.into(),
            ..Smart::default()
        }
    }
}

/// Failed commands, newest first.
#[derive(Debug, Default)]
pub(super) struct ErrorLog {
    entries: VecDeque<ErrorEntry>,
    count: u64,
}

impl ErrorLog {
    /// Logs a failed command of `queue`; returns the bit of the status field that points to the
    /// log.
    #[cold]
    pub(super) fn failed(&mut self, queue: u16, command: &Sqe, status: u16) -> u16 {
        let lba = if queue == 0 { 0 } else { command.slba() };
        self.note((queue, command.cid), status, (lba, command.nsid));
        completion::MORE
    }

    /// Logs a failure: queue and command id, status field, block and namespace.
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

impl Device {
    /// Get Log Page at `now`: sends it to the host. Returns the page if it was read such that its
    /// events may be reported again.
    pub(super) fn get_log_page(
        &mut self,
        request: &Request<'_>,
        now: u64,
    ) -> Result<Option<LogId>, Status> {
        let [cdw10, cdw11, low, high, ..] = request.command.cdw10;
        let dwords = u64::from(cdw10 >> 16 | cdw11 << 16) + 1;
        let (offset, len) = (u64::from(low) | u64::from(high) << 32, dwords * 4);
        let id = LogId::from_bits(cdw10 as u8);
        let page = self.log_page(id, now)?;
        if offset % 4 != 0 || offset > page.len() as u64 || len > LOG_MAX {
            return Err(Status::InvalidField);
        }
        let mut data = vec![0; len as usize];
        let rest = &page[offset as usize..];
        let there = rest.len().min(data.len());
        data[..there].copy_from_slice(&rest[..there]);
        request.give(&data)?;
        if cdw10 & RETAIN_EVENT != 0 {
            return Ok(None);
        }
        if id == LogId::ChangedNamespaces {
            self.spaces.changed.clear();
        }
        Ok(Some(id))
    }

    fn log_page(&self, id: LogId, now: u64) -> Result<Vec<u8>, Status> {
        Ok(match id {
            LogId::Supported => supported(),
            LogId::Errors => self.errors.page(),
            LogId::Smart => self.health.smart(self.errors.count, now).to_bytes().to_vec(),
            LogId::Firmware => self.firmware.page(),
            LogId::ChangedNamespaces => {
                let mut page = vec![0; CHANGED_LENGTH];
                let mut changed = self.spaces.changed.clone();
                changed.sort_unstable();
                for (place, id) in page.chunks_exact_mut(4).zip(changed) {
                    place.copy_from_slice(&id.to_le_bytes());
                }
                page
            }
            LogId::Effects => effects(self.spaces.has_zones),
            LogId::Sanitize => self.upkeep.page(now),
            _ => return Err(Status::LogPage),
        })
    }

    /// Compares the temperature with its thresholds: returns whether it has just passed one and the
    /// host wants to know.
    pub(super) fn look_at_temperature(&mut self) -> bool {
        let (over, under) = self.features.thresholds;
        let health = &mut self.health;
        let beyond = health.temperature >= over || health.temperature <= under;
        let was = health.warning & TEMPERATURE_WARNS != 0;
        health.warning &= !TEMPERATURE_WARNS;
        if beyond {
            health.warning |= TEMPERATURE_WARNS;
        }
        let is_wanted = self.features.async_events() & u32::from(TEMPERATURE_WARNS) != 0;
        beyond && !was && is_wanted
    }
}

/// The supported log pages: four bytes each, bit 0 for supported.
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
    /// CSE: no other commands to the namespace meanwhile, no others at all.
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
