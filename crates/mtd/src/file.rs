//! Image files as the storage of a flash.

use std::format;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use flysch_api::flash::FlashError;

use crate::storage::{Storage, StorageMut};

/// An image file. It is read with plain reads, never mapped: a file that shrinks during a read
/// gives an error and not a crash.
#[derive(Debug)]
pub struct FileStorage {
    file: File,
    size: u64,
}

impl FileStorage {
    /// Opens the image at `path` for reading.
    ///
    /// # Errors
    /// If it cannot be opened, or is a directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::of_file(File::open(path)?)
    }

    /// Opens the image at `path` for reading and writing.
    ///
    /// # Errors
    /// If it cannot be opened in this way, or is a directory.
    pub fn open_writable(path: &Path) -> io::Result<Self> {
        Self::of_file(File::options().read(true).write(true).open(path)?)
    }

    /// Uses an opened file or block device. It is read at offsets, wherever its own position is.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn of_file(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        if !kind.is_file() && !kind.is_block_device() {
            return Err(io::Error::other(
                "it is neither a file nor a block device; save the image in a file",
            ));
        }
        // Block devices report no length; their end does.
        let size = match metadata.len() {
            0 => io::Seek::seek(&mut &file, io::SeekFrom::End(0))?,
            size => size,
        };
        Ok(Self { file, size })
    }

    /// The file, for locking or to query it. Changes to its length are not noticed here.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Extends the file to `size` bytes by appending erased bytes (0xFF); it never becomes shorter.
    /// This completes a dump that ends in the middle of its last erase block.
    ///
    /// # Errors
    /// [`io::ErrorKind::FileTooLarge`] if that adds more than `most` bytes, and write errors.
    pub fn grow(&mut self, size: u64, most: u64) -> io::Result<()> {
        static ERASED: [u8; 64 << 10] = [0xFF; 64 << 10];
        let more = size.saturating_sub(self.size);
        if more > most {
            let why = format!("it needs {} MiB more than it has", more >> 20);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        while self.size < size {
            let len = ERASED.len().min((size - self.size).try_into().unwrap_or(usize::MAX));
            self.file.write_all_at(&ERASED[..len], self.size)?;
            self.size += len as u64;
        }
        Ok(())
    }
}

impl Storage for FileStorage {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FlashError> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(FlashError::OutOfRange);
        }
        self.file.read_exact_at(buffer, offset).map_err(|error| system_error(&error))
    }
}

impl StorageMut for FileStorage {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlashError> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(FlashError::OutOfRange);
        }
        self.file.write_all_at(bytes, offset).map_err(|error| system_error(&error))
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        self.file.sync_data().map_err(|error| system_error(&error))
    }
}

/// The operating system answers writes to a file opened for reading with `EBADF`.
fn system_error(error: &io::Error) -> FlashError {
    const EBADF: i32 = 9;
    match error.raw_os_error() {
        Some(EBADF) => FlashError::WriteProtected,
        number => FlashError::Os(number.unwrap_or(0)),
    }
}
