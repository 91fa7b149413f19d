//! Nodes kept in memory: those of the index, as in Linux's tree node cache (TNC), and, while a file
//! system is written, names and inodes, which Linux keeps in its own caches.
//!
//! Readers share a file system without locks, so the cache consists of atomic words, and each slot
//! has a version that is odd while it is being written (a sequence lock). A reader that meets such
//! a slot reads the flash instead. The cache is set-associative: if it were direct-mapped, a fifth
//! of the nodes of a half-full cache would evict one another.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering, fence};

use crate::location::Location;

/// Slots that a place may use.
const WAYS: usize = 4;
/// Words of a slot before the node: version, LEB, offset, length.
const HEAD: usize = 4;
/// Largest cache, and smallest new one, in bytes.
const BYTES_MAX: usize = 8 << 20;
const BYTES_MIN: usize = 64 << 10;

/// A bounded cache of good nodes, by place.
#[derive(Debug)]
pub(crate) struct NodeCache {
    words: Vec<AtomicU32>,
    /// Words of a slot.
    stride: usize,
}

impl NodeCache {
    /// Room for nodes of up to `node_max` bytes in a tree of `bytes`.
    pub(crate) fn new(node_max: usize, bytes: u64) -> Self {
        let stride = HEAD + node_max.div_ceil(4);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // Twice the size of the nodes, so that most of them get a slot of their own.
        let wanted = bytes.saturating_mul(2).clamp(BYTES_MIN, BYTES_MAX);
        let slots = (wanted / 4 / stride).max(1).next_multiple_of(WAYS);
        let words = (0..slots * stride).map(|_| AtomicU32::new(0)).collect();
        Self { words, stride }
    }

    /// Whether a tree of `bytes` has outgrown it.
    pub(crate) fn is_small_for(&self, bytes: u64) -> bool {
        let room = self.words.len() * 4;
        room < BYTES_MAX - BYTES_MIN && bytes > room as u64
    }

    /// A larger cache with the same nodes.
    pub(crate) fn grown(&self, bytes: u64) -> Self {
        let node_max = (self.stride - HEAD) * 4;
        let larger = Self::new(node_max, bytes.saturating_mul(2));
        let mut node = alloc::vec![0; node_max];
        for slot in self.words.chunks_exact(self.stride) {
            let [lnum, offset, length] =
                [&slot[1], &slot[2], &slot[3]].map(|word| word.load(Ordering::Relaxed));
            let at = Location { lnum, offset, length };
            if length != 0 && self.get(at, &mut node[..length as usize]) {
                larger.put(at, &node[..length as usize]);
            }
        }
        larger
    }

