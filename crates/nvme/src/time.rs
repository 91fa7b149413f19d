//! Units of time, nanoseconds.

pub(crate) const MS: u64 = 1_000_000;
