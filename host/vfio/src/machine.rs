//! The machine: a device, its DMA memory, interrupts, time.

use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Instant as Wall;

use flysch_api::machine::{Clock, DmaRegion, Identity, Instant, MixedRegisters, Registers, Wake};
use rustix::event::Timespec;

use crate::address::Address;
use crate::controller::Controller;
use crate::device::Device;
use crate::domain::{Access, Domain};
use crate::error::VfioError;
use crate::interrupts::{Interrupts, Signals};
use crate::iova;
use crate::memory::{HUGE, Memory};
use crate::spin::Spin;
use crate::sysfs::{Function, Tree};

/// What to open.
#[derive(Clone, Copy, Debug)]
pub struct VfioOptions {
    /// The address.
    pub address: Address,
    /// The required kind.
    pub controller: Controller,
    /// DMA memory, bytes.
    pub memory_bytes: u64,
    /// Number of useful interrupt vectors: one for each lane and one for the controller itself. 0
    /// leaves interrupts disabled, and [`Clock::wait`] does not sleep then.
    pub vectors: u16,
    /// Whether [`Clock::wait`] polls for a while before it sleeps: see [`Machine::spin`].
    pub looks: bool,
    /// How it is opened.
    pub access: Access,
}

/// A PCI function used exclusively by this process. Cloning gives another handle; when the last one
/// is dropped, the controller is stopped, reset and closed.
///
/// Only one thread at a time may wait on handles of the same vector, so lanes in separate threads
/// need a vector each.
#[derive(Clone, Debug)]
pub struct Machine {
    shared: Arc<Shared>,
    /// What this handle waits for.
    vectors: Range<usize>,
}

/// In the order of dropping.
#[derive(Debug)]
struct Shared {
    interrupts: Interrupts,
    device: Device,
    domain: Domain,
    region: DmaRegion,
    controller: Controller,
    function: Function,
    is_huge: bool,
    spin: Option<Spin>,
    started: Wall,
}

impl Machine {
    /// Opens the function of this machine.
    ///
    /// # Errors
    /// What prevents it, in one line that names the remedy.
    pub fn open(options: &VfioOptions) -> Result<Self, VfioError> {
        Self::open_in(&Tree::system(), options)
    }

    /// Opens a function of `tree`.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_in(tree: &Tree, options: &VfioOptions) -> Result<Self, VfioError> {
        let VfioOptions { address, controller, memory_bytes, vectors, looks, access } = *options;
        let function = tree.function(address)?;
        if !controller.is(function.class) {
            let (found, class) = (function.kind(), function.class);
            return Err(VfioError::OtherClass { address, wanted: controller.name(), found, class });
        }
        let function = tree.ready(address)?;
        let (domain, device) = Domain::open(tree, &function, access)?;
        let device = Device::new(address, device, |slots| controller.bar(slots))?;
        let failed = |what| VfioError::system(address, what);
        // Whoever had it before may have left it running, with addresses that will mean something
        // else: it is stopped before it may access memory again. (The kernel resets what can be
        // reset when it opens it, but not all can.)
        device.set_command(false, false).map_err(failed("writing its command register"))?;
        controller.stop(&device);
        let page = page(domain.iommu().page_sizes);
        let memory = Memory::new(memory_bytes, page).map_err(failed("getting DMA memory"))?;
        let is_huge = memory.is_huge();
        let region = share(&domain, memory, controller.highest(&device))?;
        let interrupts = match vectors {
            0 => Interrupts::polled(),
            wanted => Interrupts::new(device.file().as_fd(), wanted.into())
                .map_err(failed("switching its interrupts on"))?,
        };
        let line = interrupts.signals() == Signals::Line;
        device.set_command(true, line).map_err(failed("making it a bus master"))?;
        let vectors = 0..interrupts.count();
        let shared = Shared {
            interrupts,
            device,
            domain,
            region,
            controller,
            function,
            is_huge,
            spin: looks.then(Spin::new),
            started: Wall::now(),
        };
        Ok(Self { shared: Arc::new(shared), vectors })
    }

    /// The opened function.
    pub fn function(&self) -> &Function {
        &self.shared.function
    }

    /// Why it no longer answers, if it does not.
    pub fn ended(&self) -> Option<String> {
        let gone = self.shared.device.read32(0) == u32::MAX;
        let address = self.shared.function.address;
        gone.then(|| format!("{address} no longer answers: it was pulled out, or is broken"))
    }

    /// How it signals that it needs attention.
    pub fn signals(&self) -> Signals {
        self.shared.interrupts.signals()
    }

    /// The object notified of each doorbell, if waiting polls for a while before it sleeps.
    pub fn spin(&self) -> Option<Spin> {
        self.shared.spin.clone()
    }

    /// How it was opened: [`Access::Group`] or [`Access::Iommufd`].
    pub fn access(&self) -> Access {
        self.shared.domain.access()
    }

    /// Whether its DMA memory is in huge pages.
    pub fn has_huge_pages(&self) -> bool {
        self.shared.is_huge
    }

    /// Whether its registers are accessible without system calls.
    pub fn has_mapped_registers(&self) -> bool {
        self.shared.device.is_mapped()
    }
}

