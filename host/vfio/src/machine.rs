//! The machine: a device, memory that it sees, interrupts, time.

use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant as Wall};

use flysch_api::machine::{Clock, DmaRegion, Identity, Instant, MixedRegisters, Registers, Wake};
use rustix::event::Timespec;

use crate::address::Address;
use crate::device::Device;
use crate::error::Error;
use crate::group::Group;
use crate::interrupts::{Interrupts, Signals};
use crate::iova;
use crate::memory::{HUGE, Memory};
use crate::sysfs::{Function, Tree};

/// What to open.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Where it is.
    pub address: Address,
    /// What it must be.
    pub controller: Controller,
    /// DMA memory, bytes.
    pub memory_bytes: u64,
    /// Interrupt vectors that are of use: one for each lane and one for the controller itself. 0
    /// leaves interrupts off, and [`Clock::wait`] does not sleep then.
    pub vectors: u16,
}

/// The controllers that are known here: by their class, and by how they are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// UFSHCI.
    Ufs,
    /// NVMe.
    Nvme,
}

impl Controller {
    /// Class code (PCI Code and ID Assignment 1.2).
    fn class(self) -> u32 {
        match self {
            Self::Ufs => 0x01_0901,
            Self::Nvme => 0x01_0802,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Ufs => "UFS host controller",
            Self::Nvme => "NVMe controller",
        }
    }

    /// The highest address it can name: a UFS controller without CAP.64AS (bit 24) has 32 bits.
    fn highest(self, device: &Device) -> u64 {
        let is_short = self == Self::Ufs && device.read32(0) & 1 << 24 == 0;
        if is_short { u32::MAX.into() } else { u64::MAX }
    }

    /// The register with the bit 0 that enables it, and the one whose bit 0 says that it is on:
    /// UFSHCI's HCE for both; NVMe's CC.EN and CSTS.RDY.
    fn switch(self) -> (u32, u32) {
        match self {
            Self::Ufs => (0x34, 0x34),
            Self::Nvme => (0x14, 0x1C),
        }
    }
}

/// How long a controller may take to stop by itself.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// A PCI function that this process has for itself. Cloning gives another handle; with the last one
/// the controller is stopped, reset and closed.
///
/// One thread at a time may wait on handles of the same vector; so lanes in threads of their own
/// need a vector each.
#[derive(Clone, Debug)]
pub struct Machine {
    shared: Arc<Shared>,
    /// What this handle waits for.
    vectors: Range<usize>,
}

/// In the order in which it goes.
#[derive(Debug)]
struct Shared {
    interrupts: Interrupts,
    device: Device,
    group: Group,
    region: DmaRegion,
    controller: Controller,
    function: Function,
    is_huge: bool,
    started: Wall,
}

impl Machine {
    /// Opens the function of this machine.
    ///
    /// # Errors
    /// What is in the way, in one line that names the remedy.
    pub fn open(options: &Options) -> Result<Self, Error> {
        Self::open_in(&Tree::system(), options)
    }

