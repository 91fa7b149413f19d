//! Why an operation failed.

use alloc::string::{String, ToString};
use core::fmt;

use flysch_api::block;

/// The kind of reason, after FreeBSD's error numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// There is no such object (`ENOENT`).
    NotFound,
    /// It exists already (`EEXIST`).
    Exists,
    /// Another consumer's access forbids this (`EPERM`).
    NotPermitted,
    /// It is in use (`EBUSY`).
    Busy,
    /// The request is invalid (`EINVAL`).
    Invalid,
    /// There is no room (`ENOSPC`).
    NoSpace,
    /// It would be stacked on itself, or on too many others (`ELOOP`).
    Loop,
    /// Metadata that belongs to somebody else is in the way.
    Foreign,
    /// Reading or writing failed.
    Io(block::BlockError),
}

/// Why an operation failed, and on which object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeomError {
    /// What kind of reason.
    pub kind: Kind,
    /// The object, by the name known to users.
    pub object: String,
    /// The cause and, if there is one, the remedy.
    pub cause: String,
}

impl GeomError {
    /// The reason `cause`, for `object`.
    pub fn new(kind: Kind, object: impl ToString, cause: impl ToString) -> Self {
        Self { kind, object: object.to_string(), cause: cause.to_string() }
    }

    /// What was requested of `object` is invalid.
    pub fn invalid(object: impl ToString, cause: impl ToString) -> Self {
        Self::new(Kind::Invalid, object, cause)
    }

    /// Reading or writing of `object` failed.
    pub fn io(object: impl ToString, error: block::BlockError) -> Self {
        Self::new(Kind::Io(error), object, error)
    }

    /// There is nothing with this name.
    pub fn not_found(object: impl ToString, what: &str) -> Self {
        Self::new(Kind::NotFound, object, alloc::format!("there is no such {what}"))
    }

    /// The error of a request that failed because of this one.
    pub fn as_block(&self) -> block::BlockError {
        match self.kind {
            Kind::Io(error) => error,
            Kind::NotPermitted => block::BlockError::WriteProtected,
            _ => block::BlockError::Gone,
        }
    }
}

impl fmt::Display for GeomError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.cause)
    }
}

impl core::error::Error for GeomError {}
