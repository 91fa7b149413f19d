//! `sdda`: partitions of eMMC devices, and SD cards.

use flysch_api::block::Cause;
use flysch_api::command::{Ended, Failure, Mmc, MmcCommand, MmcResponse};
use flysch_wire::mmc::command::{BlockCount, CommandIndex, SwitchArgument, erase};
use flysch_wire::mmc::{CardStatus, NATIVE_SECTOR, SECTOR, ext_csd};

use crate::disk::Shape;
use crate::error::CamError;
use crate::family::{Action, DELETE_LIST_MAX, Family, Meaning, Trouble, Verdict};

/// Bytes that describe the range of a delete: first and last sector.
const RANGE: usize = 8;
const _: () = assert!(RANGE <= DELETE_LIST_MAX);
/// Longest transfer: 16 bits of sectors.
const BLOCKS_MAX: u32 = u16::MAX as u32;
/// Longest range of one delete, sectors: 1 GiB, which takes a device seconds.
const DELETE_MAX: u32 = 1 << 21;

impl Family for Mmc {
    const NAME: &'static str = "sdda";

    /// Sectors of 512 bytes, whatever the device's own sectors are.
    fn counted(_: u32) -> u32 {
        SECTOR
    }

    /// CMD18 or CMD25; for one block the driver uses the single-block commands. A forced write is a
    /// reliable write.
    #[inline]
    fn transfer(write: bool, lba: u64, _: u32, force_unit_access: bool) -> MmcCommand {
        let index =
            if write { CommandIndex::WriteMultipleBlock } else { CommandIndex::ReadMultipleBlock };
        let reliable = BlockCount::new().with_reliable(true).into_bits();
        MmcCommand {
            index: index.into_bits(),
            argument: lba as u32,
            response: MmcResponse::R1,
            block: SECTOR as u16,
            set_block_count: (write && force_unit_access).then_some(reliable),
        }
    }

    /// FLUSH_CACHE of EXT_CSD.
    fn flush() -> MmcCommand {
        let flush = SwitchArgument::write(ext_csd::FLUSH_CACHE, ext_csd::flush::FLUSH);
        MmcCommand {
            index: CommandIndex::Switch.into_bits(),
            argument: flush.into_bits(),
            response: MmcResponse::R1b,
            ..MmcCommand::default()
        }
    }

    /// A trim: CMD38, with the range of CMD35 and CMD36 as two words of data.
    fn delete(lba: u64, blocks: u32, list: &mut [u8; DELETE_LIST_MAX]) -> (MmcCommand, usize) {
        let (first, last) = (lba as u32, (lba as u32).wrapping_add(blocks.wrapping_sub(1)));
        list[..4].copy_from_slice(&first.to_le_bytes());
        list[4..RANGE].copy_from_slice(&last.to_le_bytes());
        let command = MmcCommand {
            index: CommandIndex::Erase.into_bits(),
            argument: erase::TRIM,
            response: MmcResponse::R1b,
            ..MmcCommand::default()
        };
        (command, RANGE)
    }

    fn verdict(ended: Ended, failure: &Failure<Self>, _: bool) -> Verdict {
        if ended != Ended::Answered {
            return Verdict::without_answer(ended, failure.code);
        }
        let row = lookup(CardStatus::from_bits(failure.status.status));
        let error = row.meaning.error(Cause::Mmc(failure.status));
        Verdict::new(row.action, error, row.trouble)
    }
}

/// What an error of the device status means.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The bits; any of them.
    pub bits: CardStatus,
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
    bits: CardStatus,
    action: Action,
    (meaning, trouble): (Meaning, Trouble),
    reason: &'static str,
) -> Row {
    Row { bits, action, meaning, trouble, reason }
}

use Action::{Fail, Retry};
use Meaning::{Device, Medium, OutOfRange, WriteProtected};

/// As many retries as the disk's options allow.
const AGAIN: Action = Retry(u8::MAX);
const NONE: CardStatus = CardStatus::new();

