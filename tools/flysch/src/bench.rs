//! `flysch bench`.

use crate::failure::Failure;
use crate::output::Output;

/// Options of `flysch bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

/// Runs workloads.
pub(crate) fn run(_arguments: &Arguments, _output: &mut Output) -> Result<(), Failure> {
    Err(Failure::usage("bench is not wired up yet"))
}
