//! Lines of ftrace (`trace`, Android's too), of `trace-cmd report` and of `perf script`.
//!
//! All three are `TASK [CPU] [FLAGS] TIME: EVENT: WORDS`; they differ in how the task is written,
//! in `perf` putting the event's group before its name, and in how system calls look.

use std::io::BufRead;

use super::event::{Event, Names, Run, What, operation};
use super::{ImportError, Trace, bounded};

/// Longest line that is read, bytes.
const LINE_MAX: u64 = 4096;

/// Ticks of a counter, and what determines their length.
#[derive(Debug, Default)]
pub(super) struct Ticks {
    /// Some times had no point.
    is_ticks: bool,
    /// Some had one.
    is_seconds: bool,
    /// For the first and the last mark: the tick and the time of day, nanoseconds.
    marks: Option<[(u64, u64); 2]>,
}

impl Ticks {
    /// Converts ticks to nanoseconds.
    pub(super) fn apply(
        &self,
        events: &mut [Event],
        per_second: Option<f64>,
    ) -> Result<(), ImportError> {
        if !self.is_ticks || self.is_seconds {
            return Ok(());
        }
        let marked = self.marks.and_then(|[first, last]| {
            let ticks = last.0.checked_sub(first.0)? as f64;
            let nanos = last.1.checked_sub(first.1)? as f64;
            (ticks > 0.0 && nanos > 0.0).then(|| nanos / ticks)
        });
        let given =
            per_second.filter(|rate| rate.is_finite() && *rate > 0.0).map(|rate| 1e9 / rate);
        let nanos_per_tick = given.or(marked).ok_or(ImportError::Ticks)?;
        let start = events.iter().map(|event| event.nanos).min().unwrap_or(0);
        for event in events {
            event.nanos = ((event.nanos - start) as f64 * nanos_per_tick) as u64;
        }
        Ok(())
    }
}

/// Reads all lines.
pub(super) fn read(trace: &mut Trace, file: &mut dyn BufRead) -> Result<(), ImportError> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if bounded(file, LINE_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') && line.len() as u64 == LINE_MAX {
            skip_line(file)?;
        }
        trace.told.lines += 1;
        let text = String::from_utf8_lossy(&line);
        take(trace, text.trim_end())?;
    }
}

/// Moves behind the next end of a line.
fn skip_line(file: &mut dyn BufRead) -> Result<(), ImportError> {
    loop {
        let buffer = file.fill_buf()?;
        let (used, is_over) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        file.consume(used);
        if is_over {
            return Ok(());
        }
    }
}

/// A line, split.
struct Line<'a> {
    thread: u32,
    cpu: u32,
    time: Time,
    event: &'a str,
    words: &'a str,
}

enum Time {
    Nanos(u64),
    Ticks(u64),
}

fn take(trace: &mut Trace, text: &str) -> Result<(), ImportError> {
    if text.is_empty() || text.starts_with('#') {
        return Ok(());
    }
    if let Some(lost) = lost(text) {
        trace.told.lost += lost;
        return Ok(());
    }
    let Some(line) = cut(text) else {
        // trace-cmd begins with the number of processors, and names files.
        let is_heading = text.starts_with("cpus=") || text.starts_with("version =");
        if !is_heading {
            trace.told.unknown_lines += 1;
            trace.odd(text);
        }
        return Ok(());
    };
    let nanos = match line.time {
        Time::Nanos(nanos) => {
            trace.clock.is_seconds = true;
            nanos
        }
        Time::Ticks(ticks) => {
            trace.clock.is_ticks = true;
            ticks
        }
    };
    if matches!(line.event, "tracing_mark_write" | "print" | "bprint") {
        if let Some(day) = mark(line.words) {
            let first = trace.clock.marks.map_or((nanos, day), |[first, _]| first);
            trace.clock.marks = Some([first, (nanos, day)]);
        }
        trace.told.other_events += 1;
        return Ok(());
    }
    match what(&mut trace.names, line.event, line.words) {
        Some(Ok(what)) => trace.push(Event { nanos, cpu: line.cpu, thread: line.thread, what }),
        Some(Err(Odd)) => {
            trace.told.odd_events += 1;
            trace.odd(text);
            Ok(())
        }
        None => {
            trace.told.other_events += 1;
            Ok(())
        }
    }
}

/// `CPU:1 [LOST 12 EVENTS]` of ftrace and trace-cmd.
fn lost(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("[LOST ")?;
    let (count, _) = rest.split_once(" EVENTS]")?;
    count.parse().ok()
}

/// `flysch_clock: SECONDS.FRACTION`: the time of day, nanoseconds.
fn mark(words: &str) -> Option<u64> {
    let (_, time) = words.split_once("flysch_clock: ")?;
    match time_of(time.split_whitespace().next()?)? {
        Time::Nanos(nanos) => Some(nanos),
        Time::Ticks(_) => None,
    }
}

