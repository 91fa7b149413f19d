//! A vhost-user-blk server: a block device as the virtio disk of another process's machine.
//!
//! Theory. vhost-user (QEMU `docs/interop/vhost-user.rst`) delegates the data path of a virtio
//! device to another process: a UNIX socket carries the guest's memory as files, the addresses of
//! its rings, and an eventfd for each direction of each ring. From then on guest and server
//! communicate only through memory. The rings contain virtio-blk requests (virtio 1.2, section
//! 5.2).
//!
//! | module | what |
//! |---|---|
//! | `wire` | messages: bytes and values, nothing else |
//! | `ended` | why a client is gone |
//! | `guard` | mappings of files that may shrink under us |
//! | `memory` | the guest's memory, by its own addresses and by the client's |
//! | `ring` | a split virtqueue |
//! | `inflight` | which requests are in flight, in memory that outlives this process |
//! | `request` | the request in a chain of descriptors; the configuration space |
//! | `session` | one client: its messages and its rings |
//! | `server` | one client at a time, for `flysch-export`'s loop |
//!
//! Everything in a message or in the guest's memory is treated as hostile. An invalid message ends
//! the connection; an invalid ring is stopped, which is signalled on the client's error eventfd; an
//! invalid request gets its status. Nothing blocks: descriptors must be eventfds, and memory must
//! not be on a file system served by a user's process.
#![deny(missing_docs)]

mod ended;
mod guard;
mod inflight;
mod memory;
mod request;
mod ring;
mod server;
mod session;
pub mod wire;

#[cfg(test)]
mod tests;

pub use ended::Ended;
pub use request::{Call, Disk};
pub use server::{Event, Server};
