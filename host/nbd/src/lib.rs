//! NBD: a server, one block device for any number of clients; and a client.
//!
//! Theory. NBD (`doc/proto.md` of the NBD project) carries reads, writes, flushes and trims over a
//! stream, several under way at once and answered in any order. A client first agrees on options
//! (fixed newstyle; here also structured replies, extended headers and the context
//! `base:allocation`), then sends requests.
//!
//! | module | what |
//! |---|---|
//! | `wire` | messages: bytes and values, nothing else |
//! | `handshake` | options: what client and server agree on |
//! | `connection` | one client: what it sent, what it is owed, its limits |
//! | `tls` | certificates, and a stream that may be encrypted |
//! | `server` | sockets and their clients, as `flysch-export`'s loop wants them |
//! | `client` | the other side: somebody else's export, its replies checked |
//!
//! One thread serves all: one copy of the data between socket and device memory.
//!
//! Everything a client sends is hostile: lengths, offsets and names are checked before use, what
//! it may have under way is bounded, and whatever it does ends no connection but its own. So is
//! what a server says to the client here.
#![deny(missing_docs)]

pub mod client;
mod connection;
mod handshake;
mod server;
mod tls;
pub mod wire;

#[cfg(test)]
mod tests;

pub use connection::{Call, Ended};
pub use handshake::Refusal;
pub use server::{Event, Listener, Server};
pub use tls::{Tls, TlsError};

use flysch_api::block::Geometry;
use wire::{Form, transmission};

/// A device as its clients see it.
#[derive(Clone, Debug)]
pub struct Export {
    /// Its name; it is also the one that is used when none is given.
    pub name: String,
    /// A line about it.
    pub description: String,
    /// Bytes.
    pub size: u64,
    /// Bytes of a block: what need not be read, changed and written back.
    pub block_size: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether trims do anything.
    pub can_trim: bool,
    /// How clients encrypt, if they can.
    pub tls: Option<Tls>,
}

impl Export {
    /// The longest read or write, bytes (what clients assume who do not ask).
    pub const LONGEST: u32 = 32 << 20;

    /// A device of this shape.
    pub fn new(geometry: &Geometry, name: &str, description: &str) -> Self {
        Self {
            name: name.to_owned(),
            description: description.to_owned(),
            size: geometry.bytes(),
            block_size: geometry.block_size,
            read_only: geometry.read_only,
            can_trim: geometry.can_delete,
            tls: None,
        }
    }

    fn is_named(&self, name: &str) -> bool {
        name.is_empty() || name == self.name
    }

    /// Transmission flags for who agreed on `form`.
    fn flags(&self, form: Form) -> u16 {
        use transmission::*;
        let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN | SEND_CACHE;
        if form != Form::Simple {
            flags |= SEND_DF;
        }
        if self.read_only {
            return flags | READ_ONLY;
        }
        if self.can_trim {
            flags |= SEND_TRIM;
        }
        flags | SEND_WRITE_ZEROES | SEND_FAST_ZERO
    }
}