/// Size of the smallest page that this machine maps and its IOMMU translates (bit n: 2^n bytes).
fn page(sizes: u64) -> u64 {
    let least = 1_u64.checked_shl(sizes.trailing_zeros()).unwrap_or(0);
    least.max(rustix::param::page_size() as u64)
}

/// Memory at addresses that the IOMMU translates for the device.
fn share(domain: &Domain, memory: Memory, highest: u64) -> Result<DmaRegion, VfioError> {
    let bytes = memory.len() as u64;
    let ranges = &domain.iommu().ranges;
    // A kernel that does not tell has the usual ones.
    let all = [(0, u64::from(u32::MAX))];
    let ranges = if ranges.is_empty() { &all[..] } else { ranges };
    let iova = iova::place(ranges, bytes, HUGE, highest).ok_or(VfioError::NoRange {
        bytes,
        highest: Some(highest).filter(|highest| *highest != u64::MAX),
    })?;
    domain.map(&memory, iova)?;
    let (base, len) = (memory.base(), memory.len());
    // SAFETY: the mapping is `len` bytes, page aligned, readable and writable, and lives as long as
    // its owner, which the region keeps. No reference into it is ever made.
    Ok(unsafe { DmaRegion::from_owner(base, len, iova, Arc::new(memory)) })
}

impl Drop for Shared {
    /// The device must not access memory after it is freed: the controller is stopped, bus
    /// mastering is disabled, and mappings are removed. The kernel resets the function when it is
    /// closed.
    fn drop(&mut self) {
        let file = self.device.file().as_fd();
        self.interrupts.stop(file);
        self.controller.stop(&self.device);
        let _ = self.device.set_command(false, false);
        self.domain.unmap(self.region.address(), self.region.len() as u64);
    }
}

impl Shared {
    fn file(&self) -> BorrowedFd<'_> {
        self.device.file().as_fd()
    }

    fn now(&self) -> Instant {
        Instant::START + self.started.elapsed()
    }
}

impl Registers for Machine {
    #[inline]
    fn read32(&self, offset: u32) -> u32 {
        self.shared.device.read32(offset)
    }

    #[inline]
    fn write32(&self, offset: u32, value: u32) {
        self.shared.device.write32(offset, value);
    }
}

impl MixedRegisters for Machine {
    fn read8(&self, offset: u32) -> u8 {
        self.shared.device.read8(offset)
    }

    fn write8(&self, offset: u32, value: u8) {
        self.shared.device.write8(offset, value);
    }

    fn read16(&self, offset: u32) -> u16 {
        self.shared.device.read16(offset)
    }

    fn write16(&self, offset: u32, value: u16) {
        self.shared.device.write16(offset, value);
    }

    fn read64(&self, offset: u32) -> u64 {
        self.shared.device.read64(offset)
    }

    fn write64(&self, offset: u32, value: u64) {
        self.shared.device.write64(offset, value);
    }
}

impl Clock for Machine {
    fn now(&self) -> Instant {
        self.shared.now()
    }

    /// Sleeps until the device raises one of this handle's vectors or `until` has come. With
    /// interrupts disabled it does not sleep, because the device may have something at any time.
    /// Nor does it sleep while it should poll for a completion ([`Spin`]).
    fn wait(&self, until: Option<Instant>) -> Wake {
        let now = self.now();
        let left = until.map(|until| until - now);
        if left.is_some_and(|left| left.is_zero()) {
            return Wake::Deadline;
        }
        let shared = &self.shared;
        let spin = shared.spin.as_ref();
        if self.vectors.is_empty() || spin.is_some_and(|spin| spin.looks(now)) {
            core::hint::spin_loop();
            return Wake::Interrupt;
        }
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        if !shared.interrupts.wait(shared.file(), self.vectors.clone(), left.as_ref()) {
            return Wake::Deadline;
        }
        if let Some(spin) = spin {
            spin.woke(self.now());
        }
        Wake::Interrupt
    }
}

impl flysch_api::machine::Machine for Machine {
    fn memory(&self) -> &DmaRegion {
        &self.shared.region
    }

    fn identity(&self) -> Identity {
        let Function { vendor, device, .. } = self.shared.function;
        Identity { vendor, device }
    }

    fn vectors(&self) -> u16 {
        self.shared.interrupts.count().max(1) as u16
    }

    fn on_vector(&self, vector: u16) -> Self {
        let vector = usize::from(vector);
        let vectors = match self.shared.interrupts.count() {
            0 | 1 => self.vectors.clone(),
            count => vector.min(count - 1)..vector.min(count - 1) + 1,
        };
        Self { shared: self.shared.clone(), vectors }
    }
}
