//! `flysch image mount`.

use std::path::PathBuf;

use flysch_fuse::{Ended, Options};

use super::Source;
use crate::failure::Failure;
use crate::output::Output;

/// Options of `flysch image mount`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The mount lasts until Ctrl-C, SIGTERM, or `umount DIR` (`fusermount3 -u DIR` without root).
As root it is open to everybody, as the kernel's own mounts are; else to you alone.")]
pub(super) struct Arguments {
    #[command(flatten)]
    source: Source,
    /// The directory to mount on.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Let device nodes and set-user-id bits in the image count.
    #[arg(long)]
    trusted: bool,
    /// Threads that answer the kernel; without, one for each processor.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    threads: usize,
}

/// Mounts, and stays until the mount ends.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let image = arguments.source.open()?;
    let fs = arguments.source.file_system(&image)?;
    let options = Options {
        source: image.path.display().to_string(),
        threads: arguments.threads,
        trusted: arguments.trusted,
    };
    let fail = |error| Failure::of(arguments.directory.display(), error);
    let mounted = flysch_fuse::mount(fs, &arguments.directory, &options).map_err(fail)?;
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
