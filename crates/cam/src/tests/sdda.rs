//! What MMC commands and statuses look like to a disk.

use flysch_api::block::{BlockError, Cause};
use flysch_api::command::{Ended, Failure, Mmc, MmcStatus};
use flysch_wire::mmc::CardStatus;

use crate::CamError;
use crate::family::{Action, DELETE_LIST_MAX, Family, Trouble, Verdict};
use crate::sdda::{Card, STATUS, lookup, shape};

fn answered(status: u32) -> Verdict {
    let status = MmcStatus { status, long: 0 };
    Mmc::verdict(Ended::Answered, &Failure { status, residual: 0, code: 0 }, true)
}

/// Indices and arguments of JESD84-B51, 6.10.4.
#[test]
fn commands_are_those_of_the_specification() {
    let read = Mmc::transfer(false, 0x1234_5678, 8, false);
    assert_eq!((read.index, read.argument, read.set_block_count), (18, 0x1234_5678, None));
    let write = Mmc::transfer(true, 7, 1, true);
    assert_eq!((write.index, write.set_block_count), (25, Some(1 << 31)));
    assert_eq!(Mmc::transfer(false, 7, 1, true).set_block_count, None, "reads are not forced");
    assert_eq!((Mmc::flush().index, Mmc::flush().argument), (6, 0x0320_0101));
    let mut list = [0xFF; DELETE_LIST_MAX];
    let (delete, len) = Mmc::delete(0x100, 3, &mut list);
    assert_eq!((delete.index, delete.argument, len), (38, 1, 8));
    assert_eq!(list[..8], [0, 1, 0, 0, 2, 1, 0, 0]);
}

#[test]
fn errors_of_the_device_status() {
    let protected = answered(1 << 26 | 0x900);
    assert_eq!((protected.action, protected.error), (Action::Fail, BlockError::WriteProtected));
    assert_eq!(answered(1 << 31).error, BlockError::OutOfRange);
    let bad = answered(1 << 21);
    let cause = Cause::Mmc(MmcStatus { status: 1 << 21, long: 0 });
    assert_eq!((bad.action, bad.error), (Action::Retry(1), BlockError::Medium(cause)));
    assert_eq!(bad.trouble, Trouble::Medium);
    assert_eq!(answered(1 << 19).action, Action::Retry(u8::MAX));
    assert_eq!(answered(0x900).action, Action::Retry(u8::MAX), "no error that is named");
    // Permanent errors take precedence over those that may pass.
    assert_eq!(answered(1 << 26 | 1 << 19).action, Action::Fail);
}

#[test]
fn every_row_is_found_by_its_own_bit() {
    for row in STATUS {
        assert_eq!(lookup(row.bits).reason, row.reason);
        assert_eq!(row.bits.into_bits().count_ones(), 1);
    }
    assert_eq!(lookup(CardStatus::from_bits(0x900)).reason, "anything else may pass");
}

#[test]
fn a_partition_becomes_a_shape_or_says_why_not() {
    let card = Card { sectors: 8192, cache: true, trim: true, ..Card::default() };
    let shape_of = shape(1, &card).expect("a boot partition");
    assert_eq!((shape_of.unit, shape_of.block_size, shape_of.blocks), (1, 512, 8192));
    assert!(shape_of.write_cache && !shape_of.force_unit_access);
    assert_ne!(shape_of.delete_blocks_max, 0);
    let none = shape(4, &Card::default());
    assert!(matches!(none, Err(CamError::NotADisk { unit: 4 })));
    assert!(shape(0, &Card { sectors: (1 << 32) + 1, ..card }).is_err());
}

/// Blocks of eight sectors: commands count sectors all the same.
#[test]
fn native_sectors_are_the_blocks_of_a_disk() {
    assert_eq!(Mmc::counted(4096), 512);
    let card = Card { sectors: 8195, block_size: 4096, cache: true, trim: true, ..Card::default() };
    let disk = shape(0, &card).expect("a disk");
    assert_eq!((disk.block_size, disk.blocks), (4096, 1024), "whole ones");
    assert_eq!((disk.transfer_blocks_max, disk.delete_blocks_max), (8191, 1 << 18));
    let odd = shape(0, &Card { block_size: 1024, ..card });
    assert!(matches!(odd, Err(CamError::BlockSize { unit: 0, block_size: 1024 })));
    assert!(shape(0, &Card { sectors: 7, ..card }).is_err());
}
