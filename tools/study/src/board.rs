//! One flash behind three protocols, and UFS against eMMC as in the claims for the RK3576 board.

use serde::Serialize;

use crate::measure::{MeasureError, command, measure, measure_jobs};

/// The same flash behind each protocol: name, target.
pub const SAME_FLASH: [(&str, &str); 3] = [
    ("UFS", "ufs,profile=ok3576,clock=virtual"),
    ("eMMC", "emmc,profile=ok3576,clock=virtual"),
    ("NVMe", "nvme,profile=ok3576,clock=virtual"),
];

/// An eMMC with and without its queue: name, target.
const QUEUE: [(&str, &str); 2] = [
    ("eMMC with a queue", "emmc,profile=emmc-hs400-cmdq,clock=virtual"),
    ("the same without", "emmc,profile=emmc-hs400-cmdq,queue=off,clock=virtual"),
];

/// The jobs: name, and options without the run time.
const JOBS: [(&str, &str); 7] = [
    ("sequential reads, 128 KiB, depth 8", "rw=read bs=128k iodepth=8"),
    ("sequential writes, 128 KiB, depth 8", "rw=write bs=128k iodepth=8"),
    ("half reads, half writes, 128 KiB, depth 8", "rw=randrw bs=128k iodepth=8"),
    ("random reads, 4 KiB, depth 1", "rw=randread bs=4k iodepth=1"),
    ("random reads, 4 KiB, depth 32", "rw=randread bs=4k iodepth=32"),
    ("random writes, 4 KiB, depth 32", "rw=randwrite bs=4k iodepth=32"),
    ("random, 70 % reads, 4 KiB, depth 32", "rw=randrw rwmixread=70 bs=4k iodepth=32"),
];

/// The game load: 768 MiB of textures and sound in 512 KiB requests, four at a time, while the game
/// reads 32 MiB of small data at random, eight at a time.
const GAME: &str = "[global]
group_reporting
zero_buffers
size=1g
[large]
rw=read
bs=512k
ioengine=libaio
iodepth=4
number_ios=1536
[small]
rw=randread
bs=4k
ioengine=libaio
iodepth=8
number_ios=8192
";

/// One figure for several devices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What was measured.
    pub what: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// For each device: its name, the figure, joules per GiB moved.
    pub values: Vec<Value>,
}

/// A figure of one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Value {
    /// The device.
    pub device: &'static str,
    /// The figure.
    pub figure: f64,
    /// Mean time of a request in the device, nanoseconds.
    pub mean_nanos: f64,
    /// Energy of the device per GiB, joules.
    pub joules_per_gib: f64,
    /// The command that measures it.
    pub command: String,
}

/// The results.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Board {
    /// The same flash behind three protocols.
    pub same_flash: Vec<Row>,
    /// An eMMC with and without its queue.
    pub queue: Vec<Row>,
    /// The game load, seconds.
    pub game: Vec<Value>,
}

fn compare(
    devices: &[(&'static str, &str)],
    (what, job): (&'static str, &str),
    quick: bool,
) -> Result<Row, MeasureError> {
    let millis = if quick { 100 } else { 1000 };
    let ramp = millis / 10;
    let job =
        format!("{job} size=1g time_based runtime={millis}ms ramp_time={ramp}ms zero_buffers");
    let is_small = job.contains("bs=4k");
    let one = |&(device, target): &(&'static str, &str)| {
        let measured = measure(target, &job)?;
        let job_results = &measured.job;
        let count: u64 = job_results.directions().map(|(_, d)| d.requests).sum();
        let time: f64 = job_results.directions().map(|(_, d)| d.lat.mean * d.requests as f64).sum();
        Ok(Value {
            device,
            figure: match is_small {
                true => job_results.iops() / 1e3,
                false => job_results.bandwidth() / f64::from(1 << 20),
            },
            mean_nanos: time / count.max(1) as f64,
            joules_per_gib: measured.energy.joules_per_gib.unwrap_or_default(),
            command: command(target, &job),
        })
    };
    let unit = if is_small { "k/s" } else { "MiB/s" };
    Ok(Row { what, unit, values: devices.iter().map(one).collect::<Result<_, MeasureError>>()? })
}

fn game((device, target): (&'static str, &str)) -> Result<Value, MeasureError> {
    let (jobs, energy) = measure_jobs(target, GAME)?;
    let nanos = jobs.iter().map(|job| job.runtime_nanos).max().unwrap_or_default();
    Ok(Value {
        device,
        figure: nanos as f64 / 1e9,
        mean_nanos: 0.0,
        joules_per_gib: energy.joules_per_gib.unwrap_or_default(),
        command: format!("flysch bench game.fio --on {target}"),
    })
}

/// The job file of the game load.
pub const fn game_file() -> &'static str {
    GAME
}

/// Steps reported by [`all`].
pub const STEPS: usize = JOBS.len() * 2 + 1;

/// Measures everything; `tell` is called before each step.
///
/// # Errors
/// What could not be measured.
pub fn all(quick: bool, mut tell: impl FnMut()) -> Result<Board, MeasureError> {
    let mut board = Board::default();
    for job in JOBS {
        tell();
        board.same_flash.push(compare(&SAME_FLASH, job, quick)?);
    }
    for job in JOBS {
        tell();
        board.queue.push(compare(&QUEUE, job, quick)?);
    }
    tell();
    board.game = SAME_FLASH.into_iter().map(game).collect::<Result<_, MeasureError>>()?;
    Ok(board)
}
