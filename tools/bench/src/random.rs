//! Random numbers and random orders for workloads: fast, seeded, the same on every machine.

pub use flysch_random::{SplitMix64 as Random, mix};

/// A random order of `0..len`, each number once, in constant memory.
///
/// Theory. Adding a key, multiplying by an odd number and folding the high half onto the low half
/// are each one-to-one on numbers of `bits` bits, and so is any chain of them. If `len` is not a
/// power of two, numbers that fall outside go through the chain again until they fall inside: this
/// is still one-to-one on `0..len`, and takes less than two rounds on average, because `len` is
/// more than half of the power of two above it.
#[derive(Clone, Debug)]
pub struct Permutation {
    len: u64,
    mask: u64,
    fold: u32,
    keys: [u64; 3],
}

impl Permutation {
    /// The order of `0..len` for `seed`. `len` must not be 0.
    pub fn new(len: u64, seed: u64) -> Self {
        assert!(len > 0, "a permutation of nothing");
        let bits = (u64::BITS - (len - 1).leading_zeros()).max(2);
        let mut random = Random::new(seed);
        Self {
            len,
            mask: u64::MAX >> (u64::BITS - bits),
            fold: bits.div_ceil(2),
            keys: core::array::from_fn(|_| random.bits()),
        }
    }

    /// The number at place `index` of the order. `index` must be below the length.
    #[inline]
    pub fn at(&self, index: u64) -> u64 {
        debug_assert!(index < self.len);
        let mut value = index;
        loop {
            value = self.step(value);
            if value < self.len {
                return value;
            }
        }
    }

    #[inline]
    fn step(&self, mut value: u64) -> u64 {
        for (key, factor) in self.keys.iter().zip([
            0x9e37_79b9_7f4a_7c15,
            0xbf58_476d_1ce4_e5b9,
            0x94d0_49bb_1331_11ebu64,
        ]) {
            value = value.wrapping_add(*key).wrapping_mul(factor) & self.mask;
            value ^= value >> self.fold;
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutation_gives_each_number_once() {
        for len in [1, 2, 3, 4, 5, 7, 8, 9, 100, 255, 256, 257, 1000, 65_537] {
            for seed in 0..4 {
                let order = Permutation::new(len, seed);
                let mut seen = vec![false; len as usize];
                for index in 0..len {
                    let value = order.at(index) as usize;
                    assert!(!core::mem::replace(&mut seen[value], true), "{value} twice of {len}");
                }
            }
        }
    }

    /// Neighbours in the order are as far apart as independent draws would be (a third of the
    /// range on average), steps are not repeated, and each part of the order visits all parts.
    #[test]
    fn permutation_looks_random() {
        for len in [262_144u64, 300_000, 1_000_003] {
            let order = Permutation::new(len, 7);
            let values: Vec<u64> = (0..len).map(|i| order.at(i)).collect();
            let apart: f64 = values.windows(2).map(|w| w[0].abs_diff(w[1]) as f64).sum();
            let apart = apart / (len - 1) as f64 / len as f64;
            assert!((apart - 1.0 / 3.0).abs() < 0.01, "mean distance {apart} of {len}");
            let mut steps: Vec<u64> = values.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
            steps.sort_unstable();
            let most = steps.chunk_by(|a, b| a == b).map(<[u64]>::len).max().unwrap();
            assert!(most < 40, "one step occurs {most} times of {len}");
            for part in values.chunks(len as usize / 16) {
                let mut sixteenths = [0u64; 16];
                part.iter().for_each(|v| sixteenths[(v * 16 / len) as usize] += 1);
                let mean = part.len() as f64 / 16.0;
                let chi: f64 = sixteenths.iter().map(|&n| (n as f64 - mean).powi(2) / mean).sum();
                assert!(part.len() < 1000 || chi < 60.0, "parts visited unevenly: {chi} of {len}");
            }
        }
    }
}
