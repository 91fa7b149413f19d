use super::cdb::{
    Buffer, BufferMode, ByteCheck, CacheRange, ModeSelect, ModeSense, PageControl, PowerCondition,
    Security, SelectReport, StartStop, Transfer, TransferFlags, Verify,
};
use super::inquiry::{DeviceType, InquiryData, Peripheral};
use super::mode::{Caching, CachingFlags, Control, DeviceSpecific, ModeHeader, ModeView};
use super::mode::{ModePage, ReadWriteErrorRecovery};
use super::sense::{DESCRIPTOR_LENGTH_MAX, FIXED_LENGTH, FieldPointer};
use super::unmap::UnmapRange;
use super::vpd::{Association, CodeSet, DesignatorType, VpdPage, VpdView};
use super::vpd::{BlockDeviceCharacteristics, BlockLimits, Designator, LogicalBlockProvisioning};
use super::*;
use crate::error::WireError;
use capacity::{Capacity10, Capacity16};
use proptest::collection::vec;
use proptest::prelude::*;
use std::string::ToString;
use std::vec::Vec;

fn bytes_of(cdb: &Cdb) -> Vec<u8> {
    cdb.to_bytes()[..cdb.opcode().cdb_length()].to_vec()
}

#[test]
fn commands_have_the_bytes_of_the_standard() {
    let transfer = Transfer {
        flags: TransferFlags::new().with_fua(true),
        group: 0x11,
        ..Transfer::new(0x0102_0304, 0x0506)
    };
    let cases: [(Cdb, &[u8]); 20] = [
        (Cdb::TestUnitReady, &[0, 0, 0, 0, 0, 0]),
        (Cdb::Read10(transfer), &[0x28, 0x08, 1, 2, 3, 4, 0x11, 5, 6, 0]),
        (Cdb::Write10(transfer), &[0x2A, 0x08, 1, 2, 3, 4, 0x11, 5, 6, 0]),
        (Cdb::Write16(transfer), &[0x8A, 0x08, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 5, 6, 0x11, 0]),
        (Cdb::Read6(Transfer::new(0x1F_0203, 256)), &[0x08, 0x1F, 2, 3, 0, 0]),
        (Cdb::Inquiry { page: Some(0xB0), allocation_length: 0x140 }, &[0x12, 1, 0xB0, 1, 0x40, 0]),
        (Cdb::Inquiry { page: None, allocation_length: 36 }, &[0x12, 0, 0, 0, 36, 0]),
        (
            Cdb::ReadCapacity16 { allocation_length: 32 },
            &[0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0],
        ),
        (Cdb::RequestSense { desc: false, allocation_length: 18 }, &[0x03, 0, 0, 0, 18, 0]),
        (
            Cdb::SynchronizeCache10(CacheRange { immed: true, ..CacheRange::default() }),
            &[0x35, 2, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            Cdb::Unmap { anchor: false, group: 0, parameter_list_length: 24 },
            &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0],
        ),
        (
            Cdb::StartStopUnit(StartStop {
                immed: false,
                power_condition: PowerCondition::Sleep,
                modifier: 0,
                no_flush: false,
                loej: false,
                start: false,
            }),
            &[0x1B, 0, 0, 0, 0x20, 0],
        ),
        (
            Cdb::ModeSense10(ModeSense {
                page: 0x3F,
                subpage: 0,
                control: PageControl::Changeable,
                dbd: true,
                llbaa: false,
                allocation_length: 0x100,
            }),
            &[0x5A, 8, 0x7F, 0, 0, 0, 0, 1, 0, 0],
        ),
        (
            Cdb::ModeSelect10(ModeSelect { pf: true, sp: true, parameter_list_length: 28 }),
            &[0x55, 0x11, 0, 0, 0, 0, 0, 0, 28, 0],
        ),
        (
            Cdb::ReportLuns { select: SelectReport::All, allocation_length: 0x1000 },
            &[0xA0, 0, 2, 0, 0, 0, 0, 0, 0x10, 0, 0, 0],
        ),
        (
            Cdb::SecurityProtocolOut(Security {
                protocol: cdb::SECURITY_PROTOCOL_UFS,
                specific: 0x0201,
                inc_512: false,
                length: 512,
            }),
            &[0xB5, 0xEC, 2, 1, 0, 0, 0, 0, 2, 0, 0, 0],
        ),
        (
            Cdb::ReadBuffer(Buffer {
                mode: BufferMode::ErrorHistory,
                mode_specific: 0,
                id: 0x10,
                offset: 0x010203,
                length: 0x040506,
            }),
            &[0x3C, 0x1C, 0x10, 1, 2, 3, 4, 5, 6, 0],
        ),
        (
            Cdb::Verify10(Verify {
                lba: 9,
                blocks: 1,
                dpo: false,
                bytchk: ByteCheck::Compare,
                group: 0,
            }),
            &[0x2F, 2, 0, 0, 0, 9, 0, 0, 1, 0],
        ),
        (Cdb::FormatUnit { parameters: 0 }, &[4, 0, 0, 0, 0, 0]),
        (Cdb::SendDiagnostic { parameters: 4, parameter_list_length: 0 }, &[0x1D, 4, 0, 0, 0, 0]),
    ];
    for (cdb, bytes) in cases {
        assert_eq!(bytes_of(&cdb), bytes, "{}", cdb.opcode());
        assert_eq!(Cdb::parse(&cdb.to_bytes()), cdb);
    }
}

