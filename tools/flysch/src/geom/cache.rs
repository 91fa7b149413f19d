//! `geom cache`: a read cache, as gcache(8).

use flysch_geom::class::{self, cache};
use flysch_geom::{GeomError, Graph};

use super::session::Session;
use super::{dump, list, text};
use crate::failure::Failure;
use crate::output::Output;

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Put a cache on a provider, for as long as the command runs.
    Create(New),
    /// Put a cache on a provider permanently.
    Label(New),
    /// Change block size and number of blocks of caches, for as long as the command runs.
    Configure {
        #[command(flatten)]
        sizes: Sizes,
        /// The caches.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Reset the counters.
    Reset {
        /// The caches.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Remove caches; their metadata remains.
    #[command(visible_alias = "destroy")]
    Stop {
        /// Also if they are open.
        #[arg(short)]
        force: bool,
        /// The caches.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Clear the metadata of providers that no cache uses.
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

/// Block size and number of blocks.
#[derive(Debug, clap::Args)]
pub(super) struct Sizes {
    /// Bytes of a block.
    #[arg(short = 'b', value_name = "BYTES")]
    block: Option<String>,
    /// Maximum number of blocks to keep.
    #[arg(short = 's', value_name = "BLOCKS")]
    size: Option<u32>,
}

/// Options of `geom cache create` and `label`.
#[derive(Debug, clap::Args)]
pub(super) struct New {
    #[command(flatten)]
    sizes: Sizes,
    /// Its name.
    name: String,
    /// The provider.
    provider: String,
}

impl Sizes {
    fn over(&self, before: cache::CacheOptions) -> Result<cache::CacheOptions, Failure> {
        let wrong = |text: &str| Failure::usage(format!("-b: `{text}` is not a valid size"));
        let block = self.block.as_deref().map(|it| {
            let bytes = text::bytes(it).and_then(|bytes| u32::try_from(bytes).ok());
            bytes.ok_or_else(|| wrong(it))
        });
        let block_size = block.transpose()?.unwrap_or(before.block_size);
        Ok(cache::CacheOptions { block_size, size: self.size.unwrap_or(before.size) })
    }
}

/// Executes the verb.
pub(super) fn run(session: &mut Session, verb: &Verb, output: &mut Output) -> Result<(), Failure> {
    let force_over = session.force;
    let graph = &mut session.graph;
    let done = match verb {
        Verb::Show(verb) => return list::run(session, "CACHE", verb, output),
        Verb::Dump(verb) => return dump::run(session, "CACHE", verb, output),
        Verb::Create(New { sizes, name, provider }) => {
            let options = sizes.over(cache::CacheOptions::default())?;
            let found = graph.provider(provider);
            found.and_then(|provider| cache::create(graph, name, provider, options))
        }
        Verb::Label(New { sizes, name, provider }) => {
            let options = sizes.over(cache::CacheOptions::default())?;
            let found = graph.provider(provider);
            found.and_then(|provider| cache::label(graph, name, provider, (options, force_over)))
        }
        Verb::Configure { sizes, names } => {
            let mut done = Ok(());
            for name in names {
                done = done.and(configure(graph, name, sizes)?);
            }
            done
        }
        Verb::Reset { names } => names
            .iter()
            .try_for_each(|name| graph.geom("CACHE", name).map(|geom| cache::reset(graph, geom))),
        Verb::Stop { force, names } => names.iter().try_for_each(|name| {
            graph.geom("CACHE", name).and_then(|geom| class::destroy(graph, geom, *force))
        }),
        Verb::Clear { providers } => providers.iter().try_for_each(|name| {
            let provider = graph.provider(name)?;
            class::guard::in_use(graph, provider)?;
            class::clear(graph, "CACHE", provider)
        }),
    };
    done.map_err(|error| session.failure(error))?;
    match verb {
        Verb::Label(New { provider, .. }) => {
            session.tell("Metadata value stored on", std::slice::from_ref(provider), output)
        }
        Verb::Clear { providers } => session.tell("Metadata cleared on", providers, output),
        _ => Ok(()),
    }
}

fn configure(
    graph: &mut Graph,
    name: &str,
    sizes: &Sizes,
) -> Result<Result<(), GeomError>, Failure> {
    let geom = match graph.geom("CACHE", name) {
        Ok(geom) => geom,
        Err(error) => return Ok(Err(error)),
    };
    let options = sizes.over(cache::options(graph, geom).unwrap_or_default())?;
    Ok(cache::configure(graph, geom, options))
}
