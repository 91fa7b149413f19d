//! Counts of opens: for reading, for writing, to exclude other writers.

use core::fmt;

/// Open counts, or changes to them: reading, writing, excluding other writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Opens for reading.
    pub read: i32,
    /// Opens for writing.
    pub write: i32,
    /// Opens that exclude other writers.
    pub exclusive: i32,
}

impl Access {
    /// No access.
    pub const NONE: Self = Self::new(0, 0, 0);
    /// Read access only, as classes taste.
    pub const READ: Self = Self::new(1, 0, 0);
    /// Read, write and exclusive access.
    pub const ALONE: Self = Self::new(1, 1, 1);

    /// Access with these counts.
    #[must_use]
    pub const fn new(read: i32, write: i32, exclusive: i32) -> Self {
        Self { read, write, exclusive }
    }

    /// The change that undoes this one.
    #[must_use]
    pub const fn undone(self) -> Self {
        Self::new(-self.read, -self.write, -self.exclusive)
    }

    /// The sum of both changes.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self::new(
            self.read + other.read,
            self.write + other.write,
            self.exclusive + other.exclusive,
        )
    }

    /// Whether it increases any count.
    #[must_use]
    pub const fn opens(self) -> bool {
        self.read > 0 || self.write > 0 || self.exclusive > 0
    }

    /// Whether it closes more than was opened.
    pub(crate) fn is_negative(self) -> bool {
        self.read < 0 || self.write < 0 || self.exclusive < 0
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}w{}e{}", self.read, self.write, self.exclusive)
    }
}
