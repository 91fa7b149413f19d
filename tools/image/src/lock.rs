//! Who may use an image file: many readers, or one writer.
//!
//! Two writers would destroy an image, and a reader would see damage that does not exist while
//! another process writes. The locks are advisory (`flock`): they disappear when the process ends,
//! however it ends.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long to wait for another process to end: a mount that was just unmounted still writes its
/// last blocks.
const PATIENCE: Duration = Duration::from_secs(3);
/// Interval between attempts.
const TICK: Duration = Duration::from_millis(20);

/// Files that this process has locked, once for each lock: device and inode.
static OURS: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

fn ours() -> MutexGuard<'static, Vec<(u64, u64)>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An image file that nobody else modifies.
#[derive(Clone, Debug)]
pub(crate) struct Lock(Arc<Locked>);

/// The handle, and the file's entry in [`OURS`].
#[derive(Debug)]
struct Locked {
    file: File,
    key: Option<(u64, u64)>,
}

impl Locked {
    fn new(file: File) -> Self {
        // A file without attributes cannot be told from others.
        let key = file.metadata().ok().map(|it| (it.dev(), it.ino()));
        ours().extend(key);
        Self { file, key }
    }

    /// Whether this process has another lock on the same file.
    fn is_ours_twice(&self) -> bool {
        self.key.is_some_and(|key| ours().iter().filter(|other| **other == key).count() > 1)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let mut ours = ours();
        if let Some(at) = ours.iter().position(|key| Some(*key) == self.key) {
            ours.swap_remove(at);
        }
    }
}

/// An image file that nobody else even reads. Dropping it restores the previous state.
#[derive(Debug)]
pub struct Exclusive(Lock);

impl Lock {
    /// Lets others read, but not modify, the file of the handle `file`.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] if another process modifies it and does not end soon.
    pub(crate) fn shared(file: &File) -> io::Result<Self> {
        let lock = Self(Arc::new(Locked::new(file.try_clone()?)));
        let busy = "somebody is changing it (is it mounted?); end that first";
        lock.wait(PATIENCE, busy, File::try_lock_shared)?;
        Ok(lock)
    }

    /// Excludes others, except for this handle's own reading.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] if another process uses it and does not end soon, or this
    /// one has it open once more.
    pub(crate) fn exclusive(&self) -> io::Result<Exclusive> {
        self.exclusive_within(PATIENCE)
    }

    fn exclusive_within(&self, patience: Duration) -> io::Result<Exclusive> {
        // Nobody knows whether it will be closed: to wait could be to wait for the caller.
        let (patience, busy) = match self.0.is_ours_twice() {
            true => (Duration::ZERO, "this program has it open once more; close that first"),
            false => (patience, "somebody else is using it (is it mounted?); end that first"),
        };
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
            match lock(&self.0.file) {
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
        Lock(Arc::new(Locked::new(File::open(path)?))).exclusive()
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        // Nobody can be in the way of this.
        let _ = self.0.0.file.try_lock_shared();
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
        let refused = first.exclusive_within(200 * PATIENCE).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
        assert!(refused.to_string().starts_with("this program has it open"), "{refused}");
        drop((second, other));
        let exclusive = first.exclusive().unwrap();
        let other = File::open(file.path()).unwrap();
        assert_eq!(Lock::shared(&other).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(exclusive);
        drop(Lock::shared(&other).unwrap());
        // A mount that is about to end is waited for.
        other.try_lock_shared().unwrap();
        let refused = first.exclusive_within(TICK).unwrap_err();
        assert!(refused.to_string().starts_with("somebody else is using it"), "{refused}");
        let ending = std::thread::spawn(move || {
            std::thread::sleep(10 * TICK);
            drop(other);
        });
        // However long the other thread takes to get its turn.
        first.exclusive_within(200 * PATIENCE).unwrap();
        ending.join().unwrap();
    }
}
