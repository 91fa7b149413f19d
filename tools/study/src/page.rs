//! The study as one page for the browser: bars, tables, and the command behind every number.

use flysch_api::count::counted;
use flysch_bench::page::{self, Bar, BarChart, Frame, Share, Table};
use serde::Serialize;

use crate::areas::{Row as AreaRow, THREADS, Times, WORKLOADS};
use crate::board::{self, Row};
use crate::day::PHASES;
use crate::equal::{DEVICE_US, NOT_COMPARED, PUBLISHED_PERCENT};
use crate::study::Study;
use crate::text::{rate, time};

#[derive(Serialize)]
struct Page<'a> {
    #[serde(flatten)]
    frame: Frame<'a>,
    quick: bool,
    answers: Vec<String>,
    sections: Vec<Section>,
}

#[derive(Default, Serialize)]
struct Section {
    id: &'static str,
    title: &'static str,
    about: &'static str,
    legend: Vec<Key>,
    figures: Vec<BarChart>,
    notes: Vec<String>,
    tables: Vec<Folded>,
    listing: Option<&'static str>,
}

#[derive(Serialize)]
struct Key {
    class: &'static str,
    name: &'static str,
}

/// A table that is folded until opened.
#[derive(Serialize)]
struct Folded {
    summary: String,
    table: Table,
}

impl Folded {
    fn new(summary: impl Into<String>, heading: &[&str], rows: Vec<Vec<String>>) -> Self {
        Self { summary: summary.into(), table: Table::new("", heading).with(rows) }
    }
}

/// Renders the page; `command` is the command line that made the study.
pub fn render(study: &Study, command: &str) -> String {
    let page = Page {
        frame: Frame::new(
            "Flysch: UFS, NVMe, eMMC and SATA",
            Some(study.timestamp_ms),
            command,
            &study.version,
        ),
        quick: study.quick,
        answers: study.answers.words(),
        sections: vec![areas(study), software(study), equal(study), flash(study), day(study)],
    };
    page::render(include_str!("study.html"), &page)
}

/// Parts of a bar: class, name and value of each.
type Shares = Vec<(String, String, f64)>;

/// A bar: its name, its parts, and a note below it.
type Line = (String, Shares, String);

/// Bars on a common scale.
fn figure(title: String, bars: Vec<Line>, say: impl Fn(f64) -> String) -> BarChart {
    let sum = |parts: &[(String, String, f64)]| parts.iter().map(|(.., value)| value).sum::<f64>();
    let most = bars.iter().map(|(_, parts, _)| sum(parts)).fold(f64::MIN_POSITIVE, f64::max);
    let bar = |(name, parts, note): Line| {
        let all = sum(&parts);
        let part = |(class, name, value): (String, String, f64)| Share {
            class,
            text: format!("{name}: {}", say(value)),
            width: value / all.max(f64::MIN_POSITIVE) * 100.0,
        };
        Bar {
            name,
            value: say(all),
            note,
            width: all / most * 100.0,
            parts: parts.into_iter().map(part).collect(),
            mark: None,
        }
    };
    BarChart { title, bars: bars.into_iter().map(bar).collect() }
}

/// The rows of each workload and number of threads, with a title.
fn workloads(study: &Study) -> impl Iterator<Item = (String, Vec<&AreaRow>)> {
    WORKLOADS.into_iter().flat_map(move |(workload, ..)| {
        THREADS.into_iter().map(move |threads| {
            let of_it = |row: &&AreaRow| (row.workload, row.threads) == (workload, threads);
            let rows = study.areas.iter().filter(of_it).collect();
            (format!("{workload}, {}", counted(threads, "thread", "threads")), rows)
        })
    })
}

const AREAS: [(&str, &str); 3] =
    [("submission", "submission"), ("device", "device"), ("completion", "completion")];

fn legend(keys: &[(&'static str, &'static str)]) -> Vec<Key> {
    keys.iter().map(|&(class, name)| Key { class, name }).collect()
}

