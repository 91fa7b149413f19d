//! Text fields of fixed length, padded with spaces.

use core::fmt;

/// ASCII of fixed length, left-aligned, padded with spaces (SPC-6 4.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Text<const N: usize>(pub [u8; N]);

impl<const N: usize> Text<N> {
    /// The text, truncated or padded to the length.
    pub const fn new(text: &str) -> Self {
        let mut bytes = [b' '; N];
        let from = text.as_bytes();
        let mut n = 0;
        while n < N && n < from.len() {
            bytes[n] = from[n];
            n += 1;
        }
        Self(bytes)
    }

    /// The bytes without padding: spaces and zeros at the end.
    pub fn trimmed(&self) -> &[u8] {
        let end = self.0.iter().rposition(|byte| !matches!(byte, b' ' | 0)).map_or(0, |n| n + 1);
        &self.0[..end]
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self([b' '; N])
    }
}

/// Without padding; a byte that is not printable ASCII becomes a question mark.
impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.trimmed() {
            let printable = matches!(byte, b' '..=b'~');
            fmt::Write::write_char(f, if printable { char::from(*byte) } else { '?' })?;
        }
        Ok(())
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}
