//! What a workload is: plain values, created by the command line or a job file, read by the runner.

use core::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flysch_api::block::Operation;

use crate::iolog::Replay;
use crate::verify::{Form, Method, Pattern};

/// The direction of data. The order is fio's: read, write, trim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// Device to memory.
    Read,
    /// Memory to device.
    Write,
    /// Blocks are freed; no data moves.
    Trim,
}

impl Direction {
    /// All directions, in order.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Trim];

    /// The operation of a device for it.
    pub const fn operation(self) -> Operation {
        match self {
            Self::Read => Operation::Read,
            Self::Write => Operation::Write,
            Self::Trim => Operation::Delete,
        }
    }

    /// Index into arrays by direction.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
        })
    }
}

/// Which directions a workload uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// One direction only.
    Only(Direction),
    /// Reads and writes; this many percent are reads.
    ReadWrite {
        /// Percentage of reads, 0..=100.
        read_percent: u32,
    },
    /// Every block is trimmed, then written.
    TrimWrite,
}

impl Mix {
    /// Whether the workload uses `direction`.
    pub fn uses(self, direction: Direction) -> bool {
        match self {
            Self::Only(only) => only == direction,
            Self::ReadWrite { .. } => direction != Direction::Trim,
            Self::TrimWrite => direction != Direction::Read,
        }
    }
}

/// The order in which blocks are visited.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Sequentially; after each, `gap` bytes are skipped (negative: backwards).
    Sequential {
        /// Bytes between the end of one request and the start of the next.
        gap: i64,
    },
    /// At random. `each_once`: no block is repeated before every block has been visited once.
    Random {
        /// Visit every block once per pass.
        each_once: bool,
        /// How likely each block is.
        distribution: Distribution,
        /// This many requests run sequentially before the next random jump; 1 is fully random.
        run: u32,
    },
}

/// The distribution of blocks of a random workload.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// Uniform.
    Uniform,
    /// Zipf's law with this exponent: the k-th most popular block is requested 1/k^theta as often.
    Zipf(f64),
    /// Pareto's law with this power, 0..1: smaller is more skewed.
    Pareto(f64),
    /// A bell curve; its flanks are widened by this percentage of the blocks.
    Normal(f64),
    /// Stretches of the region with their shares, by direction; uniform within each.
    Zoned([Vec<Stretch>; 3]),
    /// These blocks in sequence, again and again. `stride`: each round starts as many blocks
    /// further on as there are in the list.
    Sequence {
        /// Numbers of blocks.
        blocks: Vec<u64>,
        /// Whether rounds move on.
        stride: bool,
    },
}

/// A part of the region that gets a part of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Percentage of the requests.
    pub share: u32,
    /// Its part of the region, following the previous stretch.
    pub size: StretchSize,
}

/// How long a [`Stretch`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StretchSize {
    /// This percentage of the region.
    Percent(u32),
    /// This many bytes.
    Bytes(u64),
}

/// A region visited zone by zone (fio: `zonemode=strided`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// Bytes transferred in each zone before the next one starts.
    pub size: u64,
    /// Bytes of a zone.
    pub range: u64,
    /// Bytes between zones.
    pub skip: u64,
}

/// A region whose zones are written from their begin to their end (fio: `zonemode=zbd`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ZonedMode {
    /// Bytes of a zone; 0: what the disk says.
    pub size: u64,
    /// Bytes of a zone that can be written, on a disk that has no zones; 0: all.
    pub capacity: u64,
    /// Reads go anywhere, not only where something was written.
    pub read_beyond_wp: bool,
    /// Most zones that all workers write to at once; 0: what the disk says.
    pub open_max: u32,
    /// Most zones that this worker writes to at once; 0: any number.
    pub job_open_max: u32,
    /// Whatever the disk says.
    pub ignore_limits: bool,
    /// The part of the region, 0..=1, from which on zones are reset now and then.
    pub reset_threshold: f64,
    /// How often, beyond that: resets per write, 0..=1; 0 is never.
    pub reset_frequency: f64,
    /// What is left of a zone is written, though it is shorter than the shortest request.
    pub write_remainder: bool,
}

/// How long requests are, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockSize {
    /// Always the same.
    Fixed(u32),
    /// Any multiple of `min` from `min` to `max`.
    Range {
        /// Shortest.
        min: u32,
        /// Longest.
        max: u32,
    },
    /// These sizes, each with its share in percent; shares add up to 100.
    Split(Vec<(u32, u32)>),
}

