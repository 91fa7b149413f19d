//! What a protocol core sees of the machine it runs on: registers, DMA memory, interrupts, time.
//!
//! A core owns no clock, thread or lock. It is handed something that implements [`Registers`] and
//! a [`DmaRegion`], is called with `now`, and answers with the next instant it wants to be called
//! at. Whoever drives the core owns the [`Clock`].

mod memory;
mod time;

pub use memory::{DmaRegion, DmaSlice, OutOfRange};
pub use time::Instant;

/// A window of 32-bit device registers.
///
/// Offsets are in bytes from the start of the window, 4-byte aligned; a back end answers an
/// offset outside its window as a bus does: reads give `0xFFFF_FFFF`, writes vanish.
///
/// Methods take `&self` because a handle may be shared by the lanes of one controller; a back end
/// that needs more than one access at a time provides its own exclusion.
pub trait Registers {
    /// Reads the register at `offset`. May have side effects in the device (clear on read).
    fn read32(&self, offset: u32) -> u32;

    /// Writes the register at `offset`.
    ///
    /// Every store to DMA memory made before this call is visible to the device when it sees the
    /// register change.
    fn write32(&self, offset: u32, value: u32);

    /// When the device itself finished the entry `slot` of queue `queue`, where that is known.
    ///
    /// Simulated devices know it, real ones do not. Read only after the completion of that slot
    /// was seen and before the slot is used again.
    fn device_done(&self, queue: u16, slot: u16) -> Option<Instant> {
        let _ = (queue, slot);
        None
    }
}

/// Why [`Clock::wait`] came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The device raised its interrupt.
    Interrupt,
    /// The instant asked for has come.
    Deadline,
    /// Nothing can happen any more: no deadline was given and the device is idle for good.
    Idle,
}

/// The passing of time, owned by whoever drives the cores.
///
/// Three kinds of clock exist: *virtual* (discrete events; software costs nothing), *hybrid*
/// (software time is measured, device time comes from the model, idle time is skipped) and *real*.
pub trait Clock {
    /// The present instant. A simulated device has caught up with it when this returns.
    fn now(&self) -> Instant;

    /// Waits for the device's interrupt line or until `until`, whichever comes first.
    ///
    /// `None` waits for the device alone. A virtual or hybrid clock skips the idle time.
    fn wait(&self, until: Option<Instant>) -> Wake;
}

/// Who a controller says it is; the key of the quirk tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// PCI vendor id, 0 for a device that is not on PCI.
    pub vendor: u16,
    /// PCI device id, 0 for a device that is not on PCI.
    pub device: u16,
}

/// One controller with everything its driver needs: registers, memory, time and identity.
///
/// Cloning gives another handle to the same machine.
pub trait Machine: Registers + Clock + Clone {
    /// The DMA memory shared with the device.
    fn memory(&self) -> &DmaRegion;

    /// The controller's identity on its bus.
    fn identity(&self) -> Identity;
}
