//! Errors as exceptions.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use flysch_api::vfs;
use flysch_image::PathError;
use pyo3::create_exception;
use pyo3::exceptions::{
    PyException, PyFileNotFoundError, PyIsADirectoryError, PyNotADirectoryError, PyOSError,
};
use pyo3::prelude::*;

create_exception!(flysch, Error, PyException, "What all exceptions of this package are.");
create_exception!(flysch, OpenError, Error, "The image cannot be opened.");
create_exception!(flysch, DamagedError, Error, "What is stored is not what was written.");
create_exception!(flysch, EncryptedError, Error, "It is encrypted, and the key is not there.");
create_exception!(flysch, UnsupportedError, Error, "The image has something that is not read.");
create_exception!(flysch, MakeError, Error, "The image cannot be made.");
create_exception!(flysch, RepairError, Error, "The image cannot be repaired.");

/// `errno` values for which Python has its own exceptions (`errno-base.h`, `errno.h`).
const ENOENT: i32 = 2;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const ELOOP: i32 = 40;
const ENODATA: i32 = 61;

/// An error of the file system for `path`.
pub(crate) fn of_file(error: vfs::FsError, path: &OsStr) -> PyErr {
    let path = path.as_bytes().escape_ascii().to_string();
    let text = error.to_string();
    match error {
        vfs::FsError::NotFound => PyFileNotFoundError::new_err((ENOENT, text, path)),
        vfs::FsError::NoAttribute => PyOSError::new_err((ENODATA, text, path)),
        vfs::FsError::NotDirectory => PyNotADirectoryError::new_err((ENOTDIR, text, path)),
        vfs::FsError::IsDirectory => PyIsADirectoryError::new_err((EISDIR, text, path)),
        vfs::FsError::Encrypted => EncryptedError::new_err(format!("{path}: {text}")),
        vfs::FsError::Unsupported(_) => UnsupportedError::new_err(format!("{path}: {text}")),
        vfs::FsError::Damaged { .. } | vfs::FsError::Medium(_) => {
            DamagedError::new_err(format!("{path}: {text}"))
        }
        _ => PyOSError::new_err((EINVAL, text, path)),
    }
}

/// Why a path cannot be resolved.
pub(crate) fn of_path(error: PathError) -> PyErr {
    match error {
        PathError::At { path, error } => of_file(error, OsStr::new(&format!("/{path}"))),
        other @ PathError::Loop { .. } => PyOSError::new_err((ELOOP, other.to_string())),
    }
}
