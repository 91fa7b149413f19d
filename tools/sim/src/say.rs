//! Lines on standard output.

use std::fmt::Arguments;
use std::io::{Write as _, stdout};

/// The exit status of a program ended by SIGPIPE.
const NOBODY_READS: i32 = 128 + 13;

/// Writes a line. If nobody reads any more - `| head` has seen enough - the program ends silently,
/// as others do.
pub(crate) fn line(text: Arguments<'_>) {
    if writeln!(stdout(), "{text}").is_err() {
        std::process::exit(NOBODY_READS);
    }
}

/// As `println!`, by [`line`].
macro_rules! say {
    ($($part:tt)*) => { $crate::say::line(format_args!($($part)*)) };
}
