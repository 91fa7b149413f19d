//! The settings that result from the options of one job.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flysch_api::count::counted;

use super::flushes::Flushes;
use super::values::{
    amount, block, bounded, by_direction, bytes, distribution, each, error_lists, fixed, flag,
    kilo_base, limits, method, nanos, part, parts, pattern, percentiles, range, share, span, spans,
    split, steady, times, tolerance, verify_pattern, whole_seconds,
};
use crate::iolog::{ReadError, ReadOptions, Replay};
use crate::random::{Random, mix};
use crate::units::{Amount, KiloBase, parse_size, parse_time};
use crate::verify::Method;
use crate::workload::{
    BlockSize, Direction, Distribution, Ends, Fill, Flow, LatencyTarget, Mix, Order, Steady,
    SteadyMeasure, Strides, Verify, Workload, ZonedMode,
};

/// Maximum workers per job.
const NUMJOBS_MAX: u64 = 4096;
/// Maximum segments per request.
const SEGMENTS_MAX: u64 = 4096;

/// Longest window and ramp of a steady state, seconds: 30 days, each with a measurement.
const WINDOW_MAX: u64 = 30 * 86_400;

/// Most zones that a limit may name.
const OPEN_MAX: u64 = 4096;

/// Bytes of a header of verification without its checksum: the least offset of one.
const HEADER_LEN: u64 = 40;
/// Least distance of headers.
const INTERVAL_MIN: u64 = 2 * HEADER_LEN;

/// What zones are to a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ZoneMode {
    /// It has none.
    #[default]
    None,
    /// Stretches with gaps between.
    Strided,
    /// Those of a zoned disk.
    Zoned,
}

/// What the options of block sizes say, by direction. As in fio bssplit comes before bsrange, and
/// that before bs, in whatever order they are given.
#[derive(Clone, Debug, Default)]
struct Sizes {
    fixed: [Option<BlockSize>; 3],
    range: [Option<BlockSize>; 3],
    split: [Option<BlockSize>; 3],
}

impl Sizes {
    /// The block size of the direction with this index, if one is given.
    fn get(&self, index: usize) -> Option<&BlockSize> {
        [&self.split, &self.range, &self.fixed].into_iter().find_map(|all| all[index].as_ref())
    }
}

/// What the options of buffers say. As in fio a pattern comes before zeros, and those before random
/// bytes, in whatever order they are given.
#[derive(Clone, Debug, Default)]
struct Content {
    pattern: Option<Vec<u8>>,
    zero: bool,
    refill: bool,
}

impl Content {
    fn fill(&self) -> Fill {
        match &self.pattern {
            Some(pattern) => Fill::Pattern(pattern.clone()),
            None if self.zero => Fill::Zero,
            None if self.refill => Fill::Refill,
            None => Fill::Random,
        }
    }
}

