//! Plays job files on a device: stage by stage, groups reported together.

use std::collections::BTreeMap;
use std::path::PathBuf;

use flysch_api::block::BlockDevice;
use flysch_api::machine::Clock;

use crate::jobfile::{Job, JobFile};
use crate::published::{Column, DEPTHS};
use crate::results::{About, JobResults};
use crate::runner::{self, Assignment, Progress, RunOptions, WorkerOutcome};
use crate::trace::ring::Ring;
use crate::units::Size;
use crate::usage::Usage;
use crate::workload::Workload;
use crate::zones::{Zones, ZonesError};

/// How to play.
#[derive(Default)]
pub struct PlayOptions<'a> {
    /// Records kept per lane and stage by the traces; 0 disables tracing.
    pub trace_records: usize,
    /// Called now and then with the fraction done, 0..=1.
    pub progress: Option<&'a mut dyn FnMut(f64)>,
    /// The zones that the disk reports, if it has some.
    pub zones: Option<Zones>,
}

impl core::fmt::Debug for PlayOptions<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PlayOptions")
            .field("trace_records", &self.trace_records)
            .finish_non_exhaustive()
    }
}

/// The results of a job file on one device.
#[derive(Debug, Default)]
pub struct Played {
    /// One result per worker, or per group that reports together.
    pub jobs: Vec<JobResults>,
    /// All workers together of each job that has several which report apart.
    pub totals: Vec<JobResults>,
    /// The traces of all stages, if they were requested.
    pub traces: Vec<Ring>,
}

/// Why a job file could not be played.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlayError {
    /// A job does not fit the device.
    #[error("{0}")]
    Job(String),
    /// A job goes by zones, and the disk cannot.
    #[error("{job}: {cause}")]
    Zones {
        /// The job.
        job: String,
        /// Why not.
        #[source]
        cause: ZonesError,
    },
    /// The runner refused, or the device lost requests.
    #[error(transparent)]
    Run(#[from] runner::RunError),
}

/// The resources that the jobs of a file require from the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Workers at the same time.
    pub workers: u32,
    /// Requests in flight at the same time, all workers.
    pub depth: u32,
    /// Bytes of buffers, all workers.
    pub memory: u64,
    /// Whether any of them writes or trims.
    pub writes: bool,
    /// Whether any of them goes by zones.
    pub zones: bool,
}

impl Demand {
    /// The maximum required by any stage of `file`.
    pub fn of(file: &JobFile) -> Self {
        file.stages().iter().fold(Self::default(), |most, stage| {
            let mut sum = Self::default();
            for job in *stage {
                let (count, work) = (job.settings.numjobs, &job.settings.workload);
                let depth = count.saturating_mul(work.depth);
                sum.workers = sum.workers.saturating_add(count);
                sum.depth = sum.depth.saturating_add(depth);
                let stride = runner::buffers::stride(work);
                sum.writes |= work.writes();
                sum.zones |= work.zones.is_some();
                sum.writes |= job.settings.replays.iter().any(|log| log.writes());
                sum.memory = sum.memory.saturating_add(stride.saturating_mul(u64::from(depth)));
            }
            Self {
                workers: most.workers.max(sum.workers),
                depth: most.depth.max(sum.depth),
                memory: most.memory.max(sum.memory),
                writes: most.writes || sum.writes,
                zones: most.zones || sum.zones,
            }
        })
    }
}

/// Workers of a job, with their group and report.
struct Member<'a> {
    job: &'a Job,
    group: u32,
    workers: core::ops::Range<usize>,
}

