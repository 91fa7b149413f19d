//! The device as seen by a host: queries, SCSI, protection, power, RPMB.

use crate::host::Host;
use flysch_api::machine::{Clock, Instant};
use flysch_models::store::{FileStore, Store};
use flysch_models::ufs::config::{Provisioning, WriteProtect};
use flysch_models::ufs::{Config, UnitConfig};
use flysch_wire::scsi::capacity::Capacity16;
use flysch_wire::scsi::cdb::{PowerCondition, SelectReport, StartStop};
use flysch_wire::scsi::inquiry::{InquiryData, Qualifier};
use flysch_wire::scsi::unmap::{self, UnmapRange};
use flysch_wire::scsi::{Cdb, luns, vpd};
use flysch_wire::ufs::descriptor::{
    ConfigurationLayout, ConfigurationView, DeviceDescriptor, GeometryDescriptor, StringDescriptor,
    UnitDescriptor,
};
use flysch_wire::ufs::query::{AttributeId, FlagId, QueryOpcode, QueryResult};
use flysch_wire::ufs::registers::{self as reg, Ahit};
use flysch_wire::ufs::rpmb::{RpmbFrame, RpmbMessage, RpmbStatus};
use flysch_wire::ufs::upiu::QueryFields;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

const D0: u8 = 0xD0;
const RPMB: u8 = 0xC4;

fn small() -> Config {
    Config {
        units: vec![Some(UnitConfig::memory(64 << 20))],
        write_booster: 64 << 20,
        ..Config::default()
    }
}

fn up(config: Config) -> Host {
    Host::up(config, 1 << 20, 0)
}

fn attribute(host: &mut Host, id: AttributeId) -> u64 {
    let fields = QueryFields::read_attribute(id.into_bits(), 0, 0);
    let (result, fields, _) = host.query(fields, &[]);
    assert_eq!(result, QueryResult::Success, "{id}");
    u64::from(fields.value32())
}

fn set_attribute(host: &mut Host, id: AttributeId, value: u64) -> QueryResult {
    host.query(QueryFields::write_attribute(id.into_bits(), 0, 0, value), &[]).0
}

fn flag(host: &mut Host, opcode: QueryOpcode, id: FlagId) -> (QueryResult, bool) {
    let (result, fields, _) = host.query(QueryFields::flag(opcode, id.into_bits(), 0, 0), &[]);
    (result, fields.flag_value())
}

fn descriptor(host: &mut Host, idn: u8, index: u8) -> Vec<u8> {
    let fields = QueryFields::read_descriptor(idn, index, 0, 255);
    let (result, fields, data) = host.query(fields, &[]);
    assert_eq!(result, QueryResult::Success, "descriptor {idn} index {index}");
    assert_eq!(usize::from(fields.length()), data.len());
    data
}

#[test]
fn descriptors_say_what_the_device_is() {
    for (specification, geometry_length) in [(0x0310, 0x57), (0x0400, 0x57), (0x0410, 0x69)] {
        let mut host = up(Config { specification, ..small() });
        let device = DeviceDescriptor::parse(&descriptor(&mut host, 0, 0)).unwrap();
        assert_eq!((device.w_spec_version, device.b_number_lu), (specification, 1));
        let geometry = descriptor(&mut host, 7, 0);
        assert_eq!(geometry.len(), geometry_length);
        let geometry = GeometryDescriptor::parse(&geometry).unwrap();
        assert_eq!(geometry.q_total_raw_device_capacity * 512, 64 << 20);
        assert_eq!(geometry.allocation_unit_bytes(), 4 << 20);
        let unit = UnitDescriptor::parse(&descriptor(&mut host, 2, 0)).unwrap();
        assert_eq!(unit.q_logical_block_count, 64 << 8);
        assert_eq!(UnitDescriptor::parse(&descriptor(&mut host, 2, 9)).unwrap().b_lu_enable, 0);
        assert_eq!(descriptor(&mut host, 2, RPMB)[2], RPMB);
        let serial = descriptor(&mut host, 5, device.i_serial_number);
        let serial = StringDescriptor::parse(&serial).unwrap();
        assert_eq!(serial.to_string(), "FLYSCH0000000001");
        for idn in [4, 8, 9] {
            assert_eq!(descriptor(&mut host, idn, 0)[1], idn);
        }
        // A short read returns the first bytes.
        let (_, _, head) = host.query(QueryFields::read_descriptor(0, 0, 0, 2), &[]);
        assert_eq!(head, [0x59, 0]);
    }
}

