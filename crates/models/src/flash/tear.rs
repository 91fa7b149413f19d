//! What an interrupted operation leaves in the cells.

use alloc::vec;
use alloc::vec::Vec;

use super::Tear;
use crate::random::Random;

/// Maximum number of cells left unchanged when an operation is cut late.
const LATE_CELLS_MAX: u64 = 12;

/// Cells after an interrupted operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Torn {
    /// What they read as, except the unstable ones.
    pub cells: Vec<u8>,
    /// A 1 for every unstable cell: it reads differently each time.
    pub unstable: Vec<u8>,
    /// Read count from which on they do; until then the cells read as in `cells`.
    pub shows_from: u32,
}

/// The state of `old` on its way to `new`. Only cells that differ are changed.
pub(crate) fn tear(random: &mut Random, old: &[u8], new: &[u8], how: Tear) -> Torn {
    let still = vec![0; old.len()];
    match how {
        Tear::Before => Torn { cells: old.to_vec(), unstable: still, shows_from: 0 },
        Tear::After => Torn { cells: new.to_vec(), unstable: still, shows_from: 0 },
        // One cell in 16 has changed, every second of these is unstable.
        Tear::Early => mix(random, old, new, |random| {
            let moved = random.bits() & random.bits() & random.bits() & random.bits();
            (moved, moved & random.bits())
        }),
        // Every second cell has changed, one in four is unstable.
        Tear::Half => {
            mix(random, old, new, |random| (random.bits(), random.bits() & random.bits()))
        }
        Tear::Late => late(random, old, new),
    }
}

fn mix(
    random: &mut Random,
    old: &[u8],
    new: &[u8],
    mut masks: impl FnMut(&mut Random) -> (u64, u64),
) -> Torn {
    let mut cells = old.to_vec();
    let mut unstable = vec![0; old.len()];
    for ((cells, unstable), new) in
        cells.chunks_mut(8).zip(unstable.chunks_mut(8)).zip(new.chunks(8))
    {
        let (moved, shaky) = masks(random);
        let bytes = moved.to_le_bytes().into_iter().zip(shaky.to_le_bytes());
        for (((cell, unstable), new), (moved, shaky)) in
            cells.iter_mut().zip(unstable.iter_mut()).zip(new).zip(bytes)
        {
            let change = *cell ^ new;
            *cell ^= change & moved;
            *unstable = change & shaky;
        }
    }
    Torn { cells, unstable, shows_from: 0 }
}

/// All cells but a few have changed; every second of those few is unstable.
fn late(random: &mut Random, old: &[u8], new: &[u8]) -> Torn {
    let unstable = vec![0; new.len()];
    let mut torn = Torn { cells: new.to_vec(), unstable, shows_from: 0 };
    let changes: u64 = old.iter().zip(new).map(|(a, b)| u64::from((a ^ b).count_ones())).sum();
    let behind = (1 + random.below(LATE_CELLS_MAX)).min(changes);
    for _ in 0..behind {
        let Some((at, bit)) = nth_change(old, new, random.below(changes)) else { break };
        if random.below(2) == 0 {
            torn.unstable[at] |= bit;
        } else {
            torn.cells[at] = (torn.cells[at] & !bit) | (old[at] & bit);
        }
    }
    torn
}

/// The `n`-th of the cells that change: its byte and its bit.
fn nth_change(old: &[u8], new: &[u8], n: u64) -> Option<(usize, u8)> {
    let mut left = n;
    for (at, change) in old.iter().zip(new).map(|(a, b)| a ^ b).enumerate() {
        let here = u64::from(change.count_ones());
        if left < here {
            let mut bits = (0..8).map(|bit| 1 << bit).filter(|bit| change & bit != 0);
            return bits.nth(left as usize).map(|bit| (at, bit));
        }
        left -= here;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cells_on_their_way_are_touched_and_more_with_time() {
        let old = [0xFF; 2048];
        let new: Vec<u8> = (0..2048u32).map(|i| (i * 37) as u8).collect();
        let mut last = 0;
        for how in Tear::ALL {
            let torn = tear(&mut Random::new(1), &old, &new, how);
            let mut moved = 0;
            for ((&cell, &unstable), &new) in torn.cells.iter().zip(&torn.unstable).zip(&new) {
                assert_eq!(cell | new, cell, "{how}: a cell went further than asked");
                assert_eq!(unstable & new, 0, "{how}: a cell that was not to move is unstable");
                moved += (!cell).count_ones();
            }
            assert!(moved > last || how == Tear::Before, "{how}: {moved} cells have moved");
            last = moved;
        }
        let total: u32 = new.iter().map(|byte| (!byte).count_ones()).sum();
        assert_eq!(last, total);
        let late = tear(&mut Random::new(3), &old, &new, Tear::Late);
        let behind: u32 = late.cells.iter().zip(&new).map(|(a, b)| (a ^ b).count_ones()).sum();
        let shaky: u32 = late.unstable.iter().map(|byte| byte.count_ones()).sum();
        assert!((1..=12).contains(&(behind + shaky)), "{behind} behind, {shaky} unstable");
    }

    #[test]
    fn nothing_to_do_is_not_torn() {
        for how in Tear::ALL {
            let torn = tear(&mut Random::new(1), &[0xA5; 9], &[0xA5; 9], how);
            let still = Torn { cells: vec![0xA5; 9], unstable: vec![0; 9], shows_from: 0 };
            assert_eq!(torn, still);
        }
    }
}
