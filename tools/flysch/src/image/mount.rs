//! `flysch image mount`.

use std::path::PathBuf;

use flysch_fuse::{Ended, Mounted, Options};
use flysch_image::Room;

use super::{Source, parse_offset};
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
    /// So that it can be changed; every change goes through the file system's journal, so the image
    /// is whole even if this process is killed.
    #[arg(long)]
    rw: bool,
    /// Bytes of the flash the image is for, where it is smaller: there is that much room.
    #[arg(long, value_name = "BYTES", value_parser = parse_offset, requires = "rw")]
    flash_size: Option<u64>,
    /// Let device nodes and set-user-id bits in the image count.
    #[arg(long)]
    trusted: bool,
    /// Threads that answer the kernel; without, one for each processor.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    threads: usize,
}

/// Mounts, and stays until the mount ends.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let fail = |error| Failure::of(arguments.directory.display(), error);
    let options = Options {
        source: arguments.source.path.display().to_string(),
        threads: arguments.threads,
        trusted: arguments.trusted,
    };
    if arguments.rw {
        let room = Room { flash_size: arguments.flash_size, bytes: None };
        let writable = arguments.source.open_writable(&arguments.source.path, &room)?;
        let shared = writable.file_system();
        let mounted = flysch_fuse::mount_read_write(shared, &arguments.directory, &options);
        let stayed = stay(mounted.map_err(fail)?, arguments, output);
        let closed = writable.close();
        return stayed
            .and(closed.map_err(|error| Failure::of(arguments.source.path.display(), error)));
    }
    let image = arguments.source.open()?;
    let fs = arguments.source.file_system(&image)?;
    let mounted = flysch_fuse::mount(fs, &arguments.directory, &options).map_err(fail)?;
    stay(mounted, arguments, output)
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
