//! A ublk server: a block device as a disk of this machine's Linux, `/dev/ublkbN`.
//!
//! Theory. Linux's ublk driver (`Documentation/block/ublk.rst`, `include/uapi/linux/ublk_cmd.h`)
//! makes a disk whose requests another process answers. Commands of io_uring to
//! `/dev/ublk-control` add, start, stop and delete it; `/dev/ublkcN` hands over its requests: for
//! each tag of each queue one command waits in the kernel, which ends when there is a request, and
//! the next one carries the answer. What is asked for stands in memory that the kernel shares. The
//! kernel copies a write's data to an address that came with the command, and a read's from there:
//! the device's own memory, so that is the one copy there is.
//!
//! | module | what |
//! |---|---|
//! | `uapi` | numbers and structures of the kernel |
//! | `error` | what can stand in the way, with the remedy |
//! | `limits` | a device as the kernel's parameters |
//! | `control` | commands to `/dev/ublk-control` |
//! | `claim` | a device of the driver: added, taken over from a server that was killed, deleted |
//! | `queues` | tags and their requests |
//! | `server` | all of it as `flysch-export`'s loop wants it |
//!
//! One thread serves all queues. The kernel is trusted; what it asks for is checked all the same.
#![deny(missing_docs)]

mod claim;
mod control;
mod error;
mod limits;
mod queues;
mod server;
mod uapi;

pub use control::Control;
pub use error::Error;
pub use limits::{Disk, Settings};
pub use server::{Call, Ended, Event, Server, memory_for};
