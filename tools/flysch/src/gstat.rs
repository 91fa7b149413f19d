//! `flysch gstat`: live statistics of a mounted graph, or of a workload's, as in gstat(8).

use std::fmt::Write as _;
use std::io::{IsTerminal, stdout};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use regex_lite::Regex;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::geom::{Counter, Kind, Snapshot, statistics};
use crate::output::Output;

/// Options of `flysch gstat`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Columns: requests in flight; requests, reads, KiB and milliseconds per read, the same for writes,
per second; the share of time with requests in flight. On a terminal it is redrawn at every
interval until Ctrl-C; otherwise, and with -b, printed once. A dash means not measured.
Examples:
  flysch gstat /mnt/rig
  flysch gstat -bp -I 5s /mnt/rig
  flysch bench --on rig.toml:mirror/gm0 --rw=randrw --runtime=60 --stats-socket sock &
  flysch gstat sock")]
pub(crate) struct Arguments {
    /// A folder on which `flysch geom mount` mounted a graph, or its socket; or the socket of
    /// `flysch bench --stats-socket`.
    #[arg(value_name = "DIR|SOCKET")]
    place: PathBuf,
    /// Show only busy providers.
    #[arg(short)]
    active: bool,
    /// Print once and exit.
    #[arg(short)]
    batch: bool,
    /// Like -b, repeatedly.
    #[arg(short = 'B', conflicts_with = "batch")]
    endless: bool,
    /// Print comma-separated values.
    #[arg(short = 'C')]
    csv: bool,
    /// Also show consumers.
    #[arg(short)]
    consumers: bool,
    /// Also show deletes.
    #[arg(short)]
    deletes: bool,
    /// Show only providers whose name matches this regular expression.
    #[arg(short, value_name = "FILTER", value_parser = Regex::new)]
    filter: Option<Regex>,
    /// Interval: seconds, or with a unit: `500ms`, `2s`, `100us`.
    #[arg(short = 'I', value_name = "INTERVAL", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Also show flushes.
    #[arg(short)]
    other: bool,
    /// Show only disks.
    #[arg(short)]
    physical: bool,
    /// Also show request sizes.
    #[arg(short)]
    size: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "us" => Some(1),
        "ms" => Some(1000),
        "s" | "" => Some(1_000_000),
        _ => None,
    };
    let micros = number.parse::<u64>().ok().zip(scale).and_then(|(n, s)| n.checked_mul(s));
    let micros = micros.filter(|micros| (1..=86_400_000_000).contains(micros));
    micros
        .map(Duration::from_micros)
        .ok_or_else(|| "give a time such as 500ms or 2s, up to a day".to_owned())
}

/// Shows it.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let is_live = !arguments.batch
        && !arguments.endless
        && !arguments.csv
        && !output.json()
        && stdout().is_terminal();
    let is_once = arguments.batch || !(is_live || arguments.endless || arguments.csv);
    let mut before = statistics(&arguments.place)?;
    let mut has_heading = false;
    loop {
        std::thread::sleep(arguments.interval);
        let now = statistics(&arguments.place)?;
        let rates = rates(&before, &now, arguments);
        let seconds = now.at.saturating_sub(before.at) as f64 / 1e9;
        if output.json() {
            let all: Vec<Value> = rates.iter().map(|rate| rate.json(arguments)).collect();
            output.value(&json!({ "seconds": seconds, "counters": all }))?;
        } else if arguments.csv {
            if !has_heading {
                output.line(csv_heading(arguments))?;
            }
            let time = timestamp();
            rates.iter().try_for_each(|rate| output.line(rate.csv(arguments, &time)))?;
        } else {
            let mut page = heading(arguments, seconds);
            rates.iter().for_each(|rate| rate.line(arguments, is_live, &mut page));
            if is_live {
                // To the top, each line to its end, and nothing of the old page below.
                page = format!("\x1b[H{}\x1b[J", page.replace('\n', "\x1b[K\n"));
            }
            output.bytes(page.as_bytes())?;
        }
        output.finish()?;
        if is_once {
            return Ok(());
        }
        has_heading = true;
        before = now;
    }
}

