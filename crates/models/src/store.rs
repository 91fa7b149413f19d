//! Where a modelled device stores its data: sparse memory, or a sparse file.

use core::fmt;

use flysch_api::machine::DmaRegion;

#[cfg(feature = "std")]
mod file;
mod memory;

#[cfg(feature = "std")]
pub use file::FileStore;
pub use memory::MemoryStore;

/// Maximum length of a store, bytes: the table of chunks stays below 128 MiB.
pub const LENGTH_MAX: u64 = 16 << 40;

/// Why a store failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The bytes are not in the store: a mistake of the model.
    OutOfRange,
    /// The file could not be read or written.
    #[cfg(feature = "std")]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// The attempted operation.
        action: &'static str,
        /// The operating system's error.
        cause: std::io::Error,
    },
    /// The file is shorter than the device.
    #[cfg(feature = "std")]
    TooSmall {
        /// The file.
        path: std::path::PathBuf,
        /// Its size in bytes.
        has: u64,
        /// The size that the device needs, bytes.
        needs: u64,
    },
    /// Another process uses the file.
    #[cfg(feature = "std")]
    InUse {
        /// The file.
        path: std::path::PathBuf,
    },
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange => f.write_str("access outside the backing store"),
            #[cfg(feature = "std")]
            Self::File { path, action, cause } => {
                write!(f, "{}: cannot {action}: {cause}", path.display())?;
                if self.is_full() { f.write_str("; make room on its file system") } else { Ok(()) }
            }
            #[cfg(feature = "std")]
            Self::TooSmall { path, has, needs } => write!(
                f,
                "{}: has {has} bytes, the unit needs {needs}; \
                 make the file longer or the unit smaller",
                path.display()
            ),
            #[cfg(feature = "std")]
            Self::InUse { path } => write!(
                f,
                "{}: in use by another process; end it or take another file",
                path.display()
            ),
        }
    }
}

impl StoreError {
    /// Whether the file system below has no room for the data, or the owner of the file has reached
    /// a quota.
    pub fn is_full(&self) -> bool {
        #[cfg(feature = "std")]
        if let Self::File { cause, .. } = self {
            use std::io::ErrorKind;
            return matches!(cause.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        }
        false
    }
}

/// A file whose file system had no room for data of a device.
#[cfg(feature = "std")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullFile {
    /// The file.
    pub path: std::path::PathBuf,
    /// Number of accesses that failed because of it.
    pub times: u64,
}

impl core::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            #[cfg(feature = "std")]
            Self::File { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

/// The bytes of one logical unit. What was never written, or was discarded, reads as zero.
#[derive(Debug)]
pub enum Store {
    /// In memory.
    Memory(MemoryStore),
    /// In a file.
    #[cfg(feature = "std")]
    File(FileStore),
}

impl Store {
    /// Why the machine below failed, in words, for the first failure. The device reports a medium
    /// error to its host; this is the reason for it.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Memory(_) => None,
            #[cfg(feature = "std")]
            Self::File(store) => store.failure(),
        }
    }

    /// The file, if its file system had no room for what was written.
    #[cfg(feature = "std")]
    pub fn full(&self) -> Option<FullFile> {
        match self {
            Self::Memory(_) => None,
            Self::File(store) => {
                let (path, times) = (store.path(), store.full());
                (times > 0).then(|| FullFile { path: path.into(), times })
            }
        }
    }

    /// A store in memory; uses memory only for what is written.
    pub fn memory(len: u64) -> Self {
        Self::Memory(MemoryStore::new(len))
    }

    /// Copies `len` bytes at `offset` to `to` in `memory`.
    ///
    /// # Errors
    /// The file's, or [`StoreError::OutOfRange`].
    #[inline]
    pub fn read(
        &mut self,
        offset: u64,
        memory: &DmaRegion,
        to: usize,
        len: usize,
    ) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.read(offset, memory, to, len),
            #[cfg(feature = "std")]
            Self::File(store) => store.read(offset, memory, to, len),
        }
    }

    /// Copies `len` bytes at `from` in `memory` to `offset`.
    ///
    /// # Errors
    /// The file's, or [`StoreError::OutOfRange`].
    #[inline]
    pub fn write(
        &mut self,
        offset: u64,
        memory: &DmaRegion,
        from: usize,
        len: usize,
    ) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.write(offset, memory, from, len),
            #[cfg(feature = "std")]
            Self::File(store) => store.write(offset, memory, from, len),
        }
    }

    /// Copies bytes at `offset` out.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn get(&mut self, offset: u64, to: &mut [u8]) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.get(offset, to),
            #[cfg(feature = "std")]
            Self::File(store) => store.get(offset, to),
        }
    }

    /// Copies bytes in at `offset`.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn put(&mut self, offset: u64, from: &[u8]) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.put(offset, from),
            #[cfg(feature = "std")]
            Self::File(store) => store.put(offset, from),
        }
    }

    /// Makes `len` bytes at `offset` read as zero and frees their space if possible.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn discard(&mut self, offset: u64, len: u64) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.discard(offset, len),
            #[cfg(feature = "std")]
            Self::File(store) => store.discard(offset, len),
        }
    }

    /// Fills all `len` bytes of the store with `pattern`, repeated. In memory this takes no space.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn fill(&mut self, len: u64, pattern: [u8; 4]) -> Result<(), StoreError> {
        if pattern == [0; 4] {
            return self.discard(0, len);
        }
        match self {
            Self::Memory(store) => store.fill(pattern),
            #[cfg(feature = "std")]
            Self::File(store) => {
                const PIECE: usize = 1 << 20;
                let bytes = pattern.repeat(PIECE / pattern.len());
                let mut done = 0;
                while done < len {
                    let piece = (len - done).min(PIECE as u64);
                    store.put(done, &bytes[..piece as usize])?;
                    done += piece;
                }
            }
        }
        Ok(())
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// The file's.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            #[cfg(feature = "std")]
            Self::File(store) => store.flush(),
        }
    }
}
