//! `geom label`: names of providers, as glabel(8).

use flysch_geom::class::{self, label};

use super::session::Session;
use super::{dump, list};
use crate::failure::Failure;
use crate::output::Output;

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Name a provider permanently, in its last sector.
    Label {
        /// The name.
        name: String,
        /// The provider.
        provider: String,
    },
    /// Name a provider for as long as this command runs (useful in a script).
    Create {
        /// The name.
        name: String,
        /// The provider.
        provider: String,
    },
    /// Forget a name; the label on disk remains.
    Stop {
        /// Also if it is open.
        #[arg(short)]
        force: bool,
        /// The names.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Forget a name and clear its label on disk.
    Destroy {
        /// Also if it is open.
        #[arg(short)]
        force: bool,
        /// The names.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Clear the label in the last sector of providers.
    Clear {
        /// The providers.
        #[arg(required = true)]
        providers: Vec<String>,
    },
    /// Taste providers again, as when they appeared.
    Refresh {
        /// The providers.
        #[arg(required = true)]
        providers: Vec<String>,
    },
    #[command(flatten)]
    Dump(dump::Verb),
    #[command(flatten)]
    Show(list::Verb),
}

/// Executes the verb.
pub(super) fn run(session: &mut Session, verb: &Verb, output: &mut Output) -> Result<(), Failure> {
    let force_over = session.force;
    let graph = &mut session.graph;
    let done = match verb {
        Verb::Show(verb) => return list::run(session, "LABEL", verb, output),
        Verb::Dump(verb) => return dump::run(session, "LABEL", verb, output),
        Verb::Refresh { providers } => providers.iter().try_for_each(|name| {
            let provider = graph.provider(name)?;
            graph.retaste(provider)?;
            graph.settle();
            Ok(())
        }),
        Verb::Label { name, provider } => graph
            .provider(provider)
            .and_then(|provider| label::label(graph, name, provider, force_over)),
        Verb::Create { name, provider } => {
            graph.provider(provider).and_then(|provider| label::create(graph, name, provider))
        }
        Verb::Stop { force, names } => names.iter().try_for_each(|name| {
            label::find(graph, name).and_then(|geom| class::destroy(graph, geom, *force))
        }),
        Verb::Destroy { force, names } => names.iter().try_for_each(|name| {
            let geom = label::find(graph, name)?;
            let under = graph.objects().under(geom);
            class::destroy(graph, geom, *force)?;
            under.map_or(Ok(()), |under| class::clear(graph, "LABEL", under))
        }),
        Verb::Clear { providers } => providers.iter().try_for_each(|provider| {
            graph.provider(provider).and_then(|provider| class::clear(graph, "LABEL", provider))
        }),
    };
    done.map_err(|error| session.failure(error))?;
    match verb {
        Verb::Label { provider, .. } => {
            session.tell("Metadata value stored on", std::slice::from_ref(provider), output)
        }
        Verb::Clear { providers } => session.tell("Metadata cleared on", providers, output),
        _ => Ok(()),
    }
}
