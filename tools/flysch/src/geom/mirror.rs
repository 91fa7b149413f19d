//! `geom mirror`, as gmirror(8).

use flysch_geom::class::mirror;
use flysch_geom::{GeomError, Graph, ProviderId};
use flysch_wire::geom::mirror::Balance;

use super::rebuild::{self, Rate};
use super::session::Session;
use super::{dump, list, text};
use crate::failure::Failure;
use crate::output::Output;

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Make a mirror of providers whose contents are equal or do not matter.
    #[command(disable_help_flag = true)]
    Label(Label),
    /// The same without metadata: it exists for as long as the command, or the mount.
    Create(Create),
    /// Add providers and rebuild them from the others.
    #[command(disable_help_flag = true)]
    Insert {
        /// Accept only providers with these names.
        #[arg(short = 'h')]
        hardcode: bool,
        /// Print help; `-h` means what it means in FreeBSD.
        #[arg(long, action = clap::ArgAction::Help)]
        help: Option<bool>,
        /// They wait as spares until a component is missing.
        #[arg(short = 'i')]
        inactive: bool,
        /// Their priority.
        #[arg(short = 'p', default_value = "0")]
        priority: u8,
        #[command(flatten)]
        rate: Rate,
        /// The mirror.
        name: String,
        /// The providers.
        #[arg(required = true)]
        providers: Vec<String>,
    },
    /// Remove components permanently.
    Remove(Components),
    /// Remove components until `activate`.
    Deactivate(Components),
    /// Bring components back and rebuild them.
    Activate {
        #[command(flatten)]
        rate: Rate,
        #[command(flatten)]
        components: Components,
    },
    /// Rebuild components, or without one whatever needs it, including spares.
    Rebuild {
        #[command(flatten)]
        rate: Rate,
        /// The mirror.
        name: String,
        /// The components.
        providers: Vec<String>,
    },
    /// Give a mirror the size for which its components have room, or a smaller one.
    Resize {
        /// Its new size in bytes.
        #[arg(short = 's', value_name = "SIZE")]
        size: Option<String>,
        /// The mirror.
        name: String,
    },
    /// Stop counting components that are missing.
    Forget {
        /// The mirrors.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Change a setting common to all components, or the priority of one.
    #[command(disable_help_flag = true)]
    Configure(Configure),
    /// Take a mirror apart and clear its labels.
    Destroy {
        /// Also if it is open.
        #[arg(short)]
        force: bool,
        /// The mirrors.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Clear the labels of providers that no mirror uses.
    Clear {
        /// The providers.
        #[arg(required = true)]
        providers: Vec<String>,
    },
    /// Remove mirrors; the labels remain.
    Stop {
        /// Also if it is open.
        #[arg(short)]
        force: bool,
        /// The mirrors.
        #[arg(required = true)]
        names: Vec<String>,
    },
    #[command(flatten)]
    Dump(dump::Verb),
    #[command(flatten)]
    Show(list::Verb),
}

/// A mirror and some of its components.
#[derive(Debug, clap::Args)]
pub(super) struct Components {
    /// The mirror.
    name: String,
    /// The components.
    #[arg(required = true)]
    providers: Vec<String>,
}

/// The properties of a new mirror.
#[derive(Debug, clap::Args)]
pub(super) struct How {
    /// How reads are distributed: load, prefer, round-robin, split, none.
    #[arg(short = 'b', default_value = "load", value_parser = balance)]
    balance: Balance,
    /// Bytes of a piece, for split.
    #[arg(short = 's', default_value = "4096")]
    slice: String,
    /// Do not rebuild automatically.
    #[arg(short = 'n')]
    no_auto_sync: bool,
    /// Do not rebuild after an unclean stop.
    #[arg(short = 'F')]
    no_fail_sync: bool,
}

impl How {
    fn options(&self, (hardcode, force): (bool, bool)) -> Result<mirror::MirrorOptions, Failure> {
        Ok(mirror::MirrorOptions {
            balance: self.balance,
            slice: slice(&self.slice)?,
            no_auto_sync: self.no_auto_sync,
            no_fail_sync: self.no_fail_sync,
            hardcode,
            force,
        })
    }
}

/// Options of `geom mirror label`.
#[derive(Debug, clap::Args)]
pub(super) struct Label {
    #[command(flatten)]
    how: How,
    /// Accept only providers with these names.
    #[arg(short = 'h')]
    hardcode: bool,
    /// Print help; `-h` means what it means in FreeBSD.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Its name.
    name: String,
    /// The providers; the last has the highest priority.
    #[arg(required = true)]
    providers: Vec<String>,
}

/// Options of `geom mirror create`.
#[derive(Debug, clap::Args)]
pub(super) struct Create {
    #[command(flatten)]
    how: How,
    /// Its name.
    name: String,
    /// The providers; the last has the highest priority.
    #[arg(required = true)]
    providers: Vec<String>,
}

/// Options of `geom mirror configure`.
#[derive(Debug, clap::Args)]
pub(super) struct Configure {
    /// Rebuild automatically.
    #[arg(short = 'a', conflicts_with = "no_auto_sync")]
    auto_sync: bool,
    /// Do not rebuild automatically.
    #[arg(short = 'n')]
    no_auto_sync: bool,
    /// Rebuild after an unclean stop.
    #[arg(short = 'f', conflicts_with = "no_fail_sync")]
    fail_sync: bool,
    /// Do not rebuild after an unclean stop.
    #[arg(short = 'F')]
    no_fail_sync: bool,
    /// How reads are distributed.
    #[arg(short = 'b', value_parser = balance)]
    balance: Option<Balance>,
    /// Bytes of a piece, for split.
    #[arg(short = 's')]
    slice: Option<String>,
    /// Accept only providers with these names.
    #[arg(short = 'h', conflicts_with = "dynamic")]
    hardcode: bool,
    /// Accept components whatever their names.
    #[arg(short = 'd')]
    dynamic: bool,
    /// Print help; `-h` means what it means in FreeBSD.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The priority of one component.
    #[arg(short = 'p', requires = "provider")]
    priority: Option<u8>,
    /// The mirror.
    name: String,
    /// The component.
    provider: Option<String>,
}

fn balance(text: &str) -> Result<Balance, String> {
    let mut all = Balance::ALL.iter().copied();
    all.find(|known| known.name() == text)
        .ok_or_else(|| format!("`{text}` is not one of load, prefer, round-robin, split, none"))
}

fn slice(text: &str) -> Result<u32, Failure> {
    let bytes = text::bytes(text).and_then(|bytes| u32::try_from(bytes).ok());
    bytes
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| Failure::usage(format!("-s: `{text}` is not a valid size")))
}

