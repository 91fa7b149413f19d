//! What the options of one job amount to.

use std::time::Duration;

use crate::random::mix;
use crate::units::{Amount, KiloBase, parse_amount, parse_size, parse_time};
use crate::verify::{Method, Pattern};
use crate::workload::{
    BlockSize, Direction, Distribution, Ends, Fill, Flow, Mix, Order, Stretch, StretchSize,
    Strides, Tolerance, Verify, Workload,
};

/// Workers per job, at most.
const NUMJOBS_MAX: u64 = 4096;
/// Most segments of one request.
const SEGMENTS_MAX: u64 = 4096;
/// Longest request, bytes.
const BLOCK_MAX: u64 = 1 << 30;

/// The options of one job, read.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The workload; places and sizes in it are filled in when the device is known.
    pub workload: Workload,
    /// Human words about the job.
    pub description: Option<String>,
    /// First byte.
    pub offset: Amount,
    /// How much further each worker starts than the one before.
    pub offset_increment: Amount,
    /// Bytes used.
    pub size: Option<Amount>,
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
    /// Percentiles wanted; empty: fio's default list.
    pub percentiles: Vec<f64>,
    /// The job whose workers must have ended before this one's begin.
    pub wait_for: Option<String>,
    /// Whether fio's engine of that name is synchronous; `None` if no engine is named.
    pub(super) synchronous: Option<bool>,
    /// The queue depth was given on the command line.
    pub(super) depth_is_meant: bool,
    rw: (Mix, bool, i64),
    read_percent: u32,
    each_once: bool,
    distribution: Distribution,
    strides: (bool, Strides),
    exits: (bool, bool, Ends),
    base: KiloBase,
    seed: Option<u64>,
    repeatable: bool,
    method: Option<Method>,
    verify: Verify,
}

impl Default for Settings {
    fn default() -> Self {
        let method = Method::Crc32c;
        Self {
            workload: Workload::default(),
            description: None,
            offset: Amount::Bytes(0),
            offset_increment: Amount::Bytes(0),
            size: None,
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
            read_percent: 50,
            each_once: true,
            distribution: Distribution::Uniform,
            strides: (false, Strides { size: 0, range: 0, skip: 0 }),
            exits: (false, false, Ends::Group),
            base: KiloBase::Binary,
            seed: None,
            repeatable: true,
            method: None,
            verify: Verify {
                method,
                pattern: None,
                interval: None,
                fatal: false,
                read_back: true,
                only: false,
            },
        }
    }
}

