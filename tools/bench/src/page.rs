//! The common parts of all HTML pages: the frame, tables, bars. A page runs no script and loads
//! nothing from the network; the reader's preference decides between light and dark.
//!
//! The template of a page extends `frame.html` and fills its blocks: `style`, `heading`, `remarks`,
//! `main`. Its data has a flattened [`Frame`]. `table.html` and `bars.html` are included if there
//! is a variable `table`, a [`Table`], or `figure`, a [`BarChart`].

use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;

use crate::calendar::ctime;

/// The frame around every page.
#[derive(Debug, Serialize)]
pub struct Frame<'a> {
    /// Its title.
    pub title: &'static str,
    style: &'static str,
    created: String,
    command: &'a str,
    version: &'a str,
}

impl<'a> Frame<'a> {
    /// The frame of a page produced by `command` (omitted if empty) with this version, at this time
    /// in milliseconds since 1970 (omitted if none).
    pub fn new(
        title: &'static str,
        timestamp_ms: Option<u64>,
        command: &'a str,
        version: &'a str,
    ) -> Self {
        let created = timestamp_ms.map(|time| format!("{} UTC", ctime(time / 1000)));
        let (created, style) = (created.unwrap_or_default(), include_str!("page/style.css"));
        Self { title, style, created, command, version }
    }
}

/// Rows under a heading; the first cell of each is its label.
#[derive(Debug, Serialize)]
pub struct Table {
    /// The heading above it; nothing if empty.
    pub caption: String,
    /// One cell per column.
    pub heading: Vec<String>,
    /// As many cells in each.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(caption: impl Into<String>, heading: &[&str]) -> Self {
        let heading = heading.iter().map(|cell| (*cell).to_owned()).collect();
        Self { caption: caption.into(), heading, rows: Vec::new() }
    }

    /// The same with these rows.
    #[must_use]
    pub fn with(mut self, rows: impl IntoIterator<Item = Vec<String>>) -> Self {
        self.rows.extend(rows);
        self
    }
}

/// Bars on one scale.
#[derive(Debug, Serialize)]
pub struct BarChart {
    /// What they show.
    pub title: String,
    /// From top to bottom.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Debug, Default, Serialize)]
pub struct Bar {
    /// Its label.
    pub name: String,
    /// Its figure, with the unit.
    pub value: String,
    /// Its length, per cent of the longest.
    pub width: f64,
    /// Its parts.
    pub parts: Vec<Share>,
    /// Another figure for comparison.
    pub mark: Option<Mark>,
    /// A remark, if any.
    pub note: String,
}

/// A part of a bar.
#[derive(Debug, Serialize)]
pub struct Share {
    /// Class of its colour.
    pub class: String,
    /// Its label and figure.
    pub text: String,
    /// Per cent of the bar.
    pub width: f64,
}

/// A figure beside a bar.
#[derive(Debug, Serialize)]
pub struct Mark {
    /// Its label.
    pub text: String,
    /// Per cent of the longest bar.
    pub width: f64,
}

/// The page of a template, which is a part of the program.
///
/// # Panics
/// If the template is invalid, or uses what `page` lacks: a bug of ours.
pub fn render(template: &'static str, page: &impl Serialize) -> String {
    let mut environment = Environment::new();
    let parts = [
        ("frame.html", include_str!("page/frame.html")),
        ("table.html", include_str!("page/table.html")),
        ("bars.html", include_str!("page/bars.html")),
        ("page.html", template),
    ];
    for (name, text) in parts {
        environment.add_template(name, text).expect("the templates are a part of this program");
    }
    let template = environment.get_template("page.html").expect("it was just added");
    template.render(Serde(page)).expect("the page has everything the template uses")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Page<'a> {
        #[serde(flatten)]
        frame: Frame<'a>,
        tables: Vec<Table>,
        figures: Vec<BarChart>,
    }

    #[test]
    fn the_parts_are_put_together_and_escaped() {
        let template = "{% extends \"frame.html\" %}{% block main %}\
            {% for table in tables %}{% include \"table.html\" %}{% endfor %}\
            {% for figure in figures %}{% include \"bars.html\" %}{% endfor %}{% endblock %}";
        let share = Share { class: "device".into(), text: "chip: 1 ms".into(), width: 100.0 };
        let bar = Bar {
            name: "<ubifs>".into(),
            value: "2 MiB/s".into(),
            width: 50.0,
            parts: vec![share],
            mark: Some(Mark { text: "published: 4 MiB/s".into(), width: 100.0 }),
            note: String::new(),
        };
        let row = vec!["a&b".to_owned(), "1".into(), "flysch bench --on ufs".into()];
        let page = render(
            template,
            &Page {
                frame: Frame::new("A page", Some(0), "flysch 'x'", "0.1.0"),
                tables: vec![Table::new("All", &["what", "count", "command"]).with([row])],
                figures: vec![BarChart { title: "Rate".into(), bars: vec![bar] }],
            },
        );
        assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
        for wanted in [
            "<title>A page</title>",
            "<h1>A page</h1>",
            "<caption>All</caption>",
            "<th scope=\"row\">a&amp;b</th><td>1</td>",
            "<td class=\"left\"><code>flysch bench --on ufs</code></td>",
            "&lt;ubifs&gt;",
            "style=\"width:50.0%\"",
            "<small>published: 4 MiB&#x2f;s</small>",
        ] {
            assert!(page.contains(wanted), "{wanted}: {page}");
        }
    }
}
