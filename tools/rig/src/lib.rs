//! Whole stacks by name.
//!
//! A [`Target`] such as `ufs,mcq=4` or `file:disk.img` is parsed into values.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod size;
mod target;

pub use target::{
    ClockKind, FileTarget, KINDS, Key, Kind, NullTarget, ParseError, Profile, QemuTarget, Target,
    UfsTarget, did_you_mean,
};