/// The parsed options of one job.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The workload; its offsets and sizes are filled in when the device is known.
    pub workload: Workload,
    /// The job's description.
    pub description: Option<String>,
    /// First byte.
    pub offset: Amount,
    /// Distance between the starts of successive workers.
    pub offset_increment: Amount,
    /// Bytes used.
    pub size: Option<Amount>,
    /// Bytes of the file that fio would use: the size, or its bound.
    pub file_size: Option<Amount>,
    /// Bytes to transfer.
    pub io_size: Option<Amount>,
    /// Workers.
    pub numjobs: u32,
    /// Wait for all jobs before it.
    pub stonewall: bool,
    /// Report in a new group.
    pub new_group: bool,
    /// One report for the whole group.
    pub group_reporting: bool,
    /// Requested percentiles; empty: fio's default list.
    pub percentiles: Vec<f64>,
    /// The job whose workers must have ended before this one's begin.
    pub wait_for: Option<String>,
    /// When each worker begins: somewhere between these two.
    pub start_delay: (Duration, Duration),
    /// Logs to replay, one per worker in turn; empty: none.
    pub replays: Vec<Arc<Replay>>,
    /// The log to which requests are written, if any.
    pub log: Option<PathBuf>,
    /// The first of the files named by the job: the name of the disk in a log.
    pub(super) filename: Option<String>,
    /// Whether fio's engine of that name is synchronous; `None` if no engine is named.
    pub(super) synchronous: Option<bool>,
    /// The queue depth was given on the command line.
    pub(super) depth_is_meant: bool,
    rw: (Mix, bool, i64),
    sizes: Sizes,
    /// The order between random jumps (`rw_sequencer`) is that the same place comes again.
    is_identical: bool,
    read_percent: u32,
    each_once: bool,
    distribution: Distribution,
    zone_mode: ZoneMode,
    strides: Strides,
    zoned: ZonedMode,
    /// Flushes between and behind the writes.
    flushes: Flushes,
    exits: (bool, bool, Ends),
    base: KiloBase,
    seed: Option<u64>,
    repeatable: bool,
    /// The method, or none, if `verify` says so.
    method: Option<Option<Method>>,
    verify: Verify,
    content: Content,
    /// The names of logs to replay, and how they are read.
    read_logs: (Vec<String>, ReadOptions),
    /// The target is searched for if it is above 0.
    target: LatencyTarget,
    /// A steady state is looked for if its window is above 0.
    steady: (bool, Steady),
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            workload: Workload::default(),
            description: None,
            offset: Amount::Bytes(0),
            offset_increment: Amount::Bytes(0),
            size: None,
            file_size: None,
            io_size: None,
            numjobs: 1,
            stonewall: false,
            new_group: false,
            group_reporting: false,
            percentiles: Vec::new(),
            wait_for: None,
            synchronous: None,
            depth_is_meant: false,
            rw: (Mix::Only(Direction::Read), false, 0),
            sizes: Sizes::default(),
            is_identical: false,
            read_percent: 50,
            each_once: true,
            distribution: Distribution::Uniform,
            zone_mode: ZoneMode::None,
            strides: Strides { size: 0, range: 0, skip: 0 },
            zoned: ZonedMode::default(),
            exits: (false, false, Ends::Group),
            flushes: Flushes::default(),
            base: KiloBase::Binary,
            seed: None,
            repeatable: true,
            method: None,
            verify: Verify::default(),
            content: Content::default(),
            start_delay: (Duration::ZERO, Duration::ZERO),
            replays: Vec::new(),
            log: None,
            filename: None,
            read_logs: (Vec::new(), ReadOptions::default()),
            target: LatencyTarget { nanos: 0, window_nanos: 0, percentile: 100.0, goes_on: false },
            steady: (
                false,
                Steady {
                    measure: SteadyMeasure::Iops,
                    slope: true,
                    limit: 0.01,
                    percent: true,
                    window_seconds: 0,
                    ramp_seconds: 0,
                    interval_seconds: 1,
                },
            ),
        }
    }
}

impl Settings {
    /// Applies the option `name`, which must be one that applies.
    pub(super) fn apply(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let text = || value.filter(|text| !text.is_empty()).ok_or("it needs a value");
        let base = self.base;
        let number = || parse_size(text()?, base).map_err(|error| error.to_string());
        let count = |max: u64| bounded(number()?, 1, max);
        let work = &mut self.workload;
        match name {
            "description" => self.description = Some(text()?.to_string()),
            "name" => work.name = text()?.to_string(),
            "kb_base" => self.base = kilo_base(text()?)?,
            "rw" => self.rw = pattern(text()?, base)?,
            "rw_sequencer" => {
                self.is_identical = match text()? {
                    "sequential" => false,
                    "identical" => true,
                    other => return Err(format!("`{other}` is not one of sequential, identical")),
                }
            }
            "rwmixread" => self.read_percent = share(text()?, base)?,
            "rwmixwrite" => self.read_percent = 100 - share(text()?, base)?,
            "bs" => each(&mut self.sizes.fixed, text()?, |part| fixed(part, base))?,
            "bsrange" => each(&mut self.sizes.range, text()?, |part| range(part, base))?,
            "bssplit" => each(&mut self.sizes.split, text()?, |part| split(part, base))?,
            "ba" => {
                for (index, part) in by_direction(text()?)? {
                    work.align[index] = Some(block(part, base)?);
                }
            }
            "iodepth" => work.depth = count(u64::from(crate::runner::DEPTH_MAX))? as u32,
            "segments" => work.segments = count(SEGMENTS_MAX)? as u32,
            "numjobs" => self.numjobs = count(NUMJOBS_MAX)? as u32,
            "loops" => work.loops = count(u64::from(u32::MAX))? as u32,
            "number_ios" => work.requests_max = Some(number()?).filter(|&count| count > 0),
            "offset" => self.offset = amount(text()?, base)?,
            "offset_increment" => self.offset_increment = amount(text()?, base)?,
            "size" => {
                self.size = Some(amount(text()?, base)?).filter(|&size| size != Amount::Bytes(0))
            }
            "filesize" if text()?.contains('-') => {
                return Err("one size is enough for one disk: give one".into());
            }
            "filesize" => {
                let size = amount(text()?, base)?;
                self.file_size = Some(size).filter(|&size| size != Amount::Bytes(0));
            }
            "io_size" => {
                let size = amount(text()?, base)?;
                // 0 is fio's default, which is the size.
                self.io_size = Some(size)
                    .filter(|size| !matches!(size, Amount::Bytes(0) | Amount::Percent(0)));
            }
            _ => return self.apply_time(name, value),
        }
        self.settle();
        Ok(())
    }

