//! What the units report about themselves: INQUIRY, capacity, mode pages, the list of units.

use flysch_wire::scsi::capacity::{Capacity10, Capacity16};
use flysch_wire::scsi::cdb::{ModeSelect, ModeSense, PageControl, SelectReport};
use flysch_wire::scsi::inquiry::{DeviceType, InquiryData, Peripheral, Qualifier};
use flysch_wire::scsi::luns;
use flysch_wire::scsi::mode::{
    Caching, CachingFlags, Control, DeviceSpecific, ModeHeader, ModePage, ModeView, PageView,
    ReadWriteErrorRecovery, RecoveryFlags,
};
use flysch_wire::scsi::vpd::{
    self, Association, BlockDeviceCharacteristics, BlockLimits, CodeSet, Designator,
    DesignatorType, LogicalBlockProvisioning, VpdPage,
};
use flysch_wire::scsi::{AdditionalSense, LogicalUnitNumber, Text};
use flysch_wire::ufs::descriptor::ProvisioningType;
use flysch_wire::ufs::upiu::Wlun;

use super::control::UNMAP_RANGES_MAX;
use super::descriptors::{MODEL, VENDOR};
use super::device::Device;
use super::lu::{LogicalUnits, Unit};
use super::sense::Sense;

/// Minimum allocation length of REPORT LUNS (SPC-6 6.32).
const REPORT_LUNS_MIN: u32 = 16;
/// MEDIUM ROTATION RATE of a medium that does not rotate.
const NON_ROTATING: u16 = 1;
/// Maximum length of mode data: header and three pages.
const MODE_DATA_MAX: usize =
    ModeHeader::LENGTH_10 + ReadWriteErrorRecovery::LENGTH + Caching::LENGTH + Control::LENGTH;

/// Copies `bytes` to the start of `data`; returns their length.
fn put(bytes: &[u8], data: &mut [u8]) -> usize {
    data[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}

/// What a unit of a device reports about itself, or the device about all of them.
pub(super) struct Pages<'a> {
    pub(super) device: &'a Device,
    pub(super) lun: u8,
}

