//! What can be requested of a [`Host`](crate::Host), and the results.

use crate::device::{CardFacts, CardKind};
use crate::quirks::{CardQuirk, HostQuirk, HostQuirks};
use crate::rpmb::{RpmbReply, RpmbRequest};
use crate::{Cause, EmmcError};
use alloc::boxed::Box;
use alloc::vec::Vec;
use flysch_wire::mmc::command::erase;
use flysch_wire::mmc::ext_csd::{self, partition, sec_feature};
use flysch_wire::mmc::{CardStatus, ExtCsd, SECTOR};

/// An operation of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Brings controller and card up; once they are up, a card reset.
    BringUp,
    /// Resets the card. Commands in flight end with a reset.
    Reset,
    /// Empties the cache, announces the power-off to the card, and stops the clock.
    Shutdown,
    /// Puts the card to sleep (CMD5); then everything except [`Awake`](Self::Awake) is refused.
    Sleep,
    /// Wakes it.
    Awake,
    /// Reads EXT_CSD again.
    ReadExtCsd,
    /// Writes a byte of EXT_CSD (CMD6). Bytes on which the driver relies are refused.
    Switch {
        /// The byte.
        index: u8,
        /// The value.
        value: u8,
    },
    /// Selects the partition whose blocks the lanes read and write from now on.
    SelectPartition(u8),
    /// Selects what the card boots from (PARTITION_CONFIG).
    SelectBoot {
        /// BOOT_PARTITION_ENABLE: 0 nothing, 1 and 2 the boot partitions, 7 the user area.
        partition: u8,
        /// BOOT_ACK: the card acknowledges a boot.
        acknowledge: bool,
    },
    /// Switches the volatile cache on or off; off empties it first.
    Cache(bool),
    /// Reads the device status (CMD13).
    Status,
    /// Empties the volatile cache.
    Flush,
    /// Ensures that what is in the cache reaches the medium before what is written from now on.
    Barrier,
    /// Discards a range of sectors of the selected partition.
    Erase {
        /// How.
        kind: EraseKind,
        /// First sector.
        first: u32,
        /// Sectors.
        sectors: u32,
    },
    /// Physically removes what was erased or trimmed.
    Sanitize,
    /// Runs background operations now, to their end.
    Bkops,
    /// Searches for the sampling point again.
    Retune,
    /// Sets or clears the write protection of a group (CMD28, CMD29).
    Protect {
        /// A sector of the group.
        sector: u32,
        /// Whether to set it; otherwise it is cleared.
        on: bool,
    },
    /// Reads which of 32 groups are write protected (CMD30), the first in bit 0.
    Protection {
        /// A sector of the first group.
        sector: u32,
    },
    /// Reads sectors of any partition except the replay protected memory.
    Read {
        /// PARTITION_ACCESS.
        partition: u8,
        /// First sector.
        first: u32,
        /// Sectors, 1 to [`SECTORS_MAX`].
        sectors: u16,
    },
    /// Writes sectors of any partition except the replay protected memory.
    Write {
        /// PARTITION_ACCESS.
        partition: u8,
        /// First sector.
        first: u32,
        /// Whole sectors, at most [`SECTORS_MAX`].
        data: Vec<u8>,
    },
    /// Exchanges a message with the replay protected memory.
    Rpmb(Box<RpmbRequest>),
    /// Gives the card a new firmware (FFU), installs it and resets the card.
    Firmware(Vec<u8>),
}

/// Maximum number of sectors of [`Operation::Read`] and [`Operation::Write`].
pub const SECTORS_MAX: u16 = (crate::layout::SCRATCH / SECTOR as usize) as u16;

/// How sectors are discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EraseKind {
    /// Whole erase groups.
    Erase,
    /// Sectors; then they read as specified by ERASED_MEM_CONT.
    Trim,
    /// Sectors; what they then read as is unspecified.
    Discard,
    /// Whole erase groups and every copy of them.
    SecureErase,
    /// Sectors and every copy of them.
    SecureTrim,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Nothing.
    None,
    /// EXT_CSD.
    ExtCsd(Box<ExtCsd>),
    /// What was read.
    Data(Vec<u8>),
    /// Write protection, one bit for each group.
    Protection(u32),
    /// The device status.
    Status(CardStatus),
    /// The answer of the replay protected memory.
    Rpmb(RpmbReply),
}