impl Settings {
    /// Takes the option `name`, which must be one whose fate is to apply.
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
            "rw" => self.rw = pattern(text()?)?,
            "rw_sequencer" if text()? != "sequential" => {
                return Err(format!("`{}` is not supported; use sequential", text()?));
            }
            "rw_sequencer" => {}
            "rwmixread" => self.read_percent = bounded(number()?, 0, 100)? as u32,
            "rwmixwrite" => self.read_percent = 100 - bounded(number()?, 0, 100)? as u32,
            "bs" => each(&mut work.block_size, text()?, |part| fixed(part, base))?,
            "bsrange" => each(&mut work.block_size, text()?, |part| range(part, base))?,
            "bssplit" => each(&mut work.block_size, text()?, |part| split(part, base))?,
            "ba" => {
                let first = text()?.split(',').next().unwrap_or_default();
                work.align = Some(block(first, base)?);
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
            "io_size" => self.io_size = Some(amount(text()?, base)?),
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
            "startdelay" => work.start_delay = seconds()?,
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
                    other => return Err(format!("`{other}` is none of linear, poisson")),
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
            "fsync" | "fdatasync" => {
                work.flush_every = bounded(number()?, 0, u64::from(u32::MAX))? as u32
            }
            "end_fsync" | "fsync_on_close" => work.flush_at_end = flag(value)?,
            "sync" => {
                work.force_unit_access = match text()? {
                    "none" | "0" => false,
                    "sync" | "dsync" | "1" => true,
                    other => return Err(format!("`{other}` is none of none, sync, dsync")),
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
            "zero_buffers" if flag(value)? => self.workload.fill = Fill::Zero,
            "refill_buffers" if flag(value)? => self.workload.fill = Fill::Refill,
            "zero_buffers" | "refill_buffers" => {}
            "buffer_pattern" => self.workload.fill = Fill::Pattern(bytes(text()?)?),
            "verify" => self.method = method(text()?)?,
            "verify_pattern" => {
                let pattern = bytes(text()?)?;
                let too_long =
                    || format!("{} bytes; at most {} are taken", pattern.len(), Pattern::MAX);
                self.verify.pattern = Some(Pattern::new(&pattern).ok_or_else(too_long)?);
            }
            // A device has an end: until there is no more room is all of it.
            "fill_device" if flag(value)? => self.size = None,
            "fill_device" => {}
            "do_verify" => self.verify.read_back = flag(value)?,
            "verify_fatal" => self.verify.fatal = flag(value)?,
            "verify_only" => self.verify.only = flag(value)?,
            "verify_interval" => {
                let interval = block(text()?, self.base)?;
                self.verify.interval = Some(interval).filter(|&interval| interval > 0);
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
                    other => return Err(format!("`{other}` is none of group, stonewall, all")),
                };
            }
            "flow" | "flow_id" => self.flow(name, text()?)?,
            "zonemode" | "zonesize" | "zonerange" | "zoneskip" => self.zones(name, text()?)?,
            "continue_on_error" => self.workload.tolerance = tolerance(value.unwrap_or("all"))?,
            "percentile_list" => self.percentiles = percentiles(text()?)?,
            "stonewall" => self.stonewall = flag(value)?,
            "new_group" => self.new_group = flag(value)?,
            "group_reporting" => self.group_reporting = flag(value)?,
            other => return Err(format!("`{other}` is known but not read: this is a defect")),
        }
        self.settle();
        Ok(())
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
        let (is_strided, strides) = &mut self.strides;
        match name {
            "zonesize" => strides.size = bytes()?,
            "zonerange" => strides.range = bytes()?,
            "zoneskip" => strides.skip = bytes()?,
            _ => {
                *is_strided = match text {
                    "none" => false,
                    "strided" => true,
                    "zbd" => return Err("`zbd` is for zoned block devices; none is driven".into()),
                    other => return Err(format!("`{other}` is none of none, strided, zbd")),
                }
            }
        }
        Ok(())
    }

    /// Brings what depends on several options up to date.
    fn settle(&mut self) {
        let (mix, random, modifier) = self.rw;
        let read_percent = self.read_percent;
        self.workload.mix = match mix {
            Mix::ReadWrite { .. } => Mix::ReadWrite { read_percent },
            other => other,
        };
        let (each_once, distribution) = (self.each_once, self.distribution.clone());
        self.workload.order = if random {
            Order::Random { each_once, distribution, run: modifier.clamp(1, 1 << 30) as u32 }
        } else {
            Order::Sequential { gap: modifier }
        };
        self.workload.verify = self.method.map(|method| Verify { method, ..self.verify });
        let (is_strided, strides) = self.strides;
        let range = if strides.range == 0 { strides.size } else { strides.range };
        let is_strided = is_strided && strides.size > 0;
        self.workload.strides = is_strided.then_some(Strides { range, ..strides });
        let (always, failed, who) = self.exits;
        let ends = |ends: bool| if ends { who } else { Ends::Alone };
        (self.workload.ends, self.workload.ends_failed) = (ends(always), ends(always || failed));
    }

    /// What is wrong with the options together, if something is.
    pub(super) fn contradiction(&self) -> Option<String> {
        let needs = |what: &str| Some(what.to_string());
        match (&self.distribution, self.strides) {
            (Distribution::Sequence { blocks, .. }, _) if blocks.is_empty() => {
                needs("random_sequence_stride is for random_distribution=sequence:...")
            }
            _ if self.method.is_some_and(Method::needs_pattern)
                && self.verify.pattern.is_none() =>
            {
                needs("verify=pattern needs a verify_pattern")
            }
            (_, (true, strides)) if strides.size == 0 => needs("zonemode=strided needs a zonesize"),
            _ => None,
        }
    }

    /// The root of everything random in the job.
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

fn flag(value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("" | "1" | "true" | "on") => Ok(true),
        Some("0" | "false" | "off") => Ok(false),
        Some(other) => Err(format!("`{other}` is neither 0 nor 1")),
    }
}

fn bounded(number: u64, min: u64, max: u64) -> Result<u64, String> {
    if (min..=max).contains(&number) {
        return Ok(number);
    }
    Err(format!("{number} is not in the range {min} to {max}"))
}