#[test]
fn queries_are_refused_for_the_right_reason() {
    use QueryOpcode::*;
    use QueryResult::*;
    let mut host = up(Config { specification: 0x0310, ..small() });
    let cases = [
        (QueryFields::read_descriptor(3, 0, 0, 255), InvalidIdn),
        (QueryFields::read_descriptor(0, 1, 0, 255), InvalidIndex),
        (QueryFields::read_descriptor(2, 32, 0, 255), InvalidIndex),
        (QueryFields::read_descriptor(0, 0, 1, 255), InvalidSelector),
        (QueryFields::read_attribute(0xF0, 0, 0), InvalidIdn),
        // qTimestamp belongs to UFS 4.0, dSecondsPassed is write-only.
        (QueryFields::write_attribute(0x30, 0, 0, 1), InvalidIdn),
        (QueryFields::read_attribute(0x0F, 0, 0), ParameterNotReadable),
        (QueryFields::write_attribute(0x02, 0, 0, 1), ParameterNotWriteable),
        (QueryFields::write_attribute(0x03, 0, 0, 16), InvalidValue),
        (QueryFields::write_attribute(0x0D, 0, 0, 0x1_0001), InvalidValue),
        (QueryFields::read_attribute(0x10, 0, 16), InvalidSelector),
        (QueryFields::read_attribute(0x10, 32, 1), InvalidIndex),
        (QueryFields::flag(ReadFlag, 0x20, 0, 0), InvalidIdn),
        (QueryFields::flag(ClearFlag, 0x01, 0, 0), ParameterNotWriteable),
        (QueryFields::flag(ReadFlag, 0x06, 0, 0), ParameterNotReadable),
        (QueryFields::flag(SetFlag, 0x09, 0, 0), ParameterNotWriteable),
        (QueryFields::flag(ReadFlag, 0x0E, 1, 0), InvalidIndex),
        (QueryFields::flag(ReadAggregated, 0, 0, 0), InvalidOpcode),
    ];
    for (fields, expected) in cases {
        assert_eq!(host.query(fields, &[]).0, expected, "{fields:?}");
    }
    let write = QueryFields::write_descriptor(0, 0, 0, 4);
    assert_eq!(host.query(write, &[0; 4]).0, ParameterNotWriteable);
    let write = QueryFields::write_descriptor(1, 0, 0, 4);
    assert_eq!(host.query(write, &[0; 4]).0, InvalidLength);
}

#[test]
fn write_once_stays_and_volatile_goes() {
    let mut host = up(small());
    let once = AttributeId::OutOfOrderDataEn;
    assert_eq!(set_attribute(&mut host, once, 1), QueryResult::Success);
    assert_eq!(set_attribute(&mut host, once, 0), QueryResult::ParameterAlreadyWritten);
    assert_eq!(set_attribute(&mut host, AttributeId::RefClkFreq, 2), QueryResult::Success);
    let control = AttributeId::ExceptionEventControl;
    assert_eq!(set_attribute(&mut host, control, 0x25), QueryResult::Success);
    let (set, _) = flag(&mut host, QueryOpcode::SetFlag, FlagId::PowerOnWpEn);
    assert_eq!(set, QueryResult::Success);
    let (again, _) = flag(&mut host, QueryOpcode::ClearFlag, FlagId::PowerOnWpEn);
    assert_eq!(again, QueryResult::ParameterAlreadyWritten);
    host.start(0);
    assert_eq!(attribute(&mut host, control), 0, "volatile");
    assert!(flag(&mut host, QueryOpcode::ReadFlag, FlagId::PowerOnWpEn).1, "until power goes");
    power_cycle(&mut host);
    assert!(!flag(&mut host, QueryOpcode::ReadFlag, FlagId::PowerOnWpEn).1);
    assert_eq!(attribute(&mut host, AttributeId::RefClkFreq), 2, "persistent");
    assert_eq!(set_attribute(&mut host, once, 0), QueryResult::ParameterAlreadyWritten);
    let (toggled, value) = flag(&mut host, QueryOpcode::ToggleFlag, FlagId::WriteBoosterEn);
    assert_eq!((toggled, value), (QueryResult::Success, true));
}

fn power_cycle(host: &mut Host) {
    host.machine.with_model(|ufs| ufs.cut_power().unwrap());
    host.sleep_us(1000);
    host.machine.with_model(|ufs| ufs.restore_power());
    host.start(0);
}

