//! Your own machine under the UFS driver.
//!
//! ```console
//! $ cargo run -p flysch-examples --example own_machine
//! ```
//!
//! A machine is registers, DMA memory, time and interrupts. This one counts how the driver uses
//! them. It runs over a model, so it works anywhere; a comment at each call says what a board does
//! there.

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;

use flysch_api::machine::{
    Clock, DmaRegion, DmaSlice, Identity, Instant, Machine, Registers, Wake,
};
use flysch_models::machine::{Inline, Mode};
use flysch_models::ufs::{Config, Ufs};
use flysch_ufs::{Host, UfsOptions};

/// Number of accesses so far.
#[derive(Debug, Default)]
struct Counts {
    reads: Cell<u32>,
    writes: Cell<u32>,
    /// Bytes of the processor's caches that were written back or invalidated.
    synchronised: Cell<u64>,
}

/// Cloning gives another handle: each lane of the driver has one.
#[derive(Clone)]
struct Board {
    bus: Inline<Ufs>,
    counts: Rc<Counts>,
}

impl Registers for Board {
    /// DMA on this board is not cache coherent, so the driver says what to synchronise. Most
    /// machines with PCI are coherent and keep the defaults of this and of the two calls below.
    const COHERENT: bool = false;

    fn read32(&self, offset: u32) -> u32 {
        self.counts.reads.set(self.counts.reads.get() + 1);
        // A volatile read of the window, then a barrier (acquire): `readl`.
        self.bus.read32(offset)
    }

    fn write32(&self, offset: u32, value: u32) {
        self.counts.writes.set(self.counts.writes.get() + 1);
        // A barrier (release), then a volatile write of the window: `writel`.
        self.bus.write32(offset, value);
    }

    fn sync_for_device(&self, range: DmaSlice) {
        // Clean these lines of the data cache.
        self.count(range);
    }

    fn sync_for_cpu(&self, range: DmaSlice) {
        // Invalidate these lines of the data cache.
        self.count(range);
    }
}

impl Board {
    fn count(&self, range: DmaSlice) {
        let all = &self.counts.synchronised;
        all.set(all.get() + u64::from(range.len));
    }
}

impl Clock for Board {
    fn now(&self) -> Instant {
        // A monotonic counter, in nanoseconds.
        self.bus.now()
    }

    fn wait(&self, until: Option<Instant>) -> Wake {
        // Sleep until the interrupt or a timer at `until`. A board that cannot sleep may return at
        // once.
        self.bus.wait(until)
    }
}

impl Machine for Board {
    fn memory(&self) -> &DmaRegion {
        // Memory that the device can reach, and the address the device uses for it (behind an
        // IOMMU, the IOVA). `DmaRegion::from_static` and `from_owner` make a region of memory
        // that already exists.
        self.bus.memory()
    }

    fn identity(&self) -> Identity {
        // On PCI, vendor and device id: the driver looks up its quirk table by them.
        self.bus.identity()
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let options = UfsOptions::default();
    let memory = DmaRegion::zeroed(Host::<Board>::memory_len(&options), 0x4000_0000);
    let model = Ufs::new(Config::default(), memory.clone())?;
    let bus = Inline::new(model, memory, Identity::default(), Mode::Virtual);
    let board = Board { bus, counts: Rc::default() };

    let mut host = Host::new(board.clone(), board.memory().clone(), options)?;
    host.bring_up(&board)?;
    let Counts { reads, writes, synchronised } = &*board.counts;
    println!(
        "up after {} reads and {} writes of registers, {} bytes synchronised, {} us",
        reads.get(),
        writes.get(),
        synchronised.get(),
        board.now().nanos() / 1000
    );
    assert!(reads.get() > 0 && writes.get() > 0 && synchronised.get() > 0);
    Ok(())
}
