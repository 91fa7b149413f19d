//! Releases of QEMU.

use std::fmt;

/// The release that added the UFS device.
pub(crate) const OLDEST: Version = Version { major: 8, minor: 2, micro: 0 };

/// A release of QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major number.
    pub major: u16,
    /// Minor number.
    pub minor: u16,
    /// Bug-fix number.
    pub micro: u16,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

impl Version {
    /// The version of a QEMU that does not report one.
    pub(crate) const UNKNOWN: Self = Self { major: 0, minor: 0, micro: 0 };

    /// Reads the first line of `qemu --version`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let rest = text.lines().next()?.strip_prefix("QEMU emulator version ")?;
        let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(rest.len());
        let mut parts = rest[..end].split('.').map(str::parse);
        Some(Self {
            major: parts.next()?.ok()?,
            minor: parts.next()?.ok()?,
            micro: parts.next().and_then(Result::ok).unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_qemu_prints_them() {
        let v = |major, minor, micro| Some(Version { major, minor, micro });
        let debian = "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright";
        assert_eq!(Version::parse(debian), v(10, 0, 2));
        assert_eq!(Version::parse("QEMU emulator version 8.2.0-rc3"), v(8, 2, 0));
        assert_eq!(Version::parse("QEMU emulator version 9.1"), v(9, 1, 0));
        for text in ["", "QEMU", "QEMU emulator version ", "QEMU emulator version x.y", "bash 5"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
        assert!(Version { major: 7, minor: 2, micro: 22 } < OLDEST);
        assert!(Version { major: 10, minor: 0, micro: 0 } > OLDEST);
    }
}