#[test]
fn a_new_configuration_takes_effect_at_the_next_power_cycle() {
    let mut host = up(small());
    let data = vec![0x42; 4096];
    assert_eq!(host.command_out(0, &Host::write10(0, 1), &data).status, 0);
    let layout = ConfigurationLayout::UFS_3_1;
    let old = descriptor(&mut host, 1, 0);
    let view = ConfigurationView::new(&old, layout).unwrap();
    let mut units: Vec<_> = view.units().collect();
    units[1] = units[0];
    units[0].d_num_alloc_units = 10;
    units[1].d_num_alloc_units = 7;
    let write = |host: &mut Host, units: &[_]| {
        let mut bytes = vec![0; layout.length()];
        layout.emit(&view.header(), units.try_into().unwrap(), &mut bytes).unwrap();
        host.query(QueryFields::write_descriptor(1, 0, 0, bytes.len() as u16), &bytes).0
    };
    assert_eq!(write(&mut host, &units), QueryResult::InvalidValue, "17 of 16 units");
    units[1].d_num_alloc_units = 6;
    assert_eq!(write(&mut host, &units), QueryResult::Success);
    let (end, back) = host.command_in(0, &Host::read10(0, 1), 4096);
    assert!(end.status == 0 && back == data, "not yet");
    power_cycle(&mut host);
    host.clear_attentions();
    let unit = UnitDescriptor::parse(&descriptor(&mut host, 2, 1)).unwrap();
    assert_eq!((unit.b_lu_enable, unit.q_logical_block_count), (1, 6 << 10));
    let (end, back) = host.command_in(0, &Host::read10(0, 1), 4096);
    assert!(end.status == 0 && back == [0; 4096], "a unit of another size starts empty");
    let lock = set_attribute(&mut host, AttributeId::ConfigDescrLock, 1);
    assert_eq!(lock, QueryResult::Success);
    assert_eq!(write(&mut host, &units), QueryResult::ParameterNotWriteable);
}

#[test]
fn a_reset_is_announced_once_by_every_unit() {
    let mut host = Host::cold(small(), 1 << 20);
    host.start(0);
    let tur = Cdb::TestUnitReady.to_bytes();
    let (end, _) =
        host.command_in(0, &Cdb::Inquiry { page: None, allocation_length: 36 }.to_bytes(), 36);
    assert_eq!(end.status, 0, "INQUIRY does not tell");
    for lun in [0, D0, RPMB] {
        let (end, _) = host.command_in(lun, &tur, 0);
        assert_eq!((end.status, end.key()), (2, (6, 0x29, 0)), "{lun:#x}");
        assert_eq!(host.command_in(lun, &tur, 0).0.status, 0, "{lun:#x}");
    }
    // A controller reset and a new link start-up reset the device again.
    host.start(0);
    assert_eq!(host.command_in(0, &tur, 0).0.key(), (6, 0x29, 0));
}

#[test]
fn units_answer_only_after_initialisation() {
    let mut host = Host::cold(small(), 1 << 20);
    host.enable();
    host.link_startup();
    host.lists(0);
    host.nop();
    let (end, _) = host.command_in(0, &Cdb::TestUnitReady.to_bytes(), 0);
    assert_eq!(end.key(), (6, 0x29, 0x00));
    let (end, _) = host.command_in(0, &Host::read10(0, 1), 4096);
    assert_eq!(end.key(), (2, 0x04, 0x01));
    let before = host.now();
    host.init_device();
    assert!(host.now().nanos_since(before) >= 20_000_000, "fDeviceInit takes its time");
    assert_eq!(host.command_in(0, &Host::read10(0, 1), 4096).0.status, 0);
}

#[test]
fn inquiry_and_capacity() {
    let mut host = up(small());
    let inquiry = Cdb::Inquiry { page: None, allocation_length: 36 }.to_bytes();
    let (_, data) = host.command_in(0, &inquiry, 36);
    assert_eq!(InquiryData::parse(&data).unwrap().vendor.to_string(), "FLYSCH");
    let (_, data) = host.command_in(5, &inquiry, 36);
    let qualifier = InquiryData::parse(&data).unwrap().peripheral.qualifier();
    assert_eq!(qualifier, Qualifier::NotSupported);
    let (_, data) = host.command_in(D0, &inquiry, 36);
    assert_eq!(data[0], 0x1E);
    let page = |page| Cdb::Inquiry { page: Some(page), allocation_length: 255 }.to_bytes();
    let (_, pages) = host.command_in(0, &page(0), 255);
    for code in vpd::supported_pages(&pages).unwrap() {
        let (end, data) = host.command_in(0, &page(code.into_bits()), 255);
        assert_eq!((end.status, data[1]), (0, code.into_bits()));
    }
    assert_eq!(host.command_in(0, &page(0xCC), 255).0.key(), (5, 0x24, 0));
    let (_, limits) = host.command_in(0, &page(0xB0), 255);
    assert_eq!(vpd::BlockLimits::parse(&limits).unwrap().unmap_descriptors_max, 64);
    let capacity = Cdb::ReadCapacity16 { allocation_length: 32 }.to_bytes();
    let (end, data) = host.command_in(0, &capacity, 32);
    assert_eq!((end.status, end.residual), (0, 0));
    let capacity = Capacity16::parse(&data).unwrap();
    assert_eq!((capacity.last_lba, capacity.block_length), ((64 << 8) - 1, 4096));
    assert!(capacity.lbpme && capacity.lbprz);
    let (end, data) = host.command_in(0, &Cdb::ReadCapacity10.to_bytes(), 64);
    assert_eq!((end.residual, data.len()), (56, 8), "a short answer has a residual");
    let (end, _) = host.command_in(7, &Host::read10(0, 1), 4096);
    assert_eq!(end.key(), (5, 0x25, 0));
    assert_eq!(host.command_in(0, &[0x41; 10], 0).0.key(), (5, 0x20, 0));
}

