//! `geom stripe` and `geom concat`, as gstripe(8) and gconcat(8).

use flysch_geom::class::{self, concat, stripe};
use flysch_geom::{GeomError, Graph, ProviderId};

use super::session::Session;
use super::{dump, list, text};
use crate::failure::Failure;
use crate::output::Output;

/// What to do with stripes.
#[derive(Debug, clap::Subcommand)]
pub(super) enum StripeVerb {
    /// Join providers permanently, by labels in their last sectors.
    #[command(disable_help_flag = true)]
    Label(Stripe),
    /// Join providers for as long as this command runs (useful in a script).
    #[command(disable_help_flag = true)]
    Create(Stripe),
    #[command(flatten)]
    Common(Common),
}

/// What to do with concatenations.
#[derive(Debug, clap::Subcommand)]
pub(super) enum ConcatVerb {
    /// Join providers permanently, by labels in their last sectors.
    #[command(disable_help_flag = true)]
    Label(Concat),
    /// Join providers for as long as this command runs (useful in a script).
    #[command(disable_help_flag = true)]
    Create(Concat),
    /// Append providers; the existing content stays where it is.
    #[command(disable_help_flag = true)]
    Append(Concat),
    #[command(flatten)]
    Common(Common),
}

/// What can be done with both.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Common {
    /// Take it apart; the labels remain.
    Stop(Stop),
    /// Take it apart and clear its labels.
    Destroy(Stop),
    /// Clear the labels of providers.
    Clear {
        /// The providers.
        #[arg(required = true)]
        providers: Vec<String>,
    },
    #[command(flatten)]
    Dump(dump::Verb),
    #[command(flatten)]
    Show(list::Verb),
}

/// Options of `stop` and `destroy`.
#[derive(Debug, clap::Args)]
pub(super) struct Stop {
    /// Also if it is open.
    #[arg(short)]
    force: bool,
    /// The names.
    #[arg(required = true)]
    names: Vec<String>,
}

/// Options of a new stripe.
#[derive(Debug, clap::Args)]
pub(super) struct Stripe {
    /// Stripe size in bytes.
    #[arg(short = 's', value_name = "BYTES", default_value = "64k")]
    size: String,
    #[command(flatten)]
    parts: Concat,
}

/// Options of a new concatenation.
#[derive(Debug, clap::Args)]
pub(super) struct Concat {
    /// Accept only providers with these names.
    #[arg(short = 'h')]
    hardcode: bool,
    /// Print help; `-h` means what it means in FreeBSD.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Its name.
    name: String,
    /// The providers, in order.
    #[arg(required = true)]
    providers: Vec<String>,
}

fn providers(graph: &Graph, names: &[String]) -> Result<Vec<ProviderId>, GeomError> {
    names.iter().map(|name| graph.provider(name)).collect()
}

/// Executes a verb of stripes.
pub(super) fn stripe(
    session: &mut Session,
    verb: &StripeVerb,
    output: &mut Output,
) -> Result<(), Failure> {
    let (given, is_label) = match verb {
        StripeVerb::Common(verb) => return common(session, "STRIPE", verb, output),
        StripeVerb::Label(given) => (given, true),
        StripeVerb::Create(given) => (given, false),
    };
    let size = text::bytes(&given.size).and_then(|bytes| u32::try_from(bytes).ok());
    let stripe_size =
        size.ok_or_else(|| Failure::usage(format!("-s: `{}` is not a valid size", given.size)))?;
    let hardcode = given.parts.hardcode;
    let options = stripe::StripeOptions { stripe_size, hardcode, force: session.force };
    let graph = &mut session.graph;
    let name = &given.parts.name;
    let done = providers(graph, &given.parts.providers).and_then(|under| match is_label {
        true => stripe::label(graph, name, &under, &options),
        false => stripe::create(graph, name, &under, &options),
    });
    done.map_err(|error| session.failure(error))?;
    let stored: &[String] = if is_label { &given.parts.providers } else { &[] };
    session.tell("Metadata value stored on", stored, output)
}

/// Executes a verb of concatenations.
pub(super) fn concat(
    session: &mut Session,
    verb: &ConcatVerb,
    output: &mut Output,
) -> Result<(), Failure> {
    let options =
        |given: &Concat| concat::ConcatOptions { hardcode: given.hardcode, force: session.force };
    let (done, stored): (_, &[String]) = match verb {
        ConcatVerb::Common(verb) => return common(session, "CONCAT", verb, output),
        ConcatVerb::Label(given) => {
            let options = options(given);
            let graph = &mut session.graph;
            let done = providers(graph, &given.providers)
                .and_then(|under| concat::label(graph, &given.name, &under, &options));
            (done, &given.providers)
        }
        ConcatVerb::Create(given) => {
            let graph = &mut session.graph;
            let done = providers(graph, &given.providers)
                .and_then(|under| concat::create(graph, &given.name, &under));
            (done, &[])
        }
        ConcatVerb::Append(given) => {
            let options = options(given);
            let graph = &mut session.graph;
            let done = graph.geom("CONCAT", &given.name).and_then(|geom| {
                let under = providers(graph, &given.providers)?;
                concat::append(graph, geom, &under, &options)
            });
            (done, &[])
        }
    };
    done.map_err(|error| session.failure(error))?;
    session.tell("Metadata value stored on", stored, output)
}

/// Executes the verbs that all classes of joined providers have.
fn common(
    session: &mut Session,
    class: &str,
    verb: &Common,
    output: &mut Output,
) -> Result<(), Failure> {
    let graph = &mut session.graph;
    let done = match verb {
        Common::Show(verb) => return list::run(session, class, verb, output),
        Common::Dump(verb) => return dump::run(session, class, verb, output),
        Common::Stop(stop) => stop.names.iter().try_for_each(|name| {
            graph.geom(class, name).and_then(|geom| class::destroy(graph, geom, stop.force))
        }),
        Common::Destroy(stop) => stop.names.iter().try_for_each(|name| {
            let geom = graph.geom(class, name)?;
            let consumers = graph[geom].consumers.iter();
            let under: Vec<_> = consumers.filter_map(|&c| graph[c].provider).collect();
            class::destroy(graph, geom, stop.force)?;
            under.into_iter().try_for_each(|under| class::clear(graph, class, under))
        }),
        Common::Clear { providers } => providers.iter().try_for_each(|provider| {
            graph.provider(provider).and_then(|provider| class::clear(graph, class, provider))
        }),
    };
    done.map_err(|error| session.failure(error))?;
    match verb {
        Common::Clear { providers } => session.tell("Metadata cleared on", providers, output),
        _ => Ok(()),
    }
}
