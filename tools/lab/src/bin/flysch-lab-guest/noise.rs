//! Numbers and contents that are the same for the same seed.

pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        let mut noise = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..4 {
            noise.next();
        }
        noise
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn chance(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    pub(crate) fn pick<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[self.below(of.len() as u64) as usize]
    }

    /// Content that compresses well, a little, not at all, or is zeros.
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