/// Smaller blocks than JESD220 has: everything counted in blocks is counted in those, and a device
/// without them cannot be configured to have any.
#[test]
fn blocks_of_a_sector_are_a_device_that_says_so() {
    let mut config = small();
    config.units = [512, 4096]
        .map(|block_size| Some(UnitConfig { block_size, ..UnitConfig::memory(32 << 20) }))
        .into();
    let mut host = up(config);
    let geometry = GeometryDescriptor::parse(&descriptor(&mut host, 7, 0)).unwrap();
    assert_eq!(geometry.b_min_addr_block_size, 1, "in units of 512 bytes");
    let unit = UnitDescriptor::parse(&descriptor(&mut host, 2, 0)).unwrap();
    assert_eq!((unit.b_logical_block_size, unit.q_logical_block_count), (9, 64 << 10));
    assert_eq!(unit.d_erase_block_size, 8192, "an allocation unit");
    for (lun, blocks, bytes) in [(0, 64 << 10, 512), (1, 8 << 10, 4096)] {
        let capacity = Cdb::ReadCapacity16 { allocation_length: 32 }.to_bytes();
        let capacity = Capacity16::parse(&host.command_in(lun, &capacity, 32).1).unwrap();
        assert_eq!((capacity.last_lba, capacity.block_length), (blocks - 1, bytes));
        let page = Cdb::Inquiry { page: Some(0xB0), allocation_length: 255 }.to_bytes();
        let limits = vpd::BlockLimits::parse(&host.command_in(lun, &page, 255).1).unwrap();
        assert_eq!(limits.transfer_max, (64 << 20) / bytes);
    }
    let content: Vec<u8> = (0..4096).map(|at| (at / 512 + 1) as u8).collect();
    assert_eq!(host.command_out(0, &Host::write10((64 << 10) - 8, 8), &content).status, 0);
    assert_eq!(host.command_out(0, &Host::write10((64 << 10) - 7, 1), &[9; 512]).status, 0);
    let range = UnmapRange { lba: (64 << 10) - 1, blocks: 1 };
    assert_eq!(unmap(&mut host, &[range]).status, 0);
    let (end, back) = host.command_in(0, &Host::read10((64 << 10) - 8, 8), 4096);
    let firsts: Vec<u8> = back.chunks(512).map(|block| block[511]).collect();
    assert_eq!((end.status, firsts), (0, vec![1, 9, 3, 4, 5, 6, 7, 0]));
    assert_eq!(host.command_in(0, &Host::read10(64 << 10, 1), 512).0.key(), (5, 0x21, 0));
    for (config, may) in [(small(), false), (sectors(), true)] {
        let mut host = up(config);
        let geometry = GeometryDescriptor::parse(&descriptor(&mut host, 7, 0)).unwrap();
        assert_eq!(geometry.b_min_addr_block_size, if may { 1 } else { 8 });
        let layout = ConfigurationLayout::UFS_3_1;
        let old = descriptor(&mut host, 1, 0);
        let view = ConfigurationView::new(&old, layout).unwrap();
        let mut units: Vec<_> = view.units().collect();
        units[0].b_logical_block_size = 9;
        let mut bytes = vec![0; layout.length()];
        layout.emit(&view.header(), units[..].try_into().unwrap(), &mut bytes).unwrap();
        let fields = QueryFields::write_descriptor(1, 0, 0, bytes.len() as u16);
        let taken = host.query(fields, &bytes).0 == QueryResult::Success;
        assert_eq!(taken, may);
    }
}

fn sectors() -> Config {
    let unit = UnitConfig { block_size: 512, ..UnitConfig::memory(64 << 20) };
    Config { units: vec![Some(unit)], ..small() }
}

#[test]
fn report_luns_lists_units_and_well_known_units() {
    let mut config = small();
    config.units = vec![Some(UnitConfig::memory(1 << 20)), None, Some(UnitConfig::memory(1 << 20))];
    let mut host = up(config);
    let ask = |host: &mut Host, select| {
        let cdb = Cdb::ReportLuns { select, allocation_length: 264 }.to_bytes();
        let (end, data) = host.command_in(0x81, &cdb, 264);
        assert_eq!(end.status, 0);
        luns::parse(&data).unwrap().0.filter_map(|lun| lun.to_ufs()).collect::<Vec<_>>()
    };
    assert_eq!(ask(&mut host, SelectReport::LogicalUnits), [0, 2]);
    assert_eq!(ask(&mut host, SelectReport::WellKnown), [0x81, 0xB0, RPMB, D0]);
    assert_eq!(ask(&mut host, SelectReport::All).len(), 6);
}

