//! Partitioning by the host (6.2.4 of JESD84-B51): sizes and attributes are written byte by byte,
//! PARTITION_SETTING_COMPLETED seals them for ever, and the next power-on makes the device they
//! describe.
//!
//! The enhanced area and enhanced partitions keep one bit in a cell that has two: they take twice
//! their size from the user area. They are no faster here.

use flysch_wire::mmc::ExtCsd;
use flysch_wire::mmc::ext_csd::{self as at, partition};

use super::config::GENERAL_UNIT;

/// The fields the host writes, and those that follow from them: first byte and bytes.
const FIELDS: [(u8, u8); 2] = [(at::EXT_PARTITIONS_ATTRIBUTE, 2), (at::ENHANCED_START, 21)];

/// A device as its settings describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The user area, bytes.
    pub(super) user: u64,
    /// The general purpose partitions, bytes; 0 is none.
    pub(super) general: [u64; 4],
}

impl Layout {
    /// What the settings make of a device of `raw` bytes; `None` if they do not fit. Sectors are
    /// addressed in units of `1 << shift`.
    pub(super) fn of(csd: &ExtCsd, raw: u64, shift: u32) -> Option<Self> {
        let attributes = csd.byte(at::PARTITIONS_ATTRIBUTE);
        let groups = |index: u8| {
            let byte = |n: u8| u64::from(csd.byte(index + n));
            byte(0) | byte(1) << 8 | byte(2) << 16
        };
        let general = core::array::from_fn(|n| groups(at::GP_SIZE + 3 * n as u8) * GENERAL_UNIT);
        let area = match attributes & 1 {
            0 => 0,
            _ => groups(at::ENHANCED_SIZE) * GENERAL_UNIT,
        };
        let enhanced = (0..4).filter(|n| attributes >> (n + 1) & 1 != 0).map(|n| general[n]);
        let enhanced = enhanced.sum::<u64>() + area;
        let user = raw.checked_sub(general.iter().sum::<u64>() + enhanced)?;
        let start = (0..4_u8).map(|n| u64::from(csd.byte(at::ENHANCED_START + n)) << (8 * n));
        let start = start.sum::<u64>() << (9 - shift);
        let fits = user != 0
            && enhanced <= groups(at::MAX_ENHANCED_SIZE) * GENERAL_UNIT
            && (area == 0 || start.is_multiple_of(GENERAL_UNIT) && start + area <= user);
        fits.then_some(Self { user, general })
    }

    /// Bytes of a partition by its PARTITION_ACCESS, if settings decide about it.
    pub(super) fn size(&self, access: u8) -> Option<u64> {
        match access {
            partition::USER => Some(self.user),
            partition::GP1.. => self.general.get(usize::from(access - partition::GP1)).copied(),
            _ => None,
        }
    }
}

/// Most that can be enhanced of a device of `raw` bytes, in write protect groups.
pub(super) const fn enhanced_max(raw: u64) -> u32 {
    (raw / 2 / GENERAL_UNIT) as u32
}

/// Whether a byte is one of those that are written before PARTITION_SETTING_COMPLETED.
pub(super) fn is_setting(index: u8) -> bool {
    matches!(index, at::EXT_PARTITIONS_ATTRIBUTE..=53 | at::ENHANCED_START..=154)
        || index == at::PARTITIONS_ATTRIBUTE
}

/// The settings of one register go into another.
pub(super) fn copy(from: &ExtCsd, to: &mut ExtCsd) {
    for (first, len) in FIELDS {
        let range = usize::from(first)..usize::from(first) + usize::from(len);
        to.0[range.clone()].copy_from_slice(&from.0[range]);
    }
}
