//! Software error correction, laid out in the out-of-band bytes as in Linux.

mod bch;
mod hamming;
mod scheme;

pub use bch::Bch;
pub use scheme::{Scheme, UnknownScheme};

use core::fmt;

/// A way to correct bit errors, step by step.
#[derive(Clone, Debug)]
pub enum Ecc {
    /// None, or a scheme known only to the controller of the board.
    None,
    /// Hamming code over 256 or 512 bytes: one bit corrected per step.
    Hamming {
        /// Bytes of data per step.
        step: usize,
        /// Whether the first two bytes of the code are swapped, as on SmartMedia cards.
        smart_media: bool,
    },
    /// A binary BCH code.
    Bch(Bch),
}

impl Ecc {
    /// Bytes of data per step; 0 without error correction.
    pub fn step(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Hamming { step, .. } => *step,
            Self::Bch(code) => code.step(),
        }
    }

    /// Bytes of code per step.
    pub fn code_len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Hamming { .. } => 3,
            Self::Bch(code) => code.code_len(),
        }
    }

    /// Bits corrected per step.
    pub fn strength(&self) -> u32 {
        match self {
            Self::None => 0,
            Self::Hamming { .. } => 1,
            Self::Bch(code) => code.strength(),
        }
    }

    /// Computes the code of `data`, one step, into `code`, which is [`code_len`](Self::code_len)
    /// bytes long.
    pub fn compute(&self, data: &[u8], code: &mut [u8]) {
        match self {
            Self::None => {}
            Self::Hamming { smart_media, .. } => {
                code.copy_from_slice(&hamming::compute(data));
                if *smart_media {
                    code.swap(0, 1);
                }
            }
            Self::Bch(bch) => {
                let len = code.len();
                code.copy_from_slice(&bch.compute(data)[..len]);
            }
        }
    }

    /// As [`compute`](Self::compute) for several steps, with their codes one after the other.
    pub(crate) fn compute_all(&self, data: &[u8], codes: &mut [u8]) {
        match self {
            Self::Bch(bch) => bch.compute_all(data, codes),
            _ => {
                let codes = codes.chunks_exact_mut(self.code_len().max(1));
                let steps = data.chunks_exact(self.step().max(1)).zip(codes);
                steps.for_each(|(data, code)| self.compute(data, code));
            }
        }
    }

    /// As [`correct`](Self::correct) for several steps; `each` receives the result of each, in any
    /// order.
    pub(crate) fn correct_all(
        &self,
        data: &mut [u8],
        codes: &[u8],
        mut each: impl FnMut(usize, Option<u32>),
    ) {
        match self {
            Self::Bch(bch) => bch.correct_all(data, codes, each),
            _ => {
                let codes = codes.chunks_exact(self.code_len().max(1));
                let steps = data.chunks_exact_mut(self.step().max(1)).zip(codes);
                for (at, (data, code)) in steps.enumerate() {
                    each(at, self.correct(data, code));
                }
            }
        }
    }

    /// Corrects `data`, one step, with its stored `code`; returns the number of bits corrected in
    /// both, or `None` if there are more than can be corrected.
    pub fn correct(&self, data: &mut [u8], code: &[u8]) -> Option<u32> {
        match self {
            Self::None => Some(0),
            Self::Hamming { smart_media: false, .. } => {
                hamming::correct(data, [code[0], code[1], code[2]])
            }
            Self::Hamming { smart_media: true, .. } => {
                hamming::correct(data, [code[1], code[0], code[2]])
            }
            Self::Bch(bch) => bch.correct(data, code),
        }
    }
}

impl fmt::Display for Ecc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no known ECC"),
            Self::Hamming { step, smart_media } => {
                let order = if *smart_media { ", SmartMedia order" } else { "" };
                write!(f, "Hamming, 1 bit per {step} bytes{order}")
            }
            Self::Bch(code) => {
                write!(f, "BCH, {} bits per {} bytes", code.strength(), code.step())
            }
        }
    }
}