#[test]
fn accesses_stay_within_the_unit() {
    let mut host = up(small());
    let last = (64 << 8) - 1;
    assert_eq!(host.command_in(0, &Host::read10(last, 1), 4096).0.status, 0);
    for cdb in [Host::read10(last, 2), Host::read10(last + 1, 1), Host::read10(u32::MAX, 65535)] {
        let (end, _) = host.command_in(0, &cdb, 8192);
        assert_eq!((end.status, end.key()), (2, (5, 0x21, 0)));
        assert_eq!(end.residual, 8192);
    }
    let (end, _) = host.command_in(0, &Host::read10(0, 0), 0);
    assert_eq!((end.status, end.residual), (0, 0));
    // Expected length and blocks differ: what fits is moved, and the residual gives the rest.
    let (end, data) = host.command_in(0, &Host::read10(0, 1), 8192);
    assert_eq!((end.residual, data.len()), (4096, 4096));
    let (end, _) = host.command_in(0, &Host::read10(0, 2), 4096);
    assert_eq!(end.residual, -4096);
}

fn unmap(host: &mut Host, ranges: &[UnmapRange]) -> crate::host::End {
    let mut list = vec![0; unmap::length(ranges.len())];
    unmap::emit(ranges, &mut list).unwrap();
    let parameter_list_length = list.len() as u16;
    let cdb = Cdb::Unmap { anchor: false, group: 0, parameter_list_length }.to_bytes();
    host.command_out(0, &cdb, &list)
}

#[test]
fn unmapped_blocks_read_as_zero() {
    let mut host = up(small());
    assert_eq!(host.command_out(0, &Host::write10(8, 4), &[7; 4 * 4096]).status, 0);
    let ranges = [UnmapRange { lba: 9, blocks: 1 }, UnmapRange { lba: 11, blocks: 100 }];
    assert_eq!(unmap(&mut host, &ranges).status, 0);
    let (_, data) = host.command_in(0, &Host::read10(8, 4), 4 * 4096);
    let blocks: Vec<u8> = data.chunks(4096).map(|block| block[4095]).collect();
    assert_eq!(blocks, [7, 0, 7, 0]);
    let beyond = UnmapRange { lba: 64 << 8, blocks: 1 };
    assert_eq!(unmap(&mut host, &[ranges[0], beyond]).key(), (5, 0x21, 0));
    let many = [UnmapRange::default(); 65];
    assert_eq!(unmap(&mut host, &many).key(), (5, 0x26, 0));
    let mut config = small();
    config.units[0].as_mut().unwrap().provisioning = Provisioning::Full;
    assert_eq!(unmap(&mut up(config), &ranges).key(), (5, 0x20, 0));
}

#[test]
fn write_protection_by_flag_and_by_mode_page() {
    let mut config = small();
    config.units[0].as_mut().unwrap().write_protect = WriteProtect::PowerOn;
    let mut host = up(config);
    let write = |host: &mut Host| host.command_out(0, &Host::write10(0, 1), &[1; 4096]);
    assert_eq!(write(&mut host).status, 0);
    flag(&mut host, QueryOpcode::SetFlag, FlagId::PowerOnWpEn);
    assert_eq!(write(&mut host).key(), (7, 0x27, 0));
    assert_eq!(unmap(&mut host, &[UnmapRange { lba: 0, blocks: 1 }]).key(), (7, 0x27, 0));
    let (_, mode) = host.command_in(0, &[0x5A, 0, 0x0A, 0, 0, 0, 0, 0, 64, 0], 64);
    assert_eq!(mode[3] & 0x80, 0x80, "WP in the mode header");
    power_cycle(&mut host);
    host.clear_attentions();
    assert_eq!(write(&mut host).status, 0);
    let (_, mut mode) = host.command_in(0, &[0x5A, 0, 0x0A, 0, 0, 0, 0, 0, 64, 0], 64);
    (mode[0], mode[1], mode[3]) = (0, 0, 0);
    mode[8 + 4] |= 8;
    let select = [0x55, 0x10, 0, 0, 0, 0, 0, 0, mode.len() as u8, 0];
    assert_eq!(host.command_out(0, &select, &mode).status, 0);
    assert_eq!(write(&mut host).key(), (7, 0x27, 2));
    mode[8 + 2] |= 4;
    assert_eq!(host.command_out(0, &select, &mode).key(), (5, 0x26, 0), "not changeable");
}

