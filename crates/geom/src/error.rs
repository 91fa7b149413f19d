//! Why something was not done.

use alloc::string::{String, ToString};
use core::fmt;

use flysch_api::block;

/// What kind of reason it is, by FreeBSD's error numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// There is no such object (`ENOENT`).
    NotFound,
    /// It already exists (`EEXIST`).
    Exists,
    /// Somebody has it open in a way that forbids this (`EPERM`).
    NotPermitted,
    /// It is in use (`EBUSY`).
    Busy,
    /// What was asked for cannot be (`EINVAL`).
    Invalid,
    /// There is no room (`ENOSPC`).
    NoSpace,
    /// It would be on top of itself, or too high (`ELOOP`).
    Loop,
    /// There is metadata of somebody else's in the way.
    Foreign,
    /// Reading or writing failed.
    Io(block::Error),
}

/// Why something was not done: to what, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What kind of reason.
    pub kind: Kind,
    /// The object, by the name that users know.
    pub object: String,
    /// The cause and, where there is one, the remedy.
    pub cause: String,
}

impl Error {
    /// The reason `cause`, on `object`.
    pub fn new(kind: Kind, object: impl ToString, cause: impl ToString) -> Self {
        Self { kind, object: object.to_string(), cause: cause.to_string() }
    }

    /// What was asked for of `object` cannot be.
    pub fn invalid(object: impl ToString, cause: impl ToString) -> Self {
        Self::new(Kind::Invalid, object, cause)
    }

    /// Reading or writing of `object` failed.
    pub fn io(object: impl ToString, error: block::Error) -> Self {
        Self::new(Kind::Io(error), object, error)
    }

    /// There is nothing of this name.
    pub fn not_found(object: impl ToString, what: &str) -> Self {
        Self::new(Kind::NotFound, object, alloc::format!("there is no such {what}"))
    }

    /// The error that a request ends with that met this one.
    pub fn as_block(&self) -> block::Error {
        match self.kind {
            Kind::Io(error) => error,
            Kind::NotPermitted => block::Error::WriteProtected,
            _ => block::Error::Gone,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.cause)
    }
}

impl core::error::Error for Error {}
