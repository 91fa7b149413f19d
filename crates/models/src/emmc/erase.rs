//! Sectors that are given up, and that are protected from that and from writes.

use flysch_wire::mmc::CardStatus;
use flysch_wire::mmc::command::erase;

use super::card::{Answer, Busy, Card, SWITCH_NS};
use super::ext_csd::ERASE_GROUP;

/// Erase or trim: for the command, and for each erase group, nanoseconds.
const ERASE_NS: u64 = 500_000;
const GROUP_NS: u64 = 20_000;

impl Card {
    /// The first sector to be erased; the last is still to come.
    pub(super) fn set_erase_start(&mut self, place: u32) -> Option<Answer> {
        self.erase = (Some(place >> self.address_shift), None);
        self.answer(Busy::None)
    }

    /// The last one.
    pub(super) fn set_erase_end(&mut self, place: u32) -> Option<Answer> {
        self.erase.1 = Some(place >> self.address_shift);
        self.answer(Busy::None)
    }

    /// CMD38 of an eMMC device.
    pub(super) fn erase_range(&mut self, argument: u32) -> Option<Answer> {
        let groups = matches!(argument, erase::ERASE | erase::SECURE_ERASE);
        let known = groups
            || matches!(argument, erase::TRIM | erase::DISCARD)
            || matches!(argument, erase::SECURE_TRIM_1 | erase::SECURE_TRIM_2);
        if let ((Some(first), Some(last)), true) = (&mut self.erase, groups) {
            // Any address of a group means the group.
            *first = *first / ERASE_GROUP * ERASE_GROUP;
            *last = *last / ERASE_GROUP * ERASE_GROUP + (ERASE_GROUP - 1);
        }
        self.erase_sectors(known, argument != erase::SECURE_TRIM_1)
    }

    /// CMD38 of the sectors that were named before; `removes` them at once. The argument is one it
    /// `knows`.
    pub(super) fn erase_sectors(&mut self, knows: bool, removes: bool) -> Option<Answer> {
        let (Some(first), Some(last)) = core::mem::take(&mut self.erase) else {
            return self.refuse(CardStatus::new().with_erase_seq_error(true));
        };
        if !knows || last < first {
            return self.refuse(CardStatus::new().with_erase_param(true));
        }
        let blocks = (last - first).saturating_add(1);
        if let Err(error) = self.ext_csd.whole(first, blocks) {
            return self.refuse(error);
        }
        let part = match self.range(false, first, blocks) {
            Ok(part) => part,
            Err(error) => return self.refuse(error),
        };
        let (offset, bytes) = (u64::from(first) * 512, u64::from(blocks) * 512);
        if removes {
            let store = self.parts.store(part);
            if store.is_some_and(|store| store.discard(offset, bytes).is_err()) {
                return self.refuse(CardStatus::new().with_error(true));
            }
            self.erased = Some((part, offset, bytes));
        }
        let nanos = ERASE_NS + u64::from(blocks.div_ceil(ERASE_GROUP)) * GROUP_NS;
        self.answer(Busy::For(nanos))
    }

    /// The write protect group of a sector is protected from now on, or no longer.
    pub(super) fn protect(&mut self, sector: u32, on: bool) -> Option<Answer> {
        if let Err(error) = self.range(true, sector, 1) {
            return self.refuse(error);
        }
        self.protection.set(sector, on);
        self.answer(Busy::For(SWITCH_NS))
    }
}
