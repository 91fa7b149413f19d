//! The bare machine as the driver sees it: registers at their physical address, identity mapped DMA
//! memory, the time stamp counter as clock, and the PCI status register for the interrupt line.

use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};

use flysch_api::machine::{Clock, DmaRegion, Identity, Instant, Machine, Registers, Wake};

use crate::ports::{Function, ticks, ticks_per_millisecond};

const COMMAND: u32 = 0x04;
const CLASS: u32 = 0x08;
const BAR0: u32 = 0x10;
const BAR5: u32 = 0x24;
/// Memory space enable.
const MEMORY_SPACE: u32 = 1 << 1;
const MEMORY_AND_BUS_MASTER: u32 = 1 << 1 | 1 << 2;
/// Interrupt Status, in the register of command and status (PCI 3.0, 6.2.3).
const INTERRUPT_STATUS: u32 = 1 << (16 + 3);

/// A kind of controller for which there is a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// UFS host controller.
    Ufs,
    /// NVMe controller.
    Nvme,
    /// SD host controller, with a card.
    Sdhci,
    /// AHCI host bus adapter. Tried last: q35 has one without a disk.
    Ahci,
}

impl Class {
    const ALL: [Self; 4] = [Self::Ufs, Self::Nvme, Self::Sdhci, Self::Ahci];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ufs => "UFS host controller",
            Self::Nvme => "NVMe controller",
            Self::Sdhci => "SD host controller",
            Self::Ahci => "AHCI host bus adapter",
        }
    }

    /// PCI class code (PCI Code and ID Assignment 1.2), and the register with the address of its
    /// registers.
    const fn codes(self) -> (u32, u32) {
        match self {
            Self::Ufs => (0x01_0901, BAR0),
            Self::Nvme => (0x01_0802, BAR0),
            Self::Sdhci => (0x08_0501, BAR0),
            Self::Ahci => (0x01_0601, BAR5),
        }
    }
}

/// DMA memory, in the zeroed part of the image.
const MEMORY: usize = 16 << 20;
#[repr(C, align(4096))]
struct Memory([u8; MEMORY]);
static mut DMA: Memory = Memory([0; MEMORY]);

/// A storage controller on the PCI bus.
#[derive(Clone, Debug)]
pub struct Bare {
    function: Function,
    base: usize,
    window: u32,
    memory: DmaRegion,
    started: u64,
    ticks_per_millisecond: u64,
}

impl Bare {
    /// Finds a storage controller on bus 0 and enables bus mastering. To be called once: the DMA
    /// memory belongs to the value returned.
    pub fn find() -> Option<(Class, Self)> {
        let (class, function) = Class::ALL.into_iter().find_map(|class| {
            let is_it = |f: &Function| f.read(CLASS) >> 8 == class.codes().0;
            Some((class, Function::all().find(is_it)?))
        })?;
        let bar = class.codes().1;
        let base = function.read(bar) & !0xF;
        // The address bits that cannot be set give its length; nothing accesses it meanwhile.
        let command = function.read(COMMAND);
        function.write(COMMAND, command & !MEMORY_SPACE);
        function.write(bar, u32::MAX);
        let window = (function.read(bar) & !0xF).wrapping_neg();
        function.write(bar, base);
        function.write(COMMAND, command | MEMORY_AND_BUS_MASTER);
        let base = base as usize;
        let dma = NonNull::new((&raw mut DMA).cast::<u8>())?;
        // SAFETY: the static is `MEMORY` bytes, page aligned, lives for ever and is used nowhere
        // else; memory is identity mapped, so its address is the one the device uses.
        let memory = unsafe { DmaRegion::from_static(dma, MEMORY, dma.as_ptr() as u64) };
        let ticks_per_millisecond = ticks_per_millisecond();
        let started = ticks();
        Some((class, Self { function, base, window, memory, started, ticks_per_millisecond }))
    }

    fn register(&self, offset: u32) -> Option<*mut u32> {
        let inside = offset < self.window && offset.is_multiple_of(4);
        inside.then_some((self.base + offset as usize) as *mut u32)
    }
}

impl Registers for Bare {
    fn read32(&self, offset: u32) -> u32 {
        let Some(register) = self.register(offset) else { return u32::MAX };
        // SAFETY: the address is inside the window that the firmware assigned to the BAR, which is
        // mapped.
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
