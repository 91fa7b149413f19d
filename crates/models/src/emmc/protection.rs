//! Groups of sectors of the user area that are protected from writes and from being erased.

use alloc::collections::BTreeSet;

use super::ext_csd::PROTECT_GROUP;

/// The write protect groups that are protected, each by its number.
#[derive(Debug, Default)]
pub(super) struct Protection(BTreeSet<u32>);

impl Protection {
    /// The group of a sector is protected from now on, or no longer.
    pub(super) fn set(&mut self, sector: u32, on: bool) {
        let group = sector / PROTECT_GROUP;
        if on {
            self.0.insert(group);
        } else {
            self.0.remove(&group);
        }
    }

    /// Nothing is protected any more.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether one of `blocks` sectors from `first` on is protected.
    pub(super) fn covers(&self, first: u32, blocks: u32) -> bool {
        let last = first.saturating_add(blocks.max(1) - 1) / PROTECT_GROUP;
        self.0.range(first / PROTECT_GROUP..=last).next().is_some()
    }

    /// CMD30's data: 32 groups from this one on.
    pub(super) fn bits(&self, first: u32) -> u32 {
        let set = |n: &u32| self.0.contains(&first.saturating_add(*n));
        (0..32).filter(set).fold(0, |bits, n| bits | 1 << n)
    }

    /// CMD31's data: two bits for each of 32 groups; what is protected is so until it is cleared.
    pub(super) fn types(&self, first: u32) -> u64 {
        let bits = self.bits(first);
        (0..32).filter(|n| bits >> n & 1 != 0).fold(0, |types, n| types | 1 << (2 * n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_covered_by_a_group_it_touches() {
        let mut protection = Protection::default();
        protection.set(3 * PROTECT_GROUP + 5, true);
        assert!(!protection.covers(0, 3 * PROTECT_GROUP));
        assert!(protection.covers(0, 3 * PROTECT_GROUP + 1));
        assert!(protection.covers(4 * PROTECT_GROUP - 1, 0), "a range without an end yet");
        assert_eq!((protection.bits(1), protection.types(1)), (1 << 2, 1 << 4));
        protection.set(3 * PROTECT_GROUP, false);
        assert!(!protection.covers(0, u32::MAX));
    }
}
