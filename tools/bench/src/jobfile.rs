//! fio job files, and the same options from the command line.
//!
//! Every option of fio is known here: most apply, those without meaning for a stack in user space
//! are reported once, and those that would change what is measured are refused. An option that fio
//! does not know either is an error that names it, its line, and the nearest existing name.

mod flushes;
mod ini;
pub mod known;
mod settings;
mod values;

use core::fmt;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use known::Fate;
pub use settings::Settings;

use crate::iolog::ReadError;
use crate::random::mix;
use crate::runner::buffers::stride;
use crate::units::{Amount, Size};
use crate::workload::{LogTo, Workload};

/// Most bytes of buffers where the memory of the machine is not known.
const BUFFERS_MAX: u64 = 4 << 30;

/// Where an option was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On this line of this file.
    Line(Rc<str>, u32),
    /// This file as a whole.
    File(Rc<str>),
    /// On the command line.
    CommandLine,
}

/// What is wrong with a job file or an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobError {
    /// Where.
    pub place: Place,
    /// The error.
    pub message: String,
    /// Whether a file could not be read, so that its text may well be right.
    pub is_unreadable: bool,
}

impl JobError {
    /// Wrong words.
    fn wrong(place: Place, message: impl Into<String>) -> Self {
        Self { place, message: message.into(), is_unreadable: false }
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Line(file, line) => write!(f, "{file}:{line}: {}", self.message),
            Place::File(file) => write!(f, "{file}: {}", self.message),
            Place::CommandLine => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for JobError {}

/// A job: one section of a job file, or the command line.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// The name in the header of its section; that of a job of the command line is its name.
    pub section: String,
    /// Workers of the jobs before it: the number of its first worker among all of the file.
    pub first_worker: u32,
    /// Its own options as written, by fio's canonical name; those of `[global]` are not repeated.
    pub options: BTreeMap<String, String>,
    /// The settings that result.
    pub settings: Settings,
}

/// Jobs in the order in which they run, and notes about them.
#[derive(Clone, Debug, Default)]
pub struct JobFile {
    /// Options of the `[global]` sections, as written.
    pub global: BTreeMap<String, String>,
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Given options that have no meaning here, with the reason; each once.
    pub ignored: BTreeMap<&'static str, &'static str>,
    /// Other notes about the jobs, one line each.
    pub notes: Vec<String>,
}

/// Options in addition to those of a job file, as (name, value).
pub type Overrides = [(String, Option<String>)];

impl JobFile {
    /// Reads a job file, or standard input if it is `-`; `overrides` are applied to every job after
    /// its own options.
    ///
    /// # Errors
    /// [`JobError`] with file and line.
    pub fn read(path: &Path, overrides: &Overrides) -> Result<Self, JobError> {
        Self::of_sections(ini::read(path)?, path, overrides)
    }

    /// The jobs in `text`, the contents of the file `path`.
    ///
    /// # Errors
    /// [`JobError`] with file and line.
    pub fn parse(text: &str, path: &Path, overrides: &Overrides) -> Result<Self, JobError> {
        let mut sections = Vec::new();
        ini::read_text(&mut sections, text, path, &mut Vec::new())?;
        Self::of_sections(sections, path, overrides)
    }

    /// A job made only of command line options.
    ///
    /// # Errors
    /// [`JobError`] naming the option.
    pub fn of_options(name: &str, options: &Overrides) -> Result<Self, JobError> {
        let mut file = Self::default();
        let mut job = Job::new(name);
        file.override_with(&mut job, options)?;
        if let Some(message) = job.settings.contradiction() {
            return Err(JobError::wrong(Place::CommandLine, message));
        }
        file.finish(job, false, Place::CommandLine)?;
        file.check_buffers().map_err(|message| JobError::wrong(Place::CommandLine, message))?;
        Ok(file)
    }