    /// Options of time, speed and order.
    fn apply_time(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let text = || value.filter(|text| !text.is_empty()).ok_or("it needs a value");
        let seconds = || parse_time(text()?, Duration::from_secs(1)).map_err(|e| e.to_string());
        let micros = || parse_time(text()?, Duration::from_micros(1)).map_err(|e| e.to_string());
        let base = self.base;
        let number = || parse_size(text()?, base).map_err(|error| error.to_string());
        let work = &mut self.workload;
        match name {
            "runtime" => work.runtime = Some(seconds()?).filter(|time| !time.is_zero()),
            "time_based" => work.time_based = flag(value)?,
            "ramp_time" => work.ramp_time = seconds()?,
            "startdelay" => self.start_delay = spans(text()?)?,
            "thinktime" => work.pace.think_time_us = micros()?.as_micros() as u64,
            "thinktime_blocks" => work.pace.think_requests = bounded(number()?, 1, u64::MAX)?,
            "rate" => limits(&mut work.pace.bytes_per_second, text()?, base)?,
            "rate_iops" => limits(&mut work.pace.requests_per_second, text()?, base)?,
            "randseed" => self.seed = Some(number()?),
            "randrepeat" => self.repeatable = flag(value)?,
            "norandommap" => self.each_once = !flag(value)?,
            "rate_process" => {
                work.pace.poisson = match text()? {
                    "linear" => false,
                    "poisson" => true,
                    other => return Err(format!("`{other}` is not one of linear, poisson")),
                };
            }
            "rate_min" => limits(&mut work.pace.bytes_min, text()?, base)?,
            "rate_iops_min" => limits(&mut work.pace.requests_min, text()?, base)?,
            "rate_cycle" => {
                let time = parse_time(text()?, Duration::from_millis(1));
                let time = time.map_err(|error| error.to_string())?.as_millis() as u64;
                work.pace.cycle_ms = bounded(time, 1, 86_400_000)?;
            }
            "random_distribution" => {
                let stride =
                    matches!(self.distribution, Distribution::Sequence { stride: true, .. });
                self.distribution = distribution(text()?, base)?;
                self.stride_rounds(stride);
            }
            "random_sequence_stride" => self.stride_rounds(flag(value)?),
            "fsync" => self.flushes.every = bounded(number()?, 0, u64::from(u32::MAX))? as u32,
            "fdatasync" => {
                self.flushes.every_data = bounded(number()?, 0, u64::from(u32::MAX))? as u32;
            }
            "end_fsync" => self.flushes.at_end = flag(value)?,
            "fsync_on_close" => self.flushes.on_close = flag(value)?,
            "sync" => {
                work.force_unit_access = match text()? {
                    "none" | "0" => false,
                    "sync" | "dsync" | "1" => true,
                    other => return Err(format!("`{other}` is not one of none, sync, dsync")),
                };
            }
            _ => return self.apply_rest(name, value),
        }
        self.settle();
        Ok(())
    }

