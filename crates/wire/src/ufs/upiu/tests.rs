use super::*;
use crate::ufs::cqe::{self, Cqe, CqeUcd};
use crate::ufs::prdt::{self, PrdtEntry};
use crate::ufs::query::{QueryOpcode, QueryResult};
use crate::ufs::utmrd::{self, Utmrd};
use crate::ufs::utrd::{self, CommandType, DataDirection, Ocs, UcdSpan, Utrd, UtrdHeader};
use proptest::prelude::*;
use std::vec::Vec;

fn words_as_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn a_read_command_has_the_bytes_a_device_expects() {
    let mut cdb = [0; 16];
    cdb[..10].copy_from_slice(&[0x28, 0, 0, 0, 0x12, 0x34, 0, 0, 8, 0]);
    let mut unit = CommandUpiu::new(3, 17, CommandFlags::new().with_r(true), cdb);
    unit.expected_data_transfer_length = 0x8000;
    let mut bytes = [0xFF; LENGTH];
    unit.emit(&mut bytes);
    assert_eq!(&bytes[..16], &[1, 0x40, 3, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0]);
    assert_eq!(bytes[16..], cdb);
    assert_eq!(CommandUpiu::first_word(3, 17, unit.flags()).to_ne_bytes(), bytes[..4]);
    assert_eq!(CommandUpiu::expected_length_word(0x8000).to_ne_bytes(), bytes[12..16]);
    assert_eq!(words_as_bytes(&CommandUpiu::cdb_words(&cdb)), bytes[16..]);
}

#[test]
fn a_transfer_request_has_its_bits_in_place() {
    let header = UtrdHeader::new()
        .with_ct(CommandType::UfsStorage)
        .with_dd(DataDirection::FromDevice)
        .with_i(true);
    assert_eq!(header.into_bits(), 0x1500_0000);
    assert_eq!(header.with_ce(true).with_cci(5).with_ehsl(2).into_bits(), 0x1580_0205);
    let entry = PrdtEntry { address: 0x1_0000_1000, length: 4096 };
    let mut bytes = [0; prdt::LENGTH];
    entry.emit(&mut bytes);
    assert_eq!(bytes, [0, 0x10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0x0F, 0, 0]);
    let ucd = CqeUcd::pack(0x1234_5680, 7);
    assert_eq!((ucd.base(), ucd.sqid()), (0x1234_5680, 7));
}

#[test]
fn a_descriptor_read_and_a_64_bit_attribute_share_the_operand() {
    let mut bytes = [0; LENGTH];
    QueryRequest::new(9, QueryFields::read_descriptor(7, 1, 2, 0x0157)).emit(&mut bytes);
    assert_eq!(
        &bytes[..24],
        &[0x16, 0, 0, 9, 0, 1, 0, 0, 0, 0, 0, 0, 1, 7, 1, 2, 0, 0, 1, 0x57, 0, 0, 0, 0]
    );
    let write = QueryFields::write_attribute(0x30, 0, 0, 0x0102_0304_0506_0708);
    QueryRequest::new(9, write).emit(&mut bytes);
    assert_eq!((bytes[5], &bytes[16..24]), (0x81, &[1, 2, 3, 4, 5, 6, 7, 8][..]));
    assert_eq!(QueryRequest::parse(&bytes).unwrap().fields.value64(), 0x0102_0304_0506_0708);
    let flag = QueryFields { operand: 1, ..QueryFields::flag(QueryOpcode::ReadFlag, 1, 0, 0) };
    assert!(flag.flag_value());
    let response = QueryResponse::new(&QueryRequest::new(4, write), QueryResult::InvalidIdn, write);
    assert_eq!((response.header.task_tag, response.result()), (4, QueryResult::InvalidIdn));
}

#[test]
fn a_wrong_unit_is_refused() {
    let mut bytes = [0; LENGTH];
    NopIn::new(1).emit(&mut bytes);
    let refused = Err(WireError::WrongCode { expected: 0x21, got: 0x20 });
    assert_eq!(ResponseUpiu::parse(&bytes), refused);
}

