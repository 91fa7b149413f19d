//! What goes away if the command ends before it is whole.

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

/// Removes everything that is not whole. The process must end now: whoever starts another file
/// after this waits forever, so that none can slip through.
pub fn abandon() {
    let mut all = leftovers();
    // The last first: folders come before what is in them.
    for leftover in all.drain(..).rev() {
        // There is nobody left to tell, and the others must go as well.
        let _ = match leftover {
            Leftover::File(path) => std::fs::remove_file(path),
            Leftover::Folder(path) => std::fs::remove_dir(path),
        };
    }
    std::mem::forget(all);
}

/// A file or folder that was made here. It is removed when this is dropped, and when the command is
/// interrupted, unless it is [kept](Self::keep).
#[derive(Debug)]
#[must_use = "dropped, it is removed"]
pub struct Made(Option<Leftover>);

impl Made {
    /// Makes the file at `path` by `make`, which must fail if there is one already.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn file(
        path: &Path,
        make: impl FnOnce(&Path) -> io::Result<File>,
    ) -> io::Result<(Self, File)> {
        // Under the lock: an interruption comes before both or after both.
        let mut all = leftovers();
        let file = make(path)?;
        all.push(Leftover::File(path.to_path_buf()));
        Ok((Self(Some(Leftover::File(path.to_path_buf()))), file))
    }

    /// Takes over the file at `path`, which was made just now by other means: a socket.
    pub fn adopt(path: &Path) -> Self {
        leftovers().push(Leftover::File(path.to_path_buf()));
        Self(Some(Leftover::File(path.to_path_buf())))
    }

    /// Makes the folder at `path`, whose parent must exist.
    pub(crate) fn folder(path: &Path) -> io::Result<Self> {
        let mut all = leftovers();
        std::fs::create_dir(path)?;
        all.push(Leftover::Folder(path.to_path_buf()));
        Ok(Self(Some(Leftover::Folder(path.to_path_buf()))))
    }

    /// It is whole: from now on it stays.
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
        // Best effort: the error that brought us here is the one to tell.
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