#[test]
fn what_qemu_refuses_with_is_read_in_both_formats() {
    let pointer = FieldPointer { in_cdb: true, bit: Some(3), byte: 2 };
    let sense = Sense {
        information: Some(0x1234),
        ..Sense::new(SenseKey::IllegalRequest, AdditionalSense::InvalidFieldInCdb)
    }
    .with_field(pointer);
    let mut fixed = [0xFF; FIXED_LENGTH];
    sense.emit_fixed(&mut fixed);
    let expected = [0xF0, 0, 5, 0, 0, 0x12, 0x34, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xCB, 0, 2];
    assert_eq!(fixed, expected);
    assert_eq!(Sense::parse(&fixed), Ok(sense));
    assert_eq!(FieldPointer::parse(sense.key_specific.unwrap()), pointer);
    let text = "ILLEGAL REQUEST, INVALID FIELD IN CDB (5/24/00), information 4660";
    assert_eq!(sense.to_string(), text);
    let mut long = [0; DESCRIPTOR_LENGTH_MAX];
    let length = sense.emit_descriptor(&mut long);
    assert_eq!((length, long[0], long[7]), (28, 0x72, 20));
    assert_eq!(Sense::parse(&long[..length]), Ok(sense));
}

#[test]
fn sense_that_is_cut_off_or_nonsense() {
    let cut = Sense::parse(&[0x70, 0, 6]).unwrap();
    assert_eq!((cut.key, cut.additional), (SenseKey::UnitAttention, AdditionalSense::None));
    assert_eq!(Sense::parse(&[]), Err(WireError::Truncated { needed: 1, got: 0 }));
    assert_eq!(Sense::parse(&[0x7F, 0, 0, 0]), Err(WireError::BadField("RESPONSE CODE")));
    // A descriptor of length zero must not stall the walk, one beyond the end must not be read.
    let hostile = [0x72, 3, 0x11, 0, 0, 0, 0, 255, 0x44, 0, 0x00, 0xFF, 0x80];
    let sense = Sense::parse(&hostile).unwrap();
    assert_eq!(sense.additional, AdditionalSense::UnrecoveredReadError);
    assert_eq!(sense.information, None);
}

#[test]
fn logical_units_in_both_forms() {
    for (ufs, scsi) in [(0, 0x0000), (31, 0x001F), (0x81, 0xC101), (0xB0, 0xC130)]
        .into_iter()
        .chain([(0xC4, 0xC144), (0xD0, 0xC150)])
    {
        let lun = LogicalUnitNumber::from_ufs(ufs);
        assert_eq!(u16::from_be_bytes([lun.0[0], lun.0[1]]), scsi);
        assert_eq!(lun.to_ufs(), Some(ufs));
        assert_eq!(lun.is_well_known(), ufs & 0x80 != 0);
    }
    assert_eq!(LogicalUnitNumber([0x40, 3, 0, 0, 0, 0, 0, 0]).to_ufs(), Some(3));
    assert_eq!(LogicalUnitNumber([0, 0x80, 0, 0, 0, 0, 0, 0]).to_ufs(), None);
    assert_eq!(LogicalUnitNumber([0, 1, 0, 1, 0, 0, 0, 0]).to_ufs(), None);
}

