//! What is known of a port multiplier.

use crate::error::Error;
use crate::lane::UNITS;

/// A port multiplier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Multiplier {
    /// GSCR 0: device id in the high half, vendor id in the low.
    pub product: u32,
    /// GSCR 1: revision in bits 15:8, specifications in the low bits.
    pub revision: u32,
    /// Device ports.
    pub ports: u8,
    /// It tells of devices that come and go, and the HBA shows that.
    pub notifies: bool,
    /// Commands of several devices are on their way at once (FIS-based switching).
    pub fis_switching: bool,
    /// Why the device at a port did not come up, if it did not.
    pub failures: [Option<Error>; UNITS],
}

/// FreeBSD's words, in `camcontrol devlist`.
impl core::fmt::Display for Multiplier {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Port Multiplier {:08x} {:04x}", self.product, self.revision)
    }
}
