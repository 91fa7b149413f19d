//! `flysch geom`: partitions, labels, stripes, mirrors on disk images and targets, by FreeBSD's
//! verbs.

mod array;
mod cache;
mod copy;
mod label;
mod list;
mod medium;
mod mirror;
mod multipath;
mod nop;
mod part;
mod raid;
mod session;
mod text;
mod tree;

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use clap::Parser;
use flysch_rig::Target;

use crate::failure::Failure;
use crate::output::Output;
use session::{Image, Session};

/// Options of `flysch geom`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A disk is called as its file is, without what follows the last dot. Nothing is written but by verbs
that say so. Verbs, options and output are those of FreeBSD's geom(8), gpart(8), glabel(8) and kin.
Examples:
  flysch geom -f disk.img part show
  flysch geom -f disk.img part create -s gpt disk
  flysch geom -f disk.img part add -t linux-data -s 100m -l root disk
  flysch geom -f disk.img why disk
  flysch geom -f disk.img copy diskp1 root.img")]
#[command(subcommand_required = false, args_conflicts_with_subcommands = false)]
pub(crate) struct Arguments {
    /// A disk image, with `,serial=TEXT`, `,sector=BYTES`, `,name=TEXT` behind it where the file
    /// name, 512 and the file name are not right. Can be given several times.
    #[arg(short, value_name = "FILE[,KEY=VALUE]...")]
    file: Vec<Image>,
    /// A target, as other commands take it. Can be given several times.
    #[arg(long, value_name = "TARGET")]
    on: Vec<Target>,
    /// Write over metadata and volumes of others.
    #[arg(long)]
    force: bool,
    /// Do the lines of a file, one verb each, before anything else; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    #[command(subcommand)]
    action: Option<Action>,
}

/// A line of a script.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true, disable_version_flag = true)]
struct Line {
    #[command(subcommand)]
    action: Action,
}

/// What to do.
#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Partition tables: GPT, MBR, EBR, BSD.
    #[command(subcommand)]
    Part(part::Verb),
    /// Names of providers.
    #[command(subcommand)]
    Label(label::Verb),
    /// Disks in turns (RAID 0).
    #[command(subcommand)]
    Stripe(array::StripeVerb),
    /// Disks one behind the other.
    #[command(subcommand)]
    Concat(array::ConcatVerb),
    /// The same on several disks (RAID 1).
    #[command(subcommand)]
    Mirror(mirror::Verb),
    /// Several paths to one disk.
    #[command(subcommand)]
    Multipath(multipath::Verb),
    /// Volumes of the RAID of BIOSes.
    #[command(subcommand)]
    Raid(raid::Verb),
    /// Failures on purpose.
    #[command(subcommand)]
    Nop(nop::Verb),
    /// Blocks that were read are kept.
    #[command(subcommand)]
    Cache(cache::Verb),
    /// Targets.
    #[command(subcommand)]
    Disk(list::Verb),
    /// Disk images.
    #[command(subcommand)]
    Md(list::Verb),
    /// Show who stands on whom.
    Tree,
    /// Show who took a provider, by which bytes, and what all others said of it.
    Why {
        /// The provider.
        provider: String,
    },
    /// Show what happened.
    Log,
    /// Print the graph as XML, as FreeBSD's kern.geom.confxml.
    Confxml,
    /// Print the graph for dot(1), as FreeBSD's kern.geom.confdot.
    Confdot,
    /// Copy a provider into a file, or a file into a provider.
    Copy(copy::Arguments),
}

/// Does what was asked for.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    if arguments.action.is_none() && arguments.script.is_none() {
        return Err(Failure::usage("geom: name a class and a verb, such as `part show`"));
    }
    let mut session = Session::open(&arguments.file, &arguments.on, arguments.force)?;
    if let Some(script) = &arguments.script {
        for (at, line) in read_script(script)? {
            let place = format!("{}: line {at}", script.display());
            act(&mut session, &line.action, output).map_err(|failure| match failure {
                Failure::Usage(text) => Failure::Usage(format!("{place}: {text}")),
                other => other.on(&place),
            })?;
        }
    }
    if let Some(action) = &arguments.action {
        act(&mut session, action, output)?;
    }
    session.keep();
    Ok(())
}

fn act(session: &mut Session, action: &Action, output: &mut Output) -> Result<(), Failure> {
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
        Action::Disk(verb) => list::run(session, "DISK", verb, output),
        Action::Md(verb) => list::run(session, "MD", verb, output),
        Action::Tree => tree::run(session, output),
        Action::Why { provider } => tree::why(session, provider, output),
        Action::Log => tree::log(session, output),
        Action::Confxml => output.bytes(session.graph.confxml().as_bytes()),
        Action::Confdot => output.bytes(session.graph.confdot().as_bytes()),
        Action::Copy(arguments) => copy::run(session, arguments, output),
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
        let words = words.into_iter().map(OsString::from_vec);
        let line = Line::try_parse_from(words).map_err(|error| {
            let text = error.to_string();
            wrong(text.lines().next().unwrap_or_default().trim_start_matches("error: "))
        })?;
        lines.push((at, line));
    }
    Ok(lines)
}