    /// Options of data, verification and reporting.
    fn apply_rest(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let text = || value.filter(|text| !text.is_empty()).ok_or("it needs a value");
        match name {
            "zero_buffers" => self.content.zero = flag(value)?,
            "refill_buffers" => self.content.refill = flag(value)?,
            "buffer_pattern" => self.content.pattern = Some(bytes(text()?)?),
            "verify" => self.method = Some(method(text()?)?),
            "verify_pattern" => self.verify.pattern = Some(verify_pattern(text()?)?),
            "verify_dump" => self.verify.dump = flag(value)?,
            // As in fio a size is the bound all the same; without one it is all of the device,
            // which has an end.
            "fill_device" => {
                flag(value)?;
            }
            "do_verify" => self.verify.read_back = flag(value)?,
            "verify_fatal" => self.verify.fatal = flag(value)?,
            "verify_only" => self.verify.only = flag(value)?,
            "verify_interval" => {
                let interval = self.number(text()?, INTERVAL_MIN, u64::from(u32::MAX))?;
                self.verify.interval = Some(interval as u32);
            }
            "verify_offset" => {
                self.verify.header_at = self.number(text()?, HEADER_LEN, 1 << 30)? as u32;
            }
            "verify_backlog" => self.verify.backlog = self.number(text()?, 0, 1 << 30)? as u32,
            "verify_backlog_batch" => {
                self.verify.backlog_batch = self.number(text()?, 0, 1 << 30)? as u32;
            }
            "ignore_error" => self.workload.ignored = error_lists(text()?)?,
            "wait_for" => self.wait_for = Some(text()?.to_string()),
            "exitall" => self.exits.0 = flag(value)?,
            "exitall_on_error" => self.exits.1 = flag(value)?,
            "exit_what" => {
                self.exits.2 = match text()? {
                    "group" => Ends::Group,
                    "stonewall" => Ends::Stage,
                    "all" => Ends::All,
                    other => return Err(format!("`{other}` is not one of group, stonewall, all")),
                };
            }
            "flow" | "flow_id" => self.flow(name, text()?)?,
            "zonemode" | "zonesize" | "zonerange" | "zoneskip" => self.zones(name, text()?)?,
            "read_beyond_wp" => self.zoned.read_beyond_wp = flag(value)?,
            "ignore_zone_limits" => self.zoned.ignore_limits = flag(value)?,
            "write_zone_remainder" => self.zoned.write_remainder = flag(value)?,
            "zonecapacity" | "max_open_zones" | "job_max_open_zones" => {
                self.zones(name, text()?)?;
            }
            "zone_reset_threshold" => self.zoned.reset_threshold = part(text()?)?,
            "zone_reset_frequency" => self.zoned.reset_frequency = part(text()?)?,
            "continue_on_error" => self.workload.tolerance = tolerance(value.unwrap_or("all"))?,
            "percentile_list" => self.percentiles = percentiles(text()?)?,
            "stonewall" => self.stonewall = flag(value)?,
            "new_group" => self.new_group = flag(value)?,
            "group_reporting" => self.group_reporting = flag(value)?,
            _ => return self.apply_ends(name, text()),
        }
        self.settle();
        Ok(())
    }

    /// Options of latencies, steady states and logs.
    fn apply_ends(&mut self, name: &str, text: Result<&str, &str>) -> Result<(), String> {
        let micros = |text: &str| span(text, Duration::from_micros(1)).map(nanos);
        let target = &mut self.target;
        match name {
            "max_latency" => times(&mut self.workload.latency.max_nanos, text?)?,
            "latency_target" => target.nanos = micros(text?)?,
            "latency_window" => target.window_nanos = micros(text?)?,
            "latency_percentile" => {
                let percentile = text?.parse().ok().filter(|it| *it > 0.0 && *it <= 100.0);
                let bad = || "it is a percentage above 0 up to 100".to_string();
                target.percentile = percentile.ok_or_else(bad)?;
            }
            "latency_run" => target.goes_on = flag(text.ok())?,
            "steadystate" => {
                steady(text?, self.base, &mut self.steady.1)?;
                self.steady.0 = true;
            }
            "steadystate_duration" => {
                self.steady.1.window_seconds = bounded(whole_seconds(text?)?, 0, WINDOW_MAX)?;
            }
            "steadystate_ramp_time" => {
                self.steady.1.ramp_seconds = bounded(whole_seconds(text?)?, 0, WINDOW_MAX)?;
            }
            "steadystate_check_interval" => {
                self.steady.1.interval_seconds = bounded(whole_seconds(text?)?, 1, 86_400)?;
            }
            _ => self.apply_log(name, text)?,
        }
        self.settle();
        Ok(())
    }

