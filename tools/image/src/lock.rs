//! Who may use an image file: many readers, or one writer.
//!
//! Two writers would destroy an image, and a reader would see damage that does not exist while
//! another process writes. The locks are advisory (`flock`): they disappear when the process ends,
//! however it ends.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to wait for another process to end: a mount that was just unmounted still writes its
/// last blocks.
const PATIENCE: Duration = Duration::from_secs(3);
/// Interval between attempts.
const TICK: Duration = Duration::from_millis(20);

/// An image file that nobody else modifies.
#[derive(Clone, Debug)]
pub(crate) struct Lock(Arc<File>);

/// An image file that nobody else even reads. Dropping it restores the previous state.
#[derive(Debug)]
pub struct Exclusive(Lock);

impl Lock {
    /// Lets others read, but not modify, the file of the handle `file`.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] if another process modifies it and does not end soon.
    pub(crate) fn shared(file: &File) -> io::Result<Self> {
        let lock = Self(Arc::new(file.try_clone()?));
        let busy = "somebody is changing it (is it mounted?); end that first";
        lock.wait(PATIENCE, busy, File::try_lock_shared)?;
        Ok(lock)
    }

    /// Excludes others, except for this handle's own reading.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] if another process uses it and does not end soon.
    pub(crate) fn exclusive(&self) -> io::Result<Exclusive> {
        self.exclusive_within(PATIENCE)
    }

    fn exclusive_within(&self, patience: Duration) -> io::Result<Exclusive> {
        let busy = "somebody else is using it (is it mounted?); end that first";
        self.wait(patience, busy, File::try_lock)?;
        Ok(Exclusive(self.clone()))
    }

    fn wait(
        &self,
        patience: Duration,
        busy: &str,
        lock: impl Fn(&File) -> Result<(), TryLockError>,
    ) -> io::Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            match lock(&self.0) {
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(TICK);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(io::Error::new(io::ErrorKind::ResourceBusy, busy));
                }
                // Where there are no locks (some network file systems) the user must take care.
                Ok(()) | Err(TryLockError::Error(_)) => return Ok(()),
            }
        }
    }
}

impl Exclusive {
    /// Excludes everybody from the file at `path`.
    ///
    /// # Errors
    /// As for `Lock::exclusive`, and if it cannot be opened.
    pub fn of(path: &Path) -> io::Result<Self> {
        Lock(Arc::new(File::open(path)?)).exclusive()
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        // Nobody can be in the way of this.
        let _ = self.0.0.try_lock_shared();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_changes_or_many_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let first = Lock::shared(file.as_file()).unwrap();
        let other = File::open(file.path()).unwrap();
        let second = Lock::shared(&other).unwrap();
        let refused = first.exclusive().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
        drop((second, other));
        let exclusive = first.exclusive().unwrap();
        let other = File::open(file.path()).unwrap();
        assert_eq!(Lock::shared(&other).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(exclusive);
        Lock::shared(&other).unwrap();
        // A mount that is about to end is waited for.
        let waiting = Lock::shared(&other).unwrap();
        let ending = std::thread::spawn(move || {
            std::thread::sleep(10 * TICK);
            drop((waiting, other));
        });
        // However long the other thread takes to get its turn.
        first.exclusive_within(200 * PATIENCE).unwrap();
        ending.join().unwrap();
    }
}
