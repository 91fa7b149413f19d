//! `flysch bench profiles`: every profile of every model against published figures.

use flysch_study::profiles::{of_sheet, text};
use flysch_study::sheets::{SHEETS, Sheet};

use crate::failure::Failure;
use crate::output::Output;
use crate::progress::Progress;

/// Options of `flysch bench profiles`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only profiles whose target contains this, such as `nvme` or `profile=980pro`.
    #[arg(value_name = "TEXT")]
    only: Option<String>,
}

/// Measures them, under the virtual clock.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let text_of = arguments.only.as_deref().unwrap_or_default();
    let chosen: Vec<&Sheet> =
        SHEETS.into_iter().filter(|sheet| sheet.target.contains(text_of)).collect();
    if chosen.is_empty() {
        let all: Vec<&str> = SHEETS.iter().map(|sheet| sheet.target).collect();
        return Err(Failure::usage(format!(
            "there is no profile `{text_of}`; there are {}",
            all.join(" ")
        )));
    }
    let mut progress = Progress::share("measuring");
    let mut results = Vec::new();
    for (done, sheet) in chosen.iter().enumerate() {
        progress.set(done as u64 * 1000 / chosen.len() as u64);
        results.push(of_sheet(sheet).map_err(Failure::failed)?);
    }
    drop(progress);
    if output.json() {
        output.value(&results)?;
    } else {
        output.line(text(&results).trim_end())?;
    }
    output.finish()
}