fn kilo_base(text: &str) -> Result<KiloBase, String> {
    match text {
        "1024" => Ok(KiloBase::Binary),
        "1000" => Ok(KiloBase::Decimal),
        other => Err(format!("`{other}` is neither 1000 nor 1024")),
    }
}

/// An access pattern: directions, whether it is random, and the number behind the colon.
fn pattern(text: &str) -> Result<(Mix, bool, i64), String> {
    let (name, modifier) = text.split_once(':').unwrap_or((text, "0"));
    let random = name.starts_with("rand");
    let mix = match name.strip_prefix("rand").unwrap_or(name) {
        "read" => Mix::Only(Direction::Read),
        "write" => Mix::Only(Direction::Write),
        "trim" => Mix::Only(Direction::Trim),
        "rw" | "readwrite" => Mix::ReadWrite { read_percent: 50 },
        "trimwrite" => Mix::TrimWrite,
        _ => {
            return Err(format!(
                "`{name}` is none of read, write, trim, randread, randwrite, randtrim, rw, \
                 randrw, trimwrite, randtrimwrite"
            ));
        }
    };
    let (sign, digits) = match modifier.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, modifier),
    };
    let number = parse_size(digits, KiloBase::Binary).map_err(|error| error.to_string())?;
    let number = i64::try_from(number).map_err(|_| format!("`{modifier}` is too large"))?;
    Ok((mix, random, sign * number))
}

fn amount(text: &str, base: KiloBase) -> Result<Amount, String> {
    parse_amount(text, base).map_err(|error| error.to_string())
}

fn block(text: &str, base: KiloBase) -> Result<u32, String> {
    let bytes = parse_size(text, base).map_err(|error| error.to_string())?;
    Ok(bounded(bytes, 1, BLOCK_MAX)? as u32)
}

/// Sets one value per direction from `read,write,trim`: a missing part at the end repeats the
/// last, an empty part leaves its direction alone.
fn each(
    sizes: &mut [BlockSize; 3],
    text: &str,
    parse: impl Fn(&str) -> Result<BlockSize, String>,
) -> Result<(), String> {
    for (index, part) in by_direction(text)? {
        sizes[index] = parse(part)?;
    }
    Ok(())
}

fn by_direction(text: &str) -> Result<Vec<(usize, &str)>, String> {
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > 3 {
        return Err(format!("`{text}` has more than three parts (read, write, trim)"));
    }
    let last = parts.len() - 1;
    let all = (0..3).map(|index| (index, parts[index.min(last)].trim()));
    Ok(all.filter(|(_, part)| !part.is_empty()).collect())
}

fn fixed(text: &str, base: KiloBase) -> Result<BlockSize, String> {
    block(text, base).map(BlockSize::Fixed)
}

fn range(text: &str, base: KiloBase) -> Result<BlockSize, String> {
    let parts = text.split_once('-');
    let (min, max) = parts.ok_or_else(|| format!("`{text}` is not a range like 4k-64k"))?;
    let (min, max) = (block(min.trim(), base)?, block(max.trim(), base)?);
    match min.cmp(&max) {
        core::cmp::Ordering::Greater => Err(format!("`{text}` ends below its start")),
        core::cmp::Ordering::Equal => Ok(BlockSize::Fixed(min)),
        core::cmp::Ordering::Less => Ok(BlockSize::Range { min, max }),
    }
}

/// `4k/60:64k/40`; sizes without a share divide what is left among them.
fn split(text: &str, base: KiloBase) -> Result<BlockSize, String> {
    let mut parts = Vec::new();
    for part in text.split(':') {
        let (size, share) = part.split_once('/').unwrap_or((part, ""));
        let share = match share.trim() {
            "" => None,
            share => {
                Some(share.parse::<u32>().map_err(|_| format!("`{share}` is not a percentage"))?)
            }
        };
        parts.push((block(size.trim(), base)?, share));
    }
    let given: u32 = parts.iter().filter_map(|(_, share)| *share).fold(0, u32::saturating_add);
    let open = parts.iter().filter(|(_, share)| share.is_none()).count() as u32;
    let left = 100u32.checked_sub(given);
    let left = left.ok_or_else(|| format!("the shares add up to {given} %, more than 100"))?;
    if open == 0 && left > 0 {
        return Err(format!("the shares add up to {given} %, not to 100"));
    }
    // What does not divide evenly goes to the first of them.
    let mut extra = left.checked_rem(open).unwrap_or(0);
    let shared = parts.into_iter().map(|(size, share)| {
        let share = share.unwrap_or_else(|| {
            let share = left / open.max(1) + extra;
            extra = 0;
            share
        });
        (size, share)
    });
    let shared: Vec<(u32, u32)> = shared.filter(|&(_, share)| share > 0).collect();
    Ok(BlockSize::Split(shared))
}

