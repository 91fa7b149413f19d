//! Numbers of things in messages.

use core::fmt;

/// A number and what it counts, in words: see [`counted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted<'a, N> {
    number: N,
    one: &'a str,
    many: &'a str,
}

/// `number` before `one` if it is 1, and before `many` otherwise.
///
/// ```
/// use flysch_api::count::counted;
///
/// assert_eq!(counted(1, "file is damaged", "files are damaged").to_string(), "1 file is damaged");
/// assert_eq!(counted(0, "entry", "entries").to_string(), "0 entries");
/// ```
pub const fn counted<'a, N>(number: N, one: &'a str, many: &'a str) -> Counted<'a, N> {
    Counted { number, one, many }
}

impl<N: fmt::Display + PartialEq + From<u8>> fmt::Display for Counted<'_, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = if self.number == N::from(1) { self.one } else { self.many };
        write!(f, "{} {words}", self.number)
    }
}