impl Pages<'_> {
    fn peripheral(&self) -> Peripheral {
        match Wlun::from_bits(self.lun) {
            Wlun::Unknown(_) if self.device.units.get(self.lun).is_some() => {
                Peripheral::new().with_device_type(DeviceType::Block)
            }
            Wlun::Unknown(_) => Peripheral::new()
                .with_device_type(DeviceType::None)
                .with_qualifier(Qualifier::NotSupported),
            _ => Peripheral::new().with_device_type(DeviceType::WellKnown),
        }
    }

    /// Standard INQUIRY data.
    pub(super) fn inquiry(&self, data: &mut [u8]) -> usize {
        let mut inquiry = InquiryData::ufs(
            DeviceType::Block,
            Text::new(VENDOR),
            Text::new(MODEL),
            Text::new(self.device.firmware.revision()),
        );
        inquiry.peripheral = self.peripheral();
        let mut bytes = [0; flysch_wire::scsi::inquiry::LENGTH];
        inquiry.emit(&mut bytes);
        put(&bytes, data)
    }

    /// A vital product data page.
    pub(super) fn vital_product_data(&self, page: u8, data: &mut [u8]) -> Result<usize, Sense> {
        let peripheral = self.peripheral();
        let page = VpdPage::from_bits(page);
        let unit = self.device.units.get(self.lun);
        let no_such_page = Sense::field(2);
        let emit = |payload: &[u8], data: &mut [u8]| {
            vpd::emit_page(peripheral, page, payload, data).ok_or(no_such_page)
        };
        match (page, unit) {
            (VpdPage::SupportedPages, Some(_)) => {
                emit(&[0x00, 0x80, 0x83, 0x87, 0xB0, 0xB1, 0xB2], data)
            }
            (VpdPage::SupportedPages, None) => emit(&[0x00, 0x80, 0x83, 0x87], data),
            (VpdPage::UnitSerialNumber, _) => emit(self.device.build.serial.as_bytes(), data),
            (VpdPage::DeviceIdentification, _) => {
                let mut payload = [0; 255];
                let len = self.identification(&mut payload).ok_or(no_such_page)?;
                emit(&payload[..len], data)
            }
            // All mode pages are shared by all initiators (SPC-6 7.7.6).
            (VpdPage::ModePagePolicy, _) => emit(&[0x3F, 0xFF, 0x00, 0x00], data),
            (VpdPage::BlockLimits, Some(unit)) => Ok(self.block_limits(peripheral, unit, data)),
            (VpdPage::BlockDeviceCharacteristics, Some(_)) => {
                let mut bytes = [0; BlockDeviceCharacteristics::LENGTH];
                BlockDeviceCharacteristics {
                    peripheral,
                    rotation_rate: NON_ROTATING,
                    fuab: true,
                    ..BlockDeviceCharacteristics::default()
                }
                .emit(&mut bytes);
                Ok(put(&bytes, data))
            }
            (VpdPage::LogicalBlockProvisioning, Some(unit)) => {
                let mut bytes = [0; LogicalBlockProvisioning::LENGTH];
                let thin = unit.provisioning != ProvisioningType::Full;
                LogicalBlockProvisioning {
                    peripheral,
                    lbpu: thin,
                    lbprz: u8::from(unit.provisioning == ProvisioningType::ThinErase),
                    provisioning_type: if thin { 2 } else { 0 },
                    ..LogicalBlockProvisioning::default()
                }
                .emit(&mut bytes);
                Ok(put(&bytes, data))
            }
            _ => Err(no_such_page),
        }
    }

    /// Page 83: a T10 vendor designator of the unit, made from serial number and LUN.
    fn identification(&self, payload: &mut [u8]) -> Option<usize> {
        let mut identifier = [b' '; 64];
        let text = [VENDOR.as_bytes(), self.device.build.serial.as_bytes()];
        identifier[..VENDOR.len()].copy_from_slice(text[0]);
        let serial = &text[1][..text[1].len().min(48)];
        identifier[8..][..serial.len()].copy_from_slice(serial);
        let end = 8 + serial.len();
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        identifier[end] = b'-';
        identifier[end + 1] = DIGITS[usize::from(self.lun >> 4)];
        identifier[end + 2] = DIGITS[usize::from(self.lun & 0xF)];
        let designator = Designator {
            code_set: CodeSet::Ascii,
            association: Association::LogicalUnit,
            designator_type: DesignatorType::T10VendorId,
            identifier: &identifier[..end + 3],
        };
        designator.emit(payload)
    }

    fn block_limits(&self, peripheral: Peripheral, unit: &Unit, data: &mut [u8]) -> usize {
        let thin = unit.provisioning != ProvisioningType::Full;
        let mut bytes = [0; BlockLimits::LENGTH];
        BlockLimits {
            peripheral,
            optimal_granularity: 1,
            transfer_max: self.device.build.transfer_max >> unit.block_shift,
            optimal_transfer: (512 << 10) >> unit.block_shift,
            unmap_lba_max: if thin { u32::MAX } else { 0 },
            unmap_descriptors_max: if thin { UNMAP_RANGES_MAX as u32 } else { 0 },
            unmap_granularity: u32::from(thin),
            unmap_alignment: thin.then_some(0),
            ..BlockLimits::default()
        }
        .emit(&mut bytes);
        put(&bytes, data)
    }

    /// READ CAPACITY(10) data.
    pub(super) fn capacity_10(&self, data: &mut [u8]) -> usize {
        let (blocks, shift) =
            self.device.units.get(self.lun).map_or((1, 0), |unit| (unit.blocks, unit.block_shift));
        let mut bytes = [0; Capacity10::LENGTH];
        Capacity10 {
            last_lba: u32::try_from(blocks - 1).unwrap_or(u32::MAX),
            block_length: 1 << shift,
        }
        .emit(&mut bytes);
        put(&bytes, data)
    }

    /// READ CAPACITY(16) data.
    pub(super) fn capacity_16(&self, data: &mut [u8]) -> usize {
        let Some(unit) = self.device.units.get(self.lun) else { return 0 };
        let mut bytes = [0; Capacity16::LENGTH];
        Capacity16 {
            last_lba: unit.blocks - 1,
            block_length: 1 << unit.block_shift,
            lbpme: unit.provisioning != ProvisioningType::Full,
            lbprz: unit.provisioning == ProvisioningType::ThinErase,
            ..Capacity16::default()
        }
        .emit(&mut bytes);
        put(&bytes, data)
    }

    /// REPORT LUNS data.
    pub(super) fn report_luns(
        &self,
        select: SelectReport,
        allocation_length: u32,
        data: &mut [u8],
    ) -> Result<usize, Sense> {
        if allocation_length < REPORT_LUNS_MIN {
            return Err(Sense::field(6));
        }
        let (units, well_known) = match select {
            SelectReport::LogicalUnits => (true, false),
            SelectReport::WellKnown => (false, true),
            SelectReport::All => (true, true),
            SelectReport::Unknown(_) => return Err(Sense::field(2)),
        };
        let present =
            self.device.units.list.iter().zip(0_u8..).filter(|(unit, _)| unit.is_some() && units);
        let known = Wlun::ALL.iter().filter(|_| well_known).map(|wlun| wlun.into_bits());
        let all = present.map(|(_, lun)| lun).chain(known).map(LogicalUnitNumber::from_ufs);
        Ok(luns::emit(all, data))
    }

    /// MODE SENSE data, truncated to the allocation length.
    pub(super) fn mode_sense(
        &self,
        command: &ModeSense,
        six: bool,
        data: &mut [u8],
    ) -> Result<usize, Sense> {
        if command.control == PageControl::Saved {
            return Err(Sense::illegal(AdditionalSense::SavingParametersNotSupported));
        }
        let wanted = ModePage::from_bits(command.page);
        let known =
            [ModePage::ReadWriteErrorRecovery, ModePage::Caching, ModePage::Control, ModePage::All];
        if !known.contains(&wanted) {
            return Err(Sense::field(2));
        }
        if command.subpage != 0 && command.subpage != 0xFF {
            return Err(Sense::field(3));
        }
        let unit = self.device.units.get(self.lun).ok_or(Sense::field(2))?;
        let start = if six { ModeHeader::LENGTH_6 } else { ModeHeader::LENGTH_10 };
        let mut bytes = [0; MODE_DATA_MAX];
        let mut len = start;
        for page in &known[..3] {
            if wanted == *page || wanted == ModePage::All {
                len += emit_page(*page, unit, command.control, &mut bytes[len..]);
            }
        }
        let protected = unit.write_refusal(&self.device.parameters).is_some();
        let header = ModeHeader {
            data_length: (len - if six { 1 } else { 2 }) as u16,
            device_specific: DeviceSpecific::new().with_dpofua(true).with_wp(protected),
            ..ModeHeader::default()
        };
        if six {
            header.emit_6(bytes.first_chunk_mut().expect("longer than a header"));
        } else {
            header.emit_10(bytes.first_chunk_mut().expect("longer than a header"));
        }
        let len = len.min(usize::from(command.allocation_length));
        Ok(put(&bytes[..len], data))
    }
}

