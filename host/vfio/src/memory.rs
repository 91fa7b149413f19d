//! DMA memory: a file of this process, in huge pages if available, which the IOMMU maps for the
//! device.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::MemfdFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::process::Resource;

/// Length of a huge page, bytes, which an IOMMU translates in one step.
pub(crate) const HUGE: u64 = 2 << 20;

/// Mapped memory that is not shared with another process.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    len: usize,
    is_huge: bool,
}

impl Memory {
    /// At least `bytes` of zeroed memory in whole pages of `page` bytes; in huge pages if the
    /// system has enough free ones.
    pub(crate) fn new(bytes: u64, page: u64) -> io::Result<Self> {
        let huge = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        Self::of(bytes, page.max(HUGE), huge, true)
            .or_else(|_| Self::of(bytes, page, MemfdFlags::empty(), false))
    }

    fn of(bytes: u64, page: u64, flags: MemfdFlags, is_huge: bool) -> io::Result<Self> {
        let too_long = || io::Error::from(io::ErrorKind::OutOfMemory);
        let bytes = bytes.max(1).checked_next_multiple_of(page).ok_or_else(too_long)?;
        let len = usize::try_from(bytes).map_err(|_| too_long())?;
        let file = rustix::fs::memfd_create("flysch-dma", flags | MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, bytes)?;
        let base = map(&file, len)?;
        // A child of this process would share pages that a device writes.
        // SAFETY: the advice is about the mapping just made and changes none of its bytes.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, Advice::LinuxDontFork) };
        Ok(Self { base, len, is_huge })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether it is in huge pages.
    pub(crate) fn is_huge(&self) -> bool {
        self.is_huge
    }
}

fn map(file: &OwnedFd, len: usize) -> io::Result<NonNull<u8>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let null = std::ptr::null_mut();
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
    let base =
        unsafe { rustix::mm::mmap(null, len, protection, MapFlags::SHARED, file.as_fd(), 0) }?;
    NonNull::new(base.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `of` and is unmapped once; whoever could access it held
        // this owner, and the device has its own hold on the pages until they are unmapped there.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Memory {}
// SAFETY: as for `Send`; `Memory` itself gives no access to the bytes.
unsafe impl Sync for Memory {}

/// The limit on locked memory, in words.
pub(crate) fn lock_limit() -> String {
    match rustix::process::getrlimit(Resource::Memlock).current {
        Some(bytes) => format!("{bytes} bytes"),
        None => "none".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_whole_pages_and_zero() {
        let memory = Memory::new(5000, 4096).unwrap();
        let page = if memory.is_huge() { HUGE } else { 4096 };
        assert!((memory.len() as u64).is_multiple_of(page) && memory.len() >= 5000);
        // SAFETY: the mapping is that long.
        let bytes = unsafe { std::slice::from_raw_parts(memory.base().as_ptr(), memory.len()) };
        assert!(bytes.iter().all(|byte| *byte == 0));
        assert!(Memory::new(u64::MAX, 4096).is_err() && Memory::new(1 << 62, 4096).is_err());
        let large = Memory::new(1, 64 << 10).unwrap();
        assert!(large.len().is_multiple_of(64 << 10));
        assert!(!lock_limit().is_empty());
    }
}