/// Runs the jobs of `file` on the lanes of a device.
///
/// # Errors
/// [`PlayError`] if a job does not fit the device or the device loses requests. Failed requests are
/// reported in the results of their job.
pub fn play<D: BlockDevice, C: Clock>(
    lanes: &mut [D],
    clock: &C,
    file: &JobFile,
    mut options: PlayOptions<'_>,
) -> Result<Played, PlayError> {
    let mut played = Played::default();
    let stages = file.stages();
    let count = stages.len() as f64;
    let mut group = 0;
    let mut logs = BTreeMap::new();
    let mut zones = zones(lanes, file, options.zones.take())?;
    let mut halts = false;
    for (index, stage) in stages.into_iter().enumerate() {
        if index > 0 {
            group += 1;
        }
        let zone = zones.as_ref().map_or(0, Zones::size);
        if halts {
            report_idle(lanes, stage, (&mut group, zone), &mut played);
            continue;
        }
        let (mut assignments, members) = assign(lanes, stage, (&mut group, zone))?;
        name_logs(&mut assignments, &mut logs);
        check_steady(&assignments)?;
        let usage = Usage::now();
        let mut on_progress = |progress: &Progress| {
            if let Some(show) = &mut options.progress {
                show((index as f64 + progress.fraction) / count);
            }
        };
        let run_options = RunOptions {
            trace_records: options.trace_records,
            progress: Some(&mut on_progress),
            zones: zones.take(),
            ..RunOptions::default()
        };
        let outcome = runner::run(lanes, clock, &assignments, run_options)?;
        report(&members, &assignments, (&outcome.workers, &usage), &mut played);
        played.traces.extend(outcome.traces);
        zones = outcome.zones;
        halts = outcome.halts;
    }
    Ok(played)
}

/// The zones that the jobs go by, if some do: those of the disk, or such as the jobs say.
fn zones<D: BlockDevice>(
    lanes: &[D],
    file: &JobFile,
    reported: Option<Zones>,
) -> Result<Option<Zones>, PlayError> {
    let mut zones = reported;
    for job in &file.jobs {
        let Some(mode) = job.settings.workload.zones else { continue };
        let failed = |cause| PlayError::Zones { job: job.name.clone(), cause };
        if zones.is_none() {
            let geometry = lanes.first().map(|lane| *lane.geometry());
            let geometry = geometry.filter(|_| mode.size > 0);
            let geometry = geometry.ok_or_else(|| failed(ZonesError::None))?;
            let capacity = Some(mode.capacity).filter(|&bytes| bytes > 0);
            let disk = (geometry.bytes(), geometry.block_size);
            zones = Some(Zones::imagined(disk, mode.size, capacity).map_err(failed)?);
        }
        let known = zones.as_ref().map_or(0, Zones::size);
        if mode.size > 0 && mode.size != known {
            let (job, wanted, size) = (&job.name, Size(mode.size), Size(known));
            return Err(PlayError::Job(format!(
                "{job}: zonesize={wanted}, but the zones of the disk have {size}"
            )));
        }
    }
    Ok(zones)
}

/// The workers of a stage, distributed over the lanes.
fn assign<'a, D: BlockDevice>(
    lanes: &[D],
    stage: &'a [Job],
    (group, zone): (&mut u32, u64),
) -> Result<(Vec<Assignment>, Vec<Member<'a>>), PlayError> {
    let geometry = lanes.first().map(|lane| *lane.geometry());
    let geometry = geometry.ok_or_else(|| PlayError::Job("the device has no lane".into()))?;
    let mut assignments: Vec<Assignment> = Vec::new();
    let mut members: Vec<Member<'a>> = Vec::new();
    for job in stage {
        if job.settings.new_group && !members.is_empty() {
            *group += 1;
        }
        let start = assignments.len();
        let disk = (geometry.bytes(), geometry.block_size);
        let workers = job.workers_in_zones(disk, zone).map_err(PlayError::Job)?;
        // Who is waited for in an earlier stage has ended.
        let waited = job.settings.wait_for.as_deref();
        let waited = members.iter().filter(|member| Some(member.job.name.as_str()) == waited);
        let after: Vec<usize> = waited.flat_map(|member| member.workers.clone()).collect();
        for workload in workers {
            let lane = assignments.len() % lanes.len();
            assignments.push(Assignment { workload, lane, group: *group, after: after.clone() });
        }
        members.push(Member { job, group: *group, workers: start..assignments.len() });
    }
    Ok((assignments, members))
}

/// Gives each worker that writes a log its own file; if several have the same name, a number is
/// appended to all but the first.
fn name_logs(assignments: &mut [Assignment], used: &mut BTreeMap<PathBuf, u32>) {
    for log in assignments.iter_mut().filter_map(|it| it.workload.log.as_mut()) {
        let count = used.entry(log.path.clone()).or_default();
        if *count > 0 {
            let mut name = log.path.clone().into_os_string();
            name.push(format!(".{count}"));
            log.path = name.into();
        }
        *count += 1;
    }
}

