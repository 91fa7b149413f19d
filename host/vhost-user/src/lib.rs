//! A vhost-user-blk server: a block device as the virtio disk of somebody else's machine.
//!
//! Theory. vhost-user (QEMU `docs/interop/vhost-user.rst`) hands the data path of a virtio device
//! to another process: over a UNIX socket come the guest's memory as files, where its rings lie,
//! and an eventfd for each direction of each ring. From then on guest and server meet in memory
//! alone. What is in the rings is virtio-blk (virtio 1.2, section 5.2).
//!
//! | module | what |
//! |---|---|
//! | `wire` | messages: bytes and values, nothing else |
//! | `ended` | why a client is no more |
//! | `guard` | mappings of files that may shrink under us |
//! | `memory` | the guest's memory, by its own addresses and by the client's |
//! | `ring` | a split virtqueue |
//! | `inflight` | which requests are under way, where it outlives this process |
//! | `request` | what a chain of descriptors asks for; the configuration space |
//! | `session` | one client: what its messages do, its rings |
//! | `server` | one client at a time, as `flysch-export`'s loop wants it |
//!
//! Everything in a message or in the guest's memory is hostile. A message that is none ends the
//! connection; a ring that is none stops, and the client is told by its error eventfd; a request
//! that is none gets its status. Nothing blocks: descriptors must be eventfds, and memory must not
//! lie on a file system that a user's process serves.
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
