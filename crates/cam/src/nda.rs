//! `nda`: NVMe namespaces.

use flysch_api::block::Cause;
use flysch_api::command::{Ended, Failure, Nvme, NvmeCommand};
use flysch_wire::nvme::command::{BLOCKS_MAX, DSM_DEALLOCATE, DSM_RANGE, DsmRange, TransferFlags};
use flysch_wire::nvme::identify::oncs;
use flysch_wire::nvme::zone::ZoneAction;
use flysch_wire::nvme::{IdentifyController, IdentifyNamespace, NvmOpcode, Status};

use crate::disk::Shape;
use crate::error::CamError;
use crate::family::{Action, DELETE_LIST_MAX, Family, Meaning, Trouble, Verdict};

const _: () = assert!(DSM_RANGE <= Nvme::DELETE_LIST);
/// The bit of NSATTR that says that a namespace is write protected.
const WRITE_PROTECTED: u8 = 1;

impl Family for Nvme {
    const NAME: &'static str = "nda";

    #[inline]
    fn transfer(write: bool, lba: u64, blocks: u32, force_unit_access: bool) -> NvmeCommand {
        let opcode = if write { NvmOpcode::Write } else { NvmOpcode::Read };
        let flags = TransferFlags::new()
            .with_nlb(blocks.wrapping_sub(1) as u16)
            .with_fua(force_unit_access);
        NvmeCommand {
            opcode: opcode.into_bits(),
            cdw10: [lba as u32, (lba >> 32) as u32, flags.into_bits(), 0, 0, 0],
            ..NvmeCommand::default()
        }
    }

    fn flush() -> NvmeCommand {
        NvmeCommand { opcode: NvmOpcode::Flush.into_bits(), ..NvmeCommand::default() }
    }

    /// Dataset management, deallocate, one range.
    fn delete(lba: u64, blocks: u32, list: &mut [u8; DELETE_LIST_MAX]) -> (NvmeCommand, usize) {
        let range = DsmRange { attributes: 0, blocks, slba: lba };
        list[..DSM_RANGE].copy_from_slice(&range.to_bytes());
        let command = NvmeCommand {
            opcode: NvmOpcode::DatasetManagement.into_bits(),
            cdw10: [0, DSM_DEALLOCATE, 0, 0, 0, 0],
            ..NvmeCommand::default()
        };
        (command, DSM_RANGE)
    }

    /// Zone management send, reset.
    fn reset_zone(lba: u64) -> Option<NvmeCommand> {
        let action = u32::from(ZoneAction::Reset.into_bits());
        Some(NvmeCommand {
            opcode: NvmOpcode::ZoneSend.into_bits(),
            cdw10: [lba as u32, (lba >> 32) as u32, 0, action, 0, 0],
            ..NvmeCommand::default()
        })
    }

    /// The driver reports in [`Failure::code`] how long the controller wants the host to wait.
    fn verdict(ended: Ended, failure: &Failure<Self>, _: bool) -> Verdict {
        if ended != Ended::Answered {
            return Verdict::without_answer(ended, failure.code);
        }
        let status = failure.status;
        let row = lookup(Status::of_field(status.status));
        let error = row.meaning.error(Cause::Nvme(status));
        let action = match row.action {
            Action::Succeed => Action::Succeed,
            _ if status.do_not_retry() => Action::Fail,
            Action::Fail => Action::Fail,
            _ if failure.code != 0 => Action::After(failure.code),
            action => action,
        };
        Verdict::new(action, error, row.trouble)
    }
}

/// What a status means. DNR turns every action into failure; CRD delays a retry.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// SCT and SC, from and to; the last row has all of them.
    pub status: (u16, u16),
    /// The action to take.
    pub action: Action,
    /// The failure to report if the action does not help.
    pub meaning: Meaning,
    /// The counter to increment.
    pub trouble: Trouble,
    /// The reason for this action.
    pub reason: &'static str,
}

const fn row(
    status: (u16, u16),
    action: Action,
    (meaning, trouble): (Meaning, Trouble),
    reason: &'static str,
) -> Row {
    Row { status, action, meaning, trouble, reason }
}

use Action::{BackOff, Fail, PollReady, Requeue, Retry, Succeed};
use Meaning::{Device, Gone, Medium, OutOfRange, Unsupported, WriteProtected};

/// As many retries as the disk's options allow.
const AGAIN: Action = Retry(u8::MAX);

