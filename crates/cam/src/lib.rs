//! The command layer: what stands between block requests and a host controller's port.
//!
//! The port (a SIM, in CAM's words) only wraps commands and unwraps answers. Everything else is
//! here: finding the logical units ([`scan`](mod@scan)), making commands of requests and putting
//! them to the port ([`Disk`]), deadlines, retries, and what an error means ([`sense`]). A disk is
//! generic over its port's language; what is particular to one is its [`Family`].
//!
//! | module | what |
//! |---|---|
//! | [`scan`](mod@scan) | which units there are and what they say about themselves |
//! | [`disk`] | a unit as [`api::block::Device`](flysch_api::block::Device); within it `single`, the fast path, and `recover`, what happens after an error |
//! | [`family`] | what a disk needs to know of a command set |
//! | [`da`](mod@da) | SCSI direct-access units |
//! | [`nda`](mod@nda) | NVMe namespaces |
//! | [`ada`](mod@ada) | ATA disks |
//! | [`cd`](mod@cd) | optical drives: packets over ATA |
//! | [`sdda`](mod@sdda) | partitions of eMMC devices, SD cards |
//! | `queue` | requests in hand and their commands |
//! | [`sense`] | the table of what SCSI sense data means |
//! | [`run`](mod@run) | one command to its end |
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

#[cfg(test)]
extern crate std;

pub mod ada;
pub mod cd;
pub mod da;
pub mod disk;
mod error;
pub mod family;
pub mod nda;
mod queue;
pub mod run;
pub mod scan;
pub mod sdda;
pub mod sense;

#[cfg(test)]
mod tests;

pub use disk::{Disk, Options, Shape, Statistics};
pub use error::Error;
pub use family::{Attention, Family};
pub use run::run;
pub use scan::{Fault, Peripheral, scan};
