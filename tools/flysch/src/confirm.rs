//! Consent to what cannot be undone, and the report that it was done.

use std::io::{self, IsTerminal, Write};

use serde_json::Value;

use crate::failure::Failure;
use crate::output::Output;

/// Whether the user has said yes already.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Consent {
    /// Do it without asking.
    #[arg(long, short)]
    yes: bool,
}

impl Consent {
    /// Asks on a terminal; without one, consent is `--yes`.
    pub(crate) fn ask(self, what: &str) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Err(Failure::usage(format!("{what} Add --yes if that is wanted")));
        }
        eprint!("{what} Go on? [y/N] ");
        let _ = io::stderr().flush();
        let mut line = String::new();
        let read = io::stdin().read_line(&mut line);
        match read.is_ok() && matches!(line.trim(), "y" | "Y" | "yes") {
            true => Ok(()),
            false => Err(Failure::failed("nothing was done")),
        }
    }
}

/// Reports that something was done: a line for people, `value` for programs.
pub(crate) fn done(output: &mut Output, value: &Value, line: &str) -> Result<(), Failure> {
    if output.json() { output.value(value) } else { output.line(line) }
}