/// The status table; the first matching row decides.
#[rustfmt::skip]
pub static STATUS: &[Row] = &[
    row((0x000, 0x000), Succeed, (Device, Trouble::None), "carried out; DW0 says more"),
    row((0x001, 0x001), Fail, (Unsupported, Trouble::None), "the controller has no such command"),
    row((0x002, 0x002), Fail, (Device, Trouble::None), "the same fields stay invalid"),
    row((0x004, 0x004), AGAIN, (Device, Trouble::Host), "the data did not get across"),
    row((0x005, 0x005), Requeue, (Device, Trouble::Reset), "power was about to go"),
    row((0x006, 0x006), AGAIN, (Device, Trouble::Hardware), "internal error: may be a passing one"),
    row((0x007, 0x008), Requeue, (Device, Trouble::Reset), "a victim of somebody else's recovery"),
    row((0x009, 0x00A), Fail, (Device, Trouble::None), "no command here is fused"),
    row((0x00B, 0x00B), Fail, (Gone, Trouble::None), "the namespace went away"),
    row((0x00D, 0x013), Fail, (Device, Trouble::None), "the same lists stay invalid"),
    row((0x01C, 0x01C), Fail, (Device, Trouble::None), "sanitize failed: the data is gone"),
    row((0x01D, 0x01D), PollReady, (Device, Trouble::Busy), "sanitize under way: waiting helps"),
    row((0x020, 0x020), Fail, (WriteProtected, Trouble::None), "the namespace is write protected"),
    row((0x021, 0x022), BackOff, (Device, Trouble::Aborted), "the device asks to try again"),
    row((0x024, 0x024), PollReady, (Device, Trouble::Busy), "the media is not ready yet"),
    row((0x080, 0x080), Fail, (OutOfRange, Trouble::None), "LBA out of range"),
    row((0x081, 0x081), Fail, (Device, Trouble::None), "what backs the namespace is full"),
    row((0x082, 0x082), PollReady, (Device, Trouble::Busy), "becoming ready: waiting helps"),
    row((0x083, 0x083), Fail, (Device, Trouble::None), "somebody else has it reserved"),
    row((0x084, 0x084), PollReady, (Device, Trouble::Busy), "format under way: waiting helps"),
    row((0x180, 0x181), Fail, (Device, Trouble::None), "the same fields stay invalid"),
    row((0x182, 0x182), Fail, (WriteProtected, Trouble::None), "the range is read only"),
    row((0x1B8, 0x1BF), Fail, (Device, Trouble::None), "a rule of zones stays broken"),
    row((0x280, 0x280), Retry(2), (Medium, Trouble::Medium), "a second try may be relocated"),
    row((0x281, 0x284), Retry(1), (Medium, Trouble::Medium),
        "the device has tried for long, once more is enough"),
    row((0x285, 0x286), Fail, (Device, Trouble::None), "a second try compares the same"),
    row((0x287, 0x287), Fail, (Medium, Trouble::None), "the block was never written"),
    row((0x000, 0x7FF), AGAIN, (Device, Trouble::None), "anything else may pass"),
];

/// The row of [`STATUS`] for a status.
pub fn lookup(status: Status) -> &'static Row {
    let bits = status.into_bits();
    let hit = STATUS.iter().find(|row| (row.status.0..=row.status.1).contains(&bits));
    hit.unwrap_or(&STATUS[STATUS.len() - 1])
}

/// The properties of a namespace that a disk needs.
///
/// # Errors
/// [`CamError::NotADisk`] without blocks, [`CamError::Metadata`] if a block contains more than
/// data, [`CamError::BlockSize`] if the block size makes no sense.
pub fn shape(
    id: u32,
    controller: &IdentifyController,
    namespace: &IdentifyNamespace,
) -> Result<Shape, CamError> {
    let unit = u64::from(id);
    if namespace.nsze == 0 {
        return Err(CamError::NotADisk { unit });
    }
    let format = namespace.format(namespace.format_in_use()).unwrap_or_default();
    if format.metadata != 0 || namespace.dps & 7 != 0 {
        return Err(CamError::Metadata { unit });
    }
    let Some(block_size) = namespace.block_size() else {
        let block_size = 1_u32.checked_shl(format.shift.into()).unwrap_or(0);
        return Err(CamError::BlockSize { unit, block_size });
    };
    let deallocates = controller.oncs & oncs::DATASET_MANAGEMENT != 0;
    Ok(Shape {
        unit,
        block_size,
        blocks: namespace.nsze,
        transfer_blocks_max: BLOCKS_MAX,
        delete_blocks_max: if deallocates { u32::MAX } else { 0 },
        write_cache: controller.has_write_cache(),
        force_unit_access: true,
        write_protected: namespace.nsattr & WRITE_PROTECTED != 0,
    })
}
