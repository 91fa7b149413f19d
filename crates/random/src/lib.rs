//! Seeded random numbers: the same sequence from the same seed on every machine.
//!
//! [`SplitMix64`] is for workloads and tests and is the default choice. [`Xoshiro256`] is the only
//! source of randomness in the models. [`XorShift64`] is kept for tests whose seeds are in reports
//! and whose cases must not change. None is for cryptography.
//!
//! Sequences are part of the contract: recorded seeds, cut lists and figures depend on them.
//!
//! ```
//! use flysch_random::SplitMix64;
//!
//! let (mut dice, mut same) = (SplitMix64::new(4711), SplitMix64::new(4711));
//! assert_eq!(dice.below(6), same.below(6));
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[cfg(test)]
extern crate std;

mod split_mix;
mod xor_shift;
mod xoshiro;

pub use split_mix::{SplitMix64, mix};
pub use xor_shift::XorShift64;
pub use xoshiro::Xoshiro256;
