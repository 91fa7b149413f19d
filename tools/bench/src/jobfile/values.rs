//! Parsers of option values.

use std::time::Duration;

use crate::units::{Amount, KiloBase, parse_amount, parse_size, parse_time};
use crate::verify::{Method, Pattern};
use crate::workload::{
    BlockSize, Direction, Distribution, Mix, Steady, SteadyMeasure, Stretch, StretchSize, Tolerance,
};

/// Longest request, bytes.
const BLOCK_MAX: u64 = 1 << 30;

pub(super) fn flag(value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("" | "1" | "true" | "on") => Ok(true),
        Some("0" | "false" | "off") => Ok(false),
        Some(other) => Err(format!("`{other}` is neither 0 nor 1")),
    }
}

pub(super) fn bounded(number: u64, min: u64, max: u64) -> Result<u64, String> {
    if (min..=max).contains(&number) {
        return Ok(number);
    }
    Err(format!("{number} is not in the range {min} to {max}"))
}

/// A share in percent, as fio has it: without a sign.
pub(super) fn share(text: &str, base: KiloBase) -> Result<u32, String> {
    if let Some(number) = text.strip_suffix('%') {
        return Err(format!("`{text}`: it is a percentage as it is: write {number}"));
    }
    let share = parse_size(text, base).map_err(|error| error.to_string())?;
    Ok(bounded(share, 0, 100)? as u32)
}

pub(super) fn kilo_base(text: &str) -> Result<KiloBase, String> {
    match text {
        "1024" => Ok(KiloBase::Binary),
        "1000" => Ok(KiloBase::Decimal),
        other => Err(format!("`{other}` is neither 1000 nor 1024")),
    }
}

/// An access pattern: directions, whether it is random, and the number after the colon.
pub(super) fn pattern(text: &str, base: KiloBase) -> Result<(Mix, bool, i64), String> {
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
                "`{name}` is not one of read, write, trim, randread, randwrite, randtrim, rw, \
                 randrw, trimwrite, randtrimwrite"
            ));
        }
    };
    // fio reads the digits and passes over what follows.
    if random && !modifier.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "`{modifier}`: behind a random one stands a number of requests in a row, without unit \
             or sign"
        ));
    }
    let (sign, digits) = match modifier.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, modifier),
    };
    let number = parse_size(digits, base).map_err(|error| error.to_string())?;
    let number = i64::try_from(number).map_err(|_| format!("`{modifier}` is too large"))?;
    Ok((mix, random, sign * number))
}

pub(super) fn amount(text: &str, base: KiloBase) -> Result<Amount, String> {
    parse_amount(text, base).map_err(|error| error.to_string())
}

pub(super) fn block(text: &str, base: KiloBase) -> Result<u32, String> {
    let bytes = parse_size(text, base).map_err(|error| error.to_string())?;
    Ok(bounded(bytes, 1, BLOCK_MAX)? as u32)
}

/// Sets one value per direction from `read,write,trim`: a missing part at the end repeats the
/// last, an empty part leaves its direction alone.
pub(super) fn each(
    sizes: &mut [Option<BlockSize>; 3],
    text: &str,
    parse: impl Fn(&str) -> Result<BlockSize, String>,
) -> Result<(), String> {
    for (index, part) in by_direction(text)? {
        sizes[index] = Some(parse(part)?);
    }
    Ok(())
}

pub(super) fn by_direction(text: &str) -> Result<Vec<(usize, &str)>, String> {
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > 3 {
        return Err(format!("`{text}` has more than three parts (read, write, trim)"));
    }
    let last = parts.len() - 1;
    let all = (0..3).map(|index| (index, parts[index.min(last)].trim()));
    Ok(all.filter(|(_, part)| !part.is_empty()).collect())
}

pub(super) fn fixed(text: &str, base: KiloBase) -> Result<BlockSize, String> {
    block(text, base).map(BlockSize::Fixed)
}

pub(super) fn range(text: &str, base: KiloBase) -> Result<BlockSize, String> {
    let parts = text.split_once(['-', ':']);
    let (min, max) = parts.ok_or_else(|| format!("`{text}` is not a range like 4k-64k"))?;
    let (min, max) = (block(min.trim(), base)?, block(max.trim(), base)?);
    match min.cmp(&max) {
        core::cmp::Ordering::Greater => Err(format!("`{text}` ends below its start")),
        core::cmp::Ordering::Equal => Ok(BlockSize::Fixed(min)),
        core::cmp::Ordering::Less => Ok(BlockSize::Range { min, max }),
    }
}

