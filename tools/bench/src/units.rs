//! Numbers with units, as fio writes and reads them.

use core::fmt;

/// A number of bytes, shown short: `4k`, `128k`, `1m`, `1000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0;
        let mut unit = "";
        for larger in ["k", "m", "g", "t", "p"] {
            if value == 0 || !value.is_multiple_of(1024) {
                break;
            }
            value /= 1024;
            unit = larger;
        }
        write!(f, "{value}{unit}")
    }
}
