//! What ATA commands and errors look like to a disk.

use flysch_api::block::{BlockError, Cause};
use flysch_api::command::{Ata, AtaProtocol, AtaStatus, Ended, Failure};
use flysch_wire::ata::identify::{set82, set83, set84};
use flysch_wire::ata::{Identify, Kind, dsm};

use crate::CamError;
use crate::ada::{ERRORS, Ways, lookup, shape};
use crate::family::{Action, DELETE_LIST_MAX, Family, Trouble};

fn answered(status: u8, error: u8, residual: u32) -> crate::family::Verdict {
    let status = AtaStatus { status, error, lba: 77, sense: [0; 3] };
    Ata::verdict(Ended::Answered, &Failure { status, residual, code: 0 }, true)
}

/// Opcodes and registers of ACS-4, 7.
#[test]
fn commands_are_those_of_the_specification() {
    let read = Ata::transfer(false, 0x1234_5678_9ABC, 8, true);
    assert_eq!((read.command, read.features, read.device), (0x60, 8, 0x40), "reads are not forced");
    assert_eq!((read.lba, read.protocol), (0x1234_5678_9ABC, AtaProtocol::Ncq));
    let write = Ata::transfer(true, 7, 1 << 16, true);
    assert_eq!((write.command, write.features, write.device), (0x61, 0, 0xC0));
    assert_eq!((Ata::flush().command, Ata::flush().protocol), (0xEA, AtaProtocol::NonData));
    let mut list = [0xFF; DELETE_LIST_MAX];
    let (delete, len) = Ata::delete(0x1_0000_0002, 0x1_0001, &mut list);
    assert_eq!((delete.command, delete.features, delete.count, len), (0x06, 1, 1, 512));
    let ranges: std::vec::Vec<_> = dsm::ranges(&list[..len]).collect();
    assert_eq!(ranges, [(0x1_0000_0002, 0xFFFF), (0x1_0001_0001, 2)]);
}

#[test]
fn errors_have_the_cures_of_their_table() {
    let bad = answered(0x51, 0x40, 0);
    let cause = Cause::Ata(AtaStatus { status: 0x51, error: 0x40, lba: 77, sense: [0; 3] });
    assert_eq!((bad.action, bad.error), (Action::Retry(1), BlockError::Medium(cause)));
    assert_eq!(answered(0x51, 0x10, 0).error, BlockError::OutOfRange);
    assert_eq!(answered(0x51, 0x84, 0).trouble, Trouble::Host, "a CRC error, although it aborted");
    assert_eq!(answered(0x51, 0x04, 0).trouble, Trouble::Aborted);
    assert_eq!(answered(0x61, 0x04, 0).trouble, Trouble::Hardware);
    assert_eq!(answered(0x50, 0, 512).trouble, Trouble::Short);
    assert_eq!(answered(0x50, 0, 0).action, Action::Succeed);
    for row in ERRORS {
        let status = AtaStatus { status: row.bits.0, error: row.bits.1, ..AtaStatus::default() };
        assert_eq!(lookup(&status).reason, row.reason, "a row before hides it");
    }
}

#[test]
fn a_device_becomes_a_shape_or_says_why_not() {
    let ways = Ways { queued: true, force_unit_access: true, trims: true };
    let good = Identify {
        supported: [set82::WRITE_CACHE, set83::LBA48, 0],
        enabled: [set82::WRITE_CACHE, set83::LBA48, 0],
        sectors_48: 1000,
        dsm: 1,
        ..Identify::default()
    };
    let disk = shape(&good, ways).unwrap();
    assert_eq!((disk.block_size, disk.blocks, disk.transfer_blocks_max), (512, 1000, 65536));
    assert!(disk.write_cache && disk.force_unit_access && disk.delete_blocks_max == 64 * 65535);
    let alone = shape(&good, Ways { queued: false, ..ways }).unwrap();
    assert!(!alone.force_unit_access, "WRITE DMA FUA EXT is not there");
    let fua = Identify { supported: [0, set83::LBA48, set84::FUA], ..good.clone() };
    assert!(shape(&fua, Ways { queued: false, ..ways }).unwrap().force_unit_access);
    let none = Ways { trims: false, force_unit_access: false, queued: true };
    let plain = shape(&good, none).unwrap();
    assert!(!plain.force_unit_access && plain.delete_blocks_max == 0);
    let old = Identify { supported: [0; 3], sectors_28: 500, ..good.clone() };
    assert_eq!(shape(&old, ways).unwrap().transfer_blocks_max, 256);
    let packet = Identify { kind: Kind::Packet, ..good };
    assert_eq!(shape(&packet, ways), Err(CamError::NotADisk { unit: 0 }));
}
