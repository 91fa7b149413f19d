//! End-to-end stories, one file each in `tests/`, and what they share.
#![deny(missing_docs)]

pub mod qemu;
pub mod ubifs;
pub mod ufs;