fn time_of(text: &str) -> Option<Time> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let Some((seconds, fraction)) = text.split_once('.') else {
        return is_number(text).then(|| text.parse().ok()).flatten().map(Time::Ticks);
    };
    if !is_number(seconds) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    let scale = 10_u64.pow(9 - fraction.len() as u32);
    let nanos = fraction.parse::<u64>().ok()? * scale;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos).map(Time::Nanos)
}

fn cut(text: &str) -> Option<Line<'_>> {
    let (task, cpu, rest) = processor(text)?;
    let mut rest = rest.trim_start();
    // The time is the first word that is one; flags may come before it.
    let mut time = None;
    for _ in 0..3 {
        let (word, behind) = rest.split_once(char::is_whitespace)?;
        rest = behind.trim_start();
        time = word.strip_suffix(':').and_then(time_of);
        if time.is_some() {
            break;
        }
    }
    let time = time?;
    // perf may tell a count before the event.
    if let Some((word, behind)) = rest.split_once(char::is_whitespace)
        && word.bytes().all(|byte| byte.is_ascii_digit())
    {
        rest = behind.trim_start();
    }
    let (event, words) = event_of(rest)?;
    Some(Line { thread: thread(task)?, cpu, time, event, words })
}

/// The first `[NUMBER]` between blanks: the text before it, the number, the text after it.
fn processor(text: &str) -> Option<(&str, u32, &str)> {
    for (at, _) in text.match_indices(" [") {
        let inside = &text[at + 2..];
        let Some(end) = inside.find(']') else { break };
        let digits = &inside[..end];
        if !digits.is_empty()
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && let Ok(cpu) = digits.parse()
        {
            return Some((&text[..at], cpu, &inside[end + 1..]));
        }
    }
    None
}

/// The thread of `comm-12`, `comm-12 (  34)`, `comm 12` or `comm 34/12`.
fn thread(task: &str) -> Option<u32> {
    let task = task.trim();
    let task = match task.strip_suffix(')') {
        Some(rest) => rest.rsplit_once('(')?.0.trim_end(),
        None => task,
    };
    let digits = task.bytes().rev().take_while(u8::is_ascii_digit).count();
    task[task.len() - digits..].parse().ok()
}

/// The event's name without its group, and its words. System calls have no colon in ftrace.
fn event_of(text: &str) -> Option<(&str, &str)> {
    let name_ends = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))?;
    let (name, rest) = text.split_at(name_ends);
    if name.is_empty() {
        return None;
    }
    let Some(behind) = rest.strip_prefix(':') else {
        return name.starts_with("sys_").then_some((name, rest));
    };
    // `block:block_rq_issue: ...`
    let group = behind.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    if let Some(end) = group.filter(|end| *end > 0)
        && let Some(words) = behind[end..].strip_prefix(':')
    {
        return Some((&behind[..end], words.trim_start()));
    }
    Some((name, behind.trim_start()))
}

/// A known event with an unexpected format.
struct Odd;

/// The event in a line; `None` if its name is unknown.
fn what(names: &mut Names, event: &str, words: &str) -> Option<Result<What, Odd>> {
    if event.starts_with("sys_") {
        return call(names, event, words).map(Ok);
    }
    let run =
        |parse: fn(&str) -> Option<Run>, make: fn(Run) -> What| parse(words).map(make).ok_or(Odd);
    let found = match event {
        "block_bio_queue" => run(bio, What::Queue),
        "block_getrq" => run(bio, What::Request),
        "block_bio_backmerge" => run(bio, What::BackMerge),
        "block_bio_frontmerge" => run(bio, What::FrontMerge),
        "block_rq_insert" => run(request, What::Insert),
        "block_rq_issue" => run(request, What::Issue),
        "block_rq_requeue" => run(request, What::Requeue),
        "block_rq_complete" => complete(words).ok_or(Odd),
        "block_bio_remap" => remap(words).ok_or(Odd),
        "block_split" => split(words).ok_or(Odd),
        "scsi_dispatch_cmd_start" => Ok(What::ScsiStart),
        "scsi_dispatch_cmd_done" => Ok(What::ScsiDone),
        "ufshcd_command" => return ufs(words),
        "nvme_setup_cmd" => nvme(words, What::NvmeSetup).ok_or(Odd),
        "nvme_complete_rq" => nvme(words, What::NvmeDone).ok_or(Odd),
        "mmc_request_start" => Ok(What::MmcStart),
        "mmc_request_done" => Ok(What::MmcDone),
        "irq_handler_entry" => Ok(What::IrqEntry),
        "irq_handler_exit" => Ok(What::IrqExit),
        _ => return None,
    };
    Some(found)
}

