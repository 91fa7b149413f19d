//! What Flysch writes is read by independent programs: sg3_utils and sdparm.
//!
//! Each test passes them bytes and checks their output. If a program is not installed, its test is
//! skipped with a message; with `CI=true` that is a failure.

use flysch_wire::scsi::inquiry::{self, DeviceType, InquiryData, Peripheral};
use flysch_wire::scsi::mode::{
    Caching, CachingFlags, Control, DeviceSpecific, ModeHeader, ReadWriteErrorRecovery,
    RecoveryFlags,
};
use flysch_wire::scsi::sense::{DESCRIPTOR_LENGTH_MAX, FIXED_LENGTH, FieldPointer};
use flysch_wire::scsi::vpd::{
    self, Association, BlockDeviceCharacteristics, BlockLimits, CodeSet, Designator,
    DesignatorType, LogicalBlockProvisioning, VpdPage,
};
use flysch_wire::scsi::{AdditionalSense, Cdb, LogicalUnitNumber, Opcode, Sense, SenseKey, Text};
use std::io::Write;
use std::process::{Command, Stdio};

/// Runs a program with `input` on its standard input and returns its output; `None` if it is not
/// installed.
fn run(program: &str, arguments: &[&str], input: &[u8]) -> Option<String> {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        let remedy = "apt-get install sg3-utils sdparm";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{program} is missing: {remedy}");
        eprintln!("SKIPPED: {program} is missing: {remedy}");
        return None;
    };
    child.stdin.take().expect("piped").write_all(input).expect("the program reads its input");
    let output = child.wait_with_output().expect("the program ends");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x} ")).collect()
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

fn decode_sense(bytes: &[u8]) -> Option<String> {
    run("sg_decode_sense", &words(&hex(bytes)), &[])
}

/// Whether the program is installed; its output must then contain all of `expected`, whatever the
/// spacing.
fn says(program: &str, arguments: &[&str], input: &[u8], expected: &[&str]) -> bool {
    let Some(text) = run(program, arguments, input) else { return false };
    let text = words(&text).join(" ");
    for line in expected {
        assert!(text.contains(line), "{program} does not say {line:?} but\n{text}");
    }
    true
}

#[test]
fn names_of_sense_are_those_of_sg3_utils() {
    for additional in AdditionalSense::ALL {
        let sense = Sense::new(SenseKey::IllegalRequest, *additional);
        let mut fixed = [0; FIXED_LENGTH];
        sense.emit_fixed(&mut fixed);
        let Some(text) = decode_sense(&fixed) else { return };
        let said = text.lines().find_map(|line| line.strip_prefix("Additional sense: "));
        let said = said.unwrap_or_default().trim();
        // If there is nothing to add, the program prints no line or the name, depending on its
        // version.
        let none = *additional == AdditionalSense::None && said.is_empty();
        assert!(none || said.eq_ignore_ascii_case(additional.name()), "{additional}: {text}");
    }
    for key in SenseKey::ALL {
        let mut fixed = [0; FIXED_LENGTH];
        Sense::new(*key, AdditionalSense::InvalidFieldInCdb).emit_fixed(&mut fixed);
        let Some(text) = decode_sense(&fixed) else { return };
        let text = text.to_lowercase().replace(['_', '(', ')', '-'], " ");
        let name = key.name().to_lowercase();
        let name = if *key == SenseKey::VendorSpecific { "vendor specific" } else { &name };
        assert!(text.contains(&format!("sense key: {name}")), "{key}: {text}");
    }
}

#[test]
fn sense_is_read_in_both_formats() {
    let field = FieldPointer { in_cdb: true, bit: Some(3), byte: 0x1234 };
    let illegal = Sense::new(SenseKey::IllegalRequest, AdditionalSense::InvalidFieldInCdb);
    let mut fixed = [0; FIXED_LENGTH];
    illegal.with_field(field).emit_fixed(&mut fixed);
    let expected = ["Fixed format, current", "Error in Command: byte 4660 bit 3"];
    says("sg_decode_sense", &words(&hex(&fixed)), &[], &expected);

    let medium = Sense {
        deferred: true,
        information: Some(0x1_2345_6789),
        command_specific: Some(0xABCD),
        field_replaceable_unit: 7,
        ..Sense::new(SenseKey::MediumError, AdditionalSense::UnrecoveredReadError)
    };
    let mut long = [0; DESCRIPTOR_LENGTH_MAX];
    let length = medium.emit_descriptor(&mut long);
    let expected = [
        "Descriptor format, <<<deferred>>>; Sense key: Medium Error",
        "Information: 0x0000000123456789",
        "Command specific: 0x000000000000abcd",
        "Field replaceable unit code: 0x7",
    ];
    says("sg_decode_sense", &words(&hex(&long[..length])), &[], &expected);
}

