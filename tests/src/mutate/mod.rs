//! Mutated images: whatever happens to the bytes of an image, opening, checking, extracting,
//! changing and repairing it ends soon, with little memory, without a panic, and inside the
//! directory.
//!
//! Every mutation follows from one number. Some are blind - bits or runs of bytes changed, blocks
//! erased, exchanged, duplicated, truncated, moved. Others know the formats: they change a field of
//! a structure and correct its checksums, so that the code after the checksum tests is reached.

mod memory;
mod samples;
mod structures;

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flysch_api::vfs::{FileSystemMut, Timestamp};
use flysch_image::{
    Contents, Editor, ExtractOptions, Image, ImageOpenOptions, ImageVolume, Progress, PutOptions,
    Room,
};
use flysch_ubifs::repair::Level;
use flysch_ubifs::{IndexUse, UbifsMut};
use rustix::time::{ClockId, clock_gettime};

use crate::ubifs::Random;
use memory::Lebs;
pub use memory::Peak;
pub use samples::{Sample, prepared, samples};

/// Processor time permitted per MiB of image for everything together; smaller images count as one
/// MiB. In a test build, with its checks, small JFFS2 images need the most, 0.7 to 1.1 s for many
/// rounds of collection, and more on slow machines: this limit is meant to find endless loops.
const TIME_PER_MIB: Duration = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 });
/// Resident bytes permitted in addition to the image, and per byte of it.
const MEMORY: (u64, u64) = (48 << 20, 24);
/// The minimum level at which anything is repaired.
const LEVEL: Level = Level::DangerRebuild;
/// An arbitrary time.
const NOW: u64 = 1_700_000_000;

/// The results of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Number of images.
    pub images: u64,
    /// Number of images that could be opened.
    pub opened: u64,
    /// Number of images in which a check found something wrong.
    pub wrong: u64,
    /// Number of files extracted.
    pub files: u64,
    /// Number of files that could not be extracted, and were named.
    pub refused: u64,
    /// Number of file systems that were changed and closed.
    pub changed: u64,
    /// Number of those that could not be changed, with a message.
    pub unchanged: u64,
    /// Number of file systems that were repaired.
    pub repaired: u64,
    /// Number of those that could not be repaired, or were not wrong, with a message.
    pub unrepaired: u64,
    /// Maximum time for one image.
    pub longest: Duration,
    /// Maximum memory for one image beyond the previous use of the process, bytes; 0 if not
    /// measured.
    pub most: u64,
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} mutated images", self.images)?;
        writeln!(f, "  {} opened, {} found wrong", self.opened, self.wrong)?;
        writeln!(f, "  {} files extracted, {} refused and named", self.files, self.refused)?;
        writeln!(f, "  {} file systems changed, {} refused", self.changed, self.unchanged)?;
        writeln!(f, "  {} repaired, {} not", self.repaired, self.unrepaired)?;
        write!(f, "  {:?} for the slowest, {} KiB for the largest", self.longest, self.most >> 10)
    }
}

/// Runs mutations of one set of samples in a directory of its own.
#[derive(Debug)]
pub struct Run<'s> {
    samples: &'s [Sample],
    directory: PathBuf,
    /// Measures memory, in a process that does nothing else at the same time.
    pub memory: Option<Peak>,
    /// Where to keep the images with problems.
    pub keep: Option<PathBuf>,
    /// Sums over all images so far.
    pub totals: Totals,
}

impl<'s> Run<'s> {
    /// Works in `directory`, which exists and is empty.
    ///
    /// # Panics
    /// If a canary cannot be created there.
    pub fn new(samples: &'s [Sample], directory: &Path) -> Self {
        std::fs::write(directory.join("canary"), CANARY).expect("the directory can be written");
        let (directory, totals) = (directory.to_path_buf(), Totals::default());
        Self { samples, directory, memory: None, keep: None, totals }
    }

    /// Runs mutation number `seed`; returns what went wrong.
    ///
    /// # Errors
    /// A panic, too much time or memory, or a change outside the directory.
    pub fn one(&mut self, seed: u64) -> Result<(), String> {
        let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        (0..4).for_each(|_| _ = random.below(2));
        let sample = &self.samples[random.below(self.samples.len() as u64) as usize];
        let bytes = mutated(sample, &mut random);
        let outcome = self.measured(&bytes, random);
        if let (Err(_), Some(keep)) = (&outcome, &self.keep) {
            std::fs::write(keep.join(seed.to_string()), &bytes).map_err(|it| it.to_string())?;
        }
        outcome.map_err(|error| format!("seed {seed} of {}: {error}", sample.name))
    }

