//! What must not be left behind: half-written files, wherever the command ends.
//!
//! QEMU ends with this process by itself; see `flysch-qemu`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tempfile::NamedTempFile;

/// Status of a command ended by Ctrl-C, as shells have it.
const INTERRUPTED: i32 = 130;

static HALF_WRITTEN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Prepares for Ctrl-C and for a reader that goes away.
pub(crate) fn prepare() {
    // Without the handler the kernel ends the process as it always did: no reason to fail.
    let _ = ctrlc::set_handler(|| {
        remove_half_written();
        eprintln!("flysch: interrupted");
        std::process::exit(INTERRUPTED);
    });
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let message = panic.payload().downcast_ref::<String>();
        if message.is_some_and(|text| text.starts_with("failed printing to stdout")) {
            remove_half_written();
            std::process::exit(0);
        }
        usual(panic);
    }));
}

fn remove_half_written() {
    let mut files = HALF_WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    for file in files.drain(..) {
        let _ = std::fs::remove_file(file);
    }
}

/// A file that gets its name when it is whole, and vanishes if it never is.
#[derive(Debug)]
pub(crate) struct NewFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl NewFile {
    /// Starts the file that will be `path`, in the same folder.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let mut builder = tempfile::Builder::new();
        let file = builder.prefix(".flysch-").suffix(".part").tempfile_in(folder)?;
        let mut files = HALF_WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
        files.push(file.path().to_path_buf());
        Ok(Self { file, path: path.to_path_buf() })
    }

    /// Starts it as a copy of `from`.
    pub(crate) fn copy(from: &Path, path: &Path) -> io::Result<Self> {
        let new = Self::create(path)?;
        std::fs::copy(from, new.file.path())?;
        Ok(new)
    }

    /// What it is called until it is whole.
    pub(crate) fn temporary_path(&self) -> &Path {
        self.file.path()
    }

    /// The file itself.
    pub(crate) fn file(&self) -> &std::fs::File {
        self.file.as_file()
    }

    /// Gives the file its name; what stood there is replaced in one step.
    pub(crate) fn keep(self) -> io::Result<()> {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let half_written = self.file.path().to_path_buf();
        let mode = match std::fs::metadata(&self.path) {
            Ok(old) => {
                // Only root can, and then the file stays its owner's.
                let _ = std::os::unix::fs::fchown(&self.file, Some(old.uid()), Some(old.gid()));
                old.permissions()
            }
            Err(_) => std::fs::Permissions::from_mode(0o666 & !umask()),
        };
        self.file.as_file().set_permissions(mode)?;
        self.file.as_file().sync_all()?;
        self.file.persist(&self.path).map_err(|e| e.error)?;
        let mut files = HALF_WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|file| *file != half_written);
        Ok(())
    }
}

/// The process's file mode creation mask. It can only be read by setting it.
fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}
