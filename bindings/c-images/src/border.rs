//! The boundary to C: arguments are checked, and no panic crosses it.

use std::ffi::{OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::error::{ImageError, ImageStatus, Outcome};
use crate::values::{Buffer, Bytes};

/// Executes a function of the header. If `work` fails, it returns `otherwise` and writes the reason
/// to `place`.
///
/// # Safety
/// `place` is NULL or may be written.
pub(crate) unsafe fn guarded<T>(
    place: *mut ImageError,
    otherwise: T,
    work: impl FnOnce() -> Outcome<T>,
) -> T {
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no more is known");
        Err(ImageError::new(ImageStatus::Internal, text))
    });
    done.unwrap_or_else(|error| {
        if !place.is_null() {
            // SAFETY: the caller's promise.
            unsafe { place.write(*error) }
        }
        otherwise
    })
}

/// The same for functions that return a status.
///
/// # Safety
/// As [`guarded`].
pub(crate) unsafe fn told(
    place: *mut ImageError,
    work: impl FnOnce() -> Outcome<()>,
) -> ImageStatus {
    let mut why = ImageStatus::Internal;
    let status = &mut why;
    let work = || {
        let done = work();
        *status = done.as_ref().map_or_else(|error| error.status, |()| ImageStatus::Ok);
        done
    };
    // SAFETY: the caller's promise.
    unsafe { guarded(place, (), work) }
    why
}

/// The value behind a pointer, which messages call `what`.
///
/// # Safety
/// It is NULL or points to a valid value that nobody changes at the same time.
pub(crate) unsafe fn named<'a, T>(pointer: *const T, what: &str) -> Outcome<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

pub(crate) fn null(what: &str) -> Box<ImageError> {
    ImageError::new(ImageStatus::Argument, format_args!("{what} is NULL"))
}

/// The bytes as a slice.
///
/// # Safety
/// They are valid, and nobody changes them at the same time.
pub(crate) unsafe fn bytes<'a>(bytes: Bytes, what: &str) -> Outcome<&'a [u8]> {
    match (bytes.data.is_null(), bytes.len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null(what)),
        (false, len) if isize::try_from(len).is_err() => Err(too_long(what, len)),
        // SAFETY: the caller's promise; the length is a possible one.
        (false, len) => Ok(unsafe { std::slice::from_raw_parts(bytes.data, len) }),
    }
}

/// The buffer as a slice.
///
/// # Safety
/// It is valid and initialised, and nobody else uses it at the same time.
pub(crate) unsafe fn room<'a>(buffer: Buffer, what: &str) -> Outcome<&'a mut [u8]> {
    match (buffer.data.is_null(), buffer.len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(null(what)),
        (false, len) if isize::try_from(len).is_err() => Err(too_long(what, len)),
        // SAFETY: the caller's promise; the length is a possible one.
        (false, len) => Ok(unsafe { std::slice::from_raw_parts_mut(buffer.data, len) }),
    }
}

fn too_long(what: &str, len: usize) -> Box<ImageError> {
    ImageError::new(ImageStatus::Argument, format_args!("{what} cannot have {len} bytes"))
}

/// A path of this machine.
pub(crate) fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// The caller's context, passed back to its functions.
#[derive(Clone, Copy)]
pub(crate) struct Context(pub(crate) *mut c_void);

// SAFETY: it is passed back and never dereferenced; the caller is responsible for what its
// functions do with it, and the header says which threads call them.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_stays_on_this_side() {
        let mut error = *ImageError::new(ImageStatus::Ok, "");
        // SAFETY: the error is valid.
        let status = unsafe { told(&mut error, || panic!("number {}", 7)) };
        assert_eq!((status, error.status), (ImageStatus::Internal, ImageStatus::Internal));
        assert_eq!(error.text[..9].iter().map(|c| *c as u8).collect::<Vec<_>>(), b"number 7\0");
    }

    #[test]
    fn null_and_lengths_that_cannot_be_are_refused() {
        let (data, none) = (b"abc".as_ptr(), std::ptr::null());
        // SAFETY: rejected arguments are not dereferenced.
        unsafe {
            assert_eq!(bytes(Bytes { data: none, len: 0 }, "path").unwrap(), b"");
            assert_eq!(bytes(Bytes { data, len: 2 }, "path").unwrap(), b"ab");
            assert!(bytes(Bytes { data: none, len: 1 }, "path").is_err());
            assert!(bytes(Bytes { data, len: usize::MAX }, "path").is_err());
            let data = std::ptr::null_mut();
            assert!(room(Buffer { data, len: 1 }, "buffer").is_err());
            assert!(room(Buffer { data, len: 0 }, "buffer").unwrap().is_empty());
            assert!(named::<u8>(none, "image").is_err());
        }
    }
}