    /// Opens a function of `tree`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_in(tree: &Tree, options: &Options) -> Result<Self, Error> {
        let Options { address, controller, memory_bytes, vectors } = *options;
        let function = tree.function(address)?;
        if function.class != controller.class() {
            let (found, class) = (function.kind(), function.class);
            return Err(Error::OtherClass { address, wanted: controller.name(), found, class });
        }
        let function = tree.ready(address)?;
        let group = Group::open(tree, &function)?;
        let device = Device::new(address, group.device()?)?;
        let failed = |what| Error::system(address, what);
        // Whoever had it before may have left it running, with addresses that will mean something
        // else: it is stopped before it may access memory again. (The kernel resets what can be
        // reset when it opens it, but not all can.)
        device.set_command(false, false).map_err(failed("writing its command register"))?;
        stop(&device, controller);
        let page = page(group.iommu().page_sizes);
        let memory = Memory::new(memory_bytes, page).map_err(failed("getting DMA memory"))?;
        let is_huge = memory.is_huge();
        let region = share(&group, memory, controller.highest(&device))?;
        let interrupts = match vectors {
            0 => Interrupts::polled(),
            wanted => Interrupts::new(device.file().as_fd(), wanted.into())
                .map_err(failed("switching its interrupts on"))?,
        };
        let line = interrupts.signals() == Signals::Line;
        device.set_command(true, line).map_err(failed("making it a bus master"))?;
        let vectors = 0..interrupts.count();
        let started = Wall::now();
        let shared =
            Shared { interrupts, device, group, region, controller, function, is_huge, started };
        Ok(Self { shared: Arc::new(shared), vectors })
    }

    /// What was opened.
    pub fn function(&self) -> &Function {
        &self.shared.function
    }

    /// Why it no longer answers, if it does not.
    pub fn ended(&self) -> Option<String> {
        let gone = self.shared.device.read32(0) == u32::MAX;
        let address = self.shared.function.address;
        gone.then(|| format!("{address} does not answer any more: it was pulled out, or is broken"))
    }

    /// How it tells that it wants to be looked at.
    pub fn signals(&self) -> Signals {
        self.shared.interrupts.signals()
    }

    /// Whether its DMA memory is in huge pages.
    pub fn has_huge_pages(&self) -> bool {
        self.shared.is_huge
    }

    /// Whether its registers are reached without a call of the kernel.
    pub fn has_mapped_registers(&self) -> bool {
        self.shared.device.is_mapped()
    }
}

/// Bytes of the smallest page that this machine maps and its IOMMU translates (bit n: 2^n bytes).
fn page(sizes: u64) -> u64 {
    let least = 1_u64.checked_shl(sizes.trailing_zeros()).unwrap_or(0);
    least.max(rustix::param::page_size() as u64)
}

/// Memory at addresses that the group's IOMMU translates.
fn share(group: &Group, memory: Memory, highest: u64) -> Result<DmaRegion, Error> {
    let bytes = memory.len() as u64;
    let ranges = &group.iommu().ranges;
    // A kernel that does not tell has the usual ones.
    let all = [(0, u64::from(u32::MAX))];
    let ranges = if ranges.is_empty() { &all[..] } else { ranges };
    let iova = iova::place(ranges, bytes, HUGE, highest).ok_or(Error::NoRange {
        bytes,
        highest: Some(highest).filter(|highest| *highest != u64::MAX),
    })?;
    group.map(&memory, iova)?;
    let (base, len) = (memory.base(), memory.len());
    // SAFETY: the mapping is `len` bytes, page aligned, readable and writable, and lives as long as
    // its owner, which the region keeps. No reference into it is ever made.
    Ok(unsafe { DmaRegion::from_owner(base, len, iova, Arc::new(memory)) })
}

/// Switches the controller off and waits until it is; one that does not stop is reset, if it can
/// be.
fn stop(device: &Device, controller: Controller) {
    let (switch, state) = controller.switch();
    let value = device.read32(switch);
    // All ones: nothing answers.
    if value & 1 == 0 || value == u32::MAX {
        return;
    }
    device.write32(switch, value & !1);
    let started = Wall::now();
    while device.read32(state) & 1 != 0 {
        if started.elapsed() >= STOP_LIMIT {
            device.reset();
            return;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

impl Drop for Shared {
    /// Nothing of it may reach memory when memory goes: the controller is stopped, masters the bus
    /// no more, and what is mapped is taken from it. The kernel resets it when it is closed.
    fn drop(&mut self) {
        let file = self.device.file().as_fd();
        self.interrupts.stop(file);
        stop(&self.device, self.controller);
        let _ = self.device.set_command(false, false);
        self.group.unmap(self.region.address(), self.region.len() as u64);
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

    /// Sleeps until the device raises one of this handle's vectors or `until` has come. Where
    /// interrupts are off it does not sleep: the device may have something at any time.
    fn wait(&self, until: Option<Instant>) -> Wake {
        let left = until.map(|until| until - self.now());
        if left.is_some_and(|left| left.is_zero()) {
            return Wake::Deadline;
        }
        if self.vectors.is_empty() {
            core::hint::spin_loop();
            return Wake::Interrupt;
        }
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let shared = &self.shared;
        match shared.interrupts.wait(shared.file(), self.vectors.clone(), left.as_ref()) {
            true => Wake::Interrupt,
            false => Wake::Deadline,
        }
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