fn limits(limits: &mut [u64; 3], text: &str, base: KiloBase) -> Result<(), String> {
    for (index, part) in by_direction(text)? {
        limits[index] = parse_size(part, base).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// How likely blocks are: `zipf:1.2`, `zoned:60/10:30/20:10/70`.
fn distribution(text: &str, base: KiloBase) -> Result<Distribution, String> {
    let (name, value) = text.split_once(':').unwrap_or((text, ""));
    let number = || {
        let number = if value.is_empty() { None } else { value.parse::<f64>().ok() };
        number.filter(|number| number.is_finite() && *number > 0.0)
    };
    match name {
        "random" => Ok(Distribution::Uniform),
        "zipf" if value.is_empty() => Ok(Distribution::Zipf(1.1)),
        "pareto" if value.is_empty() => Ok(Distribution::Pareto(0.2)),
        "normal" if value.is_empty() => Ok(Distribution::Normal(0.0)),
        "zipf" => {
            number().map(Distribution::Zipf).ok_or_else(|| format!("`{value}` is not above 0"))
        }
        "pareto" => {
            let power = number().filter(|&power| power < 1.0 && power != 0.5);
            power.map(Distribution::Pareto).ok_or_else(|| format!("`{value}` is not in 0..1"))
        }
        "normal" => {
            let wider = value.parse::<f64>().ok().filter(|wider| (0.0..=100.0).contains(wider));
            wider.map(Distribution::Normal).ok_or_else(|| format!("`{value}` is not in 0..100"))
        }
        "zoned" => stretches(value, |text| percent(text).map(StretchSize::Percent)),
        "zoned_abs" => stretches(value, |text| {
            parse_size(text, base).map(StretchSize::Bytes).map_err(|error| error.to_string())
        }),
        "sequence" => {
            let block = |text: &str| {
                text.trim().parse().map_err(|_| format!("`{text}` is not the number of a block"))
            };
            let blocks = value.split(',').map(block).collect::<Result<Vec<u64>, String>>()?;
            Ok(Distribution::Sequence { blocks, stride: false })
        }
        _ => Err(format!(
            "`{name}` is none of random, zipf, pareto, normal, zoned, zoned_abs, sequence"
        )),
    }
}

fn percent(text: &str) -> Result<u32, String> {
    let percent = text.trim().parse().ok().filter(|percent| *percent <= 100);
    percent.ok_or_else(|| format!("`{text}` is not a percentage"))
}

/// Stretches as `share/size:share/size`, one list for each direction. Sizes of percentages that are
/// left out divide what is left of the region.
fn stretches(
    text: &str,
    size: impl Fn(&str) -> Result<StretchSize, String>,
) -> Result<Distribution, String> {
    let mut lists: [Vec<Stretch>; 3] = Default::default();
    for (direction, list) in by_direction(text)? {
        let mut open = Vec::new();
        let (mut shares, mut used) = (0, 0);
        for part in list.split(':') {
            let (share, length) = part.split_once('/').unwrap_or((part, ""));
            let share = percent(share)?;
            let length = match length.trim() {
                "" => None,
                length => Some(size(length)?),
            };
            shares += share;
            match length {
                Some(StretchSize::Percent(percent)) => used += percent,
                Some(StretchSize::Bytes(_)) => {}
                None => open.push(lists[direction].len()),
            }
            let size = length.unwrap_or(StretchSize::Percent(0));
            lists[direction].push(Stretch { share, size });
        }
        if shares != 100 {
            return Err(format!("the shares in `{list}` add up to {shares}, not 100"));
        }
        let left = 100_u32.checked_sub(used);
        let left = left.ok_or_else(|| format!("the sizes in `{list}` add up to more than 100"))?;
        for (index, &at) in open.iter().enumerate() {
            let (count, index) = (open.len() as u32, index as u32);
            let part = left * (index + 1) / count - left * index / count;
            lists[direction][at].size = StretchSize::Percent(part);
        }
    }
    Ok(Distribution::Zoned(lists))
}

/// `ENOSPC` and the like: numbers of `errno` (`errno-base.h`, `errno.h`).
const ERRORS: [(&str, i32); 12] = [
    ("EPERM", 1),
    ("ENOENT", 2),
    ("EIO", 5),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EINVAL", 22),
    ("ENOSPC", 28),
    ("EROFS", 30),
    ("EILSEQ", 84),
    ("EOPNOTSUPP", 95),
    ("ETIMEDOUT", 110),
    ("EDQUOT", 122),
];

/// Errors to be passed over, for reads, writes and verification.
fn error_lists(text: &str) -> Result<[Vec<i32>; 3], String> {
    let mut lists: [Vec<i32>; 3] = Default::default();
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > 3 {
        return Err(format!("`{text}` has more than three parts (read, write, verify)"));
    }
    for (list, part) in lists.iter_mut().zip(parts) {
        for name in part.split(':').map(str::trim).filter(|name| !name.is_empty()) {
            let known = ERRORS.iter().find(|(known, _)| *known == name).map(|&(_, number)| number);
            let number = known.or_else(|| name.parse().ok());
            list.push(number.ok_or_else(|| format!("`{name}` is no error that is known"))?);
        }
    }
    Ok(lists)
}

/// A fill pattern: `0xdeadbeef`, `"text"`, or a decimal number.
fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let bad = || format!("`{text}` is not a pattern like 0xff, \"text\" or 255");
    if let Some(quoted) = text.strip_prefix('"') {
        let inner = quoted.strip_suffix('"').filter(|inner| !inner.is_empty()).ok_or_else(bad)?;
        return Ok(inner.as_bytes().to_vec());
    }
    if let Some(hex) = text.strip_prefix("0x") {
        let digits: Option<Vec<u8>> =
            hex.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
        let mut digits = digits.filter(|digits| !digits.is_empty()).ok_or_else(bad)?;
        if digits.len() % 2 == 1 {
            digits.insert(0, 0);
        }
        return Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect());
    }
    let number: u64 = text.parse().map_err(|_| bad())?;
    let all = number.to_le_bytes();
    let used = (8 - number.leading_zeros() as usize / 8).max(1);
    Ok(all[..used].to_vec())
}

