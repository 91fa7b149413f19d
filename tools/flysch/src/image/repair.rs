//! `flysch image repair`.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use flysch_api::count::counted;
use flysch_api::finding::Place;
use flysch_files::NewFile;
use flysch_image::{
    Contents, Exclusive, Image, ImageVolume, RepairFailure, is_backup_of, restore_backup,
    write_backup,
};
use flysch_ubifs::repair::{Change, Level, RepairError, Report};
use serde::Serialize;

use super::{Source, shown};
use crate::failure::Failure;
use crate::file::{Named, spare_inputs};
use crate::output::Output;

/// Exit statuses, as in fsck(8).
const REPAIRED: u8 = 1;
const LEFT: u8 = 4;
const OPERATIONAL: u8 = 8;

/// Options of `flysch image repair`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Levels, each including those before it; the lowest sufficient one is used, and none above --level:
    safe            recomputes counts; nothing can be lost
    danger-default  drops what cannot be kept; files without names go to lost+found
    danger-rebuild  builds a new index from all nodes; deleted files may come back

The repair is made on a copy, which replaces the image when everything has worked and the check
finds no errors in it.

Exit status, as in fsck: 0 nothing is wrong, 1 repaired, 4 errors left uncorrected (also with
--dry-run), 8 the repair failed, 2 usage error.")]
pub(super) struct Arguments {
    #[command(flatten)]
    source: Source,
    /// The highest level allowed.
    #[arg(long, value_enum, default_value = "safe")]
    level: Allowed,
    /// Report what would be done, at whatever level is necessary, and change nothing.
    #[arg(short = 'n', long, conflicts_with_all = ["output", "backup", "restore"])]
    dry_run: bool,
    /// Save the blocks that the repair changes to this new file.
    #[arg(long, value_name = "FILE", conflicts_with = "restore")]
    backup: Option<PathBuf>,
    /// Put the blocks of a backup back: the image is as it was before the repair. An image that is
    /// not as that repair left it is refused.
    #[arg(long, value_name = "FILE")]
    restore: Option<PathBuf>,
    /// Leave the image unchanged and write the repaired one to this file.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    volume: Option<String>,
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

/// Repairs, or reports what a repair would do.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    arguments.source.changeable()?;
    let mut kept = [&arguments.backup, &arguments.restore].into_iter().flatten();
    if let Some(path) = &arguments.output {
        spare_inputs(path, kept.clone())?;
    }
    kept.try_for_each(|path| spare_inputs(path, [&arguments.source.path]))?;
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

/// The damage in one place: a volume, or UBI below all of them.
struct Surveyed {
    /// `None`: there is only one volume, or it is UBI itself.
    volume: Option<String>,
    report: Report,
}

fn repair(arguments: &Arguments, output: &mut Output) -> Result<Option<u8>, Failure> {
    let source = &arguments.source;
    let image = source.open()?;
    let Survey { found, wrong, lost } = survey(source, &image)?;
    let needed = found.iter().filter_map(|it| it.report.level).max();
    if needed.is_none() && !lost.is_empty() {
        return Err(left(source, &lost.join("; ")));
    }
    let level = Level::from(arguments.level);
    let is_allowed = needed.is_none_or(|needed| needed <= level);
    let is_done = is_allowed && !arguments.dry_run;
    if is_done && needed.is_some() {
        write(arguments, &image, (&wrong, level), output)?;
    }
    tell(arguments, &found, is_done, output)?;
    match needed {
        None => {
            if let Some(out) = &arguments.output {
                Named::copy(&source.path, out, output)?.finish()?;
            }
            Ok(None)
        }
        Some(needed) if !is_allowed && !arguments.dry_run => {
            let why = format!(
                "nothing was changed: the repair needs --level {needed}, at which {}",
                needed.cost()
            );
            Err(left(source, &why))
        }
        Some(_) if arguments.dry_run => Ok(Some(LEFT)),
        _ if !lost.is_empty() => Err(left(source, &lost.join("; "))),
        Some(_) => Ok(Some(REPAIRED)),
    }
}

fn left(source: &Source, why: &str) -> Failure {
    let line = Some(format!("{}: {why}", source.path.display()));
    Failure::Status { status: LEFT, line }
}

/// The damage in an image.
struct Survey<'i> {
    found: Vec<Surveyed>,
    /// Volumes to be repaired.
    wrong: Vec<&'i ImageVolume>,
    /// Irrecoverable losses.
    lost: Vec<String>,
}

