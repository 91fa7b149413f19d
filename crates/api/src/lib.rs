//! The contracts between Flysch's layers.
//!
//! Only values and traits live here: no protocol, no policy, no state machine. A host controller
//! driver and the model of its device never import each other; they share this crate and
//! `flysch-wire`, and meet in the tools and in the tests.
//!
//! | module | what it says | who implements it | who uses it |
//! |---|---|---|---|
//! | [`machine`] | registers, DMA memory, interrupts and time as a protocol core sees them | models, `host/*` | host controller drivers |
//! | [`data`] | one range or a list of them, and what a controller asks of it | requests and commands | drivers, models |
//! | [`command`] | a device's own language: commands in, outcomes out | host controller drivers | `cam` |
//! | [`crypto`] | which key of a controller encrypts the data of a request | whoever holds a key | drivers |
//! | [`block`] | requests to a block device and their completions | `cam` disks, `null`, files | workloads, file systems |
//! | [`flash`] | raw flash: erase blocks, pages, out-of-band bytes | `mtd`, chip models, `host/*` | `ubi`, `jffs2` |
//! | [`volume`] | logical erase blocks | `ubi`, flat image files | `ubifs` |
//! | [`vfs`] | names, files, directories | file systems | FUSE, the command line |
//! | [`finding`](mod@finding) | findings of a check | `ubi`, file systems | the command line |
//! | [`count`] | numbers of things in messages | | all that have messages |
//! | [`trace`] | the stamps one request collects on its way down and up | everyone on the way | reports |
//!
//! All queued devices work the same way: `submit`/`start`, then `ring` once per batch, then
//! `poll(now)` until everything has come back. Time always comes in as `now`; `poll_at` returns the
//! next instant at which something must happen.
#![no_std]
#![deny(missing_docs)]

#[cfg(feature = "alloc")]
extern crate alloc;

#[cfg(test)]
extern crate std;

pub mod block;
pub mod command;
pub mod count;
pub mod crypto;
pub mod data;
pub mod finding;
pub mod flash;
pub mod machine;
mod operation;
mod place;
pub mod trace;
pub mod vfs;
pub mod volume;
