//! The file system behind a mount, fixed or changing.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use flysch_api::vfs::{Error, FileSystem, FileSystemMut};

/// A file system that many read and one at a time changes.
pub type Shared = Arc<RwLock<dyn FileSystemMut + Send + Sync>>;

/// What was changed is on the medium after so long at the latest, as Linux's write-back has it
/// (`dirty_writeback_centisecs`).
const WRITE_BACK: Duration = Duration::from_secs(5);

/// What a door opens.
#[derive(Clone)]
pub(crate) enum Store {
    /// Nothing ever changes.
    Fixed(Arc<dyn FileSystem + Send + Sync>),
    /// Everything may.
    Changing {
        fs: Shared,
        /// Something was changed since the last sync of everything.
        is_dirty: Arc<AtomicBool>,
    },
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_fixed() { "Fixed" } else { "Changing" })
    }
}

impl Store {
    pub(crate) fn changing(fs: Shared) -> Self {
        Self::Changing { fs, is_dirty: Arc::default() }
    }

    pub(crate) fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed(_))
    }

    /// Looks at the file system. Must not be called inside itself: a waiting change would come
    /// between the two.
    pub(crate) fn read<R>(&self, look: impl FnOnce(&dyn FileSystem) -> R) -> R {
        match self {
            Self::Fixed(fs) => look(&**fs),
            Self::Changing { fs, .. } => {
                let fs = fs.read().unwrap_or_else(PoisonError::into_inner);
                look(&*fs)
            }
        }
    }

    /// Changes the file system, unless it is fixed or a change went wrong before.
    pub(crate) fn change<R>(
        &self,
        change: impl FnOnce(&mut dyn FileSystemMut) -> Result<R, Error>,
    ) -> Result<R, Error> {
        match self {
            Self::Fixed(_) => Err(Error::ReadOnly),
            Self::Changing { fs, is_dirty } => {
                // Whoever panicked in the middle of a change left nobody knows what.
                let mut fs = fs.write().map_err(|_| Error::ReadOnly)?;
                is_dirty.store(true, Ordering::Relaxed);
                change(&mut *fs)
            }
        }
    }

    /// Puts everything on the medium.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let Self::Changing { fs, is_dirty } = self else { return Ok(()) };
        if !is_dirty.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let mut fs = fs.write().map_err(|_| io::Error::other("a change was left half done"))?;
        fs.sync(None)
            .map_err(|error| io::Error::other(format!("not everything was written: {error}")))
    }

    /// Writes back from time to time until the other end of `stop` is dropped.
    pub(crate) fn write_back(&self, stop: &Receiver<()>) -> io::Result<()> {
        while stop.recv_timeout(WRITE_BACK) == Err(RecvTimeoutError::Timeout) {
            self.sync()?;
        }
        Ok(())
    }
}
