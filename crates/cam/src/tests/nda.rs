//! What NVMe commands and statuses look like to a disk.

use flysch_api::block::{BlockError, Cause};
use flysch_api::command::{Ended, Failure, Nvme, NvmeStatus};
use flysch_wire::nvme::{IdentifyController, IdentifyNamespace, LbaFormat, Status};

use crate::CamError;
use crate::family::{Action, DELETE_LIST_MAX, Family, Trouble};
use crate::nda::{STATUS, lookup, shape};

fn answered(status: u16, code: u32) -> crate::family::Verdict {
    let status = NvmeStatus { status, result: 0 };
    Nvme::verdict(Ended::Answered, &Failure { status, residual: 0, code }, true)
}

/// Opcodes and dwords of the NVM command set specification, 3.2.
#[test]
fn commands_are_those_of_the_specification() {
    let read = Nvme::transfer(false, 0x12_3456_789A, 0x1_0000, false);
    assert_eq!((read.opcode, read.cdw10), (2, [0x3456_789A, 0x12, 0xFFFF, 0, 0, 0]));
    let write = Nvme::transfer(true, 7, 1, true);
    assert_eq!((write.opcode, write.cdw10), (1, [7, 0, 1 << 30, 0, 0, 0]));
    assert_eq!((Nvme::flush().opcode, Nvme::flush().cdw10), (0, [0; 6]));
    // Zoned namespace command set 3.4.3.
    let reset = Nvme::reset_zone(0x2_0000_8000).unwrap();
    assert_eq!((reset.opcode, reset.cdw10), (0x79, [0x8000, 2, 0, 4, 0, 0]));
    let mut list = [0xFF; DELETE_LIST_MAX];
    let (delete, len) = Nvme::delete(0x1_0000_0002, 3, &mut list);
    assert_eq!((delete.opcode, delete.cdw10[..2].to_vec(), len), (9, [0, 4].to_vec(), 16));
    assert_eq!(list[..16], [0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn what_must_not_be_tried_again_is_not() {
    let internal = Status::Internal.into_bits();
    assert_eq!(answered(internal, 0).action, Action::Retry(u8::MAX));
    assert_eq!(answered(internal | 1 << 14, 0).action, Action::Fail);
    assert_eq!(answered(internal | 1 << 11, 700).action, Action::After(700));
    assert_eq!(answered(internal | 1 << 14 | 1 << 11, 700).action, Action::Fail, "DNR wins");
    assert_eq!(answered(Status::LbaRange.into_bits(), 700).action, Action::Fail);
    assert_eq!(answered(0, 0).action, Action::Succeed, "with a result in DW0");
    let bad = answered(Status::UnrecoveredRead.into_bits(), 0);
    let cause = Cause::Nvme(NvmeStatus { status: 0x281, result: 0 });
    assert_eq!((bad.error, bad.trouble), (BlockError::Medium(cause), Trouble::Medium));
}

#[test]
fn every_status_has_a_row_and_no_row_is_hidden() {
    for bits in 0..=0x7FF {
        lookup(Status::from_bits(bits));
    }
    for row in STATUS {
        let first = lookup(Status::from_bits(row.status.0));
        let last = lookup(Status::from_bits(row.status.1));
        assert!(first.reason == row.reason || last.reason == row.reason, "{}", row.reason);
    }
}

#[test]
fn a_namespace_becomes_a_shape_or_says_why_not() {
    let controller = IdentifyController { oncs: 4, vwc: 1, ..IdentifyController::default() };
    let mut namespace = IdentifyNamespace { nsze: 1000, nlbaf: 1, ..Default::default() };
    namespace.set_format(0, LbaFormat { shift: 12, ..LbaFormat::default() });
    namespace.set_format(1, LbaFormat { shift: 12, metadata: 8, performance: 0 });
    let good = shape(3, &controller, &namespace).unwrap();
    assert_eq!((good.unit, good.block_size, good.blocks), (3, 4096, 1000));
    assert!(good.write_cache && good.delete_blocks_max > 0);
    namespace.flbas = 1;
    assert_eq!(shape(3, &controller, &namespace), Err(CamError::Metadata { unit: 3 }));
    namespace.flbas = 2;
    let bad = Err(CamError::BlockSize { unit: 3, block_size: 1 });
    assert_eq!(shape(3, &controller, &namespace), bad);
    namespace.nsze = 0;
    assert_eq!(shape(3, &controller, &namespace), Err(CamError::NotADisk { unit: 3 }));
}
