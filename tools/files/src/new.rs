//! A plain file that gets its name when it is whole.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::leftovers::Made;
use crate::target::Target;

/// Mode of a file that replaces none; the process's mask applies.
const MODE: u32 = 0o666;
/// Mode of what nobody else is to see.
const PRIVATE: u32 = 0o600;

/// A file under a name of its own, removed when dropped.
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
                // Somebody was killed who had the same process id.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts one where temporary files of this machine are.
    pub(crate) fn spool() -> io::Result<Self> {
        let folder = std::env::temp_dir();
        Self::start(&folder, PRIVATE).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("no temporary file in {}: {error}", folder.display()),
            )
        })
    }
}

/// A plain file that gets its name when it is whole, and vanishes if it never is.
#[derive(Debug)]
pub struct NewFile {
    temporary: Temporary,
    path: PathBuf,
    old: Option<Old>,
}

/// What a file that is replaced hands on.
#[derive(Clone, Copy, Debug)]
struct Old {
    mode: u32,
    owner: u32,
    group: u32,
}

impl NewFile {
    /// Starts the file that will be at `path`, in the same folder; where `path` is a symbolic link,
    /// at the place that it leads to.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if what is there is no plain file; [`ErrorKind::IsADirectory`];
    /// [`ErrorKind::PermissionDenied`] also if the mode of what is there has no write permission;
    /// what the system says.
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
    /// As [`create`](Self::create), and of reading `from`.
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

    /// Where it lies until it is whole: for opening it, never for telling the user.
    pub fn temporary_path(&self) -> &Path {
        &self.temporary.path
    }

    /// The file itself, for reading and writing.
    pub fn file(&self) -> &File {
        &self.temporary.file
    }

    /// Gives the file its name; what stood there is replaced in one step.
    ///
    /// # Errors
    /// What the system says; then what stood there still does.
    pub fn keep(self) -> io::Result<()> {
        let Self { temporary, path, old } = self;
        if let Some(old) = old {
            // Only root can, and then the file stays its owner's.
            let _ = std::os::unix::fs::fchown(&temporary.file, Some(old.owner), Some(old.group));
            temporary.file.set_permissions(Permissions::from_mode(old.mode & 0o7777))?;
        }
        temporary.file.sync_all()?;
        std::fs::rename(&temporary.path, &path)?;
        temporary.made.keep();
        Ok(())
    }

    /// Gives the file its name unless there is one of that name by now.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`], or what the system says.
    pub fn keep_new(self) -> io::Result<()> {
        self.temporary.file.sync_all()?;
        // The other name goes with the temporary file.
        std::fs::hard_link(&self.temporary.path, &self.path)?;
        // What is done next may rely on this name.
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}