    fn measured(&mut self, bytes: &[u8], mut random: Random) -> Result<(), String> {
        let image = self.directory.join("image");
        std::fs::write(&image, bytes).map_err(|error| error.to_string())?;
        let keep_damaged = random.below(2) == 0;
        let lost = random.below(4) == 0;
        let before = self.memory.as_ref().map(Peak::begin);
        let begun = now();
        let outcome =
            catch_unwind(AssertUnwindSafe(|| self.read(&image, &random, keep_damaged, lost)));
        let took = now().saturating_sub(begun);
        self.totals.longest = self.totals.longest.max(took);
        self.totals.images += 1;
        outcome.map_err(|_| "it panicked")??;
        let size = bytes.len() as u64;
        let mebibytes = size.div_ceil(1 << 20).max(1);
        if took > TIME_PER_MIB * mebibytes as u32 {
            return Err(format!("it took {took:?} for {mebibytes} MiB"));
        }
        if let (Some(memory), Some(before)) = (&self.memory, before) {
            let most = memory.end().saturating_sub(before);
            self.totals.most = self.totals.most.max(most);
            if most > MEMORY.0 + MEMORY.1 * size {
                return Err(format!("it took {} KiB of memory for {size} bytes", most >> 10));
            }
        }
        self.inside()
    }

    fn read(
        &mut self,
        path: &Path,
        random: &Random,
        keep_damaged: bool,
        lost: bool,
    ) -> Result<(), String> {
        let mut random = random.clone();
        let no_oob = random.below(4) == 0;
        let Ok(image) =
            Image::open(path, &ImageOpenOptions { no_oob, ..ImageOpenOptions::default() })
        else {
            return Ok(());
        };
        self.totals.opened += 1;
        self.totals.wrong += u64::from(flysch_image::check(&image, &mut |_| {}));
        for volume in image.volumes() {
            let _ = flysch_image::volume_facts(volume);
            let fs =
                if lost { ImageVolume::file_system_with_lost } else { ImageVolume::file_system };
            let Some(fs) = fs(volume) else { continue };
            let options = ExtractOptions { threads: 1, keep_damaged };
            let out = self.directory.join("out");
            let extracted = flysch_image::extract(&*fs, &out, &options, &Progress::default())
                .map_err(|error| format!("extraction: {error}"))?;
            self.totals.files += extracted.files;
            self.totals.refused += extracted.failures.len() as u64;
            std::fs::remove_dir_all(&out).map_err(|error| format!("removal: {error}"))?;
        }
        for (number, _) in image.volumes().enumerate().take(VOLUMES_CHANGED) {
            match self.repair(path, number) {
                Ok(true) => self.totals.repaired += 1,
                Ok(false) | Err(_) => self.totals.unrepaired += 1,
            }
        }
        for volume in image.volumes().take(VOLUMES_CHANGED) {
            for changed in [change_trusting(volume), change(&image, volume)] {
                match changed {
                    Ok(()) => self.totals.changed += 1,
                    Err(_) => self.totals.unchanged += 1,
                }
            }
        }
        Ok(())
    }

    /// Repairs a copy of the image; returns whether there was anything to do.
    fn repair(&self, path: &Path, number: usize) -> Result<bool, String> {
        let say = |error: &dyn std::fmt::Display| error.to_string();
        let copy = self.directory.join("copy");
        std::fs::copy(path, &copy).map_err(|error| say(&error))?;
        let repaired = (|| {
            let image =
                Image::open(&copy, &ImageOpenOptions::default()).map_err(|error| say(&error))?;
            let volume = image.volumes().nth(number).ok_or("it has fewer volumes")?;
            let below = image.survey_ubi(volume).map_err(|error| say(&error))?;
            let report = image.survey_repair(volume).map_err(|error| say(&error))?;
            if report.level.is_none() && below.is_empty() {
                return Ok(false);
            }
            let done = image.repair(volume, LEVEL, NOW, 0);
            done.map(|_| true).map_err(|error| say(&error))
        })();
        std::fs::remove_file(&copy).map_err(|error| say(&error))?;
        repaired
    }

    /// Checks that only the image is next to the canary, and that the canary is unchanged.
    fn inside(&self) -> Result<(), String> {
        let entries = std::fs::read_dir(&self.directory).map_err(|error| error.to_string())?;
        let mut names: Vec<_> = entries.filter_map(|e| Some(e.ok()?.file_name())).collect();
        names.sort();
        if names != ["canary", "image"] {
            return Err(format!("there is something outside: {names:?}"));
        }
        match std::fs::read(self.directory.join("canary")) {
            Ok(bytes) if bytes == CANARY => Ok(()),
            other => Err(format!("the canary is {other:?}")),
        }
    }
}

const CANARY: &[u8] = b"untouched";
/// Number of volumes of an image that are changed.
const VOLUMES_CHANGED: usize = 2;

