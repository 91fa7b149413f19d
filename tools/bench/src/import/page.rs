//! The figures as a page for the browser.

use serde::Serialize;

use super::summary::{AREAS, Group, Summary};
use super::words::{head, title};
use crate::page::{self, Frame, Share, Table};
use crate::text::format::{share, time};

#[derive(Serialize)]
struct Page<'a> {
    #[serde(flatten)]
    frame: Frame<'a>,
    head: Vec<String>,
    groups: Vec<Part>,
}

#[derive(Serialize)]
struct Part {
    title: String,
    software: String,
    /// The four areas as parts of a bar.
    bar: Vec<Share>,
    table: Table,
}

/// Classes of the areas' colours.
const CLASSES: [&str; 4] = ["area-fs", "area-sub", "area-dev", "area-comp"];

/// The page; `command` is the command that produced it.
pub fn page(summary: &Summary, command: &str) -> String {
    let page = Page {
        frame: Frame::new(
            "Flysch: the four areas of a trace",
            None,
            command,
            env!("CARGO_PKG_VERSION"),
        ),
        head: head(summary),
        groups: summary.groups.iter().map(part).collect(),
    };
    page::render(include_str!("import.html"), &page)
}

fn part(group: &Group) -> Part {
    let mean = |place: usize| group.area(place).map_or(0.0, |area| area.mean_ns);
    let all: f64 = (0..4).map(mean).sum();
    let bar = |place: usize| {
        let text = format!("{}: {}", AREAS[place], time(mean(place)));
        let (class, width) = (CLASSES[place].into(), 100.0 * mean(place) / all.max(1.0));
        Share { class, text, width }
    };
    let row = |area: &super::summary::Area| {
        let times = [area.p50_ns, area.p99_ns, area.p999_ns, area.max_ns].map(|it| it as f64);
        let times = std::iter::once(area.mean_ns).chain(times).map(time);
        [area.name.to_owned(), area.count.to_string()].into_iter().chain(times).collect()
    };
    Part {
        title: title(group),
        software: share(group.software_percent),
        bar: (0..4).map(bar).collect(),
        table: Table::new("", &["area", "I/Os", "mean", "p50", "p99", "p99.9", "max"])
            .with(group.areas.iter().map(row)),
    }
}
