//! A ublk server: a block device as a disk of this machine's Linux, `/dev/ublkbN`.
//!
//! Theory. Linux's ublk driver (`Documentation/block/ublk.rst`, `include/uapi/linux/ublk_cmd.h`)
//! creates a disk whose requests are answered by another process. io_uring commands to
//! `/dev/ublk-control` add, start, stop and delete it; `/dev/ublkcN` delivers its requests: for
//! each tag of each queue one command waits in the kernel and ends when there is a request; the
//! next command carries the answer. The request itself is in memory shared with the kernel. The
//! kernel copies a write's data to an address given with the command, and a read's data from there:
//! this is the device's own memory, so it is the only copy.
//!
//! | module | what |
//! |---|---|
//! | `uapi` | numbers and structures of the kernel |
//! | `error` | what can prevent a disk, with the remedy |
//! | `limits` | a device as the kernel's parameters |
//! | `control` | commands to `/dev/ublk-control` |
//! | `claim` | a device of the driver: added, taken over from a killed server, deleted |
//! | `queues` | tags and their requests |
//! | `server` | all of it, for `flysch-export`'s loop |
//!
//! One thread serves all queues. The kernel is trusted, but its requests are checked nevertheless.
#![deny(missing_docs)]

mod claim;
mod control;
mod error;
mod limits;
mod queues;
mod server;
mod uapi;

pub use control::Control;
pub use error::UblkError;
pub use limits::{Disk, Settings};
pub use server::{Call, Ended, Event, Server, memory_for};
