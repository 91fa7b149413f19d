//! The results.

use serde::Serialize;

use super::meter::{Operations, Reading, Split};
use super::plan::{Plan, Test};
use super::published;

/// Everything of one call of the command.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// Version of this program.
    pub version: String,
    /// Time, milliseconds since 1970.
    pub timestamp_ms: u64,
    /// The chips.
    pub targets: Vec<TargetResults>,
}

/// Everything on one chip.
#[derive(Clone, Debug, Serialize)]
pub struct TargetResults {
    /// The target as the user wrote it.
    pub target: String,
    /// Description.
    pub description: String,
    /// Whose time counts.
    pub clock: &'static str,
    /// Bytes that the chip programs at once: a page of NAND, a write buffer of NOR.
    pub page_size: u32,
    /// The subjects measured on it.
    pub subjects: Vec<SubjectResults>,
}

/// Everything of one file system, or of the bare chip.
#[derive(Clone, Debug, Serialize)]
pub struct SubjectResults {
    /// Its name.
    pub name: &'static str,
    /// The measurements, in order.
    pub rows: Vec<Row>,
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The test.
    pub test: Test,
    /// Its description.
    pub name: String,
    /// Unit of the value.
    pub unit: &'static str,
    /// The value; `None` when the chip is too small.
    pub value: Option<f64>,
    /// The published figure for the board that this target represents.
    pub published: Option<f64>,
    /// The time by layer.
    pub areas: Split,
    /// The chip's operations.
    pub operations: Operations,
}

impl Row {
    /// A figure.
    pub fn new(
        plan: &Plan,
        test: Test,
        value: Option<f64>,
        published: Option<f64>,
        reading: &Reading,
    ) -> Self {
        let (areas, operations) = (reading.split, reading.operations);
        Self { test, name: plan.name(test), unit: test.unit(), value, published, areas, operations }
    }
}

impl TargetResults {
    /// All tests that any subject did, in the order of the plan: their names and units.
    pub fn tests<'a>(&'a self, plan: &Plan) -> Vec<&'a Row> {
        let rows = || self.subjects.iter().flat_map(|subject| &subject.rows);
        let find = |test: Test| rows().find(|row| row.test == test);
        plan.tests().into_iter().filter_map(find).collect()
    }
}

impl SubjectResults {
    /// The figure of a test.
    pub fn row(&self, test: Test) -> Option<&Row> {
        self.rows.iter().find(|row| row.test == test)
    }

    /// Whether there is a published figure for it.
    pub fn is_published(&self) -> bool {
        self.rows.iter().any(|row| row.published.is_some())
    }
}

/// The headings and cells of the table of one target: a line for each test, a column for each
/// subject and one next to it for the published figure.
pub fn table(results: &TargetResults, plan: &Plan) -> (Vec<String>, Vec<Vec<String>>) {
    let mut heading = vec!["".to_string(), "unit".to_string()];
    for subject in &results.subjects {
        heading.push(subject.name.to_string());
        if subject.is_published() {
            heading.push("published".to_string());
        }
    }
    let line = |first: &&Row| {
        let mut cells = vec![first.name.clone(), first.unit.to_string()];
        for subject in &results.subjects {
            let row = subject.row(first.test);
            let value = row.map(|row| row.value.map_or("no space".into(), number));
            cells.push(value.unwrap_or_else(|| "-".into()));
            if subject.is_published() {
                let published = row.and_then(|row| row.published);
                cells.push(published.map_or("-".into(), |value| value.to_string()));
            }
        }
        cells
    };
    (heading, results.tests(plan).iter().map(line).collect())
}

/// Headings and cells of the table of areas, milliseconds.
pub fn areas(results: &TargetResults, plan: &Plan) -> (Vec<String>, Vec<Vec<String>>) {
    let heading =
        ["", "on", "file system", "UBI", "MTD", "chip", "pages read", "programs", "erases"];
    let mut lines = Vec::new();
    for first in results.tests(plan) {
        for subject in &results.subjects {
            let Some(row) = subject.row(first.test).filter(|row| row.value.is_some()) else {
                continue;
            };
            let Split { file_system_ns, ubi_ns, mtd_ns, device_ns } = row.areas;
            let mut cells = vec![row.name.clone(), subject.name.to_string()];
            let times = [file_system_ns, ubi_ns, mtd_ns, device_ns];
            cells.extend(times.map(|ns| number(ns as f64 / 1e6)));
            let Operations { reads, programs, erases } = row.operations;
            cells.extend([reads, programs, erases].map(|count| count.to_string()));
            lines.push(cells);
        }
    }
    (heading.map(String::from).to_vec(), lines)
}

/// The tables for people.
pub fn text(results: &Results, plan: &Plan) -> String {
    let mut text = String::new();
    for target in &results.targets {
        text += &format!("{}: {}, {} clock\n\n", target.target, target.description, target.clock);
        let (heading, rows) = table(target, plan);
        align(&mut text, &heading, &rows, 2);
        if target.subjects.iter().any(SubjectResults::is_published) {
            text += &format!("\npublished: {}\n", published::MACHINE);
        }
        text += "\nwhere the time goes, ms ";
        text += "(file system: area 1, UBI and MTD: area 2, chip: area 3)\n\n";
        let (heading, rows) = areas(target, plan);
        align(&mut text, &heading, &rows, 2);
        text.push('\n');
    }
    text
}

/// Columns from `right` on are right-aligned.
fn align(text: &mut String, heading: &[String], rows: &[Vec<String>], right: usize) {
    let width = |column: usize| {
        let cells = std::iter::once(&heading[column]).chain(rows.iter().map(|row| &row[column]));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    for row in std::iter::once(heading).chain(rows.iter().map(Vec::as_slice)) {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            match column >= right {
                true => line += &format!("{cell:>width$}  "),
                false => line += &format!("{cell:<width$}  "),
            }
        }
        *text += line.trim_end();
        text.push('\n');
    }
}

/// Three significant digits, or all digits before the decimal point.
pub(super) fn number(value: f64) -> String {
    if value.is_infinite() {
        return "no time".into();
    }
    let decimals = match value.abs() {
        v if v == 0.0 || v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.1 => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}
