//! `flysch bench flash`: raw NAND or NOR, and UBIFS and JFFS2 on it.

use std::path::PathBuf;

use flysch_bench::flash::plan::Plan;
use flysch_bench::flash::results::{Results, text};
use flysch_bench::flash::stack::Subject;
use flysch_bench::flash::target::{FlashTarget, keys};
use flysch_bench::flash::{render, run as run_on};

use super::files::Page;
use super::milliseconds_since_1970;
use crate::failure::Failure;
use crate::output::Output;
use crate::progress::Progress;

/// Options of `flysch bench flash`.
#[derive(Debug, clap::Args)]
#[command(after_help = keys())]
pub(crate) struct Arguments {
    /// The chip; several are measured one after the other.
    #[arg(long, value_name = "TARGET", default_value = "nand")]
    on: Vec<String>,
    /// What to measure: raw, jffs2, jffs2-no-summary, ubifs, ubifs-fastmap.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "raw,jffs2,ubifs",
        value_parser = parse_subject
    )]
    fs: Vec<Subject>,
    /// Write a page for the browser; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn parse_subject(text: &str) -> Result<Subject, String> {
    Subject::named(text).ok_or_else(|| {
        let names = Subject::ALL.map(Subject::name).join(", ");
        format!("`{text}` cannot be measured on flash; use {names}")
    })
}

/// Measures.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let parse = |text: &String| {
        let target: FlashTarget = text.parse().map_err(Failure::usage)?;
        Ok((text.clone(), target))
    };
    let targets = arguments.on.iter().map(parse).collect::<Result<Vec<_>, Failure>>()?;
    let page = arguments.html.as_deref().map(|path| Page::open(path, output)).transpose()?;
    let plan = Plan::default();
    let mut results = Results {
        version: env!("CARGO_PKG_VERSION").to_string(),
        timestamp_ms: milliseconds_since_1970(),
        targets: Vec::new(),
    };
    let mut progress = Progress::share("measuring");
    let steps = (plan.tests().len() * arguments.fs.len() * targets.len()).max(1) as u64;
    let mut step = 0;
    for (name, target) in &targets {
        let mut tell = |_, _| {
            step += 1;
            progress.set(step * 1000 / steps);
        };
        let done = run_on(name, target, &arguments.fs, &plan, &mut tell);
        results.targets.push(done.map_err(Failure::failed)?);
    }
    drop(progress);
    let command: Vec<String> = std::env::args().collect();
    let written = match page {
        Some(page) => page.finish(&render(&results, &plan, &command.join(" "))).map(drop),
        None => Ok(()),
    };
    if output.json() {
        output.value(&results)?;
    } else {
        output.line(text(&results, &plan).trim_end())?;
    }
    output.finish()?;
    written
}
