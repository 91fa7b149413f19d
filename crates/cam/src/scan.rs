//! Finds the logical units and what they report about themselves.
//!
//! REPORT LUNS lists the units; each one is queried for INQUIRY data, its vital product data pages,
//! its capacity and its mode parameters. If a unit does not answer a query, only that answer is
//! missing: the scan fails only if no unit of the device answers INQUIRY. The order of the queries
//! follows CAM's probe and the attach states of `da`.

use alloc::vec::Vec;
use core::fmt;

use flysch_api::block::Cause;
use flysch_api::command::{Command, Direction, Ended, Failure, Ordering, Port, Scsi, Token};
use flysch_api::data::Data;
use flysch_api::machine::{Clock, DmaRegion};
use flysch_wire::scsi::Cdb;
use flysch_wire::scsi::capacity::{Capacity10, Capacity16};
use flysch_wire::scsi::cdb::{ModeSense, PageControl, SelectReport};
use flysch_wire::scsi::inquiry::{self, DeviceType, InquiryData, Qualifier};
use flysch_wire::scsi::luns::{self, LogicalUnitNumber};
use flysch_wire::scsi::mode::{Caching, Control, DeviceSpecific, ModePage, ModeView};
use flysch_wire::scsi::vpd::{
    self, Association, BlockDeviceCharacteristics, BlockLimits, DesignatorType,
    LogicalBlockProvisioning, VpdPage,
};

use crate::disk::Shape;
use crate::error::CamError;
use crate::family::{Action, Family};
use crate::{run, sense};

/// Scratch memory that a scan needs, bytes: the longest answer requested.
pub const SCRATCH_BYTES: usize = ANSWER_MAX as usize;
/// Longest answer requested, bytes: REPORT LUNS with every UFS unit, any page.
const ANSWER_MAX: u16 = 1024;
/// Longest VPD page requested, bytes; lengths that need two bytes confuse some devices.
const PAGE_MAX: u16 = 252;
/// Time limit of one query, milliseconds.
const TIMEOUT_MS: u64 = 10_000;
/// How often a query is repeated after an answer that reports an event or a temporary failure
/// (CAM's probe: 4).
const TRIES: u32 = 5;
/// How often a unit that is becoming ready is queried, and the pause between queries, milliseconds.
const READY_TRIES: u32 = 20;
const READY_PAUSE_MS: u64 = 100;
/// Number of units to try if REPORT LUNS does not answer: as many as a UFS device can have.
const FALLBACK_LUNS: u8 = 32;
/// The well-known unit that answers REPORT LUNS if there is no unit 0 (SPC-6 clause 8).
const REPORT_LUNS_UNIT: LogicalUnitNumber = LogicalUnitNumber([0xC1, 0x01, 0, 0, 0, 0, 0, 0]);
/// Longest identifier kept, bytes.
const IDENTIFIER_MAX: usize = 64;

/// A logical unit that answered INQUIRY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peripheral {
    /// The unit's number.
    pub lun: LogicalUnitNumber,
    /// Standard INQUIRY data.
    pub inquiry: InquiryData,
    /// The vital product data pages it lists (page 00).
    pub pages: Vec<VpdPage>,
    /// The serial number (page 80), without padding.
    pub serial_number: Option<Vec<u8>>,
    /// The designator of the unit (page 83), the most specific one available.
    pub identifier: Option<Vec<u8>>,
    /// Limits of commands (page B0).
    pub block_limits: Option<BlockLimits>,
    /// Characteristics of the medium (page B1).
    pub characteristics: Option<BlockDeviceCharacteristics>,
    /// Thin provisioning (page B2).
    pub provisioning: Option<LogicalBlockProvisioning>,
    /// Whether TEST UNIT READY answered GOOD.
    pub ready: bool,
    /// Its capacity (READ CAPACITY(16), or (10) if it supports nothing else).
    pub capacity: Option<Capacity16>,
    /// WP and DPOFUA of the mode parameter header.
    pub device_specific: DeviceSpecific,
    /// The caching mode page.
    pub caching: Option<Caching>,
    /// The control mode page.
    pub control: Option<Control>,
    /// The queries without an answer, and why.
    pub faults: Vec<Fault>,
}

