use core::fmt;

use flysch_models::faults::PlanError;

use super::{KINDS, Kind};

/// Why a text is not a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// No such kind.
    Kind {
        /// What was written.
        given: String,
    },
    /// The kind has no such key.
    Key {
        /// The kind.
        kind: &'static Kind,
        /// What was written.
        given: String,
    },
    /// The key cannot have this value.
    Value {
        /// The key.
        key: &'static str,
        /// What was written.
        given: String,
        /// What it may be.
        expected: String,
    },
    /// The fault plan cannot be read.
    Faults {
        /// What was written.
        given: String,
        /// What is wrong with it.
        cause: PlanError,
    },
    /// A key stands there twice.
    Twice {
        /// The key.
        key: &'static str,
    },
    /// A piece is not `key=value`.
    NotAPair {
        /// What was written.
        given: String,
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
            Self::Key { kind, given } => {
                let keys: Vec<&str> = kind.keys.iter().map(|key| key.name).collect();
                write!(
                    f,
                    "target `{}` has no key `{given}`{}",
                    kind.name,
                    did_you_mean(given, &keys)
                )?;
                write!(f, "; its keys are {}", keys.join(", "))
            }
            Self::Value { key, given, expected } => {
                let words: Vec<&str> = expected.split('|').collect();
                let hint =
                    if words.len() > 1 { did_you_mean(given, &words) } else { String::new() };
                write!(f, "`{key}={given}`: the value must be {expected}{hint}")
            }
            Self::Faults { given, cause } => write!(f, "`faults={given}`: {cause}"),
            Self::Twice { key } => write!(f, "key `{key}` is given twice"),
            Self::NotAPair { given } => {
                write!(f, "`{given}` is not `key=value`; write a target as KIND[,key=value...]")
            }
        }
    }
}

impl std::error::Error for ParseError {}

/// ", did you mean `x`?" for the nearest of `known`, if one is near; else nothing.
pub fn did_you_mean(given: &str, known: &[&str]) -> String {
    let score = |name: &str| strsim::damerau_levenshtein(given, name);
    let nearest = known.iter().min_by_key(|name| score(name));
    match nearest.filter(|name| score(name) <= 1 + name.len() / 3) {
        Some(name) => format!(", did you mean `{name}`?"),
        None => String::new(),
    }
}
