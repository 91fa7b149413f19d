//! What is known about a port multiplier.

use crate::error::AhciError;
use crate::lane::UNITS;

/// A port multiplier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Multiplier {
    /// GSCR 0: device id in the high half, vendor id in the low.
    pub product: u32,
    /// GSCR 1: revision in bits 15:8, specifications in the low bits.
    pub revision: u32,
    /// Number of device ports.
    pub ports: u8,
    /// Whether it reports devices that come and go (asynchronous notification), and the HBA
    /// supports this.
    pub notifies: bool,
    /// Whether commands of several devices can be in flight at once (FIS-based switching).
    pub fis_switching: bool,
    /// For each port, why its device did not come up.
    pub failures: [Option<AhciError>; UNITS],
}

/// As in FreeBSD's `camcontrol devlist`.
impl core::fmt::Display for Multiplier {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Port Multiplier {:08x} {:04x}", self.product, self.revision)
    }
}
