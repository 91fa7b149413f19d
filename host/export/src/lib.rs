//! The common parts of all exports of a block device, whatever their protocol.
//!
//! | module | what |
//! |---|---|
//! | `jobs` | requests as reads and writes of the device, split into pieces that are in flight together |
//! | `channel` | a socket with messages and descriptors, for protocols that have both |
//! | `testing` | a disk and a clock for the tests of protocols |
//! | `server` | a protocol and the device in one loop, with its sleep and its end |
//! | `counts` | what a client did, and how it is reported |
//!
//! A protocol implements [`Door`]: it receives its clients' requests from sockets or rings, and
//! answers them. The source or destination of a request's data is its [`Transfer`], which makes the
//! only copy: between there and the device's memory.
//!
//! One thread serves everything, because it owns the device's lane: there is no lock. Partial
//! blocks are read, modified and written back, while nothing else writes there.
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
