use super::*;
use proptest::prelude::*;

#[test]
fn a_frame_has_its_fields_in_place() {
    let mut bytes = [0xFF; RpmbFrame::LENGTH];
    let frame = RpmbFrame {
        nonce: [7; 16],
        write_counter: 0x0102_0304,
        block_count: 2,
        address: 0x0506,
        ..RpmbFrame::new(RpmbMessage::DataWrite)
    };
    frame.emit(&mut bytes);
    let tail = [1, 2, 3, 4, 5, 6, 0, 2, 0, 0, 0, 3];
    assert_eq!(bytes[500..], tail);
    assert_eq!((bytes[0], bytes[195], bytes[484], bytes[499]), (0, 0, 7, 7));
    assert_eq!(RpmbFrame::authenticated(&bytes).len(), 284);
    assert_eq!(RpmbFrame::authenticated(&bytes)[272..], tail);
    assert_eq!(RpmbMessage::DataWrite.response(), RpmbMessage::DataWriteResponse);
    assert_eq!(RpmbMessage::PurgeStatusRead.response().into_bits(), 0x0900);
    assert_eq!(protocol_specific(3), 0x0301);
}

#[test]
fn the_result_keeps_its_expired_bit() {
    let result = RpmbResult::from_bits(0x0085);
    assert!(result.counter_expired());
    assert_eq!(result.status(), RpmbStatus::WriteFailure);
    assert_eq!(RpmbResult::from_bits(0x0D).status(), RpmbStatus::Unknown(0x0D));
}

#[test]
fn advanced_messages_of_another_kind_are_refused() {
    let mut bytes = [0; AdvancedRpmb::LENGTH];
    AdvancedRpmb::new(RpmbMessage::ReadCounter).emit(&mut bytes);
    assert_eq!(bytes[..6], [2, 1, 0, 0, 0, 2]);
    assert!(AdvancedRpmb::parse(&bytes[..63]).is_err());
    // ufs-utils hashes 28 bytes of fields and four zero bytes after the data.
    AdvancedRpmb { key_mac: [9; 32], ..AdvancedRpmb::new(RpmbMessage::DataRead) }.emit(&mut bytes);
    assert_eq!(AdvancedRpmb::authenticated(&bytes)[..2], [0, 4]);
    assert_eq!(AdvancedRpmb::authenticated(&bytes)[2..], [0; 30]);
    bytes[1] = 2;
    assert_eq!(AdvancedRpmb::parse(&bytes), Err(WireError::WrongCode { expected: 1, got: 2 }));
    bytes[0] = 3;
    assert_eq!(AdvancedRpmb::parse(&bytes), Err(WireError::BadField("bLength")));
}

proptest! {
    #[test]
    fn frames_round_trip(bytes in proptest::collection::vec(any::<u8>(), 512)) {
        let mut bytes: [u8; 512] = array(&bytes, 0);
        bytes[..RpmbFrame::MAC_OFFSET].fill(0);
        let mut out = [0xA5; RpmbFrame::LENGTH];
        RpmbFrame::parse(&bytes).emit(&mut out);
        prop_assert_eq!(out, bytes);
    }

    #[test]
    fn advanced_messages_round_trip(bytes in proptest::collection::vec(any::<u8>(), 64)) {
        let mut bytes: [u8; 64] = array(&bytes, 0);
        bytes[..4].copy_from_slice(&[2, 1, 0, 0]);
        let mut out = [0xA5; AdvancedRpmb::LENGTH];
        AdvancedRpmb::parse(&bytes).unwrap().emit(&mut out);
        prop_assert_eq!(out, bytes);
    }

    #[test]
    fn configurations_settle(
        bytes in proptest::collection::vec(any::<u8>(), 256),
        n in 0u8..6,
    ) {
        let mut bytes: [u8; 256] = array(&bytes, 0);
        let _ = SecureWriteProtectView::new(&bytes).map(|view| view.entries().count());
        bytes[1] = n * 16;
        let Ok(view) = SecureWriteProtectView::new(&bytes) else {
            prop_assert!(n > 4);
            return Ok(());
        };
        let entries: std::vec::Vec<_> = view.entries().collect();
        let mut out = [0xA5; DATA_LENGTH];
        prop_assert!(SecureWriteProtectView::emit(view.lun(), &entries, &mut out));
        prop_assert!(SecureWriteProtectView::new(&out).unwrap().entries().eq(entries));
    }
}
