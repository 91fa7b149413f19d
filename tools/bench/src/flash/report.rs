//! The HTML page: bars, the four areas, tables. It runs no script and loads nothing.

use serde::Serialize;

use super::meter::Split;
use super::plan::{Plan, Test};
use super::published;
use super::results::{Results, Row, TargetResults, areas, number, table};
use crate::page::{self, Bar, BarChart, Frame, Mark, Share, Table};

#[derive(Serialize)]
struct Page<'a> {
    #[serde(flatten)]
    frame: Frame<'a>,
    published: &'static str,
    targets: Vec<TargetPart>,
}

#[derive(Serialize)]
struct TargetPart {
    name: String,
    about: String,
    is_published: bool,
    groups: Vec<Group>,
    tables: Vec<Table>,
}

/// Figures of one kind.
#[derive(Serialize)]
struct Group {
    title: &'static str,
    about: &'static str,
    figures: Vec<BarChart>,
}

/// The page. `command` is the command line that produced the results, or empty.
pub fn render(results: &Results, plan: &Plan, command: &str) -> String {
    let page = Page {
        frame: Frame::new(
            "Flysch: file systems on raw flash",
            Some(results.timestamp_ms),
            command,
            &results.version,
        ),
        published: published::MACHINE,
        targets: results.targets.iter().map(|target| part(target, plan)).collect(),
    };
    page::render(include_str!("flash.html"), &page)
}

fn part(target: &TargetResults, plan: &Plan) -> TargetPart {
    let (heading, rows) = table(target, plan);
    let (area_heading, area_rows) = areas(target, plan);
    TargetPart {
        name: target.target.clone(),
        about: format!("{}; {} clock", target.description, target.clock),
        is_published: target.subjects.iter().any(|subject| subject.is_published()),
        groups: groups(target, plan),
        tables: vec![
            Table { caption: "All figures".into(), heading, rows },
            Table {
                caption: "Where the time goes, ms".into(),
                heading: area_heading,
                rows: area_rows,
            },
        ],
    }
}

fn groups(target: &TargetResults, plan: &Plan) -> Vec<Group> {
    type Belongs = fn(Test) -> bool;
    let groups: [(&str, &str, Belongs); 4] = [
        (
            "Throughput",
            "MiB/s; longer is better. A file is written and synced, then read after a fresh mount.",
            |test| matches!(test, Test::Write { .. } | Test::Read { .. }),
        ),
        ("Mount", "Seconds, UBI's attach included; shorter is better.", |test| {
            matches!(test, Test::Mount(_) | Test::MountVerified(_))
        }),
        ("Making files", "Seconds; shorter is better.", |test| matches!(test, Test::Fill(_))),
        (
            "Space overhead",
            "Per cent beyond the file's length: what its nodes and their share of the index take, \
             and what was programmed to get there; shorter is better.",
            |test| matches!(test, Test::Overhead { .. } | Test::Programmed { .. }),
        ),
    ];
    let tests = target.tests(plan);
    let group = |(title, about, belongs): (&'static str, &'static str, Belongs)| {
        let members: Vec<&Row> = tests.iter().copied().filter(|row| belongs(row.test)).collect();
        let figures = members.iter().map(|row| figure(target, row)).collect();
        Group { title, about, figures }
    };
    let groups = groups.into_iter().map(group);
    groups.filter(|group| !group.figures.is_empty()).collect()
}

fn figure(target: &TargetResults, first: &Row) -> BarChart {
    let rows = || {
        let row = |subject: &'_ super::results::SubjectResults| {
            subject.row(first.test).map(|row| (subject.name, row.clone()))
        };
        target.subjects.iter().filter_map(row)
    };
    let most = rows().flat_map(|(_, row)| [row.value, row.published]).flatten();
    let most = most.filter(|value| value.is_finite()).fold(f64::MIN_POSITIVE, f64::max);
    let percent = |value: f64| (value.clamp(0.0, most) / most * 100.0 * 10.0).round() / 10.0;
    let bar = |(subject, row): (&'static str, Row)| Bar {
        name: subject.into(),
        value: match row.value {
            None => "no space".into(),
            Some(value) if value.is_infinite() => "no time of the chip".into(),
            Some(value) => format!("{} {}", number(value), row.unit),
        },
        width: row.value.map_or(0.0, percent),
        mark: row.published.map(|value| Mark {
            text: format!("published: {value} {}", row.unit),
            width: percent(value),
        }),
        parts: parts(&row.areas),
        note: String::new(),
    };
    BarChart { title: first.name.clone(), bars: rows().map(bar).collect() }
}

/// The four areas of a bar.
fn parts(areas: &Split) -> Vec<Share> {
    let Split { file_system_ns, ubi_ns, mtd_ns, device_ns } = *areas;
    let total = areas.total_ns().max(1) as f64;
    let part = |(class, name, ns): (&str, &str, u64)| Share {
        class: class.into(),
        text: format!("{name}: {} ms", number(ns as f64 / 1e6)),
        width: (ns as f64 / total * 1000.0).round() / 10.0,
    };
    [
        ("file-system", "file system", file_system_ns),
        ("ubi", "UBI", ubi_ns),
        ("mtd", "MTD and error correction", mtd_ns),
        ("device", "chip", device_ns),
    ]
    .map(part)
    .into_iter()
    .filter(|part| part.width > 0.0)
    .collect()
}
