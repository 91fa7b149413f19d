//! What is wrong with a target's keys and values.

use core::fmt;

use crate::kind::Kind;

/// Why the pairs of a target cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PairError {
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

impl fmt::Display for PairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key { kind, given } => {
                let keys: Vec<&str> = kind.keys.iter().map(|key| key.name).collect();
                let (hint, name) = (did_you_mean(given, &keys), kind.name);
                write!(f, "target `{name}` has no key `{given}`{hint}")?;
                write!(f, "; its keys are {}", keys.join(", "))
            }
            Self::Value { key, given, expected } => {
                let words: Vec<&str> = expected.split('|').collect();
                let hint =
                    if words.len() > 1 { did_you_mean(given, &words) } else { String::new() };
                write!(f, "`{key}={given}`: expected {expected}{hint}")
            }
            Self::Twice { key } => write!(f, "key `{key}` is given twice"),
            Self::NotAPair { given } => {
                write!(f, "`{given}` is not `key=value`; write a target as KIND[,key=value...]")
            }
        }
    }
}

impl std::error::Error for PairError {}

/// ", did you mean `x`?" for the nearest of `known`, if one is near; else nothing.
pub fn did_you_mean(given: &str, known: &[&str]) -> String {
    let score = |name: &str| strsim::damerau_levenshtein(given, name);
    let nearest = known.iter().min_by_key(|name| score(name));
    match nearest.filter(|name| score(name) <= 1 + name.len() / 3) {
        Some(name) => format!(", did you mean `{name}`?"),
        None => String::new(),
    }
}
