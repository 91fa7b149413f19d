//! How the command fails: one line on standard error and a status.
//!
//! Which of the two it is does not depend on the command. Words that cannot be followed as they
//! are written are a usage error, on the command line and in a job file, a rig or a script: one is
//! unknown, missing, too many, out of range, or contradicts another. Everything else is a failure,
//! also something that is named and is not there: a file, a device, a provider, a namespace.

use std::io;
use std::process::ExitCode;

/// Why the command did not do what it was asked to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A usage error, words that cannot be followed: status 2.
    #[error("{0}")]
    Usage(String),
    /// The requested operation failed, or what is named is not there: status 1.
    #[error("{0}")]
    Failed(String),
    /// Ended with a special status, as in fsck; a line if there is more to say.
    #[error("{}", line.as_deref().unwrap_or_default())]
    Status {
        /// Not 0.
        status: u8,
        /// Why.
        line: Option<String>,
    },
    /// The reader of our output has gone: no message, and not our failure.
    #[error("nobody reads the output")]
    NobodyReads,
}

impl Failure {
    /// A usage error.
    pub(crate) fn usage(what: impl ToString) -> Self {
        Self::Usage(what.to_string())
    }

    /// A failure.
    pub(crate) fn failed(what: impl ToString) -> Self {
        Self::Failed(what.to_string())
    }

    /// A failure on this object.
    pub(crate) fn of(object: impl std::fmt::Display, cause: impl std::fmt::Display) -> Self {
        Self::Failed(format!("{object}: {cause}"))
    }

    /// The same, preceded by the object concerned.
    pub(crate) fn on(self, object: &str) -> Self {
        match self {
            Self::Failed(line) => Self::of(object, line),
            other => other,
        }
    }

    /// The underlying cause, if the stack knows one: a device can only report what it saw.
    pub(crate) fn behind(self, target: impl std::fmt::Display, why: Option<String>) -> Self {
        match (why, self) {
            (Some(why), Self::Failed(_)) => Self::of(target, why),
            (_, other) => other,
        }
    }

    /// Reports what happened and returns the status to exit with.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Usage(line) => {
                eprintln!("flysch: {line}");
                ExitCode::from(2)
            }
            Self::Failed(line) => {
                eprintln!("flysch: {line}");
                ExitCode::from(1)
            }
            Self::Status { status, line } => {
                if let Some(line) = line {
                    eprintln!("flysch: {line}");
                }
                ExitCode::from(*status)
            }
            Self::NobodyReads => ExitCode::SUCCESS,
        }
    }
}

impl From<flysch_rig::ParseError> for Failure {
    fn from(error: flysch_rig::ParseError) -> Self {
        Self::usage(error)
    }
}

impl From<flysch_rig::TargetError> for Failure {
    fn from(error: flysch_rig::TargetError) -> Self {
        Self::failed(error)
    }
}

impl From<flysch_rig::rig::ReadError> for Failure {
    fn from(error: flysch_rig::rig::ReadError) -> Self {
        match error {
            flysch_rig::rig::ReadError::Unreadable { .. } => Self::failed(error),
            _ => Self::usage(error),
        }
    }
}

impl From<flysch_bench::jobfile::JobError> for Failure {
    fn from(error: flysch_bench::jobfile::JobError) -> Self {
        match error.is_unreadable {
            true => Self::failed(error),
            false => Self::usage(error),
        }
    }
}

/// Errors of writing to standard output; those of other files get their name from [`Failure::of`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::NobodyReads;
        }
        Self::of("standard output", error)
    }
}