impl BlockSize {
    /// Shortest request.
    pub fn min(&self) -> u32 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Range { min, .. } => *min,
            Self::Split(parts) => parts.iter().map(|&(bytes, _)| bytes).min().unwrap_or(0),
        }
    }

    /// Longest request.
    pub fn max(&self) -> u32 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Range { max, .. } => *max,
            Self::Split(parts) => parts.iter().map(|&(bytes, _)| bytes).max().unwrap_or(0),
        }
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => write!(f, "{}", crate::units::Size(u64::from(*bytes))),
            Self::Range { min, max } => write!(
                f,
                "{}-{}",
                crate::units::Size(u64::from(*min)),
                crate::units::Size(u64::from(*max))
            ),
            Self::Split(parts) => {
                for (i, (bytes, percent)) in parts.iter().enumerate() {
                    let colon = if i > 0 { ":" } else { "" };
                    write!(f, "{colon}{}/{percent}", crate::units::Size(u64::from(*bytes)))?;
                }
                Ok(())
            }
        }
    }
}

/// The contents of write buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fill {
    /// Random bytes, generated once.
    #[default]
    Random,
    /// Fresh random bytes for every write.
    Refill,
    /// Zeros.
    Zero,
    /// This pattern, repeated.
    Pattern(Vec<u8>),
}

/// How written data is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verify {
    /// The checksum.
    pub method: Method,
    /// What is written instead of random bytes.
    pub pattern: Option<Pattern>,
    /// Bytes per header and checksum; `None`: the greatest length that divides all block sizes.
    pub interval: Option<u32>,
    /// Stop at the first mismatch.
    pub fatal: bool,
    /// Read back and check after the write phase.
    pub read_back: bool,
    /// Do not write: verify what an earlier run with the same options wrote.
    pub only: bool,
    /// Offset of the header in each unit; 0: at its start.
    pub header_at: u32,
    /// Writes after which some of them are read back during the run; 0: only at its end.
    pub backlog: u32,
    /// How many are read back then; 0: as many as `backlog`.
    pub backlog_batch: u32,
    /// Save the data found, and the expected data, in files.
    pub dump: bool,
}

impl Default for Verify {
    /// CRC-32C, everything read back at the end.
    fn default() -> Self {
        Self {
            method: Method::Crc32c,
            pattern: None,
            interval: None,
            fatal: false,
            read_back: true,
            only: false,
            header_at: 0,
            backlog: 0,
            backlog_batch: 0,
            dump: false,
        }
    }
}

impl Verify {
    /// How the content is generated.
    pub fn form(&self) -> Form {
        Form { method: self.method, pattern: self.pattern, header_at: self.header_at }
    }
}

/// Limits on the latency of requests, from acceptance to delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencyLimits {
    /// The maximum latency of each direction, nanoseconds; 0 is no limit. A request that takes
    /// longer ends the worker.
    pub max_nanos: [u64; 3],
    /// Search for the queue depth at which requests are fast enough.
    pub target: Option<LatencyTarget>,
}

impl LatencyLimits {
    /// Whether there is none.
    pub fn is_free(&self) -> bool {
        self.max_nanos == [0; 3] && self.target.is_none()
    }
}

/// The target latency of the search for a queue depth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyTarget {
    /// The target latency, nanoseconds.
    pub nanos: u64,
    /// How long each depth is tried, nanoseconds.
    pub window_nanos: u64,
    /// The percentage of requests that must be fast enough, above 0 up to 100.
    pub percentile: f64,
    /// Continue to search until the job ends by itself.
    pub goes_on: bool,
}

/// The quantity judged for a steady state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteadyMeasure {
    /// Requests per second.
    Iops,
    /// Bytes per second.
    Bandwidth,
    /// The mean completion latency, nanoseconds.
    Latency,
}

/// The steady state that ends a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// The quantity.
    pub measure: SteadyMeasure,
    /// Judge the slope of the regression line, per measurement, instead of the greatest distance
    /// from the mean.
    pub slope: bool,
    /// The limit.
    pub limit: f64,
    /// The limit is a percentage of the mean.
    pub percent: bool,
    /// The window that is judged, seconds, at least one interval.
    pub window_seconds: u64,
    /// Time before the first measurement, seconds.
    pub ramp_seconds: u64,
    /// Time of one measurement, seconds, at least 1.
    pub interval_seconds: u64,
}

impl Steady {
    /// Measurements in the window, at least 1.
    pub fn measurements(&self) -> usize {
        (self.window_seconds / self.interval_seconds.max(1)).max(1) as usize
    }