#[test]
fn names_of_commands_are_those_of_sg3_utils() {
    for opcode in Opcode::ALL {
        let mut bytes = [0; 16];
        bytes[0] = opcode.into_bits();
        // SERVICE ACTION IN(16) goes by the name of its service action.
        let mut name = opcode.name().to_lowercase();
        if *opcode == Opcode::ServiceActionIn16 {
            bytes = Cdb::ReadCapacity16 { allocation_length: 32 }.to_bytes();
            name = "read capacity(16)".to_owned();
        }
        let cdb = hex(&bytes[..opcode.cdb_length()]);
        let arguments = [vec!["--cdb"], words(&cdb)].concat();
        let Some(text) = run("sg_decode_sense", &arguments, &[]) else { return };
        assert!(text.to_lowercase().trim().starts_with(&name), "{opcode}: {text}");
    }
}

#[test]
fn inquiry_data_is_read() {
    let text = Text::new("UFS MODEL");
    let data =
        InquiryData::ufs(DeviceType::WellKnown, Text::new("FLYSCH"), text, Text::new("0001"));
    let mut bytes = [0; inquiry::LENGTH];
    data.emit(&mut bytes);
    let expected = [
        "PQual=0 PDT=30",
        "RMB=0",
        "version=0x06",
        "Resp_data_format=2",
        "CmdQue=1",
        "length=36",
        "Vendor identification: FLYSCH",
        "Product identification: UFS MODEL",
        "Product revision level: 0001",
    ];
    says("sg_inq", &["--inhex=-"], hex(&bytes).as_bytes(), &expected);
}

#[test]
fn short_pages_of_vital_product_data_are_read() {
    let peripheral = Peripheral::new();
    let mut bytes = [0; 64];
    let pages = [0x00, 0x80, 0x83, 0xB0, 0xB1, 0xB2];
    let length = vpd::emit_page(peripheral, VpdPage::SupportedPages, &pages, &mut bytes);
    let expected = [
        "Unit serial number",
        "Device identification",
        "Block limits",
        "Block device characteristics",
        "Logical block provisioning",
    ];
    says("sg_vpd", &["--inhex=-"], hex(&bytes[..length.unwrap()]).as_bytes(), &expected);
    let length = vpd::emit_page(peripheral, VpdPage::UnitSerialNumber, b"0001", &mut bytes);
    let expected = ["Unit serial number: 0001"];
    says("sg_vpd", &["--inhex=-"], hex(&bytes[..length.unwrap()]).as_bytes(), &expected);

    let mut payload = [0; 40];
    let name = Designator {
        code_set: CodeSet::Ascii,
        association: Association::LogicalUnit,
        designator_type: DesignatorType::T10VendorId,
        identifier: b"FLYSCH  0001",
    };
    let first = name.emit(&mut payload).unwrap();
    let naa = Designator {
        code_set: CodeSet::Binary,
        association: Association::TargetDevice,
        designator_type: DesignatorType::Naa,
        identifier: &[0x50, 0, 0, 0, 0x12, 0x34, 0x56, 0x78],
    };
    let length = first + naa.emit(&mut payload[first..]).unwrap();
    let page = VpdPage::DeviceIdentification;
    let length = vpd::emit_page(peripheral, page, &payload[..length], &mut bytes);
    let expected = [
        "Addressed logical unit: designator type: T10 vendor identification, code set: ASCII",
        "vendor id: FLYSCH",
        "Target device that contains addressed lu: designator type: NAA, code set: Binary",
        "0x5000000012345678",
    ];
    says("sg_vpd", &["--inhex=-"], hex(&bytes[..length.unwrap()]).as_bytes(), &expected);
}

