//! Judging cases that ran in the guest: what Linux shows of an image against what Flysch shows.

mod lost_xattrs;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flysch_image::{Contents, Image, ImageOpenOptions, ImageVolume};
use flysch_lab::manifest::{self, Detail, Manifest};

/// Maximum number of differences printed per image.
const SHOWN: usize = 8;

/// What was compared.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    clean: u32,
    cuts: u32,
    torn: u32,
    refused: u32,
    files: usize,
    extracted: u64,
    failures: Vec<String>,
}

/// The kernel the script runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Debian's.
    Plain,
    /// With UBI's fastmap.
    Fastmap,
}

/// Runs `script`, which can use the functions of guest.sh, and returns the folder of its images.
///
/// With `FLYSCH_LAB_KEEP=DIR` they are kept in a folder there, and the next run judges them again
/// without a guest. `None` if there is no lab here.
pub(crate) fn run(name: &str, kernel: Kernel, script: &str) -> Option<Share> {
    let kept = std::env::var_os("FLYSCH_LAB_KEEP").map(|folder| Path::new(&folder).join(name));
    let share = match &kept {
        Some(folder) if folder.join("done").exists() => return Some(Share::Kept(folder.clone())),
        Some(folder) => {
            let _ = fs::remove_dir_all(folder);
            fs::create_dir_all(folder).unwrap();
            Share::Kept(folder.clone())
        }
        None => Share::Scratch(tempfile::tempdir().unwrap()),
    };
    let lab = crate::common::lab()?;
    crate::common::put_helper(share.path());
    if kernel == Kernel::Fastmap {
        crate::common::put_fastmap(&lab, share.path());
    }
    fs::write(share.path().join("guest.sh"), include_str!("guest.sh")).unwrap();
    let functions = [crate::common::LOAD_UBIFS, crate::common::KEYS].concat();
    let script = format!("{functions}. /share/guest.sh\n{script}");
    print!("{}", crate::common::run_for(&lab, &script, share.path(), Duration::from_secs(600)));
    fs::write(share.path().join("done"), "").unwrap();
    Some(share)
}

/// A folder of images.
#[derive(Debug)]
pub(crate) enum Share {
    /// Removed with the test.
    Scratch(tempfile::TempDir),
    /// Kept.
    Kept(PathBuf),
}

impl Share {
    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Scratch(folder) => folder.path(),
            Self::Kept(folder) => folder,
        }
    }

    /// The images of all cases, by path.
    pub(crate) fn images(&self) -> Vec<PathBuf> {
        let cases = fs::read_dir(self.path()).unwrap().flatten();
        let files = cases.filter_map(|case| fs::read_dir(case.path()).ok()).flatten().flatten();
        let is_image = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "img");
        let mut images: Vec<_> = files.map(|file| file.path()).filter(is_image).collect();
        images.sort();
        images
    }
}

/// Compares all images; prints counts, and panics if there are differences.
pub(crate) fn judge(share: &Share) {
    let mut tally = Tally::default();
    for path in share.images() {
        let before = tally.failures.len();
        tally.judge(&path);
        if tally.failures.len() == before && std::env::var_os("FLYSCH_LAB_KEEP").is_none() {
            let _ = fs::remove_file(&path);
        }
    }
    println!(
        "{} clean images, {} cuts, {} torn, {} that Linux refuses; {} files compared, {} extracted",
        tally.clean, tally.cuts, tally.torn, tally.refused, tally.files, tally.extracted
    );
    assert!(tally.clean > 0 && tally.cuts > 0, "nothing was compared");
    assert!(tally.failures.is_empty(), "{}", tally.failures.join("\n"));
}

/// What Linux showed of the image at `path`; `None` if it refused.
pub(crate) fn expected(path: &Path) -> Option<Manifest> {
    fs::read_to_string(path.with_extension("txt")).ok().map(|text| manifest::from_text(&text))
}

/// The only volume of an image.
pub(crate) fn volume(image: &Image) -> Result<&ImageVolume, String> {
    let mut volumes = image.volumes();
    match (volumes.next(), volumes.next()) {
        (Some(volume), None) => Ok(volume),
        (None, _) => Err("no volume".into()),
        _ => Err("more than one volume".into()),
    }
}

impl Tally {
    fn judge(&mut self, path: &Path) {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let case = path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        let is_clean = name.starts_with("clean");
        let mut problems = vec![];
        match expected(path) {
            None if path.with_extension("refused").exists() => {
                self.refused += 1;
                if is_clean {
                    problems.push("Linux refuses an image that it unmounted itself".into());
                }
                if let Ok(image) = Image::open(path, &ImageOpenOptions::default())
                    && !flysch_image::check(&image, &mut |_| {})
                {
                    problems.push("Linux refuses it, and the check finds nothing wrong".into());
                }
            }
            None => problems.push("Linux wrote nothing down".into()),
            Some(expected) => {
                match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
                    "torn" => self.torn += 1,
                    "cut" => self.cuts += 1,
                    _ => self.clean += 1,
                }
                self.files += expected.len();
                let is_made = name == "clean-made" || name == "clean-worked";
                let expected = if is_made { without_directory_times(&expected) } else { expected };
                compare(path, &expected, is_made, &mut problems);
                if is_clean && problems.is_empty() {
                    self.extracted += extract(path, &mut problems);
                }
            }
        }
        let more = problems.len().saturating_sub(SHOWN);
        problems.truncate(SHOWN);
        if !problems.is_empty() {
            let text = problems.join("\n");
            self.failures.push(format!("== {case}/{name}, {more} more\n{text}"));
        }
    }
}

