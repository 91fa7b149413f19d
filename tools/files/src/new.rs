//! A regular file that gets its name only once it is complete.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::leftovers::Made;
use crate::target::Target;

/// Mode of a file that replaces none; the process's umask applies.
const MODE: u32 = 0o666;
/// Mode of a file that others must not see.
const PRIVATE: u32 = 0o600;

/// A file under a temporary name, removed on drop.
#[derive(Debug)]
pub(crate) struct Temporary {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    made: Made,
}

impl Temporary {
    /// Starts one in `folder`.
    pub(crate) fn start(folder: &Path, mode: u32) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let mut options = File::options();
        options.read(true).write(true).create_new(true).mode(mode);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!(".flysch-{}-{number}.part", std::process::id()));
            match Made::file(&path, |path| options.open(path)) {
                Ok((made, file)) => return Ok(Self { file, path, made }),
                // A killed process with the same id left a file of this name.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts one in the machine's folder for temporary files.
    pub(crate) fn spool() -> io::Result<Self> {
        let folder = std::env::temp_dir();
        Self::start(&folder, PRIVATE).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot make a temporary file in {}: {error}", folder.display()),
            )
        })
    }
}

/// A regular file that gets its name once it is complete, and is removed if it never is.
#[derive(Debug)]
pub struct NewFile {
    temporary: Temporary,
    path: PathBuf,
    old: Option<Old>,
}

/// What a file inherits from the one it replaces.
#[derive(Clone, Copy, Debug)]
struct Old {
    mode: u32,
    owner: u32,
    group: u32,
}

impl NewFile {
    /// Starts the file that will be at `path`, in the same folder; if `path` is a symbolic link, at
    /// the place it leads to.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if `path` exists and is not a regular file;
    /// [`ErrorKind::IsADirectory`]; [`ErrorKind::PermissionDenied`], also if the existing file's
    /// mode has no write permission; other errors of the system.
    pub fn create(path: &Path) -> io::Result<Self> {
        match Target::of(path)? {
            Target::Regular(path, old) => Self::replacing(path, old),
            Target::Standard | Target::Existing(_) | Target::Complaints => {
                Err(io::Error::new(ErrorKind::InvalidInput, "is not a regular file"))
            }
        }
    }

    /// Starts it as a copy of `from`.
    ///
    /// # Errors
    /// As [`create`](Self::create), and those of reading `from`.
    pub fn copy(from: &Path, path: &Path) -> io::Result<Self> {
        let new = Self::create(path)?;
        io::copy(&mut File::open(from)?, &mut &new.temporary.file)?;
        Ok(new)
    }

    pub(crate) fn replacing(path: PathBuf, old: Option<Metadata>) -> io::Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let old = old.map(|old| Old { mode: old.mode(), owner: old.uid(), group: old.gid() });
        let mode = old.map_or(MODE, |old| old.mode & PRIVATE);
        let temporary = Temporary::start(folder.unwrap_or(Path::new(".")), mode)?;
        Ok(Self { temporary, path, old })
    }

    /// Its path until it is complete: for opening it, never for showing to the user.
    pub fn temporary_path(&self) -> &Path {
        &self.temporary.path
    }

    /// The file itself, for reading and writing.
    pub fn file(&self) -> &File {
        &self.temporary.file
    }

    /// Gives the file its name, atomically replacing any file there.
    ///
    /// # Errors
    /// Those of the system; an existing file is then unchanged.
    pub fn keep(self) -> io::Result<()> {
        let Self { temporary, path, old } = self;
        if let Some(old) = old {
            // Only root can do this; the file then keeps its owner.
            let _ = std::os::unix::fs::fchown(&temporary.file, Some(old.owner), Some(old.group));
            temporary.file.set_permissions(Permissions::from_mode(old.mode & 0o7777))?;
        }
        temporary.file.sync_all()?;
        std::fs::rename(&temporary.path, &path)?;
        temporary.made.keep();
        Ok(())
    }

    /// Gives the file its name, unless a file of that name exists by now.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`], or those of the system.
    pub fn keep_new(self) -> io::Result<()> {
        self.temporary.file.sync_all()?;
        // The temporary name is removed on drop.
        std::fs::hard_link(&self.temporary.path, &self.path)?;
        // What comes next may rely on this name.
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}
