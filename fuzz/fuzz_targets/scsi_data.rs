//! Sense data, and data returned or taken by commands.
#![no_main]

use flysch_wire::scsi::capacity::Capacity16;
use flysch_wire::scsi::inquiry::{self, InquiryData};
use flysch_wire::scsi::sense::{DESCRIPTOR_LENGTH_MAX, FIXED_LENGTH, FieldPointer};
use flysch_wire::scsi::unmap::{self, UnmapRange};
use flysch_wire::scsi::vpd::{
    self, BlockDeviceCharacteristics, BlockLimits, LogicalBlockProvisioning, VpdView,
};
use flysch_wire::scsi::{LogicalUnitNumber, Sense, luns};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    sense(bytes);
    inquiry(bytes);
    pages(bytes);
    lists(bytes);
    if let Ok(value) = Capacity16::parse(bytes) {
        let mut out = [0xA5; Capacity16::LENGTH];
        value.emit(&mut out);
        assert_eq!(Capacity16::parse(&out), Ok(value));
    }
});

fn sense(bytes: &[u8]) {
    let Ok(sense) = Sense::parse(bytes) else { return };
    assert!(Sense::is_sense(bytes));
    let mut long = [0xA5; DESCRIPTOR_LENGTH_MAX];
    let length = sense.emit_descriptor(&mut long);
    assert_eq!(Sense::parse(&long[..length]), Ok(sense));
    let mut fixed = [0xA5; FIXED_LENGTH];
    sense.emit_fixed(&mut fixed);
    let back = Sense::parse(&fixed).expect("just written");
    assert_eq!((back.key, back.additional, back.ili), (sense.key, sense.additional, sense.ili));
    if let Some(specific) = sense.key_specific {
        let pointer = FieldPointer::parse(specific);
        assert_eq!(FieldPointer::parse(pointer.to_bytes()), pointer);
    }
    assert!(!sense.to_string().is_empty());
}

fn inquiry(bytes: &[u8]) {
    let Ok(data) = InquiryData::parse(bytes) else { return };
    let mut out = [0xA5; inquiry::LENGTH];
    data.emit(&mut out);
    assert_eq!(InquiryData::parse(&out), Ok(data));
    for text in [data.vendor.to_string(), data.product.to_string(), data.revision.to_string()] {
        assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~')));
    }
}

fn pages(bytes: &[u8]) {
    let Ok(view) = VpdView::new(bytes) else { return };
    assert!(view.payload().len() <= bytes.len() - vpd::HEADER_LENGTH);
    let _ = vpd::supported_pages(bytes).map(Iterator::count);
    let _ = vpd::serial_number(bytes);
    if let Ok(designators) = vpd::designators(bytes) {
        let mut out = Vec::new();
        for designator in designators {
            let mut one = [0; 4 + 255];
            let length = designator.emit(&mut one).expect("as long as it was");
            out.extend_from_slice(&one[..length]);
        }
        assert!(out.len() <= view.payload().len());
    }
    if let Ok(value) = BlockLimits::parse(bytes) {
        let mut out = [0xA5; BlockLimits::LENGTH];
        value.emit(&mut out);
        assert_eq!(BlockLimits::parse(&out), Ok(value));
    }
    if let Ok(value) = BlockDeviceCharacteristics::parse(bytes) {
        let mut out = [0xA5; BlockDeviceCharacteristics::LENGTH];
        value.emit(&mut out);
        assert_eq!(BlockDeviceCharacteristics::parse(&out), Ok(value));
    }
    if let Ok(value) = LogicalBlockProvisioning::parse(bytes) {
        let mut out = [0xA5; LogicalBlockProvisioning::LENGTH];
        value.emit(&mut out);
        assert_eq!(LogicalBlockProvisioning::parse(&out), Ok(value));
    }
}

fn lists(bytes: &[u8]) {
    if let Ok((found, _)) = luns::parse(bytes) {
        let found: Vec<LogicalUnitNumber> = found.collect();
        for lun in &found {
            if let Some(ufs) = lun.to_ufs() {
                assert_eq!(LogicalUnitNumber::from_ufs(ufs).to_ufs(), Some(ufs));
            }
        }
        let mut out = vec![0; luns::HEADER_LENGTH + found.len() * luns::LUN_LENGTH];
        assert_eq!(luns::emit(found.iter().copied(), &mut out), out.len());
        assert!(luns::parse(&out).expect("just written").0.eq(found));
    }
    if let Ok(ranges) = unmap::parse(bytes) {
        let ranges: Vec<UnmapRange> = ranges.collect();
        let mut out = vec![0; unmap::length(ranges.len())];
        let length = unmap::emit(&ranges, &mut out).expect("as many as there were");
        assert!(unmap::parse(&out[..length]).expect("just written").eq(ranges));
    }
}
