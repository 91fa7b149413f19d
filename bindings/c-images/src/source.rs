//! Images that are not files: in the caller's memory, and behind its function.

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use flysch_api::flash::FlashError;
use flysch_mtd::Storage;

use crate::border::{Context, null};
use crate::error::Outcome;
use crate::values::Reader;

/// The caller's memory.
#[derive(Debug)]
pub(crate) struct Memory(&'static [u8]);

impl Memory {
    /// # Safety
    /// The bytes stay unchanged until the last handle of the image is closed.
    pub(crate) unsafe fn new(bytes: &[u8]) -> Self {
        // SAFETY: the caller's promise: nothing reads them once they are gone.
        Self(unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) })
    }
}

impl Storage for Memory {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FlashError> {
        self.0.read_at(offset, buffer)
    }

    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        Storage::slice(self.0, offset, len)
    }
}

type Read = unsafe extern "C" fn(*mut std::ffi::c_void, u64, *mut u8, usize) -> c_int;

/// The caller's function.
pub(crate) struct Called {
    context: Context,
    size: u64,
    /// Called by one thread at a time.
    read: Mutex<Read>,
}

impl Called {
    /// # Safety
    /// The function is as the header says, until the last handle of the image is closed.
    pub(crate) unsafe fn new(reader: &Reader) -> Outcome<Self> {
        let read = reader.read.ok_or_else(|| null("read of the reader"))?;
        Ok(Self { context: Context(reader.context), size: reader.size, read: Mutex::new(read) })
    }
}

impl Storage for Called {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FlashError> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(FlashError::OutOfRange);
        }
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the function's contract, in the header; the buffer has that length.
        match unsafe { read(self.context.0, offset, buffer.as_mut_ptr(), buffer.len()) } {
            0 => Ok(()),
            errno => Err(FlashError::Os(errno)),
        }
    }
}