#[test]
fn force_unit_access_and_flush_wait_for_the_medium() {
    let mut host = up(small());
    let timed = |host: &mut Host, cdb: &[u8], data: &[u8]| {
        let start = host.now();
        assert_eq!(host.command_out(0, cdb, data).status, 0);
        host.now().nanos_since(start)
    };
    let cached = timed(&mut host, &Host::write10(0, 1), &[1; 4096]);
    assert!(cached < 200_000, "{cached}");
    let flush = timed(&mut host, &Host::cdb10(0x35, 0, 0, 0), &[]);
    assert!(flush > 1_000_000, "{flush}");
    let nothing = timed(&mut host, &Host::cdb10(0x35, 0, 0, 0), &[]);
    assert!(nothing < 200_000, "{nothing}");
    let forced = timed(&mut host, &Host::cdb10(0x2A, 8, 0, 1), &[1; 4096]);
    assert!(forced > 1_000_000, "{forced}");
    let after = timed(&mut host, &Host::write10(0, 1), &[2; 4096]);
    assert!(after < 200_000, "{after}");
    let (_, data) = host.command_in(0, &Host::read10(0, 1), 4096);
    assert_eq!(data, [2; 4096]);
}

fn start_stop(host: &mut Host, power_condition: PowerCondition) -> crate::host::End {
    let command = StartStop {
        immed: false,
        power_condition,
        modifier: 0,
        no_flush: false,
        loej: false,
        start: false,
    };
    host.command_in(D0, &Cdb::StartStopUnit(command).to_bytes(), 0).0
}

#[test]
fn power_modes_refuse_what_they_must() {
    let mut host = up(small());
    let modes = [
        (PowerCondition::Sleep, 0x22),
        (PowerCondition::PowerDown, 0x33),
        (PowerCondition::Sleep, 0x22),
    ];
    for (condition, mode) in modes {
        assert_eq!(start_stop(&mut host, condition).status, 0);
        assert_eq!(attribute(&mut host, AttributeId::CurrentPowerMode), mode);
        let (end, _) = host.command_in(0, &Host::read10(0, 1), 4096);
        assert_eq!(end.key(), (2, 4, 2));
        assert_eq!(host.command_in(D0, &Cdb::TestUnitReady.to_bytes(), 0).0.key(), (2, 4, 2));
    }
    assert_eq!(start_stop(&mut host, PowerCondition::Active).status, 0);
    assert_eq!(host.command_in(0, &Host::read10(0, 1), 4096).0.status, 0);
    assert_eq!(start_stop(&mut host, PowerCondition::Unknown(9)).key(), (5, 0x24, 0));
    assert_eq!(start_stop(&mut host, PowerCondition::DeepSleep).status, 0);
    assert_eq!(start_stop(&mut host, PowerCondition::Active).status, 2, "only a reset wakes it");
    host.machine.with_model(|ufs| ufs.reset_hardware());
    host.start(0);
    assert_eq!(attribute(&mut host, AttributeId::CurrentPowerMode), 0x11);
}

#[test]
fn write_booster_fills_reports_and_flushes() {
    let mut host = up(small());
    let available = AttributeId::AvailableWriteBoosterBufferSize;
    assert_eq!(attribute(&mut host, available), 10);
    assert_eq!(
        set_attribute(&mut host, AttributeId::ExceptionEventControl, 0x20),
        QueryResult::Success
    );
    flag(&mut host, QueryOpcode::SetFlag, FlagId::WriteBoosterEn);
    let mut end = None;
    for lba in (0..60 << 8).step_by(256) {
        end = Some(host.command_out(0, &Host::write10(lba, 256), &vec![3; 1 << 20]));
    }
    assert_eq!(attribute(&mut host, available), 0, "60 of 64 MiB used");
    assert!(end.unwrap().event_alert, "the device asks for a flush");
    assert_eq!(attribute(&mut host, AttributeId::ExceptionEventStatus), 0x20);
    let status = AttributeId::WriteBoosterBufferFlushStatus;
    flag(&mut host, QueryOpcode::SetFlag, FlagId::WriteBoosterBufferFlushEn);
    assert_eq!(attribute(&mut host, status), 1, "in progress");
    host.sleep_us(300_000);
    assert_eq!((attribute(&mut host, status), attribute(&mut host, available)), (3, 10));
    let (end, data) = host.command_in(0, &Host::read10(77, 1), 4096);
    assert!(!end.event_alert && data == [3; 4096]);
}

