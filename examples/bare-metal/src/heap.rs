//! Heap memory for setting up driver and disk, which allocate nothing afterwards: a bump allocator
//! that frees nothing.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

const SIZE: usize = 4 << 20;

/// The heap.
#[repr(C, align(4096))]
pub struct Heap {
    bytes: UnsafeCell<[u8; SIZE]>,
    used: AtomicUsize,
}

// SAFETY: each part of the memory is handed out once, by an atomic counter.
unsafe impl Sync for Heap {}

impl Heap {
    /// An empty heap.
    pub const fn new() -> Self {
        Self { bytes: UnsafeCell::new([0; SIZE]), used: AtomicUsize::new(0) }
    }

    /// Bytes handed out so far.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

// SAFETY: every call returns its own part, aligned and inside the memory, or null.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let place = |used: usize| {
            let start = used.next_multiple_of(layout.align());
            let end = start.checked_add(layout.size())?;
            (end <= SIZE && layout.align() <= 4096).then_some((start, end))
        };
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            place(used).map(|(_, end)| end)
        });
        match taken.ok().and_then(place) {
            // SAFETY: `place` keeps the part inside the memory.
            Some((start, _)) => unsafe { self.bytes.get().cast::<u8>().add(start) },
            None => ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}
