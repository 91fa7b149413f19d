//! Damaged images through `image repair`: it ends without a panic, what it repairs is clean
//! afterwards, and every file that was readable before is unchanged.
//!
//! Each damage follows from one number, as in [`mutate`](crate::mutate).

mod samples;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flysch_api::vfs::{FileKind, NewFile, Timestamp};
use flysch_image::{Image, ImageOpenOptions, ImageVolume, RepairFailure, Room};
use flysch_ubifs::repair::{Level, RepairError, Report};

use crate::mutate::{mutated, now};
use crate::ubifs::{File, Random, Shown, Tree, shown};
pub use samples::{Good, samples};

/// Number of LEBs added to a volume without room for a new index, as the command does.
const MORE: u32 = 16;
/// An arbitrary time.
const NOW: u64 = 1_700_000_000;

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Number of images.
    pub images: u64,
    /// Number of volumes that were clean.
    pub clean: u64,
    /// Number of volumes repaired, by level.
    pub repaired: BTreeMap<&'static str, u64>,
    /// Number of volumes or images on which no repair was attempted, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Number of files in repaired volumes that were unchanged.
    pub kept: u64,
    /// Maximum time for one image.
    pub longest: Duration,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} damaged images", self.images)?;
        writeln!(f, "  {} volumes clean, {} files kept", self.clean, self.kept)?;
        for (level, count) in &self.repaired {
            writeln!(f, "  {count} volumes repaired at {level}")?;
        }
        for (reason, count) in &self.refused {
            writeln!(f, "  {count} refused: {reason}")?;
        }
        write!(f, "  {:?} for the slowest", self.longest)
    }
}

/// Repairs damaged copies of one set of samples in a directory of its own.
#[derive(Debug)]
pub struct Run<'s> {
    samples: &'s [Good],
    directory: PathBuf,
    /// Where to keep the images with problems.
    pub keep: Option<PathBuf>,
    /// Sums over all images so far.
    pub totals: Totals,
}

impl<'s> Run<'s> {
    /// Works in `directory`.
    pub fn new(samples: &'s [Good], directory: &Path) -> Self {
        let totals = Totals::default();
        Self { samples, directory: directory.to_path_buf(), keep: None, totals }
    }

    /// Damages and repairs number `seed`; returns what went wrong.
    ///
    /// # Errors
    /// In words, with the sample's name.
    pub fn one(&mut self, seed: u64) -> Result<(), String> {
        let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        (0..4).for_each(|_| _ = random.below(2));
        let good = &self.samples[random.below(self.samples.len() as u64) as usize];
        let bytes = mutated(&good.sample, &mut random);
        let begun = now();
        let outcome = catch_unwind(AssertUnwindSafe(|| self.image(good, &bytes)));
        self.totals.longest = self.totals.longest.max(now().saturating_sub(begun));
        self.totals.images += 1;
        let outcome = outcome.unwrap_or_else(|_| Err("it panicked".into()));
        if let (Err(_), Some(keep)) = (&outcome, &self.keep) {
            fs::write(keep.join(seed.to_string()), &bytes).map_err(|error| error.to_string())?;
        }
        outcome.map_err(|error| format!("seed {seed} of {}: {error}", good.sample.name))
    }

    fn image(&mut self, good: &Good, bytes: &[u8]) -> Result<(), String> {
        let path = self.directory.join("image");
        let text = |error: &dyn fmt::Display| error.to_string();
        fs::write(&path, bytes).map_err(|error| text(&error))?;
        let image = match Image::open(&path, &ImageOpenOptions::default()) {
            Ok(image) => image,
            Err(error) => {
                *self.totals.refused.entry(kind_of(&error.to_string())).or_default() += 1;
                return Ok(());
            }
        };
        let volumes: Vec<&ImageVolume> = image.volumes().collect();
        for (number, volume) in volumes.into_iter().enumerate() {
            self.volume(&image, (number, volume), good)
                .map_err(|error| format!("volume {number}, {}: {error}", volume.name))?;
        }
        match fs::read(&path) {
            Ok(after) if after == bytes => Ok(()),
            _ => Err("the image itself was changed".into()),
        }
    }

