//! The board as a machine: the structure from C, checked once.

use core::ptr::NonNull;

use flysch_api::machine::{
    Clock, DmaRegion, DmaSlice, Identity, Instant, Machine, Registers, Wake,
};

use crate::error::{Error, Outcome, Status};
use crate::values::{self, Board, NEVER};

/// A board with all required functions.
#[derive(Clone, Debug)]
pub(crate) struct Wired {
    board: Board,
    read32: unsafe extern "C" fn(*mut core::ffi::c_void, u32) -> u32,
    write32: unsafe extern "C" fn(*mut core::ffi::c_void, u32, u32),
    now: unsafe extern "C" fn(*mut core::ffi::c_void) -> u64,
    wait: unsafe extern "C" fn(*mut core::ffi::c_void, u64) -> core::ffi::c_int,
    memory: DmaRegion,
}

impl Wired {
    /// The board, if it is complete.
    ///
    /// # Safety
    /// The board is as its fields say, until the last handle is gone.
    pub(crate) unsafe fn new(board: Board) -> Outcome<Self> {
        let lacks = |what| Error::new(Status::Argument, format_args!("the board has no {what}"));
        let read32 = board.read32.ok_or_else(|| lacks("read32"))?;
        let write32 = board.write32.ok_or_else(|| lacks("write32"))?;
        let now = board.now.ok_or_else(|| lacks("now"))?;
        let wait = board.wait.ok_or_else(|| lacks("wait"))?;
        let base = NonNull::new(board.memory.cast::<u8>()).ok_or_else(|| lacks("memory"))?;
        if !(base.as_ptr() as usize).is_multiple_of(4096)
            || !board.memory_address.is_multiple_of(4096)
        {
            return Err(Error::new(Status::Argument, "DMA memory is not aligned to 4096 bytes"));
        }
        let (address, len) = (board.memory_address, board.memory_len);
        if len == 0 || len > isize::MAX as usize {
            let text = format_args!("memory_len: DMA memory cannot have {len} bytes");
            return Err(Error::new(Status::Argument, text));
        }
        if address.checked_add(len as u64).is_none() {
            let text = format_args!(
                "memory_address: {len} bytes at {address:#x} end beyond the address space"
            );
            return Err(Error::new(Status::Argument, text));
        }
        // SAFETY: the caller's promise: valid and used by nobody else until flysch_close; the
        // alignment was just checked. A handle that keeps the region longer is the caller's breach
        // of the promise.
        let memory =
            unsafe { DmaRegion::from_static(base, board.memory_len, board.memory_address) };
        Ok(Self { board, read32, write32, now, wait, memory })
    }

    /// The device's address of data at an address of the processor; [`Status::BadData`] if any of
    /// it is outside DMA memory.
    pub(crate) fn data(&self, place: *mut core::ffi::c_void, len: u32) -> Result<DmaSlice, Status> {
        let offset = (place as usize).wrapping_sub(self.memory.as_ptr() as usize);
        let room = self.memory.len().checked_sub(offset);
        if room.is_none_or(|room| len as usize > room) {
            return Err(Status::BadData);
        }
        Ok(self.memory.slice(offset, len))
    }
}

impl Registers for Wired {
    /// The synchronising functions know whether there is something to do.
    const COHERENT: bool = false;

    fn read32(&self, offset: u32) -> u32 {
        // SAFETY: the board's function with the board's context, as `new` was promised.
        unsafe { (self.read32)(self.board.context, offset) }
    }

    fn write32(&self, offset: u32, value: u32) {
        // SAFETY: as in `read32`.
        unsafe { (self.write32)(self.board.context, offset, value) }
    }

    fn sync_for_device(&self, range: DmaSlice) {
        if let Some(sync) = self.board.sync_for_device {
            // SAFETY: as in `read32`.
            unsafe { sync(self.board.context, range.address, range.len) }
        }
    }

    fn sync_for_cpu(&self, range: DmaSlice) {
        if let Some(sync) = self.board.sync_for_cpu {
            // SAFETY: as in `read32`.
            unsafe { sync(self.board.context, range.address, range.len) }
        }
    }
}

impl Clock for Wired {
    fn now(&self) -> Instant {
        // SAFETY: as in `read32`.
        Instant::from_nanos(unsafe { (self.now)(self.board.context) })
    }

    fn wait(&self, until: Option<Instant>) -> Wake {
        let until = until.map_or(NEVER, Instant::nanos);
        // SAFETY: as in `read32`.
        let woken = unsafe { (self.wait)(self.board.context, until) };
        if woken == values::Wake::Deadline as i32 { Wake::Deadline } else { Wake::Interrupt }
    }
}

impl Machine for Wired {
    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    fn identity(&self) -> Identity {
        Identity { vendor: self.board.vendor, device: self.board.device }
    }
}