/// Examines all selected volumes.
fn survey<'i>(source: &Source, image: &'i Image) -> Result<Survey<'i>, Failure> {
    let volumes = source.volumes(image)?;
    let is_one = volumes.len() == 1;
    let of = |name: &str, failure: RepairFailure| {
        let named = if is_one { failure.to_string() } else { format!("{name}: {failure}") };
        match failure {
            RepairFailure::Repair(RepairError::Unrepairable(_)) | RepairFailure::Unfit(_) => {
                left(source, &named)
            }
            _ => Failure::of(source.path.display(), named),
        }
    };
    let (mut found, mut wrong, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    let mut refusal = None;
    for part in &image.parts {
        let inside = |volume: &ImageVolume| part.volumes.iter().any(|it| std::ptr::eq(it, volume));
        let mut chosen = volumes.iter().filter(|(_, volume)| inside(volume)).peekable();
        let Some((name, first)) = chosen.peek() else { continue };
        let changes = image.survey_ubi(first).map_err(|failure| of(name, failure))?;
        let is_below = !changes.is_empty();
        if is_below {
            let level = changes.iter().map(|change| change.level).max();
            found.push(Surveyed { volume: None, report: Report { level, changes } });
            wrong.push(*first);
        }
        for (name, volume) in chosen {
            match image.survey_repair(volume) {
                Ok(report) => {
                    let is_known = wrong.iter().any(|other| std::ptr::eq(*other, *volume));
                    if report.level.is_some() && !is_known {
                        wrong.push(*volume);
                    }
                    let volume = (!is_one).then(|| name.to_string());
                    found.push(Surveyed { volume, report });
                }
                // Volumes of other things are none of our business, if there is any that is.
                Err(failure) if matches!(volume.contents, Contents::Raw(_)) => {
                    let damage = volume.ubi.iter().flat_map(|ubi| ubi.verify());
                    lost.extend(
                        damage
                            .take(1)
                            .map(|finding| format!("{name}: {finding}, and it has no copy")),
                    );
                    refusal = Some(of(name, failure));
                }
                Err(failure) => return Err(of(name, failure)),
            }
        }
    }
    match refusal {
        Some(failure) if found.is_empty() => Err(failure),
        _ => Ok(Survey { found, wrong, lost }),
    }
}

/// Repairs a copy, saves what it changes, and puts it in its place.
fn write(
    arguments: &Arguments,
    image: &Image,
    (volumes, level): (&[&ImageVolume], Level),
    output: &mut Output,
) -> Result<(), Failure> {
    /// Additional LEBs for a volume that has no room for a new index, if it may grow.
    const MORE: u32 = 16;
    let source = &arguments.source;
    let block = image.parts.first().map_or(1 << 16, |part| part.region.geometry.erase_size);
    let mut more = 0;
    let copy = copy_of(arguments, output)?;
    'attempt: loop {
        for volume in volumes {
            let at = image.volumes().position(|other| std::ptr::eq(other, *volume));
            match repair_one(source, copy.temporary_path(), (*volume, at), (level, more))? {
                Ok(()) => {}
                Err(failure) if failure.lacks_room() && more == 0 => {
                    more = MORE;
                    copy.fill(&source.path)?;
                    continue 'attempt;
                }
                Err(failure) if failure.lacks_room() => {
                    let why = "the repair needs empty LEBs for a new index, but there are none, \
                               and the volume keeps its size: nothing was changed; make a larger \
                               volume of it, or use `image extract` and `image create`";
                    return Err(Failure::of(source.path.display(), why));
                }
                Err(failure) => return Err(Failure::of(source.path.display(), failure)),
            }
        }
        break;
    }
    if let Some(backup) = &arguments.backup {
        save(&source.path, copy.temporary_path(), block, backup)
            .map_err(|error| Failure::of(backup.display(), error))?;
    }
    copy.finish()
}

