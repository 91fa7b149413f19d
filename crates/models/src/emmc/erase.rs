//! Sectors that are given up, and groups of them that are protected from that and from writes.

use flysch_wire::mmc::CardStatus;
use flysch_wire::mmc::command::erase;

use super::card::{Answer, Busy, Card, SWITCH_NS};
use super::ext_csd::{ERASE_GROUP, PROTECT_GROUP};

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
        if let Err(error) = self.whole(first, blocks) {
            return self.refuse(error);
        }
        let part = match self.range(false, first, blocks) {
            Ok(part) => part,
            Err(error) => return self.refuse(error),
        };
        let (offset, bytes) = (u64::from(first) * 512, u64::from(blocks) * 512);
        let number = part;
        if removes
            && let Some(part) = &mut self.parts.0[usize::from(part)]
            && part.store.discard(offset, bytes).is_err()
        {
            return self.refuse(CardStatus::new().with_error(true));
        }
        if removes {
            self.erased = Some((number, offset, bytes));
        }
        let nanos = ERASE_NS + u64::from(blocks.div_ceil(ERASE_GROUP)) * GROUP_NS;
        self.answer(Busy::For(nanos))
    }

    pub(super) fn protect(&mut self, sector: u32, on: bool) -> Option<Answer> {
        if let Err(error) = self.range(true, sector, 1) {
            return self.refuse(error);
        }
        let group = sector / PROTECT_GROUP;
        if on {
            self.protected.insert(group);
        } else {
            self.protected.remove(&group);
        }
        self.answer(Busy::For(SWITCH_NS))
    }

    /// CMD30's data: 32 groups from this one on.
    pub(super) fn protection(&self, first: u32) -> u32 {
        let set = |n: &u32| self.protected.contains(&first.saturating_add(*n));
        (0..32).filter(set).fold(0, |bits, n| bits | 1 << n)
    }

    /// CMD31's data: two bits for each of 32 groups; what is protected is so until it is cleared.
    pub(super) fn protection_types(&self, first: u32) -> u64 {
        let bits = self.protection(first);
        (0..32).filter(|n| bits >> n & 1 != 0).fold(0, |types, n| types | 1 << (2 * n))
    }
}
