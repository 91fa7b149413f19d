//! Guest memory as a file that QEMU and we both map.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use flysch_api::machine::DmaRegion;
use rustix::mm::{MapFlags, ProtFlags};

use crate::error::QemuError;
use crate::image::shared_memory;
use crate::process::inherited_name;

/// Guest physical addresses below this hold more than plain memory (video window, ROM shadows).
const LOW: u64 = 1 << 20;
/// Size of the firmware image; QEMU maps it below 4 GiB and its end below 1 MiB.
const FIRMWARE_BYTES: u64 = 64 << 10;
/// Where an x86 processor starts, as an offset in the firmware: 16 bytes before its end.
const RESET_VECTOR: u64 = FIRMWARE_BYTES - 16;

/// The guest's memory before it is mapped.
#[derive(Debug)]
pub(crate) struct GuestMemory {
    descriptor: OwnedFd,
    bytes: u64,
}

impl GuestMemory {
    /// A guest with at least `dma_bytes` of memory for DMA.
    pub(crate) fn new(dma_bytes: u64) -> Result<Self, QemuError> {
        let bytes = dma_bytes.next_multiple_of(LOW) + LOW;
        Ok(Self { descriptor: shared_memory("the guest", bytes)?, bytes })
    }

    /// The file, to be inherited by QEMU.
    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.descriptor
    }

    /// The name under which QEMU opens it.
    pub(crate) fn name(&self) -> String {
        inherited_name(&self.descriptor)
    }

    /// All of the guest's memory, bytes; whole MiB.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Maps the part that is plain memory; device addresses are guest physical addresses.
    pub(crate) fn region(&self) -> Result<DmaRegion, QemuError> {
        let len = usize::try_from(self.bytes - LOW).expect("checked against MEMORY_MAX");
        let mapping = Mapping::new(&self.descriptor, LOW, len).map_err(|cause| {
            QemuError::Memory { bytes: self.bytes, purpose: "the guest", cause }
        })?;
        let base = mapping.base;
        // SAFETY: the mapping is `len` bytes, page aligned, readable and writable, and lives as
        // long as its owner, which the region keeps. No reference into it is ever made.
        Ok(unsafe { DmaRegion::from_owner(base, len, LOW, Arc::new(mapping)) })
    }
}

#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn new(file: &OwnedFd, offset: u64, len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, offset)
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new` and is unmapped once; whoever could access it
        // held this owner.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`; `Mapping` itself gives no access to the memory.
unsafe impl Sync for Mapping {}

/// Firmware that halts the guest's processor at once, with interrupts off: QEMU's virtual clock
/// runs (the device's timers need it) but no guest code does.
pub(crate) fn halting_firmware() -> Result<OwnedFd, QemuError> {
    // cli; again: hlt; jmp again
    const HALT: [u8; 4] = [0xFA, 0xF4, 0xEB, 0xFD];
    let fd = shared_memory("the firmware", FIRMWARE_BYTES)?;
    rustix::io::pwrite(&fd, &HALT, RESET_VECTOR)
        .map_err(|e| QemuError::System { what: "writing the firmware", cause: e.into() })?;
    Ok(fd)
}