    /// Options of logs.
    fn apply_log(&mut self, name: &str, text: Result<&str, &str>) -> Result<(), String> {
        let base = self.base;
        let number = |text: &str, min, max| {
            bounded(parse_size(text, base).map_err(|error| error.to_string())?, min, max)
        };
        let (names, options) = &mut self.read_logs;
        match name {
            "write_iolog" => self.log = Some(PathBuf::from(text?)),
            "read_iolog" => {
                *names = parts(text?);
                if names.iter().any(|name| name == "-") {
                    return Err("standard input is not read: write the log to a file".to_string());
                }
            }
            "replay_no_stall" => options.no_stall = flag(text.ok())?,
            "replay_time_scale" => options.time_scale_percent = number(text?, 1, 1_000_000)?,
            "replay_scale" => options.scale = number(text?, 0, u64::MAX)?,
            "replay_align" => {
                options.align = number(text?, 0, 1 << 30)? as u32;
                if options.align > 0 && !options.align.is_power_of_two() {
                    return Err(format!("{} is not a power of two", options.align));
                }
            }
            "replay_skip" => {
                for kind in text?.split(',').map(str::trim) {
                    let kinds = ["read", "write", "trim", "sync"];
                    let at = kinds.iter().position(|known| *known == kind);
                    let bad = || format!("`{kind}` is not one of read, write, trim, sync");
                    options.skip[at.ok_or_else(bad)?] = true;
                }
            }
            other => return Err(format!("`{other}` is known but not handled, which is a defect")),
        }
        Ok(())
    }

    /// A number within limits.
    fn number(&self, text: &str, min: u64, max: u64) -> Result<u64, String> {
        bounded(parse_size(text, self.base).map_err(|error| error.to_string())?, min, max)
    }

    /// Reads the logs to be replayed. Returns notes about them.
    pub(super) fn read_logs(&mut self) -> Result<Vec<String>, ReadError> {
        let (names, options) = &self.read_logs;
        let mut notes = Vec::new();
        let used = names.iter().take(self.numjobs as usize);
        for name in used {
            let replay = crate::iolog::read(name.as_ref(), options)?;
            if replay.disks > 1 {
                notes.push(format!("{name}: its {} disks are replayed on one", replay.disks));
            }
            if replay.skipped > 0 {
                let skipped = counted(replay.skipped, "request left out", "requests left out");
                notes.push(format!("{name}: {skipped}"));
            }
            if let Some(first) = replay.first_odd {
                let (one, many) =
                    ("line or record that is no request", "lines or records that are no requests");
                let odd = counted(replay.odd, one, many);
                notes.push(format!("{name}: left out {odd}; the first is number {first}"));
            }
            self.replays.push(Arc::new(replay));
        }
        let Some(first) = self.replays.first() else { return Ok(notes) };
        self.workload.replay = Some(first.clone());
        self.workload.order = Order::Sequential { gap: 0 };
        for direction in Direction::ALL {
            let lengths =
                self.replays.iter().filter_map(|replay| replay.lengths(direction.operation()));
            let hull = lengths.reduce(|(a, b), (min, max)| (a.min(min), b.max(max)));
            if let Some((min, max)) = hull {
                let size =
                    if min == max { BlockSize::Fixed(min) } else { BlockSize::Range { min, max } };
                self.workload.block_size[direction.index()] = size;
            }
        }
        Ok(notes)
    }

    /// Whether rounds of a sequence of blocks move on.
    fn stride_rounds(&mut self, moves: bool) {
        if let Distribution::Sequence { stride, .. } = &mut self.distribution {
            *stride |= moves;
        } else if moves {
            // The sequence may come behind: it is remembered as one of nothing.
            self.distribution = Distribution::Sequence { blocks: Vec::new(), stride: true };
        }
    }

    fn flow(&mut self, name: &str, text: &str) -> Result<(), String> {
        let number = parse_size(text, self.base).map_err(|error| error.to_string())?;
        let number = bounded(number, 0, 1_000_000)? as u32;
        let flow = self.workload.flow.unwrap_or(Flow { id: 0, weight: 0 });
        let flow = if name == "flow" {
            Flow { weight: number, ..flow }
        } else {
            Flow { id: number, ..flow }
        };
        self.workload.flow = Some(flow);
        Ok(())
    }