    fn volume(
        &mut self,
        image: &Image,
        (number, volume): (usize, &ImageVolume),
        good: &Good,
    ) -> Result<(), String> {
        let surveyed = image.survey_ubi(volume);
        let surveyed = surveyed.and_then(|below| Ok((below, image.survey_repair(volume)?)));
        let report = match surveyed {
            Ok((mut below, mut report)) => {
                report.changes.append(&mut below);
                report.level = report.changes.iter().map(|change| change.level).max();
                report
            }
            Err(failure) => {
                *self.totals.refused.entry(kind_of(&failure.to_string())).or_default() += 1;
                return Ok(());
            }
        };
        let before = shown_of(volume);
        let Some(level) = report.level else {
            self.totals.clean += 1;
            return match found_by_check(image, volume).or(wrong_with(&before)) {
                None => Ok(()),
                Some(found) => Err(format!("nothing to repair, yet {found}")),
            };
        };
        let copy = self.directory.join("copy");
        match self.repair(image, &copy, (number, level)) {
            Ok(()) => {}
            Err(RepairFailure::Unfit(why)) => {
                *self.totals.refused.entry(kind_of(&why)).or_default() += 1;
                return Ok(());
            }
            Err(RepairFailure::Repair(RepairError::Unclean(rest))) => {
                let rest: Vec<String> = rest.iter().map(|it| format!("\n    {it}")).collect();
                return Err(format!("level {level}: still wrong:{}", rest.concat()));
            }
            Err(RepairFailure::Image(why)) => {
                *self.totals.refused.entry(kind_of(&why)).or_default() += 1;
                return Ok(());
            }
            Err(failure) => return Err(format!("level {level}: {failure}")),
        }
        let repaired = Image::open(&copy, &ImageOpenOptions::default())
            .map_err(|error| format!("the repaired image does not open: {error}"))?;
        let volume = repaired.volumes().nth(number).ok_or("the volume is gone")?;
        if let Some(found) = found_by_check(&repaired, volume) {
            return Err(format!("repaired at {level}, but the check says {found}"));
        }
        match (repaired.survey_repair(volume), repaired.survey_ubi(volume)) {
            (Ok(Report { level: None, .. }), Ok(below)) if below.is_empty() => {}
            other => return Err(format!("repaired at {level}, and then {other:?}")),
        }
        let after = shown_of(volume);
        if let Some(found) = wrong_with(&after) {
            return Err(format!("repaired at {level}, and then {found}"));
        }
        self.totals.kept += kept(&report, (&before.tree, &after.tree), good.tree(number))?;
        *self.totals.repaired.entry(level.name()).or_default() += 1;
        written_to(&repaired, volume)
    }

    fn repair(
        &self,
        image: &Image,
        copy: &Path,
        (number, level): (usize, Level),
    ) -> Result<(), RepairFailure> {
        let mut more = 0;
        loop {
            fs::copy(&image.path, copy).expect("a copy");
            let opened = Image::open(copy, &ImageOpenOptions::default()).expect("it opened before");
            let volume = opened.volumes().nth(number).expect("it was there before");
            match opened.repair(volume, level, NOW, more) {
                Err(failure) if failure.lacks_room() && more == 0 => more = MORE,
                Err(RepairFailure::Repair(RepairError::Write(_))) if more == MORE => {
                    return Err(RepairFailure::Unfit("no room for a new index".into()));
                }
                other => return other.map(drop),
            }
        }
    }
}

/// An error message without its numbers.
fn kind_of(error: &str) -> String {
    error.split(|c: char| c.is_ascii_digit()).collect::<Vec<_>>().join("N")
}

/// Everything that is readable.
fn shown_of(volume: &ImageVolume) -> Shown {
    let fs = volume.file_system();
    fs.map_or_else(Shown::default, |fs| shown(&*fs, fs.statistics().root))
}

/// The first problem in what a file system shows; damaged content is reported with the files.
fn wrong_with(shown: &Shown) -> Option<String> {
    shown.contradictions.iter().chain(&shown.problems).next().cloned()
}

/// The first finding of the check of `volume` that is more severe than a note.
fn found_by_check(image: &Image, volume: &ImageVolume) -> Option<String> {
    let mut first = None;
    flysch_image::check(image, &mut |found| {
        let is_wrong = found.finding.severity > flysch_api::finding::Severity::Note;
        if is_wrong && found.volume == Some(&volume.name) && first.is_none() {
            first = Some(found.finding.to_string());
        }
    });
    first
}

