//! `flysch image repair`.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use flysch_api::vfs::Place;
use flysch_image::{Image, RepairFailure, Volume, restore_backup, write_backup};
use flysch_ubifs::repair::{Change, Level, RepairError, Report};
use serde::Serialize;

use super::{Source, shown};
use crate::failure::Failure;
use crate::output::Output;

/// Statuses, as fsck(8) has them.
const REPAIRED: u8 = 1;
const LEFT: u8 = 4;
const OPERATIONAL: u8 = 8;

/// Options of `flysch image repair`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Levels, each with all before it; the least that suffices is taken, and none above --level:
    safe            counts anew what can be counted; nothing can be lost
    danger-default  drops what cannot be kept; files without names go to lost+found
    danger-rebuild  makes the index anew from all nodes; deleted files may come back

The repair is made on a copy that takes the image's place when all has worked and the check finds
nothing any more.

Status, as of fsck: 0 nothing is wrong, 1 repaired, 4 something is wrong and was left (also with
--dry-run), 8 the repair did not work, 2 wrong usage.")]
pub(super) struct Arguments {
    #[command(flatten)]
    source: Source,
    /// The most that may be done.
    #[arg(long, value_enum, default_value = "safe")]
    level: Allowed,
    /// Say what would be done, at whatever level it takes, and change nothing.
    #[arg(short = 'n', long, conflicts_with_all = ["output", "backup", "restore"])]
    dry_run: bool,
    /// Save the blocks that the repair changes in this new file.
    #[arg(long, value_name = "FILE", conflicts_with = "restore")]
    backup: Option<PathBuf>,
    /// Put the blocks of a backup back: the image is as it was before the repair.
    #[arg(long, value_name = "FILE")]
    restore: Option<PathBuf>,
    /// Leave the image as it is and write the repaired one here.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Allowed {
    Safe,
    DangerDefault,
    DangerRebuild,
}

impl From<Allowed> for Level {
    fn from(allowed: Allowed) -> Self {
        match allowed {
            Allowed::Safe => Self::Safe,
            Allowed::DangerDefault => Self::DangerDefault,
            Allowed::DangerRebuild => Self::DangerRebuild,
        }
    }
}

/// One change in JSON.
#[derive(Serialize)]
struct Record {
    level: &'static str,
    structure: &'static str,
    problem: String,
    action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    peb: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leb: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

/// Repairs, or says what a repair would do.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let done = match &arguments.restore {
        Some(backup) => restore(arguments, backup, output).map(|()| None),
        None => repair(arguments, output),
    };
    match done {
        Ok(None) => Ok(()),
        Ok(Some(status)) => Err(Failure::Status { status, line: None }),
        Err(Failure::Failed(line)) => {
            Err(Failure::Status { status: OPERATIONAL, line: Some(line) })
        }
        Err(other) => Err(other),
    }
}

fn repair(arguments: &Arguments, output: &mut Output) -> Result<Option<u8>, Failure> {
    let source = &arguments.source;
    let path = source.path.display();
    let left = |why: String| Failure::Status { status: LEFT, line: Some(format!("{path}: {why}")) };
    let image = source.open()?;
    let volume = the_volume(source, &image)?;
    let report = image.survey_repair(volume).map_err(|failure| match failure {
        RepairFailure::Repair(RepairError::Unrepairable(_)) | RepairFailure::Unfit(_) => {
            left(failure.to_string())
        }
        other => Failure::of(&path, other),
    })?;
    let level = Level::from(arguments.level);
    let is_allowed = report.level.is_none_or(|needed| needed <= level);
    let is_done = is_allowed && !arguments.dry_run;
    if is_done && report.level.is_some() {
        write(arguments, &image, volume, level)?;
    }
    tell(arguments, &report, is_done, output)?;
    match report.level {
        None => {
            if let Some(out) = &arguments.output {
                std::fs::copy(&source.path, out)
                    .map_err(|error| Failure::of(out.display(), error))?;
            }
            Ok(None)
        }
        Some(needed) if !is_allowed && !arguments.dry_run => Err(left(format!(
            "nothing was changed: the repair takes --level {needed}, by which {}",
            needed.cost()
        ))),
        Some(_) if arguments.dry_run => Ok(Some(LEFT)),
        Some(_) => Ok(Some(REPAIRED)),
    }
}

/// The one volume that is meant: of several, the one with a file system.
fn the_volume<'i>(source: &Source, image: &'i Image) -> Result<&'i Volume, Failure> {
    let volumes = source.volumes(image)?;
    if let [(_, volume)] = volumes[..] {
        return Ok(volume);
    }
    let with_files: Vec<_> =
        volumes.iter().filter(|(_, volume)| volume.file_system().is_some()).collect();
    match with_files[..] {
        [(_, volume)] => Ok(volume),
        _ => {
            let names: Vec<&str> = volumes.iter().map(|(name, _)| &name[..]).collect();
            let path = source.path.display();
            Err(Failure::usage(format!(
                "{path}: name one volume with --volume: {}",
                names.join(", ")
            )))
        }
    }
}