fn areas(study: &Study) -> Section {
    let figures = workloads(study).map(|(title, rows)| {
        let bar = |row: &&AreaRow| {
            let means = [row.submission.mean, row.device_time.mean, row.completion.mean];
            let parts = AREAS.iter().zip(means);
            let parts =
                parts.map(|((class, name), mean)| (class.to_string(), name.to_string(), mean));
            let note =
                format!("p99 {}, {:.1} % software", time(row.all.p99 as f64), row.software_percent);
            (row.device.to_string(), parts.collect(), note)
        };
        figure(title, rows.iter().map(bar).collect(), time)
    });
    let heading = [
        "workload",
        "device",
        "requests/s",
        "MiB/s",
        "submission",
        "device",
        "completion",
        "all",
        "software %",
        "J/GiB",
        "mean W",
        "command",
    ];
    let mut cells = Vec::new();
    let times =
        |t: Times| [t.mean, t.p50 as f64, t.p99 as f64, t.p999 as f64].map(time).join(" · ");
    for (title, rows) in workloads(study) {
        cells.extend(rows.into_iter().map(|row| {
            vec![
                title.clone(),
                row.device.into(),
                format!("{:.0}", row.iops),
                rate(row.mebibytes),
                times(row.submission),
                times(row.device_time),
                times(row.completion),
                times(row.all),
                format!("{:.1}", row.software_percent),
                format!("{:.2}", row.joules_per_gib),
                format!("{:.2}", row.watts),
                row.command.clone(),
            ]
        }));
    }
    let caption = "All figures: mean, p50, p99 and p99.9 of each area";
    Section {
        id: "areas",
        title: "Where the time goes",
        about: "Mean time of one request on one device of each protocol: software down to the \
                doorbell, the device, software back to the caller. Micron's workload list; each \
                thread has one request in flight. Device time is the model's, software time is \
                measured here.",
        legend: legend(&AREAS),
        figures: figures.collect(),
        tables: vec![Folded::new(caption, &heading, cells)],
        ..Section::default()
    }
}

fn software(study: &Study) -> Section {
    let figures = workloads(study).map(|(title, rows)| {
        let bar = |row: &&AreaRow| {
            let parts = vec![
                ("submission".into(), "submission".into(), row.submission.mean),
                ("completion".into(), "completion".into(), row.completion.mean),
            ];
            (row.device.to_string(), parts, format!("{:.2} J/GiB", row.joules_per_gib))
        };
        figure(title, rows.iter().map(bar).collect(), time)
    });
    Section {
        id: "software",
        title: "The software's part",
        about: "The same without the device, at a larger scale. On a busy machine these figures \
                are noise; the conclusions rest on counted instructions (below).",
        legend: legend(&[AREAS[0], AREAS[2]]),
        figures: figures.collect(),
        ..Section::default()
    }
}

fn equal(study: &Study) -> Section {
    let figures = WORKLOADS.into_iter().enumerate().map(|(at, (workload, ..))| {
        let mut bars = vec![(
            "published".to_string(),
            vec![("mark".to_string(), "Micron's result".to_string(), PUBLISHED_PERCENT[at])],
            String::new(),
        )];
        let mut figures = vec![PUBLISHED_PERCENT[at]];
        for column in &study.equal {
            let (Some(ahead), Some([ufs, nvme])) = (column.ahead_percent[at], column.costs_us[at])
            else {
                continue;
            };
            let note = format!("UFS {ufs:.2} us, NVMe {nvme:.2} us");
            figures.push(ahead);
            let parts = vec![("s0".to_string(), column.name.to_string(), ahead.max(0.0))];
            bars.push((column.name.to_string(), parts, note));
        }
        let title = format!("{workload}, device {} us", DEVICE_US[at]);
        let mut chart = figure(title, bars, |percent| format!("{percent:.1} %"));
        // A bar cannot have negative length, but its figure is shown anyway.
        for (bar, figure) in chart.bars.iter_mut().zip(figures) {
            bar.value = format!("{figure:+.1} %");
        }
        chart
    });
    let mut notes: Vec<String> =
        study.equal.iter().map(|column| format!("{}: {}.", column.name, column.source)).collect();
    notes.push(NOT_COMPARED.into());
    Section {
        id: "equal",
        title: "An equal device: NVMe ahead of UFS",
        about: "Micron's method: the software of each protocol on one assumed device. A bar shows \
                how far NVMe is ahead; there is none where UFS is as fast or faster.",
        figures: figures.collect(),
        notes,
        ..Section::default()
    }
}

