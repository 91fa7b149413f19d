//! The units of a region that have been visited in this pass, for requests of different lengths.

/// One bit per unit, and one bit per full word of those, so that a free unit is found quickly
/// even when almost all are taken.
#[derive(Debug)]
pub(super) struct Map {
    units: u64,
    left: u64,
    taken: Vec<u64>,
    full: Vec<u64>,
}

impl Map {
    pub(super) fn new(units: u64) -> Self {
        let words = units.div_ceil(64) as usize;
        let mut map =
            Self { units, left: 0, taken: vec![0; words], full: vec![0; words.div_ceil(64)] };
        map.clear();
        map
    }

    pub(super) fn units(&self) -> u64 {
        self.units
    }

    /// Frees the first `units`, at most as many as it was made for.
    pub(super) fn begin(&mut self, units: u64) {
        self.units = units;
        self.clear();
    }

    /// Takes up to `count` free neighbours, the first free ones at or after `start`; starts a new
    /// pass if none is left.
    pub(super) fn take(&mut self, start: u64, count: u64) -> (u64, u64) {
        if self.left == 0 {
            self.clear();
        }
        let first = self.free_from(start).or_else(|| self.free_from(0));
        let first = first.unwrap_or_else(|| unreachable!("a unit is left"));
        let mut end = first;
        while end < self.units && end - first < count && !self.is_taken(end) {
            self.set(end);
            end += 1;
        }
        self.left -= end - first;
        (first, end - first)
    }

    fn is_taken(&self, unit: u64) -> bool {
        self.taken[(unit / 64) as usize] >> (unit % 64) & 1 == 1
    }

    fn set(&mut self, unit: u64) {
        let word = (unit / 64) as usize;
        self.taken[word] |= 1 << (unit % 64);
        if self.taken[word] == u64::MAX {
            self.full[word / 64] |= 1 << (word % 64);
        }
    }

    /// The first free unit at or after `start`.
    fn free_from(&self, start: u64) -> Option<u64> {
        let word = (start / 64) as usize;
        let free = !self.taken[word] & (u64::MAX << (start % 64));
        if free != 0 {
            return Some(word as u64 * 64 + u64::from(free.trailing_zeros()));
        }
        let word = self.word_not_full_from(word + 1)?;
        Some(word as u64 * 64 + u64::from((!self.taken[word]).trailing_zeros()))
    }

    fn word_not_full_from(&self, start: usize) -> Option<usize> {
        if start >= self.taken.len() {
            return None;
        }
        let mut mask = u64::MAX << (start % 64);
        for (index, &full) in self.full.iter().enumerate().skip(start / 64) {
            let free = !full & mask;
            if free != 0 {
                return Some(index * 64 + free.trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }

    /// Frees all units; the bits beyond the last unit and word are never free.
    fn clear(&mut self) {
        free_first(&mut self.taken, self.units);
        free_first(&mut self.full, self.units.div_ceil(64));
        self.left = self.units;
    }
}

/// Clears the first `count` bits of `words`, and sets those behind.
fn free_first(words: &mut [u64], count: u64) {
    let whole = (count / 64) as usize;
    let (free, rest) = words.split_at_mut(whole);
    free.fill(0);
    rest.fill(u64::MAX);
    if let Some(word) = rest.first_mut() {
        *word = u64::MAX << (count % 64);
    }
}
