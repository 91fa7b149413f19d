//! The bare machine as the driver sees it: registers at their physical address, DMA memory that is
//! identity mapped, the time stamp counter for a clock, and the PCI status register for the
//! interrupt line.

use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};

use flysch_api::machine::{Clock, DmaRegion, Identity, Instant, Machine, Registers, Wake};

use crate::ports::{Function, ticks, ticks_per_millisecond};

/// PCI class of a UFS host controller: mass storage, UFS, UFSHCI.
const CLASS_UFSHCI: u32 = 0x01_0901;
const COMMAND: u32 = 0x04;
const CLASS: u32 = 0x08;
const BAR0: u32 = 0x10;
const MEMORY_AND_BUS_MASTER: u32 = 1 << 1 | 1 << 2;
/// Interrupt Status in the register of command and status (PCI 3.0, 6.2.3).
const INTERRUPT_STATUS: u32 = 1 << (16 + 3);
/// QEMU's register window.
const WINDOW: u32 = 8192;

/// DMA memory, in the image's zeroed part.
const MEMORY: usize = 16 << 20;
#[repr(C, align(4096))]
struct Memory([u8; MEMORY]);
static mut DMA: Memory = Memory([0; MEMORY]);

/// A UFS host controller on the PCI bus.
#[derive(Clone, Debug)]
pub struct Bare {
    function: Function,
    base: usize,
    memory: DmaRegion,
    started: u64,
    ticks_per_millisecond: u64,
}

impl Bare {
    /// Finds the first UFS host controller on bus 0 and lets it master the bus. To be called
    /// once: the DMA memory belongs to what it answers.
    pub fn find() -> Option<Self> {
        let function = Function::all().find(|f| f.read(CLASS) >> 8 == CLASS_UFSHCI)?;
        function.write(COMMAND, function.read(COMMAND) | MEMORY_AND_BUS_MASTER);
        let base = (function.read(BAR0) & !0xF) as usize;
        let dma = NonNull::new((&raw mut DMA).cast::<u8>())?;
        // SAFETY: the static is `MEMORY` bytes, page aligned, lives for ever, and is named nowhere
        // else; memory is identity mapped, so its address is what the device sees.
        let memory = unsafe { DmaRegion::from_static(dma, MEMORY, dma.as_ptr() as u64) };
        let ticks_per_millisecond = ticks_per_millisecond();
        Some(Self { function, base, memory, started: ticks(), ticks_per_millisecond })
    }

    fn register(&self, offset: u32) -> Option<*mut u32> {
        let inside = offset < WINDOW && offset.is_multiple_of(4);
        inside.then_some((self.base + offset as usize) as *mut u32)
    }
}

impl Registers for Bare {
    fn read32(&self, offset: u32) -> u32 {
        let Some(register) = self.register(offset) else { return u32::MAX };
        // SAFETY: the address is inside the window the firmware gave BAR 0, which is mapped.
        let value = unsafe { register.read_volatile() };
        fence(Ordering::Acquire);
        value
    }

    fn write32(&self, offset: u32, value: u32) {
        let Some(register) = self.register(offset) else { return };
        fence(Ordering::SeqCst);
        // SAFETY: as in `read32`.
        unsafe { register.write_volatile(value) }
    }
}

impl Clock for Bare {
    fn now(&self) -> Instant {
        let ticks = u128::from(ticks() - self.started);
        Instant::from_nanos((ticks * 1_000_000 / u128::from(self.ticks_per_millisecond)) as u64)
    }

    fn wait(&self, until: Option<Instant>) -> Wake {
        loop {
            if self.function.read(COMMAND) & INTERRUPT_STATUS != 0 {
                return Wake::Interrupt;
            }
            if until.is_some_and(|until| self.now() >= until) {
                return Wake::Deadline;
            }
            core::hint::spin_loop();
        }
    }
}

impl Machine for Bare {
    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    fn identity(&self) -> Identity {
        let id = self.function.read(0);
        Identity { vendor: id as u16, device: (id >> 16) as u16 }
    }
}