fn method(text: &str) -> Result<Option<Method>, String> {
    if text == "0" {
        return Ok(None);
    }
    if matches!(text, "sha256" | "sha512") {
        return Err(format!(
            "what fio stores for `{text}` is the end of the data and no checksum of it; use \
             sha3-256"
        ));
    }
    let names = Method::NAMES.map(|(name, _)| name).join(", ");
    let method = Method::from_name(text);
    method.map(Some).ok_or_else(|| format!("`{text}` is not supported; use {names} or 0"))
}

fn tolerance(text: &str) -> Result<Tolerance, String> {
    let mut tolerance = Tolerance::default();
    for part in text.split(',') {
        let add = match part.trim() {
            "none" | "0" => Tolerance::default(),
            "read" => Tolerance { read: true, ..Tolerance::default() },
            "write" => Tolerance { write: true, ..Tolerance::default() },
            "io" => Tolerance { read: true, write: true, verify: false },
            "verify" => Tolerance { verify: true, ..Tolerance::default() },
            "all" | "1" => Tolerance { read: true, write: true, verify: true },
            other => {
                return Err(format!("`{other}` is none of none, read, write, io, verify, all"));
            }
        };
        tolerance.read |= add.read;
        tolerance.write |= add.write;
        tolerance.verify |= add.verify;
    }
    Ok(tolerance)
}

fn percentiles(text: &str) -> Result<Vec<f64>, String> {
    let mut list = Vec::new();
    for part in text.split(':') {
        let number = part.trim().parse::<f64>().ok();
        let number = number.filter(|number| *number > 0.0 && *number <= 100.0);
        list.push(number.ok_or_else(|| format!("`{part}` is not a percentile above 0 up to 100"))?);
    }
    list.sort_by(f64::total_cmp);
    list.dedup();
    Ok(list)
}
