//! The command layer between block requests and a host controller's port.
//!
//! The port (a SIM, in CAM's words) only wraps commands and unwraps answers. Everything else is
//! here: finding the logical units ([`scan`](mod@scan)), turning requests into commands and handing
//! them to the port ([`Disk`]), deadlines, retries, and the meaning of errors ([`sense`]). A disk
//! is generic over its port's protocol; what is specific to one protocol is its [`Family`].
//!
//! | module | what |
//! |---|---|
//! | [`scan`](mod@scan) | which units there are and what they say about themselves |
//! | [`disk`] | a unit as [`api::block::BlockDevice`](flysch_api::block::BlockDevice); within it `single`, the fast path, `recover` and `rescue`, what happens after an error, and `control`, what its owner does to it |
//! | [`family`] | what a disk needs to know about a command set |
//! | [`da`](mod@da) | SCSI direct-access units |
//! | [`nda`](mod@nda) | NVMe namespaces |
//! | [`ada`](mod@ada) | ATA disks |
//! | [`cd`](mod@cd) | optical drives: packets over ATA |
//! | [`sdda`](mod@sdda) | partitions of eMMC devices, SD cards |
//! | `queue` | pending requests and their commands |
//! | [`sense`] | the table of what SCSI sense data means |
//! | [`iosched`](mod@iosched) | an I/O scheduler in front of a disk |
//! | [`run`](mod@run) | one command to its end |
//! | [`ses`](mod@ses) | enclosures: elements, their status, what is where |
//! | [`share`](mod@share) | several disks, and pass-through beside them, on one lane |
//! | [`debug`] | what goes to units and how it ends, in FreeBSD's words |
//! | [`xpt`](mod@xpt) | the table of buses, units and peripheral drivers, and what changes in it |
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

#[cfg(test)]
extern crate std;

pub mod ada;
pub mod cd;
pub mod da;
pub mod debug;
pub mod disk;
mod error;
pub mod family;
pub mod iosched;
pub mod nda;
mod queue;
pub mod run;
pub mod scan;
pub mod sdda;
pub mod sense;
pub mod ses;
pub mod share;
pub mod xpt;

#[cfg(test)]
mod tests;

pub use disk::{Disk, DiskOptions, Shape, Statistics, Tags};
pub use error::CamError;
pub use family::{Attention, Family};
pub use run::run;
pub use scan::{Fault, Peripheral, scan};
