//! Turns the workers' measurements into results.

use std::collections::BTreeMap;

use super::{
    Areas, Cpu, DirectionResults, JobResults, LATENCY_LIMITS, Latency, LatencyResults, Percentile,
    SampleSummary, SteadyResults, VerifyResults,
};

use crate::histogram::{DEFAULT_PERCENTILES, Histogram};
use crate::runner::{BAD_DATA, Failure, Measured, SteadyState, WorkerOutcome};
use crate::statistics::{DirectionStatistics, Samples, Statistics};
use crate::workload::{Direction, SteadyMeasure, Tolerance, Workload};

impl Latency {
    /// The summary of `histogram` with these percentiles.
    pub fn of(histogram: &Histogram, percentiles: &[f64]) -> Self {
        let point = |&percent: &f64| Percentile { percent, nanos: histogram.percentile(percent) };
        Self {
            count: histogram.count(),
            min: histogram.min(),
            max: histogram.max(),
            mean: histogram.mean(),
            stddev: histogram.standard_deviation(),
            percentiles: percentiles.iter().map(point).collect(),
        }
    }
}

impl SampleSummary {
    fn of(samples: &Samples) -> Self {
        Self {
            count: samples.count,
            min: samples.min,
            max: samples.max,
            mean: samples.mean(),
            stddev: samples.standard_deviation(),
        }
    }
}

impl Areas {
    /// The areas of one direction. No file system is above the block device here.
    pub fn of(statistics: &DirectionStatistics, percentiles: &[f64]) -> Self {
        let [submission, device, completion] =
            [&statistics.submission, &statistics.device, &statistics.completion]
                .map(|histogram| Latency::of(histogram, percentiles));
        let software = statistics.submission.sum() + statistics.completion.sum();
        let all = software + statistics.device.sum();
        let software_percent = if all == 0 { 0.0 } else { software as f64 * 100.0 / all as f64 };
        Self { file_system: None, submission, device, completion, software_percent }
    }
}

impl DirectionResults {
    fn of(statistics: &DirectionStatistics, runtime_nanos: u64, percentiles: &[f64]) -> Self {
        let per_second = if runtime_nanos == 0 { 0.0 } else { 1e9 / runtime_nanos as f64 };
        Self {
            requests: statistics.requests(),
            failed: statistics.failed,
            bytes: statistics.bytes,
            iops: statistics.requests() as f64 * per_second,
            bandwidth: statistics.bytes as f64 * per_second,
            slat: Latency::of(&statistics.submission, percentiles),
            clat: Latency::of(&statistics.response, percentiles),
            lat: Latency::of(&statistics.total, percentiles),
            areas: Areas::of(statistics, percentiles),
            bandwidth_samples: SampleSummary::of(&statistics.bandwidth),
            iops_samples: SampleSummary::of(&statistics.rate),
        }
    }
}

/// The parts of a result other than measurements.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Reporting group.
    pub group: u32,
    /// Description from the job file.
    pub description: Option<String>,
    /// Options as given.
    pub options: BTreeMap<String, String>,
    /// Requested percentiles; empty: fio's default list.
    pub percentiles: Vec<f64>,
    /// The process's resource usage.
    pub cpu: Cpu,
}