#[test]
fn a_cut_list_of_logical_units_still_says_its_length() {
    let luns = || [0, 5, 0xD0].into_iter().map(LogicalUnitNumber::from_ufs);
    let mut bytes = [0xEE; 20];
    assert_eq!(luns::emit(luns(), &mut bytes), 32);
    let (found, length) = luns::parse(&bytes).unwrap();
    assert!(found.eq(luns().take(1)));
    assert_eq!(length, 24);
}

#[test]
fn unmap_lists_that_lie_are_refused() {
    let mut bytes = [0; 64];
    let ranges = [UnmapRange { lba: 8, blocks: 16 }, UnmapRange { lba: 1 << 40, blocks: 1 }];
    let length = unmap::emit(&ranges, &mut bytes).unwrap();
    assert_eq!((length, &bytes[..4]), (40, &[0, 38, 0, 32][..]));
    assert!(unmap::parse(&bytes[..length]).unwrap().eq(ranges));
    assert!(unmap::parse(&bytes[..length - 1]).is_err());
    bytes[3] = 48;
    assert!(unmap::parse(&bytes).is_err());
    assert_eq!(unmap::parse(&[0; 8]).unwrap().count(), 0);
    assert_eq!(unmap::emit(&ranges, &mut bytes[..39]), None);
}

#[test]
fn mode_parameters_as_a_disk_sends_them() {
    let mut bytes = [0; 8 + 20 + 12];
    let specific = DeviceSpecific::new().with_dpofua(true);
    let header = ModeHeader { data_length: 38, device_specific: specific, ..ModeHeader::default() };
    header.emit_10((&mut bytes[..8]).try_into().unwrap());
    let caching = Caching { savable: true, flags: CachingFlags::new().with_wce(true) };
    caching.emit((&mut bytes[8..28]).try_into().unwrap());
    let control = Control { swp: true, queue_algorithm_modifier: 1, ..Control::default() };
    control.emit((&mut bytes[28..]).try_into().unwrap());
    assert_eq!((bytes[3], bytes[8], bytes[9], bytes[10]), (0x10, 0x88, 18, 4));
    let view = ModeView::sense_10(&bytes).unwrap();
    let pages: Vec<_> = view.pages().collect();
    assert_eq!(Caching::parse(&pages[0]), Ok(caching));
    assert_eq!(Control::parse(&pages[1]), Ok(control));
    assert!(Control::parse(&pages[0]).is_err());
    assert_eq!((pages.len(), view.trailing().len()), (2, 0));
    assert_eq!(ModeView::sense_10(&bytes[..20]).unwrap().trailing().len(), 12);
    bytes[7] = 200;
    assert!(ModeView::sense_10(&bytes).is_err());
}

#[test]
fn pages_of_vital_product_data() {
    let mut bytes = [0; 64];
    let pages = [0x00, 0x80, 0x83, 0xB0, 0xB1, 0xB2];
    let length =
        vpd::emit_page(Peripheral::new(), VpdPage::SupportedPages, &pages, &mut bytes).unwrap();
    assert_eq!(&bytes[..length], &[0, 0, 0, 6, 0x00, 0x80, 0x83, 0xB0, 0xB1, 0xB2]);
    assert!(vpd::supported_pages(&bytes).unwrap().map(u8::from).eq(pages));
    let name = Designator {
        code_set: CodeSet::Ascii,
        association: Association::LogicalUnit,
        designator_type: DesignatorType::T10VendorId,
        identifier: b"FLYSCH  0",
    };
    let mut payload = [0; 40];
    let length = name.emit(&mut payload).unwrap();
    let page = VpdPage::DeviceIdentification;
    let length = vpd::emit_page(Peripheral::new(), page, &payload[..length], &mut bytes).unwrap();
    assert!(vpd::designators(&bytes[..length]).unwrap().eq([name]));
    assert_eq!(vpd::designators(&bytes[..length - 1]).unwrap().count(), 0);
    assert!(vpd::serial_number(&bytes).is_err());
}