/// Bytes of EXT_CSD that the driver itself controls: what it knows of them must stay true.
const OWN_BYTES: [u8; 8] = [
    ext_csd::CMDQ_MODE_EN,
    ext_csd::ERASE_GROUP_DEF,
    ext_csd::PARTITION_CONFIG,
    ext_csd::BUS_WIDTH,
    ext_csd::HS_TIMING,
    ext_csd::CACHE_CTRL,
    ext_csd::HPI_MGMT,
    ext_csd::MODE_CONFIG,
];
impl Operation {
    /// Checks that the card supports the operation and that it makes sense for the card.
    pub(crate) fn check(&self, device: &CardFacts, quirks: HostQuirks) -> Result<(), EmmcError> {
        let csd = &device.ext_csd;
        let unless = |has: bool, what| if has { Ok(()) } else { Err(EmmcError::Unsupported(what)) };
        let emmc = device.kind == CardKind::Emmc;
        match self {
            Self::BringUp | Self::Reset | Self::Shutdown | Self::Retune | Self::Status => {
                return Ok(());
            }
            Self::Erase { kind: EraseKind::Erase, .. } => {}
            _ => unless(emmc, "an operation of eMMC on an SD card")?,
        }
        match self {
            Self::Sleep => unless(!quirks.has(HostQuirk::NoSleep), "the sleep state"),
            Self::Flush => {
                unless(device.cache || csd.cache_kib() == 0, "flushing a cache that is off")
            }
            Self::Barrier => {
                unless(csd.0[ext_csd::BARRIER_SUPPORT] & 1 != 0 && device.cache, "the barrier")
            }
            Self::Cache(_) => unless(csd.cache_kib() != 0, "a volatile cache"),
            Self::SelectBoot { partition, .. } => match partition {
                0 | 7 => Ok(()),
                1 | 2 => unless(csd.boot_sectors() != 0, "boot partitions"),
                _ => Err(EmmcError::Invalid("boot partitions are 1 and 2; 7 is the user area")),
            },
            Self::Sanitize => unless(csd.has_sanitize(), "sanitize"),
            Self::Bkops => unless(csd.0[ext_csd::BKOPS_SUPPORT] & 1 != 0, "background operations"),
            Self::Switch { index, .. } if OWN_BYTES.contains(index) => {
                Err(EmmcError::Unsupported("a byte of EXT_CSD that is the driver's own"))
            }
            Self::Switch { index, .. } if *index >= ext_csd::READ_ONLY => {
                Err(EmmcError::Invalid("EXT_CSD from byte 192 on is read only"))
            }
            Self::Firmware(image) => {
                unless(csd.0[ext_csd::SUPPORTED_MODES] & 1 != 0, "field firmware update")?;
                let whole = !image.is_empty() && image.len().is_multiple_of(SECTOR as usize);
                let why = "a firmware is a whole number of sectors of 512 bytes";
                if !whole {
                    return Err(EmmcError::Invalid(why));
                }
                device.check_native(0, image.len() / SECTOR as usize)
            }
            Self::Read { partition, first, sectors } => {
                device.check_range(*partition, *first, usize::from(*sectors))
            }
            Self::Write { partition, first, data } => {
                if !data.len().is_multiple_of(SECTOR as usize) {
                    return Err(EmmcError::Invalid("data must be whole sectors of 512 bytes"));
                }
                device.check_range(*partition, *first, data.len() / SECTOR as usize)
            }
            Self::Erase { kind, first, sectors } => {
                unless(device.has_erase(*kind), "this kind of erase")?;
                device.check_erase(*kind, *first, *sectors)
            }
            Self::SelectPartition(access) => {
                let there = device.partition_sectors(*access) != 0;
                let usable = *access != partition::RPMB && *access <= partition::MASK;
                if there && usable { Ok(()) } else { Err(Cause::NoPartition(*access).into()) }
            }
            _ => Ok(()),
        }
    }
}

