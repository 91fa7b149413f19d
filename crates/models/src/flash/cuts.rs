//! The notation of power cuts: the number of an operation, and a letter for how it tears.

use core::fmt;
use core::num::ParseIntError;
use core::str::FromStr;

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use super::Tear;

/// One power cut, as `62l`: operation 62, torn late. Without a letter it is torn half way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The operation, counted from 0 at a starting point that the user of the cut must define.
    pub operation: u64,
    /// How it is torn.
    pub tear: Tear,
}

/// Power cuts, each within the recovery from the one before: `62l,3h`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutList(pub Vec<Cut>);

/// Why a text is not a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CutError {
    /// It does not begin with the number of an operation.
    Operation {
        /// The text.
        given: String,
        /// What is wrong with it.
        cause: ParseIntError,
    },
    /// There is no such tear.
    Tear {
        /// The text.
        given: String,
    },
}

impl fmt::Display for CutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation { given, .. } => {
                write!(f, "'{given}' is not a cut; one looks like 123h")
            }
            Self::Tear { given } => {
                write!(f, "'{given}': a tear is b(efore), e(arly), h(alf), l(ate) or a(fter)")
            }
        }
    }
}

impl core::error::Error for CutError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Operation { cause, .. } => Some(cause),
            Self::Tear { .. } => None,
        }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.operation, self.tear.letter())
    }
}

impl FromStr for Cut {
    type Err = CutError;

    fn from_str(text: &str) -> Result<Self, CutError> {
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let operation = digits
            .parse()
            .map_err(|cause| CutError::Operation { given: text.to_string(), cause })?;
        let tear = match &text[digits.len()..] {
            "" => Ok(Tear::Half),
            letter => letter.parse(),
        };
        // No cause: the error for an invalid letter contains no more than the letter.
        let tear = tear.map_err(|_| CutError::Tear { given: text.to_string() })?;
        Ok(Self { operation, tear })
    }
}

impl fmt::Display for CutList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, cut) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{cut}")?;
        }
        Ok(())
    }
}

impl FromStr for CutList {
    type Err = CutError;

    fn from_str(text: &str) -> Result<Self, CutError> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_read_as_they_are_written() {
        for text in ["0b", "62l", "123h", "7e", "18446744073709551615a"] {
            assert_eq!(text.parse::<Cut>().unwrap().to_string(), text);
        }
        assert_eq!("5".parse(), Ok(Cut { operation: 5, tear: Tear::Half }));
        assert_eq!("62l,3".parse::<CutList>().unwrap().to_string(), "62l,3h");
        for text in ["", "h", "3x", "-1h", "1hh", "18446744073709551616h", "3é", "1h,", ","] {
            assert!(text.parse::<CutList>().is_err(), "{text}");
        }
        let told = "3x".parse::<Cut>().unwrap_err().to_string();
        assert_eq!(told, "'3x': a tear is b(efore), e(arly), h(alf), l(ate) or a(fter)");
        assert_eq!(
            "h".parse::<Cut>().unwrap_err().to_string(),
            "'h' is not a cut; one looks like 123h"
        );
    }
}
