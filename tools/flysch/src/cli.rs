//! The command line.

use std::error::Error;
use std::path::PathBuf;

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::{
    ata, bench, cam, copy, emmc, export, geom, gstat, image, lab, nvme, pci, right_form, serve, ufs,
};

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

/// What an error is where a command was said without its verb.
const HELP_INSTEAD: ErrorKind = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

/// Ends the command for words it does not understand. A value that cannot be read is told in one
/// line, by whoever tried to read it.
pub(crate) fn refuse(error: &clap::Error) -> ! {
    match error.source() {
        Some(cause) if error.kind() == ErrorKind::ValueValidation => {
            eprintln!("flysch: {}", of_value(error, &cause.to_string()));
            std::process::exit(2)
        }
        _ if !error.use_stderr() || error.kind() == HELP_INSTEAD => error.exit(),
        _ => {
            let words: Vec<_> = geom::long_form(std::env::args_os()).into_iter().skip(1).collect();
            eprintln!("flysch: {}", right_form::right_form(Cli::command(), &words, error));
            std::process::exit(2)
        }
    }
}

/// Why a value cannot be read. Who read a number says nothing of where it stood.
fn of_value(error: &clap::Error, why: &str) -> String {
    let told = (error.get(ContextKind::InvalidValue), error.get(ContextKind::InvalidArg));
    match told {
        (Some(value), Some(argument)) if !why.contains('`') => {
            format!("`{value}` for `{argument}`: {why}")
        }
        _ => why.to_owned(),
    }
}
