//! What a client did, and how it is reported.

use crate::Kind;

/// Events, for a log. Clients are numbered from 1; `E` says why one is gone.
#[derive(Debug)]
pub enum Event<E> {
    /// A client has connected: its description.
    Connected(u64, String),
    /// One was turned away because there are too many.
    Busy(String),
    /// An error of a client that is still served: its description.
    Trouble(u64, String),
    /// A client has disconnected, why, and what it did.
    Gone(u64, E, Counts),
}

/// What a client did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes, including zeroes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Trims.
    pub trims: u64,
    /// Requests answered with an error.
    pub failed: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

impl Counts {
    /// Counts a successful request.
    pub fn done(&mut self, kind: Kind, bytes: u64) {
        match kind {
            Kind::Read => {
                self.reads += 1;
                self.bytes_read += bytes;
            }
            Kind::Write | Kind::Zeroes => {
                self.writes += 1;
                self.bytes_written += bytes;
            }
            Kind::Trim => self.trims += 1,
            Kind::Flush => self.flushes += 1,
        }
    }

    /// Adds the counts of another client.
    pub fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.flushes += other.flushes;
        self.trims += other.trims;
        self.failed += other.failed;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
    }
}
