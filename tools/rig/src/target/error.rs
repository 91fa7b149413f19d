use core::fmt;

use flysch_models::faults::PlanError;

use flysch_target::{PairError, did_you_mean};
use flysch_vfio::AddressError;

use super::KINDS;

/// Why a text is not a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// Unknown kind.
    Kind {
        /// The text.
        given: String,
    },
    /// A key or its value.
    Pair(PairError),
    /// The fault plan cannot be read.
    Faults {
        /// The text.
        given: String,
        /// The error in it.
        cause: PlanError,
    },
    /// The address of a PCI function cannot be read.
    Address {
        /// The text.
        given: String,
        /// The error in it.
        cause: AddressError,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind { given } => {
                let kinds = KINDS.each_ref().map(|kind| kind.name);
                let plain = kinds.map(|name| name.split(':').next().unwrap_or(name));
                write!(f, "unknown target `{given}`{}", did_you_mean(given, &plain))?;
                write!(f, "; targets are {}", kinds.join(", "))
            }
            Self::Pair(cause) => cause.fmt(f),
            Self::Faults { given, cause } => write!(f, "`faults={given}`: {cause}"),
            Self::Address { given, cause } => write!(f, "`{given}`: {cause}"),
        }
    }
}

impl std::error::Error for ParseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Kind { .. } => None,
            Self::Pair(cause) => Some(cause),
            Self::Faults { cause, .. } => Some(cause),
            Self::Address { cause, .. } => Some(cause),
        }
    }
}

impl From<PairError> for ParseError {
    fn from(error: PairError) -> Self {
        Self::Pair(error)
    }
}

impl ParseError {
    /// An error for a value that `key` cannot have, with the possible ones.
    pub(super) fn value(key: &'static str, given: impl ToString, expected: impl ToString) -> Self {
        let (given, expected) = (given.to_string(), expected.to_string());
        Self::Pair(PairError::Value { key, given, expected })
    }
}
