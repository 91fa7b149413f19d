//! Why bytes can be rejected.

use core::fmt;

/// Why bytes are not the structure they were taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// Fewer bytes than the structure needs.
    Truncated {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        got: usize,
    },
    /// The bytes carry the identifying code of another structure.
    WrongCode {
        /// The expected code.
        expected: u8,
        /// The code found.
        got: u8,
    },
    /// A field holds an impossible value.
    BadField(
        /// The field, as the specification spells it.
        &'static str,
    ),
}

impl WireError {
    /// `Ok` if `bytes` has at least `needed` bytes.
    #[inline]
    pub(crate) fn check_len(bytes: &[u8], needed: usize) -> Result<(), Self> {
        if bytes.len() < needed {
            return Err(Self::Truncated { needed, got: bytes.len() });
        }
        Ok(())
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { needed, got } => {
                write!(f, "{got} bytes where at least {needed} are needed")
            }
            Self::WrongCode { expected, got } => {
                write!(f, "code {got:#04x} where {expected:#04x} was expected")
            }
            Self::BadField(field) => write!(f, "the field {field} holds an impossible value"),
        }
    }
}

impl core::error::Error for WireError {}
