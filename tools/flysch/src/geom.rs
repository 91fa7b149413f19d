//! `flysch geom`: partitions, labels, stripes, mirrors on disk images and targets, by FreeBSD's
//! verbs.

mod array;
mod cache;
mod copy;
mod counters;
mod disk;
mod diskinfo;
mod dump;
mod gate;
mod label;
mod layers;
mod list;
mod medium;
mod mirror;
mod mount;
mod multipath;
mod nop;
mod part;
mod plug;
mod provided;
mod raid;
mod rebuild;
mod remote;
mod rig;
mod session;
mod short;
mod stats;
mod text;
mod tree;
mod zero;
mod zns;
mod zone;

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};
use flysch_rig::Target;

use crate::failure::Failure;
use crate::output::Output;
pub(crate) use counters::Watched;
pub(crate) use disk::{Disk, On};
pub(crate) use remote::statistics;
use session::{Disks, Image, NO_DISKS, Session};
pub(crate) use short::long_form;
pub(crate) use stats::{Counter, Kind, Snapshot};

/// Options of `flysch geom`.
#[derive(Debug, clap::Args)]
#[command(after_help = after_help())]
#[command(subcommand_required = false, args_conflicts_with_subcommands = false)]
pub(crate) struct Arguments {
    /// A disk image; `,serial=TEXT`, `,sector=BYTES` and `,name=TEXT` after it replace the
    /// defaults: the file name, 512 and the file name. Can be given several times.
    #[arg(short, value_name = "FILE[,KEY=VALUE]...")]
    file: Vec<Image>,
    /// A target, as for other commands. Can be given several times.
    #[arg(long, value_name = "TARGET")]
    on: Vec<Target>,
    /// A rig: a TOML file that describes controllers, disks and what stands on them; see
    /// docs/geom.md. Whatever is missing is created. Can be given several times.
    #[arg(long, value_name = "FILE")]
    rig: Vec<PathBuf>,
    /// Act on a mounted graph: the folder on which it is mounted, or its socket.
    /// With `mount`: where to create its socket.
    #[arg(long, value_name = "DIR|SOCKET")]
    socket: Option<PathBuf>,
    /// Overwrite foreign metadata and volumes.
    #[arg(id = "overwrite", long = "force", global = true)]
    force: bool,
    /// Report what was done, as FreeBSD's tools do.
    #[arg(short, global = true)]
    verbose: bool,
    /// Show the geom that offers a provider.
    #[arg(short, value_name = "PROVIDER", conflicts_with_all = ["tree", "script"])]
    provider: Option<String>,
    /// Show which geom stands on which, as FreeBSD's `geom -t`; `tree` also shows sizes.
    #[arg(short, conflicts_with = "script")]
    tree: bool,
    /// First run the lines of a file, one verb each; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    #[command(subcommand)]
    action: Option<Action>,
}

fn after_help() -> String {
    format!(
        "\
A disk is named after its file, without the extension. Only verbs that modify something write to
disks. Verbs, options and output are those of FreeBSD's geom(8), gpart(8), glabel(8) and so on.
Short forms: {}.
Examples:
  flysch geom -f disk.img part show
  flysch gpart -f disk.img create -s gpt disk
  flysch geom -f disk.img part add -t linux-data -s 100m -l root disk
  flysch geom -f disk.img why disk
  flysch geom -f disk.img copy diskp1 root.img",
        short::forms().collect::<Vec<_>>().join(", ")
    )
}

/// Options of `geom mount`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every provider is a file: DIR/da0, DIR/mirror/gm0p1. Opening one for writing has the effects of
opening a device: others may be refused, and it is tasted again when it is closed. Changes are
durable after fsync, and when the file is closed.
Examples:
  flysch geom mount nas.toml /mnt/rig
  mkfs.ext4 /mnt/rig/mirror/gm0p1
  flysch geom --socket /mnt/rig mirror status")]
struct Mount {
    /// A rig, unless -f or --on are given; and the folder.
    #[arg(value_names = ["[RIG] DIR"], num_args = 1..=2, required = true)]
    places: Vec<PathBuf>,
}

/// A line of a script.
#[derive(Debug, Parser)]
#[command(name = "flysch geom", bin_name = "flysch geom")]
#[command(no_binary_name = true, disable_help_flag = true, disable_version_flag = true)]
struct Line {
    #[arg(id = "overwrite", long = "force", global = true)]
    force: bool,
    #[arg(short, global = true)]
    verbose: bool,
    #[command(subcommand)]
    action: Action,
}

