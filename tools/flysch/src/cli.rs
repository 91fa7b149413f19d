//! The command line.

use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::{ata, bench, cam, copy, emmc, export, geom, gstat, image, lab, nvme, pci, serve, ufs};

/// An embedded storage stack in user space: drivers, device models, benchmarks.
#[derive(Debug, Parser)]
#[command(name = "flysch", version, about, max_term_width = 100)]
#[command(after_help = "\
Targets are KIND[@WHERE][,key=value...]; `flysch targets` lists them.
Exit status: 0 done, 1 failed, 2 used wrongly, 130 interrupted.")]
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
    /// List what is on the buses of targets.
    Devlist(cam::devlist::Arguments),
    /// Devices and commands to them, as camcontrol(8) has them.
    Cam(cam::Arguments),
    /// Manage a UFS device: descriptors, attributes, flags, power, errors.
    Ufs(ufs::Arguments),
    /// Manage an NVMe controller: identify, logs, features, namespaces, format, firmware.
    Nvme(nvme::Arguments),
    /// Manage a SATA device: identify, SMART, features, power, security, sanitize, firmware.
    Ata(ata::Arguments),
    /// Manage an eMMC device or SD card: registers, protection, partitions, RPMB, health.
    Emmc(emmc::Arguments),
    /// Copy between a file and a target, either way.
    Copy(copy::Arguments),
    /// Open flash images: UBI, UBIFS, JFFS2, raw dumps.
    Image(image::Arguments),
    /// Partitions, labels, stripes on disk images and targets, as FreeBSD's GEOM has them.
    Geom(geom::Arguments),
    /// Show what a mounted graph does right now, as gstat.
    Gstat(gstat::Arguments),
    /// Let programs and machines use the disk of a target, over NBD.
    Export(export::Arguments),
    /// List the PCI functions of this machine; take them from Linux's drivers and give them back.
    Pci(pci::Arguments),
    /// Show a modelled device to a virtual machine monitor, over vfio-user.
    Serve(serve::Arguments),
    /// Do things to a device that is served: faults, power cuts, removal.
    ServeCtl(serve::ControlArguments),
    /// Boot Linux on modelled devices, or QEMU's: its own drivers drive them.
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
        /// Whose, such as `bench`, or `image create`.
        #[arg(value_name = "COMMAND")]
        words: Vec<String>,
        /// Write the pages of all commands into this folder instead.
        #[arg(long, value_name = "DIR", conflicts_with = "words")]
        all: Option<PathBuf>,
    },
}

/// Ends the command for words it does not understand. A value that cannot be read is told in one
/// line, by whoever tried to read it.
pub(crate) fn refuse(error: &clap::Error) -> ! {
    match error.source() {
        Some(cause) if error.kind() == ErrorKind::ValueValidation => {
            eprintln!("flysch: {cause}");
            std::process::exit(2)
        }
        _ => {
            let words: Vec<_> = geom::long_form(std::env::args_os()).into_iter().skip(1).collect();
            let Some(text) = right_form(Cli::command(), &words, error) else { error.exit() };
            eprintln!("flysch: {text}");
            std::process::exit(2)
        }
    }
}

/// What `words` had to be instead, where an argument is refused that belongs to a command further
/// up, or that is too many because an option was left out.
pub(crate) fn right_form(
    mut command: clap::Command,
    words: &[OsString],
    error: &clap::Error,
) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(found)) = error.get(ContextKind::InvalidArg) else { return None };
    command.build();
    let mut path = vec![&command];
    for word in words {
        path.extend(path.last().and_then(|at| at.find_subcommand(word)));
    }
    let (last, above) = path.split_last()?;
    let has = |at: &clap::Command| {
        let mut names = at.get_arguments().filter_map(clap::Arg::get_long);
        names.any(|name| found.strip_prefix("--") == Some(name))
    };
    if let Some(at) = above.iter().rposition(|at| has(at)) {
        let (owner, next) = (path[at].get_bin_name().unwrap_or_default(), path[at + 1].get_name());
        return Some(format!("`{found}` is an option of `{owner}`: say it in front of `{next}`"));
    }
    let is_given = |arg: &&clap::Arg| {
        let short = arg.get_short().map(|it| format!("-{it}"));
        let long = arg.get_long().map(|it| format!("--{it}"));
        let is = |word: &OsString| {
            let word = word.to_string_lossy();
            short.iter().chain(&long).any(|option| word.starts_with(option.as_str()))
        };
        words.iter().any(is)
    };
    let options = last.get_arguments().filter(|arg| !arg.is_positional() && arg.is_required_set());
    let missing: Vec<String> =
        options.filter(|arg| !is_given(arg)).map(|a| a.to_string()).collect();
    if missing.is_empty() || found.starts_with('-') {
        return None;
    }
    let (name, missing) = (last.get_bin_name().unwrap_or(last.get_name()), missing.join(" "));
    let usage = (*last).clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    Some(format!("`{found}` is too many: `{name}` needs `{missing}`; say `{usage}`"))
}
