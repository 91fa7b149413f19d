//! Measures every profile against its sheet.

use std::fmt::Write as _;

use flysch_api::count::counted;
use serde::Serialize;

use crate::measure::{MeasureError, Measured, command, measure};
use crate::sheets::{Cell, SHEETS, Sheet, Unit};

/// A measured cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What was measured.
    pub what: &'static str,
    /// `fitted` or `held out`.
    pub role: &'static str,
    /// The unit of both figures.
    pub unit: &'static str,
    /// The figure from the model.
    pub model: f64,
    /// The published figure.
    pub published: f64,
    /// Error of the model, percent of the published figure.
    pub error_percent: f64,
    /// Largest allowed error, percent.
    pub limit_percent: f64,
    /// Why it is beyond the limit, if known.
    pub miss: Option<&'static str>,
    /// The command that measures it.
    pub command: String,
}

/// A measured sheet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// The target that models device and host.
    pub target: String,
    /// Who measured what, and where it was published.
    pub source: &'static str,
    /// The parameters that no figure determines.
    pub assumed: &'static str,
    /// The cells.
    pub rows: Vec<Row>,
}

/// Errors of all cells with the same role, percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Errors {
    /// Number of cells.
    pub cells: usize,
    /// Mean of their absolute errors.
    pub mean: f64,
    /// The largest absolute error.
    pub worst: f64,
}

impl Results {
    /// Errors of the cells with this role: `fitted` or `held out`.
    pub fn errors(&self, role: &str) -> Errors {
        let of_role = self.rows.iter().filter(|row| row.role == role);
        let all: Vec<f64> = of_role.map(|row| row.error_percent.abs()).collect();
        let cells = all.len();
        let mean = all.iter().sum::<f64>() / cells.max(1) as f64;
        Errors { cells, mean, worst: all.into_iter().fold(0.0, f64::max) }
    }
}

/// A measured figure in the given unit.
fn figure(measured: &Measured, unit: Unit) -> f64 {
    let job = &measured.job;
    let latency = |of: fn(&flysch_bench::results::Latency) -> f64| {
        job.directions().next().map_or(0.0, |(_, results)| of(&results.lat))
    };
    match unit {
        Unit::Kiops => job.iops() / 1e3,
        Unit::Megabytes => job.bandwidth() / 1e6,
        Unit::Mebibytes => job.bandwidth() / f64::from(1 << 20),
        Unit::MeanMillis => latency(|lat| lat.mean / 1e6),
        Unit::P99Millis => {
            latency(|lat| lat.percentile(99.0).map_or(0.0, |nanos| nanos as f64 / 1e6))
        }
    }
}

fn row(cell: &Cell, (target, job): (&str, &str), measured: &Measured) -> Row {
    let model = figure(measured, cell.unit);
    Row {
        what: cell.what,
        role: if cell.fitted { "fitted" } else { "held out" },
        unit: cell.unit.name(),
        model,
        published: cell.figure,
        error_percent: (model / cell.figure - 1.0) * 100.0,
        limit_percent: cell.limit(),
        miss: cell.miss.map(|(_, why)| why),
        command: command(target, job),
    }
}

/// Measures one sheet.
///
/// # Errors
/// What could not be measured.
pub fn of_sheet(sheet: &Sheet) -> Result<Results, MeasureError> {
    let target = format!("{},clock=virtual", sheet.target);
    let mut rows = Vec::new();
    // Cells of one job are next to one another.
    for cells in sheet.cells.chunk_by(|a, b| a.job == b.job) {
        let job = format!("{} {}", cells[0].job, sheet.run);
        let measured = measure(&target, &job)?;
        rows.extend(cells.iter().map(|cell| row(cell, (&target, &job), &measured)));
    }
    let (source, assumed) = (sheet.source, sheet.assumed);
    Ok(Results { target: sheet.target.into(), source, assumed, rows })
}

/// Measures every profile; `tell` is called with the number of sheets done and the total.
///
/// # Errors
/// What could not be measured.
pub fn all(mut tell: impl FnMut(usize, usize)) -> Result<Vec<Results>, MeasureError> {
    let sheet = |(done, sheet): (usize, &&Sheet)| {
        tell(done, SHEETS.len());
        of_sheet(sheet)
    };
    SHEETS.iter().enumerate().map(sheet).collect()
}

/// A figure with as many digits as the published ones.
fn digits(figure: f64, unit: &str) -> String {
    let decimals = if unit == "MiB/s" || unit == "MB/s" { 0 } else { 1 };
    format!("{figure:.decimals$}")
}

/// The table as Markdown, as in `docs/bench.md`: one line per cell, and the errors.
pub fn lines(results: &[Results]) -> Vec<String> {
    let mut lines = Vec::new();
    for sheet in results {
        for row in &sheet.rows {
            lines.push(format!(
                "| `{}` | {} | {} | {} {} | {} | {:+.1} |",
                sheet.target,
                row.what,
                row.role,
                digits(row.model, row.unit),
                row.unit,
                digits(row.published, row.unit),
                row.error_percent
            ));
        }
    }
    for sheet in results.iter().filter(|sheet| !sheet.rows.is_empty()) {
        let [fitted, held] = ["fitted", "held out"].map(|role| sheet.errors(role));
        lines.push(format!(
            "| `{}` | {} | {:.1} | {:.1} | {} | {:.1} | {:.1} |",
            sheet.target,
            fitted.cells,
            fitted.mean,
            fitted.worst,
            held.cells,
            held.mean,
            held.worst
        ));
    }
    lines
}

/// The table as text.
pub fn text(results: &[Results]) -> String {
    let mut out = String::new();
    for sheet in results {
        let _ = write!(
            out,
            "{}\n  source:  {}\n  assumed: {}\n",
            sheet.target, sheet.source, sheet.assumed
        );
        for row in &sheet.rows {
            let _ = writeln!(
                out,
                "  {:<28}{:<9}{:>9} {:<8} published {:>7}  {:>+6.1} %{}",
                row.what,
                row.role,
                digits(row.model, row.unit),
                row.unit,
                digits(row.published, row.unit),
                row.error_percent,
                row.miss.map_or_else(String::new, |why| format!("  ({why})"))
            );
        }
        for role in ["fitted", "held out"] {
            let Errors { cells, mean, worst } = sheet.errors(role);
            if cells > 0 {
                let _ = writeln!(
                    out,
                    "  {role}: {}, {mean:.1} % off on average, {worst:.1} % at worst",
                    counted(cells, "cell", "cells")
                );
            }
        }
        out.push('\n');
    }
    out
}
