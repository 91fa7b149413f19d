//! SplitMix64 (Steele, Lea, Flood 2014): one addition and one mixing function per number.

/// A sequence of random numbers.
#[derive(Clone, Debug, Default)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The sequence of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number below `bound`, which must not be 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of a 64x64-bit product (Lemire 2019); the bias is below bound / 2^64.
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Another number below `bound`, which must not be 0, computed as the remainder of a division.
    /// Recorded seeds of the tests depend on this variant.
    #[inline]
    pub fn modulo(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }

    /// True in this many of a hundred cases.
    #[inline]
    pub fn percent(&mut self, percent: u64) -> bool {
        self.modulo(100) < percent
    }

    /// A number in 0.0..1.0 with 53 random bits.
    #[inline]
    pub fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

/// A bijection on 64 bits that looks random: the output function of SplitMix64.
#[inline]
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sequence_comes_out() {
        // First outputs for seed 1234567, from the test vector of the Rosetta Code task.
        let mut random = SplitMix64::new(1_234_567);
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.clone().modulo(1000), 3_203_168_211_198_807_973 % 1000);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn numbers_below_a_bound_are_even() {
        let mut random = SplitMix64::new(1);
        let mut counts = [0u32; 10];
        (0..100_000).for_each(|_| counts[random.below(10) as usize] += 1);
        assert!(counts.iter().all(|&n| (9_500..10_500).contains(&n)), "{counts:?}");
    }
}
