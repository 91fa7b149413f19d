//! xorshift64 (Marsaglia 2003), with shifts of 13, 7 and 17.

/// A sequence of random numbers whose state is its last number.
#[derive(Clone, Debug)]
pub struct XorShift64(u64);

impl XorShift64 {
    /// The sequence that follows the number `state`, which must not be 0: after 0 there are only
    /// zeros.
    pub const fn from_state(state: u64) -> Self {
        Self(state)
    }

    /// The sequence of `seed`; consecutive seeds give unrelated sequences.
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next 64 random bits, of which the lowest are the least random.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `bound`, which must not be 0, computed as the remainder of a division.
    #[inline]
    pub fn modulo(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed from the definition with a 64-bit calculator.
    #[test]
    fn the_sequence_behind_one() {
        let mut random = XorShift64::from_state(1);
        assert_eq!([random.bits(), random.bits()], [1_082_269_761, 1_152_992_998_833_853_505]);
        assert_eq!(XorShift64::new(3).clone().0, 3_u64.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    }
}
