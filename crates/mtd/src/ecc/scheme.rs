//! Error-correction schemes by name, as users specify them.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use super::{Bch, Ecc};

/// An error-correction scheme, without the tables needed to apply it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// No known scheme: codes are ignored.
    None,
    /// Hamming code: one bit in each `step` bytes, 256 or 512.
    Hamming {
        /// Bytes of data per step.
        step: u16,
        /// The first two bytes of the code are swapped, as on SmartMedia cards.
        smart_media: bool,
    },
    /// A binary BCH code: `strength` bits in each `step` bytes.
    Bch {
        /// Bits corrected per step.
        strength: u16,
        /// Bytes of data per step, a multiple of 512.
        step: u16,
    },
}

/// The available names, for an error message.
const NAMES: &str = "none, hamming-256, hamming-512, smartmedia-256, smartmedia-512, \
                     bch-BITS-BYTES (bits corrected in so many bytes: bch-4-512, bch-8-512, \
                     bch-24-1024 and the like)";

impl Scheme {
    /// The scheme, ready for use; `None` if there is no such code.
    pub fn ecc(self) -> Option<Ecc> {
        Some(match self {
            Self::None => Ecc::None,
            Self::Hamming { step, smart_media } => Ecc::Hamming { step: step.into(), smart_media },
            Self::Bch { strength, step } => {
                // The smallest field that holds a step and its code, as Linux takes it.
                let field = (13..=15)
                    .find(|m| usize::from(step) * 8 + m * usize::from(strength) < 1 << m)?;
                Ecc::Bch(Bch::new(field as u32, strength.into(), step.into())?)
            }
        })
    }
}

/// A name that no error-correction scheme has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownScheme(String);

impl fmt::Display for UnknownScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a known error correction; there are: {NAMES}", self.0)
    }
}

impl core::error::Error for UnknownScheme {}

impl FromStr for Scheme {
    type Err = UnknownScheme;

    fn from_str(text: &str) -> Result<Self, UnknownScheme> {
        let parsed = match text {
            "none" => Some(Self::None),
            "hamming-256" => Some(Self::Hamming { step: 256, smart_media: false }),
            "hamming-512" => Some(Self::Hamming { step: 512, smart_media: false }),
            "smartmedia-256" => Some(Self::Hamming { step: 256, smart_media: true }),
            "smartmedia-512" => Some(Self::Hamming { step: 512, smart_media: true }),
            other => other.strip_prefix("bch-").and_then(|rest| rest.split_once('-')).and_then(
                |(bits, bytes)| {
                    let (strength, step) = (bits.parse().ok()?, bytes.parse().ok()?);
                    (step % 512 == 0).then_some(Self::Bch { strength, step })
                },
            ),
        };
        // Whether there is such a code is known when it is made.
        parsed.filter(|scheme| scheme.ecc().is_some()).ok_or_else(|| UnknownScheme(text.into()))
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Hamming { step, smart_media: false } => write!(f, "hamming-{step}"),
            Self::Hamming { step, smart_media: true } => write!(f, "smartmedia-{step}"),
            Self::Bch { strength, step } => write!(f, "bch-{strength}-{step}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn names_are_read_and_others_refused_with_the_list() {
        for name in ["none", "hamming-256", "smartmedia-512", "bch-4-512", "bch-40-1024"] {
            let scheme: Scheme = name.parse().unwrap();
            assert_eq!(scheme.to_string(), name);
        }
        for name in
            ["", "hamming", "hamming-1024", "bch-4", "bch-0-512", "bch-4-100", "bch-900-512"]
        {
            let wrong = name.parse::<Scheme>().unwrap_err().to_string();
            assert!(wrong.contains("smartmedia-256"), "{wrong}");
        }
    }
}