impl Line {
    /// The verb that these words spell.
    fn of(words: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let words: Vec<OsString> = words.into_iter().collect();
        Self::try_parse_from(&words)
            .map_err(|error| crate::right_form::right_form(Self::command(), &words, &error))
    }
}

/// What to do.
#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Manage partition tables: GPT, MBR, EBR, BSD.
    #[command(subcommand)]
    Part(part::Verb),
    /// Manage names of providers.
    #[command(subcommand)]
    Label(label::Verb),
    /// Manage striped disks (RAID 0).
    #[command(subcommand)]
    Stripe(array::StripeVerb),
    /// Manage concatenated disks.
    #[command(subcommand)]
    Concat(array::ConcatVerb),
    /// Manage mirrored disks (RAID 1).
    #[command(subcommand)]
    Mirror(mirror::Verb),
    /// Manage several paths to one disk.
    #[command(subcommand)]
    Multipath(multipath::Verb),
    /// Manage BIOS RAID volumes.
    #[command(subcommand)]
    Raid(raid::Verb),
    /// Inject failures.
    #[command(subcommand)]
    Nop(nop::Verb),
    /// Cache blocks that were read.
    #[command(subcommand)]
    Cache(cache::Verb),
    /// Use NBD servers as providers.
    #[command(subcommand)]
    Gate(gate::Verb),
    /// Show targets; detach and attach disks of rigs.
    #[command(subcommand)]
    Disk(plug::Verb),
    /// Show disk images.
    #[command(subcommand)]
    Md(list::Verb),
    /// Provide an exbibyte of zeros that discards writes.
    #[command(subcommand)]
    Zero(zero::Verb),
    /// Manage zones of a disk, as in zonectl(8).
    Zone(zone::Arguments),
    /// Show which geom stands on which.
    Tree,
    /// Show which class claimed a provider, by which bytes, and what all others found.
    Why {
        /// The provider.
        provider: String,
    },
    /// Show sizes of providers and identification of their disks, as diskinfo(8).
    Diskinfo(diskinfo::Arguments),
    /// Show what has happened.
    Log,
    /// Print the graph as XML, as FreeBSD's kern.geom.confxml.
    Confxml,
    /// Print the graph for dot(1), as FreeBSD's kern.geom.confdot.
    Confdot,
    /// Copy a provider into a file, or a file into a provider.
    Copy(copy::Arguments),
    /// Show every provider as a file in a folder, until it is unmounted or Ctrl-C.
    Mount(Mount),
}

/// Executes the command.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    arguments.check()?;
    let mount = match &arguments.action {
        Some(Action::Mount(mount)) => Some(mount),
        _ => None,
    };
    if let (Some(socket), None) = (&arguments.socket, mount) {
        if arguments.script.is_some() {
            return Err(Failure::usage("--script and --socket exclude each other"));
        }
        return remote::run(socket, short::words()?, output);
    }
    let mut rigs: Vec<&Path> = arguments.rig.iter().map(PathBuf::as_path).collect();
    let directory = match mount.map(|mount| &mount.places[..]) {
        None | Some([]) => None,
        Some([directory]) => Some(directory),
        Some([rig, directory, ..]) => {
            rigs.push(rig);
            Some(directory)
        }
    };
    directory.map_or(Ok(()), |directory| mount::check(directory))?;
    let source = mount_source(arguments, &rigs);
    let rigs = rigs.into_iter().map(rig::read).collect::<Result<Vec<_>, _>>()?;
    let disks = Disks { images: &arguments.file, targets: &arguments.on, rigs: &rigs };
    let mut session = Session::open(&disks, arguments.force)?;
    rigs.iter().try_for_each(|rig| rig::make(&mut session, rig))?;
    if let Some(script) = &arguments.script {
        for (at, line) in read_script(script)? {
            let place = format!("{}: line {at}", script.display());
            session.verbose = arguments.verbose || line.verbose;
            session.force = arguments.force || line.force;
            act(&mut session, &line.action, output).map_err(|failure| match failure {
                Failure::Usage(text) => Failure::Usage(format!("{place}: {text}")),
                other => other.on(&place),
            })?;
            session.look();
        }
    }
    if let Some(directory) = directory {
        if session.is_empty() {
            return Err(Failure::usage(format!("mount: there are no disks; {NO_DISKS}")));
        }
        let socket = arguments.socket.as_deref();
        return mount::run(session, directory, (source, socket), output);
    }
    (session.verbose, session.force) = (arguments.verbose, arguments.force);
    obey(&mut session, arguments, output)?;
    if !disks.are_given() && session.is_empty() {
        output.note(format!("there are no disks; {NO_DISKS}"));
    }
    session.keep();
    Ok(())
}