#[test]
fn text_is_padded_cut_and_printable() {
    assert_eq!(Text::<8>::new("FLYSCH").0, *b"FLYSCH  ");
    assert_eq!(Text::<4>::new("0001x").to_string(), "0001");
    assert_eq!(Text(*b"A\x1b[2J \0\0").to_string(), "A?[2J");
    let data = InquiryData::ufs(
        DeviceType::Block,
        Text::new("FLYSCH"),
        Text::new("UFS MODEL"),
        Text::new("0001"),
    );
    let mut bytes = [0xFF; inquiry::LENGTH];
    data.emit(&mut bytes);
    assert_eq!(&bytes[..9], &[0, 0, 6, 2, 31, 0, 0, 2, b'F']);
    assert_eq!(InquiryData::parse(&bytes), Ok(data));
}

proptest! {
    #[test]
    fn any_command_settles_after_one_pass(mut bytes: [u8; 16], pick in 0..Opcode::ALL.len() * 2) {
        // Half of the time, a command with a name.
        if let Some(opcode) = Opcode::ALL.get(pick) {
            bytes[0] = opcode.into_bits();
        }
        let cdb = Cdb::parse(&bytes);
        prop_assert_eq!(cdb.opcode().into_bits(), bytes[0]);
        prop_assert_eq!(Cdb::parse(&cdb.to_bytes()), cdb);
    }

    #[test]
    fn any_sense_settles_after_one_pass(
        mut bytes in vec(any::<u8>(), 1..80),
        code in 0x70u8..0x74,
    ) {
        bytes[0] = bytes[0] & 0x80 | code;
        let _ = Sense::parse(&bytes[..bytes.len().min(9)]);
        if let Ok(sense) = Sense::parse(&bytes) {
            let mut long = [0; DESCRIPTOR_LENGTH_MAX];
            let length = sense.emit_descriptor(&mut long);
            prop_assert_eq!(Sense::parse(&long[..length]), Ok(sense));
            let mut fixed = [0; FIXED_LENGTH];
            sense.emit_fixed(&mut fixed);
            let back = Sense::parse(&fixed).unwrap();
            prop_assert_eq!((back.key, back.additional), (sense.key, sense.additional));
            let _ = sense.to_string();
        }
    }

    #[test]
    fn fixed_data_round_trips(bytes in vec(any::<u8>(), 64)) {
        let data = InquiryData::parse(&bytes).unwrap();
        let mut out = [0xA5; inquiry::LENGTH];
        data.emit(&mut out);
        prop_assert_eq!(InquiryData::parse(&out), Ok(data));

        let ten = Capacity10::parse(bytes[..8].try_into().unwrap());
        let mut out = [0; Capacity10::LENGTH];
        ten.emit(&mut out);
        prop_assert_eq!(&out, &bytes[..8]);

        let sixteen = Capacity16::parse(&bytes).unwrap();
        let mut out = [0xA5; Capacity16::LENGTH];
        sixteen.emit(&mut out);
        prop_assert_eq!(Capacity16::parse(&out), Ok(sixteen));

        let header = ModeHeader::parse_10(bytes[..8].try_into().unwrap());
        let mut out = [0xA5; ModeHeader::LENGTH_10];
        header.emit_10(&mut out);
        prop_assert_eq!(ModeHeader::parse_10(&out), header);
        let header = ModeHeader::parse_6(bytes[..4].try_into().unwrap());
        let mut out = [0xA5; ModeHeader::LENGTH_6];
        header.emit_6(&mut out);
        prop_assert_eq!(&out, &bytes[..4]);
    }

    #[test]
    fn pages_round_trip(mut bytes in vec(any::<u8>(), 64)) {
        bytes[2..4].copy_from_slice(&[0, 60]);
        bytes[1] = 0xB0;
        let limits = BlockLimits::parse(&bytes).unwrap();
        let mut out = [0xA5; BlockLimits::LENGTH];
        limits.emit(&mut out);
        prop_assert_eq!(BlockLimits::parse(&out), Ok(limits));
        bytes[1] = 0xB1;
        let characteristics = BlockDeviceCharacteristics::parse(&bytes).unwrap();
        let mut out = [0xA5; BlockDeviceCharacteristics::LENGTH];
        characteristics.emit(&mut out);
        prop_assert_eq!(BlockDeviceCharacteristics::parse(&out), Ok(characteristics));
        bytes[1] = 0xB2;
        let provisioning = LogicalBlockProvisioning::parse(&bytes).unwrap();
        let mut out = [0xA5; LogicalBlockProvisioning::LENGTH];
        provisioning.emit(&mut out);
        prop_assert_eq!(LogicalBlockProvisioning::parse(&out), Ok(provisioning));
    }

    #[test]
    fn mode_pages_round_trip(mut bytes in vec(any::<u8>(), 20)) {
        let mut list = [0; 28];
        for (code, length) in [(0x01u8, 12u8), (0x08, 20), (0x0A, 12)] {
            bytes[0] = bytes[0] & 0x80 | code;
            bytes[1] = length - 2;
            list[8..].copy_from_slice(&bytes);
            let view = ModeView::select_10(&list).unwrap();
            let page = view.pages().next().unwrap();
            prop_assert_eq!(page.page, ModePage::from_bits(code));
            let mut out = [0; 28];
            match page.page {
                ModePage::ReadWriteErrorRecovery => {
                    let value = ReadWriteErrorRecovery::parse(&page).unwrap();
                    value.emit((&mut out[8..20]).try_into().unwrap());
                    let page = ModeView::select_10(&out[..20]).unwrap().pages().next().unwrap();
                    prop_assert_eq!(ReadWriteErrorRecovery::parse(&page), Ok(value));
                }
                ModePage::Caching => {
                    let value = Caching::parse(&page).unwrap();
                    value.emit((&mut out[8..28]).try_into().unwrap());
                    let page = ModeView::select_10(&out).unwrap().pages().next().unwrap();
                    prop_assert_eq!(Caching::parse(&page), Ok(value));
                }
                _ => {
                    let value = Control::parse(&page).unwrap();
                    value.emit((&mut out[8..20]).try_into().unwrap());
                    let page = ModeView::select_10(&out[..20]).unwrap().pages().next().unwrap();
                    prop_assert_eq!(Control::parse(&page), Ok(value));
                }
            }
        }
    }

    #[test]
    fn nothing_panics_on_any_bytes(bytes in vec(any::<u8>(), 0..120)) {
        let _ = InquiryData::parse(&bytes);
        let _ = Capacity16::parse(&bytes);
        let _ = VpdView::new(&bytes).map(|view| view.payload().len());
        let _ = vpd::supported_pages(&bytes).map(Iterator::count);
        let _ = vpd::designators(&bytes).map(Iterator::count);
        let _ = vpd::serial_number(&bytes);
        let _ = BlockLimits::parse(&bytes);
        let _ = BlockDeviceCharacteristics::parse(&bytes);
        let _ = LogicalBlockProvisioning::parse(&bytes);
        let _ = luns::parse(&bytes).map(|(luns, _)| luns.count());
        let _ = unmap::parse(&bytes).map(Iterator::count);
        let views =
            [ModeView::sense_6, ModeView::sense_10, ModeView::select_6, ModeView::select_10];
        for view in views {
            if let Ok(view) = view(&bytes) {
                prop_assert!(view.pages().count() <= bytes.len());
                prop_assert!(view.trailing().len() <= bytes.len());
            }
        }
        let _ = Sense::parse(&bytes);
    }

    #[test]
    fn ranges_round_trip(ranges in vec((any::<u64>(), any::<u32>()), 0..20)) {
        let ranges: Vec<_> =
            ranges.into_iter().map(|(lba, blocks)| UnmapRange { lba, blocks }).collect();
        let mut bytes = [0xA5; 400];
        let length = unmap::emit(&ranges, &mut bytes).unwrap();
        prop_assert!(unmap::parse(&bytes[..length]).unwrap().eq(ranges));
    }
}
