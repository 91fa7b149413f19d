//! Where the bytes of an image come from.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use flysch_api::flash::FlashError;

/// Bytes at offsets: memory, or an image file. A host provides one to put a flash on.
pub trait Storage {
    /// Total size in bytes.
    fn size(&self) -> u64;

    /// Fills `buffer` with the bytes at `offset`.
    ///
    /// # Errors
    /// [`FlashError::OutOfRange`] if some of them do not exist, [`FlashError::Os`] if the operating
    /// system refuses.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FlashError>;

    /// The bytes at `offset` in place, if they are in memory.
    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let _ = (offset, len);
        None
    }
}

/// A storage that can be changed.
pub trait StorageMut: Storage {
    /// Replaces the bytes at `offset` by `bytes`; the storage does not grow.
    ///
    /// # Errors
    /// [`FlashError::OutOfRange`] with nothing done, [`FlashError::Os`] if the operating system
    /// refuses, [`FlashError::WriteProtected`] if the storage was opened read-only.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlashError>;

    /// Makes written bytes durable (`fsync`). Memory has nothing to do here.
    ///
    /// # Errors
    /// [`FlashError::Os`].
    fn sync(&mut self) -> Result<(), FlashError> {
        Ok(())
    }
}

impl Storage for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FlashError> {
        let bytes = Storage::slice(self, offset, buffer.len()).ok_or(FlashError::OutOfRange)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        self.get(start..start.checked_add(len)?)
    }
}

macro_rules! forward_storage {
    ($([$($generic:tt)*] $pointer:ty),*) => {$(
        impl<$($generic)*> Storage for $pointer {
            fn size(&self) -> u64 {
                (**self).size()
            }
            fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FlashError> {
                (**self).read_at(offset, buffer)
            }
            fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
                Storage::slice(&**self, offset, len)
            }
        }
    )*};
}

forward_storage!(
    [S: Storage + ?Sized] &S,
    [S: Storage + ?Sized] &mut S,
    [S: Storage + ?Sized] Arc<S>,
    [S: Storage + ?Sized] Box<S>
);

macro_rules! forward_storage_mut {
    ($($pointer:ty),*) => {$(
        impl<S: StorageMut + ?Sized> StorageMut for $pointer {
            fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlashError> {
                (**self).write_at(offset, bytes)
            }
            fn sync(&mut self) -> Result<(), FlashError> {
                (**self).sync()
            }
        }
    )*};
}

forward_storage_mut!(&mut S, Box<S>);

impl StorageMut for [u8] {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlashError> {
        let start = usize::try_from(offset).map_err(|_| FlashError::OutOfRange)?;
        let end = start.checked_add(bytes.len()).ok_or(FlashError::OutOfRange)?;
        self.get_mut(start..end).ok_or(FlashError::OutOfRange)?.copy_from_slice(bytes);
        Ok(())
    }
}

impl StorageMut for Vec<u8> {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlashError> {
        self.as_mut_slice().write_at(offset, bytes)
    }
}

impl Storage for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FlashError> {
        self.as_slice().read_at(offset, buffer)
    }

    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        Storage::slice(self.as_slice(), offset, len)
    }
}
