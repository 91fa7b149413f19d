//! `flysch bench study`: UFS, NVMe, eMMC and SATA compared.

use std::path::PathBuf;

use flysch_study::{page, study, text};

use super::files::Page;
use super::milliseconds_since_1970;
use crate::failure::Failure;
use crate::output::Output;
use crate::progress::Progress;

/// Options of `flysch bench study`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Four parts: the four areas of Micron's workload list on one device of each protocol; what software
makes of an equal device; one flash behind three protocols, UFS against eMMC; a day of phone use,
what sleeping saves. All devices are modelled; software time is measured, in the first part only.
Examples:
  flysch bench study --html study.html
  flysch bench study --quick --json")]
pub(crate) struct Arguments {
    /// Fewer requests for each figure: seconds instead of a minute.
    #[arg(long)]
    quick: bool,
    /// Write a page for the browser; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Measures.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let file = arguments.html.as_deref().map(|path| Page::open(path, output)).transpose()?;
    let mut progress = Progress::share("measuring");
    let about = (env!("CARGO_PKG_VERSION").to_string(), milliseconds_since_1970());
    let tell = |done: usize| progress.set((done * 1000 / study::STEPS) as u64);
    let study = study::run(about, arguments.quick, tell).map_err(Failure::failed)?;
    drop(progress);
    let command: Vec<String> = std::env::args().collect();
    let written = match file {
        Some(file) => file.finish(&page::render(&study, &command.join(" "))).map(drop),
        None => Ok(()),
    };
    if output.json() {
        output.value(&study)?;
    } else {
        output.line(text::render(&study).trim_end())?;
    }
    output.finish()?;
    written
}
