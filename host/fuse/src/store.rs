//! The file system behind a mount, read-only or writable.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use flysch_api::vfs::{FileSystem, FileSystemMut, FsError};

/// A file system with many readers and one writer at a time.
pub type Shared = Arc<RwLock<dyn FileSystemMut + Send + Sync>>;

/// Changes are on the medium after this time at the latest, as with Linux's write-back
/// (`dirty_writeback_centisecs`).
const WRITE_BACK: Duration = Duration::from_secs(5);
/// And after this time without further changes: `sync` and `syncfs` do not reach a FUSE mount, so
/// their callers get the effect soon afterwards.
const QUIET: Duration = Duration::from_millis(200);

/// The file system that a door serves.
#[derive(Clone)]
pub(crate) enum Store {
    /// Read-only.
    Fixed(Arc<dyn FileSystem + Send + Sync>),
    /// Writable.
    Changing {
        fs: Shared,
        /// Changes since the last full sync.
        since: Arc<Since>,
        /// Every change is on the medium when its call returns.
        is_through: bool,
    },
}

/// Changes since the last full sync.
#[derive(Debug, Default)]
pub(crate) struct Since {
    /// Something was changed.
    is_dirty: AtomicBool,
    /// Total number of changes, to detect further ones.
    changes: AtomicU64,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_fixed() { "Fixed" } else { "Changing" })
    }
}

impl Store {
    pub(crate) fn changing(fs: Shared, is_through: bool) -> Self {
        Self::Changing { fs, since: Arc::default(), is_through }
    }

    /// Whether every change is on the medium when its call returns.
    pub(crate) fn is_through(&self) -> bool {
        matches!(self, Self::Changing { is_through: true, .. })
    }

    pub(crate) fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed(_))
    }

    /// Reads the file system. Must not be called recursively: a waiting change would come between
    /// the two.
    pub(crate) fn read<R>(&self, look: impl FnOnce(&dyn FileSystem) -> R) -> R {
        match self {
            Self::Fixed(fs) => look(&**fs),
            Self::Changing { fs, .. } => {
                let fs = fs.read().unwrap_or_else(PoisonError::into_inner);
                look(&*fs)
            }
        }
    }

    /// Changes the file system, unless it is read-only or an earlier change failed.
    pub(crate) fn change<R>(
        &self,
        change: impl FnOnce(&mut dyn FileSystemMut) -> Result<R, FsError>,
    ) -> Result<R, FsError> {
        match self {
            Self::Fixed(_) => Err(FsError::ReadOnly),
            Self::Changing { fs, since, .. } => {
                // No cause: whoever panicked in the middle of a change left nobody knows what.
                let mut fs = fs.write().map_err(|_| FsError::ReadOnly)?;
                since.is_dirty.store(true, Ordering::Relaxed);
                since.changes.fetch_add(1, Ordering::Relaxed);
                change(&mut *fs)
            }
        }
    }

    /// Puts everything on the medium.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.put(|fs| fs.sync(None))
    }

    fn put(
        &self,
        put: impl FnOnce(&mut dyn FileSystemMut) -> Result<(), FsError>,
    ) -> io::Result<()> {
        let Self::Changing { fs, since, .. } = self else { return Ok(()) };
        if !since.is_dirty.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        // No cause: a poisoned lock says only that somebody panicked.
        let mut fs = fs.write().map_err(|_| io::Error::other("a change was left half done"))?;
        put(&mut *fs)
            .map_err(|error| io::Error::other(format!("not everything was written: {error}")))
    }

    /// Writes back from time to time until the other end of `stop` is dropped: when there was a
    /// change and none for a while after it, or when changes have been pending for long.
    pub(crate) fn write_back(&self, stop: &Receiver<()>) -> io::Result<()> {
        let Self::Changing { since, .. } = self else { return Ok(()) };
        let mut seen = since.changes.load(Ordering::Relaxed);
        let mut dirty_for = Duration::ZERO;
        while stop.recv_timeout(QUIET) == Err(RecvTimeoutError::Timeout) {
            let changes = since.changes.load(Ordering::Relaxed);
            let is_quiet = changes == seen;
            seen = changes;
            dirty_for = match since.is_dirty.load(Ordering::Relaxed) {
                true => dirty_for + QUIET,
                false => Duration::ZERO,
            };
            if is_quiet || dirty_for >= WRITE_BACK {
                self.put(|fs| fs.sync_data(None))?;
                dirty_for = Duration::ZERO;
            }
        }
        Ok(())
    }
}