impl Arguments {
    /// Something has to be done, and only one thing.
    fn check(&self) -> Result<(), Failure> {
        let shows = self.tree || self.provider.is_some();
        match &self.action {
            None if !shows && self.script.is_none() => {
                Err(Failure::usage("geom: name a class and a verb, such as `part show`"))
            }
            Some(_) if shows => {
                Err(Failure::usage("geom: -p and -t cannot be combined with a class and a verb"))
            }
            _ => Ok(()),
        }
    }
}

/// Does the one thing that was requested in addition to a script.
fn obey(session: &mut Session, arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    if let Some(provider) = &arguments.provider {
        return list::behind(session, provider, output);
    }
    match &arguments.action {
        _ if arguments.tree => tree::columns(session, output),
        Some(action) => act(session, action, output),
        None => Ok(()),
    }
}

/// What `mount` shows as the source: the disks.
fn mount_source(arguments: &Arguments, rigs: &[&Path]) -> String {
    let rigs = rigs.iter().map(|rig| rig.display().to_string());
    let images = arguments.file.iter().map(|image| image.path().display().to_string());
    rigs.chain(images).next().unwrap_or_else(|| "flysch".into())
}

fn act(session: &mut Session, action: &Action, output: &mut Output) -> Result<(), Failure> {
    do_verb(session, action, output)?;
    match session.verbose && action.tells_done() && !output.json() {
        true => output.line("Done."),
        false => Ok(()),
    }
}

impl Action {
    /// Whether FreeBSD's tool for this class prints a closing word with `-v`.
    fn tells_done(&self) -> bool {
        use Action::{Cache, Concat, Gate, Label, Mirror, Multipath, Nop, Raid, Stripe};
        matches!(self, Label(_) | Stripe(_) | Concat(_) | Mirror(_) | Multipath(_))
            || matches!(self, Raid(_) | Nop(_) | Cache(_) | Gate(_))
    }
}

fn do_verb(session: &mut Session, action: &Action, output: &mut Output) -> Result<(), Failure> {
    match action {
        Action::Part(verb) => part::run(session, verb, output),
        Action::Label(verb) => label::run(session, verb, output),
        Action::Stripe(verb) => array::stripe(session, verb, output),
        Action::Concat(verb) => array::concat(session, verb, output),
        Action::Mirror(verb) => mirror::run(session, verb, output),
        Action::Multipath(verb) => multipath::run(session, verb, output),
        Action::Raid(verb) => raid::run(session, verb, output),
        Action::Nop(verb) => nop::run(session, verb, output),
        Action::Cache(verb) => cache::run(session, verb, output),
        Action::Gate(verb) => gate::run(session, verb, output),
        Action::Disk(verb) => plug::run(session, verb, output),
        Action::Md(verb) => list::run(session, "MD", verb, output),
        Action::Zero(verb) => zero::run(session, verb, output),
        Action::Zone(arguments) => zone::run(session, arguments, output),
        Action::Tree => tree::run(session, output),
        Action::Why { provider } => tree::why(session, provider, output),
        Action::Diskinfo(arguments) => diskinfo::run(session, arguments, output),
        Action::Log => tree::log(session, output),
        Action::Confxml => output.bytes(flysch_geom::dump::confxml(&session.graph).as_bytes()),
        Action::Confdot => output.bytes(flysch_geom::dump::confdot(&session.graph).as_bytes()),
        Action::Copy(arguments) => copy::run(session, arguments, output),
        Action::Mount(_) => Err(Failure::usage("mount: it cannot be a line of a script")),
    }
}

fn read_script(path: &Path) -> Result<Vec<(usize, Line)>, Failure> {
    let mut text = Vec::new();
    let read = match path.as_os_str().as_bytes() {
        b"-" => std::io::stdin().read_to_end(&mut text),
        _ => std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut text)),
    };
    read.map_err(|error| Failure::of(path.display(), error))?;
    let mut lines = Vec::new();
    for (at, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        let wrong = |what: &str| Failure::usage(format!("{}: line {at}: {what}", path.display()));
        let words = shlex::bytes::split(line).ok_or_else(|| wrong("a quote is not closed"))?;
        if words.is_empty() {
            continue;
        }
        let line = Line::of(words.into_iter().map(OsString::from_vec));
        lines.push((at, line.map_err(|what| wrong(&what))?));
    }
    Ok(lines)
}
