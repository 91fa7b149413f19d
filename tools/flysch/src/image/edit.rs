//! `flysch image edit`.

mod command;
mod parse;

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Parser;
use flysch_api::count::counted;
use flysch_api::vfs::Timestamp;
use flysch_image::{EditError, Editor, Exclusive, Put, Room, Writable};
use serde_json::json;

use self::command::Edit;
use super::{Source, parse_offset};
use crate::failure::Failure;
use crate::file::Named;
use crate::output::Output;

/// Options of `flysch image edit`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = false,
    after_help = "\
Paths in the image start at its root; symlinks in a path are followed inside the image.

The edit is made on a copy, which replaces the image when everything has worked: the image is
either the old one or the new one, never half of each. A device (/dev/mtdN) is edited in place.

With --script several edits are made at once, all or none, one per line, with words quoted as in a
shell, and comments from # on:
    put ./rootfs/. /            # the contents of rootfs, into the root
    rm -rf /var/log
    chmod -R go-w /etc"
)]
pub(super) struct Arguments {
    #[command(flatten)]
    source: Source,
    /// Leave the image unchanged and write the edited one to this file.
    #[arg(short, long, value_name = "FILE", conflicts_with = "in_place")]
    output: Option<PathBuf>,
    /// Edit the file itself, without a copy: for large images; the file systems' own journals
    /// protect it.
    #[arg(long)]
    in_place: bool,
    /// Size of the flash that the image is for, if the image is smaller: that much space is
    /// available.
    #[arg(long, value_name = "BYTES", value_parser = parse_offset)]
    flash_size: Option<u64>,
    /// Make the edits and discard the result: shows whether they would work.
    #[arg(short = 'n', long, conflicts_with_all = ["output", "in_place"])]
    dry_run: bool,
    /// Take edits from this file, `-` for standard input.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Edit>,
}

/// A line of a script.
#[derive(Debug, clap::Parser)]
#[command(no_binary_name = true, disable_help_flag = true, disable_help_subcommand = true)]
struct Line {
    #[command(subcommand)]
    edit: Edit,
}

/// Executes edits.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let edits = match (&arguments.command, &arguments.script) {
        (Some(_), Some(_)) => return Err(Failure::usage("--script: an edit is already named")),
        (Some(_), None) => vec![],
        (None, Some(script)) => read_script(script)?,
        (None, None) => return Err(Failure::usage("nothing to do: name an edit, or --script")),
    };
    let edits: Vec<(usize, &Edit)> = match &arguments.command {
        Some(edit) => vec![(0, edit)],
        None => edits.iter().map(|(line, edit)| (*line, edit)).collect(),
    };
    for (line, edit) in &edits {
        edit.check().map_err(|wrong| match line {
            0 => Failure::usage(wrong),
            line => Failure::usage(format!("line {line}: {wrong}")),
        })?;
    }
    let room = Room {
        flash_size: arguments.flash_size,
        bytes: Some(edits.iter().map(|(_, edit)| edit.bytes()).sum()),
    };
    let path = arguments.source.changeable()?;
    // Nobody may change the image while a copy of it is, which then takes its place.
    let _lock = match arguments.in_place || !path.is_file() {
        true => None,
        false => Some(Exclusive::of(path).map_err(|error| Failure::of(path.display(), error))?),
    };
    let target = Target::of(arguments, output)?;
    if let (true, Target::Itself(_)) = (arguments.dry_run, &target) {
        return Err(Failure::usage("--dry-run: a device is edited in place"));
    }
    let put = grow_and_apply(arguments, &edits, &target, room)?;
    if !arguments.dry_run {
        target.keep()?;
    }
    report(edits.len(), &put, output)
}

/// Makes all edits. A copy of the image that has no space for them is made anew with more, as
/// long as the file system grows by that.
fn grow_and_apply(
    arguments: &Arguments,
    edits: &[(usize, &Edit)],
    target: &Target,
    first: Room,
) -> Result<Put, Failure> {
    let image = &arguments.source.path;
    let mut room = first;
    let mut blocks = 0;
    let mut full = None;
    for attempt in 1.. {
        let fs = match (arguments.source.open_writable(target.path(), &room), full.take()) {
            (Ok(fs), Some(failure)) if fs.blocks() <= blocks => return Err(failure),
            // It is full as it is, and may not be extended that far.
            (Err(_), Some(failure)) => return Err(failure),
            (opened, _) => opened?,
        };
        blocks = fs.blocks();
        let (line, error) = match apply(&fs, edits)? {
            Ok(put) => {
                fs.close().map_err(|error| Failure::of(image.display(), error))?;
                return Ok(put);
            }
            Err(failed) => failed,
        };
        let hint = match error.lacks_room() && arguments.flash_size.is_none() {
            true => "; if the image is for a larger flash, name its size (--flash-size)",
            false => "",
        };
        let failure = match line {
            0 => Failure::of(image.display(), format_args!("{error}{hint}")),
            line => Failure::failed(format!("line {line}: {error}{hint}")),
        };
        drop(fs);
        let size = std::fs::metadata(image).map_or(0, |it| it.len());
        let next = first.for_attempt(attempt, size).filter(|_| error.lacks_room());
        let (Some(next), Target::Copy(copy), true) = (next, target, may_repeat(edits)) else {
            return Err(failure);
        };
        copy.fill(image)?;
        (room, full) = (next, Some(failure));
    }
    unreachable!("attempts end")
}

