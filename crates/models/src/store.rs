//! Where a modelled device keeps its data: memory that is sparse, or a sparse file.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use flysch_api::machine::DmaRegion;

#[cfg(feature = "std")]
mod file;
#[cfg(feature = "std")]
pub use file::FileStore;

/// Bytes of memory taken at once.
const CHUNK: usize = 2 << 20;

/// Longest store, bytes: the table of chunks stays below 128 MiB.
pub const LENGTH_MAX: u64 = 16 << 40;

/// What a store could not do.
#[derive(Debug)]
pub enum StoreError {
    /// The bytes are not in the store: a mistake of the model.
    OutOfRange,
    /// The file could not be read or written.
    #[cfg(feature = "std")]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the operating system said.
        cause: std::io::Error,
    },
    /// The file is shorter than the device.
    #[cfg(feature = "std")]
    TooSmall {
        /// The file.
        path: std::path::PathBuf,
        /// Bytes it has.
        has: u64,
        /// Bytes the device needs.
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
                write!(f, "{}: cannot {action}: {cause}", path.display())
            }
            #[cfg(feature = "std")]
            Self::TooSmall { path, has, needs } => write!(
                f,
                "{}: has {has} bytes, the unit needs {needs}; make the file longer or the unit smaller",
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
    /// A store in memory; takes memory only for what is written.
    pub fn memory(len: u64) -> Self {
        Self::Memory(MemoryStore::new(len))
    }

    /// Copies `len` bytes at `offset` to `to` in `memory`.
    ///
    /// # Errors
    /// The file's; [`StoreError::OutOfRange`].
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
    /// The file's; [`StoreError::OutOfRange`].
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

    /// Makes `len` bytes at `offset` read as zero and gives their space back where possible.
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

    /// Brings everything written to stable storage.
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

/// Memory in chunks that exist only once written.
pub struct MemoryStore {
    len: u64,
    chunks: Vec<Option<Box<[u8]>>>,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.chunks.iter().flatten().count();
        f.debug_struct("MemoryStore").field("len", &self.len).field("chunks_used", &used).finish()
    }
}

/// A part of an access that lies in one chunk: chunk, offset in it, bytes done before, length.
struct Part {
    chunk: usize,
    at: usize,
    done: usize,
    len: usize,
}

impl MemoryStore {
    fn new(len: u64) -> Self {
        let chunks = usize::try_from(len.div_ceil(CHUNK as u64)).unwrap_or(usize::MAX);
        Self { len, chunks: vec![None; chunks] }
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(StoreError::OutOfRange),
        }
    }

    #[inline]
    fn parts(offset: u64, len: usize) -> impl Iterator<Item = Part> {
        let mut done = 0;
        core::iter::from_fn(move || {
            let position = offset + done as u64;
            let at = (position % CHUNK as u64) as usize;
            let part = Part {
                chunk: (position / CHUNK as u64) as usize,
                at,
                done,
                len: (CHUNK - at).min(len - done),
            };
            done += part.len;
            (part.len > 0).then_some(part)
        })
    }

    fn chunk(&mut self, index: usize) -> &mut [u8] {
        self.chunks[index].get_or_insert_with(|| vec![0; CHUNK].into_boxed_slice())
    }

    #[inline]
    fn read(
        &self,
        offset: u64,
        memory: &DmaRegion,
        to: usize,
        len: usize,
    ) -> Result<(), StoreError> {
        self.check(offset, len as u64)?;
        for part in Self::parts(offset, len) {
            match &self.chunks[part.chunk] {
                Some(chunk) => memory.write(to + part.done, &chunk[part.at..][..part.len]),
                None => memory.fill(to + part.done, part.len, 0),
            }
        }
        Ok(())
    }

    #[inline]
    fn write(
        &mut self,
        offset: u64,
        memory: &DmaRegion,
        from: usize,
        len: usize,
    ) -> Result<(), StoreError> {
        self.check(offset, len as u64)?;
        for part in Self::parts(offset, len) {
            memory.read(from + part.done, &mut self.chunk(part.chunk)[part.at..][..part.len]);
        }
        Ok(())
    }

    fn get(&self, offset: u64, to: &mut [u8]) -> Result<(), StoreError> {
        self.check(offset, to.len() as u64)?;
        for part in Self::parts(offset, to.len()) {
            let to = &mut to[part.done..][..part.len];
            match &self.chunks[part.chunk] {
                Some(chunk) => to.copy_from_slice(&chunk[part.at..][..part.len]),
                None => to.fill(0),
            }
        }
        Ok(())
    }

    fn put(&mut self, offset: u64, from: &[u8]) -> Result<(), StoreError> {
        self.check(offset, from.len() as u64)?;
        for part in Self::parts(offset, from.len()) {
            let to = &mut self.chunk(part.chunk)[part.at..][..part.len];
            to.copy_from_slice(&from[part.done..][..part.len]);
        }
        Ok(())
    }

    fn discard(&mut self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.check(offset, len)?;
        let mut done = 0;
        while done < len {
            let at = (offset + done) % CHUNK as u64;
            let part = (CHUNK as u64 - at).min(len - done);
            let index = ((offset + done) / CHUNK as u64) as usize;
            if part == CHUNK as u64 {
                self.chunks[index] = None;
            } else if let Some(chunk) = &mut self.chunks[index] {
                chunk[at as usize..][..part as usize].fill(0);
            }
            done += part;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zero_until_written_and_after_discard() {
        let mut store = Store::memory(3 * CHUNK as u64);
        let memory = DmaRegion::zeroed(8192, 0);
        memory.fill(0, 8192, 0xAB);
        let across = CHUNK as u64 - 4096;
        store.read(across, &memory, 0, 8192).unwrap();
        assert_eq!(memory.load64(0), 0);
        memory.fill(0, 8192, 0x5C);
        store.write(across, &memory, 0, 8192).unwrap();
        let mut bytes = [0; 8200];
        store.get(across - 4, &mut bytes).unwrap();
        assert_eq!((bytes[3], bytes[4], bytes[8195], bytes[8196]), (0, 0x5C, 0x5C, 0));
        store.discard(across + 4096, 2 * CHUNK as u64).unwrap();
        store.get(across, &mut bytes[..8192]).unwrap();
        assert_eq!((bytes[4095], bytes[4096]), (0x5C, 0));
    }

    #[test]
    fn nothing_is_reached_outside() {
        let mut store = Store::memory(8192);
        let memory = DmaRegion::zeroed(8192, 0);
        for (offset, len) in [(8192, 1), (4096, 4097), (u64::MAX, 8)] {
            assert!(matches!(store.read(offset, &memory, 0, len), Err(StoreError::OutOfRange)));
            assert!(matches!(store.discard(offset, len as u64), Err(StoreError::OutOfRange)));
        }
    }
}