fn compare(path: &Path, expected: &Manifest, is_made: bool, problems: &mut Vec<String>) {
    let image = match Image::open(path, &ImageOpenOptions::default()) {
        Ok(image) => image,
        Err(error) => return problems.push(error.to_string()),
    };
    let fs = match volume(&image) {
        Ok(volume) => match volume.file_system() {
            Some(fs) => fs,
            None => return problems.push(format!("not opened: {:?}", volume.failure())),
        },
        Err(problem) => return problems.push(problem),
    };
    let found = manifest::of_file_system(&*fs, Detail::Whole);
    let found = if is_made { without_directory_times(&found) } else { found };
    // Linux loses attributes that it was copying when power failed.
    let found = match (&image.parts[..], volume(&image).map(|volume| &volume.contents)) {
        ([part], Ok(Contents::Jffs2(_))) => {
            lost_xattrs::without(&found, expected, &lost_xattrs::find(&part.flash))
        }
        _ => found,
    };
    problems.extend(manifest::differences(&alike(expected), &alike(&found)));
    let report = flysch_vfs::verify(&*fs);
    let is_lost = |path: &[u8]| {
        let line = expected.get(&path.escape_ascii().to_string());
        line.is_some_and(|line| line.contains("unreadable"))
    };
    let broken = report.violations.iter().filter(|violation| !is_lost(&violation.path));
    problems.extend(broken.map(|violation| format!("contract: {violation}")));
    let mut by_kind: BTreeMap<String, u32> = BTreeMap::new();
    let is_wrong = flysch_image::check(&image, &mut |checked| {
        if checked.finding.severity > flysch_api::finding::Severity::Note {
            *by_kind.entry(checked.finding.to_string()).or_default() += 1;
        }
    });
    if is_wrong && !path.file_name().unwrap().to_string_lossy().starts_with("torn") {
        problems.extend(by_kind.keys().map(|finding| format!("check: {finding}")));
    }
}

/// Unreadable content counts as equal, whatever reason each side gives.
fn alike(manifest: &Manifest) -> Manifest {
    let cut = |line: &str| match line.split_once("unreadable (") {
        Some((before, _)) => format!("{before}unreadable"),
        None => line.to_owned(),
    };
    manifest.iter().map(|(path, line)| (path.clone(), cut(line))).collect()
}

/// Linux takes the time of a directory from its entries, where mkfs.jffs2 puts the times of the
/// files; Flysch shows the directory's own (docs/jffs2.md).
fn without_directory_times(manifest: &Manifest) -> Manifest {
    let strip = |line: &str| match (line.find(" mtime "), line.find(" inode ")) {
        (Some(from), Some(to)) if line.starts_with("Directory") => {
            format!("{}{}", &line[..from], &line[to..])
        }
        _ => line.to_owned(),
    };
    manifest.iter().map(|(path, line)| (path.clone(), strip(line))).collect()
}

/// Extracts the image and compares the result with what the file system shows; extended attributes
/// are ignored, since they depend on where it is extracted to. Returns the number of files.
fn extract(path: &Path, problems: &mut Vec<String>) -> u64 {
    let image = Image::open(path, &ImageOpenOptions::default()).unwrap();
    let fs = volume(&image).unwrap().file_system().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let target = scratch.path().join("tree");
    let options = flysch_image::ExtractOptions::default();
    let progress = flysch_image::Progress::default();
    let done = flysch_image::extract(&*fs, &target, &options, &progress).unwrap();
    for failure in &done.failures {
        problems.push(format!("not extracted: {}: {}", failure.path.escape_ascii(), failure.cause));
    }
    let plain = |manifest: Manifest| -> Manifest {
        let cut = |line: String| line.split(" xattr ").next().unwrap_or_default().to_owned();
        manifest.into_iter().map(|(path, line)| (path, cut(line))).collect()
    };
    let expected = plain(manifest::of_file_system(&*fs, Detail::Restored));
    let found = plain(manifest::of_directory(&target, Detail::Restored).unwrap());
    problems.extend(manifest::differences(&expected, &found));
    done.files
}

/// The paths of the images in `share` with that file name.
pub(crate) fn named(share: &Share, name: &str) -> Vec<PathBuf> {
    let images = share.images().into_iter();
    images.filter(|path| path.file_name().is_some_and(|file| file == name)).collect()
}

/// Proves that the comparison can fail: an image against the manifest of another, and against its
/// own with one byte of one line changed.
pub(crate) fn planted_differences_are_found(share: &Share) {
    for path in named(share, "cut1.img") {
        let image = Image::open(&path, &ImageOpenOptions::default()).unwrap();
        let fs = volume(&image).unwrap().file_system().unwrap();
        let found = manifest::of_file_system(&*fs, Detail::Whole);
        let mut planted = expected(&path).unwrap();
        let (_, line) = planted.iter_mut().next_back().unwrap();
        *line = line.replacen("owner ", "owner 9", 1);
        let differences = manifest::differences(&planted, &found);
        assert_eq!(differences.len(), 1, "{}: {differences:#?}", path.display());
        let other = expected(&path.with_file_name("clean.img")).unwrap();
        assert!(!manifest::differences(&other, &found).is_empty(), "{}", path.display());
    }
}