#[test]
fn sense_is_found_whatever_the_segment_length_says() {
    let sense: [u8; 18] = core::array::from_fn(|n| n as u8);
    let mut bytes = [0; RESPONSE_LENGTH_MAX];
    let length = ResponseUpiu::new(0, 1, 2).emit_with_sense(&sense, &mut bytes);
    assert_eq!((length, bytes[11]), (52, 20));
    let fixed = crate::bytes::array(&bytes, 0);
    assert_eq!(ResponseUpiu::parse(&fixed).unwrap().sense(&bytes), sense);
    // QEMU 10.0.2 swaps the two bytes of the data segment length.
    bytes.swap(10, 11);
    let fixed = crate::bytes::array(&bytes, 0);
    assert_eq!(ResponseUpiu::parse(&fixed).unwrap().sense(&bytes), sense);
    assert_eq!(ResponseUpiu::parse(&fixed).unwrap().sense(&bytes[..40]), &sense[..6]);
    assert_eq!(ResponseUpiu::parse(&fixed).unwrap().sense(&bytes[..33]), &[0u8; 0]);
}

proptest! {
    #[test]
    fn header_round_trips(bytes in any::<[u8; HEADER_LENGTH]>()) {
        let mut out = [0; HEADER_LENGTH];
        Header::parse(&bytes).emit(&mut out);
        prop_assert_eq!(out, bytes);
    }

    #[test]
    fn any_unit_settles_after_one_pass(bytes in any::<[u8; LENGTH]>()) {
        let unit = Upiu::parse(&bytes);
        let mut out = [0xA5; LENGTH];
        unit.emit(&mut out);
        prop_assert_eq!(&out[..HEADER_LENGTH], &bytes[..HEADER_LENGTH]);
        prop_assert_eq!(Upiu::parse(&out), unit);
    }

    #[test]
    fn segments_never_reach_outside(bytes in proptest::collection::vec(any::<u8>(), 12..200)) {
        let head: [u8; HEADER_LENGTH] = crate::bytes::array(&bytes, 0);
        let header = Header::parse(&head);
        let _ = header.data_segment(&bytes);
        let _ = header.extra_header_segments(&bytes);
        let unit = ResponseUpiu { header, residual_transfer_count: 0 };
        prop_assert!(unit.sense(&bytes).len() <= SENSE_LENGTH_MAX);
    }

    #[test]
    fn transfer_request_round_trips(bytes in any::<[u8; utrd::LENGTH]>()) {
        let utrd = Utrd::parse(&bytes);
        let mut out = [0; utrd::LENGTH];
        utrd.emit(&mut out);
        prop_assert_eq!(out, bytes);
        prop_assert_eq!(words_as_bytes(&utrd.to_words()), bytes);
    }

    #[test]
    fn completion_round_trips(mut bytes in any::<[u8; cqe::LENGTH]>()) {
        bytes[24..].fill(0);
        let mut out = [0xA5; cqe::LENGTH];
        Cqe::parse(&bytes).emit(&mut out);
        prop_assert_eq!(out, bytes);
    }

    #[test]
    fn task_request_descriptor_round_trips(bytes in any::<[u8; utmrd::LENGTH]>()) {
        let utmrd = Utmrd::parse(&bytes);
        let mut out = [0xA5; utmrd::LENGTH];
        utmrd.emit(&mut out);
        prop_assert_eq!(Utmrd::parse(&out), utmrd);
    }

    #[test]
    fn region_entry_round_trips(address: u64, length in 1..=prdt::ENTRY_MAX) {
        let entry = PrdtEntry { address, length };
        let mut out = [0xA5; prdt::LENGTH];
        entry.emit(&mut out);
        prop_assert_eq!(PrdtEntry::parse(&out), entry);
        prop_assert_eq!(words_as_bytes(&entry.to_words()), out);
    }

    #[test]
    fn regions_cover_the_buffer(address in 0..u64::MAX / 2, length: u32) {
        let mut at = address;
        for entry in prdt::entries(address, length) {
            prop_assert!(entry.address == at && entry.length <= prdt::ENTRY_MAX);
            at += u64::from(entry.length);
        }
        prop_assert_eq!(at, address + u64::from(length));
    }
}

#[test]
fn codes_of_the_hot_path_keep_unknown_numbers() {
    for bits in 0..=u8::MAX {
        assert_eq!(Ocs::from_bits(bits).into_bits(), bits);
        assert_eq!(TaskFunction::from_bits(bits).into_bits(), bits);
        assert_eq!(QueryResult::from_bits(bits).into_bits(), bits);
    }
    assert_eq!(UcdSpan::new().with_offset(128).offset_bytes(), 512);
}