/// The status table; the first matching row decides.
#[rustfmt::skip]
pub static STATUS: &[Row] = &[
    row(NONE.with_wp_violation(true), Fail, (WriteProtected, Trouble::None),
        "the group is write protected"),
    row(NONE.with_locked(true), Fail, (Device, Trouble::None), "the card wants its password"),
    row(NONE.with_out_of_range(true), Fail, (OutOfRange, Trouble::None), "beyond the partition"),
    row(NONE.with_address_misalign(true), Fail, (Device, Trouble::None),
        "the same address stays wrong"),
    row(NONE.with_block_len_error(true), Fail, (Device, Trouble::None),
        "the same length stays wrong"),
    row(NONE.with_erase_seq_error(true), AGAIN, (Device, Trouble::None),
        "the sequence was interrupted"),
    row(NONE.with_erase_param(true), Fail, (Device, Trouble::None), "the same groups stay wrong"),
    row(NONE.with_ecc_failed(true), Retry(1), (Medium, Trouble::Medium),
        "the device has tried for long, once more is enough"),
    row(NONE.with_cc_error(true), AGAIN, (Device, Trouble::Hardware),
        "the card's controller: may pass"),
    row(NONE.with_error(true), AGAIN, (Device, Trouble::Hardware), "a general error: may pass"),
    row(NONE.with_com_crc_error(true), AGAIN, (Device, Trouble::Host),
        "the command was spoilt on its way"),
    row(NONE.with_illegal_command(true), Fail, (Device, Trouble::None),
        "not in this state, not by this card"),
    row(NONE.with_switch_error(true), AGAIN, (Device, Trouble::Hardware),
        "the switch was not made: may pass"),
    row(NONE.with_wp_erase_skip(true), Fail, (WriteProtected, Trouble::None),
        "a part is write protected"),
];

/// Other errors may be temporary.
static OTHER: Row = row(NONE, AGAIN, (Device, Trouble::None), "anything else may pass");

/// The row of [`STATUS`] for a device status.
pub fn lookup(status: CardStatus) -> &'static Row {
    let hit = |row: &&Row| row.bits.into_bits() & status.into_bits() != 0;
    STATUS.iter().find(hit).unwrap_or(&OTHER)
}

/// What the driver knows about a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// Sectors of 512 bytes of the partition.
    pub sectors: u64,
    /// Bytes of a block of the disk: 512, or 4096 where the device takes only whole native sectors
    /// (DATA_SECTOR_SIZE of EXT_CSD).
    pub block_size: u32,
    /// A volatile cache is enabled.
    pub cache: bool,
    /// Reliable writes are supported.
    pub reliable_write: bool,
    /// Sectors can be discarded.
    pub trim: bool,
    /// The whole card is write protected.
    pub write_protected: bool,
}

impl Default for Card {
    /// Nothing, in blocks of a sector.
    fn default() -> Self {
        Self {
            sectors: 0,
            block_size: SECTOR,
            cache: false,
            reliable_write: false,
            trim: false,
            write_protected: false,
        }
    }
}

/// The properties of a partition that a disk needs, by its PARTITION_ACCESS.
///
/// # Errors
/// [`CamError::NotADisk`] without sectors, or with more than commands can address;
/// [`CamError::BlockSize`] for a block size that no card has.
pub fn shape(partition: u8, card: &Card) -> Result<Shape, CamError> {
    let (unit, block_size) = (u64::from(partition), card.block_size);
    if !matches!(block_size, SECTOR | NATIVE_SECTOR) {
        return Err(CamError::BlockSize { unit, block_size });
    }
    let each = block_size / SECTOR;
    let blocks = card.sectors / u64::from(each);
    if blocks == 0 || card.sectors > 1 << 32 {
        return Err(CamError::NotADisk { unit });
    }
    Ok(Shape {
        unit,
        block_size,
        blocks,
        transfer_blocks_max: BLOCKS_MAX / each,
        delete_blocks_max: if card.trim { DELETE_MAX / each } else { 0 },
        write_cache: card.cache,
        force_unit_access: card.reliable_write,
        write_protected: card.write_protected,
    })
}
