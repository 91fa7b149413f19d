//! The command line.

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::num::ParseIntError;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::{
    ata, bench, cam, copy, emmc, export, geom, gstat, image, lab, nvme, pci, right_form, serve, ufs,
};

/// An embedded storage stack in user space: drivers, device models, benchmarks.
#[derive(Debug, Parser)]
#[command(name = "flysch", version, about, max_term_width = 100)]
#[command(after_help = "\
Targets are KIND[@WHERE][,key=value...]; `flysch targets` lists them.
Exit status: 0 success, 1 failure, 2 usage error, 130 interrupted. Wrong words are a usage error,
also in job files, rigs and scripts; something named that is not there is a failure.")]
pub(crate) struct Cli {
    /// Print JSON instead of tables.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run workloads and show where the time of each I/O goes.
    Bench(bench::Arguments),
    /// List the devices on the buses of targets.
    Devlist(cam::devlist::Arguments),
    /// List devices and send commands to them, as in camcontrol(8).
    Cam(cam::Arguments),
    /// Manage a UFS device: descriptors, attributes, flags, power, errors.
    Ufs(ufs::Arguments),
    /// Manage an NVMe controller: identify, logs, features, namespaces, format, firmware.
    Nvme(nvme::Arguments),
    /// Manage a SATA device: identify, SMART, features, power, security, sanitize, firmware.
    Ata(ata::Arguments),
    /// Manage an eMMC device or SD card: registers, protection, partitions, RPMB, health.
    Emmc(emmc::Arguments),
    /// Copy data between a file and a target, in either direction.
    Copy(copy::Arguments),
    /// Read, make, change, check, repair and mount flash images: UBI, UBIFS, JFFS2, raw dumps.
    Image(image::Arguments),
    /// Manage partitions, labels, stripes, mirrors and other layers on disk images and targets, as
    /// in FreeBSD's GEOM.
    Geom(geom::Arguments),
    /// Show live statistics of a mounted graph, as gstat does.
    Gstat(gstat::Arguments),
    /// Export the disk of a target to programs and virtual machines, or as a disk of this machine.
    Export(export::Arguments),
    /// List the PCI functions of this machine; take them from Linux's drivers and give them back.
    Pci(pci::Arguments),
    /// Serve a modelled device to a virtual machine monitor, over vfio-user.
    Serve(serve::Arguments),
    /// Act on a served device: faults, power cuts, removal.
    ServeCtl(serve::ControlArguments),
    /// Boot Linux on modelled devices, or QEMU's, which its own drivers drive.
    Lab(lab::Arguments),
    /// List the kinds of target and their keys.
    Targets,
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print a manual page: of the command, or of one of its commands.
    Man {
        /// The command that it is about, such as `bench`, or `image create`.
        #[arg(value_name = "COMMAND")]
        words: Vec<String>,
        /// Write the pages of all commands into this folder instead.
        #[arg(long, value_name = "DIR", conflicts_with = "words")]
        all: Option<PathBuf>,
    },
}

/// The error for a command that was given without its verb.
const HELP_INSTEAD: ErrorKind = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

impl Command {
    /// Its name if what it prints is text in a format of its own, even with `--json`.
    pub(crate) fn in_own_format(&self) -> Option<&'static str> {
        match self {
            Self::Completions { .. } => Some("completions"),
            Self::Man { .. } => Some("man"),
            _ => None,
        }
    }
}

/// Longest line of the list of verbs, characters.
const WIDTH: usize = 98;

impl Cli {
    /// What `words` ask for, the first of which is the program's name.
    pub(crate) fn of(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut command = Self::described();
        let matches = command.try_get_matches_from_mut(words)?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }

    /// The command. `--help` of each group of commands also lists the verbs in them.
    pub(crate) fn described() -> clap::Command {
        with_verbs(Self::command())
    }
}

/// `command` and all below it, whose help names what is two levels down.
fn with_verbs(command: clap::Command) -> clap::Command {
    let groups: Vec<(&str, Vec<&str>)> = command
        .get_subcommands()
        .map(|group| (group.get_name(), names(group)))
        .filter(|(_, verbs)| !verbs.is_empty())
        .collect();
    let wide = groups.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: String = groups.iter().map(|(name, verbs)| list(name, verbs, wide)).collect();
    let more = command.get_after_help().map(|text| format!("\n{text}")).unwrap_or_default();
    let command = command.mut_subcommands(with_verbs);
    match lines.is_empty() {
        true => command,
        false => command.after_help(format!("Verbs:\n{lines}{more}")),
    }
}

/// The names of the commands below `command`.
fn names(command: &clap::Command) -> Vec<&str> {
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    below.map(clap::Command::get_name).collect()
}

/// A group and its verbs, in lines that are no longer than [`WIDTH`].
fn list(group: &str, verbs: &[&str], wide: usize) -> String {
    let mut text = format!("  {group:wide$}  ");
    let mut column = wide + 4;
    for (number, verb) in (1..).zip(verbs) {
        let comma = if number < verbs.len() { "," } else { "" };
        if column + verb.len() + 2 > WIDTH {
            text = format!("{}\n{:column$}", text.trim_end(), "", column = wide + 4);
            column = wide + 4;
        }
        text += &format!("{verb}{comma} ");
        column += verb.len() + comma.len() + 1;
    }
    format!("{}\n", text.trim_end())
}