/// Repairs a copy, saves what it changes, and puts it in its place.
fn write(
    arguments: &Arguments,
    image: &Image,
    volume: &Volume,
    level: Level,
) -> Result<(), Failure> {
    /// LEBs more for a volume that has no room for a new index, if it may grow.
    const MORE: u32 = 16;
    let source = &arguments.source;
    let block = image.parts.first().map_or(1 << 16, |part| part.region.geometry.erase_size);
    let mut more = 0;
    let copy = loop {
        let (copy, last) = copy_of(arguments)?;
        let opened = Source { path: copy.to_path_buf(), ..source.clone() }.open()?;
        let same = opened
            .volumes()
            .find(|other| other.name == volume.name && other.id == volume.id)
            .ok_or_else(|| Failure::of(source.path.display(), "the image changed meanwhile"))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        match opened.repair(same, level, now, more) {
            Ok(_) => break (copy, last),
            Err(failure) if failure.lacks_room() && more == 0 => more = MORE,
            Err(failure) => return Err(Failure::of(source.path.display(), failure)),
        }
    };
    if let Some(backup) = &arguments.backup {
        save(&source.path, &copy.0, block, backup)
            .map_err(|error| Failure::of(backup.display(), error))?;
    }
    keep(copy.0, &copy.1)
}

fn save(old: &Path, new: &Path, block: u32, backup: &Path) -> std::io::Result<u64> {
    // Never over another backup.
    let file = File::options().write(true).create_new(true).open(backup)?;
    let mut out = BufWriter::new(file);
    let blocks = write_backup(old, new, block, &mut out)?;
    out.flush()?;
    out.get_ref().sync_all()?;
    Ok(blocks)
}

/// A copy of the image beside what it is to replace.
fn copy_of(arguments: &Arguments) -> Result<(tempfile::TempPath, PathBuf), Failure> {
    let image = &arguments.source.path;
    let fail = |error| Failure::of(image.display(), error);
    let last = match &arguments.output {
        Some(output) => output.clone(),
        None => image.canonicalize().map_err(fail)?,
    };
    let folder = last.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let copy = tempfile::NamedTempFile::new_in(folder)
        .map_err(|error| Failure::of(folder.display(), error))?
        .into_temp_path();
    std::fs::copy(image, &copy).map_err(fail)?;
    Ok((copy, last))
}

fn keep(copy: tempfile::TempPath, last: &Path) -> Result<(), Failure> {
    let fail = |error: std::io::Error| Failure::of(last.display(), error);
    File::open(&copy).and_then(|file| file.sync_all()).map_err(fail)?;
    copy.persist(last).map_err(|error| fail(error.error))
}

fn restore(arguments: &Arguments, backup: &Path, output: &mut Output) -> Result<(), Failure> {
    let (copy, last) = copy_of(arguments)?;
    let fail = |error| Failure::of(backup.display(), error);
    let mut file = BufReader::new(File::open(backup).map_err(fail)?);
    let blocks = restore_backup(&mut file, &copy).map_err(fail)?;
    keep(copy, &last)?;
    let path = arguments.source.path.display();
    match output.json() {
        true => output.value(&serde_json::json!({ "restored": blocks }))?,
        false => output.line(format_args!("{path}: {blocks} blocks are as they were"))?,
    }
    Ok(())
}

fn tell(
    arguments: &Arguments,
    report: &Report,
    is_done: bool,
    output: &mut Output,
) -> Result<(), Failure> {
    let records: Vec<Record> = report.changes.iter().map(record).collect();
    let level = report.level.map(Level::name);
    if output.json() {
        output.value(&serde_json::json!({
            "level": level, "repaired": is_done && level.is_some(), "changes": records,
        }))?;
        return Ok(());
    }
    for record in &records {
        output.line(line(record))?;
    }
    let path = arguments.source.path.display();
    match (level, is_done) {
        (None, _) => output.line(format_args!("{path}: nothing is wrong"))?,
        (Some(level), true) => {
            output.line(format_args!("{path}: {} changes, level {level}", records.len()))?;
        }
        (Some(level), false) => output.line(format_args!(
            "{path}: {} changes at level {level}, none was made",
            records.len()
        ))?,
    }
    Ok(())
}

fn record(change: &Change) -> Record {
    let finding = &change.finding;
    let Place { peb, leb, offset } = finding.place;
    Record {
        level: change.level.name(),
        structure: finding.structure,
        problem: finding.problem.clone(),
        action: change.action.clone(),
        peb,
        leb,
        offset,
        inode: finding.inode.map(|inode| inode.0),
        path: finding.path.as_ref().map(|path| format!("/{}", shown(path))),
    }
}

fn line(record: &Record) -> String {
    use std::fmt::Write as _;
    let mut text = format!("{:<14} {}: {}", record.level, record.structure, record.problem);
    let places = [("PEB", record.peb), ("LEB", record.leb), ("offset", record.offset)];
    for (name, value) in places {
        if let Some(value) = value {
            let _ = write!(text, ", {name} {value}");
        }
    }
    if let Some(inode) = record.inode {
        let _ = write!(text, ", inode {inode}");
    }
    if let Some(path) = &record.path {
        let _ = write!(text, ", {path}");
    }
    let _ = write!(text, ": {}", record.action);
    text
}