#[test]
fn write_booster_flushes_while_the_link_hibernates_by_itself() {
    let mut host = up(small());
    let available = AttributeId::AvailableWriteBoosterBufferSize;
    flag(&mut host, QueryOpcode::SetFlag, FlagId::WriteBoosterEn);
    flag(&mut host, QueryOpcode::SetFlag, FlagId::WriteBoosterBufferFlushDuringHibernate);
    for lba in (0..32 << 8).step_by(256) {
        assert_eq!(host.command_out(0, &Host::write10(lba, 256), &vec![3; 1 << 20]).status, 0);
    }
    host.sleep_us(500_000);
    assert_eq!(attribute(&mut host, available), 5, "nothing hibernates yet");
    host.write(reg::AHIT, Ahit::from_idle_us(10_000).into_bits());
    host.sleep_us(500_000);
    assert_eq!(attribute(&mut host, available), 10);
}

#[test]
fn heat_raises_an_exception_event() {
    let mut host = up(small());
    assert_eq!(attribute(&mut host, AttributeId::DeviceCaseRoughTemperature), 120);
    set_attribute(&mut host, AttributeId::ExceptionEventControl, 8);
    host.machine.with_model(|ufs| ufs.set_temperature(90));
    assert!(host.command_in(0, &Host::read10(0, 1), 4096).0.event_alert);
    assert_eq!(attribute(&mut host, AttributeId::ExceptionEventStatus) & 8, 8);
    host.machine.with_model(|ufs| ufs.set_temperature(40));
    assert!(!host.command_in(0, &Host::read10(0, 1), 4096).0.event_alert);
}

#[test]
fn the_boot_unit_follows_its_attribute() {
    let mut config = small();
    config.units = Vec::new();
    for boot_id in [0, 1, 2] {
        config.units.push(Some(UnitConfig { boot_id, ..UnitConfig::memory(4 << 20) }));
    }
    let mut host = up(config);
    for lun in [1, 2] {
        assert_eq!(host.command_out(lun, &Host::write10(0, 1), &[lun; 4096]).status, 0);
    }
    assert_eq!(host.command_in(0xB0, &Host::read10(0, 1), 4096).0.key(), (5, 0x25, 0));
    for enabled in [1, 2] {
        set_attribute(&mut host, AttributeId::BootLunEn, enabled);
        let (end, data) = host.command_in(0xB0, &Host::read10(0, 1), 4096);
        assert_eq!((end.status, data[0]), (0, enabled as u8));
    }
    let end = host.command_out(0xB0, &Host::write10(0, 1), &[1; 4096]);
    assert_eq!(end.key(), (5, 0x20, 0));
}

fn rpmb_out(host: &mut Host, region: u8, frames: &[RpmbFrame]) {
    let mut bytes = vec![0; frames.len() * 512];
    for (frame, out) in frames.iter().zip(bytes.as_chunks_mut().0) {
        frame.emit(out);
    }
    let len = (bytes.len() as u32).to_be_bytes();
    let cdb = [0xB5, 0xEC, region, 1, 0, 0, len[0], len[1], len[2], len[3], 0, 0];
    assert_eq!(host.command_out(RPMB, &cdb, &bytes).status, 0);
}

fn rpmb_in(host: &mut Host, region: u8, frames: u32) -> Vec<[u8; 512]> {
    let len = (frames * 512).to_be_bytes();
    let cdb = [0xA2, 0xEC, region, 1, 0, 0, len[0], len[1], len[2], len[3], 0, 0];
    let (end, data) = host.command_in(RPMB, &cdb, frames * 512);
    assert_eq!(end.status, 0);
    data.as_chunks().0.to_vec()
}

fn mac(key: &[u8; 32], frames: &[RpmbFrame]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    for frame in frames {
        let mut bytes = [0; 512];
        frame.emit(&mut bytes);
        mac.update(RpmbFrame::authenticated(&bytes));
    }
    mac.finalize().into_bytes().into()
}

/// Sends a write and fetches its result.
fn rpmb_write(host: &mut Host, frames: &[RpmbFrame]) -> RpmbFrame {
    rpmb_out(host, 0, frames);
    rpmb_out(host, 0, &[RpmbFrame::new(RpmbMessage::ResultRead)]);
    RpmbFrame::parse(&rpmb_in(host, 0, 1)[0])
}

