//! NBD: a server, one block device for any number of clients; and a client.
//!
//! Theory. NBD (`doc/proto.md` of the NBD project) carries reads, writes, flushes and trims over a
//! stream, with several in flight at once and answered in any order. A client first negotiates
//! options (fixed newstyle; here also structured replies, extended headers and the context
//! `base:allocation`), then sends requests.
//!
//! | module | what |
//! |---|---|
//! | `wire` | messages: bytes and values, nothing else |
//! | `handshake` | options: the negotiation of client and server |
//! | `connection` | one client: its input, its pending output, its limits |
//! | `tls` | certificates, and a stream that may be encrypted |
//! | `server` | sockets and their clients, for `flysch-export`'s loop |
//! | `client` | the other side: an export of another server, with its replies checked |
//!
//! One thread serves everything, with one copy of the data between socket and device memory.
//!
//! Everything that a client sends is treated as hostile: lengths, offsets and names are checked
//! before use, its requests in flight are limited, and whatever it does ends only its own
//! connection. So is everything that a server sends to the client here.
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

use flysch_api::block::BlockGeometry;
use wire::{Form, transmission};

/// A device as its clients see it.
#[derive(Clone, Debug)]
pub struct Export {
    /// Its name; it is also the default export.
    pub name: String,
    /// A description.
    pub description: String,
    /// Bytes.
    pub size: u64,
    /// Block size in bytes: other accesses are read, modified and written back.
    pub block_size: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether trims do anything.
    pub can_trim: bool,
    /// How clients can encrypt, if they can.
    pub tls: Option<Tls>,
}

impl Export {
    /// Maximum length of reads and writes (which clients assume if they do not ask).
    pub const LONGEST: u32 = 32 << 20;

    /// A device with these properties.
    pub fn new(geometry: &BlockGeometry, name: &str, description: &str) -> Self {
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

    /// Transmission flags for clients that negotiated `form`.
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
