//! `da`: direct-access SCSI units.

use flysch_api::block::{BlockError, Cause};
use flysch_api::command::{Cdb, Ended, Failure, Scsi, ScsiStatus};
use flysch_wire::scsi::Status;
use flysch_wire::scsi::cdb::{self as wire, CacheRange, StartStop, Transfer, TransferFlags};
use flysch_wire::scsi::unmap::{self, UnmapRange};

use crate::family::{Action, DELETE_LIST_MAX, Family, Trouble, Verdict};
use crate::sense;

/// Length of an UNMAP parameter list with one descriptor, bytes.
const UNMAP_LIST: usize = unmap::length(1);
const _: () = assert!(UNMAP_LIST <= Scsi::DELETE_LIST);

impl Family for Scsi {
    const NAME: &'static str = "da";

    /// The 10-byte form if address and length fit it, otherwise the 16-byte form.
    #[inline]
    fn transfer(write: bool, lba: u64, blocks: u32, force_unit_access: bool) -> Cdb {
        let flags = TransferFlags::new().with_fua(force_unit_access);
        let transfer = Transfer { flags, ..Transfer::new(lba, blocks) };
        let short = lba <= u64::from(u32::MAX) && blocks <= u32::from(u16::MAX);
        let cdb = match (short, write) {
            (true, false) => wire::Cdb::Read10(transfer),
            (true, true) => wire::Cdb::Write10(transfer),
            (false, false) => wire::Cdb::Read16(transfer),
            (false, true) => wire::Cdb::Write16(transfer),
        };
        Cdb(cdb.to_bytes())
    }

    /// SYNCHRONIZE CACHE(10) over the whole unit.
    fn flush() -> Cdb {
        Cdb(wire::Cdb::SynchronizeCache10(CacheRange::default()).to_bytes())
    }

    /// UNMAP with a parameter list of one descriptor.
    fn delete(lba: u64, blocks: u32, list: &mut [u8; DELETE_LIST_MAX]) -> (Cdb, usize) {
        unmap::emit(&[UnmapRange { lba, blocks }], &mut list[..UNMAP_LIST])
            .expect("the list has room for one");
        let parameter_list_length = UNMAP_LIST as u16;
        let cdb = wire::Cdb::Unmap { anchor: false, group: 0, parameter_list_length };
        (Cdb(cdb.to_bytes()), UNMAP_LIST)
    }

    /// START STOP UNIT, START.
    fn start_unit() -> Option<Cdb> {
        Some(Cdb(wire::Cdb::StartStopUnit(StartStop::new(true, false)).to_bytes()))
    }

    fn verdict(ended: Ended, failure: &Failure<Self>, moves_data: bool) -> Verdict {
        if ended != Ended::Answered {
            return Verdict::without_answer(ended, failure.code);
        }
        let short = moves_data && failure.residual != 0;
        let ScsiStatus { status, sense } = &failure.status;
        let device = |cause| BlockError::Device(cause);
        match Status::from_bits(*status) {
            // Data is missing although the device reports success: it must not be handed up.
            Status::Good | Status::ConditionMet if short => SHORT,
            Status::Good | Status::ConditionMet => {
                Verdict::new(Action::Succeed, device(Cause::None), Trouble::None)
            }
            Status::CheckCondition => match sense::verdict(sense) {
                Verdict { action: Action::Succeed, trouble, .. } if short => {
                    Verdict { trouble, ..SHORT }
                }
                verdict => verdict,
            },
            Status::Busy => Verdict::new(Action::BackOff, device(told(*status)), Trouble::Busy),
            Status::TaskSetFull => {
                Verdict::new(Action::Throttle, device(told(*status)), Trouble::QueueFull)
            }
            Status::TaskAborted => Verdict::new(Action::Requeue, BlockError::Reset, Trouble::Reset),
            // RESERVATION CONFLICT, ACA ACTIVE and undefined values.
            _ => Verdict::new(Action::Fail, device(told(*status)), Trouble::None),
        }
    }
}

/// A transfer that ended short is reported as ABORTED COMMAND, DATA PHASE ERROR.
const SHORT: Verdict = Verdict::new(
    Action::Retry(u8::MAX),
    BlockError::Device(Cause::sense(0xB, 0x4B, 0x00)),
    Trouble::Short,
);

/// A status without sense data.
const fn told(status: u8) -> Cause {
    Cause::Scsi { status, key: 0, asc: 0, ascq: 0, information: None }
}