/// System calls that do file I/O; others are irrelevant for the stack.
const CALLS: [&str; 22] = [
    "read",
    "write",
    "pread64",
    "pwrite64",
    "readv",
    "writev",
    "preadv",
    "pwritev",
    "preadv2",
    "pwritev2",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "msync",
    "io_submit",
    "io_getevents",
    "io_uring_enter",
    "sendfile64",
    "copy_file_range",
    "splice",
    "sync",
    "fallocate",
];

/// `sys_enter_pread64:`, `sys_pread64(...)`, and `sys_exit_pread64:`, `sys_pread64 -> 0x1000`.
fn call(names: &mut Names, event: &str, words: &str) -> Option<What> {
    let name = event.strip_prefix("sys_")?;
    let (name, is_exit) = if let Some(name) = name.strip_prefix("enter_") {
        (name, false)
    } else if let Some(name) = name.strip_prefix("exit_") {
        (name, true)
    } else {
        (name, words.trim_start().starts_with("->"))
    };
    if !CALLS.contains(&name) {
        return None;
    }
    let number = names.number(name);
    Some(if is_exit { What::Exit(number) } else { What::Enter(number) })
}

/// `8,0` or `(8,0)`.
fn disk(text: &str) -> Option<(u32, u32)> {
    let text = text.trim_start_matches('(').trim_end_matches(')');
    let (major, minor) = text.split_once(',')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// `8,0 R 81432 + 8 [fio]`
fn bio(words: &str) -> Option<Run> {
    let mut words = words.split_whitespace();
    let (disk, rwbs) = (disk(words.next()?)?, words.next()?);
    let sector = words.next()?.parse().ok()?;
    let sectors = if words.next()? == "+" { words.next()?.parse().ok()? } else { return None };
    Some(Run { disk, sector, sectors, operation: operation(rwbs) })
}

/// `8,0 R 4096 () 81432 + 8 be,0,4 [fio]`, or without the part after the sectors; the parentheses
/// may contain a command.
fn request(words: &str) -> Option<Run> {
    let (front, behind) = words.split_once('(')?;
    let (_, behind) = behind.split_once(')')?;
    let mut front = front.split_whitespace();
    let (disk, rwbs) = (disk(front.next()?)?, front.next()?);
    let mut behind = behind.split_whitespace();
    let sector = sector(behind.next()?)?;
    let sectors = if behind.next()? == "+" { behind.next()?.parse().ok()? } else { return None };
    Some(Run { disk, sector, sectors, operation: operation(rwbs) })
}

/// A sector; that of a request without data is all ones in some kernels.
fn sector(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// `8,0 R () 81432 + 8 be,0,4 [0]`
fn complete(words: &str) -> Option<What> {
    let run = request(words)?;
    let (_, error) = words.rsplit_once('[')?;
    let error = error.split(']').next()?.trim();
    Some(What::Complete(run, error != "0"))
}

/// `8,0 R 81432 + 8 <- (8,1) 79384`
fn remap(words: &str) -> Option<What> {
    let run = bio(words)?;
    let (_, from) = words.split_once("<-")?;
    let mut from = from.split_whitespace();
    Some(What::Remap(run, disk(from.next()?)?, from.next()?.parse().ok()?))
}

/// `8,0 R 81432 / 81440 [fio]`
fn split(words: &str) -> Option<What> {
    let mut words = words.split_whitespace();
    let (disk, rwbs) = (disk(words.next()?)?, words.next()?);
    let sector: u64 = words.next()?.parse().ok()?;
    let next: u64 = if words.next()? == "/" { words.next()?.parse().ok()? } else { return None };
    let sectors = u32::try_from(next.checked_sub(sector)?).ok()?;
    Some(What::Split(Run { disk, sector, sectors, operation: operation(rwbs) }, next))
}

/// `send_req: 0:0:0:0: tag: 30, ..., hwq_id: 0`; other events of a command add nothing.
fn ufs(words: &str) -> Option<Result<What, Odd>> {
    let is_send = words.starts_with("send_req") || words.starts_with("send:");
    let is_done = words.starts_with("complete_rsp") || words.starts_with("complete:");
    if !is_send && !is_done {
        return None;
    }
    let number = |name: &str| {
        let (_, rest) = words.split_once(name)?;
        let digits = rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse::<u32>().ok()
    };
    let Some(tag) = number("tag:") else { return Some(Err(Odd)) };
    let queue = number("hwq_id:").unwrap_or(0);
    Some(Ok(if is_send { What::UfsSend(queue, tag) } else { What::UfsDone(queue, tag) }))
}

/// `nvme0: disk=nvme0n1, qid=2, cmdid=8902, ...`
fn nvme(words: &str, make: fn(u32, u32, u32) -> What) -> Option<What> {
    let (controller, rest) = words.strip_prefix("nvme")?.split_once(':')?;
    let number = |name: &str| {
        let (_, behind) = rest.split_once(name)?;
        behind.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    Some(make(controller.parse().ok()?, number("qid=")?, number("cmdid=")?))
}
