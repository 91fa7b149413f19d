//! Mappings of files that may shrink under us.
//!
//! Accessing a page of a mapping beyond the end of its file raises SIGBUS, which crashes the
//! process. The files are a client's, and libblkio's memory is not a memfd that could be sealed
//! against that. A handler therefore replaces such a mapping by zeroed memory and records that: the
//! access continues, and the client's connection ends at the next check.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

/// Maximum number of mappings of the process at a time.
const SLOTS: usize = 1024;

/// A mapping in the form used by the handler. `base` is 0 if there is none, and is set last.
struct Slot {
    base: AtomicUsize,
    len: AtomicUsize,
    is_torn: AtomicBool,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot { base: AtomicUsize::new(0), len: AtomicUsize::new(0), is_torn: AtomicBool::new(false) }
}; SLOTS];

/// A slot being filled: not the address of a mapping.
const TAKEN: usize = 1;

/// The previous action of SIGBUS.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO a valid pointer.
    let address = unsafe { (*info).si_addr() } as usize;
    for slot in &TABLE {
        let base = slot.base.load(Ordering::Acquire);
        let len = slot.len.load(Ordering::Acquire);
        if base <= TAKEN || address.wrapping_sub(base) >= len {
            continue;
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range is a mapping of ours that no reference points into; mmap may be called
        // in a handler, as it is a system call without state in the library.
        let mapped = unsafe { libc::mmap(base as *mut _, len, protection, flags, -1, 0) };
        if mapped != libc::MAP_FAILED {
            slot.is_torn.store(true, Ordering::Release);
            return;
        }
    }
    // Not ours: the access is done again, under what was there before.
    if let Some(before) = BEFORE.get() {
        // SAFETY: `before` came from sigaction itself.
        unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
    }
}

/// Installs the handler, once.
fn install() {
    BEFORE.get_or_init(|| {
        // SAFETY: all zeroes are a sigaction without a handler, flag or mask; both pointers are
        // valid, and the handler does only what a handler may.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_sigbus as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGBUS, &action, &mut before);
            before
        }
    });
}

/// A file, mapped for reading and writing.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    slot: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`; `Mapping` itself gives no access to the memory.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of a file, which exist at this time.
    ///
    /// # Errors
    /// The operating system refuses, or there are too many.
    pub(crate) fn new(file: BorrowedFd<'_>, len: usize) -> rustix::io::Result<Self> {
        install();
        let free = |slot: &Slot| {
            let order = Ordering::AcqRel;
            slot.base.compare_exchange(0, TAKEN, order, Ordering::Relaxed).is_ok()
        };
        let slot = TABLE.iter().position(free).ok_or(rustix::io::Errno::NOMEM)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, file, 0) };
        let base =
            base.and_then(|base| NonNull::new(base.cast::<u8>()).ok_or(rustix::io::Errno::NOMEM));
        let base = base.inspect_err(|_| TABLE[slot].base.store(0, Ordering::Release))?;
        TABLE[slot].len.store(len, Ordering::Release);
        TABLE[slot].is_torn.store(false, Ordering::Release);
        TABLE[slot].base.store(base.as_ptr() as usize, Ordering::Release);
        Ok(Self { base, len, slot })
    }

    /// The first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Whether its file has shrunk; its contents since then are meaningless.
    pub(crate) fn is_torn(&self) -> bool {
        TABLE[self.slot].is_torn.load(Ordering::Acquire)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // From here on the range may be anybody's: the handler leaves it alone.
        TABLE[self.slot].base.store(TAKEN, Ordering::Release);
        // SAFETY: the range was mapped by `new` and is unmapped once; whoever could access it held
        // this owner.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        TABLE[self.slot].base.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flysch_api::machine::DmaRegion;
    use std::os::fd::AsFd;
    use std::sync::Arc;

    #[test]
    fn a_file_that_shrinks_ends_nobody() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 16).unwrap();
        let mapping = Arc::new(Mapping::new(file.as_fd(), 1 << 16).unwrap());
        let base = mapping.base();
        // SAFETY: the mapping owns the range, and no reference into it is made.
        let region = unsafe { DmaRegion::from_owner(base, 1 << 16, 0, mapping.clone()) };
        region.write(5000, &[7; 100]);
        assert!(!mapping.is_torn());
        file.set_len(4096).unwrap();
        let mut bytes = [1; 4];
        region.read(5000, &mut bytes);
        assert!(mapping.is_torn() && bytes == [0; 4]);
        region.write(60000, &[7; 100]);
    }
}
