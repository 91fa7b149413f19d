//! `geom zero`: an exbibyte of zeros, like FreeBSD's geom_zero.

use flysch_geom::class::zero;

use super::list;
use super::session::Session;
use crate::failure::Failure;
use crate::output::Output;

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Create the provider gzero, for as long as this command runs (useful in a script, a rig, a
    /// mount).
    Load,
    /// Remove it.
    Unload,
    #[command(flatten)]
    Show(list::Verb),
}

/// Executes the verb.
pub(super) fn run(session: &mut Session, verb: &Verb, output: &mut Output) -> Result<(), Failure> {
    let done = match verb {
        Verb::Load => zero::load(&mut session.graph).map(|_| ()),
        Verb::Unload => zero::unload(&mut session.graph),
        Verb::Show(verb) => return list::run(session, "ZERO", verb, output),
    };
    done.map_err(|error| session.failure(error))
}
