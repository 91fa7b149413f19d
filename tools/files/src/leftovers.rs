//! Files and folders to remove if the command ends before they are complete.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

static LEFTOVERS: Mutex<Vec<Leftover>> = Mutex::new(Vec::new());

#[derive(Debug, PartialEq)]
enum Leftover {
    File(PathBuf),
    Folder(PathBuf),
}

fn leftovers() -> MutexGuard<'static, Vec<Leftover>> {
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes everything incomplete. The process must end after this: a thread that starts another
/// file blocks forever, so that none can slip through.
pub fn abandon() {
    let mut all = leftovers();
    // In reverse order: folders were created before their content.
    for leftover in all.drain(..).rev() {
        // Nobody is left to report to, and the others must be removed as well.
        let _ = match leftover {
            Leftover::File(path) => std::fs::remove_file(path),
            Leftover::Folder(path) => std::fs::remove_dir(path),
        };
    }
    std::mem::forget(all);
}

/// A file or folder created here. It is removed on drop, and when the command is interrupted,
/// unless it is [kept](Self::keep).
#[derive(Debug)]
#[must_use = "dropped, it is removed"]
pub struct Made(Option<Leftover>);

impl Made {
    /// Creates the file at `path` with `make`, which must fail if it exists.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn file(
        path: &Path,
        make: impl FnOnce(&Path) -> io::Result<File>,
    ) -> io::Result<(Self, File)> {
        // Under the lock: an interruption comes before both steps or after both.
        let mut all = leftovers();
        let file = make(path)?;
        all.push(Leftover::File(path.to_path_buf()));
        Ok((Self(Some(Leftover::File(path.to_path_buf()))), file))
    }

    /// Takes over a file, such as a socket, that was just created at `path` by other means.
    pub fn adopt(path: &Path) -> Self {
        leftovers().push(Leftover::File(path.to_path_buf()));
        Self(Some(Leftover::File(path.to_path_buf())))
    }

    /// Creates the folder at `path`, whose parent must exist.
    pub(crate) fn folder(path: &Path) -> io::Result<Self> {
        let mut all = leftovers();
        std::fs::create_dir(path)?;
        all.push(Leftover::Folder(path.to_path_buf()));
        Ok(Self(Some(Leftover::Folder(path.to_path_buf()))))
    }

    /// Marks it as complete: from now on it stays.
    pub fn keep(mut self) {
        self.forget();
    }

    fn forget(&mut self) -> Option<Leftover> {
        let leftover = self.0.take()?;
        leftovers().retain(|other| *other != leftover);
        Some(leftover)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // Best effort: the error that led here is the one to report.
        let _ = match self.forget() {
            Some(Leftover::File(path)) => std::fs::remove_file(path),
            Some(Leftover::Folder(path)) => std::fs::remove_dir(path),
            None => Ok(()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_stays_only_if_it_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made");
        let make = || Made::file(&path, |path| File::create_new(path)).unwrap().0;
        drop(make());
        assert!(!path.exists());
        make().keep();
        assert!(path.exists());
        let again = Made::file(&path, |path| File::create_new(path)).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert!(path.exists(), "it is somebody else's");
        let inner = folder.path().join("folder");
        drop(Made::folder(&inner).unwrap());
        assert!(!inner.exists());
    }
}
