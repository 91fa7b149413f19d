//! Allocation of a machine's DMA memory.

use alloc::vec::Vec;

use super::DmaRegion;

/// Cuts DMA memory into parts for several owners (drivers, buffers) and takes them back.
///
/// First fit over a sorted list: meant for set-up and long-lived buffers, not for each command. A
/// part is contiguous and aligned as the device sees it. It still contains what its last owner
/// left.
#[derive(Debug)]
pub struct DmaAllocator {
    memory: DmaRegion,
    /// Free parts by offset, as offset and length; none is adjacent to the next.
    free: Vec<(usize, usize)>,
    /// Parts in use, by offset.
    used: Vec<(usize, usize)>,
}

impl DmaAllocator {
    /// Creates an allocator with all of `memory` free.
    pub fn new(memory: DmaRegion) -> Self {
        let free = if memory.is_empty() { Vec::new() } else { Vec::from([(0, memory.len())]) };
        Self { memory, free, used: Vec::new() }
    }

    /// Takes a part of `len` bytes whose device address is a multiple of `align`, a power of two.
    /// `None` if no free part is long enough, `len` is 0 or `align` is not a power of two.
    pub fn take(&mut self, len: usize, align: u64) -> Option<DmaRegion> {
        if len == 0 || !align.is_power_of_two() {
            return None;
        }
        let base = self.memory.address();
        let fit = |&(at, room): &(usize, usize)| {
            let address = base + at as u64;
            let skip = usize::try_from(address.checked_next_multiple_of(align)? - address).ok()?;
            (skip <= room && len <= room - skip).then_some(skip)
        };
        let (place, skip) =
            self.free.iter().enumerate().find_map(|(n, part)| Some((n, fit(part)?)))?;
        let (at, room) = self.free.remove(place);
        let (start, end) = (at + skip, at + room);
        let rest = [(at, skip), (start + len, end - start - len)];
        self.free.splice(place..place, rest.into_iter().filter(|(_, len)| *len > 0));
        let place = self.used.partition_point(|&(other, _)| other < start);
        self.used.insert(place, (start, len));
        Some(self.memory.carve(start, len))
    }

    /// Takes a part back. Neither its owner nor a device may use it any more.
    ///
    /// # Errors
    /// The region itself, if [`take`](Self::take) did not return it or it has already been given
    /// back.
    pub fn give_back(&mut self, part: DmaRegion) -> Result<(), DmaRegion> {
        let Ok(start) = self.memory.offset_of(part.address(), part.len()) else {
            return Err(part);
        };
        let Ok(place) = self.used.binary_search(&(start, part.len())) else { return Err(part) };
        self.used.remove(place);
        let place = self.free.partition_point(|&(other, _)| other < start);
        self.free.insert(place, (start, part.len()));
        self.join(place);
        if place > 0 {
            self.join(place - 1);
        }
        Ok(())
    }

    /// Number of free bytes, and the length of the longest free part.
    pub fn available(&self) -> (usize, usize) {
        let lengths = || self.free.iter().map(|&(_, len)| len);
        (lengths().sum(), lengths().max().unwrap_or(0))
    }

    /// Merges a free part with the next, if they are adjacent.
    fn join(&mut self, place: usize) {
        if let [(at, len), (next, more), ..] = self.free[place..]
            && at + len == next
        {
            self.free[place] = (at, len + more);
            self.free.remove(place + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x1_0000_0200;

    fn allocator(len: usize) -> DmaAllocator {
        DmaAllocator::new(DmaRegion::zeroed(len, BASE))
    }

    #[test]
    fn parts_are_aligned_and_come_back() {
        let mut dma = allocator(16 << 10);
        let first = dma.take(100, 1).expect("room");
        let second = dma.take(4096, 4096).expect("room");
        assert_eq!((first.address(), second.address()), (BASE, 0x1_0000_1000));
        let between = dma.take(3000, 128).expect("the gap before it is used, too");
        assert!(between.address() < second.address() && between.address().is_multiple_of(128));
        assert!(dma.take(16 << 10, 1).is_none());
        for part in [second, first, between] {
            dma.give_back(part).expect("it was given");
        }
        assert_eq!(dma.available(), (16 << 10, 16 << 10), "all of it, in one piece");
        assert!(dma.take(16 << 10, 1).is_some());
    }

    #[test]
    fn what_was_not_given_is_not_taken_back() {
        let mut dma = allocator(4096);
        let part = dma.take(1024, 1024).expect("room");
        let half = part.carve(0, 512);
        assert!(dma.give_back(half).is_err() && dma.give_back(DmaRegion::zeroed(8, 0)).is_err());
        let twice = part.clone();
        assert!(dma.give_back(part).is_ok() && dma.give_back(twice).is_err());
        assert!(dma.take(0, 1).is_none() && dma.take(8, 3).is_none() && dma.take(8, 0).is_none());
        assert!(allocator(64).take(8, 1 << 63).is_none());
    }

    /// Parts may be taken and given back in any order: no part overlaps another, and the bytes add
    /// up.
    #[test]
    fn parts_never_overlap() {
        const LEN: usize = 1 << 16;
        let mut dma = allocator(LEN);
        let mut held: Vec<DmaRegion> = Vec::new();
        let mut state = 7_u64;
        for _ in 0..5_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = (state >> 33) as usize;
            if random.is_multiple_of(3) && !held.is_empty() {
                let part = held.swap_remove(random / 3 % held.len());
                dma.give_back(part).expect("it was given");
            } else if let Some(part) = dma.take(1 + random % 5000, 1 << (random % 10)) {
                assert!(part.address().is_multiple_of(1 << (random % 10)));
                let end = |region: &DmaRegion| region.address() + region.len() as u64;
                let apart = |other: &DmaRegion| {
                    end(other) <= part.address() || end(&part) <= other.address()
                };
                assert!(held.iter().all(apart));
                held.push(part);
            }
            let out: usize = held.iter().map(DmaRegion::len).sum();
            assert_eq!(dma.available().0 + out, LEN);
        }
        held.into_iter().for_each(|part| dma.give_back(part).expect("it was given"));
        assert_eq!(dma.available(), (LEN, LEN));
    }
}
