//! The power supply of a chip, and plans to cut it.

use core::fmt;
use core::str::FromStr;

use alloc::vec::Vec;

use flysch_api::flash::FlashError;

/// How far a program or an erase has got when power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tear {
    /// Nothing has happened.
    Before,
    /// A few cells have changed, some of them only just: the page looks erased, or the block looks
    /// unchanged.
    Early,
    /// Cells are anywhere in between, and many read differently each time.
    Half,
    /// All but a few cells have changed: the page looks programmed, or the block looks erased;
    /// error correction may or may not cope.
    Late,
    /// Everything is done; only the answer is missing.
    After,
}

impl Tear {
    /// All of them, in order of time.
    pub const ALL: [Self; 5] = [Self::Before, Self::Early, Self::Half, Self::Late, Self::After];

    /// The letters, in words.
    pub const LETTERS: &'static str = "b, e, h, l or a";

    /// Its letter in cut lists.
    pub const fn letter(self) -> char {
        match self {
            Self::Before => 'b',
            Self::Early => 'e',
            Self::Half => 'h',
            Self::Late => 'l',
            Self::After => 'a',
        }
    }
}

impl fmt::Display for Tear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Before => "before",
            Self::Early => "early",
            Self::Half => "half",
            Self::Late => "late",
            Self::After => "after",
        })
    }
}

impl FromStr for Tear {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut letters = text.chars();
        let found =
            Self::ALL.into_iter().find(|tear| letters.clone().next() == Some(tear.letter()));
        letters.next();
        found
            .filter(|_| letters.next().is_none())
            .ok_or("a tear is b(efore), e(arly), h(alf), l(ate) or a(fter)")
    }
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It completes.
    Done,
    /// The chip reports a failure.
    Fails,
    /// Power fails during it.
    Torn(Tear),
}

/// The power supply: counts operations and fails as planned.
#[derive(Clone, Debug)]
pub struct Power {
    operations: u64,
    cut: Option<(u64, Tear)>,
    failing: Vec<u64>,
    is_on: bool,
}

impl Default for Power {
    fn default() -> Self {
        Self { operations: 0, cut: None, failing: Vec::new(), is_on: true }
    }
}

impl Power {
    /// Programs and erases begun so far.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Whether power is on.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Cuts power during operation `number` (of [`operations`](Self::operations)).
    pub fn cut_at(&mut self, number: u64, tear: Tear) {
        self.cut = Some((number, tear));
    }

    /// Makes operation `number` fail, as in worn cells.
    pub fn fail_at(&mut self, number: u64) {
        self.failing.push(number);
    }

    /// Restores power; a cut that is still planned is cancelled.
    pub fn on(&mut self) {
        self.is_on = true;
        self.cut = None;
    }

    /// Cuts power between two operations.
    pub fn off(&mut self) {
        self.is_on = false;
    }

    /// Returns an error if power is off.
    pub(crate) fn check(&self) -> Result<(), FlashError> {
        if self.is_on { Ok(()) } else { Err(FlashError::PowerLost) }
    }

    /// Counts an operation and returns its outcome.
    pub(crate) fn begin(&mut self) -> Result<Operation, FlashError> {
        self.check()?;
        let number = self.operations;
        self.operations += 1;
        if let Some((at, tear)) = self.cut
            && at == number
        {
            self.is_on = false;
            return Ok(Operation::Torn(tear));
        }
        Ok(if self.failing.contains(&number) { Operation::Fails } else { Operation::Done })
    }
}
