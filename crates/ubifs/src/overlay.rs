//! What the journal changes about the committed index.
//!
//! The index on the flash is as old as the last commit. Replay collects what was written since:
//! where a key's node lies now, which names are new or gone, and which key ranges of the committed
//! index are no longer valid (deleted files, truncations, a damaged part of the index itself).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use flysch_wire::ubifs::Key;

use crate::location::Location;

/// A change to one of the names that share a hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameChange {
    pub(crate) name: Box<[u8]>,
    /// Where its entry node lies; `None`: the name is deleted.
    pub(crate) location: Option<Location>,
    /// The committed entry that this change replaces. Reading finds the entry by name; writing the
    /// next index needs the place.
    pub(crate) replaces: Option<Location>,
}

/// Changes on top of the committed index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlay {
    nodes: BTreeMap<Key, Location>,
    names: BTreeMap<Key, Vec<NameChange>>,
    /// Ranges, first key to last key, that do not touch each other.
    gone: BTreeMap<Key, Key>,
}

impl Overlay {
    /// Sets where the node of an inode or data key lies.
    pub(crate) fn set(&mut self, key: Key, location: Location) {
        self.nodes.insert(key, location);
    }

    /// Sets where the entry of a name lies, or that the name is deleted.
    pub(crate) fn set_name(&mut self, key: Key, name: &[u8], location: Option<Location>) {
        let names = self.names.entry(key).or_default();
        match names.iter_mut().find(|change| *change.name == *name) {
            Some(change) => change.location = location,
            None => names.push(NameChange { name: name.into(), location, replaces: None }),
        }
    }

    /// As [`set_name`](Self::set_name), for a name whose entry was at `old` until now.
    pub(crate) fn move_name(
        &mut self,
        key: Key,
        name: &[u8],
        old: Option<Location>,
        location: Option<Location>,
    ) {
        let names = self.names.entry(key).or_default();
        match names.iter().position(|change| *change.name == *name) {
            Some(at) if location.is_none() && names[at].replaces.is_none() => {
                names.remove(at);
            }
            Some(at) => names[at].location = location,
            None => names.push(NameChange { name: name.into(), location, replaces: old }),
        }
        if names.is_empty() {
            self.names.remove(&key);
        }
    }

    /// Records that the changed name `name` replaces the committed entry at `at`; without a name,
    /// the first change that replaces none yet does.
    pub(crate) fn stands_for(&mut self, key: Key, name: Option<&[u8]>, at: Location) {
        let fits = |change: &&mut NameChange| match name {
            Some(name) => *change.name == *name,
            None => change.replaces.is_none(),
        };
        let names = self.names.get_mut(&key);
        if let Some(change) = names.and_then(|names| names.iter_mut().find(fits)) {
            change.replaces = Some(at);
        }
    }

    /// Whether a changed name replaces the committed entry at `at`.
    pub(crate) fn is_replaced(&self, key: Key, at: Location) -> bool {
        self.names_of(key).iter().any(|change| change.replaces == Some(at))
    }

    /// The changed names under one key, for sorting.
    pub(crate) fn names_of_mut(&mut self, key: Key) -> Option<&mut Vec<NameChange>> {
        self.names.get_mut(&key)
    }

