//! The guest's memory: files of the client, each mapped once and completely.
//!
//! Behind a virtual IOMMU a client passes the same file for thousands of small ranges. A mapping
//! for each would exhaust descriptors and mappings (`vm.max_map_count`); so a file is identified by
//! its inode, mapped as a whole, and its descriptor closed at once.
//!
//! If a file shrinks under a mapping, accessing the missing part crashes the process (SIGBUS). Only
//! files that can never shrink are therefore accepted: sealed memfds, such as those of QEMU's
//! `memory-backend-memfd`.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use flysch_api::machine::{DmaRegion, GuestMemory, MapError};
use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};

use crate::wire::Errno;

/// Alignment of ranges: pages.
const PAGE: u64 = 4096;

/// A file, mapped.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
    file: (u64, u64),
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map_file` and is unmapped once; whoever could access it
        // held this owner.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`; `Mapping` itself gives no access to the memory.
unsafe impl Sync for Mapping {}

/// Why memory was refused, for the client and in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) Errno, pub(crate) &'static str);

const NOT_SEALED: Refused = Refused(
    Errno::NotPermitted,
    "guest memory that could shrink: use QEMU's memory-backend-memfd, which is sealed",
);

/// A range as the client names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) writable: bool,
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) size: u64,
}

/// Files by their inodes, as long as a range of them is mapped.
#[derive(Debug, Default)]
pub(crate) struct Files {
    known: Vec<Weak<Mapping>>,
}

impl Files {
    /// Maps a range of the file behind `descriptor` into `memory`.
    pub(crate) fn map(
        &mut self,
        memory: &mut GuestMemory,
        range: Range,
        descriptor: &OwnedFd,
    ) -> Result<(), Refused> {
        check(&range)?;
        let end = range.offset.checked_add(range.size);
        let end = end.ok_or(Refused(Errno::Invalid, "a range beyond the end of all files"))?;
        let mapping = self.mapping(descriptor, end)?;
        let (offset, len) = (range.offset as usize, range.size as usize);
        // SAFETY: `mapping` says that offset + len lies inside the mapping.
        let base = unsafe { mapping.base.add(offset) };
        let writable = range.writable && mapping.writable;
        // SAFETY: the range is inside a mapping that its owner keeps, starts on a page, and no
        // reference into it is ever made.
        let region = unsafe { DmaRegion::from_owner(base, len, range.address, mapping) };
        memory.map(region, writable).map_err(|error| match error {
            MapError::Overlap => Refused(Errno::Exists, "memory that is mapped already"),
            MapError::Full => Refused(Errno::NoSpace, "more ranges than are allowed"),
            MapError::Invalid => Refused(Errno::Invalid, "an invalid range"),
        })
    }

    /// The mapping of a file that extends to `end`.
    fn mapping(&mut self, descriptor: &OwnedFd, end: u64) -> Result<Arc<Mapping>, Refused> {
        // No cause: the client is answered with a number; a file without seals has none.
        let seals = rustix::fs::fcntl_get_seals(descriptor).map_err(|_| NOT_SEALED)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(NOT_SEALED);
        }
        let failed = |_| Refused(Errno::Invalid, "memory that cannot be mapped");
        let status = rustix::fs::fstat(descriptor).map_err(failed)?;
        let bytes = u64::try_from(status.st_size).unwrap_or(0);
        if end > bytes {
            return Err(Refused(Errno::Invalid, "memory beyond the end of its file"));
        }
        let file = (status.st_dev, status.st_ino);
        self.known.retain(|known| known.strong_count() > 0);
        let known = self.known.iter().filter_map(Weak::upgrade);
        let mut fitting = known.filter(|known| known.file == file && known.len as u64 >= end);
        if let Some(known) = fitting.next() {
            return Ok(known);
        }
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        let map = |protection| {
            // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
            unsafe {
                let flags = MapFlags::SHARED | MapFlags::NORESERVE;
                rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, descriptor, 0)
            }
        };
        let (base, writable) = match map(ProtFlags::READ | ProtFlags::WRITE) {
            Ok(base) => (base, true),
            Err(_) => (map(ProtFlags::READ).map_err(failed)?, false),
        };
        let base = NonNull::new(base.cast())
            .ok_or(Refused(Errno::NoSpace, "memory that cannot be mapped"))?;
        let mapping = Arc::new(Mapping { base, len, writable, file });
        self.known.push(Arc::downgrade(&mapping));
        Ok(mapping)
    }
}

/// Whole pages, ending within the address space.
pub(crate) fn check(range: &Range) -> Result<(), Refused> {
    let parts = [range.offset, range.address, range.size];
    let is_whole = parts.iter().all(|part| part.is_multiple_of(PAGE)) && range.size > 0;
    let ends = range.address.checked_add(range.size - u64::from(range.size > 0)).is_some();
    match is_whole && ends && usize::try_from(range.size).is_ok() {
        true => Ok(()),
        false => Err(Refused(Errno::Invalid, "a range that is not whole pages of addresses")),
    }
}
