//! Parts of image files.

use flysch_api::flash::FlashError;
use flysch_mtd::{Storage, StorageMut};

/// Maximum growth of a file because of its contents: a damaged number in it must not fill the disk.
/// Users that need more give the size of the flash.
pub(crate) const GROWTH_MAX: u64 = 1 << 30;

/// A range of another storage.
#[derive(Clone, Debug)]
pub(crate) struct Window<S> {
    pub(crate) storage: S,
    pub(crate) start: u64,
    pub(crate) len: u64,
}

impl<S: Storage> Storage for Window<S> {
    fn size(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FlashError> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(FlashError::OutOfRange);
        }
        self.storage.read_at(self.start + offset, buffer)
    }

    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let end = offset.checked_add(len as u64)?;
        if end > self.len { None } else { self.storage.slice(self.start + offset, len) }
    }
}

impl<S: StorageMut> StorageMut for Window<S> {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlashError> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(FlashError::OutOfRange);
        }
        self.storage.write_at(self.start + offset, bytes)
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        self.storage.sync()
    }
}