    /// fio's name of the criterion.
    pub fn criterion_name(&self) -> &'static str {
        match (self.measure, self.slope) {
            (SteadyMeasure::Iops, false) => "iops",
            (SteadyMeasure::Iops, true) => "iops_slope",
            (SteadyMeasure::Bandwidth, false) => "bw",
            (SteadyMeasure::Bandwidth, true) => "bw_slope",
            (SteadyMeasure::Latency, false) => "lat",
            (SteadyMeasure::Latency, true) => "lat_slope",
        }
    }
}

/// Limits on how fast requests are issued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Bytes per second by direction; 0 is no limit.
    pub bytes_per_second: [u64; 3],
    /// Requests per second by direction; 0 is no limit.
    pub requests_per_second: [u64; 3],
    /// Pause after every `think_requests` requests, microseconds; 0 is none.
    pub think_time_us: u64,
    /// Requests between pauses; at least 1.
    pub think_requests: u64,
    /// Requests arrive randomly (a Poisson process) instead of evenly.
    pub poisson: bool,
    /// Minimum bytes per second by direction, over each cycle; 0 is no demand.
    pub bytes_min: [u64; 3],
    /// Minimum requests per second by direction, over each cycle; 0 is no demand.
    pub requests_min: [u64; 3],
    /// Length of a cycle, milliseconds; 0 means one second.
    pub cycle_ms: u64,
}

impl Pace {
    /// Whether there is any limit at all.
    pub fn is_free(&self) -> bool {
        self.bytes_per_second == [0; 3]
            && self.requests_per_second == [0; 3]
            && self.think_time_us == 0
            && !self.has_least()
    }

    /// Whether there is a minimum rate.
    pub fn has_least(&self) -> bool {
        self.bytes_min != [0; 3] || self.requests_min != [0; 3]
    }
}

/// Workers that share the available rate by weight (fio: `flow`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The number of the group that shares.
    pub id: u32,
    /// This worker's weight, at least 1.
    pub weight: u32,
}

/// Which workers end when a worker has ended (fio: `exitall`, `exit_what`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ends {
    /// Nobody.
    #[default]
    Alone,
    /// All workers of its group.
    Group,
    /// All that are running.
    Stage,
    /// All, including those that have not started.
    All,
}

/// The failures after which a workload continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tolerance {
    /// Failed reads.
    pub read: bool,
    /// Failed writes, flushes and trims.
    pub write: bool,
    /// Data that differs from what was written.
    pub verify: bool,
}

/// One worker's orders.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The job it belongs to.
    pub name: String,
    /// Which directions.
    pub mix: Mix,
    /// Which blocks.
    pub order: Order,
    /// Zone by zone, with gaps between.
    pub strides: Option<Strides>,
    /// Zones are written from their begin to their end.
    pub zones: Option<ZonedMode>,
    /// Request lengths by direction.
    pub block_size: [BlockSize; 3],
    /// Offsets of random requests are multiples of this, by direction; `None`: of its shortest
    /// request. With others than that blocks may repeat.
    pub align: [Option<u32>; 3],
    /// Segments of each request's data: 1 is one range, more are a list of pieces with odd lengths
    /// and addresses.
    pub segments: u32,
    /// Requests kept in flight.
    pub depth: u32,
    /// First byte used on the device.
    pub offset: u64,
    /// Bytes used from there; `None`: up to the device's end.
    pub size: Option<u64>,
    /// The size that the job asks for, if the device has less from there on.
    pub size_wanted: Option<u64>,
    /// Total bytes to transfer; `None`: `size`.
    pub io_size: Option<u64>,
    /// Total requests to issue.
    pub requests_max: Option<u64>,
    /// Passes over the region.
    pub loops: u32,
    /// Longest run time, not including the ramp.
    pub runtime: Option<Duration>,
    /// Run for all of `runtime`, starting over when the region is done.
    pub time_based: bool,
    /// Time at the start that is not measured.
    pub ramp_time: Duration,
    /// Time before the first request.
    pub start_delay: Duration,
    /// Flush after this many writes; 0 is never.
    pub flush_every: u32,
    /// Flush after the last write.
    pub flush_at_end: bool,
    /// Writes carry force-unit-access.
    pub force_unit_access: bool,
    /// The seed of everything random in it.
    pub seed: u64,
    /// Speed limits.
    pub pace: Pace,
    /// The contents of writes.
    pub fill: Fill,
    /// Whether and how data is checked.
    pub verify: Option<Verify>,
    /// Failures that do not end the run.
    pub tolerance: Tolerance,
    /// Errors that do not end the run either, whatever `tolerance` says: `errno` numbers by
    /// direction of the request; the third list is for data that differs from what was written.
    pub ignored: [Vec<i32>; 3],
    /// The flow that it shares.
    pub flow: Option<Flow>,
    /// Who ends when it has ended.
    pub ends: Ends,
    /// Who ends when it has failed.
    pub ends_failed: Ends,
    /// Latency limits.
    pub latency: LatencyLimits,
    /// The steady state that ends it.
    pub steady: Option<Steady>,
    /// Its steady state is that of all workers of its group with the same setting.
    pub steady_together: bool,
    /// The log to replay, instead of `mix`, `order`, sizes and numbers of requests.
    pub replay: Option<Arc<Replay>>,
    /// The log to which its requests are written, as by fio's `write_iolog`.
    pub log: Option<LogTo>,
}

