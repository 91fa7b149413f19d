//! Examples from the specifications, and round trips of all structures.

use super::fis::{PioSetup, SetDeviceBits};
use super::identify::{Text, padded, set82, set83};
use super::list::HeaderFlags;
use super::log::{self, DevSleepTiming, NcqError};
use super::registers::{Cap, PortCmd, port_base, signature};
use super::smart::{Attribute, SmartData};
use super::*;
use std::string::ToString;
use std::vec::Vec;

/// CAP as read from QEMU's ich9-ahci, 10.0.2 and 11.1.3.
#[test]
fn capabilities_of_a_controller_of_somebody_else() {
    let cap = Cap::from_bits(0xC014_1F05);
    assert_eq!((cap.np(), cap.ncs(), cap.iss()), (5, 31, 1));
    assert!(cap.sam() && cap.sncq() && cap.s64a());
    assert!(!cap.sss() && !cap.salp() && !cap.spm() && !cap.fbss() && !cap.sclo());
    assert_eq!(port_base(5), 0x380);
    let cmd = PortCmd::new().with_st(true).with_fre(true).with_cr(true).with_icc(1);
    assert_eq!(cmd.into_bits(), 1 << 0 | 1 << 4 | 1 << 15 | 1 << 28);
}

/// SATA 10.5.5: the position of each field. A queued read of 8 sectors with tag 5.
#[test]
fn a_host_to_device_fis_lies_as_the_specification_shows_it() {
    let fis = H2d {
        is_command: true,
        pmp: 2,
        command: 0x60,
        features: 0x1208,
        lba: 0xA1B2_C3D4_E5F6,
        device: 0x40,
        count: 5 << 3,
        icc: 7,
        control: 0,
        auxiliary: 0x0102_0304,
    };
    let bytes: Vec<u8> = fis.to_words().iter().flat_map(|word| word.to_ne_bytes()).collect();
    let expected = [
        0x27, 0x82, 0x60, 0x08, 0xF6, 0xE5, 0xD4, 0x40, 0xC3, 0xB2, 0xA1, 0x12, 0x28, 0, 7, 0, 4,
        3, 2, 1, 0, 0, 0, 0,
    ];
    assert_eq!(bytes, expected);
    assert_eq!(H2d::parse(&bytes), Ok(fis));
    assert!(H2d::parse(&bytes[..19]).is_err());
    assert!(D2h::parse(&bytes).is_err(), "it goes the other way");
}

#[test]
fn fises_from_the_device_come_back_as_they_were() {
    let fis =
        D2h { interrupt: true, status: 0x51, error: 4, lba: 0x1234_5678_9ABC, ..D2h::default() };
    assert_eq!(D2h::parse(&fis.to_bytes()), Ok(fis));
    for (lba, expected) in [(1, signature::ATA), (0xEB_1401, signature::ATAPI)] {
        assert_eq!(D2h { lba, count: 1, ..D2h::default() }.signature(), expected);
    }
    let setup = PioSetup {
        to_host: true,
        status: 0x58,
        end_status: 0x50,
        bytes: 512,
        ..PioSetup::default()
    };
    assert_eq!(PioSetup::parse(&setup.to_bytes()), Ok(setup));
    let (status, ended) = (0xFF, 0x8000_0001);
    let bits = SetDeviceBits { interrupt: true, status, ended, ..Default::default() };
    assert_eq!(bits.to_bytes(), [0xA1, 0x40, 0x77, 0, 1, 0, 0, 0x80]);
}

#[test]
fn headers_and_descriptors_lie_as_the_specification_shows_them() {
    let flags = HeaderFlags::new().with_cfl(5).with_write(true).with_pmp(3).with_prdtl(168);
    let header = Header { flags, moved: 0x1000, table: 0x1_2345_6780 };
    assert_eq!(
        header.to_words().map(u64::from_le),
        [0x1000 << 32 | 168 << 16 | 3 << 12 | 0x45, 0x1_2345_6780]
    );
    assert_eq!(Header::from_words(header.to_words()), header);
    let prd = Prd { address: 0x2_0000_0002, bytes: list::PRD_BYTES_MAX, interrupt: true };
    assert_eq!(prd.to_words().map(u64::from_le), [0x2_0000_0002, 0x803F_FFFF << 32]);
    assert_eq!(Prd::from_words(prd.to_words()), prd);
}

#[test]
fn identify_data_comes_back_and_its_checksum_is_looked_at() {
    let identify = Identify {
        serial: padded("S1"),
        model: padded("FLYSCH SATA"),
        firmware: padded("1.0"),
        queue_depth: 32,
        sata: identify::sata::NCQ | identify::sata::GEN3,
        supported: [set82::WRITE_CACHE, set83::LBA48 | set83::VALID, 0x4000],
        enabled: [set82::WRITE_CACHE, set83::LBA48, 0x4000],
        sectors_48: 0x1234_5678,
        sector_size: identify::sector::LOGICAL | identify::sector::VALID,
        sector_words: 2048,
        more: [0x4000; 2],
        wwn: 0x5000_1111_2222_3333,
        dsm: 1,
        zoned: 2,
        additional: 2,
        ..Identify::default()
    };
    let mut bytes = identify.to_bytes();
    assert_eq!(Identify::parse(&bytes), Ok(identify.clone()));
    assert_eq!(&bytes[20..24], b"1S  ", "the bytes of a word are swapped");
    assert_eq!(Text(&identify.model).to_string(), "FLYSCH SATA");
    assert_eq!((identify.sector_bytes(), identify.sectors()), (4096, 0x1234_5678));
    assert!(identify.has_ncq() && identify.has_trim() && identify.has_write_cache());
    bytes[100] ^= 1;
    assert!(Identify::parse(&bytes).is_err());
    bytes[510] = 0;
    assert!(Identify::parse(&bytes).is_ok(), "without the signature there is no checksum");
    assert!(Identify::parse(&bytes[..511]).is_err());
}