/// Creates files, removes existing ones, and leaves the file system as an unmount would.
fn change(image: &Image, volume: &ImageVolume) -> Result<(), String> {
    let say = |error: &dyn std::fmt::Display| error.to_string();
    let writable = image
        .open_writable(volume, &Room { bytes: Some(1 << 20), flash_size: None })
        .map_err(|error| say(&error))?;
    let shared = writable.file_system();
    let changed = {
        let mut fs = shared.write().map_err(|error| say(&error))?;
        work(&mut *fs)
    };
    drop(shared);
    writable.close().map_err(|error| say(&error))?;
    changed
}

/// The same with a trusted index, for users who cannot wait at a mount.
fn change_trusting(volume: &ImageVolume) -> Result<(), String> {
    let say = |error: &dyn std::fmt::Display| error.to_string();
    let Contents::Ubifs(fs) = &volume.contents else { return Err("it is no UBIFS".into()) };
    let lebs = Lebs::copy(fs.volume(), fs.superblock().min_io_size);
    let options = flysch_ubifs::OpenOptions { index: IndexUse::Trust, keys: None };
    let mut fs = UbifsMut::open_with(lebs, &options).map_err(|error| say(&error))?;
    let changed = work(&mut fs);
    fs.close().map_err(|error| say(&error))?;
    changed
}

fn work(fs: &mut dyn FileSystemMut) -> Result<(), String> {
    let root = fs.statistics().root;
    let mut paths = Vec::new();
    let _ = fs.list(root, 0, &mut |entry| {
        paths.push([b"/", entry.name].concat());
        ControlFlow::Continue(())
    });
    let now = Timestamp { seconds: NOW as i64, nanoseconds: 0 };
    let mut editor = Editor::new(fs, now);
    let made = (0..20_u8).try_for_each(|number| {
        let path = format!("/new{number}");
        let content = &mut &[number; 9000][..];
        editor.put_content(content, path.as_bytes(), PutOptions::default()).map(|_| ())
    });
    let removed = paths.iter().try_for_each(|path| editor.remove(path, true));
    made.and(removed).and(editor.finish()).map_err(|error| error.to_string())
}

/// Processor time of this thread, which does all the work: the machine, and even this process, may
/// be busy with other things.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

pub(crate) fn mutated(sample: &Sample, random: &mut Random) -> Vec<u8> {
    let mut bytes = sample.bytes.clone();
    for _ in 0..1 + random.below(4) {
        if bytes.is_empty() {
            break;
        }
        match random.below(16) {
            0..=6 => structures::edit(sample, &mut bytes, random),
            7..=9 => flip_bits(&mut bytes, random),
            10 => overwrite(&mut bytes, random),
            11 => resize(&mut bytes, random),
            _ => change_blocks(&mut bytes, sample.block_size, random),
        }
    }
    bytes
}

fn flip_bits(bytes: &mut [u8], random: &mut Random) {
    for _ in 0..1 << random.below(6) {
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
    }
}

/// Overwrites a run with noise, zeros, ones, or content from elsewhere.
fn overwrite(bytes: &mut [u8], random: &mut Random) {
    let at = random.below(bytes.len() as u64) as usize;
    let len = (1 << random.below(13)).min(bytes.len() - at);
    match random.below(4) {
        0 => bytes[at..at + len].copy_from_slice(&random.bytes(len)),
        1 => bytes[at..at + len].fill(0),
        2 => bytes[at..at + len].fill(0xFF),
        _ => {
            let from = random.below((bytes.len() - len + 1) as u64) as usize;
            bytes.copy_within(from..from + len, at);
        }
    }
}

/// Truncates, or moves by a prefix of any length.
fn resize(bytes: &mut Vec<u8>, random: &mut Random) {
    let len = bytes.len() as u64;
    match random.below(3) {
        0 => bytes.truncate(random.below(len) as usize),
        1 => {
            let prefix = random.below(20_000) as usize;
            let prefix = random.bytes(prefix);
            bytes.splice(0..0, prefix);
        }
        _ => {
            let from = random.below(len) as usize;
            let to = (from + random.below(5000) as usize).min(bytes.len());
            bytes.drain(from..to);
        }
    }
}

/// Erases, zeroes, exchanges or duplicates erase blocks.
fn change_blocks(bytes: &mut [u8], size: usize, random: &mut Random) {
    let blocks = (bytes.len() / size) as u64;
    if blocks == 0 {
        return;
    }
    let (one, other) = (random.below(blocks) as usize * size, random.below(blocks) as usize * size);
    match random.below(4) {
        0 => bytes[one..one + size].fill(0xFF),
        1 => bytes[one..one + size].fill(0),
        2 => bytes.copy_within(one..one + size, other),
        _ => {
            let first = bytes[one..one + size].to_vec();
            bytes.copy_within(other..other + size, one);
            bytes[other..other + size].copy_from_slice(&first);
        }
    }
}