/// A query without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The command.
    pub name: &'static str,
    /// How it ended.
    pub ended: Ended,
    /// The device's sense data, if it sent any.
    pub cause: Option<Cause>,
}

impl Peripheral {
    /// Whether it is a direct-access block device.
    pub fn is_block_device(&self) -> bool {
        self.inquiry.peripheral.device_type() == DeviceType::Block
    }

    /// The properties of this unit that a [`Disk`](crate::Disk) needs.
    ///
    /// # Errors
    /// [`CamError::NotADisk`] if it is not a block device or reported no capacity.
    pub fn shape(&self) -> Result<Shape, CamError> {
        let unit = self.lun.to_bits();
        let not_a_disk = CamError::NotADisk { unit };
        let capacity = self.capacity.filter(|_| self.is_block_device()).ok_or(not_a_disk)?;
        let limits = self.block_limits.unwrap_or_default();
        let can_unmap = self.provisioning.is_some_and(|p| p.lbpu)
            && limits.unmap_descriptors_max > 0
            && capacity.lbpme;
        Ok(Shape {
            unit,
            block_size: capacity.block_length,
            blocks: capacity.last_lba.checked_add(1).ok_or(not_a_disk)?,
            transfer_blocks_max: limits.transfer_max,
            delete_blocks_max: if can_unmap { limits.unmap_lba_max } else { 0 },
            // A unit that does not say is taken to have a cache: flushing is never wrong.
            write_cache: self.caching.is_none_or(|caching| caching.flags.wce()),
            force_unit_access: self.device_specific.dpofua(),
            write_protected: self.device_specific.wp(),
        })
    }
}

/// `<vendor product revision>` as `camcontrol devlist` shows it.
impl fmt::Display for Peripheral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InquiryData { vendor, product, revision, .. } = &self.inquiry;
        write!(f, "<{vendor} {product} {revision}>")
    }
}

/// Finds the logical units behind `port`, which must not carry other commands meanwhile.
///
/// `scratch` is part of the port's memory, at least [`SCRATCH_BYTES`] long; it is free again
/// afterwards. Units are returned in the order of their numbers.
///
/// # Errors
/// [`CamError::Scratch`]; [`CamError::NotStarted`] if the controller has failed;
/// [`CamError::Command`] if no unit answers.
pub fn scan<P: Port<Protocol = Scsi>, C: Clock>(
    port: &mut P,
    clock: &C,
    scratch: &DmaRegion,
) -> Result<Vec<Peripheral>, CamError> {
    scan_luns(port, clock, scratch, &[])
}