fn providers(graph: &Graph, names: &[String]) -> Result<Vec<ProviderId>, GeomError> {
    names.iter().map(|name| graph.provider(name)).collect()
}

/// Executes the verb.
pub(super) fn run(session: &mut Session, verb: &Verb, output: &mut Output) -> Result<(), Failure> {
    let force_over = session.force;
    let graph = &mut session.graph;
    let (done, rebuilt) = match verb {
        Verb::Show(verb) => return list::run(session, "MIRROR", verb, output),
        Verb::Dump(verb) => return dump::run(session, "MIRROR", verb, output),
        Verb::Label(given) => {
            let options = given.how.options((given.hardcode, force_over))?;
            let done = providers(graph, &given.providers)
                .and_then(|under| mirror::label(graph, &given.name, &under, &options));
            (done, None)
        }
        Verb::Create(given) => {
            let options = given.how.options((false, force_over))?;
            let done = providers(graph, &given.providers)
                .and_then(|under| mirror::create(graph, &given.name, &under, &options));
            (done, None)
        }
        Verb::Insert { hardcode, inactive, priority, rate, name, providers: names, .. } => {
            let how = (*priority, *hardcode, force_over);
            let act = if *inactive { mirror::spare } else { mirror::insert };
            let done = graph.geom("MIRROR", name).and_then(|geom| {
                let under = providers(graph, names)?;
                act(graph, geom, &under, how)
            });
            (done, (!inactive).then_some((name, *rate)))
        }
        Verb::Resize { size, name } => {
            let wrong = |text: &String| Failure::usage(format!("-s: `{text}` is not a valid size"));
            let size = size.as_ref().map(|text| text::bytes(text).ok_or_else(|| wrong(text)));
            let size = size.transpose()?;
            let found = graph.geom("MIRROR", name);
            (found.and_then(|geom| mirror::resize(graph, geom, size)), None)
        }
        Verb::Configure(given) => (configure(graph, given)?, None),
        _ => components(graph, verb),
    };
    done.map_err(|error| session.failure(error))?;
    match verb {
        Verb::Label(Label { providers, .. }) => {
            session.tell("Metadata value stored on", providers, output)?;
        }
        Verb::Clear { providers } => session.tell("Metadata cleared on", providers, output)?,
        _ => {}
    }
    rebuilt.map_or(Ok(()), |(name, rate)| {
        rebuild::run(session, rebuild::Kind::Mirror, (name, rate), output)
    })
}

