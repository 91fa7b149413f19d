//! Bytes and values of the protocols Flysch speaks.
//!
//! Every structure has two forms: bytes, seen through a view or a `parse` that checks the length
//! once, and a value that holds what the bytes mean. Driver and model use the same definitions, so
//! each bit range is written down in one place. Nothing here keeps state, does I/O or allocates,
//! and no input makes it panic; a number without a name survives as `Unknown(n)`.
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

pub use error::WireError;
