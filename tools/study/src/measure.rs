//! One measurement: a target, a job on it, its results and its energy.

use std::path::Path;

use flysch_bench::jobfile::JobFile;
use flysch_bench::play::{Demand, PlayOptions};
use flysch_bench::results::{Energy, JobResults};
use flysch_rig::{Needs, Stack, Target};

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
#[error("{target}: {cause}")]
pub struct MeasureError {
    /// The target.
    pub target: String,
    /// The cause, in words.
    pub cause: String,
}

impl MeasureError {
    pub(crate) fn of(target: &str, cause: impl ToString) -> Self {
        Self { target: target.into(), cause: cause.to_string() }
    }
}

/// The results of a job on a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The job's results, for all its workers together.
    pub job: JobResults,
    /// The device's energy.
    pub energy: Energy,
}

/// The options of a job, written as `name=value` separated by blanks.
pub(crate) fn options(text: &str) -> Vec<(String, Option<String>)> {
    let one = |option: &str| match option.split_once('=') {
        Some((name, value)) => (name.to_string(), Some(value.to_string())),
        None => (option.to_string(), None),
    };
    text.split_whitespace().map(one).collect()
}

/// The command line for options in the form that [`measure`] takes.
pub fn command(target: &str, text: &str) -> String {
    let options: String = text.split_whitespace().map(|option| format!(" --{option}")).collect();
    format!("flysch bench --on {target}{options}")
}

/// Runs one job on a fresh stack; its options are written as `name=value` separated by blanks.
///
/// # Errors
/// What is wrong with the target or the options, or what failed.
pub fn measure(target: &str, text: &str) -> Result<Measured, MeasureError> {
    let parsed: Target = target.parse().map_err(|error| MeasureError::of(target, error))?;
    let mut options = options(text);
    options.push(("group_reporting".into(), None));
    let file =
        JobFile::of_options("job", &options).map_err(|error| MeasureError::of(target, error))?;
    let needs = Needs::of(&parsed, &Demand::of(&file));
    let mut stack =
        Stack::open(&parsed, &needs).map_err(|error| MeasureError::of(target, error))?;
    let before = stack.energy().unwrap_or_default();
    let played = stack.play(&file, PlayOptions::default());
    let played = played.map_err(|error| MeasureError::of(target, error))?;
    let energy = Energy::between(&before, &stack.energy().unwrap_or_default());
    let job = played.jobs.into_iter().next();
    let job = job.ok_or_else(|| MeasureError::of(target, "no job ran"))?;
    if let Some(failure) = &job.failure {
        return Err(MeasureError::of(target, failure));
    }
    Ok(Measured { job, energy })
}

/// Runs the jobs of a job file's text on a fresh stack; returns their results, and the device's
/// energy.
///
/// # Errors
/// What is wrong with the target or the text, or what failed.
pub fn measure_jobs(target: &str, text: &str) -> Result<(Vec<JobResults>, Energy), MeasureError> {
    let parsed: Target = target.parse().map_err(|error| MeasureError::of(target, error))?;
    let file = JobFile::parse(text, Path::new("jobs.fio"), &[]);
    let file = file.map_err(|error| MeasureError::of(target, error))?;
    let needs = Needs::of(&parsed, &Demand::of(&file));
    let mut stack =
        Stack::open(&parsed, &needs).map_err(|error| MeasureError::of(target, error))?;
    let before = stack.energy().unwrap_or_default();
    let played = stack.play(&file, PlayOptions::default());
    let played = played.map_err(|error| MeasureError::of(target, error))?;
    if let Some(failure) = played.jobs.iter().find_map(|job| job.failure.as_ref()) {
        return Err(MeasureError::of(target, failure));
    }
    Ok((played.jobs, Energy::between(&before, &stack.energy().unwrap_or_default())))
}