#[test]
fn block_limits_are_read() {
    let limits = BlockLimits {
        wsnz: true,
        optimal_granularity: 2,
        transfer_max: 2048,
        optimal_transfer: 64,
        prefetch_max: 32,
        unmap_lba_max: 4096,
        unmap_descriptors_max: 3,
        unmap_granularity: 8,
        unmap_alignment: Some(4),
        write_same_max: 0x1_0000_0000,
        ..BlockLimits::default()
    };
    let mut bytes = [0; BlockLimits::LENGTH];
    limits.emit(&mut bytes);
    let expected = [
        "(WSNZ): 1",
        "Optimal transfer length granularity: 2 blocks",
        "Maximum transfer length: 2048 blocks",
        "Optimal transfer length: 64 blocks",
        "Maximum prefetch transfer length: 32 blocks",
        "Maximum unmap LBA count: 4096",
        "Maximum unmap block descriptor count: 3",
        "Optimal unmap granularity: 8 blocks",
        "Unmap granularity alignment valid: true",
        "Unmap granularity alignment: 4",
        "Maximum write same length: 0x100000000 blocks",
    ];
    says("sg_vpd", &["--inhex=-"], hex(&bytes).as_bytes(), &expected);
}

#[test]
fn what_the_medium_is_is_read() {
    let characteristics = BlockDeviceCharacteristics {
        rotation_rate: 1,
        product_type: BlockDeviceCharacteristics::PRODUCT_UFS,
        form_factor: 5,
        zoned: 1,
        fuab: true,
        vbuls: true,
        ..BlockDeviceCharacteristics::default()
    };
    let mut bytes = [0; BlockDeviceCharacteristics::LENGTH];
    characteristics.emit(&mut bytes);
    let expected = [
        "Non-rotating medium",
        "Universal Flash Storage",
        "1.8 inch",
        "ZONED=1",
        "FUAB=1",
        "VBULS=1",
    ];
    says("sg_vpd", &["--inhex=-"], hex(&bytes).as_bytes(), &expected);

    let provisioning = LogicalBlockProvisioning {
        lbpu: true,
        lbpws10: true,
        lbprz: 1,
        provisioning_type: 2,
        ..LogicalBlockProvisioning::default()
    };
    let mut bytes = [0; LogicalBlockProvisioning::LENGTH];
    provisioning.emit(&mut bytes);
    let expected = [
        "(LBPU): 1",
        "(LBPWS): 0",
        "(LBPWS10): 1",
        "(LBPRZ): 1",
        "(ANC_SUP): 0",
        "Provisioning type: 2",
    ];
    says("sg_vpd", &["--inhex=-"], hex(&bytes).as_bytes(), &expected);
}

#[test]
fn mode_pages_are_read() {
    let specific = DeviceSpecific::new().with_dpofua(true);
    let header = ModeHeader { data_length: 50, device_specific: specific, ..ModeHeader::default() };
    let mut bytes = [0; 8 + 20 + 12 + 12];
    header.emit_10((&mut bytes[..8]).try_into().unwrap());
    let flags = RecoveryFlags::new().with_awre(true).with_arre(true).with_per(true);
    let recovery = ReadWriteErrorRecovery {
        savable: false,
        flags,
        read_retry_count: 8,
        write_retry_count: 9,
        recovery_time_limit_ms: 300,
    };
    recovery.emit((&mut bytes[8..20]).try_into().unwrap());
    let caching = Caching { savable: true, flags: CachingFlags::new().with_wce(true) };
    caching.emit((&mut bytes[20..40]).try_into().unwrap());
    let control = Control {
        swp: true,
        d_sense: true,
        queue_algorithm_modifier: 1,
        qerr: 1,
        tst: 2,
        busy_timeout_period: 5,
        extended_self_test_s: 60,
        savable: false,
    };
    control.emit((&mut bytes[40..]).try_into().unwrap());
    let expected = [
        "AWRE 1",
        "ARRE 1",
        "TB 0",
        "RC 0",
        "EER 0",
        "PER 1",
        "DTE 0",
        "DCR 0",
        "RRC 8",
        "WRC 9",
        "RTL 300",
        "WCE 1",
        "RCD 0",
        "TST 2",
        "D_SENSE 1",
        "QAM 1",
        "QERR 1",
        "SWP 1",
        "BTP 5",
        "ESTCT 60",
    ];
    says("sdparm", &["--inhex=-", "--all"], hex(&bytes).as_bytes(), &expected);
}

#[test]
fn logical_unit_numbers_are_read() {
    let cases = [
        (0, "Peripheral device addressing: lun=0"),
        (31, "Peripheral device addressing: lun=31"),
        (0x81, "REPORT LUNS well known logical unit"),
        (0xB0, "well known logical unit 48"),
        (0xC4, "well known logical unit 68"),
        (0xD0, "well known logical unit 80"),
    ];
    for (ufs, expected) in cases {
        let lun = LogicalUnitNumber::from_ufs(ufs).0;
        let number = hex(&lun).replace(' ', "");
        says("sg_luns", &[&format!("--test={number}")], &[], &[expected]);
    }
}
