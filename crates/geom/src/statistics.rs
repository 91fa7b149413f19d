//! What was requested of providers and consumers, in numbers.

use flysch_api::block;

/// Completed requests of a provider or a consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Deletes.
    pub deletes: u64,
    /// Bytes deleted.
    pub deleted_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Zone commands ([`Graph::zone`]).
    ///
    /// [`Graph::zone`]: crate::Graph::zone
    pub zone_commands: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Nanoseconds spent on reads, if the graph has a clock ([`Graph::set_clock`]); like all these
    /// times, for [`Graph::io`] only.
    ///
    /// [`Graph::set_clock`]: crate::Graph::set_clock
    /// [`Graph::io`]: crate::Graph::io
    pub read_time: u64,
    /// The same for writes.
    pub write_time: u64,
    /// The same for deletes.
    pub delete_time: u64,
    /// The same for flushes.
    pub flush_time: u64,
    /// The same for zone commands.
    pub zone_time: u64,
    /// Nanoseconds in which anything was in flight; for queued requests measured at the top of ways
    /// and at the disks. Ways that were busy at the same time count twice.
    pub busy: u64,
}

impl Statistics {
    /// Adds the counts of another.
    pub(crate) fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.written_bytes += other.written_bytes;
        self.deletes += other.deletes;
        self.deleted_bytes += other.deleted_bytes;
        self.flushes += other.flushes;
        self.zone_commands += other.zone_commands;
        self.failures += other.failures;
        self.read_time += other.read_time;
        self.write_time += other.write_time;
        self.delete_time += other.delete_time;
        self.flush_time += other.flush_time;
        self.zone_time += other.zone_time;
        self.busy += other.busy;
    }

    /// Counts a completed request.
    pub(crate) fn count(&mut self, (operation, length): (block::Operation, u64), time: u64) {
        match operation {
            block::Operation::Read => {
                self.reads += 1;
                self.read_bytes += length;
                self.read_time += time;
            }
            block::Operation::Write => {
                self.writes += 1;
                self.written_bytes += length;
                self.write_time += time;
            }
            block::Operation::Delete => {
                self.deletes += 1;
                self.deleted_bytes += length;
                self.delete_time += time;
            }
            block::Operation::Flush => {
                self.flushes += 1;
                self.flush_time += time;
            }
        }
    }

    /// Adds the traffic of a way.
    pub(crate) fn add_traffic(&mut self, traffic: &Traffic) {
        let of = |operation: block::Operation| {
            (traffic.requests[operation as usize], traffic.bytes[operation as usize])
        };
        self.reads += of(block::Operation::Read).0;
        self.read_bytes += of(block::Operation::Read).1;
        self.writes += of(block::Operation::Write).0;
        self.written_bytes += of(block::Operation::Write).1;
        self.deletes += of(block::Operation::Delete).0;
        self.deleted_bytes += of(block::Operation::Delete).1;
        self.flushes += of(block::Operation::Flush).0;
    }
}

/// The same for queued requests, in the cheapest form.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    /// By operation. The number and the bytes are not adjacent: otherwise they are added as one
    /// vector, which takes twice the instructions.
    requests: [u64; 4],
    bytes: [u64; 4],
}

impl Traffic {
    pub(crate) const NONE: Self = Self { requests: [0; 4], bytes: [0; 4] };

    /// A request was accepted.
    #[inline(always)]
    pub(crate) fn count(&mut self, request: &block::Request) {
        self.requests[request.operation as usize] += 1;
        self.bytes[request.operation as usize] += request.length;
    }

    /// Adds other traffic.
    pub(crate) fn add(&mut self, other: &Self) {
        let sum = |all: &mut [u64; 4], other: &[u64; 4]| {
            all.iter_mut().zip(other).for_each(|(all, other)| *all += other);
        };
        sum(&mut self.requests, &other.requests);
        sum(&mut self.bytes, &other.bytes);
    }

    /// The total number of requests.
    pub(crate) fn total(&self) -> u64 {
        self.requests.iter().sum()
    }
}
