//! Geoms, providers and consumers.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;

use flysch_api::block;

use crate::access::Access;
use crate::class::Class;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Ids are never reused: the id of an object that is gone refers to nothing.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) u32);

        impl $name {
            /// Its number, for dumps.
            #[must_use]
            pub const fn number(self) -> u32 {
                self.0
            }
        }
    };
}

id!(
    /// Identifies a geom of a graph.
    GeomId
);
id!(
    /// Identifies a provider of a graph.
    ProviderId
);
id!(
    /// Identifies a consumer of a graph.
    ConsumerId
);

/// An instance of a class.
pub struct Geom {
    /// The class.
    pub class: &'static dyn Class,
    /// Its name.
    pub name: String,
    /// 1 if it has no consumers, otherwise one more than the highest rank below it.
    pub rank: u32,
    /// Its providers, oldest first.
    pub providers: Vec<ProviderId>,
    /// Its consumers, oldest first.
    pub consumers: Vec<ConsumerId>,
    /// It is removed as soon as it is not in use.
    pub withering: bool,
    pub(crate) state: Option<Box<dyn Any>>,
}

impl fmt::Debug for Geom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { class, name, rank, providers, consumers, withering, state: _ } = self;
        f.debug_struct("Geom")
            .field("class", &class.name())
            .field("name", name)
            .field("rank", rank)
            .field("providers", providers)
            .field("consumers", consumers)
            .field("withering", withering)
            .finish_non_exhaustive()
    }
}

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

/// Something that looks like a disk.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its geom.
    pub geom: GeomId,
    /// Its name, as below `/dev` in FreeBSD.
    pub name: String,
    /// Size, bytes.
    pub media_size: u64,
    /// Sector size, bytes.
    pub sector_size: u32,
    /// Optimal unit of I/O in bytes; 0 if unknown.
    pub stripe_size: u64,
    /// Offset of this provider's start within such a unit, bytes.
    pub stripe_offset: u64,
    /// Sum of all its consumers' counts.
    pub access: Access,
    /// Its consumers, oldest first.
    pub consumers: Vec<ConsumerId>,
    /// Why it accepts no requests any more.
    pub error: Option<block::Error>,
    /// Its completed requests.
    pub statistics: Statistics,
}

impl Provider {
    /// Number of whole sectors.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.media_size / u64::from(self.sector_size.max(1))
    }

    /// First byte of the last sector; 0 if there is none.
    #[must_use]
    pub fn last_sector(&self) -> u64 {
        self.sectors().saturating_sub(1) * u64::from(self.sector_size)
    }
}

/// A geom's use of a provider.
#[derive(Clone, Debug)]
pub struct Consumer {
    /// Its geom.
    pub geom: GeomId,
    /// The provider it is attached to.
    pub provider: Option<ProviderId>,
    /// Its access to the provider.
    pub access: Access,
    /// Somebody else wrote: what was tasted may no longer be valid.
    pub spoiled: bool,
    /// Its completed requests.
    pub statistics: Statistics,
}
