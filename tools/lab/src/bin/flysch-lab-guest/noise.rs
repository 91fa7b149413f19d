//! Numbers and contents that are equal for equal seeds.

use flysch_random::XorShift64;

pub(crate) struct Noise(XorShift64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        let mut noise = Self(XorShift64::new(seed));
        for _ in 0..4 {
            noise.next();
        }
        noise
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.bits() >> 11
    }

    /// A number below `limit`, which must not be 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn chance(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    pub(crate) fn pick<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[self.below(of.len() as u64) as usize]
    }

    /// Content that compresses well, a little, not at all, or is all zeros.
    pub(crate) fn content(&mut self, len: usize) -> Vec<u8> {
        const WORDS: [&str; 8] =
            ["flash ", "erase ", "block ", "node ", "page ", "log ", "of ", "the\n"];
        match self.below(8) {
            0 => vec![0; len],
            1..=2 => (0..len).map(|_| self.next() as u8).collect(),
            3 => (0..len).map(|_| self.next() as u8 & 0x1f).collect(),
            _ => {
                let mut text = vec![];
                while text.len() < len {
                    text.extend_from_slice(self.pick(&WORDS).as_bytes());
                }
                text.truncate(len);
                text
            }
        }
    }
}