/// Whether the edits can be made a second time: standard input can be read only once.
fn may_repeat(edits: &[(usize, &Edit)]) -> bool {
    edits.iter().all(|(_, edit)| !edit.reads_standard_input())
}

/// Makes all edits; an error of one of them has its line.
fn apply(
    fs: &Writable,
    edits: &[(usize, &Edit)],
) -> Result<Result<Put, (usize, EditError)>, Failure> {
    let mut put = Put::default();
    let shared = fs.file_system();
    let mut locked = shared.write().expect("nobody else has it");
    let mut editor = Editor::new(&mut *locked, now()?);
    for (line, edit) in edits {
        if let Err(error) = edit.apply(&mut editor, &mut put) {
            return Ok(Err((*line, error)));
        }
    }
    Ok(editor.finish().map(|()| put).map_err(|error| (0, error)))
}

fn report(edits: usize, put: &Put, output: &mut Output) -> Result<(), Failure> {
    if output.json() {
        return output.value(&json!({
            "edits": edits,
            "files_put": put.files,
            "bytes_put": put.bytes,
            "attributes_left_out": put.without_xattr,
        }));
    }
    if put.without_xattr > 0 {
        let one = "extended attribute was left out: the format cannot hold it";
        let many = "extended attributes were left out: the format cannot hold them";
        eprintln!("flysch: {}", counted(put.without_xattr, one, many));
    }
    Ok(())
}

/// The time stamp of edits: SOURCE_DATE_EPOCH, for reproducible builds, or now.
fn now() -> Result<Timestamp, Failure> {
    if let Some(set) = std::env::var_os("SOURCE_DATE_EPOCH") {
        let seconds = set.to_str().and_then(|text| text.parse().ok());
        let wrong = || Failure::usage("SOURCE_DATE_EPOCH: not a number of seconds");
        return Ok(Timestamp { seconds: seconds.ok_or_else(wrong)?, nanoseconds: 0 });
    }
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Ok(Timestamp { seconds, nanoseconds: since.subsec_nanos() })
}

fn read_script(path: &Path) -> Result<Vec<(usize, Edit)>, Failure> {
    let mut text = Vec::new();
    let read = match path.as_os_str().as_bytes() {
        b"-" => std::io::stdin().read_to_end(&mut text),
        _ => std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut text)),
    };
    read.map_err(|error| Failure::of(path.display(), error))?;
    let mut edits = vec![];
    for (at, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        let wrong = |what: String| Failure::usage(format!("{}: line {at}: {what}", path.display()));
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let words =
            shlex::bytes::split(line).ok_or_else(|| wrong("a quote is not closed".into()))?;
        if words.is_empty() {
            continue;
        }
        let words = words.into_iter().map(OsString::from_vec);
        let line = Line::try_parse_from(words).map_err(|error| {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            wrong(first.trim_start_matches("error: ").to_owned())
        })?;
        edits.push((at, line.edit));
    }
    if edits.is_empty() {
        return Err(Failure::usage(format!("{}: there is no edit in it", path.display())));
    }
    Ok(edits)
}

/// The file that is edited.
enum Target {
    /// The image itself.
    Itself(PathBuf),
    /// A copy.
    Copy(Named),
}

impl Target {
    fn of(arguments: &Arguments, output: &mut Output) -> Result<Self, Failure> {
        let image = &arguments.source.path;
        let fail = |error| Failure::of(image.display(), error);
        let metadata = std::fs::metadata(image).map_err(fail)?;
        if !metadata.is_file() || arguments.in_place {
            if let (false, Some(_)) = (metadata.is_file(), &arguments.output) {
                return Err(Failure::usage("--output: a device is edited in place"));
            }
            return Ok(Self::Itself(image.clone()));
        }
        let last = arguments.output.as_ref().unwrap_or(image);
        Ok(Self::Copy(Named::copy(image, last, output)?))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Itself(path) => path,
            Self::Copy(copy) => copy.temporary_path(),
        }
    }

    /// Everything worked.
    fn keep(self) -> Result<(), Failure> {
        match self {
            Self::Itself(_) => Ok(()),
            Self::Copy(copy) => copy.finish(),
        }
    }
}
