//! `flysch lab`: a Linux guest whose own drivers drive modelled devices, or QEMU's.

mod console;
mod linux;

use flysch_lab::{Kernel, Lab};
use serde_json::json;

use crate::failure::Failure;
use crate::output::Output;

/// Options of `flysch lab`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Boot Linux on devices, for a shell or a script.
    Linux(linux::Arguments),
    /// Build the guests: once, as root, from a Debian mirror.
    Build {
        /// Build only this one.
        #[arg(long, value_name = "KERNEL")]
        kernel: Option<KernelName>,
    },
    /// List the guests, and whether they have been built.
    List,
}

/// The kernel of a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum KernelName {
    /// Debian 13's kernel: 6.12.
    #[default]
    Release,
    /// The newest of its backports: 7.x.
    Backports,
}

impl From<KernelName> for Kernel {
    fn from(name: KernelName) -> Self {
        match name {
            KernelName::Release => Self::Release,
            KernelName::Backports => Self::Backports,
        }
    }
}

/// Executes the command.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    match &arguments.command {
        Command::Linux(arguments) => linux::run(arguments, output),
        Command::Build { kernel } => {
            let kernels = kernel.map_or(Kernel::ALL.to_vec(), |kernel| vec![kernel.into()]);
            for kernel in kernels {
                open_or_build(kernel)?;
            }
            list(output)
        }
        Command::List => list(output),
    }
}

fn list(output: &mut Output) -> Result<(), Failure> {
    let guests = Kernel::ALL.map(|kernel| (kernel, Lab::folder_of(kernel), Lab::open_with(kernel)));
    let name = |kernel| match kernel {
        Kernel::Release => "release",
        Kernel::Backports => "backports",
    };
    if output.json() {
        let all = guests.map(|(kernel, folder, lab)| {
            json!({
                "kernel": name(kernel),
                "folder": folder.display().to_string(),
                "version": lab.ok().and_then(|lab| lab.version()),
            })
        });
        return output.value(&all);
    }
    let rows = guests.map(|(kernel, folder, lab)| {
        let version = match lab {
            Ok(lab) => lab.version().unwrap_or("unknown".into()),
            Err(_) => "not made".into(),
        };
        vec![name(kernel).to_owned(), version, folder.display().to_string()]
    });
    output.table(&["Kernel", "Version", "Folder"], &rows)
}

/// The guest with that kernel, built now if it does not exist.
fn open_or_build(kernel: Kernel) -> Result<Lab, Failure> {
    match Lab::open_with(kernel) {
        Err(flysch_lab::LabError::NotBuilt(folder)) => {
            if !rustix::process::geteuid().is_root() {
                return Err(Failure::of(
                    folder.display(),
                    "there is no guest, and making one needs root: run `sudo flysch lab build` \
                     once, or name another folder in FLYSCH_LAB",
                ));
            }
            eprintln!("flysch: making the guest in {}, which takes some minutes", folder.display());
            Lab::build_guest(kernel, &mut |step| eprintln!("flysch: {step}"))
                .map_err(Failure::failed)
        }
        opened => opened.map_err(Failure::failed),
    }
}
