//! The results of a run, ready to be printed, written or drawn: plain serialisable values.

mod energy;
mod summary;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::published::{Origin, Published};
pub use energy::{Energy, EnergyPart};
pub use summary::About;

/// The results of one command: every target, every job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Version of the program.
    pub version: String,
    /// When the run started, milliseconds since 1970.
    pub timestamp_ms: u64,
    /// Whether this is the queue-depth table that `bench` without arguments makes: its jobs are
    /// named after the columns of [`crate::published`], one per depth.
    pub is_table: bool,
    /// One per target, in the order given.
    pub targets: Vec<TargetResults>,
}

/// The results of one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetResults {
    /// The target as the user wrote it.
    pub target: String,
    /// Its description: vendor, product, queue mode.
    pub description: String,
    /// The clock of its times: `virtual`, `hybrid` or `real`.
    pub clock: String,
    /// Bytes per block.
    pub block_size: u32,
    /// Size, bytes.
    pub bytes: u64,
    /// One per worker, or per group of workers that report together.
    pub jobs: Vec<JobResults>,
    /// All workers together of each job that has several which report apart.
    pub totals: Vec<JobResults>,
    /// Where figures of its device were published, which may be shown beside its own.
    pub origin: Option<Origin>,
    /// Whether that device stands alone, without its published host: the part of the figures that
    /// exceeds its time is then that host's software.
    pub is_bare: bool,
    /// What went wrong, and what was done about it.
    pub incidents: Vec<Incident>,
    /// What the classes of the block layer did on the way to the disks, topmost first; empty for a
    /// target without one.
    pub layers: Vec<Layer>,
    /// The energy used by the device, if it is modelled.
    pub energy: Option<Energy>,
}

/// What a class of the block layer did with the requests to one of its providers. A request that
/// needs no special handling is passed on in the call in which it arrived: the time for that counts
/// as software of the submission. Waits caused by a class are reported here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// The class.
    pub class: String,
    /// The provider.
    pub provider: String,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Number of flushes and deletes.
    pub others: u64,
    /// How often one was held back on its way down: for lack of room below, for others, on purpose.
    pub stalls: u64,
    /// Total nanoseconds of that.
    pub stalled_nanos: u64,
    /// How many were sent to another component or path because the first one failed.
    pub retries: u64,
    /// Total nanoseconds from then until they ended.
    pub retried_nanos: u64,
}

/// Something that went wrong, or was done about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// The reporter: `injected` (injected faults), `power` (writes affected by losses of power),
    /// `disk` (the command layer), `driver`.
    pub source: String,
    /// The kind.
    pub what: String,
    /// The number.
    pub count: u64,
}

impl Incident {
    /// The changes between two readings of the same counters: those that increased.
    pub fn between(before: &[Self], after: &[Self]) -> Vec<Self> {
        let earlier = |now: &Self| {
            let same = |then: &&Self| then.source == now.source && then.what == now.what;
            before.iter().find(same).map_or(0, |then| then.count)
        };
        let risen = after.iter().map(|now| {
            let count = now.count.saturating_sub(earlier(now));
            Self { count, ..now.clone() }
        });
        risen.filter(|incident| incident.count > 0).collect()
    }

    /// By reporter, in the order of appearance.
    pub fn grouped(incidents: &[Self]) -> impl Iterator<Item = (&str, &[Self])> {
        incidents.chunk_by(|a, b| a.source == b.source).map(|group| (&group[0].source[..], group))
    }
}

impl TargetResults {
    /// Each job as a whole: the total of those whose workers report separately.
    pub fn wholes(&self) -> impl Iterator<Item = &JobResults> {
        let is_part = |job: &JobResults, total: &JobResults| {
            job.name == total.name && job.group == total.group && job.workers == 1
        };
        let mut told: Vec<&JobResults> = Vec::new();
        self.jobs.iter().filter_map(move |job| {
            let Some(total) = self.totals.iter().find(|total| is_part(job, total)) else {
                return Some(job);
            };
            if told.iter().any(|other| std::ptr::eq(*other, total)) {
                return None;
            }
            told.push(total);
            Some(total)
        })
    }
}