#[test]
fn rpmb_takes_only_what_the_key_signed() {
    let mut host = up(small());
    let key = [0x5A; 32];
    let counter = |host: &mut Host| {
        let nonce = [9; 16];
        rpmb_out(host, 0, &[RpmbFrame { nonce, ..RpmbFrame::new(RpmbMessage::ReadCounter) }]);
        RpmbFrame::parse(&rpmb_in(host, 0, 1)[0])
    };
    assert_eq!(counter(&mut host).result.status(), RpmbStatus::KeyNotProgrammed);
    let program = RpmbFrame { key_mac: key, ..RpmbFrame::new(RpmbMessage::KeyProgramming) };
    let answer = rpmb_write(&mut host, &[program]);
    assert_eq!(answer.message, RpmbMessage::KeyProgrammingResponse);
    assert_eq!(answer.result.status(), RpmbStatus::Ok);
    let again = rpmb_write(&mut host, &[program]);
    assert_eq!(again.result.status(), RpmbStatus::GeneralFailure, "once only");
    let signed = counter(&mut host);
    assert_eq!((signed.write_counter, signed.nonce), (0, [9; 16]));
    assert_eq!(signed.key_mac, mac(&key, &[RpmbFrame { key_mac: [0; 32], ..signed }]));

    let write = |host: &mut Host, counter: u32, address: u16, key: &[u8; 32]| {
        let frame = |n: u8| RpmbFrame {
            data: [0xA0 + n; 256],
            write_counter: counter,
            address,
            block_count: 2,
            ..RpmbFrame::new(RpmbMessage::DataWrite)
        };
        let mut frames = [frame(0), frame(1)];
        frames[1].key_mac = mac(key, &frames);
        rpmb_write(host, &frames).result.status()
    };
    assert_eq!(write(&mut host, 0, 4, &[1; 32]), RpmbStatus::AuthenticationFailure);
    assert_eq!(write(&mut host, 7, 4, &key), RpmbStatus::CounterFailure);
    assert_eq!(write(&mut host, 0, 0x3FFF, &key), RpmbStatus::AddressFailure);
    assert_eq!(write(&mut host, 0, 4, &key), RpmbStatus::Ok);
    assert_eq!(write(&mut host, 0, 4, &key), RpmbStatus::CounterFailure, "no replay");
    assert_eq!(counter(&mut host).write_counter, 1);

    power_cycle(&mut host);
    host.clear_attentions();
    let read = RpmbFrame {
        address: 4,
        block_count: 2,
        nonce: [3; 16],
        ..RpmbFrame::new(RpmbMessage::DataRead)
    };
    rpmb_out(&mut host, 0, &[read]);
    let frames: Vec<_> = rpmb_in(&mut host, 0, 2).iter().map(RpmbFrame::parse).collect();
    assert_eq!((frames[0].data[0], frames[1].data[255]), (0xA0, 0xA1));
    assert_eq!(frames[1].nonce, [3; 16]);
    let unsigned = [frames[0], RpmbFrame { key_mac: [0; 32], ..frames[1] }];
    assert_eq!(frames[1].key_mac, mac(&key, &unsigned));
    // A region that is not configured.
    let cdb = [0xA2, 0xEC, 2, 1, 0, 0, 0, 0, 2, 0, 0, 0];
    assert_eq!(host.command_in(RPMB, &cdb, 512).0.key(), (5, 0x24, 0));
}

#[test]
fn a_unit_in_a_file_survives_its_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lu0.img");
    let config = || {
        let store = Store::File(FileStore::open(&path, 16 << 20).unwrap());
        let mut config = small();
        config.units[0] = Some(UnitConfig { store: Some(store), ..UnitConfig::memory(16 << 20) });
        config
    };
    let mut host = up(config());
    assert_eq!(host.command_out(0, &Host::write10(5, 2), &[0xC3; 8192]).status, 0);
    assert_eq!(host.command_out(0, &Host::cdb10(0x35, 0, 0, 0), &[]).status, 0);
    drop(host);
    let (end, data) = up(config()).command_in(0, &Host::read10(6, 1), 4096);
    assert!(end.status == 0 && data == [0xC3; 4096]);
}

#[test]
fn impossible_configurations_are_refused_by_name() {
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut config = small();
        change(&mut config);
        config.check().unwrap_err().to_string()
    };
    for (key, message) in [
        ("slots", refused(&|config| config.slots = 33)),
        ("queues", refused(&|config| (config.queues, config.legacy_doorbell) = (0, false))),
        ("specification", refused(&|config| config.specification = 0x0500)),
        ("block_size", refused(&|config| config.units[0].as_mut().unwrap().block_size = 256)),
        ("size of LU 0", refused(&|config| config.units[0].as_mut().unwrap().size = 5000)),
        ("channels", refused(&|config| config.profile.timing.channels = 0)),
        ("page_bytes", refused(&|config| config.profile.timing.page_bytes = 5000)),
    ] {
        assert!(message.contains(key) && message.contains("must be"), "{message}");
    }
}

#[test]
fn two_runs_are_the_same_to_the_nanosecond() {
    let run = || {
        let mut host = up(small());
        for n in 0..200_u32 {
            let cdb = Host::read10(n * 37 % 16_000, 8);
            assert_eq!(host.command_in(0, &cdb, 32768).0.status, 0);
        }
        host.machine.now()
    };
    let end: Instant = run();
    assert_eq!(run(), end);
}