    fn of_sections(
        sections: Vec<ini::Section>,
        path: &Path,
        overrides: &Overrides,
    ) -> Result<Self, JobError> {
        let mut file = Self::default();
        let mut global = Job::new("");
        for section in sections {
            // To fio a name that begins so is one of these, too.
            let is_global = section.name.starts_with("global");
            if section.name.is_empty() {
                return Err(JobError::wrong(section.place, "a job needs a name"));
            }
            let mut job = global.clone();
            job.name.clone_from(&section.name);
            job.section.clone_from(&section.name);
            // What a kilo is holds for the whole section, wherever it is said.
            let is_base = |entry: &&ini::Entry| entry.name == "kb_base";
            let bases = section.entries.iter().filter(is_base);
            for entry in bases.chain(section.entries.iter().filter(|entry| !is_base(entry))) {
                let value = entry.value.as_deref().map(|v| v.replace("$jobname", &section.name));
                file.apply(&mut job, &entry.name, value.as_deref(), &entry.place)?;
            }
            if is_global {
                file.global.append(&mut job.options);
                global = job;
            } else {
                if overrides.iter().any(|(name, _)| name == "name") {
                    let message = "--name would begin another job beside those of the job file, \
                                   as in fio: write it into the file, or choose one of its \
                                   sections with --section";
                    return Err(JobError::wrong(Place::CommandLine, message));
                }
                file.override_with(&mut job, overrides)?;
                let absent = job
                    .settings
                    .wait_for
                    .as_ref()
                    .filter(|name| !file.jobs.iter().any(|other| other.name == **name));
                let absent =
                    absent.map(|name| format!("option `wait_for`: no job `{name}` before it"));
                if let Some(message) = absent.or_else(|| job.settings.contradiction()) {
                    return Err(JobError::wrong(section.place, message));
                }
                file.finish(job, true, section.place)?;
            }
        }
        let place = Place::File(path.display().to_string().into());
        if file.jobs.is_empty() {
            return Err(JobError::wrong(place, "it defines no jobs"));
        }
        file.check_buffers().map_err(|message| JobError::wrong(place, message))?;
        Ok(file)
    }

    /// Whether the buffers of the jobs that run at the same time leave room for anything else: what
    /// there is no memory for would end the program without a word about why.
    fn check_buffers(&self) -> Result<(), String> {
        let limit = ini::memory_mb().map_or(BUFFERS_MAX, |memory| memory / 2 * (1 << 20));
        for stage in self.stages() {
            let bytes = |job: &Job| {
                let (work, count) = (&job.settings.workload, job.settings.numjobs);
                stride(work).saturating_mul(work.depth.into()).saturating_mul(count.into())
            };
            let all = stage.iter().map(bytes).fold(0, u64::saturating_add);
            let Some(job) = stage.iter().max_by_key(|job| bytes(job)).filter(|_| all > limit)
            else {
                continue;
            };
            let (work, count) = (&job.settings.workload, job.settings.numjobs);
            let (depth, block) = (work.depth, Size(work.data_max().into()));
            return Err(format!(
                "{}: iodepth={depth} x bs={block} x numjobs={count} are {} of the {} bytes of \
                 buffers that the jobs of its stage need; half of the memory of this machine, \
                 {limit} bytes, is the most: lower one of these",
                job.name,
                bytes(job),
                all,
            ));
        }
        Ok(())
    }

    /// Adds a finished job. An engine that is synchronous in fio keeps one request in flight; a job
    /// file that names none means fio's default, which is synchronous.
    fn finish(
        &mut self,
        mut job: Job,
        default_is_synchronous: bool,
        place: Place,
    ) -> Result<(), JobError> {
        let settings = &mut job.settings;
        let failed = |error: ReadError| JobError {
            is_unreadable: matches!(error, ReadError::File(..)),
            ..JobError::wrong(place, format!("option `read_iolog`: {error}"))
        };
        self.notes.extend(settings.read_logs().map_err(failed)?);
        if settings.workload.time_based && settings.workload.runtime.is_none() {
            settings.workload.time_based = false;
            self.notes.push(format!(
                "{}: time_based without runtime has no effect: one pass, as in fio",
                job.name
            ));
        }
        if settings.repeats_by_alignment() {
            self.notes.push(format!(
                "{}: with a ba other than bs random blocks may repeat, as in fio",
                job.name
            ));
        }
        let depth = settings.workload.depth;
        let synchronous = settings.synchronous.unwrap_or(default_is_synchronous);
        if synchronous && depth > 1 && !settings.depth_is_meant {
            settings.workload.depth = 1;
            self.notes.push(format!(
                "{}: one request in flight per worker, because its ioengine is synchronous to \
                 fio (as is fio's default); for iodepth={depth} name an asynchronous one, or give \
                 --iodepth={depth}",
                job.name
            ));
        }
        let last = self.jobs.last();
        job.first_worker =
            last.map_or(0, |last| last.first_worker.wrapping_add(last.settings.numjobs));
        self.jobs.push(job);
        Ok(())
    }