/// `4k/60:64k/40`; sizes without a share divide the rest among them.
pub(super) fn split(text: &str, base: KiloBase) -> Result<BlockSize, String> {
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

pub(super) fn limits(limits: &mut [u64; 3], text: &str, base: KiloBase) -> Result<(), String> {
    for (index, part) in by_direction(text)? {
        limits[index] = parse_size(part, base).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Distribution of blocks: `zipf:1.2`, `zoned:60/10:30/20:10/70`.
pub(super) fn distribution(text: &str, base: KiloBase) -> Result<Distribution, String> {
    let (name, value) = text.split_once(':').unwrap_or((text, ""));
    let number = || {
        let number = if value.is_empty() { None } else { value.parse::<f64>().ok() };
        number.filter(|number| number.is_finite() && *number > 0.0)
    };
    match name {
        "zipf" | "pareto" | "normal" if value.contains(',') => Err(format!(
            "`{text}` is a list by direction, which only zoned and zoned_abs take: give one for all"
        )),
        "zipf" | "pareto" | "normal" if value.contains(':') => {
            Err(format!("`{value}` has a centre, which is not supported: leave it out"))
        }
        "random" => Ok(Distribution::Uniform),
        "zipf" if value.is_empty() => Ok(Distribution::Zipf(1.1)),
        "pareto" if value.is_empty() => Ok(Distribution::Pareto(0.2)),
        "normal" if value.is_empty() => Ok(Distribution::Normal(0.0)),
        "zipf" => {
            let theta = number().filter(|&theta| theta != 1.0);
            theta
                .map(Distribution::Zipf)
                .ok_or_else(|| format!("`{value}` is not above 0, or is 1"))
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
            "`{name}` is not one of random, zipf, pareto, normal, zoned, zoned_abs, sequence"
        )),
    }
}

pub(super) fn percent(text: &str) -> Result<u32, String> {
    let percent = text.trim().parse().ok().filter(|percent| *percent <= 100);
    percent.ok_or_else(|| format!("`{text}` is not a percentage"))
}

/// Stretches as `share/size:share/size`, one list for each direction. Omitted percentage sizes
/// divide the rest of the region.
pub(super) fn stretches(
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

/// Errors to ignore, for reads, writes and verification.
pub(super) fn error_lists(text: &str) -> Result<[Vec<i32>; 3], String> {
    let mut lists: [Vec<i32>; 3] = Default::default();
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > 3 {
        return Err(format!("`{text}` has more than three parts (read, write, verify)"));
    }
    for (list, part) in lists.iter_mut().zip(parts) {
        for name in part.split(':').map(str::trim).filter(|name| !name.is_empty()) {
            let known = ERRORS.iter().find(|(known, _)| *known == name).map(|&(_, number)| number);
            let number = known.or_else(|| name.parse().ok());
            list.push(number.ok_or_else(|| format!("`{name}` is not a known error"))?);
        }
    }
    Ok(lists)
}

/// A fill pattern: `0xdeadbeef`, `"text"`, a decimal number, or several of these in sequence.
pub(super) fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let (bytes, places) = pattern_parts(text)?;
    if places.is_empty() {
        return Ok(bytes);
    }
    Err(format!("`{text}` has %o, which only verify_pattern takes"))
}

/// A pattern of verification: one of these, with `%o` for the offset of the block.
pub(super) fn verify_pattern(text: &str) -> Result<Pattern, String> {
    let (bytes, places) = pattern_parts(text)?;
    let too_long = || {
        let (bytes, places) = (bytes.len(), places.len());
        let (most, offsets) = (Pattern::MAX, Pattern::OFFSETS_MAX);
        format!("{bytes} bytes and {places} of %o; at most {most} and {offsets} are taken")
    };
    Pattern::with_offsets(&bytes, &places).ok_or_else(too_long)
}

/// Bytes of a pattern, and the places of offsets in it, eight bytes each.
fn pattern_parts(text: &str) -> Result<(Vec<u8>, Vec<usize>), String> {
    let bad = || format!("`{text}` is not a pattern like 0xff, \"text\", 255 or 0xff%o\"abcd\"-12");
    let (mut bytes, mut places) = (Vec::new(), Vec::new());
    let mut rest = text.trim();
    while !rest.is_empty() {
        rest = if rest.starts_with('\'') {
            return Err(format!(
                "`{text}`: the content of a file is not taken: give its bytes, as 0x... or \"...\""
            ));
        } else if let Some(quoted) = rest.strip_prefix('"') {
            let (inner, behind) = quoted.split_once('"').ok_or_else(bad)?;
            bytes.extend_from_slice(inner.as_bytes());
            behind
        } else if let Some(behind) = rest.strip_prefix("%o") {
            places.push(bytes.len());
            bytes.extend_from_slice(&[0; 8]);
            behind
        } else if let Some(hex) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
            let end = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
            let (digits, behind) = hex.split_at(end);
            bytes.extend(hex_bytes(digits).ok_or_else(bad)?);
            behind
        } else {
            let (number, behind) = decimal(rest).ok_or_else(bad)??;
            bytes.extend(number);
            behind
        };
    }
    if bytes.is_empty() { Err(bad()) } else { Ok((bytes, places)) }
}

fn hex_bytes(digits: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        digits.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let mut digits = digits.filter(|digits| !digits.is_empty())?;
    if digits.len() % 2 == 1 {
        digits.insert(0, 0);
    }
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// A decimal number at the start of `text`, little-endian: as many bytes as it needs, four for a
/// negative one; and the rest of the text. As in fio it has 32 bits.
fn decimal(text: &str) -> Option<Result<(Vec<u8>, &str), String>> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let (number, behind) = text.split_at(text.len() - digits.len() + end);
    if end == 0 {
        return None;
    }
    let Ok(value) = number.parse::<i32>() else {
        let (min, max) = (i32::MIN, i32::MAX);
        return Some(Err(format!(
            "{number} is not in the range {min} to {max}: write it as 0x..."
        )));
    };
    let used = if value < 0 { 4 } else { (4 - value.leading_zeros() as usize / 8).max(1) };
    Some(Ok((value.to_le_bytes()[..used].to_vec(), behind)))
}

pub(super) fn method(text: &str) -> Result<Option<Method>, String> {
    if text == "0" {
        return Ok(None);
    }
    if text == "null" {
        return Err("`null` checks nothing: leave verify out".to_string());
    }
    let names = Method::NAMES.map(|(name, _)| name).join(", ");
    let method = Method::from_name(text);
    method.map(Some).ok_or_else(|| format!("`{text}` is not supported; use {names} or 0"))
}

pub(super) fn tolerance(text: &str) -> Result<Tolerance, String> {
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
                return Err(format!("`{other}` is not one of none, read, write, io, verify, all"));
            }
        };
        tolerance.read |= add.read;
        tolerance.write |= add.write;
        tolerance.verify |= add.verify;
    }
    Ok(tolerance)
}