fn flash(study: &Study) -> Section {
    let figures = |rows: &[Row]| -> Vec<BarChart> {
        let one = |row: &Row| {
            let bar = |(number, value): (usize, &board::Value)| {
                let parts = vec![(format!("s{number}"), value.device.to_string(), value.figure)];
                (value.device.to_string(), parts, format!("{:.2} J/GiB", value.joules_per_gib))
            };
            let unit = row.unit;
            let bars = row.values.iter().enumerate().map(bar).collect();
            figure(row.what.to_string(), bars, |figure| format!("{} {unit}", rate(figure)))
        };
        rows.iter().map(one).collect()
    };
    let mut all = figures(&study.board.same_flash);
    let game = study.board.game.iter().enumerate().map(|(number, value)| {
        let parts = vec![(format!("s{number}"), value.device.to_string(), value.figure)];
        (value.device.to_string(), parts, format!("{:.2} J/GiB", value.joules_per_gib))
    });
    all.push(figure("game load, shorter is better".into(), game.collect(), |s| {
        format!("{s:.2} s")
    }));
    all.extend(figures(&study.board.queue));
    let rows = study.board.same_flash.iter().chain(&study.board.queue);
    let cell = |value: &board::Value, what: &str, unit: &str| {
        vec![
            what.to_string(),
            value.device.into(),
            format!("{} {unit}", rate(value.figure)),
            time(value.mean_nanos),
            format!("{:.2}", value.joules_per_gib),
            value.command.clone(),
        ]
    };
    let mut cells: Vec<Vec<String>> = rows
        .flat_map(|row| row.values.iter().map(|value| cell(value, row.what, row.unit)))
        .collect();
    for value in &study.board.game {
        let mut row = cell(value, "game load", "");
        (row[2], row[3]) = (format!("{:.2} s", value.figure), "-".into());
        cells.push(row);
    }
    let heading = ["workload", "device", "rate", "mean", "J/GiB", "command"];
    Section {
        id: "flash",
        title: "One flash behind three protocols",
        about: "The flash and firmware of the UFS part of an RK3576 board behind UFS (HS-G3, two \
                lanes, both directions at once, a queue), eMMC (HS400, one direction at a time, no \
                queue) and NVMe (PCIe 2, one lane); no software. The last seven are an eMMC with \
                and without its queue. Published for UFS: 333 MiB/s written, 755 read; claimed: \
                full duplex, a queue, games that load in a third of the time.",
        figures: all,
        tables: vec![Folded::new("All figures", &heading, cells)],
        listing: Some(board::game_file()),
        ..Section::default()
    }
}

fn day(study: &Study) -> Section {
    let bars = study.days.iter().flat_map(|day| {
        let bar = |name: String, milliwatts: f64, class: &str, note: String| {
            (name, vec![(class.to_string(), "mean power".to_string(), milliwatts)], note)
        };
        [
            bar(format!("{}, awake", day.device), day.awake_milliwatts, "s1", String::new()),
            bar(
                format!("{}, asleep", day.device),
                day.asleep_milliwatts,
                "s0",
                format!("{:.0} % less: {}", day.saved_percent(), day.how),
            ),
        ]
    });
    let say = |milliwatts: f64| format!("{milliwatts:.1} mW");
    let figures = vec![figure("Mean power of the device over the day".into(), bars.collect(), say)];
    let joules = |value: f64| format!("{value:.1}");
    let parts = study.days.iter().map(|day| {
        let row = |part: &crate::day::Part| {
            vec![part.name.into(), joules(part.awake_joules), joules(part.asleep_joules)]
        };
        let rows = day.parts.iter().map(row).collect();
        let (device, how, target) = (day.device, &day.how, &day.target);
        let caption = format!("{device}: joules a day by phase ({how}; {target})");
        Folded::new(caption, &["phase", "awake", "asleep"], rows)
    });
    let row = |p: &crate::day::Phase| {
        vec![p.name.into(), p.times.to_string(), p.every_s.to_string(), p.job.into()]
    };
    let phases = Folded::new(
        "The day: bursts, their period and their job",
        &["phase", "times", "every, s", "job"],
        PHASES.iter().map(row).collect(),
    );
    Section {
        id: "day",
        title: "A day of phone use",
        about: "What hibern8, APST, DevSleep and eMMC sleep save. Claimed for UFS against eMMC: \
                10 % less power at work, 35 % over a day; against NVMe 30 to 90 minutes of a \
                tablet's battery. docs/energy.md has the power figures and their assumptions.",
        figures,
        tables: std::iter::once(phases).chain(parts).collect(),
        ..Section::default()
    }
}