/// Repairs, in the file at `path`, the volume that is `volume` in the image, and the one numbered
/// `at` there: others may have its name and ID.
fn repair_one(
    source: &Source,
    path: &Path,
    (volume, at): (&ImageVolume, Option<usize>),
    (level, more): (Level, u32),
) -> Result<Result<(), RepairFailure>, Failure> {
    let opened = source.open_at(path)?;
    let same = at
        .and_then(|at| opened.volumes().nth(at))
        .filter(|other| other.name == volume.name && other.id == volume.id)
        .ok_or_else(|| Failure::of(source.path.display(), "the image changed meanwhile"))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    Ok(opened.repair(same, level, now, more).map(drop))
}

fn save(old: &Path, new: &Path, block: u32, backup: &Path) -> std::io::Result<u64> {
    let file = NewFile::create(backup)?;
    let mut out = BufWriter::new(file.file());
    let blocks = write_backup(old, new, block, &mut out)?;
    out.flush()?;
    drop(out);
    // Never over another backup, but over what the same repair left when it was killed.
    match is_backup_of(backup, old)? {
        true => file.keep()?,
        false => file.keep_new()?,
    }
    Ok(blocks)
}

/// A copy of the image that replaces its original.
fn copy_of(arguments: &Arguments, output: &mut Output) -> Result<Named, Failure> {
    let image = &arguments.source.path;
    if arguments.output.is_none() && !image.is_file() {
        let why = "a device is not repaired in place: read it into a file, repair that, and write \
                   it back";
        return Err(Failure::of(image.display(), why));
    }
    Named::copy(image, arguments.output.as_ref().unwrap_or(image), output)
}

fn restore(arguments: &Arguments, backup: &Path, output: &mut Output) -> Result<(), Failure> {
    let fail = |error| Failure::of(backup.display(), error);
    let mut file = BufReader::new(File::open(backup).map_err(fail)?);
    let image = &arguments.source.path;
    // Nobody may change the image while a copy of it is, which then takes its place.
    let _lock = match image.is_file() {
        true => Some(Exclusive::of(image).map_err(|error| Failure::of(image.display(), error))?),
        false => None,
    };
    let copy = copy_of(arguments, output)?;
    let blocks = restore_backup(&mut file, copy.temporary_path()).map_err(fail)?;
    copy.finish()?;
    let path = arguments.source.path.display();
    match output.json() {
        true => output.value(&serde_json::json!({ "restored": blocks }))?,
        false => {
            let (one, many) = ("block is restored", "blocks are restored");
            output.line(format_args!("{path}: {}", counted(blocks, one, many)))?;
        }
    }
    Ok(())
}

fn tell(
    arguments: &Arguments,
    found: &[Surveyed],
    is_done: bool,
    output: &mut Output,
) -> Result<(), Failure> {
    let mut records: Vec<Record> = Vec::new();
    for Surveyed { volume, report } in found {
        records.extend(report.changes.iter().map(|change| record(volume.as_deref(), change)));
    }
    let level = found.iter().filter_map(|it| it.report.level).max().map(Level::name);
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
    let changes = counted(records.len(), "change", "changes");
    match (level, is_done) {
        (None, _) => output.line(format_args!("{path}: nothing is wrong"))?,
        (Some(level), true) => {
            output.line(format_args!("{path}: {changes}, level {level}"))?;
        }
        (Some(level), false) => {
            output.line(format_args!("{path}: {changes} at level {level}, none was made"))?;
        }
    }
    Ok(())
}

fn record(volume: Option<&str>, change: &Change) -> Record {
    let finding = &change.finding;
    let Place { peb, leb, offset } = finding.place;
    Record {
        level: change.level.name(),
        volume: volume.map(str::to_owned),
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
    let mut text = format!("{:<14} ", record.level);
    if let Some(volume) = &record.volume {
        let _ = write!(text, "{volume}: ");
    }
    let _ = write!(text, "{}: {}", record.structure, record.problem);
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