/// Limits of operations.
impl CardFacts {
    fn has_erase(&self, kind: EraseKind) -> bool {
        let csd = &self.ext_csd;
        match kind {
            EraseKind::Erase => true,
            EraseKind::Trim => self.has_trim(),
            EraseKind::Discard => csd.has_discard(),
            EraseKind::SecureErase | EraseKind::SecureTrim => {
                csd.byte(ext_csd::SEC_FEATURE_SUPPORT) & sec_feature::SECURE_ERASE != 0
                    && !self.quirks.has(CardQuirk::NoSecure)
            }
        }
    }

    fn check_range(&self, access: u8, first: u32, sectors: usize) -> Result<(), EmmcError> {
        let there = self.partition_sectors(access);
        if there == 0 || access == partition::RPMB || access > partition::MASK {
            return Err(Cause::NoPartition(access).into());
        }
        if sectors == 0 || sectors > SECTORS_MAX.into() {
            return Err(EmmcError::Invalid("1 to 32 sectors can be moved at once"));
        }
        if u64::from(first) + sectors as u64 > there {
            return Err(EmmcError::Invalid("the range is not in the partition"));
        }
        self.check_native(first, sectors)
    }

    /// A device with native sectors accepts only whole ones.
    fn check_native(&self, first: u32, sectors: usize) -> Result<(), EmmcError> {
        let native = self.block_size() / SECTOR;
        if first.is_multiple_of(native) && sectors.is_multiple_of(native as usize) {
            return Ok(());
        }
        Err(EmmcError::Invalid(
            "the device has native sectors of 4096 bytes: the first sector of 512 and their number \
             must be multiples of 8",
        ))
    }

    fn check_erase(&self, kind: EraseKind, first: u32, sectors: u32) -> Result<(), EmmcError> {
        let there = self.partition_sectors(self.partition);
        if sectors == 0 || u64::from(first) + u64::from(sectors) > there {
            return Err(EmmcError::Invalid("the range is not in the partition"));
        }
        let group = self.erase_group();
        let whole = matches!(kind, EraseKind::Erase | EraseKind::SecureErase);
        let aligned = first.is_multiple_of(group) && sectors.is_multiple_of(group);
        if whole && self.kind == CardKind::Emmc && !aligned {
            return Err(EmmcError::Invalid("only whole erase groups can be erased: trim sectors"));
        }
        self.check_native(first, sectors as usize)
    }

    /// Sectors of an erase group.
    fn erase_group(&self) -> u32 {
        match self.ext_csd.erase_group_sectors() {
            0 => self.csd.erase_group_sectors().max(1),
            sectors => sectors,
        }
    }

    /// How long an erase may take, ms: what the card says for each group, 60 s at most (Linux).
    pub(crate) fn erase_ms(&self, (first, last): (u32, u32), argument: u32) -> u32 {
        let csd = &self.ext_csd;
        let groups = last.saturating_sub(first) / self.erase_group() + 1;
        let each = match argument {
            erase::ERASE => csd.erase_ms(),
            erase::SECURE_ERASE => {
                csd.erase_ms().saturating_mul(csd.byte(ext_csd::SEC_ERASE_MULT).max(1).into())
            }
            erase::SECURE_TRIM_1 | erase::SECURE_TRIM_2 => {
                csd.erase_ms().saturating_mul(csd.byte(ext_csd::SEC_TRIM_MULT).max(1).into())
            }
            _ => csd.trim_ms(),
        };
        each.saturating_mul(groups).clamp(1_000, 60_000)
    }

    /// A sector as commands have it in their argument.
    pub(crate) fn place(&self, sector: u32) -> u32 {
        if self.sector_addressed { sector } else { sector << 9 }
    }
}