    fn zones(&mut self, name: &str, text: &str) -> Result<(), String> {
        let bytes = || parse_size(text, self.base).map_err(|error| error.to_string());
        let count = || Ok::<_, String>(bounded(bytes()?, 0, OPEN_MAX)? as u32);
        match name {
            "zonesize" => self.strides.size = bytes()?,
            "zonerange" => self.strides.range = bytes()?,
            "zoneskip" => self.strides.skip = bytes()?,
            "zonecapacity" => self.zoned.capacity = bytes()?,
            "max_open_zones" => self.zoned.open_max = count()?,
            "job_max_open_zones" => self.zoned.job_open_max = count()?,
            _ => {
                self.zone_mode = match text {
                    "none" => ZoneMode::None,
                    "strided" => ZoneMode::Strided,
                    "zbd" => ZoneMode::Zoned,
                    other => return Err(format!("`{other}` is not one of none, strided, zbd")),
                }
            }
        }
        Ok(())
    }

    /// What follows comes before the block sizes so far, whichever options gave them.
    pub(super) fn settle_sizes(&mut self) {
        let fixed = [0, 1, 2].map(|index| self.sizes.get(index).cloned());
        self.sizes = Sizes { fixed, ..Sizes::default() };
    }

    /// The method of verification: what `verify` says, else as in fio header and pattern if there
    /// is a pattern.
    fn method(&self) -> Option<Method> {
        let of_pattern = self.verify.pattern.map(|_| Method::PatternHeader);
        self.method.unwrap_or(of_pattern)
    }

    /// Updates settings that depend on several options.
    fn settle(&mut self) {
        let (mix, random, modifier) = self.rw;
        let read_percent = self.read_percent;
        self.workload.mix = match mix {
            Mix::ReadWrite { .. } => Mix::ReadWrite { read_percent },
            other => other,
        };
        for (index, size) in self.workload.block_size.iter_mut().enumerate() {
            if let Some(given) = self.sizes.get(index) {
                size.clone_from(given);
            }
        }
        (self.workload.flush_every, self.workload.flush_at_end) = self.flushes.both();
        let (each_once, distribution) = (self.each_once, self.distribution.clone());
        self.workload.order = if random {
            Order::Random { each_once, distribution, run: modifier.clamp(1, 1 << 30) as u32 }
        } else {
            Order::Sequential { gap: modifier }
        };
        self.workload.verify = self.method().map(|method| Verify { method, ..self.verify });
        self.workload.fill = self.content.fill();
        let strides = self.strides;
        let range = if strides.range == 0 { strides.size } else { strides.range };
        let is_strided = self.zone_mode == ZoneMode::Strided && strides.size > 0;
        let zoned = ZonedMode { size: strides.size, ..self.zoned };
        self.workload.zones = (self.zone_mode == ZoneMode::Zoned).then_some(zoned);
        self.workload.strides = is_strided.then_some(Strides { range, ..strides });
        let target = Some(self.target).filter(|target| target.nanos > 0);
        self.workload.latency.target = target;
        let (wanted, steady) = self.steady;
        self.workload.steady = (wanted && steady.window_seconds > 0).then_some(steady);
        self.workload.steady_together = self.group_reporting;
        let (always, failed, who) = self.exits;
        let ends = |ends: bool| if ends { who } else { Ends::Alone };
        (self.workload.ends, self.workload.ends_failed) = (ends(always), ends(always || failed));
    }

    /// The error of a combination of options, if any.
    pub(super) fn contradiction(&self) -> Option<String> {
        let needs = |what: &str| Some(what.to_string());
        if let Some(what) = self.zone_contradiction() {
            return needs(what);
        }
        if let Some(what) = self.flushes.contradiction().or_else(|| self.rate_contradiction()) {
            return needs(what);
        }
        // It is about the requests between random jumps, and without a number there are none.
        let (_, is_random, modifier) = self.rw;
        if self.is_identical && is_random && modifier > 1 {
            return needs("rw_sequencer=identical is not supported with a number behind rw");
        }
        match &self.distribution {
            Distribution::Sequence { blocks, .. } if blocks.is_empty() => {
                needs("random_sequence_stride is for random_distribution=sequence:...")
            }
            _ if self.method().is_some_and(Method::needs_pattern)
                && self.verify.pattern.is_none() =>
            {
                needs("verify=pattern needs a verify_pattern")
            }
            _ if self.method().is_some() && !self.read_logs.0.is_empty() => {
                needs("read_iolog replays what a log has, and verify writes what it can check")
            }
            _ if self.steady.0 && self.steady.1.window_seconds < self.steady.1.interval_seconds => {
                needs("steadystate needs a steadystate_duration of at least one check interval")
            }
            _ => None,
        }
    }

