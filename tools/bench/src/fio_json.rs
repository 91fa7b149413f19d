//! Results in fio's JSON schema (that of fio 3.33), with our own figures in `flysch` objects.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::calendar::ctime;
use crate::published::Published;
use crate::results::{
    Areas, DirectionResults, Energy, Incident, JobResults, LATENCY_LIMITS, Latency, Layer, Results,
    SteadyResults, TargetResults, VerifyResults,
};

/// The document that fio would write, ready to be serialised.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    #[serde(rename = "fio version")]
    version: String,
    timestamp: u64,
    timestamp_ms: u64,
    time: String,
    #[serde(rename = "global options", skip_serializing_if = "BTreeMap::is_empty")]
    global: &'a BTreeMap<String, String>,
    jobs: Vec<Job<'a>>,
    flysch: Program<'a>,
}

#[derive(Debug, Serialize)]
struct Program<'a> {
    version: &'a str,
    schema: &'static str,
    targets: Vec<Target<'a>>,
}

#[derive(Debug, Serialize)]
struct Target<'a> {
    target: &'a str,
    description: &'a str,
    clock: &'a str,
    block_size: u32,
    bytes: u64,
    /// By reporter, then by kind.
    incidents: BTreeMap<&'a str, BTreeMap<&'a str, u64>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    layers: &'a [Layer],
    #[serde(skip_serializing_if = "Option::is_none")]
    energy: Option<&'a Energy>,
}

#[derive(Debug, Serialize)]
struct Job<'a> {
    jobname: &'a str,
    groupid: u32,
    error: i32,
    eta: u64,
    elapsed: u64,
    #[serde(rename = "job options")]
    options: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    desc: Option<&'a str>,
    read: Direction,
    write: Direction,
    trim: Direction,
    sync: Sync,
    job_runtime: u64,
    usr_cpu: f64,
    sys_cpu: f64,
    ctx: u64,
    majf: u64,
    minf: u64,
    iodepth_level: Shares,
    iodepth_submit: Shares,
    iodepth_complete: Shares,
    latency_ns: Shares,
    latency_us: Shares,
    latency_ms: Shares,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_err: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_error: Option<i32>,
    latency_depth: u32,
    latency_target: u64,
    latency_percentile: f64,
    latency_window: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    steadystate: Option<Steady>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone_resets: Option<u64>,
    flysch: Ours<'a>,
}

/// Results for which fio's schema has no place.
#[derive(Debug, Serialize)]
struct Ours<'a> {
    target: &'a str,
    rw: &'a str,
    bs: &'a str,
    iodepth: u32,
    workers: u32,
    /// Bytes that `size` asked for, if the device has fewer.
    #[serde(skip_serializing_if = "Option::is_none")]
    size_wanted: Option<u64>,
    areas: OurAreas,
    failures: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verify: Option<&'a VerifyResults>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<Published>,
}

#[derive(Debug, Serialize)]
struct OurAreas {
    #[serde(skip_serializing_if = "Option::is_none")]
    read: Option<AreaTimes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write: Option<AreaTimes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trim: Option<AreaTimes>,
}

#[derive(Debug, Serialize)]
struct AreaTimes {
    #[serde(skip_serializing_if = "Option::is_none")]
    file_system_ns: Option<Times>,
    submission_ns: Times,
    device_ns: Times,
    completion_ns: Times,
    software_percent: f64,
}

#[derive(Debug, Default, Serialize)]
struct Direction {
    io_bytes: u64,
    io_kbytes: u64,
    bw_bytes: u64,
    bw: u64,
    iops: f64,
    runtime: u64,
    total_ios: u64,
    short_ios: u64,
    drop_ios: u64,
    slat_ns: Times,
    clat_ns: Times,
    lat_ns: Times,
    bw_min: u64,
    bw_max: u64,
    bw_agg: f64,
    bw_mean: f64,
    bw_dev: f64,
    bw_samples: u64,
    iops_min: u64,
    iops_max: u64,
    iops_mean: f64,
    iops_stddev: f64,
    iops_samples: u64,
}

#[derive(Debug, Default, Serialize)]
struct Sync {
    total_ios: u64,
    lat_ns: Times,
}

#[derive(Debug, Serialize)]
struct Steady {
    ss: String,
    duration: u64,
    attained: u8,
    criterion: String,
    max_deviation: f64,
    slope: f64,
    data: SteadyData,
}

#[derive(Debug, Serialize)]
struct SteadyData {
    bw_mean: u64,
    iops_mean: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lat_mean: Option<u64>,
    iops: Vec<u64>,
    bw: Vec<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lat: Vec<u64>,
}

