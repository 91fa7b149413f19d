//! `geom nop`: injected failures, like gnop(8). Useful in a script, where later lines encounter
//! them.

use flysch_api::block::{BlockError, Cause};
use flysch_geom::class::{self, nop};

use super::session::Session;
use super::{list, text};
use crate::failure::Failure;
use crate::output::Output;

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Put a NOP on providers.
    Create(Create),
    /// Change the settings of NOPs.
    Configure(Failures),
    /// Reset the counters.
    Reset {
        /// The NOPs.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Remove NOPs.
    Destroy {
        /// Also if they are open.
        #[arg(short)]
        force: bool,
        /// The NOPs.
        #[arg(required = true)]
        names: Vec<String>,
    },
    #[command(flatten)]
    Show(list::Verb),
}

/// How and when requests fail and wait; settings that are not given stay unchanged, initially off.
#[derive(Debug, clap::Args)]
pub(super) struct Failures {
    /// The error of failed requests: 5 (EIO) for a medium error, 6 (ENXIO) for a missing disk;
    /// initially 5.
    #[arg(short = 'e', value_name = "ERRNO", value_parser = errno)]
    error: Option<BlockError>,
    /// Percentage of reads that fail.
    #[arg(short = 'r', value_name = "PERCENT", value_parser = percentage())]
    reads: Option<u8>,
    /// Percentage of writes that fail.
    #[arg(short = 'w', value_name = "PERCENT", value_parser = percentage())]
    writes: Option<u8>,
    /// Requests that pass before any fails.
    #[arg(short = 'c', value_name = "COUNT")]
    count: Option<u64>,
    /// Milliseconds that delayed queued requests wait, initially 1.
    #[arg(short = 'd', value_name = "MILLISECONDS")]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=86_400_000))]
    delay: Option<u64>,
    /// Percentage of reads that are delayed.
    #[arg(short = 'q', value_name = "PERCENT", value_parser = percentage())]
    read_delays: Option<u8>,
    /// Percentage of writes that are delayed.
    #[arg(short = 'x', value_name = "PERCENT", value_parser = percentage())]
    write_delays: Option<u8>,
    /// Providers, or NOPs.
    #[arg(required = true)]
    names: Vec<String>,
}

/// Options of `geom nop create`.
#[derive(Debug, clap::Args)]
pub(super) struct Create {
    /// Bytes to skip at the start.
    #[arg(short = 'o', value_name = "BYTES", default_value = "0", value_parser = size)]
    offset: u64,
    /// Size of the provider in bytes.
    #[arg(short = 's', value_name = "BYTES", default_value = "0", value_parser = size)]
    size: u64,
    /// Bytes of a sector.
    #[arg(short = 'S', value_name = "BYTES", default_value = "0", value_parser = size)]
    sector: u64,
    /// Bytes of a stripe.
    #[arg(short = 'p', value_name = "BYTES", default_value = "0", value_parser = size)]
    stripe: u64,
    /// Offset of the stripe start in bytes.
    #[arg(short = 'P', value_name = "BYTES", default_value = "0", value_parser = size)]
    stripe_offset: u64,
    /// The physical path to report.
    #[arg(short = 'z', value_name = "PATH")]
    path: Option<String>,
    /// Its name, in front of `.nop`; default: the provider's.
    #[arg(short = 'Z', value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    failures: Failures,
}

fn size(text: &str) -> Result<u64, String> {
    text::bytes(text).ok_or_else(|| format!("`{text}` is not a size such as 4096, 512k or 1g"))
}

fn errno(text: &str) -> Result<BlockError, String> {
    match text {
        "5" => Ok(BlockError::Medium(Cause::None)),
        "6" => Ok(BlockError::Gone),
        _ => Err("it must be 5 (EIO) or 6 (ENXIO)".into()),
    }
}

fn percentage() -> clap::builder::RangedI64ValueParser<u8> {
    clap::value_parser!(u8).range(0..=100)
}

impl Failures {
    /// Changes the given settings.
    fn over(&self, options: &mut nop::NopOptions) {
        let percent = |given: Option<u8>, before: u32| given.map_or(before, u32::from);
        options.read_failures = percent(self.reads, options.read_failures);
        options.write_failures = percent(self.writes, options.write_failures);
        options.read_delays = percent(self.read_delays, options.read_delays);
        options.write_delays = percent(self.write_delays, options.write_delays);
        options.count_until_fail = self.count.unwrap_or(options.count_until_fail);
        options.delay_millis = self.delay.unwrap_or(options.delay_millis);
        options.error = self.error.unwrap_or(options.error);
    }
}

/// Executes the verb.
pub(super) fn run(session: &mut Session, verb: &Verb, output: &mut Output) -> Result<(), Failure> {
    let graph = &mut session.graph;
    let done = match verb {
        Verb::Show(verb) => return list::run(session, "NOP", verb, output),
        Verb::Create(create) => {
            if create.name.is_some() && create.failures.names.len() > 1 {
                return Err(Failure::usage("-Z: only one provider can have the name"));
            }
            let sector_size = u32::try_from(create.sector)
                .map_err(|_| Failure::usage("-S: the size of a sector is impossible"))?;
            let mut options = nop::NopOptions {
                offset: create.offset,
                size: create.size,
                sector_size,
                stripe_size: create.stripe,
                stripe_offset: create.stripe_offset,
                physical_path: create.path.clone(),
                name: create.name.clone(),
                ..nop::NopOptions::default()
            };
            create.failures.over(&mut options);
            create.failures.names.iter().try_for_each(|name| {
                let provider = graph.provider(name)?;
                nop::create(graph, provider, options.clone()).map(drop)
            })
        }
        Verb::Configure(failures) => failures.names.iter().try_for_each(|name| {
            let geom = graph.geom("NOP", name)?;
            nop::configure(graph, geom, |options| failures.over(options))
        }),
        Verb::Reset { names } => names
            .iter()
            .try_for_each(|name| graph.geom("NOP", name).map(|geom| nop::reset(graph, geom))),
        Verb::Destroy { force, names } => names.iter().try_for_each(|name| {
            graph.geom("NOP", name).and_then(|geom| class::destroy(graph, geom, *force))
        }),
    };
    done.map_err(|error| session.failure(error))
}
