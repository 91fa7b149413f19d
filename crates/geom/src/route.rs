//! Where requests go from a provider.

use alloc::vec::Vec;

use flysch_api::block;
use flysch_wire::geom::mirror::Balance;
use flysch_wire::geom::multipath::Mode;

use crate::object::ConsumerId;

/// Where requests to a provider go, according to its class
/// ([`Requests::route`](crate::Requests::route)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// To the lane of this disk.
    Disk,
    /// To the provider of one consumer.
    Pass {
        /// The consumer.
        consumer: ConsumerId,
        /// Number of bytes added to the offset.
        base: u64,
    },
    /// To the consumers in turn.
    Stripe {
        /// Size of a turn, bytes.
        size: u64,
        /// The consumers in order.
        legs: Vec<Leg>,
    },
    /// To the leg that holds the bytes: each with its size in bytes, in order.
    Concat(Vec<(Leg, u64)>),
    /// Changes to all consumers, reads to one.
    Mirror {
        /// Which one is read.
        balance: Balance,
        /// Reads of more bytes are divided, with [`Balance::Split`].
        slice: u64,
        /// The components.
        components: Vec<MirrorComponent>,
    },
    /// To one of several consumers that lead to the same disk, and to the others if that one fails.
    Paths {
        /// Which one is used.
        mode: Mode,
        /// The path for requests that only one path may take.
        active: Option<ConsumerId>,
        /// In order of arrival.
        paths: Vec<Path>,
    },
    /// To the provider of one consumer, unless a request is made to fail or to wait.
    Faults {
        /// The consumer.
        consumer: ConsumerId,
        /// Number of bytes added to the offset.
        base: u64,
        /// The faults to inject.
        faults: Faults,
    },
}

/// A destination among which bytes are distributed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leg {
    /// The provider of a consumer, with this number of bytes added to the offset.
    Consumer(ConsumerId, u64),
    /// Several at once: those of a mirror.
    Route(Route),
}

/// A path of [`Route::Paths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Its consumer.
    pub consumer: ConsumerId,
    /// A request failed on it: it is only used if no other is left.
    pub has_failed: bool,
    /// It can be written.
    pub is_written: bool,
}

/// Injected faults ([`Route::Faults`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Percentage of reads and of writes that fail.
    pub fail: [u32; 2],
    /// Percentage of reads and of writes that are delayed.
    pub delay: [u32; 2],
    /// The delay in nanoseconds.
    pub delay_nanos: u64,
    /// Number of reads and writes that pass before any fails.
    pub pass_first: u64,
    /// How many fail in total; `None` for no limit.
    pub fail_only: Option<u64>,
    /// The error of failed requests.
    pub error: block::BlockError,
    /// Seed of the random choice.
    pub seed: u64,
}

/// A component of a [`Route::Mirror`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorComponent {
    /// Its consumer.
    pub consumer: ConsumerId,
    /// Number of bytes added to the offset.
    pub base: u64,
    /// [`Balance::Prefer`] reads the highest.
    pub priority: u8,
    /// It holds all data and is read. Others are only written.
    pub is_read: bool,
}
