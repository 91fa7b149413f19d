//! `geom nop`: failures on purpose, as gnop(8). Of use in a script, where later lines meet them.

use flysch_api::block::{Cause, Error};
use flysch_geom::class::{self, nop};

use super::session::Session;
use super::{list, text};
use crate::failure::Failure;
use crate::output::Output;

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Put a NOP onto providers.
    Create(Create),
    /// Change what NOPs do.
    Configure(Failures),
    /// Set the counters to 0.
    Reset {
        /// The NOPs.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Take NOPs away.
    Destroy {
        /// Also those that are open.
        #[arg(short)]
        force: bool,
        /// The NOPs.
        #[arg(required = true)]
        names: Vec<String>,
    },
    #[command(flatten)]
    Show(list::Verb),
}

/// How and when requests fail.
#[derive(Debug, clap::Args)]
pub(super) struct Failures {
    /// What they fail with: 5 for an error of the medium, 6 for a disk that is gone.
    #[arg(short = 'e', value_name = "ERRNO", default_value = "5")]
    error: u32,
    /// Percentage of reads that fail.
    #[arg(short = 'r', value_name = "PERCENT", default_value = "0")]
    reads: u32,
    /// Percentage of writes that fail.
    #[arg(short = 'w', value_name = "PERCENT", default_value = "0")]
    writes: u32,
    /// Requests that pass before any fails.
    #[arg(short = 'c', value_name = "COUNT", default_value = "0")]
    count: u64,
    /// Providers, or NOPs.
    #[arg(required = true)]
    names: Vec<String>,
}

/// Options of `geom nop create`.
#[derive(Debug, clap::Args)]
pub(super) struct Create {
    /// Bytes left out in front.
    #[arg(short = 'o', value_name = "BYTES", default_value = "0", value_parser = size)]
    offset: u64,
    /// Bytes of the provider.
    #[arg(short = 's', value_name = "BYTES", default_value = "0", value_parser = size)]
    size: u64,
    /// Bytes of a sector.
    #[arg(short = 'S', value_name = "BYTES", default_value = "0", value_parser = size)]
    sector: u64,
    /// Bytes of a stripe.
    #[arg(short = 'p', value_name = "BYTES", default_value = "0", value_parser = size)]
    stripe: u64,
    /// Bytes behind the start of a stripe.
    #[arg(short = 'P', value_name = "BYTES", default_value = "0", value_parser = size)]
    stripe_offset: u64,
    /// The physical path that it tells.
    #[arg(short = 'z', value_name = "PATH")]
    path: Option<String>,
    #[command(flatten)]
    failures: Failures,
}

fn size(text: &str) -> Result<u64, String> {
    text::bytes(text).ok_or_else(|| format!("`{text}` is not a size such as 4096, 512k or 1g"))
}

impl Failures {
    fn error(&self) -> Result<Error, Failure> {
        if self.reads > 100 || self.writes > 100 {
            return Err(Failure::usage("a percentage is at most 100"));
        }
        match self.error {
            5 => Ok(Error::Medium(Cause::None)),
            6 => Ok(Error::Gone),
            other => Err(Failure::usage(format!("-e {other}: 5 (EIO) and 6 (ENXIO) can be"))),
        }
    }
}

/// Does it.
pub(super) fn run(session: &mut Session, verb: &Verb, output: &mut Output) -> Result<(), Failure> {
    let graph = &mut session.graph;
    let done = match verb {
        Verb::Show(verb) => return list::run(session, "NOP", verb, output),
        Verb::Create(create) => {
            let error = create.failures.error()?;
            let sector_size = u32::try_from(create.sector)
                .map_err(|_| Failure::usage("-S: such a sector cannot be"))?;
            let options = nop::Options {
                offset: create.offset,
                size: create.size,
                sector_size,
                stripe_size: create.stripe,
                stripe_offset: create.stripe_offset,
                read_failures: create.failures.reads,
                write_failures: create.failures.writes,
                count_until_fail: create.failures.count,
                error,
                physical_path: create.path.clone(),
                ..nop::Options::default()
            };
            create.failures.names.iter().try_for_each(|name| {
                let provider = graph.provider(name)?;
                nop::create(graph, provider, options.clone()).map(drop)
            })
        }
        Verb::Configure(failures) => {
            let error = failures.error()?;
            failures.names.iter().try_for_each(|name| {
                let geom = graph.geom("NOP", name)?;
                nop::configure(graph, geom, |options| {
                    options.read_failures = failures.reads;
                    options.write_failures = failures.writes;
                    options.count_until_fail = failures.count;
                    options.error = error;
                })
            })
        }
        Verb::Reset { names } => names
            .iter()
            .try_for_each(|name| graph.geom("NOP", name).map(|geom| nop::reset(graph, geom))),
        Verb::Destroy { force, names } => names.iter().try_for_each(|name| {
            graph.geom("NOP", name).and_then(|geom| class::destroy(graph, geom, *force))
        }),
    };
    done.map_err(|error| session.failure(error))
}