impl LogicalUnits {
    /// MODE SELECT.
    pub(super) fn mode_select(
        &mut self,
        lun: u8,
        command: &ModeSelect,
        six: bool,
        list: &[u8],
    ) -> Result<(), Sense> {
        if !command.pf || command.sp {
            return Err(Sense::field(1));
        }
        if list.is_empty() {
            return Ok(());
        }
        let short = Sense::illegal(AdditionalSense::ParameterListLengthError);
        let wrong = Sense::illegal(AdditionalSense::InvalidFieldInParameterList);
        let view = if six { ModeView::select_6(list) } else { ModeView::select_10(list) };
        let view = view.map_err(|_| short)?;
        if !view.block_descriptors().is_empty() {
            return Err(wrong);
        }
        if !view.trailing().is_empty() {
            return Err(short);
        }
        let unit = self.get(lun).ok_or(wrong)?;
        let (mut cache, mut protected) = (unit.write_cache, unit.software_protected);
        for page in view.pages() {
            select_page(&page, unit, &mut cache, &mut protected).ok_or(wrong)?;
        }
        let unit = self.get_mut(lun).ok_or(wrong)?;
        (unit.write_cache, unit.software_protected) = (cache, protected);
        Ok(())
    }
}

/// The pages of a unit with their values, or as a mask of what can be changed.
fn recovery_page(control: PageControl) -> ReadWriteErrorRecovery {
    match control {
        PageControl::Changeable => ReadWriteErrorRecovery::default(),
        _ => ReadWriteErrorRecovery {
            flags: RecoveryFlags::new().with_awre(true).with_arre(true),
            ..ReadWriteErrorRecovery::default()
        },
    }
}

fn caching_page(control: PageControl, write_cache: bool) -> Caching {
    let wce = match control {
        PageControl::Current => write_cache,
        _ => true,
    };
    Caching { flags: CachingFlags::new().with_wce(wce), ..Caching::default() }
}

fn control_page(control: PageControl, protected: bool) -> Control {
    let changeable = control == PageControl::Changeable;
    Control {
        queue_algorithm_modifier: if changeable { 0 } else { 1 },
        swp: match control {
            PageControl::Current => protected,
            _ => changeable,
        },
        ..Control::default()
    }
}

fn emit_page(page: ModePage, unit: &Unit, control: PageControl, data: &mut [u8]) -> usize {
    match page {
        ModePage::ReadWriteErrorRecovery => {
            let mut bytes = [0; ReadWriteErrorRecovery::LENGTH];
            recovery_page(control).emit(&mut bytes);
            put(&bytes, data)
        }
        ModePage::Caching => {
            let mut bytes = [0; Caching::LENGTH];
            caching_page(control, unit.write_cache).emit(&mut bytes);
            put(&bytes, data)
        }
        _ => {
            let mut bytes = [0; Control::LENGTH];
            control_page(control, unit.software_protected).emit(&mut bytes);
            put(&bytes, data)
        }
    }
}

/// Takes a page from a MODE SELECT: only WCE and SWP may differ from the current values.
fn select_page(
    page: &PageView<'_>,
    unit: &Unit,
    cache: &mut bool,
    protected: &mut bool,
) -> Option<()> {
    match page.page {
        ModePage::ReadWriteErrorRecovery => {
            let asked = ReadWriteErrorRecovery::parse(page).ok()?;
            let same = recovery_page(PageControl::Current);
            (ReadWriteErrorRecovery { savable: false, ..asked } == same).then_some(())
        }
        ModePage::Caching => {
            let asked = Caching::parse(page).ok()?;
            let same = caching_page(PageControl::Current, asked.flags.wce());
            *cache = asked.flags.wce();
            (asked.flags == same.flags).then_some(())
        }
        ModePage::Control => {
            let asked = Control::parse(page).ok()?;
            let same = Control {
                swp: asked.swp,
                ..control_page(PageControl::Current, unit.software_protected)
            };
            *protected = asked.swp;
            (Control { savable: false, ..asked } == same).then_some(())
        }
        ModePage::All | ModePage::Unknown(_) => None,
    }
}