/// The verbs that act on mirrors, or components of one; returns the mirror to be rebuilt
/// afterwards.
fn components<'v>(
    graph: &mut Graph,
    verb: &'v Verb,
) -> (Result<(), GeomError>, Option<(&'v String, Rate)>) {
    let mut each = |Components { name, providers }: &Components, act: Act| {
        providers.iter().try_for_each(|provider| {
            graph.geom("MIRROR", name).and_then(|geom| act(graph, geom, provider))
        })
    };
    match verb {
        Verb::Remove(given) => (each(given, mirror::remove), None),
        Verb::Deactivate(given) => (each(given, mirror::deactivate), None),
        Verb::Activate { rate, components: given } => {
            let done = each(given, |graph, geom, name| {
                let provider = graph.provider(name)?;
                mirror::activate(graph, geom, provider)
            });
            (done, Some((&given.name, *rate)))
        }
        Verb::Rebuild { rate, name, providers } => {
            let done = providers.iter().try_for_each(|provider| {
                graph.geom("MIRROR", name).and_then(|geom| mirror::rebuild(graph, geom, provider))
            });
            let spares = |graph: &mut Graph| {
                let geom = graph.geom("MIRROR", name)?;
                mirror::take_spares(graph, geom).map(drop)
            };
            let done = if providers.is_empty() { spares(graph) } else { done };
            (done, Some((name, *rate)))
        }
        Verb::Forget { names } => {
            let done = names.iter().try_for_each(|name| {
                graph.geom("MIRROR", name).and_then(|geom| mirror::forget(graph, geom))
            });
            (done, None)
        }
        Verb::Destroy { force, names } => {
            let done = names.iter().try_for_each(|name| {
                graph.geom("MIRROR", name).and_then(|geom| mirror::destroy(graph, geom, *force))
            });
            (done, None)
        }
        Verb::Stop { force, names } => {
            let done = names.iter().try_for_each(|name| {
                graph.geom("MIRROR", name).and_then(|geom| mirror::stop(graph, geom, *force))
            });
            (done, None)
        }
        Verb::Clear { providers } => {
            let done = providers.iter().try_for_each(|name| {
                graph.provider(name).and_then(|provider| mirror::clear(graph, provider))
            });
            (done, None)
        }
        _ => unreachable!("the other verbs were done"),
    }
}

/// Executes a verb for one component.
type Act = fn(&mut Graph, flysch_geom::GeomId, &str) -> Result<(), GeomError>;

fn configure(graph: &mut Graph, given: &Configure) -> Result<Result<(), GeomError>, Failure> {
    let choice = |yes: bool, no: bool| if yes { Some(true) } else { no.then_some(false) };
    let change = mirror::Configure {
        balance: given.balance,
        slice: given.slice.as_deref().map(slice).transpose()?,
        no_auto_sync: choice(given.no_auto_sync, given.auto_sync),
        no_fail_sync: choice(given.no_fail_sync, given.fail_sync),
        hardcode: choice(given.hardcode, given.dynamic),
    };
    let found = graph.geom("MIRROR", &given.name);
    Ok(found.and_then(|geom| match (given.priority, &given.provider) {
        (Some(priority), Some(provider)) => mirror::prefer(graph, geom, provider, priority),
        _ => mirror::configure(graph, geom, &change),
    }))
}
