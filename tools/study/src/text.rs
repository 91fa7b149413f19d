//! The study as text.

use std::fmt::{self, Write as _};

use flysch_api::count::counted;

use crate::areas::{THREADS, WORKLOADS};
use crate::board::{Row, Value};
use crate::equal::{DEVICE_US, NOT_COMPARED, PUBLISHED_PERCENT};
use crate::study::Study;

/// Nanoseconds in a readable unit.
pub fn time(nanos: f64) -> String {
    match nanos {
        n if n >= 1e6 => format!("{:.2} ms", n / 1e6),
        n if n >= 1e3 => format!("{:.1} us", n / 1e3),
        n => format!("{n:.0} ns"),
    }
}

/// A rate with a sensible number of digits.
pub(crate) fn rate(value: f64) -> String {
    let decimals = if value >= 100.0 { 0 } else { 1 };
    format!("{value:.decimals$}")
}

/// Renders the whole study.
pub fn render(study: &Study) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = areas(&mut out, study);
    let _ = equal(&mut out, study);
    let _ = board(&mut out, study);
    let _ = days(&mut out, study);
    let _ = writeln!(out, "What it says\n");
    for answer in study.answers.words() {
        let _ = writeln!(out, "- {answer}");
    }
    out
}

fn areas(out: &mut String, study: &Study) -> fmt::Result {
    writeln!(out, "The four areas (area 1, a file system, there is none), mean and p99\n")?;
    for (workload, ..) in WORKLOADS {
        for threads in THREADS {
            writeln!(out, "{workload}, {}", counted(threads, "thread", "threads"))?;
            writeln!(
                out,
                "  {:<6}{:>10}{:>9}{:>21}{:>23}{:>21}{:>10}{:>8}{:>7}",
                "",
                "requests/s",
                "MiB/s",
                "submission",
                "device",
                "completion",
                "software",
                "J/GiB",
                "W"
            )?;
            let of_it =
                |row: &&crate::areas::Row| (row.workload, row.threads) == (workload, threads);
            for row in study.areas.iter().filter(of_it) {
                let pair = |times: crate::areas::Times| {
                    format!("{} / {}", time(times.mean), time(times.p99 as f64))
                };
                writeln!(
                    out,
                    "  {:<6}{:>10.0}{:>9}{:>21}{:>23}{:>21}{:>8.1} %{:>8.2}{:>7.2}",
                    row.device,
                    row.iops,
                    rate(row.mebibytes),
                    pair(row.submission),
                    pair(row.device_time),
                    pair(row.completion),
                    row.software_percent,
                    row.joules_per_gib,
                    row.watts
                )?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

fn equal(out: &mut String, study: &Study) -> fmt::Result {
    writeln!(out, "The equal device: NVMe ahead of UFS, software of both in us\n")?;
    write!(out, "{:<28}{:>10}{:>11}", "", "device us", "published")?;
    for column in &study.equal {
        write!(out, "{:>28}", column.name)?;
    }
    writeln!(out)?;
    for (at, (workload, ..)) in WORKLOADS.into_iter().enumerate() {
        write!(out, "{workload:<28}{:>10}{:>9.0} %", DEVICE_US[at], PUBLISHED_PERCENT[at])?;
        for column in &study.equal {
            let cell = match (column.ahead_percent[at], column.costs_us[at]) {
                (Some(ahead), Some([ufs, nvme])) => format!("{ahead:+.1} % ({ufs:.2}, {nvme:.2})"),
                _ => "-".into(),
            };
            write!(out, "{cell:>28}")?;
        }
        writeln!(out)?;
    }
    for column in &study.equal {
        writeln!(out, "  {}: {}", column.name, column.source)?;
    }
    writeln!(out, "  {NOT_COMPARED}\n")
}

fn board(out: &mut String, study: &Study) -> fmt::Result {
    let table = |out: &mut String, title: &str, rows: &[Row]| -> fmt::Result {
        writeln!(out, "{title}\n")?;
        let Some(first) = rows.first() else { return Ok(()) };
        write!(out, "{:<44}{:>7}", "", "")?;
        for value in &first.values {
            write!(out, "{:>20}", value.device)?;
        }
        writeln!(out)?;
        for row in rows {
            write!(out, "{:<44}{:>7}", row.what, row.unit)?;
            for Value { figure, .. } in &row.values {
                write!(out, "{:>20}", rate(*figure))?;
            }
            writeln!(out)?;
        }
        writeln!(out)
    };
    table(out, "The same flash behind three protocols, without software", &study.board.same_flash)?;
    table(out, "An eMMC with its queue and without", &study.board.queue)?;
    writeln!(out, "The game load: 768 MiB by 512 KiB while 32 MiB are read by 4 KiB\n")?;
    for value in &study.board.game {
        let Value { device, figure, joules_per_gib, .. } = value;
        writeln!(out, "  {device:<6}{figure:>8.2} s{joules_per_gib:>8.2} J/GiB")?;
    }
    writeln!(out)
}

fn days(out: &mut String, study: &Study) -> fmt::Result {
    writeln!(out, "A day of phone use, mean power of the device\n")?;
    for day in &study.days {
        writeln!(
            out,
            "  {:<20}{:>9.2} mW awake{:>9.2} mW asleep{:>7.1} % less  ({})",
            day.device,
            day.awake_milliwatts,
            day.asleep_milliwatts,
            day.saved_percent(),
            day.how
        )?;
    }
    writeln!(out)
}
