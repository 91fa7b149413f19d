//! Errors as exceptions.

use std::error::Error as Cause;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use flysch_api::flash::FlashError;
use flysch_api::vfs;
use flysch_image::create::CreateError as CannotMake;
use flysch_image::{OpenError as CannotOpen, PathError, in_fields};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyOSError};
use pyo3::prelude::*;

create_exception!(flysch, Error, PyException, "What all exceptions of this package are.");
create_exception!(
    flysch,
    OpenError,
    Error,
    "The image cannot be opened. If the system refused, it is an OSError as well, such as \
     FileNotFoundError."
);
create_exception!(
    flysch,
    DamagedError,
    Error,
    "What is stored is not what was written. `filename` is the path; `entries`, if a directory was \
     listed, is what can be read of it, and otherwise None."
);
create_exception!(flysch, EncryptedError, Error, "It is encrypted, and the key is not there.");
create_exception!(flysch, UnsupportedError, Error, "The image has something that is not read.");
create_exception!(
    flysch,
    MakeError,
    Error,
    "The image cannot be made. If the system refused a file, it is an OSError as well, such as \
     FileNotFoundError, and `filename` is the path."
);
create_exception!(flysch, RepairError, Error, "The image cannot be repaired.");
create_exception!(flysch, InternalError, Error, "A mistake of this package: please report it.");

/// `errno` values for which Python has its own exceptions (`errno-base.h`, `errno.h`).
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const ELOOP: i32 = 40;
const ENODATA: i32 = 61;

/// An error of the file system for `path`.
pub(crate) fn of_file(error: vfs::FsError, path: &OsStr) -> PyErr {
    let bytes = path.as_bytes();
    let shown = match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    };
    of_place(error, &shown, path)
}

/// Why a path cannot be resolved.
pub(crate) fn of_path(error: PathError, path: &OsStr) -> PyErr {
    match error {
        PathError::At { path: place, error } => of_place(error, &format!("/{place}"), path),
        PathError::Loop { .. } => {
            PyOSError::new_err((ELOOP, "too many symlinks lead to each other", path.to_owned()))
        }
    }
}

/// An error of the file system, at a place on the way to `path`.
fn of_place(error: vfs::FsError, place: &str, path: &OsStr) -> PyErr {
    let text = error.to_string();
    let line = format!("{place}: {text}");
    let errno = match error {
        vfs::FsError::NotFound => ENOENT,
        vfs::FsError::NoAttribute => ENODATA,
        vfs::FsError::NotDirectory => ENOTDIR,
        vfs::FsError::IsDirectory => EISDIR,
        vfs::FsError::Encrypted => return with_path(EncryptedError::new_err(line), path),
        vfs::FsError::Unsupported(_) => return with_path(UnsupportedError::new_err(line), path),
        vfs::FsError::Medium { source: FlashError::Os(errno), .. } => errno,
        vfs::FsError::Damaged { .. } | vfs::FsError::Medium { .. } => {
            return with_path(DamagedError::new_err(line), path);
        }
        _ => EINVAL,
    };
    PyOSError::new_err((errno, text, path.to_owned()))
}

/// Gives an exception of ours the attribute that an OSError has.
fn with_path(error: PyErr, path: &OsStr) -> PyErr {
    Python::attach(|py| {
        // An exception without the attribute still tells what is wrong.
        let _ = error.value(py).setattr("filename", path);
    });
    error
}

/// Gives the exception for a directory what can be read of it.
pub(crate) fn with_entries<'py>(
    error: PyErr,
    entries: impl IntoPyObject<'py>,
    py: Python<'py>,
) -> PyErr {
    if !error.is_instance_of::<PyOSError>(py) {
        // As above.
        let _ = error.value(py).setattr("entries", entries);
    }
    error
}

/// An error of the operating system for a file of this machine.
pub(crate) fn of_system(error: &io::Error, path: &Path) -> PyErr {
    let errno = errno_of(error).unwrap_or(EIO);
    PyOSError::new_err((errno, text_of(error), path.as_os_str().to_owned()))
}

/// Why an image cannot be opened. The package makes an OSError of what has a number.
pub(crate) fn of_open(error: &CannotOpen, name: &Path) -> PyErr {
    let mut chain =
        std::iter::successors(Some(error as &(dyn Cause + 'static)), |it| (*it).source());
    let refused = chain.find_map(|cause| {
        if let Some(FlashError::Os(errno)) = cause.downcast_ref() {
            return Some((*errno, io::Error::from_raw_os_error(*errno)));
        }
        let error = cause.downcast_ref::<io::Error>()?;
        Some((errno_of(error)?, io::Error::new(error.kind(), text_of(error))))
    });
    match refused {
        Some((errno, error)) => {
            OpenError::new_err((errno, text_of(&error), name.as_os_str().to_owned()))
        }
        None => {
            OpenError::new_err(format!("{}: {}", name.display(), in_fields(&error.to_string())))
        }
    }
}

/// Why an image cannot be made; `output` is where it was to be. The package makes an OSError of
/// what has a number.
pub(crate) fn of_make(error: &CannotMake, output: &Path) -> PyErr {
    match error {
        CannotMake::Source { path, cause } => of_refused(cause, Path::new(path)),
        CannotMake::Output(cause) => of_refused(cause, output),
        _ => MakeError::new_err(format!("{}: {error}", output.display())),
    }
}

/// A file without which an image cannot be made.
pub(crate) fn of_refused(error: &io::Error, path: &Path) -> PyErr {
    let is_nameless = path.as_os_str().is_empty();
    match errno_of(error).or(is_nameless.then_some(ENOENT)) {
        Some(errno) => MakeError::new_err((errno, text_of(error), path.as_os_str().to_owned())),
        None => MakeError::new_err(format!("{}: {error}", path.display())),
    }
}

/// The system's number for an error, also for one that only has our words.
fn errno_of(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or(match error.kind() {
        io::ErrorKind::NotFound => Some(ENOENT),
        io::ErrorKind::PermissionDenied => Some(EACCES),
        io::ErrorKind::ResourceBusy => Some(EBUSY),
        io::ErrorKind::AlreadyExists => Some(EEXIST),
        io::ErrorKind::NotADirectory => Some(ENOTDIR),
        io::ErrorKind::IsADirectory => Some(EISDIR),
        _ => None,
    })
}

/// Its words, without the number that an OSError shows anyway.
fn text_of(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error ").next().unwrap_or(&text).to_owned()
}
