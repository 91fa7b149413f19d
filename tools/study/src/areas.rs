//! The four areas of a list of workloads, on one device of each protocol.

use flysch_bench::results::Latency;
use serde::Serialize;

use crate::measure::{MeasureError, Measured, command, measure};

/// The devices compared: name, target.
pub const DEVICES: [(&str, &str); 4] = [
    ("UFS", "ufs,profile=galaxy-book-s"),
    ("NVMe", "nvme,profile=pm991a,queues=8"),
    ("eMMC", "emmc,profile=emmc-hs400-cmdq"),
    ("SATA", "ahci,profile=sata-ssd"),
];

/// The workloads of Micron's white paper: name, pattern, bytes per request.
pub const WORKLOADS: [(&str, &str, &str); 4] = [
    ("128 KiB sequential write", "write", "128k"),
    ("128 KiB sequential read", "read", "128k"),
    ("4 KiB random write", "randwrite", "4k"),
    ("4 KiB random read", "randread", "4k"),
];

/// Numbers of threads, each with one request in flight.
pub const THREADS: [u32; 2] = [1, 8];

/// A distribution of times, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
}

impl Times {
    fn of(latency: &Latency) -> Self {
        let at = |percent| latency.percentile(percent).unwrap_or_default();
        Self { mean: latency.mean, p50: at(50.0), p99: at(99.0), p999: at(99.9) }
    }
}

/// One workload on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The device's protocol.
    pub device: &'static str,
    /// The workload.
    pub workload: &'static str,
    /// Number of threads.
    pub threads: u32,
    /// Requests per second.
    pub iops: f64,
    /// MiB per second.
    pub mebibytes: f64,
    /// Area 2: software down to the doorbell (disk and driver; without a file system there is no
    /// area 1).
    pub submission: Times,
    /// Area 3: time in the device.
    pub device_time: Times,
    /// Area 4: software from the end of the device's work to the caller.
    pub completion: Times,
    /// All areas together.
    pub all: Times,
    /// Share of areas 2 and 4, percent.
    pub software_percent: f64,
    /// Energy of the device per GiB, joules.
    pub joules_per_gib: f64,
    /// Its mean power, watts.
    pub watts: f64,
    /// The command that measures it.
    pub command: String,
}

/// The job; each run takes 200 ms of simulated time, a quick one 20 ms.
fn job((pattern, bytes): (&str, &str), threads: u32, quick: bool) -> String {
    let millis = if quick { 20 } else { 200 };
    let ramp = millis / 10;
    format!(
        "rw={pattern} bs={bytes} numjobs={threads} ioengine=psync size=128m \
         offset_increment=128m time_based runtime={millis}ms ramp_time={ramp}ms zero_buffers"
    )
}

/// Measures one workload on one target.
///
/// # Errors
/// What could not be measured.
pub fn row(
    (device, target): (&'static str, &str),
    (workload, pattern, bytes): (&'static str, &str, &str),
    (threads, quick): (u32, bool),
) -> Result<Row, MeasureError> {
    let job = job((pattern, bytes), threads, quick);
    let Measured { job: result, energy } = measure(target, &job)?;
    let (_, done) =
        result.directions().next().ok_or_else(|| MeasureError::of(target, "nothing was done"))?;
    Ok(Row {
        device,
        workload,
        threads,
        iops: done.iops,
        mebibytes: done.bandwidth / f64::from(1 << 20),
        submission: Times::of(&done.areas.submission),
        device_time: Times::of(&done.areas.device),
        completion: Times::of(&done.areas.completion),
        all: Times::of(&done.lat),
        software_percent: done.areas.software_percent,
        joules_per_gib: energy.joules_per_gib.unwrap_or_default(),
        watts: energy.watts,
        command: command(target, &job),
    })
}