/// A log to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTo {
    /// The file.
    pub path: PathBuf,
    /// The name of the disk in the log.
    pub disk: String,
}

impl Default for Workload {
    /// fio's defaults: sequential reads of 4 KiB, one at a time.
    fn default() -> Self {
        Self {
            name: String::from("job"),
            mix: Mix::Only(Direction::Read),
            order: Order::Sequential { gap: 0 },
            strides: None,
            zones: None,
            block_size: [const { BlockSize::Fixed(4096) }; 3],
            align: [None; 3],
            segments: 1,
            depth: 1,
            offset: 0,
            size: None,
            size_wanted: None,
            io_size: None,
            requests_max: None,
            loops: 1,
            runtime: None,
            time_based: false,
            ramp_time: Duration::ZERO,
            start_delay: Duration::ZERO,
            flush_every: 0,
            flush_at_end: false,
            force_unit_access: false,
            seed: 0x89,
            pace: Pace::default(),
            fill: Fill::Random,
            verify: None,
            tolerance: Tolerance::default(),
            ignored: Default::default(),
            flow: None,
            ends: Ends::default(),
            ends_failed: Ends::default(),
            latency: LatencyLimits::default(),
            steady: None,
            steady_together: false,
            replay: None,
            log: None,
        }
    }
}

impl Workload {
    /// Whether it uses `direction`.
    pub fn uses(&self, direction: Direction) -> bool {
        match &self.replay {
            Some(log) => log.lengths(direction.operation()).is_some(),
            None => self.mix.uses(direction),
        }
    }

    /// The block sizes of the directions it uses.
    pub fn sizes_used(&self) -> impl Iterator<Item = &BlockSize> {
        let used = Direction::ALL.into_iter().filter(|&d| self.uses(d));
        used.map(|d| &self.block_size[d.index()])
    }

    /// Its shortest request, bytes.
    pub fn block_min(&self) -> u32 {
        self.sizes_used().map(BlockSize::min).min().unwrap_or(0)
    }

    /// Its longest request, bytes.
    pub fn block_max(&self) -> u32 {
        self.sizes_used().map(BlockSize::max).max().unwrap_or(0)
    }

    /// Whether random offsets are multiples of something else than the shortest request, which as
    /// in fio excludes that each block comes once.
    pub fn is_aligned_apart(&self) -> bool {
        let mut sizes = self.align.iter().zip(&self.block_size);
        sizes.any(|(align, size)| align.is_some_and(|align| align != size.min()))
    }

    /// Its longest request that moves data, bytes; 0 if none does.
    pub fn data_max(&self) -> u32 {
        // What was trimmed is written as long as it was trimmed.
        if self.replay.is_none() && self.mix == Mix::TrimWrite {
            return self.block_max();
        }
        let moves = [Direction::Read, Direction::Write].into_iter().filter(|&d| self.uses(d));
        moves.map(|d| self.block_size[d.index()].max()).max().unwrap_or(0)
    }

    /// Whether it modifies the device.
    pub fn writes(&self) -> bool {
        let only = self.verify.is_some_and(|v| v.only);
        !only && (self.uses(Direction::Write) || self.uses(Direction::Trim))
    }

    /// fio's name of the access pattern.
    pub fn pattern_name(&self) -> &'static str {
        if self.replay.is_some() {
            return "replay";
        }
        let random = matches!(self.order, Order::Random { .. });
        match (self.mix, random) {
            (Mix::Only(Direction::Read), false) => "read",
            (Mix::Only(Direction::Write), false) => "write",
            (Mix::Only(Direction::Trim), false) => "trim",
            (Mix::Only(Direction::Read), true) => "randread",
            (Mix::Only(Direction::Write), true) => "randwrite",
            (Mix::Only(Direction::Trim), true) => "randtrim",
            (Mix::ReadWrite { .. }, false) => "rw",
            (Mix::ReadWrite { .. }, true) => "randrw",
            (Mix::TrimWrite, false) => "trimwrite",
            (Mix::TrimWrite, true) => "randtrimwrite",
        }
    }
}
