//! Bit errors and wear: orders of magnitude, derived from the manufacturer's guarantees.
//!
//! The manufacturer guarantees that the required error correction suffices until a block has been
//! erased as often as permitted. So at that age the mean number of wrong bits in a step is set to
//! an eighth of what can be corrected in a step; it grows from nearly nothing with the square of
//! the erases, with reads of the block since its erase, and with time. The order in which bits go
//! wrong is fixed for each life of a page: as errors increase, the earlier ones stay.

use crate::nand::Profile;
use crate::random::Random;

/// Number of reads of a block since its erase that do as much harm as all its erases.
const DISTURBING_READS_SLC: f64 = 1_000_000.0;
const DISTURBING_READS_MLC: f64 = 100_000.0;
/// Time that does as much harm to a worn block: a year, in nanoseconds. A new one lasts ten.
const RETENTION_NS: f64 = 365.0 * 86_400.0 * 1e9;
/// Share of that harm that time does to a new block.
const RETENTION_OF_NEW: f64 = 0.1;
/// Wrong bits of a new block, relative to those of a worn one.
const ERRORS_OF_NEW: f64 = 1e-4;
/// Share of a step's correction capacity that is used at the end of a block's life.
const USED_AT_END: f64 = 0.125;
/// Erases beyond the guaranteed number that the best block withstands, relative to that number.
const LIFE_SPREAD: f64 = 1.0;

/// Chance that a program of a block at the end of its life fails.
pub(super) const PROGRAM_FAILURES: f64 = 0.001;

/// The history of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct History {
    pub erases: u32,
    pub reads: u32,
    /// Nanoseconds since it was programmed; 0 for an erased one.
    pub age_ns: u64,
}

/// Mean number of wrong bits in `bits` cells of such a page. `disturbing` reads do as much harm as
/// all erases; 0: as many as the cells withstand.
pub(super) fn mean_errors(
    profile: &Profile,
    disturbing: u32,
    history: History,
    bits: usize,
) -> f64 {
    let step_bits = f64::from(profile.ecc.step) * 8.0;
    let at_end = f64::from(profile.ecc.strength) * USED_AT_END / step_bits;
    let wear = f64::from(history.erases) / f64::from(profile.endurance.max(1));
    let is_single = profile.pairing == super::Pairing::None;
    let disturbing = match disturbing {
        0 if is_single => DISTURBING_READS_SLC,
        0 => DISTURBING_READS_MLC,
        reads => f64::from(reads),
    };
    let reads = f64::from(history.reads) / disturbing;
    let retention = RETENTION_OF_NEW + (1.0 - RETENTION_OF_NEW) * wear;
    let age = history.age_ns as f64 / RETENTION_NS * retention;
    at_end * bits as f64 * (ERRORS_OF_NEW + wear * wear + reads + age)
}

/// Calls `flip` with the cells, 0 to `bits - 1`, that read wrong in one life of a page.
pub(super) fn wrong_cells(seed: u64, mean: f64, bits: usize, mut flip: impl FnMut(usize)) {
    let mut random = Random::new(seed);
    let luck = (random.bits() >> 11) as f64 / (1_u64 << 53) as f64;
    let count = ((mean + luck) as usize).min(bits / 4);
    for _ in 0..count {
        flip(random.below(bits as u64) as usize);
    }
}

/// Number of erases before an erase of the block fails: from the guaranteed number to twice that.
pub(super) fn lifetime(profile: &Profile, seed: u64) -> u32 {
    let luck = (Random::new(seed).bits() >> 11) as f64 / (1_u64 << 53) as f64;
    let erases = f64::from(profile.endurance) * (1.0 + LIFE_SPREAD * luck);
    if erases >= f64::from(u32::MAX) { u32::MAX } else { erases as u32 }
}