#[test]
fn words_that_are_not_valid_say_nothing() {
    let none = Identify::parse(&[0xFF; 512]);
    assert!(none.is_ok_and(|i| !i.has_ncq() && !i.has_lba48() && i.sata == 0));
    let odd =
        Identify { sector_size: identify::sector::LOGICAL, sector_words: 3, ..Identify::default() };
    assert_eq!(odd.sector_bytes(), 0);
}

#[test]
fn log_pages_come_back_and_their_checksums_are_looked_at() {
    let entry = NcqError {
        tag: 31,
        status: 0x41,
        error: 0x40,
        lba: 0xF0E0_D0C0_B0A0,
        count: 8,
        device: 0x40,
        sense: [3, 0x11, 4],
        not_queued: false,
    };
    let mut page = entry.to_bytes();
    assert_eq!(NcqError::parse(&page), Ok(entry));
    page[4] ^= 1;
    assert!(NcqError::parse(&page).is_err());
    assert_eq!(log::of_lba(log::lba(0x10, 0x1234)), (0x10, 0x1234));
    let mut page = [0; 512];
    assert_eq!(DevSleepTiming::parse(&page), DevSleepTiming::default());
    let timing = DevSleepTiming { exit_ms: 30, assert_ms: 12 };
    timing.put(&mut page);
    assert_eq!(DevSleepTiming::parse(&page), timing);
    let mut smart = SmartData::default();
    smart.attributes[29] =
        Attribute { id: 242, flags: 2, value: 100, worst: 99, raw: 0x0102_0304_0506 };
    assert_eq!(SmartData::parse(&smart.to_bytes()), Ok(smart));
    assert_eq!(smart.get(242).map(|a| a.raw), Some(0x0102_0304_0506));
}

#[test]
fn ranges_of_a_trim_add_up() {
    let mut block = [0xFF; SECTOR];
    assert_eq!(dsm::fill(&mut block, 0x1_0000_0000, 0x1_0000), 0x1_0000);
    let all: Vec<_> = dsm::ranges(&block).collect();
    assert_eq!(all, [(0x1_0000_0000, 0xFFFF), (0x1_0000_FFFF, 1)]);
    assert_eq!(dsm::fill(&mut block, 0, u32::MAX), dsm::SECTORS_MAX, "64 ranges are a block");
    assert_eq!(dsm::ranges(&block).count(), dsm::RANGES);
}

/// SATA 16.4: the position of each field of READ and WRITE PORT MULTIPLIER, and back.
#[test]
fn registers_of_a_multiplier_are_reached_as_the_specification_shows_it() {
    use super::multiplier::{Access, gscr, pscr, registers_of, value_of};
    let access = Access::write(3, pscr::CONTROL, 0x1234_5301);
    let fis = access.to_fis();
    let bytes: Vec<u8> = fis.to_words().iter().flat_map(|word| word.to_ne_bytes()).collect();
    assert_eq!(bytes[..8], [0x27, 0x8F, 0xE8, 2, 0x53, 0x34, 0x12, 3]);
    assert_eq!(bytes[8..16], [0, 0, 0, 0, 0x01, 0, 0, 0]);
    assert_eq!(Access::of(&fis), Some(access));
    let read = Access::read(super::multiplier::CONTROL_PORT, gscr::PORTS);
    assert_eq!((read.to_fis().command, read.to_fis().device), (0xE4, 15));
    assert_eq!(Access::of(&read.to_fis()), Some(read));
    assert_eq!(Access::of(&H2d { command: 0xEC, ..H2d::default() }), None);
    let (lba, count) = registers_of(0x3726_1095);
    assert_eq!((lba, count), (0x37_2610, 0x95));
    assert_eq!(value_of(&D2h { lba, count, ..D2h::default() }), 0x3726_1095);
    let signature = D2h { lba: 0x96_6901, count: 1, ..D2h::default() }.signature();
    assert_eq!(signature, super::registers::signature::MULTIPLIER);
    let told = SetDeviceBits { interrupt: true, notification: true, ..Default::default() };
    assert_eq!(told.to_bytes()[..2], [0xA1, 0xC0]);
}

/// AHCI 3.3.16.
#[test]
fn the_switching_register_lies_as_the_specification_shows_it() {
    use super::registers::Fbs;
    let fbs = Fbs::from_bits(0x0009_2305);
    assert!(fbs.en() && !fbs.dec() && fbs.sde());
    assert_eq!((fbs.dev(), fbs.ado(), fbs.dwe()), (3, 2, 9));
}
