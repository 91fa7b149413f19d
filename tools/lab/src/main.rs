//! `flysch-lab build` makes the lab; `flysch-lab run SCRIPT FOLDER` runs one job by hand.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use flysch_lab::{Job, Lab, LabError};

const USAGE: &str = "\
usage: flysch-lab build              make the lab, unless it is there
       flysch-lab run SCRIPT FOLDER  run a bash script in the guest, with FOLDER as /share";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["build"] => build(),
        ["run", script, folder] => run(Path::new(script), Path::new(folder)),
        ["help" | "-h" | "--help"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("flysch-lab: {error}");
        ExitCode::from(1)
    })
}

fn build() -> Result<ExitCode, LabError> {
    Lab::build(&mut |step| println!("lab: {step}"))?;
    println!("lab: ready in {}", Lab::folder().display());
    Ok(ExitCode::SUCCESS)
}

fn run(script: &Path, folder: &Path) -> Result<ExitCode, LabError> {
    let text = std::fs::read_to_string(script)
        .map_err(|source| LabError::File { path: script.to_path_buf(), source })?;
    let done = Lab::open()?.run(&Job::new(&text, folder))?;
    print!("{}", done.output);
    Ok(ExitCode::from(u8::try_from(done.status).unwrap_or(1)))
}