/// What one provider or consumer did in a second.
#[derive(Clone, Debug, PartialEq)]
struct Rate {
    name: String,
    is_consumer: bool,
    queued: Option<u64>,
    reads: KindRate,
    writes: KindRate,
    deletes: KindRate,
    others: KindRate,
    busy: Option<f64>,
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct KindRate {
    per_second: f64,
    kibibytes: f64,
    /// Of one request.
    kibibytes_each: f64,
    milliseconds: Option<f64>,
}

impl KindRate {
    fn of(before: &Kind, now: &Kind, seconds: f64) -> Self {
        let requests = now.requests.saturating_sub(before.requests) as f64;
        let bytes = now.bytes.saturating_sub(before.bytes) as f64;
        let time = now.time.map(|time| time.saturating_sub(before.time.unwrap_or(0)) as f64);
        let each = |sum: f64| if requests > 0.0 { sum / requests } else { 0.0 };
        Self {
            per_second: requests / seconds,
            kibibytes: bytes / 1024.0 / seconds,
            kibibytes_each: each(bytes) / 1024.0,
            milliseconds: time.map(|time| each(time) / 1e6),
        }
    }
}

/// The changes of those that are wanted.
fn rates(before: &Snapshot, now: &Snapshot, arguments: &Arguments) -> Vec<Rate> {
    let seconds = (now.at.saturating_sub(before.at) as f64 / 1e9).max(1e-9);
    let nothing = Counter::default();
    let rate = |counter: &Counter| {
        let same =
            |it: &&Counter| (it.number, it.is_consumer) == (counter.number, counter.is_consumer);
        // What is new began at nothing.
        let old = before.counters.iter().find(same).unwrap_or(&nothing);
        Rate {
            name: counter.name.clone(),
            is_consumer: counter.is_consumer,
            queued: counter.queued,
            reads: KindRate::of(&old.reads, &counter.reads, seconds),
            writes: KindRate::of(&old.writes, &counter.writes, seconds),
            deletes: KindRate::of(&old.deletes, &counter.deletes, seconds),
            others: KindRate::of(&old.others, &counter.others, seconds),
            busy: counter.busy.map(|busy| {
                let busy = busy.saturating_sub(old.busy.unwrap_or(0));
                (busy as f64 / 1e7 / seconds).min(100.0)
            }),
        }
    };
    let is_wanted = |counter: &&Counter| {
        (arguments.consumers || !counter.is_consumer)
            && (!arguments.physical || counter.rank == 1)
            && arguments.filter.as_ref().is_none_or(|filter| filter.is_match(&counter.name))
    };
    let all = now.counters.iter().filter(is_wanted).map(rate);
    all.filter(|rate| !arguments.active || rate.is_active()).collect()
}

fn heading(arguments: &Arguments, seconds: f64) -> String {
    let mut text = format!("dT: {seconds:5.3}s  w: {:.3}s", arguments.interval.as_secs_f64());
    if let Some(filter) = &arguments.filter {
        let _ = write!(text, "  filter: {filter}");
    }
    text.push_str("\n L(q)  ops/s   ");
    let sizes = if arguments.size { "     kB" } else { "" };
    for (letter, is_shown) in [('r', true), ('w', true), ('d', arguments.deletes)] {
        if is_shown {
            let _ = write!(text, " {letter}/s{sizes}   kBps   ms/{letter}   ");
        }
    }
    if arguments.other {
        text.push_str(" o/s   ms/o   ");
    }
    text.push_str("%busy Name\n");
    text
}

/// Milliseconds, without a decimal where there is no room for one.
fn milliseconds(text: &mut String, value: Option<f64>) {
    let _ = match value {
        Some(value) if value > 1000.0 => write!(text, " {value:6.0}"),
        Some(value) => write!(text, " {value:6.1}"),
        None => write!(text, " {:>6}", "-"),
    };
}

/// A value of a table without the padding of its column; empty if it is not measured.
fn cell(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| format!("{value:.1}"))
}

impl Rate {
    fn is_active(&self) -> bool {
        self.busy.map_or(self.all() > 0.0, |busy| busy >= 0.1)
    }

    fn all(&self) -> f64 {
        let kinds = [self.reads, self.writes, self.deletes, self.others];
        kinds.iter().map(|kind| kind.per_second).sum()
    }