/// Workers that are judged together must look for the same steady state.
fn check_steady(assignments: &[Assignment]) -> Result<(), PlayError> {
    for (index, one) in assignments.iter().enumerate() {
        let same = assignments[..index].iter().filter(|other| other.group == one.group);
        let other = same.clone().find(|other| other.workload.steady != one.workload.steady);
        if let Some(other) = other {
            let (job, other) = (&one.workload.name, &other.workload.name);
            return Err(PlayError::Job(format!(
                "jobs {other} and {job}: steadystate and what belongs to it must be the same in a \
                 reporting group; new_group or stonewall in {job} begins another"
            )));
        }
    }
    Ok(())
}

/// The results of a stage that did not start, because an earlier one ended all (`exit_what=all`):
/// zeros, as in fio. Jobs of it that do not fit the device are nowhere.
fn report_idle<D: BlockDevice>(
    lanes: &[D],
    stage: &[Job],
    place: (&mut u32, u64),
    played: &mut Played,
) {
    let Ok((assignments, members)) = assign(lanes, stage, place) else { return };
    let outcomes = assignments.iter().map(|one| WorkerOutcome::of_nothing(&one.workload));
    let outcomes: Vec<WorkerOutcome> = outcomes.collect();
    report(&members, &assignments, (&outcomes, &Usage::now()), played);
}

/// One result per worker and one for all of a job, or one for all workers of a group that report
/// together.
fn report(
    members: &[Member<'_>],
    assignments: &[Assignment],
    (outcomes, usage): (&[WorkerOutcome], &Usage),
    played: &mut Played,
) {
    let cpu = usage.since();
    let result = |job: &Job, group: u32, workload: &Workload, outcomes: &[&WorkerOutcome]| {
        let about = About {
            group,
            description: job.settings.description.clone(),
            options: job.options.clone(),
            percentiles: job.settings.percentiles.clone(),
            cpu,
        };
        JobResults::of(workload, outcomes, about)
    };
    let mut reported: Vec<u32> = Vec::new();
    for member in members {
        let first = &assignments[member.workers.start].workload;
        if !member.job.settings.group_reporting {
            for worker in member.workers.clone() {
                let workload = &assignments[worker].workload;
                let one = result(member.job, member.group, workload, &[&outcomes[worker]]);
                played.jobs.push(one);
            }
            if member.workers.len() > 1 {
                let all: Vec<_> = outcomes[member.workers.clone()].iter().collect();
                played.totals.push(result(member.job, member.group, first, &all));
            }
        } else if !reported.contains(&member.group) {
            reported.push(member.group);
            let same = members
                .iter()
                .filter(|other| other.job.settings.group_reporting && other.group == member.group);
            let workers = same.flat_map(|other| other.workers.clone());
            let group: Vec<&WorkerOutcome> = workers.map(|worker| &outcomes[worker]).collect();
            played.jobs.push(result(member.job, member.group, first, &group));
        }
    }
}

/// Simulated time for which each cell of the depth table is measured, after a warm-up of a tenth of
/// it.
const CELL_MS: u32 = 500;
/// Bytes of the device used by the table's jobs, as in the article.
const TABLE_SIZE: &str = "1g";

/// The jobs of the depth table: four workloads at six depths, one after the other, on a device of
/// `device` bytes.
///
/// # Panics
/// Never: the options are constants.
pub fn depth_table(device: u64, seed: Option<u64>) -> JobFile {
    let mut file = JobFile::default();
    // Writes first, so that the reads find what was written.
    for column in [Column::SeqWrite, Column::SeqRead, Column::RandWrite, Column::RandRead] {
        for depth in DEPTHS {
            let size = if device < 1 << 30 { "100%" } else { TABLE_SIZE };
            let mut options = vec![
                ("rw", column.pattern().to_string()),
                ("bs", column.block_bytes().to_string()),
                ("iodepth", depth.to_string()),
                ("size", size.to_string()),
                ("runtime", format!("{CELL_MS}ms")),
                ("ramp_time", format!("{}ms", CELL_MS / 10)),
                ("time_based", "1".to_string()),
                ("stonewall", "1".to_string()),
            ];
            if let Some(seed) = seed {
                options.push(("randseed", seed.to_string()));
            }
            let options: Vec<(String, Option<String>)> =
                options.into_iter().map(|(name, value)| (name.to_string(), Some(value))).collect();
            let cell = JobFile::of_options(column.job_name(), &options);
            file.jobs.append(&mut cell.expect("the table's options are options").jobs);
        }
    }
    file
}

#[cfg(test)]
mod tests;
