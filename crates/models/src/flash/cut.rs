//! One cut in one operation, and how the affected cells behave once power is back.

use alloc::vec;

use super::{Tear, Torn, tear};
use crate::random::Random;

/// Weak cells of a block read correctly for 2^n reads; n is below this.
const HIDDEN_READS_LOG2: u64 = 8;

/// How torn cells behave after the cut. Each effect can be switched on by itself.
///
/// Sources: reports of the Linux MTD developers (linux-mtd 2011-10 on unstable bits: a page that
/// was partly programmed or erased reads correctly at one time and not at another; 2015-10 on
/// bit-flips in erased pages).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Aftermath {
    /// Cells between two levels read differently each time. Otherwise they read as they were left.
    pub unstable: bool,
    /// A program cut late reads without a bit error for the first 1 to 128 reads of its block, and
    /// an erase cut late (and every second one cut half way) reads as fully erased for as long;
    /// then the marginal cells show, more of them than most codes correct.
    pub fades: bool,
}

impl Default for Aftermath {
    /// Unstable cells that show at once.
    fn default() -> Self {
        Self { unstable: true, fades: false }
    }
}

/// The type of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Program,
    Erase,
}

/// A cut: how it tears, and the random numbers for its result. Every operation has its own.
pub(crate) struct Tearing {
    /// How far the operation had got.
    pub how: Tear,
    /// The source of all other decisions.
    pub random: Random,
    /// Read count from which on weak cells show; `None` for at once.
    shows_from: Option<u32>,
}

impl Tearing {
    /// A cut of operation number `number` of the chip, in a block that was read `reads` times.
    pub(crate) fn new(
        (seed, number): (u64, u64),
        (how, act): (Tear, Act),
        aftermath: Aftermath,
        reads: u32,
    ) -> Self {
        let mut random = Random::new(seed ^ number.wrapping_mul(0xD134_2543_DE82_EF95));
        let hides = aftermath.fades
            && match how {
                Tear::Late => true,
                Tear::Half => act == Act::Erase && random.below(2) == 0,
                _ => false,
            };
        let shows_from = hides.then(|| reads.saturating_add(1 << random.below(HIDDEN_READS_LOG2)));
        Self { how, random, shows_from }
    }

    /// Whether the operation appears complete at first.
    pub(crate) fn looks_done(&self) -> bool {
        self.shows_from.is_some()
    }

    /// The state of `old` on its way to `new`.
    pub(crate) fn tear(&mut self, old: &[u8], new: &[u8]) -> Torn {
        let Some(shows_from) = self.shows_from else {
            return tear(&mut self.random, old, new, self.how);
        };
        let mut unstable = vec![0; new.len()];
        for ((weak, old), new) in unstable.iter_mut().zip(old).zip(new) {
            if old != new {
                *weak = (old ^ new) & self.weak();
            }
        }
        Torn { cells: new.to_vec(), unstable, shows_from }
    }

    /// Which of eight cells are weak: after a late cut one in 64, so about as many wrong bits in a
    /// 512-byte step as eight-bit codes can no longer correct; after an earlier cut every second
    /// one.
    fn weak(&mut self) -> u8 {
        let bits = self.random.bits().to_le_bytes();
        match self.how {
            Tear::Late => bits[..6].iter().fold(0xFF, |mask, byte| mask & byte),
            _ => bits[0],
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn every_operation_throws_its_own_dice() {
        let late = |number| {
            let mut cut =
                Tearing::new((1, number), (Tear::Late, Act::Program), Aftermath::default(), 0);
            cut.tear(&[0xFF; 512], &[0x5A; 512])
        };
        assert_eq!(late(7), late(7));
        let left = |torn: &Torn| torn.cells.iter().filter(|cell| **cell != 0x5A).count();
        let counts: Vec<usize> = (0..40).map(|number| left(&late(number))).collect();
        assert!(counts.iter().max() > counts.iter().min(), "{counts:?}");
    }

    #[test]
    fn what_fades_looks_done_first() {
        let fading = Aftermath { fades: true, ..Aftermath::default() };
        let mut cut = Tearing::new((1, 2), (Tear::Late, Act::Program), fading, 10);
        let torn = cut.tear(&[0xFF; 2048], &[0; 2048]);
        assert!(cut.looks_done() && (11..=138).contains(&torn.shows_from), "{}", torn.shows_from);
        assert_eq!(torn.cells, [0; 2048]);
        let weak: u32 = torn.unstable.iter().map(|byte| byte.count_ones()).sum();
        assert!((150..400).contains(&weak), "{weak} of 16384");
        let mut halves = 0;
        for number in 0..64 {
            for act in [Act::Program, Act::Erase] {
                let cut = Tearing::new((1, number), (Tear::Half, act), fading, 0);
                assert!(act == Act::Erase || !cut.looks_done());
                halves += u32::from(cut.looks_done());
            }
        }
        assert!((16..48).contains(&halves), "{halves} of 64");
    }
}