/// The results of one job, or of a group of jobs that report together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobResults {
    /// Name of the job.
    pub name: String,
    /// Its description, if the job file gives one.
    pub description: Option<String>,
    /// Number of the reporting group, from 0.
    pub group: u32,
    /// Workers added up in this result.
    pub workers: u32,
    /// Job options as given, with fio's names.
    pub options: BTreeMap<String, String>,
    /// fio's name of the access pattern: `randread`.
    pub rw: String,
    /// Request size as fio writes it: `4k`, `4k-64k`.
    pub bs: String,
    /// Longest request, bytes.
    pub block_bytes: u32,
    /// The size that the job asked for and the size that the device had for it, if that is less.
    pub size_cut: Option<(u64, u64)>,
    /// Requests in flight per worker.
    pub iodepth: u32,
    /// The queue depth found, if one was searched for.
    pub latency: Option<LatencyResults>,
    /// The result of looking for a steady state, if that was requested.
    pub steady: Option<SteadyResults>,
    /// Zones that were reset, if it went by zones and writes or trims.
    pub zone_resets: Option<u64>,
    /// The `errno` as in fio: that of the failure that ended it (mostly 5), 84 for data that
    /// differs from what was written, even if that was tolerated, otherwise 0.
    pub error: i32,
    /// The failure that ended it, in words.
    pub failure: Option<String>,
    /// Total failures, including tolerated ones.
    pub failures: u64,
    /// Whether `continue_on_error` tolerates any.
    pub tolerates: bool,
    /// Code of the first failure, tolerated or not; 0 if there was none.
    pub first_error: i32,
    /// The first failure, in words.
    pub first_failure: Option<String>,
    /// The requested percentiles; empty: fio's default list.
    pub percentiles: Vec<f64>,
    /// Length of the measurement, nanoseconds of the target's clock.
    pub runtime_nanos: u64,
    /// Reads, if there were any.
    pub read: Option<DirectionResults>,
    /// Writes, if there were any.
    pub write: Option<DirectionResults>,
    /// Trims, if there were any.
    pub trim: Option<DirectionResults>,
    /// Flushes, if there were any.
    pub sync: Option<Latency>,
    /// Requests by queue depth at their submission, percent: 1, 2, 4, 8, 16, 32, 64 and more.
    pub depth_percent: [f64; 7],
    /// Submission batches by length, percent: 0, up to 4, 8, 16, 32, 64, more.
    pub submit_percent: [f64; 7],
    /// Completion batches by length, percent.
    pub complete_percent: [f64; 7],
    /// Requests by total latency, percent, under each of fio's limits; see [`LATENCY_LIMITS`].
    pub latency_percent: Vec<f64>,
    /// The results of verification, if it was requested.
    pub verified: Option<VerifyResults>,
    /// Processor time of the process over the job, percent of the real time it took.
    pub cpu: Cpu,
    /// The published figure for this cell of the table, if there is one.
    pub published: Option<Published>,
}

impl JobResults {
    /// The directions with any activity, with fio's names.
    pub fn directions(&self) -> impl Iterator<Item = (&'static str, &DirectionResults)> {
        let all = [("read", &self.read), ("write", &self.write), ("trim", &self.trim)];
        all.into_iter().filter_map(|(name, direction)| direction.as_ref().map(|d| (name, d)))
    }

    /// Requests per second, all directions.
    pub fn iops(&self) -> f64 {
        self.directions().map(|(_, direction)| direction.iops).sum()
    }

    /// Bytes per second, all directions.
    pub fn bandwidth(&self) -> f64 {
        self.directions().map(|(_, direction)| direction.bandwidth).sum()
    }
}

/// The results of one direction of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionResults {
    /// Requests completed.
    pub requests: u64,
    /// Requests failed.
    pub failed: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Requests per second.
    pub iops: f64,
    /// Bytes per second.
    pub bandwidth: f64,
    /// fio's submission latency: from acceptance to the doorbell.
    pub slat: Latency,
    /// fio's completion latency: from the doorbell to delivery.
    pub clat: Latency,
    /// fio's total latency.
    pub lat: Latency,
    /// The time by area.
    pub areas: Areas,
    /// Bandwidth over time, KiB/s.
    pub bandwidth_samples: SampleSummary,
    /// Requests per second over time.
    pub iops_samples: SampleSummary,
}

