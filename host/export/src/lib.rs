//! What every export of a block device has in common, whatever its clients speak.
//!
//! | module | what |
//! |---|---|
//! | `jobs` | requests as reads and writes of the device, cut into pieces that are in flight together |
//! | `channel` | a socket with messages and descriptors, for protocols that have both |
//! | `testing` | a disk and a clock for the tests of protocols |
//! | `server` | a protocol and the device in one loop, its sleep and its end |
//! | `counts` | what a client did, and what is told of it |
//!
//! A protocol implements [`Door`]: it takes its clients' requests off sockets or rings, and answers
//! them. Where the data of a request comes from and goes to is its [`Transfer`]: the one copy there
//! is, between there and the device's memory, is made through it.
//!
//! One thread serves all, as it owns the device's lane: no lock. What does not begin or end at a
//! block is read, changed and written back, while nothing else writes there.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod channel;
mod counts;
mod jobs;
mod server;
pub mod testing;

#[cfg(test)]
mod tests;

pub use channel::{Channel, Ended, Header, Malformed};
pub use counts::{Counts, Event};
pub use jobs::{Job, Jobs, Kind, Range, Transfer};
pub use server::{Door, Handle, Server, Terms};
