//! `ada`: ATA disks.

use flysch_api::block::Cause;
use flysch_api::command::{Ata, AtaProtocol, AtaStatus, Ended, Failure, Taskfile};
use flysch_wire::ata::command::{SECTORS_MAX, SECTORS_MAX_28, device};
use flysch_wire::ata::identify::set84;
use flysch_wire::ata::registers::error;
use flysch_wire::ata::{Identify, Kind, Opcode, SECTOR, dsm};

use crate::disk::Shape;
use crate::error::CamError;
use crate::family::{Action, DELETE_LIST_MAX, Family, Meaning, Trouble, Verdict};

const _: () = assert!(SECTOR <= DELETE_LIST_MAX);

impl Family for Ata {
    const NAME: &'static str = "ada";
    /// One block of ranges.
    const DELETE_LIST: usize = SECTOR;

    /// READ or WRITE FPDMA QUEUED. If the device does not queue, the port substitutes a command
    /// that the device supports.
    #[inline]
    fn transfer(write: bool, lba: u64, blocks: u32, force_unit_access: bool) -> Taskfile {
        let opcode = if write { Opcode::WriteFpdma } else { Opcode::ReadFpdma };
        let force = if write && force_unit_access { device::FUA } else { 0 };
        Taskfile {
            command: opcode.into_bits(),
            device: device::LBA | force,
            // 65536 is 0.
            features: blocks as u16,
            lba,
            protocol: AtaProtocol::Ncq,
            ..Taskfile::default()
        }
    }

    fn flush() -> Taskfile {
        let command = Opcode::FlushExt.into_bits();
        Taskfile { command, device: device::LBA, ..Taskfile::default() }
    }

    /// DATA SET MANAGEMENT, trim, one block of ranges.
    fn delete(lba: u64, blocks: u32, list: &mut [u8; DELETE_LIST_MAX]) -> (Taskfile, usize) {
        let (block, _) = list.as_chunks_mut::<SECTOR>();
        if let Some(block) = block.first_mut() {
            dsm::fill(block, lba, blocks);
        }
        let command = Taskfile {
            command: Opcode::DataSetManagement.into_bits(),
            device: device::LBA,
            features: dsm::TRIM,
            count: 1,
            protocol: AtaProtocol::Dma,
            ..Taskfile::default()
        };
        (command, SECTOR)
    }

    fn verdict(ended: Ended, failure: &Failure<Self>, moves_data: bool) -> Verdict {
        if ended != Ended::Answered {
            return Verdict::without_answer(ended, failure.code);
        }
        let status = failure.status;
        if !status.is_error() {
            let short = moves_data && failure.residual != 0;
            let (action, trouble) = match short {
                true => (AGAIN, Trouble::Short),
                false => (Action::Succeed, Trouble::None),
            };
            return Verdict::new(action, Meaning::Device.error(Cause::Ata(status)), trouble);
        }
        let row = lookup(&status);
        Verdict::new(row.action, row.meaning.error(Cause::Ata(status)), row.trouble)
    }
}

/// What an error means.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Bits of STATUS and of ERROR that are set; the last row has none.
    pub bits: (u8, u8),
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
    bits: (u8, u8),
    action: Action,
    (meaning, trouble): (Meaning, Trouble),
    reason: &'static str,
) -> Row {
    Row { bits, action, meaning, trouble, reason }
}

/// As many retries as the disk's options allow.
const AGAIN: Action = Action::Retry(u8::MAX);

/// The error table (ACS 6.2, 6.3); the first matching row decides.
#[rustfmt::skip]
pub static ERRORS: &[Row] = &[
    row((0, error::ICRC), AGAIN, (Meaning::Device, Trouble::Host),
        "the data was damaged on the way"),
    row((0, error::UNC), Action::Retry(1), (Meaning::Medium, Trouble::Medium),
        "the device has tried for long, once more is enough"),
    row((0, error::IDNF), Action::Fail, (Meaning::OutOfRange, Trouble::None),
        "there is no such address"),
    row((AtaStatus::DF, 0), AGAIN, (Meaning::Device, Trouble::Hardware),
        "a fault of the device may be a passing one"),
    row((0, error::ABRT), AGAIN, (Meaning::Device, Trouble::Aborted),
        "the device does not say why"),
    row((0, 0), AGAIN, (Meaning::Device, Trouble::None), "anything else may pass"),
];

/// The row of [`ERRORS`] for a status.
pub fn lookup(status: &AtaStatus) -> &'static Row {
    let hit = ERRORS.iter().find(|row| {
        status.status & row.bits.0 == row.bits.0 && status.error & row.bits.1 == row.bits.1
    });
    hit.unwrap_or(&ERRORS[ERRORS.len() - 1])
}

/// What a port supports for a device, in addition to what the device reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// Its commands are queued, and support forced unit access.
    pub queued: bool,
    /// Forced unit access works as specified.
    pub force_unit_access: bool,
    /// It may be sent trim commands.
    pub trims: bool,
}

/// The properties of a device that a disk needs.
///
/// # Errors
/// [`CamError::NotADisk`] for another kind of device or one without sectors,
/// [`CamError::BlockSize`] if the sector size makes no sense.
pub fn shape(identify: &Identify, ways: Ways) -> Result<Shape, CamError> {
    let unit = 0;
    if identify.kind != Kind::Disk || identify.sectors() == 0 {
        return Err(CamError::NotADisk { unit });
    }
    let block_size = identify.sector_bytes();
    if block_size == 0 {
        return Err(CamError::BlockSize { unit, block_size });
    }
    let plain = identify.has_lba48() && identify.supports84(set84::FUA);
    Ok(Shape {
        unit,
        block_size,
        blocks: identify.sectors(),
        transfer_blocks_max: if identify.has_lba48() { SECTORS_MAX } else { SECTORS_MAX_28 },
        delete_blocks_max: if identify.has_trim() && ways.trims { dsm::SECTORS_MAX } else { 0 },
        write_cache: identify.has_write_cache(),
        force_unit_access: ways.force_unit_access && (ways.queued || plain),
        write_protected: false,
    })
}
