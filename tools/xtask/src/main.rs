//! The project's own tasks, run as `cargo xtask TASK`.
#![forbid(unsafe_code)]

mod api;
mod bench;
mod dist;
mod fuzz;
mod layers;
mod msrv;
mod needs;
mod readme;
mod shell;
mod spent;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask TASK [OPTION...]

tasks
  test     check everything that must hold before a change goes in
             --only STEP   run this step (may be repeated)
             --skip STEP   leave this step out (may be repeated)
             --list        list the steps and stop
             --no-install  never install a missing tool
  layers   check who may import whom, by the table in ARCHITECTURE.md, and cycles within crates
  tidy     check the budgets of the code: lengths, widths, words
  api      compare what the published crates promise with the record of the last release
             --record      record what they promise from now on
  lab      build the Linux guest of the flash tests (as root, once) and run what needs it
  dist     make a static program, a Debian package, a Python wheel, SBOMs and checksums
             --check       build twice, in different folders, and compare every byte
             --no-trial    do not try them in a clean tree (which needs root)
  msrv     check what others build on with the oldest Rust that Cargo.toml promises
  fuzz     run the fuzz targets, with a nightly compiler
             --minutes N   run each for N minutes (10)
             --only TARGET run this one (may be repeated)
             --shard I/N   run the I-th of every N targets
  matrix   put trees through every kind of mtd-utils image and out again
             small         use trees a fiftieth as large
             TREES         use only these of ABCET
  mutate   put many mutated flash images through check, extract, edit and repair
             --repair      put them through a repair judged by what was in them before
             --count N     this many (1000)
             --first SEED  start with this seed
             --shard I/N   only seeds that are I modulo N
             --out FILE    write a line of JSON for each seed; skip those already in it
             --prepared DIR  also use the images of mtd-utils' fsck.ubifs tests in DIR
             --keep DIR    keep the images that go wrong in DIR
  tables   write random partition tables with our tool and four others, read each with all
             --count N     this many (1000)
             --first SEED  start with this seed
  bench    measure every figure of docs/bench.md and print its tables
             --only FIGURE, --list as above

test installs what it needs where it can (root on Debian) and says what to install where it cannot;
with CI=true in the environment a step that had to be skipped is a failure.";

/// The tasks that take no options.
const WITHOUT_OPTIONS: [&str; 4] = ["layers", "tidy", "msrv", "lab"];

/// Why a task failed.
enum Failure {
    /// The task found something wrong, or could not do its work; one line per finding.
    Findings(Vec<String>),
    /// The command line was wrong.
    Usage(String),
}

impl From<String> for Failure {
    fn from(finding: String) -> Self {
        Self::Findings(vec![finding])
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Findings(findings)) => {
            for finding in &findings {
                eprintln!("{finding}");
            }
            ExitCode::from(1)
        }
        Err(Failure::Usage(mistake)) => {
            eprintln!("{mistake}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    let Some((task, options)) = arguments.split_first() else {
        return Err(Failure::Usage("no task given".into()));
    };
    // Asking what a task does must not start it.
    let asks = |word: &String| word == "-h" || word == "--help";
    match task.as_str() {
        _ if arguments.iter().any(asks) => {
            println!("{USAGE}");
            Ok(())
        }
        plain if WITHOUT_OPTIONS.contains(&plain) && !options.is_empty() => {
            Err(Failure::Usage(format!("unknown option `{}`", options[0])))
        }
        "help" => {
            println!("{USAGE}");
            Ok(())
        }
        "test" => test::run(&Workspace::open()?, options),
        "layers" => report(layers::check(&Workspace::open()?)?),
        "tidy" => report(tidy::check(&Workspace::open()?)?),
        "api" => api::run(&Workspace::open()?, options),
        "bench" => bench::run(&Workspace::open()?, options),
        "matrix" | "mutate" | "tables" => of_tests(&Workspace::open()?, task, options),
        "dist" => dist::run(&Workspace::open()?, options),
        "msrv" => msrv::run(&Workspace::open()?),
        "fuzz" => fuzz::run(&Workspace::open()?, options),
        "lab" => lab(&Workspace::open()?),
        other => Err(Failure::Usage(format!("unknown task `{other}`"))),
    }
}

/// Builds the Linux guest unless it exists, then runs the tests that need it.
fn lab(workspace: &Workspace) -> Result<(), Failure> {
    let needs = needs::Needs::meet(workspace, true);
    if let Some(lacking) = needs.lacks(&["qemu"]) {
        return Err(lacking.into());
    }
    let package = ["--quiet", "--locked", "--package", "flysch-lab"];
    let mut build = shell::cargo(&workspace.root);
    shell::run(build.arg("run").args(package).args(["--", "build"]))?;
    let mut test = shell::cargo(&workspace.root);
    shell::run(test.arg("test").args(package).env("CI", "true"))?;
    Ok(())
}

/// Runs one of the long-running programs of the tests, which the tests themselves run in part.
fn of_tests(workspace: &Workspace, task: &str, options: &[String]) -> Result<(), Failure> {
    let mut command = shell::cargo(&workspace.root);
    command.args(["run", "--quiet", "--locked", "--package", "flysch-tests", "--bin", task]);
    Ok(shell::run(command.arg("--").args(options))?)
}

/// The result of a check: the findings, and a line that says what was checked.
struct Report {
    findings: Vec<String>,
    summary: String,
}

fn report(report: Report) -> Result<(), Failure> {
    println!("{}", report.summary);
    if report.findings.is_empty() { Ok(()) } else { Err(Failure::Findings(report.findings)) }
}

#[cfg(test)]
mod tests {
    use super::{Failure, WITHOUT_OPTIONS, run};

    #[test]
    fn a_task_without_options_refuses_words() {
        for task in WITHOUT_OPTIONS {
            for word in ["--only", "docs"] {
                let refused = run(&[task.to_owned(), word.to_owned()]);
                let Err(Failure::Usage(why)) = refused else { panic!("{task} {word}") };
                assert!(why.contains(word), "{why}");
            }
        }
    }

    #[test]
    fn a_question_begins_nothing() {
        for task in ["api", "lab", "fuzz", "dist", "msrv", "layers", "nothing of the kind"] {
            for ask in ["-h", "--help"] {
                assert!(run(&[task.to_owned(), ask.to_owned()]).is_ok(), "{task} {ask}");
            }
        }
    }
}
