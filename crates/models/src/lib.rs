//! The device side of Flysch's protocols, simulated: timing from mechanisms, faults from one seed.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod events;
pub mod faults;
pub mod machine;
pub mod random;
pub mod store;
pub mod ufs;
