use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn entries_survive_the_way_there_and_back(words: [u64; 8], answer: [u64; 2]) {
        // Bits 13:10 of DW0 are reserved.
        let flags = command::SqeFlags::from_bits(0xC3);
        let mut sqe = Sqe::from_words(words);
        sqe.flags = command::SqeFlags::from_bits(sqe.flags.into_bits() & flags.into_bits());
        prop_assert_eq!(Sqe::from_words(sqe.to_words()), sqe);
        let cqe = Cqe::from_words(answer);
        prop_assert_eq!(cqe.to_words(), answer);
    }

    #[test]
    fn identify_survives_the_way_there_and_back(bytes in prop::collection::vec(any::<u8>(), 4096)) {
        let controller = IdentifyController::parse(&bytes).unwrap();
        prop_assert_eq!(&IdentifyController::parse(&controller.to_bytes()).unwrap(), &controller);
        let namespace = IdentifyNamespace::parse(&bytes).unwrap();
        prop_assert_eq!(&IdentifyNamespace::parse(&namespace.to_bytes()).unwrap(), &namespace);
        prop_assert!(identify::descriptors(&bytes).count() <= bytes.len());
    }
}

/// A read of 8 blocks from block 100 of namespace 1 with PRPs, byte by byte as drawn in the
/// specification.
#[test]
fn a_read_is_these_bytes() {
    let sqe = Sqe {
        opcode: NvmOpcode::Read.into_bits(),
        cid: 0x1234,
        nsid: 1,
        data: [0x11_2000, 0x11_3000],
        cdw10: [100, 0, 7 | 1 << 30, 0, 0, 0],
        ..Sqe::default()
    };
    let mut bytes = [0; 64];
    for (at, word) in sqe.to_words().into_iter().enumerate() {
        bytes[at * 8..][..8].copy_from_slice(&word.to_ne_bytes());
    }
    assert_eq!(bytes[..8], [2, 0, 0x34, 0x12, 1, 0, 0, 0]);
    assert_eq!(bytes[24..40], [0, 0x20, 0x11, 0, 0, 0, 0, 0, 0, 0x30, 0x11, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[40..52], [100, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0x40]);
    let flags = command::TransferFlags::from_bits(sqe.cdw10[2]);
    assert!(flags.fua() && flags.nlb() == 7);
}

/// QEMU's CAP, decoded as in its documentation of the fields.
#[test]
fn capabilities_of_a_known_controller() {
    let cap = registers::Cap::from_bits(0x0040_0820_0F01_07FF);
    assert_eq!((cap.mqes(), cap.to(), cap.dstrd(), cap.mpsmax()), (2047, 15, 0, 4));
    assert!(cap.cqr() && cap.css_nvm() && cap.css_io() && !cap.nssrs());
    assert_eq!(registers::sq_tail(3, 0), 0x1018);
    assert_eq!(registers::cq_head(3, 2), 0x1070);
}

#[test]
fn data_as_pages() {
    assert_eq!(prp::span(0x1_0000, 4096, 4096), (0x1_0000, 0x1_1000, 0));
    assert_eq!(prp::span(0x1_0004, 4096, 4096), (0x1_0004, 0x1_1000, 1));
    assert_eq!(prp::span(0x1_0FFC, 4, 4096), (0x1_0FFC, 0x1_1000, 0));
    assert_eq!(prp::span(0x1_0000, 1 << 20, 4096), (0x1_0000, 0x1_1000, 255));
}

#[test]
fn short_bytes_are_an_error_and_lists_end_where_they_end() {
    assert!(IdentifyController::parse(&[0; 4095]).is_err());
    assert_eq!(identify::ids(&[1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0]).sum::<u32>(), 8);
    let bytes = [2, 2, 0, 0, 0xAA, 0xBB, 3, 200, 0, 0, 1];
    let found: std::vec::Vec<_> = identify::descriptors(&bytes).map(|d| (d.kind, d.id)).collect();
    assert_eq!(found, [(2, &[0xAA, 0xBB][..])]);
}