impl JobResults {
    /// The result of workers that ran `workload` (or copies of it) and report together.
    pub fn of(workload: &Workload, outcomes: &[&WorkerOutcome], about: About) -> Self {
        let mut sum = Statistics::default();
        outcomes.iter().for_each(|outcome| sum.merge(&outcome.statistics));
        let percentiles = match about.percentiles.as_slice() {
            [] => &DEFAULT_PERCENTILES[..],
            list => list,
        };
        let direction = |direction: Direction| {
            let used = sum.used().find(|&(used, _)| used == direction);
            used.map(|(_, d)| DirectionResults::of(d, sum.runtime_nanos, percentiles))
        };
        let failure = outcomes.iter().find_map(|outcome| outcome.failure);
        let first = outcomes.iter().find_map(|outcome| outcome.first);
        let verify_failed = outcomes
            .iter()
            .any(|outcome| outcome.verified.as_ref().is_some_and(|it| it.mismatches > 0));
        let verified = verified(workload, outcomes);
        Self {
            name: workload.name.clone(),
            description: about.description,
            group: about.group,
            workers: outcomes.len() as u32,
            options: about.options,
            rw: workload.pattern_name().to_string(),
            bs: sizes(workload),
            block_bytes: workload.block_max(),
            size_cut: workload.size_wanted.zip(workload.size),
            iodepth: workload.depth,
            latency: workload.latency.target.map(|target| LatencyResults {
                target_nanos: target.nanos,
                window_nanos: target.window_nanos,
                percentile: target.percentile,
                depth: outcomes.first().map_or(0, |outcome| outcome.depth),
            }),
            steady: outcomes.iter().find_map(|outcome| outcome.steady.as_ref()).map(steady),
            zone_resets: (workload.zones.is_some() && workload.writes())
                .then(|| outcomes.iter().map(|outcome| outcome.zone_resets).sum()),
            error: match failure {
                None if verify_failed => BAD_DATA,
                other => other.as_ref().map_or(0, Failure::errno),
            },
            failure: failure.map(|failure| failure.to_string()),
            tolerates: workload.tolerance != Tolerance::default()
                || workload.ignored != <[Vec<i32>; 3]>::default(),
            first_error: first.as_ref().map_or(0, Failure::errno),
            first_failure: first.map(|failure| failure.to_string()),
            failures: outcomes.iter().map(|outcome| outcome.failures).sum(),
            percentiles: about.percentiles.clone(),
            runtime_nanos: sum.runtime_nanos,
            read: direction(Direction::Read),
            write: direction(Direction::Write),
            trim: direction(Direction::Trim),
            sync: (sum.flush.count() > 0).then(|| Latency::of(&sum.flush, percentiles)),
            depth_percent: percent(&sum.depth_levels),
            submit_percent: percent(&sum.submit_batches),
            complete_percent: percent(&sum.complete_batches),
            latency_percent: latency_percent(&sum),
            verified,
            cpu: about.cpu,
            published: None,
        }
    }
}

fn steady(state: &SteadyState) -> SteadyResults {
    let wanted = state.wanted;
    let looks_at_latency = wanted.measure == SteadyMeasure::Latency;
    let all = |of: fn(&Measured) -> u64| {
        let mut all: Vec<u64> = state.measured.iter().map(of).collect();
        all.resize(wanted.measurements(), 0);
        all
    };
    SteadyResults {
        criterion: wanted.criterion_name().to_string(),
        limit: wanted.limit,
        percent: wanted.percent,
        window_seconds: wanted.window_seconds,
        attained: state.attained,
        // What could not be reckoned, because nothing was done, is no number of JSON.
        value: if state.criterion.is_finite() { state.criterion } else { 0.0 },
        deviation: state.deviation,
        slope: state.slope,
        iops_mean: state.mean(|measured| measured.iops),
        bandwidth_mean: state.mean(|measured| measured.bandwidth),
        latency_mean: looks_at_latency.then(|| state.mean(|measured| measured.latency)),
        iops: all(|measured| measured.iops),
        bandwidth: all(|measured| measured.bandwidth),
        latency: if looks_at_latency { all(|measured| measured.latency) } else { Vec::new() },
    }
}

fn verified(workload: &Workload, outcomes: &[&WorkerOutcome]) -> Option<VerifyResults> {
    let method = workload.verify?.method.to_string();
    let mut sum = VerifyResults { method, ..VerifyResults::default() };
    for verified in outcomes.iter().filter_map(|outcome| outcome.verified.as_ref()) {
        sum.checked |= verified.checked;
        sum.bytes += verified.bytes;
        sum.mismatches += verified.mismatches;
        sum.first.extend_from_slice(&verified.first);
        sum.dumped.extend_from_slice(&verified.dumped);
        sum.nanos = sum.nanos.max(verified.nanos);
    }
    Some(sum)
}

/// The block sizes of a workload; one if they are all the same, otherwise by direction.
fn sizes(workload: &Workload) -> String {
    let mut sizes: Vec<String> = workload.sizes_used().map(ToString::to_string).collect();
    sizes.dedup();
    sizes.join(",")
}

fn percent(counts: &[u64; 7]) -> [f64; 7] {
    let all: u64 = counts.iter().sum();
    counts.map(|count| if all == 0 { 0.0 } else { count as f64 * 100.0 / all as f64 })
}

/// Share of the requests in each of fio's latency classes, and above them.
fn latency_percent(statistics: &Statistics) -> Vec<f64> {
    let all = statistics.requests().max(1) as f64;
    let below = |nanos| statistics.used().map(|(_, d)| d.total.count_below(nanos)).sum::<u64>();
    let mut shares = Vec::with_capacity(LATENCY_LIMITS.len() + 1);
    let mut last = 0;
    for limit in LATENCY_LIMITS {
        let count = below(limit);
        shares.push((count - last) as f64 * 100.0 / all);
        last = count;
    }
    shares.push((statistics.requests() - last) as f64 * 100.0 / all);
    shares
}