    /// Applies options of the command line, which are those of one job: to fio each `name` there
    /// begins another.
    fn override_with(&mut self, job: &mut Job, options: &Overrides) -> Result<(), JobError> {
        if options.iter().filter(|(name, _)| name == "name").count() > 1 {
            let message = "--name is given twice: for several jobs write a job file";
            return Err(JobError::wrong(Place::CommandLine, message));
        }
        job.settings.settle_sizes();
        for (name, value) in options {
            self.apply(job, name, value.as_deref(), &Place::CommandLine)?;
        }
        Ok(())
    }

    fn apply(
        &mut self,
        job: &mut Job,
        name: &str,
        value: Option<&str>,
        place: &Place,
    ) -> Result<(), JobError> {
        let fail = |message: String| JobError::wrong(place.clone(), message);
        let Some((name, fate)) = known::find(name) else {
            if let Some(place) = known::in_place_of(name) {
                return Err(fail(format!("option `{name}` is one of the program fio: {place}")));
            }
            let hint = known::nearest(name).map(|near| format!("; did you mean `{near}`?"));
            return Err(fail(format!("unknown option `{name}`{}", hint.unwrap_or_default())));
        };
        match fate {
            Fate::Applies => {
                let applied = job.settings.apply(name, value);
                applied.map_err(|message| fail(format!("option `{name}`: {message}")))?;
            }
            Fate::Ignored(reason) => {
                self.ignored.insert(name, reason);
                if name == "filename" {
                    let all = value.map(values::parts).unwrap_or_default();
                    self.note_files(job, all.len() as u64);
                    job.settings.filename = all.into_iter().next();
                }
                if name == "nrfiles" {
                    self.note_files(job, value.and_then(|it| it.trim().parse().ok()).unwrap_or(1));
                }
                if name == "ioengine" {
                    let engine = value.unwrap_or_default();
                    if known::OTHER_ENGINES.contains(&engine) {
                        return Err(fail(format!(
                            "option `ioengine`: `{engine}` does no block I/O: there is nothing of \
                             this job to run on a disk"
                        )));
                    }
                    if !known::is_engine(engine) {
                        let hint = known::nearest_engine(engine);
                        let hint = hint.map(|near| format!("; did you mean `{near}`?"));
                        return Err(fail(format!(
                            "option `ioengine`: fio has no engine `{engine}`{}",
                            hint.unwrap_or_default()
                        )));
                    }
                    job.settings.synchronous = Some(known::SYNCHRONOUS_ENGINES.contains(&engine));
                }
            }
            Fate::Refused(_) if is_neutral(name, value) => {}
            Fate::Refused(reason) => {
                return Err(fail(format!("option `{name}` is fio's, but not Flysch's: {reason}")));
            }
        }
        job.settings.depth_is_meant |= name == "iodepth" && *place == Place::CommandLine;
        // As in fio's JSON, a flag without a value is not listed.
        if let Some(value) = value {
            job.options.insert(name.to_string(), value.to_string());
        }
        if name == "name" && *place != Place::CommandLine {
            job.name.clone_from(&job.settings.workload.name);
        }
        Ok(())
    }

    /// Notes that a job has several files in fio: counts are others then.
    fn note_files(&mut self, job: &Job, count: u64) {
        if count > 1 {
            self.notes.push(format!(
                "{}: its {count} files are one target here, and it does what it would do to one",
                if job.name.is_empty() { "global" } else { &job.name },
            ));
        }
    }

    /// Whether any job writes its requests to a log.
    pub fn writes_logs(&self) -> bool {
        self.jobs.iter().any(|job| job.settings.log.is_some())
    }