/// The four areas of one I/O's time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Areas {
    /// Area 1: the file system, if there is one.
    pub file_system: Option<Latency>,
    /// Area 2: from the block layer to the doorbell.
    pub submission: Latency,
    /// Area 3: the device.
    pub device: Latency,
    /// Area 4: from the end of the device's work to the caller.
    pub completion: Latency,
    /// Share of areas 1, 2 and 4 in the total time, percent.
    pub software_percent: f64,
}

/// A distribution of times, nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Samples.
    pub count: u64,
    /// Smallest.
    pub min: u64,
    /// Largest.
    pub max: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Percentiles, ascending.
    pub percentiles: Vec<Percentile>,
}

impl Latency {
    /// The percentile `percent`, if it was requested.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let found = self.percentiles.iter().find(|p| (p.percent - percent).abs() < 1e-9);
        found.map(|p| p.nanos)
    }
}

/// One point of a distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// This many percent of the samples
    pub percent: f64,
    /// are not above this, nanoseconds.
    pub nanos: u64,
}

/// Values over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampleSummary {
    /// Samples.
    pub count: u64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
}

/// The queue depth found for a target latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyResults {
    /// The target latency, nanoseconds.
    pub target_nanos: u64,
    /// How long each depth was tried, nanoseconds.
    pub window_nanos: u64,
    /// The percentage of requests that must be fast enough.
    pub percentile: f64,
    /// The final depth.
    pub depth: u32,
}

/// The result of looking for a steady state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SteadyResults {
    /// The criterion, with fio's name: `iops`, `bw_slope`.
    pub criterion: String,
    /// Its limit.
    pub limit: f64,
    /// Limit and value are percentages of the mean.
    pub percent: bool,
    /// Length of the window, seconds.
    pub window_seconds: u64,
    /// Whether it was below its limit.
    pub attained: bool,
    /// The value last compared with the limit.
    pub value: f64,
    /// The greatest distance from the mean; 0 if slopes are judged.
    pub deviation: f64,
    /// Slope of the regression line, per measurement; 0 if distances are judged.
    pub slope: f64,
    /// Mean of the window: requests per second.
    pub iops_mean: u64,
    /// Mean of the window: bytes per second.
    pub bandwidth_mean: u64,
    /// Mean of the window: completion latency, nanoseconds, if that is the criterion.
    pub latency_mean: Option<u64>,
    /// The measurements of the window, oldest first; 0 for missing ones.
    pub iops: Vec<u64>,
    /// The same of the bandwidth.
    pub bandwidth: Vec<u64>,
    /// The same of the latency, if that is the criterion.
    pub latency: Vec<u64>,
}

/// The results of verification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VerifyResults {
    /// Checksum method, by fio's name.
    pub method: String,
    /// Whether anything was to be checked: not with `do_verify=0`.
    pub checked: bool,
    /// Bytes that are correct.
    pub bytes: u64,
    /// Units that are wrong.
    pub mismatches: u64,
    /// The first of those, in words.
    pub first: Vec<String>,
    /// Files to which those were written, or why not.
    pub dumped: Vec<String>,
    /// Length of the read-back phase, nanoseconds.
    pub nanos: u64,
}

/// The process's resource usage during a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Time in the program, percent of the real time.
    pub user_percent: f64,
    /// Time in the kernel, percent of the real time.
    pub system_percent: f64,
    /// Context switches.
    pub context_switches: u64,
    /// Page faults that read from storage.
    pub major_faults: u64,
    /// Page faults that did not.
    pub minor_faults: u64,
    /// Real time, milliseconds.
    pub elapsed_ms: u64,
}

/// Upper limits of fio's latency classes, nanoseconds; the last class is everything above.
pub const LATENCY_LIMITS: [u64; 31] = [
    2,
    4,
    10,
    20,
    50,
    100,
    250,
    500,
    750,
    1_000,
    2_000,
    4_000,
    10_000,
    20_000,
    50_000,
    100_000,
    250_000,
    500_000,
    750_000,
    1_000_000,
    2_000_000,
    4_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    750_000_000,
    1_000_000_000,
    2_000_000_000,
];