pub(super) fn percentiles(text: &str) -> Result<Vec<f64>, String> {
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

/// A time, which must be positive; a number without a unit counts `unit`.
pub(super) fn span(text: &str, unit: Duration) -> Result<Duration, String> {
    parse_time(text, unit).map_err(|error| error.to_string())
}

/// One time by direction, microseconds without a unit, as nanoseconds.
pub(super) fn times(times: &mut [u64; 3], text: &str) -> Result<(), String> {
    for (index, part) in by_direction(text)? {
        times[index] = nanos(span(part, Duration::from_micros(1))?);
    }
    Ok(())
}

pub(super) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Whole seconds of a time; a number without a unit counts seconds.
pub(super) fn whole_seconds(text: &str) -> Result<u64, String> {
    let span = span(text, Duration::from_secs(1))?;
    match span.subsec_nanos() {
        0 => Ok(span.as_secs()),
        _ => Err(format!("`{text}` is not a number of whole seconds")),
    }
}

/// One time, or two with a hyphen between; seconds without a unit.
pub(super) fn spans(text: &str) -> Result<(Duration, Duration), String> {
    let second = Duration::from_secs(1);
    let Some((first, last)) = text.split_once('-') else {
        let span = span(text, second)?;
        return Ok((span, span));
    };
    let (first, last) = (span(first.trim(), second)?, span(last.trim(), second)?);
    if first > last {
        return Err(format!("`{text}` ends before it begins"));
    }
    Ok((first, last))
}

/// A part of one: 0 to 1.
pub(super) fn part(text: &str) -> Result<f64, String> {
    let part = text.parse().ok().filter(|part| (0.0..=1.0).contains(part));
    part.ok_or_else(|| format!("`{text}` is not between 0 and 1"))
}

/// The steady-state criterion and its limit: `iops:5%`, `bw_slope:1m`.
pub(super) fn steady(text: &str, base: KiloBase, steady: &mut Steady) -> Result<(), String> {
    let (name, limit) = text.split_once(':').unwrap_or((text, ""));
    let (measure, slope) = match name.strip_suffix("_slope") {
        Some(measure) => (measure, true),
        None => (name, false),
    };
    steady.slope = slope;
    steady.measure = match measure {
        "iops" => SteadyMeasure::Iops,
        "bw" => SteadyMeasure::Bandwidth,
        "lat" => SteadyMeasure::Latency,
        _ => {
            return Err(format!(
                "`{name}` is not one of iops, iops_slope, bw, bw_slope, lat, lat_slope"
            ));
        }
    };
    if limit.is_empty() {
        return Err(format!("it needs a limit, as in {name}:5%"));
    }
    steady.percent = limit.ends_with('%');
    let limit = limit.trim_end_matches('%').trim();
    let number = match (steady.percent, steady.measure) {
        (false, SteadyMeasure::Bandwidth) => parse_size(limit, base).ok().map(|size| size as f64),
        _ => limit.parse().ok(),
    };
    let number = number.filter(|number: &f64| number.is_finite() && *number > 0.0);
    steady.limit = number.ok_or_else(|| format!("the limit `{limit}` is not a number above 0"))?;
    Ok(())
}

/// The parts of a list separated by colons; `\:` is a colon within a part.
pub(super) fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let last = parts.last_mut().expect("there is one");
        match letter {
            '\\' if letters.peek() == Some(&':') => last.extend(letters.next()),
            ':' => parts.push(String::new()),
            _ => last.push(letter),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}
