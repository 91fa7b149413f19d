//! How requests go on from a provider.

use alloc::vec::Vec;

use flysch_api::block;
use flysch_wire::geom::mirror::Balance;
use flysch_wire::geom::multipath::Mode;

use crate::object::ConsumerId;

/// How requests to a provider go on, as its class says
/// ([`Requests::route`](crate::Requests::route)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// To the lane of this disk.
    Disk,
    /// To what one consumer stands on.
    Pass {
        /// The consumer.
        consumer: ConsumerId,
        /// So many bytes further on.
        base: u64,
    },
    /// To the consumers in turns.
    Stripe {
        /// Bytes of a turn.
        size: u64,
        /// In the order of their turns.
        legs: Vec<Leg>,
    },
    /// To the leg on which the bytes lie: each with its number of bytes, in order.
    Concat(Vec<(Leg, u64)>),
    /// Changes to all consumers, reads to one.
    Mirror {
        /// To which one.
        balance: Balance,
        /// Reads of more bytes are divided, with [`Balance::Split`].
        slice: u64,
        /// The components.
        components: Vec<MirrorComponent>,
    },
    /// To one of several consumers that lead to the same disk, and to the others as long as that
    /// fails.
    Paths {
        /// To which one.
        mode: Mode,
        /// The one that takes what only one may take.
        active: Option<ConsumerId>,
        /// In the order in which they came.
        paths: Vec<Path>,
    },
    /// To what one consumer stands on, unless they are made to fail or to wait.
    Faults {
        /// The consumer.
        consumer: ConsumerId,
        /// So many bytes further on.
        base: u64,
        /// What is done to them.
        faults: Faults,
    },
}

/// One of those that bytes are divided among.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leg {
    /// What a consumer stands on, so many bytes further on.
    Consumer(ConsumerId, u64),
    /// Several at once: those of a mirror.
    Route(Route),
}

/// A path of [`Route::Paths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// What stands on it.
    pub consumer: ConsumerId,
    /// A request failed on it: it is only used if no other is left.
    pub has_failed: bool,
    /// It may be written.
    pub is_written: bool,
}

/// What happens to requests on purpose ([`Route::Faults`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Percentage of reads and of writes that fail.
    pub fail: [u32; 2],
    /// Percentage of reads and of writes that wait.
    pub delay: [u32; 2],
    /// Nanoseconds that those wait.
    pub delay_nanos: u64,
    /// Reads and writes that pass before any fails.
    pub pass_first: u64,
    /// How many fail in all; without, every one.
    pub fail_only: Option<u64>,
    /// What they fail with.
    pub error: block::Error,
    /// Where chance begins.
    pub seed: u64,
}

/// A component of a [`Route::Mirror`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorComponent {
    /// What stands on it.
    pub consumer: ConsumerId,
    /// So many bytes further on.
    pub base: u64,
    /// [`Balance::Prefer`] reads the highest.
    pub priority: u8,
    /// It holds everything: it is read. Others are only written.
    pub is_read: bool,
}