    /// The slots of a place, and which one it takes when all are in use.
    fn slots(&self, at: Location) -> (impl Iterator<Item = &[AtomicU32]> + Clone, usize) {
        let place = u64::from(at.lnum) << 32 | u64::from(at.offset);
        // Twice, because nodes lie at regular distances, which one multiplication would preserve.
        let spread = place.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let spread = (spread ^ spread >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let width = WAYS * self.stride;
        let sets = (self.words.len() / width) as u64;
        let start = (((spread >> 32) * sets) >> 32) as usize * width;
        let slots = self.words[start..start + width].chunks_exact(self.stride);
        (slots, spread as usize >> 8 & (WAYS - 1))
    }

    /// Copies the node at `at`, which is as long as `node`; `false` if it is not cached.
    pub(crate) fn get(&self, at: Location, node: &mut [u8]) -> bool {
        let is_it = |slot: &&[AtomicU32]| {
            let words = slot[1..HEAD].iter().map(|word| word.load(Ordering::Relaxed));
            words.eq([at.lnum, at.offset, at.length])
        };
        let Some(slot) = self.slots(at).0.find(is_it) else { return false };
        let version = slot[0].load(Ordering::Acquire);
        if version % 2 == 1 || !is_it(&slot) || at.length == 0 {
            return false;
        }
        for (bytes, word) in node.chunks_mut(4).zip(&slot[HEAD..]) {
            let word = word.load(Ordering::Relaxed).to_le_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
        fence(Ordering::Acquire);
        slot[0].load(Ordering::Relaxed) == version
    }

    /// Caches the node at `at`, if a node of its length fits.
    pub(crate) fn put(&self, at: Location, node: &[u8]) {
        debug_assert_eq!(at.length as usize, node.len());
        if at.length as usize > (self.stride - HEAD) * 4 {
            return;
        }
        let (mut slots, last) = self.slots(at);
        let is_free = |slot: &&[AtomicU32]| slot[3].load(Ordering::Relaxed) == 0;
        let mine = slots.clone().find(|slot| is_at(slot, at));
        let slot = mine.or_else(|| slots.clone().find(is_free)).or_else(|| slots.nth(last));
        if let Some(slot) = slot {
            write(slot, at, node);
        }
    }

    /// Forgets the node at `at`.
    pub(crate) fn forget(&self, at: Location) {
        // Two threads may have put it into two slots.
        let slots = self.slots(at).0.filter(|slot| is_at(slot, at));
        slots.for_each(|slot| write(slot, Location { length: 0, ..at }, &[]));
    }

    /// Forgets all nodes of a LEB.
    pub(crate) fn forget_leb(&self, lnum: u32) {
        for slot in self.words.chunks_exact(self.stride) {
            let [in_leb, offset, length] =
                [&slot[1], &slot[2], &slot[3]].map(|word| word.load(Ordering::Relaxed));
            if in_leb == lnum && length != 0 {
                self.forget(Location { lnum, offset, length });
            }
        }
    }
}

/// Whether a slot holds the node at a place, or did before it was forgotten.
fn is_at(slot: &[AtomicU32], at: Location) -> bool {
    slot[1].load(Ordering::Relaxed) == at.lnum && slot[2].load(Ordering::Relaxed) == at.offset
}

fn write(slot: &[AtomicU32], at: Location, node: &[u8]) {
    let version = slot[0].load(Ordering::Relaxed);
    let odd = version | 1;
    let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
    // Another thread is writing the slot: leave it to that one.
    if version == odd || slot[0].compare_exchange(version, odd, acquire, relaxed).is_err() {
        return;
    }
    fence(Ordering::Release);
    for (word, value) in slot[1..HEAD].iter().zip([at.lnum, at.offset, at.length]) {
        word.store(value, Ordering::Relaxed);
    }
    for (bytes, word) in node.chunks(4).zip(&slot[HEAD..]) {
        let mut value = [0; 4];
        value[..bytes.len()].copy_from_slice(bytes);
        word.store(u32::from_le_bytes(value), Ordering::Relaxed);
    }
    slot[0].store(odd.wrapping_add(1), Ordering::Release);
}

impl Clone for NodeCache {
    fn clone(&self) -> Self {
        let bytes = self.words.len() as u64 * 2;
        Self::new((self.stride - HEAD) * 4, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u32) -> Location {
        Location { lnum: 7 + number / 100, offset: number % 100 * 8, length: 28 + number % 161 }
    }

    fn node(number: u32) -> Vec<u8> {
        (0..at(number).length).map(|byte| (byte ^ number) as u8).collect()
    }

    #[test]
    fn nodes_come_back_as_they_were_or_not_at_all() {
        let cache = NodeCache::new(188, 0);
        let mut found = 0;
        for number in 0..1000 {
            cache.put(at(number), &node(number));
            let mut read = node(0);
            read.resize(at(number).length as usize, 0);
            assert!(cache.get(at(number), &mut read));
            assert_eq!(read, node(number));
        }
        for number in 0..1000 {
            let mut read = alloc::vec![0; at(number).length as usize];
            if cache.get(at(number), &mut read) {
                assert_eq!(read, node(number), "{number}");
                found += 1;
            }
        }
        assert!((250..1000).contains(&found), "{found} of 1000 in 64 KiB");
        let larger = cache.grown(300 << 10);
        let kept = (0..1000).filter(|&number| {
            let mut read = alloc::vec![0; at(number).length as usize];
            larger.get(at(number), &mut read) && read == node(number)
        });
        assert!(kept.count() > found * 8 / 10);
    }

    #[test]
    fn a_cache_that_is_half_full_has_nearly_all() {
        // Room for 642 nodes of this length.
        let cache = NodeCache::new(188, 64 << 10);
        let has = |number: &u32| {
            let mut read = alloc::vec![0; at(*number).length as usize];
            cache.get(at(*number), &mut read)
        };
        (0..320).for_each(|number| cache.put(at(number), &node(number)));
        let kept = (0..320).filter(has).count();
        assert!(kept > 300, "{kept} of 320");
    }

    #[test]
    fn what_is_forgotten_or_of_another_length_is_not_found() {
        let cache = NodeCache::new(188, 0);
        cache.put(at(5), &node(5));
        let longer = Location { length: at(5).length + 1, ..at(5) };
        assert!(!cache.get(longer, &mut alloc::vec![0; longer.length as usize]));
        cache.forget(at(5));
        assert!(!cache.get(at(5), &mut alloc::vec![0; at(5).length as usize]));
        let other = Location { lnum: at(5).lnum + 1, ..at(5) };
        [at(5), other].into_iter().for_each(|at| cache.put(at, &node(5)));
        cache.forget_leb(at(5).lnum);
        assert!(!cache.get(at(5), &mut alloc::vec![0; at(5).length as usize]));
        assert!(cache.get(other, &mut alloc::vec![0; other.length as usize]));
        let huge = Location { length: 4000, ..at(6) };
        cache.put(huge, &alloc::vec![1; 4000]);
        assert!(!cache.get(huge, &mut alloc::vec![0; 4000]));
    }

    #[test]
    fn threads_never_see_half_a_node() {
        let cache = NodeCache::new(188, 0);
        let place = Location { lnum: 1, offset: 8, length: 188 };
        std::thread::scope(|scope| {
            for value in 1..=3_u8 {
                let cache = &cache;
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        cache.put(place, &[value; 188]);
                        let mut read = [0; 188];
                        if cache.get(place, &mut read) {
                            assert!(read.iter().all(|&byte| byte == read[0]), "{read:?}");
                        }
                    }
                });
            }
        });
    }
}
