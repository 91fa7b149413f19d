//! xoshiro256** seeded through splitmix64, both by D. Blackman and S. Vigna
//! (public domain, <https://prng.di.unimi.it>). Equal seeds give equal sequences on every machine.

use crate::SplitMix64;

/// One stream of random numbers.
#[derive(Clone, Debug)]
pub struct Xoshiro256 {
    state: [u64; 4],
}

impl Xoshiro256 {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        let mut mix = SplitMix64::new(seed);
        Self { state: core::array::from_fn(|_| mix.bits()) }
    }

    /// The next 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= t;
        *d = d.rotate_left(45);
        result
    }

    /// A number from 0 to `bound - 1`, 0 if `bound` is 0.
    ///
    /// Multiply-and-shift: the bias is below `bound / 2^64`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// True with probability `probability` (0 never, 1 always).
    pub fn chance(&mut self, probability: f64) -> bool {
        // 53 random bits make every f64 in [0, 1) with that spacing equally likely.
        ((self.bits() >> 11) as f64) * (1.0 / (1_u64 << 53) as f64) < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_equal_streams_and_bounds_hold() {
        let (mut a, mut b) = (Xoshiro256::new(7), Xoshiro256::new(7));
        let mut low = 0;
        for _ in 0..10_000 {
            let value = a.below(10);
            assert_eq!(value, b.below(10));
            assert!(value < 10);
            low += u32::from(value < 5);
        }
        assert!((4800..5200).contains(&low), "{low} of 10000 below the middle");
    }

    #[test]
    fn chance_is_never_always_and_about_right() {
        let mut random = Xoshiro256::new(1);
        assert!((0..1000).all(|_| !random.chance(0.0)));
        assert!((0..1000).all(|_| random.chance(1.0)));
        let hits = (0..100_000).filter(|_| random.chance(0.01)).count();
        assert!((850..1150).contains(&hits), "{hits} of 100000 at one percent");
    }
}
