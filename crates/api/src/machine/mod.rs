//! What a protocol core sees of the machine it runs on: registers, DMA memory, interrupts, time.
//!
//! A core owns no clock, thread or lock. It receives something that implements [`Registers`] and a
//! [`DmaRegion`], is called with `now`, and returns the next instant at which it wants to be
//! called. The caller of the core owns the [`Clock`].

#[cfg(feature = "alloc")]
mod allocator;
#[cfg(feature = "alloc")]
mod guest;
mod memory;
mod time;

#[cfg(feature = "alloc")]
pub use allocator::DmaAllocator;
#[cfg(feature = "alloc")]
pub use guest::{GuestMemory, MapError, RANGES_MAX};
pub use memory::{DmaArray, DmaBlock, DmaBlocks, DmaRegion, DmaSlice, OutOfRange};
pub use time::Instant;

/// A window of 32-bit device registers, and their ordering with DMA memory.
///
/// Offsets are in bytes from the start of the window, 4-byte aligned. Outside the window a back end
/// behaves as a bus does: reads return `0xFFFF_FFFF`, writes are ignored.
///
/// Methods take `&self` because the lanes of one controller may share a handle; a back end that
/// needs more than one access per call provides its own exclusion.
///
/// **Memory that is not coherent.** A device that does not see the processor's caches reads only
/// what was synchronised for it, and the host reads only what was synchronised back. Drivers
/// request this at every hand-over; where the hardware keeps caches coherent, both calls keep their
/// defaults, which do nothing. A machine that is not coherent sets [`COHERENT`](Self::COHERENT) to
/// `false`, because a driver must then not write into a cache line that the device writes: two
/// writers of one cache line overwrite each other.
pub trait Registers {
    /// Whether host and device see the same memory without [`sync_for_device`] and
    /// [`sync_for_cpu`].
    ///
    /// [`sync_for_device`]: Self::sync_for_device
    /// [`sync_for_cpu`]: Self::sync_for_cpu
    const COHERENT: bool = true;

    /// Reads the register at `offset`. May have side effects in the device (clear on read).
    ///
    /// Loads from DMA memory made after this call see at least what the device had stored when it
    /// answered the read (acquire).
    fn read32(&self, offset: u32) -> u32;

    /// Writes the register at `offset`.
    ///
    /// Every store to DMA memory made before this call is visible to the device when it sees the
    /// register change (release).
    fn write32(&self, offset: u32, value: u32);

    /// Makes what the host wrote to these bytes visible to the device, before the register write
    /// that hands them over. The host does not touch them until they are handed back.
    #[inline]
    fn sync_for_device(&self, range: DmaSlice) {
        let _ = range;
    }

    /// Makes what the device wrote to these bytes visible to the host, after the register read or
    /// memory word that handed them back.
    #[inline]
    fn sync_for_cpu(&self, range: DmaSlice) {
        let _ = range;
    }

    /// When the device itself finished the entry `slot` of queue `queue`, if known.
    ///
    /// Simulated devices know it, real ones do not. Call it only after the completion of that slot
    /// was seen and before the slot is used again.
    #[inline]
    fn device_done(&self, queue: u16, slot: u16) -> Option<Instant> {
        let _ = (queue, slot);
        None
    }
}

/// Registers of widths other than 32 bits, for controllers that have them (SDHCI 8 and 16 bits,
/// NVMe 64 bits). Each call is one bus access of that width, ordered with DMA memory like the
/// 32-bit accesses; offsets are multiples of the width.
pub trait MixedRegisters: Registers {
    /// Reads 8 bits.
    fn read8(&self, offset: u32) -> u8;
    /// Writes 8 bits.
    fn write8(&self, offset: u32, value: u8);
    /// Reads 16 bits.
    fn read16(&self, offset: u32) -> u16;
    /// Writes 16 bits.
    fn write16(&self, offset: u32, value: u16);
    /// Reads 64 bits.
    fn read64(&self, offset: u32) -> u64;
    /// Writes 64 bits.
    fn write64(&self, offset: u32, value: u64);
}

/// Why [`Clock::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The device raised its interrupt.
    Interrupt,
    /// The requested instant has come.
    Deadline,
    /// Nothing can happen any more: no deadline was given and the device is permanently idle.
    Idle,
}

/// The passing of time, owned by the caller of the cores.
///
/// There are three kinds of clock: *virtual* (discrete events; software costs nothing), *hybrid*
/// (software time is measured, device time comes from the model, idle time is skipped) and *real*.
pub trait Clock {
    /// The present instant. When this returns, a simulated device has caught up with it.
    fn now(&self) -> Instant;

    /// Waits for the device's interrupt or until `until`, whichever comes first: for any interrupt,
    /// or for one vector if this handle is [`of a vector`](Machine::on_vector).
    ///
    /// `None` waits for the device alone. A virtual or hybrid clock skips the idle time.
    fn wait(&self, until: Option<Instant>) -> Wake;
}

/// The identity a controller reports; the key of the quirk tables.
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

    /// Number of interrupt vectors: 1 if there is only a line. The line raises vector 0.
    fn vectors(&self) -> u16 {
        1
    }

    /// The device address to which the device writes to raise vectors by itself (message signalled
    /// interrupts): a 32-bit write of `n` raises vector `n`. A raised vector stays raised until
    /// someone has waited for it. `None` if there is only the line.
    fn messages(&self) -> Option<u64> {
        None
    }

    /// The offset of the memory of base address register `number` in the register window:
    /// controllers have memory besides registers (NVMe's controller memory buffer). `None` if it
    /// cannot be reached. The window begins with the registers themselves, which are BAR 0 on most
    /// controllers.
    fn bar(&self, number: u8) -> Option<u32> {
        (number == 0).then_some(0)
    }

    /// A handle whose [`wait`](Clock::wait) returns only for interrupts of `vector`, so that each
    /// lane waits on its own. `vector` is below [`vectors`](Self::vectors); with one vector the
    /// handle is the same as this one.
    fn on_vector(&self, vector: u16) -> Self {
        let _ = vector;
        self.clone()
    }
}
