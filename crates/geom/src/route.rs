//! How requests go on from a provider.

use alloc::vec::Vec;

use flysch_wire::geom::mirror::Balance;

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
        consumers: Vec<ConsumerId>,
    },
    /// To the consumer on which the bytes lie: each with its number of bytes, in order.
    Concat(Vec<(ConsumerId, u64)>),
    /// Changes to all consumers, reads to one.
    Mirror {
        /// To which one.
        balance: Balance,
        /// Reads of more bytes are divided, with [`Balance::Split`].
        slice: u64,
        /// The components.
        components: Vec<MirrorComponent>,
    },
}

/// A component of a [`Route::Mirror`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorComponent {
    /// What stands on it.
    pub consumer: ConsumerId,
    /// [`Balance::Prefer`] reads the highest.
    pub priority: u8,
    /// It holds everything: it is read. Others are only written.
    pub is_read: bool,
}