/// Counts the files that are unchanged.
fn kept(
    report: &Report,
    (before, after): (&Tree, &Tree),
    good: Option<&Tree>,
) -> Result<u64, String> {
    let gives_up_content = report.changes.iter().any(|it| it.finding.structure == "journal");
    let is_safe = report.level == Some(Level::Safe);
    let mut count = 0;
    for (path, file) in before {
        let was_good = good.and_then(|tree| tree.get(path)).is_some_and(|it| same(it, file));
        let whole = file.content.is_ok() && !file.xattrs.contains_key(&b"damaged"[..]);
        if !(was_good || is_safe && whole) || gives_up_content {
            continue;
        }
        let shown = path.escape_ascii();
        let Some(now) = after.get(path) else {
            if lost_directory_above(report, path) && found_again(after, file) {
                continue;
            }
            let level = report.level;
            return Err(format!("/{shown} could be read and is gone, {level:?}: {}", told(report)));
        };
        if was_good && !same(now, file) {
            return Err(format!("/{shown} is another: {}", told(report)));
        }
        count += 1;
    }
    Ok(count)
}

/// Whether the inode of a directory on `path` was dropped.
fn lost_directory_above(report: &Report, path: &[u8]) -> bool {
    report.changes.iter().any(|change| {
        let above = change.finding.path.as_deref();
        change.finding.structure == "inode node"
            && change.action.contains("dropped")
            && above
                .is_some_and(|above| above.is_empty() || path.starts_with(&[above, b"/"].concat()))
    })
}

/// Whether a regular file whose directory no longer exists is in `lost+found`, or has another name;
/// other files are dropped.
fn found_again(after: &Tree, file: &File) -> bool {
    file.kind != FileKind::Regular || after.values().any(|other| other.content == file.content)
}

/// Whether two files are equal, whatever other names they have.
fn same(one: &File, other: &File) -> bool {
    *one == File { links: one.links.clone(), ..other.clone() }
}

fn told(report: &Report) -> String {
    let lines = report.changes.iter().take(8).map(|it| format!("{}: {}", it.finding, it.action));
    lines.collect::<Vec<_>>().join("; ")
}

/// A repaired file system must accept a new file.
fn written_to(image: &Image, volume: &ImageVolume) -> Result<(), String> {
    let room = Room { flash_size: None, bytes: Some(64 << 10) };
    let writable = match image.open_writable(volume, &room) {
        Ok(writable) => writable,
        Err(error) => return Err(format!("repaired, not writable: {error}")),
    };
    let shared = writable.file_system();
    let mut fs = shared.write().map_err(|error| error.to_string())?;
    let root = fs.statistics().root;
    let now = Timestamp { seconds: NOW as i64, nanoseconds: 0 };
    let new = NewFile {
        kind: FileKind::Regular,
        permissions: 0o644,
        owner: 0,
        group: 0,
        device: Default::default(),
        target: b"",
    };
    let failed = |error: flysch_api::vfs::FsError| format!("repaired, a new file fails: {error}");
    let inode = fs.create(root, b"after the repair", &new, now).map_err(failed)?;
    fs.write(inode, 0, &[7; 5000], now).map_err(failed)?;
    fs.sync(None).map_err(failed)?;
    drop(fs);
    drop(shared);
    writable.close().map_err(|error| format!("repaired, not closed: {error}"))?;
    let again =
        Image::open(&image.path, &ImageOpenOptions::default()).map_err(|it| it.to_string())?;
    let same = again.volumes().find(|it| it.name == volume.name && it.id == volume.id);
    match same.and_then(|volume| found_by_check(&again, volume)) {
        None => Ok(()),
        Some(found) => Err(format!("repaired, written to, and the check says {found}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A missing file and a changed one are detected.
    #[test]
    fn what_a_repair_loses_is_seen() {
        let samples = samples();
        let good = samples[0].tree(0).unwrap();
        let report = Report { level: Some(Level::DangerDefault), changes: Vec::new() };
        assert_eq!(kept(&report, (good, good), Some(good)), Ok(good.len() as u64));
        let (path, file) = good.iter().find(|(_, file)| file.kind == FileKind::Regular).unwrap();
        let mut after = good.clone();
        after.remove(path);
        assert!(kept(&report, (good, &after), Some(good)).unwrap_err().contains("is gone"));
        let other = File { content: Ok(b"other".to_vec()), ..file.clone() };
        after.insert(path.clone(), other);
        assert!(kept(&report, (good, &after), Some(good)).unwrap_err().contains("is another"));
    }
}
