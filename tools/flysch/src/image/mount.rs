//! `flysch image mount`.

use std::path::PathBuf;

use flysch_fuse::{Ended, FuseOptions, Mounted};
use flysch_image::{ChipTarget, Room, Writable, chip_keys};

use super::{Source, parse_offset};
use crate::failure::Failure;
use crate::output::Output;

static AFTER_HELP: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
    format!(
        "\
The mount lasts until Ctrl-C, SIGTERM, or `umount DIR` (`fusermount3 -u DIR` without root).
For root it is accessible to everybody, like the kernel's own mounts; otherwise only to you.

With --rw, IMAGE may be a chip model instead of a file.
{}",
        chip_keys()
    )
});

/// Options of `flysch image mount`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP.as_str())]
pub(super) struct Arguments {
    #[command(flatten)]
    source: Source,
    /// The directory to mount on.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Mount for writing; every change goes through the file system's journal, so the image stays
    /// consistent even if this process is killed.
    #[arg(long)]
    rw: bool,
    /// Size of the flash that the image is for, if the image is smaller: that much space is
    /// available.
    #[arg(long, value_name = "BYTES", value_parser = parse_offset, requires = "rw")]
    flash_size: Option<u64>,
    /// Put every change on the medium before its call returns, like `mount -o sync`: `sync` and
    /// `syncfs` are not passed on to FUSE mounts (`fsync`, O_SYNC and chattr +S are).
    #[arg(long, requires = "rw")]
    sync: bool,
    /// Honour device nodes and set-user-id bits in the image.
    #[arg(long)]
    trusted: bool,
    /// Threads that answer the kernel; default: one per processor.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    threads: usize,
}

/// Mounts, and stays until the mount ends.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let fail = |error| Failure::of(arguments.directory.display(), error);
    // Before the image is taken, or a chip formatted.
    flysch_fuse::mount_point(&arguments.directory).map_err(fail)?;
    let options = FuseOptions {
        source: arguments.source.path.display().to_string(),
        threads: arguments.threads,
        trusted: arguments.trusted,
        write_through: arguments.sync,
    };
    if ChipTarget::is_meant(&arguments.source.path) {
        return run_on_chip(arguments, &options, output);
    }
    if arguments.rw {
        let room = Room { flash_size: arguments.flash_size, bytes: None };
        let writable = arguments.source.open_writable(arguments.source.changeable()?, &room)?;
        return run_writable(writable, arguments, &options, output);
    }
    let image = arguments.source.open()?;
    let fs = arguments.source.file_system(&image)?;
    let mounted = flysch_fuse::mount(fs, &arguments.directory, &options).map_err(fail)?;
    stay(mounted, arguments, output)
}

fn run_writable(
    writable: Writable,
    arguments: &Arguments,
    options: &FuseOptions,
    output: &mut Output,
) -> Result<(), Failure> {
    let shared = writable.file_system();
    let mounted = flysch_fuse::mount_read_write(shared, &arguments.directory, options)
        .map_err(|error| Failure::of(arguments.directory.display(), error))?;
    let stayed = stay(mounted, arguments, output);
    let closed = writable.close();
    stayed.and(closed.map_err(|error| Failure::of(arguments.source.path.display(), error)))
}

fn run_on_chip(
    arguments: &Arguments,
    options: &FuseOptions,
    output: &mut Output,
) -> Result<(), Failure> {
    let path = &arguments.source.path;
    if !arguments.rw {
        return Err(Failure::usage(format!(
            "{}: a chip can only be mounted with --rw",
            path.display()
        )));
    }
    let target = path.to_str().unwrap_or_default().parse::<ChipTarget>();
    let target = target.map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    let chip = target.open(arguments.source.volume.as_deref());
    let chip = chip.map_err(|error| Failure::of(path.display(), error))?;
    let lost_power = chip.power();
    let result = run_writable(chip.fs, arguments, options, output);
    if !lost_power() {
        return result;
    }
    // What could not be written any more is what the user wanted to see.
    if !output.json() {
        output.line("the power was cut; the chip is as that left it")?;
    }
    output.finish()
}

/// Waits until the mount ends.
fn stay(mounted: Mounted, arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let fail = |error| Failure::of(arguments.directory.display(), error);
    mounted.end_on_signals().map_err(fail)?;
    if !output.json() {
        output.line(format_args!("mounted on {}", mounted.path().display()))?;
        output.finish()?;
    }
    match mounted.wait().map_err(fail)? {
        Ended::Unmounted | Ended::Signal => Ok(()),
        Ended::Panic => Err(fail(std::io::Error::other("a request failed; unmounted"))),
    }
}