impl Steady {
    fn new(steady: &SteadyResults) -> Self {
        let sign = if steady.percent { "%" } else { "" };
        Self {
            ss: format!("{}:{:.6}{sign}", steady.criterion, steady.limit),
            duration: steady.window_seconds,
            attained: steady.attained.into(),
            criterion: format!("{:.6}{sign}", steady.value),
            max_deviation: steady.deviation,
            slope: steady.slope,
            data: SteadyData {
                bw_mean: steady.bandwidth_mean,
                iops_mean: steady.iops_mean,
                lat_mean: steady.latency_mean,
                iops: steady.iops.clone(),
                bw: steady.bandwidth.clone(),
                lat: steady.latency.clone(),
            },
        }
    }
}

#[derive(Debug, Default, Serialize)]
struct Times {
    min: u64,
    max: u64,
    mean: f64,
    stddev: f64,
    #[serde(rename = "N")]
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    percentile: Option<Percentiles>,
}

/// A map with keys in our order: fio's tables of shares.
#[derive(Debug)]
struct Shares(Vec<(String, f64)>);

impl Serialize for Shares {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, share) in &self.0 {
            map.serialize_entry(name, share)?;
        }
        map.end()
    }
}

#[derive(Debug)]
struct Percentiles(Vec<(String, u64)>);

impl Serialize for Percentiles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (percent, nanos) in &self.0 {
            map.serialize_entry(percent, nanos)?;
        }
        map.end()
    }
}

impl<'a> Document<'a> {
    /// The document for `results`; `global` are the options of the job file's global section.
    pub fn new(results: &'a Results, global: &'a BTreeMap<String, String>) -> Self {
        let target = |target: &'a TargetResults| Target {
            target: &target.target,
            description: &target.description,
            clock: &target.clock,
            block_size: target.block_size,
            bytes: target.bytes,
            energy: target.energy.as_ref(),
            layers: &target.layers,
            incidents: Incident::grouped(&target.incidents)
                .map(|(source, group)| {
                    let counts = group.iter().map(|it| (it.what.as_str(), it.count));
                    (source, counts.collect())
                })
                .collect(),
        };
        let jobs = results
            .targets
            .iter()
            .flat_map(|target| target.jobs.iter().map(move |job| Job::new(job, target)));
        Self {
            version: format!("flysch-{}", results.version),
            timestamp: results.timestamp_ms / 1000,
            timestamp_ms: results.timestamp_ms,
            time: ctime(results.timestamp_ms / 1000),
            global,
            jobs: jobs.collect(),
            flysch: Program {
                version: &results.version,
                schema: "fio-3.33",
                targets: results.targets.iter().map(target).collect(),
            },
        }
    }
}

impl<'a> Job<'a> {
    fn new(job: &'a JobResults, target: &'a TargetResults) -> Self {
        let runtime_ms = job.runtime_nanos / 1_000_000;
        let direction = |results: &Option<DirectionResults>| {
            results.as_ref().map_or_else(Direction::default, |r| Direction::new(r, runtime_ms))
        };
        let [latency_ns, latency_us, latency_ms] = latency_shares(&job.latency_percent);
        let levels = ["1", "2", "4", "8", "16", "32", ">=64"];
        let batches = ["0", "4", "8", "16", "32", "64", ">=64"];
        Self {
            jobname: &job.name,
            groupid: job.group,
            error: job.error,
            eta: 0,
            elapsed: job.cpu.elapsed_ms.div_ceil(1000),
            options: &job.options,
            desc: job.description.as_deref(),
            read: direction(&job.read),
            write: direction(&job.write),
            trim: direction(&job.trim),
            sync: Sync {
                total_ios: job.sync.as_ref().map_or(0, |sync| sync.count),
                lat_ns: job.sync.as_ref().map_or_else(Times::default, Times::with_percentiles),
            },
            job_runtime: runtime_ms,
            usr_cpu: job.cpu.user_percent,
            sys_cpu: job.cpu.system_percent,
            ctx: job.cpu.context_switches,
            majf: job.cpu.major_faults,
            minf: job.cpu.minor_faults,
            iodepth_level: Shares::new(&levels, &job.depth_percent),
            iodepth_submit: Shares::new(&batches, &job.submit_percent),
            iodepth_complete: Shares::new(&batches, &job.complete_percent),
            latency_ns,
            latency_us,
            latency_ms,
            total_err: job.tolerates.then_some(job.failures),
            first_error: job.tolerates.then_some(job.first_error),
            latency_depth: job.latency.map_or(job.iodepth, |latency| latency.depth),
            latency_target: job.latency.map_or(0, |latency| latency.target_nanos),
            latency_percentile: job.latency.map_or(100.0, |latency| latency.percentile),
            latency_window: job.latency.map_or(0, |latency| latency.window_nanos / 1000),
            steadystate: job.steady.as_ref().map(Steady::new),
            zone_resets: job.zone_resets,
            flysch: Ours::new(job, target),
        }
    }
}

