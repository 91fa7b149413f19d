//! The figures as a page for the browser.

use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;

use super::summary::{AREAS, Group, Summary};
use super::words::{head, title};
use crate::text::format::{share, time};

#[derive(Serialize)]
struct Page<'a> {
    style: &'static str,
    command: &'a str,
    head: Vec<String>,
    groups: Vec<Part>,
}

#[derive(Serialize)]
struct Part {
    title: String,
    software: String,
    /// The four areas as parts of a bar: class, text, percent of the width.
    bar: Vec<(&'static str, String, f64)>,
    rows: Vec<Vec<String>>,
}

/// Classes of the areas' colours.
const CLASSES: [&str; 4] = ["area-fs", "area-sub", "area-dev", "area-comp"];

/// The page; `command` is what made it.
pub fn page(summary: &Summary, command: &str) -> String {
    let page = Page {
        style: crate::report::STYLE,
        command,
        head: head(summary),
        groups: summary.groups.iter().map(part).collect(),
    };
    let mut environment = Environment::new();
    environment
        .add_template("import.html", include_str!("import.html"))
        .expect("the template is a part of this program");
    let template = environment.get_template("import.html").expect("it was just added");
    template.render(Serde(&page)).expect("the page has everything the template uses")
}

fn part(group: &Group) -> Part {
    let mean = |place: usize| group.area(place).map_or(0.0, |area| area.mean_ns);
    let all: f64 = (0..4).map(mean).sum();
    let bar = |place: usize| {
        let text = format!("{}: {}", AREAS[place], time(mean(place)));
        (CLASSES[place], text, 100.0 * mean(place) / all.max(1.0))
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
        rows: group.areas.iter().map(row).collect(),
    }
}
