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
        /// Numbers are never used again: the name of something that is gone names nothing.
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
    /// Names a geom of a graph.
    GeomId
);
id!(
    /// Names a provider of a graph.
    ProviderId
);
id!(
    /// Names a consumer of a graph.
    ConsumerId
);

/// One use of a class.
pub struct Geom {
    /// The class.
    pub class: &'static dyn Class,
    /// Its name.
    pub name: String,
    /// 1 if it stands on nothing, else one more than the highest beneath it.
    pub rank: u32,
    /// What it offers, oldest first.
    pub providers: Vec<ProviderId>,
    /// What it stands on, oldest first.
    pub consumers: Vec<ConsumerId>,
    /// It goes away as soon as nobody uses it.
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

/// What was asked of a provider, or by a consumer, and done.
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
    /// Commands for zones ([`Graph::zone`]).
    ///
    /// [`Graph::zone`]: crate::Graph::zone
    pub zone_commands: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Nanoseconds that reads took, if the graph has a clock ([`Graph::set_clock`]); as all such
    /// times of [`Graph::io`] alone.
    ///
    /// [`Graph::set_clock`]: crate::Graph::set_clock
    /// [`Graph::io`]: crate::Graph::io
    pub read_time: u64,
    /// The same of writes.
    pub write_time: u64,
    /// The same of deletes.
    pub delete_time: u64,
    /// The same of flushes.
    pub flush_time: u64,
    /// The same of commands for zones.
    pub zone_time: u64,
    /// Nanoseconds in which anything was under way; of queued requests where that was measured: at
    /// the top of ways and at the disks. Ways that were busy at the same time count twice.
    pub busy: u64,
}

impl Statistics {
    /// Adds others.
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

    /// Counts a request that was done.
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

    /// Adds what went a way.
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

/// The same of queued requests, in the form in which it costs least.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    /// By operation. Number and bytes are not beside each other: else they are added as one
    /// vector, which takes twice the instructions.
    requests: [u64; 4],
    bytes: [u64; 4],
}

impl Traffic {
    pub(crate) const NONE: Self = Self { requests: [0; 4], bytes: [0; 4] };

    /// A request was taken.
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

    /// How many.
    pub(crate) fn total(&self) -> u64 {
        self.requests.iter().sum()
    }
}

/// What looks like a disk.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Whose it is.
    pub geom: GeomId,
    /// Its name, as below `/dev` in FreeBSD.
    pub name: String,
    /// Bytes.
    pub media_size: u64,
    /// Bytes of a sector.
    pub sector_size: u32,
    /// Bytes of the best unit of I/O; 0 if none is known.
    pub stripe_size: u64,
    /// Bytes by which this provider starts behind the start of such a unit.
    pub stripe_offset: u64,
    /// Sum of all its consumers' counts.
    pub access: Access,
    /// Who stands on it, oldest first.
    pub consumers: Vec<ConsumerId>,
    /// Why it takes no requests any more.
    pub error: Option<block::Error>,
    /// What was asked of it.
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

/// What a geom stands on something with.
#[derive(Clone, Debug)]
pub struct Consumer {
    /// Whose it is.
    pub geom: GeomId,
    /// What it is attached to.
    pub provider: Option<ProviderId>,
    /// How it has it open.
    pub access: Access,
    /// Somebody else wrote: what was tasted need not be true any more.
    pub spoiled: bool,
    /// What it asked for and was done.
    pub statistics: Statistics,
}
