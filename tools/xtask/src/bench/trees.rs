//! Trees of files to make images from, with the same bytes on every machine.

use flysch_random::XorShift64;
use std::io;
use std::path::Path;

/// The content of a tree.
#[derive(Clone, Copy)]
pub(super) enum Tree {
    /// 10 000 files of 8 KiB random bytes in 100 directories.
    Random,
    /// The same with text: words from a list of 2000, in random order.
    Text,
    /// 10 files of 8 MiB random bytes.
    Large,
}

/// Size of a small and of a large file, bytes.
const SMALL: usize = 8 << 10;
const LARGE: usize = 8 << 20;
/// Number of words that text is made of.
const WORDS: u64 = 2000;

/// A generator of Marsaglia's: good enough that nothing can compress its output.
struct Random(XorShift64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.bits().wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number from `from` to `to`.
    fn between(&mut self, from: u64, to: u64) -> u64 {
        from + (self.next() >> 32) % (to - from + 1)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len / 8).flat_map(|_| self.next().to_le_bytes()).collect()
    }

    fn word(&mut self) -> Vec<u8> {
        let len = self.between(2, 9);
        (0..len).map(|_| b'a' + self.between(0, 25) as u8).collect()
    }

    fn text(&mut self, words: &[Vec<u8>]) -> Vec<u8> {
        let mut text = Vec::with_capacity(SMALL + 16);
        while text.len() < SMALL {
            text.extend_from_slice(&words[self.between(0, WORDS - 1) as usize]);
            text.push(b' ');
        }
        text.truncate(SMALL);
        text
    }
}

impl Tree {
    pub(super) const ALL: [Self; 3] = [Self::Random, Self::Text, Self::Large];

    /// Its letter in docs/bench.md.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Random => "B",
            Self::Text => "T",
            Self::Large => "C",
        }
    }

    /// Makes the tree in `folder`, which is created.
    pub(super) fn make(self, folder: &Path) -> io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let mut random = Random(XorShift64::from_state(0x00F1_A5C4 + self as u64));
        if let Self::Large = self {
            for number in 0..10 {
                std::fs::write(folder.join(format!("f{number}")), random.bytes(LARGE))?;
            }
            return Ok(());
        }
        let words: Vec<Vec<u8>> = (0..WORDS).map(|_| random.word()).collect();
        for directory in 0..100 {
            let directory = folder.join(format!("d{directory:03}"));
            std::fs::create_dir(&directory)?;
            for file in 0..100 {
                let content = match self {
                    Self::Text => random.text(&words),
                    _ => random.bytes(SMALL),
                };
                std::fs::write(directory.join(format!("f{file:03}")), content)?;
            }
        }
        Ok(())
    }
}
