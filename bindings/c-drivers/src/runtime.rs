//! What a machine without an operating system provides to the library: memory, and a panic handler.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{c_char, c_void};
use core::panic::PanicInfo;

use crate::error::{Error, Status};

unsafe extern "C" {
    /// Memory of `size` bytes whose address is a multiple of `align`, or NULL. Called while a
    /// controller is opened or a disk is attached, never for a request.
    fn flysch_alloc(size: usize, align: usize) -> *mut c_void;
    /// Takes back what flysch_alloc returned for the same size.
    fn flysch_free(memory: *mut c_void, size: usize, align: usize);
    /// The library is in an impossible state and cannot go on. Must not return.
    fn flysch_panic(text: *const c_char) -> !;
}

struct Heap;

// SAFETY: flysch_alloc and flysch_free are an allocator by their contract in the header.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and any power of two may be requested.
        unsafe { flysch_alloc(layout.size(), layout.align()).cast() }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: it was allocated for this layout, as the caller promises.
        unsafe { flysch_free(memory.cast(), layout.size(), layout.align()) }
    }
}

#[global_allocator]
static HEAP: Heap = Heap;

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let error = Error::new(Status::Controller, info);
    // SAFETY: the text ends with a zero and lives until the end.
    unsafe { flysch_panic(error.text.as_ptr()) }
}