    /// What is wrong with rates together, as in fio.
    fn rate_contradiction(&self) -> Option<&'static str> {
        let pace = &self.workload.pace;
        let is_given = |rates: &[u64; 3]| rates.iter().any(|&rate| rate > 0);
        if is_given(&pace.bytes_per_second) && is_given(&pace.requests_per_second) {
            return Some("rate and rate_iops exclude each other: give one of them");
        }
        let exceeds = |least: &[u64; 3], most: &[u64; 3]| {
            least.iter().zip(most).any(|(&least, &most)| most > 0 && least > most)
        };
        if exceeds(&pace.bytes_min, &pace.bytes_per_second) {
            return Some("rate_min is more than rate");
        }
        exceeds(&pace.requests_min, &pace.requests_per_second)
            .then_some("rate_iops_min is more than rate_iops")
    }

    /// Whether random blocks would come once if it were not for their alignment.
    pub(super) fn repeats_by_alignment(&self) -> bool {
        let uniform = Distribution::Uniform;
        matches!(&self.workload.order, Order::Random { each_once: true, distribution, .. }
            if *distribution == uniform)
            && self.workload.is_aligned_apart()
    }

    /// What is wrong with the options of zones together.
    fn zone_contradiction(&self) -> Option<&'static str> {
        let amounts = [Some(self.offset), Some(self.offset_increment), self.size, self.io_size];
        let counts_zones = |amount: &Amount| matches!(amount, Amount::Zones(_));
        let (mix, is_random, gap) = self.rw;
        match self.zone_mode {
            ZoneMode::Strided if self.strides.size == 0 => {
                Some("zonemode=strided needs a zonesize")
            }
            ZoneMode::None
                if [self.strides.size, self.strides.range, self.strides.skip] != [0; 3] =>
            {
                Some("zonesize, zonerange and zoneskip need a zonemode: strided or zbd")
            }
            ZoneMode::None | ZoneMode::Strided => {
                let is_one = amounts.iter().flatten().any(counts_zones);
                is_one.then_some("a number of zones, like 3z, needs zonemode=zbd")
            }
            ZoneMode::Zoned if self.strides.skip > 0 => {
                Some("zoneskip is for zonemode=strided: it must be 0 for zonemode=zbd")
            }
            ZoneMode::Zoned if mix == Mix::TrimWrite || (!is_random && gap != 0) => {
                Some("zonemode=zbd has no trimwrite, and no gaps between requests")
            }
            ZoneMode::Zoned if self.zoned.write_remainder && self.method().is_some() => {
                Some("write_zone_remainder makes requests that verify has no header for")
            }
            ZoneMode::Zoned if !self.read_logs.0.is_empty() => {
                Some("read_iolog replays what a log has, wherever zones end")
            }
            ZoneMode::Zoned => None,
        }
    }

    /// When the worker with this seed starts.
    pub(super) fn start_delay_of(&self, seed: u64) -> Duration {
        let (first, last) = self.start_delay;
        let span = nanos(last.saturating_sub(first));
        first + Duration::from_nanos(Random::new(mix(seed)).below(span.saturating_add(1)))
    }

    /// The log replayed by worker number `index`.
    pub(super) fn replay_of(&self, index: u32) -> Option<Arc<Replay>> {
        let count = self.replays.len().max(1);
        self.replays.get(index as usize % count).cloned()
    }

    /// The seed of everything random in the job.
    pub fn seed(&self) -> u64 {
        match (self.seed, self.repeatable) {
            (Some(seed), _) => seed,
            (None, true) => Workload::default().seed,
            (None, false) => {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                mix(now.map_or(0, |now| now.as_nanos() as u64))
            }
        }
    }
}
