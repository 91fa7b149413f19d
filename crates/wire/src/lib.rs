//! Bytes and values of the protocols Flysch speaks.
//!
//! Every structure exists twice: as bytes, seen through a view or a `parse` that checks the
//! length once, and as a value that holds what the bytes mean. Driver and model use the same
//! definitions, so a bit range is written down in one place. Nothing here keeps state, does I/O,
//! allocates or panics on what it is given; a number without a name survives as `Unknown(n)`.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[cfg(test)]
extern crate std;

mod bytes;
mod code;
mod error;
mod field;

pub mod ata;
pub mod geom;
pub mod jffs2;
pub mod mmc;
pub mod nvme;
pub mod scsi;
pub mod ubi;
pub mod ubifs;
pub mod ufs;

pub use error::Error;