/// As [`scan`], but also examines these units, which REPORT LUNS does not list: well-known ones, or
/// the units in a UFS device's descriptors.
///
/// # Errors
/// As [`scan`].
pub fn scan_luns<P: Port<Protocol = Scsi>, C: Clock>(
    port: &mut P,
    clock: &C,
    scratch: &DmaRegion,
    besides: &[LogicalUnitNumber],
) -> Result<Vec<Peripheral>, CamError> {
    if scratch.len() < SCRATCH_BYTES {
        return Err(CamError::Scratch { needed: SCRATCH_BYTES, got: scratch.len() });
    }
    let mut probe = Probe {
        port,
        clock,
        scratch,
        token: 0,
        lun: LogicalUnitNumber::default(),
        faults: Vec::new(),
    };
    let mut luns = probe.report_luns()?;
    luns.extend(besides);
    luns.sort_unstable();
    luns.dedup();
    let mut found = Vec::new();
    let mut failure = None;
    for lun in luns {
        match probe.peripheral(lun) {
            Ok(Some(peripheral)) => found.push(peripheral),
            Ok(None) => {}
            Err(error @ CamError::NotStarted(..)) => return Err(error),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    match failure {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// How queries are sent to one unit.
struct Probe<'a, P, C> {
    port: &'a mut P,
    clock: &'a C,
    scratch: &'a DmaRegion,
    token: u32,
    lun: LogicalUnitNumber,
    faults: Vec<Fault>,
}

impl<P: Port<Protocol = Scsi>, C: Clock> Probe<'_, P, C> {
    /// The units that REPORT LUNS lists; all possible ones if it does not answer.
    fn report_luns(&mut self) -> Result<Vec<LogicalUnitNumber>, CamError> {
        let select = SelectReport::LogicalUnits;
        let cdb = Cdb::ReportLuns { select, allocation_length: ANSWER_MAX.into() };
        for lun in [LogicalUnitNumber::default(), REPORT_LUNS_UNIT] {
            self.lun = lun;
            if let Ok(bytes) = self.ask_all("REPORT LUNS", &cdb, ANSWER_MAX)?
                && let Ok((list, _)) = luns::parse(&bytes)
            {
                return Ok(list.collect());
            }
        }
        Ok((0..FALLBACK_LUNS).map(LogicalUnitNumber::from_ufs).collect())
    }

    /// Everything about one unit; `None` if there is no such unit.
    fn peripheral(&mut self, lun: LogicalUnitNumber) -> Result<Option<Peripheral>, CamError> {
        self.lun = lun;
        self.faults.clear();
        let length = inquiry::LENGTH as u16;
        let cdb = Cdb::Inquiry { page: None, allocation_length: length };
        let bytes = match self.ask_all("INQUIRY", &cdb, length)? {
            Ok(bytes) => bytes,
            Err(Bad { ended: Ended::NoUnit, .. }) => return Ok(None),
            Err(bad) => return Err(CamError::command("INQUIRY", lun, bad.ended, &bad.failure)),
        };
        let inquiry = InquiryData::parse(&bytes).map_err(|cause| CamError::BadAnswer {
            name: "INQUIRY",
            lun,
            fault: "shorter than standard INQUIRY data",
            cause: Some(cause),
        })?;
        if inquiry.peripheral.qualifier() != Qualifier::Connected {
            return Ok(None);
        }
        let mut unit = Peripheral {
            lun,
            inquiry,
            pages: Vec::new(),
            serial_number: None,
            identifier: None,
            block_limits: None,
            characteristics: None,
            provisioning: None,
            ready: false,
            capacity: None,
            device_specific: DeviceSpecific::new(),
            caching: None,
            control: None,
            faults: Vec::new(),
        };
        self.vital_product_data(&mut unit)?;
        if unit.is_block_device() {
            unit.ready = self.test_unit_ready()?;
            unit.capacity = self.capacity()?;
            self.mode_pages(&mut unit)?;
        }
        unit.faults = core::mem::take(&mut self.faults);
        Ok(Some(unit))
    }

    fn vital_product_data(&mut self, unit: &mut Peripheral) -> Result<(), CamError> {
        if let Some(bytes) = self.page("VPD page 00", VpdPage::SupportedPages)? {
            unit.pages = vpd::supported_pages(&bytes).map(Iterator::collect).unwrap_or_default();
        }
        let has = |page| unit.pages.contains(&page);
        if has(VpdPage::UnitSerialNumber)
            && let Some(bytes) = self.page("VPD page 80", VpdPage::UnitSerialNumber)?
        {
            unit.serial_number = vpd::serial_number(&bytes).ok().map(|s| s.trim_ascii().to_vec());
        }
        if has(VpdPage::DeviceIdentification)
            && let Some(bytes) = self.page("VPD page 83", VpdPage::DeviceIdentification)?
        {
            unit.identifier = identifier(&bytes);
        }
        if has(VpdPage::BlockLimits)
            && let Some(bytes) = self.page("VPD page B0", VpdPage::BlockLimits)?
        {
            unit.block_limits = BlockLimits::parse(&bytes).ok();
        }
        if has(VpdPage::BlockDeviceCharacteristics)
            && let Some(bytes) = self.page("VPD page B1", VpdPage::BlockDeviceCharacteristics)?
        {
            unit.characteristics = BlockDeviceCharacteristics::parse(&bytes).ok();
        }
        if has(VpdPage::LogicalBlockProvisioning)
            && let Some(bytes) = self.page("VPD page B2", VpdPage::LogicalBlockProvisioning)?
        {
            unit.provisioning = LogicalBlockProvisioning::parse(&bytes).ok();
        }
        Ok(())
    }

    fn page(&mut self, name: &'static str, page: VpdPage) -> Result<Option<Vec<u8>>, CamError> {
        let page = Some(page.into_bits());
        self.ask(name, &Cdb::Inquiry { page, allocation_length: PAGE_MAX }, PAGE_MAX)
    }

    /// Repeats TEST UNIT READY until the unit is ready, or it is clear that it will not be soon.
    fn test_unit_ready(&mut self) -> Result<bool, CamError> {
        for _ in 0..READY_TRIES {
            let Err(bad) = self.ask_all("TEST UNIT READY", &Cdb::TestUnitReady, 0)? else {
                return Ok(true);
            };
            if bad.action() != Action::PollReady {
                self.note("TEST UNIT READY", &bad);
                return Ok(false);
            }
            let next = self.clock.now().after_nanos(READY_PAUSE_MS * 1_000_000);
            while self.clock.now() < next {
                self.clock.wait(Some(next));
            }
        }
        Ok(false)
    }

    fn capacity(&mut self) -> Result<Option<Capacity16>, CamError> {
        let length = Capacity16::LENGTH as u16;
        let cdb = Cdb::ReadCapacity16 { allocation_length: length.into() };
        if let Some(bytes) = self.ask("READ CAPACITY(16)", &cdb, length)?
            && let Ok(capacity) = Capacity16::parse(&bytes)
        {
            return Ok(Some(capacity));
        }
        let length = Capacity10::LENGTH as u16;
        let Some(bytes) = self.ask("READ CAPACITY(10)", &Cdb::ReadCapacity10, length)? else {
            return Ok(None);
        };
        let Some(bytes) = bytes.first_chunk() else { return Ok(None) };
        let short = Capacity10::parse(bytes);
        // All ones would mean "ask the long form", which did not answer.
        Ok((short.last_lba != u32::MAX).then(|| Capacity16 {
            last_lba: short.last_lba.into(),
            block_length: short.block_length,
            ..Capacity16::default()
        }))
    }

    fn mode_pages(&mut self, unit: &mut Peripheral) -> Result<(), CamError> {
        for page in [ModePage::Caching, ModePage::Control] {
            let name = match page {
                ModePage::Caching => "MODE SENSE(10) caching page",
                _ => "MODE SENSE(10) control page",
            };
            let sense = ModeSense {
                page: page.into_bits(),
                subpage: 0,
                control: PageControl::Current,
                dbd: true,
                llbaa: false,
                allocation_length: PAGE_MAX,
            };
            let Some(bytes) = self.ask(name, &Cdb::ModeSense10(sense), PAGE_MAX)? else { continue };
            let Ok(view) = ModeView::sense_10(&bytes) else { continue };
            unit.device_specific = view.header.device_specific;
            for page in view.pages() {
                match page.page {
                    ModePage::Caching => unit.caching = Caching::parse(&page).ok(),
                    ModePage::Control => unit.control = Control::parse(&page).ok(),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Sends a query; if there is no answer, only notes that.
    fn ask(
        &mut self,
        name: &'static str,
        cdb: &Cdb,
        length: u16,
    ) -> Result<Option<Vec<u8>>, CamError> {
        match self.ask_all(name, cdb, length)? {
            Ok(bytes) => Ok(Some(bytes)),
            Err(bad) => {
                self.note(name, &bad);
                Ok(None)
            }
        }
    }

    fn note(&mut self, name: &'static str, bad: &Bad) {
        let cause = sense::parse(&bad.failure.status.sense).map(|sense| sense::cause(&sense));
        self.faults.push(Fault { name, ended: bad.ended, cause });
    }

    /// Sends a query, again after a unit attention or a temporary failure; returns the answer, or
    /// how the last attempt ended if there is none.
    fn ask_all(
        &mut self,
        name: &'static str,
        cdb: &Cdb,
        length: u16,
    ) -> Result<Result<Vec<u8>, Bad>, CamError> {
        let mut tries = 1;
        loop {
            let Some(bad) = self.put(name, cdb, length)? else {
                return Ok(Ok(self.answer(0, length)));
            };
            match bad.action() {
                Action::Succeed => return Ok(Ok(self.answer(bad.failure.residual, length))),
                Action::Fail | Action::PollReady => return Ok(Err(bad)),
                _ if tries >= TRIES => return Ok(Err(bad)),
                _ => tries += 1,
            }
        }
    }

    /// Sends a query once; returns how it ended, if not with plain success.
    fn put(&mut self, name: &'static str, cdb: &Cdb, length: u16) -> Result<Option<Bad>, CamError> {
        let empty = length == 0;
        self.scratch.fill(0, usize::from(length), 0);
        self.token = self.token.wrapping_add(1);
        let data = self.scratch.slice(0, length.into());
        let command = Command {
            unit: self.lun.to_bits(),
            payload: cdb.to_bytes().into(),
            direction: if empty { Direction::None } else { Direction::FromDevice },
            data: if empty { Data::NONE } else { Data::One(data) },
            crypto: None,
            ordering: Ordering::Simple,
            deadline: self.clock.now().after_nanos(TIMEOUT_MS * 1_000_000),
            token: Token::new(self.token),
        };
        let outcome = run(self.port, self.clock, command);
        let ended = outcome.map_err(|why| CamError::NotStarted(name, why))?.ended;
        Ok((ended != Ended::Good).then(|| Bad { ended, failure: self.port.failure() }))
    }

    /// The bytes received. A device may send fewer than requested and say so; missing bytes are
    /// zero, and every structure contains its own length.
    fn answer(&self, residual: u32, length: u16) -> Vec<u8> {
        let residual = usize::try_from(residual).unwrap_or(usize::MAX);
        let mut bytes = alloc::vec![0; usize::from(length).saturating_sub(residual)];
        self.scratch.read(0, &mut bytes);
        bytes
    }
}

/// An end other than plain success.
struct Bad {
    ended: Ended,
    failure: Failure<Scsi>,
}

impl Bad {
    /// What it means for a query; a short answer is an answer too.
    fn action(&self) -> Action {
        Scsi::verdict(self.ended, &self.failure, false).action
    }
}

/// The most specific designator of the unit itself: NAA, EUI-64, T10, vendor's, in this order.
fn identifier(page: &[u8]) -> Option<Vec<u8>> {
    let rank = |designator: DesignatorType| match designator {
        DesignatorType::Naa => 4,
        DesignatorType::Eui64 => 3,
        DesignatorType::T10VendorId => 2,
        DesignatorType::VendorSpecific => 1,
        _ => 0,
    };
    let best = vpd::designators(page)
        .ok()?
        .filter(|d| d.association == Association::LogicalUnit && rank(d.designator_type) > 0)
        .max_by_key(|d| rank(d.designator_type))?;
    Some(best.identifier[..best.identifier.len().min(IDENTIFIER_MAX)].to_vec())
}
