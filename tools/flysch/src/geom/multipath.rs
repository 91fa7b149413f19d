//! `geom multipath`, as gmultipath(8).

use flysch_geom::class::multipath;
use flysch_geom::{GeomError, Graph, ProviderId};
use flysch_wire::geom::multipath::Mode;
use serde_json::json;

use super::list;
use super::session::Session;
use crate::failure::Failure;
use crate::output::Output;

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Label a disk that is visible over several paths: name each of them.
    Label(New),
    /// Join paths for as long as this command runs (useful in a script).
    Create(New),
    /// Change which paths are used for requests.
    Configure {
        #[command(flatten)]
        mode: Modes,
        /// Use one path for all requests.
        #[arg(short = 'P', conflicts_with_all = ["active_active", "active_read"])]
        active_passive: bool,
        /// The disk.
        name: String,
    },
    /// Add a path.
    Add(Path),
    /// Remove a path. If the disk's label is visible over it, the path is back in the next session.
    Remove(Path),
    /// Make a path the active one.
    Prefer(Path),
    /// Mark a path as failed.
    Fail(Path),
    /// Mark a path as good.
    Restore(Path),
    /// Make the next good path the active one.
    Rotate {
        /// The disk.
        name: String,
    },
    /// Print the active paths.
    Getactive {
        /// The disk.
        name: String,
    },
    /// Take disks away and clear their labels.
    Destroy {
        /// Remove disks and clear their labels.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Remove disks; the labels remain.
    Stop {
        /// The disks.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Clear the labels of disks that are not in use.
    Clear {
        /// One path to each of them.
        #[arg(required = true)]
        providers: Vec<String>,
    },
    #[command(flatten)]
    Show(list::Verb),
}

/// Which paths are used for requests; by default one path takes all of them.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Modes {
    /// Use all paths for all requests.
    #[arg(short = 'A')]
    active_active: bool,
    /// Use all paths for reads, one for everything else.
    #[arg(short = 'R', conflicts_with = "active_active")]
    active_read: bool,
}

impl Modes {
    fn mode(self) -> Mode {
        match (self.active_active, self.active_read) {
            (true, _) => Mode::ActiveActive,
            (_, true) => Mode::ActiveRead,
            _ => Mode::ActivePassive,
        }
    }
}

/// A disk and its paths.
#[derive(Debug, clap::Args)]
pub(super) struct New {
    #[command(flatten)]
    mode: Modes,
    /// Its name.
    name: String,
    /// The paths to it.
    #[arg(required = true)]
    providers: Vec<String>,
}

/// A disk and one of its paths.
#[derive(Debug, clap::Args)]
pub(super) struct Path {
    /// The disk.
    name: String,
    /// The path.
    provider: String,
}

/// Executes the verb.
pub(super) fn run(session: &mut Session, verb: &Verb, output: &mut Output) -> Result<(), Failure> {
    if let Verb::Show(verb) = verb {
        return list::run(session, "MULTIPATH", verb, output);
    }
    if let Verb::Getactive { name } = verb {
        let found = session.graph.geom("MULTIPATH", name);
        let active = found.and_then(|geom| multipath::active(&session.graph, geom));
        let active = active.map_err(|error| session.failure(error))?;
        return match output.json() {
            true => output.value(&json!({ "name": name, "active": active })),
            false => output.line(active),
        };
    }
    change(session, verb).map_err(|error| session.failure(error))
}

fn providers(graph: &Graph, names: &[String]) -> Result<Vec<ProviderId>, GeomError> {
    names.iter().map(|name| graph.provider(name)).collect()
}

fn change(session: &mut Session, verb: &Verb) -> Result<(), GeomError> {
    let force = session.force;
    let graph = &mut session.graph;
    match verb {
        Verb::Label(given) => {
            let under = providers(graph, &given.providers)?;
            multipath::label(graph, &given.name, &under, (given.mode.mode(), force))
        }
        Verb::Create(given) => {
            let under = providers(graph, &given.providers)?;
            multipath::create(graph, &given.name, &under, (given.mode.mode(), force))
        }
        Verb::Configure { mode, active_passive, name } => {
            let geom = graph.geom("MULTIPATH", name)?;
            if !(mode.active_active || mode.active_read || *active_passive) {
                return Err(GeomError::invalid(name, "needs -A, -P or -R"));
            }
            multipath::configure(graph, geom, mode.mode())
        }
        Verb::Add(path) => {
            let (geom, provider) = (graph.geom("MULTIPATH", &path.name)?, &path.provider);
            let provider = graph.provider(provider)?;
            multipath::add(graph, geom, provider, force)
        }
        Verb::Remove(path) => on(graph, path, multipath::remove),
        Verb::Prefer(path) => on(graph, path, multipath::prefer),
        Verb::Fail(path) => on(graph, path, multipath::fail),
        Verb::Restore(path) => on(graph, path, multipath::restore),
        Verb::Rotate { name } => {
            let geom = graph.geom("MULTIPATH", name)?;
            multipath::rotate(graph, geom)
        }
        Verb::Destroy { names } => names.iter().try_for_each(|name| {
            let geom = graph.geom("MULTIPATH", name)?;
            multipath::destroy(graph, geom, force)
        }),
        Verb::Stop { names } => names.iter().try_for_each(|name| {
            let geom = graph.geom("MULTIPATH", name)?;
            multipath::stop(graph, geom, force)
        }),
        Verb::Clear { providers } => providers.iter().try_for_each(|name| {
            let provider = graph.provider(name)?;
            multipath::clear(graph, provider)
        }),
        Verb::Getactive { .. } | Verb::Show(_) => unreachable!("these were done"),
    }
}

/// Executes a verb for one path.
type Act = fn(&mut Graph, flysch_geom::GeomId, &str) -> Result<(), GeomError>;

fn on(graph: &mut Graph, path: &Path, act: Act) -> Result<(), GeomError> {
    let geom = graph.geom("MULTIPATH", &path.name)?;
    act(graph, geom, &path.provider)
}
