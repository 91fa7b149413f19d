//! A store in a sparse file, locked against other processes.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::string::{String, ToString};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec;
use std::vec::Vec;

use flysch_api::machine::DmaRegion;
use rustix::fs::{FallocateFlags, fallocate};

use super::StoreError;

/// Bytes copied at a time: DMA memory cannot be passed to the operating system.
const SCRATCH: usize = 1 << 20;

/// A file with the bytes of a logical unit.
#[derive(Debug)]
pub struct FileStore {
    file: File,
    path: PathBuf,
    len: u64,
    scratch: Vec<u8>,
    /// The first access that failed, in words.
    failure: OnceLock<String>,
    /// Number of accesses that failed because the file system had no room.
    full: AtomicU64,
}

impl FileStore {
    /// Opens `path` for a unit of `len` bytes; a missing file is created, sparse and of that
    /// length.
    ///
    /// # Errors
    /// [`StoreError::TooSmall`], [`StoreError::InUse`], or the operating system's.
    pub fn open(path: &Path, len: u64) -> Result<Self, StoreError> {
        let failed =
            |action| move |cause| StoreError::File { path: path.to_path_buf(), action, cause };
        let created = !path.exists();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed("open for reading and writing"))?;
        file.try_lock().map_err(|error| match error {
            std::fs::TryLockError::WouldBlock => StoreError::InUse { path: path.to_path_buf() },
            std::fs::TryLockError::Error(cause) => failed("lock")(cause),
        })?;
        if created {
            file.set_len(len).map_err(failed("set the length of"))?;
        }
        let has = file.metadata().map_err(failed("read the length of"))?.len();
        if has < len {
            return Err(StoreError::TooSmall { path: path.to_path_buf(), has, needs: len });
        }
        Ok(Self {
            file,
            path: path.to_path_buf(),
            len,
            scratch: vec![0; SCRATCH],
            failure: OnceLock::new(),
            full: AtomicU64::new(0),
        })
    }

    /// Another store on the same file, for a disk that is reached over several paths.
    ///
    /// # Errors
    /// The operating system's.
    pub fn another(&self) -> Result<Self, StoreError> {
        let failed =
            |cause| StoreError::File { path: self.path.clone(), action: "open again", cause };
        Ok(Self {
            file: self.file.try_clone().map_err(failed)?,
            path: self.path.clone(),
            len: self.len,
            scratch: vec![0; SCRATCH],
            failure: OnceLock::new(),
            full: AtomicU64::new(0),
        })
    }

    fn failed(&self, action: &'static str, cause: std::io::Error) -> StoreError {
        let error = StoreError::File { path: self.path.clone(), action, cause };
        self.full.fetch_add(error.is_full().into(), Ordering::Relaxed);
        self.failure.get_or_init(|| error.to_string());
        error
    }

    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn full(&self) -> u64 {
        self.full.load(Ordering::Relaxed)
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(StoreError::OutOfRange),
        }
    }

    pub(super) fn read(
        &mut self,
        offset: u64,
        memory: &DmaRegion,
        to: usize,
        len: usize,
    ) -> Result<(), StoreError> {
        self.check(offset, len as u64)?;
        for done in (0..len).step_by(SCRATCH) {
            let part = &mut self.scratch[..SCRATCH.min(len - done)];
            if let Err(cause) = self.file.read_exact_at(part, offset + done as u64) {
                return Err(self.failed("read", cause));
            }
            memory.write(to + done, part);
        }
        Ok(())
    }

    pub(super) fn write(
        &mut self,
        offset: u64,
        memory: &DmaRegion,
        from: usize,
        len: usize,
    ) -> Result<(), StoreError> {
        self.check(offset, len as u64)?;
        for done in (0..len).step_by(SCRATCH) {
            let part = &mut self.scratch[..SCRATCH.min(len - done)];
            memory.read(from + done, part);
            if let Err(cause) = self.file.write_all_at(part, offset + done as u64) {
                return Err(self.failed("write", cause));
            }
        }
        Ok(())
    }

    pub(super) fn get(&self, offset: u64, to: &mut [u8]) -> Result<(), StoreError> {
        self.check(offset, to.len() as u64)?;
        self.file.read_exact_at(to, offset).map_err(|cause| self.failed("read", cause))
    }

    pub(super) fn put(&self, offset: u64, from: &[u8]) -> Result<(), StoreError> {
        self.check(offset, from.len() as u64)?;
        self.file.write_all_at(from, offset).map_err(|cause| self.failed("write", cause))
    }

    pub(super) fn discard(&mut self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.check(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = fallocate(&self.file, flags, offset, len).map_err(std::io::Error::from);
        match punched {
            Err(cause) if cause.kind() == ErrorKind::Unsupported => self.zero(offset, len),
            other => other.map_err(|cause| self.failed("discard part of", cause)),
        }
    }

    /// For file systems that cannot punch holes.
    fn zero(&mut self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.scratch.fill(0);
        let mut done = 0;
        while done < len {
            let part = (len - done).min(SCRATCH as u64);
            self.put(offset + done, &self.scratch[..part as usize])?;
            done += part;
        }
        Ok(())
    }

    pub(super) fn flush(&self) -> Result<(), StoreError> {
        self.file.sync_data().map_err(|cause| self.failed("flush", cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn a_file_keeps_what_was_written_and_gives_space_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("unit.img");
        let memory = DmaRegion::zeroed(2 * SCRATCH + 4096, 0);
        memory.fill(0, memory.len(), 0x77);
        {
            let mut store = Store::File(FileStore::open(&path, 64 << 20).unwrap());
            store.write(4096, &memory, 0, memory.len()).unwrap();
            store.flush().unwrap();
            store.discard(8192, 4096).unwrap();
        }
        let mut store = Store::File(FileStore::open(&path, 64 << 20).unwrap());
        let mut bytes = [0; 3];
        for (offset, expected) in [(0, 0), (4096, 0x77), (8192, 0), (12288, 0x77)] {
            store.get(offset, &mut bytes).unwrap();
            assert_eq!(bytes, [expected; 3], "at {offset}");
        }
        store.read(0, &memory, 0, 8192).unwrap();
        assert_eq!((memory.load32(0), memory.load32(4096)), (0, 0x7777_7777));
    }

    #[test]
    fn the_first_failure_is_remembered() {
        let mut store = Store::File(FileStore::open(Path::new("/dev/full"), 0).unwrap());
        assert_eq!(store.failure(), None);
        let Store::File(file) = &mut store else { return };
        file.len = 8192;
        let memory = DmaRegion::zeroed(4096, 0);
        assert!(store.write(0, &memory, 0, 4096).is_err());
        let told = store.failure().unwrap();
        assert!(told.starts_with("/dev/full: cannot write: No space left"), "{told}");
        assert!(told.ends_with("; make room on its file system"), "{told}");
        let full = store.full().unwrap();
        assert_eq!((full.path.as_path(), full.times), (Path::new("/dev/full"), 1));
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("short.img");
        std::fs::write(&path, [0; 100]).unwrap();
        let error = FileStore::open(&path, 4096).unwrap_err().to_string();
        assert!(error.contains("short.img") && error.contains("4096"), "{error}");
        let absent = folder.path().join("no/such/folder.img");
        let error = FileStore::open(&absent, 4096).unwrap_err().to_string();
        assert!(error.contains("folder.img"), "{error}");
        let path = folder.path().join("locked.img");
        let _held = FileStore::open(&path, 4096).unwrap();
        assert!(matches!(FileStore::open(&path, 4096), Err(StoreError::InUse { .. })));
    }
}
