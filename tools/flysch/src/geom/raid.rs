//! `geom raid`, as graid(8).

use flysch_geom::class::raid;
use flysch_geom::{GeomError, Graph, ProviderId};
use serde_json::json;

use super::rebuild::{self, Rate};
use super::session::Session;
use super::{list, text};
use crate::failure::Failure;
use crate::output::Output;

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Make an array of disks, with one volume.
    Label(Label),
    /// Add a volume to an array.
    Add(Add),
    /// Remove a volume; with the last one, or if none is named, the array.
    Delete {
        /// Also if it is open.
        #[arg(short)]
        force: bool,
        /// The array.
        name: String,
        /// The volume, by its name or number.
        volume: Option<String>,
    },
    /// Replace missing or failed disks and rebuild; disks beyond that become spares.
    Insert {
        #[command(flatten)]
        rate: Rate,
        #[command(flatten)]
        disks: Disks,
    },
    /// Remove disks permanently and erase their metadata.
    Remove(Disks),
    /// Mark disks as failed.
    Fail(Disks),
    /// Rebuild whatever needs it: disks that came back, copies that may differ; spares replace
    /// failed or missing disks.
    Rebuild {
        #[command(flatten)]
        rate: Rate,
        /// The array.
        name: String,
    },
    /// Remove arrays; the metadata remains.
    Stop {
        /// Also if it is open.
        #[arg(short)]
        force: bool,
        /// The arrays.
        #[arg(required = true)]
        names: Vec<String>,
    },
    #[command(flatten)]
    Show(list::Verb),
}

/// The size of a volume.
#[derive(Debug, clap::Args)]
pub(super) struct Sizes {
    /// Bytes to use on each disk.
    #[arg(short = 'S', value_name = "SIZE")]
    size: Option<String>,
    /// Bytes of a strip.
    #[arg(short = 's', value_name = "STRIP", default_value = "128k")]
    strip: String,
}

/// Options of `geom raid label`.
#[derive(Debug, clap::Args)]
pub(super) struct Label {
    #[command(flatten)]
    sizes: Sizes,
    /// An option of the format: BE, the byte order of DDF.
    #[arg(short = 'o', value_name = "OPTION", value_parser = format_option)]
    option: Option<String>,
    /// The format of the metadata: Intel, DDF.
    format: String,
    /// The volume's name.
    label: String,
    /// RAID0, RAID1, RAID10.
    level: String,
    /// The disks, in order.
    #[arg(required = true)]
    providers: Vec<String>,
}

/// Options of `geom raid add`.
#[derive(Debug, clap::Args)]
pub(super) struct Add {
    #[command(flatten)]
    sizes: Sizes,
    /// The array.
    name: String,
    /// The volume's name.
    label: String,
    /// RAID0, RAID1, RAID10.
    level: String,
}

/// An array and some disks.
#[derive(Debug, clap::Args)]
pub(super) struct Disks {
    /// The array.
    name: String,
    /// The disks.
    #[arg(required = true)]
    providers: Vec<String>,
}

fn format_option(text: &str) -> Result<String, String> {
    match text {
        "BE" => Ok(text.into()),
        "LE" => Err("DDF cannot be written in the other byte order (LE); use BE".into()),
        _ => Err(format!(
            "`{text}` is not an option of a format; the only one is BE, the byte order of DDF"
        )),
    }
}

fn size(option: &str, text: &str) -> Result<u64, Failure> {
    let bytes = text::bytes(text).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| Failure::usage(format!("{option}: `{text}` is not a valid size")))
}

fn options<'a>(
    sizes: &Sizes,
    (name, level): (&'a str, &'a str),
) -> Result<raid::RaidOptions<'a>, Failure> {
    let strip = size("-s", &sizes.strip)?;
    let size = sizes.size.as_deref().map(|text| size("-S", text)).transpose()?;
    Ok(raid::RaidOptions { name, level, size, strip })
}

fn providers(graph: &Graph, names: &[String]) -> Result<Vec<ProviderId>, GeomError> {
    names.iter().map(|name| graph.provider(name)).collect()
}

/// Executes the verb.
pub(super) fn run(session: &mut Session, verb: &Verb, output: &mut Output) -> Result<(), Failure> {
    let force = session.force;
    let graph = &mut session.graph;
    let mut to_rebuild = None;
    let done = match verb {
        Verb::Show(verb) => return list::run(session, "RAID", verb, output),
        Verb::Label(given) => return label(session, given, output),
        Verb::Add(given) => {
            let options = options(&given.sizes, (&given.label, &given.level))?;
            graph.geom("RAID", &given.name).and_then(|geom| raid::add(graph, geom, &options))
        }
        Verb::Delete { force, name, volume } => graph
            .geom("RAID", name)
            .and_then(|geom| raid::delete(graph, geom, volume.as_deref(), *force)),
        Verb::Insert { rate, disks: given } => {
            to_rebuild = Some((&given.name, *rate));
            graph.geom("RAID", &given.name).and_then(|geom| {
                let under = providers(graph, &given.providers)?;
                raid::insert(graph, geom, &under, force)
            })
        }
        Verb::Rebuild { rate, name } => {
            to_rebuild = Some((name, *rate));
            Ok(())
        }
        Verb::Remove(given) => on(graph, given, raid::remove),
        Verb::Fail(given) => on(graph, given, raid::fail),
        Verb::Stop { force, names } => names.iter().try_for_each(|name| {
            graph.geom("RAID", name).and_then(|geom| raid::stop(graph, geom, *force))
        }),
    };
    done.map_err(|error| session.failure(error))?;
    to_rebuild.map_or(Ok(()), |(name, rate)| {
        rebuild::run(session, rebuild::Kind::Raid, (name, rate), output)
    })
}

/// Creates an array, and prints its name.
fn label(session: &mut Session, given: &Label, output: &mut Output) -> Result<(), Failure> {
    if given.option.is_some() && !given.format.eq_ignore_ascii_case("DDF") {
        return Err(Failure::usage(format!("-o: {} has no options, DDF has BE", given.format)));
    }
    let options = options(&given.sizes, (&given.label, &given.level))?;
    let force = session.force;
    let graph = &mut session.graph;
    let made = providers(graph, &given.providers)
        .and_then(|under| raid::label(graph, &given.format, &under, (&options, force)));
    let name = made.map_err(|error| session.failure(error))?;
    match output.json() {
        true => output.value(&json!({ "created": name })),
        false => output.line(format!("{name} created")),
    }
}

/// Executes the verbs for disks of an array.
type Act = fn(&mut Graph, flysch_geom::GeomId, &[&str]) -> Result<(), GeomError>;

fn on(graph: &mut Graph, given: &Disks, act: Act) -> Result<(), GeomError> {
    let geom = graph.geom("RAID", &given.name)?;
    let names: Vec<&str> = given.providers.iter().map(String::as_str).collect();
    act(graph, geom, &names)
}