impl<'a> Ours<'a> {
    fn new(job: &'a JobResults, target: &'a TargetResults) -> Self {
        let areas = |results: &Option<DirectionResults>| {
            results.as_ref().map(|results| AreaTimes::new(&results.areas))
        };
        Self {
            target: &target.target,
            rw: &job.rw,
            bs: &job.bs,
            iodepth: job.iodepth,
            workers: job.workers,
            size_wanted: job.size_cut.map(|(wanted, _)| wanted),
            areas: OurAreas {
                read: areas(&job.read),
                write: areas(&job.write),
                trim: areas(&job.trim),
            },
            failures: job.failures,
            failure: job.failure.as_deref(),
            verify: job.verified.as_ref(),
            published: job.published,
        }
    }
}

impl AreaTimes {
    fn new(areas: &Areas) -> Self {
        Self {
            file_system_ns: areas.file_system.as_ref().map(Times::with_percentiles),
            submission_ns: Times::with_percentiles(&areas.submission),
            device_ns: Times::with_percentiles(&areas.device),
            completion_ns: Times::with_percentiles(&areas.completion),
            software_percent: areas.software_percent,
        }
    }
}

impl Direction {
    fn new(results: &DirectionResults, runtime_ms: u64) -> Self {
        let bandwidth = &results.bandwidth_samples;
        let iops = &results.iops_samples;
        let rate = results.bandwidth / 1024.0;
        Self {
            io_bytes: results.bytes,
            io_kbytes: results.bytes / 1024,
            bw_bytes: results.bandwidth as u64,
            bw: rate as u64,
            iops: results.iops,
            runtime: runtime_ms,
            total_ios: results.requests,
            short_ios: 0,
            drop_ios: 0,
            slat_ns: Times::plain(&results.slat),
            clat_ns: Times::with_percentiles(&results.clat),
            lat_ns: Times::plain(&results.lat),
            bw_min: bandwidth.min as u64,
            bw_max: bandwidth.max as u64,
            bw_agg: if rate > 0.0 { (bandwidth.mean * 100.0 / rate).min(100.0) } else { 0.0 },
            bw_mean: bandwidth.mean,
            bw_dev: bandwidth.stddev,
            bw_samples: bandwidth.count,
            iops_min: iops.min as u64,
            iops_max: iops.max as u64,
            iops_mean: iops.mean,
            iops_stddev: iops.stddev,
            iops_samples: iops.count,
        }
    }
}

impl Times {
    fn plain(latency: &Latency) -> Self {
        let Latency { count, min, max, mean, stddev, .. } = *latency;
        Self { min, max, mean, stddev, count, percentile: None }
    }

    fn with_percentiles(latency: &Latency) -> Self {
        let point = |p: &crate::results::Percentile| (format!("{:.6}", p.percent), p.nanos);
        let percentiles = latency.percentiles.iter().map(point).collect();
        let percentile = (latency.count > 0).then_some(Percentiles(percentiles));
        Self { percentile, ..Self::plain(latency) }
    }
}

impl Shares {
    fn new(names: &[&str], shares: &[f64]) -> Self {
        Self(names.iter().zip(shares).map(|(name, share)| ((*name).to_string(), *share)).collect())
    }
}

/// The latency classes in nanoseconds, microseconds and milliseconds.
fn latency_shares(shares: &[f64]) -> [Shares; 3] {
    let share = |index: usize| shares.get(index).copied().unwrap_or(0.0);
    let class = |from: usize, to: usize, unit: u64| {
        let names = LATENCY_LIMITS[from..to].iter().enumerate();
        Shares(names.map(|(i, limit)| ((limit / unit).to_string(), share(from + i))).collect())
    };
    let mut milliseconds = class(20, LATENCY_LIMITS.len(), 1_000_000);
    milliseconds.0.push((">=2000".to_string(), share(LATENCY_LIMITS.len())));
    [class(0, 10, 1), class(10, 20, 1000), milliseconds]
}

#[cfg(test)]
mod tests;
