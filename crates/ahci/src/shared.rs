//! Communication between the host and its ports.

use flysch_orders::Orders;

/// Why the host should act: bits of [`Orders::causes`].
pub(crate) mod cause {
    /// A port cannot recover without a reset of the HBA.
    pub(crate) const HBA_RESET: u32 = 1;
    /// Registers read as all ones.
    pub(crate) const REMOVED: u32 = 2;
}

/// The atomics that a host shares with its ports.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) orders: Orders,
}

impl Shared {
    pub(crate) fn new(ports: usize) -> Self {
        Self { orders: Orders::new(ports) }
    }
}