/// Ends the command for words that it does not understand. An unreadable value is reported in one
/// line by the parser that tried to read it.
pub(crate) fn refuse(error: &clap::Error) -> ! {
    if let Some(help) = help_of_help(error) {
        show(&help);
    }
    match error.source() {
        Some(cause) if error.kind() == ErrorKind::ValueValidation => {
            eprintln!("flysch: {}", of_value(error, &in_words(cause)));
            std::process::exit(2)
        }
        _ if !error.use_stderr() || error.kind() == HELP_INSTEAD => show(error),
        _ => {
            let words: Vec<_> = geom::long_form(std::env::args_os()).into_iter().skip(1).collect();
            eprintln!("flysch: {}", right_form::right_form(Cli::command(), &words, error));
            std::process::exit(2)
        }
    }
}

/// Ends the command with its help, or its version.
fn show(help: &clap::Error) -> ! {
    let shown = help.print().and_then(|()| io::stdout().flush());
    match shown.map_err(Failure::from) {
        Ok(()) | Err(Failure::NobodyReads) => std::process::exit(help.exit_code()),
        Err(failure) => {
            eprintln!("flysch: {failure}");
            std::process::exit(1)
        }
    }
}

/// The help that is meant by `help` with `--help`, an option that clap does not give to it.
fn help_of_help(error: &clap::Error) -> Option<clap::Error> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let asks = |word: &str| word == "--help" || word == "-h";
    let words = geom::long_form(std::env::args_os()).into_iter();
    let words = words.filter(|word| !word.to_str().is_some_and(asks));
    asks(word).then(|| Cli::of(words).err()).flatten().filter(|help| !help.use_stderr())
}

/// Why a number cannot be read, which the standard library and clap tell in the words of Rust.
fn in_words(cause: &(dyn Error + 'static)) -> String {
    let text = cause.to_string();
    if cause.is::<ParseIntError>() {
        return "it is not a whole number that is possible there".into();
    }
    match text.split_once(" is not in ").and_then(|(_, range)| range.split_once("..")) {
        Some((least, most)) if most.parse::<u64>() == Ok(u64::MAX) => {
            format!("it must be {least} or more")
        }
        Some((least, most)) => format!("it must be {least} to {}", most.trim_start_matches('=')),
        None => text,
    }
}

/// Why a value cannot be read. The parser of a number does not know where the number stood.
fn of_value(error: &clap::Error, why: &str) -> String {
    let told = (error.get(ContextKind::InvalidValue), error.get(ContextKind::InvalidArg));
    match told {
        (Some(value), Some(argument)) if !why.contains('`') => {
            format!("`{value}` for `{argument}`: {why}")
        }
        _ => why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of all help texts, word by word.
    fn examples(command: &clap::Command) -> Vec<Vec<String>> {
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = text.lines().filter(|line| line.starts_with("  flysch "));
        let own = lines.map(|line| shlex::split(line).expect("a line for a shell"));
        own.chain(command.get_subcommands().flat_map(examples)).collect()
    }

    #[test]
    fn help_lists_every_verb_and_every_short_form() {
        fn check(command: &mut clap::Command, name: &str) -> usize {
            let help = command.render_help().to_string();
            assert!(help.lines().all(|line| line.len() <= 100), "{help}");
            let listed = help.split_once("Verbs:\n").map(|(_, verbs)| verbs);
            let words: Vec<&str> = listed
                .unwrap_or_default()
                .split_whitespace()
                .map(|word| word.trim_end_matches(','))
                .collect();
            let mut count = 0;
            for below in command.get_subcommands_mut() {
                for verb in names(below) {
                    assert!(words.contains(&verb), "{name} --help lacks {verb}: {help}");
                    count += 1;
                }
                let name = format!("{name} {}", below.get_name());
                count += check(below, &name);
            }
            count
        }
        let mut all = Cli::described();
        assert!(check(&mut all, "flysch") > 250);
        let geom = all.find_subcommand_mut("geom").unwrap().render_help().to_string();
        for form in ["gpart", "gmirror", "zonectl"] {
            assert!(geom.contains(form), "{geom}");
        }
    }

    #[test]
    fn examples_are_understood() {
        let all = examples(&Cli::command());
        assert!(all.len() > 30, "{} examples", all.len());
        for mut words in all {
            let is_shells = |word: &String| ["|", "&", "2>"].contains(&word.as_str());
            let end = words.iter().position(is_shells).unwrap_or(words.len());
            words.truncate(end);
            let parsed = Cli::of(geom::long_form(words.iter().map(Into::into)));
            assert!(parsed.is_ok(), "{words:?}: {}", parsed.unwrap_err());
            // Behind `--` it would belong to the words of another program.
            let mut others = words.iter().skip_while(|word| *word != "--").skip(1);
            assert!(!others.any(|word| word.starts_with("--")), "{words:?}");
        }
    }
}