    /// Every key with changed names.
    pub(crate) fn name_keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.names.keys().copied()
    }

    /// The ranges in which the committed index is not valid.
    pub(crate) fn gone_ranges(&self) -> impl Iterator<Item = (Key, Key)> + '_ {
        self.gone.iter().map(|(first, last)| (*first, *last))
    }

    /// Whether anything from `first` to `last` differs from the committed index.
    pub(crate) fn touches(&self, first: Key, last: Key) -> bool {
        self.nodes.range(first..=last).next().is_some()
            || self.names.range(first..=last).next().is_some()
            || self.gone.range(..=last).next_back().is_some_and(|(_, &end)| end >= first)
    }

    /// Whether nothing differs from the committed index.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.names.is_empty() && self.gone.is_empty()
    }

    /// Removes everything from `first` to `last`.
    pub(crate) fn remove(&mut self, first: Key, last: Key) {
        if first > last {
            return;
        }
        self.drop_changes(first, last);
        self.mask(first, last);
    }

    /// Forgets every change from `first` to `last`.
    pub(crate) fn drop_changes(&mut self, first: Key, last: Key) {
        let nodes: Vec<Key> = self.nodes.range(first..=last).map(|(key, _)| *key).collect();
        for key in nodes {
            self.nodes.remove(&key);
        }
        let names: Vec<Key> = self.names.range(first..=last).map(|(key, _)| *key).collect();
        for key in names {
            self.names.remove(&key);
        }
    }

    /// Marks the committed index invalid from `first` to `last`.
    pub(crate) fn mask(&mut self, mut first: Key, mut last: Key) {
        // Ranges that overlap or touch become one.
        while let Some((&start, &end)) = self.gone.range(..=last.next()).next_back() {
            if end.next() < first {
                break;
            }
            self.gone.remove(&start);
            first = first.min(start);
            last = last.max(end);
        }
        self.gone.insert(first, last);
    }

    /// Whether the committed index is not valid for this key.
    pub(crate) fn is_gone(&self, key: Key) -> bool {
        self.covers(key, key)
    }

    /// Whether the committed index is valid for no key from `first` to `last`.
    pub(crate) fn covers(&self, first: Key, last: Key) -> bool {
        self.gone.range(..=first).next_back().is_some_and(|(_, &end)| end >= last)
    }

    /// Where the node of an inode or data key lies now, if the journal has one.
    pub(crate) fn get(&self, key: Key) -> Option<Location> {
        self.nodes.get(&key).copied()
    }

    /// Inode and data keys from `first` to `last`.
    pub(crate) fn nodes(
        &self,
        first: Key,
        last: Key,
    ) -> impl Iterator<Item = (Key, Location)> + '_ {
        let valid = first <= last;
        let last = if valid { last } else { first };
        self.nodes.range(first..=last).filter(move |_| valid).map(|(key, at)| (*key, *at))
    }

    /// Names changed under one key.
    pub(crate) fn names_of(&self, key: Key) -> &[NameChange] {
        self.names.get(&key).map_or(&[], Vec::as_slice)
    }

    /// The first key from `first` to `last` that has names.
    pub(crate) fn next_names(&self, first: Key, last: Key) -> Option<Key> {
        if first > last {
            return None;
        }
        self.names.range(first..=last).next().map(|(key, _)| *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> Key {
        Key::data(1, n)
    }

    #[test]
    fn removed_ranges_join_and_cover() {
        let mut overlay = Overlay::default();
        overlay.mask(key(10), key(20));
        overlay.mask(key(30), key(40));
        assert!(overlay.covers(key(10), key(20)) && !overlay.covers(key(10), key(21)));
        overlay.mask(key(21), key(25));
        assert!(overlay.covers(key(10), key(25)), "touching ranges join");
        overlay.mask(key(5), key(35));
        assert!(overlay.covers(key(5), key(40)), "overlapping ranges join");
        assert_eq!(overlay.gone.len(), 1);
        assert!(!overlay.is_gone(key(4)) && !overlay.is_gone(key(41)));
        overlay.mask(Key::MIN, Key::MAX);
        assert!(overlay.covers(Key::MIN, Key::MAX));
    }

    #[test]
    fn what_comes_after_a_removal_counts() {
        let mut overlay = Overlay::default();
        let at = Location { lnum: 1, offset: 8, length: 48 };
        overlay.set(key(3), at);
        overlay.remove(key(2), key(9));
        assert_eq!((overlay.get(key(3)), overlay.is_gone(key(3))), (None, true));
        overlay.set(key(3), at);
        assert_eq!(overlay.get(key(3)), Some(at));
    }
}