    fn line(&self, arguments: &Arguments, is_live: bool, text: &mut String) {
        let queued = self.queued.map_or_else(|| "-".into(), |queued| queued.to_string());
        let _ = write!(text, " {queued:>4} {:6.0}", self.all());
        let kinds = [(self.reads, true), (self.writes, true), (self.deletes, arguments.deletes)];
        for (kind, _) in kinds.iter().filter(|(_, is_shown)| *is_shown) {
            let _ = write!(text, " {:6.0}", kind.per_second);
            if arguments.size {
                let _ = write!(text, " {:6.0}", kind.kibibytes_each);
            }
            let _ = write!(text, " {:6.0}", kind.kibibytes);
            milliseconds(text, kind.milliseconds);
        }
        if arguments.other {
            let _ = write!(text, " {:6.0}", self.others.per_second);
            milliseconds(text, self.others.milliseconds);
        }
        let bar = if is_live { "| " } else { "  " };
        let busy = self.busy.map_or_else(|| "-".into(), |busy| format!("{busy:.1}"));
        let _ = writeln!(text, " {busy:>6}{bar}{}", self.name);
    }

    fn csv(&self, arguments: &Arguments, time: &str) -> String {
        let queued = self.queued.map_or_else(String::new, |queued| queued.to_string());
        let mut text = format!("{time},{},{queued},{:.0}", self.name, self.all());
        let kinds = [(self.reads, true), (self.writes, true), (self.deletes, arguments.deletes)];
        for (kind, _) in kinds.iter().filter(|(_, is_shown)| *is_shown) {
            let _ = write!(text, ",{:.0}", kind.per_second);
            if arguments.size {
                let _ = write!(text, ",{:.0}", kind.kibibytes_each);
            }
            let _ = write!(text, ",{:.0},{}", kind.kibibytes, cell(kind.milliseconds));
        }
        if arguments.other {
            let others = &self.others;
            let _ = write!(text, ",{:.0},{}", others.per_second, cell(others.milliseconds));
        }
        let _ = write!(text, ",{}", cell(self.busy));
        text
    }

    fn json(&self, arguments: &Arguments) -> Value {
        let kind = |kind: &KindRate| {
            json!({
                "per_second": kind.per_second,
                "kib_per_second": kind.kibibytes,
                "kib_each": kind.kibibytes_each,
                "ms": kind.milliseconds,
            })
        };
        let mut value = json!({
            "name": self.name,
            "consumer": self.is_consumer,
            "queued": self.queued,
            "per_second": self.all(),
            "reads": kind(&self.reads),
            "writes": kind(&self.writes),
            "busy_percent": self.busy,
        });
        if arguments.deletes {
            value["deletes"] = kind(&self.deletes);
        }
        if arguments.other {
            value["others"] = kind(&self.others);
        }
        value
    }
}

fn csv_heading(arguments: &Arguments) -> String {
    let mut text = "timestamp,name,q-depth,total_ops/s".to_string();
    let kinds = [("read", true), ("write", true), ("delete", arguments.deletes)];
    for (name, _) in kinds.iter().filter(|(_, is_shown)| *is_shown) {
        let size = match (arguments.size, *name) {
            (true, "delete") => ",delete-sz-KiB".to_string(),
            (true, name) => format!(",{name}_sz-KiB"),
            (false, _) => String::new(),
        };
        let _ = write!(text, ",{name}/s{size},{name}-KiB/s,ms/{name}");
    }
    if arguments.other {
        text.push_str(",other/s,ms/other");
    }
    text.push_str(",%busy");
    text
}

/// Now, in UTC, in gstat's format.
fn timestamp() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, rest) = (now.as_secs() / 86_400, now.as_secs() % 86_400);
    // Days to a date of the Gregorian calendar, years beginning in March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hours, minutes, seconds) = (rest / 3600, rest / 60 % 60, rest % 60);
    let nanos = now.subsec_nanos();
    format!("{year:04}-{month:02}-{day:02} {hours:02}:{minutes:02}:{seconds:02}.{nanos:09}")
}

#[cfg(test)]
mod tests;