    /// The jobs by stage: those of one stage run at the same time.
    pub fn stages(&self) -> Vec<&[Job]> {
        let mut stages = Vec::new();
        let mut start = 0;
        for (index, job) in self.jobs.iter().enumerate() {
            if job.settings.stonewall && index > start {
                stages.push(&self.jobs[start..index]);
                start = index;
            }
        }
        stages.push(&self.jobs[start..]);
        stages
    }
}

/// Whether an option that is not supported was given the value that changes nothing.
fn is_neutral(name: &str, value: Option<&str>) -> bool {
    match (name, value) {
        ("percentage_random", value) => {
            let mut parts = value.unwrap_or_default().split(',').map(str::trim);
            parts.clone().count() <= 3 && parts.all(|part| part == "100")
        }
        ("write_mode" | "sg_write_mode", Some("write")) => true,
        (_, value) => matches!(value, Some("0" | "none")),
    }
}

impl Job {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_string(),
            section: name.to_string(),
            first_worker: 0,
            options: BTreeMap::new(),
            settings: Settings::default(),
        }
    }

    /// The workloads of its workers on a device of `device` bytes in blocks of `block_size`, which
    /// has no zones.
    ///
    /// # Errors
    /// In words, what is impossible.
    pub fn workers(&self, device: u64, block_size: u32) -> Result<Vec<Workload>, String> {
        self.workers_in_zones((device, block_size), 0)
    }

    /// The same on a device with zones of `zone` bytes.
    ///
    /// # Errors
    /// What cannot be, in words.
    pub fn workers_in_zones(
        &self,
        (device, block_size): (u64, u32),
        zone: u64,
    ) -> Result<Vec<Workload>, String> {
        let settings = &self.settings;
        // As fio: percentages are of whole requests, if the device can be divided so.
        let request = settings.workload.block_min();
        let divides = request.is_multiple_of(block_size);
        let unit = if divides { request.max(block_size) } else { block_size };
        let resolve = |amount: Amount| amount.resolve((device, unit), zone);
        let amounts = [settings.offset, settings.offset_increment];
        let [first, increment] = amounts.map(|amount| amount.exact(device, zone));
        // A percentage of an offset ends with the request that it is in, so that what is before it
        // and what begins there have none in common.
        let is_rounded = amounts.iter().any(|amount| matches!(amount, Amount::Percent(1..)));
        let root = settings.seed();
        // As in fio every worker of the file has random numbers of its own: those that run at the
        // same time would otherwise go to the same blocks at the same time.
        let seed = |index: u32| match self.first_worker.wrapping_add(index) {
            0 => root,
            number => mix(root ^ u64::from(number)),
        };
        let worker = |index: u32| {
            let offset = first.saturating_add(increment.saturating_mul(u64::from(index)));
            let rounded = || offset.checked_next_multiple_of(unit.max(1).into());
            let offset = Some(offset).filter(|_| !is_rounded).or_else(rounded).unwrap_or(u64::MAX);
            if offset >= device {
                return Err(format!(
                    "{}: offset {} is beyond the end of the device ({})",
                    self.name,
                    Size(offset),
                    Size(device)
                ));
            }
            let rest = device - offset;
            let (size, size_wanted) = match settings.size {
                None => (settings.file_size.map_or(rest, |size| resolve(size).min(rest)), None),
                // A percentage ends with the device.
                Some(share @ Amount::Percent(_)) => (resolve(share).min(rest), None),
                // Every other size, too, as on block devices in fio; the result says so.
                Some(size) => {
                    let size = settings.file_size.map_or(u64::MAX, resolve).min(resolve(size));
                    (size.min(rest), Some(size).filter(|&size| size > rest))
                }
            };
            let io_size = settings.io_size.map(|amount| match amount {
                Amount::Percent(_) => amount.resolve((size, 1), zone),
                _ => resolve(amount),
            });
            Ok(Workload {
                name: self.name.clone(),
                offset,
                size: Some(size),
                size_wanted,
                // In fio the number of requests is a limit beside the size, not instead of it.
                io_size: io_size.or(settings.workload.requests_max.map(|_| size)),
                start_delay: settings.start_delay_of(seed(index)),
                replay: settings.replay_of(index),
                seed: seed(index),
                log: settings.log.clone().map(|path| LogTo { path, disk: self.disk_name(index) }),
                ..settings.workload.clone()
            })
        };
        (0..settings.numjobs).map(worker).collect()
    }

    /// The name of the disk in the log of worker number `index`: the file named by the job, or the
    /// one that fio would create. Names in logs have no blanks.
    fn disk_name(&self, index: u32) -> String {
        let name = self.settings.filename.clone();
        let name = name.unwrap_or_else(|| format!("{}.{index}.0", self.name));
        name.replace(|c: char| c.is_whitespace() || c.is_control(), "_")
    }
}

#[cfg(test)]
mod tests;
